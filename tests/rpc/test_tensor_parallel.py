#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bundled model divided between two devices says what it says on one: alone, batched, forked, with drafts, preempted."""
import struct

from harness import *
from sequences import *

MODEL = SOURCE / "examples" / "model"
PROBE = subprocess.run([DAEMON, "--check-config"], env={**os.environ, "NPUGRAPHD_FAULT": "host-fault:9:1"}, capture_output=True, text=True)
FAULTS = PROBE.returncode == 0
DEVICES = ("--device=host:0", "--device=host:1", "--device=host:2", "--threads=1", f"--models-dir={SOURCE}")
PROMPTS = [[5 + 7 * i + 3 * k for k in range(3 + 9 * i)] for i in range(5)]
CLOSE = 2e-3  # share of the largest logit: sums of bf16 products in another order differ by this

if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")


def ctl(daemon, *args):
    return subprocess.run([CTL, "--quiet", "--address", daemon.address, *args], capture_output=True, text=True)


def load(daemon, name, *options):
    with Client(daemon, session=False) as c:
        if listed(c, name):
            return
    out = ctl(daemon, "load", str(MODEL), "--name", name, *options)
    assert out.returncode == 0, out.stderr


def both(daemon):
    load(daemon, "one")
    load(daemon, "two", "--devices", "host:1,host:0")
    groups = json.loads(ctl(daemon, "--json", "groups").stdout)["groups"]  # the session that loaded it has ended
    assert [(g["model"], g["devices"], g["state"]) for g in groups if g["model"] == "two"] == [("two", "host:1 host:0", "open")], groups


def unpack(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def compare(one, two):
    """Compares the logits of both. True: the best tokens are clearly apart, so both must choose the same."""
    a, b = unpack(one), unpack(two)
    largest = max(abs(x) for x in a)
    assert max(abs(x - y) for x, y in zip(a, b)) <= CLOSE * largest
    first, second = sorted(a)[-1:-3:-1]
    return first - second > 2 * CLOSE * largest


def used(daemon):
    with Client(daemon, session=False) as c:
        return [d.used_bytes - d.pool_bytes for d in c.call("Admin/Devices", pb.DevicesRequest()).devices]


@test("logits of prompts and steps are those of one device, and tokens where they are apart; greedy text is the same")
def same(daemon):
    both(daemon)
    with Client(daemon) as c:
        decided = 0
        for prompt in PROMPTS:
            s = [start(c, m, prompt, want_logits=True) for m in ("one", "two")]
            ids = [x.sequence for x in s]
            for _ in range(8):
                apart = compare(s[0].logits, s[1].logits)
                decided += apart
                assert not apart or s[0].token == s[1].token
                s = [step(c, q, s[0].token, want_logits=True) for q in ids]
            for q in ids:
                close(c, q)
        assert decided > 20, decided
        texts = []
        for m in ("one", "two"):
            q = start(c, m, [5, 6, 7]).sequence
            texts.append(generate(c, q, 16))
            close(c, q)
        assert texts[0] == texts[1]
        info = {m.name: m for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models}
        assert info["one"].kv_bytes == info["two"].kv_bytes and info["one"].parameters == info["two"].parameters
        assert "2 devices" in info["two"].description


@test("sequences that are batched, forked, share a prefix or step with drafts say what they say alone")
def together(daemon):
    both(daemon)

    def text_of(c, prompt):
        q = start(c, "two", prompt).sequence
        text = generate(c, q)
        close(c, q)
        return text

    with Client(daemon) as c:
        alone = [text_of(c, prompt) for prompt in PROMPTS]
        answers = at_once(daemon, 10, lambda mine, i: text_of(mine, PROMPTS[i % len(PROMPTS)]))
        assert all(answers[i] == alone[i % len(PROMPTS)] for i in range(10))
        # A fork has copies of the blocks that it will write, on every device.
        first = start(c, "two", PROMPTS[2]).sequence
        head = generate(c, first, 5)
        copy = c.call("Sequences/Fork", pb.ForkRequest(sequence=first)).sequence
        assert head == alone[2][:5]
        step(c, copy, 11)
        assert generate(c, first, 11) == alone[2][5:]
        generate(c, copy, 3)
        close(c, copy)
        close(c, first)
        # The blocks of a long prompt are found again.
        long = [3 + i % 50 for i in range(100)]
        q = start(c, "two", long).sequence
        text = generate(c, q, 8)
        again = start(c, "two", long)
        assert again.shared_tokens > 0 and generate(c, again.sequence, 8) == text
        close(c, q)
        close(c, again.sequence)
        # Right drafts are accepted, wrong ones are not.
        q = start(c, "two", PROMPTS[1]).sequence
        got = step(c, q, draft=alone[1][1:5])
        assert got.accepted == 4 and got.token == alone[1][5]
        got = step(c, q, draft=[alone[1][6], alone[1][7] ^ 1])
        assert got.accepted == 1 and got.token == alone[1][7]
        close(c, q)


@test("sequences that lose their KV blocks to others compute them again, on both devices")
def preempted(daemon):
    both(daemon)
    load(daemon, "small", "--devices", "0,1", "--kv-policy", "preempt", "--kv-bytes", "250K", "--max-context", "128", "--no-prefix-sharing")
    with Client(daemon) as c:
        expected = []
        for prompt in PROMPTS[:3]:
            q = start(c, "small", prompt).sequence
            expected.append(generate(c, q, 16))
            close(c, q)
        sequences = [start(c, "small", p).sequence for p in PROMPTS[:3]]
        got = [[] for _ in sequences]
        for i in range(16):
            for k, q in enumerate(sequences):
                got[k] += generate(c, q, 1) if i == 0 else [step(c, q).token]
        for q in sequences:
            close(c, q)
        info = {m.name: m for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models}["small"]
        assert info.preemptions > 0, info
        assert [len(g) for g in got] == [16] * 3
        assert got == expected


@test("what cannot be divided is refused in words, and nothing of it stays")
def refusals(daemon):
    both(daemon)
    daemon.settle()
    before = used(daemon)
    for devices, words in (("host:0,host:1,host:2,0", "twice"), ("host:0,host:7", "host:7"), ("host:0,host:1,host:2,host:1", "num_attention_heads"),
                           ("host:0,host:0", "twice"), ("host:0,", "--devices"), (",".join(["host:0"] * 17), "--devices")):
        out = ctl(daemon, "load", str(MODEL), "--name", "bad", "--devices", devices)
        assert out.returncode != 0 and (words in out.stderr or "cannot divide" in out.stderr), (devices, out.stderr)
    out = ctl(daemon, "load", str(MODEL), "--name", "bad", "--devices", "host:0,host:1", "--kv-bytes", "2G")
    assert out.returncode == 1 and "NO_DEVICE_MEMORY" in out.stderr and "host:0" in out.stderr, out.stderr
    out = ctl(daemon, "load", str(MODEL), "--name", "two", "--devices", "host:0,host:1")
    assert out.returncode == 1 and "ALREADY_EXISTS" in out.stderr, out.stderr
    until("nothing stays", lambda: used(daemon) == before)
    out = ctl(daemon, "load", str(MODEL), "--name", "third", "--devices", "2")
    assert out.returncode == 0, out.stderr
    with Client(daemon) as c:
        q = start(c, "third", [5, 6, 7]).sequence
        assert len(generate(c, q, 4)) == 4
        close(c, q)
    assert used(daemon)[2] > before[2] and used(daemon)[:2] == before[:2]
    ctl(daemon, "unload", "third")
    until("the device is empty again", lambda: used(daemon) == before)


@test("graphs of ranks that take different inputs make no model")
def contract(daemon):
    both(daemon)
    with Client(daemon) as c:
        group = c.call("Graphs/CreateGroup", pb.CreateGroupRequest(name="tp", devices=["0", "1"])).group
        text = ('npugraph 1\ngraph "g" {\n sym B 1..4 buckets 4\n input %x : f32[B]\n'
                ' %y = _c10d_functional.all_reduce(%x) {reduce_op="sum", group_name="tp"}\n return "y" = %y\n}\n')
        ranks = [c.call("Graphs/Register", pb.RegisterRequest(text=text, group=group, device=d)).graph for d in ("host:0", "host:1")]
        g = c.call("Graphs/JoinRanks", pb.JoinRanksRequest(graphs=ranks)).graph
        request = pb.RegisterModelRequest(name="x", prefill_graph=g, decode_graph=g, contract=pb.DecodeContract(tokens="x"), block_size=1,
                                          num_blocks=1, max_context=1, vocab=1)
        assert "replicated" in refused("MODEL_CONTRACT", "INVALID_ARGUMENT", c.call, "Sequences/RegisterModel", request).text


@test("a fault of one device fails the sequences of that step; others, and later ones, are served")
def fault():
    if not FAULTS:
        raise Skip("this build has no fault points")
    with Daemon(*DEVICES, env={"NPUGRAPHD_FAULT": "host-fault:9:1"}) as d:
        load(d, "two", "--devices", "host:0,host:1")
        with Client(d) as c:
            failed, texts = 0, []
            for _ in range(4):
                try:
                    q = start(c, "two", [5, 6, 7]).sequence
                    texts.append(generate(c, q, 6))
                    close(c, q)
                except grpc.RpcError as e:
                    failed += 1
                    assert "rank" in e.details() and "host:" in e.details(), e.details()
            assert failed == 1 and len(texts) == 3 and texts.count(texts[0]) == 3, (failed, texts)


@test("a model that is unloaded leaves nothing on its devices")
def unloaded(daemon):
    both(daemon)
    for m in ("one", "two", "small"):
        ctl(daemon, "unload", m)
    until("all is free", lambda: used(daemon) == [0, 0, 0])


main(*DEVICES)
