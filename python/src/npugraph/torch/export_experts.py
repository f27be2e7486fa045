# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts, whose loops over experts depend on data: replaced while a model is traced.

The rows of a block are ordered by their experts, then the first expert's own code runs for all of them, with grouped
products for its linears. What chooses the experts is written here for the blocks whose forward has it beside the loop.
"""
from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F

NAME = "npugraph_export"


class Refused(ValueError):
    """A model cannot be exported; the message names what is in the way, and says what to do."""


# ---- operators ----

@torch.library.custom_op(f"{NAME}::route", mutates_args=())
def _route(x: torch.Tensor, chosen: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows in the order of the experts that each has; where each went; how many rows each expert has."""
    raise NotImplementedError("a stand-in, for tracing")


@_route.register_fake
def _(x: torch.Tensor, chosen: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = chosen.shape[0] * chosen.shape[1]
    return (x.new_empty((rows, x.shape[1])), chosen.new_empty((rows,), dtype=torch.int32),
            chosen.new_empty((experts,), dtype=torch.int64))


@torch.library.custom_op(f"{NAME}::grouped", mutates_args=())
def _grouped(x: torch.Tensor, counts: torch.Tensor, weights: list[torch.Tensor], bias: torch.Tensor | None,
             turned: bool) -> torch.Tensor:
    """A linear of each expert for its rows. weights: [out, in] of each, or one [experts, out, in]; turned: [.., in, out]."""
    raise NotImplementedError("a stand-in, for tracing")


@_grouped.register_fake
def _(x: torch.Tensor, counts: torch.Tensor, weights: list[torch.Tensor], bias: torch.Tensor | None,
      turned: bool) -> torch.Tensor:
    return x.new_empty((x.shape[0], weights[0].shape[-1 if turned else -2]))


@torch.library.custom_op(f"{NAME}::combine", mutates_args=())
def _combine(y: torch.Tensor, scales: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The sum of each row's experts, times their scales."""
    raise NotImplementedError("a stand-in, for tracing")


@_combine.register_fake
def _(y: torch.Tensor, scales: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return y.new_empty((scales.shape[0], y.shape[1]))


def _mixture(experts: torch.nn.ModuleList, x: torch.Tensor, chosen: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """x: [rows, features]; chosen, scales: [rows, experts of a row]."""
    routed, places, counts = torch.ops.npugraph_export.route(x, chosen, len(experts))
    with _grouped_linears(experts, counts):
        y = experts[0](routed)
    mixed: torch.Tensor = torch.ops.npugraph_export.combine(y, scales, places)
    return mixed


@contextlib.contextmanager
def _grouped_linears(experts: torch.nn.ModuleList, counts: torch.Tensor) -> Iterator[None]:
    """Has the linears of the first expert compute those of all."""
    linears = {name: m for name, m in experts[0].named_modules() if isinstance(m, torch.nn.Linear)}
    held = {id(p) for m in linears.values() for p in m.parameters()}
    if any(m.bias is not None for m in linears.values()) or any(id(p) not in held for p in experts[0].parameters()):
        raise Refused(f"{type(experts[0]).__name__} has parameters besides the weights of linears, which grouped products do "
                      "not have")

    def product(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
        def forward(x: torch.Tensor) -> torch.Tensor:
            weights = [e.get_submodule(name).weight for e in experts]
            y: torch.Tensor = torch.ops.npugraph_export.grouped(x, counts, weights, None, False)
            return y
        return forward
    for name, m in linears.items():
        m.forward = product(name)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        for m in linears.values():
            del m.forward


# ---- blocks ----

def _softmax_block(block: Any, hidden: torch.Tensor) -> Any:
    """Experts with the largest shares of a softmax; their shares have the sum 1 unless `norm_topk_prob` is false."""
    x = hidden.view(-1, hidden.shape[-1])
    logits = block.gate(x)
    scales, chosen = torch.topk(F.softmax(logits, dim=1, dtype=torch.float32), block.top_k, dim=-1)
    if getattr(block, "norm_topk_prob", True):
        scales = scales / scales.sum(dim=-1, keepdim=True)
    y = _mixture(block.experts, x, chosen, scales)
    if hasattr(block, "shared_expert"):
        y = y + F.sigmoid(block.shared_expert_gate(x)) * block.shared_expert(x)
    return y.view(hidden.shape), logits


def _ernie_block(block: Any, hidden: torch.Tensor) -> Any:
    """Experts with the largest shares plus a correction; the shares are divided by their sum."""
    x = hidden.view(-1, hidden.shape[-1])
    logits = block.gate(x)
    shares = F.softmax(logits, dim=1, dtype=torch.float32)
    _, chosen = torch.topk(block.moe_statics(shares), block.top_k, dim=-1)
    scales = torch.gather(shares, dim=-1, index=chosen)
    scales = scales / torch.clamp(scales.sum(dim=-1, keepdim=True), min=block.norm_min)
    y = _mixture(block.experts, x, chosen, scales)
    if block.shared_experts is not None:
        y = y + block.shared_experts(x)
    return y.view(hidden.shape), logits


def _interface_experts(m: Any, hidden: torch.Tensor, chosen: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Experts of transformers' interface for them, whose weights are one parameter for all."""
    if m.has_post_expert_norm:
        raise Refused(f"{type(m).__name__} has norms behind its experts, which cannot be exported")
    x = hidden.reshape(-1, hidden.shape[-1])
    routed, places, counts = torch.ops.npugraph_export.route(x, chosen, m.num_experts)

    def product(y: torch.Tensor, name: str) -> torch.Tensor:
        bias = getattr(m, name + "_bias") if m.has_bias else None
        z: torch.Tensor = torch.ops.npugraph_export.grouped(y, counts, [getattr(m, name)], bias, m.is_transposed)
        return z
    y = m._apply_gate(product(routed, "gate_up_proj")) if m.has_gate else m.act_fn(product(routed, "up_proj"))
    mixed: torch.Tensor = torch.ops.npugraph_export.combine(product(y, "down_proj"), scales, places)
    return mixed.view(hidden.shape)


def _gpt_oss_experts(m: Any, hidden: torch.Tensor, router_indices: torch.Tensor, routing_weights: torch.Tensor) -> torch.Tensor:
    """gpt-oss before that interface; routing_weights has all experts of each row."""
    x = hidden.reshape(-1, hidden.shape[-1])
    routed, places, counts = torch.ops.npugraph_export.route(x, router_indices, m.num_experts)
    y = torch.ops.npugraph_export.grouped(routed, counts, [m.gate_up_proj], m.gate_up_proj_bias, True)
    gate, up = y[..., ::2].clamp(max=m.limit), y[..., 1::2].clamp(min=-m.limit, max=m.limit)
    y = (up + 1) * (gate * torch.sigmoid(gate * m.alpha))
    y = torch.ops.npugraph_export.grouped(y, counts, [m.down_proj], m.down_proj_bias, True)
    mixed: torch.Tensor = torch.ops.npugraph_export.combine(y, routing_weights.gather(1, router_indices), places)
    return mixed.view(hidden.shape)


BLOCKS: dict[str, Callable[..., Any]] = {
    "MixtralSparseMoeBlock": _softmax_block, "Qwen2MoeSparseMoeBlock": _softmax_block, "Qwen3MoeSparseMoeBlock": _softmax_block,
    "OlmoeSparseMoeBlock": _softmax_block, "FlexOlmoSparseMoeBlock": _softmax_block, "Ernie4_5_MoeSparseMoeBlock": _ernie_block,
    "GptOssExperts": _gpt_oss_experts,
}
# Classes whose method `moe` has the loop, beside a router of their own.
METHODS = ("DeepseekV3MoE", "Glm4MoeMoE", "Dots1MoE", "DeepseekV2MoE")


def _moe(block: Any, hidden: torch.Tensor, chosen: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return _mixture(block.experts, hidden, chosen, scales)


@contextlib.contextmanager
def experts_replaced(model: torch.nn.Module) -> Iterator[None]:
    """Replaces the blocks of experts; refuses those that are not known by name."""
    changed: list[tuple[Any, str]] = []
    try:
        for m in model.modules():
            found = _replacement(m)
            if found is not None:
                setattr(m, found[0], types.MethodType(found[1], m))
                changed.append((m, found[0]))
        yield
    finally:
        for m, attribute in changed:
            delattr(m, attribute)


def _has_interface(m: torch.nn.Module) -> bool:
    return hasattr(getattr(m, "experts", None), "is_transposed")


def _replacement(m: torch.nn.Module) -> tuple[str, Callable[..., Any]] | None:
    """Returns which method of a module is replaced, and by what."""
    name = type(m).__name__
    if hasattr(m, "has_gate") and hasattr(m, "is_transposed"):
        return "forward", _interface_experts
    if _has_interface(m):
        return None
    if name in BLOCKS:
        return "forward", BLOCKS[name]
    if name in METHODS and hasattr(m, "moe"):
        return "moe", _moe
    if isinstance(getattr(m, "experts", None), torch.nn.ModuleList):
        raise Refused(f"{name} is no mixture of experts that can be exported; those are {', '.join(sorted([*BLOCKS, *METHODS]))}")
    return None
