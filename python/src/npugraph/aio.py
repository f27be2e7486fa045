# SPDX-License-Identifier: Apache-2.0
"""A client for programs with an asyncio event loop.

    async with await npugraph.aio.connect() as client:
        sequence = await client.open("bible", tokenizer.encode("In the beginning"))
        async for token in sequence.generate(60):
            print(token.id)

Tokens of all generations come through one descriptor, without a thread for each; other calls wait in threads of the
client. A cancelled coroutine takes nothing back that was done, but leaves nothing behind: what it opened is closed.
"""
from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import contextvars
import ctypes
import itertools
import os
import select
import threading
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Sequence_
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from . import _abi
from . import client as sync
from ._aio_graphs import Buffer, Graph, ReplayStream
from ._library import call, finalize, library, raised
from .client import Device, Model, Progress
from .errors import Error
from .graphs import Graph as SyncGraph
from .graphs import ReplayStream as SyncReplayStream
from .sequences import FINISH, Logprobs, Sampling, Step, generate_params, logprobs_of
from .sequences import Sequence as SyncSequence

_T = TypeVar("_T")


class Client:
    """A session of the daemon, for one event loop. `connect` makes one."""

    def __init__(self, client: sync.Client, threads: int) -> None:
        self._client = client
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "npugraph")
        self._steps = concurrent.futures.ThreadPoolExecutor(threads, "npugraph-step")  # not behind prompts that take long
        self._sequences: set[Sequence] = set()
        self._generations = _Generations(client)
        self._driven: _Driven | None = None  # started with the first generation that is driven
        self._closing = False

    def driven(self) -> _Driven:
        if self._driven is None:
            self._driven = _Driven(self._client)
        return self._driven

    def check_open(self) -> None:
        """Raises if the client is closed or about to be: nothing that begins now would end."""
        if self._closing:
            raise Error("SESSION_GONE", "the client is closed")

    async def _run(self, function: Callable[..., _T], *args: Any, undo: Callable[[_T], object] | None = None) -> _T:
        """Runs a blocking call in a thread. If the coroutine is cancelled, `undo` gets the call's result there."""
        return await self._result(self._submit(self._pool, function, *args), undo)

    def _submit(self, pool: concurrent.futures.ThreadPoolExecutor, function: Callable[..., _T],
                *args: Any) -> concurrent.futures.Future[_T]:
        """Begins a blocking call in a thread, with the trace."""
        try:
            return pool.submit(contextvars.copy_context().run, function, *args)
        except RuntimeError:
            raise Error("SESSION_GONE", "the client is closed") from None

    async def _result(self, future: concurrent.futures.Future[_T], undo: Callable[[_T], object] | None) -> _T:
        """Waits for a call. If the coroutine is cancelled, `undo` gets the call's result."""
        def take_back(done: concurrent.futures.Future[_T]) -> None:
            if undo is not None and not done.cancelled() and done.exception() is None:
                with contextlib.suppress(RuntimeError):  # the client is closed, and with it what was opened
                    self._pool.submit(undo, done.result())

        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            future.add_done_callback(take_back)
            raise

    # ---- devices, memory, graphs ----

    async def device(self, name: str | None = None) -> Device:
        """Returns a device by name or number; by default the one that the daemon uses by default."""
        return await self._run(self._client.device, name)

    async def allocate(self, nbytes: int, *, label: str = "", device: str | None = None) -> Buffer:
        """Allocates zeroed device memory."""
        return Buffer(self, await self._run(lambda: self._client.allocate(nbytes, label=label, device=device),
                                            undo=sync.Buffer.free))

    async def upload(self, data: Any, *, label: str = "", device: str | None = None) -> Buffer:
        """Allocates device memory and copies an array, a tensor or bytes into it."""
        return Buffer(self, await self._run(lambda: self._client.upload(data, label=label, device=device),
                                            undo=sync.Buffer.free))

    async def shared(self, nbytes: int) -> sync.SharedBuffer:
        """Makes zeroed memory that this process and the daemon share. ConnectionError: the daemon does not offer it."""
        return await self._run(self._client.shared, nbytes, undo=sync.SharedBuffer.free)

    async def load_safetensors(self, path: str, names: Iterable[str] = (), *, device: str | None = None,
                               progress: Progress | None = None) -> dict[str, Buffer]:
        """Lets the daemon read tensors of a file, as npugraph.Client.load_safetensors. `progress` is called by the loop."""
        def free_all(found: dict[str, sync.Buffer]) -> None:
            for buffer in found.values():
                buffer.free()

        on_loop = _on_loop(progress)
        found = await self._run(
            lambda: self._client.load_safetensors(path, names, device=device, progress=on_loop), undo=free_all)
        return {name: Buffer(self, buffer) for name, buffer in found.items()}

    async def graph(self, source: str, bindings: Mapping[str, Buffer] | None = None,
                    options: Mapping[str, object] | None = None, *, device: str | None = None) -> Graph:
        """Registers a graph, given as text, with buffers for its params and states, by label."""
        bound = {label: buffer.buffer for label, buffer in (bindings or {}).items()}
        return Graph(self, await self._run(lambda: self._client.graph(source, bound, options, device=device),
                                           undo=SyncGraph.release))

    async def replay_stream(self) -> ReplayStream:
        """Opens a stream for replays, which has a fraction of the latency of single calls."""
        return ReplayStream(self, await self._run(self._client.replay_stream, undo=SyncReplayStream.close))

    # ---- models ----

    async def load_model(self, directory: str, *, progress: Progress | None = None, **params: Any) -> None:
        """Loads a checkpoint, as npugraph.Client.load_model does. `progress` is called by the loop."""
        on_loop = _on_loop(progress)
        await self._run(lambda: self._client.load_model(directory, progress=on_loop, **params))

    async def unload_model(self, name: str, *, force: bool = False) -> None:
        """Unloads a model. `force` closes its sequences; without it a model in use is refused with BUSY."""
        await self._run(lambda: self._client.unload_model(name, force=force))

    async def models(self, name: str = "") -> list[Model]:
        """Returns the loaded models that this client may use, or the one that a name means to it."""
        return await self._run(self._client.models, name)

    async def open(self, model: str, prompt: Iterable[int], sampling: Sampling | None = None, *,
                   logprobs: int | None = None, allowed: bytes | None = None, restore: float = 0) -> Sequence:
        """Opens a sequence: computes the prompt and chooses a first token; greedily without `sampling`.

        `logprobs`: how many of the most probable first tokens get log-probabilities; None: not even the chosen one.
        `allowed`: tokens that the first one may be, as in npugraph.Sequence.step.
        `restore`: seconds to wait for another daemon if this one is lost, as in npugraph.Client.open.
        """
        self.check_open()
        opened = await self._run(lambda: self._client.open(model, prompt, sampling, logprobs=logprobs, allowed=allowed,
                                                           restore=restore), undo=SyncSequence.close)
        return Sequence(self, opened)

    async def embed(self, model: str, prompts: Iterable[Iterable[int]], *, dimensions: int = 0,
                    unit: bool = False) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Returns the embeddings of prompts, a row for each, as npugraph.Client.embed does."""
        self.check_open()
        return await self._run(lambda: self._client.embed(model, prompts, dimensions=dimensions, unit=unit))

    async def close(self) -> None:
        """Ends the session, after the calls that run. Generations end at their next token."""
        self._closing = True
        await asyncio.gather(*[sequence.close() for sequence in self._sequences])
        self._generations.stop_reading()
        self._pool.shutdown(wait=False)
        self._steps.shutdown(wait=False)
        await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        self._pool.shutdown()
        self._steps.shutdown()
        if self._driven is not None:
            self._driven.destroy()
        self._generations.destroy()
        self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Token(NamedTuple):
    """A token that was generated."""

    id: int
    logprobs: Logprobs | None = None  # if wanted
    stop: bool = False  # a stop token of the model; only of `drive`


# Gets items and the tokens that came for them. Returns for each why its generation ends, a word or an exception, or None: then a
# step is made, whose token may be those of the row of the masks; a bit for each token, as `allowed` of a step.
Follow = Callable[[list[tuple[Any, Token]]], tuple[Sequence_[str | Exception | None], np.ndarray[Any, np.dtype[np.uint8]]]]
_STOP = FINISH.index("stop")


class Sequence:
    """A sequence of a model: its context lives in the daemon. One call at a time."""

    def __init__(self, client: Client, opened: SyncSequence) -> None:
        self.client = client
        self._sequence = opened
        self._generation: Generation | None = None
        self._call: concurrent.futures.Future[Any] | None = None  # a step or copy; it runs on if its coroutine is cancelled
        self._closed: asyncio.Future[None] | None = None
        client._sequences.add(self)

    @property
    def last(self) -> Step:
        """The last step: its token is the first one that `generate` yields."""
        return self._sequence.last

    def generate(self, max_tokens: int | None = None, *, stop_tokens: Iterable[int] = (), ignore_stop: bool = False,
                 logprobs: int | None = None) -> Generation:
        """Generates tokens, the one that was chosen last first. `logprobs`: as in Client.open."""
        self._check_idle()
        params = generate_params(max_tokens, stop_tokens, ignore_stop, logprobs)
        self._generation = self.client._generations.start(self._sequence, params)
        return self._generation

    def drive(self, follow: Follow, item: Any, *, logprobs: int | None = None) -> Generation:
        """Generates tokens whose choice `follow` bounds, the one that was chosen last first. `logprobs`: as in Client.open.

        One thread of the client calls `follow`, with all items of generations whose tokens have come, so that work for many is
        done at once. While it runs, none of them goes on.
        """
        self._check_idle()
        self._generation = self.client.driven().start(self._sequence, follow, item, logprobs)
        return self._generation

    def _check_idle(self) -> None:
        self.client.check_open()
        if self._closed is not None or (self._generation is not None and self._generation.running) \
                or (self._call is not None and not self._call.done()):
            raise Error("BUSY", "the sequence is closed, or another generation, step or copy of it runs")

    async def step(self, token: int | None = None, *, logprobs: int | None = None,
                   allowed: bytes | Callable[[], bytes | None] | None = None) -> Step:
        """Makes a decode step: appends a token, by default the one that was chosen last, and chooses the next.

        `allowed`: as in npugraph.Sequence.step, or a function that returns it. The function is called in the thread that
        waits for the step, so it may take its time; what it raises is raised here, and no step is made.
        """
        self._check_idle()

        def work() -> Step:
            mask = allowed() if callable(allowed) else allowed
            return self._sequence.step(token, logprobs=logprobs, allowed=mask)

        self._call = call = self.client._submit(self.client._steps, work)
        return await asyncio.wrap_future(call)

    async def fork(self, sampling: Sampling | None = None, *, logprobs: int | None = None) -> Sequence:
        """Copies an idle sequence; full blocks of its context are shared. The next token is drawn again."""
        self._check_idle()
        self._call = call = self.client._submit(self.client._pool, lambda: self._sequence.fork(sampling, logprobs=logprobs))
        return Sequence(self.client, await self.client._result(call, SyncSequence.close))

    def release(self) -> asyncio.Future[None]:
        """Ends the generation that runs, if any, and frees the daemon's memory, without waiting for either."""
        if self._closed is None:
            if self._generation is not None:
                self._generation.cancel()
            self._closed = asyncio.ensure_future(self._close())
            self._closed.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody must ask for it
        return self._closed

    async def _close(self) -> None:
        if self._generation is not None and self._generation.running:
            await self._generation.ended()
        if self._call is not None:  # it uses what a close frees
            call = asyncio.wrap_future(self._call)
            call.add_done_callback(lambda done: done.cancelled() or done.exception())  # its caller is told
            await asyncio.wait([call])
        self.client._sequences.discard(self)
        await self.client._run(self._sequence.close)

    async def close(self) -> None:
        """Frees its memory in the daemon, after the generation that runs."""
        await asyncio.shield(self.release())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Generation:
    """Tokens as they are made: an asynchronous iterator."""

    def __init__(self, all_: _Generations | _Driven, tag: int) -> None:
        self._all, self._tag = all_, tag
        self._ready: collections.deque[Token] = collections.deque()
        self._waiter: asyncio.Future[None] | None = None
        self._future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def finish(self) -> str | None:
        """Why it ended: length, stop, context or cancelled, or a word of the `work` that drove it. None: it runs, or failed."""
        return self._future.result() if self._future.done() and self._future.exception() is None else None

    @property
    def running(self) -> bool:
        return not self._future.done()

    def cancel(self) -> None:
        """Ends it. The sequence stays usable; a step that was under way may still become a part of its context."""
        if self.running:
            self._all.cancel(self._tag)

    async def ended(self) -> None:
        """Waits until the daemon has ended it."""
        await asyncio.wait([self._future])

    def _end(self, finish: str | None, error: Exception | None) -> None:
        if error is not None:
            self._future.set_exception(error)
            self._future.exception()  # it is raised where tokens are awaited, and nobody must
        else:
            self._future.set_result(finish or "")
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _await_token(self) -> bool:
        """Waits until a token is ready; False: there are no more. Raises what ended the generation."""
        while not self._ready:
            if self._future.done():
                self._future.result()
                return False
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                self.cancel()
                raise
        return True

    async def batch(self) -> list[Token]:
        """Returns all tokens that are ready, at least one; at the end none."""
        tokens: list[Token] = []
        if await self._await_token():
            while self._ready:  # the thread may append meanwhile
                tokens.append(self._ready.popleft())
        return tokens

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Token:
        if not await self._await_token():
            raise StopAsyncIteration
        return self._ready.popleft()


class _Generations:
    """The generations of a client. The loop reads their events from one descriptor."""

    BATCH = 256

    def __init__(self, client: sync.Client) -> None:
        self._handle, fd = ctypes.c_void_p(), ctypes.c_int()
        call(library().npugraph_generations_create, client._handle, ctypes.byref(self._handle), ctypes.byref(fd))
        self.destroy = finalize(self, _destroy, client, self._handle)
        self._events = (_abi.npugraph_generation_event * self.BATCH)()
        self._tags = itertools.count()
        self._running: dict[int, Generation] = {}
        self._loop, self._fd = asyncio.get_running_loop(), fd.value
        self._loop.add_reader(self._fd, self._take)

    def start(self, sequence: SyncSequence, params: _abi.npugraph_generate_params) -> Generation:
        tag = next(self._tags)
        call(library().npugraph_generations_start, self._handle, tag, sequence._handle, ctypes.byref(params))
        self._running[tag] = Generation(self, tag)
        return self._running[tag]

    def cancel(self, tag: int) -> None:
        if self.destroy.alive:
            library().npugraph_generations_cancel(self._handle, tag)

    def stop_reading(self) -> None:
        self._loop.remove_reader(self._fd)

    def _take(self) -> None:
        """Hands events over. The loop calls it again while there are more."""
        n = library().npugraph_generations_take(self._handle, self._events, self.BATCH)
        for event in self._events[:n]:
            generation = self._running[event.tag]
            if not event.end:
                generation._ready.append(Token(event.token, logprobs_of(event.logprobs[0]) if event.logprobs else None))
                generation._wake()
                continue
            del self._running[event.tag]
            if event.error:
                generation._end(None, raised(event.error[0]))
            else:
                generation._end(FINISH[event.finish], None)


def _on_loop(progress: Progress | None) -> Progress | None:
    """A progress function for a thread, which lets the loop call `progress`."""
    if progress is None:
        return None
    loop = asyncio.get_running_loop()

    def in_thread(done: int, total: int) -> None:
        loop.call_soon_threadsafe(progress, done, total)

    return in_thread


class _Drive(NamedTuple):
    """A generation that is driven."""

    generation: Generation
    follow: Follow
    item: Any
    logprobs: int | None


class _Driven:
    """The generations of a client whose steps a thread begins. It takes all tokens that are there, lets their `follow` say how
    to go on, begins the steps, and then hands the tokens over: the loop makes text of them while the daemon computes."""

    BATCH = 1024

    def __init__(self, client: sync.Client) -> None:
        self._handle, fd = ctypes.c_void_p(), ctypes.c_int()
        call(library().npugraph_generations_create, client._handle, ctypes.byref(self._handle), ctypes.byref(fd))
        self.destroy = finalize(self, self._stop, client)  # also when the interpreter ends; the thread keeps this object until then
        self._events, self._events_c = _array(_abi.npugraph_generation_event, self.BATCH)
        self._steps, self._steps_c = _array(_abi.npugraph_generation_step, self.BATCH)
        self._tags = itertools.count()
        self._running: dict[int, _Drive] = {}
        self._finishes: dict[int, str | Exception] = {}  # of those that `follow` ended
        self._begun: collections.deque[tuple[int, Token]] = collections.deque()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(fd.value, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        self._loop, self._closing = asyncio.get_running_loop(), False
        self._thread = threading.Thread(target=self._work, name="npugraph-driven", daemon=True)
        self._thread.start()

    def start(self, sequence: SyncSequence, follow: Follow, item: Any, logprobs: int | None) -> Generation:
        hash(follow)  # TypeError here, and not in the thread
        tag = next(self._tags)
        generation = Generation(self, tag)
        self._running[tag] = _Drive(generation, follow, item, logprobs)
        try:
            call(library().npugraph_generations_start_steps, self._handle, tag, sequence._handle)
        except Exception:
            del self._running[tag]
            raise
        last = sequence.last
        self._begun.append((tag, Token(last.token, last.logprobs, last.stop)))
        os.eventfd_write(self._wake, 1)
        return generation

    def cancel(self, tag: int) -> None:
        if self.destroy.alive:
            library().npugraph_generations_cancel(self._handle, tag)

    def _stop(self, client: sync.Client) -> None:
        """Ends the thread, when no generation runs any more or the loop is gone."""
        self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)
        _destroy(client, self._handle)

    def _work(self) -> None:
        while True:
            if any(fd == self._wake for fd, _ in self._poll.poll()):
                os.eventfd_read(self._wake)
            if self._closing:
                return
            told: list[tuple[Generation, Token | str | Exception]] = []
            by_follow: dict[Follow, list[tuple[int, Token]]] = {}
            for tag, token in self._taken(told):
                by_follow.setdefault(self._running[tag].follow, []).append((tag, token))
            for follow, taken in by_follow.items():
                for at in range(0, len(taken), self.BATCH):
                    self._go_on(follow, taken[at:at + self.BATCH])
                told += [(self._running[tag].generation, token) for tag, token in taken]
            if told:
                with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits any more
                    self._loop.call_soon_threadsafe(self._tell, sorted(told, key=_is_end))

    def _taken(self, told: list[tuple[Generation, Token | str | Exception]]) -> list[tuple[int, Token]]:
        """Returns the tokens that have come, and adds the ends that have to what is told."""
        tokens = []
        n = library().npugraph_generations_take(self._handle, self._events_c, self.BATCH)
        for tag, is_end, token, logprobs, finish, error in self._events[:n].tolist():
            if not is_end:
                found = logprobs_of(_abi.npugraph_logprobs.from_address(logprobs)) if logprobs else None
                tokens.append((tag, Token(token, found, finish == _STOP)))
            else:
                told.append((self._running.pop(tag).generation, self._end_of(tag, finish, error)))
        while self._begun:  # behind the events: one that was cancelled as it began has not ended before it is here
            tokens.append(self._begun.popleft())
        return [one for one in tokens if one[0] in self._running]

    def _end_of(self, tag: int, finish: int, error: int) -> str | Exception:
        """Returns why a generation has ended."""
        why = self._finishes.pop(tag, FINISH[finish])
        if not error:
            return why
        found = raised(_abi.npugraph_error.from_address(error))
        return "context" if isinstance(found, Error) and found.reason == "CONTEXT_FULL" else found

    def _go_on(self, follow: Follow, taken: list[tuple[int, Token]]) -> None:
        """Begins the steps behind tokens, or ends their generations. Whatever `follow` does, the thread serves the others."""
        try:
            ways, masks = follow([(self._running[tag].item, token) for tag, token in taken])
            count = self._put_steps(taken, ways, masks)
        except BaseException as error:  # a panic of Rust is no Exception
            ways, count = [_for_future(error)] * len(taken), 0
        library().npugraph_generations_step(self._handle, self._steps_c, count)
        for (tag, _), way in zip(taken, ways, strict=True):
            if way is not None:
                self._finishes[tag] = way
                library().npugraph_generations_cancel(self._handle, tag)

    def _put_steps(self, taken: list[tuple[int, Token]], ways: Sequence_[str | Exception | None],
                   masks: np.ndarray[Any, np.dtype[np.uint8]]) -> int:
        """Fills the steps of those that go on; they point to the masks. Returns how many."""
        rows = [at for at, way in enumerate(ways) if way is None]
        if len(ways) != len(taken) or (rows and (masks.dtype != np.uint8 or masks.ndim != 2 or len(masks) != len(taken)
                                                 or masks.strides[0] < 0 or masks.strides[1] != 1)):
            raise ValueError(f"what follows {len(taken)} tokens must be as many ways, and rows of bytes")
        if rows:
            steps = self._steps[:len(rows)]
            steps["tag"] = [taken[at][0] for at in rows]
            steps["allowed"] = masks.ctypes.data + np.array(rows, np.uint64) * masks.strides[0]
            steps["allowed_bytes"] = masks.shape[1]
            tops = [self._running[taken[at][0]].logprobs for at in rows]
            steps["want_logprobs"] = [top is not None for top in tops]
            steps["top"] = [top or 0 for top in tops]
        return len(rows)

    def _tell(self, told: list[tuple[Generation, Token | str | Exception]]) -> None:
        for generation, event in told:
            if isinstance(event, Token):
                generation._ready.append(event)
                generation._wake()
            elif isinstance(event, str):
                generation._end(event, None)
            else:
                generation._end(None, event)


def _for_future(error: BaseException) -> Exception:
    """Returns an exception that a future takes, and a program's `except Exception` catches."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    found = RuntimeError(repr(error))
    found.__cause__ = error
    return found


def _array(kind: Any, n: int) -> tuple[np.ndarray[Any, Any], Any]:
    """Returns an array of n structures of C, twice: for numpy, where pointers are integers, and for calls."""
    c = (kind * n)()
    formats = [np.dtype(f"u{ctypes.sizeof(type_)}") if issubclass(type_, ctypes._Pointer) else np.dtype(type_)
               for _, type_ in kind._fields_]
    names = [name for name, _ in kind._fields_]
    return np.frombuffer(c, np.dtype({"names": names, "formats": formats, "offsets": [getattr(kind, name).offset for name in names],
                                      "itemsize": ctypes.sizeof(kind)})), c


def _is_end(told: tuple[Generation, Token | str | Exception]) -> bool:
    return not isinstance(told[1], Token)


def _destroy(_client: sync.Client, handle: ctypes.c_void_p) -> None:
    """Destroys the generations, before the client's connection, which they use."""
    library().npugraph_generations_destroy(handle)


async def connect(address: str | None = None, *, threads: int = 16, **options: Any) -> Client:
    """Connects to a daemon and opens a session. Options are those of npugraph.connect.

    `threads`: so many calls run at the same time; others wait for their turn. A generation is no such call.
    """
    task = asyncio.ensure_future(asyncio.to_thread(sync.connect, address, **options))
    try:
        return Client(await asyncio.shield(task), threads)
    except asyncio.CancelledError:
        task.add_done_callback(lambda done: done.result().close() if done.exception() is None else None)
        raise


__all__ = ["Buffer", "Client", "Generation", "Graph", "ReplayStream", "Sequence", "Token", "connect"]
