#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The KV cache that a model gets by default, and what a load says when the device has too little for it."""
import re

from harness import *

MODEL = SOURCE / "examples" / "model"
MIB = 1 << 20
CONTEXT = 1024 * 6 * 2 * 2 * 64 * 2  # bytes of the bundled model's longest context: 6 layers, keys and values, 2 heads of 64, bf16

if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")


def ctl(daemon, *arguments):
    return subprocess.run([CTL, "--address", daemon.address, *arguments], capture_output=True, text=True, check=False)


def load(daemon, name, *options):
    return ctl(daemon, "load", str(MODEL), "--name", name, "--chunk", "16", *options)


def info(daemon, name):
    with Client(daemon) as c:
        return next(m for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models if m.name == name)


def memory(daemon):
    with Client(daemon) as c:
        return c.call("Admin/Devices", pb.DevicesRequest()).devices[0]


def generates(daemon, name):
    got = ctl(daemon, "generate", name, "--ids", "5,6,7", "--tokens", "4")
    assert got.returncode == 0, got.stderr


def at(budget):
    return Daemon(f"--models-dir={SOURCE / 'examples'}", "--device-memory", budget)


@test("the cache holds max_batch contexts, or takes what is left of nine tenths; it never asks for more than there is")
def fills():
    daemon = at("256M")
    assert load(daemon, "a").returncode == 0
    assert info(daemon, "a").kv_bytes == 16 * CONTEXT
    assert load(daemon, "b", "--max-batch", "2", "--max-context", "100").returncode == 0
    assert info(daemon, "b").kv_bytes == 2 * 112 * CONTEXT // 1024  # blocks of 16 rows
    daemon.stop()
    daemon = at("40M")
    assert load(daemon, "a").returncode == 0
    got = info(daemon, "a")
    assert got.max_context == 1024 and 25 * MIB < got.kv_bytes < 36 * MIB, got
    device = memory(daemon)
    assert device.used_bytes < device.memory_bytes
    generates(daemon, "a")
    daemon.stop()


@test("a context that nobody asked for is shortened to what fits; one that was asked for is refused with numbers that do fit")
def shortens():
    daemon = at("10M")
    options = ("--kv-dtype", "f32")  # a context takes 6 MiB
    got = load(daemon, "a", "--max-context", "1024", *options)
    found = re.search(r"a context of 1024 tokens needs 6\.0 MiB of KV cache on host:0, which has \d\.\d MiB left for it.*"
                      r"give max_context (\d+) or less, or the daemon a device-memory of (\d+)M \[NO_DEVICE_MEMORY\]", got.stderr)
    assert got.returncode == 1 and found, got
    most, enough = int(found[1]), found[2]
    got = load(daemon, "a", "--max-context", str(most + 1), *options)
    assert got.returncode == 1 and "NO_DEVICE_MEMORY" in got.stderr, got
    assert load(daemon, "a", "--max-context", str(most), *options).returncode == 0
    generates(daemon, "a")
    assert ctl(daemon, "unload", "a").returncode == 0
    assert load(daemon, "short", *options).returncode == 0
    assert most // 2 < info(daemon, "short").max_context <= most  # pools of the model before may be kept
    got = load(daemon, "none", *options)
    assert got.returncode == 1 and "unload a model" in got.stderr and "NO_DEVICE_MEMORY" in got.stderr, got
    with Client(daemon) as c:
        assert [m.name for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models] == ["short"]
    daemon.stop()
    daemon = at(enough + "M")
    assert load(daemon, "a", "--max-context", "1024", *options).returncode == 0
    generates(daemon, "a")
    daemon.stop()


@test("sizes that no device could have are refused before anything is read")
def before():
    daemon = at("40M")
    for options, says in ((("--max-context", "1025"), "1024 positions"), (("--max-context", "4096"), "1024 positions")):
        got = load(daemon, "a", *options)
        assert got.returncode != 0 and says in got.stderr, got
        assert memory(daemon).used_bytes == 0
    daemon.stop()


if __name__ == "__main__":
    main()
