#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Over plaintext TCP two users have one identity. A session still belongs only to its owner, by its token."""
import base64
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tenants import *  # noqa: E402,F403

MODEL = SOURCE / "examples" / "model"
NEG = 'npugraph 1\ngraph "g" {\n  input %a : f32[4]\n  %b = aten.neg(%a)\n  return "b" = %b\n}\n'
TOKEN = "npugraph-session-token-bin"

# The other user knows all ids: the session's id is in the daemon's log, and ids of objects are small numbers.
ATTACK = r"""
c = Client(daemon, address=daemon.tcp)
victim, buffer, graph, sequence = map(int, sys.stdin.readline().split())
assert [s.client_name for s in c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions] == ["test"]
calls = {
    "Memory/Allocate": pb.AllocateRequest(bytes=64), "Memory/Read": pb.ReadRequest(buffer=buffer),
    "Memory/Write": pb.WriteRequest(buffer=buffer, data=b"x" * 64), "Memory/Free": pb.FreeRequest(buffers=[buffer]),
    "Memory/ListBuffers": pb.ListBuffersRequest(), "Graphs/Replay": pb.ReplayRequest(graph=graph, inputs=[bytes(16)]),
    "Graphs/ReplayStream": pb.ReplayRequest(graph=graph, inputs=[bytes(16)]), "Graphs/Release": pb.ReleaseRequest(graph=graph),
    "Graphs/Describe": pb.DescribeRequest(graph=graph), "Sequences/Step": pb.StepRequest(sequence=sequence),
    "Sequences/Generate": pb.GenerateRequest(sequence=sequence, max_tokens=2), "Sequences/Close": pb.CloseRequest(sequence=sequence),
}
tokens = {"none": [], "empty": [b""], "zeros": [bytes(16)], "of another session": [c.token], "short": [c.token[:15]], "long": [c.token + b"x"]}
for name, request in calls.items():
    for what, token in tokens.items():
        who = [("npugraph-session", str(victim))] + [("npugraph-session-token-bin", t) for t in token]
        stream = METHODS[name][0].startswith("stream")
        refused("SESSION_TOKEN", "PERMISSION_DENIED", c.method(name), iter([request]) if stream else request, metadata=who, timeout=PATIENCE)
for what, token in tokens.items():
    resume = pb.SessionResume(session=victim, token=token[0] if token else b"")
    refused("SESSION_TOKEN", "PERMISSION_DENIED", c.method("Sessions/Open"), iter([pb.SessionRequest(open=pb.SessionOpen(resume=resume))]))
c.close()
print("ok", flush=True)
"""


def open_tcp(*options):
    daemon = open_daemon("--allow-plaintext=yes", "--listen=tcp:127.0.0.1:0", *options)
    daemon.tcp = daemon.listening("tcp")
    return daemon


def attack(daemon, *numbers):
    other = Tenant(daemon, f"daemon.tcp = {daemon.tcp!r}\n" + ATTACK)
    other.say(" ".join(map(str, numbers)))
    assert other.line() == "ok"
    other.wait()


def assert_secret(daemon, token):
    for text in (token.hex(), base64.b64encode(token).decode().rstrip("="), token.decode("latin-1"), str(token)[2:-1]):
        assert text not in daemon.log(), "the log has the session's token"


@test("who has the session's id and not its token can neither read, write, free, replay, list, generate, close nor resume")
def id_alone():
    with open_tcp(f"--models-dir={MODEL}", "--log-level=debug") as daemon, Client(daemon, address=daemon.tcp, name="victim") as victim:
        subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", MODEL, "--name", "m"], check=True, capture_output=True)
        buffer = victim.allocate(64)
        victim.write(buffer, b"v" * 64)
        graph = victim.register(NEG).graph
        sequence = victim.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[3, 1, 4])).sequence
        attack(daemon, victim.id, buffer, graph, sequence)
        assert victim.read(buffer) == b"v" * 64 and victim.replay(graph, [bytes(16)]).outputs
        assert victim.call("Sequences/Step", pb.StepRequest(sequence=sequence)).position == 4
        listed = victim.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions
        assert [s.client_name for s in listed] == ["victim"] and victim.token not in listed[0].SerializeToString()
        assert_secret(daemon, victim.token)


@test("a session whose connection broke is resumed by its token only, and the token is the same afterwards")
def resumed():
    with open_tcp() as daemon:
        child = Child(daemon, f"""
c = Client(daemon, address={daemon.tcp!r}, grace_ms=50000, name="lost")
print(c.id, c.token.hex(), c.allocate(64), c.register({NEG!r}).graph)
import time; time.sleep(600)
""")
        session, token, buffer, graph = child.line().split()
        token = bytes.fromhex(token)
        child.kill()
        with Client(daemon, session=False) as root:
            until("the session is seen as broken", lambda: [s.broken for s in root.call(
                "Admin/ListSessions", pb.ListSessionsRequest()).sessions if s.client_name == "lost"] == [True])
        attack(daemon, session, buffer, graph, 1)
        with Client(daemon, address=daemon.tcp, resume=pb.SessionResume(session=int(session), token=token)) as victim:
            assert victim.opened.resumed and victim.token == token
            assert victim.read(int(buffer)) == bytes(64)
        assert_secret(daemon, token)


@test("over a Unix socket a session needs no token, and a token that is sent must be its own")
def proven():
    with open_daemon() as daemon, Client(daemon) as a, Client(daemon) as b:
        call = lambda *token: a.method("Memory/Allocate")(pb.AllocateRequest(bytes=64), timeout=PATIENCE, metadata=[
            ("npugraph-session", str(a.id)), *((TOKEN, t) for t in token)])
        assert call().buffer and call(a.token).buffer
        for wrong in (b.token, b"", a.token[:15]):
            refused("SESSION_TOKEN", "PERMISSION_DENIED", call, wrong)


@test("npugraphctl, by libnpugraph, sends its session's token")
def library():
    with open_tcp(f"--models-dir={MODEL}") as daemon:
        run = lambda *a: subprocess.run([CTL, "--quiet", "--address", daemon.tcp, *map(str, a)], check=True, capture_output=True, text=True)
        run("load", MODEL, "--name", "m")
        assert run("generate", "m", "--ids", "1,2,3", "--tokens", "2").stdout


if __name__ == "__main__":
    main()
