#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The doctor of devices: on the host, and on NPUs that work, fault and hang (the simulator of CANN)."""
import os
import shutil

from harness import *

LIBS = BUILD / "devices" / "ascend" / "sim" / ".libs"
if not (LIBS / "libascendcl.so").exists():
    skip_all(f"the simulator was not built in {LIBS}")
OPERATORS = {"aten.embedding", "aten.linear", "npu.rms_norm", "npu.fused_infer_attention_score", "npu.scatter_pa_kv_cache"}


SHARED = ("davinci_manager", "devmm_svm", "hisi_hdc")


def npu(*options, limit_ms=None, machine=None, devices=("ascend",), through=(), **env):
    """machine: a folder with dev/ and install.info that replace the machine's own."""
    env = {f"NGD_ACLSIM_{k}": v for k, v in env.items()}
    if limit_ms:
        env["NGD_ASCEND_LIMIT_MS"] = str(limit_ms)
    if machine:
        env.update(NGD_ASCEND_DEV_ROOT=str(machine / "dev"), NGD_ASCEND_INSTALL_INFO=str(machine / "install.info"))
    return Daemon(*(f"--device={d}" for d in devices), f"--ascend-libs={LIBS}", *options, env=env, through=list(through))


def machine(name, *nodes):
    """Makes files that replace device nodes and a driver's files. The doctor checks whether it may open them."""
    place = SCRATCH / name
    driver = place / "Ascend" / "driver"
    (place / "dev").mkdir(parents=True)
    for node in nodes:
        (place / "dev" / node).touch(0o660)
    (driver / "lib64" / "driver").mkdir(parents=True)
    (driver / "lib64" / "driver" / "libascend_hal.so").touch()
    (driver / "version.info").write_text("Version=25.0.rc1\nascendhal_version=7.35.23\n")
    (place / "install.info").write_text(f"UserGroup=npus\nDriver_Install_Path_Param={place / 'Ascend'}\n")
    return place


def texts(r):
    return {s.name: s.text for s in r.steps}


def doctor(d, device=""):
    with Client(d) as c:
        return c.call("Admin/DoctorDevice", pb.DoctorDeviceRequest(device=device))


def verdicts(r):
    return {s.name: word(s, "verdict") for s in r.steps}


def ctl(d, *args):
    return subprocess.run([CTL, f"--address={d.address}", *args], capture_output=True, text=True, timeout=PATIENCE)


@test("the host device passes: memory, every operator, mistakes, times")
def host(daemon):
    r = doctor(daemon)
    assert r.healthy and r.device == "host:0" and "does what it should" in r.verdict, r
    assert set(verdicts(r).values()) == {"passed"}, r
    assert OPERATORS < set(verdicts(r)) and "an index outside its table" in verdicts(r), r
    timed = next(s for s in r.steps if s.name == "time of an attention")
    assert timed.nanoseconds > 0 and "capture" in timed.text, timed
    assert daemon.stats()["devices"][0]["used_bytes"] == 0, "the doctor gives its memory back"


@test("a device that is not there, and an argument too many, are refused with a sentence")
def refusals(daemon):
    with Client(daemon) as c:
        got = refused("NOT_FOUND", "NOT_FOUND", c.call, "Admin/DoctorDevice", pb.DoctorDeviceRequest(device="ascend:7"))
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
        r = doctor(d, "ascend:0")
        assert r.healthy and "failed" not in verdicts(r).values() and "differs" not in verdicts(r).values(), r
        assert all(verdicts(r)[name] == "passed" for name in OPERATORS), r
        assert ctl(d, "doctor", "device", f"--report={path}").returncode == 0
    text = path.read_text()
    for word in ("libascendcl.so", "aclmdlRIExecuteAsync", "aten.linear", "ascend:0"):
        assert word in text, f"{word} is not in:\n{text}"


@test("what an NPU needs from the machine is in the report: its nodes with modes and owners, the user, the driver")
def needs():
    place = machine("whole", "davinci0", "davinci3", *SHARED)
    with npu(machine=place) as d:
        r = doctor(d)
    node = place / "dev" / "davinci0"
    mode = f"mode {node.stat().st_mode & 0o777:03o} of {node.owner()}:{node.group()}"
    assert r.healthy, r
    for name in ("user", "nodes", "driver", "driver's library", *(f"node {n}" for n in ("davinci0", *SHARED))):
        assert verdicts(r)[name] == "passed", (name, r)
    assert mode in texts(r)["node davinci0"] and "can open it" in texts(r)["node davinci0"], r
    assert "davinci0 davinci3" in texts(r)["nodes"] and "25.0.rc1" in texts(r)["driver"], r


@test("an open NPU whose nodes are not where we look is healthy; what was looked for is said")
def elsewhere():
    place = machine("empty")
    (place / "install.info").unlink()
    with npu(machine=place) as d:
        r = doctor(d)
    assert r.healthy and verdicts(r)["node davinci0"] == verdicts(r)["nodes"] == verdicts(r)["driver"] == "missing", r
    assert "is not there" in texts(r)["node davinci0"] and "PrivateDevices" in texts(r)["nodes"], r


@test("an NPU that did not open is looked at too: which node is missing or closed, and that it still does not open")
def refused_at_start():
    place = machine("refused", "davinci0", "davinci_manager", "devmm_svm")
    (place / "dev" / "hisi_hdc").mkdir()  # exists, but is not a device node
    path = SCRATCH / "refused.txt"
    with npu(machine=place, devices=("host", "ascend:0"), DEVICES="0") as d:
        r = doctor(d, "ascend:0")
        assert not r.healthy and r.device == "ascend:0" and "does not open" in r.verdict and "CANN sees 0" in r.verdict, r
        assert verdicts(r)["opening"] == verdicts(r)["node hisi_hdc"] == "failed", r
        assert "Is a directory" in texts(r)["node hisi_hdc"] and verdicts(r)["node davinci0"] == "passed", r
        assert "aten.linear" not in verdicts(r), r
        (place / "dev" / "davinci0").unlink()
        assert "is not there" in texts(doctor(d, "ascend:0"))["node davinci0"]
        run = ctl(d, "doctor", "device", "ascend:0", f"--report={path}")
        assert run.returncode == 1 and "Not healthy" in run.stdout, run
        assert all(word in path.read_text() for word in ("node davinci0", "opening", "25.0.rc1", "runs as")), path.read_text()
        assert doctor(d).device == "host:0"  # the first open device
        got = refused("NOT_FOUND", "NOT_FOUND", doctor, d, "ascend:5")
        assert "neither open" in got.text, got


@test("variables that CANN needs are derived at the start only: later other threads read the environment, and a restart helps")
def environment():
    cann = SCRATCH / "cann"
    (cann / "opp").mkdir(parents=True)
    options = ["--device=host:0", "--device=ascend:0", f"--ascend-libs={cann}/lib64"]
    env = {"NGD_ACLSIM_NEED_OPP": "1", "ASCEND_HOME_PATH": "", "ASCEND_OPP_PATH": ""}
    with Daemon(*options, env=env) as d:
        shutil.copytree(LIBS, cann / "lib64", ignore=shutil.ignore_patterns("*.o"))
        r = doctor(d, "ascend:0")
        assert "restart the daemon" in texts(r)["environment ASCEND_OPP_PATH"] and "561107" in str(r), r
    with Daemon(*options, env=env) as d:
        assert texts(doctor(d, "ascend:0"))["environment ASCEND_OPP_PATH"].startswith(f"{cann}/opp"), d.log()


@test("a node that is closed to the daemon's user: whose it is, and which group to join")
def closed_node():
    through = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []  # root could open everything
    if through and subprocess.run([*through, "true"], capture_output=True).returncode != 0:
        raise Skip("this root may not give up a right")
    place = machine("closed", "davinci0", *SHARED)
    (place / "dev" / "davinci_manager").chmod(0)
    (place / "Ascend" / "driver" / "lib64" / "driver").chmod(0)
    try:
        with npu(machine=place, through=through, devices=("host", "ascend:0"), DEVICES="0") as d:
            r = doctor(d, "ascend:0")
            assert verdicts(r)["node davinci_manager"] == verdicts(r)["driver's library"] == "failed", r
            assert "usermod -aG" in texts(r)["node davinci_manager"] and "mode 000" in texts(r)["node davinci_manager"], r
            assert "group npus" in texts(r)["driver's library"], r
            assert "davinci_manager cannot be read and written" in d.log()
    finally:
        (place / "Ascend" / "driver" / "lib64" / "driver").chmod(0o755)


@test("an NPU that did not open and does now: it passes, and the daemon has to be started again")
def opens_now():
    with npu(machine=machine("now", "davinci0", *SHARED), devices=("host", "ascend:0"), FAIL="aclrtCreateContext:0:207006") as d:
        for _ in range(2):
            r = doctor(d, "ascend:0")
            assert r.healthy and "restart" in r.verdict and "207006" in texts(r)["opening at start"], r
            assert verdicts(r)["opening"] == verdicts(r)["aten.linear"] == "passed" and "libopapi.so" in r.capabilities, r
        with Client(d) as c:
            assert [i.name for i in c.call("Admin/Devices", pb.DevicesRequest()).devices] == ["host:0"]


@test("an NPU whose operator faults or hangs: the doctor ends, says which, and the daemon goes on")
def broken():
    for how, word in (("fault", "507"), ("hang", "aten.embedding")):
        with npu(limit_ms=500, BREAK=how) as d:
            r = doctor(d)
            assert not r.healthy and verdicts(r)["memory"] == "passed" and verdicts(r)["aten.embedding"] == "failed", (how, r)
            assert verdicts(r)["aten.linear"] == "skipped" and word in r.verdict, (how, r)
            run = ctl(d, "doctor", "device")
            assert run.returncode == 0, (how, run)  # it failed once; the next replay has a new stream
            assert ctl(d, "status").returncode == 0


@test("an NPU without an operator: that is missing, and no illness")
def missing():
    with npu(API="8.1") as d:
        r = doctor(d)
        assert r.healthy and set(verdicts(r).values()) <= {"passed", "missing"}, r


main()
