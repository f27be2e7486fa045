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


def assert_like_eager(function: Function, *calls: tuple[Any, ...], dynamic: bool | None = None, fallback: str = "error") -> None:
    """Makes the calls in eager and compiled, writes to each result, and compares results, arguments, and what shares memory."""
    fast = torch.compile(function, backend="npugraph", dynamic=dynamic, options={"fallback": fallback})
    for given in calls:
        mine, theirs = copy.deepcopy(given), copy.deepcopy(given)
        got, want = fast(*mine), function(*theirs)
        assert difference(look(want, theirs), look(got, mine)) == ""
        for one, other in zip(got, want, strict=True):
            assert one.requires_grad == other.requires_grad
            if any(step == 0 for step in other.stride()):
                continue
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
    "the rows of all": lambda x: ((y := x + 1).flatten(), y[None], y.t()),
    "expanded": lambda x: ((y := x * 2)[:2], y[1:], y[1].expand(2, -1)),
    "expanded, from the beginning": lambda x: ((y := x * 2)[0].expand(2, -1), y.flatten()[1:3]),
    "expanded, as many bytes": lambda x: ((y := x[:1] * 2).expand(4, -1), y.expand(4, -1)[1:], y[:, :1]),
    "windows": lambda x: ((y := (x * 2).flatten()).unfold(0, 2, 1), y[1:]),
}
# The daemon has no views of another dtype, and no unfold. It does not know that dynamic sizes are at least 2, as PyTorch's guards
# say: x[1:] may have as many rows as x.
IN_PYTORCH = {(name, True) for name in RESULTS} - {(name, True) for name in (
    "a tensor and its transpose", "of an input that is written", "the rows of all", "expanded, as many bytes")}
IN_PYTORCH |= {("another dtype", False), ("windows", False)}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", RESULTS)
def test_results_share_memory(name: str, dynamic: bool) -> None:
    calls = (f32(4, 6),), (f32(5, 3),), (f32(8, 8)[2:, 1:7],), (f32(3, 5).t(),)
    if (name, dynamic) not in IN_PYTORCH:
        return assert_like_eager(RESULTS[name], *calls, dynamic=dynamic)
    with pytest.warns(backend.FallbackWarning):
        return assert_like_eager(RESULTS[name], *calls, dynamic=dynamic, fallback="warn")


def test_places_that_depend_on_a_dynamic_size() -> None:
    def step(x: Any) -> Any:
        y = (x * 2).t()
        return y[::2], y[1:], x[:, 1:], y, x[..., 2].t(), x + 1
    calls = [(f32(n, 6),) for n in (4, 3, 9)]
    for (x,) in calls:
        torch._dynamo.maybe_mark_dynamic(x, 0)
    assert_like_eager(step, *calls)


def _complex(x: Any) -> Any:
    return torch.complex(x, x + 1)


@pytest.mark.parametrize("function", [
    lambda x: ((y := _complex(x)), y.conj()),
    lambda x: ((y := _complex(x)), y.conj().imag),
    lambda x: ((y := _complex(x)).conj()[1:], y.conj()[:3]),
    lambda x: ((y := torch.fft.fft(x)), y.conj()),
    lambda x: ((y := x + 1), torch._neg_view(y)),
])
def test_conjugates_and_negatives_are_pytorchs(function: Function) -> None:
    with pytest.warns(backend.FallbackWarning, match="the conjugate or the negative of a tensor"):
        assert_like_eager(function, (f32(4),), (f32(4),), fallback="warn")


def test_parts_of_complex_numbers() -> None:
    for function in (lambda x: ((y := _complex(x)), y.real, y.imag), lambda x: ((y := _complex(x.double()))[:1], y.real)):
        torch._dynamo.reset()
        assert_like_eager(function, (f32(3),), (f32(3),), fallback="silent")


@pytest.mark.parametrize("function", [
    lambda x: (x.as_strided((2,), (1,), 1), x + 1),
    lambda x: (torch.as_strided(x, (2,), (1,), 1)[1:], (x + 1) * 2),
])
def test_as_strided_of_an_input_as_a_result(function: Function) -> None:
    for calls in ((f32(4),), (f32(8)[2:6],)), ((f32(8)[2:6],), (f32(4),)):
        torch._dynamo.reset()
        with pytest.warns(backend.FallbackWarning, match="as_strided of an input"):
            assert_like_eager(function, *calls, fallback="warn")


@pytest.mark.parametrize("function", [
    lambda a, b: (torch.atleast_2d(a, b)[1], a + 1),
    lambda a, b: (torch.broadcast_tensors(a, b)[1][1:], a + 1),
    lambda a, b: (torch.narrow(input=b, dim=0, start=1, length=2), a + 1),
    lambda a, b: (b.view(-1), a + 1),
])
def test_the_argument_that_a_result_is_a_view_of(function: Function) -> None:
    """Two share their memory in the first call, and not in the second; or the other way round."""
    together, apart = ((a := f32(4)), a[:]), (f32(4), f32(4))
    with pytest.warns(backend.FallbackWarning, match="one of several arguments"):
        assert_like_eager(function, together, apart, fallback="warn")
    torch._dynamo.reset()
    assert_like_eager(function, apart, together, apart)


def test_gradients() -> None:
    """Results that need none share memory among those that do, and views of parameters need none by themselves."""
    def step(p: Any, x: Any) -> Any:
        y = x + 1
        return p[1:], y, y, p.detach()[p.shape[0] // 2:], x[x.shape[0] // 2:]
    parameters = [torch.nn.Parameter(f32(n, 3)) for n in (4, 6, 4)]
    calls = [(p, f32(*p.shape)) for p in parameters]
    with torch.enable_grad():
        for dynamic in (False, True):
            torch._dynamo.reset()
            fast = torch.compile(step, backend="npugraph", dynamic=dynamic, options={"fallback": "silent"})
            for given in calls:
                mine, theirs = copy.deepcopy(given), copy.deepcopy(given)
                got, want = fast(*mine), step(*theirs)
                assert [t.requires_grad for t in got] == [t.requires_grad for t in want]
                for one, other in zip(got, want, strict=True):
                    assert difference(look(want, theirs), look(got, mine)) == ""
                    with torch.no_grad():
                        one[..., :1].add_(1)
                        other[..., :1].add_(1)
        torch._dynamo.reset()
        assert_like_eager(lambda p: (p.detach()[1:], p.detach() + 1), (parameters[0],))


def test_views_of_another_dtype_with_dynamic_sizes() -> None:
    with pytest.warns(backend.FallbackWarning, match="another dtype"):
        assert_like_eager(lambda x: (x.view(torch.int32)[x.shape[0] // 2:], x + 1), (f32(4, 3),), (f32(8, 3)[2:],), dynamic=True,
                          fallback="warn")


def test_a_default_device() -> None:
    fast, x = torch.compile(RESULTS["two rows"], backend="npugraph"), f32(4, 3)
    with torch.device("meta"):
        assert [t.device.type for t in fast(x)] == ["cpu", "cpu"]


def test_as_strided_sees_the_whole_storage() -> None:
    def step(x: Any) -> Any:
        moved = x.movedim(0, -1)
        before = moved.as_strided((1,), (1,), 1)
        moved.copy_((moved * 2 + 1).flip(0))
        return (before * 3,)
    for calls in ((f32(4),), (f32(8)[2:6],), (f32(8)[1:5],), (f32(4),)), ((f32(8)[2:6],), (f32(4),), (f32(8)[1:5],)):
        torch._dynamo.reset()
        with pytest.warns(backend.FallbackWarning, match="not at the beginning of its storage") as told:
            assert_like_eager(step, *calls, fallback="warn")
        assert len(told) == 1


def _adds(state: Any, x: Any) -> Any:
    state.add_(1)
    return x.as_strided((2,), (1,), 0) * 2 + state


def test_as_strided_of_a_later_input_is_refused() -> None:
    fast, x = torch.compile(_adds, backend="npugraph", dynamic=False, options={"fallback": "error"}), f32(8)
    state = torch.zeros(2)
    for _ in range(2):
        assert torch.equal(fast(state, x[:4]), x[:2] * 2 + state)
        before = state.clone()
        with pytest.raises(backend.NotCapturable, match="not at the beginning of its storage"):
            fast(state, x[2:6])
        assert torch.equal(state, before)
    assert state.tolist() == [2, 2]


def test_as_strided_beside_states_on_the_device() -> None:
    """What runs in PyTorch does not see them."""
    fast, x = torch.compile(_adds, backend="npugraph", dynamic=False, options={"resident_states": True}), f32(8)
    state, other = torch.zeros(2), torch.zeros(2)
    with pytest.warns(backend.FallbackWarning, match="resident_states"):
        for part in (x[:4], x[:4], x[2:6], x[:4], x[2:6]):
            assert torch.equal(fast(state, part), _adds(other, part))
    backend.pull(state)
    assert torch.equal(state, other)


def test_as_strided_of_an_expanded_input() -> None:
    with pytest.warns(backend.FallbackWarning, match="as_strided of an expanded tensor"):
        assert_like_eager(lambda x: (x.as_strided((4,), (1,), 0) + 1,), (f32(4, 1).expand(4, 4),), fallback="warn")


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
