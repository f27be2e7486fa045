# SPDX-License-Identifier: Apache-2.0
"""Runs a translated graph: binds it once to the device copies of its parameters and states, then replays it."""
from __future__ import annotations

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
from ..memory import dense
from .answer import Answer, Output, Writer
from .connection import Connection, Mirror, connection_of, version_of
from .options import Options
from .shapes import computed
from .translate import SYMBOL_MAX, Computed, Program, Slot

log = logging.getLogger("npugraph")
CALM = 2  # calls in a row without changes, after which contents are compared while the daemon computes
_LOST = ("SESSION_GONE", "SESSION_REQUIRED", "UNKNOWN_ID", "STALE_ID", "UNREACHABLE")
_pointer, _negated = torch.Tensor.data_ptr, torch.Tensor.is_neg
_version = torch.Tensor._version.__get__  # type: ignore[attr-defined]


Stamp = tuple[list[int], list[int], list[bool]]  # addresses and versions of the bound tensors whose contents may change


@dataclasses.dataclass
class Bound:
    """A registration of the program, with buffers for its parameters and states."""

    graph: Graph
    prepared: PreparedReplay
    mirrors: list[Mirror]  # of the states
    epoch: int
    maxima: dict[str, int]
    uploads: list[Buffer]
    downloads: list[Buffer]
    states: list[TensorWeakRef]  # the tensors whose copies are bound; when one is gone, so is the use of this
    writer: Writer  # to these
    moves: int = 0  # of the connection, when it was bound
    calm: int = 0  # calls in a row before which nothing had changed
    stamp: Stamp | None = None  # None: it must be bound anew at each call


def _getter(numbers: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Returns a function that takes elements by their numbers, in C."""
    if len(numbers) < 2:
        return lambda elements: [elements[n] for n in numbers]
    return operator.itemgetter(*numbers)


class Runner:
    """A compiled graph. Calling it with the graph's arguments gives its results as a list."""

    def __init__(self, program: Program, options: Options, bumped: Sequence[int] = ()) -> None:
        self.program = program
        self.options = options
        self.held = [*program.params, *program.states]
        self.bumps = [0] * len(program.params) + [int(a in set(bumped)) for a in program.states]
        self.all_held = _getter(self.held)
        self.checked = _getter(self.held)  # whose contents may change
        self.states = _getter(program.states)
        self.bounds: dict[tuple[Any, ...], Bound] = {}
        self.last: Bound | None = None
        self.kept: list[torch.Tensor] = []  # what `last` is bound to
        self.maxima = dict.fromkeys(program.symbols, SYMBOL_MAX)
        self.gears = options.gears
        self.outputs = [self._output(s) for s in program.outputs]
        self.answered = sum(place >= 0 for place in program.places)
        self.connection: Connection | None = None

    def _output(self, slot: Any) -> Any:
        if isinstance(slot, Computed):
            return computed(slot.size, self.program.symbols)
        return Output(slot, self.program.symbols) if isinstance(slot, Slot) and slot.argument < 0 else slot

    def __call__(self, args: Sequence[Any], same: bool = False) -> list[Any]:
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

    def _call(self, args: Sequence[Any], connection: Connection, same: bool = False) -> list[Any]:
        try:
            return self._replay(args, connection, same)
        except BaseException:
            self._distrust(args, connection)
            raise

    def _replay(self, args: Sequence[Any], connection: Connection, same: bool) -> list[Any]:
        program = self.program
        values = {name: args[a] if dim < 0 else args[a].shape[dim]
                  for name, (a, dim) in zip(program.symbols, program.sources, strict=True)}
        bound, fits = self.last, False
        if (bound is None or bound.epoch != connection.epoch or bound.moves != connection.moves
                or not (same or all(map(operator.is_, self.all_held(args), self.kept)))
                or (values and any(values[n] > m for n, m in bound.maxima.items()))):
            bound = self._bind(args, values, connection)
            outs = self._send(bound, args, values)
        elif self._may_compare_later(bound, connection):
            bound, outs, fits = self._run(bound, args, values, connection, same)
        else:
            bound = self._current(bound, args, values, connection, same)
            outs = self._send(bound, args, values)
        if bound.prepared.n_outputs != self.answered:
            raise Error("INTERNAL", f"the daemon's answer has {bound.prepared.n_outputs} results, and not {self.answered}")
        answer = Answer(outs, self.answered, program.places, bound.downloads)
        results = [self._result(slot, answer, values, args) for slot in self.outputs]
        if program.states:
            self._write_back(args, answer, bound, connection, fits)
        return results

    def _may_compare_later(self, bound: Bound, connection: Connection) -> bool:
        """Returns whether tensors may be compared while the daemon computes. If one has changed, all states are uploaded again:
        the caller's tensors must have what the device has, so no other graph may have left something there alone."""
        return bound.stamp is not None and bound.calm >= CALM and (
            not self.program.states or (not self.options.resident_states and connection.was_last(bound.mirrors)))

    def _current(self, bound: Bound, args: Sequence[Any], values: dict[str, int], connection: Connection, same: bool) -> Bound:
        """Returns what is bound to the present contents of the arguments, which are the objects of the last call."""
        if self._unchanged(bound, args, same):
            bound.calm += 1
            return bound
        bound.calm = 0
        return self._bind(args, values, connection)

    def _run(self, bound: Bound, args: Sequence[Any], values: dict[str, int], connection: Connection, same: bool) -> Any:
        """Sends a request, and compares what is bound while the daemon computes. If something has changed, the answer counts for
        nothing, nor do states on the device: they are uploaded again. Returns what is bound then, the outputs, and whether
        states have the memory that they had."""
        unchanged: list[bool] = []

        def compare() -> None:
            unchanged[:] = [self._unchanged(bound, args, same), bound.writer.fits(args)]
        try:
            outs = self._send(bound, args, values, compare)
            if not unchanged:  # the library knows of no such call
                compare()
            if unchanged[0]:
                return bound, outs, unchanged[1]
        except Error:
            if not unchanged or unchanged[0]:
                raise
        self._distrust(args, connection)
        bound.calm = 0
        bound = self._bind(args, values, connection)
        return bound, self._send(bound, args, values), False

    def _send(self, bound: Bound, args: Sequence[Any], values: dict[str, int],
              meanwhile: Callable[[], None] | None = None) -> Any:
        program, prepared, kept = self.program, bound.prepared, []
        inputs = prepared.inputs
        for number, a in enumerate(program.inputs):
            tensor = dense(args[a])
            kept.append(tensor)
            place = inputs[number]
            place.data, place.bytes = tensor.data_ptr(), tensor.nbytes
        for number, name in enumerate(program.symbols):
            prepared.symbols[number] = values[name]
        for buffer, a in zip(bound.uploads, program.uploads, strict=True):
            buffer.write(args[a])
        return prepared.run(meanwhile)

    def _unchanged(self, bound: Bound, args: Sequence[Any], same: bool) -> bool:
        """Returns whether the contents of what is bound are those of the arguments, which are the same objects. `same`: their
        memory was compared already."""
        if bound.stamp is None:
            return False
        if same:
            return list(map(_version, self.checked(args))) == bound.stamp[1]
        return bound.stamp == self._stamp(args)

    def _stamp(self, args: Sequence[Any]) -> Stamp | None:
        """Returns what tells whether the bound tensors are at the same place, and not written since."""
        held = self.checked(args)
        try:
            return list(map(_pointer, held)), list(map(_version, held)), list(map(_negated, held))
        except RuntimeError:  # tensors of inference_mode have no version: states among them are uploaded each time
            return None

    def _result(self, slot: Any, answer: Answer, values: dict[str, int], args: Sequence[Any]) -> Any:
        if isinstance(slot, Output):
            return slot.tensor(answer, values)
        if isinstance(slot, Slot):
            return args[slot.argument]
        return slot(values) if callable(slot) else slot

    # ---- binding ----

    def _bind(self, args: Sequence[Any], values: dict[str, int], connection: Connection) -> Bound:
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
        if self.options.frozen:
            fixed = {a for a in self.program.params if isinstance(args[a], torch.nn.Parameter)}
            self.checked = _getter([a for a in self.held if a not in fixed])
        bound.moves, bound.stamp = connection.moves, self._stamp(args)
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
        return Bound(graph, prepared, mirrors[len(self.program.params):], connection.epoch, largest, uploads, downloads, states,
                     Writer(self.program.updates))

    def _bulk(self, connection: Connection, bindings: dict[str, Buffer]) -> tuple[list[Buffer], list[Buffer]]:
        """Allocates buffers for what is too large for messages, and adds them to the bindings."""
        made: tuple[list[Buffer], list[Buffer]] = ([], [])
        for kind, sizes, buffers in (("u", self.program.upload_bytes, made[0]), ("r", self.program.downloads, made[1])):
            for number, nbytes in enumerate(sizes):
                buffers.append(connection.client.allocate(nbytes, device=self.options.device))
                bindings[f"{kind}{number}"] = buffers[-1]
        return made

    # ---- states ----

    def _write_back(self, args: Sequence[Any], answer: Answer, bound: Bound, connection: Connection, fits: bool) -> None:
        """Makes the caller's tensors equal to the states again, and notes their versions."""
        states, mirrors = self.states(args), bound.mirrors
        bound.writer.write(args, answer, fits)
        if bound.stamp is None:
            connection.note(mirrors, list(map(version_of, states)))
            return
        known = bound.stamp[1]
        first = len(known) - len(mirrors)
        # Without writes of our own the versions are those that were compared before the replay.
        versions = list(map(_version, states)) if bound.writer.updates else known[first:]
        connection.note(mirrors, versions)
        known[first:] = map(operator.add, versions, self.bumps[len(self.program.params):])

    def _distrust(self, args: Sequence[Any], connection: Connection) -> None:
        """After a failure: states may have changed on the device, and the caller's tensors not. Versions are raised, so that each
        graph that shares them uploads them anew; states that are only on the device stay as they are."""
        states = self.states(args)
        if self.options.resident_states:
            for state, bump in zip(states, self.bumps[len(self.program.params):], strict=True):
                connection.follow(state, bump)
        else:
            torch.autograd.graph.increment_version([state for state in states if not state.is_inference()])
