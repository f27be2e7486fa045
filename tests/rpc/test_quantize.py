#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""npugraphctl quantize: what it writes is the nearest that the format can say, is loaded and decodes; what it refuses leaves nothing."""
import bisect
import json
import math
import shutil
import struct

from harness import *

MODEL = SOURCE / "examples" / "model"
MODELS = SCRATCH / "models"
MODELS.mkdir()

if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")


def ctl(*arguments):
    return subprocess.run([CTL, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)


def tensors(path):
    """Returns {name: (dtype, shape, bytes)} of a safetensors file."""
    data = (path / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    at = 8 + n
    for t in header.values():
        size = {"I64": 8, "I32": 4, "F32": 4}.get(t["dtype"], 1 if t["dtype"] in ("I8", "F8_E4M3") else 2)
        assert t["data_offsets"][0] % size == 0, "a tensor is not aligned, which other readers refuse"
    return {k: (t["dtype"], t["shape"], data[at + t["data_offsets"][0]:at + t["data_offsets"][1]]) for k, t in header.items()}


def widened(t):
    assert t[0] == "BF16"
    return [struct.unpack("<f", b"\0\0" + t[2][i:i + 2])[0] for i in range(0, len(t[2]), 2)]


def f8(byte):
    """The value of a byte in e4m3fn."""
    e, m = byte >> 3 & 15, byte & 7
    return (-1 if byte & 128 else 1) * ((8 + m) * 2.0 ** (e - 10) if e else m * 2.0**-9)


F8 = sorted(f8(b) for b in range(256) if b & 127 != 127)


def check_f8_rounding(w, numbers, scales, shape):
    """Each number is a nearest one of its format to the weight in its row's scale, and the largest weight of a row is near 448."""
    rows, columns = shape
    for r in range(rows):
        row = [v / scales[r] for v in w[r * columns:(r + 1) * columns]]
        assert abs(max(map(abs, row)) - 448) < 2, (r, max(map(abs, row)))
    for i in range(0, rows * columns, 7):
        v = w[i] / scales[i // columns]
        at = bisect.bisect(F8, v)
        assert abs(v - numbers[i]) <= min(abs(v - x) for x in F8[max(at - 1, 0):at + 1]) + 1e-5 * abs(v), (i, v, numbers[i])


def check_rounding(w, numbers, scales, shape, group):
    """Each number is the nearest one to the weight, in steps of its group's scale."""
    rows, columns = shape
    for i in range(0, rows * columns, 7):  # 7 meets each column of some row
        scale = scales[i // columns * (columns // group) + i % columns // group]
        assert abs(w[i] - numbers[i] * scale) <= scale / 2 + abs(w[i]) / 128, (i, w[i], numbers[i], scale)  # bf16 rounds the scale


@test("int8, int4, w8a8 and fp8: numbers, scales and config.json are those of the format, all else is copied, the daemon decodes it")
def writes(daemon):
    before = tensors(MODEL)
    for form, bits, group in (("int8", 8, 0), ("int4", 4, 32), ("w8a8", 8, 0), ("fp8", 8, 0)):
        out = MODELS / form
        assert ctl("quantize", MODEL, "--to", form, "--group", group, out).returncode == 0
        after, config = tensors(out), json.loads((out / "config.json").read_text())
        settings = config["quantization_config"]
        assert settings["ignore"] == ["lm_head"] and settings["config_groups"]["group_0"]["weights"]["num_bits"] == bits
        weights = settings["config_groups"]["group_0"]["weights"]
        assert (settings["format"], weights["type"]) == (("float-quantized", "float") if form == "fp8" else (settings["format"], "int"))
        rows = settings["config_groups"]["group_0"]["input_activations"]
        assert (rows is not None and rows["dynamic"] and rows["strategy"] == "token") == (form == "w8a8"), rows
        assert (out / "tokenizer.json").read_bytes() == (MODEL / "tokenizer.json").read_bytes()
        for name, t in before.items():
            base = name.removesuffix("weight")
            if not name.endswith("_proj.weight"):
                assert after[name] == t
            elif ".0." in name and form == "fp8":
                assert after[name][:2] == ("F8_E4M3", t[1]) and after[base + "weight_scale"][1] == [t[1][0], 1]
                check_f8_rounding(widened(t), [f8(b) for b in after[name][2]], widened(after[base + "weight_scale"]), t[1])
            elif ".0." in name:
                if bits == 8:
                    numbers = struct.unpack(f"<{len(after[name][2])}b", after[name][2])
                else:
                    assert struct.unpack("<2q", after[base + "weight_shape"][2]) == tuple(t[1])
                    numbers = [(b >> shift & 15) - 8 for b in after[base + "weight_packed"][2] for shift in (0, 4)]
                check_rounding(widened(t), numbers, widened(after[base + "weight_scale"]), t[1], group or t[1][1])
        address = ["--address", daemon.address]
        out = ctl(*address, "load", out, "--name", form, "--max-batch", 2, "--max-context", 64)
        assert out.returncode == 0, out.stderr
        out = ctl(*address, "generate", form, "--tokenizer", MODEL, "--prompt", "In the beginning God created", "--tokens", 6)
        assert out.returncode == 0 and out.stdout.startswith("In the beginning God created "), out


def read_expected(name):
    data = (SOURCE / "tests" / "golden" / name / "expect.safetensors").read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    get = lambda t: data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]
    header = json.loads(data[8:8 + size])
    prompt = struct.unpack(f"<{header['prompt']['shape'][0]}i", get(header["prompt"]))
    rows, vocab = header["prompt_logits"]["shape"]
    flat = struct.unpack(f"<{rows * vocab}f", get(header["prompt_logits"]))
    return prompt, [flat[r * vocab:(r + 1) * vocab] for r in range(rows)]


@test("perplexity is that of the reference's logits, in windows of any size; quantising raises it a little")
def perplexity(daemon):
    address = ["--json", "--address", daemon.address]
    shutil.copytree(SOURCE / "tests" / "golden" / "llama_yarn", MODELS / "tiny")
    prompt, logits = read_expected("llama_yarn")
    want = sum(math.log(sum(map(math.exp, row))) - row[t] for row, t in zip(logits, prompt[1:])) / (len(prompt) - 1)
    assert ctl(*address, "load", MODELS / "tiny", "--max-context", 64).returncode == 0
    ids = ",".join(map(str, prompt))
    got = json.loads(ctl(*address, "perplexity", "tiny", "--ids", ids).stdout)
    assert got["tokens"] == len(prompt) - 1 and math.isclose(got["loss"], want, rel_tol=1e-4), (got, want)
    assert math.isclose(got["perplexity"], math.exp(want), rel_tol=1e-3)
    for window, tokens in ((2, 40), (7, 40), (7, 12), (100, 3)):  # each token is counted once
        assert json.loads(ctl(*address, "perplexity", "tiny", "--ids", ids, "--window", window, "--tokens", tokens).stdout)["tokens"] == tokens
    shutil.copytree(MODEL, MODELS / "whole")
    assert ctl(*address, "load", MODELS / "whole", "--max-batch", 1).returncode == 0
    text = SCRATCH / "text"
    text.write_text("In the beginning God created the heaven and the earth. And the earth was without form, and void; and darkness "
                    "was upon the face of the deep. And the Spirit of God moved upon the face of the waters.\n")
    whole, less, f8_loss = (json.loads(ctl(*address, "perplexity", m, "--text", text).stdout)["loss"] for m in ("whole", "int4", "fp8"))
    assert whole < less < 1.2 * whole, (whole, less)
    assert abs(f8_loss - whole) < (less - whole) / 2, (whole, f8_loss, less)
    for arguments, says in ((("whole", "--ids", "5"), "at least two"), (("whole", "--ids", "5,2048"), "2048"), (("whole", "--ids", "x"), "token ids"),
                            (("none", "--ids", "5,6"), "none"), (("whole",), "--text or --ids"), (("whole", "--ids", "5,6", "--window", "1"), "window")):
        got = ctl(*address, "perplexity", *arguments)
        assert got.returncode != 0 and says in got.stderr, got


def floats_of(t):
    """The elements of a tensor of f32, bf16 or i8."""
    if t[0] == "BF16":
        return widened(t)
    return struct.unpack(f"<{len(t[2]) // 4}f", t[2]) if t[0] == "F32" else struct.unpack(f"<{len(t[2])}b", t[2])


def put_back(source, quantised, out):
    """Writes the checkpoint in f32 whose weights have the values that a quantised one (int8, a scale for each row) says."""
    made, head, body = {}, {}, b""
    for name, t in tensors(quantised).items():
        if name.endswith(".weight_scale"):
            continue
        values = floats_of(t)
        if t[0] == "I8":
            scales, columns = floats_of(tensors_of[quantised][name + "_scale"]), t[1][1]
            values = [v * scales[i // columns] for i, v in enumerate(values)]
        made[name] = (t[1], struct.pack(f"<{len(values)}f", *values))
    for name, (shape, data) in made.items():
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(head).encode()
    out.mkdir()
    (out / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + body)
    (out / "config.json").write_bytes((source / "config.json").read_bytes())
    return sum(t[0] == "I8" for t in tensors_of[quantised].values())


tensors_of = {}
MIXTURES = ("qwen3_moe", "mixtral_window", "qwen2_moe", "glm4_moe", "ernie_moe", "minimax_m2", "deepseek_v3", "granite_moe", "gpt_oss", "starcoder2_window")


@test("mixtures of experts, attention over a latent and MLPs without a gate: the logits are those of the values that were written")
def experts(daemon):
    address = ["--address", daemon.address]
    for name in MIXTURES:
        source, out, floats = SOURCE / "tests" / "golden" / name, MODELS / f"{name}-int8", MODELS / f"{name}-floats"
        got = ctl("quantize", source, "--to", "int8", out)
        assert got.returncode == 0, got
        tensors_of[out] = tensors(out)
        n = put_back(source, out, floats)
        experts = sum(".experts." in k and t[0] == "I8" for k, t in tensors_of[out].items())
        assert n > 0 and (experts > 0) == (name not in ("granite_moe", "gpt_oss", "starcoder2_window")), (name, n, experts)
        prompt, logits = read_expected(name), []
        for folder in (out, floats):
            assert (got := ctl(*address, "load", folder, "--name", folder.name, "--max-context", 64)).returncode == 0, got
            with Client(daemon) as c:
                opened = c.call("Sequences/Open", pb.OpenRequest(model=folder.name, prompt=prompt[0], want_logits=True))
                logits.append(struct.unpack(f"<{len(opened.logits) // 4}f", opened.logits))
            assert ctl(*address, "unload", folder.name).returncode == 0
        top = max(map(abs, logits[1]))
        worst = max(abs(a - b) for a, b in zip(*logits)) / top
        assert worst < 1e-4 and max(abs(a - b) for a, b in zip(logits[1], prompt[1][-1])) > 1e-4 * top, (name, worst)


@test("what cannot be quantised is refused with the tensor and what to do, and nothing is written")
def refuses(daemon):
    out = MODELS / "none"
    for arguments, says in ((("--to", "int4"), "448 columns, which groups of 128 do not divide; give another --group"),):
        got = ctl("quantize", MODEL, *arguments, out)
        assert got.returncode == 1 and says in got.stderr and "down_proj" in got.stderr and not out.exists(), got
    got = ctl("quantize", MODEL, "--to", "fp8", "--group", "32", out)
    assert got.returncode == 2 and "leave out --group" in got.stderr and not out.exists(), got
    for place, says in ((MODELS, "config.json"), (MODELS / "int8", "quantised already"), (SCRATCH / "absent", "config.json")):
        got = ctl("quantize", place, "--to", "int8", out)
        assert got.returncode == 1 and says in got.stderr and not out.exists(), got
    got = ctl("quantize", MODEL, "--to", "int8", MODELS / "int8")
    assert got.returncode == 1 and "does not exist yet" in got.stderr
    bad = MODELS / "bad"
    bad.mkdir()
    (bad / "config.json").write_bytes((MODEL / "config.json").read_bytes())
    whole = (MODEL / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", whole[:8])[0]
    for content in (b"", whole[:100], b"\xff" * 8 + whole[8:], whole[:8] + b"[" + whole[9:], whole[:n + 1000],
                    whole.replace(b'"BF16"', b'"F32" ', 1)):
        (bad / "model.safetensors").write_bytes(content)
        got = ctl("quantize", bad, "--to", "int8", out)
        assert got.returncode == 1 and "model.safetensors" in got.stderr and not out.exists(), got


if __name__ == "__main__":
    main(f"--models-dir={MODELS}")
