# SPDX-License-Identifier: Apache-2.0
"""The way to the daemon: one client for all requests, which opens another session when the daemon was away; and who may use it."""
from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from .. import aio
from ..errors import Error
from .problems import Problem

_T = TypeVar("_T")
CONNECT_SECONDS = 5.0
PULSE_SECONDS = 1.0
THREADS = 64  # for prompts that are computed at the same time, and for short calls
_USELESS = frozenset(("SESSION_TOKEN", "SESSION_REQUIRED"))


def is_useless(error: Error) -> bool:
    """Returns whether the error says that the client can do nothing any more. After the loss of its daemon it can: its calls
    open another session, and restore sequences there."""
    return error.reason in _USELESS


class Link:
    """Connects when the first request needs it, and again if the client has become useless."""

    def __init__(self, address: str | None, **options: Any) -> None:
        self._address, self._options = address, options
        self._client: aio.Client | None = None
        self._lock = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()

    async def client(self) -> aio.Client:
        async with self._lock:
            if self._client is None:
                try:
                    async with asyncio.timeout(CONNECT_SECONDS):
                        self._client = await aio.connect(self._address, threads=THREADS, name="npugraph-server", **self._options)
                except TimeoutError:
                    raise Problem(503, f"the daemon did not answer within {CONNECT_SECONDS:g} seconds",
                                  code="daemon_unavailable") from None
            return self._client

    def drop(self, client: aio.Client) -> None:
        """Forgets a client whose session is over; it is closed in the background."""
        if self._client is client:
            self._client = None
            task = asyncio.ensure_future(client.close())
            self._closing.add(task)
            task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled():
            task.exception()  # a lost daemon's; nobody waits for it

    async def call(self, function: Callable[[aio.Client], Awaitable[_T]]) -> _T:
        """Makes a call that may be made twice: once more with a new client if the old one turns out to be useless."""
        client = await self.client()
        try:
            return await function(client)
        except Error as error:
            if not is_useless(error):
                raise
            self.drop(client)
        client = await self.client()
        try:
            return await function(client)
        except Error as error:
            if is_useless(error):
                self.drop(client)
            raise

    async def close(self) -> None:
        if self._client is not None:
            self.drop(self._client)
        if self._closing:
            await asyncio.wait(self._closing)


class Pulse:
    """Whether the daemon answers. All who ask at the same time share a call, and a good answer holds for a while."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._asking: asyncio.Task[None] | None = None
        self._good_until = 0.0

    async def check(self) -> None:
        """Returns if the daemon answers, and raises why not."""
        if time.monotonic() < self._good_until:
            return
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())
            self._asking.add_done_callback(lambda done: done.cancelled() or done.exception())  # those who asked may have gone
        await asyncio.shield(self._asking)

    async def _ask(self) -> None:
        await self._link.call(lambda client: client.models())
        self._good_until = time.monotonic() + PULSE_SECONDS


class Gate:
    """Bounds what requests have at the same time. What does not fit is refused, not queued."""

    def __init__(self, most: int, what: str = "sequences", param: str = "n") -> None:
        self.most, self.taken, self._what, self._param = most, 0, what, param

    @contextlib.contextmanager
    def pass_with(self, count: int) -> Iterator[None]:
        if count > self.most:
            raise Problem(400, f"the request needs {count} {self._what}; this server serves at most {self.most}",
                          param=self._param, code="invalid_value")
        if self.taken + count > self.most:
            raise Problem(429, f"the server has {self.taken} of {self.most} {self._what}; try again later", code="server_busy")
        self.taken += count
        try:
            yield
        finally:
            self.taken -= count
