# SPDX-License-Identifier: Apache-2.0
"""W3C trace context: the daemon's spans of a call are children of the caller's span.

    with npugraph.trace_context("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"):
        client.open(...)

Without that, calls carry the current span of OpenTelemetry, if the program uses it.
"""
from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
from collections.abc import Iterator
from typing import Any

Context = tuple[bytes, bytes]

_given: contextvars.ContextVar[Context | None] = contextvars.ContextVar("npugraph_trace", default=None)
_thread = threading.local()


@contextlib.contextmanager
def trace_context(traceparent: str | bytes, tracestate: str | bytes = b"") -> Iterator[None]:
    """Calls inside belong to this trace. What is not well formed is left out, as the recommendation asks."""
    token = _given.set((_bytes(traceparent), _bytes(tracestate)))
    try:
        yield
    finally:
        _given.reset(token)


def _bytes(value: str | bytes) -> bytes:
    return value.encode("latin-1", "replace") if isinstance(value, str) else value


def _current() -> Context | None:
    given = _given.get()
    if given is not None:
        return given
    opentelemetry: Any = sys.modules.get("opentelemetry.trace")
    if opentelemetry is None:
        return None
    span = opentelemetry.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    parent = f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"
    return parent.encode(), span.trace_state.to_header().encode()


def apply(library: Any) -> None:
    """Gives the library the context of the call that this thread is about to make."""
    wanted = _current()
    if wanted != getattr(_thread, "context", None):
        _thread.context = wanted
        given, state = wanted or (None, None)
        if library.npugraph_trace_context(given, state, None) != 0 and state:
            library.npugraph_trace_context(given, None, None)  # a bad tracestate does not make its traceparent bad
