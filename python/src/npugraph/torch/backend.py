# SPDX-License-Identifier: Apache-2.0
"""The backend itself: decompositions, translation, and what is left to PyTorch."""
from __future__ import annotations

import dataclasses
import functools
import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.fx import GraphModule
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from ..errors import GraphRefused, Unsupported
from .direct import direct, hands_on
from .extend import decomposition_table, replace_patterns
from .options import Options, parse_options
from .recompiles import tell_recompilation
from .runner import Runner
from .share import Unplaced, sharing_of
from .translate import Missing, Program, Translator, is_copy_back

SMALLEST_PART = 4  # operators; fewer are not worth a call
NOT_AT_BEGINNING = "as_strided of an input that is not at the beginning of its storage"
_numbers = itertools.count()


class FallbackWarning(UserWarning):
    """A graph, or a part of one, runs in PyTorch; the message says why."""


class NotCapturable(RuntimeError):
    """A graph has something that the daemon cannot run, and fullgraph=True or fallback="error" allows nothing else."""


@dataclasses.dataclass
class Translation:
    """A graph that was translated as a whole, and what AOTAutograd knows of its arguments and results."""

    program: Program
    metadata: Any
    unkept: str  # why it is not enough for another process, or ""


def backend(gm: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None,
            mode: str | None = None) -> Callable[..., Any]:
    """Compiles a graph of Dynamo's for npugraphd; torch.compile calls it."""
    if mode not in (None, "default"):
        raise ValueError(f"mode {mode!r} is not supported; say what you want with options")
    parsed = parse_options(options)
    tell_recompilation()
    return compile_fx(gm, example_inputs, parsed, parsed.fallback == "error" or _fullgraph())


def compile_fx(gm: GraphModule, example_inputs: Sequence[Any], options: Options, strict: bool,
               decompositions: Mapping[Any, Any] | None = None,
               translated: Callable[[Translation], None] | None = None) -> Callable[..., Any]:
    """Compiles a graph of Dynamo's. `translated` is told what was translated as a whole."""
    made: list[tuple[_Compiled, Any]] = []  # what was translated as a whole, and AOTAutograd's metadata: one at most
    refuse = functools.partial(_training, options=options, strict=strict)
    sharing = None
    try:
        sharing = sharing_of(gm)
        compile_graph = functools.partial(_compile, options=options, strict=strict, translated=translated, made=made,
                                          shares=sharing is not None, given=len(gm.graph.find_nodes(op="placeholder")))
    except Unplaced as why:
        _tell_left(gm, str(why), options, strict)
        return gm.forward
    table = decomposition_table() | dict(decompositions or {})
    compiled: Callable[..., Any] = aot_autograd(
        fw_compiler=refuse, bw_compiler=refuse, inference_compiler=compile_graph, decompositions=table,
        keep_inference_input_mutations=True)(gm, example_inputs)
    for graph, metadata in made:
        if hands_on(metadata, len(graph.gm.graph.find_nodes(op="placeholder")), example_inputs):
            compiled = direct(graph, metadata)
    return sharing.over(compiled) if sharing is not None else compiled


def _fullgraph() -> bool:
    """Returns whether torch.compile was called with fullgraph=True; PyTorch tells backends only by its tracer."""
    try:
        from torch._dynamo.symbolic_convert import InstructionTranslator
        return bool(InstructionTranslator.current_tx().one_graph)
    except (ImportError, AttributeError):
        return False


def _training(gm: GraphModule, example_inputs: Sequence[Any], *, options: Options, strict: bool) -> Callable[..., Any]:
    return _left_to_pytorch(gm, "its results need gradients, and captured graphs are for inference: call it under "
                            "torch.no_grad() or torch.inference_mode()", options, strict)


def _left_to_pytorch(gm: GraphModule, why: str, options: Options, strict: bool) -> Callable[..., Any]:
    _tell_left(gm, why, options, strict)
    return _boxed(gm)


def _tell_left(gm: GraphModule, why: str, options: Options, strict: bool) -> None:
    _tell(f"a graph of {_calls(gm)} operators runs in PyTorch: {why}", options, strict)


def _tell(what: str, options: Options, strict: bool) -> None:
    if strict:
        raise NotCapturable(what)
    if options.fallback == "warn":
        warnings.warn(what, FallbackWarning, stacklevel=2)


def _calls(gm: GraphModule) -> int:
    return sum(n.op == "call_function" for n in gm.graph.nodes)


def _compile(gm: GraphModule, example_inputs: Sequence[Any], *, options: Options, strict: bool,
             translated: Callable[[Translation], None] | None = None, made: list[tuple[_Compiled, Any]],
             shares: bool, given: int) -> Callable[..., Any]:
    for name in ("post_grad_custom_pre_pass", "post_grad_custom_post_pass"):
        if name in options.passes:
            options.passes[name](gm, example_inputs, options)
            gm.recompile()
        if name == "post_grad_custom_pre_pass" and options.daemon.get("pattern_fusion_pass", True):
            replace_patterns(gm)
    if not _calls(gm):
        return _boxed(gm)
    if len(gm.graph.find_nodes(op="placeholder")) < given:  # one tensor for several: nothing guards its sizes
        return _left_to_pytorch(gm, "arguments share memory, and one of them is written", options, strict)
    metadata = _metadata()
    static, bumped = _numbers_of(metadata)
    translator = Translator(gm, static, f"torch-{next(_numbers)}", options.resident_states)
    if _anchored(gm) and any(not _at_beginning(n.meta.get("val")) for n in gm.graph.find_nodes(op="placeholder")):
        return _left_to_pytorch(gm, NOT_AT_BEGINNING, options, strict)
    if _anchored(gm) and options.resident_states and translator.program is not None and translator.program.states:
        return _left_to_pytorch(gm, "as_strided, with inputs that stay on the device (option resident_states)", options, strict)
    if translator.program is not None:
        if translated is not None:
            unkept = "results that share memory" if shares else "as_strided" if _anchored(gm) else ""
            translated(Translation(translator.program, metadata, unkept))
        compiled = _Compiled(gm, Runner(translator.program, options, bumped), options, strict)
        made.append((compiled, metadata))
        return compiled
    why = _reasons(translator.missing)
    if _anchored(gm):  # what a part returns has a storage of its own
        return _left_to_pytorch(gm, why, options, strict)
    _tell(f"a graph of {_calls(gm)} operators runs in PyTorch in part: {why}", options, strict)
    return _in_parts(gm, static, options)


def _anchored(gm: GraphModule) -> bool:
    """Returns whether a graph has operators that see where in its storage a tensor is. Nothing guards that of an input."""
    return any("as_strided" in str(n.target) for n in gm.graph.nodes)


def _at_beginning(value: Any) -> bool:
    offset = _offset(value)
    return type(offset) is int and offset == 0


def _offset(value: Any) -> Any:
    return value.storage_offset() if isinstance(value, torch.Tensor) else 0


def _boxed(gm: GraphModule) -> Callable[..., Any]:
    function: Callable[..., Any] = make_boxed_func(gm.forward)
    return function


def _metadata() -> Any:
    """Returns what AOTAutograd knows of the arguments and results of the graph that it has compiled; or None."""
    context = torch._guards.TracingContext.try_get()
    return context.fw_metadata if context else None


def _numbers_of(metadata: Any) -> tuple[list[int], list[int]]:
    """Returns the arguments that are parameters, buffers and marked static, and those whose version PyTorch raises."""
    if metadata is None:
        return [], []
    return list(metadata.static_input_indices), list(metadata.mutated_graph_handled_indices_seen_by_autograd)


def _reasons(missing: Sequence[Missing]) -> str:
    counted = Counter(m.reason for m in missing)
    return "; ".join(f"{reason} ({n} times)" if n > 1 else reason for reason, n in counted.items())


class _Compiled:
    """A runner that leaves the graph to PyTorch if the daemon refuses it when it is registered."""

    _boxed_call = True

    def __init__(self, gm: GraphModule, runner: Runner, options: Options, strict: bool) -> None:
        self.gm = gm
        self.runner: Runner | None = runner
        self.options = options
        self.strict = strict
        self.anchored = _anchored(gm)  # then the graph is for inputs at the beginning of their storages
        self.told = False  # that a call with others ran in PyTorch

    def __call__(self, args: Sequence[Any]) -> Any:
        if self.anchored and any(map(_offset, args)):
            if not self.told:
                _tell_left(self.gm, f"calls with {NOT_AT_BEGINNING}", self.options, self.strict)
            self.told = True
        elif self.runner is not None:
            try:
                return self.runner(args)
            except (GraphRefused, Unsupported) as why:
                self.runner = None
                _tell_left(self.gm, str(why), self.options, self.strict)
        with torch._C._DisableAutocast():  # its casts are in the graph already
            return self.gm.forward(*args)


# ---- parts ----------------------------------------------------------------------------------------------------------

class _Supported(OperatorSupportBase):
    def __init__(self, missing: Sequence[Missing]) -> None:
        self.missing = {m.node for m in missing}

    def is_node_supported(self, submodules: Any, node: torch.fx.Node) -> bool:
        return node.op == "call_function" and node not in self.missing


def _in_parts(gm: GraphModule, static: Sequence[int], options: Options) -> Callable[..., Any]:
    """Runs what the daemon can run there, in parts that are large enough, and the rest in PyTorch."""
    arguments = [n for n in gm.graph.nodes if n.op == "placeholder"]
    written = {n.args[0] for n in gm.graph.nodes if is_copy_back(n)}  # not the daemon's, so that their contents change
    fixed = {arguments[a].name for a in static if arguments[a] not in written}
    missing = Translator(gm, static, "", mutate=False).missing
    parts = CapabilityBasedPartitioner(gm, _Supported(missing), allows_single_node_partition=False)
    whole = parts.partition_and_fuse()
    _write_last(whole)
    for node in list(whole.graph.nodes):
        if node.op != "call_module":
            continue
        part: Any = whole.get_submodule(str(node.target))
        own = [n for n, given in enumerate(node.args) if isinstance(given, torch.fx.Node) and given.name in fixed]
        translator = Translator(part, own, f"torch-{next(_numbers)}", mutate=False)
        if translator.program is None or _calls(part) < SMALLEST_PART:
            continue
        single = not isinstance(next(iter(reversed(part.graph.nodes))).args[0], (tuple, list))
        setattr(whole, str(node.target), _Part(part, Runner(translator.program, options), options, single))
    return _boxed(whole)


def _write_last(gm: GraphModule) -> None:
    """Puts what writes to inputs at the end, behind all that reads them: partitioning orders nodes by their operands."""
    end = next(n for n in gm.graph.nodes if n.op == "output")  # not always the last one
    for node in [n for n in gm.graph.nodes if is_copy_back(n)]:
        end.prepend(node)
    gm.recompile()


class _Part(torch.nn.Module):
    """A part of a graph that runs in the daemon."""

    def __init__(self, part: GraphModule, runner: Runner, options: Options, single: bool) -> None:
        super().__init__()
        self.compiled = _Compiled(part, runner, options, strict=False)
        self.single = single

    def forward(self, *args: Any) -> Any:
        results = self.compiled(list(args))
        return results[0] if self.single and isinstance(results, list) else results
