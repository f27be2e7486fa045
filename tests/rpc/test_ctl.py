#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""npugraphctl for a new user: help, mistakes, no daemon, tables, --json, and shell completion."""
import math
import re
import shutil

from harness import *

MODEL = SOURCE / "examples" / "model"

if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")


def ctl(*arguments, address=None, env=None):
    line = [CTL, *(["--address", address] if address else []), *map(str, arguments)]
    clean = {k: v for k, v in os.environ.items() if k != "NPUGRAPH_ADDRESS"}
    return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, env={**clean, **(env or {})})


def commands():
    overview = ctl("--help").stdout.split("Commands:")[1].split("Options:")[0]
    return re.findall(r"^  ([a-z]+) ", overview, re.M)


@test("help: every command has a usage line and a sentence; mistakes are told in a line, with the usage, and status 2")
def usage():
    out = ctl("help")
    assert out.returncode == 0 and all(f"  {c} " in out.stdout for c in commands()), out.stdout
    for command in commands():
        for out in (ctl("help", command), ctl(command, "--help")):
            assert out.returncode == 0 and out.stdout.startswith(f"Usage: npugraphctl {command}") and not out.stderr, out
            assert " \n" not in out.stdout, out.stdout
    for arguments, says in ((["frobnicate"], "frobnicate"), (["--bogus"], "--bogus"), (["--address"], "--address needs a value"),
                            (["--timeout", "banana", "status"], "500ms"), (["status", "extra"], "no arguments"), (["load"], "directory"),
                            (["load", "a", "b"], "one directory"), (["quantize", "a", "b"], "--to int8, int4, w8a8 or fp8"), (["quantize", "a", "--to", "int2", "b"], "int8, int4, w8a8 or fp8"), (["quantize", "a", "--to", "w8a8", "--group", "32", "b"], "each row"),
                            (["quantize", "a", "--to", "int4", "--group", "33", "b"], "multiple of 32"), (["unload"], "name"), (["generate"], "--prompt"),
                            (["generate", "m", "--ids", "1", "--tokens", "x"], "--tokens"), (["graphs", "frob"], "digest"),
                            (["tokenize"], "tokenizer.json"), (["help", "frob"], "frob"), (["status", "--timeout"], "needs a value"),
                            (["load", "a", "--kv-policy", "swap"], "refuse, preempt"), (["trace", "stop", "--form", "svg"], "chrome, arrivals"),
                            (["trace", "stop", "--form", "unspecified"], "chrome, arrivals")):
        out = ctl(*arguments)  # no daemon is needed to find these
        assert out.returncode == 2 and not out.stdout and says in out.stderr, (arguments, out)
        assert len(out.stderr.splitlines()) == 2 and out.stderr.startswith("npugraphctl: "), out.stderr


@test("no daemon: the address, the reason and what to do; status 1")
def unreachable():
    (SCRATCH / "file").write_text("")
    for address, cause, hint in ((f"unix:{SCRATCH}/none", "No such file or directory", "is npugraphd running?"),
                                 (f"unix:{SCRATCH}/file", "Connection refused", "is npugraphd running?"),
                                 ("127.0.0.1:1", "Connection refused", "is npugraphd running?")):
        out = ctl("status", address=address)
        assert out.returncode == 1 and not out.stdout, out
        assert out.stderr.startswith(f"npugraphctl: cannot reach the daemon at {address}: {cause}; ") and hint in out.stderr, out.stderr
        assert out.stderr.count("\n") == 1 and "failed to connect to all addresses" not in out.stderr
    for address in ("somewhere", "host:", ":1", "unix:", "host:http"):
        out = ctl("status", address=address)
        assert out.returncode == 1 and f'"{address}" is no address' in out.stderr and "HOST:PORT" in out.stderr, out


@test("a daemon that goes away while a call is under way is told as such")
def gone():
    d = Daemon()
    child = subprocess.Popen([CTL, "--address", d.address, "drain", "--stay"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    child.communicate()
    d.kill()
    out = ctl("status", address=d.address)
    assert out.returncode == 1 and d.address in out.stderr, out


@test("every listing is a table for people and JSON for programs, empty and not; options may stand behind the command")
def listings(daemon):
    names = ["status", "devices", "models", "sessions", "groups", "shares", "sequences", "memory", "graphs"]
    for loaded in (False, True):
        if loaded:
            out = ctl("--quiet", "load", MODEL, "--name", "m", address=daemon.address)
            assert out.returncode == 0 and not out.stderr, out
        for name in names:
            table, before, behind = (ctl(*a) for a in (("--address", daemon.address, name), ("--address", daemon.address, "--json", name),
                                                       (name, "--json", "--address", daemon.address)))
            assert (table.returncode, before.returncode, behind.returncode) == (0, 0, 0), (table, before, behind)
            assert table.stdout.strip() and set(json.loads(before.stdout)) == set(json.loads(behind.stdout))
    sizes = [b["bytes"] for b in json.loads(ctl("memory", "--json", address=daemon.address).stdout)["buffers"]]
    assert len(sizes) > 50 and sizes == sorted(sizes, reverse=True)
    out = ctl("generate", "m", "--tokenizer", MODEL, "--prompt", "--json", "--tokens", "4", address=daemon.address)
    assert out.returncode == 0 and out.stdout.startswith("--json"), out
    say = lambda *more: ctl("--json", "generate", "m", "--tokenizer", MODEL, "--prompt", "In the beginning", "--tokens", "40", *more,
                            address=daemon.address)
    whole = json.loads(say().stdout)
    word = whole["text"][12:15]
    stopped = json.loads(say("--stop", "~~never~~", "--stop", word, "--priority", "high").stdout)
    assert stopped["text"] == whole["text"][:whole["text"].index(word)] and stopped["finish"] == "stop", stopped
    assert whole["tokens"][:len(stopped["tokens"])] == stopped["tokens"] and len(stopped["tokens"]) < 40
    given = json.loads(say("--logprobs", "3").stdout)
    assert given["tokens"] == whole["tokens"] == [p["token"] for p in given["logprobs"]]
    assert all(len(p["top"]) == 3 and p["logprob"] <= 0 and p["top"][0]["logprob"] >= p["logprob"] for p in given["logprobs"])
    out = say("--stop", "a" * 100_000)
    assert out.returncode == 1 and "longer than 1024 bytes" in out.stderr, out
    for bad in (["--priority", "urgent"], ["--logprobs", "21"], ["--stop"]):
        assert say(*bad).returncode == 2
    first = " " + whole["text"].split()[0]
    banned = json.loads(say("--bad-word", first, "--frequency-penalty", "0.5", "--min-tokens", "40").stdout)
    assert whole["text"].startswith(first) and not banned["text"].startswith(first) and len(banned["tokens"]) == 40, banned
    biased = json.loads(say("--logit-bias", "77=1000", "--repetition-penalty", "1.1", "--min-p", "0.1", "--presence-penalty", "-1").stdout)
    assert set(biased["tokens"]) == {77}
    hot = ("--temperature", "1.5", "--seed", "9", "--typical-p", "0.9")
    best = json.loads(say(*hot, "--n", "2", "--best-of", "5").stdout)["choices"]
    every = json.loads(say(*hot, "--n", "5", "--logprobs", "0").stdout)["choices"]
    assert len(best) == 2 and best == [{k: c[k] for k in best[0]} for c in every[:2]] and len({c["text"] for c in every}) == 5
    assert all(math.isclose(c["mean_logprob"], sum(p["logprob"] for p in c["logprobs"]) / len(c["logprobs"]), rel_tol=1e-4) for c in every)
    assert json.loads(say(*hot).stdout)["tokens"] in [c["tokens"] for c in every]  # the first seed's
    shown = ctl("generate", "m", "--ids", "5,6", "--tokens", "3", *hot, "--n", "2", address=daemon.address)
    assert shown.returncode == 0 and shown.stdout.startswith("[1: log-probability -") and "\n\n[2: " in shown.stdout, shown
    for bad, text in ((["--n", "2"], "--temperature"), ([*hot, "--n", "3", "--best-of", "2"], "at least"), (["--n", "17"], "--n cannot"),
                      ([*hot, "--n", "2", "--timing"], "one answer"), (["--logit-bias", "5"], "cannot be 5"), (["--min-tokens", "-1"], "cannot be"),
                      (["--bad-word", ""], "--bad-word"), (["--min-p", "x"], "cannot be x")):
        out = say(*bad)
        assert out.returncode == 2 and text in out.stderr, out
    out = say("--min-p", "2")
    assert out.returncode == 1 and "min_p is 2" in out.stderr and "SAMPLING" in out.stderr, out
    out = ctl("unload", "other", address=daemon.address)
    assert out.returncode == 1 and "loaded: m" in out.stderr and "[MODEL_NOT_FOUND]" in out.stderr, out


def on_terminal(daemon, columns, *arguments):
    """Returns what npugraphctl prints on a terminal of that width."""
    master, slave = open_terminal()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "LC_ALL": "C.UTF-8"}
    child = subprocess.Popen([CTL, "--address", daemon.address, *arguments], stdout=slave, stderr=subprocess.PIPE, env=env)
    os.close(slave)
    text = b""
    with contextlib.suppress(OSError):
        while piece := os.read(master, 65536):
            text += piece
    os.close(master)
    assert child.wait(PATIENCE) == 0, child.stderr.read()
    child.stderr.close()
    return text.decode().splitlines()


@test("config set and unset change an option and say what it is; mistakes are told")
def config(daemon):
    run = lambda *a: ctl("--json", "config", *a, address=daemon.address)
    row = lambda out: json.loads(out.stdout)["options"][0]
    assert row(run("set", "drain-grace", "9s")) == {"name": "drain-grace", "value": "9s", "source": f"set by uid:{os.getuid()}", "changes_by": "set"}
    assert [o["changes_by"] for o in json.loads(run("diff").stdout)["options"] if o["name"] == "drain-grace"] == ["unset"]
    assert row(run("set", "weight", "uid:1=7", "uid:2=8"))["value"] == "uid:1=7, uid:2=8"
    assert row(run("unset", "weight"))["value"] == "" and row(run("unset", "drain-grace"))["value"] != "9s"
    rows = lambda out: {o["name"]: o["value"] for o in json.loads(out.stdout)["options"]}
    assert rows(run("set", "drain-grace=9s", "weight=uid:1=7", "weight=uid:2=8")) == {"drain-grace": "9s", "weight": "uid:1=7, uid:2=8"}
    out = run("set", "drain-grace=8s", "log-level=loud")
    assert out.returncode == 1 and "allowed: one of" in out.stderr and rows(run("show", "drain-grace")) == {"drain-grace": "9s"}
    assert rows(run("unset", "weight", "drain-grace")).keys() == {"weight", "drain-grace"}
    for arguments, status, text in ((["set"], 2, "needs an option"), (["set", "drain-grace=9s", "merge", "no"], 2, "is not OPTION=VALUE"),
                                    (["set", *(f"x{n}=1" for n in range(65))], 2, "at most 64 options"), (["unset"], 2, "needs an option"), (["sett", "x"], 2, "show, diff, set and unset"),
                                    (["set", "slots", "2"], 1, "slots needs a restart"), (["set", "models-dir", "/"], 1, "daemon's files alone"),
                                    (["set", "log-level", "loud"], 1, "allowed: one of"), (["set", "log-levl", "info"], 1, "did you mean log-level?")):
        out = run(*arguments)
        assert out.returncode == status and text in out.stderr and not out.stdout, (arguments, out)


@test("logs --follow goes on with the next daemon, and says that one has started")
def logs_of_two_daemons():
    start = lambda: Daemon(dir=SCRATCH / "two")
    first = start()
    child = subprocess.Popen([CTL, "--address", first.address, "logs", "--follow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while not child.stdout.readline().endswith(": ready\n"):
            assert child.poll() is None
        first.kill()
        with start():
            while not child.stdout.readline().endswith(": ready\n"):
                assert child.poll() is None, child.stderr.read()
            assert "has started again" in child.stderr.readline()
    finally:
        child.kill()
        child.communicate()


@test("logs prints the daemon's log as the daemon writes it; --follow goes on, and says what was lost")
def logs(daemon):
    lines = ctl("logs", address=daemon.address).stdout.splitlines()
    assert lines and lines == daemon.log().splitlines()[:len(lines)]
    objects = [json.loads(x) for x in ctl("logs", "--json", "--level", "notice", "--since", "1h", address=daemon.address).stdout.splitlines()]
    assert objects and all(list(o) == ["time", "level", "component", "text"] for o in objects)
    assert {o["level"] for o in objects} <= {"error", "warning", "notice"}
    for wrong in ("yesterday", "2026-11-28", "2026-11-28T10:28:00"):
        assert ctl("logs", "--since", wrong, address=daemon.address).returncode == 2
    assert ctl("logs", "--since", "9999-01-01T00:00:00Z", address=daemon.address).stdout == ""
    assert ctl("logs", "--since", "2026-01-01T00:00:00.5+01:00", address=daemon.address).stdout.splitlines()[:len(lines)] == lines
    assert ctl("logs", "--since", lines[-1].split()[0], address=daemon.address).stdout.splitlines()[0] in lines
    out = ctl("logs", "--level", "loud", address=daemon.address)
    assert out.returncode == 1 and "allowed: error, warning" in out.stderr
    child = subprocess.Popen([CTL, "--address", daemon.address, "logs", "--follow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for _ in lines:
            child.stdout.readline()
        with Client(daemon) as c:
            with contextlib.suppress(grpc.RpcError):
                c.call("Sequences/UnloadModel", pb.UnloadModelRequest(name="followed"))
        while "followed" not in child.stdout.readline():
            assert child.poll() is None
        os.kill(child.pid, signal.SIGSTOP)
        with Client(daemon, session=False) as c:
            for _ in range(900):
                refused("CONFIG", "INVALID_ARGUMENT", c.call, "Admin/SetConfig", pb.SetConfigRequest(name="y" * 200))
        os.kill(child.pid, signal.SIGCONT)
        assert re.fullmatch(r"npugraphctl: [0-9]+ lines were lost: .*\n", child.stderr.readline())
    finally:
        child.kill()
        child.communicate()


@test("on a narrow terminal a row stays a line, and colours come only there")
def terminal(daemon):
    lines = on_terminal(daemon, 60, "memory")
    assert len(lines) > 5 and max(map(len, lines)) <= 60, max(lines, key=len)
    assert "\x1b" not in ctl("devices", address=daemon.address).stdout


@test("on a narrow terminal sentences stand below their row and are whole; where there is room, they stay in it")
def sentences(daemon):
    flat = lambda lines: " ".join(" ".join(lines).split())
    with Client(daemon) as c:
        g = c.register('npugraph 1\ngraph "\\u001b[2J" {\n  sym B 1..8\n  input %x : f32[B]\n  return "x" = %x\n}').graph
        for _ in range(2):
            refused("GUARD_FAILED", "FAILED_PRECONDITION", c.replay, g, [b""], [9])
        why = "GUARD_FAILED: symbol B = 9 is outside 1..8 (guard B <= 8)"
        lines = on_terminal(daemon, 80, "--color", "never", "explain")
        assert max(map(len, lines)) <= 80 and why in flat(lines) and not any("\x1b" in line for line in lines), lines
        assert any(line.startswith("    GUARD_FAILED") for line in lines), lines
        assert any(line.endswith(why) and "refused-guard" in line for line in on_terminal(daemon, 200, "explain"))
    told = json.loads(ctl("--json", "options", address=daemon.address).stdout)["options"]
    lines = on_terminal(daemon, 80, "--color", "never", "options")
    assert max(map(len, lines)) <= 80, max(lines, key=len)
    assert all(o["effect"] in flat(lines) and o["allowed"] in flat(lines) for o in told)
    passes = next(o["allowed"] for o in told if o["name"] == "disable_passes").partition(": ")[2].split(", ")
    assert len(passes) == len(set(passes)) > 5, passes
    patterns = json.loads(ctl("--json", "patterns", address=daemon.address).stdout)["patterns"]
    assert all(p["doc"] in flat(on_terminal(daemon, 80, "--color", "never", "patterns")) for p in patterns[-1:])


@test("on a narrow terminal columns that have no room stand below their row, by their titles")
def narrow(daemon):
    with Client(daemon) as c:
        c.register('npugraph 1\ngraph "a graph with a name" {\n  sym B 1..8\n  input %x : f32[B,3]\n  return "x" = %x\n}')
        for command, row, below in (("graphs", "a graph with a name", ("POOL", "MERGED")), ("shares", "", ("BYTES", "KV BLOCKS"))):
            wide = on_terminal(daemon, 300, "--color", "never", command)
            assert all(title in wide[0] for title in below) and any(row in line for line in wide[1:]), wide
            for columns in (80, 50):
                lines = on_terminal(daemon, columns, "--color", "never", command)
                assert max(map(len, lines)) <= columns, lines
                assert not any(title in lines[0] for title in below), lines
                stacked = " ".join(line.strip() for line in lines[1:] if line.startswith("    "))  # a title may be wrapped
                assert all(title in stacked for title in below), lines
                assert " ".join(wide[-1].split()).split()[0] in "".join(lines[-6:-1]), (wide, lines)


PATTERN = '''pattern "double" {
  version 3
  doc "x + x as a product"
  dim N
  input %x : f32[N]
  source { %y = aten.add.Tensor(%x, %x) return %y }
  replacement { %y = aten.mul.Scalar(%x) {other=2} return %y }
}
'''
DOUBLE = '''npugraph 1
graph "doubled" {
  sym B 1..8
  input %x : f32[B]
  stream "side" {
    %a = aten.exp(%x)
  }
  %y = aten.add.Tensor(%x, %x)
  return "a" = %a, "y" = %y
}
'''


@test("options and patterns: listed with what they may be, added, shown, used, removed; what is wrong is told in words")
def tables(daemon):
    run = lambda *a: ctl(*a, address=daemon.address)
    options = {o["name"]: o for o in json.loads(run("--json", "options").stdout)["options"]}
    assert options["capture_limit"]["default"] == "64" and options["capture_limit"]["allowed"] == "1..9223372036854775807", options["capture_limit"]
    assert "remove_noops" in options["disable_passes"]["allowed"] and {o["in_key"] for o in options.values()} == {True, False}
    assert all(name in run("options").stdout for name in options)
    file = SCRATCH / "patterns.txt"
    file.write_text(PATTERN)
    out = run("patterns", "add", file)
    assert out.returncode == 0 and "double" in out.stdout, out
    listed = {p["name"]: p for p in json.loads(run("--json", "patterns").stdout)["patterns"]}
    assert listed["double"]["version"] == 3 and listed["add_rms_norm"]["owner"] == "built-in", listed["double"]
    assert run("patterns", "show", "double").stdout.strip().endswith(PATTERN.strip())
    graph = SCRATCH / "doubled.txt"
    graph.write_text(DOUBLE)
    assert run("replay", graph, "--symbol", "B=3").returncode == 0
    file.write_text(PATTERN.replace("other=2", "other=y"))
    out = run("patterns", "add", file)
    assert out.returncode == 1 and "[GRAPH_SYMBOL]" in out.stderr, out
    assert run("patterns", "remove", "double").returncode == 0
    out = run("patterns", "remove", "double")
    assert out.returncode == 1 and "[NOT_FOUND]" in out.stderr, out


@test("capture --dry-run: bytes, streams, kernels and what is shared, of the options given, and nothing is captured")
def dry_run(daemon):
    run = lambda *a: ctl(*a, address=daemon.address)
    graph = SCRATCH / "dry.txt"
    graph.write_text(DOUBLE)
    out = run("capture", graph, "--symbol", "B=3", "--dry-run")
    fields = dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in out.stdout.splitlines() if "  " in line)
    assert out.returncode == 0 and {"Kernels", "Streams", "Pool", "Live at once", "Pool is", "Shared by"} <= set(fields), out
    assert (fields["Kernels"], fields["Streams"], fields["Pool is"], fields["Captured"]) == ("2", "2", "shared by the device's graphs", "no (dry run)"), fields
    told = json.loads(run("--json", "capture", graph, "--symbol", "B=3", "--dry-run", "--option", "use_graph_pool=mine").stdout)
    assert told["pool_bytes"] >= told["live_bytes"] > 0 and "mine" in told["pool"] and told["executables"] == 0, told
    told = json.loads(run("--json", "capture", graph, "--symbol", "B=3", "--option", "force_eager=true").stdout)
    assert told["captured"] == "no (force_eager)" and told["kernels"] == 2 and told["executables"] == 0, told
    out = run("capture", graph, "--symbol", "B=9", "--dry-run")
    assert out.returncode == 1 and "B = 9" in out.stderr, out
    with Client(daemon) as c:
        assert not c.call("Graphs/Explain", pb.ExplainRequest(graph=c.register(DOUBLE).graph)).keys


@test("replay takes integers as they are, and prints them so; what does not fit its dtype, and what is given twice, is refused")
def exact_numbers(daemon):
    text = SCRATCH / "integers.txt"
    text.write_text('npugraph 1\ngraph "integers" {\n  sym N 1..4\n  input %x : i64[N]\n  input %b : bool[N]\n  input %i : i8[N]\n'
                    '  %y = aten.where.self(%b, %x, %x)\n  %z = aten._to_copy(%i) {dtype=i64}\n  return "y" = %y, "z" = %z\n}\n')

    def run(x="1", b="0", i="0", *more):
        return ctl("--json", "replay", text, "--symbol", "N=1", "--input", f"x={x}", "--input", f"b={b}", "--input", f"i={i}", *more,
                   address=daemon.address)
    for x in ("9223372036854775807", "-9223372036854775808", "9007199254740993", "1234567"):
        out = run(x, "1", "-128")
        assert out.returncode == 0 and [o["values"] for o in json.loads(out.stdout)["outputs"]] == [x, "-128"], out
    for bad in (("9223372036854775808",), ("1.5",), ("1e3",), ("1", "2"), ("1", "1", "128"), ("1", "1", "-129"), ("1,2",)):
        out = run(*bad)
        assert out.returncode == 1 and "does not fill" in out.stderr, (bad, out)
    for twice in (("--symbol", "N=2"), ("--input", "x=3")):
        out = run("1", "1", "1", *twice)
        assert out.returncode == 2 and "each name once" in out.stderr, (twice, out)
    for path, says in ((SCRATCH, "Is a directory"), ("/dev/null", "does not fill"), ("/dev/zero", "more than 8 bytes"), (SCRATCH / "none", "No such file")):
        out = run(f"@{path}")
        assert out.returncode == 1 and says in out.stderr, (path, out)


@test("what a command line misspells is refused with the nearest name, before any daemon is asked where that is possible")
def misspelt(daemon):
    for arguments, says in ((["statsu"], "there is no command statsu (did you mean stats?)"),
                            (["help", "sttaus"], "did you mean status?"), (["xyzzy"], "there is no command xyzzy\n"),
                            (["status", "--wiat"], "unknown option --wiat (did you mean --wait?)"),
                            (["--jsom", "status"], "did you mean --json?"), (["models", "--bogus"], "unknown option --bogus\n"),
                            (["generate", "m", "--tokenz=3"], "unknown option --tokenz=3 (did you mean --tokens?)"),
                            (["generate", "m", "--ids", "1", "--tokens", "0"], "--tokens cannot be 0\n"),
                            (["load", "a", "--max-context", "100000000"], "--max-context is 100000000; it takes a number from 1 to 16777216")):
        out = ctl(*arguments)
        assert out.returncode == 2 and not out.stdout and says in out.stderr, (arguments, out)
    text = SCRATCH / "named.txt"
    text.write_text('npugraph 1\ngraph "named" {\n  sym N 1..4\n  param %w : f32[N] = "fc.weight"\n  input %xs : f32[N]\n  host %h : i64[1]\n'
                    '  %y = aten.mul.Tensor(%xs, %w)\n  return "y" = %y\n}\n')
    run = lambda *more: ctl("replay", text, "--symbol", "N=2", *more, address=daemon.address)
    for more, says in ((("--input", "xz=ones"), "--input: the graph has no input xz (did you mean xs?)"),
                       (("--input", "fc.wieght=ones"), "no input fc.wieght (did you mean fc.weight?)"),
                       (("--input", "other=ones"), "the graph has no input other\n"), (("--symbol", "M=1"), "no symbol M (did you mean N?)"),
                       (("--host", "g=1"), "no host g")):
        out = run(*more)
        assert out.returncode == 2 and not out.stdout and says in out.stderr, (more, out)


@test("with --json an error is an object on one line too, with its reason")
def json_errors(daemon):
    for arguments, address, code, reason in ((["status"], f"unix:{SCRATCH}/none", 1, "UNREACHABLE"), (["unload", "other"], None, 1, "MODEL_NOT_FOUND"),
                                             (["load"], None, 2, "USAGE"), (["replay", "/none"], None, 1, "")):
        out = ctl("--json", *arguments, address=address or daemon.address)
        error = json.loads(out.stderr)["error"]
        assert out.returncode == code and not out.stdout and error["reason"] == reason and error["message"], out
        assert out.stderr.count("\n") == 1


@test("status --wait returns when the daemon serves, and says why it does not when the time is over")
def status_waits():
    address = f"unix:{SCRATCH}/later"
    waiting = subprocess.Popen([CTL, "--address", address, "--json", "status", "--wait"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with Daemon(f"--listen={address}", listen=None):
        out, errors = waiting.communicate(timeout=PATIENCE)
    assert waiting.returncode == 0 and json.loads(out)["state"] == "serving" and not errors, (out, errors)
    out = ctl("--timeout", "100ms", "status", "--wait", address=address)
    assert out.returncode == 1 and "cannot reach the daemon" in out.stderr, out


@test("where a file is taken, - is standard input")
def standard_input(daemon):
    run = lambda text, *arguments: subprocess.run([CTL, "--address", daemon.address, "--json", *map(str, arguments)], input=text,
                                                  capture_output=True, timeout=PATIENCE)
    text = b'npugraph 1\ngraph "g" {\n  input %x : i8[4]\n  %y = aten._to_copy(%x) {dtype=i64}\n  return "y" = %y\n}\n'
    out = run(text, "replay", "-", "--input", "x=1,2,3,4")
    assert json.loads(out.stdout)["outputs"][0]["values"] == "1 2 3 4", out
    assert json.loads(run(text, "capture", "-", "--dry-run").stdout)["graph"] == "g"
    (SCRATCH / "g").write_bytes(text)
    assert json.loads(run(b"\1\2\3\4", "replay", SCRATCH / "g", "--input", "x=@-").stdout)["outputs"][0]["values"] == "1 2 3 4"
    out = run(b"nonsense", "patterns", "add", "-")
    assert out.returncode == 1 and b"expected 'pattern'" in out.stderr, out


@test("memory --totals has the sums of what memory lists, by device and kind")
def totals(daemon):
    with Client(daemon) as c:
        for size in (1 << 20, 3 << 20):
            c.allocate(size, label="mine")
        listed = json.loads(ctl("--json", "memory", address=daemon.address).stdout)["buffers"]
        sums = json.loads(ctl("--json", "memory", "--totals", address=daemon.address).stdout)["totals"]
    assert len(listed) >= 2, listed
    *by_kind, everything = sums
    for row in by_kind:
        same = [b["bytes"] for b in listed if (b["device"], b["kind"]) == (row["device"], row["kind"])]
        assert row["bytes"] == sum(same) and row["holders"] == len(same), (row, same)
    assert everything["bytes"] == sum(b["bytes"] for b in listed) == sum(r["bytes"] for r in by_kind) >= 4 << 20, sums


@test("a graph that load made and the daemon refuses is said to be load's own, not the user's text")
def refused_graph(daemon):
    families = SCRATCH / "families"
    families.mkdir()
    decoder = (SOURCE / "client/hf/families/decoder.lua").read_text()
    (families / "decoder.lua").write_text(decoder.replace('"aten.silu"', '"aten.sila"'))
    out = ctl("--quiet", "load", MODEL, "--name", "broken", address=daemon.address, env={"NPUGRAPH_FAMILIES": str(families)})
    assert out.returncode == 1, out
    assert "the prefill graph that was made for the model broken, which is a defect of this library" in out.stderr, out
    assert re.search(r": line \d+, column \d+: there is no operator aten\.sila", out.stderr), out


@test("bash completes commands, their options, models' names and files")
def completion(daemon):
    if not shutil.which("bash"):
        raise Skip("bash is not installed")
    ctl("--quiet", "load", MODEL, "--name", "bible", address=daemon.address)
    # The completion waits only briefly for a daemon's answer; here it may take long.
    program = SCRATCH / "patient"
    program.write_text(f'#!/bin/sh\nexec "{CTL}" "$@" --timeout {PATIENCE:.0f}s\n')
    program.chmod(0o700)

    def complete(*words):
        script = f'''
# What the bash-completion package gives to completions.
_init_completion() {{ words=("${{COMP_WORDS[@]}}"); cword=$COMP_CWORD; cur=${{words[cword]}}; prev=${{words[cword - 1]}}; }}
_filedir() {{ :; }}
source {SOURCE}/client/ctl/completion/npugraphctl
COMP_WORDS=({program} {" ".join(f"'{w}'" for w in words)}); COMP_CWORD={len(words)}; COMP_LINE="${{COMP_WORDS[*]}}"; COMP_POINT=${{#COMP_LINE}}
_npugraphctl; printf "%s\\n" "${{COMPREPLY[@]}}"'''
        out = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True,
                             env={**os.environ, "NPUGRAPH_ADDRESS": daemon.address})
        return out.stdout.split()

    assert set(commands()) <= set(complete("")) and "status" in complete("sta")
    assert complete("--addr") == ["--address"] and complete("drain", "--g") == ["--grace"]
    assert "bible" in complete("unload", "bi") and "bible" in complete("--json", "generate", "bi")
    for command in commands():  # every option of the help is completed, and no other
        known = set(re.findall(r"--[a-z-]+", ctl("help", command).stdout.split("\n")[0]))
        offered = {c for c in complete(command, "--") if c.startswith("--")}
        assert offered == known, (command, offered ^ known)


@test("fish completes commands, their options and the values of options")
def completion_fish():
    if not shutil.which("fish"):
        raise Skip("fish is not installed (scripts/deps.sh ci)")

    def complete(*lines):
        """Returns what each line can be continued with."""
        script = f"source {SOURCE}/client/ctl/completion/npugraphctl.fish\n" + "".join(f"complete -C 'npugraphctl {l}'\necho =\n" for l in lines)
        out = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, timeout=PATIENCE,
                             env={**os.environ, "HOME": str(SCRATCH), "PATH": f"{os.path.dirname(CTL)}:{os.environ['PATH']}"})
        return [{l.split("\t")[0] for l in part.splitlines() if l} for part in out.stdout.split("=\n")[:-1]]

    assert complete("", "load --kv-dtype ", "trace st") == [{*commands(), "help"}, {"auto", "int8", "fp8", "f32", "f16", "bf16"}, {"start", "stop"}]
    names = commands()
    for command, offered in zip(names, complete(*(f"{c} --" for c in names))):
        known = set(re.findall(r"--[a-z-]+", ctl("help", command).stdout.split("\n")[0]))
        assert known <= offered, (command, known - offered)


ZSH = """
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "fpath=($1 \\$fpath); autoload -Uz compinit; compinit -u -D; PS1='rea''dy '"
zpty -r z line '*ready *'
zpty -w -n z "npugraphctl $2"$'\\t\\t'
# What was typed may come back apart from what completes it.
for i in {1..2800}; do sleep 0.01; zpty -r -t z line && print -rn -- "$line" && all+=$line; [[ $all = *$3* ]] && break; done
"""


@test("zsh completes commands and the values of options")
def completion_zsh():
    if not shutil.which("zsh"):
        raise Skip("zsh is not installed (scripts/deps.sh ci)")
    for line, want in (("rel", "npugraphctl reload"), ("load --kv-dtype b", "bf16"), ("drain --gr", "--grace"), ("completion f", "fish")):
        out = subprocess.run(["zsh", "-f", "-c", ZSH, "zsh", str(SOURCE / "client/ctl/completion"), line, want], capture_output=True, text=True,
                             timeout=PATIENCE, env={**os.environ, "TERM": "dumb", "HOME": str(SCRATCH)})
        assert want in out.stdout, (line, out)


if __name__ == "__main__":
    main(f"--models-dir={SOURCE / 'examples'}")
