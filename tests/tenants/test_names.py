#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names of models belong to an identity: nobody can take another's place, and sharing is explicit, listed and revocable."""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tenants import *  # noqa: E402,F403

MODEL = SOURCE / "examples" / "model"
PROMPT = list(range(5, 40))
OPEN = f'"Sequences/Open", pb.OpenRequest(model=%r, prompt={PROMPT})'


def ctl(daemon, *arguments, uid=None):
    switch = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"] if uid else []
    done = subprocess.run([*switch, CTL, "--quiet", "--address", daemon.address, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def models(client):
    return {(m.owner, m.name): m.audience for m in client.call("Sequences/ListModels", pb.ListModelsRequest()).models}


def is_readable():
    probe = subprocess.run(["setpriv", f"--reuid={NOBODY}", "--regid=65534", "--clear-groups", "--", "cat", MODEL / "config.json"],
                           capture_output=True)
    if probe.returncode != 0:
        raise Skip("the other user cannot read examples/model")


@test("a model that another user loads under a name has no place in root's: it is private, and the public one wins")
def names():
    need_two_users()
    is_readable()
    with open_daemon(f"--models-dir={MODEL}") as daemon, Client(daemon) as root:
        ctl(daemon, "load", MODEL, "--name", "m", uid=NOBODY)
        refused("MODEL_NOT_FOUND", "NOT_FOUND", root.call, "Sequences/Open", pb.OpenRequest(model="n", prompt=PROMPT))
        ctl(daemon, "load", MODEL, "--name", "m")
        assert models(root) == {("uid:65534", "m"): "private", ("uid:0", "m"): "public"}, models(root)
        sequence = root.call("Sequences/Open", pb.OpenRequest(model="m", prompt=PROMPT)).sequence
        counts = {m.owner: m.sequences for m in root.call("Sequences/ListModels", pb.ListModelsRequest()).models}
        assert counts == {"uid:0": 1, "uid:65534": 0}, counts
        other = Tenant(daemon, f"""
c = Client(daemon)
found = {{m.owner: m.name for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models}}
assert found == {{"uid:0": "m", "uid:65534": "m"}}, found
refused("PERMISSION_DENIED", "PERMISSION_DENIED", c.call, "Sequences/UnloadModel", pb.UnloadModelRequest(name="uid:0/m", force=True))
refused("PERMISSION_DENIED", "PERMISSION_DENIED", c.call, "Sequences/ShareModel", pb.ShareModelRequest(name="uid:0/m"))
refused("PERMISSION_DENIED", "PERMISSION_DENIED", c.call, "Sequences/ShareModel", pb.ShareModelRequest(name="m", public=True))
c.call("Sequences/ShareModel", pb.ShareModelRequest(name="m", share_with=["uid:0"]))
c.call({OPEN % "m"})
c.call({OPEN % "uid:0/m"})
counts = {{m.owner: m.sequences for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models}}
assert counts == {{"uid:0": 2, "uid:65534": 1}}, counts
c.close()
print("ok", flush=True)
""")
        assert other.line() == "ok"
        other.wait()
        root.call("Sequences/Step", pb.StepRequest(sequence=sequence))
        before = root.call("Sequences/ListModels", pb.ListModelsRequest()).models
        root.call("Sequences/Open", pb.OpenRequest(model="m", prompt=PROMPT))
        after = {m.owner: m.sequences for m in root.call("Sequences/ListModels", pb.ListModelsRequest()).models}
        assert after["uid:0"] == 2 and len(before) == 2, after


@test("a private model is not seen by others; sharing it is listed, and taking it back closes their sequences")
def sharing():
    need_two_users()
    with open_daemon(f"--models-dir={MODEL}", "--group=team=uid:65534") as daemon, Client(daemon) as root:
        ctl(daemon, "load", MODEL, "--name", "hidden", "--private")
        other = Tenant(daemon, f"""
c = Client(daemon)
def names():
    return [(m.name, m.audience) for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models]
assert names() == [], names()
text = refused("MODEL_NOT_FOUND", "NOT_FOUND", c.call, {OPEN % "other"}).text
assert "hidden" not in text, text
refused("MODEL_NOT_FOUND", "NOT_FOUND", c.call, {OPEN % "hidden"})
refused("MODEL_NOT_FOUND", "NOT_FOUND", c.call, "Sequences/UnloadModel", pb.UnloadModelRequest(name="hidden"))
print("unseen", flush=True)
sys.stdin.readline()
assert names() == [("hidden", "shared")], names()
s = c.call({OPEN % "hidden"}).sequence
print("used", flush=True)
sys.stdin.readline()
assert names() == [], names()
refused("STALE_ID", "NOT_FOUND", c.call, "Sequences/Step", pb.StepRequest(sequence=s))
c.close()
print("revoked", flush=True)
""")
        assert other.line() == "unseen"
        ctl(daemon, "share", "hidden", "--with", "group:team")
        assert models(root) == {("uid:0", "hidden"): "group:team"}, models(root)
        other.say()
        assert other.line() == "used"
        ctl(daemon, "share", "hidden", "--private")
        other.say()
        assert other.line() == "revoked"
        other.wait()


@test("whose prompts begin alike cannot be told from another identity: beginnings are shared within one only")
def prefixes():
    need_two_users()
    with open_daemon(f"--models-dir={MODEL}") as daemon, Client(daemon) as root:
        ctl(daemon, "load", MODEL, "--name", "m", "--share-prefixes")
        secret = [7 + i * 13 % 1900 for i in range(64)]
        first = root.call("Sequences/Open", pb.OpenRequest(model="m", prompt=secret))
        assert first.shared_tokens == 0
        code = f"""
c = Client(daemon)
mine = c.call("Sequences/Open", pb.OpenRequest(model="m", prompt={secret[:48]} + [1])).shared_tokens
again = c.call("Sequences/Open", pb.OpenRequest(model="m", prompt={secret[:48]} + [2])).shared_tokens
c.close()
print(mine, again, flush=True)
"""
        other = Tenant(daemon, code)
        assert other.line() == "0 48"
        other.wait()
        assert root.call("Sequences/Open", pb.OpenRequest(model="m", prompt=secret)).shared_tokens > 0
    with open_daemon(f"--models-dir={MODEL}", "--share-prefixes=all") as daemon, Client(daemon) as root:
        for name, arguments, expected in (("all", ["--share-prefixes"], "48 48"), ("own", [], "0 48")):
            ctl(daemon, "load", MODEL, "--name", name, *arguments)
            root.call("Sequences/Open", pb.OpenRequest(model=name, prompt=secret))
            other = Tenant(daemon, code.replace('"m"', repr(name)))
            assert other.line() == expected, (name, expected)
            other.wait()


if __name__ == "__main__":
    main()
