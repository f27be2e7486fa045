# SPDX-License-Identifier: Apache-2.0
"""OpenAI's forms of answers: objects, and the chunks of a stream."""
from __future__ import annotations

import json
import random
import time
from typing import Any

from .. import Logprobs
from .models import ServedModel
from .texts import Piece

encode_json = json.JSONEncoder(separators=(",", ":")).encode
_quoted = json.encoder.encode_basestring_ascii
_CHANCE = random.Random()


def _shown(data: bytes) -> str:
    return data.decode(errors="replace")


def _entry(model: ServedModel, token: int, logprob: float) -> dict[str, Any]:
    data = model.token_bytes(token)
    return {"token": _shown(data), "logprob": logprob, "bytes": list(data)}


class Form:
    """What the answers of one request have in common."""

    prefix: str
    object: str
    chunk_object: str

    def __init__(self, model: ServedModel, wants_logprobs: bool, wants_usage: bool) -> None:
        self.model, self.wants_logprobs, self.wants_usage = model, wants_logprobs, wants_usage
        self.head = {"id": f"{self.prefix}-{_CHANCE.getrandbits(96):024x}", "object": self.object, "created": int(time.time()),
                     "model": model.name}
        self._chunk_head = encode_json(self.head | {"object": self.chunk_object})[:-1]

    def whole(self, choices: list[dict[str, Any]], usage: dict[str, int]) -> bytes:
        return encode_json(self.head | {"choices": choices, "usage": usage}).encode()

    def chunk(self, choices: str, usage: str = "null") -> bytes:
        """Returns an event. Its choices and its usage are JSON."""
        tail = f',"usage":{usage}' if self.wants_usage else ""
        return f'data: {self._chunk_head},"choices":[{choices}]{tail}}}\n\n'.encode()

    def usage_chunk(self, usage: dict[str, int]) -> bytes:
        return self.chunk("", encode_json(usage))

    def first(self, index: int, echo: str) -> bytes:
        """Returns what precedes the pieces of a choice; empty if nothing does."""
        raise NotImplementedError

    def piece(self, index: int, piece: Piece) -> bytes:
        raise NotImplementedError

    def choice(self, index: int, echo: str, text: str, logprobs: list[Logprobs], finish: str | None) -> dict[str, Any]:
        raise NotImplementedError


class ChatForm(Form):
    prefix, object, chunk_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def first(self, index: int, echo: str) -> bytes:
        delta = {"role": "assistant", "content": ""}
        return self.chunk(encode_json({"index": index, "delta": delta, "logprobs": None, "finish_reason": None}))

    def piece(self, index: int, piece: Piece) -> bytes:
        if piece.text and not piece.logprobs and piece.finish is None:  # nearly all: what json makes of it, in less time
            text = _quoted(piece.text)
            return self.chunk(f'{{"index":{index},"delta":{{"content":{text}}},"logprobs":null,"finish_reason":null}}')
        delta = {"content": piece.text} if piece.text or piece.logprobs else {}
        return self.chunk(encode_json({"index": index, "delta": delta, "logprobs": self._logprobs(piece.logprobs),
                                      "finish_reason": piece.finish}))

    def choice(self, index: int, echo: str, text: str, logprobs: list[Logprobs], finish: str | None) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, "logprobs": self._logprobs(logprobs), "finish_reason": finish}

    def _logprobs(self, logprobs: list[Logprobs]) -> dict[str, Any] | None:
        if not self.wants_logprobs or not logprobs:
            return None
        return {"content": [_entry(self.model, one.token, one.logprob) |
                            {"top_logprobs": [_entry(self.model, *top) for top in one.top]} for one in logprobs], "refusal": None}


class CompletionForm(Form):
    prefix, object, chunk_object = "cmpl", "text_completion", "text_completion"

    def __init__(self, model: ServedModel, wants_logprobs: bool, wants_usage: bool) -> None:
        super().__init__(model, wants_logprobs, wants_usage)
        self._offsets: dict[int, int] = {}  # characters of the choice's tokens so far

    def first(self, index: int, echo: str) -> bytes:
        self._offsets[index] = len(echo)
        return self.chunk(encode_json(self._choice(index, echo, [], None))) if echo else b""

    def piece(self, index: int, piece: Piece) -> bytes:
        if not piece.logprobs and piece.finish is None:
            return self.chunk(f'{{"index":{index},"text":{_quoted(piece.text)},"logprobs":null,"finish_reason":null}}')
        return self.chunk(encode_json(self._choice(index, piece.text, piece.logprobs, piece.finish)))

    def choice(self, index: int, echo: str, text: str, logprobs: list[Logprobs], finish: str | None) -> dict[str, Any]:
        self._offsets[index] = len(echo)
        return self._choice(index, echo + text, logprobs, finish)

    def _choice(self, index: int, text: str, logprobs: list[Logprobs], finish: str | None) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": self._logprobs(index, logprobs), "finish_reason": finish}

    def _logprobs(self, index: int, logprobs: list[Logprobs]) -> dict[str, Any] | None:
        if not self.wants_logprobs or not logprobs:
            return None
        tokens = [_shown(self.model.token_bytes(one.token)) for one in logprobs]
        offsets, at = [], self._offsets.get(index, 0)
        for token in tokens:
            offsets.append(at)
            at += len(token)
        self._offsets[index] = at
        tops = [{_shown(self.model.token_bytes(token)): logprob for token, logprob in one.top} for one in logprobs]
        return {"tokens": tokens, "token_logprobs": [one.logprob for one in logprobs], "top_logprobs": tops,
                "text_offset": offsets}
