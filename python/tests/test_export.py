# SPDX-License-Identifier: Apache-2.0
"""Tests npugraph.export: models of transformers that the daemon serves compute what transformers computes."""
from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import Daemon

import npugraph

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

PROMPT = 41  # neither a power of two nor a multiple of a usual block or chunk
STEPS = 32
CLOSE = 1e-4  # of the largest logit
WINDOW = 12

# What the configurations of most classes have.
SIZES = {"vocab_size": 150, "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 6,
         "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
HYBRID = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}

# Class of the configuration, and what it has besides or instead of SIZES. First those that the daemon has as files.
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Qwen2": {},
    "Qwen3": {"head_dim": 16},
    "Mistral": {"sliding_window": WINDOW},
    "Phi3": {"partial_rotary_factor": 0.5},
    "Gemma": {"head_dim": 16},
    "Gemma2": {"head_dim": 16, "sliding_window": WINDOW, "query_pre_attn_scalar": 20},
    "Gemma3Text": {"head_dim": 16, **HYBRID},
    "Glm4": {"head_dim": 8},
    "Olmo2": {},
    "SmolLM3": {"no_rope_layers": [1, 0]},
    "Granite": {"attention_multiplier": 0.2, "embedding_multiplier": 3.0, "residual_multiplier": 0.5, "logits_scaling": 2.0},
    "Cohere": {},
    "Cohere2": HYBRID,
    "Mixtral": {"num_local_experts": 6, "sliding_window": WINDOW},
    "Qwen2Moe": {**EXPERTS, "shared_expert_intermediate_size": 40},
    "Qwen3Moe": EXPERTS,
    "Olmoe": EXPERTS,
    "GptOss": {"num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 8, "rope_scaling": None, **HYBRID},
    "DeepseekV3": {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 24,
                   "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12,
                   "num_key_value_heads": 6, "moe_intermediate_size": 24, "num_experts_per_tok": 2},
}
OTHERS: dict[str, dict[str, Any]] = {
    "StableLm": {"partial_rotary_factor": 0.25, "hidden_size": 96},
    "Nemotron": {},
    "Falcon": {"alibi": False, "new_decoder_architecture": True, "num_kv_heads": 2},
    "Persimmon": {"hidden_size": 96},
    "Starcoder2": {"sliding_window": WINDOW},
    "Olmo": {"clip_qkv": 1.0},
    "GPTNeoX": {"rotary_pct": 0.5, "hidden_size": 96},
    "Phi": {"partial_rotary_factor": 0.5, "hidden_size": 96},
    "Exaone4": HYBRID,
    "Ernie4_5": {},
    "SeedOss": {"head_dim": 16},
    "HunYuanDenseV1": {"head_dim": 8},
    "Apertus": {},
    "Arcee": {},
    "Helium": {"head_dim": 8},
    "Glm": {"head_dim": 8},
    "GPT2": {},
    "Glm4Moe": {"n_routed_experts": 8, "first_k_dense_replace": 1, "moe_intermediate_size": 24, "head_dim": 8,
                "num_experts_per_tok": 2},
    "Ernie4_5_Moe": {"moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 24, "moe_layer_start_index": 1},
    "FlexOlmo": EXPERTS,
}


def config_of(name: str, **more: Any) -> Any:
    cls: Any = getattr(transformers, name + "Config")
    return cls(**{**SIZES, **more})


def random_model(config: Any) -> Any:
    """Weights at which attention is neither uniform nor one-hot, and norms and biases matter."""
    model: Any = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    rng = np.random.default_rng(1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            drawn = torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32))
            if p.ndim == 1:
                p.copy_(p + 0.3 * drawn)
            else:
                p.copy_(drawn * (0.3 if "embed" in name or "wte" in name else 1.5 * p.shape[-1] ** -0.5))
    return model


def expected(model: Any, tokens: list[int]) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        logits: np.ndarray[Any, Any] = model(torch.tensor([tokens])).logits[0].numpy()
    return logits


def served(client: npugraph.Client, name: str, tokens: list[int]) -> tuple[npugraph.Logprobs, np.ndarray[Any, Any]]:
    """Returns the log-probabilities behind the prompt, and the logits of the steps."""
    with client.open(name, tokens[:PROMPT], logprobs=20) as sequence:
        first = sequence.last.logprobs
        rows = [sequence.step(token, want_logits=True).logits for token in tokens[PROMPT:]]
    assert first is not None
    return first, np.stack(rows)


def compare(client: npugraph.Client, model: Any, path: pathlib.Path) -> float:
    """Returns how far the daemon's logits are from the model's, as a part of the largest."""
    tokens = [int(t) for t in np.random.default_rng(2).integers(0, model.config.vocab_size, PROMPT + STEPS)]
    wanted = expected(model, tokens)
    client.load_model(str(path), name=path.name, keep=False)
    first, rows = served(client, path.name, tokens)
    client.unload_model(path.name)
    largest = float(np.abs(wanted).max())
    known = torch.log_softmax(torch.from_numpy(wanted[PROMPT - 1]), -1)
    prompt = max(abs(logprob - float(known[token])) for token, logprob in first.top)
    return max(prompt, float(np.abs(rows - wanted[PROMPT:]).max())) / largest


@pytest.fixture
def made(daemon: Daemon) -> Iterator[pathlib.Path]:
    import tempfile
    with tempfile.TemporaryDirectory(dir=daemon.log.parent) as folder:
        yield pathlib.Path(folder)


@pytest.mark.parametrize("name", [*FAMILIES, *OTHERS])
def test_logits_are_those_of_transformers(client: npugraph.Client, made: pathlib.Path, name: str) -> None:
    model = random_model(config_of(name, **(FAMILIES | OTHERS)[name]))
    path = npugraph.export(model, made / name)
    assert compare(client, model, path) <= CLOSE
