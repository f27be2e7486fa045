# SPDX-License-Identifier: Apache-2.0
"""torch.compile with backend="npugraph": results against eager PyTorch, states, dynamic sizes, fallbacks, options."""
from __future__ import annotations

import ctypes
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from conftest import Daemon

import npugraph

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import npugraph.torch as backend  # noqa: E402
from npugraph import _abi  # noqa: E402
from npugraph.torch import FallbackWarning, NotCapturable  # noqa: E402
from npugraph.torch.answer import Answer, Writer  # noqa: E402
from npugraph.torch.translate import Update  # noqa: E402

Function = Callable[..., Any]


pytestmark = pytest.mark.usefixtures("fresh")


def compiled(function: Function, **options: Any) -> Function:
    return torch.compile(function, backend="npugraph", fullgraph=True, options=options)  # type: ignore[no-any-return]


def assert_same(got: Any, want: Any, tolerance: float) -> None:
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert_same(g, w, tolerance)
        return
    assert got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride()
    scale = max(want.nan_to_num(0, 0, 0).abs().max().item(), 1) if want.is_floating_point() and want.numel() else 1
    torch.testing.assert_close(got, want, rtol=0, atol=tolerance * scale if want.is_floating_point() else 0, equal_nan=True)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: Any) -> Any:
        def heads(y: Any, n: int) -> Any:
            return y.unflatten(-1, (n, 8)).transpose(1, 2)
        q, (k, v) = heads(self.q(x), 4), (heads(y, 2).repeat_interleave(2, 1) for y in self.kv(x).chunk(2, -1))
        mask = torch.ones(x.shape[1], x.shape[1]).tril(1).bool()
        return (F.scaled_dot_product_attention(q, k, v, is_causal=True),
                F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2))


class Norms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.rms = nn.LayerNorm(32), nn.RMSNorm(32)

    def forward(self, x: Any) -> Any:
        return self.layer(x), self.rms(x), F.log_softmax(x, -1), x.var(-1), x.float().std()


MODULES: dict[str, Callable[[], Any]] = {
    "mlp": lambda: nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8), nn.SiLU(), nn.Linear(8, 8, bias=False)),
    "attention": Attention,
    "norms": Norms,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str, dtype: Any) -> None:
    module = MODULES[name]().eval().to(dtype)
    fast = compiled(module)
    for _ in range(2):
        x = torch.randn(2, 5, 32, dtype=dtype)
        assert_same(fast(x), module(x), 1e-6 if dtype == torch.float32 else 2e-2)


def f32(*shape: int) -> Any:
    return torch.randn(shape)


FUNCTIONS: dict[str, tuple[Function, Callable[[], tuple[Any, ...]]]] = {
    "promotion": (lambda a, b: (a + b, a * 2.5, a > 1.5, a / b, b - a, 1 - b), lambda: (torch.arange(6), f32(6))),
    "integers": (lambda a: (a + 9007199254740993, a == 9007199254740993, a // 3, a % 3, -a, a ** 2),
                 lambda: (torch.tensor([0, 1, -7, 9007199254740993]),)),
    "bool": (lambda a, b: (a & b, a | ~b, a + b, a * b, a.sum(), a.any(), (a == b).all(0)),
             lambda: (torch.tensor([[True, False], [True, True]]), torch.tensor([[True, True], [False, True]]))),
    "views": (lambda x: (x.transpose(0, 1), x.permute(2, 0, 1), x[:, 1:, ::2], x[0], x.reshape(4, -1), x.flatten(),
                         x.unsqueeze(1), x[..., -1], x.expand(3, 2, 4, 6)), lambda: (f32(2, 4, 6),)),
    "joining": (lambda x, y: (torch.cat([x, y], 1), torch.stack([x, y]), *x.split(3, 1), *x.chunk(2), x.repeat(2, 3),
                              torch.roll(x, 1, 1), x.flip(0)), lambda: (f32(4, 8), f32(4, 8))),
    "indices": (lambda x, i: (x[i], x[:, i], x[i, 1:], x.index_select(1, i.abs()), x.gather(1, i.abs()[None].expand(2, 3)),
                              x.index_fill(0, i.abs(), 2.0)), lambda: (f32(5, 6), torch.tensor([0, -1, 2]))),
    "index of rank 2": (lambda x, i: (x[i], x[:, i]), lambda: (f32(5, 6, 2), torch.tensor([[0, -1], [2, 4]]))),
    "several indices": (lambda x, i, j: (x[i, j], x[i[:, None], j], x[:, i, j], x[0, i], x[:, -1, j]),
                        lambda: (f32(5, 6, 4), torch.tensor([0, -1, 2]), torch.tensor([3, 1, -4]))),
    "writes": (lambda x, i, m: (x.clone().index_put_((i,), torch.ones(6)), x.masked_fill(m, -1.0),
                                x.clone().index_copy_(1, i.abs(), torch.zeros(5, 3)), torch.where(m, x, 0.5),
                                x.scatter(1, i.abs()[None], 3.0), F.pad(x, (1, 2)), x.tril(), x.triu(1)),
               lambda: (f32(5, 6), torch.tensor([0, -1, 2]), torch.rand(5, 6) > 0.5)),
    "reductions": (lambda x: (x.sum(), x.sum(0), x.mean((0, 1)), x.amax(1), x.max(1), x.min(0, keepdim=True), x.argmax(),
                              x.argmin(1), x.cumsum(0), x.topk(2), x.sort(1, descending=True), x.prod(0), x.logsumexp(1)),
                   lambda: (f32(5, 6),)),
    "new tensors": (lambda x: (torch.arange(5), torch.arange(0, 9, 2), torch.full((2, 3), 7), torch.zeros_like(x),
                               torch.ones(3, dtype=torch.int32), x.new_full((2,), 2.5), torch.arange(3, dtype=x.dtype)),
                    lambda: (f32(2),)),
    "sizes 0 and 1": (lambda x, y: (x + y, torch.cat([x, y]), x.sum(1), y @ x.t()), lambda: (f32(0, 3), f32(1, 3))),
    "scalars of rank 0": (lambda x, y: (x * y, x + 1, y.view(1), torch.stack([x, y])), lambda: (f32(), f32())),
    "elementwise": (lambda x: (x.exp(), x.abs().sqrt(), x.sin(), x.cos(), x.tanh(), x.sigmoid(), x.rsqrt(), x.floor(), x.round(),
                               x.erf(), F.softplus(x), F.elu(x), F.hardtanh(x), F.leaky_relu(x), x.clamp(-0.5, 0.5), x.pow(3),
                               x.clamp(min=0), 2.0 ** x, x.sign(), x.isnan(), F.mish(x), F.relu6(x)), lambda: (f32(4, 9),)),
    "matrices": (lambda a, b, c: (a @ b, torch.addmm(c, a, b, beta=0.5, alpha=2), torch.einsum("ij,jk->ki", a, b), a @ b[:, 0],
                                  torch.baddbmm(c[None], a[None], b[None])), lambda: (f32(4, 5), f32(5, 6), f32(4, 6))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function, arguments = FUNCTIONS[name]
    given = arguments()
    assert_same(compiled(function)(*given), function(*given), 2e-6)


def test_inputs_that_are_not_contiguous() -> None:
    x = f32(6, 4).t()[::2]
    assert_same(compiled(lambda a: a * 2 + 1)(x).contiguous(), (x * 2 + 1).contiguous(), 0)


@pytest.mark.parametrize("make", [
    lambda: torch._neg_view(f32(4, 3)), lambda: torch.randn(1, 1, dtype=torch.complex64).conj().imag,
    lambda: torch.randn(4, 3, dtype=torch.complex64).conj().imag, lambda: torch._efficientzerotensor((4, 3))])
def test_numbers_that_are_not_in_memory_as_they_are(make: Callable[[], Any]) -> None:
    """A view that is negated when it is read; zeros without memory."""
    x, layer = make(), nn.Linear(3, 3)
    assert_same(compiled(lambda a: a * 2 + 1)(x).contiguous(), (x * 2 + 1).contiguous(), 0)
    layer.register_buffer("given", x)
    fast, a = compiled(lambda a: a * layer.given), f32(1)
    assert_same(fast(a).contiguous(), (a * x).contiguous(), 0)


@pytest.mark.parametrize("write", [lambda s, row: s.copy_(s + row), lambda s, row: s.index_copy_(0, torch.tensor([1]), row)])
def test_a_negated_view_is_written(write: Function) -> None:
    want, got = f32(4, 3), torch.zeros(4, 3)
    got.copy_(want)
    plain, fast = torch._neg_view(want), compiled(write)
    for state in (torch.zeros(4, 3), torch._neg_view(got), torch.zeros(4, 3)):
        row = f32(1, 3)
        if state.is_neg():
            write(plain, row)
        fast(state, row)
    assert_same(got, want, 0)


def test_a_tensor_whose_memory_was_taken_away() -> None:
    """PyTorch reads behind the end of such a storage; uploads and calls refuse the tensor."""
    fast, x, layer = compiled(lambda x: x * 2), f32(4, 3), nn.Linear(3, 3)
    read = compiled(lambda x: layer(x))
    assert_same(fast(x), x * 2, 0)
    assert_same(read(x), layer(x), 1e-6)
    given, buffer = x.t(), npugraph.connect().upload(x)
    x.untyped_storage().resize_(8)
    layer.weight.untyped_storage().resize_(8)
    for act in (lambda: fast(x), lambda: fast(given), lambda: read(f32(4, 3)), lambda: npugraph.connect().upload(given),
                lambda: buffer.read_into(x)):
        with pytest.raises(ValueError, match="needs (48|36) bytes, and its storage has 8 for it"):
            act()


def test_parameters_may_change() -> None:
    layer = nn.Linear(4, 4)
    fast, x = compiled(layer), f32(2, 4)
    assert_same(fast(x), layer(x), 1e-6)
    layer.weight.mul_(2)  # in place: the version tells
    assert_same(fast(x), layer(x), 1e-6)
    layer.weight.data = f32(4, 4)  # other memory
    assert_same(fast(x), layer(x), 1e-6)
    layer.load_state_dict({"weight": f32(4, 4), "bias": f32(4)}, assign=True)
    assert_same(fast(x), layer(x), 1e-6)
    frozen = compiled(nn.Linear(4, 4), frozen_parameter=True)
    assert frozen(x).shape == (2, 4)


def test_parameters_may_come_back() -> None:
    """.data is set to and fro, while other compiled functions use the device's copy; nothing in a version tells."""
    layer = nn.Linear(32, 32)
    first, second, x = compiled(lambda x: layer(x)), compiled(lambda x: layer(x) * 2), f32(2, 32)
    mine, other = layer.weight.data, f32(32, 32)
    for _ in range(2):
        layer.weight.data = mine
        assert_same(first(x), layer(x), 1e-5)
        layer.weight.data = other
        assert_same(second(x), layer(x) * 2, 1e-5)
    for _ in range(20):  # an allocator may give the memory of the weight before the last
        layer.weight.data = layer.weight.data + 0.1
        layer.weight.data = layer.weight.data + 0.1
        assert_same(first(x), layer(x), 1e-5)


def test_a_parameter_may_be_negated() -> None:
    layer, numbers, x = nn.Linear(4, 4), torch.randn(4, 4, dtype=torch.complex64), f32(2, 4)
    layer.weight.data = numbers.imag
    fast = compiled(lambda x: layer(x))
    assert_same(fast(x), layer(x), 1e-6)
    layer.weight.data = numbers.conj().imag  # the same memory
    assert_same(fast(x), layer(x), 1e-6)


class Counter(nn.Module):
    """Writes a buffer and two arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, cache: Any, total: Any, row: Any, at: Any) -> Any:
        before = cache.clone()
        cache.index_copy_(0, at, row)
        total[1:3] = row[:, :2].t()
        self.count += cache.sum()
        return before, cache * 2, self.count


@pytest.mark.parametrize("wrap", [lambda f: f, torch.inference_mode()])
def test_writes_to_inputs_come_back(wrap: Any) -> None:
    plain, other = Counter(), Counter()
    fast = wrap(compiled(other))
    caches = [[torch.zeros(4, 3), torch.zeros(4, 1)] for _ in range(2)]
    for step in range(4):
        row, at = f32(1, 3), torch.tensor([step])
        if step == 2:  # somebody else writes, too
            for cache, _ in caches:
                cache.mul_(3)
        assert_same(fast(*caches[1], row, at), wrap(plain)(*caches[0], row, at), 1e-6)
        assert_same(caches[1], caches[0], 1e-6)
        assert_same(other.count, plain.count, 1e-6)
    new = [torch.ones(4, 3), torch.ones(4, 1)]
    want = [t.clone() for t in new]
    assert_same(fast(*new, row, at), wrap(plain)(*want, row, at), 1e-6)
    assert_same(new, want, 1e-6)


def advance(cache: Any, other: Any, count: Any, row: Any) -> Any:
    """Writes rows at places that it counts itself, as the caches of transformers 5 do."""
    at = torch.arange(row.shape[0]) + count
    count.add_(row.shape[0])
    cache.index_copy_(0, at, row)
    other.index_copy_(1, at, row.t() * 2)
    return cache.sum(0), other.sum()


def states() -> list[Any]:
    return [torch.zeros(1000, 3), torch.zeros(3, 1000), torch.tensor(0)]


def test_rows_come_back_alone(monkeypatch: Any) -> None:
    sent: list[int] = []

    class Spy(Answer):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            sent.append(sum(self.sizes))
    monkeypatch.setattr("npugraph.torch.runner.Answer", Spy)
    fast, mine, theirs = compiled(advance), states(), states()
    for rows in (3, 1, 1, 1, 2, 1):
        row = f32(rows, 3)
        before = [t._version for t in mine]
        assert_same(fast(*mine, row), advance(*theirs, row), 1e-5)
        assert_same(mine, theirs, 1e-6)
        assert all(t._version > version for t, version in zip(mine, before, strict=True))  # as for anybody who watches
        if rows == 2:  # somebody else goes back, and writes
            for cache, other, count in (mine, theirs):
                cache[4:] = 5.0
                other.mul_(2)
                count.sub_(1)
    assert max(sent) < 300


@pytest.mark.parametrize("resident", [False, True])
def test_graphs_share_states(resident: bool) -> None:
    """Each graph sees what the other one, or the program, wrote to a state in between."""
    def reset(cache: Any, other: Any, count: Any, row: Any) -> Any:
        cache.mul_(0.5)
        count.fill_(1)
        return cache.sum(), other[:, 2]
    fast = {f: compiled(f, resident_states=resident) for f in (advance, reset)}
    mine, theirs = states(), states()
    for n, function in enumerate((advance, advance, reset, advance, reset, reset, advance, advance, advance)):
        row = f32(1, 3)
        assert_same(fast[function](*mine, row), function(*theirs, row), 1e-5)
        if n in (3, 7):
            backend.pull(*mine)
            mine[0].add_(n)
            theirs[0].add_(n)
    backend.pull(*mine)
    assert_same(mine, theirs, 1e-5)


def append(cache: Any, other: Any, at: Any, row: Any, place: Any) -> Any:
    cache.index_copy_(0, at, row)
    other.index_copy_(0, place, row)
    return cache.sum() + other.sum()


@pytest.mark.parametrize("resident", [False, True])
def test_what_a_failed_call_leaves(resident: bool) -> None:
    """States that come back are the caller's again; those on the device are not exchanged for an old copy."""
    fast = compiled(append, resident_states=resident)
    reader = compiled(lambda cache: cache.mul_(1).sum(), resident_states=resident)
    cache, other, rows = torch.zeros(8, 3), torch.zeros(8, 3), torch.ones(2, 3)
    for step in range(2):
        at = torch.tensor([step * 2, step * 2 + 1])
        fast(cache, other, at, rows, at)
    assert reader(cache) == 12
    with pytest.raises(npugraph.Error, match="INDEX_RANGE"):
        fast(cache, other, torch.tensor([0, 1]), rows, torch.tensor([99, 99]))
    assert reader(cache) == 12
    at = torch.tensor([4, 5])
    assert fast(cache, other, at, rows, at) == 36
    backend.pull(cache, other)
    assert cache.sum() == other.sum() == 18


@pytest.mark.parametrize("resident", [False, True])
def test_a_call_that_is_too_large_leaves_states(resident: bool) -> None:
    def step(cache: Any, x: Any) -> Any:
        cache.add_(1)
        return x * 2
    fast = torch.compile(step, backend="npugraph", dynamic=True, options={"resident_states": resident, "gears": (2, 4)})
    cache = torch.zeros(4)
    for rows in (2, 3):
        fast(cache, torch.ones(rows))
    with pytest.raises(ValueError, match="gears"):
        fast(cache, torch.ones(9))
    fast(cache, torch.ones(3))
    backend.pull(cache)
    assert cache.tolist() == [3] * 4


@pytest.mark.parametrize("make", [lambda: torch.tensor([0, 1]), lambda: torch.tensor([0, 9, 1, 9])[::2]])
@pytest.mark.parametrize("first", [False, True])
def test_an_index_that_the_graph_changes(make: Callable[[], Any], first: bool) -> None:
    """Rows are written where the index was before."""
    def step(one: Any, two: Any, row: Any) -> Any:
        at, cache = (one, two) if first else (two, one)
        cache.index_copy_(0, at, row)
        at[0:2].add_(2)
        return cache.sum(0)
    fast = compiled(step)
    mine, theirs = ([make(), torch.zeros(8, 3)][::1 if first else -1] for _ in range(2))
    for _ in range(3):
        row = f32(2, 3)
        assert_same(fast(*mine, row), step(*theirs, row), 1e-6)
        assert_same(mine, theirs, 1e-6)


def test_a_buffer_that_another_graph_wrote() -> None:
    plain, module = Counter(), Counter()
    write, read = compiled(module), compiled(lambda x: x + module.count)
    row, at, x = f32(1, 3), torch.tensor([1]), f32(3)
    for _ in range(3):
        caches = [[torch.ones(4, 3), torch.zeros(4, 1)] for _ in range(2)]
        write(*caches[0], row, at)
        plain(*caches[1], row, at)
        assert_same(read(x), x + plain.count, 1e-6)
        module.count.add_(1)
        plain.count.add_(1)
        assert_same(read(x), x + plain.count, 1e-6)


def written(updates: list[Update], *calls: tuple[list[Any], list[Any]]) -> None:
    """Writes outputs to tensors as after replays of one graph."""
    writer = Writer(updates)
    for tensors, outputs in calls:
        outs = (_abi.npugraph_output * len(outputs))(*((t.data_ptr(), t.nbytes) for t in outputs))
        pointer = ctypes.cast(outs, ctypes.POINTER(_abi.npugraph_output))
        writer.write(tensors, Answer(pointer, len(outputs), range(len(outputs)), []))


def test_an_answer_of_other_sizes_changes_nothing() -> None:
    updates = [Update(0, "whole", 0), Update(1, "rows", 1, computed=2), Update(2, "part", 3, length=1)]
    tensors = [torch.zeros(4), torch.zeros(4, 2), torch.zeros(3)]
    good = [torch.ones(4), torch.ones(2, 2), torch.tensor([0, 3]), torch.ones(1)]
    for n in range(4):
        with pytest.raises(npugraph.Error, match="has [0-9]+ bytes"):
            written(updates, (tensors, good), (tensors, [torch.ones(7) if n == k else t * 2 for k, t in enumerate(good)]))
        assert [t.tolist() for t in tensors] == [[1] * 4, [[1, 1], [0, 0], [0, 0], [1, 1]], [1, 0, 0]]


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("dim, make", [
    (0, lambda: torch.zeros(4, 2)), (1, lambda: torch.zeros(2, 4, 2)), (2, lambda: torch.zeros(3, 3, 4)),
    (1, lambda: torch.zeros(4, 2).t()), (0, lambda: torch.zeros(4, 0))])
def test_rows_are_written_as_by_index_copy(dim: int, make: Callable[[], Any], computed: bool) -> None:
    updates = [Update(0, "rows", 0, dim, -1 if computed else 1, 1 if computed else -1), Update(2, "whole", 2)]
    state, want, other = make(), make(), torch.zeros(1)
    for rows in ([3], [0], [1, 2], [2]):
        shape = list(state.shape)
        shape[dim] = len(rows)
        new, at, version = torch.rand(shape), torch.tensor(rows), state._version
        written(updates, ([state, at, other], [new, at, torch.ones(1)]))
        assert torch.equal(state, want.index_copy_(dim, at, new)) and (state._version > version or not state.numel())
    for bad in (-1, 4, 1 << 62):
        if state.numel():
            at, other = torch.tensor([bad]), torch.zeros(1)
            with pytest.raises(IndexError):
                written(updates, ([state, at, other], [new, at, torch.ones(1)]))
            assert torch.equal(state, want) and other == 0


def test_states_of_inference_mode() -> None:
    plain, fast = Counter(), compiled(Counter())
    with torch.inference_mode():
        caches = [[torch.zeros(4, 3), torch.zeros(4, 1)] for _ in range(2)]
        for step in range(3):
            row, at = f32(1, 3), torch.tensor([step])
            for cache, _ in caches:
                cache.add_(step)  # which no version tells
            assert_same(fast(*caches[1], row, at), plain(*caches[0], row, at), 1e-6)
            assert_same(caches[1], caches[0], 1e-6)


def test_two_inputs_change_places() -> None:
    def swap(a: Any, b: Any) -> Any:
        old = a.clone()
        a.copy_(b)
        b.copy_(old)
        return old
    a, b = f32(3), f32(3)
    x, y = a.clone(), b.clone()
    assert_same(compiled(swap)(x, y), a, 0)
    assert_same((x, y), (b, a), 0)


def test_resident_states_are_pulled() -> None:
    def step(cache: Any, at: Any, row: Any) -> Any:
        cache.index_copy_(0, at, row)
        return cache.sum(0)
    fast = compiled(step, resident_states=True)
    cache, want = torch.zeros(4, 2), torch.zeros(4, 2)
    for n in range(3):
        row = f32(1, 2)
        assert_same(fast(cache, torch.tensor([n]), row), step(want, torch.tensor([n]), row), 1e-6)
    assert not cache.any()
    backend.pull(cache)
    assert_same(cache, want, 0)
    assert_same(fast(cache, torch.tensor([3]), row), step(want, torch.tensor([3]), row), 1e-6)


@pytest.mark.parametrize("resident", [False, True])
def test_states_come_and_go(daemon: Daemon, resident: bool) -> None:
    def step(cache: Any, row: Any) -> Any:
        cache[2:3] = row
        return cache.sum()
    fast, used = compiled(step, resident_states=resident), []
    for n in range(12):
        cache = torch.zeros(1000, 100)  # where the last one was, as a rule
        cache[0, 0] = n
        row = torch.full((1, 100), 1.0)
        assert fast(cache, row).item() == n + 100
        assert cache[2].sum().item() == (0 if resident else 100)
        del cache
        device = daemon.stats()["devices"][0]
        used.append(device["used_bytes"] - device["pool_bytes"])
    assert used[-1] <= used[2] <= used[0] + 3 * 400000


def test_inputs_and_results_beyond_a_message() -> None:
    def function(x: Any, y: Any, state: Any) -> Any:
        state.add_(x[:, :3])
        return x + 1, y * 2, x.sum() + y.sum(), (x @ y.t())[:2]
    x, y, state = f32(1500, 1000), f32(1300, 1000), f32(1500, 3)  # 6 and 5 MB
    want, other = function(x, y, mine := state.clone()), compiled(function)
    for _ in range(2):
        assert_same(other(x, y, theirs := state.clone()), want, 1e-4)
        assert_same(theirs, mine, 1e-6)
    x, y = y, x[:1300]
    assert_same(compiled(lambda a: (a * 3,) * 1 + tuple(a + n for n in range(5)))(x),
                (x * 3, *(x + n for n in range(5))), 0)


def test_dynamic_sizes() -> None:
    module = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.LayerNorm(16), nn.Linear(16, 4))
    fast = torch.compile(module, backend="npugraph", fullgraph=True, dynamic=True)
    for rows in (3, 2, 7, 5000, 9000):  # beyond the first largest size
        x = f32(rows, 8)
        assert_same(fast(x), module(x), 1e-6)

    def mixed(x: Any, at: Any) -> Any:
        n = x.shape[0]
        return x.reshape(-1), torch.arange(n), x.sum(0) / n if n else x, x[: n // 2], torch.cat([x, x]), x[at], x[at, at], n
    fast = torch.compile(mixed, backend="npugraph", dynamic=True)
    for rows in (4, 9):
        x = f32(rows, 6)
        at = torch.tensor([0, -1, 2])
        got, want = fast(x, at), mixed(x, at)
        assert got[-1] == want[-1]
        assert_same(got[:-1], want[:-1], 1e-6)


def test_gears_share_a_capture(daemon: Daemon) -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    fast = torch.compile(module, backend="npugraph", fullgraph=True, dynamic=True, options={"gears": [4, 16]})
    before = captures(daemon)
    for rows in (2, 3, 4, 9, 16):
        x = f32(rows, 8)
        assert_same(fast(x), module(x), 1e-6)
    assert captures(daemon) == before + 2
    with pytest.raises(ValueError, match="17, and the largest of the option gears 16"):
        fast(f32(17, 8))


def captures(daemon: Daemon) -> int:
    return int(daemon.stats()["captures_total"])


def decoder(family: str, dtype: Any) -> tuple[Any, Any]:
    transformers = pytest.importorskip("transformers")
    kind, config = {"qwen3": (transformers.Qwen3ForCausalLM, transformers.Qwen3Config),
                    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig)}[family]
    made = config(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, head_dim=8, max_position_embeddings=64)
    return kind(made).eval().to(dtype), made


def decode(function: Function, config: Any, steps: int) -> tuple[Any, Any]:
    from transformers import StaticCache
    cache = StaticCache(config=config, max_cache_len=16)
    tokens, positions, logits = torch.arange(1, 6)[None], torch.arange(5), []
    for step in range(steps):
        out = function(tokens, past_key_values=cache, cache_position=positions, use_cache=True)
        logits.append(out.logits[:, -1])
        tokens, positions = torch.tensor([[(7 * step + 3) % 64]]), torch.tensor([5 + step])
    return torch.stack(logits), cache


@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decoders_of_transformers(family: str, dtype: Any) -> None:
    model, config = decoder(family, dtype)
    tolerance = 2e-6 if dtype == torch.float32 else 3e-2
    want, theirs = decode(model, config, 8)
    got, ours = decode(compiled(model), config, 8)
    assert_same(got, want, tolerance)
    for a, b in zip(ours.layers, theirs.layers, strict=True):
        assert_same((a.keys, a.values), (b.keys, b.values), tolerance)


def test_transformers_generates_from_padded_prompts() -> None:
    model, _ = decoder("qwen3", torch.float32)
    tokens, mask = torch.arange(1, 11).reshape(2, 5), torch.tensor([[0, 0, 1, 1, 1], [1] * 5])
    how = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False, "cache_implementation": "static",
           "disable_compile": True, "pad_token_id": 0}
    want = model.generate(tokens, **how)
    model.forward = torch.compile(model.forward, backend="npugraph")
    assert torch.equal(model.generate(tokens, **how), want)


# ---- what is not captured -------------------------------------------------------------------------------------------

def with_erfinv(x: Any) -> Any:
    y = (x * 0.5).tanh() * 0.9 + 0.01
    z = torch.special.erfinv(y) + torch.special.erfinv(y * 0.5)
    return (z * 2).sigmoid().sum(-1) + 1


@pytest.mark.parametrize("function, args", [
    (lambda x: (x == -1, x < 300, x > -1), (torch.arange(256).to(torch.uint8),)),
    (lambda x: x < 200, (torch.arange(-128, 128).to(torch.int8),)),
    (lambda x: x == 2 ** 40, (torch.zeros(3, dtype=torch.int32),)),
    (lambda x: torch.div(x, 0.3, rounding_mode="trunc"), (torch.linspace(-50, 50, 999, dtype=torch.bfloat16),)),
    (lambda x: x // 0.3, (torch.linspace(-50, 50, 999, dtype=torch.float16),)),
    (lambda x: torch.log2(x).floor().long(), (2.0 ** torch.arange(-20, 20),)),
    (torch.log1p, (torch.tensor([3e38, 1e-20, 0, -1, float("inf")]),)),
], ids=["u8", "i8", "i32", "trunc", "floor", "log2", "log1p"])
def test_what_rounds_or_wraps_otherwise(function: Function, args: tuple[Any, ...]) -> None:
    """It runs in PyTorch, or is right: never in the daemon with another result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        assert_same(torch.compile(function, backend="npugraph")(*args), function(*args), 1e-6)


def test_parts_write_to_inputs() -> None:
    here, there = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    x = torch.randn(8, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        got = torch.compile(here, backend="npugraph")(x)
    assert_same(got, there(x), 1e-6)
    assert_same(list(here.buffers()), list(there.buffers()), 1e-6)


def test_frozen_parameters_are_of_their_module() -> None:
    layers = [nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)]
    x = torch.randn(2, 4)
    for _ in range(2):
        for layer in layers:
            assert_same(compiled(layer.forward, frozen_parameter=True)(x), layer(x), 1e-6)


def test_forgotten_connections_are_opened_again() -> None:
    function = compiled(lambda x: x * 2 + 1)
    x = torch.ones(3)
    assert_same(function(x), x * 2 + 1, 0)
    backend.forget()
    assert_same(function(x), x * 2 + 1, 0)


def test_missing_operators_are_named() -> None:
    x = f32(3, 4)
    with pytest.raises(Exception, match=r"there is no operator aten.erfinv \(2 times\)") as caught:
        compiled(with_erfinv)(x)
    assert NotCapturable.__name__ in str(caught.value)
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"aten\.erfinv"):
        torch.compile(with_erfinv, backend="npugraph", options={"fallback": "error"})(x)


DRAWING = {"rand": lambda x: torch.rand(4) + x, "randn_like": lambda x: torch.randn_like(x) + x,
           "randperm": lambda x: torch.randperm(40) + x[0], "randint": lambda x: torch.randint(0, 90, (4,)) + x,
           "multinomial": lambda x: torch.multinomial(torch.ones(90), 4) + x,
           "native_dropout": lambda x: F.dropout(x.expand(40, 4), 0.5, True) + 1}
OTHERS = {"_embedding_bag": lambda x: F.embedding_bag(torch.tensor([1, 2, 0]), x[:, None], torch.tensor([0, 2])) * 2,
          "_fft_r2c": lambda x: torch.fft.fft(x).abs() + 1, "_fft_c2r": lambda x: torch.fft.irfft(torch.fft.rfft(x)) * 2}


@pytest.mark.parametrize("name", [*DRAWING, *OTHERS])
def test_what_is_left_to_pytorch_is_named_once(name: str) -> None:
    function, x = (DRAWING | OTHERS)[name], f32(4)
    fast = torch.compile(function, backend="npugraph")
    with pytest.warns(FallbackWarning, match=f"aten.{name}") as told:
        results = [fast(x) for _ in range(3)]
    assert len([w for w in told if w.category is FallbackWarning]) == 1
    if name in OTHERS:
        assert_same(results, [function(x)] * 3, 1e-6)
    else:
        assert not torch.equal(*results[:2]) and not torch.equal(*results[1:])


@pytest.mark.parametrize(("function", "missing"), [
    (lambda x: x[x.nonzero()[:, 0]] * 2 + 1, "aten.nonzero"),
    (lambda x: x[x > 0] * 2 + 1, "the size of its result depends on data")])
def test_sizes_that_depend_on_data(function: Function, missing: str) -> None:
    x = torch.tensor([1.0, -2.0, 0.0, 3.0])
    with pytest.raises(Exception, match="NotCapturable") as caught:
        compiled(function)(x)
    assert missing in str(caught.value) and "a condition on numbers or sizes that depend on data" in str(caught.value)
    assert "register_decomposition" not in str(caught.value)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True), pytest.warns(FallbackWarning, match=re.escape(missing)):
        fast = torch.compile(function, backend="npugraph")
        assert_same(fast(x), function(x), 0)
        assert_same(fast(x.flip(0) - 1), function(x.flip(0) - 1), 0)


def test_the_rest_runs_in_pytorch(daemon: Daemon) -> None:
    x, before = f32(3, 4), registered(daemon)
    fast = torch.compile(with_erfinv, backend="npugraph")
    with pytest.warns(FallbackWarning, match="in part: there is no operator aten.erfinv"):
        assert_same(fast(x), with_erfinv(x), 1e-6)
    assert registered(daemon) == before + 2  # before erfinv, and behind it
    assert_same(fast(x + 1), with_erfinv(x + 1), 1e-6)

    def doubles(x: Any) -> Any:
        return (x.double() * 2).sum()
    with pytest.warns(FallbackWarning, match="float64"):
        assert_same(torch.compile(doubles, backend="npugraph")(x), doubles(x), 0)

    def mask(x: Any, at: Any) -> Any:
        at.add_(1)
        return torch.special.erfinv(x.tanh() * 0.5)
    at = torch.zeros(2)
    with pytest.warns(FallbackWarning):
        torch.compile(mask, backend="npugraph")(x, at)
    assert at.tolist() == [1, 1]


def registered(daemon: Daemon) -> int:
    return int(daemon.stats()["requests"]["by_method"]["npugraph.v1.Graphs/Register"])


def test_gradients_are_pytorchs() -> None:
    layer, x = nn.Linear(3, 3), f32(2, 3)
    with torch.enable_grad(), pytest.warns(FallbackWarning, match="no_grad"):
        torch.compile(layer, backend="npugraph")(x).sum().backward()
    assert layer.weight.grad is not None and torch.equal(layer.bias.grad, torch.full((3,), 2.0))


def test_an_index_out_of_range_is_refused() -> None:
    table = nn.Embedding(4, 2)
    with pytest.raises(npugraph.OutOfRange, match="INDEX_RANGE"):
        compiled(table)(torch.tensor([4]))
    pair = compiled(lambda x, i, j: x[i, j])
    for i, j in ((0, 4), (-4, 0), (3, 0), (0, -5)):  # each element of the merged dimension that they would meet exists
        with pytest.raises(npugraph.OutOfRange, match="INDEX_RANGE"):
            pair(f32(3, 4), torch.tensor([i]), torch.tensor([j]))


# ---- options --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("options", "message"), [
    ({"froce_eager": True}, "is it force_eager"),
    ({"super_kernel_optimize": True}, "has no meaning for npugraphd"),
    ({"gears": [4, 2]}, "ascending"),
    ({"fallback": "never"}, "allowed are warn, silent, error"),
    ({"reconnect": "yes"}, "allowed are True and False"),
    ({"capture_limit": None}, "cannot be None"),
    ({"capture_limit": 0}, "capture_limit"),
    ({"force_eager": "maybe"}, "force_eager"),
])
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        compiled(nn.Linear(2, 2), **options)(f32(1, 2))


def test_options_of_npugraph_ex() -> None:
    seen = []
    layer, x = nn.Linear(2, 2), f32(1, 2)
    options = {"force_eager": True, "inplace_pass": False, "use_graph_pool": (0, 7), "super_kernel_optimize": False,
               "clone_output": True, "capture_limit": 3,
               "post_grad_custom_pre_pass": lambda gm, inputs, config: seen.append(type(gm).__name__)}
    fast = torch.compile(layer, backend="npugraph_ex", options=options)
    assert_same(fast(x), layer(x), 1e-6)
    assert len(seen) == 1 and "npugraph_ex" in torch._dynamo.list_backends()


def test_options_are_the_daemons() -> None:
    from npugraph.torch.options import DAEMON, PASSES  # and capture_error_mode, of which only the default is taken
    page = (pathlib.Path(__file__).parents[2] / "docs" / "options.md").read_text()
    assert sorted(re.findall(r"^\| `(\w+)`", page, re.M)) == sorted({*DAEMON, *PASSES, "capture_error_mode"})


# ---- several processes, and lost daemons ----------------------------------------------------------------------------

PROCESS = """
import torch, npugraph.torch
from torch import nn
torch.manual_seed(3)
layer = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4)).eval()
with torch.no_grad():
    fast = torch.compile(layer, backend="npugraph", fullgraph=True, options={"weights_dir": WEIGHTS})
    x = torch.ones(2, 256)
    assert torch.allclose(fast(x), layer(x), atol=1e-5)
    print("ready", flush=True)
    input()
"""


def test_two_processes_share_captures_and_weights(tmp_path: pathlib.Path) -> None:
    with_weights = Daemon(tmp_path)
    env = {**os.environ, "NPUGRAPH_ADDRESS": with_weights.address}
    program = textwrap.dedent(PROCESS).replace("WEIGHTS", repr(str(tmp_path)))
    used, processes = [], []
    for _ in range(2):
        process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        processes.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        device = with_weights.stats()["devices"][0]
        used.append(device["used_bytes"] - device["pool_bytes"])
        assert captures(with_weights) == 1
    assert used[0] > 256 * 256 * 4 and used[1] - used[0] < 4096
    for process in processes:
        process.communicate(b"\n", timeout=60)
        assert process.returncode == 0
    with_weights.stop()


def test_a_killed_daemon(tmp_path: pathlib.Path) -> None:
    first = Daemon(tmp_path)
    layer, x = nn.Linear(3, 3), f32(2, 3)
    strict = compiled(layer, address=first.address)
    going_on = compiled(lambda a, b: (b.add_(layer(a)), b * 2), address=first.address + "", reconnect=True)
    state, want = torch.zeros(2, 3), torch.zeros(2, 3)
    strict(x)
    going_on(x, state)
    first.kill()
    with pytest.raises(npugraph.Unavailable):
        strict(x)
    (tmp_path / "s").unlink(missing_ok=True)
    second = Daemon(tmp_path)
    got = going_on(x, state)
    want += 2 * layer(x)
    assert_same(got, (want, want * 2), 1e-5)
    assert_same(state, want, 1e-5)
    backend.forget()
    second.stop()
