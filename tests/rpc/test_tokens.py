#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bearer tokens: identities by a file of hashes, expiry, revocation and rotation by reloads, and what is refused."""
import datetime
import hashlib
import secrets
import threading

from harness import *

sys.path.insert(0, str(SOURCE / "tests" / "tenants"))
import http2  # noqa: E402

GRAPH = "npugraph 1\ngraph \"g\" {\n  input %x : f32[4]\n  %y = aten.neg(%x)\n  return %y\n}\n"
DATA = bytes(16)
NEVER = "never"


def utc(seconds):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def token():
    return "npugraph_" + secrets.token_urlsafe(32)


def line(name, text, expires=NEVER, *more):
    return "  ".join([name, "sha256:" + hashlib.sha256(text.encode()).hexdigest(), expires, *more]) + "\n"


class Tokens:
    """A daemon with a token-file, and root's client on its socket."""

    def __init__(self, text="", *options, **kwargs):
        self.path = SCRATCH / f"tokens{Daemon.count}"
        self.write(text)
        self.daemon = Daemon(f"--token-file={self.path}", *options, **kwargs)
        self.admin = Client(self.daemon, session=False, address=None if kwargs.get("listen", "unix") == "unix" else f"unix:{SCRATCH}/admin")

    def write(self, text, mode=0o600):
        fresh = self.path.with_suffix(".new")
        fresh.write_text(text)
        fresh.chmod(mode)
        fresh.rename(self.path)

    def reload(self, text):
        self.write(text)
        self.admin.call("Admin/Reload", pb.ReloadRequest())

    def client(self, bearer, **kwargs):
        return Client(self.daemon, bearer=bearer, **kwargs)

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.admin.close()
        self.daemon.__exit__(kind, *rest)


def unauthenticated(reason, c, *args, **kwargs):
    return refused(reason, "UNAUTHENTICATED", c.call, "Admin/Status", pb.StatusRequest(), *args, **kwargs)


@test("a token names the identity that owns what its calls make; others are the connection's")
def identity():
    a, b = token(), token()
    with Tokens("# two\n\n" + line("a", a) + line("b", b, utc(3600))) as t:
        with t.client(a) as ca, t.client(b) as cb, Client(t.daemon) as root:
            assert who(ca) == "token:a" and who(cb) == "token:b"
            assert {s.identity for s in t.admin.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions} == \
                {"token:a", "token:b", f"uid:{os.getuid()}"}
            graph = ca.register(GRAPH).graph
            ca.replay(graph, [DATA])
            assert not cb.call("Graphs/List", pb.ListGraphsRequest()).graphs  # root's connection does not make it an administrator
            refused("ROLE", "PERMISSION_DENIED", ca.call, "Admin/Drain", pb.DrainRequest())
            # The session's own token stands for the bearer token; without both, the call is the connection's.
            ca.bearer = None
            ca.replay(graph, [DATA])
            ca.token = b""
            refused("PERMISSION_DENIED", "PERMISSION_DENIED", ca.replay, graph, [DATA])
            ca.token, ca.bearer = ca.opened.token, b  # the session is what names the caller
            ca.replay(graph, [DATA])
            ca.token = b""
            refused("PERMISSION_DENIED", "PERMISSION_DENIED", ca.replay, graph, [DATA])
            ca.bearer = a
            ca.replay(graph, [DATA])
            ca.token = bytes(16)
            refused("SESSION_TOKEN", "PERMISSION_DENIED", ca.replay, graph, [DATA])
            ca.token = ca.opened.token
            root.id, root.token = ca.id, b""
            refused("PERMISSION_DENIED", "PERMISSION_DENIED", root.allocate, 1)


@test("one connection carries sessions of several tokens, and their quotas are apart")
def one_connection():
    names = [f"n{i}" for i in range(8)]
    texts = [token() for _ in names]
    with Tokens("".join(map(line, names, texts)), "--max-graphs-per-identity=2") as t:
        with t.daemon.channel() as channel:
            clients = []
            for text in texts:
                c = t.client(text, session=False)
                c.channel.close()
                c.channel = channel
                c.open_session(pb.SessionOpen(client_name="one of many"))
                clients.append(c)
            for c, name in zip(clients, names):
                assert who(c) == f"token:{name}"
                c.register(GRAPH)
                c.register(GRAPH)
                refused("QUOTA", "RESOURCE_EXHAUSTED", c.register, GRAPH)
            for c in clients:
                c.end_session()


@test("unknown, malformed, long, doubled and non-ASCII tokens are refused, and never shown")
def malformed():
    a = token()
    with Tokens(line("a", a)) as t:
        cases = [("TOKEN_UNKNOWN", a + "x"), ("TOKEN_UNKNOWN", a[:-1]), ("TOKEN_UNKNOWN", a.upper()), ("TOKEN_MALFORMED", "x" * 23),
                 ("TOKEN_MALFORMED", "x" * 513), ("TOKEN_MALFORMED", "x" * 8000), ("TOKEN_MALFORMED", a + " " + a), ("TOKEN_UNKNOWN", "x" * 512)]
        call = t.daemon.channel().unary_unary("/npugraph.v1.Admin/Status", request_serializer=encode, response_deserializer=pb.StatusResponse.FromString)

        def status(*values):
            return call(pb.StatusRequest(), metadata=tuple(("authorization", v) for v in values), timeout=PATIENCE)

        for reason, text in cases:
            got = refused(reason, "UNAUTHENTICATED", status, f"Bearer {text}")
            assert text not in got.text, got.text
        for text in (a, f"Basic {a}", "Bearer", "Bearer ", "", f"bearer:{a}", " "):
            refused("TOKEN_MALFORMED", "UNAUTHENTICATED", status, text)
        refused("TOKEN_MALFORMED", "UNAUTHENTICATED", status, f"Bearer {a}", f"Bearer {a}")
        refused("TOKEN_MALFORMED", "UNAUTHENTICATED", status, f"Bearer {a}", f"Bearer {token()}")
        for text in (f"Bearer {a}", f"bearer {a}", f"BEARER   {a}"):
            status(text)
        refused("TOKEN_UNKNOWN", "UNAUTHENTICATED", Client, t.daemon, bearer=token())
        for bad in (b"Bearer \xff\xfe" + b"x" * 40, b"Bearer " + b"\x00" * 40, b"Bearer " + "\u00e9".encode() * 20):
            raw = http2.Raw(str(t.daemon.socket))
            raw.send(http2.headers(1, http2.request(extra=http2.field(b"authorization", bad))) +
                     http2.frame(http2.DATA, http2.END_STREAM, 1, http2.message()))
            frames = raw.until(lambda kind, flags, stream, payload: stream == 1 and flags & http2.END_STREAM or kind == http2.RST)
            assert b"TOKEN_MALFORMED" in frames[-1][3] or raw.ended or frames[-1][0] == http2.RST, frames
            raw.close()
        log = t.daemon.log()
        assert a not in log and a.upper() not in log and "x" * 23 not in log, log
        assert a not in json.dumps(t.daemon.stats())


@test("expiry, revocation and a new file end the sessions of a token, with the reason; rotation does not")
def expiry():
    a, b, c = token(), token(), token()
    with Tokens(line("a", a) + line("b", b) + line("b", c)) as t:
        ca, cb, cc = t.client(a), t.client(b), t.client(c)
        graph = ca.register(GRAPH).graph
        stream = ca.method("Graphs/ReplayStream")
        requests = queue.Queue()
        requests.put(pb.ReplayRequest(graph=graph, inputs=[DATA]))
        replies = stream(iter(requests.get, None), metadata=ca.metadata())
        assert next(replies).outputs
        t.reload(line("a", a, utc(3600)) + line("b", c) + line("b", b))  # nothing that matters changed
        requests.put(pb.ReplayRequest(graph=graph, inputs=[DATA]))
        assert next(replies).outputs and who(cb) == who(cc) == "token:b"
        t.reload(line("a", a, utc(-1)) + line("b", c))
        refused("TOKEN_EXPIRED", "UNAUTHENTICATED", ca.replay, graph, [DATA])
        refused("TOKEN_EXPIRED", "UNAUTHENTICATED", lambda: next(replies))
        refused("TOKEN_EXPIRED", "UNAUTHENTICATED", lambda: next(ca.stream))
        # The session still knows the token, until it is ended; after that nobody does.
        refused(("TOKEN_EXPIRED", "TOKEN_UNKNOWN"), "UNAUTHENTICATED", cb.allocate, 1)
        got = refused("TOKEN_EXPIRED", "UNAUTHENTICATED", lambda: next(cb.stream))
        assert "revoked" in got.text
        refused("TOKEN_EXPIRED", "UNAUTHENTICATED", t.client, a)
        cc.allocate(1)
        requests.put(None)
        for dead in (ca, cb):
            dead.stream = None
            dead.close()
        until("what they had is free", lambda: len(t.admin.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions) == 1)
        cc.close()


@test("a token that expires while its session lives ends it, also without another call or a reload")
def expires_by_itself():
    a = token()
    with Tokens(line("a", a, utc(2))) as t, t.client(a) as c:
        c.allocate(1 << 20)
        refused("TOKEN_EXPIRED", "UNAUTHENTICATED", lambda: next(c.stream))
        c.stream = None
        refused("TOKEN_EXPIRED", "UNAUTHENTICATED", c.allocate, 1)
        until("its memory is free", lambda: t.daemon.used_bytes() == 0)


@test("a session is resumed with another token of the same name, and lives as long as that one")
def rotation():
    a, b = token(), token()
    with Tokens(line("a", a) + line("a", b)) as t:
        first = t.client(a, grace_ms=60000)
        buffer = first.allocate(64)
        resume = pb.SessionResume(session=first.id, token=first.token)
        second = t.client(b, grace_ms=60000, resume=resume)
        t.reload(line("a", b))
        second.write(buffer, b"x" * 64)
        first.stream = None
        first.close()
        second.close()


BAD = [("a", "a line has a name"), ("a b c d e", "a line has a name"), (line("a", "x", NEVER, "king"), "the role is not"), (line("a/b", "x"), "a name has"), (line("a" * 65, "x"), "a name has"),
       ("a sha256:00 never", "the hash is not"), ("a md5:" + "0" * 64 + " never", "the hash is not"), ("a sha256:" + "g" * 64 + " never", "the hash is not"),
       (line("a", "x", "2027-02-30T00:00:00Z"), "the expiry is no time"), (line("a", "x", "2027-01-01"), "the expiry is no time"),
       (line("a", "x", "2027-01-01T00:00:00+01:00"), "the expiry is no time"), (line("a", "x", "tomorrow"), "the expiry is no time"),
       (line("a", "x") + line("b", "x"), "an earlier line has this token already"), ("a\0b\n", "a line has a name")]


@test("a file with a mistake, a torn one, and one that others may read or write change nothing; the line is named")
def bad_files():
    a = token()
    good = line("a", a)
    with Tokens(good) as t, t.client(a) as c:
        def refuses(what):
            got = refused("CONFIG", "INVALID_ARGUMENT", t.admin.call, "Admin/Reload", pb.ReloadRequest())
            assert what in got.text and "token-file" in got.text, got.text
            c.allocate(1)
            return got.text

        for text, what in BAD:
            t.write("# head\n" + good + text)
            where = refuses(what)
            assert f"{t.path}:{4 if 'earlier' in what and 'b' in text else 3}: " in where, where
        t.write(good + good[:40])
        refuses(":2: ")
        for mode in (0o644, 0o620, 0o602, 0o604, 0o601):
            t.write(good, mode)
            refuses(f"has mode {mode:04o}")
        t.path.unlink()
        refuses("No such file or directory")
        t.path.mkdir()
        refuses("not a regular file")
        t.path.rmdir()
        os.mkfifo(t.path, 0o600)
        refuses("not a regular file")
        t.path.unlink()
        with open(t.path, "wb") as f:
            f.truncate((32 << 20) + 1)
        t.path.chmod(0o600)
        refuses("at most")
        if os.getuid() == 0:
            t.write(good)
            os.chown(t.path, 65534, 0)
            refuses("belongs to user 65534")
        t.write(good, 0o640)
        t.admin.call("Admin/Reload", pb.ReloadRequest())
        c.allocate(1)
    t.write("broken\n")
    d = Daemon(f"--token-file={t.path}", expect_start=False)
    assert d.wait() == 2 and f"{t.path}:1: a line has a name" in d.log(), d.log()


@test("a file of 100,000 tokens is read, and replaced again and again while calls come")
def large():
    a = token()
    crowd = "".join(f"n{i}  sha256:{secrets.token_hex(32)}  never\n" for i in range(100_000))
    with Tokens(crowd + line("a", a)) as t, t.client(a) as c:
        began = time.monotonic()
        t.reload(line("a", a) + crowd)
        assert SANITIZER or time.monotonic() - began < PATIENCE / 10
        stop, errors, some = threading.Event(), [], "".join(crowd.splitlines(keepends=True)[:1000])

        def replace():
            while not stop.is_set():
                t.write(line("a", a) + some)
                t.write(line("a", a))

        writer = threading.Thread(target=replace)
        writer.start()
        for _ in range(20):
            try:
                t.admin.call("Admin/Reload", pb.ReloadRequest())
            except grpc.RpcError as e:
                errors.append(e.details())
            c.allocate(1)
            unauthenticated("TOKEN_UNKNOWN", t.client(token(), session=False))
        stop.set()
        writer.join()
        assert not errors, errors  # each rename shows a whole file
        refused("TOKEN_UNKNOWN", "UNAUTHENTICATED", t.client, token())


@test("over plaintext TCP tokens are accepted from loopback, and from elsewhere only if that is allowed")
def plaintext():
    a = token()
    host = other_address()
    options = ["--allow-plaintext=yes", f"--listen=tcp:{host}:0", f"--listen=unix:{SCRATCH}/admin"]
    with Tokens(line("a", a), *options, listen="tcp:127.0.0.1:0") as t:
        here, there = re.findall(r"listening on tcp:(\S+)", t.daemon.log())
        with t.client(a, address=here) as c:
            assert who(c) == "token:a"
            c.token = b""
            c.allocate(1)  # the bearer token proves more than an address
        got = refused("TOKEN_PLAINTEXT", "UNAUTHENTICATED", t.client, a, address=there)
        assert "allow-plaintext-tokens" in got.text
        Client(t.daemon, address=there).close()
    with Tokens(line("a", a), *options, "--allow-plaintext-tokens=yes", listen="tcp:127.0.0.1:0") as t:
        there = re.findall(r"listening on tcp:(\S+)", t.daemon.log())[1]
        with t.client(a, address=there) as c:
            assert who(c) == "token:a"


def other_address():
    """Returns an address of this machine that is not a loopback one."""
    import socket
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))  # sends nothing
            address = s.getsockname()[0]
        except OSError as e:
            raise Skip(f"this machine has no address but loopback: {e}") from e
    if address.startswith("127."):
        raise Skip("this machine has no address but loopback")
    return address


@test("npugraphctl makes, lists, revokes and hashes tokens; it and libnpugraph send the one of a file")
def command():
    path = SCRATCH / "made"

    def ctl(*args, rc=0, env=None, stdin=""):
        out = subprocess.run([CTL, *map(str, args)], capture_output=True, text=True, input=stdin, env={**os.environ, **(env or {})}, timeout=PATIENCE)
        assert out.returncode == rc, out
        return out

    a = ctl("tokens", "new", "a", "--file", path).stdout.strip()
    assert len(a) == 9 + 44 and path.stat().st_mode & 0o777 == 0o600 and a not in path.read_text()
    right = path.read_text()
    path.write_text(right + "nonsense\n")
    assert ":2" in ctl("tokens", "new", "b", "--file", path, rc=1).stderr and path.read_text() == right + "nonsense\n"
    path.write_text(right + "# a comment")
    b = json.loads(ctl("--json", "tokens", "new", "b", "--expires", "never", "--file", path).stdout)
    c = ctl("tokens", "new", "a", "--expires", "1h", "--file", path).stdout.strip()
    shown = json.loads(ctl("--json", "tokens", "new", "c", "--expires", "2027-01-31T12:00:00Z").stdout)
    assert shown["line"] == line("c", shown["token"], "2027-01-31T12:00:00Z")
    assert ctl("tokens", "hash", stdin=a + "\n").stdout.strip() in path.read_text()
    assert "23 characters" in ctl("tokens", "hash", stdin="x" * 23, rc=1).stderr
    rows = json.loads(ctl("--json", "tokens", "list", "--file", path).stdout)["tokens"]
    assert [(r["name"], r["state"]) for r in rows] == [("a", "valid"), ("b", "valid"), ("a", "valid")] and rows[1]["expires"] == "never"
    hashes = [hashlib.sha256(x.encode()).hexdigest() for x in (a, b["token"], c)]
    assert [r["hash"] for r in rows] == [h[:12] for h in hashes]
    ctl("tokens", "revoke", "a", "--keep-newest", "--file", path)
    text = path.read_text()
    assert hashes[0] not in text and hashes[1] in text and hashes[2] in text and "# a comment\n" in text
    makers = [subprocess.Popen([CTL, "tokens", "new", f"m{i}", "--file", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for i in range(8)]
    assert all(m.wait() == 0 for m in makers) and all(f"m{i} " in path.read_text() for i in range(8))
    for bad in (["new"], ["new", "a/b"], ["new", "a", "--expires", "soon"], ["list"], ["revoke", "a"], ["burn"], [], ["new", "a", "b"]):
        ctl("tokens", *bad, rc=2)
    ctl("tokens", "revoke", "nobody", "--file", path, rc=1)
    ctl("tokens", "revoke", "b", "--file", SCRATCH / "absent", rc=1)
    link = SCRATCH / "link"
    link.symlink_to(path)
    ctl("tokens", "revoke", "b", "--file", link)
    assert link.is_symlink() and hashes[1] not in path.read_text()
    with Daemon(f"--token-file={path}") as d:
        mine = SCRATCH / "mine"
        mine.write_text(c + "\n")
        graph = SCRATCH / "g.txt"
        graph.write_text(GRAPH)
        ctl("--address", d.address, "--token-file", mine, "replay", graph)
        assert "opened by token:a" in d.log()
        ctl("--address", d.address, "replay", graph, env={"NPUGRAPH_TOKEN_FILE": str(mine)})
        assert d.log().count("opened by token:a") == 2
        assert "Admin.Drain" in ctl("--address", d.address, "drain", env={"NPUGRAPH_TOKEN_FILE": str(mine)}, rc=1).stderr
        for text in ("", "two words\n", "x" * 9000, "é" * 30, a + "\0"):
            mine.write_text(text)
            out = ctl("--address", d.address, "--token-file", mine, "status", rc=1)
            assert str(mine) in out.stderr and (not text or text.strip() not in out.stderr), out.stderr
        mine.write_text(a)
        assert "TOKEN_UNKNOWN" in ctl("--address", d.address, "--token-file", mine, "status", rc=1).stderr
        ctl("--address", d.address, "--token-file", "", "status", env={"NPUGRAPH_TOKEN_FILE": str(mine)})
        assert "No such file" in ctl("--address", d.address, "--token-file", SCRATCH / "absent", "status", rc=1).stderr



WORKER = """
sys.path.insert(0, {python!r})
import numpy, npugraph
client = npugraph.connect(daemon.address, token_file={file!r})
kept = client.upload(numpy.arange(4, dtype="f4"))
for line in sys.stdin:
    try:
        print(kept.read() == numpy.arange(4, dtype="f4").tobytes(), flush=True)
    except npugraph.Error as error:
        print(error.reason, flush=True)
"""


@test("libnpugraph takes over a token that is replaced in its file: its session outlives the first one, and a bad file changes nothing")
def replaced_in_place():
    if importlib.util.find_spec("numpy") is None:
        raise Skip("numpy is missing")
    if SANITIZER:
        raise Skip("Python does not load a library with a sanitizer; tests/unit/test_token reads token files with it")
    first, second, third = token(), token(), token()
    mine = SCRATCH / "rotated"
    mine.write_text(first + "\n")
    os.environ["NPUGRAPH_LIBRARY_PATH"] = str((BUILD / ".libs").resolve())
    with Tokens(line("a", first) + line("a", second)) as t:
        child = Child(t.daemon, WORKER.format(python=str(SOURCE / "python" / "src"), file=str(mine)))
        assert child.ask("read") == "True"
        for bad in ("", "two words\n"):
            mine.write_text(bad)
            assert child.ask("read") == "True"
        mine.with_suffix(".new").write_text(second + "\n")
        mine.with_suffix(".new").rename(mine)  # as kubelet does
        assert child.ask("read") == "True"
        doomed = t.client(first)
        t.reload(line("a", second))  # the first token is over, and would have taken the session with it
        refused("TOKEN_EXPIRED", "UNAUTHENTICATED", lambda: next(doomed.stream))
        answer = child.ask("read")
        assert answer == "True", answer
        assert t.daemon.log().count("resumed by token:a") == 1
        t.reload(line("a", second) + line("b", third))
        mine.write_text(third + "\n")  # another identity cannot take the session over
        assert child.ask("read") == "True"
        t.reload(line("b", third))
        assert child.ask("read") == "TOKEN_EXPIRED"
        child.kill()


@test("npugraphctl does not send a token to another machine without TLS")
def plaintext_client():
    mine = SCRATCH / "mine"
    mine.write_text(token() + "\n")

    def status(address, **env):
        return subprocess.run([CTL, "--address", address, "--token-file", mine, "--timeout", "1s", "status"], capture_output=True,
                              text=True, timeout=60, env={**os.environ, **env}).stderr

    for address in ("192.0.2.1:1", "127.example.org:1", "localhost.example.org:1", "[2001:db8::1]:1", "host:1"):
        assert "without TLS" in status(address), address
    for address in ("localhost:1", "127.0.0.9:1", "[::1]:1", f"unix:{SCRATCH}/nobody"):
        assert "without TLS" not in status(address), address
    assert "without TLS" not in status("192.0.2.1:1", NPUGRAPH_PLAINTEXT_TOKENS="yes")


main(shared=False)
