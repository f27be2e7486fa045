# SPDX-License-Identifier: Apache-2.0
"""A kept form of a function: when it applies, where the graph's arguments are, and how results are put together."""
from __future__ import annotations

import dataclasses
import enum
import itertools
import json
import operator
import types
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .digests import of_call
from .options import Options
from .paths import Path, Tree, checked_path, walk
from .plain import Malformed, dtype_of, fields, listed, number, program_data, program_of, text
from .runner import Runner
from .shapes import Size, computed, sizes_of
from .translate import Program
from .values import DTYPES

_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_FAILURES = (LookupError, AttributeError, TypeError, ValueError)
_KEYS = 256  # of a dictionary that are compared; of larger ones only the number
_PLAIN = (complex, bytes, range, torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format, type(Ellipsis))
_MADE = (types.MethodType, types.MappingProxyType)  # objects that Python makes anew at each look
_storage = torch.Tensor.untyped_storage


def described(value: Any) -> Any:
    """Returns what is compared of an object that the traced function looked at, as plain data."""
    if value is None or type(value) in (bool, int, str):
        return ["value", type(value).__name__, value]
    if isinstance(value, enum.Enum):
        return ["member", _name(type(value)), value.name]
    if isinstance(value, (int, float, str, *_PLAIN)):
        return ["value", type(value).__name__, repr(value)]
    if isinstance(value, torch.Tensor):
        return ["tensor", type(value).__name__, value.requires_grad]
    if isinstance(value, dict):
        return ["dict", len(value), [described(key) for key in value] if len(value) <= _KEYS else []]
    if isinstance(value, (set, frozenset)):
        return [type(value).__name__, sorted(repr(described(part)) for part in value)]
    if type(value) is tuple and all(part is None or type(part) in (bool, int, float, str) for part in value):
        return ["value", "tuple", repr(value)]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, len(value)]
    if isinstance(value, (types.FunctionType, types.MethodType)):
        return ["function", _name(value), of_call(value)]
    if isinstance(value, (type, types.BuiltinFunctionType, types.ModuleType)):
        return ["named", type(value).__name__, _name(value)]
    if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return ["operator", str(value)]
    return ["object", _name(type(value))]


def _name(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', getattr(value, '__name__', ''))}"


def _snapshot(value: Any) -> Any:
    """Returns what may change of an object that stays the same one; False: nothing that is compared."""
    if isinstance(value, dict):
        return list(value)
    if isinstance(value, (set, torch.Tensor)):
        return described(value)
    return len(value) if isinstance(value, list) else False


@dataclasses.dataclass
class Argument:
    """An argument of the graph."""

    path: Path
    dtype: torch.dtype | None  # None: an integer
    shape: tuple[Size, ...] = ()
    stride: tuple[Size, ...] = ()


@dataclasses.dataclass
class Form:
    """What is kept of one form of a function: the shapes, dtypes and objects that it was traced with, and the graph."""

    program: Program
    arguments: list[Argument]
    symbols: dict[str, tuple[int, int]]  # of the conditions: the argument, and its dimension or -1
    conditions: list[str]  # on the symbols
    context: dict[str, Any]  # settings of PyTorch
    model: list[tuple[Path, Any]]  # compared at each call, for objects that mostly stay the same
    call: list[tuple[Path, Any]]  # compared at each call
    same: list[tuple[Path, Path]]  # pairs that are one object
    leaves: list[Any]  # of the result: ["output", n], ["argument", n], ["path", steps], ["value", plain]
    structure: str  # of the result, as pytree's JSON
    sources: dict[str, str]  # files of the code that was traced, and their digests

    def data(self) -> dict[str, Any]:
        """Returns the form as plain data."""
        def sizes(argument: Argument) -> dict[str, Any]:
            return {"path": argument.path, "dtype": DTYPES[argument.dtype] if argument.dtype else "integer",
                    "shape": argument.shape, "stride": argument.stride}
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**own, "program": program_data(self.program), "arguments": [sizes(a) for a in self.arguments]}


def form_of(data: Any) -> Form:
    """Returns the form that data from a file describes. ValueError: it describes none."""
    names = [field.name for field in dataclasses.fields(Form)]
    given = dict(zip(names, fields(data, *names), strict=True))
    if not all(isinstance(given[name], dict) for name in ("symbols", "context", "sources")):
        raise Malformed("symbols, context and sources must be objects")
    symbols = {text(name): _place(place) for name, place in given["symbols"].items()}
    program, arguments = program_of(given["program"]), listed(given["arguments"], _argument)
    form = Form(program, arguments, symbols, listed(given["conditions"], text), given["context"],
                listed(given["model"], _check), listed(given["call"], _check), listed(given["same"], _pair),
                listed(given["leaves"], _leaf), text(given["structure"]), given["sources"])
    _check_numbers(form)
    return form


def _place(value: Any) -> tuple[int, int]:
    argument, dim = listed(value, lambda v: number(v, -1, 4096), 2)
    return number(argument), dim


def _argument(value: Any) -> Argument:
    path, dtype, shape, stride = fields(value, "path", "dtype", "shape", "stride")
    if dtype == "integer":
        return Argument(checked_path(path), None)

    def size(v: Any) -> Size:
        return v if isinstance(v, str) else number(v)
    return Argument(checked_path(path), dtype_of(dtype), tuple(listed(shape, size, 64)), tuple(listed(stride, size, 64)))


def _check(value: Any) -> tuple[Path, Any]:
    path, expected = listed(value, lambda v: v, 2)
    return checked_path(path), expected


def _pair(value: Any) -> tuple[Path, Path]:
    one, other = listed(value, checked_path, 2)
    return one, other


def _leaf(value: Any) -> Any:
    kind, what = listed(value, lambda v: v, 2)
    if kind == "path":
        return [kind, checked_path(what)]
    if kind in ("output", "argument"):
        return [kind, number(what)]
    if kind != "value" or not (what is None or isinstance(what, (bool, int, float, str))):
        raise Malformed(f"{value!r} is not a part of a result")
    return [kind, what]


def _check_numbers(form: Form) -> None:
    """Checks that what refers to arguments and outputs by number refers to some, with the type that is used."""
    program, n = form.program, len(form.arguments)
    tensors = {k for k, argument in enumerate(form.arguments) if argument.dtype is not None}
    slots = [o.argument for o in program.outputs if getattr(o, "argument", -1) >= 0]  # type: ignore[union-attr]
    used = {*program.params, *program.states, *program.inputs, *program.uploads, *slots,
            *(u.index for u in program.updates if u.index >= 0), *(u.argument for u in program.updates)}
    places = [*form.symbols.values(), *program.sources]
    if used - tensors or any(a >= n or (dim >= 0) != (a in tensors) or dim >= len(form.arguments[a].shape)
                             for a, dim in places):
        raise Malformed("a number of an argument that there is not")
    if any(kind == "output" and k >= len(program.outputs) or kind == "argument" and k >= n
           for kind, k in form.leaves if kind in ("output", "argument")):
        raise Malformed("a number of a result that there is not")


def structure_of(data: str) -> pytree.TreeSpec:
    """Returns the structure that pytree wrote as JSON. Only types that are registered now are taken, by name."""
    try:
        version, tree = json.loads(data)
    except (ValueError, TypeError, RecursionError):
        raise Malformed("the structure of the result is not JSON") from None
    if version != 1:
        raise Malformed(f"the structure of the result has version {version!r}")
    return _node(tree)


def _node(tree: Any) -> pytree.TreeSpec:
    kind, context, below = fields(tree, "type", "context", "children_spec")
    if kind is None:
        if context is not None or below:
            raise Malformed("a part of the result without a type")
        return pytree.LeafSpec()
    typ = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(text(kind))
    if typ is None or pytree.SUPPORTED_SERIALIZED_TYPES[typ].from_dumpable_context is not None:
        raise Malformed(f"results of type {kind} are not kept")
    return pytree.TreeSpec(typ, json.loads(text(context)), listed(below, _node))


def settings(owner: Any) -> dict[str, Any]:
    """Returns PyTorch's settings, and the model's, that traced code depends on and that often change."""
    return {"training": bool(getattr(owner, "training", False)),
            "autocast": str(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else "off",
            "default_dtype": str(torch.get_default_dtype()), "gradients": torch.is_grad_enabled(),
            "threads": torch.get_num_threads(), "modes": torch._C._len_torch_function_stack(),
            "deterministic": torch.are_deterministic_algorithms_enabled()}


class Entry:
    """A form that calls can be made with."""

    def __init__(self, form: Form, options: Options) -> None:
        self.form = form
        self.tree = Tree([argument.path for argument in form.arguments])
        self.checks, self.expected = Tree([path for path, _ in form.call]), [_untupled(e) for _, e in form.call]
        self.model, self.ours = Tree([path for path, _ in form.model]), [_untupled(e) for _, e in form.model]
        self.known: list[Any] = []  # what the paths of `model` led to when it was as expected, and what may change of it
        self.snapshots: list[tuple[Any, Any]] = []
        self.structure = structure_of(form.structure)
        if self.structure.num_leaves != len(form.leaves):
            raise Malformed("the structure of the result has other parts")
        self.tensors = [k for k, argument in enumerate(form.arguments) if argument.dtype is not None]
        kept = [form.arguments[k] for k in self.tensors]
        self.dtypes = [argument.dtype for argument in kept]
        names = list(form.symbols)
        self.conditions = [computed(condition, names) for condition in form.conditions]
        fixed = [all(type(s) is int for s in (*argument.shape, *argument.stride)) for argument in kept]
        self.fixed = [k for k, yes in zip(self.tensors, fixed, strict=True) if yes]
        self.shapes = [form.arguments[k].shape for k in self.fixed]
        self.varying = [(k, sizes_of(form.arguments[k].shape, names), sizes_of(form.arguments[k].stride, names))
                        for k, yes in zip(self.tensors, fixed, strict=True) if not yes]
        self.numbers = [k for k, argument in enumerate(form.arguments) if argument.dtype is None]
        self.runner = Runner(form.program, options)
        self.held = [*form.program.params, *form.program.states]
        self.free = [k for k in self.tensors if k not in set(self.held)]
        self.last: list[Any] = []  # what was held at the last call, and where its memory is that is written
        self.memory: set[int] | None = None

    def match(self, roots: dict[str, Any]) -> list[Any] | None:
        """Returns the graph's arguments, if the call has this form."""
        try:
            given = self.tree.values(roots)
            if self.form.context != settings(roots["owner"]) or not self._tensors_match(given) or not self._sizes_match(given):
                return None
            if [described(value) for value in self.checks.values(roots)] != self.expected or not self._model_matches(roots):
                return None
            if not all(walk(roots, one) is walk(roots, other) for one, other in self.form.same):
                return None
        except _FAILURES:
            return None
        return given

    def _model_matches(self, roots: dict[str, Any]) -> bool:
        """Returns whether the model, and what else is no argument, is as when the form was traced. What is the same object
        as at the last call is described again only as far as it may change."""
        seen = self.model.values(roots)
        others: Sequence[int] = range(len(seen))
        if self.known:
            others = [k for k in itertools.compress(others, map(operator.is_not, seen, self.known))
                      if not (type(seen[k]) in _MADE and type(seen[k]) is type(self.known[k]) and seen[k] == self.known[k])]
            if not all(_snapshot(value) == was for value, was in self.snapshots):
                return False
        if not others:
            return True
        if not all(described(seen[k]) == self.ours[k] for k in others):
            return False
        self.known, snapshots = seen, [(value, _snapshot(value)) for value in seen]
        self.snapshots = [(value, what) for value, what in snapshots if what is not False]
        return True

    def _tensors_match(self, given: list[Any]) -> bool:
        tensors, held, free = ([given[k] for k in ks] for ks in (self.tensors, self.held, self.free))
        if len(set(map(id, tensors))) != len(tensors):  # one tensor, given as two, is another form
            return False
        known = self.memory is not None and all(a is b for a, b in zip(held, self.last, strict=True))
        if not all(type(t) in _TENSORS and t.device.type == "cpu" for t in (free if known else tensors)):
            return False
        if [t.dtype for t in tensors] != self.dtypes or [tuple(given[k].shape) for k in self.fixed] != self.shapes:
            return False
        if not all(_strides_match(given[k], self.form.arguments[k].stride) for k in self.fixed):
            return False
        if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
            return False
        memory = self.memory if known else self._written(given)
        if memory is None or any(_storage(t).data_ptr() in memory for t in free if t.numel()):
            return False
        self.last, self.memory = held, memory
        return True

    def _written(self, given: list[Any]) -> set[int] | None:
        """Returns where what the graph writes is; None: some of it is also another argument."""
        program = self.form.program
        states = [given[k] for k in program.states if given[k].numel()]
        memory = {_storage(t).data_ptr() for t in states}
        if len(memory) != len(states) or any(_storage(given[k]).data_ptr() in memory for k in program.params):
            return None
        return memory

    def _sizes_match(self, given: list[Any]) -> bool:
        if not all(type(given[k]) is int for k in self.numbers):
            return False
        values = {name: given[a] if dim < 0 else given[a].shape[dim] for name, (a, dim) in self.form.symbols.items()}
        return (all(condition(values) for condition in self.conditions)
                and all(tuple(given[k].shape) == shape(values) and _strides_match(given[k], stride(values))
                        for k, shape, stride in self.varying))

    def run(self, given: list[Any], roots: dict[str, Any]) -> Any:
        """Makes the call, with arguments that `match` returned."""
        with torch.no_grad():
            outputs = self.runner(given)
        leaves = []
        for kind, what in self.form.leaves:
            if kind == "output":
                leaves.append(outputs[what])
            elif kind == "argument":
                leaves.append(given[what])
            else:
                leaves.append(walk(roots, what) if kind == "path" else what)
        return pytree.tree_unflatten(leaves, self.structure)


def _strides_match(tensor: torch.Tensor, expected: Sequence[Any]) -> bool:
    """Returns whether strides are as expected; those of dimensions with at most one row do not count."""
    stride = tensor.stride()
    return stride == expected or all(a == b or n <= 1 for a, b, n in zip(stride, expected, tensor.shape, strict=True))


def _untupled(value: Any) -> Any:
    return [_untupled(part) for part in value] if isinstance(value, (list, tuple)) else value

