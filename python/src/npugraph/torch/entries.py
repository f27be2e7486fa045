# SPDX-License-Identifier: Apache-2.0
"""A kept form of a function as plain data: when it applies, where the graph's arguments are, and what its results are."""
from __future__ import annotations

import dataclasses
import enum
import json
import types
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .digests import of_call
from .paths import Path, checked_path
from .plain import Malformed, dtype_of, fields, listed, number, program_data, program_of, text
from .shapes import Size
from .translate import Program, Update
from .values import DTYPES

_KEYS = 256  # of a dictionary that are compared; of larger ones only the number
_PLAIN = (complex, bytes, range, torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format, type(Ellipsis))


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
    for update in program.updates:
        _check_update(update, form.arguments)
    if any(kind == "output" and k >= len(program.outputs) or kind == "argument" and k >= n
           for kind, k in form.leaves if kind in ("output", "argument")):
        raise Malformed("a number of a result that there is not")


def _check_update(update: Update, arguments: list[Argument]) -> None:
    """Checks that a state has fixed sizes, as the graph's, and that what changes of it is inside."""
    sizes = arguments[update.argument].shape
    if any(type(size) is not int for size in sizes):
        raise Malformed("the size of a state is not a number")
    if update.kind not in ("rows", "part"):
        return
    if not 0 <= update.dim < len(sizes):
        raise Malformed(f"a change along dimension {update.dim} of a state that has {len(sizes)}")
    if update.kind == "part" and not (update.start >= 0 and 0 <= update.length <= int(sizes[update.dim]) - update.start):
        raise Malformed(f"a change of {update.length} rows from row {update.start} on, of a state that has {sizes[update.dim]}")


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
        return pytree.tree_structure(0)  # an object that is no container
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
