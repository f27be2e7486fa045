# SPDX-License-Identifier: Apache-2.0
"""Results that share memory in eager PyTorch do so behind torch.compile; what writes to states lands where eager writes."""
from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from programs import difference, look  # noqa: E402

import npugraph.torch as backend  # noqa: E402

Function = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("fresh")


def assert_like_eager(function: Function, *calls: tuple[Any, ...], dynamic: bool | None = None) -> None:
    """Makes the calls in eager and compiled, writes to each result, and compares results, arguments, and what shares memory."""
    fast = torch.compile(function, backend="npugraph", dynamic=dynamic, options={"fallback": "silent"})
    for given in calls:
        mine, theirs = copy.deepcopy(given), copy.deepcopy(given)
        got, want = fast(*mine), function(*theirs)
        assert difference(look(want, theirs), look(got, mine)) == ""
        for one, other in zip(got, want, strict=True):
            one[..., :1].add_(1)
            other[..., :1].add_(1)
            assert difference(look(want, theirs), look(got, mine)) == ""


def f32(*shape: int) -> Any:
    return torch.randn(shape)


def _written_view(x: Any) -> Any:
    y = x + 1
    part = y[1:]
    part.mul_(2)
    return part, y


def _turned(x: Any) -> Any:
    y = (x + 1).t()
    y.mul_(2)
    return y[0], y


RESULTS: dict[str, Function] = {
    "a tensor and its transpose": lambda x: (y := x + 1, y.t()),
    "a row and the tensor": lambda x: ((y := x * 2)[1], y),
    "two rows": lambda x: ((y := x * 2)[:2], y[1:]),
    "every second column": lambda x: ((y := x * 2)[:, ::2], y[:, 1:]),
    "a view that was written": _written_view,
    "a tensor that is not contiguous": _turned,
    "one tensor, twice": lambda x: ((y := (x + 1)[0]), y.flatten(), x * 2),
    "three": lambda x: ((y := x.relu()).flatten(), y.t(), y[0]),
    "two memories": lambda x: ((y := x + 1)[0], (z := x + 2)[1:], y, z.t()),
    "another dtype": lambda x: ((y := x + 1)[0], y.view(torch.int32)[:, 1:]),
    "of an input": lambda x: (x[1:], x + 1),
    "of an input, from the middle": lambda x: (x[x.shape[0] // 2:], x + 1, x[..., x.shape[1] - 1]),
    "of an input that is written": lambda x: (x.add_(1)[1:], x[x.shape[0] // 2:]),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", RESULTS)
def test_results_share_memory(name: str, dynamic: bool) -> None:
    assert_like_eager(RESULTS[name], (f32(4, 6),), (f32(5, 3),), (f32(8, 8)[2:, 1:7],), (f32(3, 5).t(),), dynamic=dynamic)


def test_as_strided_sees_the_whole_storage() -> None:
    def step(x: Any) -> Any:
        moved = x.movedim(0, -1)
        before = moved.as_strided((1,), (1,), 1)
        moved.copy_((moved * 2 + 1).flip(0))
        return (before * 3,)
    assert_like_eager(step, (f32(4),), (f32(8)[2:6],), (f32(8)[1:5],), (f32(4),))
    torch._dynamo.reset()
    assert_like_eager(step, (f32(8)[2:6],), (f32(4),), (f32(8)[1:5],))


def test_states_with_two_dynamic_sizes() -> None:
    """The memory and the number of bytes are the same, and the shape is not."""
    def step(x: Any, new: Any) -> Any:
        x[1].copy_(new)
        x.t()[0].add_(1)
        return (x * 2,)
    fast = torch.compile(step, backend="npugraph", fullgraph=True, dynamic=True)
    mine, theirs = f32(16), torch.empty(16)
    theirs.copy_(mine)
    for rows in (2, 4, 8, 2, 4):
        new = f32(16 // rows)
        got, want = fast(mine.view(rows, -1), new), step(theirs.view(rows, -1), new)
        assert torch.equal(mine, theirs) and torch.equal(got[0], want[0])


def test_arguments_that_overlap() -> None:
    """PyTorch gives the graph one tensor for both, which it makes at each call: other graphs must see what that wrote."""
    def both(x: Any, y: Any) -> Any:
        x.add_(1)
        return (y * 2,)

    def one(x: Any) -> Any:
        x.mul_(2)
        return (x + 1,)
    fast_both, fast_one = (torch.compile(f, backend="npugraph", options={"fallback": "silent"}) for f in (both, one))
    for base in (lambda x: x, lambda x: x.detach()):
        mine = f32(4, 3)
        theirs = mine.clone()
        pair, other = (mine, base(mine)[1:]), (theirs, base(theirs)[1:])
        for _ in range(3):
            for fast, slow, n in ((fast_one, one, 1), (fast_both, both, 2)):
                assert torch.equal(fast(*pair[:n])[0], slow(*other[:n])[0]) and torch.equal(mine, theirs)


def test_results_that_share_memory_are_not_kept(tmp_path: Any, caplog: Any) -> None:
    step = backend.cache_compile(RESULTS["a tensor and its transpose"], cache_dir=tmp_path)
    x = f32(3, 4)
    for _ in range(2):
        y, turned = step(x)
        y[0, 1] = 7
        assert turned[1, 0] == 7
    assert not list(tmp_path.rglob("*.json"))
