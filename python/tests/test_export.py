# SPDX-License-Identifier: Apache-2.0
"""Tests npugraph.export: models of transformers that the daemon serves compute what transformers computes."""
from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from conftest import PATIENCE, SOURCE, Daemon

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
    "DeepseekV2": {"n_routed_experts": 8, "first_k_dense_replace": 1, "q_lora_rank": 24, "kv_lora_rank": 16,
                   "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12, "num_key_value_heads": 6,
                   "moe_intermediate_size": 24, "num_experts_per_tok": 2},
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
        for name, p in model.state_dict().items():  # parameters, and the buffers that a checkpoint has
            drawn = torch.from_numpy(rng.standard_normal(tuple(p.shape)).astype(np.float32))
            if not p.ndim:
                p.mul_(1.25)
            elif p.ndim == 1:
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
    with tempfile.TemporaryDirectory(dir=daemon.log.parent) as folder:
        yield pathlib.Path(folder)


@pytest.mark.parametrize("name", [*FAMILIES, *OTHERS])
def test_logits_are_those_of_transformers(client: npugraph.Client, made: pathlib.Path, name: str) -> None:
    model = random_model(config_of(name, **(FAMILIES | OTHERS)[name]))
    path = npugraph.export(model, made / name)
    assert compare(client, model, path) <= CLOSE


@pytest.mark.parametrize("more", [
    {"q_lora_rank": None, "topk_method": "greedy", "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "mscale": 1.2,
                                                                    "original_max_position_embeddings": 32}},
    {"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.3}], ids=["yarn", "groups"])
def test_complex_rotations_are_written_as_floats(client: npugraph.Client, made: pathlib.Path, more: dict[str, Any]) -> None:
    """DeepSeek-V2 turns heads as complex numbers, whose lengths yarn may scale."""
    model = random_model(config_of("DeepseekV2", **{**FAMILIES["DeepseekV2"], **more}))
    assert compare(client, model, npugraph.export(model, made / "v2")) <= CLOSE


@pytest.mark.skipif(int(transformers.__version__.split(".")[0]) < 5, reason="transformers 4 has one kind for all layers")
@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_each_kind_of_layers_may_have_growing_frequencies(client: npugraph.Client, made: pathlib.Path, kind: str) -> None:
    """rope_type is a dictionary then. Contexts end where frequencies would change."""
    grown: dict[str, Any] = {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0}
    if kind == "longrope":
        grown |= {"original_max_position_embeddings": 128, "short_factor": [1.5] * 8, "long_factor": [3.0] * 8}
    model = random_model(config_of("Gemma3Text", head_dim=16, **HYBRID, rope_parameters={
        "full_attention": grown, "sliding_attention": {"rope_type": "default", "rope_theta": 1e3}}))
    path = npugraph.export(model, made / kind)
    assert f"positions = {128 if kind == 'longrope' else 512}}}" in (path / "npugraph.lua").read_text()
    assert compare(client, model, path) <= CLOSE


# ---- checkpoints that are there ----

GOLDEN = SOURCE / "tests" / "golden"


def golden(client: npugraph.Client, made: pathlib.Path, name: str) -> tuple[float, Any, Any]:
    """Exports a checkpoint of tests/golden, and returns how far its steps are from what is expected, and both."""
    from safetensors.numpy import load_file
    path = npugraph.export(GOLDEN / name, made / name)
    assert not (path / "expect.safetensors").exists()
    known = load_file(GOLDEN / name / "expect.safetensors")
    client.load_model(str(path), name=name, keep=False)
    with client.open(name, known["prompt"].tolist()) as sequence:
        rows = np.stack([sequence.step(int(token), want_logits=True).logits for token in known["tokens"]])
    client.unload_model(name)
    wanted = known["step_logits"]
    return float(np.abs(rows - wanted).max() / np.abs(wanted).max()), rows, wanted


@pytest.mark.parametrize("name", ["qwen3_sharded", "llama3_rope_scaled", "llama_yarn", "phi3_longrope", "gpt_oss", "deepseek_v3"])
def test_directories_are_exported_as_they_are(client: npugraph.Client, made: pathlib.Path, name: str) -> None:
    """Shards, rotary scaling, one tensor for all experts, buffers that choose among experts: read from the files at the load."""
    assert golden(client, made, name)[0] <= CLOSE


# compressed-tensors, GPTQ, AWQ, f8 and MXFP4, also of experts, whose routers stay floats.
QUANTISED = ["qwen2_int4_channel", "qwen3_int8_channel", "phi3_int4_group64", "llama_int4_zeros", "qwen3_int4_order", "llama_w8a8",
             "llama_w8a8_fixed", "llama_fp8_channel", "qwen2_gptq_int4", "qwen3_gptq_int8", "llama_awq_int4", "qwen2_fp8_tensor",
             "qwen3_fp8_blocks", "qwen2_moe_gptq", "qwen3_moe_awq", "qwen3_moe_int4", "qwen3_moe_fp8", "deepseek_fp8",
             "deepseek_gptq_order", "gpt_oss_mxfp4"]


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_linears_stay_quantised(client: npugraph.Client, made: pathlib.Path, name: str) -> None:
    """Logits are those of transformers with the numbers that the quantised weights stand for."""
    assert golden(client, made, name)[0] <= CLOSE


def test_narrow_weights_stay_narrow(client: npugraph.Client, made: pathlib.Path) -> None:
    _, rows, wanted = golden(client, made, "qwen3_gqa4_bf16")
    top = np.sort(wanted, axis=1)
    decided = top[:, -1] - top[:, -2] > 0.01 * (top[:, -1] - top[:, 0])
    assert decided.any() and (rows.argmax(1) == wanted.argmax(1))[decided].all()


def test_the_file_of_a_family_is_not_needed(client: npugraph.Client, made: pathlib.Path) -> None:
    """Exported, a family's checkpoint has the same tokens as with the family, also with a rounded cache."""
    source = GOLDEN / "qwen3_gqa2_untied"
    path = npugraph.export(source, made / "exported")
    shutil.copytree(source, made / "family")
    for kv_dtype in (None, "int8"):
        tokens = []
        for place in (path, made / "family"):
            client.load_model(str(place), name=place.name, kv_dtype=kv_dtype, keep=False)
            with client.open(place.name, range(1, PROMPT)) as sequence:
                tokens.append(list(sequence.generate(STEPS, ignore_stop=True)))
            client.unload_model(place.name)
        assert tokens[0] == tokens[1]


def test_embeddings_are_those_of_the_family(client: npugraph.Client, made: pathlib.Path) -> None:
    source = GOLDEN / "qwen3_gqa2_untied"
    path = npugraph.export(source, made / "exported")
    shutil.copytree(source, made / "family")
    rows = []
    for place in (path, made / "family"):
        client.load_model(str(place), name=place.name, embedding=True, keep=False)
        rows.append(client.embed(place.name, [range(1, PROMPT)]))
        client.unload_model(place.name)
    assert float(np.abs(rows[0] - rows[1]).max()) <= CLOSE * float(np.abs(rows[1]).max())


def test_the_command_exports_into_the_checkpoint_itself(client: npugraph.Client, made: pathlib.Path) -> None:
    shutil.copytree(GOLDEN / "llama_bias", made / "own")
    before = sorted(p.name for p in (made / "own").iterdir())
    command = [sys.executable, "-m", "npugraph.export", str(made / "own"), str(made / "own")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE * 5, check=False)
    assert done.returncode == 0 and done.stdout == f"{made / 'own'}\n", done.stderr
    assert sorted(p.name for p in (made / "own").iterdir()) == sorted([*before, "npugraph.lua"])
    client.load_model(str(made / "own"), name="own", keep=False)
    client.unload_model("own")
    failed = subprocess.run([*command[:3], str(made), str(made)], capture_output=True, text=True, timeout=PATIENCE * 5,
                            check=False)
    assert failed.returncode == 1 and failed.stderr.startswith("npugraph.export: ") and "config.json" in failed.stderr


# ---- what is refused ----

def refusal(model: Any, out: pathlib.Path) -> str:
    with pytest.raises(ValueError) as caught:
        npugraph.export(model, out)
    assert not (out / "npugraph.lua").exists()
    return str(caught.value)


def tiny(name: str, **more: Any) -> Any:
    return transformers.AutoModelForCausalLM.from_config(config_of(name, **more)).eval()


def test_training_mode_is_refused(made: pathlib.Path) -> None:
    assert "LlamaForCausalLM is in training mode: call model.eval() first" in refusal(tiny("Llama").train(), made / "out")


def test_models_of_encoder_and_decoder_are_refused(made: pathlib.Path) -> None:
    config = transformers.T5Config(d_model=32, d_ff=32, num_layers=1, num_heads=2, d_kv=16, vocab_size=50)
    assert "encoder and a decoder" in refusal(transformers.T5ForConditionalGeneration(config).eval(), made / "out")


def test_positions_of_other_kinds_are_refused(made: pathlib.Path) -> None:
    why = refusal(tiny("Bloom", n_layer=1, n_head=4), made / "bloom")
    assert "BloomForCausalLM" in why and "ALiBi" in why
    assert "mask" in refusal(tiny("Falcon", alibi=True, new_decoder_architecture=False, hidden_size=96), made / "falcon")


def test_layers_with_states_are_refused(made: pathlib.Path) -> None:
    why = refusal(tiny("Mamba", state_size=8), made / "mamba")
    assert "MambaForCausalLM" in why
    why = refusal(tiny("Lfm2", full_attn_idxs=[1], layer_types=["conv", "full_attention"]), made / "lfm2")
    assert "aten." in why and "mixes the rows of several tokens outside of attention" in why


def test_quantised_modules_are_refused(made: pathlib.Path) -> None:
    model = tiny("Llama")
    model.is_quantized = True
    assert "quantised modules: export the checkpoint's directory" in refusal(model, made / "out")


def test_other_quantised_checkpoints_are_refused(made: pathlib.Path) -> None:
    shutil.copytree(GOLDEN / "llama_w8a8", made / "in")
    config = json.loads((made / "in" / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    (made / "in" / "config.json").write_text(json.dumps(config))
    assert "is quantised by bitsandbytes, which the daemon does not read: export a checkpoint of floats" in refusal(
        made / "in", made / "out")


def test_a_config_that_transformers_refuses_is_named(made: pathlib.Path) -> None:
    shutil.copytree(GOLDEN / "llama_bias", made / "in")
    (made / "in" / "config.json").write_text('{"model_type": "llama", "hidden_size": "many"}')
    why = refusal(made / "in", made / "out")
    assert str(made / "in" / "config.json") in why and "hidden_size" in why and "\n" not in why


class Asking(transformers.LlamaForCausalLM):  # type: ignore[misc]
    """Its code asks for the numbers in a tensor."""

    def forward(self, input_ids: Any = None, position_ids: Any = None, **more: Any) -> Any:
        if input_ids.max() > 7:
            position_ids = position_ids + 0
        return super().forward(input_ids=input_ids, position_ids=position_ids, **more)


def test_code_that_depends_on_numbers_is_refused(made: pathlib.Path) -> None:
    why = refusal(Asking(config_of("Llama")).eval(), made / "out")
    assert "Asking" in why and "test_export.py" in why and "(if input_ids.max() > 7:)" in why and "torch.compile(model" in why


def test_attention_with_other_masks_is_refused(made: pathlib.Path) -> None:
    why = refusal(tiny("Llama4Text", attention_chunk_size=16, num_local_experts=2, intermediate_size_mlp=56, head_dim=8,
                       interleave_moe_layer_step=4, layer_types=["chunked_attention", "full_attention"]), made / "out")
    assert "mask depends on more than the positions" in why
    assert "makes a mask of its own" in refusal(tiny("Doge", keep_window_size=8), made / "doge")


def test_tensors_that_are_missing_are_named(made: pathlib.Path) -> None:
    model = tiny("Llama")
    state = {k: v for k, v in model.state_dict().items() if "layers.1.mlp.up_proj" not in k}
    model.save_pretrained(made / "in", state_dict=state)
    assert "no tensor for the parameter model.layers.1.mlp.up_proj.weight" in refusal(made / "in", made / "out")


# ---- a file that is not ours ----

@pytest.mark.parametrize(("text", "mentions"), [
    ("while true do end", "runs for too long"),
    ('include "traced"\nopen("/etc/passwd")', "unknown variable open"),
    ("\x1bLua", "binary chunk"),
    ('include "traced"\nbegins {vocab = 131, hidden = 40, layers = 2, positions = 512}\nfunction build()\n'
     '  lookup("v", "model.embed_tokens.weight", 131, 4096, "%tokens")\n  attend("a", "%v", "%v", "%v", {heads = 1, kv_heads = 1, '
     'dim = 4096})\n  return "%a", "%v"\nend', "model.embed_tokens.weight"),
    ('include "traced"\nbegins {vocab = 131, hidden = 40, layers = 2, positions = 512}\nfunction build()\n'
     '  lookup("v", "../../secret", 131, 40, "%tokens")\n  attend("a", "%v", "%v", "%v", {heads = 1, kv_heads = 1, '
     'dim = 40})\n  return "%a", "%v"\nend', "secret"),
    ('include "traced"\nbegins {vocab = 131, hidden = 40, layers = 2, positions = 512}\nfunction build()\n'
     '  lookup("v", "model.embed_tokens.weight", 131, 40, "%tokens")\n  emit "}"\n  attend("a", "%v", "%v", "%v", {heads = 1, '
     'kv_heads = 1, dim = 40})\n  return "%a", "%v"\nend', "line"),
])
def test_hostile_files_are_refused(client: npugraph.Client, made: pathlib.Path, text: str, mentions: str) -> None:
    shutil.copytree(GOLDEN / "qwen3_gqa2_untied", made / "hostile")
    (made / "hostile" / "npugraph.lua").write_text(text)
    with pytest.raises(npugraph.Error) as caught:
        client.load_model(str(made / "hostile"), name="hostile", keep=False)
    assert mentions in str(caught.value)
    assert "hostile" not in [model.name for model in client.models()]
