# SPDX-License-Identifier: Apache-2.0
"""Buffers, graphs and replays for an event loop: those of the sync client, whose calls wait in threads of the client."""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from . import client as sync
from . import graphs
from .graphs import Capture

if TYPE_CHECKING:
    from .aio import Client


class Buffer:
    """Device memory, as npugraph.Buffer. What is copied must not be changed until the coroutine returns."""

    def __init__(self, client: Client, buffer: sync.Buffer) -> None:
        self._client = client
        self.buffer = buffer
        self.nbytes, self.dtype, self.shape = buffer.nbytes, buffer.dtype, buffer.shape

    async def write(self, data: Any, offset: int = 0) -> None:
        """Uploads an array, a tensor or bytes."""
        await self._client._run(self.buffer.write, data, offset)

    async def read_into(self, target: Any, offset: int = 0) -> Any:
        """Downloads as many bytes as the target has room for, into its memory, and returns it."""
        return await self._client._run(self.buffer.read_into, target, offset)

    async def read(self, offset: int = 0, nbytes: int | None = None) -> bytes:
        """Downloads bytes, to the end of the buffer unless `nbytes` is given."""
        return await self._client._run(self.buffer.read, offset, nbytes)

    async def free(self) -> None:
        """Drops the session's reference. Graphs that are bound to the buffer keep the memory."""
        await self._client._run(self.buffer.free)


class Graph:
    """A graph of this session, as npugraph.Graph."""

    def __init__(self, client: Client, graph: graphs.Graph) -> None:
        self._client = client
        self.graph = graph

    async def capture(self, symbols: Sequence[int] = (), *, dry_run: bool = False) -> Capture:
        """Captures for these sizes ahead of use; -1 is the largest one at which the graph's guards hold."""
        return await self._client._run(lambda: self.graph.capture(symbols, dry_run=dry_run))

    async def replay(self, inputs: Iterable[Any] = (), *, symbols: Sequence[int] = (), hosts: Sequence[Any] = (),
                     into: Sequence[Any] | None = None, eager: bool = False) -> list[Any]:
        """Replays the graph: the outputs as bytes, or in the arrays `into`. Replays that run at once have no order."""
        return await self._client._run(
            lambda: self.graph.replay(inputs, symbols=symbols, hosts=hosts, into=into, eager=eager))

    async def release(self) -> None:
        """Drops the session's hold."""
        await self._client._run(self.graph.release)


class ReplayStream:
    """Replays that are answered in the order in which they were asked for."""

    def __init__(self, client: Client, stream: graphs.ReplayStream) -> None:
        self._client = client
        self._stream = stream
        self._turn = asyncio.Lock()  # first come, first served

    async def _in_turn(self, function: Callable[[], Any]) -> Any:
        """Runs it when what was begun before has ended, also if the coroutine that began that was cancelled."""
        await self._turn.acquire()
        task = asyncio.ensure_future(self._client._run(function))
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._turn.release()
        if not task.cancelled():
            task.exception()  # a cancelled coroutine does not look at it

    async def replay(self, graph: Graph, inputs: Iterable[Any] = (), *, symbols: Sequence[int] = (),
                     hosts: Sequence[Any] = (), into: Sequence[Any] | None = None) -> list[Any]:
        """As Graph.replay, over the stream."""
        outputs: list[Any] = await self._in_turn(
            lambda: self._stream.replay(graph.graph, inputs, symbols=symbols, hosts=hosts, into=into))
        return outputs

    async def close(self) -> None:
        await self._in_turn(self._stream.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
