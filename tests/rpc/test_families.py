#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forms of checkpoints that tests/golden has no file of: the text of models that read images too, positions by kinds of layers, and
fields that a family refuses."""
from gguf_files import *

TENSOR = "vision_tower.blocks.0.weight"  # of another part: it is not read


def named(where, name):
    """A tensor's name in a file of a model that reads images: as transformers 4.50, 4.52 and 5 write it."""
    if where == "behind":
        return f"language_model.{name}"
    return name.replace("model.", "model.language_model.", 1) if where == "inside" and name.startswith("model.") else name


def rewritten(name, golden, config, where="", shards=1):
    """Makes a checkpoint of a golden one with another config and other names, in so many files."""
    folder = MODELS / name
    folder.mkdir()
    tensors = [(named(where, n), t, data) for n, t, data in read_directory(GOLDEN / golden)]
    if where:
        tensors.append((TENSOR, {"dtype": "F32", "shape": [2]}, bytes(8)))
    index = {}
    for k in range(shards):
        file = "model.safetensors" if shards == 1 else f"model-{k}.safetensors"
        head, body = {}, b""
        for n, t, data in tensors[k::shards]:
            head[n] = dict(t, data_offsets=[len(body), len(body) + len(data)])
            body += data
            index[n] = file
        head = json.dumps(head).encode()
        (folder / file).write_bytes(struct.pack("<Q", len(head)) + head + body)
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def config_of(golden):
    return json.loads((GOLDEN / golden / "config.json").read_text())


def text_of(golden):
    """The config of a golden one with the fields whose defaults are others beside images."""
    return {"rope_theta": 10000.0, "rms_norm_eps": 1e-6} | config_of(golden)


def gives_the_logits(daemon, folder, golden):
    """The checkpoint gives transformers' logits of the golden one, and the same first tokens."""
    ctl(daemon, "load", folder, "--name", folder.name, "--max-batch", 2, "--chunk", 16)
    prompt, wanted = golden_logits(golden)
    near(logits_of(daemon, folder.name, prompt), wanted, 1e-4)
    ctl(daemon, "unload", folder.name)


@test("the text of a model that reads images is served: nested fields, each way of naming tensors, one file or shards")
def text_parts(daemon):
    for golden, architecture in (("gemma3_two_ropes", "Gemma3ForConditionalGeneration"), ("mistral_window", "Mistral3ForConditionalGeneration"),
                                 ("qwen3_gqa2_untied", "Qwen3VLForConditionalGeneration"), ("qwen2_bias", "Qwen2_5_VLForConditionalGeneration")):
        text = text_of(golden)
        tied = text.pop("tie_word_embeddings", None)
        stops = text.pop("eos_token_id", None)
        config = {"architectures": [architecture], "text_config": text, "vision_config": {"hidden_size": 3}}
        config |= {} if tied is None else {"tie_word_embeddings": tied}
        config |= {} if stops is None else {"eos_token_id": stops}
        for where in ("behind", "inside", "plain"):
            for shards in (1, 2):
                folder = rewritten(f"{golden}-{where}-{shards}", golden, config, where, shards)
                gives_the_logits(daemon, folder, golden)


@test("older files have the text's fields beside vision_config; the three positions of a token of text are one")
def flat(daemon):
    config = text_of("qwen2_bias") | {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "vision_config": {"hidden_size": 3},
                                        "rope_scaling": {"type": "mrope", "mrope_section": [2, 2, 2]}}
    gives_the_logits(daemon, rewritten("flat", "qwen2_bias", config, "plain"), "qwen2_bias")


@test("a file's own head counts, whichever of the two places says that it is tied; the text's end of text counts")
def fields(daemon):
    for golden in ("qwen3_gqa2_untied", "qwen3_mha_tied"):
        for k, (whole, part) in enumerate(((True, None), (None, True), (True, False), (False, True))):
            text = text_of(golden) | {"tie_word_embeddings": part, "eos_token_id": 7}
            config = {"architectures": ["Qwen3VLForConditionalGeneration"], "text_config": text, "tie_word_embeddings": whole}
            folder = rewritten(f"{golden}-{k}", golden, config, ("inside", "behind")[k % 2], 1 + k // 2)
            gives_the_logits(daemon, folder, golden)
    ctl(daemon, "load", folder, "--name", "stops")
    with Client(daemon) as c:
        assert list(c.call("Sequences/ListModels", pb.ListModelsRequest(name="stops")).models[0].stop_tokens) == [7]
    text = text_of("qwen3_mha_tied") | {"tie_word_embeddings": False}
    config = {"architectures": ["Qwen3VLForConditionalGeneration"], "text_config": text, "tie_word_embeddings": False}
    assert "lm_head" in ctl(daemon, "load", rewritten("headless", "qwen3_mha_tied", config, "inside"), rc=1).stderr


@test("what compressed-tensors leaves out is found by the names that the file's modules have")
def left_out(daemon):
    for k, names in enumerate((["language_model.lm_head", "language_model.model.layers.0.mlp.up_proj"],
                               ["lm_head", "model.language_model.layers.0.mlp.up_proj"], ["re:.*lm_head", "re:language_model.model.layers.0.mlp.up_proj"])):
        text = config_of("mistral_window")
        settings = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
        section = {"quant_method": "compressed-tensors", "format": "int-quantized", "ignore": [*names, "re:vision_tower.*"],
                   "config_groups": {"group_0": {"targets": ["Linear"], "weights": settings}}}
        config = {"architectures": ["Mistral3ForConditionalGeneration"], "text_config": text, "quantization_config": section,
                  "tie_word_embeddings": False}
        folder = rewritten(f"left-out-{k}", "mistral_window", config, "behind")
        told = ctl(daemon, "load", folder, rc=1).stderr  # floats where all but these are i8
        assert "up_proj" not in told and "scale" in told, told


@test("rope_parameters by kinds of layers, as transformers 5 writes them, give what older files give")
def kinds(daemon):
    for golden, theta in (("olmo3_windows", 10000.0), ("gemma3_two_ropes", None)):
        config = config_of(golden)
        whole = {"rope_type": "default", **(config.pop("rope_scaling", None) or {}), "rope_theta": config.pop("rope_theta", 10000.0)}
        window = {"rope_type": "default", "rope_theta": theta or config.pop("rope_local_base_freq", 10000.0)}
        config["rope_parameters"] = {"full_attention": whole, "sliding_attention": window}
        gives_the_logits(daemon, rewritten(f"{golden}-kinds", golden, config), golden)


REFUSED = (
    ("llama_bias", {"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "rope_parameters has tables for kinds of layers"),
    ("hunyuan_alpha", {"rope_scaling": {"type": "dynamic", "alpha": -1}}, "rope_scaling.alpha must not be negative"),
    ("hunyuan_alpha", {"rope_scaling": {"type": "dynamic", "alpha": 1e308}, "rope_theta": 1e308}, "rope_scaling.alpha is too large"),
    ("ernie_moe", {"use_bias": True}, "use_bias is true"),
    ("ernie_moe", {"moe_norm_min": 0.5}, "moe_norm_min is larger than moe_k / moe_num_experts"),
    ("ernie_moe", {"moe_num_shared_experts": -1}, "moe_num_shared_experts must be an integer, 0 or more"),
    ("ernie_moe", {"moe_num_shared_experts": 200000000}, "moe_num_shared_experts is too large"),
    ("ernie_moe", {"moe_k": 9}, "moe_k is larger than moe_num_experts"),
    ("glm4_moe", {"n_group": 3}, "n_group must divide n_routed_experts"),
    ("dots1_window", {"n_shared_experts": None}, "n_shared_experts is null"),
    ("arcee_squares", {"hidden_act": "relu"}, "hidden_act must be silu, gelu, gelu_pytorch_tanh or relu2"),
    ("exaone4_windows", {"layer_types": None, "sliding_window_pattern": "LLLG"}, "sliding_window_pattern must be an integer"),
    ("minimax_m2", {"rotary_dim": 14}, "rotary_dim is larger than head_dim"),
    ("minimax_m2", {"use_qk_norm": False}, "use_qk_norm must be true"),
    ("ministral3_grown", {"rope_parameters": None}, "rope_parameters is missing"),
    ("qwen3_gqa2_untied", {"architectures": ["Qwen3VLForConditionalGeneration"], "rope_theta": None}, "rope_theta is missing"),
    ("starcoder2_window", {"norm_epsilon": -1.0}, "norm_epsilon must not be negative"),
)


@test("what a family does not support is refused with its field, before anything is sent")
def refusals(daemon):
    for i, (golden, change, told) in enumerate(REFUSED):
        folder = rewritten(f"refused-{i}", golden, config_of(golden) | change)
        assert told in ctl(daemon, "load", folder, rc=1).stderr, told
    for text, told in ((3, "text_config must be an object"), ({"vocab_size": 8}, "config.json, text_config: num_attention_heads is missing")):
        config = {"architectures": ["Qwen3VLForConditionalGeneration"], "text_config": text, "hidden_size": 8, "num_hidden_layers": 1}
        text == 3 or text.update(hidden_size=8, num_hidden_layers=1, rope_theta=10000.0, rms_norm_eps=1e-6)
        folder = rewritten(f"refused-{told[:4]}-{len(told)}", "qwen3_gqa2_untied", config, "inside")
        assert told in ctl(daemon, "load", folder, rc=1).stderr, told
    folder = rewritten("missing", "qwen3_gqa2_untied", {"architectures": ["Qwen3VLForConditionalGeneration"],
                                                        "text_config": text_of("qwen3_gqa2_untied") | {"num_hidden_layers": 9, "layer_types": None}}, "behind")
    told = ctl(daemon, "load", folder, rc=1).stderr
    assert "model.layers.2" in told and "TENSOR_MISSING" in told, told


if __name__ == "__main__":
    main(*FOLDERS)
