#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Remote clients over TCP: mutual TLS, with the right, a wrong and no certificate; renewal without a restart."""
import shutil
import socket
import subprocess

from harness import *

CERTS = SCRATCH / "certs"
CERTS.mkdir()


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], cwd=CERTS, check=True, capture_output=True)


def authority(name):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout", f"{name}.key",
            "-out", f"{name}.pem", "-subj", f"/CN={name}")


def certificate(name, ca, alternative):
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
            "-subj", f"/CN={name}")
    (CERTS / "ext").write_text(f"subjectAltName={alternative}\n")
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", "2",
            "-out", f"{name}.pem", "-extfile", "ext")


def credentials(name=None, ca="ca"):
    read = lambda file: (CERTS / file).read_bytes()
    if name is None:
        return grpc.ssl_channel_credentials(read(f"{ca}.pem"))
    return grpc.ssl_channel_credentials(read(f"{ca}.pem"), read(f"{name}.key"), read(f"{name}.pem"))


if shutil.which("openssl") is None:
    skip_all("openssl is not installed")
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
        with client(d, credentials("plain")) as c:
            assert c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions[0].identity == "tls:plain"


@test("no certificate, a stranger's, and plaintext are refused and logged")
def wrong():
    with Daemon(*OPTIONS, listen="127.0.0.1:0") as d:
        for certs in (credentials(), credentials("stranger")):
            before = d.log().count("TLS connection was refused")
            unavailable(lambda: client(d, certs))
            until("it is logged", lambda: d.log().count("TLS connection was refused") > before)
        s = socket.create_connection(("127.0.0.1", int(d.listening("tls").rsplit(":", 1)[1])))
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        s.settimeout(PATIENCE)
        with contextlib.suppress(ConnectionError):
            while s.recv(1000):
                pass
        s.close()
        with client(d, credentials("worker")) as c:
            c.allocate(1)


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
