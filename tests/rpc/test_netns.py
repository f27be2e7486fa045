#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A remote worker: from another network namespace, over a pair of virtual Ethernet devices, with mutual TLS."""
import socket
import subprocess
import sys

import netns

why = netns.enter(__file__)  # precedes the harness: all that follows runs in a private network
if why:
    print(f"skip - test_netns.py: no network namespace can be made here: {why}")
    sys.exit(77)

from certs import *
from harness import *

HERE, THERE = "10.77.0.1", "10.77.0.2"
MODEL = SOURCE / "examples" / "model"


class Elsewhere(netns.Elsewhere):
    def __init__(self):
        super().__init__(until, HERE, THERE)

    def run(self, *command, **kwargs):
        return subprocess.run([*self.through(), *command], timeout=PATIENCE, **kwargs)


if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")
authority("ca")
authority("other-ca")
certificate("server", "ca", f"IP:{HERE}")
certificate("worker", "ca", "URI:spiffe://example.org/worker-1")
certificate("stranger", "other-ca", "URI:spiffe://example.org/worker-1")


def ctl(elsewhere, address, *arguments, name="worker"):
    files = ["--tls-cert", CERTS / f"{name}.pem", "--tls-key", CERTS / f"{name}.key"] if name else []
    return elsewhere.run(CTL, "--quiet", "--address", address, "--tls-ca", CERTS / "ca.pem", *files, *arguments,
                         capture_output=True, text=True)


@test("a worker in another network namespace generates over TCP with mutual TLS; without the right certificate it is refused, and logged")
def remote():
    with Elsewhere() as elsewhere:
        with Daemon(f"--tls-cert={CERTS}/server.pem", f"--tls-key={CERTS}/server.key", f"--tls-client-ca={CERTS}/ca.pem",
                    f"--listen=unix:{SCRATCH}/local", f"--models-dir={SOURCE / 'examples'}", listen=f"{HERE}:0") as d:
            address = d.listening("tls")
            generate = ["generate", "m", "--tokenizer", MODEL, "--prompt", "In the beginning", "--tokens", "40", "--seed", "3"]
            out = ctl(elsewhere, address, "load", MODEL, "--name", "m")
            assert out.returncode == 0, out.stderr
            out = ctl(elsewhere, address, *generate)
            assert out.returncode == 0 and out.stdout.startswith("In the beginning") and len(out.stdout) > 60, out
            local = subprocess.run([CTL, "--quiet", "--address", f"unix:{SCRATCH}/local", *generate], capture_output=True, text=True)
            assert local.stdout == out.stdout, (local, out)
            for name in (None, "stranger"):
                before = d.log().count("connection refused: ")
                out = ctl(elsewhere, address, "status", name=name)
                assert out.returncode != 0 and address in out.stderr, out
                until("it is logged", lambda: d.log().count("connection refused: ") > before)
                assert f"peer=tls:{THERE}:" in d.log()
            out = elsewhere.run(CTL, "--timeout", "5s", "--address", address, "status", capture_output=True, text=True)
            assert out.returncode != 0 and address in out.stderr, out


VANISHES = """
import sys
sys.path.insert(0, sys.argv[1])
sys.argv = ["child"]
from harness import *
class D:
    address = ADDRESS
    channel = Daemon.channel
c = Client(D())
c.allocate(1 << 20)
print("holds", flush=True)
READS
time.sleep(1000)
"""


@test("a TCP client whose host is gone without a word loses its session within tcp-keepalive, whatever was on its way to it")
def gone():
    for busy in (False, True):
        with Elsewhere() as elsewhere, Daemon("--tcp-keepalive=4s", "--allow-plaintext=yes", f"--listen=unix:{SCRATCH}/gone{busy}", listen=f"{HERE}:0") as d:
            reads = 'for _ in c.call("Memory/Read", pb.ReadRequest(buffer=c.allocate(64 << 20)), timeout=1000): time.sleep(0.05)' if busy else ""
            code = VANISHES.replace("ADDRESS", repr(d.listening("tcp"))).replace("READS", reads)
            process = subprocess.Popen([*END_WITH_US, "nsenter", f"--net=/proc/{elsewhere.keeper.pid}/ns/net", sys.executable, "-u", "-c", code,
                                        str(SOURCE / "tests" / "rpc")], stdout=subprocess.PIPE, text=True)
            try:
                assert process.stdout.readline().strip() == "holds"
                time.sleep(0.5)
                subprocess.run("ip link set v0 down".split(), check=True)
                assert d.stats()["sessions"]["open"] == 1
                until("its session is gone", lambda: d.stats()["sessions"]["open"] == 0, 2 * PATIENCE)
                until("and what it held", lambda: d.used_bytes() == 0)
            finally:
                process.kill()
                process.wait()


@test("IPv6 clients count by their /64: the next address of a network does not get round max-connections-per-identity")
def by_prefix():
    near, far = [f"2001:db8:0:1::{x}" for x in "1abc"], "2001:db8:0:2::a"
    if not os.path.exists("/proc/net/if_inet6"):
        raise Skip("there is no IPv6 here")
    subprocess.run("ip link set lo up".split(), check=True)
    for address in (*near, far):
        subprocess.run(f"ip addr add {address}/128 dev lo nodad".split(), check=True)
    with Daemon("--allow-plaintext=yes", "--max-connections-per-identity=2", f"--listen=unix:{SCRATCH}/near", listen=f"tcp:[{near[0]}]:0") as d:
        port = int(d.listening("tcp").rpartition(":")[2])
        silent = []
        for address in (far, *near[1:]):
            silent.append(socket.create_connection((near[0], port), PATIENCE, (address, 0)))
        assert silent[1].recv(1) == b"", "the third of the network takes the place of its first"
        assert "identity=tcp:2001:db8:0:1::/64" in d.log()
        for other in (silent[0], *silent[2:]):
            other.setblocking(False)
            try:
                assert other.recv(1) != b"", "another one was ended"
            except BlockingIOError:
                pass
            other.close()


if __name__ == "__main__":
    main()
