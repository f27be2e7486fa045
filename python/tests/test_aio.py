# SPDX-License-Identifier: Apache-2.0
"""The asyncio client: the same results, and nothing left by coroutines that were cancelled."""
from __future__ import annotations

import asyncio
import collections
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import MODEL, PATIENCE, Daemon
from test_client import COUNTER, LINEAR

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


def test_buffers_and_graphs_are_those_of_the_sync_client(daemon: Daemon, client: npugraph.Client) -> None:
    rng = np.random.default_rng(1)
    w, xs = rng.standard_normal((4, 16), np.float32), rng.standard_normal((20, 3, 16), np.float32)
    graph = client.graph(LINEAR, {"w": client.upload(w)})
    want = [graph.replay([x], symbols=[3]) for x in xs]

    async def main() -> None:
        async with await npugraph.aio.connect(daemon.address, threads=4) as aclient:
            assert (await aclient.device()).name == client.device().name
            bound = await aclient.upload(w)
            assert np.array_equal(await bound.read_into(np.empty((4, 16), np.float32)), w)
            agraph = await aclient.graph(LINEAR, {"w": bound})
            assert not (await agraph.capture([3])).captured  # the sync client's
            assert await asyncio.gather(*[agraph.replay([x], symbols=[3]) for x in xs]) == want
            y = np.zeros((3, 4), np.float32)
            assert (await agraph.replay([xs[0]], symbols=[3], into=[y, np.zeros_like(y)]))[0] is y and y.tobytes() == want[0][0]
            with pytest.raises(npugraph.FailedPrecondition):
                await agraph.replay([xs[0]], symbols=[9])
            shared = await aclient.shared(4096)
            assert shared.array.nbytes == 4096
            loaded = await aclient.load_safetensors(str(MODEL / "model.safetensors"), ["model.norm.weight"])
            assert len(await loaded["model.norm.weight"].read()) == loaded["model.norm.weight"].nbytes
            await agraph.release()
            with pytest.raises(npugraph.NotFound):
                await agraph.replay([xs[0]], symbols=[3])
            empty = await aclient.allocate(64)
            await empty.write(b"abc", 1)
            assert (await empty.read())[:5] == b"\0abc\0"
            await empty.free()
            with pytest.raises(npugraph.NotFound):
                await empty.read()

    asyncio.run(main())


def test_a_stream_keeps_the_order_of_its_replays(daemon: Daemon) -> None:
    async def main() -> None:
        async with await npugraph.aio.connect(daemon.address) as client:
            counter = await client.graph(COUNTER, {"n": await client.upload(np.zeros(1, np.int64))})
            async with await client.replay_stream() as stream:
                tasks = [asyncio.ensure_future(stream.replay(counter)) for _ in range(50)]
                await asyncio.sleep(0)
                for task in tasks[10:20]:
                    task.cancel()
                done = await asyncio.gather(*tasks, return_exceptions=True)
                numbers = [int.from_bytes(value[0], "little") for value in done if isinstance(value, list)]
                assert len(numbers) >= 40 and numbers == sorted(set(numbers))
                with pytest.raises(npugraph.Error):
                    await stream.replay(counter, [b"x"])  # it has no inputs
                assert int.from_bytes((await stream.replay(counter))[0], "little") > numbers[-1]
            with pytest.raises(npugraph.Error, match="closed"):
                await stream.replay(counter)

    asyncio.run(main())


def test_cancelled_calls_leave_no_memory(daemon: Daemon) -> None:
    async def main() -> None:
        async with await npugraph.aio.connect(daemon.address) as client:
            before = (await client.device()).used_bytes
            for _ in range(10):
                task = asyncio.ensure_future(client.upload(np.zeros(1 << 20, np.uint8)))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            end = time.monotonic() + PATIENCE
            while (await client.device()).used_bytes > before:
                assert time.monotonic() < end
                await asyncio.sleep(0.02)

    asyncio.run(main())


def test_models_are_loaded_and_unloaded(daemon: Daemon) -> None:
    async def main() -> None:
        loop, seen = asyncio.get_running_loop(), []

        def progress(done: int, total: int) -> None:
            assert asyncio.get_running_loop() is loop
            seen.append((done, total))

        async with await npugraph.aio.connect(daemon.address) as client:
            await client.load_model(str(MODEL), name="second", max_batch=8, keep=False, progress=progress)
            assert [m.name for m in await client.models("second")] == ["second"] and seen[-1][0] == seen[-1][1] > 0
            await client.unload_model("second")
            with pytest.raises(npugraph.NotFound):
                await client.unload_model("second")
            with pytest.raises(TypeError):
                await client.load_model(str(MODEL), nothing=1)

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


def test_driven_generations(daemon: Daemon, client: npugraph.Client) -> None:
    with client.open("bible", PROMPT) as sequence:
        want = list(sequence.generate(30, ignore_stop=True))
    nbytes = (client.models("bible")[0].vocab + 7) // 8
    every, sizes = np.full(nbytes, 255, np.uint8), []

    def go_on(taken: list[tuple[Any, npugraph.aio.Token]]) -> tuple[list[Any], np.ndarray[Any, np.dtype[np.uint8]]]:
        """An item is a list: how many tokens are wanted still, and the mask for them."""
        sizes.append(len(taken))
        for item, token in taken:
            item[0] -= 1
            assert (token.logprobs is not None) == (len(item) > 2 and token.id != want[0])
        return ["enough" if item[0] == 0 else None for item, _ in taken], np.array([item[1] for item, _ in taken])

    def fail(taken: list[tuple[Any, npugraph.aio.Token]]) -> tuple[list[Any], np.ndarray[Any, np.dtype[np.uint8]]]:
        raise LookupError("no step")

    async def main() -> None:
        async with await npugraph.aio.connect(daemon.address) as aclient:
            async def one() -> tuple[list[int], str | None]:
                async with await aclient.open("bible", PROMPT) as sequence:
                    generation = sequence.drive(go_on, [30, every])
                    with pytest.raises(npugraph.Error, match="another"):
                        sequence.generate()
                    return [token.id async for token in generation], generation.finish

            assert await asyncio.gather(*[one() for _ in range(40)]) == [(want, "enough")] * 40
            assert max(sizes) > 1, sizes
            endless = await aclient.open("bible", PROMPT)
            generation = endless.drive(go_on, [-1, every, "logprobs"], logprobs=2)
            assert (await anext(generation)).id == want[0] and len((await anext(generation)).logprobs.top) == 2
            generation.cancel()
            await generation.ended()
            assert generation.finish == "cancelled"
            few = np.frombuffer(mask(7, 8), np.uint8)
            assert {token.id async for token in endless.drive(go_on, [9, few])} - {endless.last.token} <= {7, 8}
            none = endless.drive(go_on, [-1, np.zeros(nbytes, np.uint8)])
            await anext(none)
            with pytest.raises(npugraph.Error) as caught:
                await anext(none)
            assert caught.value.reason == "SAMPLING"
            failing = endless.drive(fail, None)
            await anext(failing)
            with pytest.raises(LookupError):
                await anext(failing)
            full = await aclient.open("bible", PROMPT)
            generation = full.drive(go_on, [-1, every])
            assert len([token async for token in generation]) > 30 and generation.finish == "context"
            begun = await aclient.open("bible", PROMPT)  # cancelled before a step was begun, or beside it
            begun.drive(go_on, [-1, every]).cancel()
            await begun.close()
            left = await aclient.open("bible", PROMPT)  # while it is driven, the client closes
            left.drive(go_on, [-1, every])
    asyncio.run(main())
    asyncio.run(_none_are_left(daemon))


def test_what_one_follow_does_wrong_ends_no_others(daemon: Daemon, client: npugraph.Client) -> None:
    every = np.full((1, 256), 255, np.uint8)

    class Panic(BaseException):
        pass

    def panics(taken: list[tuple[Any, npugraph.aio.Token]]) -> Any:
        raise Panic("unreachable")

    def stops(taken: list[tuple[Any, npugraph.aio.Token]]) -> Any:
        raise StopIteration

    def few(taken: list[tuple[Any, npugraph.aio.Token]]) -> Any:
        return [], every

    def wide(taken: list[tuple[Any, npugraph.aio.Token]]) -> Any:
        return [None] * len(taken), every.astype(np.int64)

    def short(taken: list[tuple[Any, npugraph.aio.Token]]) -> Any:
        return [None] * len(taken), every[:0]

    async def main() -> None:
        async with await npugraph.aio.connect(daemon.address) as aclient:
            other = await aclient.open("bible", PROMPT)
            with pytest.raises(TypeError):
                other.drive([], None)  # type: ignore[arg-type]
            goes_on = other.drive(lambda taken: ([None] * len(taken), every), None)
            await anext(goes_on)
            wrong = ((panics, "unreachable"), (stops, "StopIteration"), (few, "rows"), (wide, "rows"), (short, "rows"))
            for follow, error in wrong:
                async with await aclient.open("bible", PROMPT) as sequence:
                    with pytest.raises((RuntimeError, ValueError), match=error):
                        async with asyncio.timeout(PATIENCE):
                            assert len([token async for token in sequence.drive(follow, None)]) > 9
            async with asyncio.timeout(PATIENCE):
                assert await anext(goes_on) and (await goes_on.batch())
    asyncio.run(main())


def test_more_tokens_come_at_once_than_are_taken(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npugraph.aio._Driven, "BATCH", 2)
    held, sizes = threading.Event(), []

    def follow(taken: list[tuple[Any, npugraph.aio.Token]]) -> Any:
        assert held.wait(PATIENCE)
        sizes.append(len(taken))
        for item, _ in taken:
            item[0] -= 1
        return [None if item[0] else "enough" for item, _ in taken], np.full((len(taken), 256), 255, np.uint8)

    async def main() -> None:
        async with await npugraph.aio.connect(daemon.address) as aclient:
            sequences = [await aclient.open("bible", PROMPT) for _ in range(7)]
            generations = [sequence.drive(follow, [4]) for sequence in sequences]
            held.set()
            async with asyncio.timeout(PATIENCE):
                assert [len([token async for token in generation]) for generation in generations] == [4] * 7
            assert max(sizes) == 2
        await aclient.close()  # once more
    asyncio.run(main())


def test_a_driven_generation_ends_as_it_begins(daemon: Daemon) -> None:
    """Cancelled after the thread has looked for those that begin, and before it takes events."""
    looks, cancelled = threading.Event(), threading.Event()

    class Begun(collections.deque[Any]):
        def __bool__(self) -> bool:
            if looks.is_set() or threading.current_thread().name != "npugraph-driven":
                return len(self) > 0
            looks.set()
            assert cancelled.wait(PATIENCE)
            return False

    def follow(taken: list[tuple[Any, npugraph.aio.Token]]) -> Any:
        return [None] * len(taken), np.full((len(taken), 256), 255, np.uint8)

    async def main() -> None:
        async with await npugraph.aio.connect(daemon.address) as aclient:
            first, second = await aclient.open("bible", PROMPT), await aclient.open("bible", PROMPT)
            driven = aclient.driven()
            driven._begun = Begun()
            kept = first.drive(follow, None)
            await asyncio.to_thread(looks.wait, PATIENCE)
            second.drive(follow, None).cancel()
            cancelled.set()
            async with asyncio.timeout(PATIENCE):
                await second.close()
                assert await anext(kept) and await anext(kept)
                await first.close()
    asyncio.run(main())


def test_a_driven_generation_is_cancelled_by_several(daemon: Daemon) -> None:
    """While no step is under way, so that each of them might end it."""
    held, waits = threading.Event(), threading.Event()

    def follow(taken: list[tuple[Any, npugraph.aio.Token]]) -> Any:
        for item, _ in taken:
            item[0] += 1
            if item[0] == 2:
                waits.set()
                assert held.wait(PATIENCE)
        return [None] * len(taken), np.full((len(taken), 256), 255, np.uint8)

    async def main() -> None:
        async with await npugraph.aio.connect(daemon.address) as aclient:
            for _ in range(400):
                held.clear()
                waits.clear()
                sequence = await aclient.open("bible", PROMPT[:1])
                generation = sequence.drive(follow, [0])

                def cancel(tag: int = generation._tag) -> None:
                    for _ in range(200):
                        aclient.driven().cancel(tag)

                assert await asyncio.to_thread(waits.wait, PATIENCE)
                await asyncio.gather(*[asyncio.to_thread(cancel) for _ in range(3)])
                held.set()
                async with asyncio.timeout(PATIENCE):
                    await sequence.close()
                assert generation.finish == "cancelled"
    asyncio.run(main())


def test_a_program_that_ends_with_a_driven_generation(daemon: Daemon) -> None:
    program = f"""if True:
        import asyncio, numpy, npugraph.aio
        async def main():
            client = await npugraph.aio.connect({daemon.address!r})
            sequences = [await client.open("bible", {PROMPT!r}) for _ in range(16)]
            follow = lambda taken: ([None] * len(taken), numpy.full((len(taken), 256), 255, numpy.uint8))
            generations = [sequence.drive(follow, None) for sequence in sequences]
            for generation in generations:
                await anext(generation)
        asyncio.run(main())"""
    environment = dict(os.environ, MALLOC_PERTURB_="165")  # what is freed is overwritten
    for _ in range(8):
        done = subprocess.run([sys.executable, "-c", program], timeout=PATIENCE, capture_output=True, text=True, env=environment)
        assert done.returncode == 0 and "Traceback" not in done.stderr, (done.returncode, done.stderr)


async def _none_are_left(daemon: Daemon) -> None:
    async with await npugraph.aio.connect(daemon.address) as aclient:
        await until_no_sequences(aclient)


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


def test_a_copy_under_way_ends_before_its_sequence_is_closed(daemon: Daemon) -> None:
    begun, go_on, order = threading.Event(), threading.Event(), []

    async def main() -> None:
        async with await npugraph.aio.connect(daemon.address) as client:
            sequence = await client.open("bible", PROMPT)
            fork, close = sequence._sequence.fork, sequence._sequence.close

            def slow_fork(*args: Any, **kwargs: Any) -> npugraph.Sequence:
                begun.set()
                assert go_on.wait(PATIENCE)
                order.append("copied")
                return fork(*args, **kwargs)

            def noted_close() -> None:
                order.append("closed")
                close()

            sequence._sequence.fork, sequence._sequence.close = slow_fork, noted_close  # type: ignore[method-assign]
            task = asyncio.ensure_future(sequence.fork())
            await asyncio.to_thread(begun.wait, PATIENCE)
            with pytest.raises(npugraph.Error, match="BUSY"):
                await sequence.fork()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            closing = sequence.release()
            await asyncio.sleep(0.1)
            go_on.set()
            await closing
            assert order == ["copied", "closed"]
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
