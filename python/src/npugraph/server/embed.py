# SPDX-License-Identifier: Apache-2.0
"""Requests for embeddings: texts or tokens in, a list of numbers for each out."""
from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from .fields import read
from .forms import encode_json
from .link import Gate
from .metrics import Watch
from .models import ServedModel
from .problems import bad

if TYPE_CHECKING:
    from .generate import Generator

UNITS_MAX = 32  # at the same time; a request has one, and one more for each UNIT numbers of its answer
UNIT = 1 << 18  # numbers; 5 MB of JSON
NUMBERS_MAX = 1 << 22  # of an answer
BATCH = 256  # texts of a call of the daemon, whose answer is bounded

_Rows = np.ndarray[Any, np.dtype[np.float32]]


def _encode(model: ServedModel, given: list[str | list[int]]) -> list[list[int]]:
    """Returns the tokens of each text."""
    prompts = [model.tokenizer.encode(one) if isinstance(one, str) else one for one in given]
    if not all(prompts):
        raise bad("input", "has a text without tokens")
    return prompts


def units(rows: int, size: int) -> int:
    """Returns what an answer of so many embeddings counts."""
    if rows * size > NUMBERS_MAX:
        raise bad("input", f"has {rows} texts, whose embeddings have {rows * size} numbers; an answer has at most {NUMBERS_MAX}")
    return 1 + rows * size // UNIT


def _answer(model: ServedModel, rows: _Rows, tokens: int, form: str) -> bytes:
    """Writes row by row: a number is 32 bytes as an object of Python, and 4 as one of an array."""
    def shown(index: int, row: _Rows) -> str:
        numbers = base64.b64encode(row.astype("<f4").tobytes()).decode() if form == "base64" else row.tolist()
        return encode_json({"object": "embedding", "index": index, "embedding": numbers})

    rest = encode_json({"model": model.name, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})
    return ('{"object":"list","data":[' + ",".join(shown(i, row) for i, row in enumerate(rows)) + "]," + rest[1:]).encode()


class Embedder:
    """Answers requests with the daemon's models."""

    def __init__(self, generator: Generator) -> None:
        self._generator, self._gate = generator, Gate(UNITS_MAX, "requests for embeddings")

    async def answer(self, body: Any) -> bytes:
        values = read(body, "embeddings")
        model = self._generator.model(values["model"])
        watch = Watch(self._generator.metrics.of(model.name))
        weight = units(len(values["input"]), await self._size(model, values["dimensions"] or 0))
        with self._gate.pass_with(weight), watch.running():
            prompts = await asyncio.to_thread(_encode, model, values["input"])
            rows = [await self._embed(model, prompts[at:at + BATCH], values["dimensions"] or 0)
                    for at in range(0, len(prompts), BATCH)]
            tokens = sum(map(len, prompts))
            made = await asyncio.to_thread(_answer, model, np.concatenate(rows), tokens, values["encoding_format"])
        watch.end(tokens, 0, ["embedding"])
        return made

    async def _size(self, model: ServedModel, dimensions: int) -> int:
        """Returns the numbers of an embedding; 0: the model has none, which the daemon says when it is asked for one."""
        found = (await self._generator.link.call(lambda client: client.models(model.name)))[0]
        if found.embedding_size and dimensions > found.embedding_size:
            raise bad("dimensions", f"is {dimensions}; embeddings of {model.name} have {found.embedding_size} numbers")
        return dimensions or found.embedding_size

    async def _embed(self, model: ServedModel, prompts: list[list[int]], dimensions: int) -> _Rows:
        """Returns rows of the length 1, as OpenAI's are."""
        return await self._generator.link.call(
            lambda client: client.embed(model.name, prompts, dimensions=dimensions, unit=True))
