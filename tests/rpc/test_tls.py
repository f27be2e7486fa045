#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Remote clients over TCP: mutual TLS, with the right, a wrong and no certificate; renewal without a restart."""
import calendar
import hashlib
import re
import secrets
import signal
import socket
import ssl
import subprocess
import time

from certs import *
from harness import *

for ca_name in ("ca", "other-ca"):
    authority(ca_name)
certificate("server", "ca", "DNS:localhost,IP:127.0.0.1")
certificate("worker", "ca", "URI:spiffe://example.org/worker-1")
certificate("plain", "ca", "DNS:plain.example.org")
certificate("stranger", "other-ca", "URI:spiffe://example.org/worker-1")
OPTIONS = [f"--tls-cert={CERTS}/server.pem", f"--tls-key={CERTS}/server.key", f"--tls-client-ca={CERTS}/ca.pem"]


def client(d, certs, **kwargs):
    # No name, so that this works where nothing resolves localhost.
    address = f"127.0.0.1:{d.listening('tls').rsplit(':', 1)[1]}"
    return Client(d, address=address, credentials=certs, **kwargs)


def tls_socket(d):
    return socket.create_connection(("127.0.0.1", int(d.listening("tls").rsplit(":", 1)[1])), timeout=PATIENCE)


def is_refused(fn):
    try:
        fn()
    except grpc.RpcError as e:
        return e.code() is grpc.StatusCode.UNAVAILABLE
    return False


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
            assert c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions[0].identity == "tls-uri:spiffe://example.org/worker-1"
            refused("ROLE", "PERMISSION_DENIED", c.call, "Admin/Drain", pb.DrainRequest())
            refused("ROLE", "PERMISSION_DENIED", c.call, "Admin/DoctorDevice", pb.DoctorDeviceRequest())
        with client(d, credentials("plain")) as c:
            assert c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions[0].identity == "tls-dns:plain.example.org"


def token_file():
    """Writes a token-file. Returns its path, and the token of token:trainer."""
    file, token = SCRATCH / "tls-tokens", "npugraph_" + secrets.token_urlsafe(32)
    file.write_text(f"trainer  sha256:{hashlib.sha256(token.encode()).hexdigest()}  never\n")
    file.chmod(0o600)
    return file, token


@test("with optional certificates, a client without one needs a token for each call, and one with a certificate does not")
def optional():
    file, token = token_file()
    server = OPTIONS[:2]
    status = pb.StatusRequest()
    for more in ([], OPTIONS[2:]):  # without authorities, and with them
        with Daemon(*server, *more, "--tls-client-certificate=optional", f"--token-file={file}", listen="127.0.0.1:0") as d:
            with client(d, credentials(), bearer=token) as c:
                assert c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions[0].identity == "token:trainer"
                buffer = c.allocate(64)
                c.write(buffer, b"x" * 64)
                c.bearer = None
                assert c.read(buffer) == b"x" * 64  # the session's own token stands for it
                c.token = b""
                refused("TOKEN_REQUIRED", "UNAUTHENTICATED", c.read, buffer)
            refused("TOKEN_REQUIRED", "UNAUTHENTICATED", client, d, credentials())
            refused("TOKEN_UNKNOWN", "UNAUTHENTICATED", client, d, credentials(), bearer="npugraph_" + secrets.token_urlsafe(32))
            with client(d, credentials(), session=False) as c:
                refused("TOKEN_REQUIRED", "UNAUTHENTICATED", c.call, "Admin/Status", status)
            if more:
                with client(d, credentials("worker")) as c:
                    assert c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions[0].identity.startswith("tls-uri:")
                unavailable(lambda d=d: client(d, credentials("stranger")))


def nobody(d, source):
    """Opens a connection without a certificate, which says what a client of HTTP/2 says at first and makes no call."""
    context = ssl.create_default_context(cafile=str(CERTS / "ca.pem"))
    context.set_alpn_protocols(["h2"])
    s = socket.create_connection(("127.0.0.1", int(d.listening("tls").rsplit(":", 1)[1])), PATIENCE, (source, 0))
    s = context.wrap_socket(s, server_hostname="127.0.0.1")
    settings, ack = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), bytes([0, 0, 0, 4, 1, 0, 0, 0, 0])
    s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings + ack)
    assert s.recv(1)  # gRPC has answered
    return s


@test("connections without a certificate and a token keep nobody out, and end")
def strangers():
    file, token = token_file()
    with Daemon(*OPTIONS, "--tls-client-certificate=optional", f"--token-file={file}", "--max-connections=16", listen="127.0.0.1:0") as d:
        with client(d, credentials(), bearer=token) as first:
            strangers = [nobody(d, f"127.0.0.{i}") for i in range(2, 22)]  # each from another address
            with client(d, credentials(), bearer=token) as c, client(d, credentials("worker")) as w:
                for one in (first, c, w):  # the first one is older than all strangers
                    one.call("Admin/Status", pb.StatusRequest())
                ended = lambda: d.http("/metrics")[1].count('connections_refused_total{reason="no-token"}')
                until("those that are left end", ended)
                first.call("Admin/Status", pb.StatusRequest())
            for s in strangers:
                s.close()
        assert len(re.findall("it had not proven itself yet", d.log())) >= 1, d.log()


@test("a reload that requires certificates ends connections without one")
def required_again():
    tokens, token = token_file()
    config = SCRATCH / "tls.conf"
    settings = "".join(option[2:].replace("=", " = ", 1) + "\n" for option in OPTIONS) + f"token-file = {tokens}\n"
    config.write_text(settings + "tls-client-certificate = optional\n")
    with Daemon(f"--config={config}", listen="127.0.0.1:0") as d:
        with client(d, credentials(), bearer=token) as c, client(d, credentials("worker")) as w:
            config.write_text(settings)
            d.signal(signal.SIGHUP)
            until("it is refused", lambda: is_refused(lambda: c.call("Admin/Status", pb.StatusRequest())))
            w.call("Admin/Status", pb.StatusRequest())
        for options, missing in (([], "tls-client-ca"), (["--tls-client-certificate=optional"], "token-file")):
            bad = Daemon(*OPTIONS[:2], *options, listen="127.0.0.1:0", expect_start=False)
            assert bad.wait() == 2 and missing in bad.log(), bad.log()


REFUSED = r"warning front: connection refused: (.*) peer=tls:127\.0\.0\.1:(\d+) identity=\S+ reason=tls"


@test("no certificate, a stranger's, and plaintext are refused, and logged with the reason and the peer's address")
def wrong():
    with Daemon(*OPTIONS, listen="127.0.0.1:0") as d:
        logged = lambda: re.findall(REFUSED, d.log())
        for certs in (credentials(), credentials("stranger")):
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
        looker = tls_socket(d)  # neither a handshake nor wrong bytes, like a port scanner
        port = looker.getsockname()[1]
        looker.close()
        until("it is mentioned", lambda: [p for _, p in logged() if int(p) == port])
        assert len(logged()) == count + 1, d.log()
        count += 1
        refused_total = int(re.search(r'npugraphd_connections_refused_total\{reason="tls"\} (\d+)', d.http("/metrics")[1])[1])
        assert refused_total == count


@test("TLS connections count against max-connections, beside the others")
def counted():
    with Daemon(*OPTIONS, f"--listen=unix:{SCRATCH}/both", "--max-connections=5", listen="127.0.0.1:0") as d:
        local = [Client(d, address=f"unix:{SCRATCH}/both") for _ in range(2)]
        remote = [client(d, credentials("worker")) for _ in range(2)]
        assert d.stats()["requests"]["connections"] == 4
        s = tls_socket(d)
        with contextlib.suppress(ConnectionError):
            assert s.recv(1) == b""
        assert f"max-connections is reached peer=tls:127.0.0.1:{s.getsockname()[1]}" in d.log()
        s.close()
        local.append(Client(d, address=f"unix:{SCRATCH}/both"))  # one place is kept for administrators
        unavailable(lambda: Client(d, address=f"unix:{SCRATCH}/both"))
        local.pop().close()
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
    with Daemon(*OPTIONS, "--admin-identities=tls-uri:spiffe://example.org/worker-1", listen="127.0.0.1:0") as d:
        with client(d, credentials("worker")) as c:
            c.call("Admin/Drain", pb.DrainRequest(grace_ms=5000))
        assert d.wait() == 0
        d.stop = lambda: None


@test("sessions of another identity cannot be used")
def other_identity():
    with Daemon(*OPTIONS, listen="127.0.0.1:0") as d, client(d, credentials("worker")) as a, client(d, credentials("plain")) as b:
        refused("PERMISSION_DENIED", "PERMISSION_DENIED", b.call, "Memory/Allocate", pb.AllocateRequest(bytes=1), session=a.id)


@test("graphs of others are not there for anybody but admin-identities, also when the text is the same")
def others_graphs():
    text = 'npugraph 1\ngraph "g" {\n sym B 1..8 buckets 8\n input %x : f32[B,2]\n %y = aten.neg(%x)\n return "y" = %y\n}\n'
    options = "--admin-identities=tls-uri:spiffe://example.org/worker-1"
    with Daemon(*OPTIONS, options, listen="127.0.0.1:0") as d, client(d, credentials("worker")) as admin, client(d, credentials("plain")) as plain:
        others = admin.register(text)
        # The doctor by digest needs the admin right, whether or not the graph exists.
        requests = (("NOT_FOUND", "Buckets", pb.BucketsRequest(digest=others.digest, apply=True)),
                    ("NOT_FOUND", "Explain", pb.ExplainRequest(digest=others.digest)),
                    ("PERMISSION_DENIED", "Doctor", pb.DoctorRequest(digest=others.digest)),
                    ("PERMISSION_DENIED", "Trace", pb.DoctorRequest(digest=others.digest)))
        for why, method, request in requests:
            refused(why, why, plain.call, f"Graphs/{method}", request)
            admin.call(f"Graphs/{method}", request)
        assert not plain.call("Graphs/List", pb.ListGraphsRequest()).graphs
        mine = plain.register(text)
        assert plain.call("Graphs/Doctor", pb.DoctorRequest(graph=mine.graph)).healthy
        assert plain.call("Graphs/Buckets", pb.BucketsRequest(graph=mine.graph, set=[2, 8], apply=True)).applied
        assert len(plain.call("Graphs/List", pb.ListGraphsRequest()).graphs) == 1


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


@test("renewed certificates are taken without a restart, on SIGHUP at once; broken ones leave the old in use, with the reason in the log")
def renewal():
    with Daemon(*OPTIONS, listen="127.0.0.1:0") as d:
        old = (CERTS / "server.pem").read_bytes(), (CERTS / "server.key").read_bytes()
        reloads = lambda: d.log().count("revocation lists were reloaded")
        with client(d, credentials("worker")) as c:
            c.allocate(1)
            certificate("server", "other-ca", "DNS:localhost,IP:127.0.0.1")
            until("the change is seen", lambda: reloads() > 0)
            c.allocate(1)  # an open connection continues
        with client(d, credentials("worker", ca="other-ca")) as c:
            c.allocate(1)
        (CERTS / "server.pem").write_text("garbage")
        d.process.send_signal(signal.SIGHUP)
        until("the reason is logged", lambda: re.search(r"the old ones stay in use: tls-cert: \S*server\.pem: ", d.log()))
        with client(d, credentials("worker", ca="other-ca")) as c:
            c.allocate(1)
        (CERTS / "server.pem").write_bytes(old[0])
        (CERTS / "server.key").write_bytes(old[1])
        before = reloads()
        d.process.send_signal(signal.SIGHUP)
        until("it is reloaded", lambda: reloads() > before)
        with client(d, credentials("worker")) as c:
            c.allocate(1)


# ---- by hand, with Python's own TLS ---------------------------------------------------------------------------------

def ssl_context(name="worker", alpn=("h2",)):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(CERTS / "ca.pem")
    context.load_cert_chain(CERTS / f"{name}.pem", CERTS / f"{name}.key")
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


def shake(d, context, session=None):
    """Returns a connection after its handshake and the daemon's SETTINGS."""
    s = context.wrap_socket(tls_socket(d), server_hostname="localhost", session=session)
    s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
    if not s.recv(1000):
        raise ConnectionError("it was closed")
    return s


def turned_away(fn):
    try:
        fn()
    except OSError:
        return
    raise AssertionError("was let in")


def reads_end(s):
    s.settimeout(PATIENCE)
    try:
        while s.recv(1000):
            pass
    except ssl.SSLError:
        pass
    except ConnectionError:
        pass
    return True


@test("a connection without ALPN h2, or older than TLS 1.2, is refused with the reason")
def protocols():
    with Daemon(*OPTIONS, listen="127.0.0.1:0") as d:
        shake(d, ssl_context()).close()
        for alpn in ((), ("http/1.1",)):
            turned_away(lambda: shake(d, ssl_context(alpn=alpn)))
        until("both are logged", lambda: re.search("ALPN h2", d.log()) and re.search("no application protocol", d.log()))
        old = ssl_context()
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        turned_away(lambda: shake(d, old))
        until("it is logged", lambda: "unsupported protocol" in d.log())


@test("a URI and a DNS name of the same text are two identities; neither may use the other's session")
def kinds():
    certificate("as-uri", "ca", "URI:worker.example.org,DNS:other")
    certificate("as-dns", "ca", "DNS:Worker.example.org")
    with Daemon(*OPTIONS, listen="127.0.0.1:0") as d, client(d, credentials("as-uri")) as a, client(d, credentials("as-dns")) as b:
        buffer = a.allocate(16)
        refused("PERMISSION_DENIED", "PERMISSION_DENIED", b.call, "Memory/Allocate", pb.AllocateRequest(bytes=1), session=a.id)
        for c, name in ((a, "tls-uri:worker.example.org"), (b, "tls-dns:worker.example.org")):
            assert name in {s.identity for s in c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions}, name
        assert a.read(buffer) is not None


@test("a common name is no identity unless tls-allow-cn is set")
def common_name():
    certificate("cn-only", "ca")
    with Daemon(*OPTIONS, listen="127.0.0.1:0") as d:
        unavailable(lambda: client(d, credentials("cn-only")))
        until("the reason is logged", lambda: "tls-allow-cn" in d.log())
    with Daemon(*OPTIONS, "--tls-allow-cn=yes", listen="127.0.0.1:0") as d, client(d, credentials("cn-only")) as c:
        assert c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions[0].identity == "tls-cn:cn-only"


@test("names with spaces, line breaks or other than ASCII, and names that are too long, are refused; none is cut")
def hostile_names():
    hostile = [(f"hostile{i}", None, subject) for i, subject in enumerate(("/CN=a b", "/CN=a\nnotice daemon: b", "/CN=Jörg"))]
    hostile += [("hostile-long", "URI:spiffe://example.org/" + "x" * 160, None), ("hostile-space", "DNS:a b", None)]
    with Daemon(*OPTIONS, "--tls-allow-cn=yes", listen="127.0.0.1:0") as d:
        for i, (name, alternative, subject) in enumerate(hostile):
            certificate(name, "ca", alternative, subject=subject)
            turned_away(lambda: shake(d, ssl_context(name)))
            until("it is logged", lambda: len(re.findall(REFUSED, d.log())) == i + 1)
        assert "at most" in d.log() and "0x20" in d.log() and "0x0a" in d.log(), d.log()


@test("the old form tls:NAME in the configuration is an error that names the new ones")
def old_form():
    for option in ("--admin-identities=tls:spiffe://example.org/worker-1", "--weight=tls:worker=200"):
        out = subprocess.run([DAEMON, option, "--check-config"], capture_output=True, text=True, timeout=PATIENCE)
        assert out.returncode == 2 and all(k in out.stderr for k in ("tls-uri:", "tls-dns:", "tls-cn:")), out


@test("a revoked certificate is refused, its connections end, and its tickets are worth nothing")
def revoked():
    certificate("leaver", "ca", "URI:spiffe://example.org/leaver")
    revocations("ca")
    with Daemon(*OPTIONS, f"--tls-crl={CERTS}/ca.crl", listen="127.0.0.1:0") as d:
        context = ssl_context("leaver")
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # its tickets arrive with the handshake
        first = shake(d, context)
        again = shake(d, context, session=first.session)
        assert again.session_reused
        stays = shake(d, ssl_context("worker"))
        revocations("ca", "leaver")
        d.process.send_signal(signal.SIGHUP)
        assert reads_end(first) and reads_end(again)
        assert "certificate revoked" in d.log()
        turned_away(lambda: shake(d, context, session=first.session))
        turned_away(lambda: shake(d, ssl_context("leaver")))
        stays.sendall(bytes((0, 0, 8, 6, 0, 0, 0, 0, 0)) + b"12345678")
        assert stays.recv(1000)
        with client(d, credentials("worker")) as c:
            c.allocate(1)
        old = (CERTS / "ca.crl").read_bytes()
        revocations("ca", seconds=1)
        time.sleep(1.5)
        d.process.send_signal(signal.SIGHUP)
        until("the list is refused", lambda: re.search("tls-crl: .* has expired", d.log()))
        with client(d, credentials("worker")) as c:
            c.allocate(1)
        (CERTS / "ca.crl").write_bytes(old)
    revocations("other-ca")
    out = subprocess.run([DAEMON, "--listen=127.0.0.1:0", "--stats-listen=off", *OPTIONS, f"--tls-crl={CERTS}/other-ca.crl"],
                         capture_output=True, text=True, timeout=PATIENCE)
    assert out.returncode == 2 and "not signed by an authority" in out.stderr, out


@test("a resumed session has the identity of the certificate, with TLS 1.2 and 1.3")
def resumed():
    with Daemon(*OPTIONS, "--max-connections-per-identity=2", listen="127.0.0.1:0") as d:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = ssl_context()
            context.maximum_version = version
            first = shake(d, context)
            again = shake(d, context, session=first.session)
            assert again.session_reused, version
            turned_away(lambda: shake(d, context, session=first.session))  # a third of the same identity
            shake(d, ssl_context("plain")).close()
            first.close()
            again.close()
            until("they are gone", lambda: d.stats()["requests"]["connections"] == 0)
        assert "identity=tls-uri:spiffe://example.org/worker-1 reason=max-connections-per-identity" in d.log()


@test("a connection ends when its client's certificate expires")
def expiry():
    soon = time.gmtime(time.time() + 6)
    certificate("brief", "ca", "URI:spiffe://example.org/brief", until=time.strftime("%Y%m%d%H%M%SZ", soon))
    with Daemon(*OPTIONS, listen="127.0.0.1:0") as d:
        s = shake(d, ssl_context("brief"))
        assert reads_end(s)
        assert time.time() >= calendar.timegm(soon)
        assert "the client's certificate has expired" in d.log()
        turned_away(lambda: shake(d, ssl_context("brief")))


@test("a connection ends at max-connection-age, and clients come back by themselves")
def age():
    with Daemon(*OPTIONS, "--max-connection-age=2s", listen="127.0.0.1:0") as d:
        began, s = time.monotonic(), shake(d, ssl_context())
        assert reads_end(s)
        assert time.monotonic() - began > 1


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
