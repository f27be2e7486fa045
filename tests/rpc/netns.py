# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces with a pair of virtual Ethernet devices between them. No privilege is needed if users may make
user namespaces. enter() comes before the harness, because it starts the program anew."""
import os
import shutil
import subprocess
import sys

INSIDE = "NGD_TEST_NETNS"


def enter(program):
    """Starts the program anew in a private network, if it is not there yet. Returns why that cannot be; None: it is there."""
    if INSIDE in os.environ:
        return None
    make = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    if not shutil.which("unshare") or not shutil.which("ip"):
        return "unshare or iproute2 is not installed"
    probe = subprocess.run([*make, "sh", "-c", "unshare -n true && ip link add v0 type veth peer name v1"], capture_output=True, text=True)
    if probe.returncode:
        return probe.stderr.strip().splitlines()[-1]
    os.execvpe("unshare", [*make, sys.executable, program, *sys.argv[1:]], {**os.environ, INSIDE: "1"})


class Elsewhere:
    """The other namespace, with a process that keeps it open. here, there: addresses of the two."""

    def __init__(self, until, here, there):
        self.until, self.here, self.there = until, here, there

    def __enter__(self):
        self.keeper = subprocess.Popen(["unshare", "-n", "sleep", "1000"])
        mine = os.readlink("/proc/self/ns/net")
        self.until("the other namespace is there", lambda: os.readlink(f"/proc/{self.keeper.pid}/ns/net") != mine)
        for command in ("ip link set lo up", f"ip link add v0 type veth peer name v1 netns {self.keeper.pid}",
                        f"ip addr add {self.here}/24 dev v0", "ip link set v0 up"):
            subprocess.run(command.split(), check=True)
        for command in ("ip link set lo up", f"ip addr add {self.there}/24 dev v1", "ip link set v1 up"):
            subprocess.run([*self.through(), *command.split()], check=True)
        return self

    def through(self):
        """The words before a command that runs it there."""
        return ["nsenter", f"--net=/proc/{self.keeper.pid}/ns/net"]

    def __exit__(self, *exc):
        # The kernel would remove the link only some time after the namespace's last process ends.
        subprocess.run("ip link del v0".split(), check=True)
        self.keeper.kill()
        self.keeper.wait()
