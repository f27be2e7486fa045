# SPDX-License-Identifier: Apache-2.0
"""The classes of each family in transformers, and tiny cases of those that make_golden.py does not list itself.

A case: name, family, dtype, what is special, arguments of the configuration. MISTAKES: for a family, changes of its
configuration that its expectation must show.
"""

import math

import torch
import transformers as t

CLASSES = {
    "qwen3": (t.Qwen3Config, t.Qwen3ForCausalLM),
    "llama": (t.LlamaConfig, t.LlamaForCausalLM),
    "qwen2": (t.Qwen2Config, t.Qwen2ForCausalLM),
    "qwen3_moe": (t.Qwen3MoeConfig, t.Qwen3MoeForCausalLM),
    "qwen2_moe": (t.Qwen2MoeConfig, t.Qwen2MoeForCausalLM),
    "olmoe": (t.OlmoeConfig, t.OlmoeForCausalLM),
    "gpt_oss": (t.GptOssConfig, t.GptOssForCausalLM),
    "mixtral": (t.MixtralConfig, t.MixtralForCausalLM),
    "mistral": (t.MistralConfig, t.MistralForCausalLM),
    "phi3": (t.Phi3Config, t.Phi3ForCausalLM),
    "olmo2": (t.Olmo2Config, t.Olmo2ForCausalLM),
    "smollm3": (t.SmolLM3Config, t.SmolLM3ForCausalLM),
    "granite": (t.GraniteConfig, t.GraniteForCausalLM),
    "cohere": (t.CohereConfig, t.CohereForCausalLM),
    "cohere2": (t.Cohere2Config, t.Cohere2ForCausalLM),
    "glm4": (t.Glm4Config, t.Glm4ForCausalLM),
    "gemma": (t.GemmaConfig, t.GemmaForCausalLM),
    "gemma2": (t.Gemma2Config, t.Gemma2ForCausalLM),
    "gemma3_text": (t.Gemma3TextConfig, t.Gemma3ForCausalLM),
    "deepseek_v2": (t.DeepseekV2Config, t.DeepseekV2ForCausalLM),
    "deepseek_v3": (t.DeepseekV3Config, t.DeepseekV3ForCausalLM),
    "olmo3": (t.Olmo3Config, t.Olmo3ForCausalLM),
    "ministral": (t.MinistralConfig, t.MinistralForCausalLM),
    "seed_oss": (t.SeedOssConfig, t.SeedOssForCausalLM),
    "exaone4": (t.Exaone4Config, t.Exaone4ForCausalLM),
    "ernie4_5": (t.Ernie4_5Config, t.Ernie4_5ForCausalLM),
    "ernie4_5_moe": (t.Ernie4_5_MoeConfig, t.Ernie4_5_MoeForCausalLM),
    "hunyuan_v1_dense": (t.HunYuanDenseV1Config, t.HunYuanDenseV1ForCausalLM),
    "glm": (t.GlmConfig, t.GlmForCausalLM),
    "glm4_moe": (t.Glm4MoeConfig, t.Glm4MoeForCausalLM),
    "dots1": (t.Dots1Config, t.Dots1ForCausalLM),
    "arcee": (t.ArceeConfig, t.ArceeForCausalLM),
    "starcoder2": (t.Starcoder2Config, t.Starcoder2ForCausalLM),
    "granitemoe": (t.GraniteMoeConfig, t.GraniteMoeForCausalLM),
}

# Of transformers 5.
NEWER = {
    "minimax_m2": ("MiniMaxM2Config", "MiniMaxM2ForCausalLM"),
    "ministral3": ("Ministral3Config", "Ministral3ForCausalLM"),
    "glm4_moe_lite": ("Glm4MoeLiteConfig", "Glm4MoeLiteForCausalLM"),
}
CLASSES.update((arch, tuple(getattr(t, name) for name in names)) for arch, names in NEWER.items() if hasattr(t, names[0]))

MISTAKES = {
    "minimax_m2": {"num_experts_per_tok": 2},
    "glm4_moe_lite": {"routed_scaling_factor": 1.3, "num_experts_per_tok": 2, "norm_topk_prob": False, "rope_interleave": False},
    "smollm3": {"no_rope_layers": [1] * 4},
    "granite": {"attention_multiplier": 0.3, "embedding_multiplier": 2.0, "residual_multiplier": 0.5, "logits_scaling": 3.0},
    "cohere": {"logit_scale": 0.1},
    "cohere2": {"logit_scale": 0.1, "layer_types": ["sliding_attention"] * 4},
    "gemma2": {"attn_logit_softcapping": None, "final_logit_softcapping": None, "query_pre_attn_scalar": 30},
    "glm4": {"partial_rotary_factor": 1.0},
    "qwen3_moe": {"norm_topk_prob": False, "num_experts_per_tok": 2},
    "qwen2_moe": {"norm_topk_prob": True, "num_experts_per_tok": 2},
    "olmoe": {"norm_topk_prob": True, "num_experts_per_tok": 2},
    "mixtral": {"num_experts_per_tok": 1},
    "gpt_oss": {"num_experts_per_tok": 1, "layer_types": ["full_attention"] * 2},
    "phi3": {"partial_rotary_factor": 1.0},
    "gemma3_text": {"query_pre_attn_scalar": 30, "rope_local_base_freq": 500.0, "layer_types": ["full_attention"] * 3},
    "deepseek_v2": {"routed_scaling_factor": 1.3, "num_experts_per_tok": 1, "topk_method": "greedy"},
    "deepseek_v3": {
        "routed_scaling_factor": 1.3, "num_experts_per_tok": 2, "norm_topk_prob": False, "topk_group": 4,
        "rope_interleave": False},
    "olmo3": {"layer_types": ["full_attention"] * 4},
    "exaone4": {"layer_types": ["sliding_attention"] * 4},
    "ernie4_5_moe": {"moe_k": 2},
    "glm": {"partial_rotary_factor": 1.0},
    "glm4_moe": {
        "partial_rotary_factor": 1.0, "routed_scaling_factor": 1.3, "num_experts_per_tok": 2, "norm_topk_prob": False,
        "topk_group": 4},
    "dots1": {"routed_scaling_factor": 1.3, "num_experts_per_tok": 2, "norm_topk_prob": True},
    "granitemoe": {
        "attention_multiplier": 0.3, "embedding_multiplier": 2.0, "residual_multiplier": 0.5, "logits_scaling": 3.0,
        "num_experts_per_tok": 1},
}


def mended(model):
    """Scale the scores of DeepSeek V2 by mscale_all_dim, as its authors do.

    transformers 4.57 leaves that out, and does it since https://github.com/huggingface/transformers/pull/47435.
    """
    scaling = getattr(model.config, "rope_scaling", None) or {}
    if model.config.model_type == "deepseek_v2" and scaling.get("mscale_all_dim") and scaling["factor"] > 1:
        mscale = 0.1 * scaling["mscale_all_dim"] * math.log(scaling["factor"]) + 1
        for layer in model.model.layers:
            layer.self_attn.scaling = layer.self_attn.qk_head_dim**-0.5 * mscale**2
    return model


def doubled(model):
    """The model in f64. Gates of DeepSeek V3's form give f32 shares, which it cannot add to; ERNIE's take f32 rows."""
    model.config._experts_implementation = "eager"  # of transformers 5: others take no f64
    for layer in model.double().model.layers:
        if model.config.model_type in ("deepseek_v3", "glm4_moe", "glm4_moe_lite", "dots1") and hasattr(layer.mlp, "gate"):
            layer.mlp.gate.register_forward_hook(
                lambda gate, given, made: tuple(x.double() if x.is_floating_point() else x for x in made))
        if model.config.model_type == "ernie4_5_moe" and hasattr(layer.mlp, "gate"):
            layer.mlp.gate.float()
    return model


# Fields that config.json leaves out where they have the default of the family.
DEFAULTED = (
    "attention_bias", "attn_logit_softcapping", "final_logit_softcapping", "hidden_act", "hidden_activation", "layer_norm_eps", "logit_scale", "mlp_bias",
    "norm_epsilon", "original_max_position_embeddings", "partial_rotary_factor", "rms_norm_eps", "rope_local_base_freq",
    "rope_scaling", "rope_theta", "tie_word_embeddings", "use_qk_norm", "use_sliding_window",
)

# Sizes are odd on purpose: no power of two, heads * head_dim is not hidden_size.
SIZES = dict(hidden_size=36, num_attention_heads=4, num_key_value_heads=2, head_dim=12, intermediate_size=52, vocab_size=120)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=8.0, beta_slow=1.0)
# As DeepSeek's own, where both are equal; here they differ, so that each shows.
MSCALE = dict(YARN, mscale=1.2, mscale_all_dim=0.8)
LATENT = dict(
    hidden_size=48, num_attention_heads=5, num_key_value_heads=5, intermediate_size=56, vocab_size=120, kv_lora_rank=18,
    qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=7, moe_intermediate_size=20, n_shared_experts=2,
    tie_word_embeddings=False, rope_theta=10000.0)

CASES = [
    ("qwen2_bias", "qwen2", "f32", "biases of q, k and v, tied", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=56, vocab_size=120,
        tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-6)),
    ("mistral_window", "mistral", "f32", "a sliding window that is smaller than the prompt, untied", dict(
        SIZES, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-5, sliding_window=17)),
    ("llama_yarn", "llama", "f32", "yarn positions past original_max_position_embeddings", dict(
        SIZES, tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-5, rope_scaling=YARN)),
    ("phi3_fused", "phi3", "f32", "fused weights, three quarters of a head turn, a window of a block", dict(
        hidden_size=48, num_attention_heads=6, num_key_value_heads=2, intermediate_size=52, vocab_size=120,
        partial_rotary_factor=0.75, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-5,
        sliding_window=16)),
    ("phi3_longrope", "phi3", "f32", "factors by dimension, and a scale from the two numbers of positions", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=120,
        original_max_position_embeddings=256, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-5,
        sliding_window=None, rope_scaling=dict(
            type="longrope", short_factor=[1.0, 1.1, 1.3, 1.6, 2.0, 2.5], long_factor=[4.0] * 6))),
    ("olmo2_norms", "olmo2", "f32", "norms behind attention and MLP, and over all heads", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=120,
        tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-5)),
    ("smollm3_nope", "smollm3", "f32", "the second of three layers has no positions", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=120,
        num_hidden_layers=3, no_rope_layers=[1, 0, 1], tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-6)),
    ("granite_factors", "granite", "f32", "four factors", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=120,
        attention_multiplier=0.2, embedding_multiplier=3.0, residual_multiplier=0.7, logits_scaling=2.0,
        tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-5)),
    ("cohere_parallel", "cohere", "f32", "attention beside the MLP, a layer norm, neighbours turn", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=120,
        logit_scale=0.25, tie_word_embeddings=True, rope_theta=10000.0, layer_norm_eps=1e-5)),
    ("glm4_partial", "glm4", "f32", "half of a head turns, four norms a layer, biases of q, k and v", dict(
        SIZES, partial_rotary_factor=0.5, attention_bias=True, tie_word_embeddings=False, rope_theta=10000.0,
        rms_norm_eps=1e-5)),
    ("gemma_tied", "gemma", "f32", "norms times 1 + gamma, scaled embeddings, gelu, tied", dict(
        SIZES, hidden_act="gelu_pytorch_tanh", tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-6)),
    ("gemma3_two_ropes", "gemma3_text", "f32", "layers with and without a window turn by different tables", dict(
        SIZES, num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        sliding_window=13, query_pre_attn_scalar=20, hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True,
        rope_theta=100000.0, rope_local_base_freq=10000.0, rms_norm_eps=1e-6)),
    ("qwen2_bf16", "qwen2", "bf16", "bf16 weights, tied, GQA ratio 4", dict(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=1, intermediate_size=80, vocab_size=120,
        tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-6)),
    ("qwen2_window", "qwen2", "f32", "layers from max_window_layers on have a window", dict(
        hidden_size=36, num_attention_heads=6, num_key_value_heads=3, intermediate_size=52, vocab_size=120,
        num_hidden_layers=3, use_sliding_window=True, sliding_window=9, max_window_layers=1, tie_word_embeddings=True,
        rope_theta=10000.0, rms_norm_eps=1e-6)),
    ("qwen3_window", "qwen3", "f32", "a window that the steps leave, in the layer that layer_types names", dict(
        SIZES, use_sliding_window=True, sliding_window=50, layer_types=["full_attention", "sliding_attention"],
        tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-6)),
    ("gemma2_caps", "gemma2", "f32", "soft caps of scores and logits, every other layer has a window", dict(
        SIZES, num_hidden_layers=3, sliding_window=11, query_pre_attn_scalar=10, attn_logit_softcapping=2.0,
        final_logit_softcapping=4.0, hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True,
        rope_theta=10000.0, rms_norm_eps=1e-6)),
    ("cohere2_window", "cohere2", "f32", "layers with a window turn, those without do not", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=120,
        num_hidden_layers=3, sliding_window_pattern=3, sliding_window=12, logit_scale=0.25, tie_word_embeddings=True,
        rope_theta=10000.0, layer_norm_eps=1e-5)),
    ("qwen3_moe", "qwen3_moe", "f32", "3 of 10 experts, normed shares, the second of three layers is dense", dict(
        SIZES, num_hidden_layers=3, num_experts=10, num_experts_per_tok=3, moe_intermediate_size=20, norm_topk_prob=True,
        mlp_only_layers=[1], tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-6)),
    ("mixtral_window", "mixtral", "f32", "2 of 5 experts, a sliding window", dict(
        SIZES, num_local_experts=5, num_experts_per_tok=2, sliding_window=14, tie_word_embeddings=False,
        rope_theta=10000.0, rms_norm_eps=1e-5)),
    ("qwen3_moe_bf16", "qwen3_moe", "bf16", "4 of 16 experts, shares as they are, head_dim of its own", dict(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=24, intermediate_size=48, vocab_size=120,
        num_experts=16, num_experts_per_tok=4, moe_intermediate_size=48, norm_topk_prob=False, tie_word_embeddings=True,
        rope_theta=10000.0, rms_norm_eps=1e-6)),
]

GPT_OSS = dict(
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=120, num_local_experts=6, num_experts_per_tok=3,
    sliding_window=17, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-5, rope_scaling=dict(
        YARN, truncate=False))
QUANTISED_LATENT = dict(
    hidden_size=64, num_attention_heads=2, num_key_value_heads=2, intermediate_size=64, vocab_size=120, kv_lora_rank=32,
    qk_nope_head_dim=32, qk_rope_head_dim=32, v_head_dim=32, moe_intermediate_size=64, num_hidden_layers=2,
    first_k_dense_replace=1, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-6)
MOE = dict(
    hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64, moe_intermediate_size=128,
    vocab_size=120, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-6)

# Behind those of quant_cases, so that the seeds of all stay what they were.
LATER = [
    ("qwen2_moe", "qwen2_moe", "f32", "3 of 7 experts beside an MLP for all rows, the first of three layers is dense", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=56, vocab_size=120,
        num_hidden_layers=3, num_experts=7, num_experts_per_tok=3, moe_intermediate_size=20,
        shared_expert_intermediate_size=28, norm_topk_prob=False, mlp_only_layers=[0], tie_word_embeddings=False,
        rope_theta=10000.0, rms_norm_eps=1e-6)),
    ("olmoe_norms", "olmoe", "f32", "3 of 9 experts, norms over all heads", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24, vocab_size=120,
        num_experts=9, num_experts_per_tok=3, norm_topk_prob=False, tie_word_embeddings=False, rope_theta=10000.0,
        rms_norm_eps=1e-5)),
    ("gpt_oss", "gpt_oss", "f32", "sinks, 3 of 6 experts with biases in one tensor, every other layer has a window, yarn", dict(
        GPT_OSS, hidden_size=48, intermediate_size=40)),
    ("gpt_oss_bf16", "gpt_oss", "bf16", "gpt-oss in bf16", dict(GPT_OSS, hidden_size=48, intermediate_size=40)),
    ("gpt_oss_mxfp4", "gpt_oss", "f32", "gpt-oss with experts in MXFP4", dict(
        GPT_OSS, hidden_size=64, intermediate_size=96, quantise=dict(form="mxfp4"))),
    ("qwen3_moe_int4", "qwen3_moe", "f32", "int4 experts in groups of 32 with zero points, the second layer is dense", dict(
        MOE, num_experts=6, num_experts_per_tok=2, head_dim=32, norm_topk_prob=True, mlp_only_layers=[1], quantise=dict(
            form="ct", bits=4, group=32, scales=torch.bfloat16, zeros=True))),
    ("qwen2_moe_gptq", "qwen2_moe", "f32", "GPTQ: int8 experts with a scale for each row, beside an MLP for all rows", dict(
        MOE, num_experts=5, num_experts_per_tok=2, shared_expert_intermediate_size=64, quantise=dict(
            form="gptq", bits=8, group=0, scales=torch.float16, zeros=False))),
    ("qwen3_moe_awq", "qwen3_moe", "f32", "AWQ: int4 experts in groups of 32 with zero points", dict(
        MOE, num_experts=4, num_experts_per_tok=2, head_dim=32, quantise=dict(
            form="awq", bits=4, group=32, scales=torch.float16, zeros=True))),
    ("qwen3_moe_fp8", "qwen3_moe", "f32", "FP8: experts in blocks of 32 rows and 64 columns, the last ones cut", dict(
        MOE | dict(hidden_size=80), num_experts=6, num_experts_per_tok=3, head_dim=32, quantise=dict(
            form="fp8", strategy="block", block=(32, 64), scales=torch.float32))),
    ("deepseek_lite", "deepseek_v2", "f32", "queries without a latent, yarn with mscale, the first of three layers is dense", dict(
        LATENT, num_hidden_layers=3, q_lora_rank=None, first_k_dense_replace=1, n_routed_experts=8, num_experts_per_tok=3,
        topk_method="greedy", routed_scaling_factor=1.0, rope_scaling=MSCALE, rms_norm_eps=1e-2)),
    ("deepseek_groups", "deepseek_v2", "f32", "latents of queries, experts of two of three groups, biases", dict(
        LATENT, num_hidden_layers=2, q_lora_rank=26, n_routed_experts=9, num_experts_per_tok=3, n_group=3, topk_group=2,
        topk_method="group_limited_greedy", routed_scaling_factor=2.5, attention_bias=True, rms_norm_eps=1e-6)),
    ("deepseek_bf16", "deepseek_v2", "bf16", "bf16 weights, yarn without mscale, one shared expert, tied", dict(
        hidden_size=64, num_attention_heads=8, num_key_value_heads=8, intermediate_size=80, vocab_size=120,
        kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, q_lora_rank=48, moe_intermediate_size=24,
        num_hidden_layers=2, first_k_dense_replace=1, n_routed_experts=6, n_shared_experts=1, num_experts_per_tok=2,
        tie_word_embeddings=True, rope_theta=10000.0, rope_scaling=YARN, rms_norm_eps=1e-6)),
    ("deepseek_v3", "deepseek_v3", "f32", "sigmoid scores with a bias that moves the choice, two of four groups, yarn with mscale, biases", dict(
        dict(LATENT, num_attention_heads=6, num_key_value_heads=6), num_hidden_layers=2, q_lora_rank=26, attention_bias=True,
        first_k_dense_replace=1, n_routed_experts=12, num_experts_per_tok=4,
        n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=1.7, rope_scaling=MSCALE, rms_norm_eps=1e-6)),
    ("deepseek_fp8", "deepseek_v3", "f32", "FP8 as DeepSeek-V3 has it: blocks of 32 rows and columns, the last ones cut", dict(
        dict(QUANTISED_LATENT, kv_lora_rank=48), q_lora_rank=48, n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=3, n_group=4,
        topk_group=2, norm_topk_prob=True, routed_scaling_factor=1.7, quantise=dict(
            form="fp8", strategy="block", block=(32, 32), scales=torch.float32))),
    ("deepseek_gptq_order", "deepseek_v2", "f32", "GPTQ by act-order: a latent with int4 weights in groups of 32 with zero points", dict(
        QUANTISED_LATENT | dict(first_k_dense_replace=2), q_lora_rank=64, n_routed_experts=2, n_shared_experts=1,
        num_experts_per_tok=1, topk_method="greedy", routed_scaling_factor=1.3, quantise=dict(
            form="gptq", bits=4, group=32, scales=torch.float16, zeros=True, order=True))),
    ("qwen3_int4_order", "qwen3", "f32", "int4 weights in groups of 32 of columns in another order", dict(
        hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=32, intermediate_size=128, vocab_size=120,
        tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-6, quantise=dict(
            form="ct", bits=4, group=32, scales=torch.bfloat16, zeros=False, order=True))),
    ("llama_w8a8_fixed", "llama", "f32", "i8 weights and rows with scales of the checkpoint, bf16 scales of weights, biases", dict(
        hidden_size=80, num_attention_heads=4, num_key_value_heads=2, intermediate_size=112, vocab_size=120, attention_bias=True,
        mlp_bias=True, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-5, quantise=dict(
            form="ct", bits=8, group=0, scales=torch.bfloat16, zeros=False, naive=True, rows="fixed"))),
    ("smollm3_fourth", "smollm3", "f32", "the fourth layer has no positions, as in GGUF files", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=120,
        num_hidden_layers=4, tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-6)),
    ("cohere2_fourth", "cohere2", "f32", "the fourth layer has neither a window nor positions, as in GGUF files", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=120,
        num_hidden_layers=4, sliding_window=12, logit_scale=0.25, tie_word_embeddings=True, rope_theta=10000.0,
        layer_norm_eps=1e-5)),
    ("olmo3_windows", "olmo3", "f32", "three of four layers have a window and positions that yarn does not scale", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=120,
        num_hidden_layers=4, sliding_window=11, tie_word_embeddings=False, rope_theta=10000.0, rope_scaling=YARN,
        rms_norm_eps=1e-5)),
    ("ministral_mixed", "ministral", "f32", "the second of three layers has no window", dict(
        SIZES, num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        sliding_window=13, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-5)),
    ("seed_oss", "seed_oss", "f32", "biases of q, k and v", dict(
        SIZES, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-6)),
    ("exaone4_windows", "exaone4", "f32", "norms of heads, norms behind attention and MLP, the fourth layer knows no positions", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=120,
        num_hidden_layers=4, sliding_window=12, tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-5)),
    ("exaone4_whole", "exaone4", "f32", "EXAONE 4 without windows, all of whose layers know positions", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=120,
        sliding_window=None, layer_types=["full_attention"] * 2, tie_word_embeddings=True, rope_theta=10000.0,
        rms_norm_eps=1e-5)),
    ("ernie_bias", "ernie4_5", "f32", "neighbours turn, biases of all linears", dict(
        SIZES, use_bias=True, tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-5)),
    ("ernie_moe", "ernie4_5_moe", "f32", "3 of 8 experts that a bias moves, beside an MLP for all rows; the last layer is dense", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=120,
        num_hidden_layers=3, moe_intermediate_size=20, moe_k=3, moe_num_experts=8, moe_num_shared_experts=2,
        moe_layer_start_index=0, moe_layer_end_index=1, tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-5)),
    ("ernie_moe_alone", "ernie4_5_moe", "f32", "experts in every other layer, without an MLP for all rows", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=120,
        num_hidden_layers=3, moe_intermediate_size=20, moe_k=3, moe_num_experts=6, moe_num_shared_experts=0,
        moe_layer_interval=2, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-5)),
    ("hunyuan_alpha", "hunyuan_v1_dense", "f32", "norms of heads behind their rotation, alpha", dict(
        SIZES, tie_word_embeddings=True, rope_theta=10000.0, rms_norm_eps=1e-5,
        rope_scaling=dict(type="dynamic", alpha=50.0))),
    ("glm_partial", "glm", "f32", "half of a head turns, biases of q, k and v", dict(
        SIZES, partial_rotary_factor=0.5, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-5)),
    ("glm4_moe", "glm4_moe", "f32", "3 of 8 experts of two of four groups beside an MLP for all rows, norms of heads, biases", dict(
        SIZES, num_hidden_layers=3, partial_rotary_factor=0.5, use_qk_norm=True, attention_bias=True,
        moe_intermediate_size=20, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=2, n_group=4, topk_group=2,
        routed_scaling_factor=1.7, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-5)),
    ("dots1_window", "dots1", "f32", "3 of 7 experts in one group beside an MLP for all rows, the last layer has a window", dict(
        SIZES, num_hidden_layers=3, moe_intermediate_size=20, n_routed_experts=7, num_experts_per_tok=3, n_shared_experts=1,
        first_k_dense_replace=1, routed_scaling_factor=1.7, sliding_window=10, max_window_layers=2, tie_word_embeddings=False,
        rope_theta=10000.0, rms_norm_eps=1e-6)),
    ("arcee_squares", "arcee", "f32", "an MLP without a gate that squares, biases, yarn", dict(
        SIZES, mlp_bias=True, attention_bias=True, tie_word_embeddings=False, rope_theta=10000.0, rope_scaling=YARN,
        rms_norm_eps=1e-5)),
    ("starcoder2_window", "starcoder2", "f32", "layer norms and linears with biases, an MLP without a gate, a window", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=52, vocab_size=120,
        sliding_window=15, rope_theta=10000.0, norm_epsilon=1e-5)),
    ("granite_moe", "granitemoe", "f32", "2 of 5 experts in one tensor, four factors", dict(
        hidden_size=48, num_attention_heads=4, num_key_value_heads=2, intermediate_size=28, vocab_size=120,
        num_local_experts=5, num_experts_per_tok=2, attention_multiplier=0.2, embedding_multiplier=1.5,
        residual_multiplier=0.7, logits_scaling=2.0, tie_word_embeddings=False, rope_theta=10000.0, rms_norm_eps=1e-5)),
    ("minimax_m2", "minimax_m2", "f32", "3 of 6 experts that a bias moves, norms over all heads, half of a head turns", dict(
        SIZES, num_local_experts=6, num_experts_per_tok=3, rotary_dim=6, tie_word_embeddings=False, rope_theta=10000.0,
        rms_norm_eps=1e-6)),
    ("ministral3_grown", "ministral3", "f32", "queries grow behind the positions of training, yarn", dict(
        SIZES, tie_word_embeddings=False, rms_norm_eps=1e-5, rope_parameters=dict(
            YARN, rope_theta=10000.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0,
            llama_4_scaling_beta=0.3))),
    ("glm4_moe_lite", "glm4_moe_lite", "f32", "a latent, 3 of 9 experts in two of three groups that a bias makes negative, the second of three layers is dense", dict(
        {k: v for k, v in LATENT.items() if k != "rope_theta"}, num_hidden_layers=3, q_lora_rank=26, n_routed_experts=9,
        num_experts_per_tok=3, n_group=3, topk_group=2, mlp_layer_types=["sparse", "dense", "sparse"],
        routed_scaling_factor=1.7, rms_norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
]
