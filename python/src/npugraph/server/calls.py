# SPDX-License-Identifier: Apache-2.0
"""Finds calls of tools in a text that comes in pieces, and forms answers that have them."""
from __future__ import annotations

import dataclasses
import json
import re
import secrets
import string
from typing import Any

from .. import Logprobs
from .forms import ChatForm, encode_json
from .models import ServedModel
from .texts import Piece
from .tools import Format, Offer

HELD_MAX = 1 << 16  # characters that may begin a call before it is taken for text
_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"\\]{1,64})"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')
_TAILS = {"hermes": re.compile(r"\s*\}\s*</tool_call>"),
          "mistral": re.compile(r'\s*(?:,\s*"id"\s*:\s*"[^"]*"\s*)?\}\s*[,\]]'),
          "llama3": re.compile(r"\s*\}")}
_TAIL_MAX = 64  # characters behind arguments before what closes the call
_KEYS = ("name", "arguments", "parameters", "type", "id")  # that a call may begin with
_PYTHON_TAG = "<|python_tag|>"


def _is_text(text: str) -> bool:
    """Returns whether no call begins with the text."""
    text = text.lstrip()
    if text[:1] != "{":
        return text != ""
    text = text[1:].lstrip()
    if text[:1] != '"':
        return text != ""
    key, quote, _ = text[1:].partition('"')
    return key not in _KEYS if quote else not any(known.startswith(key) for known in _KEYS)


@dataclasses.dataclass(frozen=True)
class Delta:
    """What came: text, the name that begins a call, or a part of the arguments of the last call."""

    content: str = ""
    name: str = ""
    arguments: str = ""


class Calls:
    """The calls of one answer. What is no call, because it is broken or names no tool, is text."""

    def __init__(self, form: Format, names: set[str]) -> None:
        self._form, self._names = form, names
        self._held = ""  # what was not given yet
        self._raw = ""  # behind the mark, what the call would be as text
        self._work = self._text if form.begin else self._start
        self._depth, self._quoted, self._escaped = 0, False, False
        self._found = 0
        self._out: list[Delta] = []

    def add(self, text: str) -> list[Delta]:
        """Adds a piece and returns what is known by now."""
        self._held += text
        while self._held and self._work():
            pass
        return self._take()

    def end(self) -> list[Delta]:
        """Ends the text and returns the rest."""
        while self._work == self._head:
            if not self._whole():
                if self._found and not self._raw:
                    self._held = ""  # the next call of a list was cut
                self._no_call()
            while self._held and self._work():
                pass
        if self._work in (self._text, self._plain, self._start) and (self._held.strip() or not self._found):
            self._content(self._held)
        self._held = ""
        return self._take()

    def _take(self) -> list[Delta]:
        out, self._out = self._out, []
        return out

    def _content(self, text: str) -> None:
        if text:
            self._out.append(Delta(content=text))

    # Each of these looks at what is held, takes what it can, and returns whether there may be more to do.

    def _start(self) -> bool:
        """The beginning of an answer of a model that has no mark before calls."""
        text = self._held.lstrip(" \t\r\n;" if self._found else None)
        if not text or (_PYTHON_TAG.startswith(text)):
            return False
        if text.startswith(_PYTHON_TAG):
            self._raw, self._held = _PYTHON_TAG, text[len(_PYTHON_TAG):]
        elif text.startswith("{"):
            self._held = text
        self._work = self._head if self._raw or text.startswith("{") else self._plain
        return True

    def _plain(self) -> bool:
        self._content(self._held)
        self._held = ""
        return False

    def _text(self) -> bool:
        """Text before a mark. White space before a mark is none; what may begin a mark is held."""
        mark = self._form.begin
        before, found, behind = self._held.partition(mark)
        if found:
            self._content(before.rstrip())
            self._raw, self._held, self._work = before[len(before.rstrip()):] + mark, behind, self._head
            return True
        keep = next((n for n in range(min(len(mark) - 1, len(before)), 0, -1) if mark.startswith(before[-n:])), 0)
        given = before[:len(before) - keep].rstrip()
        self._content(given)
        self._held = before[len(given):]
        return False

    def _head(self) -> bool:
        """The beginning of a call's object, to where its arguments begin."""
        text = self._held
        if self._form.open == "[" and self._raw.endswith(self._form.begin):  # of the list of calls
            if not text.lstrip():
                return False
            if text.lstrip()[0] == "[":
                self._raw += text[:text.index("[") + 1]
                text = self._held = text[text.index("[") + 1:]
        match = _HEAD.match(text)
        if match is not None and match[1] in self._names:
            self._found += 1
            self._out.append(Delta(name=match[1]))
            self._held, self._work = text[match.end():], self._arguments
            return True
        if match is not None or _is_text(text) or len(text) > HELD_MAX:
            return self._no_call()
        if self._form.name == "hermes" and "</tool_call>" in text:
            return self._whole() or self._no_call()
        return False

    def _whole(self) -> bool:
        """Takes a call whose arguments come before its name, which can be told when all of it is there."""
        if self._form.name == "hermes":
            body, _, rest = self._held.partition("</tool_call>")
        else:
            body, rest = self._held, ""
        try:
            value, at = json.JSONDecoder().raw_decode(body.strip().rstrip("]"))
        except (ValueError, RecursionError):
            return False
        arguments = value.get("arguments", value.get("parameters")) if isinstance(value, dict) else None
        if not isinstance(arguments, dict) or not isinstance(value.get("name"), str) or value["name"] not in self._names \
                or body.strip().rstrip("]")[at:].strip(" \t\r\n;"):
            return False
        self._found += 1
        self._out += [Delta(name=value["name"]), Delta(arguments=json.dumps(arguments, ensure_ascii=False))]
        self._held, self._work = rest, self._text if self._form.begin else self._plain
        return True

    def _no_call(self) -> bool:
        """Takes what looked like a call for text."""
        self._content(self._raw)
        self._raw, self._work = "", self._text if self._form.begin else self._plain
        if self._form.begin:  # what is held may have a mark
            return True
        return bool(self._held)

    def _arguments(self) -> bool:
        """The object of arguments, to the brace that closes it."""
        for at, c in enumerate(self._held):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped, self._quoted = c == "\\", c != '"'
            elif c == '"':
                self._quoted = True
            elif c in "{[":
                self._depth += 1
            elif c in "}]":
                self._depth -= 1
                if self._depth == 0:
                    self._out.append(Delta(arguments=self._held[:at + 1]))
                    self._held, self._work = self._held[at + 1:], self._tail
                    return True
        self._out.append(Delta(arguments=self._held))
        self._held = ""
        return False

    def _tail(self) -> bool:
        """What closes a call. If it is something else, that is left out."""
        match = _TAILS[self._form.name].match(self._held)
        if match is None:
            if len(self._held) < _TAIL_MAX:
                return False
            self._work = self._text if self._form.begin else self._plain
            return True
        self._held, self._raw = self._held[match.end():], ""
        if match[0].endswith(","):
            self._work = self._head
        elif self._form.begin:
            self._work = self._text
        else:
            self._work = self._start
        return True


class ToolForm(ChatForm):
    """Chats whose answers may have calls."""

    def __init__(self, model: ServedModel, wants_logprobs: bool, wants_usage: bool, offer: Offer) -> None:
        super().__init__(model, wants_logprobs, wants_usage)
        self._offer = offer
        self._calls: dict[int, Calls] = {}
        self._count: dict[int, int] = {}

    def _new_calls(self) -> Calls:
        return Calls(self._offer.format, {tool.name for tool in self._offer.tools})

    def _id(self) -> str:
        length = self._offer.format.id_length
        if length:
            return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(length))
        return f"call_{secrets.token_hex(12)}"

    def _finish(self, finish: str | None, calls: int) -> str | None:
        """As OpenAI does it: a function that was demanded by its name is a plain end."""
        return "tool_calls" if finish == "stop" and calls and not self._offer.named else finish

    def piece(self, index: int, piece: Piece) -> bytes:
        calls = self._calls.setdefault(index, self._new_calls())
        found = calls.add(piece.text) + (calls.end() if piece.finish else [])
        deltas = [self._delta(index, one) for one in found]
        finish = self._finish(piece.finish, self._count.get(index, 0))
        if piece.finish or (piece.logprobs and not deltas):
            deltas.append({})
        logprobs = self._logprobs(piece.logprobs)
        events = []
        for i, delta in enumerate(deltas):
            last = i == len(deltas) - 1
            events.append(self.chunk(encode_json({"index": index, "delta": delta, "logprobs": logprobs if i == 0 else None,
                                                  "finish_reason": finish if last else None})))
        return b"".join(events)

    def _delta(self, index: int, one: Delta) -> dict[str, Any]:
        if one.content:
            return {"content": one.content}
        if one.name:
            self._count[index] = self._count.get(index, 0) + 1
            head = {"id": self._id(), "type": "function", "function": {"name": one.name, "arguments": ""}}
            return {"tool_calls": [{"index": self._count[index] - 1, **head}]}
        return {"tool_calls": [{"index": self._count[index] - 1, "function": {"arguments": one.arguments}}]}

    def choice(self, index: int, echo: str, text: str, logprobs: list[Logprobs], finish: str | None) -> dict[str, Any]:
        parser = self._new_calls()
        content, calls, arguments = "", [], []
        for one in parser.add(text) + parser.end():
            content += one.content
            if one.name:
                calls.append(one.name)
                arguments.append("")
            elif one.arguments:
                arguments[-1] += one.arguments
        made = super().choice(index, echo, content, logprobs, self._finish(finish, len(calls)))
        if calls:
            made["message"] |= {"content": content or None, "tool_calls": [
                {"id": self._id(), "type": "function", "function": {"name": name, "arguments": given}}
                for name, given in zip(calls, arguments, strict=True)]}
        return made
