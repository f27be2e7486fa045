# SPDX-License-Identifier: Apache-2.0
"""Tools: what a request offers and demands, the forms in which models write calls, and the grammar of a forced call."""
from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

from .. import Tokenizer
from ..errors import Error
from .problems import Problem, bad
from .rules import JSON_SPACE, SOURCE_BYTES_MAX, Rule, with_real_dates

TOOLS_MAX = 128
CALLS_MAX = 16  # of an answer that must have calls
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclasses.dataclass(frozen=True)
class Tool:
    name: str
    parameters: dict[str, Any]  # a JSON schema
    strict: bool
    shown: dict[str, Any]  # to the template


@dataclasses.dataclass(frozen=True)
class Format:
    """How a family of models writes calls: each is an object with a name and, under `key`, the arguments."""

    name: str
    begin: str  # a mark before calls; "": an answer that begins with an object may be one
    key: str
    open: str  # between the mark and the first object
    between: str  # between the objects of several calls; "": a conversation cannot have several
    close: str  # behind the last object
    seen: str  # how the probe's call is found in what a template renders
    id_length: int = 0  # of letters and digits, which ids have to be; 0: any form


FORMATS = {f.name: f for f in (
    Format("hermes", "<tool_call>", "arguments", "\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>",
           r"<tool_call>\s*\{(?!.*<function=).*?</tool_call>"),
    Format("mistral", "[TOOL_CALLS]", "arguments", "[", ", ", "]", r"\[TOOL_CALLS\]\s*\[\s*\{", 9),
    Format("llama3", "", "parameters", "", "", "", r'\{"name": "npugraph_probe", "(?:parameters|arguments)": \{'),
)}

_PROBE = {"type": "function", "function": {"name": "npugraph_probe", "description": "npugraph_probe_text", "parameters": _NOTHING}}
_PROBE_CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "npugraph_probe", "arguments": {"a": "b"}}}
_PROBE_CHAT = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "", "tool_calls": [_PROBE_CALL]},
               {"role": "tool", "content": "!", "tool_call_id": "abcdefghi", "name": "npugraph_probe"}]


def format_of(render: Callable[..., str]) -> Format | None:
    """Returns how a template writes calls, by what it makes of one. None: it has no tools, or an unknown form."""
    try:
        text = render(_PROBE_CHAT, tools=[_PROBE])
    except Error:
        return None
    if "npugraph_probe_text" not in text:
        return None
    return next((f for f in FORMATS.values() if re.search(f.seen, text, re.S)), None)


def read_tools(name: str, value: Any) -> list[Tool]:
    """Checks the field tools."""
    if not isinstance(value, list) or len(value) > TOOLS_MAX:
        raise bad(name, f"must be a list of at most {TOOLS_MAX} tools")
    if len(json.dumps(value).encode()) > SOURCE_BYTES_MAX:
        raise bad(name, f"has more than {SOURCE_BYTES_MAX} bytes")
    tools = [_tool(f"{name}[{i}]", one) for i, one in enumerate(value)]
    if len({tool.name for tool in tools}) < len(tools):
        raise bad(name, "has two functions of one name")
    return tools


def _tool(at: str, value: Any) -> Tool:
    if not isinstance(value, dict) or value.get("type") != "function" or value.keys() - {"type", "function"}:
        raise bad(at, 'must be {"type": "function", "function": {...}}')
    function, at = value.get("function"), f"{at}.function"
    if not isinstance(function, dict):
        raise bad(at, "must be an object")
    for key in function.keys() - {"name", "description", "parameters", "strict"}:
        raise bad(f"{at}.{key[:100]}", "is not a field of a function")
    if not isinstance(function.get("name"), str) or not _NAME.fullmatch(function["name"]):
        raise bad(f"{at}.name", "must be 1 to 64 letters, digits, _ or -")
    for key, kind, what in (("description", str, "a string"), ("strict", bool, "true or false"),
                            ("parameters", dict, "a JSON schema")):
        if not isinstance(function.get(key), kind | None):
            raise bad(f"{at}.{key}", f"must be {what}")
    parameters = function.get("parameters") or _NOTHING
    if parameters.get("type") != "object":
        raise bad(f"{at}.parameters", 'must be a JSON schema with "type": "object"')
    shown = {key: inner for key, inner in function.items() if key != "strict" and inner is not None}
    return Tool(function["name"], parameters, bool(function.get("strict")), {"type": "function", "function": shown})


def read_choice(name: str, value: Any) -> str | list[str]:
    """Returns none, auto, required, or a list with the name of a function."""
    if isinstance(value, str) and value in ("none", "auto", "required"):
        return value
    function = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise bad(name, 'must be none, auto, required, or {"type": "function", "function": {"name": ...}}')
    return [function["name"]]


@dataclasses.dataclass(frozen=True)
class Offer:
    """The tools of a request, in the model's form."""

    tools: list[Tool]
    format: Format
    forced: bool
    named: bool  # a function was demanded by its name
    parallel: bool
    param: str
    marks: dict[int, str]  # added tokens that stand for marks

    def rule(self, beside: Rule | None) -> Rule | None:
        """Returns what the answer keeps to: calls if they are forced; or else calls or what the request's own rule says."""
        if not self.forced and beside is None:
            return None
        if beside is not None and (self.forced or beside.kind != "json"):
            raise bad(beside.param, "cannot be used beside tools, unless it is a JSON schema and tool_choice is auto")
        rules = [f"call_{i}: {json.dumps(self._head(tool))} arguments_{i} \"}}\"\n"
                 f"arguments_{i}: %json {_schema(with_real_dates(tool.parameters), not tool.strict)}\n"
                 for i, tool in enumerate(self.tools)]
        one = " | ".join(f"call_{i}" for i in range(len(self.tools)))
        f = self.format
        more = f" ({self._literals(f.between)} call){{0,{CALLS_MAX - 1}}}" if self.parallel and f.between else ""
        calls = f"calls: {self._literals(f.begin + f.open)} call{more} {self._literals(f.close)}\ncall: {one}\n"
        if beside is None:
            return Rule("lark", f"start: calls\n{calls}{''.join(rules)}", self.param)
        content = f"content: %json {_schema(json.loads(beside.text), beside.lenient)}\n"
        return Rule("lark", f"start: content | calls\n{content}{calls}{''.join(rules)}", beside.param)

    def _head(self, tool: Tool) -> str:
        return f'{{"name": "{tool.name}", "{self.format.key}": '

    def _literals(self, text: str) -> str:
        """Returns the terms of a text in the grammar, marks as their tokens."""
        if not text:
            return ""
        ids = {mark: token for token, mark in self.marks.items()}
        parts = re.split("(" + "|".join(map(re.escape, ids)) + ")", text) if ids else [text]
        return " ".join(f"<[{ids[part]}]>" if part in ids else json.dumps(part) for part in parts if part)


def _schema(schema: dict[str, Any], lenient: bool) -> str:
    return json.dumps(schema | {"x-guidance": {"whitespace_pattern": JSON_SPACE, "lenient": lenient}})


def marks_of(tokenizer: Tokenizer, form: Format) -> dict[int, str]:
    """Returns the added tokens that are marks of a form."""
    found = {}
    for mark in re.findall(r"</?\w+>|\[[A-Z_]+\]", f"{form.begin}{form.close}") + (["<|python_tag|>"] if not form.begin else []):
        ids = tokenizer.encode(mark, template=False)
        if len(ids) == 1 and tokenizer.is_added(ids[0]):
            found[ids[0]] = mark
    return found


def offer_of(values: dict[str, Any], name: str, form: Format | None, tokenizer: Tokenizer) -> Offer | None:
    """Returns what a request offers; None: no tools, or none that may be called."""
    tools, choice = values.get("tools") or [], values.get("tool_choice")
    if not tools:
        if choice not in (None, "none"):
            raise bad("tool_choice", "needs tools")
        return None
    if choice == "none":
        return None
    if form is None:
        raise Problem(400, f"{name} has no tools: its chat template does not show them, or shows calls in a form that this server "
                      f"does not know; it knows {', '.join(FORMATS)} (--tool-format)", param="tools", code="unsupported")
    named = isinstance(choice, list)
    if isinstance(choice, list):
        tools = [tool for tool in tools if tool.name in choice]
        if not tools:
            raise bad("tool_choice", f"names the function {choice[0][:100]!r}, which tools does not have")
    parallel = values["parallel_tool_calls"] is not False and not named
    return Offer(tools, form, choice == "required" or named, named, parallel, "tools", marks_of(tokenizer, form))
