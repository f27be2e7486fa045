# SPDX-License-Identifier: Apache-2.0
"""What a replay returned: its outputs as tensors, and what it wrote to states in the caller's tensors."""
from __future__ import annotations

import ctypes
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _abi
from ..client import Buffer
from ..errors import Error
from .shapes import sizes_of
from .translate import Program, Slot, Update

_WORDS = ctypes.sizeof(_abi.npugraph_output) // ctypes.sizeof(ctypes.c_size_t)
_INDEX_BYTES = 8  # of an i64
_PROTOTYPE = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
# memmove that keeps the interpreter's lock. Most outputs are small: to release and take the lock would take longer.
_copy = _PROTOTYPE(ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0)
_PIECES = 8  # of memory; to copy more takes longer than a call of PyTorch
_LARGE = 1 << 16  # bytes; copies of more release the lock


def copy(to: int, source: int, nbytes: int) -> None:
    """Copies memory."""
    if nbytes > _LARGE:
        ctypes.memmove(to, source, nbytes)
    elif nbytes:
        _copy(to, source, nbytes)


class Answer:
    """The outputs of one replay, by their numbers in the graph. Valid until the next replay."""

    def __init__(self, outs: Any, count: int, places: Sequence[int], downloads: Sequence[Buffer]) -> None:
        words = (ctypes.c_size_t * (_WORDS * count)).from_address(ctypes.addressof(outs.contents))[:] if count else []
        self.data, self.sizes = words[0::_WORDS], words[1::_WORDS]  # of all outputs at once: a look at each takes long
        self.places, self.downloads = places, downloads

    def nbytes(self, number: int) -> int:
        place = self.places[number]
        return self.sizes[place] if place >= 0 else self.downloads[~place].nbytes

    def fill(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        """Copies an output into a contiguous tensor of its size."""
        place = self.places[number]
        if place < 0:
            self.downloads[~place].read_into(tensor)
            return tensor
        self.check(number, tensor)
        copy(tensor.data_ptr(), self.data[place], tensor.nbytes)
        return tensor

    def check(self, number: int, tensor: torch.Tensor) -> None:
        """Error: an output has not as many bytes as the tensor that it is for."""
        self.check_size(number, tensor.nbytes, tensor.shape)

    def check_size(self, number: int, nbytes: int, shape: Sequence[int]) -> None:
        if self.nbytes(number) != nbytes:
            raise Error("INTERNAL", f"the daemon's result has {self.nbytes(number)} bytes, and a tensor of shape "
                        f"{tuple(shape)} has {nbytes}")


# ---- results --------------------------------------------------------------------------------------------------------

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


class Output:
    """Makes the tensor of a result."""

    def __init__(self, slot: Slot, symbols: Sequence[str]) -> None:
        self.slot = slot
        self.shape, self.stride = sizes_of(slot.shape, symbols), sizes_of(slot.stride, symbols)

    def tensor(self, answer: Answer, values: dict[str, int]) -> torch.Tensor:
        shape = self.shape(values)
        result = answer.fill(self.slot.output, torch.empty(shape, dtype=self.slot.dtype))
        stride = self.stride(values)
        return result if _contiguous(shape, stride) else _strided(result, stride)


def _strided(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """Returns a copy with other strides; a dimension of stride 0 has one row, which is seen everywhere."""
    shape = tensor.shape
    for dim, step in enumerate(stride):
        if step == 0:
            tensor = tensor.narrow(dim, 0, 1)
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype).copy_(tensor).expand(shape)


# ---- states ---------------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Row:
    """One row along a dimension of a contiguous tensor: a piece for each index of the dimensions before it."""

    place: int  # of the output in the answer
    rows: int  # of the tensor along the dimension
    pieces: int
    nbytes: int  # of a piece

    def start(self, index: torch.Tensor) -> int:
        """Returns where the first piece is, in bytes."""
        row = int(index)
        if not 0 <= row < self.rows:
            raise IndexError(f"row {row} of a state that has {self.rows}")
        return row * self.nbytes

    def write(self, to: int, source: int) -> None:
        for n in range(self.pieces):
            copy(to + n * self.rows * self.nbytes, source + n * self.nbytes, self.nbytes)


class Plan:
    """How answers are written whose outputs have certain sizes. Sizes and layouts of a graph's states never change, so numbers of
    rows are all that differs between its answers, and the sizes of the outputs tell them."""

    def __init__(self, updates: Sequence[Update], args: Sequence[Any], answer: Answer) -> None:
        self.answer = answer  # until all is planned
        self.sizes = answer.sizes
        self.landings: dict[int, torch.Tensor] = {}  # where outputs land at first
        self.copies: list[tuple[int, int, int]] = []  # of outputs: address, place in the answer, bytes
        self.downloads: list[tuple[int, torch.Tensor]] = []  # outputs in buffers
        self.whole: list[tuple[int, int, int]] = []  # state, place in the answer, bytes
        self.calls: list[tuple[int, Callable[..., Any], tuple[Any, ...]]] = []  # state, method, arguments
        self.indexed: list[tuple[int, int, int, torch.Tensor]] = []  # state, dim, argument with the index, rows
        self.single: list[tuple[int, int, int, Row]] = []  # state, argument with the index or -1, its output, what is written
        for update in updates:
            if args[update.argument].numel():
                self._plan(update, args)
        self.copied = [n for n, _, _, _ in self.single] + [n for n, _, _ in self.whole]  # states whose versions nothing else raises
        del self.answer

    def write(self, args: Sequence[Any], answer: Answer) -> None:
        data = answer.data
        for output, landing in self.downloads:
            answer.fill(output, landing)
        for to, place, nbytes in self.copies:
            copy(to, data[place], nbytes)
        starts = [row.start(args[at] if at >= 0 else self.landings[output]) for _, at, output, row in self.single]
        for state, method, rest in self.calls:
            method(args[state], *rest)
        for state, dim, index, rows in self.indexed:
            args[state].index_copy_(dim, args[index], rows)
        for (state, _, _, row), start in zip(self.single, starts, strict=True):
            row.write(args[state].data_ptr() + start, data[row.place])
        for state, place, nbytes in self.whole:
            copy(args[state].data_ptr(), data[place], nbytes)
        torch.autograd.graph.increment_version([args[n] for n in self.copied if not args[n].is_inference()])

    def _plan(self, update: Update, args: Sequence[Any]) -> None:
        n, output = update.argument, update.output
        state = args[n]
        shape = list(state.shape)
        if update.kind == "rows":
            index = args[update.index] if update.index >= 0 else self._index(update.computed)
            shape[update.dim] = index.numel()
            if row := self._single(update, state, shape):
                self.single.append((n, update.index, update.computed, row))
                return
            rows = self._land(output, shape, state.dtype)
            if update.index >= 0:
                self.indexed.append((n, update.dim, update.index, rows))
            else:
                self.calls.append((n, torch.Tensor.index_copy_, (update.dim, index, rows)))
        elif update.kind == "part":
            shape[update.dim] = update.length
            self.calls.append((n, _write_part, (update, self._land(output, shape, state.dtype))))
        elif self.answer.places[output] >= 0 and state.is_contiguous():
            self.answer.check(output, state)
            self.whole.append((n, self.answer.places[output], state.nbytes))
        else:
            self.calls.append((n, torch.Tensor.copy_, (self._land(output, shape, state.dtype),)))

    def _single(self, update: Update, state: torch.Tensor, shape: Sequence[int]) -> Row | None:
        """Returns how the one row that a step writes is copied in few pieces; None: index_copy_ is quicker."""
        place, pieces = self.answer.places[update.output], math.prod(shape[:update.dim])
        if shape[update.dim] != 1 or pieces > _PIECES or place < 0 or not state.is_contiguous():
            return None
        nbytes = math.prod(shape) * state.element_size()
        self.answer.check_size(update.output, nbytes, shape)
        return Row(place, state.shape[update.dim], pieces, nbytes // pieces)

    def _index(self, output: int) -> torch.Tensor:
        """Returns where an index lands that the graph computed."""
        return self.landings[output] if output in self.landings else self._land(
            output, [self.answer.nbytes(output) // _INDEX_BYTES], torch.int64)

    def _land(self, output: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Returns a tensor that an output is fetched to."""
        made = self.landings[output] = torch.empty(list(shape), dtype=dtype)
        self.answer.check(output, made)
        place = self.answer.places[output]
        if place >= 0:
            self.copies.append((made.data_ptr(), place, made.nbytes))
        else:
            self.downloads.append((output, made))
        return made


def _write_part(state: torch.Tensor, update: Update, new: torch.Tensor) -> None:
    state.narrow(update.dim, update.start, update.length).copy_(new)


class Writer:
    """Makes the caller's tensors equal to the states again, by what changed. All that comes back is checked and fetched before
    the first tensor changes."""

    def __init__(self, program: Program) -> None:
        self.updates = [u for u in program.updates if u.output >= 0]
        self.plan: Plan | None = None

    def write(self, args: Sequence[Any], answer: Answer) -> None:
        if not self.updates:
            return
        if self.plan is None or self.plan.sizes != answer.sizes:
            self.plan = Plan(self.updates, args, answer)
        self.plan.write(args, answer)
