#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make layers/: decoders that PyTorch exports to ATen operators, and their results in PyTorch.

Three small decoders with the same weights, which give the same results: `hf` is the decoder layer of transformers'
Qwen3 as it is, `hf_flat` its modules put together for rows of tokens without a batch, `vllm` layers written from the
definition of vLLM's native ones (merged projections, residuals that go from norm to norm, rotation by halves).  A
trace is `aot`, what AOT autograd hands to a backend of torch.compile that asks for no decompositions, or `export`,
what torch.export gives with none; and becomes graph text node by node.  What has no operator of its own in
graphs/ops.def is written as what it is by definition (`Text.rename`); nothing is simplified.

The same is done with some of them in bf16, weights and caches too: the f32 results are what those mean.

Attention over a paged cache is one opaque operator in PyTorch, as in vLLM, whose caches are no operands of it.  In the
text it is the two operators that it stands for, on states.  README.md says what the files hold.
"""

import json
import operator
import os
import re

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import library, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from transformers import AttentionInterface
from transformers.models.qwen3.modeling_qwen3 import (
    Qwen3Config,
    Qwen3DecoderLayer,
    Qwen3RMSNorm,
    Qwen3RotaryEmbedding,
    apply_rotary_pos_emb,
)

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "layers")
OPS = os.path.join(HERE, "..", "..", "graphs", "ops.def")

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB, LAYERS = 64, 4, 2, 16, 80, 72, 2
EPS, THETA, POSITIONS = 1e-6, 10000.0, 32
BLOCK, BLOCKS, TABLE = 4, 12, 4  # slots of a block, blocks, blocks of a sequence
STARTS = (0, 3, 6)  # length of each sequence's context before the first step
STEPS = 5  # past a block for each of them
LARGEST = 8  # rows of a graph with a symbol
TOLERANCE = 1e-5  # fraction of the largest |expected|
DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.int32: "i32", torch.int64: "i64"}


# ---------------------------------------------------------------- attention over a paged cache

NAMESPACE = "npugraph"
CACHES = []  # (keys, values) of each layer: [BLOCKS, BLOCK, KV_HEADS, HEAD_DIM]


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    slots: torch.Tensor,
    table: torch.Tensor,
    q_lens: torch.Tensor,
    kv_lens: torch.Tensor,
    layer: int,
    scale: float,
) -> torch.Tensor:
    """Compute attention with one query row for each sequence, in f32, rounded once. q_lens: running sums of rows, 1, 2, ..."""
    keys, values = CACHES[layer]
    keys.view(-1, KV_HEADS, HEAD_DIM)[slots.long()] = k
    values.view(-1, KV_HEADS, HEAD_DIM)[slots.long()] = v
    assert q_lens.tolist() == list(range(1, q.shape[0] + 1))
    out = []
    for s in range(q.shape[0]):
        n = int(kv_lens[s])
        context = [c[table[s].long()].reshape(-1, KV_HEADS, HEAD_DIM)[:n].transpose(0, 1) for c in (keys, values)]
        one = (x.to(torch.float32) for x in (q[s][:, None], *context))
        one = F.scaled_dot_product_attention(*one, scale=scale, enable_gqa=True)
        out.append(one[:, 0].to(q.dtype))
    return torch.stack(out)


# One opaque node of the trace.
paged_attention = library.custom_op(f"{NAMESPACE}::paged_attention", attend, mutates_args=())


@paged_attention.register_fake
def _(q, k, v, slots, table, q_lens, kv_lens, layer, scale):
    return torch.empty_like(q)


ATTEND = getattr(torch.ops, NAMESPACE).paged_attention


# ---------------------------------------------------------------- Hugging Face's modules


def paged(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **step):
    q, k, v = (x.transpose(1, 2).squeeze(0) for x in (query, key, value))
    out = ATTEND(
        q, k, v, step["slots"], step["table"], step["q_lens"], step["kv_lens"], module.layer_idx, scaling
    )
    return out.unsqueeze(0), None


AttentionInterface.register("paged", paged)


class HuggingFace(nn.Module):
    """The tokens of all sequences are in a batch of one, as servers run these modules."""

    def __init__(self):
        super().__init__()
        config = Qwen3Config(
            hidden_size=HIDDEN,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            head_dim=HEAD_DIM,
            intermediate_size=FFN,
            vocab_size=VOCAB,
            num_hidden_layers=LAYERS,
            rms_norm_eps=EPS,
            rope_theta=THETA,
            max_position_embeddings=POSITIONS,
        )
        config._attn_implementation = "paged"
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.rotary_emb = Qwen3RotaryEmbedding(config)
        self.layers = nn.ModuleList(Qwen3DecoderLayer(config, i) for i in range(LAYERS))
        self.norm = Qwen3RMSNorm(HIDDEN, EPS)

    def forward(self, tokens, positions, slots, table, q_lens, kv_lens):
        step = {"slots": slots, "table": table, "q_lens": q_lens, "kv_lens": kv_lens}
        x = self.embed_tokens(tokens.unsqueeze(0))
        turn = self.rotary_emb(x, positions.unsqueeze(0))
        for layer in self.layers:
            x = layer(x, position_embeddings=turn, attention_mask=None, **step)
        return F.linear(self.norm(x), self.embed_tokens.weight)


class Flat(HuggingFace):
    """The same modules, for rows of tokens."""

    def __init__(self):
        super().__init__()
        cos, sin = self.rotary_emb(torch.zeros(1, 1), torch.arange(POSITIONS)[None])
        self.register_buffer("cos", cos[0])
        self.register_buffer("sin", sin[0])

    def attention(self, layer, x, cos, sin, *step):
        q = layer.q_norm(layer.q_proj(x).view(-1, HEADS, HEAD_DIM))
        k = layer.k_norm(layer.k_proj(x).view(-1, KV_HEADS, HEAD_DIM))
        v = layer.v_proj(x).view(-1, KV_HEADS, HEAD_DIM)
        q, k = apply_rotary_pos_emb(q, k, cos, sin)
        out = ATTEND(q, k, v, *step, layer.layer_idx, layer.scaling)
        return layer.o_proj(out.view(-1, HEADS * HEAD_DIM))

    def forward(self, tokens, positions, slots, table, q_lens, kv_lens):
        step = (slots, table, q_lens, kv_lens)
        x, cos, sin = self.embed_tokens(tokens), self.cos[positions], self.sin[positions]
        for layer in self.layers:
            x = x + self.attention(layer.self_attn, layer.input_layernorm(x), cos, sin, *step)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return F.linear(self.norm(x), self.embed_tokens.weight)


# ---------------------------------------------------------------- vLLM's native layers, by their definition


class RMSNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), EPS

    def forward(self, x, residual=None):
        dtype = x.dtype
        x = x.to(torch.float32)
        if residual is not None:
            x = x + residual.to(torch.float32)
            residual = x.to(dtype)
        variance = x.pow(2).mean(dim=-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        x = x.to(dtype) * self.weight
        return x if residual is None else (x, residual)


def turn_halves(x, cos, sin):
    cos, sin = cos.unsqueeze(-2).to(x.dtype), sin.unsqueeze(-2).to(x.dtype)
    x1, x2 = torch.chunk(x, 2, dim=-1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)


class RotaryEmbedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.rotary_dim = HEAD_DIM
        rates = 1.0 / THETA ** (torch.arange(0, HEAD_DIM, 2, dtype=torch.float32) / HEAD_DIM)
        angles = torch.arange(POSITIONS, dtype=torch.float32)[:, None] * rates
        self.register_buffer("cos_sin_cache", torch.cat((angles.cos(), angles.sin()), dim=-1))

    def turn(self, x, cos, sin, rows):
        shape = x.shape
        x = x.view(rows, -1, HEAD_DIM)
        turned = turn_halves(x[..., : self.rotary_dim], cos, sin)
        return torch.cat((turned, x[..., self.rotary_dim :]), dim=-1).reshape(shape)

    def forward(self, positions, q, k):
        positions = positions.flatten()
        cos, sin = self.cos_sin_cache.index_select(0, positions).chunk(2, dim=-1)
        return self.turn(q, cos, sin, positions.shape[0]), self.turn(k, cos, sin, positions.shape[0])


class Attention(nn.Module):
    def __init__(self, index, rotary_emb):
        super().__init__()
        self.index, self.sizes = index, [HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM]
        self.rotary_emb, self.q_norm, self.k_norm = rotary_emb, RMSNorm(HEAD_DIM), RMSNorm(HEAD_DIM)
        self.qkv_proj = nn.Linear(HIDDEN, sum(self.sizes), bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)

    def forward(self, positions, x, *step):
        q, k, v = self.qkv_proj(x).split(self.sizes, dim=-1)
        q = self.q_norm(q.view(*q.shape[:-1], q.shape[-1] // HEAD_DIM, HEAD_DIM)).view(q.shape)
        k = self.k_norm(k.view(*k.shape[:-1], k.shape[-1] // HEAD_DIM, HEAD_DIM)).view(k.shape)
        q, k = self.rotary_emb(positions, q, k)
        q, k, v = q.view(-1, HEADS, HEAD_DIM), k.view(-1, KV_HEADS, HEAD_DIM), v.view(-1, KV_HEADS, HEAD_DIM)
        out = ATTEND(q, k, v, *step, self.index, HEAD_DIM**-0.5)
        return self.o_proj(out.view(-1, HEADS * HEAD_DIM))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up_proj = nn.Linear(HIDDEN, 2 * FFN, bias=False)
        self.down_proj = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x):
        both = self.gate_up_proj(x)
        half = both.shape[-1] // 2
        return self.down_proj(F.silu(both[..., :half]) * both[..., half:])


class NativeLayer(nn.Module):
    def __init__(self, index, rotary_emb):
        super().__init__()
        self.self_attn, self.mlp = Attention(index, rotary_emb), MLP()
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(HIDDEN), RMSNorm(HIDDEN)

    def forward(self, positions, x, residual, *step):
        if residual is None:
            residual, x = x, self.input_layernorm(x)
        else:
            x, residual = self.input_layernorm(x, residual)
        x, residual = self.post_attention_layernorm(self.self_attn(positions, x, *step), residual)
        return self.mlp(x), residual


class Native(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.rotary_emb = RotaryEmbedding()
        self.layers = nn.ModuleList(NativeLayer(i, self.rotary_emb) for i in range(LAYERS))
        self.norm = RMSNorm(HIDDEN)

    def forward(self, tokens, positions, slots, table, q_lens, kv_lens):
        x, residual = self.embed_tokens(tokens), None
        for layer in self.layers:
            x, residual = layer(positions, x, residual, slots, table, q_lens, kv_lens)
        x, _ = self.norm(x, residual)
        return F.linear(x, self.embed_tokens.weight)


STYLES = {"hf": HuggingFace, "hf_flat": Flat, "vllm": Native}
TRACES = [("hf", "aot"), ("hf_flat", "aot"), ("hf_flat", "export"), ("vllm", "aot"), ("vllm", "export")]
NARROW = [("hf", "aot"), ("vllm", "aot")]  # in bf16, too


# ---------------------------------------------------------------- weights, inputs

MERGED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}


def parts_of(name):
    """Return the tensors of the file that are concatenated in this parameter."""
    for merged, parts in MERGED.items():
        if f".{merged}." in name:
            return [name.replace(merged, part) for part in parts]
    return [name]


def draw_weights():
    """Make weights with numpy, so that they don't depend on torch's version, with half the bits, so that the file is small."""
    rng = np.random.default_rng(20261122)
    weights = {}
    for name, p in HuggingFace().named_parameters():
        scale = 0.02 if "embed" in name else p.shape[-1] ** -0.5  # small: epsilon counts
        x = rng.standard_normal(p.shape)
        x = 1 + 0.3 * x if "norm" in name else scale * x
        weights[name] = torch.from_numpy(x).to(torch.bfloat16)
    return weights


def load(model, weights, dtype=torch.float32):
    for name, p in model.named_parameters():
        p.data = torch.cat([weights[part] for part in parts_of(name)]).to(dtype)
    return model.eval().requires_grad_(False)


def draw_caches():
    """Make caches with the contexts before the first step, and far-off numbers in slots that belong to no context."""
    rng = np.random.default_rng(7)
    table = torch.from_numpy(rng.permutation(BLOCKS)[: len(STARTS) * TABLE].reshape(len(STARTS), TABLE).astype("i4"))
    known = torch.zeros(BLOCKS * BLOCK, dtype=torch.bool)
    for s, start in enumerate(STARTS):
        known[[int(table[s, p // BLOCK]) * BLOCK + p % BLOCK for p in range(start)]] = True
    caches = []
    for _ in range(2 * LAYERS):
        c = torch.from_numpy(rng.standard_normal((BLOCKS * BLOCK, KV_HEADS, HEAD_DIM))).to(torch.bfloat16)
        c[~known] = 50.0
        caches.append(c.view(BLOCKS, BLOCK, KV_HEADS, HEAD_DIM))
    return table, caches


def fill_caches(caches, dtype=torch.float32):
    CACHES[:] = [tuple(c.to(dtype, copy=True) for c in caches[2 * i : 2 * i + 2]) for i in range(LAYERS)]


def inputs_of(step, table):
    """Return the inputs of a step: a token of each sequence, at its position."""
    positions = torch.tensor([start + step for start in STARTS])
    slots = [int(table[s, p // BLOCK]) * BLOCK + int(p) % BLOCK for s, p in enumerate(positions)]
    return {
        "tokens": torch.tensor([(17 * step + 23 * s + 5) % VOCAB for s in range(len(STARTS))]),
        "positions": positions,
        "slots": torch.tensor(slots, dtype=torch.int32),
        "table": table,
        "q_lens": torch.arange(1, len(STARTS) + 1),
        "kv_lens": positions + 1,
    }


def run(model, table, caches, dtype=torch.float32):
    """Return the logits of each step [STEPS, rows, VOCAB], and the caches after the last one."""
    fill_caches(caches, dtype)
    with torch.no_grad():
        logits = [model(**inputs_of(step, table)).reshape(len(STARTS), VOCAB) for step in range(STEPS)]
    return torch.stack(logits), [c for pair in CACHES for c in pair]


# ---------------------------------------------------------------- traces


def name_of(source):
    """Return a short name (tokens, layers.0.input_layernorm.weight) for what Dynamo calls L['self']._modules['layers']..."""
    text = source.name if isinstance(source.name, str) else source.name()
    names = re.findall(r"\['([^']+)'\]", text)
    return ".".join(names[1:] if names[0] == "self" else names)


def trace_aot(model, inputs, symbolic):
    """Return the graph that a backend of torch.compile gets from AOT autograd, and the names of its operands."""
    got = {}

    def backend(gm, examples):
        names = [
            name_of(n.meta["grapharg"].source) if n.meta.get("grapharg") is not None else None
            for n in gm.graph.find_nodes(op="placeholder")
        ]

        def compiler(aten, _):
            got["graph"], got["names"] = aten.graph, names
            return make_boxed_func(aten.forward)

        return aot_autograd(fw_compiler=compiler, keep_inference_input_mutations=True)(gm, examples)

    torch._dynamo.reset()
    if symbolic:
        for t in inputs.values():
            torch._dynamo.mark_dynamic(t, 0, min=2, max=LARGEST)
    with torch.no_grad():
        torch.compile(model, backend=backend, fullgraph=True)(**inputs)
    return got["graph"], got["names"]


def trace_export(model, inputs, symbolic):
    rows = torch.export.Dim("T", min=2, max=LARGEST)
    shapes = {name: {0: rows} for name in inputs} if symbolic else None
    with torch.no_grad():
        program = torch.export.export(model, (), dict(inputs), dynamic_shapes=shapes).run_decompositions({})
    specs = program.graph_signature.input_specs
    return program.graph, [s.target if s.target is not None else s.arg.name for s in specs]


# ---------------------------------------------------------------- graph text


def read_ops():
    """Return the attributes of each operator of graphs/ops.def: {"aten.add.Scalar": {"other": "float", "alpha": "float"}}."""
    with open(OPS, encoding="utf-8") as f:
        rows = re.findall(r'^NGD_OP\(\w+, "([^"]+)"[^"]*"([^"]*)"', f.read(), re.M)
    return {name: dict(a.split("=")[0].split(":") for a in attrs.split()) for name, attrs in rows}


class Text:
    """Graph text of a trace. Nodes keep their order and their names."""

    def __init__(self, name, graph, names, model, symbolic):
        self.name, self.graph, self.model, self.symbolic = name, graph, model, symbolic
        self.ops, self.values, self.lines, self.inputs = read_ops(), {}, [], {}
        self.caches = [f"kv.{i}.{c}" for i in range(LAYERS) for c in "kv"]
        self.params, self.first_name = [], {}
        for bound in (model.named_parameters, model.named_buffers):
            first = {id(t): label for label, t in bound()}
            self.first_name |= {label: first[id(t)] for label, t in bound(remove_duplicate=False)}
        for node, label in zip(graph.find_nodes(op="placeholder"), names, strict=True):
            self.declare(node, label)

    def size(self, n):
        """An int, or a symbolic one: there is one symbol, T."""
        if isinstance(n, torch.fx.Node):
            n = n.meta["val"]
        return str(n) if isinstance(n, int) else re.sub(r"\bs\d+\b", "T", str(n)).replace(" ", "")

    def type(self, t):
        return f"{DTYPES[t.dtype]}[{','.join(self.size(d) for d in t.shape)}]"

    def declare(self, node, label):
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            return  # a size
        if label in self.first_name:
            label = self.first_name[label]
            self.params += [] if label in self.params else [label]
        self.values[node] = f"%{label}"
        self.inputs[label] = self.type(value)

    # Operators that the table has under another name, by the definition of each.
    def rename(self, node):
        """Return (operator, arguments by name)."""
        op = node.target
        arguments = dict(zip([a.name for a in op._schema.arguments], node.args)) | node.kwargs
        name = op._schema.name.replace("::", ".") + ("." + op._overloadname if op._overloadname != "default" else "")
        x = arguments.get("self")
        val = x.meta["val"] if isinstance(x, torch.fx.Node) else None
        if name in ("aten.add.Tensor", "aten.mul.Tensor") and not isinstance(arguments["other"], torch.fx.Node):
            return name.replace(".Tensor", ".Scalar"), arguments
        if name == "aten.matmul" and val.dim() == 3 and arguments["other"].meta["val"].dim() == 3:
            return "aten.bmm", {"self": x, "mat2": arguments["other"]}
        return name, arguments

    def attribute(self, kind, v):
        if kind == "ints":
            return "[" + ", ".join(self.size(n) for n in v) + "]"
        if kind == "int":
            return self.size(v)
        if kind == "bool":
            return "true" if v else "false"
        return DTYPES[v] if kind == "dtype" else repr(v)

    def attention(self, node):
        q, k, v, slots, table, q_lens, kv_lens, layer, scale = node.args
        q, k, v, slots, table, q_lens, kv_lens = (
            self.values[x] for x in (q, k, v, slots, table, q_lens, kv_lens)
        )
        keys, values = (f"%{c}" for c in self.caches[2 * layer : 2 * layer + 2])
        self.lines.append(f"npu.scatter_pa_kv_cache({k}, {v}, {slots}, {keys}, {values})")
        self.lines.append(
            f"%{node.name} = npu.fused_infer_attention_score({q}, {keys}, {values}, {table}, {q_lens}, {kv_lens}) "
            f"{{num_heads={HEADS}, num_key_value_heads={KV_HEADS}, scale={scale!r}, block_size={BLOCK}}}"
            f" : {self.type(node.meta['val'])}"
        )
        self.values[node] = f"%{node.name}"

    def results(self, node):
        """Return names and types of the node's results; of several results the unused ones need a name too."""
        if isinstance(node.meta["val"], torch.Tensor):
            return [(f"%{node.name}", self.type(node.meta["val"]))]
        made = {u.args[1]: u for u in node.users}
        for u in made.values():
            self.values[u] = f"%{u.name}"
        return [
            (f"%{made[i].name if i in made else f'{node.name}.{i}'}", self.type(t))
            for i, t in enumerate(node.meta["val"])
        ]

    def node(self, node):
        name, arguments = self.rename(node)
        schema, operands, attributes = self.ops[name], [], []
        for key, v in arguments.items():
            if isinstance(v, torch.fx.Node) and isinstance(v.meta["val"], torch.Tensor):
                operands.append(self.values[v])
            elif isinstance(v, (list, tuple)) and v and isinstance(v[0], torch.fx.Node) and v[0] in self.values:
                operands += [self.values[x] for x in v]
            elif key in schema:
                attributes.append(f"{key}={self.attribute(schema[key], v)}")
            elif v is not None:
                raise ValueError(f"{node.format_node()}: {name} of the table has no {key}")
        made = self.results(node)
        text = f"{', '.join(m[0] for m in made)} = {name}({', '.join(operands)})"
        text += f" {{{', '.join(attributes)}}}" if attributes else ""
        self.lines.append(f"{text} : {', '.join(m[1] for m in made)}")
        self.values[node] = made[0][0]

    def make(self):
        for node in self.graph.nodes:
            if node.op != "call_function" or node.target is operator.getitem:
                continue
            if not isinstance(node.meta.get("val"), (torch.Tensor, list, tuple)):
                # Sizes are written where they are used; annotated types check the traced metadata.
                assert node.target is torch.ops.aten._assert_tensor_metadata.default or "val" in node.meta
            elif node.target is ATTEND.default:
                self.attention(node)
            else:
                self.node(node)
        (results,) = self.graph.output_node().args
        head = [f"sym T 2..{LARGEST} buckets 4, {LARGEST}"] if self.symbolic else []
        head += [f'param %{p} : {self.inputs[p]} = "{p}"' for p in self.params]
        cache = f"{DTYPES[CACHES[0][0].dtype]}[{BLOCKS},{BLOCK},{KV_HEADS},{HEAD_DIM}]"
        head += [f'state %{c} : {cache} = "{c}"' for c in self.caches]
        for label, t in self.inputs.items():
            if label not in self.params:
                head.append(f"{'host' if label.endswith('_lens') else 'input'} %{label} : {t}")
        body = head + self.lines + [f'return "logits" = {self.values[results[0]]}']
        return f'npugraph 1\ngraph "{self.name}" {{\n' + "".join(f"  {line}\n" for line in body) + "}\n"


# ---------------------------------------------------------------- the files


def check_sharp(model, table, caches, expected):
    """Check that a model with one mistake misses the expected results by far more than the tolerance."""

    def miss(what, module, attribute, wrong):
        kept = getattr(module, attribute)
        setattr(module, attribute, wrong)
        off = ((run(model, table, caches)[0] - expected).abs().max() / expected.abs().max()).item()
        setattr(module, attribute, kept)
        assert off > 20 * TOLERANCE, f"{what}: only {off:.2g} off"

    layer, rotary = model.layers[-1], model.rotary_emb
    for name in ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"):
        norm = layer.get_submodule(name)
        miss(name, norm, "weight", nn.Parameter(torch.ones_like(norm.weight)))
    miss("epsilon", model.layers[0].input_layernorm, "eps", 2 * EPS)
    miss("rotation", rotary, "cos_sin_cache", rotary.cos_sin_cache.roll(1, 0))
    miss("sine and cosine", rotary, "cos_sin_cache", rotary.cos_sin_cache.roll(HEAD_DIM // 2, 1))
    gate_up = layer.mlp.gate_up_proj
    miss("gate and up", gate_up, "weight", nn.Parameter(gate_up.weight.roll(FFN, 0)))


def write_trace(model, style, form, inputs):
    """Write the graph text to a file; return it with the names in it."""
    trace, symbolic = trace_aot if form.startswith("aot") else trace_export, style != "hf"
    graph, names = trace(model, {k: v.clone() for k, v in inputs.items()}, symbolic)
    text = Text(f"{style}-{form}", graph, names, model, symbolic)
    with open(os.path.join(OUT, f"{style}_{form}.txt"), "w", encoding="utf-8") as f:
        f.write(text.make())
    return text


def make_narrow(weights, table, caches, inputs, exact):
    """Run the decoders in bf16. Not their results are compared, but the distance from those of f32."""
    tensors = {}
    for style, form in NARROW:
        model = load(STYLES[style](), weights, torch.bfloat16)
        logits, _ = run(model, table, caches, torch.bfloat16)
        off = (logits.to(torch.float64) - exact).abs().max().item() / exact.abs().max().item()
        assert 0.001 < off < 0.03, f"{style} in bf16 is {off} off"
        fill_caches(caches, torch.bfloat16)
        write_trace(model, style, f"{form}_bf16", inputs)
        tensors[f"{style}_{form}_bf16.logits"] = logits.contiguous()
    save_file(tensors, os.path.join(OUT, "bf16.safetensors"))


def main():
    os.makedirs(OUT, exist_ok=True)
    weights = draw_weights()
    table, caches = draw_caches()
    models = {style: load(make(), weights) for style, make in STYLES.items()}
    logits, after = run(models["hf"], table, caches)
    top = logits.abs().max().item()
    for style, model in models.items():
        off = (run(model, table, caches)[0] - logits).abs().max().item() / top
        assert off < TOLERANCE / 5, f"{style} is another model: {off} off"
    check_sharp(models["vllm"], table, caches, logits)

    steps = [inputs_of(step, table) for step in range(STEPS)]
    tensors = dict(weights)
    tensors |= {f"before.kv.{i // 2}.{'kv'[i % 2]}": c for i, c in enumerate(caches)}
    tensors |= {f"after.kv.{i // 2}.{'kv'[i % 2]}": c for i, c in enumerate(after)}
    tensors |= {f"step.{name}": torch.stack([s[name] for s in steps]) for name in steps[0]} | {"logits": logits}
    merged = {}
    for style, form in TRACES:
        model = models[style]
        fill_caches(caches)
        text = write_trace(model, style, form, steps[0])
        tensors |= {name: b for name, b in model.named_buffers() if name in text.params}
        merged |= {name: parts_of(name) for name in text.params if parts_of(name) != [name]}
    save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(OUT, "layers.safetensors"))
    make_narrow(weights, table, caches, steps[0], logits)
    about = {
        "steps": STEPS,
        "rows": len(STARTS),
        "tolerance": {
            "logits": {"rel": 0.0, "abs": float(f"{TOLERANCE * top:.3g}")},
            "states": {"rel": TOLERANCE, "abs": TOLERANCE},
        },
        "merged": merged,
    }
    with open(os.path.join(OUT, "layers.json"), "w", encoding="utf-8") as f:
        json.dump(about, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
