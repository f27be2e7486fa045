#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The probe of devices by npugraphctl and npugraphd, and a daemon that reads its file (the simulator of CANN)."""
import os
import socket
import struct

from harness import *

LIBS = BUILD / "devices" / "ascend" / "sim" / ".libs"
if not (LIBS / "libascendcl.so").exists():
    skip_all(f"the simulator was not built in {LIBS}")
CHIP = {"NGD_ACLSIM_SOC": "Ascend910B4", "NGD_ACLSIM_API": "8.5"}
QUESTIONS = 1059  # of that chip


def probe(path, **env):
    return subprocess.run([CTL, "doctor", "device", "ascend:0", "--probe", str(path), f"--ascend-libs={LIBS}"],
                          capture_output=True, text=True, timeout=600, env={**os.environ, **CHIP, **env})


def answers(path):
    return {q: a for q, a in (line.split(" : ", 1) for line in path.read_text().splitlines() if " : " in line)}


def capabilities(d):
    with Client(d) as c:
        return c.call("Admin/Devices", pb.DevicesRequest(capabilities=True)).devices[0].capabilities


def attend(d):
    """Registers and replays attention of three sequences, which TND is best for."""
    graph = ('npugraph 1\ngraph "a" {\n input %k : bf16[12,128,1,128]\n input %q : bf16[7,4,128]\n input %t : i32[3,3]\n'
             ' host %ql : i64[3]\n host %kl : i64[3]\n'
             ' %y = npu.fused_infer_attention_score(%q, %k, %k, %t, %ql, %kl) {num_heads=4, num_key_value_heads=1, scale=0.1, block_size=128}\n'
             ' return "y" = %y\n}\n')
    with Client(d) as c:
        g = c.register(graph)
        hosts = [pb.HostValue(values=v) for v in ((5, 6, 7), (300, 1, 2))]
        c.replay(g.graph, [bytes(12 * 128 * 128 * 2), bytes(7 * 4 * 128 * 2), struct.pack("<9i", *range(9))], hosts=hosts)


def served(facts, **env):
    return Daemon("--device=ascend:0", f"--ascend-libs={LIBS}", f"--device-facts={facts}", env={**CHIP, **env})


@test("npugraphctl probes without a daemon; a daemon with the file chooses by it, and by an edited one otherwise")
def whole():
    path = SCRATCH / "facts"
    run = probe(path)
    assert run.returncode == 0, run
    found = answers(path)
    assert found["open"].startswith("ok") and len(found) == QUESTIONS and f"{QUESTIONS} questions: " in run.stderr, run
    assert not path.with_name("facts.part").exists()
    assert not any(a.startswith(("wrong", "failed", "hang", "crash", "skipped")) for a in found.values()), found
    text = path.read_text()
    assert str(BUILD) not in text and socket.gethostname() not in text and "/" not in text, "it names nothing of the machine"
    with served(path) as d:
        attend(d)
        assert re.search(r"blocks of 128: several sequences \(TND\), by line \d+ of the facts", capabilities(d)), capabilities(d)
    bad = "attention layout=TND rows=many dtype=bf16 d=128 block=128 queries=4 keys=full"
    path.write_text(text.replace(f"{bad} : ok", f"{bad} : wrong"))
    line = text.splitlines().index(next(x for x in text.splitlines() if x.startswith(bad))) + 1
    with served(path) as d:
        attend(d)
        assert f"not several sequences (TND): line {line} of the facts" in capabilities(d), capabilities(d)
    with served(path, NGD_ACLSIM_API="8.3") as d:
        assert "facts not used" in capabilities(d) and "is about Ascend910B4, CANN 8.5" in d.log(), d.log()
    cut = SCRATCH / "cut"
    cut.write_text(text[:len(text) // 2])
    run = subprocess.run([DAEMON, "--device=ascend:0", f"--ascend-libs={LIBS}", f"--device-facts={cut}", f"--listen=unix:{SCRATCH}/c", "--stats-listen=off"],
                         capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 2 and f"{cut}, line " in run.stderr and "cut" in run.stderr, run


@test("a device that hangs is left, and the rest is asked; the file is whole")
def hangs():
    path = SCRATCH / "hang"
    run = probe(path, NGD_ACLSIM_BREAK="hang", NGD_PROBE_LIMIT_MS="400")
    found = answers(path)
    assert run.returncode == 0 and found["open"].startswith("hang code=507046"), (run, found["open"])
    assert len(found) == QUESTIONS and path.read_text().endswith(f"end {QUESTIONS}\n"), len(found)
    assert found["streams"].startswith("ok") and sum(a.startswith("hang") for a in found.values()) > 10, found
    attention = [a.split()[0] for q, a in found.items() if q.startswith("attention")]
    assert attention.count("hang") >= 3 and set(attention) <= {"hang", "skipped", "refused"}, attention


@test("a library that lacks functions is named with all of them in FILE.part, and FILE stays as it was")
def lacking():
    place, path = SCRATCH / "lacking", SCRATCH / "lacks.part"
    place.mkdir()
    path.with_suffix("").write_text("a good file\n")
    for name in ("libascendcl.so", "libnnopbase.so", "libopapi.so"):
        shutil.copy(BUILD / ".libs" / "libnpugraph.so", place / name)
    run = subprocess.run([DAEMON, "--device=ascend:0", f"--ascend-libs={place}", f"--probe={SCRATCH}/lacks"], capture_output=True,
                         text=True, timeout=PATIENCE)
    assert run.returncode == 1 and "did not open" in run.stderr and f"Send {path}" in run.stderr, run
    assert path.with_suffix("").read_text() == "a good file\n"
    text = path.read_text()
    assert "\nchip unknown\n" in text and answers(path)["open"].startswith("failed"), run
    assert all(f"\nmissing {name}\n" in text for name in ("aclInit", "aclrtMalloc", "aclnnMatmul", "aclCreateTensor")), text[:2000]
    assert all(a.startswith("skipped") for q, a in answers(path).items() if q != "open")
    run = subprocess.run([DAEMON, "--device=ascend:0", f"--ascend-libs={LIBS}", f"--device-facts={path}", f"--listen=unix:{SCRATCH}/l", "--stats-listen=off"],
                         capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 2 and "line 4" in run.stderr and "did not open" in run.stderr, run


@test("what cannot be probed is refused with a sentence: a host device, a file that cannot be written, options that do not fit")
def refusals():
    run = subprocess.run([CTL, "doctor", "device", "host:0", "--probe", str(SCRATCH / "no")], capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 1 and "nothing to probe" in run.stderr, run
    run = probe("/nonexistent/facts")
    assert run.returncode == 1 and "/nonexistent/facts" in run.stderr, run
    for path in ("/dev/null", SCRATCH, ""):
        run = probe(path)
        assert run.returncode == 1 and f'"{path}"; name a file' in run.stderr, run
    for args in (["--report=x", "--probe=y"], ["--ascend-libs=x"]):
        run = subprocess.run([CTL, "doctor", "device", *args], capture_output=True, text=True, timeout=PATIENCE)
        assert run.returncode == 2 and "--probe" in run.stderr, run
    run = subprocess.run([DAEMON, "--device=", "--probe", str(SCRATCH / "no")], capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 2 and "set the option device" in run.stderr, run


@test("npugraphctl passes on what it is given, whole")
def passed_on():
    place = SCRATCH / "bin"
    place.mkdir()
    shutil.copy(CTL, place / "npugraphctl")
    (place / "npugraphd").write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    (place / "npugraphd").chmod(0o755)
    args = ["--probe=x", "--ascend-libs=" + "/long" * 500, *(f"--ascend-lib-names=libopapi.so={i}" for i in range(40))]
    run = subprocess.run([place / "npugraphctl", "doctor", "device", "ascend:3", *args], capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 0 and run.stdout.splitlines() == [*args, "--device=ascend:3"], run


main()
