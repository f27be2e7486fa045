# SPDX-License-Identifier: Apache-2.0
"""Constrained answers of npugraph-server: what they keep to by another library, how they end, and what is refused.

NPUGRAPH_SCHEMAS and NPUGRAPH_RUNS are the numbers of random schemas and of answers to each; NPUGRAPH_SEED chooses them.
"""
from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import re
import time
from typing import Any

import jsonschema
import openai
import pydantic
import pytest
from conftest import Daemon
from schemas import FORMATS, Schemas
from serving import CHAT, PROMPT, TOKENIZER, Server, await_no_sequences

SCHEMAS, RUNS = int(os.environ.get("NPUGRAPH_SCHEMAS", "50")), int(os.environ.get("NPUGRAPH_RUNS", "2"))
SEED = int(os.environ.get("NPUGRAPH_SEED", "1"))
CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0,
          "maximum": 150}}, "required": ["name", "age"], "additionalProperties": False}


def check(value: Any, schema: Any) -> None:
    jsonschema.Draft202012Validator(schema, format_checker=CHECKER).validate(value)


def as_format(schema: Any, strict: bool = True) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": strict}}


# ---- answers ----

def test_random_schemas_are_kept_to(server: Server, daemon: Daemon) -> None:
    assert {*FORMATS} <= CHECKER.checkers.keys(), "jsonschema checks time and date-time with rfc3339-validator only"
    schemas = Schemas(SEED)
    made = [schemas.schema() for _ in range(SCHEMAS)]
    broken: list[str] = []

    def ask(schema: dict[str, Any]) -> list[str]:
        status, answer, _ = server.post("/v1/chat/completions", messages=CHAT, n=RUNS, temperature=1, max_tokens=250,
                                        response_format=as_format(schema))
        if status == 400:
            error = answer["error"]
            assert error["code"] == "invalid_constraint" and error["param"] == "response_format.json_schema.schema", answer
            return ["refused"] * RUNS
        assert status == 200, answer
        for choice in answer["choices"]:
            if choice["finish_reason"] == "stop":
                text = choice["message"]["content"]
                try:
                    check(json.loads(text), schema)
                except (ValueError, jsonschema.ValidationError) as error:
                    broken.append(f"{error.args[0]}: {json.dumps(schema)}: {text!r}")
        return [choice["finish_reason"] for choice in answer["choices"]]

    with concurrent.futures.ThreadPoolExecutor(max(1, 64 // RUNS)) as pool:
        ends = [end for ends in pool.map(ask, made) for end in ends]
    counts = {end: ends.count(end) for end in ("stop", "length", "refused")}
    print(f"seed {SEED}: {SCHEMAS} schemas, {len(ends)} answers: {counts}, {len(broken)} of them broken")
    assert not broken, "\n".join(broken)
    assert counts["stop"] > len(ends) // 4 and counts["refused"] <= len(ends) // 5, counts
    await_no_sequences(daemon)


@pytest.mark.parametrize(("form", "pattern", "real"), [
    ("date", "^((1900|2023|0000)-02-29|0000-01-01|2000-02-29)$", "2000-02-29"), ("date", "^2023-02-2[89]$", "2023-02-28"),
    ("time", "^(23:59:60Z|22:24:60.5[+]01:00|22:24:59z)$", "22:24:59z"),
    ("date-time", "^(2023-02-29T00:00:00Z|1990-12-31T23:59:60Z|1996-02-29t23:59:59Z)$", "1996-02-29t23:59:59Z")])
def test_dates_are_in_the_calendar(server: Server, form: str, pattern: str, real: str) -> None:
    names = {"type": "object", "properties": {"format": {"type": "string", "format": form, "pattern": pattern},
             "const": {"const": {"format": form}}}, "required": ["format", "const"], "additionalProperties": False}
    status, answer, _ = server.post("/v1/completions", prompt=PROMPT, n=4, max_tokens=200, guided_json=names)
    assert status == 200, answer
    for choice in answer["choices"]:
        assert json.loads(choice["text"]) == {"format": real, "const": {"format": form}}


def test_streams_say_the_same_and_choices_differ(server: Server) -> None:
    fields: dict[str, Any] = {"messages": CHAT, "n": 3, "seed": 7, "response_format": as_format(PERSON), "logprobs": True}
    whole = [choice["message"]["content"] for choice in server.post("/v1/chat/completions", **fields)[1]["choices"]]
    streamed = [""] * 3
    for event in server.events("/v1/chat/completions", **fields):
        choice = event["choices"][0]
        streamed[choice["index"]] += choice["delta"].get("content", "")
    assert streamed == whole and len(set(whole)) == 3
    for text in whole:
        check(json.loads(text), PERSON)
    prompts = server.post("/v1/completions", prompt=[PROMPT, "And God"], n=2, max_tokens=300, response_format=as_format(PERSON),
                          logprobs=1)[1]["choices"]
    assert len(prompts) == 4
    for choice in prompts:
        assert choice["finish_reason"] == "stop"
        check(json.loads(choice["text"]), PERSON)
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"]


@pytest.mark.parametrize(("fields", "pattern"), [
    ({"response_format": {"type": "json_object"}}, r"\{.*\}"),
    ({"structured_outputs": {"json_object": True}}, r"\{.*\}"),
    ({"structured_outputs": {"regex": r"[A-Z]{3}-\d{2,4}é?"}}, r"[A-Z]{3}-[0-9]{2,4}é?"),
    ({"guided_regex": r"(ab|cd){1,9}x"}, r"(ab|cd){1,9}x"),
    ({"guided_choice": ["heaven", "earth", 'a "b"\n\\', "ü🙂"]}, 'heaven|earth|a "b"\n\\\\|ü🙂'),
    ({"structured_outputs": {"choice": ["only"]}}, "only"),
    ({"guided_json": PERSON}, r"\{.*\}"), ({"guided_json": json.dumps(PERSON)}, r"\{.*\}"),
    ({"structured_outputs": {"grammar": 'start: "x" NUMBER ("," NUMBER)*\nNUMBER: /[0-9]{1,3}/\n'}}, r"x[0-9]{1,3}(,[0-9]{1,3})*"),
    ({"guided_grammar": 'root ::= "yes" | "no" [0-9]'}, "yes|no[0-9]"),
])
@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_each_kind(server: Server, path: str, fields: dict[str, Any], pattern: str) -> None:
    right: dict[str, Any] = {"prompt": PROMPT} if path == "completions" else {"messages": CHAT}
    status, answer, _ = server.post(f"/v1/{path}", **right, **fields, n=8, max_tokens=600)
    assert status == 200, answer
    ended = 0
    for choice in answer["choices"]:
        text = choice["text"] if path == "completions" else choice["message"]["content"]
        if choice["finish_reason"] == "stop":
            ended += 1
            assert re.fullmatch(pattern, text, re.S), text
    assert ended >= (3 if pattern[0] != "\\" else 1)  # a random object may be long


def test_ends(server: Server, daemon: Daemon) -> None:
    def ends(**fields: Any) -> tuple[str, str, int]:
        answer = server.post("/v1/completions", prompt=PROMPT, **fields)[1]
        return answer["choices"][0]["text"], answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"]

    assert ends(guided_regex="abc")[:2] == ("abc", "stop")
    tokens = ends(guided_regex="Z{5}")[2]
    assert ends(guided_regex="Z{5}", max_tokens=tokens) == ("ZZZZZ", "stop", tokens)  # complete with the last token
    if tokens > 1:
        assert ends(guided_regex="Z{5}", max_tokens=tokens - 1)[1:] == ("length", tokens - 1)
    assert ends(guided_regex="[a-z]+ [a-z]+ END", stop=[" "])[1] == "stop"
    text, finish, n = ends(guided_regex="[a-z]{5000}", max_tokens=5000)
    assert finish == "length" and n > 500 and re.fullmatch("[a-z]+", text)  # the context is full
    # A stop token exactly where the grammar accepts: at once, or after some words.
    assert ends(guided_regex="(x{50})?", logit_bias={"2045": 100})[:2] == ("", "stop")
    assert ends(guided_regex="ab(x{50})?", logit_bias={"2045": 100})[:2] == ("ab", "stop")
    assert ends(guided_regex="[ab]{1,6}", min_tokens=3, temperature=0)[2] >= 3
    for token in (2046, 2045):  # marks are no text
        assert ends(guided_regex=".{3,10}", logit_bias={str(token): 100}, max_tokens=20)[0] != ""
    assert "<|" not in ends(guided_regex="[^<]{0,9}", logit_bias={"2046": 100})[0]
    await_no_sequences(daemon)


def test_pieces_of_characters(server: Server) -> None:
    for n in range(3):
        text = server.post("/v1/completions", prompt=PROMPT, guided_regex="[\u0400-\u04ff]{2}🙂é", seed=n)[1]["choices"][0]["text"]
        assert re.fullmatch("[\u0400-\u04ff]{2}🙂é", text), text


# ---- what is refused ----

def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    return schema


def crossed(n: int) -> dict[str, Any]:
    """Returns a schema of 8 ** n alternatives."""
    return {"allOf": [{"anyOf": [{"properties": {f"p{i}{j}": {"type": "string"}}, "required": [f"p{i}{j}"]} for j in range(8)]}
                      for i in range(n)]}


@pytest.mark.parametrize(("fields", "param"), [
    ({"response_format": 5}, "response_format"), ({"response_format": {"type": "json_schema"}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema"),
    ({"response_format": as_format([])}, "response_format.json_schema.schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": 1}}}, "response_format.json_schema.strict"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "more": 1}}}, "response_format.json_schema.more"),
    ({"response_format": as_format({"not": {"type": "string"}})}, "response_format.json_schema.schema"),
    ({"response_format": as_format({"type": "nothing"})}, "response_format.json_schema.schema"),
    ({"response_format": as_format({"$ref": "http://127.0.0.1:1/x"})}, "response_format.json_schema.schema"),
    ({"response_format": as_format({"$ref": "#/$defs/none"})}, "response_format.json_schema.schema"),
    ({"response_format": as_format({"$ref": "#"})}, "response_format.json_schema.schema"),
    ({"response_format": as_format({"type": "string", "minLength": 5, "maxLength": 2})}, "response_format.json_schema.schema"),
    ({"response_format": as_format({"type": "string", "pattern": "("})}, "response_format.json_schema.schema"),
    ({"response_format": as_format({"not": {}, "x-guidance": {"lenient": True}})}, "response_format.json_schema.schema"),
    ({"response_format": as_format(crossed(7))}, "response_format.json_schema.schema"),
    ({"response_format": as_format({"enum": ["x" * 70000]})}, "response_format.json_schema.schema"),
    ({"guided_json": "{"}, "guided_json"), ({"guided_json": 5}, "guided_json"), ({"guided_json": "5"}, "guided_json"),
    ({"guided_json": "[" * 50000}, "guided_json"), ({"guided_json": json.dumps(nested(40))}, "guided_json"),
    ({"guided_regex": "("}, "guided_regex"), ({"guided_regex": ""}, "guided_regex"),
    ({"guided_regex": "a" * 70000}, "guided_regex"),
    ({"guided_regex": "(?=a)b"}, "guided_regex"), ({"guided_regex": "((a{1,1000}){1,1000}b){1,1000}c|" * 50}, ""),
    ({"guided_choice": []}, "guided_choice"), ({"guided_choice": ["a", 5]}, "guided_choice"),
    ({"guided_choice": ["a"] * 1025}, "guided_choice"), ({"guided_choice": [""]}, "guided_choice"),
    ({"guided_grammar": "start: nothing"}, "guided_grammar"), ({"guided_grammar": "::= ::="}, "guided_grammar"),
    ({"guided_grammar": "start: " + "(" * 20000}, "guided_grammar"),
    ({"guided_grammar": "root ::= " + "[" * 9000}, "guided_grammar"),
    ({"guided_grammar": 'start: "a" /(/'}, "guided_grammar"), ({"guided_grammar": "start: <[99999]>"}, "guided_grammar"),
    ({"structured_outputs": 5}, "structured_outputs"), ({"structured_outputs": {"xml": "a"}}, "structured_outputs.xml"),
    ({"structured_outputs": {"regex": "a", "json": {}}}, "structured_outputs"),
    ({"structured_outputs": {"json_object": "yes"}}, "structured_outputs.json_object"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
    ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
    ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos"),
    ({"guided_grammar": "\n" * 60000}, "guided_grammar"), ({"guided_grammar": " \n" * 30000}, "guided_grammar"),
])
def test_what_cannot_be_kept_to_is_refused(server: Server, daemon: Daemon, fields: dict[str, Any], param: str) -> None:
    begin = time.monotonic()
    status, answer, _ = server.post("/v1/chat/completions", messages=CHAT, max_tokens=5, **fields)
    if param == "":
        assert status in (200, 400)  # large, but it may be built: it must only not take long
    else:
        assert status == 400 and answer["error"]["param"] == param, answer
        assert answer["error"]["type"] == "invalid_request_error" and len(answer["error"]["message"]) < 1000
    assert time.monotonic() - begin < 10
    await_no_sequences(daemon)


def test_a_refusal_that_is_kept_names_the_field(server: Server) -> None:
    for fields, param in (({"guided_regex": "(["}, "guided_regex"),
                          ({"structured_outputs": {"regex": "(["}}, "structured_outputs.regex"),
                          ({"guided_regex": "(["}, "guided_regex")):
        assert server.post("/v1/completions", prompt=PROMPT, **fields)[1]["error"]["param"] == param


def test_lenient_schemas(server: Server) -> None:
    """Without strict, keywords that cannot be kept to are left out."""
    schema = PERSON | {"not": {"required": ["nothing"]}}
    text = server.post("/v1/chat/completions", messages=CHAT, response_format=as_format(schema, strict=False))[1]
    check(json.loads(text["choices"][0]["message"]["content"]), schema)


def test_dead_ends_are_said(server: Server, daemon: Daemon) -> None:
    """A grammar that begins well and then cannot go on ends the stream with an error."""
    grammar = "start: /[ab]{3}/ <[2046]>"  # the bundled model's vocabulary has the mark; what follows it is none
    answer = server.post("/v1/completions", prompt=PROMPT, guided_grammar=grammar)[1]
    assert answer["choices"][0]["finish_reason"] == "stop" and re.fullmatch("[ab]{3}", answer["choices"][0]["text"])
    await_no_sequences(daemon)


def test_many_grammars_and_clients_at_once(server: Server, daemon: Daemon) -> None:
    """64 clients with a grammar each; unconstrained streams and /health go on beside them."""
    def ask(i: int) -> str:
        fields = {"guided_regex": f"<{i}>[a-z ]{{20,40}}</{i}>"}
        return server.post("/v1/completions", prompt=PROMPT, max_tokens=100, **fields)[1]["choices"][0]["text"]

    with concurrent.futures.ThreadPoolExecutor(65) as pool:
        answers = [pool.submit(ask, i) for i in range(64)]
        slowest = 0.0
        while not all(answer.done() for answer in answers):
            begin = time.monotonic()
            assert server.ask("GET", "/version")[0] == 200
            slowest = max(slowest, time.monotonic() - begin)
            time.sleep(0.01)
    for i, answer in enumerate(answers):
        assert re.fullmatch(f"<{i}>[a-z ]{{20,40}}</{i}>", answer.result())
    assert slowest < 5
    await_no_sequences(daemon)


def test_clients_that_vanish_in_a_step(server: Server, daemon: Daemon) -> None:
    streams = [server.client().completions.create(model="bible", prompt=PROMPT, max_tokens=900, stream=True,
                                                  extra_body={"guided_regex": "[a-z]{5000}"}) for _ in range(8)]
    for stream in streams:
        next(iter(stream))
        stream.close()
    await_no_sequences(daemon)


def test_a_server_without_the_library(daemon: Daemon, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = folder / "fakes"
    fakes.mkdir()
    (fakes / "llguidance.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", f"{fakes}:{os.environ.get('PYTHONPATH', '')}")
    bare = Server(daemon.address, folder)
    status, answer, _ = bare.post("/v1/completions", prompt=PROMPT, guided_regex="a")
    assert status == 400 and answer["error"]["param"] == "guided_regex" and "npugraph[guided]" in answer["error"]["message"]
    assert bare.post("/v1/completions", prompt=PROMPT, max_tokens=2)[0] == 200
    bare.stop()


# ---- clients ----

class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    age: int = pydantic.Field(ge=0, le=150)


def test_openais_client_parses(server: Server) -> None:
    client = server.client()
    parsed = client.chat.completions.parse(model="bible", messages=CHAT, response_format=Person, max_tokens=200)
    assert isinstance(parsed.choices[0].message.parsed, Person)
    with client.chat.completions.stream(model="bible", messages=CHAT, response_format=Person, max_tokens=200) as stream:
        assert isinstance(stream.get_final_completion().choices[0].message.parsed, Person)
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(model="bible", messages=CHAT, response_format=Person, max_tokens=1)


def test_langchain_has_structured_output(server: Server) -> None:
    from langchain_openai import ChatOpenAI
    chat = ChatOpenAI(model="bible", base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0, temperature=1)
    assert isinstance(chat.with_structured_output(Person, method="json_schema").invoke("Who?"), Person)
    for _ in range(20):
        try:
            assert isinstance(chat.with_structured_output(None, method="json_mode").invoke("JSON, please"), dict)
            break
        except openai.LengthFinishReasonError:  # nothing bounds an object of any form
            continue
    else:
        pytest.fail("no object ended")


def test_the_bundled_vocabulary_has_all_bytes() -> None:
    assert {TOKENIZER.token_bytes(i) for i in range(len(TOKENIZER))} >= {bytes([i]) for i in range(256)}
