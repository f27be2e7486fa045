#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""static_kernel_compile: kernels compiled for the shapes of a plan, in the background, kept in the store, and what happens when
there is no compiler, or one that fails, hangs or gives something else. Results are the same bits all along."""
import os
import struct
import subprocess

from harness import *

COMPILER = next((c for c in ("/usr/bin/cc", "/usr/bin/gcc", "/usr/bin/clang") if os.access(c, os.X_OK)), None)

# Two projections of one operand become one kernel, for which a static kernel exists.
TEXT = """npugraph 1
graph "gate" {
  param %a : bf16[40,48]
  param %b : bf16[40,48]
  input %x : f32[1,48]
  %u = aten.linear(%x, %a)
  %v = aten.linear(%x, %b)
  %s = aten.add.Tensor(%u, %v)
  return "u" = %u, "s" = %s
}
"""
# The graph of a group's ranks.
RANK = TEXT.replace("%s = aten.add.Tensor(%u, %v)", """%w = aten.add.Tensor(%u, %v)
  %s = _c10d_functional.all_reduce(%w) {reduce_op="sum", group_name="tp"}""")
COMPILING = HANGS * 0.9  # a compilation takes a second, of a CPU that others may be busy with at a higher priority
ON = {"static_kernel_compile": "true"}
UNCACHED = {**ON, "disable_static_kernel_compile_cache": "true"}


def weights(client, device=""):
    made = {}
    for name, seed in (("a", 3), ("b", 5)):
        values = [0x3c00 + (i * 40503 >> 3) * seed % 509 + (i % 3 == 0) * 0x8000 for i in range(40 * 48)]
        made[name] = client.call("Memory/Allocate", pb.AllocateRequest(bytes=2 * len(values), device=device)).buffer
        client.write(made[name], struct.pack(f"{len(values)}H", *values))
    return made


def results(client, graph):
    x = struct.pack("48f", *((i * 37 % 101) / 64 - 0.7 for i in range(48)))
    return list(client.replay(graph, [x]).outputs)


def count(daemon, result):
    return sum(float(line.split()[-1]) for line in daemon.http("/metrics")[1].splitlines()
               if line.startswith("npugraphd_static_kernels_total") and f'"{result}"' in line)


def ctl(daemon, *arguments, expect=0):
    out = subprocess.run([CTL, "--address", daemon.address, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert out.returncode == expect, out
    return out.stdout if expect == 0 else out.stderr + out.stdout


def run(daemon, result, options=ON):
    """Replays with and without the option, until the option has come to `result`; all results must be the same bits."""
    with Client(daemon) as c:
        bound = weights(c)
        generic = results(c, c.register(TEXT, bound).graph)
        before = count(daemon, result)
        graph = c.register(TEXT, bound, options).graph
        assert results(c, graph) == generic
        until(f"the kernels are {result}", lambda: count(daemon, result) == before + 1, COMPILING)
        assert results(c, graph) == generic
        said = {k.static_kernels for k in c.call("Graphs/Explain", pb.ExplainRequest(graph=graph)).keys}
        plan = c.call("Graphs/Describe", pb.DescribeRequest(graph=graph, form=pb.DESCRIBE_FORM_PLAN)).text
        assert said == {result} and f"# static kernels: {result}\n" in plan, (said, plan)
        return {e.reason: e.text for e in c.call("Graphs/Explain", pb.ExplainRequest(graph=graph)).events}


def script(name, body):
    path = SCRATCH / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return path


def empty_dir(name):
    path = SCRATCH / name
    path.mkdir(mode=0o700)
    return path


def entries(store):
    return sorted((store / "entries").glob("*.static"))


def need_compiler():
    if not COMPILER:
        raise Skip("this machine has no C compiler")


def compiler_once():
    """Makes a compiler wrapper that compiles each source once, and copies the object from then on."""
    need_compiler()
    return script("once", f"""for arg; do
    case $last,$arg in
    -o,*) out=$arg ;;
    *,-DNGD_STATIC_SOURCE=*) made={SCRATCH}/made.$(echo "${{arg#*=}}" | tr -dc 0-9a-f) ;;
    esac
    last=$arg
done
[ -f "$made" ] && exec cp "$made" "$out"
{COMPILER} "$@" && cp "$out" "$made.new" && mv "$made.new" "$made"\n""")


@test("kernels are compiled in the background, kept, and taken from the store by a restarted daemon that cannot compile")
def kept():
    need_compiler()
    store, work = empty_dir("kept") / "store", empty_dir("work")
    # The key depends on the compiler. Its wrapper is the same file for both daemons, and counts its runs.
    ran = SCRATCH / "ran"
    compiler = script("counting", f'echo >>"{ran}"\nexec {compiler_once()} "$@"')
    options = (f"--store-dir={store}", f"--static-compiler={compiler}", f"--static-dir={work}")
    with Daemon(*options) as d:
        events = run(d, "compiled")
        assert events["static-kernels"] == "compiled" and "static-fallback" not in events, events
        until("the object is stored", lambda: len(entries(store)) == 1)
        listed = ctl(d, "cache", "list")
        assert "static" in listed, listed
        shown = ctl(d, "cache", "show", entries(store)[0].name)
        assert f"compiler {compiler}" in shown and "source " in shown, shown
        ctl(d, "cache", "verify")
        exported = SCRATCH / "exported"
        ctl(d, "cache", "export", str(exported), entries(store)[0].name)
        assert "machine code" in ctl(d, "cache", "import", str(exported), expect=1)
        ctl(d, "cache", "export", str(exported))  # all entries that may be imported
        ctl(d, "cache", "import", str(exported))
    assert ran.read_text() == "\n" and not list(work.iterdir())
    (store / "notes" / "hot").unlink()
    with Daemon(*options) as d:
        run(d, "cached")
        assert count(d, "compiled") == 0
    assert ran.read_text() == "\n"


@test("a damaged object is set aside and compiled again; without the cache nothing is read or written")
def damaged():
    need_compiler()
    store = empty_dir("damaged") / "store"
    options = (f"--store-dir={store}", f"--static-compiler={compiler_once()}")
    with Daemon(*options) as d:
        run(d, "compiled", UNCACHED)
        assert not entries(store)
        run(d, "compiled")
        until("the object is stored", lambda: len(entries(store)) == 1)
    (store / "notes" / "hot").unlink(missing_ok=True)
    entry = entries(store)[0]
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 4
    entry.write_bytes(data)
    with Daemon(*options) as d:
        run(d, "compiled")
        assert count(d, "cached") == 0 and len(list((store / "aside").glob("*.static*"))) == 1


@test("each rank of a group gets its static kernels: one is compiled, the other's are the same and in the store")
def ranks():
    need_compiler()
    devices = ("host:0", "host:1")
    options = (f"--store-dir={empty_dir('ranks') / 'store'}", f"--static-compiler={compiler_once()}", "--threads=1",
               *(f"--device={d}" for d in devices))
    with Daemon(*options) as d, Client(d) as c:
        group = c.call("Graphs/CreateGroup", pb.CreateGroupRequest(name="tp", devices=devices)).group
        bound = {device: weights(c, device) for device in devices}

        def join(**options):
            made = []
            for device in devices:
                request = pb.RegisterRequest(text=RANK, group=group, device=device)
                for name, buffer in bound[device].items():
                    request.bindings.add(name=name, buffer=buffer)
                for name, value in options.items():
                    request.options.add(name=name, value=value)
                made.append(c.call("Graphs/Register", request).graph)
            return c.call("Graphs/JoinRanks", pb.JoinRanksRequest(graphs=made, replicated=True)).graph

        generic = results(c, join())
        graph = join(**ON)
        assert results(c, graph) == generic
        until("both ranks have theirs", lambda: count(d, "compiled") + count(d, "cached") == 2, COMPILING)
        assert count(d, "compiled") == 1
        assert results(c, graph) == generic
        said, = (k.static_kernels for k in c.call("Graphs/Explain", pb.ExplainRequest(graph=graph)).keys)
        assert said in ("compiled", "cached"), said


@test("without a compiler, or with one that fails or gives something else, generic kernels go on and the reason is told")
def fallbacks():
    junk = 'while [ "$1" != -o ]; do shift; done\necho junk >"$2"'
    for result, setting, why in (("no_compiler", "off", "static-compiler"),
                                 ("no_compiler", "/nowhere/cc", "/nowhere/cc"),
                                 ("failed", script("failing", "echo 'error: on purpose' >&2; exit 3"), "on purpose"),
                                 ("rejected", script("junk", junk), "does not load")):
        with Daemon(f"--static-compiler={setting}") as d:
            events = run(d, result)
            assert why in events["static-fallback"] and events["static-fallback"].startswith(f"{result}: "), events
    with Daemon(f"--static-dir={SCRATCH / 'nowhere'}", f"--static-compiler={script('never', 'exit 0')}") as d:
        assert "nowhere" in run(d, "no_directory")["static-fallback"]


@test("a compiler that hangs is killed with all that it started, after its time and when the daemon stops")
def hanging():
    pid = SCRATCH / "pid"
    hangs = script("hanging", f'sleep 100000 &\necho $! >"{pid}.new"\nmv "{pid}.new" "{pid}"\nwait')

    def gone():
        try:
            state = open(f"/proc/{pid.read_text().strip()}/stat").read()
        except FileNotFoundError:
            return True
        return state.rsplit(")", 1)[1].split()[0] == "Z"

    with Daemon(f"--static-compiler={hangs}", "--static-timeout=1s") as d:
        assert "timeout" in run(d, "timeout")["static-fallback"]
        until("what it started is gone", gone)
    pid.unlink(missing_ok=True)  # the time may be over before the compiler has begun
    with Daemon(f"--static-compiler={hangs}") as d, Client(d) as c:
        results(c, c.register(TEXT, weights(c), ON).graph)
        until("it hangs", pid.exists)
    until("what it started is gone", gone)


@test("a compiler has its limits from its first moment, whatever it starts first, and nothing of the daemon's")
def limited():
    said = SCRATCH / "limits"
    body = f"""(exec cat /proc/self/limits) >"{said}.new"
ls -l /proc/self/fd >>"{said}.new"
grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status >>"{said}.new"
mv "{said}.new" "{said}"
echo 'error: enough' >&2; exit 1"""
    with Daemon(f"--static-compiler={script('limited', body)}", "--static-timeout=7s") as d:
        assert "enough" in run(d, "failed")["static-fallback"], "what it says is read"
    text = said.read_text()
    limits = {m[1].strip(): (m[2], m[3]) for m in re.finditer(r"^Max (.{21}) (\S+) +(\S+)", text, re.M)}
    assert limits["cpu time"] == ("8", "8") and limits["address space"] == (str(2 << 30),) * 2, limits
    assert limits["file size"] == (str(64 << 20),) * 2 and limits["core file size"] == ("0", "0"), limits
    # Two signals belong to the C library. A process that make started ignores one of them.
    signals = {m[1]: int(m[2], 16) & ~(3 << 31) for m in re.finditer(r"^Sig(Blk|Ign):\t([0-9a-f]+)$", text, re.M)}
    assert signals == {"Blk": 0, "Ign": 0}, text
    fds = re.findall(r" (\d+) -> (\S+)", text)
    assert {n for n, _ in fds} <= {"0", "1", "2", "3"} and not any("socket" in to or "anon" in to for _, to in fds), fds


main()
