# SPDX-License-Identifier: Apache-2.0
"""Calls of compiled functions: what is left out between PyTorch and the daemon, and what is compared while it computes."""
from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

import npugraph

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import npugraph.torch as backend  # noqa: E402
from npugraph.graphs import PreparedReplay  # noqa: E402
from npugraph.torch.direct import direct, hands_on  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh")
Function = Callable[..., Any]


def compiled(function: Function, **options: Any) -> Function:
    return torch.compile(function, backend="npugraph", fullgraph=True, options=options)  # type: ignore[no-any-return]


def f32(*shape: int) -> Any:
    return torch.randn(shape)


def assert_same(got: Any, want: Any, tolerance: float) -> None:
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


# What is compiled, its arguments, and whether PyTorch's wrappers have nothing to do.
WRAPPED: dict[str, tuple[Function, Callable[[], Any], bool]] = {
    "plain": (lambda x, y: (x + y, x * y), lambda: (f32(3, 4), f32(3, 4)), True),
    "writes": (lambda x, y: (x.add_(y), y.sum())[1], lambda: (f32(3, 4), f32(3, 4)), True),
    "an input comes back": (lambda x, y: (x, x + y), lambda: (f32(3, 4), f32(3, 4)), True),
    "one tensor twice": (lambda x, y: x.add_(1) + y, lambda: (f32(3, 4),) * 2, True),
    "a view of an input": (lambda x: (x.t(), x * 2), lambda: (f32(3, 4),), False),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappers_are_left_out_where_they_do_nothing(name: str, monkeypatch: Any) -> None:
    function, make, expected = WRAPPED[name]
    made: list[Any] = []

    def spy(*arguments: Any) -> Any:
        made.append(direct(*arguments))
        return made[-1]
    monkeypatch.setattr(sys.modules["npugraph.torch.backend"], "direct", spy)
    fast = compiled(function)
    for _ in range(3):
        mine = make()
        known = {id(t): t.clone() for t in mine}
        theirs = [known[id(t)] for t in mine]
        got, want = fast(*mine), function(*theirs)
        assert_same(got, want, 1e-6)
        assert_same(list(mine), theirs, 1e-6)
        for ours, other in (zip(got, want, strict=True) if isinstance(got, tuple) else []):
            assert [ours is t for t in mine] == [other is t for t in theirs] and ours._is_view() == other._is_view()
    assert bool(made) == expected


def test_wrappers_that_do_something_are_kept() -> None:
    plain = {"input_info": [1, 2], "output_info": [types.SimpleNamespace(output_type="OutputType.non_alias")], "tokens": {},
             "num_mutated_inp_runtime_indices": 0, "num_intermediate_bases": 0, "dynamic_outputs": False,
             "grad_enabled_mutation": None}
    given = [f32(1), f32(1)]
    assert hands_on(types.SimpleNamespace(**plain), 2, given)
    for field, value in (("input_info", [1]), ("tokens", {"a": 1}), ("num_mutated_inp_runtime_indices", 1),
                         ("dynamic_outputs", True), ("num_intermediate_bases", 1), ("grad_enabled_mutation", False),
                         ("output_info", [types.SimpleNamespace(output_type="OutputType.alias_of_input")])):
        assert not hands_on(types.SimpleNamespace(**{**plain, field: value}), 2, given)
    assert not hands_on(types.SimpleNamespace(**plain), 1, given) and not hands_on(types.SimpleNamespace(), 2, given)
    nested = torch.nested.nested_tensor([f32(1), f32(2)], layout=torch.jagged)
    assert not hands_on(types.SimpleNamespace(**plain), 2, [f32(1), nested])


def test_calls_leave_the_mode_of_gradients_as_it_is() -> None:
    with torch.enable_grad():
        fast, x, at = compiled(lambda x, at: x[at] * 2), f32(4, 3), torch.tensor([1])
        assert not fast(x, at).requires_grad and torch.is_grad_enabled()
        with pytest.raises(npugraph.Error, match="INDEX_RANGE"):
            fast(x, torch.tensor([9]))
        assert torch.is_grad_enabled()
    state = torch.zeros(3)
    write = compiled(lambda s, x: (s.add_(x), x * 2)[1])
    for _ in range(3):
        version = state._version
        write(state, torch.ones(3))
        assert state._version > version
    assert state.tolist() == [3] * 3


def test_a_graph_that_is_refused_late_runs_without_autocast(monkeypatch: Any) -> None:
    """The casts of autocast are in the graph; PyTorch must not make them again."""
    def refuse(*_: Any) -> Any:
        raise npugraph.GraphRefused("GRAPH_LIMIT", "too large")
    monkeypatch.setattr("npugraph.torch.runner.Runner._register", refuse)
    layer, x = nn.Linear(4, 4), f32(2, 4)
    with torch.autocast("cpu", torch.bfloat16), pytest.warns(backend.FallbackWarning, match="too large"):
        fast = torch.compile(lambda x: (layer(x), layer.weight @ x.t().float()), backend="npugraph")
        got, want = fast(x), (layer(x), layer.weight @ x.t().float())
    assert_same(got, want, 1e-6)


class Step(nn.Module):
    """A step that reads parameters and a table, and writes a row of a cache, and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("table", torch.tensor([1, 2, 0, 3]))

    def forward(self, cache: Any, count: Any, x: Any) -> Any:
        cache.index_copy_(0, self.table[count.view(1)], self.layer(x))
        count.add_(1).remainder_(4)
        return cache * 2, self.layer.bias + count


CHANGES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "nothing": lambda step, cache, count: None,
    "a parameter in place": lambda step, cache, count: step.layer.weight.mul_(-1.5),
    "a parameter's memory": lambda step, cache, count: setattr(step.layer.weight, "data", step.layer.weight.data.t() * 2),
    "a parameter's sign": lambda step, cache, count: setattr(step.layer.weight, "data", torch._neg_view(step.layer.weight.data)),
    "another parameter": lambda step, cache, count: setattr(step.layer, "bias", nn.Parameter(step.layer.bias + 1)),
    "a state": lambda step, cache, count: cache.add_(3),
    "a state's memory": lambda step, cache, count: setattr(cache, "data", cache.data * 2),
    "a counter": lambda step, cache, count: count.fill_(1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_after_calm_calls(name: str) -> None:
    """Tensors are compared while the daemon computes; a call before which one has changed is made again."""
    ours, theirs = Step(), Step()
    theirs.load_state_dict(ours.state_dict())
    fast, change = compiled(ours), CHANGES[name]
    mine, want = ([torch.zeros(4, 3), torch.tensor(0)] for _ in range(2))
    for n in range(16):
        if n in (7, 8, 13):
            change(ours, *mine)
            change(theirs, *want)
        x = f32(1, 3)
        assert_same(fast(*mine, x), theirs(*want, x), 1e-5)
        assert_same(mine, want, 1e-5)


def test_parameters_may_change_while_pytorch_compares_nothing() -> None:
    """The stance that docs/pytorch.md shows: PyTorch tells forms apart, and the backend compares parameters."""
    layer = nn.Linear(4, 4)
    fast = torch.compile(layer, backend="npugraph", fullgraph=True, dynamic=False)
    for rows in (3, 1):
        fast(f32(rows, 4))
    with torch.compiler.set_stance(skip_guard_eval_unsafe=True):
        for n in range(12):
            x = f32(3 if n % 3 else 1, 4)
            if n in (5, 6):
                layer.weight.mul_(2)
            if n == 9:
                layer.bias.data = f32(4)
            assert_same(fast(x), layer(x), 1e-5)


def test_calls_are_made_again_only_where_something_changes(monkeypatch: Any) -> None:
    sent: list[bool] = []
    send = PreparedReplay.run

    def spy(self: Any, meanwhile: Any = None) -> Any:
        sent.append(meanwhile is not None)
        return send(self, meanwhile)
    monkeypatch.setattr(PreparedReplay, "run", spy)
    step, (cache, count), x = Step(), [torch.zeros(4, 3), torch.tensor(0)], f32(1, 3)
    fast = compiled(step)
    for _ in range(6):
        fast(cache, count, x)
    assert sent == [False] * 3 + [True] * 3
    sent.clear()
    step.layer.weight.mul_(2)
    for _ in range(4):
        fast(cache, count, x)
    assert sent == [True, False, False, False, True] or sent == [True, False, False, False, False]
    sent.clear()
    for _ in range(6):
        count.fill_(1)  # before each call: nothing is computed in vain
        fast(cache, count, x)
    assert sum(sent) <= 1 and len(sent) <= 7


def test_tables_that_are_wrong_for_a_while() -> None:
    step, (cache, count), x = Step(), [torch.zeros(4, 3), torch.tensor(0)], f32(1, 3)
    fast = compiled(step)
    for _ in range(6):
        fast(cache, count, x)
    before, table = cache.clone(), step.table.clone()
    step.table.fill_(9)
    for _ in range(2):
        with pytest.raises(npugraph.Error, match="INDEX_RANGE"):
            fast(cache, count, x)
    assert torch.equal(cache, before) and int(count) == 2
    step.table.copy_(table)
    want = [before.clone(), count.clone()]
    assert_same(fast(cache, count, x), step(*want, x), 1e-5)
    assert_same([cache, count], want, 1e-5)


def test_a_cache_that_moves_after_a_call_that_failed() -> None:
    """That its memory was compared for the call that failed counts for nothing."""
    step, (cache, count) = Step(), [torch.zeros(4, 3), torch.tensor(0)]
    fast = compiled(step)
    want = [cache.clone(), count.clone()]
    for n in range(12):
        x = f32(1, 3)
        if n in (5, 9):
            step.table.add_(9)
            with pytest.raises(npugraph.Error, match="INDEX_RANGE"):
                fast(cache, count, x)
            step.table.sub_(9)
            old, cache.data = cache.data, cache.data.clone()
            assert old.data_ptr() != cache.data_ptr()
        assert_same(fast(cache, count, x), step(*want, x), 1e-5)
        assert_same([cache, count], want, 1e-5)
        if n in (5, 9):
            assert not torch.equal(old, cache)


def test_caches_take_turns_and_another_graph_keeps_one_on_the_device() -> None:
    step = Step()
    fast, other = compiled(step), compiled(lambda cache: cache.mul_(2).sum(), resident_states=True)
    mine, want = ([[torch.zeros(4, 3), torch.tensor(0)] for _ in range(2)] for _ in range(2))
    for n in range(24):
        k, x = (n // 5) % 2 if n < 18 else n % 2, f32(1, 3)
        if n in (9, 14):
            backend.pull(mine[k][0])
            other(mine[k][0])
            want[k][0].mul_(2)
        assert_same(fast(*mine[k], x), step(*want[k], x), 1e-5)
    assert_same(mine, want, 1e-5)
