#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Embeddings: checkpoints that are made for them, what they refuse, calls with many prompts, and what ends such a call."""
import json
import math
import shutil
import struct

from harness import *

GOLDEN = SOURCE / "tests" / "golden"
BIBLE = SOURCE / "examples" / "model"
MODELS = SCRATCH / "models"
MODELS.mkdir()
PROMPT = [7, 3, 99, 12, 45, 45, 2, 81, 30, 11, 5, 64, 17, 100, 28, 9, 52]

if CTL is None or not (BIBLE / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")


def ctl(daemon, *arguments, text=None):
    return subprocess.run([CTL, "--json", "--address", daemon.address, *map(str, arguments)], input=text, capture_output=True,
                          text=True, timeout=PATIENCE)


def load(daemon, path, name, *options):
    out = ctl(daemon, "load", path, "--name", name, *options)
    assert out.returncode == 0, out.stderr
    return name


def embed(c, model, prompts, **fields):
    """Returns a list of numbers for each prompt."""
    request = pb.EmbedRequest(model=model, prompts=[pb.EmbedPrompt(tokens=p) for p in prompts], **fields)
    got = c.call("Sequences/Embed", request)
    flat = struct.unpack(f"<{len(got.embeddings) // 4}f", got.embeddings)
    assert len(flat) == len(prompts) * got.size
    return [flat[i:i + got.size] for i in range(0, len(flat), got.size)], got


def info(c, name):
    return c.call("Sequences/ListModels", pb.ListModelsRequest(name=name)).models[0]


def renamed(path, folder):
    """Takes "model." from the names of the tensors of a checkpoint."""
    data = (path / "model.safetensors").read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.dumps({k.removeprefix("model."): v for k, v in json.loads(data[8:8 + n]).items()}).encode()
    header += b" " * (-len(header) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + data[8 + n:])


def checkpoint(name, golden="qwen3_mha_tied", config=(), modules=None, pooling=None, bare=False):
    """Makes a checkpoint of a golden one. modules: kinds of sentence-transformers' modules, by path."""
    folder = MODELS / name
    shutil.copytree(GOLDEN / golden, folder)
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(fields | dict(config)))
    if bare:
        renamed(GOLDEN / golden, folder)
    if modules is not None:
        rows = [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                for i, (path, kind) in enumerate(modules)]
        (folder / "modules.json").write_text(json.dumps(rows))
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


LAST, MEAN = {"pooling_mode_lasttoken": True, "pooling_mode_cls_token": False}, {"pooling_mode_mean_tokens": True}
PLAIN = [("", "Transformer"), ("1_Pooling", "Pooling")]
UNIT = [*PLAIN, ("2_Normalize", "Normalize")]


# ---- checkpoints ----------------------------------------------------------------------------------------------------------

@test("an architecture without a head is loaded for embeddings, by either names of tensors, and gives the bits of the one with a head")
def bare(daemon):
    with Client(daemon) as c:
        want = embed(c, load(daemon, GOLDEN / "qwen3_mha_tied", "whole"), [PROMPT])[0]
        for name, fields in (("model", dict(config={"architectures": ["Qwen3Model"]}.items(), bare=True)),
                             ("prefixed", dict(config={"architectures": ["Qwen3Model"]}.items())),
                             ("named", dict(bare=True, modules=PLAIN, pooling=LAST))):
            model = load(daemon, checkpoint(name, **fields), name)
            assert embed(c, model, [PROMPT])[0] == want, name
            listed = info(c, model)
            assert listed.no_generation and not listed.HasField("decode") and listed.embedding_size == len(want[0])
            got = refused("NO_GENERATION", "FAILED_PRECONDITION", c.call, "Sequences/Open", pb.OpenRequest(model=model, prompt=PROMPT))
            assert "Embed" in got.text
            assert listed.weight_bytes <= info(c, "whole").weight_bytes
        whole = info(c, "whole")
        assert not whole.no_generation and whole.pooling == pb.POOLING_LAST and not whole.unit_embeddings
        # with tied weights, names without "model." may generate too
        load(daemon, checkpoint("tied", bare=True), "tied")
        assert embed(c, "tied", [PROMPT])[0] == want
        assert c.call("Sequences/Open", pb.OpenRequest(model="tied", prompt=PROMPT)).position == len(PROMPT)


@test("shards whose index names tensors without model. are found")
def shards(daemon):
    folder = checkpoint("shards", golden="qwen3_sharded", config={"architectures": ["Qwen3Model"]}.items())
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    for file in set(index["weight_map"].values()):
        data = (folder / file).read_bytes()
        n = struct.unpack("<Q", data[:8])[0]
        header = json.dumps({k.removeprefix("model."): v for k, v in json.loads(data[8:8 + n]).items()}).encode()
        header += b" " * (-len(header) % 8)
        (folder / file).write_bytes(struct.pack("<Q", len(header)) + header + data[8 + n:])
    index["weight_map"] = {k.removeprefix("model."): v for k, v in index["weight_map"].items()}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with Client(daemon) as c:
        want = embed(c, load(daemon, GOLDEN / "qwen3_sharded", "sharded"), [PROMPT])[0]
        assert embed(c, load(daemon, folder, "bare-shards"), [PROMPT])[0] == want


@test("modules.json decides pooling and length, also where the daemon reads the files")
def modules(daemon):
    with Client(daemon) as c:
        last = embed(c, "whole", [PROMPT])[0][0]
        length = math.sqrt(sum(x * x for x in last))
        checkpoint("unit", modules=UNIT, pooling=LAST)
        checkpoint("mean", modules=UNIT, pooling=MEAN)
        for path in (MODELS / "unit", "unit"):  # the second is found below a models-dir
            row = embed(c, load(daemon, path, "unit"), [PROMPT])[0][0]
            assert max(abs(x - y / length) for x, y in zip(row, last)) < 1e-6
            assert info(c, "unit").unit_embeddings and info(c, "unit").no_generation
            ctl(daemon, "unload", "unit")
        row = embed(c, load(daemon, "mean", "mean"), [PROMPT])[0][0]
        parts = [embed(c, "whole", [PROMPT[:n + 1]])[0][0] for n in range(len(PROMPT))]
        mean = [sum(column) / len(PROMPT) for column in zip(*parts)]
        length = math.sqrt(sum(x * x for x in mean))
        assert max(abs(x - y / length) for x, y in zip(row, mean)) < 1e-5
        assert info(c, "mean").pooling == pb.POOLING_MEAN
        twice = [embed(c, "mean", [PROMPT])[1].shared_tokens for _ in range(2)]
        assert twice == [0, 0]  # all rows are computed


@test("modules, pooling and attention that would give other numbers are refused by name")
def unsupported(daemon):
    cases = [
        ("dense", dict(modules=[*PLAIN, ("2_Dense", "Dense")], pooling=LAST), "Dense"),
        ("cls", dict(modules=PLAIN, pooling={"pooling_mode_cls_token": True}), "pooling_mode_cls_token"),
        ("two", dict(modules=PLAIN, pooling=LAST | MEAN), "pooling_mode_mean_tokens"),
        ("none", dict(modules=PLAIN, pooling={}), "pooling_mode_lasttoken"),
        ("lost", dict(modules=PLAIN), "1_Pooling/config.json"),
        ("prompt", dict(modules=PLAIN, pooling=MEAN | {"include_prompt": False}), "include_prompt"),
        ("elsewhere", dict(modules=[("0_T", "Transformer")], pooling=LAST), "0_T"),
        ("causal", dict(config={"is_causal": False}.items()), "is_causal"),
        ("both", dict(config={"use_bidirectional_attention": True}.items()), "use_bidirectional_attention"),
        ("unknown", dict(config={"architectures": ["NobodysModel"]}.items()), "NobodysModel"),
        ("list", dict(modules=[]), "array"),
    ]
    for name, fields, mentions in cases:
        folder = checkpoint("no-" + name, **fields)
        if name == "list":
            (folder / "modules.json").write_text('{"a": 1}')
        out = ctl(daemon, "load", folder, "--name", name)
        assert out.returncode == 1 and mentions in out.stderr and "FILE_" in out.stderr, (name, out.stderr)


# ---- calls ------------------------------------------------------------------------------------------------------------------

@test("wrong requests are refused with what to do, and leave no sequence")
def wrong(daemon):
    with Client(daemon) as c:
        size, call = info(c, "whole").embedding_size, lambda **fields: c.call("Sequences/Embed", pb.EmbedRequest(**fields))
        one = [pb.EmbedPrompt(tokens=[1])]
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", call, model="whole")
        got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", call, model="whole", prompts=[*one, pb.EmbedPrompt()])
        assert got.text.startswith("prompt 1: "), got.text
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", call, model="whole", prompts=one * 2049)
        got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", call, model="whole", prompts=one, dimensions=size + 1)
        assert str(size) in got.text
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", call, model="whole", prompts=one, dimensions=(1 << 32) - 1)
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", call, model="whole", prompts=one, priority=99)
        refused("TOKEN_RANGE", "INVALID_ARGUMENT", call, model="whole", prompts=[*one, pb.EmbedPrompt(tokens=[1 << 30])])
        refused("PROMPT_TOO_LONG", "INVALID_ARGUMENT", call, model="whole", prompts=[pb.EmbedPrompt(tokens=[1] * 100000)])
        refused("MODEL_NOT_FOUND", "NOT_FOUND", call, model="nobody", prompts=one)
        assert len(embed(c, "whole", [[1]] * 2048, dimensions=1)[0]) == 2048
        until("no sequence is left", lambda: info(c, "whole").sequences == 0 and info(c, "whole").blocks_used == 0)


@test("an answer that exceeds max-message is refused before anything is computed, with how many prompts fit")
def large_answers():
    with Daemon("--models-dir", str(GOLDEN), "--max-message=64K") as daemon, Client(daemon) as c:
        load(daemon, GOLDEN / "qwen3_mha_tied", "m")
        got = refused("MESSAGE_TOO_LARGE", "RESOURCE_EXHAUSTED", embed, c, "m", [[1]] * 600)
        fit = int(got.text.split("at most ")[1].split()[0])
        assert info(c, "m").tokens_prefill == 0 and len(embed(c, "m", [[1]] * fit)[0]) == fit


@test("prompts of a call share replays, and wait for the blocks of one another where a model has few")
def many(daemon):
    prompts = [[(i * 37 + k * 11) % 150 for k in range(32)] for i in range(64)]
    with Client(daemon) as c:
        want, got = embed(c, "whole", prompts)
        assert got.batch >= 8, got.batch
        before = info(c, "whole").tokens_prefill
        assert embed(c, "whole", prompts)[1].shared_tokens >= 64 * 16 and info(c, "whole").tokens_prefill <= before + 64 * 16
        for policy in ("refuse", "preempt"):  # room for one context
            load(daemon, GOLDEN / "qwen3_mha_tied", policy, "--max-context", 48, "--max-batch", 1, "--kv-policy", policy)
            assert embed(c, policy, prompts)[0] == want
            load(daemon, MODELS / "mean", "mean-" + policy, "--max-context", 48, "--max-batch", 1, "--kv-policy", policy, "--chunk", 20)
            assert embed(c, "mean-" + policy, prompts)[0] == [embed(c, "mean-" + policy, [p])[0][0] for p in prompts]
            assert info(c, policy).blocks_used == 0 and info(c, policy).sequences == 0


@test("embeddings beside generations have the same bits, and so have the generations")
def beside(daemon):
    with Client(daemon) as c, Client(daemon) as other:
        alone = embed(c, "whole", [PROMPT])[0]
        def generate():
            seq = other.call("Sequences/Open", pb.OpenRequest(model="whole", prompt=PROMPT[::-1])).sequence
            tokens = [t for r in other.call("Sequences/Generate", pb.GenerateRequest(sequence=seq, max_tokens=60, ignore_stop=True)) for t in r.tokens]
            other.call("Sequences/Close", pb.CloseRequest(sequence=seq))
            return tokens
        want = generate()
        calls = [c.method("Sequences/Embed").future(pb.EmbedRequest(model="whole", prompts=[pb.EmbedPrompt(tokens=p) for p in ([i % 90] * 9, PROMPT)]),
                                                    metadata=c.metadata(), timeout=PATIENCE) for i in range(40)]
        assert generate() == want
        for call in calls:
            values = call.result()
            assert values.embeddings[values.size * 4:] == struct.pack(f"<{values.size}f", *alone[0])


@test("a cancelled call and a model that is unloaded by force leave nothing behind")
def ends(daemon):
    with Client(daemon) as c:
        load(daemon, BIBLE, "bible", "--max-context", 512, "--chunk", 16, "--max-batch", 2)
        request = pb.EmbedRequest(model="bible", prompts=[pb.EmbedPrompt(tokens=[(i + k) % 1000 + 5 for k in range(500)]) for i in range(200)])
        send = lambda: c.method("Sequences/Embed").future(request, metadata=c.metadata(), timeout=PATIENCE)
        calls = [send() for _ in range(3)]
        until("they run", lambda: info(c, "bible").sequences > 0)
        for call in calls:
            call.cancel()
        until("nothing is left", lambda: info(c, "bible").sequences == 0 and info(c, "bible").blocks_used == 0)
        call = send()
        until("it runs", lambda: info(c, "bible").sequences > 0)
        assert "BUSY" in ctl(daemon, "unload", "bible").stderr
        assert ctl(daemon, "unload", "bible", "--force").returncode == 0
        refused("MODEL_NOT_FOUND", "NOT_FOUND", call.result)
    daemon.settle()


@test("many open prompts are cancelled on a small stack")
def deep():
    with Daemon("--models-dir", str(BIBLE), "--device-memory=1G", through=["prlimit", f"--stack={(2 << 20) if SANITIZER else (256 << 10)}"]) as daemon, Client(daemon) as c:
        load(daemon, BIBLE, "bible", "--embedding", "--max-context", 128, "--chunk", 1024, "--max-batch", 1024, "--kv-bytes", "600M")
        request = pb.EmbedRequest(model="bible", prompts=[pb.EmbedPrompt(tokens=[5 + (i + k) % 1000 for k in range(100)]) for i in range(2048)])
        call = c.method("Sequences/Embed").future(request, metadata=c.metadata(), timeout=PATIENCE)
        until("they are open", lambda: info(c, "bible").sequences > 200)
        call.cancel()
        until("nothing is left", lambda: info(c, "bible").sequences == 0)


@test("a contract without tokens needs hidden states, and labels that the graph has")
def contracts(daemon):
    graph = '''npugraph 1
graph "states" {
  sym T 1..16 buckets 16
  param %e : f32[24,8]
  state %kc : f32[8,2,1,8]
  state %vc : f32[8,2,1,8]
  input %tokens : i32[T]
  input %positions : i32[T]
  input %slots : i32[T]
  input %table : i32[1,8]
  host %ql : i64[1]
  host %kl : i64[1]
  %x = aten.embedding(%e, %tokens)
  %q = aten.view(%x) {size=[T, 1, 8]}
  npu.scatter_pa_kv_cache(%q, %q, %slots, %kc, %vc)
  %a = npu.fused_infer_attention_score(%q, %kc, %vc, %table, %ql, %kl) {num_heads=1, num_key_value_heads=1, scale=1.0, block_size=2}
  %y = aten.view(%a) {size=[T, 8]}
  return "hidden" = %y, "wide" = %a
}
'''
    with Client(daemon) as c:
        bound = {"e": c.allocate(24 * 8 * 4), "kc": c.allocate(8 * 2 * 8 * 4), "vc": c.allocate(8 * 2 * 8 * 4)}
        prefill = c.register(graph, bound).graph
        def register(name, **contract):
            labels = dict(tokens="tokens", positions="positions", slot_mapping="slots", block_table="table", query_lens="ql",
                          context_lens="kl", kv_states=["kc", "vc"])
            return c.call("Sequences/RegisterModel", pb.RegisterModelRequest(
                name=name, prefill_graph=prefill, contract=pb.DecodeContract(**labels | contract), block_size=2, num_blocks=8,
                max_context=16, vocab=24))
        for contract, mentions in ((dict(), "hidden_output"), (dict(hidden_output="nothing"), "nothing"),
                                   (dict(hidden_output="wide"), "each token row"),
                                   (dict(hidden_output="hidden", token_output="token"), "token_output")):
            got = refused("MODEL_CONTRACT", "INVALID_ARGUMENT", register, "none", **contract)
            assert mentions in got.text, got.text
        small, prefill = prefill, c.register(graph.replace('"wide" = %a', '"huge" = %h').replace(
            '  return', '  %s = aten.slice.Tensor(%y) {dim=1, end=1}\n  %h = aten.expand(%s) {size=[T, 4294967304]}\n  return'), bound).graph
        assert "1048576" in refused("MODEL_CONTRACT", "INVALID_ARGUMENT", register, "none", hidden_output="huge").text
        prefill = small
        c.write(bound["e"], struct.pack("<192f", *[math.sin(i) for i in range(192)]))
        for pooling in (pb.POOLING_UNSPECIFIED, pb.POOLING_MEAN):
            model = register(f"own-{pooling}", hidden_output="hidden", pooling=pooling).model
            assert (model.no_generation, model.embedding_size, model.max_batch) == (True, 8, 0)
            first = [math.sin(40 + i) for i in range(8)]
            rows = embed(c, f"own-{pooling}", [[5], [5, 6], [5]])[0]
            assert rows[0] == rows[2] != rows[1] and max(abs(a - b) for a, b in zip(rows[0], first)) < 1e-6
        c.write(bound["e"], struct.pack("<192f", *[math.inf] * 192))
        got = refused("NOT_FINITE", "INTERNAL", embed, c, "own-0", [[7]])
        assert "element 0" in got.text


@test("several devices divide a model without a head, and give its embeddings")
def devices():
    with Daemon("--models-dir", str(GOLDEN), "--device=host:0", "--device=host:1") as daemon, Client(daemon) as c:
        rows = []
        for name, options in (("one", ()), ("two", ("--devices", "host:0,host:1"))):
            load(daemon, GOLDEN / "qwen3_gqa2_untied", name, "--embedding", *options)
            rows.append(embed(c, name, [PROMPT])[0][0])
            assert info(c, name).description.endswith(", for embeddings"), info(c, name).description
        assert max(abs(a - b) for a, b in zip(*rows)) < 1e-4 * max(map(abs, rows[0]))


# ---- npugraphctl -----------------------------------------------------------------------------------------------------------

@test("npugraphctl embed takes texts, lines and JSON lines, and prints as many numbers as are asked for")
def command(daemon):
    load(daemon, BIBLE, "bible", "--embedding")
    texts = ["In the beginning", "Jesus wept.", "a \"quoted\" word"]
    want = json.loads(ctl(daemon, "embed", "bible", *[w for t in texts for w in ("--text", t)]).stdout)
    assert [len(row) for row in want["embeddings"]] == [192] * 3 and want["prompt_tokens"] > 6
    assert json.loads(ctl(daemon, "embed", "bible", "--file", "-", text="\n".join(texts)).stdout) == want
    lines = "\n".join([json.dumps(texts[0]), json.dumps({"text": texts[1], "id": 5}), "", json.dumps(texts[2])])
    assert json.loads(ctl(daemon, "embed", "bible", "--file", "-", "--json-lines", "--tokenizer", BIBLE, text=lines).stdout) == want
    few = json.loads(ctl(daemon, "embed", "bible", "--text", texts[0], "--dimensions", 5, "--unit").stdout)["embeddings"][0]
    assert len(few) == 5 and abs(sum(x * x for x in few) - 1) < 1e-6
    many = ctl(daemon, "embed", "bible", "--file", "-", text="".join(f"{i} days\n" for i in range(130)))
    assert len(json.loads(many.stdout)["embeddings"]) == 130
    plain = subprocess.run([CTL, "--address", daemon.address, "embed", "bible", "--text", texts[1]], capture_output=True, text=True, timeout=PATIENCE)
    f32 = lambda x: struct.unpack("<f", struct.pack("<f", float(x)))[0]
    assert [f32(x) for x in plain.stdout.split()] == [f32(x) for x in want["embeddings"][1]]
    for arguments, code, mentions in (
            (("bible",), 2, "--text or --file"), (("--text", "a"), 2, "a model"), (("bible", "--text", "a", "--file", "-"), 2, "either"),
            (("bible", "--text", "a", "--dimensions", 0), 2, "1 or more"), (("bible", "--text", "a", "--dimensions", 193), 1, "192"),
            (("bible", "--text", ""), 1, "no tokens"), (("nobody", "--text", "a"), 1, "nobody"),
            (("bible", "--file", "-"), 1, "no text"), (("bible", "--file", "/nothing"), 1, "/nothing"),
            (("bible", "--file", "-", "--json-lines"), 1, "line 1")):
        out = ctl(daemon, "embed", *arguments, text="5\n" if "--json-lines" in arguments else "")
        assert out.returncode == code and mentions in out.stderr, (arguments, out)


main("--models-dir", str(MODELS), "--models-dir", str(GOLDEN), "--models-dir", str(BIBLE))
