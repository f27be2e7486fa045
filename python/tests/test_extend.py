# SPDX-License-Identifier: Apache-2.0
"""What a program adds to the backend: replacements of patterns, and its own operators."""
from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from npugraph.torch import (  # noqa: E402
    FallbackWarning,
    cache_compile,
    register_converter,
    register_decomposition,
    register_replacement,
)
from npugraph.torch.extend import forget_extensions  # noqa: E402


@pytest.fixture(autouse=True)
def forgets(fresh: None) -> Iterator[None]:
    yield
    forget_extensions()


def compiled(function: Any, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend="npugraph", fullgraph=True, options=options)


@torch.library.custom_op("npugraph_test::twice_plus", mutates_args=())
def twice_plus(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return 2 * x + y


@twice_plus.register_fake
def _(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("npugraph_test::fill_", mutates_args=("x",))
def fill_(x: torch.Tensor) -> None:
    x.fill_(7)


library = torch.library.Library("npugraph_test", "FRAGMENT")
library.define("halved(Tensor x, float by=2.0) -> Tensor")
library.impl("halved", lambda x, by=2.0: x / by, "CompositeImplicitAutograd")


# ---- replacements ---------------------------------------------------------------------------------------------------

def scaled(x: Any, y: Any) -> Any:
    return x * 2 + y


def other(x: Any, y: Any) -> Any:
    return x - y  # another result, so that a replacement is seen


def examples() -> list[Any]:
    return [torch.randn(2, 2), torch.randn(2, 2)]


def test_replacements_are_made_in_order() -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)

    def function(x: Any, y: Any) -> Any:
        return (x * 2 + y).relu(), x @ y.t()
    assert torch.equal(compiled(function)(x, y)[0], scaled(x, y).relu())
    assert register_replacement(scaled, other, examples())
    assert torch.equal(compiled(function)(x, y)[0], other(x, y).relu())
    torch.testing.assert_close(compiled(function)(x, y)[1], x @ y.t())
    assert torch.equal(compiled(function, pattern_fusion_pass=False)(x, y)[0], scaled(x, y).relu())
    assert register_replacement(lambda a, b: (a - b).relu(), lambda a, b: a * b, examples())
    assert torch.equal(compiled(function)(x, y)[0], x * y)


def test_a_replacement_with_modules_and_states() -> None:
    layer = nn.Linear(4, 4)

    def function(x: Any, state: Any) -> Any:
        state.copy_(F.silu(layer(x)))
        return state * 3
    register_replacement(lambda x: F.silu(x), lambda x: x + 1, [torch.randn(2, 2)])
    x, state = torch.randn(2, 4), torch.zeros(2, 4)
    torch.testing.assert_close(compiled(function)(x, state), (layer(x) + 1) * 3)
    torch.testing.assert_close(state, layer(x) + 1)


def test_extra_check_and_scalars() -> None:
    seen: list[Any] = []

    def allowed(match: Any) -> bool:
        seen.append(match.kwargs["x"].meta["val"].shape)
        return bool(match.kwargs["x"].meta["val"].shape[-1] == 4)
    register_replacement(lambda x, by: torch.tanh(x) * by, lambda x, by: x + by, [torch.randn(2, 2), 0.125],
                         extra_check=allowed, scalar_workaround={"by": 0.125})
    x, z = torch.randn(3, 4), torch.randn(3, 5)
    got = compiled(lambda x, z: (torch.tanh(x) * 2.5, torch.tanh(z) * 2.5))(x, z)
    torch.testing.assert_close(got[0], x + 2.5)
    torch.testing.assert_close(got[1], torch.tanh(z) * 2.5)
    assert {tuple(shape) for shape in seen} == {(3, 4), (3, 5)}


def test_dynamic_sizes() -> None:
    register_replacement(scaled, other, examples())
    fast = torch.compile(lambda x, y: scaled(x, y), backend="npugraph", fullgraph=True, dynamic=True)
    for rows in (2, 5):
        x, y = torch.randn(rows, 4), torch.randn(rows, 4)
        assert torch.equal(fast(x, y), x - y)


def test_duplicates() -> None:
    register_replacement(scaled, other, examples())
    with pytest.raises(ValueError, match="skip_duplicates"):
        register_replacement(scaled, other, examples())
    assert not register_replacement(scaled, other, examples(), skip_duplicates=True)
    assert register_replacement(scaled, lambda x, y: x, examples())


def test_a_trace_fn_and_pattern_of_the_programs() -> None:
    from torch._inductor.pattern_matcher import CallFunction, KeywordArg, fwd_only
    traced: list[Any] = []

    def trace(function: Any, args: Any) -> Any:
        traced.append(function)
        return fwd_only(function, args)
    pattern = CallFunction(torch.ops.aten.sub.Tensor, KeywordArg("x"), KeywordArg("y"))
    register_replacement(lambda x, y: x - y, lambda x, y: x * y, examples(), trace, search_fn_pattern=pattern)
    register_replacement(lambda x: torch.sin(x), lambda x: x, [torch.randn(2)], fwd_only)
    x, y = torch.randn(3), torch.randn(3)
    assert torch.equal(compiled(lambda x, y: torch.sin(x - y))(x, y), x * y)
    assert traced


def test_a_kept_translation_depends_on_what_is_registered(tmp_path: pathlib.Path) -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)

    def run() -> tuple[int, Any]:
        cached = cache_compile(scaled, cache_dir=tmp_path)
        result = cached(x, y)
        return cached.traced, result
    assert run()[0] == 1 and run()[0] == 0
    register_replacement(scaled, other, examples())
    traced, result = run()
    assert traced == 1 and torch.equal(result, x - y)
    assert run()[0] == 0
    forget_extensions()
    traced, result = run()
    assert traced == 0 and torch.equal(result, scaled(x, y))


# ---- operators of the program ---------------------------------------------------------------------------------------

def uses_it(x: Any, y: Any) -> Any:
    z = (x + 1) * y - 3
    z = twice_plus(z.abs(), y)
    return (z * 2 - y).exp().sum(-1) + 1


def test_operators_without_a_decomposition_are_named() -> None:
    x, y = torch.rand(3, 4), torch.rand(3, 4)
    how = r"npugraph_test\.twice_plus is of this program: .*register_decomposition.*register_converter"
    with pytest.raises(Exception, match=how):
        compiled(uses_it)(x, y)
    torch._dynamo.reset()
    with pytest.warns(FallbackWarning, match=how):
        got = torch.compile(uses_it, backend="npugraph")(x, y)
    torch.testing.assert_close(got, uses_it(x, y))

    def writes(x: Any) -> Any:
        y = x * 2
        fill_(y)
        return y + 1
    torch._dynamo.reset()
    with pytest.warns(FallbackWarning, match=r"npugraph_test\.fill_, which writes to its arguments, is of this program"):
        assert torch.compile(writes, backend="npugraph")(x).unique().tolist() == [8]


def test_a_decomposition_is_traced() -> None:
    assert compiled(torch.ops.npugraph_test.halved)(torch.ones(3)).tolist() == [0.5] * 3  # PyTorch knows this one
    x, y = torch.rand(3, 4), torch.rand(3, 4)
    register_decomposition(twice_plus)(lambda x, y: x * 2 + y)
    torch.testing.assert_close(compiled(uses_it)(x, y), uses_it(x, y))
    register_decomposition(torch.ops.npugraph_test.twice_plus)(lambda x, y: x)  # the last one counts
    assert torch.equal(compiled(lambda x, y: twice_plus(x + 1, y))(x, y), x + 1)


def test_a_converter_writes_the_daemons_operators() -> None:
    @register_converter(torch.ops.npugraph_test.twice_plus)
    def convert(w: Any, node: Any, x: Any, y: Any) -> Any:
        return w.op("aten.add.Tensor", [y, x], node.out.dtype, node.out.shape, alpha=2)
    x, y = torch.rand(3, 4), torch.rand(3, 4)
    torch.testing.assert_close(compiled(uses_it)(x, y), uses_it(x, y))
    with pytest.raises(ValueError, match="translates aten.mm itself"):
        register_converter(torch.ops.aten.mm.default)(convert)
    for register in (register_converter, register_decomposition):
        with pytest.raises(TypeError, match="is not an operator"):
            register(len)


def test_custom_decompositions_are_of_one_function(tmp_path: pathlib.Path) -> None:
    x, y = torch.rand(3, 4), torch.rand(3, 4)
    table = {torch.ops.npugraph_test.twice_plus.default: lambda x, y: x * 2 + y}
    for traced in (1, 0):
        cached = cache_compile(uses_it, cache_dir=tmp_path, custom_decompositions=table)
        torch.testing.assert_close(cached(x, y), uses_it(x, y))
        assert cached.traced == traced
    with pytest.raises(Exception, match="is of this program"):
        cache_compile(uses_it, cache_dir=tmp_path)(x, y)
