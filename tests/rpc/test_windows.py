#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models whose layers have windows, all of them or some, in a KV cache that would not hold the contexts whole."""
import json

from harness import *
from sequences import *

GOLDEN = SOURCE / "tests" / "golden"
POSITIONS = 512
ROW = 2 * 12 * 4 * 2  # bytes of a layer's row: 2 heads of 12, f32, keys and values
PROMPTS = [[3 + (7 + k) * i % 110 for i in range(n)] for k, n in enumerate((60, 5, 33))]
SAID = 400

if CTL is None:
    skip_all("npugraphctl is missing")


def ctl(daemon, *arguments):
    return subprocess.run([CTL, "--address", daemon.address, *arguments], capture_output=True, text=True, check=False)


def load(daemon, model, name, *options):
    return ctl(daemon, "load", str(GOLDEN / model), "--name", name, "--chunk", "16", *options)


def write(daemon, name):
    """Three clients' sequences, all at the same time."""
    said = at_once(daemon, len(PROMPTS), lambda c, k: generate(c, start(c, name, PROMPTS[k]).sequence, SAID))
    assert all(len(s) == SAID for s in said), said
    return said


@test("contexts of many windows have the tokens that they have in blocks which are never given back")
def windows():
    daemon = Daemon(f"--models-dir={GOLDEN}", env={"NPUGRAPHD_FAULT": "kv-poison:0:4000000000"})
    for model, groups, layers, blocks in (("mistral_window", 1, 2, 7), ("gemma3_two_ropes", 3, 1, 75), ("gemma2_caps", 3, 1, 75),
                                          ("qwen2_window", 3, 1, 75), ("cohere2_window", 3, 1, 75)):
        heads = 3 / 2 / 2 if model == "qwen2_window" else 1  # it has 3 heads of 6
        size = int(blocks * layers * 16 * ROW * heads)
        whole = load(daemon, model, "whole", "--block-size", str(POSITIONS), "--max-context", str(POSITIONS))
        tight = load(daemon, model, "tight", "--kv-bytes", str(size), "--max-context", str(POSITIONS), "--kv-policy", "preempt")
        assert whole.returncode == 0 and tight.returncode == 0, (whole, tight)
        with Client(daemon) as c:
            got = listed(c, "tight")
            assert (got.num_blocks, len(got.windows)) == (blocks, groups), got
            assert got.blocks_per_sequence < got.num_blocks < 3 * groups * (SAID // 16), got
        expected = write(daemon, "whole")
        assert write(daemon, "tight") == expected, model
        for name in "whole", "tight":
            assert ctl(daemon, "unload", name).returncode == 0
    daemon.stop()


@test("a context with windows is not bounded by the cache; a load and the list of models count what a sequence holds")
def sizes():
    daemon = Daemon(f"--models-dir={GOLDEN}")
    block = 2 * 16 * ROW
    assert load(daemon, "mistral_window", "m", "--kv-bytes", str(4 * block)).returncode == 0
    assert load(daemon, "mistral_window", "ample").returncode == 0
    assert load(daemon, "gemma3_two_ropes", "g", "--kv-bytes", str(44 * 16 * ROW)).returncode == 0
    with Client(daemon) as c:
        few, ample, mixed = listed(c, "m"), listed(c, "ample"), listed(c, "g")
    assert (few.num_blocks, few.max_context, few.blocks_per_sequence, list(few.windows)) == (4, POSITIONS, 3, [17]), few
    assert ample.num_blocks == 16 * ample.blocks_per_sequence, ample
    # Two groups with windows hold three blocks each; the third one holds the context.
    assert (mixed.max_context, mixed.blocks_per_sequence, sorted(mixed.windows)) == (POSITIONS, 32 + 2 * 3, [0, 13, 13]), mixed
    rows = {m["name"]: m for m in json.loads(ctl(daemon, "--json", "models").stdout)["models"]}
    assert rows["m"]["kv_per_sequence"] == 3 * block and rows["m"]["kv_bytes"] == 4 * block, rows
    assert load(daemon, "gemma3_two_ropes", "short", "--kv-bytes", str(20 * 16 * ROW)).returncode == 0
    with Client(daemon) as c:
        got = listed(c, "short")
    assert got.max_context == (20 - 2 * 3) * 16 and got.blocks_per_sequence == 20, got
    got = load(daemon, "gemma3_two_ropes", "none", "--kv-bytes", str(2 * 16 * ROW))
    assert got.returncode == 1 and "make 2 KV blocks" in got.stderr and "the shortest context holds 3" in got.stderr, got
    daemon.stop()


if __name__ == "__main__":
    main()
