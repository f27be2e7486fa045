#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The audit log: who changed what, and who was refused; whole lines of JSON, rotation, reopening, and lines that are lost."""
import hashlib

import shared
from harness import *

TOKEN = "audit-token-" + "x" * 20
GRAPH = "npugraph 1\ngraph \"g\" {\n  input %x : f32[4]\n  %y = aten.neg(%x)\n  return %y\n}\n"


class Audited:
    def __init__(self, *options, **kwargs):
        self.path = SCRATCH / f"audit{Daemon.count}"
        self.daemon = Daemon(f"--audit-log={self.path}", *options, **kwargs)

    def lines(self, path=None):
        """Returns the lines that are whole; one may just be written, or the file be between two names."""
        try:
            text = (path or self.path).read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]

    def wait(self, **fields):
        """Waits for a line with these fields, and returns it."""
        return self.wait_for(lambda line: all(line.get(k) == v for k, v in fields.items()), fields)

    def wait_for(self, good, what="the line"):
        return until(f"the log has {what}", lambda: next((x for x in self.lines() if good(x)), None))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.daemon.__exit__(*exc)


@test("changes and refusals are lines with who, what, of what, the answer and from where; replays, reads and tokens are not there")
def content():
    tokens = SCRATCH / "tokens"
    tokens.touch(0o600)
    tokens.write_text(f"eve sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()} never viewer\n")
    model, me = SOURCE / "examples" / "model", f"uid:{os.getuid()}"
    with Audited(f"--token-file={tokens}", f"--models-dir={model}") as a, Client(a.daemon) as c:
        opened = a.wait(method="npugraph.v1.Sessions/Open", session=c.id)
        assert opened["identity"] == me and opened["answer"] == "OK" and opened["peer"].startswith("unix:pid="), opened
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", opened["time"]), opened
        graph = c.register(GRAPH).graph
        for _ in range(3):
            c.replay(graph, [bytes(16)])
        c.load(model / "model.safetensors")
        assert a.wait(method="npugraph.v1.Memory/LoadSafetensors")["object"] == str(model / "model.safetensors")
        odd = 'a"b\n\x01\u20ac{}'
        refused("MODEL_NOT_FOUND", "NOT_FOUND", c.call, "Sequences/UnloadModel", pb.UnloadModelRequest(name=odd))
        assert a.wait(object=odd)["answer"] == "MODEL_NOT_FOUND"
        with contextlib.suppress(grpc.RpcError):
            c.load("x" + "\u20ac" * 1000000)
        assert a.wait(object="x" + "\u20ac" * 170)["method"] == "npugraph.v1.Memory/LoadSafetensors"
        refused("ROLE", "PERMISSION_DENIED", Client, a.daemon, bearer=TOKEN)
        line = a.wait(answer="ROLE", identity="token:eve")
        assert line["method"] == "npugraph.v1.Sessions/Open" and "needs the role user" in line["text"], line
        refused("TOKEN_UNKNOWN", "UNAUTHENTICATED", Client, a.daemon, bearer=TOKEN + "y")
        assert a.wait(answer="TOKEN_UNKNOWN")["identity"] == me
        shared.lies("SESSION_TOKEN", c, shared.memfd(4096), token=bytes(16))
        line = a.wait(method="npugraph.v1.LocalRequest", session=c.id)
        assert line["answer"] == "SESSION_TOKEN" and line["identity"] == me and line["peer"].startswith("unix:pid="), line
        c.call("Admin/Reload", pb.ReloadRequest())
        a.wait(method="npugraph.v1.Admin/Reload", answer="OK")
        c.call("Admin/SetConfig", pb.SetConfigRequest(name="weight", values=["uid:1=7", "uid:2=8"]))
        assert a.wait(method="npugraph.v1.Admin/SetConfig")["object"] == "weight = uid:1=7, uid:2=8"
        many = [f"uid:{i}={i % 9 + 1}" for i in range(1, 1001)]
        change = lambda name, *values: pb.SetConfigChange(name=name, values=values)
        c.call("Admin/SetConfig", pb.SetConfigRequest(changes=[change("weight", *many), change("merge", "no")]))
        noted = a.wait_for(lambda x: x["method"] == "npugraph.v1.Admin/SetConfig" and "uid:1=2, uid:2=3" in x["object"])["object"]
        assert re.fullmatch(r"weight = uid:1=2(, uid:\d+=\d)+, and \d+ more; merge = no", noted), noted[-100:]
        c.call("Admin/SetConfig", pb.SetConfigRequest(name="weight", unset=True))
        a.wait(method="npugraph.v1.Admin/SetConfig", object="weight unset", answer="OK")
        refused("PERMISSION_DENIED", "PERMISSION_DENIED", c.call, "Admin/SetConfig", pb.SetConfigRequest(name="models-dir", values=["/"]))
        a.wait(method="npugraph.v1.Admin/SetConfig", object="models-dir", answer="PERMISSION_DENIED")
        refused("PERMISSION_DENIED", "PERMISSION_DENIED", c.call, "Admin/SetConfig", pb.SetConfigRequest(changes=[change("merge", "no"), change("stats-listen", "off")]))
        a.wait(method="npugraph.v1.Admin/SetConfig", object="stats-listen", answer="PERMISSION_DENIED")
        a.daemon.signal(signal.SIGHUP)
        a.wait(identity="signal", method="Hangup", answer="OK")
        text = a.path.read_text()
        assert "Replay" not in text and "Admin/Status" not in text and TOKEN not in text, text
        assert a.path.stat().st_mode & 0o777 == 0o600
    assert a.lines()[-1]["method"] == "Terminated", a.lines()[-1]


@test("a file that would grow beyond audit-log-max becomes FILE.1; no line is lost or torn on the way")
def rotation():
    with Audited("--audit-log-max=20K") as a, Client(a.daemon, session=False) as c:
        for i in range(100):
            refused("MODEL_NOT_FOUND", "NOT_FOUND", c.call, "Sequences/UnloadModel", pb.UnloadModelRequest(name=f"m{i}"))
        old = pathlib.Path(f"{a.path}.1")
        a.wait(object="m99")
        both = [x["object"] for x in a.lines(old) + a.lines()]
        assert both == [f"m{i}" for i in range(100 - len(both), 100)] and len(both) > 20, both
        assert old.stat().st_size <= 20 << 10 and a.path.stat().st_size <= 20 << 10
        assert old.stat().st_mode & 0o777 == a.path.stat().st_mode & 0o777 == 0o600


@test("a reload opens a file again that another program renamed, and lines that could not be written are counted in log and metric")
def lost():
    with Audited() as a, Client(a.daemon, session=False) as c:
        moved = SCRATCH / "moved"
        a.path.rename(moved)
        c.call("Admin/Reload", pb.ReloadRequest())
        until("the new file has the reload", lambda: a.path.exists() and a.lines())
        a.path.unlink()
        a.path.mkdir()  # it cannot be opened from now on
        c.call("Admin/Reload", pb.ReloadRequest())
        for _ in range(5):
            refused("MODEL_NOT_FOUND", "NOT_FOUND", c.call, "Sequences/UnloadModel", pb.UnloadModelRequest(name="lost"))
        dropped = lambda: int(re.search(r"^npugraphd_audit_dropped_total (\d+)", a.daemon.http("/metrics")[1], re.M)[1])
        until("six lines are lost", lambda: dropped() == 6)
        a.path.rmdir()
        refused("MODEL_NOT_FOUND", "NOT_FOUND", c.call, "Sequences/UnloadModel", pb.UnloadModelRequest(name="kept"))
        a.wait(object="kept")
        assert [x.get("dropped", x.get("object")) for x in a.lines()] == [6, "kept"], a.lines()


@test("a file that others may read, a link and a directory are refused at the start")
def bad_files():
    path = SCRATCH / "bad"
    path.touch(0o644)
    link, folder = SCRATCH / "bad-link", SCRATCH / "bad-folder"
    link.symlink_to(path)
    folder.mkdir()
    for bad in (path, link, folder):
        d = Daemon(f"--audit-log={bad}", expect_start=False)
        assert d.wait() == 2 and f"audit-log: {bad}: " in d.log(), d.log()



@test("who is refused again and again does not push out what others change")
def refusals():
    with Audited() as a:
        for i in range(60):
            refused("TOKEN_UNKNOWN", "UNAUTHENTICATED", Client, a.daemon, bearer=TOKEN + "y")
        with Client(a.daemon) as c:
            refused("MODEL_NOT_FOUND", "NOT_FOUND", c.call, "Sequences/UnloadModel", pb.UnloadModelRequest(name="seen"))
        a.wait(object="seen")
        lines = a.lines()
        written = sum(one.get("answer") == "TOKEN_UNKNOWN" for one in lines)
        assert written < 60 and written + sum(one.get("dropped", 0) for one in lines) >= 60, (written, lines[-3:])


main(shared=False)
