# SPDX-License-Identifier: Apache-2.0
"""Tools of npugraph-server: forced calls keep to their schemas, written calls are found in any pieces, conversations go on."""
from __future__ import annotations

import json
import pathlib
import random
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import openai
import pydantic
import pytest
from conftest import SOURCE, Daemon
from serving import CHAT, TOKENIZER, Server, await_no_sequences

from npugraph.server.calls import Calls, Delta
from npugraph.server.tools import FORMATS, format_of

TEMPLATES = json.loads((SOURCE / "tests" / "golden" / "chat.json").read_text())["templates"]
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}, "days": {"type": "integer", "minimum": 1,
        "maximum": 9}}, "required": ["city", "days"], "additionalProperties": False}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Tells the weather.", "parameters": CITY,
                                            "strict": True}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
TOOLS = [WEATHER, CLOCK]
# What Mistral's templates do with tools, in short.
MISTRAL = """{{- bos_token }}{%- for m in messages %}
    {%- if m.role == 'user' %}{%- if tools %}{{- '[AVAILABLE_TOOLS] ' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif %}
        {{- '[INST] ' + m.content + '[/INST]' }}
    {%- elif m.tool_calls is defined %}{{- '[TOOL_CALLS] [' }}
        {%- for call in m.tool_calls %}
            {%- if call.id | length != 9 %}{{- raise_exception('ids must have 9 characters') }}{%- endif %}
            {{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' }}{{- ', ' if not loop.last else '' }}
        {%- endfor %}{{- ']' + eos_token }}
    {%- elif m.role == 'tool' %}
        {{- '[TOOL_RESULTS] {"content": ' + m.content + ', "call_id": "' + m.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}{{- ' ' + m.content + eos_token }}{%- endif %}{%- endfor %}"""
LLAMA = TEMPLATES["llama"].replace("message.tool_calls[0].function | tojson", """'{"name": "' + message.tool_calls[0].function.name
    + '", "parameters": ' + (message.tool_calls[0].function.arguments | tojson) + '}'""")
NAMES = {"hermes": "chatml", "mistral": MISTRAL, "llama3": LLAMA}


@pytest.fixture(scope="module", params=["hermes", "mistral", "llama3"])
def served(request: pytest.FixtureRequest, daemon: Daemon, folder: pathlib.Path) -> Iterator[Server]:
    file = folder / f"{request.param}.jinja"
    file.write_text(TEMPLATES.get(NAMES[request.param], NAMES[request.param]))
    running = Server(daemon.address, folder, f"--model=bible={folder / 'model'}", f"--chat-template=bible={file}")
    running.form = request.param
    yield running
    running.stop()


def check_calls(message: dict[str, Any], names: set[str]) -> list[str]:
    for call in message["tool_calls"]:
        assert call["type"] == "function" and call["id"] and call["function"]["name"] in names
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "get_weather":
            jsonschema.validate(arguments, CITY)
        else:
            assert arguments == {}
    return [call["function"]["name"] for call in message["tool_calls"]]


def joined(events: list[Any], n: int) -> list[dict[str, Any]]:
    """Puts the deltas of a stream together."""
    made: list[dict[str, Any]] = [{"content": "", "tool_calls": [], "finish": None} for _ in range(n)]
    for event in events:
        choice = event["choices"][0]
        one, delta = made[choice["index"]], choice["delta"]
        one["content"] += delta.get("content") or ""
        one["finish"] = choice["finish_reason"] or one["finish"]
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(one["tool_calls"]):
                assert call["function"]["arguments"] == "" and call["id"]
                one["tool_calls"].append({"id": call["id"], "type": call["type"], "function": dict(call["function"])})
            else:
                assert call["index"] == len(one["tool_calls"]) - 1 and "id" not in call
                one["tool_calls"][-1]["function"]["arguments"] += call["function"]["arguments"]
    return made


# ---- forced calls ----

def test_forced_calls_keep_to_their_schemas(served: Server, daemon: Daemon) -> None:
    fields: dict[str, Any] = {"messages": CHAT, "tools": TOOLS, "n": 8, "seed": 3, "max_tokens": 900}
    status, answer, _ = served.post("/v1/chat/completions", tool_choice="required", **fields)
    assert status == 200, answer
    called = []
    for choice in answer["choices"]:
        if choice["finish_reason"] == "length":  # the last call was cut
            choice["message"]["tool_calls"].pop()
        called.append(check_calls(choice["message"], {"get_weather", "clock"}))
        assert choice["message"]["content"] is None
    assert max(map(len, called)) > 1 or served.form != "mistral"  # the bundled model goes on with a comma, and not with a mark
    streamed = joined(served.events("/v1/chat/completions", tool_choice="required", **fields), 8)
    for one, choice in zip(streamed, answer["choices"], strict=True):
        if choice["finish_reason"] == "length":
            one["tool_calls"].pop()
        assert one["finish"] == choice["finish_reason"]
        assert [c["function"] for c in one["tool_calls"]] == [c["function"] for c in choice["message"]["tool_calls"]]
    named = {"type": "function", "function": {"name": "get_weather"}}
    for choice in served.post("/v1/chat/completions", tool_choice=named, **fields)[1]["choices"]:
        assert choice["finish_reason"] == "stop" and check_calls(choice["message"], {"get_weather"}) == ["get_weather"]
    alone = served.post("/v1/chat/completions", tool_choice="required", parallel_tool_calls=False, **fields)[1]["choices"]
    assert all(len(check_calls(choice["message"], {"get_weather", "clock"})) == 1 for choice in alone)
    if served.form == "llama3":
        assert all(len(names) == 1 for names in called)
    length = served.post("/v1/chat/completions", messages=CHAT, tools=TOOLS, tool_choice=named, max_tokens=12)[1]["choices"][0]
    assert length["finish_reason"] == "length"
    await_no_sequences(daemon)


def test_dates_of_arguments_are_in_the_calendar(served: Server) -> None:
    day = {"type": "object", "properties": {"day": {"type": "string", "format": "date", "pattern": "^202[34]-02-29$"}},
           "required": ["day"], "additionalProperties": False}
    tool = {"type": "function", "function": {"name": "diary", "parameters": day, "strict": True}}
    status, answer, _ = served.post("/v1/chat/completions", messages=CHAT, tools=[tool], max_tokens=900,
                                    tool_choice={"type": "function", "function": {"name": "diary"}})
    assert status == 200, answer
    [call] = answer["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"day": "2024-02-29"}


def test_the_conversation_goes_on(served: Server) -> None:
    client = served.client()
    first = client.chat.completions.create(model="bible", messages=CHAT, tools=TOOLS, tool_choice="required", seed=2,
                                           parallel_tool_calls=False, max_tokens=200)
    call = first.choices[0].message.tool_calls[0]
    messages: list[Any] = [*CHAT, first.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "\"sunny\""}]
    second = client.chat.completions.create(model="bible", messages=messages, tools=TOOLS, max_tokens=5)
    assert second.choices[0].finish_reason in ("stop", "length", "tool_calls")
    shown = served.post("/tokenize", tools=TOOLS, messages=[
        *CHAT, {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
        {"role": "tool", "tool_call_id": call.id, "content": "\"sunny\""}])[1]["tokens"]
    text = TOKENIZER.decode(shown, special=True)
    assert "sunny" in text and call.function.name in text and "Tells the weather." in text and "strict" not in text
    silent = served.post("/tokenize", messages=CHAT)[1]["tokens"]
    assert "Tells" not in TOKENIZER.decode(silent)


def test_auto_answers_with_text_or_calls(served: Server) -> None:
    """The bundled model knows no tools: what it says is text, unless a bias or a rule makes it a call."""
    fields: dict[str, Any] = {"messages": CHAT, "tools": TOOLS, "temperature": 0, "max_tokens": 20, "min_tokens": 8}
    said = served.post("/v1/chat/completions", **fields)[1]["choices"][0]
    assert "tool_calls" not in said["message"] and said["message"]["content"] and said["finish_reason"] == "length"
    streamed = joined(served.events("/v1/chat/completions", **fields), 1)
    assert streamed[0]["content"] == said["message"]["content"]
    none = served.post("/v1/chat/completions", messages=CHAT, tools=TOOLS, tool_choice="none", max_tokens=5)[1]
    assert "tool_calls" not in none["choices"][0]["message"]
    assert none["usage"]["prompt_tokens"] == len(served.post("/tokenize", messages=CHAT)[1]["tokens"])
    # With a schema beside tools, an answer is either: the form of its text, or calls.
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": ["A", "B"]}, "strict": True}}
    either = served.post("/v1/chat/completions", messages=CHAT, tools=TOOLS, response_format=schema, n=16, max_tokens=300,
                         parallel_tool_calls=False)[1]["choices"]
    texts = [c["message"]["content"] for c in either if "tool_calls" not in c["message"]]
    assert set(texts) <= {'"A"', '"B"'} and all(check_calls(c["message"], {"get_weather", "clock"}) for c in either
                                                if "tool_calls" in c["message"] and c["finish_reason"] == "tool_calls")


# ---- calls in text ----

GET = '{"name": "get_weather", "arguments": {"city": "Köln \\" } [", "days": [{"a": 1}]}}'
CALL = ("get_weather", '{"city": "Köln \\" } [", "days": [{"a": 1}]}')
LATE = '{"arguments": {"x": 1}, "name": "clock"}'
OTHER = '<tool_call>{"name": "other", "arguments": {}}</tool_call>'
TEXTS: list[tuple[str, str, str, list[tuple[str, str]]]] = [
    ("hermes", "no call", "no call", []), ("hermes", "a < b <tool", "a < b <tool", []), ("hermes", " \n", " \n", []),
    ("hermes", f"<tool_call>\n{GET}\n</tool_call>", "", [CALL]),
    ("hermes", f"I look.\n\n<tool_call>{GET}</tool_call>\n<tool_call>\n{GET}\n</tool_call>\n", "I look.", [CALL, CALL]),
    ("hermes", f"<tool_call>\n{LATE}\n</tool_call> done", " done", [("clock", '{"x": 1}')]),
    ("hermes", OTHER, OTHER, []),
    ("hermes", "<tool_call>hello</tool_call> x", "<tool_call>hello</tool_call> x", []),
    ("hermes", '<tool_call>{"name": "clock"', '<tool_call>{"name": "clock"', []),
    ("hermes", '<tool_call>{"name": "clock", "arguments": {"a": ', "", [("clock", '{"a": ')]),
    ("hermes", f"<tool_call>no<tool_call>{GET}</tool_call>", "<tool_call>no", [CALL]),
    ("mistral", f"[TOOL_CALLS] [{GET}, {GET}]", "", [CALL, CALL]),
    ("mistral", f'[TOOL_CALLS][{GET[:-1]}, "id": "abcdefghi"}}]', "", [CALL]),
    ("mistral", f"well [TOOL_CALLS] [{LATE}]", "well", [("clock", '{"x": 1}')]),
    ("mistral", f'[TOOL_CALLS] [{GET}, {{"name": "clo', "", [CALL]),
    ("mistral", "[TOOL_CALLS] nothing", "[TOOL_CALLS] nothing", []), ("mistral", "[1, 2]", "[1, 2]", []),
    ("llama3", GET.replace("arguments", "parameters"), "", [CALL]), ("llama3", f"<|python_tag|>{GET}", "", [CALL]),
    ("llama3", f"{GET}; {GET}", "", [CALL, CALL]), ("llama3", f"  {LATE}", "", [("clock", '{"x": 1}')]),
    ("llama3", '{"json": "of another form"}', '{"json": "of another form"}', []), ("llama3", "text {", "text {", []),
    ("llama3", '{"name": "nobody", "parameters": {}}', '{"name": "nobody", "parameters": {}}', []),
    ("llama3", "<|py", "<|py", []), ("llama3", "<|python_tag|>print(1)", "<|python_tag|>print(1)", []),
    ("llama3", '{"name', '{"name', []), ("llama3", f"{GET} and more", "and more", [CALL]),
]


def found(deltas: list[Delta]) -> tuple[str, list[tuple[str, str]]]:
    content, calls = "", []
    for delta in deltas:
        content += delta.content
        if delta.name:
            calls.append((delta.name, ""))
        elif delta.arguments:
            calls[-1] = calls[-1][0], calls[-1][1] + delta.arguments
    return content, calls


@pytest.mark.parametrize(("form", "text", "content", "calls"), TEXTS)
def test_calls_are_found_in_any_pieces(form: str, text: str, content: str, calls: list[tuple[str, str]]) -> None:
    chance = random.Random(1)
    for pieces in [1, len(text), *[chance.randint(2, 9) for _ in range(50)]]:
        parser = Calls(FORMATS[form], {"get_weather", "clock"})
        cuts = sorted(chance.choices(range(len(text)), k=pieces - 1)) if pieces < len(text) else range(1, len(text))
        deltas = [delta for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) for delta in parser.add(text[a:b])]
        got = found(deltas + parser.end())
        assert (got[0].strip() if calls else got[0], got[1]) == (content.strip() if calls else content, calls), (pieces, cuts)


def test_arguments_are_streamed() -> None:
    parser = Calls(FORMATS["hermes"], {"clock"})
    deltas = [parser.add(c) for c in '<tool_call>{"name": "clock", "arguments": {"text": "abcdef"}}</tool_call>']
    assert sum(bool(d and d[-1].arguments) for d in deltas) == len('{"text": "abcdef"}')


@pytest.mark.parametrize("form", ["hermes", "mistral", "llama3"])
def test_random_texts_are_taken(form: str) -> None:
    chance = random.Random(form)
    words = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[", "]", "{", "}", '"', '"name"', ": ", ", ", '"clock"', '"arguments"',
             "{}", " ", "\n", "x", "\\", ";", "<|python_tag|>", GET, LATE]
    for _ in range(3000):
        text = "".join(chance.choices(words, k=chance.randint(0, 14)))
        results = []
        for pieces in (1, 4):
            parser = Calls(FORMATS[form], {"get_weather", "clock"})
            step = max(1, len(text) // pieces)
            deltas = [delta for at in range(0, len(text), step) for delta in parser.add(text[at:at + step])]
            content, calls = found(deltas + parser.end())
            results.append((re.sub(r"\s", "", content), calls))
            assert len(content) + sum(len(arguments) for _, arguments in calls) <= len(text)
        if form != "llama3":
            assert results[0] == results[1], text


def test_templates_show_their_form() -> None:
    from npugraph import ChatTemplate
    from npugraph.errors import Error

    def forms(template: str) -> Any:
        def render(messages: Any, tools: Any) -> str:
            import tempfile
            with tempfile.TemporaryDirectory() as made:
                (pathlib.Path(made) / "chat_template.jinja").write_text(template)
                one = ChatTemplate(made)
                try:
                    return one.render(messages, tools=tools)
                finally:
                    one.close()
        found = format_of(render)
        return found.name if found else None

    mistral = MISTRAL.replace("bos_token", "''").replace("eos_token", "''")
    assert forms(TEMPLATES["chatml"]) == "hermes" and forms(mistral) == "mistral"
    assert forms(LLAMA.replace("bos_token", "''")) == "llama3"
    assert forms("{{ messages[0].content }}") is None and forms("{{ raise_exception('no') }}") is None
    assert forms("{% for t in tools %}{{ t | tojson }}{% endfor %}<function=x>") is None

    def fails(*_: Any, **__: Any) -> str:
        raise Error("X", "no")
    assert format_of(fails) is None


# ---- what is refused ----

def call(**function: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": function}]}


@pytest.mark.parametrize(("fields", "param"), [
    ({"tools": 5}, "tools"), ({"tools": [5]}, "tools[0]"), ({"tools": [{"type": "retrieval"}]}, "tools[0]"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "x"}}}]}, "tools[0].function.parameters"),
    ({"tools": [{"type": "function", "function": {"name": "a", "strict": 1}}]}, "tools[0].function.strict"),
    ({"tools": [{"type": "function", "function": {"name": "a", "more": 1}}]}, "tools[0].function.more"),
    ({"tools": [CLOCK, CLOCK]}, "tools"), ({"tools": [CLOCK] * 129}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "a", "description": "x" * 70000}}]}, "tools"),
    ({"tool_choice": "auto"}, "tool_choice"), ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": "required", "guided_regex": "a"}, "guided_regex"),
    ({"tools": TOOLS, "guided_regex": "a"}, "guided_regex"),
    ({"tools": [{"type": "function", "function": {"name": "a", "strict": True, "parameters": {"type": "object", "not": {}}}}],
      "tool_choice": "required"}, "tools"),
    ({"messages": [*CHAT, call(name="a", arguments="{")]}, "messages[1].tool_calls[0].function.arguments"),
    ({"messages": [*CHAT, call(name="a", arguments="[]")]}, "messages[1].tool_calls[0].function.arguments"),
    ({"messages": [*CHAT, call(name=5, arguments="{}")]}, "messages[1].tool_calls[0].function.name"),
    ({"messages": [*CHAT, {"role": "assistant", "tool_calls": [5]}]}, "messages[1].tool_calls[0]"),
    ({"messages": [{"role": "user", "content": "a", "tool_call_id": "x"}]}, "messages[0].tool_call_id"),
    ({"messages": [{"role": "tool", "content": "a", "tool_call_id": 5}]}, "messages[0].tool_call_id"),
])
def test_wrong_tools_are_named(server: Server, fields: dict[str, Any], param: str) -> None:
    status, answer, _ = server.post("/v1/chat/completions", **{"messages": CHAT, "max_tokens": 2} | fields)
    assert status == 400 and answer["error"]["param"] == param and answer["error"]["message"], answer


def test_templates_without_tools(daemon: Daemon, folder: pathlib.Path) -> None:
    file = folder / "gemma.jinja"
    file.write_text(TEMPLATES["gemma"])
    plain = Server(daemon.address, folder, f"--model=bible={folder / 'model'}", f"--chat-template=bible={file}")
    status, answer, _ = plain.post("/v1/chat/completions", messages=CHAT, tools=TOOLS)
    assert status == 400 and answer["error"]["param"] == "tools" and "--tool-format" in answer["error"]["message"]
    assert plain.post("/v1/chat/completions", messages=CHAT, max_tokens=2, tools=[])[0] == 200
    plain.stop()
    told = Server(daemon.address, folder, f"--model=bible={folder / 'model'}", f"--chat-template=bible={file}",
                  "--tool-format=bible=llama3")
    assert told.post("/v1/chat/completions", messages=CHAT, tools=TOOLS, max_tokens=2)[0] == 200
    told.stop()


# ---- clients ----

class Weather(pydantic.BaseModel):
    """Tells the weather."""
    city: str = pydantic.Field(max_length=9)
    days: int = pydantic.Field(ge=1, le=9)


def test_openais_client_parses_calls(server: Server) -> None:
    client = server.client()
    tools = [openai.pydantic_function_tool(Weather, name="get_weather")]
    parsed = client.chat.completions.parse(model="bible", messages=CHAT, tools=tools, tool_choice="required", max_tokens=200)
    message = parsed.choices[0].message
    assert isinstance(message.tool_calls[0].function.parsed_arguments, Weather)
    again = client.chat.completions.create(model="bible", tools=tools, max_tokens=3, messages=[
        *CHAT, message, *[{"role": "tool", "tool_call_id": c.id, "content": "sunny"} for c in message.tool_calls]])
    assert again.choices[0].message.role == "assistant"


def test_langchain_binds_tools(server: Server) -> None:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI
    chat = ChatOpenAI(model="bible", base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0, temperature=1,
                      max_tokens=300)
    bound = chat.bind_tools([Weather], tool_choice="any", parallel_tool_calls=False, strict=True)
    answer = bound.invoke("What is the weather?")
    assert Weather(**answer.tool_calls[0]["args"])
    streamed = None
    for chunk in bound.stream("What is the weather?"):
        streamed = chunk if streamed is None else streamed + chunk
    assert Weather(**streamed.tool_calls[0]["args"])
    said = chat.bind_tools([Weather]).invoke([HumanMessage("What is the weather?"), answer,
                                              ToolMessage("sunny", tool_call_id=answer.tool_calls[0]["id"])])
    assert said.content is not None
    assert isinstance(chat.with_structured_output(Weather, method="function_calling", strict=True).invoke("Weather?"), Weather)
