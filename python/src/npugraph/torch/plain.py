# SPDX-License-Identifier: Apache-2.0
"""Translated graphs as plain data that json can write. What is read back is checked: nothing in it is executed."""
from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Callable
from typing import Any

import torch

from .shapes import Size, computed
from .translate import Computed, Program, Slot, Update
from .values import DTYPES

CONSTANT_BYTES = 1 << 20  # of all constants of a program; more are not kept
_WORDS = {word: dtype for dtype, word in DTYPES.items()}
_KINDS = ("rows", "part", "whole", "resident")


class Malformed(ValueError):
    """Data does not describe what it should; the message says where."""


def dtype_of(word: Any) -> torch.dtype:
    if not isinstance(word, str) or word not in _WORDS:
        raise Malformed(f"there is no dtype {word!r}")
    return _WORDS[word]


def number(value: Any, least: int = 0, most: int = 2**63 - 1) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Malformed(f"{value!r} is not a number from {least} to {most}")
    return value


def listed(value: Any, part: Callable[[Any], Any], most: int = 1 << 20) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise Malformed(f"a list of at most {most} elements is missing")
    return [part(element) for element in value]


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise Malformed(f"{value!r} is not a text")
    return value


def fields(value: Any, *names: str) -> list[Any]:
    """Returns the values of an object that has these names and no others."""
    if not isinstance(value, dict) or set(value) != set(names):
        raise Malformed(f"an object with {', '.join(names)} is missing")
    return [value[name] for name in names]


# ---- writing --------------------------------------------------------------------------------------------------------

def program_data(program: Program) -> dict[str, Any]:
    """Returns a program as plain data. ValueError: its constants are too large."""
    data = {field.name: getattr(program, field.name) for field in dataclasses.fields(program)}
    data["sources"] = [list(source) for source in program.sources]
    data["constants"] = _constants_data(program.constants)
    data["outputs"] = [_output_data(output) for output in program.outputs]
    data["updates"] = [dataclasses.asdict(update) for update in program.updates]
    return data


def _constants_data(constants: list[torch.Tensor]) -> list[dict[str, Any]]:
    if sum(constant.nbytes for constant in constants) > CONSTANT_BYTES:
        raise ValueError(f"constants of more than {CONSTANT_BYTES} bytes")
    made = []
    for constant in constants:
        contents = constant.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        made.append({"dtype": DTYPES[constant.dtype], "shape": list(constant.shape),
                     "bytes": base64.b64encode(contents).decode()})
    return made


def _output_data(output: Any) -> dict[str, Any]:
    if isinstance(output, Slot):
        return {"kind": "tensor", "output": output.output, "dtype": DTYPES[output.dtype], "shape": list(output.shape),
                "stride": list(output.stride), "argument": output.argument}
    if isinstance(output, Computed):
        return {"kind": "size", "size": output.size}
    return {"kind": "value", "value": output}


# ---- reading --------------------------------------------------------------------------------------------------------

def program_of(data: Any) -> Program:
    """Returns the program that data describes. Malformed: it describes none."""
    names = [field.name for field in dataclasses.fields(Program)]
    given = dict(zip(names, fields(data, *names), strict=True))
    symbols = listed(given["symbols"], _symbol, 4096)

    def size(value: Any) -> Size:
        if isinstance(value, str):
            computed(value, symbols)
            return value
        return number(value)

    def output(value: Any) -> Any:
        return _output(value, size)

    numbers = {name: listed(given[name], number)
               for name in ("params", "states", "inputs", "uploads", "upload_bytes", "downloads")}
    program = Program(
        head=text(given["head"]), symbols=symbols, sources=listed(given["sources"], _source, 4096),
        declarations=listed(given["declarations"], text), body=listed(given["body"], text),
        constants=listed(given["constants"], _constant, 4096), outputs=listed(given["outputs"], output),
        updates=listed(given["updates"], _update), places=listed(given["places"], lambda v: number(v, -(1 << 20), 1 << 20)),
        **numbers)
    _check_counts(program)
    return program


def _symbol(name: Any) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w{0,31}", text(name), re.ASCII):
        raise Malformed(f"{name!r} is not the name of a symbol")
    return str(name)


def _source(value: Any) -> tuple[int, int]:
    argument, dim = listed(value, lambda v: number(v, -1), 2)
    return number(argument), dim


def _constant(value: Any) -> torch.Tensor:
    word, shape, contents = fields(value, "dtype", "shape", "bytes")
    dtype, sizes = dtype_of(word), listed(shape, lambda v: number(v, 0, CONSTANT_BYTES), 64)
    try:
        raw = bytearray(base64.b64decode(text(contents), validate=True))
    except ValueError:
        raise Malformed("the bytes of a constant are not in base64") from None
    count = 1
    for size in sizes:
        count *= size
    if len(raw) > CONSTANT_BYTES or len(raw) != count * torch.empty((), dtype=dtype).element_size():
        raise Malformed(f"a constant of shape {sizes} cannot have {len(raw)} bytes")
    return torch.frombuffer(raw, dtype=dtype).reshape(sizes) if raw else torch.empty(sizes, dtype=dtype)


def _output(value: Any, size: Callable[[Any], Size]) -> Any:
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind == "tensor":
        _, place, dtype, shape, stride, argument = fields(value, "kind", "output", "dtype", "shape", "stride", "argument")
        return Slot(number(place, -1), dtype_of(dtype), tuple(listed(shape, size, 64)), tuple(listed(stride, size, 64)),
                    number(argument, -1))
    if kind == "size":
        return Computed(str(size(text(fields(value, "kind", "size")[1]))))
    plain = fields(value, "kind", "value")[1]
    if kind != "value" or not (plain is None or isinstance(plain, (bool, int, float))):
        raise Malformed(f"there is no result {value!r}")
    return plain


def _update(value: Any) -> Update:
    names = [field.name for field in dataclasses.fields(Update)]
    argument, kind, *numbers = fields(value, *names)
    if kind not in _KINDS:
        raise Malformed(f"there is no change {kind!r} of a state")
    return Update(number(argument), kind, *(number(v, -1) for v in numbers))


def _check_counts(program: Program) -> None:
    """Checks that what refers to results by number refers to results that there are."""
    n = len(program.places)
    if len(program.sources) != len(program.symbols) or len(program.upload_bytes) != len(program.uploads):
        raise Malformed("the numbers of symbols and their sources, or of uploads and their sizes, differ")
    slots = [o for o in program.outputs if isinstance(o, Slot)]
    if any(s.output >= n or (s.output < 0) == (s.argument < 0) or len(s.shape) != len(s.stride) for s in slots):
        raise Malformed("a result that is neither an output of the graph nor an argument")
    if any(not _is_change(u, n) or u.argument not in program.states or u.index in program.states for u in program.updates):
        raise Malformed("a change of a state that is not an output of the graph")
    answered = sum(place >= 0 for place in program.places)
    if any(place >= answered or ~place >= len(program.downloads) for place in program.places):
        raise Malformed("an output of the graph without a place in the answer")


def _is_change(update: Update, outputs: int) -> bool:
    """Returns whether an update has what its kind needs, among so many outputs of the graph."""
    if max(update.output, update.computed) >= outputs or (update.output < 0) != (update.kind == "resident"):
        return False
    sources = (update.index >= 0) + (update.computed >= 0)
    return sources == (1 if update.kind == "rows" else 0)
