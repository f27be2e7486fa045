# SPDX-License-Identifier: Apache-2.0
"""uvicorn's protocol of HTTP/1.1 with a limit on the time in which the headers of a request arrive."""
from __future__ import annotations

import asyncio
from typing import Any

_LATE = (b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s")
_BODY = b'{"error": {"message": "the headers did not come in time", "type": "timeout_error", "param": null, "code": "timeout"}}'


def _base() -> Any:
    """Returns the protocol that uvicorn takes by itself."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
        return HttpToolsProtocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol
        return H11Protocol


def http_with(header_seconds: float) -> type[asyncio.Protocol]:
    """Returns the protocol's class. A connection is closed if the headers of a request take longer.

    The time begins with the connection, and on a connection that was kept with the first byte of the next request.
    """
    base = _base()

    class Timed(base):  # type: ignore[misc,valid-type]
        _timer: asyncio.TimerHandle | None = None
        _begun = False  # a byte of the request has come

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            if self._timer is None and (before is None or before.response_complete):
                self._wait()
            self._begun = True
            super().data_received(data)
            if self.cycle is not before:  # the headers are complete
                self._stop_waiting()

        def connection_lost(self, error: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(error)

        def _wait(self) -> None:
            self._begun = False
            self._timer = asyncio.get_running_loop().call_later(header_seconds, self._late)

        def _stop_waiting(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _late(self) -> None:
            self._timer = None
            if not self.transport.is_closing():
                if self._begun:
                    self.transport.write(_LATE % (len(_BODY), _BODY))
                self.transport.close()

    return Timed
