#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of GPTQ, AWQ, FP8 and compressed-tensors: they compute what the values of their numbers compute as f32, with each size of
groups, with and without zero points, on one device and two; lists of names count, and what does not fit is refused. The packing
here is written from the formats' definitions."""
import json
import random
import struct

from harness import *

MODELS = SCRATCH / "models"
MODELS.mkdir()
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
VOCAB = 48

if CTL is None:
    skip_all("npugraphctl is missing")


# ---- files -------------------------------------------------------------------------------------------------------------

def save(name, config, tensors):
    """tensors: {name: (dtype, shape, bytes)}."""
    path, at, head = MODELS / name, 0, {}
    path.mkdir(exist_ok=True)
    for key, (dtype, shape, content) in tensors.items():
        head[key] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(content)]}
        at += len(content)
    head = json.dumps(head).encode()
    content = struct.pack("<Q", len(head)) + head + b"".join(t[2] for t in tensors.values())
    (path / "model.safetensors").write_bytes(content)
    (path / "config.json").write_text(json.dumps(config))
    return path


def floats(values, shape, dtype="F32"):
    if dtype == "BF16":
        return dtype, shape, b"".join(struct.pack("<f", v)[2:] for v in values)
    return dtype, shape, struct.pack(f"<{len(values)}{'e' if dtype == 'F16' else 'f'}", *values)


def rounded(v, dtype):
    """The nearest number of the dtype; of BF16 the one towards 0."""
    if dtype == "BF16":
        return struct.unpack("<f", b"\0\0" + struct.pack("<f", v)[2:])[0]
    return struct.unpack("<e" if dtype == "F16" else "<f", struct.pack("<e" if dtype == "F16" else "<f", v))[0]


def pack_words(numbers, bits, order=None):
    """Neighbours in a list in one i32, the first in the low bits."""
    each = 32 // bits
    order = order or range(each)
    return [sum(numbers[i + o] << bits * k for k, o in enumerate(order)) for i in range(0, len(numbers), each)]


def transposed(m):
    return [list(row) for row in zip(*m)]


def i32(rows):
    return "I32", [len(rows), len(rows[0])], b"".join(struct.pack(f"<{len(r)}I", *r) for r in rows)


# ---- a linear in each format ----------------------------------------------------------------------------------------------

class Form:
    """How a checkpoint stores its linears. form: gptq, gptq_v2, awq, pack or naive (both of compressed-tensors). order: each has its
    columns in groups by an order of its own (act-order)."""

    def __init__(self, form, bits, group, zeros, scales="F16", order=False):
        self.form, self.bits, self.group, self.zeros, self.scales, self.order = form, bits, group, zeros, scales, order

    def __repr__(self):
        return (f"{self.form} int{self.bits} group {self.group}, {'with' if self.zeros else 'without'} zero points, {self.scales}"
                + ", by act-order" * self.order)

    def config(self):
        if self.form == "awq":
            return {"quant_method": "awq", "bits": 4, "group_size": self.group, "version": "gemm", "zero_point": True}
        if self.form.startswith("gptq"):
            return {"quant_method": "gptq", "bits": self.bits, "group_size": self.group, "sym": not self.zeros,
                    "desc_act": self.order, "checkpoint_format": self.form}
        weights = {"num_bits": self.bits, "type": "int", "symmetric": not self.zeros, "strategy": "group" if self.group > 0 else "channel"}
        if self.group > 0:
            weights |= {"group_size": self.group, "actorder": "group" if self.order else None}
        return {"quant_method": "compressed-tensors", "format": "int-quantized" if self.form == "naive" else "pack-quantized",
                "ignore": ["re:.*lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}

    def groups_of(self, columns, rng):
        """The group of each column."""
        size = self.group if self.group > 0 else columns
        groups = [k // size for k in range(columns)]
        if self.order:
            rng.shuffle(groups)
        return groups

    def store(self, base, n, z, s, index):
        """n[rows][columns], z and s[rows][groups]; numbers and zero points are unsigned. index: the group of each column."""
        bits, middle = self.bits, 1 << self.bits - 1
        groups = len(s[0])
        if self.form == "awq":
            return {base + "qweight": i32([pack_words(r, 4, AWQ_ORDER) for r in transposed(n)]),
                    base + "qzeros": i32([pack_words(r, 4, AWQ_ORDER) for r in transposed(z)]),
                    base + "scales": floats(sum(transposed(s), []), [groups, len(s)], self.scales)}
        if self.form.startswith("gptq"):
            less = 0 if self.form == "gptq_v2" else 0x11111111 if bits == 4 else 0x01010101
            qzeros = [[w - less & 0xffffffff for w in pack_words(r, bits)] for r in transposed(z)]
            return {base + "qweight": i32(transposed([pack_words(r, bits) for r in n])), base + "qzeros": i32(qzeros),
                    base + "scales": floats(sum(transposed(s), []), [groups, len(s)], self.scales),
                    base + "g_idx": ("I32", [len(n[0])], struct.pack(f"<{len(n[0])}i", *index))}
        out = {base + "weight_scale": floats(sum(s, []), [len(s), groups], self.scales)}
        if self.form == "naive":
            out[base + "weight"] = ("I8", [len(n), len(n[0])], bytes(v ^ 0x80 for r in n for v in r))
        else:
            out[base + "weight_packed"] = i32([pack_words(r, bits) for r in n])
        if self.zeros and self.form == "naive":
            out[base + "weight_zero_point"] = ("I8", [len(z), groups], bytes(v ^ 0x80 for r in z for v in r))
        elif self.zeros:
            out[base + "weight_zero_point"] = i32(transposed([pack_words(r, bits) for r in transposed(z)]))
        if self.order:
            out[base + "weight_g_idx"] = ("I32", [len(index)], struct.pack(f"<{len(index)}i", *index))
        return out


LINEARS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def checkpoint(form, hidden=64, ffn=128, floats_of=(), seed=1):
    """Returns a config, tensors in a form, and the same with all as f32. floats_of: names of linears that are not quantised."""
    rng = random.Random(f"{form} {seed}")
    config = {"architectures": ["LlamaForCausalLM"], "vocab_size": VOCAB, "hidden_size": hidden, "num_hidden_layers": 1,
              "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": hidden // 4, "intermediate_size": ffn,
              "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False}
    rows = {"self_attn.k_proj": hidden // 2, "self_attn.v_proj": hidden // 2, "mlp.gate_proj": ffn, "mlp.up_proj": ffn}
    common, packed, values = {}, {}, {}
    for name in ("model.embed_tokens", "lm_head"):
        common[name + ".weight"] = floats([rng.gauss(0, 0.5) for _ in range(VOCAB * hidden)], [VOCAB, hidden])
    for name in ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"):
        common[name + ".weight"] = floats([rng.uniform(0.5, 1.5) for _ in range(hidden)], [hidden])
    for name in LINEARS:
        out, features = rows.get(name, hidden), ffn if name == "mlp.down_proj" else hidden
        groups = features // form.group if form.group > 0 else 1
        middle, index = 1 << form.bits - 1, form.groups_of(features, rng)
        n = [[rng.randrange(2 * middle) for _ in range(features)] for _ in range(out)]
        z = [[rng.randrange(2 * middle) if form.zeros else middle for _ in range(groups)] for _ in range(out)]
        s = [[rounded(rng.uniform(0.5, 1.5) / middle / features**0.5, form.scales) for _ in range(groups)] for _ in range(out)]
        base = f"model.layers.0.{name}."
        v = floats([(n[r][k] - z[r][index[k]]) * s[r][index[k]] for r in range(out) for k in range(features)], [out, features])
        values[base + "weight"] = v
        packed.update({base + "weight": v} if name in floats_of else form.store(base, n, z, s, index))
    return config, {**common, **packed}, {**common, **values}


def f8(byte):
    """The value of a byte in e4m3fn, but for NaN."""
    e, m = byte >> 3 & 15, byte & 7
    return (-1 if byte & 128 else 1) * ((8 + m) * 2.0 ** (e - 10) if e else m * 2.0**-9)


def f8_checkpoint(rows, columns, scales="F32", floats_of=(), **sizes):
    """As checkpoint(), with f8 weights and a scale for each block of rows and columns, some of which are cut."""
    config, tensors, values = checkpoint(Form("naive", 8, -1, False), **sizes)
    rng, name = random.Random(rows * columns), "weight_scale" if rows == 1 else "weight_scale_inv"
    for base in (f"model.layers.0.{n}." for n in LINEARS):
        _, (out, features), content = tensors[base + "weight"]
        stored = bytes(rng.choice([b for b in range(256) if b & 0x78 < 0x70]) for _ in content)
        blocks = [[rounded(rng.uniform(0.5, 1.5) / 60 / features**0.5, scales) for _ in range(0, features, columns)]
                  for _ in range(0, out, rows)]
        del tensors[base + "weight_scale"]
        values[base + "weight"] = floats([f8(stored[r * features + k]) * blocks[r // rows][k // columns] for r in range(out)
                                          for k in range(features)], [out, features])
        tensors[base + "weight"] = ("F8_E4M3", [out, features], stored)
        tensors[base + name] = floats(sum(blocks, []), [len(blocks), len(blocks[0])], scales)
        if base[len("model.layers.0."):-1] in floats_of:
            tensors[base + "weight"] = values[base + "weight"]
            del tensors[base + name]
    return config, tensors, values


def f8_config(rows, columns, **more):
    if rows == 1:
        number = {"num_bits": 8, "type": "float", "symmetric": True}
        return {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"], "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": {**number, "strategy": "channel"},
            "input_activations": {**number, "dynamic": True, "strategy": "token"}}}, **more}
    return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [rows, columns], **more}


# ---- models ----------------------------------------------------------------------------------------------------------------

def ctl(daemon, *arguments):
    return subprocess.run([CTL, "--address", daemon.address, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)


def load(daemon, path, name, *arguments):
    out = ctl(daemon, "load", path, "--name", name, "--max-batch", 2, "--chunk", 64, "--kv-dtype", "f32", *arguments)
    assert out.returncode == 0, (name, out.stderr)


def logits_of(daemon, model, prompt):
    with Client(daemon) as c:
        opened = c.call("Sequences/Open", pb.OpenRequest(model=model, prompt=prompt, want_logits=True))
        return struct.unpack(f"<{len(opened.logits) // 4}f", opened.logits)


def same_models(daemon, a, b):
    """A prompt of one row goes through the kernel of decode steps, one of 60 through that of prompts."""
    rng = random.Random(a)
    for n in (1, 60):
        prompt = [rng.randrange(VOCAB) for _ in range(n)]
        wanted, got = logits_of(daemon, a, prompt), logits_of(daemon, b, prompt)
        worst, top = max(abs(x - y) for x, y in zip(wanted, got)), max(map(abs, wanted))
        assert worst <= 1e-4 * top and max(wanted) > min(wanted), (b, n, worst, top)


def compare(daemon, config, packed, values, quantised, devices=()):
    load(daemon, save("values", config, values), "values")
    path = save("packed", {**config, "quantization_config": quantised}, packed)
    for name, options in (("one", ()), *((("two", ("--devices", ",".join(devices))),) if devices else ())):
        load(daemon, path, name, *options)
        same_models(daemon, "values", name)
        assert ctl(daemon, "unload", name).returncode == 0
    ctl(daemon, "unload", "values")


# Of the second list, also on two devices, of which each has half of the columns of some.
FORMS = [Form("gptq", 4, -1, False), Form("gptq", 8, 64, True, "BF16"), Form("gptq_v2", 4, 64, True), Form("awq", 4, 64, True, "BF16"),
         Form("pack", 8, 64, True, "F32"), Form("naive", 8, -1, True, "F32")]
DIVIDED = [Form("gptq", 4, 32, True), Form("gptq_v2", 8, -1, True), Form("awq", 4, 32, True), Form("pack", 4, 32, True, "BF16"),
           Form("pack", 8, -1, False), Form("naive", 8, 32, True)]


@test("each format, with each size of groups, gives the logits of its values; on two devices too where the groups allow it")
def formats(daemon):
    for form in FORMS:
        compare(daemon, *checkpoint(form), form.config())
    for form in DIVIDED:
        compare(daemon, *checkpoint(form), form.config(), ("host:0", "host:1"))
    form = Form("gptq", 4, 128, True)
    compare(daemon, *checkpoint(form, hidden=128), form.config())


@test("columns in groups by another order (act-order): GPTQ and compressed-tensors, int4 and int8, with zero points and without")
def ordered(daemon):
    for form in (Form("gptq", 4, 32, True, order=True), Form("pack", 4, 32, False, order=True), Form("pack", 8, 32, True, "BF16", order=True)):
        compare(daemon, *checkpoint(form), form.config())
    form = Form("gptq", 4, 32, True, order=True)
    path = MODELS / "packed"
    config, packed, values = checkpoint(form)
    save("values", config, values)
    load(daemon, MODELS / "values", "values")
    save("packed", {**config, "quantization_config": form.config()}, packed)
    load(daemon, path, "a")
    before = daemon.used_bytes()
    load(daemon, path, "b", "--kv-bytes", 16384)
    assert daemon.used_bytes() - before < path.joinpath("model.safetensors").stat().st_size
    same_models(daemon, "values", "b")  # weights in this order are shared
    out = ctl(daemon, "load", path, "--name", "two", "--devices", "host:0,host:1")
    assert out.returncode == 1 and "o_proj.g_idx" in out.stderr and "2 devices cannot divide" in out.stderr, out
    for name in ("a", "b", "values"):
        ctl(daemon, "unload", name)
    plain, form = Form("pack", 4, 32, True), Form("pack", 4, 32, True, order=True)
    config, packed, values = checkpoint(plain)  # as compressed-tensors writes it that has no order
    none = {f"model.layers.0.{n}.weight_g_idx": ("I32", [k], b"\xff" * 4 * k) for n in LINEARS
            for k in [128 if n == "mlp.down_proj" else 64]}
    compare(daemon, config, {**packed, **none}, values, form.config())
    form = Form("gptq", 4, 32, True)
    config, packed, values = checkpoint(form)  # as some programs for GPTQ write it
    none = {key: (dtype, shape, bytes(len(content))) for key, (dtype, shape, content) in packed.items() if key.endswith("g_idx")}
    compare(daemon, config, {**packed, **none}, values, form.config())


def changed(daemon, path, key, rows, columns, order):
    """Loads a tensor as rows of int4, in an order of its columns."""
    with Client(daemon) as c:
        s = pb.TensorSlice(name=key, end=rows, shape=[rows, columns // 8], change=pb.TENSOR_CHANGE_GPTQ_INT4, order=order)
        done = list(c.call("Memory/LoadSafetensors", pb.LoadSafetensorsRequest(path=str(path), tensors=[key], slices=[s])))[-1].done
        return b"".join(p.data for p in c.call("Memory/Read", pb.ReadRequest(buffer=done.tensors[0].buffer)))


@test("an order of columns is one of all columns of numbers, or the load is refused; two orders are two tensors")
def orders(daemon):
    q = "model.layers.0.self_attn.q_proj."
    config, packed, _ = checkpoint(Form("gptq", 4, 32, True))
    file = save("orders", config, packed) / "model.safetensors"
    rng = random.Random(5)
    plain = changed(daemon, file, q + "qweight", 64, 64, b"")
    for order in (list(range(64)), rng.sample(range(64), 64), rng.sample(range(64), 64)):
        got = changed(daemon, file, q + "qweight", 64, 64, struct.pack("<64i", *order))
        for r in (0, 1, 63):
            was, now = ([b >> s & 15 for b in x[32 * r:32 * r + 32] for s in (0, 4)] for x in (plain, got))
            assert now == [was[k] for k in order], (r, order)
    for order in (range(63), range(65), [*range(63), 62], [*range(63), 64], [-1, *range(63)], [2**31 - 1, *range(63)]):
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", changed, daemon, file, q + "qweight", 64, 64,
                struct.pack(f"<{len(order)}i", *order))
    refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", changed, daemon, file, q + "qweight", 64, 64, b"123")
    with Client(daemon) as c:
        for key, fields in ((q + "scales", {}), (q + "scales", {"change": pb.TENSOR_CHANGE_TRANSPOSE}),
                            (q + "qzeros", {"change": pb.TENSOR_CHANGE_GPTQ_INT4_ZEROS}), (q + "g_idx", {}),
                            (q + "qweight", {"change": pb.TENSOR_CHANGE_GPTQ_INT4, "dim": 1})):
            s = pb.TensorSlice(name=key, end=2, order=struct.pack("<2i", 1, 0), **fields)
            refused("INVALID_ARGUMENT", "INVALID_ARGUMENT",
                    lambda: list(c.call("Memory/LoadSafetensors", pb.LoadSafetensorsRequest(path=str(file), tensors=[key], slices=[s]))))


@test("sizes that are no multiples of vectors: 80 and 104 columns in one group")
def odd_sizes(daemon):
    for form in (Form("gptq", 4, -1, True), Form("awq", 4, -1, True), Form("pack", 4, -1, True)):
        compare(daemon, *checkpoint(form, hidden=80, ffn=104), form.config())


@test("symmetric GPTQ weights have their zero in the middle, whatever the file stores; a second load is shared")
def symmetric(daemon):
    form = Form("gptq", 4, 32, False)
    config, packed, values = checkpoint(form)
    for key, (dtype, shape, content) in packed.items():
        if key.endswith("qzeros"):
            packed[key] = (dtype, shape, b"\x88" * len(content))  # as Qwen's: 8, where 7 is meant
    compare(daemon, config, packed, values, form.config())
    path = MODELS / "packed"
    load(daemon, path, "a")
    before = daemon.used_bytes()
    load(daemon, path, "b", "--kv-bytes", 16384)
    grown = daemon.used_bytes() - before
    assert grown < path.joinpath("model.safetensors").stat().st_size, f"the second load takes {grown} bytes"
    for name in ("a", "b"):
        ctl(daemon, "unload", name)


@test("linears that lists and patterns of names leave out are floats")
def left_out(daemon):
    awq, gptq, pack = Form("awq", 4, 32, True), Form("gptq", 4, 32, True), Form("pack", 4, 32, True)
    up, attention = ["mlp.up_proj", "mlp.down_proj"], [n for n in LINEARS if n.startswith("self_attn")]
    for form, names, more in (
            (awq, up, {"modules_to_not_convert": ["lm_head", "mlp.up", "down_proj"]}),
            (gptq, attention, {"modules_in_block_to_quantize": [["mlp.gate_proj", "mlp.up_proj"], ["mlp.down_proj"]]}),
            (gptq, up, {"dynamic": {"-:.*up_proj$": {}, "-:model\\.layers\\.0\\.mlp\\.d": {}}}),
            (pack, attention, {"ignore": ["re:.*self_attn", "re:lm_.ead"]}),
            (pack, up, {"ignore": ["lm_head", "re:.*mlp.up", "model.layers.0.mlp.down_proj"]})):
        compare(daemon, *checkpoint(form, floats_of=names), {**form.config(), **more})


@test("f8 weights give the logits of their values: in blocks, of which the last may be cut, in rows, and on two devices")
def eights(daemon):
    compare(daemon, *f8_checkpoint(128, 128, hidden=160, ffn=192), f8_config(128, 128))
    compare(daemon, *f8_checkpoint(1, 100, hidden=80, ffn=100), f8_config(1, 100))
    compare(daemon, *f8_checkpoint(16, 32, "BF16"), f8_config(16, 32), ("host:0", "host:1"))
    left = ["mlp.up_proj", "self_attn.q_proj"]
    compare(daemon, *f8_checkpoint(16, 32, floats_of=left),
            f8_config(16, 32, modules_to_not_convert=["lm_head", "model.layers.0.mlp.up_proj", "q_proj"]))


@test("f8 weights with a scale for all of each, and scales of inputs that are not read: AutoFP8, ModelOpt and compressed-tensors")
def one_scale(daemon):
    config, tensors, values = f8_checkpoint(1000, 1000, floats_of=["mlp.up_proj"])
    for key in [k for k in tensors if k.endswith("weight_scale_inv")]:
        base = key[:-len("weight_scale_inv")]
        tensors[base + "weight_scale"] = (tensors[key][0], [] if "attn" in base else [1], tensors.pop(key)[2])
        tensors[base + "input_scale"] = floats([0.125], [])
    static = {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head", "up_proj"]}
    modelopt = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head", "model.layers.*.up_proj"],
                "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}
    number = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor"}
    tensor = {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["re:.*up_proj", "lm_head"],
              "config_groups": {"group_0": {"targets": ["Linear"], "weights": number, "input_activations": {**number, "dynamic": False}}}}
    compare(daemon, config, tensors, values, static, ("host:0", "host:1"))
    compare(daemon, config, tensors, values, modelopt)
    compare(daemon, config, tensors, values, tensor)
    for change, fields in ((static, {"activation_scheme": "both"}), (static, {"ignored_layers": [1]}), (modelopt, {"quant_algo": "NVFP4"}),
                           (modelopt, {"ignore": [""]}), (static, {"weight_block_size": [32, 32]})):
        key = "activation_scheme" if "weight_block_size" in fields else next(iter(fields))
        says(daemon, config, tensors, {**change, **fields}, "quantization_config." + key)
    s = "model.layers.0.self_attn.q_proj.weight_scale"
    for bad in (("F32", [2], bytes(8)), ("F32", [1, 1], bytes(4)), ("I32", [], bytes(4))):
        says(daemon, config, {**tensors, s: bad}, static, s)


@test("f8 weights that do not fit the config, or the devices, are refused with the field or the tensor")
def eights_refused(daemon):
    w, s = (f"model.layers.0.mlp.down_proj.weight{x}" for x in ("", "_scale_inv"))
    config, tensors, _ = f8_checkpoint(64, 64)
    fits = f8_config(64, 64)
    for key, field in ((w, tensors[w]), (s, tensors[s])):
        dtype, shape, content = field
        cut = content[: len(content) // shape[1] * (shape[1] - 1)]
        says(daemon, config, {**tensors, key: (dtype, [shape[0], shape[1] - 1], cut)}, fits, "model.safetensors", key, "must be")
        says(daemon, config, {k: t for k, t in tensors.items() if k != key}, fits, key)
    says(daemon, config, {**tensors, w: ("I8", *tensors[w][1:])}, fits, w, "i8", "f8_e4m3fn")
    says(daemon, config, {**tensors, w: ("F8_E5M2", *tensors[w][1:])}, fits, w)
    says(daemon, config, {**tensors, s: ("I32", *tensors[s][1:])}, fits, s)
    for more, field in (({"weight_block_size": [64]}, "weight_block_size"), ({"weight_block_size": [0, 64]}, "weight_block_size"),
                        ({"weight_block_size": [64, 40]}, "weight_block_size"), ({"weight_block_size": [64, 1e300]}, "weight_block_size"),
                        ({"weight_block_size": ["64", 64]}, "weight_block_size"),
                        ({"activation_scheme": "static"}, "activation_scheme"), ({"fmt": "e5m2"}, "fmt"),
                        ({"modules_to_not_convert": [1]}, "modules_to_not_convert")):
        says(daemon, config, tensors, {**fits, **more}, "quantization_config." + field)
    says(daemon, config, tensors, f8_config(32, 64), "weight_scale_inv", "must be")
    path = save("bad", {**config, "quantization_config": fits}, tensors)
    out = ctl(daemon, "load", path, "--name", "bad", "--devices", "host:0,host:1")
    assert out.returncode == 1 and "weight_block_size" in out.stderr and "q_proj" in out.stderr, out
    config, tensors, _ = f8_checkpoint(1, 64, ffn=64)
    for more, field in (({"symmetric": False}, "symmetric"), ({"num_bits": 4}, "num_bits"), ({"type": "int"}, "type")):
        bad = f8_config(1, 64)
        bad["config_groups"]["group_0"]["weights"].update(more)
        says(daemon, config, tensors, bad, "weights." + field)


# ---- checkpoints that do not fit -------------------------------------------------------------------------------------------

def says(daemon, config, tensors, quantised, *words):
    """Checks that a load is refused with these words, and leaves nothing."""
    out = ctl(daemon, "load", save("bad", {**config, "quantization_config": quantised}, tensors), "--name", "bad", "--max-batch", 1)
    assert out.returncode == 1 and all(w in out.stderr for w in words), (words, out)


@test("tensors that do not fit the config are refused with the file, the tensor and what it must be; group indices that are none too")
def refusals(daemon):
    q = "model.layers.0.self_attn.q_proj."
    for form in (Form("gptq", 4, 32, True), Form("awq", 4, 32, True), Form("pack", 4, 32, True)):
        config, packed, _ = checkpoint(form)
        weight = q + ("weight_packed" if form.form == "pack" else "qweight")
        scales = q + ("weight_scale" if form.form == "pack" else "scales")
        zeros = q + ("weight_zero_point" if form.form == "pack" else "qzeros")
        for key in (weight, scales, zeros):
            dtype, shape, content = packed[key]
            short = {**packed, key: (dtype, [shape[0] - 1, shape[1]], content[:len(content) // shape[0] * (shape[0] - 1)])}
            says(daemon, config, short, form.config(), "model.safetensors", key, "must be")
            says(daemon, config, {**packed, key: (dtype, [shape[1], shape[0]], content)}, form.config(), "model.safetensors", key)
            says(daemon, config, {k: t for k, t in packed.items() if k != key}, form.config(), "model.safetensors", key)
            says(daemon, config, {**packed, key: (dtype, [shape[0] * shape[1]], content)}, form.config(), key)
        says(daemon, config, {**packed, zeros: ("F32", *packed[zeros][1:])}, form.config(), zeros, "f32", "must be i32")
        says(daemon, config, {**packed, scales: ("I16" if form.form == "pack" else "I8", [1], b"\0\0"[:2 if form.form == "pack" else 1])},
             form.config(), scales)
    form = Form("gptq", 4, 32, True)
    config, packed, _ = checkpoint(form)
    index = list(struct.unpack("<64i", packed[q + "g_idx"][2]))
    for bad, at in (([0] * 31 + [1] * 33, 63), ([0] * 32 + [2] * 32, 32), (index[:40] + [-1] + index[41:], 40), ([5] * 64, 0),
                    (index[:2] + [2**31 - 1] + index[3:], 2), ([-2**31] * 64, 0)):
        says(daemon, config, {**packed, q + "g_idx": ("I32", [64], struct.pack("<64i", *bad))}, form.config(), q + "g_idx", f"column {at} ",
             "2 groups of 32")
    for bad in (("I32", [65], bytes(260)), ("I64", [64], bytes(512)), ("I32", [8, 8], bytes(256))):
        says(daemon, config, {**packed, q + "g_idx": bad}, form.config(), q + "g_idx")
    says(daemon, config, packed, {**form.config(), "group_size": 64}, "q_proj.g_idx", "1 groups of 64")
    content = (MODELS / "bad" / "model.safetensors").read_bytes()
    settings = {**config, "quantization_config": form.config()}
    (MODELS / "bad" / "config.json").write_text(json.dumps(settings))
    before = daemon.used_bytes()
    rng = random.Random(3)
    for n in (0, 7, 100, 5000, len(content) - 1):
        (MODELS / "bad" / "model.safetensors").write_bytes(content[:n])
        out = ctl(daemon, "load", MODELS / "bad", "--name", "bad", "--max-batch", 1)
        assert out.returncode == 1 and "model.safetensors" in out.stderr, (n, out)
    header = struct.unpack("<Q", content[:8])[0]
    for _ in range(12):  # whatever the header says then, the daemon answers
        bad = bytearray(content)
        for _ in range(3):
            bad[8 + rng.randrange(header)] = rng.choice(b'0123456789{}[],:"')
        (MODELS / "bad" / "model.safetensors").write_bytes(bad)
        out = ctl(daemon, "load", MODELS / "bad", "--name", "bad", "--max-batch", 1)
        assert out.returncode in (0, 1), out
        ctl(daemon, "unload", "bad")
    until("everything is freed", lambda: daemon.used_bytes() <= before)


if __name__ == "__main__":
    main(f"--models-dir={MODELS}", "--device=host:0", "--device=host:1", "--threads=1")
