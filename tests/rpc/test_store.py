#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The store of compiled plans: what survives a restart, what is set aside, and npugraphctl cache."""
import os
import struct
import subprocess

from harness import *

TEXT = """npugraph 1
graph "twice" {
  sym N 1..64
  input %x : f32[N]
  %a = aten.add.Tensor(%x, %x)
  %b = aten.view(%a) {size=[N]}
  return "y" = %b
}
"""


def store_of(name):
    path = SCRATCH / name
    path.mkdir(mode=0o700, exist_ok=True)
    return path / "store"


def replay(client, graph, n):
    values = struct.pack(f"{n}f", *range(n))
    got = client.replay(graph, [values], [n]).outputs[0]
    assert struct.unpack(f"{n}f", got) == tuple(2.0 * i for i in range(n)), n


def counter(daemon, name, label=None):
    text = daemon.http("/metrics")[1]
    total = 0
    for line in text.splitlines():
        if line.startswith(f"npugraphd_{name}") and (label is None or f'"{label}"' in line):
            total += float(line.split()[-1])
    return total


def entries(store, kind="plan"):
    return sorted((store / "entries").glob(f"*.{kind}"))


def run_once(store, sizes=(5, 9)):
    with Daemon(f"--store-dir={store}") as d:
        with Client(d) as c:
            graph = c.register(TEXT).graph
            for n in sizes:
                replay(c, graph, n)
                replay(c, graph, n)
        until("the plans are stored", lambda: len(entries(store)) >= len(sizes))


def ctl(daemon, *arguments, expect=0):
    out = subprocess.run([CTL, "--address", daemon.address, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert out.returncode == expect, out
    return out.stdout if expect == 0 else out.stderr + out.stdout


@test("a restarted daemon replays its first step without running a pass")
def restart():
    store = store_of("restart")
    run_once(store)
    (store / "notes" / "hot").unlink()  # so that only the request asks the store
    with Daemon(f"--store-dir={store}") as d, Client(d) as c:
        graph = c.register(TEXT).graph
        for n in (5, 9):
            replay(c, graph, n)
        assert counter(d, "graph_plans_total", "passes") == 0 and counter(d, "graph_plans_total", "store") == 2
        reasons = {e.reason for e in c.call("Graphs/Explain", pb.ExplainRequest()).events}
        assert "store-plan" in reasons, reasons
        replay(c, graph, 11)
        assert counter(d, "graph_plans_total", "passes") == 1


@test("hot keys are captured after a start, before a client comes")
def hot():
    store = store_of("hot")
    run_once(store)
    with Daemon(f"--store-dir={store}") as d:
        until("both keys are captured", lambda: counter(d, "warm_captures_total", "captured") == 2)
        with Client(d) as c:
            graph = c.register(TEXT).graph
            replay(c, graph, 5)
            replay(c, graph, 9)
            assert counter(d, "graph_cache_misses_total") == 0
            assert counter(d, "graph_plans_total", "passes") == 0


@test("what was captured ahead helps who registers it under another name, and does not tell him its name")
def hot_name():
    store = store_of("hot_name")
    run_once(store)
    with Daemon(f"--store-dir={store}") as d:
        until("both keys are captured", lambda: counter(d, "warm_captures_total", "captured") == 2)
        with Client(d) as c:
            graph = c.register(TEXT.replace("twice", "mine")).graph
            replay(c, graph, 5)
            replay(c, graph, 9)
            assert c.call("Graphs/Describe", pb.DescribeRequest(graph=graph)).info.name == "mine"
            assert counter(d, "graph_plans_total", "passes") == 0


LIE = """pattern "triple" {
  version 1
  doc "a lie, which shows that it is used"
  dim N
  input %x : f32[N]
  source { %y = aten.add.Tensor(%x, %x) return %y }
  replacement { %y = aten.mul.Scalar(%x) {other=3} return %y }
}"""


@test("hot keys that were captured with registered patterns are captured with them again")
def hot_patterns():
    store = store_of("hot-patterns")

    def three_times(client, graph):
        got = client.replay(graph, [struct.pack("5f", *range(5))], [5]).outputs[0]
        assert struct.unpack("5f", got) == (0, 3, 6, 9, 12), got

    with Daemon(f"--store-dir={store}") as d:
        with Client(d) as c:
            c.call("Graphs/RegisterPattern", pb.RegisterPatternRequest(text=LIE))
            three_times(c, c.register(TEXT).graph)
        until("the patterns are stored", lambda: entries(store, "patterns") and entries(store))
    with Daemon(f"--store-dir={store}") as d:
        until("the key is captured", lambda: counter(d, "warm_captures_total", "captured") == 1)
        with Client(d) as c:
            listed = c.call("Admin/ListStore", pb.ListStoreRequest()).entries
            name = next(e.name for e in listed if e.kind == pb.STORE_ENTRY_KIND_PATTERNS)
            shown = b"".join(p.data for p in c.call("Admin/ReadStore", pb.ReadStoreRequest(name=name, text=True))).decode()
            assert 'pattern "triple" {' in shown, shown
            replay(c, c.register(TEXT).graph, 5)  # the pattern is not registered yet: another key
            assert counter(d, "graph_plans_total", "passes") == 1 and counter(d, "graph_cache_misses_total") == 1
            c.call("Graphs/RegisterPattern", pb.RegisterPatternRequest(text=LIE))
            three_times(c, c.register(TEXT).graph)
            assert counter(d, "graph_plans_total", "passes") == 1 and counter(d, "graph_cache_misses_total") == 1
    entries(store, "patterns")[0].unlink()
    with Daemon(f"--store-dir={store}") as d:
        until("the key is passed over", lambda: counter(d, "warm_captures_total", "no_patterns") == 1)


@test("a damaged entry is set aside, counted and made again, and the results are right")
def damaged():
    store = store_of("damaged")
    run_once(store)
    (store / "notes" / "hot").unlink()
    first, second = entries(store)
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 0x10
    first.write_bytes(data)
    second.write_bytes(second.read_bytes()[:-7])
    with Daemon(f"--store-dir={store}") as d, Client(d) as c:
        graph = c.register(TEXT).graph
        replay(c, graph, 5)
        replay(c, graph, 9)
        assert counter(d, "graph_plans_total", "passes") == 2
        assert counter(d, "store_set_aside_total", "checksum") == 1 and counter(d, "store_set_aside_total", "truncated") == 1
        until("new entries are written", lambda: len(entries(store)) == 2)
        assert len(list((store / "aside").iterdir())) == 2


@test("two daemons share a store: the second one needs no pass")
def shared():
    store = store_of("shared")
    with Daemon(f"--store-dir={store}") as one, Daemon(f"--store-dir={store}") as two:
        with Client(one) as c:
            replay(c, c.register(TEXT).graph, 7)
        until("the plan is stored", lambda: len(entries(store)) == 1)
        with Client(two) as c:
            replay(c, c.register(TEXT).graph, 7)
        assert counter(two, "graph_plans_total", "store") == 1 and counter(two, "graph_plans_total", "passes") == 0


@test("a store that cannot be used is reported in words, and the daemon serves without")
def unusable():
    target = store_of("target")
    link = SCRATCH / "link"
    link.symlink_to(target.parent)
    writable = SCRATCH / "writable"
    writable.mkdir()
    os.chmod(writable, 0o777)
    a_file = SCRATCH / "a-file"
    a_file.write_text("x")
    for path, why in ((link, "is a link"), (writable, "chmod go-w"), (a_file, "no directory"), (SCRATCH / "no" / "parent", "No such file")):
        with Daemon(f"--store-dir={path}") as d, Client(d) as c:
            assert "plans are not kept" in d.log() and why in d.log(), d.log()
            replay(c, c.register(TEXT).graph, 3)
            refused("NOT_FOUND", "NOT_FOUND", c.call, "Admin/ListStore", pb.ListStoreRequest())
    with Daemon() as d:
        assert "plans are kept" not in d.log()


@test("CACHE_DIRECTORY, which systemd sets, is where plans go by default")
def systemd_directory():
    cache = SCRATCH / "cache"
    cache.mkdir(mode=0o700)
    with Daemon(env={"CACHE_DIRECTORY": str(cache)}) as d, Client(d) as c:
        replay(c, c.register(TEXT).graph, 3)
        until("the plan is stored", lambda: len(entries(cache / "store")) == 1)
    with Daemon("--store-dir=off", env={"CACHE_DIRECTORY": str(cache)}) as d:
        assert "plans are kept" not in d.log()


@test("npugraphctl cache lists, shows, verifies, exports, imports and clears")
def command():
    if CTL is None:
        raise Skip("npugraphctl was not built")
    store, other = store_of("command"), store_of("other")
    run_once(store)
    exported = SCRATCH / "plans.npg"
    with Daemon(f"--store-dir={store}") as d:
        listed = json.loads(ctl(d, "--json", "cache"))
        assert {e["kind"] for e in listed["entries"]} == {"plan", "graph"} and len(listed["entries"]) == 3
        plan = next(e for e in listed["entries"] if e["symbols"] == "N=5")
        assert plan["graph"] == "twice" and plan["state"] == "good"
        assert [e["graph"] for e in listed["entries"] if e["kind"] == "graph"] == ["twice"], listed
        text = ctl(d, "cache", "show", plan["name"][:12])
        for part in ("symbols N=5", "option.remove_noop_ops true", "pass.", "toolchain ", "# graph as it was registered", "# plan\nplan \"twice\"",
                     "aten.add.Tensor"):
            assert part in text, (part, text)
        shown = json.loads(ctl(d, "--json", "cache", "show", plan["name"][:12]))
        assert shown["name"] == plan["name"] and shown["text"] == text
        assert "0 entries" in ctl(d, "cache", "show", "000000", expect=1)
        assert "first 6 digits" in ctl(d, "cache", "show", "00", expect=1)
        ctl(d, "cache", "verify")
        ctl(d, "cache", "export", str(exported))
        link, fifo = SCRATCH / "link.npg", SCRATCH / "fifo.npg"
        link.symlink_to("elsewhere.npg")
        os.mkfifo(fifo)
        for special in (link, fifo):  # a regular file would be replaced
            assert "not a regular file" in ctl(d, "cache", "export", str(special), expect=1)
        assert link.is_symlink() and fifo.is_fifo() and not list(SCRATCH.glob("*.part"))
        ctl(d, "cache", "nonsense", expect=2)
    with Daemon(f"--store-dir={other}") as d:
        ctl(d, "cache", "import", str(exported))
        with Client(d) as c:
            graph = c.register(TEXT).graph
            replay(c, graph, 5)
            replay(c, graph, 9)
            assert counter(d, "graph_plans_total", "passes") == 0
        damaged = bytearray(exported.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        (SCRATCH / "bad.npg").write_bytes(damaged)
        ctl(d, "cache", "import", str(SCRATCH / "bad.npg"), expect=1)
        (SCRATCH / "short.npg").write_bytes(exported.read_bytes()[:-5])
        assert "ends in the middle" in ctl(d, "cache", "import", str(SCRATCH / "short.npg"), expect=1)
        bad = entries(other)[0]
        bad.write_bytes(b"nonsense")
        assert "truncated" in ctl(d, "cache", "verify", expect=1)
        ctl(d, "cache", "verify")
        ctl(d, "cache", "clear", entries(other)[0].name)
        assert not entries(other)
        ctl(d, "cache", "clear")
        assert not list((other / "entries").iterdir())


def large_text(nodes):
    """Returns a graph that no pass makes smaller, with long names."""
    lines = ["npugraph 1", 'graph "large" {', "  sym N 1..64", "  input %x : f32[N]"]
    value = "x"
    for i in range(nodes):
        name = f"a.rather.long.name.of.value.{i:06d}." + "x" * 60
        lines.append(f"  %{name} = aten.{'sin' if i % 2 else 'cos'}(%{value})")
        value = name
    return "\n".join(lines + [f'  return "y" = %{value}', "}", ""])


@test("entries above max-message are read, exported and imported in chunks")
def chunks():
    store, other = store_of("chunks"), store_of("chunks-other")
    exported = SCRATCH / "large.npg"
    with Daemon(f"--store-dir={store}") as d, Client(d) as c:
        c.replay(c.register(large_text(3000)).graph, [bytes(20)], [5])
        until("the plan is stored", lambda: len(entries(store)) == 1)
    plan = entries(store)[0]
    assert plan.stat().st_size > 5 * 65536, plan.stat().st_size
    with Daemon(f"--store-dir={store}", "--max-message=64K") as d, Client(d) as c:
        parts = list(c.call("Admin/ReadStore", pb.ReadStoreRequest(name=plan.name)))
        assert len(parts) > 5 and all(p.total == plan.stat().st_size and len(p.data) <= 32768 and p.name == plan.name for p in parts)
        assert b"".join(p.data for p in parts) == plan.read_bytes()
        text = b"".join(p.data for p in c.call("Admin/ReadStore", pb.ReadStoreRequest(name=plan.name[:10], text=True))).decode()
        assert len(text) > 2 * 65536 and text.count("aten.sin(") >= 1500
        # A client that vanishes during an import leaves nothing behind.
        for _ in range(8):
            stream = c.call("Admin/ReadStore", pb.ReadStoreRequest(name=plan.name))
            next(stream)
            stream.cancel()
        assert "".join(map(chr, b"".join(p.data for p in c.call("Admin/ReadStore", pb.ReadStoreRequest(name=plan.name)))[:8])) == "npgstor1"
        if CTL:
            ctl(d, "cache", "export", str(exported))
            assert len(ctl(d, "cache", "show", plan.name[:12])) == len(text)
    with Daemon(f"--store-dir={other}", "--max-message=64K") as d, Client(d) as c:
        data = plan.read_bytes()

        def send(*messages):
            return c.call("Admin/ImportStore", iter(messages))

        refused("FILE_TRUNCATED", "INVALID_ARGUMENT", send)
        refused("FILE_TRUNCATED", "INVALID_ARGUMENT", send, pb.ImportStoreRequest(total=len(data), data=data[:1000]))
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", send, pb.ImportStoreRequest(data=b"x"))
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", send, pb.ImportStoreRequest(total=1 << 40, data=b"x"))
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", send, pb.ImportStoreRequest(total=3, data=b"four"))
        wrong = bytearray(data)
        wrong[1000] ^= 1
        refused("FILE_CORRUPT", "INVALID_ARGUMENT", send, *(pb.ImportStoreRequest(total=len(data), data=bytes(wrong[at:at + 32768]))
                                                     for at in range(0, len(data), 32768)))
        assert not list((other / "entries").iterdir())
        if CTL:
            assert json.loads(ctl(d, "--json", "cache", "import", str(exported)))["imported"] == 2
        else:
            send(*(pb.ImportStoreRequest(total=len(data), data=data[at:at + 32768]) for at in range(0, len(data), 32768)))
        assert entries(other)[0].read_bytes() == data


@test("the store is for administrators: others see no entry of it, and can neither read nor change it")
def rights():
    store = store_of("rights")
    run_once(store)
    name = entries(store)[0].name
    with Daemon(f"--store-dir={store}", "--allow-plaintext=yes", listen="tcp:127.0.0.1:0") as d, Client(d, address=d.listening("tcp")) as c:
        assert not c.call("Admin/ListStore", pb.ListStoreRequest()).entries
        for method, request in (("ReadStore", pb.ReadStoreRequest(name=name)), ("VerifyStore", pb.VerifyStoreRequest()),
                                ("ClearStore", pb.ClearStoreRequest()), ("ImportStore", iter([pb.ImportStoreRequest(data=b"x", total=1)]))):
            refused("ROLE", "PERMISSION_DENIED", c.call, f"Admin/{method}", request)
    assert len(entries(store)) == 2


main()
