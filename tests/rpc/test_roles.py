#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Roles: every method by every role, and which role an identity has by options, groups and its token."""
import hashlib

from harness import *

ROLES = ["none", "viewer", "user", "operator", "admin"]
ROWS = re.findall(r'^NGD_RPC\("([\w.]+)", "(\w+)", (\w+), .* (\w+)\)$', (SOURCE / "daemon/handlers/methods.def").read_text(), re.M)
TCP = "tcp:127.0.0.1"


def token(name):
    return name * 4 + "x" * 24


def tokens(path, names):
    """Writes a token-file with a token for each name; names maps to a role or None."""
    path.touch(0o600)
    path.write_text("".join(f"{n} sha256:{hashlib.sha256(token(n).encode()).hexdigest()} never {r or ''}\n" for n, r in names.items()))
    return path


def call(channel, row, bearer):
    """Calls a method with an empty message. Returns the reason of its refusal, or None."""
    service, method, kind, _ = row
    shape = {"UNARY": "unary_unary", "SERVER_STREAM": "unary_stream", "CLIENT_STREAM": "stream_unary"}.get(kind, "stream_stream")
    fn = getattr(channel, shape)(f"/{service}/{method}", request_serializer=bytes, response_deserializer=bytes)
    body = pb.DrainRequest(grace_ms=0xffffffff).SerializeToString() if method == "Drain" else b""  # refused after its role
    try:
        answer = fn(iter([body]) if shape.startswith("stream") else body, metadata=(("authorization", f"Bearer {bearer}"),), timeout=PATIENCE)
        if shape.endswith("stream"):
            if method != "Watch":
                list(answer)
            else:
                next(answer)
                answer.cancel()
    except grpc.RpcError as e:
        got = Refusal(e)
        assert got.reason != "ROLE" or got.code is grpc.StatusCode.PERMISSION_DENIED, e
        return got.reason
    return None


@test("every method is refused to the roles below the one in its row, before anything else is looked at, and to no other")
def matrix():
    assert len(ROWS) == (SOURCE / "daemon/handlers/methods.def").read_text().count("\nNGD_RPC(") > 60
    with Daemon(f"--token-file={tokens(SCRATCH / 'matrix', {r: r for r in ROLES})}") as d, d.channel() as channel:
        for row in ROWS:
            for role in ROLES:
                reason = call(channel, row, token(role))
                allowed = ROLES.index(role) >= ROLES.index(row[3].lower())
                assert (reason != "ROLE") == allowed, (row, role, reason)
        got = refused("ROLE", "PERMISSION_DENIED", Client, d, bearer=token("viewer"))
        assert "token:viewer" in got.text and "viewer" in got.text and "needs the role user" in got.text, got.text


@test("docs/roles.md has the table")
def page():
    text = (SOURCE / "docs/roles.md").read_text()
    for service, method, _, role in ROWS:
        row = re.search(rf"^\| `{re.escape(service)}` \| `{method}` \|(.*)\|$", text, re.M)
        assert [c.strip() == "yes" for c in row[1].split("|")] == [r >= ROLES.index(role.lower()) for r in range(5)], (service, method, row[0])


def role_of(d, **kwargs):
    """Returns the role of a client, by what it may do."""
    client = Client(d, session=False, **kwargs)
    try:
        for method, request, role in (("Admin/ReadTimeline", pb.ReadTimelineRequest(), "admin"), ("Admin/Config", pb.ConfigRequest(), "operator"),
                                      ("Graphs/RemovePattern", pb.RemovePatternRequest(), "user"), ("Admin/Status", pb.StatusRequest(), "viewer")):
            try:
                client.call(method, request)
                return role
            except grpc.RpcError as e:
                if Refusal(e).reason != "ROLE":
                    return role
        return "none"
    finally:
        client.close()


@test("an identity's own entry counts first, then its token's, then its groups', then default-role; a reload changes all of them")
def rules():
    conf, path = SCRATCH / "roles.conf", SCRATCH / "rules"
    tokens(path, {"a": None, "b": "operator", "c": "viewer"})
    base = {"listen": [f"unix:{SCRATCH}/r", "tcp:127.0.0.1:0"], "allow-plaintext": "yes", "stats-listen": "off", "token-file": path}

    def write(**options):
        lines = [f"{k.replace('_', '-')} = {x}" for k, v in {**base, **options}.items() for x in (v if isinstance(v, list) else [v])]
        conf.write_text("\n".join(lines) + "\n")

    write()
    with Daemon(f"--config={conf}", listen=None, bare=True) as d, Client(d, session=False, address=f"unix:{SCRATCH}/r") as root:
        tcp = d.listening("tcp")

        def roles(**options):
            write(**options)
            root.call("Admin/Reload", pb.ReloadRequest())
            return [role_of(d, address=tcp), *(role_of(d, address=tcp, bearer=token(n)) for n in "abc")]

        def wrong(text, **options):
            write(**options)
            got = refused("CONFIG", "INVALID_ARGUMENT", root.call, "Admin/Reload", pb.ReloadRequest())
            assert text in got.text and f"{conf}:" in got.text, got.text
            assert role_of(d, address=tcp, bearer=token("b")) == "operator"

        assert roles() == ["user", "user", "operator", "viewer"]
        assert roles(default_role="none") == ["none", "none", "operator", "viewer"]
        assert roles(default_role="viewer") == ["viewer", "viewer", "operator", "viewer"]
        assert roles(admin_identities=["token:a", TCP]) == ["admin", "admin", "operator", "viewer"]
        assert roles(role=[f"{TCP}=operator", "token:b=user"]) == ["operator", "user", "user", "viewer"]
        group = [f"g={TCP}", "g=token:a", "g=token:c", "h=token:a"]
        assert roles(group=group, role=["group:g=operator", "group:h=viewer", "group:other=admin"]) == ["operator", "operator", "operator", "viewer"]
        assert roles(group=group, role=["group:g=operator", f"{TCP}=none"]) == ["none", "operator", "operator", "viewer"]
        assert roles() == ["user", "user", "operator", "viewer"]
        assert role_of(d, address=f"unix:{SCRATCH}/r") == "admin"
        for bad in ("token:a", "token:a=king", "=user", "a=user", "group:=user", ":a=user", "token:a=", "tls:x=user"):
            wrong("role: ", role=bad)
        wrong("is an administrator", role="uid:0=viewer")
        wrong("is an administrator", role="token:a=viewer", admin_identities="token:a")
        wrong("has two roles, user and viewer", role=["token:a=user", "token:a=viewer"])
        wrong("default-role", default_role="admin")
        tokens(path, {"a": None, "b": "operator", "c": "king"})
        wrong("the role is not", role=[])
        path.write_text(path.read_text().replace("king", "user") + f"c sha256:{'0' * 64} never viewer\n")
        wrong("differ in their role", role=[])


@test("a session whose role is taken away is refused from its next call on; an operator may make a model public, a user may not")
def in_use():
    path = tokens(SCRATCH / "use", {"a": "user", "b": "operator"})
    model = SOURCE / "examples" / "model"
    with Daemon(f"--token-file={path}", f"--models-dir={model}") as d, Client(d, bearer=token("a")) as c, Client(d, session=False) as root:
        def load(name):
            (SCRATCH / "t").write_text(token(name))
            return subprocess.run([CTL, "--address", d.address, "--token-file", SCRATCH / "t", "--quiet", "load", model, "--name", name, "--public"],
                                  capture_output=True, text=True, timeout=PATIENCE)

        assert "may-publish" in load("a").stderr
        assert load("b").returncode == 0
        c.allocate(1)
        tokens(path, {"a": "viewer", "b": "operator"})
        root.call("Admin/Reload", pb.ReloadRequest())
        refused("ROLE", "PERMISSION_DENIED", c.allocate, 1)
        assert c.call("Sequences/ListModels", pb.ListModelsRequest()).models


main(shared=False)
