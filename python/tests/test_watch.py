# SPDX-License-Identifier: Apache-2.0
"""npugraph.torch.watch: whatever changes in a tree of objects, a watch that still holds leads to what it led to before."""
from __future__ import annotations

import collections
import random
import types
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from npugraph.torch.entries import described  # noqa: E402
from npugraph.torch.paths import Path, Tree, walk  # noqa: E402
from npugraph.torch.watch import Layouts, Watch  # noqa: E402

LEAVES: list[Callable[[], Any]] = [
    lambda: None, lambda: True, lambda: 1, lambda: 1.0, lambda: 0, lambda: False, lambda: "word", lambda: (1, 2),
    lambda: (True, 2.0), lambda: torch.ones(1), lambda: torch.ones(2, 3), lambda: nn.Parameter(torch.ones(2)), lambda: {1, 2},
    lambda: torch.float32, lambda: torch.relu, lambda: len, lambda: collections.OrderedDict(), dict, list, lambda: b"bytes"]
EQUAL = (bool, int, float, str, tuple, dict, collections.OrderedDict)  # another one is as good


class Settings:
    """Equal to others with the same fields, as the settings of transformers' models are."""

    name = "of the class"

    def __init__(self, **own: Any) -> None:
        vars(self).update(own)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def computed(self) -> Any:
        return vars(self).get("a")


def tree(rng: random.Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(LEAVES)()
    parts = {name: tree(rng, depth - 1) for name in "abc"[:rng.randint(1, 3)]}
    kind = rng.randrange(6)
    if kind == 0:
        return Settings(**parts)
    if kind == 1:
        return types.SimpleNamespace(**parts)
    if kind == 2:
        return collections.OrderedDict(parts) if rng.random() < 0.5 else parts
    if kind == 3:
        return list(parts.values())
    if kind == 4:
        return tuple(parts.values())
    module = nn.Module()
    for name, part in parts.items():
        setattr(module, name, part)
    return module


def ways(value: Any, path: Path) -> list[Path]:
    """Returns paths to all that is below an object, and such as ask what an object has."""
    found: list[Path] = [path] if path else []
    steps: list[Any] = []
    if isinstance(value, (dict, list, tuple)):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        steps = [("item", key) for key in keys]
    elif hasattr(value, "__dict__") and not isinstance(value, (torch.Tensor, types.FunctionType, types.BuiltinFunctionType, type)):
        steps = [("attribute", key) for key in vars(value) if type(key) is str]
        found += [(*path, ("own", "z")), (*path, ("has", "z")), (*path, ("type", None))]
        found += [(*path, ("attribute", name)) for name in ("name", "computed") if isinstance(value, Settings)]
    for step in steps:
        if len(path) < 6:
            found += ways(walk({"": value}, (("item", ""), step)), (*path, step))
    return found


def holders(value: Any, seen: dict[int, Any]) -> dict[int, Any]:
    """Returns all objects below one that can be changed."""
    if id(value) in seen or isinstance(value, (torch.Tensor, types.FunctionType, types.BuiltinFunctionType, type, torch.dtype)):
        return seen
    inside = vars(value) if hasattr(value, "__dict__") else value
    if isinstance(inside, (dict, list, tuple, set)):
        seen[id(value)] = value
        for part in inside.values() if isinstance(inside, dict) else inside:
            holders(part, seen)
    return seen


def change(rng: random.Random, root: Any) -> None:
    """Changes something, perhaps to what is equal to it."""
    value = rng.choice(list(holders(root, {}).values()))
    inside = vars(value) if hasattr(value, "__dict__") else value
    new = rng.choice([lambda: rng.choice(LEAVES)(), lambda: tree(rng, 1)])()
    if isinstance(inside, dict):
        key = rng.choice([*inside, "z"])
        what = rng.randrange(4)
        if what == 0 and key in inside:
            inside.pop(key)
        elif what == 1 and key in inside:
            inside[key] = inside.pop(key)  # another order
        elif what == 2 and isinstance(inside.get(key), (dict, Settings)):
            old = inside[key]
            inside[key] = type(old)(**vars(old)) if isinstance(old, Settings) else type(old)(old)  # equal, and another
        else:
            inside[key] = new
    elif isinstance(inside, list):
        rng.choice([lambda: inside.append(new), lambda: inside and inside.pop(), lambda: inside and inside.__setitem__(0, new)])()
    elif isinstance(inside, set):
        inside.add(rng.randrange(9))


@pytest.mark.parametrize("seed", range(40))
def test_a_watch_that_holds_is_right(seed: int) -> None:
    rng = random.Random(seed)
    held = 0
    for _ in range(25):
        roots = {"a": tree(rng, 4)}
        paths = ways(roots["a"], (("item", "a"),))
        paths = rng.sample(paths, rng.randint(1, len(paths)))
        led = [(walk(roots, path), described(walk(roots, path))) for path in paths]
        watch = Watch(Tree(paths).root, roots)
        assert watch.holds(), "nothing has changed"
        for _ in range(6):
            change(rng, roots)
            if not watch.holds():
                break
            held += 1
            for path, (value, what) in zip(paths, led, strict=True):
                now = walk(roots, path)
                equal = type(now) in EQUAL and (type(now) is type(value) or isinstance(now, dict)) and now == value
                assert (now is value or equal) and described(now) == what, path
    assert held, "every change was noticed, also those that no path leads to"


def test_layouts() -> None:
    for act in (lambda t: t.transpose_(0, 1), lambda t: setattr(t, "data", t.data.t()), lambda t: t.resize_(1, 1),
                lambda t: setattr(t, "data", t.data.clone()), lambda t: setattr(t, "data", t.data.double()),
                lambda t: setattr(t, "data", t.data.reshape(3, 2)), lambda t: setattr(t, "data", t.data[:1]),
                lambda t: setattr(t, "data", t.data.view(torch.int32)), lambda t: setattr(t, "data", torch._neg_view(t.data))):
        tensors = [torch.ones(2, 3), torch.ones(2, 3)]
        layouts = Layouts([*tensors, tensors[0]])
        tensors[0] += 1
        assert layouts.hold()
        act(tensors[1])
        assert not layouts.hold()


def test_layouts_in_each_mode() -> None:
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        with mode():
            tensors = [torch.nn.Parameter(torch.ones(2, 3)), torch.ones(2)]
            layouts = Layouts(tensors)
            assert layouts.hold() and Layouts([]).hold()
            tensors[0].data = torch.ones(3, 2)
            assert not layouts.hold()
