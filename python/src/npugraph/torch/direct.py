# SPDX-License-Identifier: Apache-2.0
"""Calls a compiled graph without AOTAutograd's wrappers, where those only hand arguments and results on."""
from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

_OWN = {"non_alias", "unsafe_view_alias"}  # results with memory of their own
_grads_are_on, _set_grads = torch.is_grad_enabled, torch._C._set_grad_enabled
_raise_versions = torch.autograd.graph.increment_version


def hands_on(metadata: Any, count: int, examples: Sequence[Any]) -> bool:
    """Returns whether the wrappers give a graph of `count` arguments those of the call, in their order, and return its results.

    They do more if arguments are given twice, are parts of one another, are of subclasses, or are changed behind the graph;
    if results are arguments, views, or have sizes that Dynamo marks as dynamic; or if the call changes the gradients' mode.
    """
    try:
        return (count == len(metadata.input_info) == len(examples) and not any(map(is_traceable_wrapper_subclass, examples))
                and {str(info.output_type).split(".")[-1] for info in metadata.output_info} <= _OWN
                and not metadata.num_mutated_inp_runtime_indices and not metadata.num_intermediate_bases
                and not metadata.dynamic_outputs and not metadata.tokens and metadata.grad_enabled_mutation is None)
    except AttributeError:  # another version of PyTorch
        return False


def direct(graph: Callable[[Sequence[Any]], Any], metadata: Any) -> Callable[..., Any]:
    """Returns what calls the graph as the wrappers do: without gradients, and with the versions of what it writes raised."""
    numbers = list(metadata.mutated_graph_handled_indices_seen_by_autograd)
    first = operator.itemgetter(*numbers[:1], *numbers) if numbers else None  # a tuple, also of one

    def call(*args: Any) -> Any:
        if first is not None:
            _raise_versions(first(args)[1:])
        if not _grads_are_on():
            return graph(args)
        _set_grads(False)
        try:
            return graph(args)
        finally:
            _set_grads(True)
    return call
