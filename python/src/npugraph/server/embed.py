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

REQUESTS_MAX = 32  # at the same time; each has a thread while the daemon computes
BATCH = 256  # texts of a call of the daemon, whose answer is bounded

_Rows = np.ndarray[Any, np.dtype[np.float32]]


def _encode(model: ServedModel, given: list[str | list[int]]) -> list[list[int]]:
    """Returns the tokens of each text."""
    prompts = [model.tokenizer.encode(one) if isinstance(one, str) else one for one in given]
    if not all(prompts):
        raise bad("input", "has a text without tokens")
    return prompts


def _answer(model: ServedModel, rows: _Rows, tokens: int, form: str) -> bytes:
    def shown(row: _Rows) -> Any:
        return base64.b64encode(row.astype("<f4").tobytes()).decode() if form == "base64" else row.tolist()

    data = [{"object": "embedding", "index": i, "embedding": shown(row)} for i, row in enumerate(rows)]
    return encode_json({"object": "list", "data": data, "model": model.name,
                        "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}).encode()


class Embedder:
    """Answers requests with the daemon's models."""

    def __init__(self, generator: Generator) -> None:
        self._generator, self._gate = generator, Gate(REQUESTS_MAX, "requests for embeddings")

    async def answer(self, body: Any) -> bytes:
        values = read(body, "embeddings")
        model = self._generator.model(values["model"])
        watch = Watch(self._generator.metrics, model.name)
        with self._gate.pass_with(1), self._generator.metrics.running.labels(model.name).track_inprogress():
            prompts = await asyncio.to_thread(_encode, model, values["input"])
            if values["dimensions"]:
                await self._check_dimensions(model, values["dimensions"])
            rows = [await self._embed(model, prompts[at:at + BATCH], values["dimensions"] or 0)
                    for at in range(0, len(prompts), BATCH)]
            tokens = sum(map(len, prompts))
            made = await asyncio.to_thread(_answer, model, np.concatenate(rows), tokens, values["encoding_format"])
        watch.end(tokens, 0, ["embedding"])
        return made

    async def _check_dimensions(self, model: ServedModel, dimensions: int) -> None:
        found = (await self._generator.link.call(lambda client: client.models(model.name)))[0]
        if found.embedding_size and dimensions > found.embedding_size:
            raise bad("dimensions", f"is {dimensions}; embeddings of {model.name} have {found.embedding_size} numbers")

    async def _embed(self, model: ServedModel, prompts: list[list[int]], dimensions: int) -> _Rows:
        """Returns rows of the length 1, as OpenAI's are."""
        return await self._generator.link.call(
            lambda client: client.embed(model.name, prompts, dimensions=dimensions, unit=True))
