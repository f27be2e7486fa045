# SPDX-License-Identifier: Apache-2.0
"""Two users on one daemon: tests/rpc/harness.py, and processes of another user.

An attacker is a Tenant: Python code in a process of another user (nobody), with everything of this module and a `daemon` to
connect to. It prints lines, which the test reads with line(). Only root can be two users, and the other one must be able to read
this tree: elsewhere these tests are skipped, and say so.
"""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rpc"))
from harness import *  # noqa: E402,F403
from harness import END_WITH_US, SANITIZER, SCRATCH, Child, Client, Daemon, Skip  # noqa: E402

NOBODY = 65534


def rss_mib(daemon):
    """Returns the resident memory of the daemon's process, in MiB."""
    status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) >> 10


def grew_at_most(daemon, before, mib):
    """Checks the growth of the daemon's memory; not under sanitizers, which keep freed memory and add shadow memory."""
    after = rss_mib(daemon)
    assert SANITIZER or after - before < mib, f"{after - before} MiB more, {mib} allowed"


def need_two_users():
    if os.geteuid() != 0:
        raise Skip("needs root, to be two users")
    here = pathlib.Path(__file__).resolve().parent
    closed = next((d for d in (here, *here.parents) if d.stat().st_mode & 5 != 5), None)
    if closed:
        raise Skip(f"other users cannot read {closed}; clone to a place that they can read")


def open_daemon(*options, **kwargs):
    """Starts a daemon whose socket every user may use."""
    need_two_users()
    daemon = Daemon("--socket-mode=666", *options, **kwargs)
    SCRATCH.chmod(0o711)
    daemon.dir.chmod(0o755)
    return daemon


class Tenant(Child):
    """Code in a process of another user. What it prints is read with line(); wait() returns the rest and checks its end."""

    def __init__(self, daemon, code, uid=NOBODY):
        here = str(pathlib.Path(__file__).resolve().parent)
        prelude = (f"import sys; sys.path.insert(0, {here!r}); sys.argv = ['tenant']\nfrom tenants import *\n"
                   f"class D:\n    address = {daemon.address!r}\n    socket = {str(daemon.socket)!r}\n    channel = Daemon.channel\n"
                   f"daemon = D()\n")
        switch = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]
        env = {**os.environ, "TMPDIR": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}
        # A change of user clears the parent-death signal, so it is set afterwards.
        self.process = subprocess.Popen([*switch, *END_WITH_US, sys.executable, "-u", "-c", prelude + code], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)

    def say(self, text=""):
        """Sends a line to its sys.stdin.readline()."""
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
