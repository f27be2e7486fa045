#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A daemon whose devices are NPUs, on the simulator of CANN: which of them it starts with, and what it says of them."""
import contextlib
import struct
import subprocess

from harness import *

LIBS = BUILD / "devices" / "ascend" / "sim" / ".libs"
EXIT_OTHER = 3
if not (LIBS / "libascendcl.so").exists():
    skip_all(f"the simulator was not built in {LIBS}")


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def unfloats(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def ascend(*options, **env):
    return Daemon(f"--ascend-libs={LIBS}", *options, env={f"NGD_ACLSIM_{k}": v for k, v in env.items()})


@test("a daemon starts with the devices that work, and names the others with what to do")
def devices_that_work():
    with ascend("--device=ascend:0", "--device=ascend:5", "--device=ascend:1", DEVICES="2") as d:
        assert "no device ascend:5" in d.log() and "npu-smi" in d.log(), d.log()
        with Client(d) as c:
            names = [i.name for i in c.call("Admin/Devices", pb.DevicesRequest()).devices]
        assert names == ["ascend:0", "ascend:1"], names


@test("a daemon without any device that works says why and ends")
def no_device():
    for options, word in ((["--device=ascend:3", f"--ascend-libs={LIBS}"], "ascend:3"),
                          (["--device=ascend", f"--ascend-libs={SCRATCH}"], "ascend-libs")):
        run = subprocess.run([DAEMON, *options, f"--listen=unix:{SCRATCH}/none", "--stats-listen=off"], capture_output=True,
                             text=True, timeout=PATIENCE)
        assert run.returncode not in (0, -11, -6) and word in run.stderr, run


@test("capabilities name libraries, functions, what stands in for missing ones, and operators")
def capabilities():
    with ascend("--device=ascend", API="8.1") as d:
        with Client(d) as c:
            text = c.call("Admin/Devices", pb.DevicesRequest(capabilities=True)).devices[0].capabilities
            assert c.call("Admin/Devices", pb.DevicesRequest()).devices[0].capabilities == ""
        for word in ("libascendcl.so", "aclmdlRIExecuteAsync", "aclnnScatterPaKvCache", "missing", "ScatterNdUpdate", "aten.linear"):
            assert word in text, f"{word} is not in:\n{text}"
        run = subprocess.run([CTL, f"--address={d.address}", "devices", "--capabilities"], capture_output=True, text=True,
                             timeout=PATIENCE)
        assert run.returncode == 0 and "libopapi.so" in run.stdout, run


@test("eight clients on two devices: both serve")
def two_devices():
    graph = """npugraph 1
graph "double" {
  input %x : f32[4]
  %y = aten.add.Tensor(%x, %x)
  return "y" = %y
}
"""
    with ascend("--device=ascend:0", "--device=ascend:1", DEVICES="2") as d:
        with contextlib.ExitStack() as stack:
            for i in range(8):
                c = stack.enter_context(Client(d))
                g = c.call("Graphs/Register", pb.RegisterRequest(text=graph, device=f"ascend:{i % 2}"))
                for k in range(3):
                    assert unfloats(c.replay(g.graph, [floats(i, 1, 2, k)]).outputs[0]) == [2 * i, 2, 4, 2 * k]
        with Client(d) as c:
            busy = [i.busy_us for i in c.call("Admin/Devices", pb.DevicesRequest()).devices]
        assert all(b > 0 for b in busy), busy


if __name__ == "__main__":
    main()
