#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Remote clients over TCP: mutual TLS, with the right, a wrong and no certificate; renewal without a restart."""
import re
import socket
import subprocess

from certs import *
from harness import *

for ca_name in ("ca", "other-ca"):
    authority(ca_name)
certificate("server", "ca", "DNS:localhost,IP:127.0.0.1")
certificate("worker", "ca", "URI:spiffe://example.org/worker-1")
certificate("plain", "ca", "email:copy")
certificate("stranger", "other-ca", "URI:spiffe://example.org/worker-1")
OPTIONS = [f"--tls-cert={CERTS}/server.pem", f"--tls-key={CERTS}/server.key", f"--tls-client-ca={CERTS}/ca.pem"]


def client(d, certs, **kwargs):
    address = f"localhost:{d.listening('tls').rsplit(':', 1)[1]}"
    return Client(d, address=address, credentials=certs, **kwargs)


def tls_socket(d):
    return socket.create_connection(("127.0.0.1", int(d.listening("tls").rsplit(":", 1)[1])), timeout=PATIENCE)


def unavailable(fn):
    try:
        fn()
    except grpc.RpcError as e:
        assert e.code() is grpc.StatusCode.UNAVAILABLE, e
        return
    raise AssertionError("was let in")


@test("a client with the right certificate is served, and is who the certificate says")
def right():
    with Daemon(*OPTIONS, listen="127.0.0.1:0") as d:
        with client(d, credentials("worker")) as c:
            buffer = c.allocate(1 << 20)
            data = bytes(range(256)) * 4096
            c.write(buffer, data)
            assert c.read(buffer) == data
            assert c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions[0].identity == "tls:spiffe://example.org/worker-1"
            refused("PERMISSION_DENIED", "PERMISSION_DENIED", c.call, "Admin/Drain", pb.DrainRequest())
            refused("PERMISSION_DENIED", "PERMISSION_DENIED", c.call, "Admin/ExamineDevice", pb.ExamineDeviceRequest())
        with client(d, credentials("plain")) as c:
            assert c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions[0].identity == "tls:plain"


REFUSED = r"warning tls: a TLS connection was refused: (.*) peer=tls:127\.0\.0\.1:(\d+)"


@test("no certificate, a stranger's, and plaintext are refused, and logged with the reason and the peer's address")
def wrong():
    with Daemon(*OPTIONS, listen="127.0.0.1:0") as d:
        logged = lambda: re.findall(REFUSED, d.log())
        for i, certs in enumerate((credentials(), credentials("stranger"))):
            before = len(logged())
            unavailable(lambda: client(d, certs))
            until("it is logged", lambda: len(logged()) > before)
            assert "certificate" in logged()[-1][0].lower(), logged()
        s = tls_socket(d)
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while s.recv(1000):
                pass
        until("its address is logged", lambda: [p for _, p in logged() if int(p) == s.getsockname()[1]])
        s.close()
        count = len(logged())
        with client(d, credentials("worker")) as c:
            c.allocate(1)
        with client(d, credentials("worker")) as c:
            c.allocate(1)
        looker = tls_socket(d)  # neither a handshake nor a mistake: a port scanner
        port = looker.getsockname()[1]
        looker.close()
        until("it is mentioned", lambda: f"ended before its first call peer=tls:127.0.0.1:{port}" in d.log())
        assert len(logged()) == count and d.log().count("ended before its first call") == 1, d.log()
        refused_total = int(re.search(r'npugraphd_connections_refused_total\{reason="tls"\} (\d+)', d.http("/metrics")[1])[1])
        assert refused_total == count


@test("TLS connections count against max-connections, beside the others")
def counted():
    with Daemon(*OPTIONS, f"--listen=unix:{SCRATCH}/both", "--max-connections=4", listen="127.0.0.1:0") as d:
        local = [Client(d, address=f"unix:{SCRATCH}/both") for _ in range(2)]
        remote = [client(d, credentials("worker")) for _ in range(2)]
        assert d.stats()["requests"]["connections"] == 4
        s = tls_socket(d)
        with contextlib.suppress(ConnectionError):
            assert s.recv(1) == b""
        assert f"max-connections is reached peer=tls:127.0.0.1:{s.getsockname()[1]}" in d.log()
        s.close()
        unavailable(lambda: Client(d, address=f"unix:{SCRATCH}/both"))
        remote.pop().close()
        until("its place is free", lambda: d.stats()["requests"]["connections"] == 3)
        with client(d, credentials("worker")) as c:
            c.allocate(1)
        for c in local + remote:
            c.close()


@test("a handshake that stalls is given up after 10 s, and its place is free")
def stalled():
    with Daemon(*OPTIONS, "--max-connections=1", listen="127.0.0.1:0") as d:
        began, s = time.monotonic(), tls_socket(d)
        s.sendall(b"\x16\x03\x01")
        s.settimeout(PATIENCE)
        with contextlib.suppress(ConnectionError):
            while s.recv(1000):
                pass
        assert time.monotonic() - began > 5
        until("its place is free", lambda: d.stats()["requests"]["connections"] == 0)
        with client(d, credentials("worker")) as c:
            c.allocate(1)
        s.close()


@test("an identity in admin-identities may drain")
def admin():
    with Daemon(*OPTIONS, "--admin-identities=tls:spiffe://example.org/worker-1", listen="127.0.0.1:0") as d:
        with client(d, credentials("worker")) as c:
            c.call("Admin/Drain", pb.DrainRequest(grace_ms=5000))
        assert d.wait() == 0
        d.stop = lambda: None


@test("sessions of another identity cannot be used")
def other_identity():
    with Daemon(*OPTIONS, listen="127.0.0.1:0") as d, client(d, credentials("worker")) as a, client(d, credentials("plain")) as b:
        refused("PERMISSION_DENIED", "PERMISSION_DENIED", b.call, "Memory/Allocate", pb.AllocateRequest(bytes=1), session=a.id)


@test("graphs of others: anybody may look and ask, only admin-identities may examine them or change their buckets")
def others_graphs():
    text = 'npugraph 1\ngraph "g" {\n sym B 1..8 buckets 8\n input %x : f32[B,2]\n %y = aten.neg(%x)\n return "y" = %y\n}\n'
    options = "--admin-identities=tls:spiffe://example.org/worker-1"
    with Daemon(*OPTIONS, options, listen="127.0.0.1:0") as d, client(d, credentials("worker")) as admin, client(d, credentials("plain")) as plain:
        mine, others = plain.register(text), admin.register(text)
        assert plain.call("Graphs/Buckets", pb.BucketsRequest(digest=others.digest)).symbol == "B"
        plain.call("Graphs/Explain", pb.ExplainRequest(digest=others.digest))
        for method, request in (("Buckets", pb.BucketsRequest(digest=others.digest, apply=True)),
                                ("Doctor", pb.ExamineRequest(digest=others.digest)), ("Trace", pb.ExamineRequest(digest=others.digest))):
            refused("PERMISSION_DENIED", "PERMISSION_DENIED", plain.call, f"Graphs/{method}", request)
            admin.call(f"Graphs/{method}", request)
        assert plain.call("Graphs/Doctor", pb.ExamineRequest(graph=mine.graph)).healthy
        assert plain.call("Graphs/Buckets", pb.BucketsRequest(graph=mine.graph, set=[2, 8], apply=True)).applied


@test("a model of another identity: it can be used, not unloaded, not even with force; it and its sequences stay")
def others_model():
    model = SOURCE / "examples" / "model"
    if CTL is None or not (model / "model.safetensors").exists():
        raise Skip("npugraphctl or the bundled model is missing")
    with Daemon(*OPTIONS, "--listen=127.0.0.1:0", f"--models-dir={model.parent}") as d:
        subprocess.run([CTL, "--quiet", "--address", d.address, "load", str(model), "--name", "m"], check=True, capture_output=True)
        with Client(d) as owner, client(d, credentials("plain")) as other:
            start = lambda c: c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[5, 6, 7]))
            step = lambda c, sequence: c.call("Sequences/Step", pb.StepRequest(sequence=sequence))
            mine, theirs = start(owner), start(other)
            before = owner.call("Sequences/ListModels", pb.ListModelsRequest()).models[0]
            for force in (False, True):
                got = refused("PERMISSION_DENIED", "PERMISSION_DENIED", other.call, "Sequences/UnloadModel",
                              pb.UnloadModelRequest(name="m", force=force))
                assert '"m"' in got.text and "uid:" in got.text, got.text
            assert owner.call("Sequences/ListModels", pb.ListModelsRequest()).models[0] == before
            assert step(owner, mine.sequence).token == step(other, theirs.sequence).token
            owner.call("Sequences/UnloadModel", pb.UnloadModelRequest(name="m", force=True))
            refused("STALE_ID", "NOT_FOUND", step, other, theirs.sequence)


@test("renewed certificates are taken without a restart; broken ones leave the old in use")
def renewal():
    with Daemon(*OPTIONS, listen="127.0.0.1:0") as d:
        with client(d, credentials("worker")) as c:
            c.allocate(1)
        old = (CERTS / "server.pem").read_bytes(), (CERTS / "server.key").read_bytes()
        certificate("server", "other-ca", "DNS:localhost")
        with client(d, credentials("worker", ca="other-ca")) as c:
            c.allocate(1)
        (CERTS / "server.pem").write_text("garbage")
        with client(d, credentials("worker", ca="other-ca")) as c:
            c.allocate(1)
        (CERTS / "server.pem").write_bytes(old[0])
        (CERTS / "server.key").write_bytes(old[1])


@test("a daemon with unreadable certificates does not start, and a TLS port that is taken is refused")
def start_refused():
    out = subprocess.run([DAEMON, "--listen=127.0.0.1:0", "--stats-listen=off", f"--tls-cert={CERTS}/none", f"--tls-key={CERTS}/none",
                          f"--tls-client-ca={CERTS}/none"], capture_output=True, text=True, timeout=PATIENCE)
    assert out.returncode == 2 and "none" in out.stderr, out
    with Daemon(*OPTIONS, listen="127.0.0.1:0") as d:
        out = subprocess.run([DAEMON, f"--listen={d.listening('tls')}", "--stats-listen=off", *OPTIONS], capture_output=True, text=True,
                             timeout=PATIENCE)
        assert out.returncode == 3 and "in use" in out.stderr, out


if __name__ == "__main__":
    main()
