#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page for people and what it reads: headers, queries, what a reader may see. A browser looks at it in tests/browser."""
import base64
import hashlib
import socket

from harness import *

EVIL = "<img src=x onerror=alert(1)>"
TEXT = f"""npugraph 1
graph "{EVIL}" {{
  sym B 1..8 buckets 4, 8
  guard B != 3
  param %w : f32[4,4] = "</script><b>w"
  input %x : f32[B,4]
  %y = aten.linear(%x, %w)
  %z = aten.relu(%y)
  return "z" = %z
}}
"""


def answer(d, path, head=False):
    """Returns status, headers and body."""
    address = d.log().split("statistics on http://")[-1].split("/")[0]
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    connection.request("HEAD" if head else "GET", path)
    got = connection.getresponse()
    body = got.read()
    connection.close()
    return got.status, got.headers, body.decode()


def get_json(d, path):
    status, headers, body = answer(d, path)
    assert (status, headers["Content-Type"], headers["Cache-Control"]) == (200, "application/json", "no-store"), (path, status, body[:200])
    return json.loads(body)


def program(client):
    buffer = client.allocate(64, "w")
    return client.register(TEXT, {"</script><b>w": buffer}).graph


def number_of(d):
    return next(g["number"] for g in d.stats()["graphs"] if g["name"] == EVIL)


@test("the page's policy runs its own script and style, by their hashes, and nothing else")
def policy(daemon):
    status, headers, body = answer(daemon, "/")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8" and headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    rules = dict((rule.split(" ", 1) + [""])[:2] for rule in headers["Content-Security-Policy"].split("; "))
    hashes = {tag: "'sha256-" + base64.b64encode(hashlib.sha256(re.search(f"<{tag}>(.*?)</{tag}>", body, re.S)[1].encode()).digest()).decode() + "'"
              for tag in ("script", "style")}
    assert rules == {"default-src": "'none'", "connect-src": "'self'", "img-src": "data:", "script-src": hashes["script"], "style-src": hashes["style"],
                     "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'", "require-trusted-types-for": "'script'",
                     "trusted-types": "'none'"}, rules
    assert body.count("<script") == body.count("<style") == 1 and int(headers["Content-Length"]) == len(body.encode())
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://(?!www\.w3\.org/)| style=\"", body)
    status, headers, body = answer(daemon, "/", head=True)
    assert status == 200 and body == "" and int(headers["Content-Length"]) > 10000


@test("queries: what is no number, too large, given twice, or not known is refused by a sentence")
def queries(daemon):
    for path in ("/history.json?step=2", "/history.json?step=", "/history.json?step=1&step=1", "/history.json?since=-1", "/history.json?since=1e3", "/history.json?steps=1",
                 "/history.json?since=99999999999999999999", "/history.json?step=18446744073709551617", "/history.json?%00", "/history.json?step=1%20",
                 "/stats.json?max_age=61", "/stats.json?max_age=x", "/stats.json?age=1", "/events.json?limit=0", "/events.json?limit=1001", "/events.json?limit",
                 "/graph.json", "/graph.json?number=0", "/graph.json?number=x", "/graph.json?number=1&key=12", "/graph.json?number=1&key=" + "g" * 16,
                 "/graph.json?number=1&number=2", "/history.json?" + "&" * 3000 + "x", "/history.json?" + "a=1&" * 1000):
        status, headers, body = answer(daemon, path)
        assert status == 400 and headers["Content-Type"].startswith("text/plain") and len(body) > 15, (path[:60], status, body)
    assert answer(daemon, "/graph.json?number=987654321")[0] == 404
    assert answer(daemon, "/history.json?" + "s" * 9000)[0] == 431
    for path in ("/history.json", "/history.json?", "/history.json?&&", "/history.json?since=9223372036854775807", "/history.json?step=60&since=0#step=2",
                 "/events.json?limit=1000", "/stats.json?max_age=0"):
        get_json(daemon, path)
    assert answer(daemon, "/metrics?x=1")[0] == answer(daemon, "/?x")[0] == 200  # these took and ignored a query before


@test("history: samples come each second, in columns of one length, and since leaves out what the reader has")
def history():
    with Daemon() as d, Client(d) as c:
        graph = program(c)
        for _ in range(3):
            c.replay(graph, [bytes(16)], symbols=[1])
        full = until("two samples are there", lambda: (h := get_json(d, "/history.json"))["end"] >= 2 and h)
        columns = {k: v for k, v in full.items() if isinstance(v, list) and k != "devices"}
        assert {len(v) for v in columns.values()} == {full["end"]} and full["step_s"] == 1, {k: len(v) for k, v in columns.items()}
        assert abs(full["time"][-1] - time.time()) < 30 and full["time"] == sorted(full["time"])
        assert {"tokens", "queue", "evictions", "step_p50", "first_token_p99", "kv_blocks_used"} <= set(columns)
        assert round(sum(full["replays"])) in (0, 1, 2, 3) and max(full["sessions"]) == 1
        assert {len(v) for v in full["devices"][0].values() if isinstance(v, list)} == {full["end"]} and full["devices"][0]["name"] == "host:0"
        rest = get_json(d, f"/history.json?since={full['end'] - 1}")
        assert len(rest["time"]) == rest["end"] - full["end"] + 1 and abs(rest["time"][0] - full["time"][-1]) < 0.2
        assert get_json(d, "/history.json?step=60") | {"end": 0} == get_json(d, "/history.json?step=60&since=5") and get_json(d, "/history.json?step=10")["step_s"] == 10


@test("a graph: symbols, guards, keys, the plan's calls and blocks; without a plan its nodes; hostile names are text in all of it")
def graph(daemon):
    with Client(daemon) as c:
        graph_id = program(c)
        bare = get_json(daemon, f"/graph.json?number={number_of(daemon)}")
        assert bare["name"] == EVIL and "plan" not in bare and bare["keys"] == [] and bare["guards"] == ["B != 3"]
        assert [x["op"] for x in bare["picture"]["calls"]] == ["aten.linear", "aten.relu"] and bare["symbols"][0]["buckets"] == [4, 8]
        assert {s["name"] for s in bare["picture"]["sources"]} == {"x", "</script><b>w"}
        for rows in (1, 8, 8):
            c.replay(graph_id, [bytes(16 * rows)], symbols=[rows])
        got = get_json(daemon, f"/graph.json?number={number_of(daemon)}")
        assert {k["symbols"]: k["replays"] for k in got["keys"]} == {"B<=4": 1, "B<=8": 2} and got["keys_total"] == 2
        hashes = {k["symbols"]: k["key"] for k in got["keys"]}
        assert got["plan"]["key"] == hashes["B<=8"], "the key that was used most"
        other = get_json(daemon, f"/graph.json?number={number_of(daemon)}&key={hashes['B<=4']}")
        assert other["plan"]["key"] == hashes["B<=4"] and other["plan"]["pool_bytes"] < got["plan"]["pool_bytes"]
        assert all(b["offset"] + b["bytes"] <= got["plan"]["pool_bytes"] and b["first"] <= b["last"] for b in got["plan"]["blocks"]) and got["plan"]["blocks"]
        made = {v for call in got["picture"]["calls"] for v in call["out"]} | {s["id"] for s in got["picture"]["sources"]}
        assert all(v in made for call in got["picture"]["calls"] for v in call["in"])
        assert "plan" not in get_json(daemon, f"/graph.json?number={number_of(daemon)}&key={'0' * 15}1"), "a key that is not there"
        with contextlib.suppress(grpc.RpcError):
            c.replay(graph_id, [bytes(48)], symbols=[3])
        events = get_json(daemon, "/events.json?limit=50")["events"]
        assert {"captured", "padded", "refused-guard"} <= {e["reason"] for e in events if e["graph"] == EVIL}, events
        assert len(get_json(daemon, "/events.json?limit=2")["events"]) == 2
        assert EVIL in {g["name"] for g in get_json(daemon, "/stats.json?max_age=60")["graphs"]} or EVIL in {g["name"] for g in daemon.stats()["graphs"]}


@test("a graph with many nodes and long names is cut, and says what it has in all")
def large(daemon):
    with Client(daemon) as c:
        lines = "".join(f"  %v{i} = aten.relu(%v{i - 1})\n" for i in range(1, 5001))
        c.register(f'npugraph 1\ngraph "many" {{\n  input %v0 : f32[2]\n{lines}  return "z" = %v5000\n}}\n')
        params = "".join(f'  param %p{i} : f32[1] = "{i:05}{"<" * 1100}"\n' for i in range(3450))
        adds = "".join(f"  %s{i} = aten.add.Tensor(%s{i - 1}, %p{i})\n" for i in range(1, 3450))
        c.register(f'npugraph 1\ngraph "wide" {{\n{params}  input %x : f32[1]\n  %s0 = aten.add.Tensor(%x, %p0)\n{adds}  return "z" = %s3449\n}}\n')
        numbers = {g["name"]: g["number"] for g in daemon.stats()["graphs"]}
        many = get_json(daemon, f"/graph.json?number={numbers['many']}")["picture"]
        assert len(many["calls"]) == 4096 and many["calls_total"] == 5000
        status, _, body = answer(daemon, f"/graph.json?number={numbers['wide']}")
        assert status == 200 and len(body) < (4 << 20) + 65536 and 1000 < len(json.loads(body)["picture"]["sources"]) < 3450, len(body)


@test("without stats-graphs nobody sees what graphs consist of; without stats-names no name is in any page; a reload counts at once")
def hidden():
    with Daemon("--stats-names=no", "--stats-graphs=yes") as d, Client(d) as c:
        graph_id = program(c)
        c.replay(graph_id, [bytes(16)], symbols=[1])
        for path in ("/stats.json", "/stats.json?max_age=9", "/history.json", "/metrics", "/"):
            status, _, body = answer(d, path)
            assert status == 200 and EVIL not in body.replace('\\"', '"') and f"uid:{os.getuid()}" not in body, path
        assert d.stats()["shown"] == {"names": False, "graphs": False}
        for path in ("/graph.json?number=1", "/events.json"):
            status, _, body = answer(d, path)
            assert status == 403 and "stats-graphs" in body and EVIL not in body
    conf = SCRATCH / "page.conf"
    base = "stats-listen = 127.0.0.1:0\ndevice-memory = 256M\n"
    conf.write_text(base + "stats-names = yes\n")
    with Daemon(f"--config={conf}", bare=True) as d, Client(d) as c:
        program(c)
        assert d.stats()["shown"] == {"names": True, "graphs": False} and answer(d, "/events.json")[0] == 403
        assert get_json(d, "/stats.json?max_age=60")["graphs"][0]["name"] == EVIL
        number = number_of(d)
        for names, graphs in ((False, True), (True, True), (True, False)):
            conf.write_text(base + f"stats-names = {'yes' if names else 'no'}\nstats-graphs = {'yes' if graphs else 'no'}\n")
            c.call("Admin/Reload", pb.ReloadRequest())
            assert bool(get_json(d, "/stats.json?max_age=60")["graphs"]) == names, "an older answer shows more than it may"
            assert answer(d, f"/graph.json?number={number}")[0] == (200 if names and graphs else 403)


@test("/stats.json?max_age answers from what was made before, and without it anew")
def stored():
    with Daemon() as d, Client(d) as c:
        first = get_json(d, "/stats.json?max_age=60")
        program(c)
        assert get_json(d, "/stats.json?max_age=60") == first and len(d.stats()["graphs"]) == 1


@test("a reader that takes nothing, or goes, costs a bounded time and keeps nobody else from the page")
def slow_readers(daemon):
    host, port = daemon.log().split("statistics on http://")[1].split("/")[0].rsplit(":", 1)
    slow = []
    for _ in range(80):
        s = socket.create_connection((host, int(port)), timeout=PATIENCE)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        slow.append(s)
    assert answer(daemon, "/")[0] == 200 and len(answer(daemon, "/")[2]) > 10000
    for s in slow:
        s.close()


if __name__ == "__main__":
    main("--stats-graphs=yes")
