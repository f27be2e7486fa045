# SPDX-License-Identifier: Apache-2.0
"""What a replay returned: its outputs as tensors, and what it wrote to states in the caller's tensors."""
from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import _abi
from .._library import library, quick_client_library
from ..client import Buffer
from ..errors import Error
from ..memory import check_stored, is_plain
from .shapes import sizes_of
from .translate import Slot, Update

_WORDS = ctypes.sizeof(_abi.npugraph_output) // ctypes.sizeof(ctypes.c_size_t)
_INDEX_BYTES = 8  # of an i64
_PROTOTYPE = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
# memmove that keeps the interpreter's lock. Most outputs are small: to release and take the lock would take longer.
_copy = _PROTOTYPE(ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0)
_PIECES = 8  # of memory; to copy more takes longer than a call of PyTorch
_LARGE = 1 << 16  # bytes; copies of more release the lock
_pointer, _contiguous_now, _negated = torch.Tensor.data_ptr, torch.Tensor.is_contiguous, torch.Tensor.is_neg
_offset, _storage = torch.Tensor.storage_offset, torch.Tensor.untyped_storage
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
        return torch.empty(list(shape), dtype=dtype, device="cpu")

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
        made = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device="cpu")
    except RuntimeError as why:  # strides may come from a file
        raise Error("INTERNAL", f"there is no memory for a result of shape {tuple(shape)} and strides {tuple(stride)}: {why}"
                    ) from None
    return made.copy_(tensor).expand(shape)


# ---- states ---------------------------------------------------------------------------------------------------------

class Copies:
    """Copies of pieces of memory, made by one call: of rows whose numbers come with an answer, and of whole tensors."""

    def __init__(self) -> None:
        self.targets: list[tuple[int, int, int]] = []  # address, and bytes for each row of which index, -1: of none
        self.sources: list[tuple[int, int]] = []  # place in the answer, and bytes behind its beginning
        self.sizes: list[int] = []
        self.arrays: Any = None

    def add(self, to: int, index: int, step: int, place: int, offset: int, nbytes: int) -> None:
        self.targets.append((to, step, index))
        self.sources.append((place, offset))
        self.sizes.append(nbytes)

    def make(self, rows: Sequence[int], data: Sequence[int]) -> None:
        """rows: the number of each index. data: where each output is."""
        count = len(self.sizes)
        if self.arrays is None:
            self.arrays = [(ctypes.c_size_t * count)(*self.sizes), (ctypes.c_size_t * count)(), (ctypes.c_size_t * count)()]
            # Copies of more let go of the interpreter's lock.
            self.copy = (library if sum(self.sizes) > _LARGE else quick_client_library)().npugraph_copy_pieces
        nbytes, to, source = self.arrays
        numbers = (*rows, 0)  # that of no index
        to[:] = [address + step * numbers[index] for address, step, index in self.targets]
        source[:] = [data[place] + offset for place, offset in self.sources]
        self.copy(count, to, source, nbytes)


class Plan:
    """How answers are written whose outputs have certain sizes, into states that have certain memory. A plan is used as long as
    sizes and memory are those: what it copies is bounded by the tensors that it was made for."""

    def __init__(self, updates: Sequence[Update], args: Sequence[Any], answer: Answer) -> None:
        self.answer = answer  # until all is planned
        self.sizes = answer.sizes
        self.landings: dict[int, torch.Tensor] = {}  # where outputs land at first
        self.copies: list[tuple[torch.Tensor, int]] = []  # of outputs: where they land, place in the answer
        self.downloads: list[tuple[int, torch.Tensor]] = []  # outputs in buffers
        self.pieces = Copies()  # into states
        self.calls: list[tuple[int, Callable[..., Any], tuple[Any, ...]]] = []  # state, method, arguments
        self.indexed: list[tuple[int, int, int, torch.Tensor]] = []  # state, dim, argument with the index, rows
        self.indices: dict[tuple[int, int], int] = {}  # numbers of indices: the argument or -1, place in the answer or -1
        self.bounds: set[tuple[int, int]] = set()  # an index, and how many rows there are
        self.copied: list[int] = []  # states that are written by their addresses, so that nothing else raises their versions
        for update in updates:
            if args[update.argument].numel():
                self._plan(update, args)
        self.read = list(self.indices)
        self.memory = operator.itemgetter(*self.copied) if len(self.copied) > 1 else lambda args: [args[n] for n in self.copied]
        self.layout = self._layout(args)
        del self.answer

    def lies(self, args: Sequence[Any]) -> bool:
        """Returns whether the states have the memory that the plan was made for."""
        return self.layout == self._layout(args)

    def _layout(self, args: Sequence[Any]) -> list[list[Any]]:
        """Returns what says which memory the states have."""
        states = self.memory(args)
        return [*(list(map(what, states)) for what in (_pointer, _contiguous_now, _negated, _nbytes, _offset)),
                list(map(_stored, map(_storage, states)))]

    def write(self, args: Sequence[Any], answer: Answer) -> None:
        data = answer.data
        for output, landing in self.downloads:
            answer.fill(output, landing)
        for landing, place in self.copies:
            copy(landing.data_ptr(), data[place], landing.nbytes)
        now = [int(args[n]) if n >= 0 else ctypes.c_int64.from_address(data[place]).value for n, place in self.read]
        for index, rows in self.bounds:
            if not 0 <= now[index] < rows:
                raise IndexError(f"row {now[index]} of a state that has {rows}")
        for state, method, rest in self.calls:
            method(args[state], *rest)
        for state, dim, at, new in self.indexed:
            args[state].index_copy_(dim, args[at], new)
        if self.copied:
            self.pieces.make(now, data)
        torch.autograd.graph.increment_version([state for state in self.memory(args) if not state.is_inference()])

    def _plan(self, update: Update, args: Sequence[Any]) -> None:
        n, output = update.argument, update.output
        state = args[n]
        shape = list(state.shape)
        if update.kind == "rows":
            index = args[update.index] if update.index >= 0 else None
            shape[update.dim] = self.answer.nbytes(update.computed) // _INDEX_BYTES if index is None else index.numel()
            if self._single(update, state, shape):
                return
            rows = self._land(output, shape, state.dtype)
            if index is not None:
                self.indexed.append((n, update.dim, update.index, rows))
            else:
                self.calls.append((n, torch.Tensor.index_copy_, (update.dim, self._index(update.computed), rows)))
        elif update.kind == "part":
            shape[update.dim] = update.length
            self.calls.append((n, _write_part, (update, self._land(output, shape, state.dtype))))
        elif self.answer.places[output] >= 0 and is_plain(state):
            self._check(output, shape, state)
            self.pieces.add(state.data_ptr(), -1, 0, self.answer.places[output], 0, state.nbytes)
            self.copied.append(n)
        else:
            self.calls.append((n, torch.Tensor.copy_, (self._land(output, shape, state.dtype),)))

    def _check(self, output: int, shape: Sequence[int], state: torch.Tensor) -> None:
        """Checks that an output has the size of what is written by address, and that the state has memory for all of it."""
        self.answer.check(output, shape, state.dtype)
        check_stored(state)

    def _single(self, update: Update, state: torch.Tensor, shape: Sequence[int]) -> bool:
        """Plans that the one row which a step writes is copied in few pieces, if that is quicker than index_copy_."""
        place, pieces = self.answer.places[update.output], math.prod(shape[:update.dim])
        if shape[update.dim] != 1 or pieces > _PIECES or place < 0 or not is_plain(state):
            return False
        source = (update.index, -1)
        if update.index < 0:
            self.answer.check(update.computed, [1], torch.int64)
            source = (-1, self.answer.places[update.computed])
            if source[1] < 0:
                return False
        self._check(update.output, shape, state)
        number = self.indices.setdefault(source, len(self.indices))
        rows = state.shape[update.dim]
        nbytes = state.nbytes // (pieces * rows)
        self.bounds.add((number, rows))
        for n in range(pieces):
            self.pieces.add(state.data_ptr() + n * rows * nbytes, number, nbytes, place, n * nbytes, nbytes)
        self.copied.append(update.argument)
        return True

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
    """Makes the tensors of one binding equal to the states again, by what changed. All that comes back is checked and fetched
    before the first tensor changes."""

    def __init__(self, updates: Sequence[Update]) -> None:
        self.updates = [u for u in updates if u.output >= 0]
        self.plan: Plan | None = None

    def fits(self, args: Sequence[Any]) -> bool:
        """Returns whether the states have the memory that the plan is for: this can be asked before the answer is there."""
        return self.plan is not None and self.plan.lies(args)

    def write(self, args: Sequence[Any], answer: Answer, fits: bool = False) -> None:
        """`fits`: the caller has asked, for this call."""
        if not self.updates:
            return
        plan = self.plan
        if plan is None or plan.sizes != answer.sizes or not (fits or plan.lies(args)):
            plan = self.plan = Plan(self.updates, args, answer)
        plan.write(args, answer)
