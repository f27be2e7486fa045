# SPDX-License-Identifier: Apache-2.0
"""The asyncio client: the same tokens, and nothing left by coroutines that were cancelled."""
from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import MODEL, PATIENCE, Daemon

import npugraph
import npugraph.aio

PROMPT = npugraph.Tokenizer(str(MODEL)).encode("In the beginning")


@pytest.fixture(autouse=True)
def loaded(client: npugraph.Client) -> Iterator[None]:
    client.load_model(str(MODEL), name="bible", max_batch=64, keep=False)
    yield


async def until_no_sequences(client: npugraph.aio.Client) -> None:
    end = time.monotonic() + PATIENCE
    while any(model.sequences for model in await client.models()):
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


def test_tokens_are_those_of_the_sync_client(daemon: Daemon, client: npugraph.Client) -> None:
    with client.open("bible", PROMPT, logprobs=2) as sequence:
        first, want = sequence.last, list(sequence.generate(20))
    assert client.models()[0].name == "bible" and client.models()[0].vocab == 2048

    async def main() -> None:
        async with await npugraph.aio.connect(daemon.address) as aclient:
            assert await aclient.models() == client.models()
            async with await aclient.open("bible", PROMPT, logprobs=2) as sequence:
                assert sequence.last == first
                copy = await sequence.fork(logprobs=1)
                generation = sequence.generate(20, logprobs=2)
                tokens = [token async for token in generation]
                assert [t.id for t in tokens] == want and generation.finish == "length"
                assert all(t.logprobs.token == t.id and len(t.logprobs.top) == 2 for t in tokens)
                few = []
                async for token in (generation := copy.generate(500, ignore_stop=True)):
                    few.append(token.id)
                    if len(few) == 3:
                        generation.cancel()
                        break
                await generation.ended()
                assert few == want[:3] and generation.finish == "cancelled"
                assert [t.id async for t in copy.generate(2)]  # the sequence goes on
            with pytest.raises(npugraph.Error, match="closed"):
                sequence.generate()
            with pytest.raises(npugraph.Error, match="closed"):
                await sequence.step()
            with pytest.raises(npugraph.NotFound):
                await aclient.open("nothing", PROMPT)
        with pytest.raises(npugraph.Error, match="closed"):
            await aclient.models()
        with pytest.raises(npugraph.Unreachable):
            await npugraph.aio.connect("unix:/nonexistent", timeout=5)

    asyncio.run(main())


def mask(*tokens: int) -> bytes:
    return sum(1 << token for token in tokens).to_bytes(2048 // 8, "little")


def test_steps_keep_to_masks(daemon: Daemon, client: npugraph.Client) -> None:
    with client.open("bible", PROMPT, allowed=mask(9), logprobs=0) as sequence:
        assert sequence.token == sequence.last.logprobs.token == 9
        assert sequence.step(allowed=mask(7, 8)).token in (7, 8) and sequence.step(logprobs=3).logprobs.top[2]
        with pytest.raises(npugraph.InvalidArgument):
            sequence.step(allowed=b"\xff")
        with pytest.raises(npugraph.Error) as caught:
            sequence.step(allowed=mask())
        assert caught.value.reason == "SAMPLING" and sequence.step(allowed=mask(5)).token == 5

    async def main() -> None:
        def fail() -> bytes:
            raise LookupError("no mask")

        async with await npugraph.aio.connect(daemon.address, threads=4) as aclient:
            assert (await aclient.models("bible"))[0].stop_tokens == (2045, 2047)
            sequences = [await aclient.open("bible", PROMPT, allowed=mask(40 + i)) for i in range(8)]
            for round_ in range(3):
                want = [50 * round_ + i for i in range(8)]
                steps = await asyncio.gather(*[s.step(allowed=lambda t=t: mask(t)) for s, t in zip(sequences, want, strict=True)])
                assert [step.token for step in steps] == want
            with pytest.raises(LookupError):
                await sequences[0].step(allowed=fail)
            begun = asyncio.ensure_future(sequences[0].step(allowed=mask(3)))
            await asyncio.sleep(0)
            with pytest.raises(npugraph.Error, match="another"):
                sequences[0].generate()
            begun.cancel()
            await asyncio.gather(begun, return_exceptions=True)
            await asyncio.gather(*[sequence.close() for sequence in sequences])  # the step that was left behind too
            await until_no_sequences(aclient)
    asyncio.run(main())


def test_cancelled_coroutines_leave_nothing(daemon: Daemon) -> None:
    async def one(client: npugraph.aio.Client) -> int:
        async with await client.open("bible", PROMPT) as sequence:
            return len([token async for token in sequence.generate(900, ignore_stop=True)])

    async def main() -> None:
        async with await npugraph.aio.connect(daemon.address) as client:
            for delay in (0, 0.001, 0.01, 0.05, 0.2):
                tasks = [asyncio.ensure_future(one(client)) for _ in range(48)]
                await asyncio.sleep(delay)
                for task in tasks:
                    task.cancel()
                assert all(isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*tasks, return_exceptions=True))
                await until_no_sequences(client)

    asyncio.run(main())


def test_closing_ends_what_runs(daemon: Daemon) -> None:
    async def main() -> None:
        client = await npugraph.aio.connect(daemon.address)
        sequences = [await client.open("bible", PROMPT) for _ in range(8)]
        generations = [sequence.generate(900, ignore_stop=True) for sequence in sequences]
        assert all([await generation.batch() for generation in generations])
        await client.close()
        assert [generation.finish for generation in generations] == ["cancelled"] * 8
        async with await npugraph.aio.connect(daemon.address) as other:
            await until_no_sequences(other)

    asyncio.run(main())


def test_a_daemon_that_dies_is_an_error(tmp_path: Any) -> None:
    mortal = Daemon(tmp_path)

    async def main() -> None:
        async with await npugraph.aio.connect(mortal.address) as client:
            await asyncio.to_thread(client._client.load_model, str(MODEL), name="bible")
            sequence = await client.open("bible", PROMPT)
            generation = sequence.generate(900, ignore_stop=True)
            assert await generation.batch()
            mortal.kill()
            with pytest.raises(npugraph.Unavailable):
                async for _ in generation:
                    pass

    asyncio.run(main())


def test_nothing_begins_while_a_client_closes(daemon: Daemon) -> None:
    async def main() -> None:
        aclient = await npugraph.aio.connect(daemon.address)
        sequence = await aclient.open("bible", PROMPT)
        closing = asyncio.ensure_future(aclient.close())
        await asyncio.sleep(0)
        with pytest.raises(npugraph.Error, match="SESSION_GONE"):
            sequence.generate(5)
        for begin in (aclient.open("bible", PROMPT), sequence.fork()):
            with pytest.raises(npugraph.Error, match="SESSION_GONE"):
                await begin
        await closing

    asyncio.run(main())
