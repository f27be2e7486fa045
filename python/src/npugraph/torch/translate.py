# SPDX-License-Identifier: Apache-2.0
"""Translates an FX graph of ATen operators into the daemon's graph text."""
from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode
from torch.utils._python_dispatch import _disable_current_modes

from . import formulas, images, operators  # noqa: F401  # they fill HANDLERS
from .shapes import Size, Unsupported, expression, plain_sizes, size_text
from .values import HANDLERS, Value, Writer, dtype_word, expanded, written

SYMBOL_MAX = 4096  # until a larger size is seen
# Inputs and results of a call that exceed this are moved by buffers, the largest first: a message has at most 16 MiB.
MESSAGE_BYTES = 8 << 20
Node = Any  # an FX node; PyTorch's types of its arguments say too little
_IGNORED = {"aten._assert_tensor_metadata.default", "aten.sym_size.int", "aten.sym_numel.default"}


@dataclasses.dataclass
class Update:
    """How a state's change comes back to the caller's tensor after a replay.

    rows: tensor.index_copy_(dim, index, output), where the index is the argument `index` or the output `computed`; part:
    tensor.narrow(dim, start, length) = output; whole: tensor = output. Only what changed is sent where the graph shows it.
    """

    argument: int  # of the state
    kind: str
    output: int = -1  # of the graph; -1: not sent
    dim: int = 0
    index: int = -1  # argument that has the rows; -1: the graph computes them
    computed: int = -1  # output that has the rows
    start: int = 0
    length: int = 0


@dataclasses.dataclass
class Program:
    """A translated graph, with what a call needs to know."""

    head: str  # name of the graph
    symbols: list[str]
    sources: list[tuple[int, int]]  # of each symbol: the argument, and its dimension or -1 for an integer
    declarations: list[str]
    body: list[str]
    params: list[int]  # arguments, in the order of labels p0, p1, ...
    states: list[int]  # labels s0, ...
    inputs: list[int]
    constants: list[torch.Tensor]  # labels c0, ...
    outputs: list[Slot | Computed | int | float | bool | None]  # of the FX graph
    updates: list[Update]
    uploads: list[int]  # arguments that are written to a buffer at each call; labels u0, ...
    upload_bytes: list[int]
    places: list[int]  # of each output of the graph: its number in the answer, or ~k for the buffer with label rk
    downloads: list[int]  # bytes of the buffers that results are read from

    def text(self, maxima: dict[str, int], gears: dict[str, list[int]] | None = None) -> str:
        """Returns the graph text, with the largest value of each symbol and its buckets."""
        lines = ["npugraph 1", f'graph "{self.head}" {{']
        for name in self.symbols:
            buckets = (gears or {}).get(name)
            maximum = buckets[-1] if buckets else maxima[name]
            policy = f" buckets {', '.join(map(str, buckets))}" if buckets else ""
            lines.append(f"  sym {name} 0..{maximum}{policy}")
        return "\n".join([*lines, *self.declarations, *self.body, "}"]) + "\n"


@dataclasses.dataclass
class Slot:
    """A result that is a tensor: its place among the outputs, and its dtype, sizes and strides."""

    output: int
    dtype: torch.dtype
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    argument: int = -1  # the caller's own tensor is returned: the result is an input


@dataclasses.dataclass
class Computed:
    """A result that is a number computed from the symbols."""

    size: str


@dataclasses.dataclass
class Missing:
    """A node that the daemon's operators cannot express."""

    node: Node
    reason: str


class Translator:
    """Translates one graph. `missing` is what could not be; then there is no program."""

    def __init__(self, gm: GraphModule, static: Iterable[int], name: str, resident: bool = False,
                 mutate: bool = True) -> None:
        self.gm = gm
        self.static = set(static)
        self.name = name
        self.resident = resident
        self.mutate = mutate  # False: what is written to an input stays with PyTorch
        self.writer = Writer()
        self.values: dict[Node, Any] = {}
        self.missing: list[Missing] = []
        self.arguments = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.written = {n.args[0]: n for n in gm.graph.nodes if is_copy_back(n)} if mutate else {}
        self._fix_sizes()
        self.returned: list[Value] = []
        self.shared: dict[Node, int] = {}  # outputs that several changes need
        self.uploads: list[int] = []
        free = [n for n in self.arguments if n.users and n not in self.written and self.arguments.index(n) not in self.static]
        self.bulky = {free[k] for k in _bulky([_bytes(n.meta.get("val")) for n in free])}
        with _disable_current_modes():  # handlers compute with real tensors
            self.program = self._translate()

    def _translate(self) -> Program | None:
        self.params: list[int] = []
        self.states: list[int] = []
        self.inputs: list[int] = []
        for node in self.gm.graph.nodes:
            try:
                self._node(node)
            except Unsupported as why:
                self.missing.append(Missing(node, str(why)))
                self.values[node] = _unknown(node)
        if self.missing:
            return None
        symbols = sorted(self.writer.symbols)
        try:
            sources = [self._source(name) for name in symbols]
        except Unsupported as why:
            self.missing.append(Missing(self.arguments[0], str(why)))
            return None
        return Program(self.name, symbols, sources, self.writer.declarations, self.writer.lines, self.params, self.states,
                       self.inputs, self.writer.constants, self.outputs, self.updates, self.uploads,
                       [_bytes(self.arguments[a].meta["val"]) for a in self.uploads], self.places, self.downloads)

    def _fix_sizes(self) -> None:
        """Makes the sizes of what is bound to buffers constants: Dynamo then traces again for others."""
        for number, node in enumerate(self.arguments):
            meta = node.meta.get("val")
            if isinstance(meta, torch.Tensor) and (node in self.written or number in self.static):
                for size in meta.shape:
                    int(size)

    # ---- nodes ----

    def _node(self, node: Node) -> None:
        if node.op == "placeholder":
            self.values[node] = self._argument(node)
        elif node.op == "get_attr":
            self.values[node] = self._constant(node)
        elif node.op == "output":
            self._output(node)
        elif node.target is operator.getitem:
            self.values[node] = self.values[node.args[0]][node.args[1]]
        elif isinstance(node.meta.get("val"), (torch.SymInt, int)) or str(node.target) in _IGNORED:
            self.values[node] = node.meta.get("val")
        elif is_copy_back(node):
            if not self.mutate:
                raise Unsupported("a write to an input, in a part of a graph")
            self.values[node] = self.values[node.args[1]]  # written at the end
        else:
            self.values[node] = self._call(node)

    def _call(self, node: Node) -> Any:
        name = str(node.target).removesuffix(".default")
        handler = HANDLERS.get(name)
        if handler is None:
            raise Unsupported(_no_operator(node, name))
        meta = node.meta.get("val")
        for out in meta if isinstance(meta, (list, tuple)) else [meta]:
            if isinstance(out, torch.Tensor):
                dtype_word(out.dtype)
                if out.device.type != "cpu":
                    raise Unsupported(f"a tensor on {out.device}")
        return written(self.writer, node, handler, self.values, self.values.__getitem__)

    def _argument(self, node: Node) -> Any:
        meta, number = node.meta.get("val"), self.arguments.index(node)
        if not isinstance(meta, torch.Tensor):
            return meta
        if not node.users:
            return None
        if meta.device.type != "cpu" or meta.layout != torch.strided:
            raise Unsupported(f"an input on {meta.device} with layout {meta.layout}")
        if node in self.written:
            kind, label = "state", f"s{len(self.states)}"
            self.states.append(number)
        elif number in self.static:
            kind, label = "param", f"p{len(self.params)}"
            self.params.append(number)
        elif node in self.bulky:
            kind, label = "param", f"u{len(self.uploads)}"
            self.uploads.append(number)
        else:
            kind, label = "input", f"i{len(self.inputs)}"
            self.inputs.append(number)
        value = Value(f"%{label}", meta.dtype, tuple(meta.shape), label if kind == "state" else "")
        self.writer._note(value.shape)
        self.writer.declarations.append(f'  {kind} {value.name} : {value.type} = "{label}"')
        return value

    def _constant(self, node: Node) -> Value:
        tensor = self.gm
        for part in str(node.target).split("."):
            tensor = getattr(tensor, part)
        if not isinstance(tensor, torch.Tensor):
            raise Unsupported(f"the attribute {node.target}")
        return self.writer.constant(tensor)

    # ---- results ----

    def _output(self, node: Node) -> None:
        """Writes what comes back: first the results, then what states changed. States are written last."""
        results = list(node.args[0]) if isinstance(node.args[0], (list, tuple)) else [node.args[0]]
        self.outputs = [self._result(r) for r in results]
        self.updates = [self._update(target, copy) for target, copy in self.written.items()]
        writes = [(self.values[target], self._kept(self.values[copy.args[1]])) for target, copy in self.written.items()]
        answered = self._place()
        for state, value in writes:
            value = expanded(self.writer, self.writer.cast(value, state.dtype), state.shape)
            self.writer.node("aten.copy_", [state, value], [])
        if answered:
            shown = ", ".join(f'"o{n}" = {value.name}' for n, value in enumerate(answered))
            self.writer.lines.append(f"  return {shown}")
        elif not self.written and not self.downloads:
            raise Unsupported("a graph without results")

    def _place(self) -> list[Value]:
        """Gives each output its place, and returns those that are in the answer."""
        self.places: list[int] = []
        self.downloads: list[int] = []
        answered: list[Value] = []
        bulky = _bulky([_bytes(value) for value in self.returned])
        for number, value in enumerate(self.returned):
            if number in bulky:
                label = f"r{len(self.downloads)}"
                self.places.append(~len(self.downloads))
                self.downloads.append(_bytes(value))
                self.writer.declarations.append(f'  state %{label} : {value.type} = "{label}"')
                self.writer.node("aten.copy_", [Value(f"%{label}", value.dtype, value.shape), value], [])
            else:
                self.places.append(len(answered))
                answered.append(value)
        return answered

    def _kept(self, value: Value) -> Value:
        """Returns a copy of what shows a state's memory, taken before states are written."""
        return self.writer.op("aten.clone", [value], value.dtype, value.shape) if value.root else value

    def _return(self, value: Value) -> int:
        self.returned.append(self._kept(value))
        return len(self.returned) - 1

    def _return_once(self, node: Node) -> int:
        """Makes a node an output of the graph, once for all changes that need it."""
        if node not in self.shared:
            self.shared[node] = self._return(self.values[node])
        return self.shared[node]

    def _result(self, result: Any) -> Any:
        if not isinstance(result, FxNode):
            return result
        value, meta = self.values[result], result.meta.get("val")
        if not isinstance(meta, torch.Tensor):
            return self._number(meta)
        self.writer._note(tuple(meta.shape))
        self.writer._note(tuple(meta.stride()))
        slot = Slot(-1, meta.dtype, plain_sizes(meta.shape), plain_sizes(meta.stride()))
        if result.op == "placeholder" and result not in self.written:
            slot.argument = self.arguments.index(result)
        elif result in self.written or is_copy_back(result):
            target = result if result in self.written else result.args[0]
            slot.argument = self.arguments.index(target)
        else:
            slot.output = self._return(value)
        return slot

    def _number(self, number: Any) -> Computed | int | float | bool | None:
        if isinstance(number, torch.SymInt):
            self.writer._note(number)
            return Computed(size_text(number))
        if number is None or isinstance(number, (bool, int, float)):
            return number
        raise Unsupported(f"a result that is a {type(number).__name__}")

    def _update(self, target: Node, copy: Node) -> Update:
        """Returns how a state's change comes back, and makes it an output of the graph."""
        update = Update(self.arguments.index(target), "whole")
        if self.resident:
            update.kind = "resident"
            return update
        source = copy.args[1]
        name = str(source.target) if isinstance(source, FxNode) else ""
        if name == "aten.index_copy.default" and source.args[0] is target and self.values[target].shape:
            dim, index, rows = source.args[1], source.args[2], source.args[3]
            update = Update(update.argument, "rows", dim=self._dim(dim, target))
            if index in self.arguments and index not in self.written:  # else it may have changed when rows are written
                update.index = self.arguments.index(index)
            else:
                update.computed = self._return_once(index)
            update.output = self._return(self._rows(rows, target))
        elif (name == "aten.slice_scatter.default" and source.args[0] is target
              and type(part := source.args[3] if len(source.args) > 3 else 0) is int and part >= 0
              and type(self.values[source.args[1]].shape[source.args[2] if len(source.args) > 2 else 0]) is int
              and (len(source.args) < 6 or source.args[5] == 1)):
            dim = self._dim(source.args[2] if len(source.args) > 2 else 0, target)
            update = Update(update.argument, "part", dim=dim, start=part,
                            length=self.values[source.args[1]].shape[dim])
            update.output = self._return(self._rows(source.args[1], target))
        else:
            update.output = self._return(self.values[source])
        return update

    def _dim(self, dim: int, target: Node) -> int:
        """Returns a dimension of a state, counted from the first."""
        return dim % len(self.values[target].shape)

    def _rows(self, rows: Node, target: Node) -> Value:
        return self.writer.cast(self.values[rows], self.values[target].dtype)

    def _source(self, symbol: str) -> tuple[int, int]:
        for number, node in enumerate(self.arguments):
            meta = node.meta.get("val")
            if isinstance(meta, torch.SymInt) and str(expression(meta)) == symbol:
                return number, -1
            if isinstance(meta, torch.Tensor):
                for dim, size in enumerate(meta.shape):
                    if isinstance(size, torch.SymInt) and str(expression(size)) == symbol:
                        return number, dim
        raise Unsupported(f"the size {symbol}, which no input has")


def _no_operator(node: Node, name: str) -> str:
    """Says which operator is missing, and of a program's own operators what can be done."""
    wrote = ""
    if not isinstance(node.target, torch._ops.OpOverload | torch._ops.HigherOrderOperator) or "_assert_scalar" in name:
        return "a condition on numbers or sizes that depend on data"
    if name.startswith("auto_functionalized"):  # PyTorch's wrapper of operators that write to arguments
        name, wrote = str(node.args[0]).removesuffix(".default"), ", which writes to its arguments,"
    if name.startswith(("aten.", "prims.", "prim.")):
        return f"there is no operator {name}"
    return (f"the operator {name}{wrote} is of this program: give a function that is traced instead with "
            "npugraph.torch.register_decomposition, or write it in the daemon's operators with register_converter")


def _bytes(tensor: Any) -> int:
    """Returns the bytes of a tensor of fixed size, and 0 for others, which cannot be bound to a buffer."""
    if not hasattr(tensor, "dtype") or not all(type(size) is int for size in tensor.shape):
        return 0
    return int(math.prod(tensor.shape)) * torch.empty((), dtype=tensor.dtype).element_size()


def _bulky(sizes: list[int]) -> set[int]:
    """Returns the numbers of the largest, so that the rest fits a message."""
    rest, found = sum(sizes), set()
    for number in sorted(range(len(sizes)), key=lambda k: -sizes[k]):
        if rest <= MESSAGE_BYTES:
            break
        found.add(number)
        rest -= sizes[number]
    return found


def is_copy_back(node: Node) -> bool:
    target = node.args[0] if node.args else None
    return (node.op == "call_function" and str(node.target) == "aten.copy_.default" and isinstance(target, FxNode)
            and target.op == "placeholder")


def _unknown(node: Node) -> Any:
    """Returns stand-ins for the results of a node that is missing, so that the rest is looked at too."""
    meta = node.meta.get("val")
    if isinstance(meta, (list, tuple)):
        return [_stand_in(out) for out in meta]
    return _stand_in(meta)


def _stand_in(meta: Any) -> Any:
    return Value("%missing", meta.dtype, tuple(meta.shape)) if isinstance(meta, torch.Tensor) else meta

