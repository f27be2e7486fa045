# SPDX-License-Identifier: Apache-2.0
"""Results that share memory, with an argument or with one another: behind a graph that computes each alone, they do so again."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from .shapes import Size, Unsupported, expression, plain_sizes, sizes_of


class Unplaced(Exception):
    """What results share cannot be given back to them; the message says why."""


@dataclasses.dataclass
class Place:
    """Where a result lies in memory that it shares. Sizes, strides and the offset are counted in elements."""

    result: int
    dtype: torch.dtype
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    offset: Size  # from the argument's first element, or from the memory's


@dataclasses.dataclass
class Group:
    """Results that lie in one memory: that of an argument, or of their own."""

    argument: int  # -1: none
    places: list[Place]


def sharing_of(gm: GraphModule) -> Sharing | None:
    """Returns what gives results of a graph of Dynamo's the memory that they share in eager PyTorch, by the fake tensors of its
    trace; None: they share none. Unplaced: that cannot be computed from the sizes of a call.

    Results that are arguments themselves, and those that overlap with nothing, are in no group.
    """
    try:
        groups, again = _groups(gm)
        return Sharing(gm, groups, again) if groups or again else None
    except Unsupported as why:
        raise Unplaced(f"a result that shares memory with another, or with an argument: {why}") from None


def _groups(gm: GraphModule) -> tuple[list[Group], list[tuple[int, int]]]:
    """Returns groups, and the numbers of results that are an earlier result once more, with its number."""
    given = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    members: dict[int, list[tuple[int, Any]]] = {}  # by storage: number and fake tensor of each result
    first: dict[int, int] = {}  # number of the first result that is a fake tensor
    again = []
    for number, node in enumerate(_results(gm)):
        fake = node.meta.get("example_value") if isinstance(node, torch.fx.Node) else None
        if isinstance(fake, torch.Tensor) and fake.layout == torch.strided and not any(fake is value for value in given):
            if first.setdefault(id(fake), number) != number:
                again.append((number, first[id(fake)]))
            elif not fake.requires_grad:  # AOTAutograd keeps views with gradients
                members.setdefault(_storage(fake), []).append((number, fake))
    owners: dict[int, list[int]] = {}
    for number, value in enumerate(given):
        if isinstance(value, torch.Tensor) and value.layout == torch.strided:
            owners.setdefault(_storage(value), []).append(number)
    groups = []
    for storage, found in members.items():
        if storage in owners:
            owner = _owner(gm, owners[storage])
            groups += [Group(owner, [_place(number, fake, fake.storage_offset() - given[owner].storage_offset())])
                       for number, fake in found if _is_plain(given[owner], fake)]
        elif len(found) > 1 and not _apart([fake for _, fake in found]):
            if any(fake.is_neg() or fake.is_conj() for _, fake in found):
                raise Unsupported("the conjugate or the negative of a tensor")
            groups.append(Group(-1, [_place(number, fake, fake.storage_offset()) for number, fake in found]))
    return groups, again


def _results(gm: GraphModule) -> Sequence[Any]:
    output = next(iter(gm.graph.find_nodes(op="output"))).args[0]
    return output if isinstance(output, (tuple, list)) else [output]


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _owner(gm: GraphModule, owners: Sequence[int]) -> int:
    """Returns the argument that results in its memory are views of, at a place that is the same in each call."""
    if len(owners) != 1:  # they may share it in this call alone
        raise Unsupported("a view of one of several arguments that share memory")
    if any("as_strided" in str(node.target) for node in gm.graph.nodes):
        raise Unsupported("as_strided of an input")  # counts from the beginning of its storage, which no guard compares
    return owners[0]


def _is_plain(owner: Any, fake: Any) -> bool:
    """Returns whether a view has the argument's dtype. PyTorch makes others itself, which it does wrong with symbols."""
    if owner.dtype == fake.dtype and owner.is_neg() == fake.is_neg() and owner.is_conj() == fake.is_conj():
        return True
    if not all(type(n) is int for n in (*fake.shape, *fake.stride(), fake.storage_offset())):
        raise Unsupported("a view of another dtype, with sizes that change")
    return False


def _place(number: int, fake: Any, offset: Any) -> Place:
    return Place(number, fake.dtype, plain_sizes(fake.shape), plain_sizes(fake.stride()), plain_sizes([offset])[0])


def _apart(fakes: Sequence[Any]) -> bool:
    """Returns whether results are known to lie behind one another."""
    ends = []
    for fake in fakes:
        numbers = [*fake.shape, *fake.stride(), fake.storage_offset()]
        if not all(type(n) is int for n in numbers):
            return False
        if fake.numel():
            first = fake.storage_offset() * fake.element_size()
            ends.append((first, first + _span(fake.shape, fake.stride()) * fake.element_size()))
    ends.sort()
    return all(one[1] <= other[0] for one, other in zip(ends, ends[1:], strict=False))


def _span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Returns how many elements lie from the first of a tensor to its last."""
    return 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True)) if all(shape) else 0


# ---- calls ----------------------------------------------------------------------------------------------------------

class Sharing:
    """Gives the results of a compiled graph the memory that they share."""

    def __init__(self, gm: GraphModule, groups: Sequence[Group], again: Sequence[tuple[int, int]]) -> None:
        self.sources, self.again = _sources(gm), again
        self.groups = [(group.argument, [_Part(place, list(self.sources)) for place in group.places]) for group in groups]

    def over(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Returns what calls a compiled graph so."""
        return lambda *args: self._tied(args, list(compiled(*args)))

    def _tied(self, args: Sequence[Any], results: list[Any]) -> list[Any]:
        values = {name: args[a] if dim < 0 else args[a].shape[dim] for name, (a, dim) in self.sources.items()}
        for argument, parts in self.groups:
            if argument >= 0:
                owner = args[argument]
                for part in parts:
                    results[part.place.result] = _view(owner, part.at(values), owner.storage_offset())
            else:
                _join(results, parts, values)
        for number, first in self.again:
            results[number] = results[first]
        return results


def _sources(gm: GraphModule) -> dict[str, tuple[int, int]]:
    """Returns the argument, and its dimension or -1, that has each symbol."""
    found: dict[str, tuple[int, int]] = {}
    for number, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        value = node.meta.get("example_value")
        sizes = enumerate(value.shape) if isinstance(value, torch.Tensor) else [(-1, value)]
        for dim, size in sizes:
            if isinstance(size, torch.SymInt) and expression(size).is_Symbol:
                found.setdefault(str(expression(size)), (number, dim))
    return found


class _Part:
    def __init__(self, place: Place, symbols: Sequence[str]) -> None:
        self.place = place
        try:
            self.shape, self.stride = sizes_of(place.shape, symbols), sizes_of(place.stride, symbols)
            self.offset = sizes_of([place.offset], symbols)
        except ValueError as why:
            raise Unsupported(f"a result in memory that it shares: {why}") from None

    def at(self, values: Mapping[str, int]) -> Any:
        """Returns the place in a call, as numbers."""
        return dataclasses.replace(self.place, shape=self.shape(values), stride=self.stride(values), offset=self.offset(values)[0])


def _join(results: list[Any], parts: Sequence[_Part], values: Mapping[str, int]) -> None:
    """Puts results into one memory: that of the result that has all of it, or new memory."""
    places = [place for place in (part.at(values) for part in parts) if all(place.shape)]
    if not places:
        return
    begin = min(place.offset * place.dtype.itemsize for place in places)
    end = max((place.offset + _span(place.shape, place.stride)) * place.dtype.itemsize for place in places)
    same = len({place.dtype for place in places}) == 1
    for place in places if same else []:
        whole = results[place.result]
        every = whole.numel() == _span(place.shape, place.stride) and whole.nbytes == end - begin
        if every and whole.stride() == place.stride and place.offset * whole.itemsize == begin:
            first = whole.storage_offset() - place.offset
            for other in places:
                if other is not place:
                    results[other.result] = _view(whole, other, first)
            return
    device = results[places[0].result].device
    memory = torch.empty(-(-end // 16) * 16, dtype=torch.uint8, device=device)  # for views of any dtype
    for place in places:
        view = _view(memory.view(place.dtype), place, 0)
        once = tuple(slice(1) if step == 0 else slice(None) for step in place.stride)  # nothing is copied to one place twice
        view[once].copy_(results[place.result][once])
        results[place.result] = view


def _view(memory: Any, place: Any, first: int) -> Any:
    memory = memory.detach() if memory.requires_grad else memory  # views that need gradients are AOTAutograd's
    return memory.as_strided(place.shape, place.stride, first + place.offset)
