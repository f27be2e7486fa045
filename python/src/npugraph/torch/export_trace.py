# SPDX-License-Identifier: Apache-2.0
"""Traces a causal decoder of transformers without its weights.

The model is traced for rows of one token each, [rows, 1], as a decode step sees them: then every operator but attention
works on rows by themselves, and the same nodes serve prompts. Attention becomes npugraph_export::attention, which says
what the paged operator needs to know, through the interfaces that transformers has for attention and masks. A second
trace, of one text with several tokens, shows whether anything else reads other tokens.
"""
from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, GuardOnDataDependentSymNode, ShapeEnv, StatelessSymbolicContext
from torch.utils._python_dispatch import _disable_current_modes

from .export_complex import Parts, is_complex
from .export_experts import NAME, Refused, experts_replaced
from .extend import decomposition_table

_FAR = 4099  # a position from which masks are looked at
# What PyTorch raises where code asks for the numbers in a tensor, or for a size that depends on them.
_ASKS = (GuardOnDataDependentSymNode, DataDependentOutputException, DynamicOutputShapeException)


# ---- operators that stand for what the daemon does in another way ----

@torch.library.custom_op(f"{NAME}::attention", mutates_args=())
def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sinks: torch.Tensor | None, scale: float,
               window: int, cap: float) -> torch.Tensor:
    raise NotImplementedError("a stand-in, for tracing")


@_attention.register_fake
def _(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sinks: torch.Tensor | None, scale: float, window: int,
      cap: float) -> torch.Tensor:
    rows, heads, tokens, _ = query.shape
    return query.new_empty((rows, tokens, heads, value.shape[-1]))


@torch.library.custom_op(f"{NAME}::hidden", mutates_args=())
def _hidden(x: torch.Tensor) -> torch.Tensor:
    """Hidden states behind the final norm."""
    raise NotImplementedError("a stand-in, for tracing")


@_hidden.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


# ---- attention and masks, as transformers calls them ----

class _Masks:
    """Masks that were asked for, by their stand-ins."""

    def __init__(self) -> None:
        self.windows: dict[int, int] = {}  # 0: all keys
        self.made: list[torch.Tensor] = []  # keeps them, so that no other tensor gets their identity

    def make(self, *_: Any, mask_function: Any = None, **__: Any) -> torch.Tensor:
        try:
            with _disable_current_modes():
                window = _window_of(mask_function)
        except (RuntimeError, TypeError) as why:  # it looks at a tensor of the trace
            raise Refused("its attention's mask depends on more than the positions (as that of chunks does): the daemon has no "
                          "operator for that") from why
        stand_in = torch.zeros((1, 1, 1, 1), dtype=torch.bool)
        self.windows[id(stand_in)] = window
        self.made.append(stand_in)
        return stand_in


def _window_of(function: Any) -> int:
    """Returns how many keys a mask shows to a token, itself among them; 0: all before it."""
    if function is None:
        return 0
    counts = []
    for row in (_FAR, 2 * _FAR + 1):
        keys = torch.arange(row + 2)
        zero = torch.tensor(0)
        shown = function(zero, zero, torch.tensor(row), keys)
        shown = torch.as_tensor(shown).expand(keys.shape)
        count = int(shown.sum())
        if not bool(shown[row + 1 - count:row + 1].all()) or bool(shown[row + 1]):
            raise Refused("its attention's mask shows other keys than those before a token, or than a window of them: the "
                          "daemon has no operator for that")
        counts.append((row + 1, count))
    if all(rows == count for rows, count in counts):
        return 0
    if counts[0][1] != counts[1][1]:
        raise Refused("its attention's mask shows a number of keys that depends on the position: the daemon has no operator "
                      "for that")
    return counts[0][1]


# Arguments of the attention that change nothing here.
_HARMLESS = {"dropout", "position_ids", "cache_position", "output_attentions", "use_cache", "is_causal", "output_router_logits",
             "past_key_values", "past_key_value", "return_dict", "layer_idx", "logits_to_keep", "output_hidden_states",
             "sliding_window", "softcap", "s_aux", "scaling"}


class _Attention:
    """The function that transformers calls for each attention."""

    def __init__(self, masks: _Masks, foreign_window: int) -> None:
        self.masks = masks
        self.foreign_window = foreign_window  # of the config; which layers have it, only a mask can tell
        self.calls = 0

    def __call__(self, module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                 attention_mask: torch.Tensor | None, scaling: float | None = None, sliding_window: int | None = None,
                 softcap: float | None = None, s_aux: torch.Tensor | None = None, **others: Any) -> Any:
        self.calls += 1
        name = type(module).__name__
        if getattr(module, "is_causal", True) is False:
            raise Refused(f"{name} is not causal: only decoders can be exported")
        strange = sorted(k for k, v in others.items() if k not in _HARMLESS and v is not None)
        if any(isinstance(others[k], torch.Tensor) for k in strange):
            raise Refused(f"{name} gives its attention {strange[0]}, which the paged attention does not have")
        window = self.masks.windows.get(id(attention_mask)) if attention_mask is not None else None
        if window is None and attention_mask is not None:
            raise Refused(f"{name} makes a mask of its own for its attention, and not the causal one or a window: the paged "
                          "attention has no other")
        if window is None:
            window = sliding_window or 0
            if not window and self.foreign_window:
                self._refuse_window(name)
        elif sliding_window and window != sliding_window:
            raise Refused(f"{name} has a window of {sliding_window} keys, and a mask of {window or 'all'}")
        scale = float(query.shape[-1] ** -0.5 if scaling is None else scaling)
        out = torch.ops.npugraph_export.attention(query, key, value, s_aux, scale, int(window), float(softcap or 0.0))
        return out, None

    def _refuse_window(self, name: str) -> None:
        raise Refused(f"{name} makes a mask of its own, and config.json has sliding_window {self.foreign_window}: which layers "
                      "it is for cannot be seen; without sliding_window it can be exported")

    def _window_of_mask(self, mask: torch.Tensor | None, is_causal: bool) -> int:
        if mask is not None and id(mask) in self.masks.windows:
            return self.masks.windows[id(mask)]
        if mask is not None or not is_causal:
            raise Refused("its attention has a mask of its own (as for ALiBi or prefixes), and not the causal one: the paged "
                          "attention has no other")
        if self.foreign_window:
            self._refuse_window("its attention")
        return 0

    def of_pytorch(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
                   dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, **_: Any) -> torch.Tensor:
        """The same for models that call scaled_dot_product_attention. With one token, nothing says that it is causal."""
        self.calls += 1
        window = self._window_of_mask(attn_mask, is_causal or query.shape[2] == 1)
        scale = float(query.shape[-1] ** -0.5 if scale is None else scale)
        out: torch.Tensor = torch.ops.npugraph_export.attention(query, key, value, None, scale, window, 0.0)
        return out.transpose(1, 2)


# ---- models without weights ----

@contextlib.contextmanager
def _no_weights() -> Iterator[None]:
    """Parameters that are made here have shapes alone; buffers have their values."""
    register = torch.nn.Module.register_parameter

    def without(module: torch.nn.Module, name: str, param: torch.nn.Parameter | None) -> None:
        register(module, name, param)
        if param is not None:
            module._parameters[name] = torch.nn.Parameter(param.detach().to("meta"), requires_grad=False)
    torch.nn.Module.register_parameter = without  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register  # type: ignore[method-assign]


def skeleton(config: Any, cls: Any = None) -> torch.nn.Module:
    """Returns a model of f32, whose parameters have no values. cls: of the model; None: that of its config."""
    from transformers import AutoModelForCausalLM
    make = cls._from_config if cls is not None else AutoModelForCausalLM.from_config
    with _no_weights(), _interfaces(_Masks(), 0):
        try:
            model: torch.nn.Module = make(config, attn_implementation=NAME, dtype=torch.float32)
        except KeyError:  # its attention is chosen among classes of its own
            try:
                model = make(config, attn_implementation="sdpa", dtype=torch.float32)
            except (KeyError, ValueError):
                raise Refused(f"{_architecture(config)} calls neither the attention interface of transformers nor PyTorch's "
                              "scaled_dot_product_attention, so its attention cannot be replaced") from None
    model.tie_weights()  # type: ignore[operator]
    return model.eval()


def _architecture(config: Any) -> str:
    return str((getattr(config, "architectures", None) or [type(config).__name__])[0])


@contextlib.contextmanager
def _interfaces(masks: _Masks, foreign_window: int) -> Iterator[_Attention]:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    attention = _Attention(masks, foreign_window)
    pytorch = torch.nn.functional.scaled_dot_product_attention
    torch.nn.functional.scaled_dot_product_attention = attention.of_pytorch  # type: ignore[assignment]
    ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
    of_sdpa = ALL_MASK_ATTENTION_FUNCTIONS["sdpa"]
    for name in (NAME, "sdpa"):
        ALL_MASK_ATTENTION_FUNCTIONS.register(name, masks.make)
    try:
        yield attention
    finally:
        torch.nn.functional.scaled_dot_product_attention = pytorch
        ALL_MASK_ATTENTION_FUNCTIONS.register("sdpa", of_sdpa)
        for interface in (ALL_ATTENTION_FUNCTIONS, ALL_MASK_ATTENTION_FUNCTIONS):
            type(interface)._global_mapping.pop(NAME, None)


# ---- tracing ----

@dataclasses.dataclass
class Trace:
    """A traced model: its placeholders are its parameters and buffers, by `names`, then tokens and positions."""

    gm: GraphModule
    names: list[str]
    tensors: dict[str, torch.Tensor]  # by name; parameters have no values


def trace(model: torch.nn.Module, shape: tuple[int, int], dynamic: int) -> Trace:
    """Traces a model for tokens of a shape, in which one dimension is a symbol."""
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    names = list(tensors)
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    with mode:
        fakes = [torch.empty(t.shape, dtype=t.dtype) for t in tensors.values()]
    sizes = [DimDynamic.DYNAMIC if d == dynamic else DimDynamic.STATIC for d in range(2)]
    # One symbol is the size of both.
    tokens = mode.from_tensor(torch.zeros(shape, dtype=torch.int64),
                              symbolic_context=StatelessSymbolicContext(dynamic_sizes=sizes))
    with mode:
        positions = torch.empty_like(tokens)
    window = getattr(model.config, "sliding_window", None) if getattr(model.config, "use_sliding_window", True) else None
    with torch.no_grad(), _interfaces(_Masks(), window or 0) as attention, _hidden_marked(model), experts_replaced(model), \
            _static_rotation(model):
        try:
            gm = _traced(_step(model, names), fakes, tokens, positions)
        except _ASKS as why:
            raise Refused(_asked(model, why)) from why
        if any(_writes(n) for n in gm.graph.nodes):
            gm = _traced(torch.func.functionalize(gm), fakes, tokens, positions)
        if is_complex(gm):
            gm = _traced(Parts(gm).run, fakes, tokens, positions)
    if not attention.calls:
        raise Refused(f"{type(model).__name__} calls no attention of transformers' interface: models without attention, or "
                      "with one of their own, cannot be exported")
    if not any(_is_symbolic(size) for n in gm.graph.nodes if n.op == "placeholder" for size in n.meta["val"].shape):
        raise Refused(f"the code of {type(model).__name__} computes other things for other numbers of tokens")
    gm.graph.eliminate_dead_code()
    return Trace(gm, names, tensors)


def _traced(function: Any, *arguments: Any) -> GraphModule:
    traced: GraphModule = make_fx(function, tracing_mode="symbolic", decomposition_table=decomposition_table(),
                                  _allow_non_fake_inputs=True)(*arguments)
    return traced


def _asked(model: torch.nn.Module, why: BaseException) -> str:
    """Says which line of the model's code asked what the numbers in a tensor are, which a trace does not know."""
    tracing = tuple(os.path.dirname(file) + os.sep for file in (torch.__file__, __file__))
    frames = [f for f in traceback.extract_tb(why.__traceback__) if not f.filename.startswith(tracing)]
    where = f"{frames[-1].filename}:{frames[-1].lineno} ({frames[-1].line})"
    return (f"what {type(model).__name__} computes depends on the numbers in a tensor, at {where}: a step that is captured does "
            "the same for all. If a setting of config.json avoids that line, change it; else run the model with "
            'torch.compile(model, backend="npugraph"), which leaves that line to PyTorch')


def _writes(node: Any) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _asks_for_masks(model: torch.nn.Module) -> bool:
    return hasattr(sys.modules[type(model).__module__], "create_causal_mask")


def _step(model: torch.nn.Module, names: list[str]) -> Any:
    accepted = inspect.signature(model.forward).parameters
    if "position_ids" not in accepted:
        raise Refused(f"{type(model).__name__} takes no position_ids (its positions are ALiBi's, or of another kind that "
                      "paged attention does not have)")

    # The interface takes a mask without one for a sign of packed texts; other models take one for a sign of padding.
    masked = model.config._attn_implementation == NAME or _asks_for_masks(model)  # type: ignore[union-attr]

    def step(tensors: list[torch.Tensor], tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        given = {"input_ids": tokens, "position_ids": positions, "use_cache": False, "return_dict": True,
                 "attention_mask": torch.ones_like(tokens) if masked else None}
        out = torch.func.functional_call(model, dict(zip(names, tensors, strict=True)), (),
                                         {k: v for k, v in given.items() if k in accepted})
        logits: torch.Tensor = out.logits
        return logits
    return step


@contextlib.contextmanager
def _hidden_marked(model: torch.nn.Module) -> Iterator[None]:
    """Marks what the part below the head returns. Its class may name that part in one way and call it in another."""
    found = [getattr(model, str(model.base_model_prefix), None), model.get_decoder()]  # type: ignore[operator]
    below = {id(m): m for m in found if isinstance(m, torch.nn.Module) and m is not model}
    marked: list[bool] = []

    def mark(_: Any, __: Any, out: Any) -> Any:
        if not marked:
            out.last_hidden_state = torch.ops.npugraph_export.hidden(out.last_hidden_state)
            marked.append(True)
        return out
    hooks = [m.register_forward_hook(mark) for m in below.values()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def _static_rotation(model: torch.nn.Module) -> Iterator[None]:
    """Keeps rotary modules from choosing their frequencies by the positions that they see: contexts end before that
    (see `last_position`)."""
    changed = [(m, kind) for m in model.modules() if isinstance(kind := getattr(m, "rope_type", None), (str, dict))]
    for m, kind in changed:
        m.rope_type = dict.fromkeys(kind, "default") if isinstance(kind, dict) else "default"  # type: ignore[assignment]
    try:
        yield
    finally:
        for m, kind in changed:
            m.rope_type = kind  # type: ignore[assignment]


def last_position(model: torch.nn.Module) -> int:
    """Returns how long contexts may be."""
    config: Any = model.config
    most = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or 2048
    scaling = getattr(config, "rope_scaling", None) or getattr(config, "rope_parameters", None) or {}
    for m in model.modules():
        kind = getattr(m, "rope_type", None)
        for layers, word in kind.items() if isinstance(kind, dict) else [("", kind)]:  # of kinds of layers, or of all
            if word in ("dynamic", "longrope"):
                original = (scaling.get(layers) or scaling).get("original_max_position_embeddings") or getattr(
                    config, "original_max_position_embeddings", None)
                most = min(most, original or most)
    return int(most)


# ---- what a trace must not have ----

_REDUCING = {"mean.dim": 1, "sum.dim_IntList": 1, "amax": 1, "amin": 1, "var.correction": 1, "var_mean.correction": 1,
             "any.dim": 1, "all.dim": 1, "any.dims": 1, "all.dims": 1, "_softmax": 1, "_log_softmax": 1, "cumsum": 1,
             "argmax": 1, "argmin": 1, "max.dim": 1, "min.dim": 1, "prod.dim_int": 1, "select.int": 1, "gather": 1,
             "index_select": 1, "scatter.src": 1, "scatter.value": 1, "scatter_add": 1, "flip": 1, "topk": 2, "sort": 1,
             "split_with_sizes": 2, "split.Tensor": 2, "unbind.int": 1, "slice_scatter": 2, "select_scatter": 2,
             "slice.Tensor": 1, "cat": 1}
_DEFAULT_DIM = {"topk": -1, "sort": -1, "slice.Tensor": 0, "cat": 0}


def check_rowwise(traced: Trace) -> None:
    """Refuses a trace of [1, tokens] in which something but attention reads other tokens."""
    for node in traced.gm.graph.nodes:
        if node.op == "call_function" and str(node.target).startswith("aten."):
            name = str(node.target).removeprefix("aten.").removesuffix(".default")
            if _mixes(node, name):
                raise Refused(f"{_module_of(node)}aten.{name} mixes the rows of several tokens outside of attention; the daemon "
                              "keeps no state for that (as for layers of state-space models and convolutions)")


def _module_of(node: Any) -> str:
    stack = node.meta.get("nn_module_stack")
    return f"{list(stack.values())[-1][0]}: " if stack else ""


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, torch.SymInt) and not value.node.expr.is_number


def _shape(node: Any) -> Any:
    meta = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return meta.shape if isinstance(meta, torch.Tensor) else ()


def _mixes(node: Any, name: str) -> bool:
    if sum(map(_is_symbolic, _shape(node))) > 1:  # tokens by tokens
        return True
    if name in ("mm", "bmm", "addmm", "baddbmm"):
        return _is_symbolic(_shape(node.args[0 if name in ("mm", "bmm") else 1])[-1])
    if name in ("sum", "mean", "max", "min", "any", "all", "convolution", "constant_pad_nd", "roll"):
        return any(map(_is_symbolic, _shape(node.args[0])))
    if name == "index.Tensor":
        return any(_is_symbolic(size) for size, i in zip(_shape(node.args[0]), node.args[1], strict=False) if i is not None)
    if name not in _REDUCING:
        return False
    shape = _shape(node.args[0][0] if name == "cat" else node.args[0])
    at = _REDUCING[name]
    dims = node.args[at] if len(node.args) > at else node.kwargs.get("dim", _DEFAULT_DIM.get(name))
    if name == "slice.Tensor" and _whole_slice(node):
        return False
    if dims is None or dims == []:
        dims = range(len(shape))
    return any(_is_symbolic(shape[d]) for d in (dims if isinstance(dims, (list, tuple, range)) else [dims]))


def _whole_slice(node: Any) -> bool:
    start, end, step = (*node.args[2:], *(None, None, None)[len(node.args) - 2:])[:3]
    return (start or 0) == 0 and (end is None or (isinstance(end, int) and end > 1 << 40)) and (step or 1) == 1
