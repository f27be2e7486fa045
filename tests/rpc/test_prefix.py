#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sequences of different clients with a common beginning, and forks: what is computed, and which tokens result."""
from harness import *

MODEL = SOURCE / "examples" / "model"
PROMPT = [7 + i * 11 % 1900 for i in range(100)]

if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")


def load(daemon, name, *options):
    subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", str(MODEL), "--name", name, "--max-context", "256",
                    *options], check=True, capture_output=True)


def model(c, name):
    return next(m for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models if m.name == name)


def start(c, name, prompt=PROMPT, **sampling):
    return c.call("Sequences/Open", pb.OpenRequest(model=name, prompt=prompt, sampling=pb.Sampling(**sampling)))


def fork(c, sequence, **sampling):
    return c.call("Sequences/Fork", pb.ForkRequest(sequence=sequence, sampling=pb.Sampling(**sampling)))


def generate(c, sequence, tokens=24):
    request = pb.GenerateRequest(sequence=sequence, max_tokens=tokens, ignore_stop=True)
    return [t for m in c.call("Sequences/Generate", request) for t in m.tokens]


def close(c, sequence):
    c.call("Sequences/Close", pb.CloseRequest(sequence=sequence))


@test("a second client's prompt is found in the first one's blocks, also when that one has gone, and says the same")
def found_again(daemon):
    load(daemon, "shared")
    with Client(daemon) as a:
        first = start(a, "shared")
        said = generate(a, first.sequence)
        assert first.shared_tokens == 0
    with Client(daemon) as b:
        until("the first client's blocks are free", lambda: model(b, "shared").blocks_used == 0)
        before = model(b, "shared")
        assert before.blocks_cached >= len(PROMPT) // before.block_size
        second = start(b, "shared")
        after = model(b, "shared")
        whole = (len(PROMPT) - 1) // after.block_size * after.block_size
        assert second.shared_tokens == whole, second.shared_tokens
        assert after.tokens_prefill - before.tokens_prefill == len(PROMPT) - whole
        assert after.tokens_shared == whole
        assert second.token == first.token and generate(b, second.sequence) == said


@test("sixteen sequences with one prompt hold its blocks once")
def once(daemon):
    load(daemon, "once")
    clients = [Client(daemon) for _ in range(4)]
    alone = start(clients[0], "once")
    used = model(clients[0], "once").blocks_used
    opened = [start(clients[i % 4], "once") for i in range(15)]
    assert all(o.token == alone.token for o in opened)
    # Each has one block of its own, for its last tokens and those that it will generate.
    assert model(clients[0], "once").blocks_used <= used + 15
    for c in clients:
        c.close()


@test("sixteen sequences with a long beginning in common: the work and the blocks of one, and their own tails")
def long_prefix():
    n = 496 if SANITIZER else 2000
    models = SCRATCH / "models"
    shutil.copytree(MODEL, models / "long")
    config = json.loads((models / "long" / "config.json").read_text())
    config["max_position_embeddings"] = 4096
    (models / "long" / "config.json").write_text(json.dumps(config))
    common, tail = [7 + i * i % 1900 for i in range(n)], 8
    with Daemon(f"--models-dir={models}", "--device-memory=512M") as d, Client(d) as c:
        subprocess.run([CTL, "--quiet", "--address", d.address, "load", "--max-context", "2048", "--kv-bytes", "64M", str(models / "long")],
                       check=True, capture_output=True)
        prefilled = lambda: int(re.search(r"^npugraphd_tokens_prefill_total (\d+)$", d.http("/metrics")[1], re.M)[1])
        before = prefilled()
        start(c, "long", common + [100] * tail)
        work, blocks = prefilled() - before, model(c, "long").blocks_used
        assert work == len(common) + tail
        others = [start(c, "long", common + [200 + i] * tail) for i in range(15)]
        assert all(o.shared_tokens == len(common) for o in others)
        assert prefilled() - before <= 1.05 * work + 15 * tail
        assert model(c, "long").blocks_used <= 1.05 * blocks + 15


@test("forks: the same sampling says the same, other seeds say other things, the parent says what it would have said")
def forks(daemon):
    load(daemon, "forks")
    how = {"temperature": 1.5, "seed": 5}
    with Client(daemon) as c:
        undisturbed = start(c, "forks", **how)
        expected = generate(c, undisturbed.sequence)
        parent = start(c, "forks", **how)
        begun = generate(c, parent.sequence, 8)
        same = fork(c, parent.sequence, **how)
        others = [fork(c, parent.sequence, temperature=1.5, seed=seed) for seed in range(50, 54)]
        info = {s.sequence: s for s in c.call("Sequences/List", pb.ListSequencesRequest()).sequences}
        assert info[same.sequence].position == info[parent.sequence].position
        rest = generate(c, parent.sequence, 16)
        assert begun + rest == expected, (begun, rest, expected)
        close(c, parent.sequence)
        # The parent has sent the token that it chose last; the fork has the same one, and has sent nothing yet.
        assert generate(c, same.sequence, 17) == begun[-1:] + rest
        said = [tuple(generate(c, o.sequence, 16)) for o in others]
        assert len(set(said + [tuple(rest)])) >= 4


@test("forks of closed and unknown sequences are refused; priorities are checked")
def refusals(daemon):
    load(daemon, "refusals")
    with Client(daemon) as c:
        gone = start(c, "refusals").sequence
        close(c, gone)
        refused("STALE_ID", "NOT_FOUND", fork, c, gone)
        refused("UNKNOWN_ID", "NOT_FOUND", fork, c, 12345)
        alive = start(c, "refusals").sequence
        refused("SAMPLING", "INVALID_ARGUMENT", fork, c, alive, temperature=-1)
        graph = c.register('npugraph 1\ngraph "g" { input %x : f32[1] %y = aten.neg(%x) return %y }').graph
        for priority in pb.Priority.values():
            assert c.replay(graph, [b"\0\0\x80\x3f"], priority=priority).outputs[0] == b"\0\0\x80\xbf"
        got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.replay, graph, [b"\0\0\x80\x3f"], priority=4)
        assert "priority is 4" in got.text and "3 (normal)" in got.text


@test("KV blocks for one context, four clients: with kv_policy preempt all get on and say what they would have said")
def preempted(daemon):
    load(daemon, "alone")
    load(daemon, "few", "--max-batch", "1", "--kv-policy", "preempt")
    prompts = [[7 + (i * 13 + k * 101) % 1900 for i in range(60)] for k in range(4)]
    with Client(daemon) as c:
        expected = []
        for prompt in prompts:
            expected.append(generate(c, start(c, "alone", prompt).sequence, 40))
        opened = [start(c, "few", prompt).sequence for prompt in prompts]
        said = [[] for _ in prompts]
        for _ in range(4):  # in turns, so that each one loses its blocks to the others again and again
            for k, sequence in enumerate(opened):
                said[k] += generate(c, sequence, 10)
        assert said == expected
        few = model(c, "few")
        assert few.num_blocks * few.block_size == 256 and few.preemptions >= 4, few.preemptions
        got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Sequences/RegisterModel",
                      pb.RegisterModelRequest(name="x", kv_policy=3))
        assert "1 (refuse), 2 (preempt)" in got.text


if __name__ == "__main__":
    main(f"--models-dir={SOURCE / 'examples'}")
