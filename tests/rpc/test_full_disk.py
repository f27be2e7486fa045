#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A disk that is full: under the log, the lock, the socket and the checkpoints, and under what npugraphctl prints."""
import os
import resource
import shutil
import subprocess
import sys

INSIDE = "NGD_TEST_MOUNTS"

# This precedes the harness, because private file systems need a mount namespace. Without one, the tests that need them are skipped.
if INSIDE not in os.environ:
    make = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    can = shutil.which("unshare") and subprocess.run([*make, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0
    if can:
        os.execvpe("unshare", [*make, sys.executable, __file__, *sys.argv[1:]], {**os.environ, INSIDE: "yes"})

import struct

from harness import *

GRAPH = 'npugraph 1\ngraph "g" { input %x : f32[4] %y = aten.neg(%x) return %y }'


@contextlib.contextmanager
def tmpfs(name, options):
    if INSIDE not in os.environ:
        raise Skip("no file system can be mounted here")
    path = SCRATCH / name
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(path)], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(path):
    with open(path / "filler", "wb", buffering=0) as f, contextlib.suppress(OSError):
        while True:
            f.write(bytes(4096))


def works(d):
    with Client(d) as c:
        assert c.replay(c.register(GRAPH).graph, [bytes(16)]).outputs[0] == struct.pack("<4f", -0.0, -0.0, -0.0, -0.0)
        refused("GRAPH_PARSE", "INVALID_ARGUMENT", c.register, "nonsense")  # leaves a line in the log


def up(path, process):
    def there():
        assert process.poll() is None, process.returncode
        return path.exists() and CTL and subprocess.run([CTL, "--address", f"unix:{path}", "status"], capture_output=True).returncode == 0
    until("the daemon serves", there)


class Plain:
    """Stands for a daemon whose log cannot be read, for Client."""

    def __init__(self, path):
        self.address = f"unix:{path}"
    channel = Daemon.channel


def run_daemon(path, log, *options, **kwargs):
    return subprocess.Popen([DAEMON, f"--listen=unix:{path}", "--stats-listen=off", "--device-memory=64M", *options], stdout=log, stderr=log,
                            stdin=subprocess.DEVNULL, **kwargs)


def stop(process):
    process.terminate()
    assert process.wait(PATIENCE) == 0


@test("socket, lock, log and checkpoints on a full disk: the daemon starts, serves, and says later how much of its log is lost")
def full():
    with tmpfs("full", "size=512k") as path:
        header = json.dumps({"w": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}).encode()
        (path / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(range(64)))
        fill(path)
        with open(path / "log", "ab", buffering=0) as log:
            process = run_daemon(path / "s", log, f"--models-dir={path}")
            up(path / "s", process)
            d = Plain(path / "s")
            for _ in range(3):
                works(d)
            with Client(d) as c:
                assert c.read(c.load("w.safetensors").tensors[0].buffer) == bytes(range(64))
            assert (path / "log").stat().st_size < 4096
            # The lock holds although the process id could not be written to it.
            second = subprocess.run([DAEMON, f"--listen=unix:{path}/s", "--stats-listen=off"], capture_output=True, text=True,
                                    timeout=PATIENCE)
            assert second.returncode == 3 and f"{path}/s.lock" in second.stderr, second
            works(d)
            (path / "filler").unlink()
            works(d)
            text = (path / "log").read_text()
            assert "lines could not be written\n" in text and "GRAPH_PARSE" in text.split("could not be written")[1], text
            stop(process)
            assert "stopped" in (path / "log").read_text().splitlines()[-1] and not (path / "s").exists()


@test("no room for the lock file: the daemon does not start, and says which file and why")
def no_room():
    with tmpfs("none", "size=64k,nr_inodes=1") as path:
        out = subprocess.run([DAEMON, f"--listen=unix:{path}/s", "--stats-listen=off"], capture_output=True, text=True, timeout=PATIENCE)
        assert out.returncode == 1 and f"{path}/s.lock" in out.stderr and "No space left on device" in out.stderr, out


@test("a log that may not grow any more does not end the daemon")
def file_size():
    directory = SCRATCH / "limit"
    directory.mkdir()
    with open(directory / "log", "ab", buffering=0) as log:
        process = run_daemon(directory / "s", log, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700)))
        up(directory / "s", process)
        for _ in range(20):
            works(Plain(directory / "s"))
        assert (directory / "log").stat().st_size <= 700
        stop(process)


def tree(path):
    return {str(f.relative_to(path)): f.read_bytes() for f in sorted(path.rglob("*")) if f.is_file()}


def metric(d, name, label=""):
    return sum(float(line.split()[-1]) for line in d.http("/metrics")[1].splitlines() if line.startswith(f"npugraphd_{name}") and label in line)


@test("a store on a disk that is full, at the start or later: told in words, counted, nothing is lost, and plans are kept again when there is room")
def store_full():
    with tmpfs("store-full", "size=256k") as path:
        fill(path)
        with Daemon(f"--store-dir={path}/s") as d:
            works(d)
            assert "plans are not kept" in d.log() and "No space left on device" in d.log(), d.log()
        (path / "filler").unlink()
        shutil.rmtree(path / "s", ignore_errors=True)
        with Daemon(f"--store-dir={path}/s") as d:
            works(d)
            until("the plan is stored", lambda: list((path / "s").glob("entries/*.plan")))
            fill(path)
            with Client(d) as c:
                g = c.register(GRAPH.replace("neg", "exp")).graph
                assert c.replay(g, [bytes(16)]).outputs[0] == struct.pack("<4f", 1, 1, 1, 1)
                until("it is counted", lambda: metric(d, "store_write_failures_total", "DISK_FULL") >= 1)
                until("it is told", lambda: "a plan is not stored" in d.log())  # logged after the answer and the count
                assert "No space left on device" in d.log()
                (path / "filler").unlink()
                c.call("Graphs/Capture", pb.CaptureRequest(graph=g, options=[pb.GraphOption(name="force_recapture", value="true")]))
                works(d)
                c.replay(c.register(GRAPH.replace("neg", "abs")).graph, [bytes(16)])
            until("plans are stored again", lambda: len(list((path / "s").glob("entries/*.plan"))) >= 2)
            until("what was being written is in its place", lambda: not list((path / "s" / "tmp").iterdir()))
        with Daemon(f"--store-dir={path}/s") as d:
            works(d)
            assert metric(d, "store_hits_total") >= 1 and metric(d, "store_set_aside_total") == 0


@test("a store that may not be written, or belongs to somebody else: told in words, left as it is, and the daemon serves")
def store_unusable():
    with tmpfs("store-fixed", "size=256k") as path:
        with Daemon(f"--store-dir={path}/s") as d:
            works(d)
            until("the plan is stored", lambda: list((path / "s").glob("entries/*.plan")))
        before = tree(path / "s")
        subprocess.run(["mount", "-o", "remount,ro", str(path)], check=True)
        with Daemon(f"--store-dir={path}/s") as d:
            works(d)
            assert "plans are not kept" in d.log() and "Read-only file system" in d.log(), d.log()
        subprocess.run(["mount", "-o", "remount,rw", str(path)], check=True)
        assert tree(path / "s") == before
        for part in (path / "s", path / "s" / "entries"):
            try:
                os.chown(part, 12345, -1)
            except OSError:
                print("reduced - nobody else can own a directory in this user namespace")
                break
            before = tree(path / "s")
            with Daemon(f"--store-dir={path}/s") as d:
                works(d)
                assert "plans are not kept" in d.log() and "belongs to user 12345" in d.log(), d.log()
            assert tree(path / "s") == before
            os.chown(part, os.geteuid(), -1)


@test("a full disk below dump-dir loses debug dumps, and nothing else; it is told and counted")
def debug_dumps():
    with tmpfs("dumps", "size=64k") as path:
        fill(path)
        with Daemon(f"--dump-dir={path}") as d, Client(d) as c:
            for _ in range(2):
                r = c.register(GRAPH, options={"debug_dump": "true"})
                assert c.replay(r.graph, [bytes(16)]).outputs[0] == struct.pack("<4f", -0.0, -0.0, -0.0, -0.0)
            events = [e.text for e in c.call("Graphs/Explain", pb.ExplainRequest(graph=r.graph)).events if e.reason == "dump-failed"]
            assert len(events) == 1 and "No space left on device" in events[0], events
            assert "debug dump of a capture" in d.log()
            (path / "filler").unlink()
            c.call("Graphs/Capture", pb.CaptureRequest(graph=r.graph, options=[pb.GraphOption(name="force_recapture", value="true")]))
            left = list(path.rglob("*.*"))
            assert "plan.txt" in {f.name for f in left} and all(f.stat().st_size > 0 for f in left), left


@test("npugraphctl says so when its output cannot be written")
def output(daemon):
    for arguments in (["status"], ["--json", "devices"], ["help"], ["stats"]):
        with open("/dev/full", "w") as out:
            got = subprocess.run([CTL, "--address", daemon.address, *arguments], stdout=out, stderr=subprocess.PIPE, text=True)
        assert got.returncode == 1 and "No space left on device" in got.stderr, (arguments, got)


if __name__ == "__main__":
    main()
