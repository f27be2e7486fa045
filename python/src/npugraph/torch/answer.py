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
from ..errors import Error, InvalidArgument
from .shapes import sizes_of
from .translate import Program, Slot, Update

_WORDS = ctypes.sizeof(_abi.npugraph_output) // ctypes.sizeof(ctypes.c_size_t)
_INDEX_BYTES = 8  # of an i64
_PROTOTYPE = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
# memmove that keeps the interpreter's lock. Most outputs are small: to release and take the lock would take longer.
_copy = _PROTOTYPE(ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0)
_PIECES = 8  # of memory; to copy more takes longer than a call of PyTorch
_LARGE = 1 << 16  # bytes; copies of more release the lock
_contiguous_now, _negated, _offset = torch.Tensor.is_contiguous, torch.Tensor.is_neg, torch.Tensor.storage_offset
_storage = torch.Tensor.untyped_storage
_nbytes = torch.Tensor.nbytes.__get__  # type: ignore[attr-defined]
_stored = torch.UntypedStorage.nbytes


def copy(to: int, source: int, nbytes: int) -> None:
    """Copies memory. The caller knows that both places have so many bytes."""
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

    def make(self, number: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Returns a tensor for an output, without its contents. Error: the output has another size."""
        self.check(number, shape, dtype)
        return torch.empty(list(shape), dtype=dtype)

    def fill(self, number: int, made: torch.Tensor) -> torch.Tensor:
        """Copies an output into a tensor that `make` returned for it."""
        place = self.places[number]
        if place < 0:
            self.downloads[~place].read_into(made)
        else:
            copy(made.data_ptr(), self.data[place], made.nbytes)
        return made

    def check(self, number: int, shape: Sequence[int], dtype: torch.dtype) -> None:
        """Error: an output has not as many bytes as a tensor of this shape."""
        nbytes = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or self.nbytes(number) != nbytes:
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
        result = answer.fill(self.slot.output, answer.make(self.slot.output, shape, self.slot.dtype))
        stride = self.stride(values)
        return result if _contiguous(shape, stride) else _strided(result, stride)


def _strided(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """Returns a copy with other strides; a dimension of stride 0 has one row, which is seen everywhere."""
    shape = tensor.shape
    for dim, step in enumerate(stride):
        if step == 0:
            tensor = tensor.narrow(dim, 0, 1)
    try:
        made = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype)
    except RuntimeError as why:  # strides may come from a file
        raise Error("INTERNAL", f"there is no memory for a result of shape {tuple(shape)} and strides {tuple(stride)}: {why}"
                    ) from None
    return made.copy_(tensor).expand(shape)


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


def _layout(tensors: Sequence[torch.Tensor]) -> list[list[Any]]:
    """Returns what says which memory the tensors have from their addresses on."""
    return [list(map(_contiguous_now, tensors)), list(map(_negated, tensors)), list(map(_nbytes, tensors)),
            list(map(_offset, tensors)), list(map(_stored, map(_storage, tensors)))]


def _is_plain(tensor: torch.Tensor) -> bool:
    """Returns whether the tensor's numbers are in its memory in order. Those of a negated view have another sign there."""
    return tensor.is_contiguous() and not tensor.is_neg()


def _check_memory(tensor: torch.Tensor) -> None:
    """InvalidArgument: the memory that a contiguous tensor is in is smaller than the tensor."""
    held = tensor.untyped_storage().nbytes() - tensor.storage_offset() * tensor.element_size()
    if held < tensor.nbytes:
        raise InvalidArgument("INVALID_ARGUMENT", f"a tensor of shape {tuple(tensor.shape)} needs {tensor.nbytes} bytes, and its "
                              f"storage has {max(0, held)} for it: it was made smaller by resize_")


class Plan:
    """How answers are written whose outputs have certain sizes, into states whose memory is laid out in a certain way. A plan is
    used as long as `fits` says so: what it copies is bounded by the tensors that it was made for."""

    def __init__(self, updates: Sequence[Update], args: Sequence[Any], answer: Answer) -> None:
        self.answer = answer  # until all is planned
        self.sizes = answer.sizes
        self.landings: dict[int, torch.Tensor] = {}  # where outputs land at first
        self.copies: list[tuple[torch.Tensor, int]] = []  # of outputs: where they land, place in the answer
        self.downloads: list[tuple[int, torch.Tensor]] = []  # outputs in buffers
        self.whole: list[tuple[int, int, int]] = []  # state, place in the answer, bytes
        self.calls: list[tuple[int, Callable[..., Any], tuple[Any, ...]]] = []  # state, method, arguments
        self.indexed: list[tuple[int, int, int, torch.Tensor]] = []  # state, dim, argument with the index, rows
        self.single: list[tuple[int, int, int, Row]] = []  # state, argument with the index or -1, its output, what is written
        for update in updates:
            if args[update.argument].numel():
                self._plan(update, args)
        self.copied = [n for n, _, _, _ in self.single] + [n for n, _, _ in self.whole]  # states whose versions nothing else raises
        self.layout = self._layout(args)
        del self.answer

    def fits(self, args: Sequence[Any], answer: Answer) -> bool:
        return self.sizes == answer.sizes and self.layout == self._layout(args)

    def _layout(self, args: Sequence[Any]) -> list[list[Any]]:
        return _layout([args[n] for n in self.copied])

    def write(self, args: Sequence[Any], answer: Answer) -> None:
        data = answer.data
        for output, landing in self.downloads:
            answer.fill(output, landing)
        for landing, place in self.copies:
            copy(landing.data_ptr(), data[place], landing.nbytes)
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
        elif self.answer.places[output] >= 0 and _is_plain(state):
            self.answer.check(output, shape, state.dtype)
            _check_memory(state)
            self.whole.append((n, self.answer.places[output], state.nbytes))
        else:
            self.calls.append((n, torch.Tensor.copy_, (self._land(output, shape, state.dtype),)))

    def _single(self, update: Update, state: torch.Tensor, shape: Sequence[int]) -> Row | None:
        """Returns how the one row that a step writes is copied in few pieces; None: index_copy_ is quicker."""
        place, pieces = self.answer.places[update.output], math.prod(shape[:update.dim])
        if shape[update.dim] != 1 or pieces > _PIECES or place < 0 or not _is_plain(state):
            return None
        self.answer.check(update.output, shape, state.dtype)
        _check_memory(state)
        rows = state.shape[update.dim]
        return Row(place, rows, pieces, state.nbytes // (pieces * rows))

    def _index(self, output: int) -> torch.Tensor:
        """Returns where an index lands that the graph computed."""
        return self.landings[output] if output in self.landings else self._land(
            output, [self.answer.nbytes(output) // _INDEX_BYTES], torch.int64)

    def _land(self, output: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Returns a tensor that an output is fetched to."""
        made = self.landings[output] = self.answer.make(output, shape, dtype)
        place = self.answer.places[output]
        if place >= 0:
            self.copies.append((made, place))
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
        if self.plan is None or not self.plan.fits(args, answer):
            self.plan = Plan(self.updates, args, answer)
        self.plan.write(args, answer)
