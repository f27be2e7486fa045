# SPDX-License-Identifier: Apache-2.0
"""Embeddings: by the client, and by OpenAI's API with its own client, LangChain's and curl."""
from __future__ import annotations

import asyncio
import base64
import json
import pathlib
import subprocess
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest
from conftest import MODEL, Daemon
from serving import TOKENIZER, Server, await_no_sequences

import npugraph
import npugraph.aio

TEXTS = ["In the beginning God created the heaven and the earth.", "Jesus wept.", "And God said, Let there be light."]
SIZE = 192


def rows_of(daemon: Daemon, texts: list[str], **options: Any) -> Any:
    with npugraph.connect(daemon.address) as client:
        return client.embed("bible", [TOKENIZER.encode(text) for text in texts], **options)


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def headless(daemon: Daemon, folder: pathlib.Path) -> Iterator[Server]:
    """A server of a model that is loaded for embeddings alone."""
    with npugraph.connect(daemon.address) as client:
        client.load_model(str(MODEL), name="bare", keep=False, embedding=True)
        running = Server(daemon.address, folder, f"--model=bare={folder / 'model'}")
        yield running
        running.stop()


# ---- the client ----

def test_a_client_embeds(daemon: Daemon, client: npugraph.Client, headless: Server) -> None:
    model, bare = client.models("bible")[0], client.models("bare")[0]
    assert (model.embedding_size, model.pooling, model.unit_embeddings, model.no_generation) == (SIZE, "last", False, False)
    assert (bare.embedding_size, bare.pooling, bare.no_generation) == (SIZE, "last", True)
    prompts = [TOKENIZER.encode(text) for text in TEXTS]
    rows = client.embed("bible", prompts)
    assert rows.shape == (3, SIZE) and rows.dtype == np.float32
    assert np.array_equal(rows[1], client.embed("bible", prompts[1:2])[0])
    assert np.allclose(client.embed("bare", prompts), rows, atol=1e-5)
    assert np.allclose(client.embed("bible", prompts, unit=True), unit(rows), atol=1e-6)
    assert np.allclose(client.embed("bible", iter(prompts), dimensions=7, unit=True), unit(rows[:, :7]), atol=1e-6)
    assert np.array_equal(client.embed("bible", prompts, dimensions=SIZE), rows)
    for bad, reason in (([], "INVALID_ARGUMENT"), ([[]], "INVALID_ARGUMENT"), ([prompts[0], [-1]], "TOKEN_RANGE"),
                        ([[5] * 5000], "PROMPT_TOO_LONG")):
        with pytest.raises(npugraph.Error) as caught:
            client.embed("bible", bad)
        assert caught.value.reason == reason
    with pytest.raises(npugraph.InvalidArgument, match="have 192"):
        client.embed("bible", prompts, dimensions=SIZE + 1)
    for wrong in (-1, (1 << 32) + 7):  # C's type would make other numbers of them
        with pytest.raises(ValueError, match="dimensions"):
            client.embed("bible", prompts, dimensions=wrong)
    for prompt in ([5.9], "12"):
        with pytest.raises(TypeError):
            client.embed("bible", [prompt])  # type: ignore[list-item]
        with pytest.raises(TypeError):
            client.open("bible", prompt)  # type: ignore[arg-type]
    with pytest.raises(npugraph.FailedPrecondition) as refused:
        client.open("bare", prompts[0])
    assert refused.value.reason == "NO_GENERATION"
    await_no_sequences(daemon)


def test_an_asynchronous_client_embeds(daemon: Daemon, folder: pathlib.Path) -> None:
    async def work() -> Any:
        async with await npugraph.aio.connect(daemon.address) as client:
            return await asyncio.gather(*[client.embed("bible", [TOKENIZER.encode(text)], unit=True) for text in TEXTS])

    assert np.array_equal(np.concatenate(asyncio.run(work())), rows_of(daemon, TEXTS, unit=True))


# ---- OpenAI's API ----

def test_openais_client_embeds(server: Server, daemon: Daemon) -> None:
    client, want = server.client(), rows_of(daemon, TEXTS, unit=True)
    made = client.embeddings.create(model="bible", input=TEXTS)  # in base64
    assert np.array_equal(np.array([one.embedding for one in made.data], np.float32), want)
    assert [one.index for one in made.data] == [0, 1, 2] and made.model == "bible"
    assert made.usage.prompt_tokens == made.usage.total_tokens == sum(len(TOKENIZER.encode(text)) for text in TEXTS)
    floats = client.embeddings.create(model="bible", input=TEXTS[1], encoding_format="float", user="me")
    assert np.array_equal(np.array(floats.data[0].embedding, np.float32), want[1])
    by_ids = client.embeddings.create(model="bible", input=TOKENIZER.encode(TEXTS[0]))
    assert np.array_equal(np.array(by_ids.data[0].embedding, np.float32), want[0])
    lists = client.embeddings.create(model="bible", input=[TOKENIZER.encode(text) for text in TEXTS], dimensions=16)
    assert np.allclose(np.array([one.embedding for one in lists.data]), unit(want[:, :16]), atol=1e-6)
    many = client.embeddings.create(model="bible", input=[f"{i} days" for i in range(300)])  # in two calls of the daemon
    assert len(many.data) == 300 and np.array_equal(np.array(many.data[299].embedding, np.float32),
                                                    rows_of(daemon, ["299 days"], unit=True)[0])


def test_langchain_embeds(server: Server, daemon: Daemon) -> None:
    langchain = pytest.importorskip("langchain_openai")
    embedder = langchain.OpenAIEmbeddings(model="bible", base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none",
                                          check_embedding_ctx_length=False)
    want = rows_of(daemon, TEXTS, unit=True)
    assert np.array_equal(np.array(embedder.embed_documents(TEXTS), np.float32), want)
    assert np.array_equal(np.array(embedder.embed_query(TEXTS[2]), np.float32), want[2])


def test_curl_embeds(server: Server, daemon: Daemon) -> None:
    for form in ("float", "base64"):
        fields = json.dumps({"model": "bible", "input": TEXTS[0], "encoding_format": form})
        out = subprocess.run(["curl", "-sf", f"http://127.0.0.1:{server.port}/v1/embeddings", "-d", fields,
                              "-H", "Content-Type: application/json"], capture_output=True, check=True).stdout
        got = json.loads(out)["data"][0]["embedding"]
        row = np.frombuffer(base64.b64decode(got), "<f4") if form == "base64" else np.array(got, np.float32)
        assert np.array_equal(row, rows_of(daemon, TEXTS[:1], unit=True)[0])


@pytest.mark.parametrize(("fields", "name"), [
    *[({"input": value}, "input") for value in (
        None, 5, {}, [], [[]], "", ["a", ""], ["a", 5], [1, "a"], [True], [-1], ["a"] * 2049)],
    *[({"dimensions": value}, "dimensions") for value in (0, -1, "5", 1.5, True, SIZE + 1)],
    *[({"encoding_format": value}, "encoding_format") for value in ("f16", 5, ["float"])],
    ({"user": 5}, "user"), ({"prompt": "a"}, "prompt"), ({"max_tokens": 5}, "max_tokens"), ({"stream": True}, "stream"),
    ({"model": None}, "model")])
def test_wrong_fields_are_named(server: Server, fields: dict[str, Any], name: str) -> None:
    status, answer, _ = server.post("/v1/embeddings", **{"input": "a"} | fields)
    assert status == 400 and answer["error"]["type"] == "invalid_request_error" and answer["error"]["param"] == name, answer


def test_what_a_model_does_not_do_is_400(server: Server, headless: Server) -> None:
    client = headless.client()
    assert len(client.embeddings.create(model="bare", input="a").data[0].embedding) == SIZE
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="bare", prompt="a")
    assert caught.value.code == "no_generation"
    with pytest.raises(openai.BadRequestError) as caught:
        server.client().embeddings.create(model="bible", input=["a", "word " * 20000])
    assert caught.value.code == "context_length_exceeded" and "prompt 1" in str(caught.value)
    with pytest.raises(openai.BadRequestError) as caught:
        server.client().embeddings.create(model="bible", input=[[5], [500000]])
    assert caught.value.code == "token_range"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="bible", input="a")


def test_too_many_requests_are_429() -> None:
    from npugraph.server.embed import NUMBERS_MAX, UNIT, UNITS_MAX, Embedder, units
    from npugraph.server.problems import Problem

    class Held:
        """A generator, its link and its client, whose embeddings do not come until the test says so."""

        def __init__(self) -> None:
            from npugraph.server.metrics import Metrics
            self.metrics, self.free = Metrics(False), asyncio.Event()
            self.link = self

        def model(self, name: str) -> Any:
            class Model:
                tokenizer, name = TOKENIZER, "bible"
            return Model()

        def models(self, name: str) -> list[Any]:
            return [types.SimpleNamespace(embedding_size=4)]

        def embed(self, name: str, prompts: list[Any], **_: object) -> Any:
            return np.ones((len(prompts), 4), np.float32)

        async def call(self, function: Any) -> Any:
            found = function(self)
            if isinstance(found, np.ndarray):
                await self.free.wait()
            return found

    async def work() -> None:
        held: Any = Held()
        embedder = Embedder(held)
        tasks = [asyncio.ensure_future(embedder.answer({"model": "bible", "input": "a"})) for _ in range(UNITS_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(Problem) as caught:
            await embedder.answer({"model": "bible", "input": "a"})
        assert caught.value.status == 429
        held.free.set()
        assert all(json.loads(made)["data"] for made in await asyncio.gather(*tasks))

    asyncio.run(work())
    assert units(1, 4) == 1 and units(2048, 1024) == 1 + 2048 * 1024 // UNIT < UNITS_MAX
    assert units(NUMBERS_MAX // 4096, 4096) <= UNITS_MAX  # the largest one can be answered
    with pytest.raises(Problem) as caught:
        units(NUMBERS_MAX // 4096 + 1, 4096)
    assert caught.value.status == 400
