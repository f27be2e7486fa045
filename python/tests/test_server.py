# SPDX-License-Identifier: Apache-2.0
"""npugraph-server: OpenAI's API by its own client and by plain HTTP, what is refused, and what a client may break."""
from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import http.client
import importlib.util
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from typing import Any

import httpx
import openai
import pytest
from conftest import MODEL, PATIENCE, SOURCE, Daemon
from serving import CHAT, PROMPT, TOKENIZER, Server, await_no_sequences, sequences

import npugraph.aio
from npugraph.server.cli import main
from npugraph.server.texts import Answer, Ask


def greedy(daemon: Daemon, prompt: str, n: int, *, template: bool = True) -> tuple[str, list[int]]:
    """Returns the text that the model continues a prompt with, and its tokens."""
    ids = TOKENIZER.encode(prompt, template=template)
    with npugraph.connect(daemon.address) as client, client.open("bible", ids) as sequence:
        tokens = list(sequence.generate(n))
    text = TOKENIZER.stream(ids)
    return "".join([*map(text.add, tokens), text.end()]), tokens


# ---- answers ----

def test_openais_client_completes(server: Server, daemon: Daemon) -> None:
    client = server.client()
    want, tokens = greedy(daemon, PROMPT, 30)
    whole = client.completions.create(model="bible", prompt=PROMPT, max_tokens=30, temperature=0, logprobs=2)
    assert whole.choices[0].text == want and whole.choices[0].finish_reason == "length"
    assert whole.usage.completion_tokens == 30 and whole.usage.prompt_tokens == 5
    logprobs = whole.choices[0].logprobs
    assert "".join(logprobs.tokens) == want and len(logprobs.token_logprobs) == 30 and max(logprobs.token_logprobs) <= 0
    assert all(len(top) == 2 and max(top, key=top.get) == token for top, token in zip(logprobs.top_logprobs, logprobs.tokens,
                                                                                       strict=True))
    assert [want[at:at + len(token)] for at, token in zip(logprobs.text_offset, logprobs.tokens, strict=True)] == logprobs.tokens
    stream = client.completions.create(model="bible", prompt=PROMPT, max_tokens=30, temperature=0, stream=True,
                                       stream_options={"include_usage": True})
    chunks = list(stream)
    assert "".join(c.choices[0].text for c in chunks[:-1]) == want and chunks[-1].usage == whole.usage
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]
    by_ids = client.completions.create(model="bible", prompt=TOKENIZER.encode(PROMPT), max_tokens=30,
                                       temperature=0, echo=True, logprobs=1)
    text, logprobs = by_ids.choices[0].text, by_ids.choices[0].logprobs
    assert text == PROMPT + want and [text[at:at + len(token)] for at, token in
                                      zip(logprobs.text_offset, logprobs.tokens, strict=True)] == logprobs.tokens
    for _ in range(30):  # whether the stop token comes with others or alone
        stopped = client.completions.create(model="bible", prompt=PROMPT, max_tokens=30, temperature=0, logprobs=1,
                                            extra_body={"stop_token_ids": [TOKENIZER.encode(PROMPT + want)[-8]]}).choices[0]
        assert stopped.finish_reason == "stop" and "".join(stopped.logprobs.tokens) == stopped.text
    assert client.models.list().data[0].id == client.models.retrieve("bible").id == "bible"


def test_openais_client_chats(server: Server, daemon: Daemon) -> None:
    client = server.client()
    prompt = "<|im_start|>user\nWho made the heaven?<|im_end|>\n<|im_start|>assistant\n"
    with npugraph.connect(daemon.address) as c:
        ids = TOKENIZER.encode(prompt, template=False)
        with c.open("bible", ids, npugraph.Sampling(min_tokens=12)) as sequence:
            tokens = list(sequence.generate(12))
    want = TOKENIZER.decode(tokens)
    fields: dict[str, Any] = {"model": "bible", "messages": CHAT, "max_completion_tokens": 12, "temperature": 0,
                              "extra_body": {"min_tokens": 12}}
    whole = client.chat.completions.create(**fields, logprobs=True, top_logprobs=3)
    assert whole.choices[0].message.content == want and whole.choices[0].message.role == "assistant"
    assert whole.usage.prompt_tokens == len(ids)
    entries = whole.choices[0].logprobs.content
    assert b"".join(bytes(e.bytes) for e in entries).decode() == want and all(len(e.top_logprobs) == 3 for e in entries)
    chunks = list(client.chat.completions.create(**fields, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == want
    parts = [{"role": "user", "content": [{"type": "text", "text": "Who made "}, {"type": "text", "text": "the heaven?"}]}]
    assert client.chat.completions.create(**fields | {"messages": parts}).choices[0].message.content == want
    ended = client.chat.completions.create(model="bible", messages=CHAT, temperature=0, logprobs=True)  # the model ends at once
    assert ended.choices[0].finish_reason == "stop" and ended.choices[0].message.content == ""
    assert ended.choices[0].logprobs is None and ended.usage.completion_tokens == 1


def test_curl_and_npugraphctl_say_the_same(server: Server, daemon: Daemon) -> None:
    fields = json.dumps({"model": "bible", "prompt": PROMPT, "max_tokens": 40, "temperature": 0})
    out = subprocess.run(["curl", "-sf", f"http://127.0.0.1:{server.port}/v1/completions", "-H", "Content-Type: application/json",
                          "-d", fields], capture_output=True, check=True).stdout
    ctl = pathlib.Path(os.environ["NPUGRAPHD"]).with_name("npugraphctl")
    said = subprocess.run([ctl, "--json", "--address", daemon.address, "generate", "bible", "--tokenizer", MODEL,
                           "--prompt", PROMPT, "--tokens", "40"], capture_output=True, check=True).stdout
    assert json.loads(out)["choices"][0]["text"] == json.loads(said)["text"]


def test_choices_and_seeds(server: Server) -> None:
    fields: dict[str, Any] = {"prompt": [PROMPT, "And God said"], "n": 3, "max_tokens": 12, "temperature": 1.0, "seed": 5}
    first, second = (server.post("/v1/completions", **fields)[1] for _ in range(2))
    texts = [c["text"] for c in first["choices"]]
    assert texts == [c["text"] for c in second["choices"]] and [c["index"] for c in first["choices"]] == list(range(6))
    assert len(set(texts)) > 3 and first["usage"]["prompt_tokens"] == 5 + len(TOKENIZER.encode("And God said"))
    streamed = [""] * 6
    for event in server.events("/v1/completions", **fields):
        streamed[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert streamed == texts
    unseeded = {server.post("/v1/completions", prompt=PROMPT, max_tokens=12)[1]["choices"][0]["text"] for _ in range(4)}
    assert len(unseeded) > 1
    biased = server.post("/v1/completions", prompt=PROMPT, max_tokens=3, logit_bias={"9": 100})[1]
    assert biased["choices"][0]["text"] == TOKENIZER.decode([9, 9, 9])


def test_stop_strings_are_found_across_tokens(server: Server, daemon: Daemon) -> None:
    want, tokens = greedy(daemon, PROMPT, 40)
    pieces = [TOKENIZER.decode([t]) for t in tokens]
    for length in (3, 8, 15):
        for at in (len(pieces[0]) - 1, 17, 30):
            stop = want[at:at + length]
            cut = want[:want.index(stop)]
            fields: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "stop": [stop, "never said"]}
            choice = server.post("/v1/completions", **fields)[1]["choices"][0]
            assert (choice["text"], choice["finish_reason"]) == (cut, "stop"), stop
            streamed = [e["choices"][0] for e in server.events("/v1/completions", **fields)]
            assert "".join(c["text"] for c in streamed) == cut and streamed[-1]["finish_reason"] == "stop"
    by_token = server.post("/v1/completions", prompt=PROMPT, max_tokens=40, temperature=0, stop_token_ids=[tokens[4]])[1]
    assert by_token["choices"][0]["text"] == "".join(pieces[:4]) and by_token["choices"][0]["finish_reason"] == "stop"
    await_no_sequences(daemon)


def test_the_first_piece_comes_before_the_generation_begins(server: Server, daemon: Daemon) -> None:
    """The daemon may need all CPUs for the next token; who waits for the first one should not."""
    ids, happened, tokens = TOKENIZER.encode(PROMPT), [], []
    model = types.SimpleNamespace(tokenizer=TOKENIZER)
    ask = Ask(max_tokens=3, stops=[], stop_tokens=[], ignore_eos=True, marks={}, logprobs=None)

    async def follow(ask: Ask) -> list[str]:
        async with await npugraph.aio.connect(daemon.address) as client, await client.open("bible", ids) as sequence:
            def start() -> npugraph.aio.Generation:
                happened.append("begins")
                return sequence.generate(ask.max_tokens, ignore_stop=True)
            finishes = []
            async for piece in Answer(model, ids, sequence, ask, False, start).pieces():  # type: ignore[arg-type]
                happened.append(piece.text)
                finishes.append(piece.finish or "")
            tokens.append(sequence.last.token)
            return finishes

    assert asyncio.run(follow(ask))[-1] == "length" and happened.index("begins") == 1, happened
    first, happened[:] = happened[0], []
    assert asyncio.run(follow(dataclasses.replace(ask, stops=[first]))) == ["stop"] and happened == [""]  # nothing to compute
    happened.clear()
    assert asyncio.run(follow(dataclasses.replace(ask, max_tokens=1))) == ["", "length"] and happened == [first, ""]
    happened.clear()
    assert asyncio.run(follow(dataclasses.replace(ask, stop_tokens=tokens[:1]))) == ["stop"] and happened == [""]


def test_characters_are_whole_in_streams(server: Server) -> None:
    byte = {TOKENIZER.token_bytes(i): i for i in range(len(TOKENIZER)) if len(TOKENIZER.token_bytes(i)) == 1}
    for begin, count, text in ((b"\xe2", 2, "\u2000"), (b"\xf0\x90", 2, "\U00010000"), (b"\xe2", 3, "\u2000\ufffd")):
        fields: dict[str, Any] = {"prompt": [byte[begin[i:i + 1]] for i in range(len(begin))], "max_tokens": count, "logprobs": 0,
                                  "logit_bias": {str(byte[b"\x80"]): 100}, "temperature": 0}
        choice = server.post("/v1/completions", **fields)[1]["choices"][0]
        assert choice["text"] == text and len(choice["logprobs"]["tokens"]) == count
        pieces = [event["choices"][0] for event in server.events("/v1/completions", **fields)]
        assert "".join(p["text"] for p in pieces) == text  # a part of a character alone would be a mark of its own
        assert sum(len(p["logprobs"]["tokens"]) for p in pieces if p["logprobs"]) == count


def test_tokenize(server: Server) -> None:
    assert server.post("/tokenize", prompt=PROMPT)[1] == {"count": 5, "tokens": TOKENIZER.encode(PROMPT)}
    text = "<|im_start|>user\nWho made the heaven?<|im_end|>\n<|im_start|>assistant\n"
    assert server.post("/tokenize", messages=CHAT)[1]["tokens"] == TOKENIZER.encode(text, template=False)
    assert server.post("/tokenize")[0] == 400


# ---- what is refused ----

WRONG: list[tuple[str, dict[str, Any], str]] = [
    *[("completions", {"prompt": value}, "prompt") for value in (
        None, 5, {}, [], [[]], ["a", 5], [1, "a"], [True], [1 << 40], [-1], "", [""])],
    *[("completions", {"max_tokens": value}, "max_tokens") for value in (0, -1, "5", 1.5, True, [1], 1 << 70)],
    *[("completions", {"temperature": value}, "temperature") for value in (-0.1, 2.1, "hot", True, [], {})],
    *[("completions", {name: value}, name) for name, value in (
        ("top_p", 0), ("top_p", 1.1), ("presence_penalty", 3), ("frequency_penalty", -3), ("n", 0), ("n", "2"), ("n", 129),
        ("stream", 1), ("stream_options", 1), ("stream_options", {"x": 1}), ("stop", 5), ("stop", [""]), ("stop", ["a"] * 17),
        ("stop", "x" * 1025), ("stop", "a\0b"), ("stop", [None]), ("seed", 1.5), ("seed", 1 << 64), ("logit_bias", []),
        ("logit_bias", {"a": 1}), ("logit_bias", {"5": "x"}), ("logit_bias", {"5": 101}), ("logit_bias", {"99999999999": 1}),
        ("logprobs", 21), ("logprobs", True), ("echo", "yes"), ("user", 5), ("best_of", 2), ("suffix", "end"),
        ("response_format", {"type": "xml"}), ("response_format", 1), ("top_k", -2), ("min_p", 2), ("typical_p", -1),
        ("repetition_penalty", 0), ("min_tokens", -1), ("ignore_eos", 0), ("stop_token_ids", ["a"]), ("stop_token_ids", [-1]),
        ("stop_token_ids", 5), ("model", 5), ("model", None), ("no_such_field", 1), ("messages", CHAT))],
    *[("chat/completions", {"messages": value}, "messages") for value in (None, [], {}, "hi", 5)],
    *[("chat/completions", {"messages": [value]}, "messages[0]") for value in (
        5, {}, {"role": "user"}, {"role": 5, "content": "a"}, {"role": "user", "content": 5}, {"role": "user", "content": [5]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "user", "content": "a", "tool_calls": [{}]}, {"role": "user", "content": [{"type": "text", "text": 5}]})],
    *[("chat/completions", {name: value}, name) for name, value in (
        ("tools", [{"type": "function"}]), ("tool_choice", "auto"), ("functions", [{}]),
        ("function_call", "auto"), ("response_format", {"type": "json_schema", "json_schema": {}}), ("logprobs", 2),
        ("top_logprobs", 21), ("modalities", ["audio"]), ("audio", {}), ("reasoning_effort", "low"), ("store", True),
        ("service_tier", "flex"), ("prediction", {}), ("echo", True), ("prompt", "a"), ("metadata", {"a": "b"}))],
]


@pytest.mark.parametrize(("path", "fields", "name"), WRONG)
def test_wrong_fields_are_named(server: Server, path: str, fields: dict[str, Any], name: str) -> None:
    right: dict[str, Any] = {"prompt": PROMPT} if path == "completions" else {"messages": CHAT}
    status, answer, _ = server.post(f"/v1/{path}", **right | {"max_tokens": 1} | fields)
    error = answer["error"]
    assert status == 400 and error["type"] == "invalid_request_error" and error["message"], answer
    assert (error["param"] or "").startswith(name), answer


def test_null_is_as_if_left_out(server: Server) -> None:
    from npugraph.server.fields import FIELDS
    for path, kind, right in (("completions", "completions", {"prompt": "a"}), ("chat/completions", "chat", {"messages": CHAT})):
        nulls = {name: None for name, fields in FIELDS.items() if any(kind in f.kinds and not f.required for f in fields)}
        assert server.post(f"/v1/{path}", **nulls | right | {"max_tokens": 1})[0] == 200


@pytest.mark.parametrize("body", [
    b"", b"{", b"nul", b"[]", b"5", b'"x"', b"\xff\xfe", b'{"model": "\xff"}', b'{"model": NaN}', b'{"n": Infinity}',
    b"[" * 100000, b'{"a":' * 5000 + b"1" + b"}" * 5000, b'{"model": ' + b"[" * 40 + b"]" * 40 + b"}",
    b'{"model":"bible","prompt":"\\ud800","max_tokens":1}', b'{"model":"bible","prompt":"a","\\udfff":1}',
    b'{"model":"bible","prompt":"a","seed":' + b"9" * 100000 + b"}", b"\0", b'{"model":"bible"}\0', b'{"model":"bible",}',
])
def test_bodies_that_are_no_requests(server: Server, body: bytes) -> None:
    status, answer, _ = server.ask("POST", "/v1/completions", body)
    assert status == 400 and answer["error"]["type"] == "invalid_request_error"


def test_odd_text_is_text(server: Server) -> None:
    for text in ("a\0b", "\u2028", "\ufffd", "🙂" * 50, "\x1b[31m", "<|endoftext|>", "\r\n\r\n"):
        status, answer, _ = server.post("/v1/completions", prompt=text, max_tokens=2, echo=True, temperature=0)
        assert status == 200 and answer["choices"][0]["text"].startswith(text)
        chat = server.post("/v1/chat/completions", messages=[{"role": "user", "content": text}], max_tokens=2)
        assert chat[0] == 200, chat


def test_large_bodies(server: Server) -> None:
    assert server.ask("POST", "/v1/completions", b"x" * (5 << 20))[0] == 413
    with pytest.raises(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port)) as endless:
        endless.request("POST", "/v1/completions", (b"x" * 65536 for _ in range(4000)), {"Content-Length": str(4000 * 65536)})
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as s:  # without a length
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(100):
            s.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        s.sendall(b"0\r\n\r\n")
        assert s.recv(64).startswith(b"HTTP/1.1 413")
    status, answer, _ = server.post("/v1/completions", prompt="word " * 20000)
    assert status == 400 and answer["error"]["code"] == "context_length_exceeded"


def test_many_prompts_are_refused_before_they_cost(server: Server) -> None:
    begin = time.monotonic()
    status, answer, _ = server.post("/v1/completions", prompt=["a b c d"] * 200000, max_tokens=1)
    assert status == 400 and answer["error"]["param"] == "n" and time.monotonic() - begin < 10


def test_the_documents_have_each_field() -> None:
    from npugraph.server.fields import FIELDS
    table = (SOURCE / "docs" / "openai.md").read_text()
    assert [name for name in FIELDS if f"`{name}`" not in table] == []


def test_unknown_names(server: Server) -> None:
    client = server.client()
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="gpt-4", prompt="a")
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="gpt-4", input="a")
    assert server.ask("GET", "/v1/completions")[0] == 405 and server.ask("POST", "/nothing", "{}")[0] == 404


def test_out_of_range_values_of_the_daemon_are_400(server: Server) -> None:
    status, answer, _ = server.post("/v1/completions", prompt=[5000000], max_tokens=1)
    assert status == 400 and answer["error"]["code"] == "token_range"


@pytest.mark.parametrize(("code", "reason", "status", "said"), [
    (8, "KV_EXHAUSTED", 429, "kv_exhausted"), (8, "QUOTA", 429, "quota"), (8, "MESSAGE_TOO_LARGE", 400, "message_too_large"),
    (14, "DRAINING", 503, "draining"), (14, "UNREACHABLE", 503, "unreachable"), (5, "MODEL_NOT_FOUND", 404, "model_not_found"),
    (5, "SESSION_GONE", 503, "session_gone"), (3, "PROMPT_TOO_LONG", 400, "context_length_exceeded"), (7, "", 403, None),
    (4, "DEADLINE_EXCEEDED", 504, "deadline_exceeded"), (13, "DEVICE_FAULT", 500, "device_fault"),
])
def test_failures_of_the_daemon_have_a_status(code: int, reason: str, status: int, said: str | None) -> None:
    from npugraph.errors import error_of
    from npugraph.server.problems import problem_of
    problem = problem_of(error_of(code, reason, "why"))
    assert (problem.status, problem.code, problem.message) == (status, said, "why")
    assert ("retry-after" in problem.response().headers) == (status in (429, 503))


# ---- keys, limits, the life of the program ----

def test_log_probabilities_are_bounded(daemon: Daemon, folder: pathlib.Path) -> None:
    server = Server(daemon.address, folder, "--max-sequences=400")
    for limit in (1000, 1 << 30):  # the context has 1024 tokens
        status, answer, _ = server.post("/v1/completions", prompt=["a", "b"], n=128, logprobs=20, max_tokens=limit)
        assert status == 400 and answer["error"]["param"] == "max_tokens", answer
        assert "log-probabilities" in answer["error"]["message"], answer
    status, answer, _ = server.post("/v1/completions", prompt=["a", "b"], n=2, logprobs=20, max_tokens=1 << 30, stop=["e", " "])
    assert status == 200 and len(answer["choices"]) == 4, answer
    server.stop()


def test_keys_and_limits(daemon: Daemon, folder: pathlib.Path) -> None:
    (folder / "keys").write_text("# keys\nfirst-key\nsecond-key\n")
    server = Server(daemon.address, folder, f"--api-keys={folder / 'keys'}", "--max-sequences=2", "--max-body=1000",
                    "--body-timeout=1", "--vllm-metrics")
    for key in ("none", "first", "", "FIRST-KEY"):
        assert server.ask("GET", "/v1/models", Authorization=f"Bearer {key}")[0] == 401
    assert server.ask("GET", "/v1/models", Authorization="Basic first-key")[0] == 401
    status, answer, headers = server.ask("POST", "/v1/completions", "{}")
    assert status == 401 and answer["error"]["code"] == "invalid_api_key" and headers["www-authenticate"] == "Bearer"
    with pytest.raises(openai.AuthenticationError):
        server.client("wrong").models.list()
    client = server.client("second-key")
    assert client.models.list().data and server.ask("GET", "/health")[0] == 200
    with pytest.raises(openai.BadRequestError, match="at most 2"):
        client.completions.create(model="bible", prompt="a", n=3)
    long = client.completions.create(model="bible", prompt=PROMPT, n=2, max_tokens=900, stream=True,
                                     extra_body={"ignore_eos": True})
    next(iter(long))
    with pytest.raises(openai.RateLimitError) as caught:
        client.completions.create(model="bible", prompt="a")
    assert caught.value.response.headers["retry-after"] == "1"
    long.close()
    await_no_sequences(daemon)
    client.completions.create(model="bible", prompt="a", max_tokens=1)
    assert server.ask("POST", "/v1/completions", "x" * 1001, Authorization="Bearer first-key")[0] == 413
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as slow:
        slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer first-key\r\nContent-Length: 10\r\n\r\n{")
        assert slow.recv(64).startswith(b"HTTP/1.1 408")
    text = server.ask("GET", "/metrics")[1].decode()
    for name in ("npugraph_server_generation_tokens_total", "vllm:generation_tokens_total",
                 "vllm:time_to_first_token_seconds_bucket",
                 'vllm:num_requests_running{model_name="bible"} 0.0', 'request_failures_total{status="429"} 1.0',
                 "requests_abandoned_total 1.0"):
        assert name in text, text
    server.stop()


def ask_on(connection: socket.socket) -> bool:
    """Makes a request on a kept connection. False: the server has closed it."""
    answer = b""
    with contextlib.suppress(ConnectionError):
        connection.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")
        while not answer.endswith(b"}") and (part := connection.recv(4096)):
            answer += part
    assert answer == b"" or answer.startswith(b"HTTP/1.1 200"), answer
    return answer != b""


def waits_between_requests(server: Server) -> bool:
    """Makes two requests on a connection, with more time in between than headers may take, and then a part of one. False: it
    took longer than uvicorn keeps idle connections."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as kept:
        assert ask_on(kept)
        begin = time.monotonic()
        time.sleep(2.5)
        if not ask_on(kept):
            assert time.monotonic() - begin > 4
            return False
        kept.sendall(b"POST /tokenize HTTP/1.1\r\nHost:")
        assert kept.recv(4096).startswith(b"HTTP/1.1 408")
        return True


def test_headers_may_take_so_long(daemon: Daemon, folder: pathlib.Path) -> None:
    server = Server(daemon.address, folder, "--header-timeout=2")
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as silent, \
            socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as slow:
        slow.sendall(b"GET /version HTTP/1.1\r\nX-Slow: ")
        begin = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() < begin + PATIENCE:  # a byte now and then does not help
                slow.sendall(b"x")
                time.sleep(0.05)
        assert time.monotonic() - begin < PATIENCE
        with contextlib.suppress(ConnectionError):  # what was sent behind the answer may have reset the connection
            assert slow.recv(16) in (b"HTTP/1.1 408 Req", b"")
        assert silent.recv(16) == b""
    while not waits_between_requests(server):
        pass
    long = server.client().completions.create(model="bible", prompt=PROMPT, max_tokens=900, stream=True,
                                              extra_body={"ignore_eos": True})
    assert list(long)[-1].choices[0].finish_reason == "length"  # answers have their own time
    server.stop()


def test_health_costs_little(server: Server, daemon: Daemon) -> None:
    def calls() -> int:
        return sum(n for method, n in daemon.stats()["requests"]["by_method"].items() if method.endswith("ListModels"))

    before = calls()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert {status for status, *_ in pool.map(lambda _: server.ask("GET", "/health"), range(200))} == {200}
    assert calls() - before < 20


def test_tokenizing_has_a_gate(server: Server) -> None:
    body = json.dumps({"model": "bible", "prompt": "heaven and earth " * 30000}).encode()
    head = f"POST /tokenize HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)) for _ in range(48)]
        for client in clients:
            client.sendall(head + body[:-1])
        for client in clients:  # all end at once, however slow the machine is
            client.sendall(body[-1:])
        answers = [client.makefile("rb").read() for client in clients]
    counts = {status: sum(answer.startswith(f"HTTP/1.1 {status}".encode()) for answer in answers) for status in (200, 429)}
    assert counts[200] >= 16 and counts[429] > 0 and sum(counts.values()) == 48, counts
    assert all(b"retry-after:" in answer.lower() for answer in answers if answer.startswith(b"HTTP/1.1 429"))


def test_answers_may_take_so_long(daemon: Daemon, folder: pathlib.Path) -> None:
    server = Server(daemon.address, folder, "--request-timeout=0.05")
    fields: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 1000, "ignore_eos": True}
    status, answer, _ = server.post("/v1/completions", **fields)
    assert status == 504 and answer["error"]["code"] == "timeout"
    status, data, _ = server.post("/v1/completions", stream=True, **fields)
    assert status == 504 or json.loads(data.decode().strip().split("data: ")[-1])["error"]["code"] == "timeout"
    await_no_sequences(daemon)
    server.stop()


def test_a_client_that_does_not_read(daemon: Daemon, folder: pathlib.Path) -> None:
    """Its stream stops at the request's time, and its sequence is freed though it is still there."""
    server = Server(daemon.address, folder, "--request-timeout=5")
    body = json.dumps({"model": "bible", "prompt": [PROMPT] * 16, "max_tokens": 1000, "ignore_eos": True, "stream": True,
                       "logprobs": 20}).encode()
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", server.port))
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        assert s.recv(16)
        await_no_sequences(daemon)
        assert server.ask("GET", "/health")[0] == 200
    server.stop()


def test_clients_that_vanish_free_their_sequences(server: Server, daemon: Daemon) -> None:
    body = json.dumps({"model": "bible", "prompt": PROMPT, "max_tokens": 1000, "ignore_eos": True, "stream": True})
    plain = json.dumps({"model": "bible", "prompt": PROMPT, "max_tokens": 1000, "ignore_eos": True})
    opened = []
    for i in range(64):
        s = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        data = (body if i % 4 else plain).encode()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        opened.append(s)
    for i, s in enumerate(opened):
        if i % 4:
            assert s.recv(16)
    assert sequences(daemon) > 32
    for s in opened:
        s.close()
    await_no_sequences(daemon)
    assert server.post("/v1/completions", prompt=PROMPT, max_tokens=1)[0] == 200


def test_a_daemon_that_dies_and_comes_back(folder: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory(prefix="npugraph-mortal-") as made:
        mortal = Daemon(pathlib.Path(made))
        with npugraph.connect(mortal.address) as client:
            client.load_model(str(MODEL), name="bible")
        server = Server(mortal.address, folder, "--restore-timeout=0")
        streams = [server.client().completions.create(model="bible", prompt=PROMPT, max_tokens=1000, stream=True, n=n,
                                                      extra_body={"ignore_eos": True}) for n in (1, 4)]
        for stream in streams:
            next(iter(stream))
        mortal.kill()
        for stream in streams:
            with pytest.raises(openai.APIError):
                list(stream)
        status, answer, headers = server.post("/v1/completions", prompt=PROMPT)
        assert status == 503 and answer["error"]["code"] == "unreachable" and headers["retry-after"]
        assert server.ask("GET", "/health")[0] == 503 and server.ask("GET", "/v1/models")[0] == 503
        again = Daemon(pathlib.Path(made))
        assert server.ask("GET", "/health")[0] == 200
        assert server.post("/v1/completions", prompt=PROMPT)[0] == 404  # nobody has loaded it there
        with npugraph.connect(again.address) as client:
            client.load_model(str(MODEL), name="bible")
        assert server.post("/v1/completions", prompt=PROMPT, max_tokens=2)[0] == 200
        again.kill()  # while nothing runs: the next request finds out, and the one after a restart works at once
        third = Daemon(pathlib.Path(made))
        with npugraph.connect(third.address) as client:
            client.load_model(str(MODEL), name="bible")
        assert server.post("/v1/completions", prompt=PROMPT, max_tokens=2)[0] == 200
        server.stop()
        third.stop()


def test_answers_go_on_in_the_next_daemon(folder: pathlib.Path) -> None:
    """Streams, stop strings across the cut, guided answers, several choices: as if nothing had happened."""
    with tempfile.TemporaryDirectory(prefix="npugraph-mortal-") as made:
        def begin() -> Daemon:
            begun = Daemon(pathlib.Path(made))
            with npugraph.connect(begun.address) as client:
                client.load_model(str(MODEL), name="bible")
            return begun

        mortal = begin()
        server = Server(mortal.address, folder)
        fixed = {"prompt": PROMPT, "max_tokens": 400, "temperature": 0}
        whole = server.post("/v1/completions", ignore_eos=True, **fixed)[1]["choices"][0]["text"]
        stop = whole[-30:-10]
        at = whole.index(stop)
        rule = {"regex": "([a-z]{2,9} ){300}"}
        asked: list[dict[str, Any]] = [
            {"stop": stop, "ignore_eos": True},
            {"ignore_eos": True, "n": 3, "temperature": 0.9, "seed": 5, "frequency_penalty": 0.5},
            {"logprobs": 2, "ignore_eos": True}, {"structured_outputs": rule} if importlib.util.find_spec("llguidance") else {}]

        def text_of(events: list[Any]) -> list[Any]:
            return [["".join(c["text"] for e in events for c in e["choices"] if c["index"] == i) for i in range(3)],
                    [one for e in events for c in e["choices"] if c.get("logprobs")
                     for one in zip(c["logprobs"]["tokens"], c["logprobs"]["token_logprobs"], strict=True)]]

        def ask(fields: dict[str, Any]) -> Any:
            return text_of(server.events("/v1/completions", **fixed | fields))

        expected = [ask(fields) for fields in asked]
        assert expected[0][0][0] == whole[:at]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            answers = [pool.submit(ask, fields) for fields in asked]
            for _ in range(2):
                time.sleep(0.1)
                assert not any(answer.done() for answer in answers[1:3])
                mortal.kill()
                mortal = begin()
            for answer, want in zip(answers, expected, strict=True):
                got = answer.result()
                assert got[0] == want[0]
                assert [(i, a, b) for i, (a, b) in enumerate(zip(got[1], want[1], strict=True)) if a != b] == []
            mortal.kill()
            waits = pool.submit(server.post, "/v1/completions", prompt=PROMPT, max_tokens=2, logprobs=1)
            time.sleep(0.1)
            mortal = begin()
            assert waits.result()[0] == 200
        assert server.post("/v1/completions", prompt=PROMPT, max_tokens=2)[0] == 200
        await_no_sequences(mortal)
        server.stop()
        mortal.stop()


def test_a_server_that_is_killed_leaves_nothing(server: Server, daemon: Daemon, folder: pathlib.Path) -> None:
    killed = Server(daemon.address, folder)
    streams = [s.client().completions.create(model="bible", prompt=PROMPT, max_tokens=900, stream=True, temperature=0,
                                             extra_body={"ignore_eos": True}) for s in (killed, server) for _ in range(8)]
    for stream in streams:
        next(iter(stream))
    killed.process.kill()
    killed.process.wait()
    for stream in streams[:8]:
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            list(stream)
    assert {list(stream)[-1].choices[0].finish_reason for stream in streams[8:]} == {"length"}  # its neighbour's go on
    await_no_sequences(daemon)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_answers_under_way_are_finished(daemon: Daemon, folder: pathlib.Path, number: int) -> None:
    server = Server(daemon.address, folder)
    started = threading.Barrier(17, timeout=PATIENCE)

    def follow(_: int) -> tuple[int, str | None]:
        stream = server.client().completions.create(model="bible", prompt=PROMPT, max_tokens=100, stream=True, temperature=0,
                                                    extra_body={"ignore_eos": True}, stream_options={"include_usage": True})
        chunks = [next(iter(stream))]
        started.wait()
        chunks += list(stream)
        return chunks[-1].usage.completion_tokens, chunks[-2].choices[0].finish_reason

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        streams = [pool.submit(follow, i) for i in range(16)]
        started.wait()
        server.process.send_signal(number)
        assert [stream.result() for stream in streams] == [(100, "length")] * 16
    assert server.process.wait(PATIENCE) in (0, -number), server.text()
    await_no_sequences(daemon)


def test_a_model_without_a_directory_has_its_own_files(daemon: Daemon, server: Server, folder: pathlib.Path) -> None:
    own = Server(daemon.address, folder, "--model=bible")
    try:
        asked = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0}
        assert own.post("/v1/completions", **asked)[1]["choices"] == server.post("/v1/completions", **asked)[1]["choices"]
        status, answer, _ = own.post("/v1/chat/completions", messages=CHAT)
        assert status == 400 and answer["error"]["code"] == "no_chat_template"  # the checkpoint has none
    finally:
        own.stop()


def test_options_are_checked(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    model = f"--model=x={folder / 'model'}"
    for options, says in ((["--model=x="], "NAME or NAME=DIR"), (["--model=nobody"], "nobody"),
                          (["--model=x=/nonexistent"], "nonexistent"), ([], "--model"),
                          ([model, "--listen=8000"], "HOST:PORT"), ([model, "--chat-template=y=z"], "name of a --model"),
                          ([model, "--chat-template=x=/nonexistent"], "nonexistent"), ([model, "--api-keys=/dev/null"], "no key"),
                          ([model, "--max-sequences=0"], "max-sequences"), ([model, "--body-timeout=nan"], "body-timeout")):
        monkeypatch.setattr(sys, "argv", ["npugraph-server", *options])
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code != 0 and says in str(caught.value.code) + capsys.readouterr().err, options
