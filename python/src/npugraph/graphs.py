# SPDX-License-Identifier: Apache-2.0
"""Registered graphs: capture and replay."""
from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from . import _abi, tracing
from ._library import call, finalize, library, raised, text
from .errors import Error
from .memory import view_of, writable_view_of

if TYPE_CHECKING:
    from .client import Buffer, Client


@dataclasses.dataclass(frozen=True)
class Capture:
    """What a capture made."""

    key: str
    captured: bool  # False: the executable existed, perhaps made for another client
    pool_bytes: int
    kernels: int
    nanoseconds: int


class Graph:
    """A graph of this session. Clients that register equal graphs share its captures."""

    def __init__(self, client: Client, source: str, bindings: dict[str, Buffer], options: dict[str, object],
                 device: str | None) -> None:
        self.client = client
        self.bindings = bindings  # kept: a buffer lives as long as a graph that is bound to it
        bound = (_abi.npugraph_binding * len(bindings))(
            *(_abi.npugraph_binding(text(label), buffer.number) for label, buffer in bindings.items()))
        chosen = (_abi.npugraph_option * len(options))(
            *(_abi.npugraph_option(text(name), text(_word(value))) for name, value in options.items()))
        place = _abi.npugraph_place(device=text(device))
        number = ctypes.c_uint64()
        call(library().npugraph_graph_register, client._handle, ctypes.byref(place), text(source), bound, len(bound),
             chosen, len(chosen), ctypes.byref(number))
        self.number = number.value
        self._release = finalize(self, _release, client, self.number)

    def capture(self, symbols: Sequence[int] = (), *, dry_run: bool = False) -> Capture:
        """Captures for these sizes ahead of use; -1 is the largest one at which the graph's guards hold."""
        sizes = (ctypes.c_int64 * len(symbols))(*symbols)
        result = _abi.npugraph_capture_result()
        call(library().npugraph_graph_capture, self.client._handle, self.number, sizes, len(sizes), dry_run,
             ctypes.byref(result))
        return Capture(result.key.decode(), result.captured, result.pool_bytes, result.kernels, result.nanoseconds)

    def replay(self, inputs: Iterable[Any] = (), *, symbols: Sequence[int] = (), hosts: Sequence[Any] = (),
               into: Sequence[Any] | None = None, eager: bool = False) -> list[Any]:
        """Replays the graph with inputs and host parameters in the order of their declaration.

        Returns the outputs as bytes; or fills the arrays or tensors `into`, without another copy, and returns them.
        Inputs and targets in shared buffers (Client.shared) are not sent.
        """
        with Replay(self, inputs, symbols=symbols, hosts=hosts, into=into, eager=eager) as replay:
            return replay.run(None).outputs()

    def release(self) -> None:
        """Drops the session's hold."""
        self._release()


def _release(client: Client, number: int) -> None:
    if not client.closed:
        error = _abi.npugraph_error()
        library().npugraph_graph_release(client._handle, number, ctypes.byref(error))


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Replay:
    """One replay's request and result in C."""

    def __init__(self, graph: Graph, inputs: Iterable[Any], *, symbols: Sequence[int] = (), hosts: Sequence[Any] = (),
                 into: Sequence[Any] | None = None, eager: bool = False) -> None:
        self.graph = graph
        self.kept = [view_of(data) for data in inputs]
        self.into = into
        self.targets = [writable_view_of(target) for target in into or ()]
        lists = [[value] if isinstance(value, int) else list(value) for value in hosts]
        self.request = _abi.npugraph_replay(
            graph=graph.number, eager=eager,
            symbols=(ctypes.c_int64 * len(symbols))(*symbols), n_symbols=len(symbols),
            inputs=(_abi.npugraph_input * len(self.kept))(*(_abi.npugraph_input(at, n) for at, n, _ in self.kept)),
            n_inputs=len(self.kept),
            hosts=(_abi.npugraph_host_value * len(lists))(
                *(_abi.npugraph_host_value((ctypes.c_int64 * len(v))(*v), len(v)) for v in lists)),
            n_hosts=len(lists),
            targets=(_abi.npugraph_target * len(self.targets))(
                *(_abi.npugraph_target(at, n) for at, n, _ in self.targets)),
            n_targets=len(self.targets))
        self.result = ctypes.POINTER(_abi.npugraph_result)()

    def run(self, stream: ReplayStream | None) -> Replay:
        function = library().npugraph_replay if stream is None else library().npugraph_replay_stream_run
        through = self.graph.client._handle if stream is None else stream._handle
        call(function, through, ctypes.byref(self.request), ctypes.byref(self.result))
        return self

    def outputs(self) -> list[Any]:
        """Returns the outputs as bytes, or the targets, which are filled."""
        found = [self.result.contents.outputs[i] for i in range(self.result.contents.n)]
        if self.into is None:
            return [ctypes.string_at(out.data, out.bytes) if out.bytes else b"" for out in found]
        if len(self.into) != len(found):
            raise ValueError(f"the graph has {len(found)} outputs, and there are {len(self.into)} targets")
        for (_at, nbytes, _keep), out in zip(self.targets, found, strict=True):
            if nbytes != out.bytes:
                raise ValueError(f"an output has {out.bytes} bytes, and its target {nbytes}")
        return list(self.into)

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        library().npugraph_result_free(self.result)


class ReplayStream:
    """Replays that are answered in order. A failed replay leaves the stream usable. One thread at a time."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._c = ctypes.c_void_p()
        call(library().npugraph_replay_stream_open, client._handle, ctypes.byref(self._c))
        # The client must outlive the stream: the finalizer holds it.
        self._close = finalize(self, _close_stream, client, self._c)
        client._children.add(self)

    @property
    def _handle(self) -> ctypes.c_void_p:
        if not self._close.alive:
            raise Error("SESSION_GONE", "the stream is closed")
        return self._c

    def replay(self, graph: Graph, inputs: Iterable[Any] = (), *, symbols: Sequence[int] = (),
               hosts: Sequence[Any] = (), into: Sequence[Any] | None = None) -> list[Any]:
        """As Graph.replay, over the stream."""
        with Replay(graph, inputs, symbols=symbols, hosts=hosts, into=into) as replay:
            return replay.run(self).outputs()

    def prepare(self, graph: Graph, n_inputs: int, n_symbols: int) -> PreparedReplay:
        """Makes a request that is filled and sent many times."""
        return PreparedReplay(self, graph, n_inputs, n_symbols)

    def close(self) -> None:
        self._close()


def _close_stream(client: Client, handle: ctypes.c_void_p) -> None:
    if not client.closed:
        library().npugraph_replay_stream_close(handle)


class _Meanwhile:
    """What the library calls when a request is sent. It knows nothing of the request, which would then be a cycle."""

    def __init__(self) -> None:
        self.work: Callable[[], None] | None = None
        self.why: BaseException | None = None

    def __call__(self, _user: object) -> None:
        try:
            if self.work is not None:
                self.work()
        except BaseException as why:  # an exception cannot pass through C
            self.why = why


class PreparedReplay:
    """A request whose C structs stay: only addresses and sizes are filled in before it is sent again."""

    def __init__(self, stream: ReplayStream, graph: Graph, n_inputs: int, n_symbols: int) -> None:
        self.stream = stream
        self.graph = graph
        self.inputs = (_abi.npugraph_input * n_inputs)()
        self.symbols = (ctypes.c_int64 * n_symbols)()
        self._request = _abi.npugraph_replay(graph=graph.number, symbols=self.symbols, n_symbols=n_symbols,
                                             inputs=self.inputs, n_inputs=n_inputs)
        self._result = ctypes.POINTER(_abi.npugraph_result)()
        self._error = _abi.npugraph_error()
        self._library = library()
        self._run = self._library.npugraph_replay_stream_run
        self._arguments = (stream._handle, ctypes.byref(self._request), ctypes.byref(self._result),
                           ctypes.byref(self._error))
        self._free = finalize(self, _free_result, self._result)
        self._meanwhile = _Meanwhile()
        self._sent = _abi.npugraph_sent_fn(self._meanwhile)

    def run(self, meanwhile: Callable[[], None] | None = None) -> Any:
        """Sends it and returns the outputs: an array of C structs with `data` and `bytes`, valid until the next run.

        `meanwhile` is called while the daemon computes; if the request is sent again, it is called again. What it raises is
        raised when the answer is there.
        """
        if not self.stream._close.alive:
            raise Error("SESSION_GONE", "the stream is closed")
        tracing.apply(self._library)
        if meanwhile is None:
            failed = self._run(*self._arguments)
        else:
            self._meanwhile.work, self._request.sent = meanwhile, self._sent
            try:
                failed = self._run(*self._arguments)
            finally:
                self._request.sent = _abi.npugraph_sent_fn()
                why, self._meanwhile.work, self._meanwhile.why = self._meanwhile.why, None, None
            if why is not None:
                raise why
        if failed != 0:
            raise raised(self._error)
        return self._result.contents.outputs

    @property
    def n_outputs(self) -> int:
        """The number of outputs of the last run."""
        return int(self._result.contents.n)


def _free_result(result: Any) -> None:
    library().npugraph_result_free(result)
