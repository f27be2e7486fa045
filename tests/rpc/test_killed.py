#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A test that is killed leaves no process behind: neither its daemon nor its clients."""
import os
import signal
import subprocess
import sys

from harness import *


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"  # it has ended, even if its new parent has not reaped it yet
    except (FileNotFoundError, ProcessLookupError):
        return True


def kill_and_wait(process, pids):
    assert not any(is_gone(pid) for pid in pids), "it ended before its test"
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE)
    try:
        until("the processes of the killed test are gone", lambda: all(is_gone(pid) for pid in pids))
    finally:
        for pid in pids:
            if not is_gone(pid):
                os.kill(pid, signal.SIGKILL)


@test("a killed test in Python takes its daemon and its client processes along")
def python():
    code = f"import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r}); sys.argv = ['killed']\n" \
           "from harness import *\n" \
           "daemon = Daemon()\n" \
           "child = Child(daemon, 'print(1, flush=True); sys.stdin.read()')\n" \
           "child.line()\n" \
           "print(daemon.process.pid, child.process.pid, flush=True)\n" \
           "time.sleep(600)\n"
    process = subprocess.Popen([*END_WITH_US, sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "TMPDIR": str(SCRATCH)})
    pids = [int(word) for word in process.stdout.readline().split()]
    assert len(pids) == 2, "the test to kill did not start"
    kill_and_wait(process, pids)


@test("a killed test in C takes its daemon along")
def c():
    program = BUILD / "tests" / "models" / "test_batching"
    if not program.exists():
        raise Skip(f"{program.name} was not built (libcheck is missing)")
    # The shell prints its process id and becomes the daemon. It listens at another address, so the test waits for it.
    pid_file, wrapper = SCRATCH / "pid", SCRATCH / "npugraphd"
    wrapper.write_text(f'#!/bin/sh\necho $$ >{pid_file}.new && mv {pid_file}.new {pid_file} && '
                       f'exec "{DAEMON}" --listen=unix:{SCRATCH}/elsewhere --stats-listen=off --device-memory=64M\n')
    wrapper.chmod(0o700)
    with open(SCRATCH / "batching.log", "wb") as log:
        process = subprocess.Popen([*END_WITH_US, program], stdout=log, stderr=log,
                                   env={**os.environ, "NPUGRAPHD": str(wrapper), "TMPDIR": str(SCRATCH)})
    until("its daemon starts", lambda: pid_file.exists() or process.poll() is not None)
    assert process.poll() is None, (SCRATCH / "batching.log").read_text()
    kill_and_wait(process, [int(pid_file.read_text())])


main(shared=False)
