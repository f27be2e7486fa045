# SPDX-License-Identifier: Apache-2.0
"""One answer to one prompt: tokens of the daemon become text, until a stop string, a stop token or a limit."""
from __future__ import annotations

import dataclasses
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

from .. import Logprobs, Sampling, Stops
from ..aio import Generation, Sequence, Token
from ..errors import Error
from .models import ServedModel

SEED_BITS = 64
_CHANCE = random.Random()  # seeds are no secrets


@dataclasses.dataclass(frozen=True)
class Ask:
    """What is the same for all answers of a request."""

    max_tokens: int | None
    stops: list[str]
    stop_tokens: list[int]
    ignore_eos: bool
    marks: dict[int, str]  # of tools: tokens that are text though they are special
    logprobs: int | None  # how many of the most probable tokens are shown beside each; None: none at all

    @classmethod
    def of(cls, values: dict[str, Any], marks: dict[int, str]) -> Ask:
        wanted = values["logprobs"]
        if isinstance(wanted, bool):  # of chats
            wanted = (values["top_logprobs"] or 0) if wanted else None
        most = values.get("max_completion_tokens") or values["max_tokens"]
        return cls(most, values["stop"], values["stop_token_ids"], values["ignore_eos"], marks, wanted)


def sampling_of(values: dict[str, Any], index: int) -> Sampling:
    """Returns the sampling of the index-th answer. Equal requests with a seed have equal answers, which differ by index."""
    seed = _CHANCE.getrandbits(SEED_BITS) if values["seed"] is None else values["seed"] + index
    return Sampling(
        temperature=values["temperature"], top_k=max(values["top_k"], 0), top_p=values["top_p"], seed=seed % (1 << SEED_BITS),
        min_p=values["min_p"], typical_p=values["typical_p"], repetition_penalty=values["repetition_penalty"],
        presence_penalty=values["presence_penalty"], frequency_penalty=values["frequency_penalty"],
        min_tokens=values["min_tokens"], logit_bias=values["logit_bias"])


@dataclasses.dataclass
class Piece:
    """What came since the last piece."""

    text: str
    logprobs: list[Logprobs]
    finish: str | None = None


class Answer:
    """An answer while it is made."""

    def __init__(self, model: ServedModel, prompt: list[int], sequence: Sequence, ask: Ask, constrained: bool,
                 start: Callable[[], Generation]) -> None:
        self.tokens = 0
        self._constrained = constrained
        self._ask = ask
        self._sequence = sequence
        self._start = start
        self._text = model.tokenizer.stream(prompt)
        self._stops = Stops(ask.stops) if ask.stops else None
        self._held: list[Logprobs] = []  # of tokens whose text has not come, such as parts of a character

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yields the answer. The last piece, and no other, says why it ended: stop or length."""
        piece = self._piece([Token(self._sequence.last.token, self._sequence.last.logprobs)])  # chosen with the prompt
        if piece.text or piece.finish:
            yield piece  # before the daemon computes the next token: it may need all CPUs for that
        if piece.finish:
            return
        if not self._constrained and (finish := self._finish_of_first()):
            yield self._end(finish == "stop", False)
            return
        generation, told = self._start(), 1
        while tokens := await generation.batch():
            piece, told = self._piece(tokens[told:]), 0
            if piece.finish:
                generation.cancel()
                yield piece
                return
            if piece.text:
                yield piece
        if generation.finish == "cancelled":
            raise Error("CANCELLED", "the answer was ended before its time: the server closed its session")
        yield self._end(generation.finish == "stop", generation.finish == "complete")

    def _finish_of_first(self) -> str | None:
        """Returns why the answer ends with its first token, if it does. A constraint may end it too."""
        last = self._sequence.last
        if (last.stop and not self._ask.ignore_eos) or last.token in self._ask.stop_tokens:
            return "stop"
        return "length" if self._ask.max_tokens == 1 else None

    def _piece(self, tokens: list[Token]) -> Piece:
        """Returns the text that tokens complete. It ends with `stop` if a stop string ends the answer."""
        text = ""
        logprobs: list[Logprobs] = []
        for token in tokens:
            more, met = self._add(token)
            text += more
            if more or met:  # a stop token has no text, and its log-probabilities are not shown
                logprobs += self._take_logprobs()
            if met:
                return Piece(text, logprobs, "stop")
        return Piece(text, logprobs)

    def _take_logprobs(self) -> list[Logprobs]:
        taken, self._held = self._held, []
        return taken

    def _add(self, token: Token) -> tuple[str, bool]:
        """Adds a token. Returns the text that can be shown, and whether a stop string ends the answer."""
        self.tokens += 1
        if token.logprobs is not None and self._ask.logprobs is not None:
            self._held.append(token.logprobs)
        if token.id in self._ask.stop_tokens:
            return "", False  # it ends the answer and is no part of its text
        text = self._text.add(token.id)
        mark = self._ask.marks.get(token.id, "")
        if mark and not text.endswith(mark):
            text += mark
        return (text, False) if self._stops is None else self._stops.add(text)

    def _end(self, stopped: bool, complete: bool) -> Piece:
        """Returns what was held back. stopped: the last token was a stop token, which is not shown."""
        text, met = self._text.end(), False
        if self._stops is not None:
            text, met = self._stops.add(text)
            if not met:
                rest, met = self._stops.end()
                text += rest
        if stopped and self._held:
            del self._held[-1]
        return Piece(text, self._take_logprobs(), "stop" if met or stopped or complete else "length")
