# SPDX-License-Identifier: Apache-2.0
"""llama.cpp, as bench/compare/run has built it. Variants: bf16, f16, and quantised ones, q8_0, q4_0, q4_K.

The checkpoint becomes a GGUF file with the same values, which llama.cpp's own llama-quantize quantises. llama.cpp's own llama-batched-bench measures it.
"""
import ctypes
import json
import os
import subprocess
import sys
import types

import numpy
import text

args = text.arguments(__doc__)
PLAIN = args.variant if args.variant in ("bf16", "f16") else "f16"
SOURCE = os.path.join(args.work, f"checkpoint-{PLAIN}.gguf")
GGUF = os.path.join(args.work, f"checkpoint-{args.variant}.gguf")
LLAMA = os.environ.get("NGD_COMPARE_LLAMA", args.work)  # what bench/compare/run has fetched and built
LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name):
    name = name.removesuffix(".weight")
    if name.startswith("model.layers."):
        layer, _, part = name.removeprefix("model.layers.").partition(".")
        return f"blk.{layer}.{LAYER[part]}.weight"
    return WHOLE[name] + ".weight"


def tensors():
    """(name, shape, bf16 values as uint16) of the checkpoint."""
    data = numpy.memmap(os.path.join(args.checkpoint, "model.safetensors"), dtype=numpy.uint8, mode="r")
    size = int(data[:8].view(numpy.uint64)[0])
    for name, entry in json.loads(bytes(data[8:8 + size])).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            # A copy, because a tensor may begin at any byte of the file.
            yield name, entry["shape"], data[8 + size + begin:8 + size + end].copy().view(numpy.uint16)


def convert():
    import gguf
    with open(os.path.join(args.checkpoint, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    writer = gguf.GGUFWriter(SOURCE + ".new", "qwen3")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    for name, shape, values in tensors():
        exact = (values.astype(numpy.uint32) << 16).view(numpy.float32).reshape(shape)
        if len(shape) == 1:
            writer.add_tensor(gguf_name(name), exact)
        elif PLAIN == "f16":
            writer.add_tensor(gguf_name(name), exact.astype(numpy.float16))
        else:
            writer.add_tensor(gguf_name(name), values.view(numpy.uint8).reshape(shape[0], 2 * shape[1]),
                              raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.rename(SOURCE + ".new", SOURCE)


def quantise():
    """All matrices to one form."""
    tool = os.path.join(LLAMA, "llama", "bin", "llama-quantize")
    subprocess.run([tool, "--pure", SOURCE, GGUF + ".new", args.variant.upper(), str(args.threads)], check=True,
                   stdout=sys.stderr)
    os.rename(GGUF + ".new", GGUF)


def write_logits():
    """Through the bindings of the same version. Their package imports more than they need, so it is bypassed."""
    os.environ["LLAMA_CPP_LIB_PATH"] = os.path.join(LLAMA, "llama", "bin")
    package = types.ModuleType("llama_cpp")
    package.__path__ = [os.path.join(LLAMA, "llama-source", "llama_cpp")]
    sys.modules["llama_cpp"] = package
    from llama_cpp import llama_cpp as api

    api.llama_backend_init()
    model = api.llama_model_load_from_file(GGUF.encode(), api.llama_model_default_params())
    params = api.llama_context_default_params()
    params.n_ctx = 1024
    params.n_threads = params.n_threads_batch = args.threads
    context = api.llama_init_from_model(model, params)
    vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
    with open(args.out, "wb") as f:
        for tokens in [text.prompt(text.PROMPT, 0)] + [[text.forced(k)] for k in range(text.FORCED)]:
            array = (api.llama_token * len(tokens))(*tokens)  # the batch has its address
            if api.llama_decode(context, api.llama_batch_get_one(array, len(tokens))) != 0:
                sys.exit("llama_decode failed")
            f.write(ctypes.string_at(api.llama_get_logits_ith(context, -1), 4 * vocab))


def bench(*options):
    command = [os.path.join(LLAMA, "llama", "bin", "llama-batched-bench"), "-m", GGUF, "-t", str(args.threads),
               "-tb", str(args.threads), "--output-format", "jsonl", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not rows:
        sys.exit(f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return rows


def measure():
    rates = {"prompt": bench("-c", 1024, "-npp", args.prompt, "-ntg", 1, "-npl", 1)[0]["speed_pp"]}
    context = max(args.counts) * (args.depth + args.tokens)
    for row in bench("-c", context, "-npp", args.depth, "-ntg", args.tokens, "-npl", args.sequences):
        rates[str(row["pl"])] = row["speed_tg"]
    print(json.dumps(rates))


if args.action == "prepare":
    if not os.path.exists(SOURCE):
        convert()
    if not os.path.exists(GGUF):
        quantise()
elif args.action == "logits":
    write_logits()
else:
    measure()
