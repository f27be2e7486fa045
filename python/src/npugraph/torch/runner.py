# SPDX-License-Identifier: Apache-2.0
"""Runs a translated graph: binds it once to the device copies of its parameters and states, then replays it."""
from __future__ import annotations

import ctypes
import dataclasses
import logging
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.weak import TensorWeakRef

from ..client import Buffer
from ..errors import Error, FailedPrecondition, GraphRefused, Unavailable
from ..graphs import Graph, PreparedReplay
from .connection import UNTRACKED, Connection, Mirror, connection_of, version_of
from .options import Options
from .shapes import computed, sizes_of
from .translate import SYMBOL_MAX, Computed, Program, Slot, Update

log = logging.getLogger("npugraph")
_LOST = ("SESSION_GONE", "SESSION_REQUIRED", "UNKNOWN_ID", "STALE_ID", "UNREACHABLE")
_pointer = torch.Tensor.data_ptr
_version = torch.Tensor._version.__get__  # type: ignore[attr-defined]


@dataclasses.dataclass
class Bound:
    """A registration of the program, with buffers for its parameters and states."""

    graph: Graph
    prepared: PreparedReplay
    mirrors: list[Mirror]
    epoch: int
    maxima: dict[str, int]
    uploads: list[Buffer]
    downloads: list[Buffer]
    states: list[TensorWeakRef]  # the tensors whose copies are bound; when one is gone, so is the use of this
    stamp: tuple[list[int], list[int], list[int]] | None = None  # None: it must be bound anew at each call


def _contiguous(shape: Sequence[int], stride: Sequence[int]) -> bool:
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size == 0:
            return True
        if size != 1:
            if step != expected:
                return False
            expected *= size
    return True


class _Output:
    """Makes the tensor of a result."""

    def __init__(self, slot: Slot, symbols: Sequence[str]) -> None:
        self.slot = slot
        self.shape, self.stride = sizes_of(slot.shape, symbols), sizes_of(slot.stride, symbols)
        self.width = torch.empty((), dtype=slot.dtype).element_size()

    def tensor(self, fetch: Callable[[int, torch.Tensor], torch.Tensor], values: dict[str, int]) -> torch.Tensor:
        shape = self.shape(values)
        result = fetch(self.slot.output, torch.empty(shape, dtype=self.slot.dtype))
        stride = self.stride(values)
        return result if _contiguous(shape, stride) else _strided(result, stride)


def _strided(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """Returns a copy with other strides; a dimension of stride 0 has one row, which is seen everywhere."""
    shape = tensor.shape
    for dim, step in enumerate(stride):
        if step == 0:
            tensor = tensor.narrow(dim, 0, 1)
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype).copy_(tensor).expand(shape)


def _fill(tensor: torch.Tensor, out: Any) -> torch.Tensor:
    """Copies an output into a tensor of its size."""
    nbytes = tensor.numel() * tensor.element_size()
    if out.bytes != nbytes:
        raise Error("INTERNAL", f"the daemon's result has {out.bytes} bytes, and a tensor of shape "
                    f"{tuple(tensor.shape)} has {nbytes}")
    ctypes.memmove(tensor.data_ptr(), out.data, nbytes)
    return tensor


class Runner:
    """A compiled graph. Calling it with the graph's arguments gives its results as a list."""

    def __init__(self, program: Program, options: Options, bumped: Sequence[int] = ()) -> None:
        self.program = program
        self.options = options
        self.held = [*program.params, *program.states]
        self.bumps = [0] * len(program.params) + [int(a in set(bumped)) for a in program.states]
        self.checked = program.states if options.frozen else self.held  # whose contents may change
        self.bounds: dict[tuple[Any, ...], Bound] = {}
        self.last: Bound | None = None
        self.kept: list[torch.Tensor] = []  # what `last` is bound to: as long as they live, no other tensor has their ids
        self.maxima = dict.fromkeys(program.symbols, SYMBOL_MAX)
        self.gears = options.gears
        self.outputs = [self._output(s) for s in program.outputs]
        self.answered = sum(place >= 0 for place in program.places)
        self.whole = [u for u in program.updates if u.output >= 0]
        self.versions_change = bool(self.whole) or any(self.bumps)
        self.connection: Connection | None = None
        self._landing: dict[int, torch.Tensor] = {}

    def _output(self, slot: Any) -> Any:
        if isinstance(slot, Computed):
            return computed(slot.size, self.program.symbols)
        return _Output(slot, self.program.symbols) if isinstance(slot, Slot) and slot.argument < 0 else slot

    def __call__(self, args: list[Any], same: bool = False) -> list[Any]:
        """Runs the graph. `same`: parameters and states are the objects that the last call had, at the same places."""
        connection = self.connection
        if connection is None or connection.forgotten:
            connection = self.connection = connection_of(self.options)
            self.last, self.bounds = None, {}
        with connection.lock:
            try:
                return self._call(args, connection, same)
            except Error as why:
                if not self._may_go_on(why):
                    raise
                log.warning("npugraph: %s; connecting again", why)
                connection.renew(connection.epoch)
                return self._call(args, connection)

    def _may_go_on(self, why: Error) -> bool:
        if not self.options.reconnect or not (isinstance(why, Unavailable) or why.reason in _LOST):
            return False
        if self.options.resident_states and self.program.states and self.last is not None:
            raise FailedPrecondition(why.reason, "the daemon is lost, and with it the contents of inputs that stay on "
                                     "the device (option resident_states); begin again from the last pull") from why
        return True

    def _call(self, args: list[Any], connection: Connection, same: bool = False) -> list[Any]:
        values = {name: args[a] if dim < 0 else args[a].shape[dim]
                  for name, (a, dim) in zip(self.program.symbols, self.program.sources, strict=True)}
        bound = self.last
        if (bound is None or bound.epoch != connection.epoch or not self._still(bound, args, same)
                or (values and any(values[n] > m for n, m in bound.maxima.items()))):
            bound = self._bind(args, values, connection)
        prepared = bound.prepared
        kept = []
        inputs = prepared.inputs
        for number, a in enumerate(self.program.inputs):
            tensor = args[a]
            if not tensor.is_contiguous():
                tensor = tensor.contiguous()
                kept.append(tensor)
            place = inputs[number]
            place.data, place.bytes = tensor.data_ptr(), tensor.nbytes
        for number, name in enumerate(self.program.symbols):
            prepared.symbols[number] = values[name]
        for buffer, a in zip(bound.uploads, self.program.uploads, strict=True):
            buffer.write(args[a])
        outs, places = prepared.run(), self.program.places
        if prepared.n_outputs != self.answered:
            raise Error("INTERNAL", f"the daemon's answer has {prepared.n_outputs} results, and not {self.answered}")

        def fetch(number: int, tensor: torch.Tensor) -> torch.Tensor:
            place = places[number]
            return _fill(tensor, outs[place]) if place >= 0 else bound.downloads[~place].read_into(tensor)

        results = [self._result(slot, fetch, values, args) for slot in self.outputs]
        if self.versions_change:
            self._write_back(args, fetch, bound)
        return results

    def _still(self, bound: Bound, args: list[Any], same: bool) -> bool:
        """Returns whether what is bound is what the arguments are, with the same contents."""
        if bound.stamp is None:
            return False
        if same:
            return list(map(_version, [args[a] for a in self.checked])) == bound.stamp[2]
        return bound.stamp == self._stamp(args)

    def _stamp(self, args: list[Any]) -> tuple[list[int], list[int], list[int]] | None:
        """Returns what tells whether the bound tensors are the same, at the same place, and not written since."""
        held = [args[a] for a in self.checked]
        try:
            return [id(args[a]) for a in self.held], list(map(_pointer, held)), list(map(_version, held))
        except RuntimeError:  # tensors of inference_mode have no version: states among them are uploaded each time
            return None

    def _result(self, slot: Any, fetch: Any, values: dict[str, int], args: list[Any]) -> Any:
        if isinstance(slot, _Output):
            return slot.tensor(fetch, values)
        if isinstance(slot, Slot):
            return args[slot.argument]
        return slot(values) if callable(slot) else slot

    # ---- binding ----

    def _bind(self, args: list[Any], values: dict[str, int], connection: Connection) -> Bound:
        for name, value in values.items():
            if self.gears and value > self.gears[-1]:
                raise ValueError(f"a dynamic size is {value}, and the largest of the option gears {self.gears[-1]}")
            while value > self.maxima[name]:
                self.maxima[name] *= 2
        n_params = len(self.program.params)
        mirrors = [connection.mirror(args[a], bump, self.options.weights_dir if n < n_params else None, n < n_params)
                   for n, (a, bump) in enumerate(zip(self.held, self.bumps, strict=True))]
        key = (connection.epoch, tuple(m.buffer.number for m in mirrors), tuple(self.maxima.values()))
        bound = self.bounds.get(key)
        if bound is None:
            self.last, self.kept = None, []
            self.bounds = {k: b for k, b in self.bounds.items()
                           if b.epoch == connection.epoch and all(ref() is not None for ref in b.states)}
            states = [TensorWeakRef(args[a]) for a in self.program.states]
            bound = self.bounds[key] = self._register(connection, mirrors, states)
        self.last, self.kept = bound, [args[a] for a in self.held]
        bound.stamp = self._stamp(args)
        return bound

    def _register(self, connection: Connection, mirrors: list[Mirror], states: list[TensorWeakRef]) -> Bound:
        labels = [f"p{n}" for n in range(len(self.program.params))] + [f"s{n}" for n in range(len(self.program.states))]
        bindings = {label: m.buffer for label, m in zip(labels, mirrors, strict=True)}
        for number, constant in enumerate(self.program.constants):
            bindings[f"c{number}"] = connection.mirror(constant, 0, trusted=True).buffer
        uploads, downloads = self._bulk(connection, bindings)
        gears = {name: list(self.gears) for name in self.program.symbols} if self.gears else None
        while True:
            text = self.program.text(self.maxima, gears)
            try:
                graph = connection.client.graph(text, bindings, self.options.daemon, device=self.options.device)
                break
            except GraphRefused as why:
                if why.reason != "GRAPH_NOT_ROWWISE" or gears is None:
                    log.debug("npugraph: refused (%s):\n%s", why, text)
                    raise
                log.warning("npugraph: gears are not used, as rows depend on one another: %s", why)
                gears, self.gears = None, ()
        if not self.program.symbols:
            graph.capture()
        log.debug("npugraph: registered\n%s", text)
        prepared = connection.stream.prepare(graph, len(self.program.inputs), len(self.program.symbols))
        largest = {name: sizes[-1] for name, sizes in gears.items()} if gears else dict(self.maxima)
        return Bound(graph, prepared, mirrors, connection.epoch, largest, uploads, downloads, states)

    def _bulk(self, connection: Connection, bindings: dict[str, Buffer]) -> tuple[list[Buffer], list[Buffer]]:
        """Allocates buffers for what is too large for messages, and adds them to the bindings."""
        made: tuple[list[Buffer], list[Buffer]] = ([], [])
        for kind, sizes, buffers in (("u", self.program.upload_bytes, made[0]), ("r", self.program.downloads, made[1])):
            for number, nbytes in enumerate(sizes):
                buffers.append(connection.client.allocate(nbytes, device=self.options.device))
                bindings[f"{kind}{number}"] = buffers[-1]
        return made

    # ---- states ----

    def _write_back(self, args: list[Any], fetch: Any, bound: Bound) -> None:
        """Makes the caller's tensors equal to the states again, by what changed."""
        landed = [self._landed(update, args, fetch) for update in self.whole]  # all, before the first tensor changes
        for update, new in zip(self.whole, landed, strict=True):
            state = args[update.argument]
            if update.kind == "rows":
                state.index_copy_(update.dim, args[update.index], new)
            elif update.kind == "part":
                state.narrow(update.dim, update.start, update.length).copy_(new)
            else:
                state.copy_(new)
        mirrors = bound.mirrors[len(self.program.params):]
        versions = [version_of(args[a]) for a in self.program.states]
        for mirror, version in zip(mirrors, versions, strict=True):
            mirror.version = version
        if bound.stamp and UNTRACKED not in versions:
            n = len(bound.stamp[2]) - len(mirrors)
            bound.stamp[2][n:] = map(operator.add, versions, self.bumps[len(self.program.params):])

    def _landed(self, update: Update, args: list[Any], fetch: Any) -> torch.Tensor:
        """Fetches what an update writes."""
        state = args[update.argument]
        shape = list(state.shape)
        if update.kind == "rows":
            shape[update.dim] = args[update.index].numel()
        elif update.kind == "part":
            shape[update.dim] = update.length
        landing = self._landing.get(update.output)
        if landing is None or list(landing.shape) != shape:
            landing = self._landing[update.output] = torch.empty(shape, dtype=state.dtype)
        filled: torch.Tensor = fetch(update.output, landing)
        return filled
