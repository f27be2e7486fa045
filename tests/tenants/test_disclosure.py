#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No method shows one user what belongs to another, and no user can influence what another one runs."""
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tenants import *  # noqa: E402,F403

MODEL = SOURCE / "examples" / "model"
ROWS = ('npugraph 1\ngraph "canary_graph" {\n  sym B 1..64 buckets 1, 8, 64\n  input %x : f32[B,4] = "canary_input"\n'
        '  param %w : f32[4,4] = "canary_param"\n  %y = aten.linear(%x, %w)\n  return "canary_output" = %y\n}\n')
TAG = 77777771

# Each method, with requests that name the victim's objects; client streams get one message.
PROBE = r"""
c = Client(daemon)
digest, group, sequence, graph, buffer, session, tag = sys.stdin.readline().split()
requests = {
    "Graphs/Describe": [dict(digest=digest), dict(digest=digest, form=pb.DESCRIBE_FORM_PLAN), dict(graph=int(graph))],
    "Graphs/Explain": [dict(), dict(tag=int(tag)), dict(digest=digest)],
    "Graphs/Buckets": [dict(digest=digest), dict(digest=digest, apply=True, set=[64])],
    "Graphs/Doctor": [dict(digest=digest)], "Graphs/Trace": [dict(digest=digest)],
    "Memory/Allocate": [dict(bytes=1 << 40)], "Memory/Read": [dict(buffer=int(buffer))],
    "Sequences/Open": [dict(model="canary_model", prompt=[1, 2]), dict(model="uid:0/canary_model", prompt=[1, 2])],
    "Sequences/UnloadModel": [dict(name="canary_model", force=True)], "Sequences/ShareModel": [dict(name="canary_model", share_with=["uid:65534"])],
    "Sequences/Step": [dict(sequence=int(sequence))], "Admin/Stats": [dict(), dict(form=pb.STATS_FORM_PROMETHEUS)],
    "Admin/ReadStore": [dict(name="000000")], "Graphs/ListPatterns": [dict()],
}
pool = pb.DESCRIPTOR
said = 0
for name in METHODS:
    service, method = name.split("/")
    kind, reply = METHODS[name]
    request_type = getattr(pb, pool.services_by_name[service].methods_by_name[method].input_type.name)
    if name in ("Sessions/Open", "Admin/Drain"):
        continue
    for fields in requests.get(name, [dict()]):
        for who in (c.metadata(), ()):
            message = request_type(**fields)
            try:
                answer = c.method(name)(iter([message]) if kind.startswith("stream") else message, metadata=who, timeout=PATIENCE)
                answers = list(answer) if kind.endswith("stream") else [answer]
                text = " ".join(str(a) for a in answers)
            except grpc.RpcError as e:
                text = f"{e.details()} {e.trailing_metadata()}"
            for v in fields.values():
                text = text.replace(str(v), "")  # a refusal may repeat what was asked
            for secret in ("canary", session, tag, digest[:12]):
                assert secret not in text, f"{name} {fields} told {secret}: {text[:600]}"
            said += 1
c.close()
print(said, flush=True)
"""


@test("no answer of any method tells another user a name, text, label, tag or session of somebody else")
def canaries():
    need_two_users()
    with open_daemon(f"--models-dir={MODEL}", f"--store-dir={store_dir()}") as daemon, Client(daemon, name="canary_client") as victim:
        subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", MODEL, "--name", "canary_model", "--private"], check=True,
                       capture_output=True)
        buffer = victim.allocate(64, "canary_buffer")
        graph = victim.register(ROWS, {"canary_param": buffer})
        for rows in (1, 3, 8, 40):
            victim.replay(graph.graph, [b"\0" * 16 * rows], [rows], tag=TAG)
        sequence = victim.call("Sequences/Open", pb.OpenRequest(model="canary_model", prompt=[3, 1, 4])).sequence
        assert victim.call("Graphs/Explain", pb.ExplainRequest(tag=TAG)).events
        other = Tenant(daemon, PROBE)
        other.say(f"{graph.digest} 0 {sequence} {graph.graph} {buffer} {victim.id} {TAG}")
        assert int(other.line()) > 100
        other.wait()


def store_dir():
    path = SCRATCH / "store"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


@test("who registers the same text shares the executables, and neither sees nor changes the other's buckets, counters and limits")
def same_text():
    need_two_users()
    with open_daemon() as daemon, Client(daemon) as victim:
        graph = victim.register(ROWS, {"canary_param": victim.allocate(64)}, {"capture_limit": "3"}).graph
        for rows in (1, 8, 64, 3):
            victim.replay(graph, [b"\0" * 16 * rows], [rows])
        info = victim.call("Graphs/Describe", pb.DescribeRequest(graph=graph)).info
        other = Tenant(daemon, f"""
c = Client(daemon)
mine = c.register({ROWS!r}, {{"canary_param": c.allocate(64)}}, {{"capture_limit": "3"}})
assert not mine.shared
seen = c.call("Graphs/Describe", pb.DescribeRequest(graph=mine.graph)).info
assert (seen.replays, seen.captures, seen.executables, list(seen.keys)) == (0, 0, 0, []), seen
assert c.replay(mine.graph, [b"\\0" * 16 * 3], [3]).outputs[0] == b"\\0" * 16 * 3
r = c.call("Graphs/Buckets", pb.BucketsRequest(graph=mine.graph, apply=True, set=[64]))
assert r.applied and r.dropped == 1, r
assert [(s.size, s.count) for s in r.sizes] == [(3, 1)], r.sizes
for rows in (1, 30, 64):
    c.replay(mine.graph, [b"\\0" * 16 * rows], [rows])
c.close()
print("ok", flush=True)
""")
        assert other.line() == "ok"
        other.wait()
        after = victim.call("Graphs/Describe", pb.DescribeRequest(graph=graph)).info
        assert sorted(after.keys) == sorted(info.keys) and len(after.keys) == 3, after.keys
        assert (after.replays, after.captures, after.evictions) == (info.replays, info.captures, info.evictions), after
        buckets = victim.call("Graphs/Buckets", pb.BucketsRequest(graph=graph))
        assert list(buckets.present.buckets) == [1, 8, 64] and sum(s.count for s in buckets.sizes) == 4, buckets


OWN = r"""
import json
c = Client(daemon, name="mine")
graph = c.register(sys.stdin.readline().strip().replace("\\n", "\n").replace("canary_graph", "same_graph"), {"canary_param": c.allocate(64)}).graph
for rows in (1, 2):
    c.replay(graph, [bytes(16 * rows)], [rows])
ctl = lambda *a: subprocess.run([CTL, "--quiet", "--address", daemon.address, *a], capture_output=True, text=True, timeout=PATIENCE)
done = ctl("load", str(SOURCE / "examples" / "model"), "--name", "same_model")
assert done.returncode == 0, done.stderr
text = c.call("Admin/Stats", pb.StatsRequest()).text
stats = json.loads(text)
me = "uid:65534"
assert [s["identity"] for s in stats["shares"]] == [me], stats["shares"]
assert "same_graph" in {g["name"] for g in stats["graphs"]}, stats["graphs"]
assert [(m["name"], m["owner"]) for m in stats["models"]] == [("same_model", me)], stats["models"]
assert stats["replays_total"] >= 6 and stats["sessions"]["open"] == 2, stats
metrics = c.call("Admin/Stats", pb.StatsRequest(form=pb.STATS_FORM_PROMETHEUS)).text
rows = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
assert rows['npugraphd_graph_replays_total{graph="same_graph",owner="uid:65534"}'] == "2", metrics
assert int(rows['npugraphd_graph_replays_total{graph="other",owner="other"}']) >= 4, metrics
assert int(rows['npugraphd_kv_blocks{model="same_model",owner="uid:65534"}']) > 0, metrics
assert int(rows['npugraphd_kv_blocks{model="other",owner="other"}']) > 0, metrics
assert int(rows['npugraphd_identity_replays_total{identity="uid:65534"}']) == 2, metrics
assert "uid:0" not in metrics + text and "canary" not in metrics + text
for command in (["stats"], ["stats", "--prometheus"], ["top", "--count", "1", "--interval", "100ms"], ["--json", "top", "--count", "1", "--interval", "100ms"]):
    done = ctl(*command)
    assert done.returncode == 0 and done.stdout and "canary" not in done.stdout and "uid:0" not in done.stdout, (command, done)
print("ok", flush=True)
sys.stdin.readline()
c.close()
"""


@test("statistics have everybody's sums, and rows by name of one's own: over gRPC, in npugraphctl top and stats")
def own_statistics():
    need_two_users()
    with open_daemon(f"--models-dir={MODEL}") as daemon, Client(daemon, name="canary_client") as victim:
        subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", MODEL, "--name", "same_model", "--private"], check=True,
                       capture_output=True)
        for text in (ROWS.replace("canary_graph", "same_graph"), ROWS.replace("64", "32")):  # the name is not a part of a graph's digest
            graph = victim.register(text, {"canary_param": victim.allocate(64)}).graph
            for rows in (1, 2):
                victim.replay(graph, [bytes(16 * rows)], [rows])
        other = Tenant(daemon, OWN)
        other.say(ROWS.replace("\n", "\\n"))
        assert other.line() == "ok"
        text = victim.call("Admin/Stats", pb.StatsRequest(form=pb.STATS_FORM_PROMETHEUS)).text  # an administrator
        for owner in ("uid:0", "uid:65534"):
            for row in (f'graph_replays_total{{graph="same_graph",owner="{owner}"}} 2', f'kv_blocks{{model="same_model",owner="{owner}"}} ',
                        f'identity_device_seconds_total{{identity="{owner}"}} '):
                assert f"\nnpugraphd_{row}" in text, row
        other.say()
        other.wait()


@test("the statistics over HTTP name nobody and nothing of anybody, unless the operator wants it")
def http_statistics():
    for names in ("no", "yes"):
        with Daemon(f"--models-dir={MODEL}", f"--stats-names={names}") as daemon, Client(daemon, name="canary_client") as c:
            subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", MODEL, "--name", "canary_model"], check=True, capture_output=True)
            graph = c.register(ROWS, {"canary_param": c.allocate(64, "canary_buffer")}).graph
            c.replay(graph, [bytes(16)], [1])
            for page in ("/", "/history.json"):
                status, text = daemon.http(page)
                assert status == 200 and "canary" not in text, page
            for page in ("/metrics", "/stats.json"):
                status, text = daemon.http(page)
                assert status == 200 and ("canary" in text) == (names == "yes"), (names, page, text[:2000])
                assert names == "yes" or "uid:" not in text, (page, text)
            assert daemon.stats()["replays_total"] >= 1 and daemon.stats()["kv"]["blocks"] > 0
            assert 'npugraphd_graph_replays_total{graph="' in daemon.http("/metrics")[1]


if __name__ == "__main__":
    main()
