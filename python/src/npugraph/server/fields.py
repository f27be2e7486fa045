# SPDX-License-Identifier: Apache-2.0
"""The fields of requests: a row for each, with its check, its default, and the requests that have it.

What is not in the table is refused, and so are values that ask for what there is not.
"""
from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

from .bodies import parse
from .problems import Problem, bad
from .rules import guided, response_format, structured_outputs
from .tools import TOOLS_MAX, read_choice, read_tools

Check = Callable[[str, Any], Any]  # takes name and value; returns the value to use

STOPS_MAX, STOP_BYTES_MAX = 16, 1024  # of the library
LOGPROBS_MAX = 20


def _number(low: float, high: float, *, above: bool = False) -> Check:
    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise bad(name, "must be a number")
        if not low <= value <= high or (above and value == low):
            raise bad(name, f"is {value}; it must be {'above' if above else 'at least'} {low:g} and at most {high:g}")
        return float(value)
    return check


def _integer(low: int, high: int) -> Check:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise bad(name, "must be an integer")
        if not low <= value <= high:
            raise bad(name, f"must be at least {low} and at most {high}")
        return value
    return check


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise bad(name, "must be true or false")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise bad(name, "must be a string")
    return value


def _only(*allowed: Any) -> Check:
    """For what is not supported: takes the values that ask for nothing."""
    def check(name: str, value: Any) -> None:
        if not any(type(value) is type(a) and value == a for a in allowed):
            raise Problem(400, f"{name} is not supported by this server; leave it out", param=name, code="unsupported")
    return check


def _stops(name: str, value: Any) -> list[str]:
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > STOPS_MAX or not all(isinstance(s, str) for s in stops):
        raise bad(name, f"must be a string or a list of at most {STOPS_MAX} strings")
    if not all(0 < len(s.encode()) <= STOP_BYTES_MAX and "\0" not in s for s in stops):
        raise bad(name, f"has a string that is empty, longer than {STOP_BYTES_MAX} bytes, or has a zero character")
    return stops


def _token(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise bad(name, "has what is no token id")
    return value


def _stop_tokens(name: str, value: Any) -> list[int]:
    if not isinstance(value, list) or len(value) > STOPS_MAX:
        raise bad(name, f"must be a list of at most {STOPS_MAX} token ids")
    return [_token(name, v) for v in value]


def _biases(name: str, value: Any) -> dict[int, float]:
    if not isinstance(value, dict) or len(value) > 1024:
        raise bad(name, "must be an object of at most 1024 token ids")
    if not all(k.isascii() and k.isdigit() and len(k) < 11 for k in value):
        raise bad(name, "has a key that is no token id")
    return {_token(name, int(k)): _number(-100, 100)(name, v) for k, v in value.items()}


def _stream_options(name: str, value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() - {"include_usage"}:
        raise bad(name, "must be an object; its one field is include_usage")
    return _boolean(f"{name}.include_usage", value.get("include_usage", False))


def _prompt(name: str, value: Any) -> list[str | list[int]]:
    """Returns the prompts: a string, strings, token ids, or lists of token ids."""
    prompts = value if isinstance(value, list) and value and not isinstance(value[0], int) else [value]
    for prompt in prompts:
        if isinstance(prompt, list) and prompt:
            for token in prompt:
                _token(name, token)
        elif not isinstance(prompt, str):
            raise bad(name, "must be a string, a list of strings, a list of token ids, or a list of such lists")
    return prompts


INPUTS_MAX = 2048  # of the daemon


def _inputs(name: str, value: Any) -> list[str | list[int]]:
    """Returns the texts to embed, in the forms of prompts."""
    inputs = _prompt(name, value)
    if not 0 < len(inputs) <= INPUTS_MAX or not all(inputs):
        raise bad(name, f"must have 1 to {INPUTS_MAX} texts, none of them empty")
    return inputs


def _one_of(*words: str) -> Check:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise bad(name, f"must be one of {', '.join(words)}")
        return value
    return check


def _content(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise bad(name, "must be a string or a list of parts")
    for part in value:
        if not isinstance(part, dict) or part.keys() != {"type", "text"} or part["type"] != "text" \
                or not isinstance(part["text"], str):
            raise bad(name, 'has a part that is not {"type": "text", "text": ...}; this server knows no other')
    return "".join(part["text"] for part in value)


def _tool_calls(name: str, value: Any) -> list[dict[str, Any]]:
    """Returns the calls of an earlier answer as templates take them: their arguments are objects, not texts."""
    if not isinstance(value, list) or len(value) > TOOLS_MAX:
        raise bad(name, f"must be a list of at most {TOOLS_MAX} calls")
    calls = []
    for i, call in enumerate(value):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or call.get("type", "function") != "function":
            raise bad(f"{name}[{i}]", "must have the type function, an id and a function")
        at = f"{name}[{i}].function"
        try:
            arguments = parse(_text(f"{at}.arguments", function.get("arguments")).encode() or b"{}")
        except Problem as problem:
            raise problem if problem.param else bad(f"{at}.arguments", "is no JSON") from None
        if not isinstance(arguments, dict):
            raise bad(f"{at}.arguments", "must be an object as JSON")
        calls.append({"id": _text(f"{name}[{i}].id", call.get("id")), "type": "function",
                      "function": {"name": _text(f"{at}.name", function.get("name")), "arguments": arguments}})
    return calls


_MESSAGE_FIELDS = {"role", "content", "name"}
_ROLE_FIELDS = {"assistant": {"tool_calls"}, "tool": {"tool_call_id"}}


def _messages(name: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise bad(name, "must be a list of at least one message")
    return [_message(f"{name}[{i}]", message) for i, message in enumerate(value)]


def _message(at: str, message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise bad(at, "must be an object")
    given = {k: v for k, v in message.items() if v is not None}
    role = _text(f"{at}.role", given.get("role"))
    if more := given.keys() - _MESSAGE_FIELDS - _ROLE_FIELDS.get(role, set()):
        field = f"{at}.{min(more)[:100]}"
        raise Problem(400, f"{field} is not supported by this server", param=field, code="unsupported")
    calls = _tool_calls(f"{at}.tool_calls", given["tool_calls"]) if "tool_calls" in given else []
    content = _content(f"{at}.content", given.get("content", "" if calls else None))
    made: dict[str, Any] = {"role": role, "content": content}
    for key in ("name", "tool_call_id"):
        if key in given:
            made[key] = _text(f"{at}.{key}", given[key])
    return made | ({"tool_calls": calls} if calls else {})


@dataclasses.dataclass(frozen=True)
class Field:
    check: Check
    default: Any = None
    kinds: tuple[str, ...] = ("completions", "chat")
    required: bool = False


_C, _H, _T, _E = ("completions",), ("chat",), ("tokenize",), ("embeddings",)
FIELDS: dict[str, tuple[Field, ...]] = {
    "model": (Field(_text, None, ("completions", "chat", "tokenize", "embeddings"), True),),
    "prompt": (Field(_prompt, None, _C, True), Field(_text, None, _T)),
    "messages": (Field(_messages, None, _H, True), Field(_messages, None, _T)),
    "max_tokens": (Field(_integer(1, 1 << 31), 16, _C), Field(_integer(1, 1 << 31), None, _H)),
    "max_completion_tokens": (Field(_integer(1, 1 << 31), None, _H),),
    "n": (Field(_integer(1, 128), 1),),
    "stream": (Field(_boolean, False),),
    "stream_options": (Field(_stream_options, False),),
    "stop": (Field(_stops, []),),
    "seed": (Field(_integer(-(1 << 63), (1 << 63) - 1)),),
    "temperature": (Field(_number(0, 2), 1.0),),
    "top_p": (Field(_number(0, 1, above=True), 1.0),),
    "presence_penalty": (Field(_number(-2, 2), 0.0),),
    "frequency_penalty": (Field(_number(-2, 2), 0.0),),
    "logit_bias": (Field(_biases, {}),),
    "logprobs": (Field(_integer(0, LOGPROBS_MAX), None, _C), Field(_boolean, False, _H)),
    "top_logprobs": (Field(_integer(0, LOGPROBS_MAX), None, _H),),
    "echo": (Field(_boolean, False, _C),),
    "input": (Field(_inputs, None, _E, True),),
    "encoding_format": (Field(_one_of("float", "base64"), "float", _E),),
    "dimensions": (Field(_integer(1, 1 << 31), None, _E),),
    "user": (Field(_text, None, ("completions", "chat", "embeddings")),),  # a label
    "best_of": (Field(_only(1), None, _C),),
    "suffix": (Field(_only(""), None, _C),),
    "response_format": (Field(response_format),),
    "tools": (Field(read_tools, None, ("chat", "tokenize")),),
    "tool_choice": (Field(read_choice, None, _H),),
    "parallel_tool_calls": (Field(_boolean, None, _H),),  # true, if left out
    "functions": (Field(_only([]), None, _H),),
    "function_call": (Field(_only("none"), None, _H),),
    "modalities": (Field(_only(["text"]), None, _H),),
    "service_tier": (Field(_only("auto", "default"), None, _H),),
    "store": (Field(_only(False), None, _H),),
    # beyond OpenAI's, with vLLM's names
    "top_k": (Field(_integer(-1, 1 << 30), 0),),
    "min_p": (Field(_number(0, 1), 0.0),),
    "typical_p": (Field(_number(0, 1), 0.0),),
    "repetition_penalty": (Field(_number(0, 100, above=True), 1.0),),
    "min_tokens": (Field(_integer(0, 1 << 31), 0),),
    "ignore_eos": (Field(_boolean, False),),
    "stop_token_ids": (Field(_stop_tokens, []),),
    "structured_outputs": (Field(structured_outputs),),
    "guided_json": (Field(guided("json")),),
    "guided_regex": (Field(guided("regex")),),
    "guided_choice": (Field(guided("choice")),),
    "guided_grammar": (Field(guided("grammar")),),
    "add_generation_prompt": (Field(_boolean, True, _T),),
    "add_special_tokens": (Field(_boolean, None, _T),),
}


@functools.cache
def _rows(kind: str) -> dict[str, Field]:
    return {name: field for name, fields in FIELDS.items() for field in fields if kind in field.kinds}


def read(body: Any, kind: str) -> dict[str, Any]:
    """Checks a request and returns the value of each field of its kind. null is as if left out."""
    if not isinstance(body, dict):
        raise Problem(400, "the body must be a JSON object", code="invalid_value")
    rows = _rows(kind)
    for name in body:
        if name not in rows and body[name] is not None:
            raise Problem(400, f"{name[:100]} is not a field that this server knows", param=name[:100], code="unsupported")
    values = {}
    for name, field in rows.items():
        value = body.get(name)
        if value is None and field.required:
            raise bad(name, "is missing")
        values[name] = field.default if value is None else field.check(name, value)
    return values
