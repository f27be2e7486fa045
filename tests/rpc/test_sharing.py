#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Eight processes with the same graph and weights: /stats.json shows one capture and one copy in memory."""
import struct

from harness import *

MODELS = SCRATCH / "models"
MODELS.mkdir()
ROWS = 4096  # f32[4096,256]: 4 MiB


@test("8 client processes: captures_total is 1, and the weights are in memory once")
def eight(daemon):
    size = ROWS * 256 * 4
    header = json.dumps({"w": {"dtype": "F32", "shape": [ROWS, 256], "data_offsets": [0, size]}}).encode()
    (MODELS / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<f", 1.0) * (ROWS * 256))
    code = """
c = Client(daemon)
w = c.load("w.safetensors").tensors[0].buffer
g = c.register('''npugraph 1
graph "shared" {
  param %w : f32[4096,256] = "w"
  input %x : f32[1,256]
  %y = aten.linear(%x, %w)
  return "y" = %y
}''', {"w": w}).graph
import struct
x = struct.pack("<256f", *[1.0] * 256)
for _ in range(20):
    r = c.replay(g, [x])
    assert struct.unpack("<4096f", r.outputs[0]) == (256.0,) * 4096
print("done", flush=True)
import time; time.sleep(100)
"""
    children = [Child(daemon, code) for _ in range(8)]
    for child in children:
        assert child.line() == "done"
    stats = daemon.stats()
    graph = [g for g in stats["graphs"] if g["name"] == "shared"]
    assert stats["captures_total"] == 1 and len(graph) == 1, stats
    assert (graph[0]["captures_total"], graph[0]["replays_total"], graph[0]["holders"]) == (1, 160, 8), graph
    assert size <= stats["weight_bytes"] < 2 * size and stats["loaded_bytes_total"] == size
    assert stats["sessions"]["open"] == 8
    for child in children:
        child.kill()


if __name__ == "__main__":
    main(f"--models-dir={MODELS}")
