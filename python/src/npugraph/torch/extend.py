# SPDX-License-Identifier: Apache-2.0
"""What a program adds to the backend: decompositions and converters of its operators, and replacements of patterns.

All are of the process, not of one call of torch.compile, as in npugraph_ex.
"""
from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import core_aten_decompositions
from torch._decomp import decomposition_table as all_decompositions
from torch._library.custom_ops import CustomOpDef
from torch.fx import GraphModule

from .digests import of_call
from .values import HANDLERS, Value

log = logging.getLogger("npugraph")
_decompositions: dict[Any, Callable[..., Any]] = {}
_converters: dict[str, str] = {}  # the names that programs registered, and digests of the functions
_passes: list[Any] = []  # a PatternMatcherPass for each replacement, in the order of registration
_digests: list[str] = []  # of what was registered, in order


def _overloads(op: Any) -> list[Any]:
    if isinstance(op, CustomOpDef):
        return [op._opoverload]
    if isinstance(op, torch._ops.OpOverloadPacket):
        return [getattr(op, name) for name in op.overloads()]
    if isinstance(op, torch._ops.OpOverload):
        return [op]
    raise TypeError(f"{op!r} is not an operator; give torch.ops.library.name or what torch.library.custom_op returned")


def register_decomposition(op: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Lets the backend trace through a function instead of an operator: `@register_decomposition(torch.ops.my.op)`.

    The function has the operator's arguments and is made of operators that the backend knows. It counts for graphs that
    are traced afterwards.
    """
    overloads = _overloads(op)

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for overload in overloads:
            _decompositions[overload] = function
            _digests.append(f"decomposition {overload} {of_call(function)}")
        return function
    return register


def register_converter(op: Any) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Lets a function write an operator in operators of the daemon: `@register_converter(torch.ops.my.op)`.

    It is called with a Writer, the node, and the operator's arguments with tensors as Values; it returns the Value of the
    result, or a list of them. `Writer.op` writes an operator of docs/operators.md.
    """
    overloads = _overloads(op)

    def register(function: Callable[..., Value]) -> Callable[..., Value]:
        for overload in overloads:
            name = str(overload).removesuffix(".default")
            if name in HANDLERS and name not in _converters:
                raise ValueError(f"the backend translates {name} itself; give an operator of your own")
            HANDLERS[name] = function
            _converters[name] = of_call(function)
            _digests.append(f"converter {name} {_converters[name]}")
        return function
    return register


# Core operators that PyTorch can take apart too.
_TAKEN_APART = ("_native_batch_norm_legit", "_native_batch_norm_legit_no_training", "native_group_norm", "grid_sampler_2d")


@functools.cache
def _pytorchs() -> dict[Any, Any]:
    table = dict(core_aten_decompositions())
    for packet in (getattr(torch.ops.aten, name) for name in _TAKEN_APART):
        table |= {overload: all_decompositions[overload] for name in packet.overloads()
                  if (overload := getattr(packet, name)) in all_decompositions}
    return table


def decomposition_table() -> dict[Any, Any]:
    """Returns PyTorch's decompositions to core operators, without those of operators that the daemon has."""
    table = {operator: function for operator, function in _pytorchs().items()
             if str(operator).removesuffix(".default") not in HANDLERS}
    return table | _decompositions


def extensions() -> list[str]:
    """Returns digests of all that was registered, in order: what is kept of a compilation depends on it."""
    return list(_digests)


# ---- replacements ---------------------------------------------------------------------------------------------------

def forward_only(function: Callable[..., Any], args: Sequence[Any]) -> GraphModule:
    """Traces a pattern as the backend traces models: with its decompositions, for inference."""
    from torch._inductor.pattern_matcher import fwd_only
    traced: GraphModule = fwd_only(function, args, get_decomp_fn=decomposition_table)
    return traced


def register_replacement(search_fn: Callable[..., Any], replace_fn: Callable[..., Any], example_inputs: Sequence[Any],
                         trace_fn: Callable[..., Any] = forward_only, extra_check: Callable[[Any], bool] | None = None,
                         search_fn_pattern: Any = None, scalar_workaround: dict[str, float | int] | None = None,
                         skip_duplicates: bool = False) -> bool:
    """Replaces what `search_fn` traces to by what `replace_fn` traces to, in graphs that are compiled afterwards.

    Names, arguments and meaning are those of npugraph_ex. PyTorch's pattern matcher does the work, on the graph of ATen
    operators before it is translated. Replacements are made in the order of registration, each in the whole graph,
    unless the option pattern_fusion_pass is off. `extra_check` is given the match and says whether to replace it.
    `scalar_workaround` names arguments that are numbers, with values that occur nowhere else. `search_fn_pattern` is a
    pattern of the matcher's to look for instead of `search_fn`. A second registration of an equal pattern is an error,
    or with `skip_duplicates` has no effect: then False is returned.
    """
    from torch._inductor import pattern_matcher as matcher
    if trace_fn is matcher.fwd_only:
        trace_fn = forward_only  # whose decompositions are the backend's
    digest = " ".join(map(of_call, (search_fn, replace_fn, trace_fn, extra_check)))
    digest += f" {search_fn_pattern!r} {sorted((scalar_workaround or {}).items())} {_examples(example_inputs)}"
    if f"replacement {digest}" in _digests:
        if skip_duplicates:
            return False
        raise ValueError("this replacement is registered already; skip_duplicates=True lets it be")
    made = matcher.PatternMatcherPass(pass_name=f"npugraph replacement {len(_passes)}")

    def traces(fn: Any, *args: Any, **_: Any) -> Any:
        """What the matcher calls; since PyTorch 2.10 it says which decompositions it would take."""
        return trace_fn(fn, *args)

    with torch.no_grad():
        matcher.register_replacement(search_fn, replace_fn, list(example_inputs), traces, made,
                                     extra_check=extra_check or (lambda match: True), search_fn_pattern=search_fn_pattern,
                                     scalar_workaround=scalar_workaround)
    _passes.append(made)
    _digests.append(f"replacement {digest}")
    return True


def _examples(inputs: Sequence[Any]) -> str:
    return " ".join(f"{x.dtype}{tuple(x.shape)}" if isinstance(x, torch.Tensor) else repr(x) for x in inputs)


def replace_patterns(gm: GraphModule) -> int:
    """Makes the registered replacements in a graph, and returns their number."""
    count = 0
    for made in _passes:
        count += made.apply(gm.graph)
    if count:
        from torch._inductor.pattern_matcher import stable_topological_sort
        stable_topological_sort(gm.graph)
        gm.graph.eliminate_dead_code()
        gm.recompile()
        log.debug("npugraph: %d replacements", count)
    return count


def forget_extensions() -> None:
    """Removes everything that was registered (for tests)."""
    for name in _converters:
        HANDLERS.pop(name, None)
    _decompositions.clear()
    _converters.clear()
    _passes.clear()
    _digests.clear()
