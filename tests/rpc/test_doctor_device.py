#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkups of devices: on the host, and on NPUs that work, fault and hang (the simulator of CANN)."""
from harness import *

LIBS = BUILD / "devices" / "ascend" / "sim" / ".libs"
if not (LIBS / "libascendcl.so").exists():
    skip_all(f"the simulator was not built in {LIBS}")
OPERATORS = {"aten.embedding", "aten.linear", "npu.rms_norm", "npu.fused_infer_attention_score", "npu.scatter_pa_kv_cache"}


def npu(*options, limit_ms=None, **env):
    env = {f"NGD_ACLSIM_{k}": v for k, v in env.items()}
    if limit_ms:
        env["NGD_ASCEND_LIMIT_MS"] = str(limit_ms)
    return Daemon("--device=ascend", f"--ascend-libs={LIBS}", *options, env=env)


def examine(d, device=""):
    with Client(d) as c:
        return c.call("Admin/ExamineDevice", pb.ExamineDeviceRequest(device=device))


def verdicts(r):
    return {s.name: s.verdict for s in r.steps}


def ctl(d, *args):
    return subprocess.run([CTL, f"--address={d.address}", *args], capture_output=True, text=True, timeout=PATIENCE)


@test("the host device passes: memory, every operator, mistakes, times")
def host(daemon):
    r = examine(daemon)
    assert r.healthy and r.device == "host:0" and "does what it should" in r.verdict, r
    assert set(verdicts(r).values()) == {"passed"}, r
    assert OPERATORS < set(verdicts(r)) and "an index outside its table" in verdicts(r), r
    timed = next(s for s in r.steps if s.name == "time of an attention")
    assert timed.nanoseconds > 0 and "capture" in timed.text, timed
    assert daemon.stats()["devices"][0]["used_bytes"] == 0, "the checkup gives its memory back"


@test("a device that is not there, and an argument too many, are refused with a sentence")
def refusals(daemon):
    with Client(daemon) as c:
        got = refused("NOT_FOUND", "NOT_FOUND", c.call, "Admin/ExamineDevice", pb.ExamineDeviceRequest(device="ascend:7"))
        assert "npugraphctl devices" in got.text, got
    assert ctl(daemon, "doctor", "device", "host:0", "host:1").returncode == 2


@test("doctor device prints a table or JSON, and writes a report with what was found")
def report(daemon):
    path = SCRATCH / "report.txt"
    run = ctl(daemon, "doctor", "device", "host:0", f"--report={path}")
    assert run.returncode == 0 and "npu.swiglu" in run.stdout and "Healthy: device host:0" in run.stdout, run
    text = path.read_text()
    assert "npugraphd 0." in text and "npu.swiglu" in text and "device host:0" in text, text
    data = json.loads(ctl(daemon, "--json", "doctor", "device").stdout)
    assert data["healthy"] and data["device"] == "host:0" and {s["verdict"] for s in data["steps"]} == {"passed"}, data
    run = ctl(daemon, "doctor", "device", "--report=/nonexistent/report")
    assert run.returncode == 1 and "/nonexistent/report" in run.stderr, run


@test("an NPU passes, with the libraries and functions that were found in its report")
def simulated():
    path = SCRATCH / "npu.txt"
    with npu() as d:
        r = examine(d, "ascend:0")
        assert r.healthy and "failed" not in verdicts(r).values() and "differs" not in verdicts(r).values(), r
        assert all(verdicts(r)[name] == "passed" for name in OPERATORS), r
        assert ctl(d, "doctor", "device", f"--report={path}").returncode == 0
    text = path.read_text()
    for word in ("libascendcl.so", "aclmdlRIExecuteAsync", "aten.linear", "ascend:0"):
        assert word in text, f"{word} is not in:\n{text}"


@test("an NPU whose operator faults or hangs: the checkup ends, says which, and the daemon goes on")
def broken():
    for how, word in (("fault", "507"), ("hang", "aten.embedding")):
        with npu(limit_ms=500, BREAK=how) as d:
            r = examine(d)
            assert not r.healthy and verdicts(r)["memory"] == "passed" and verdicts(r)["aten.embedding"] == "failed", (how, r)
            assert verdicts(r)["aten.linear"] == "skipped" and word in r.verdict, (how, r)
            run = ctl(d, "doctor", "device")
            assert run.returncode == 0, (how, run)  # it failed once: the next checkup has a stream of its own
            assert ctl(d, "status").returncode == 0


@test("an NPU without an operator: that is missing, and no illness")
def missing():
    with npu(API="8.1") as d:
        r = examine(d)
        assert r.healthy and set(verdicts(r).values()) <= {"passed", "missing"}, r


main()
