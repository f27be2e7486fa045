#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the golden files of the model and tokenizer tests with Hugging Face transformers.

    make_golden.py tiny        tests/golden/<name>/ for every row of CASES, and manifest.json
    make_golden.py NAME...     the same for these rows
    make_golden.py tokenizer   tests/golden/tokenizer_cases.json
    make_golden.py bundled     tests/golden/bundled/expect.safetensors
    make_golden.py             all three

`tokenizer` and `bundled` read examples/model and are made again when that model changes.
README.md says what the files hold.  Everything is seeded; the weights are drawn by numpy, so
they do not depend on torch's version.
"""

import argparse
import copy
import json
import os
import shutil

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

import family_cases
import quant_cases

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.normpath(os.path.join(HERE, "..", "..", "examples", "model"))
PROMPT_LENGTH = 41  # neither a power of two nor a multiple of a usual block or chunk
STEPS = 32
F32_TOLERANCE = 1e-4  # fraction of the largest |logit|
LOW_MARGIN = 0.01  # fraction of the range of a row's logits

RULES = {
    "f32": {
        "max_abs_diff_over_max_abs_logit": F32_TOLERANCE,
        "tokens": "equal",
        "text": "for every row: max|logits - expected| <= 1e-4 * max|expected| over the whole tensor",
    },
    "bf16": {
        "argmax_margin_over_range": LOW_MARGIN,
        "tokens": "equal where decided",
        "text": "for every row whose two largest expected logits differ by more than 1 % of "
        "(max - min) of the row: the argmax is equal; feed the expected tokens, not one's own",
    },
}
RULES["f16"] = dict(RULES["bf16"])
RULES["w8a8"] = dict(
    RULES["bf16"],
    kl_of_next_token=1e-3,
    text=RULES["bf16"]["text"] + "; the mean Kullback-Leibler divergence of a row's next token is at most 1e-3: an element "
    "of a row that lies between two integers may be rounded to either",
)

# name, architecture, dtype, what is special, arguments of the configuration
CASES = [
    (
        "qwen3_mha_tied",
        "qwen3",
        "f32",
        "tied, GQA ratio 1, head_dim 12 where hidden/heads is 8",
        dict(
            hidden_size=32,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=12,
            intermediate_size=56,
            vocab_size=160,
            tie_word_embeddings=True,
            rope_theta=10000.0,
            rms_norm_eps=1e-6,
        ),
    ),
    (
        "qwen3_gqa2_untied",
        "qwen3",
        "f32",
        "untied, GQA ratio 2, rope_theta 1e6, small activations and large eps",
        dict(
            hidden_size=40,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            intermediate_size=72,
            vocab_size=131,
            tie_word_embeddings=False,
            rope_theta=1000000.0,
            rms_norm_eps=1e-5,
        ),
    ),
    (
        "qwen3_gqa4_bf16",
        "qwen3",
        "bf16",
        "bf16 weights, tied, GQA ratio 4, heads*head_dim is twice hidden",
        dict(
            hidden_size=48,
            num_attention_heads=8,
            num_key_value_heads=2,
            head_dim=12,
            intermediate_size=80,
            vocab_size=192,
            tie_word_embeddings=True,
            rope_theta=10000.0,
            rms_norm_eps=1e-6,
        ),
    ),
    (
        "qwen3_sharded",
        "qwen3",
        "f32",
        "two shards with an index, three layers, untied, GQA ratio 2",
        dict(
            hidden_size=32,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            intermediate_size=48,
            vocab_size=144,
            tie_word_embeddings=False,
            rope_theta=5000.0,
            rms_norm_eps=1e-6,
            num_hidden_layers=3,
        ),
    ),
    (
        "llama_gqa3_untied",
        "llama",
        "f32",
        "untied, GQA ratio 3 (not a power of two), no head_dim in config.json",
        dict(
            hidden_size=48,
            num_attention_heads=6,
            num_key_value_heads=2,
            intermediate_size=56,
            vocab_size=150,
            tie_word_embeddings=False,
            rope_theta=10000.0,
            rms_norm_eps=1e-5,
        ),
    ),
    (
        "llama3_rope_scaled",
        "llama",
        "f32",
        "llama3 rope scaling past original_max_position_embeddings, GQA ratio 4",
        dict(
            hidden_size=32,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=16,
            intermediate_size=64,
            vocab_size=128,
            tie_word_embeddings=True,
            rope_theta=10000.0,
            rms_norm_eps=1e-5,
            rope_scaling=dict(
                rope_type="llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=32,
            ),
        ),
    ),
    (
        "llama3_rope_parameters",
        "llama",
        "f32",
        "the same scaling with other numbers, config.json as transformers 5 writes it (rope_parameters)",
        dict(
            hidden_size=32,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=20,
            intermediate_size=40,
            vocab_size=128,
            tie_word_embeddings=True,
            rope_theta=500000.0,
            rms_norm_eps=1e-5,
            rope_scaling=dict(
                rope_type="llama3",
                factor=4.0,
                low_freq_factor=1.0,
                high_freq_factor=3.0,
                original_max_position_embeddings=48,
            ),
        ),
    ),
    (
        "llama_bias",
        "llama",
        "f32",
        "attention_bias and mlp_bias, GQA ratio 1, untied",
        dict(
            hidden_size=32,
            num_attention_heads=4,
            num_key_value_heads=4,
            intermediate_size=48,
            vocab_size=128,
            tie_word_embeddings=False,
            rope_theta=10000.0,
            rms_norm_eps=1e-6,
            attention_bias=True,
            mlp_bias=True,
        ),
    ),
    (
        "llama_gqa2_f16",
        "llama",
        "f16",
        "f16 weights, tied, GQA ratio 2",
        dict(
            hidden_size=48,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=88,
            vocab_size=176,
            tie_word_embeddings=True,
            rope_theta=10000.0,
            rms_norm_eps=1e-5,
        ),
    ),
]
CASES += family_cases.CASES + quant_cases.CASES + family_cases.LATER
TORCH_DTYPE = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


# ---------------------------------------------------------------- tiny checkpoints


def make_config(arch, dtype, kw):
    kw = {k: v for k, v in kw.items() if k != "quantise"}
    kw.setdefault("num_hidden_layers", 2)
    vocab = kw["vocab_size"]
    kw.update(max_position_embeddings=512, bos_token_id=vocab - 2, eos_token_id=vocab - 1, pad_token_id=None)
    return family_cases.CLASSES[arch][0](dtype=TORCH_DTYPE[dtype], **kw)


def draw_weights(model, seed, small):
    """Make weights of a magnitude at which attention is neither uniform nor one-hot, and norms matter."""
    rng = np.random.default_rng(seed)
    state = {}
    for name, old in model.state_dict().items():
        shape = tuple(old.shape)
        if name.endswith("norm.weight"):
            value = (0.0 if "gemma" in model.config.model_type else 1.0) + 0.3 * rng.standard_normal(shape)
            if "q_norm" in name or "k_norm" in name:
                value *= 1.4
        elif name.endswith((".bias", "_proj_bias", "correction_bias")):
            value = 0.5 * rng.standard_normal(shape)
        elif name.endswith(".sinks"):
            value = rng.standard_normal(shape)
        elif "embed_tokens" in name:
            value = rng.standard_normal(shape) * (0.01 if small else 0.3)
            if "gemma" in model.config.model_type:  # it multiplies them
                value *= 2 * shape[1] ** -0.5
        elif "o_proj" in name or "down_proj" in name:
            value = rng.standard_normal(shape) * (1.5 * shape[1] ** -0.5 * (0.01 if small else 1.0))
        else:
            value = rng.standard_normal(shape) * (1.5 * shape[1] ** -0.5)
        state[name] = torch.from_numpy(np.asarray(value, dtype=np.float32))
    if model.config.tie_word_embeddings:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


@torch.no_grad()
def run(model, prompt, steps, forced=None, need=None):
    """Greedy decoding through the KV cache; logits of the prompt, tokens, logits of the steps.

    Gives None at the first token that is decided by less than the margin need.
    """
    out = model(input_ids=torch.tensor([prompt]), use_cache=True)
    prompt_logits, cache = out.logits[0], out.past_key_values
    last, tokens, rows = prompt_logits[-1], [], []
    for k in range(steps):
        if need is not None and margins(last[None]).item() < need:
            return None
        tokens.append(int(last.argmax()) if forced is None else forced[k])
        out = model(input_ids=torch.tensor([[tokens[-1]]]), past_key_values=cache, use_cache=True)
        cache, last = out.past_key_values, out.logits[0, -1]
        rows.append(last)
    return prompt_logits, tokens, torch.stack(rows)


@torch.no_grad()
def run_once(model, ids):
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]


def margins(rows):
    top = rows.topk(2, dim=-1).values
    return (top[:, 0] - top[:, 1]) / (rows.max(-1).values - rows.min(-1).values)


def divergence(rows, others):
    """The largest Kullback-Leibler divergence of a row."""
    p, q = rows.double().log_softmax(-1), others.double().log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1).max().item()


def load(path):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    return family_cases.mended(model).eval()


def mistakes(config, state):
    """Make models with one mistake each. An expectation that one of them meets would prove nothing."""

    def changed(**kw):
        other = copy.deepcopy(config)
        for key, value in kw.items():
            setattr(other, key, value)
        return other, state

    def edited(match, edit):
        return config, {k: edit(v) if match in k else v for k, v in state.items()}

    heads, kv = config.num_attention_heads, config.num_key_value_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    if hasattr(config, "rope_theta"):
        yield "rope_theta", changed(rope_theta=config.rope_theta * 2)
    else:  # transformers 5
        for key in set(config.rope_parameters) & {"rope_theta", "factor", "llama_4_scaling_beta", "partial_rotary_factor"}:
            yield key, changed(rope_parameters=dict(config.rope_parameters, **{key: config.rope_parameters[key] * 2}))
    eps = next(key for key in ("rms_norm_eps", "layer_norm_eps", "norm_epsilon") if hasattr(config, key))
    yield "rms_norm_eps", changed(**{eps: getattr(config, eps) * 10})
    act = "hidden_activation" if config.model_type in ("gemma2", "gemma3_text") else "hidden_act"
    if config.model_type != "gpt_oss":  # its gate has no name
        yield act, changed(**{act: "relu"})
    kinds = getattr(config, "layer_types", None)
    if getattr(config, "sliding_window", None) and (kinds is None or "sliding_attention" in kinds):
        yield "sliding_window", changed(sliding_window=config.sliding_window + 1)
    for key, value in family_cases.MISTAKES.get(config.model_type, {}).items():
        if getattr(config, key) == value or (key == "layer_types" and not config.sliding_window):
            continue
        yield key, changed(**{key: value})
    if not hasattr(config, "rope_theta"):
        pass
    elif getattr(config, "rope_scaling", None) and "short_factor" in config.rope_scaling:
        yield "rope scaling's factors", changed(rope_scaling=dict(config.rope_scaling, short_factor=[1.0] * 6))
        yield "rope scaling's scale", changed(original_max_position_embeddings=500)
    elif getattr(config, "rope_scaling", None):
        yield "no rope scaling", changed(rope_scaling=None)
        for key in ("factor", "low_freq_factor", "high_freq_factor", "mscale", "mscale_all_dim"):
            if key not in config.rope_scaling:
                continue
            yield key, changed(rope_scaling=dict(config.rope_scaling, **{key: config.rope_scaling[key] + 1}))
    for part in ("q_norm", "k_norm", "query_layernorm", "key_layernorm"):
        if any(part in key for key in state):
            yield "no " + part, edited(part, torch.ones_like)
    if any(key.endswith("bias") for key in state):
        for part in (
            "q_proj.bias", "v_proj.bias", "o_proj.bias", "gate_proj.bias", "down_proj.bias", "q_a_proj.bias",
            "kv_a_proj_with_mqa.bias", "correction_bias", "router.bias", "input_layernorm.bias", "c_fc.bias", "c_proj.bias",
        ):
            if any(part in key for key in state):
                yield "no " + part, edited(part, torch.zeros_like)
    if config.model_type == "gpt_oss":
        for part in ("gate_up_proj_bias", "down_proj_bias"):
            yield "no " + part, edited(part, torch.zeros_like)
        yield "no sinks", edited("sinks", lambda x: torch.full_like(x, -50.0))
    if 1 < kv < heads and any("q_proj" in key for key in state):  # query head h reads key head h % kv instead of h // ratio
        order = torch.arange(heads).view(heads // kv, kv).t().reshape(-1)

        def regroup(weight):
            return weight.view(heads, dim, -1)[order].reshape(weight.shape)

        def regroup_back(weight):
            return weight.view(weight.shape[0], heads, dim)[:, order].reshape(weight.shape)

        wrong = {
            k: regroup(v) if "q_proj.weight" in k else regroup_back(v) if "o_proj.weight" in k else v
            for k, v in state.items()
        }
        yield "grouping of heads", (config, wrong)


def instantiate(config, state):
    model = family_cases.CLASSES[config.model_type][1]._from_config(copy.deepcopy(config), attn_implementation="eager", dtype=torch.float32)
    model.load_state_dict(state)
    return family_cases.mended(model).eval()


def save_checkpoint(path, name, config, state, dtype):
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    model = instantiate(config, state).to(TORCH_DTYPE[dtype])
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(
        path, safe_serialization=True, max_shard_size=int(size * 0.6) if name == "qwen3_sharded" else "1GB"
    )


def rewrite_config(path, name, arch, quantise):
    """Write config.json in the form that the case tests, after the reference has read it."""
    with open(os.path.join(path, "config.json")) as f:
        config = json.load(f)
    if any(case[0] == name for case in family_cases.CASES + family_cases.LATER):  # what a field that is absent means is part of the family
        default = family_cases.CLASSES[arch][0]().to_dict()
        config = {k: v for k, v in config.items() if k not in family_cases.DEFAULTED or default.get(k) != v}
    if quantise:
        config["quantization_config"] = quant_cases.config_of(quantise)
    if name == "llama_gqa3_untied":
        del config["head_dim"]
    if name == "llama3_rope_parameters":
        config["rope_parameters"] = dict(config.pop("rope_scaling"), rope_theta=config.pop("rope_theta"))
        config["transformers_version"] = "5.0.0"
    if name in ("qwen3_sharded", "llama_gqa2_f16"):  # the name of this field before 4.56
        config["torch_dtype"] = config.pop("dtype")
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")


def made_with():
    return {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}


def make_tiny(index, name, arch, dtype, about, kw):
    config = make_config(arch, dtype, kw)
    small = name in ("qwen3_gqa2_untied", "llama_gqa3_untied", "llama3_rope_scaled")
    shape_only = instantiate(config, {**make_blank(config)})
    need = 20 * F32_TOLERANCE if dtype == "f32" else LOW_MARGIN
    path = os.path.join(HERE, name)
    quantise = kw.get("quantise")
    rows_too = bool(quantise and quantise.get("rows"))
    prepared = (lambda model: quant_cases.quantise_rows(model, quantise["rows"] == "fixed")) if rows_too else lambda model: model
    need = LOW_MARGIN if rows_too else need
    for seed in range(10000 * index, 10000 * index + 10000):  # the first seed without a close call
        state = draw_weights(shape_only, seed, small)
        state = {k: v.to(TORCH_DTYPE[dtype]).float() for k, v in state.items()}
        if quantise:
            plain = state
            state, stored = quant_cases.quantise(plain, quantise)
        prompt = np.random.default_rng(seed + 500).integers(0, config.vocab_size, PROMPT_LENGTH).tolist()
        model = prepared(instantiate(config, state))
        result = run(model, prompt, STEPS, need=need)
        if result is not None and margins(result[2][-1:]) > need and len(set(result[1])) >= 10:
            break
    else:
        raise SystemExit(f"{name}: no seed gives a decided and varied continuation")

    save_checkpoint(path, name, config, state, dtype)
    loaded = load(path)
    for key, value in loaded.state_dict().items():
        assert torch.equal(value, state[key]), key
    loaded = prepared(loaded)
    prompt_logits, tokens, rows = run(loaded, prompt, STEPS)
    decided = margins(torch.cat([prompt_logits[-1:], rows]))

    # Check that the reference is right: the same without a cache, and close to f64.
    both, scale = torch.cat([prompt_logits, rows]), rows.abs().max().item()
    again, double = run_once(loaded, prompt + tokens), run_once(family_cases.doubled(copy.deepcopy(loaded)), prompt + tokens)
    if rows_too:
        noise, exact = divergence(both, again), divergence(both, double)
        assert max(noise, exact) < RULES["w8a8"]["kl_of_next_token"] / 2, (name, noise, exact)
    else:
        noise, exact = ((other - both).abs().max().item() / scale for other in (again, double))
        assert noise < F32_TOLERANCE / 10 and exact < F32_TOLERANCE / 10, (name, noise, exact)

    # Check that the reference is sharp: every mistake shows in the steps' logits.
    shown = {}
    for mistake, (other, wrong) in mistakes(loaded.config, state):
        diff = (run(prepared(instantiate(other, wrong)), prompt, STEPS, forced=tokens)[2] - rows).abs().max().item() / scale
        shown[mistake] = diff
        # eps cannot show where activations are of size 1
        assert diff > 3 * F32_TOLERANCE or (mistake == "rms_norm_eps" and not small), (name, mistake, diff)

    save_file(
        {
            "prompt": torch.tensor(prompt, dtype=torch.int32),
            "prompt_logits": prompt_logits.contiguous(),
            "last_logits": prompt_logits[-1].clone(),
            "tokens": torch.tensor(tokens, dtype=torch.int32),
            "step_logits": rows.contiguous(),
        },
        os.path.join(path, "expect.safetensors"),
    )
    rewrite_config(path, name, arch, quantise)
    if quantise:
        quant_cases.rewrite(path, stored, {k for k in plain if state[k] is not plain[k]})
    for file in os.listdir(path):
        os.chmod(os.path.join(path, file), 0o644)
    print(
        f"{name}: seed {seed} margin {decided.min():.4f} distinct {len(set(tokens))} noise {noise:.1e} "
        f"f64 {exact:.1e} max {scale:.2f} weakest mistake {min(shown, key=shown.get)} {min(shown.values()):.1e}"
    )
    return {
        "name": name,
        "checkpoint": name,
        "expect": f"{name}/expect.safetensors",
        "architecture": arch,
        "dtype": dtype,
        "about": about,
        "prompt_tokens": PROMPT_LENGTH,
        "steps": STEPS,
        "vocab_size": config.vocab_size,
        "seed": seed,
        "made_with": made_with(),
        "smallest_margin_over_range": round(float(decided.min()), 5),
        "rule": "w8a8" if rows_too else dtype,
    }


def make_blank(config):
    return family_cases.CLASSES[config.model_type][1]._from_config(copy.deepcopy(config), dtype=torch.float32).state_dict()


# ---------------------------------------------------------------- bundled model

BUNDLED_PROMPT = (
    "Now in those days there went a certain man out of the city of David, and he lifted up his eyes,"
    " and beheld the angel of the LORD standing in the way. And the angel said unto him,"
)


def make_bundled():
    tok = Tokenizer.from_file(os.path.join(MODEL, "tokenizer.json"))
    prompt = tok.encode(BUNDLED_PROMPT, add_special_tokens=False).ids
    model = load(MODEL)
    prompt_logits, tokens, rows = run(model, prompt, STEPS)
    decided = margins(torch.cat([prompt_logits[-1:], rows]))
    out = os.path.join(HERE, "bundled")
    os.makedirs(out, exist_ok=True)
    save_file(
        {
            "prompt": torch.tensor(prompt, dtype=torch.int32),
            "last_logits": prompt_logits[-1].clone(),
            "tokens": torch.tensor(tokens, dtype=torch.int32),
            "step_logits": rows.contiguous(),
        },
        os.path.join(out, "expect.safetensors"),
    )
    os.chmod(os.path.join(out, "expect.safetensors"), 0o644)
    print("bundled:", repr(tok.decode(prompt + tokens)))
    return {
        "name": "bundled",
        "checkpoint": "../../examples/model",
        "expect": "bundled/expect.safetensors",
        "architecture": "qwen3",
        "dtype": "bf16",
        "about": "the bundled model; the prompt's last position only",
        "prompt_text": BUNDLED_PROMPT,
        "prompt_tokens": len(prompt),
        "steps": STEPS,
        "vocab_size": model.config.vocab_size,
        "text": tok.decode(tokens),
        "made_with": made_with(),
        "smallest_margin_over_range": round(float(decided.min()), 5),
        "rule": "bf16",
    }


# ---------------------------------------------------------------- tokenizer

TEXTS = [
    "",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    " \n",
    "\n ",
    "  \n  \n",
    "\t\t x",
    "a",
    " a",
    "a ",
    "a  b",
    "a   b",
    "In the beginning God created the heaven and the earth.",
    "And it came to pass, that the LORD spake unto Moses, saying,",
    "Genesis 1\n\nIn the beginning",
    "Hello, world!",
    "hello   world  ",
    "The quick brown fox jumps over the lazy dog",
    "don't can't I'm you're we've they'll he'd it's",
    "DON'T CAN'T I'M YOU'RE WE'VE THEY'LL HE'D IT'S",
    "'sword 'tis 'Twas o'clock 'lls",
    "it\u2019s a \u201cquote\u201d \u2014 so\u2026",
    "1234567890",
    "3.14159 1,000,000 -42 1e-5",
    "year 1611 AD, 66 books",
    "x1y22z333",
    "\u0661\u0662\u0663 \u00b2\u00b3 \u00bd \u2167",
    "a+b=c; if (x != y) { return &z[0]; }",
    "#include <stdio.h>\n\nint main(void)\n{\n\treturn 0;\n}\n",
    "https://example.org/path?query=1&x=%20#frag",
    "foo_bar-baz.qux@example.com",
    "!!! ??? ... --- ###",
    "?!\n\n!?\r\n",
    "caf\u00e9 na\u00efve r\u00e9sum\u00e9 \u00fcber stra\u00dfe \u00c5ngstr\u00f6m",
    "cafe\u0301 nai\u0308ve A\u030angstro\u0308m",  # decomposed: NFC composes
    "\u212b \u2126 \ufb01 \u1e9b\u0323",  # singletons compose, compatibility forms do not
    "q\u0307\u0323 q\u0323\u0307 d\u0323\u0307 \u1e0b\u0323",  # marks in the wrong order
    "\u0301 leading mark, a\u0301\u0301\u0301 stacked",
    "\u0344 \u0958 \u2adc",  # excluded from composition
    "\u1112\u1161\u11ab\u1100\u1173\u11af \ud55c\uae00",  # Hangul jamo compose by arithmetic
    "\u8d77\u521d\uff0c\u795e\u521b\u9020\u5929\u5730\u3002",
    "\u306f\u3058\u3081\u306b\u795e\u306f\u5929\u3068\u5730\u3068\u3092 \u30ab\u30bf\u30ab\u30ca \uff21\uff22",
    "\uf900 \u2f800 \U0002f800",  # CJK compatibility: canonical singletons
    "\u05d1\u05e8\u05d0\u05e9\u05d9\u05ea \u05d1\u05bc\u05b8\u05e8\u05b8\u05d0",
    "\u0641\u064a \u0627\u0644\u0628\u062f\u0621",
    "\u0412 \u043d\u0430\u0447\u0430\u043b\u0435 \u0441\u043e\u0442\u0432\u043e\u0440\u0438\u043b \u0411\u043e\u0433",
    "\u0928\u092e\u0938\u094d\u0924\u0947",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "x\U0001f680y 1\U0001f6802",
    "\u00a0nbsp\u00a0\u00a0x \u2003em \u3000ideographic\u2028line\u2029para \u0085nel \u200bzero",
    "a\u00a0\nb \x0b\x0c c",
    "\x00\x01\x7f control \x1b[0m",
    "\ufeffbom \ufffd \ue000 \U0010ffff",
    "<|endoftext|>",
    "And God said<|im_end|>\n<|im_start|>user\nHi<|im_end|>",
    " <|endoftext|> <|endoftext|>x",
    "<|endoftext |> <|im_end> |im_end|> <|im_end|",
    "e<|im_end|>\u0301",
    "\u017f\u0027s 'S '\u017f K\u212a I'\u017f I'LL",  # U+017F folds to s under (?i:)
    "supercalifragilisticexpialidocious antidisestablishmentarianism Mahershalalhashbaz",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the the the the  the   the\nthe\n\nthe",
    " \n \n\n  \t \r\n x",
    "end with spaces   \n",
]


def make_tokenizer():
    tok = Tokenizer.from_file(os.path.join(MODEL, "tokenizer.json"))
    cases = []
    for text in TEXTS:
        ids = tok.encode(text, add_special_tokens=False).ids
        cases.append({"text": text, "ids": ids, "decoded": tok.decode(ids, skip_special_tokens=False)})
    with open(os.path.join(HERE, "tokenizer_cases.json"), "w", encoding="utf-8") as f:
        f.write('{"tokenizer": "../../examples/model/tokenizer.json", "add_special_tokens": false, "cases": [\n')
        f.write(",\n".join(json.dumps(c) for c in cases))  # ASCII: every character is visible
        f.write("\n]}\n")
    print(f"tokenizer: {len(cases)} cases")


# ---------------------------------------------------------------- all


def main():
    ap = argparse.ArgumentParser(description="make the golden files of the model and tokenizer tests")
    ap.add_argument("what", nargs="*", help="tiny, the name of a tiny case, tokenizer, bundled; nothing: all")
    what = ap.parse_args().what or ["tiny", "tokenizer", "bundled"]
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()

    path = os.path.join(HERE, "manifest.json")
    old = {}
    if os.path.exists(path):
        with open(path) as f:
            old = {m["name"]: m for m in json.load(f)["models"]}
    rows = {case[0]: make_tiny(i + 1, *case) for i, case in enumerate(CASES) if "tiny" in what or case[0] in what}
    old = {name: rows.get(name, old.get(name)) for name in [case[0] for case in CASES] + ["bundled"]}
    if "bundled" in what:
        old["bundled"] = make_bundled()
    if "tokenizer" in what:
        make_tokenizer()
    manifest = {
        "tensors": {
            "prompt": "i32 [P]",
            "prompt_logits": "f32 [P, vocab]; row p is what follows prompt[0..p]; not for the bundled model",
            "last_logits": "f32 [vocab]; row P-1 of the former",
            "tokens": "i32 [32]; tokens[0] = argmax(last_logits), tokens[k+1] = argmax(step_logits[k])",
            "step_logits": "f32 [32, vocab]; row k is the output for input tokens[k] at position P+k",
        },
        "rules": RULES,
        "models": [row for row in old.values() if row],
    }
    with open(path, "w") as f:
        json.dump(manifest, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
