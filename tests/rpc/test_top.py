#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Use of the devices: Admin.ListShares, the counters of sessions, and npugraphctl shares and top."""
import fcntl
import re
import select
import struct
import termios
import threading

from harness import *

MODEL = SOURCE / "examples" / "model"
TEXT = """npugraph 1
graph "top" {
  param %w : f32[512,512] = "w"
  input %x : f32[64,512]
  %a = aten.linear(%x, %w)
  %b = aten.linear(%a, %w)
  return "y" = %b
}"""
INPUT = struct.pack("<f", 1.0) * (64 * 512)
REPLAYS = 20
INTERVAL = "300ms"

if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")


def ctl(daemon, *arguments):
    out = subprocess.run([CTL, "--quiet", "--address", daemon.address, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert out.returncode == 0, out
    return out.stdout


def load(daemon):
    with Client(daemon, session=False) as c:
        if not c.call("Sequences/ListModels", pb.ListModelsRequest()).models:
            ctl(daemon, "load", str(MODEL), "--name", "m")


def shares(c):
    """Returns the shares without the daemon's own."""
    own, *clients = c.call("Admin/ListShares", pb.ListSharesRequest()).shares
    assert own.identity == "npugraphd", own
    return clients


def sessions(c):
    return {s.session: s for s in c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions}


def prepare(c):
    """Captures a graph, and returns a function that replays it n times."""
    buffer = c.allocate(512 * 512 * 4)
    c.write(buffer, struct.pack("<f", 0.5) * (512 * 512))
    graph = c.register(TEXT, {"w": buffer}).graph
    c.replay(graph, [INPUT])

    def run(n):
        for _ in range(n):
            c.replay(graph, [INPUT])
    return run


@contextlib.contextmanager
def load_of(fn):
    """Calls fn again and again on a separate thread, at least once."""
    stop = threading.Event()
    errors = []

    def loop():
        try:
            fn()
            while not stop.is_set():
                fn()
        except Exception as error:  # reported by the test, not only printed
            errors.append(error)
    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not errors, errors


def generation(c):
    def fn():
        opened = c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[5, 6, 7]))
        for _ in c.call("Sequences/Generate", pb.GenerateRequest(sequence=opened.sequence, max_tokens=200, ignore_stop=True)):
            pass
        c.call("Sequences/Close", pb.CloseRequest(sequence=opened.sequence))
    return fn


@test("two sessions of one identity have one share: its weight and limit as configured, its device time that of both")
def one_share():
    with Daemon(f"--weight=uid:{os.getuid()}=300", "--queue-limit-per-identity=77") as d, Client(d) as a, Client(d) as b:
        first = shares(a)
        assert [(s.identity, s.weight, s.queue_limit, s.waiting, s.device_us) for s in first] == [(f"uid:{os.getuid()}", 300, 77, 0, 0)], first
        for c in (a, b):
            prepare(c)(REPLAYS)
        share, = shares(b)
        of = sessions(b)
        used = [of[c.id].device_us for c in (a, b)]
        assert min(used) > 0 and [of[c.id].runs for c in (a, b)] == [REPLAYS + 1] * 2, of
        # Each value is rounded down to a microsecond.
        assert abs(share.device_us - sum(used)) <= 2, (share, used)
        own, row = d.stats()["shares"]
        assert (row["identity"], row["weight"], row["queue_limit"], row["waiting"]) == (share.identity, 300, 77, 0)
        assert abs(row["device_s"] - share.device_us / 1e6) < 2e-6, (row, share)
        own, printed = json.loads(ctl(d, "shares", "--json"))["shares"]
        wanted = {"identity": share.identity, "weight": 300, "waiting": 0, "queue_limit": 77, "device_ms": share.device_us // 1000}
        assert wanted.items() <= printed.items() and printed["replays"] == share.replays, printed
        table = ctl(d, "shares").splitlines()
        assert table[0].split()[:6] == ["IDENTITY", "WEIGHT", "WAITING", "MAX", "WAITING", "DEVICE"] and table[2].split()[:4] == [share.identity, "300", "0", "77"]


@test("an identity's share goes with its last session; the daemon's own stays")
def last_session():
    with Daemon() as d, Client(d, session=False) as c:
        assert not shares(c)
        with Client(d), Client(d):
            assert len(shares(c)) == 1
        until("the share goes", lambda: not shares(c))
        assert [s["identity"] for s in d.stats()["shares"]] == ["npugraphd"]


@test("a session is charged its part of steps that it shares, for generations too")
def parts():
    with Daemon(f"--models-dir={MODEL}") as d:
        load(d)
        with Client(d) as a, Client(d) as b:
            before = shares(a)[0].device_us  # time of the session that loaded the model, if it still exists
            with load_of(generation(a)), load_of(generation(b)):
                time.sleep(0.3)
            of = sessions(a)
            assert min(of[c.id].device_us for c in (a, b)) > 0 and min(of[c.id].runs for c in (a, b)) > 10, of
            used = of[a.id].device_us + of[b.id].device_us
            assert abs(shares(a)[0].device_us - before - used) <= 3, (shares(a), before, used)


@contextlib.contextmanager
def top_of(daemon, interval):
    """Returns a function that returns the next update of npugraphctl top --json."""
    child = subprocess.Popen([*END_WITH_US, CTL, "--address", daemon.address, "top", "--interval", interval, "--json"],
                             stdout=subprocess.PIPE, text=True)
    try:
        yield lambda: json.loads(child.stdout.readline())
    finally:
        child.kill()
        child.communicate()


def check_look(look):
    """Checks what holds for each update, whatever happened in its interval."""
    device, = look["devices"]
    assert 0 <= device["busy"] <= 1 and device["state"] == "healthy" and 0 < device["used_bytes"] <= device["memory_bytes"]
    assert 0 <= device["bubble"] <= 1
    model, = look["models"]
    assert model["name"] == "m" and model["tokens_per_s"] >= 0 and 0 <= model["kv_used"] <= 1
    own, share = look["shares"]
    assert share["share"] <= 1 and own["share"] == 0
    used = [s["device_us"] for s in look["sessions"]]
    assert used == sorted(used, reverse=True) and sum(s["share"] for s in look["sessions"]) <= 1 + 1e-6, look
    assert all(0 <= row["p50_us"] <= row["p90_us"] <= row["p99_us"] for row in look["latency"]), look


def saw_all(look):
    """Returns whether both clients worked in the interval. Then the update must show all of that."""
    by_name = {s["client_name"]: s for s in look["sessions"]}
    if not (by_name["talker"]["runs_per_s"] > 0 and by_name["runner"]["runs_per_s"] > 0):
        return False
    share = look["shares"][1]
    assert look["devices"][0]["busy"] > 0 and share["share"] == 1 and share["device_us"] > 0, look
    assert by_name["idler"]["device_us"] == by_name["idler"]["runs_per_s"] == 0, look
    assert 0.5 < sum(s["share"] for s in look["sessions"]), look
    return True


@test("top --json counts the tokens of generations, the replays, the device's time and whose it was")
def plausible(daemon):
    load(daemon)
    with Client(daemon, name="talker") as talker, Client(daemon, name="runner") as runner, Client(daemon, name="idler") as idler:
        run = prepare(runner)
        looks = []

        def enough(next_look):
            look = next_look()
            check_look(look)
            looks.append(look)
            # Each counter is read at another moment, and a replay counted in one update may have begun in the one before. So the sums are compared.
            return sum(map(saw_all, looks)) >= 2 and all(sum(look[key] for look in looks) > 0 for key in ("tokens_per_s", "replays_per_s")) \
                and sum(look["models"][0]["tokens_per_s"] for look in looks) > 0 \
                and any(row["name"] == "replay" and row["count"] > 0 for look in looks for row in look["latency"])

        with load_of(generation(talker)), load_of(lambda: run(5)):
            before = daemon.stats()
            began = time.monotonic()
            with top_of(daemon, INTERVAL) as next_look:
                until("both have worked in two intervals", lambda: enough(next_look))
            took = time.monotonic() - began
            after = daemon.stats()
        assert all(look["interval_s"] >= 0.3 for look in looks) and sum(look["interval_s"] for look in looks) <= took, (took, looks)
        # The two updates cannot show more than what happened around them.
        for key, total in (("replays_per_s", "replays_total"), ("captures_per_s", "captures_total")):
            counted = sum(look[key] * look["interval_s"] for look in looks)
            assert counted <= after[total] - before[total] + 0.5, (key, counted, before[total], after[total])
        tokens = sum(look["models"][0]["tokens_per_s"] * look["interval_s"] for look in looks)
        assert tokens <= after["tokens"]["decode_total"] - before["tokens"]["decode_total"] + 0.5
        assert sessions(idler)[idler.id].runs == 0


@test("captures of the interval are counted, and of an idle one nothing")
def captures(daemon):
    with Client(daemon) as c:
        with top_of(daemon, "200ms") as next_look:
            looks = [next_look()]
            graph = c.register(TEXT.replace('"top"', '"late"').replace("param %w", "input %w").replace(' = "w"\n', "\n")).graph
            c.call("Graphs/Capture", pb.CaptureRequest(graph=graph))
            counted = lambda look: round(look["captures_per_s"] * look["interval_s"])
            until("top has seen the capture", lambda: looks.append(next_look()) or counted(looks[-1]))
            looks.append(next_look())
        assert [counted(look) for look in looks] == [0] * (len(looks) - 2) + [1, 0], looks
        assert [row["count"] for look in looks for row in look["latency"] if row["name"] == "capture"] == [1], looks
        idle = json.loads(ctl(daemon, "top", "--interval", "100ms", "--count", "1", "--json"))
        assert idle["captures_per_s"] == idle["tokens_per_s"] == idle["devices"][0]["busy"] == 0
        assert [row["name"] for row in idle["latency"]] in ([], ["call"])


@test("not on a terminal, updates follow one another as text without escapes; mistakes are refused")
def plain(daemon):
    load(daemon)
    text = ctl(daemon, "top", "--interval", "100ms", "--count", "2")
    assert "\x1b" not in text and "\r" not in text
    first, *blocks = re.split(r"(?m)^(?=npugraphd .* up )", text)
    assert first == "" and len(blocks) == 2, text
    for block in blocks:
        heads = [line.split()[0] for line in block.splitlines() if line and line.split()[0].isupper()]
        assert heads[:4] == ["DEVICE", "MODEL", "LATENCY", "IDENTITY"], block
        assert "tokens/s 0.0" in block and "serving" in block
    for wrong in (["--interval", "1ms"], ["--interval", "2h"], ["--interval", "soon"], ["--count", "0"], ["--count", "-1"], ["now"], ["--fast"]):
        out = subprocess.run([CTL, "--address", daemon.address, "top", *wrong], capture_output=True, text=True, timeout=PATIENCE)
        assert out.returncode == 2 and "Usage: npugraphctl top" in out.stderr, (wrong, out)


class Terminal:
    """Runs npugraphctl on a terminal of that size."""

    def __init__(self, daemon, *arguments, rows=24, cols=80):
        self.master, slave = open_terminal()
        self.slave = slave
        self.resize(rows, cols)
        self.before = termios.tcgetattr(slave)
        env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        self.child = subprocess.Popen([CTL, "--address", daemon.address, *arguments], stdin=slave, stdout=slave, stderr=slave,
                                      env={**env, "TERM": "xterm", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}, start_new_session=True)
        self.text = ""

    def resize(self, rows, cols):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def read(self, until_text, timeout=PATIENCE):
        end = time.monotonic() + timeout
        while until_text not in self.text:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            assert ready, f"{until_text!r} did not come: {self.text[-1000:]!r}"
            self.text += os.read(self.master, 65536).decode()

    def frame(self):
        """Returns the lines of the last complete frame."""
        self.text = ""
        self.read("\x1b[H", PATIENCE)
        frame = self.text.split("\x1b[H", 1)[1]
        self.text = frame
        self.read("\x1b[H")
        frame = self.text.split("\x1b[H", 1)[0]
        return [line.replace("\x1b[K", "").replace("\x1b[0m", "").replace("\x1b[J", "") for line in frame.replace("\r\r\n", "\n").split("\n")]

    def key(self, key):
        os.write(self.master, key)

    def ended(self, status):
        self.read("\x1b[?1049l")
        assert self.child.wait(PATIENCE) == status, self.text
        assert termios.tcgetattr(self.slave) == self.before
        os.close(self.slave)
        os.close(self.master)


@test("on a terminal it draws in place, no wider and higher than that, and q gives the terminal back")
def screen(daemon):
    load(daemon)
    clients = [Client(daemon, name=f"client {i} with a long name") for i in range(12)]
    t = Terminal(daemon, "top", "--interval", "100ms", rows=24, cols=80)
    t.read("\x1b[?1049h")
    t.read("CLIENT")
    wide = t.frame()
    assert len(wide) <= 24 and max(map(len, wide)) <= 80 and wide[0].startswith("npugraphd "), wide
    t.resize(8, 30)
    t.child.send_signal(signal.SIGWINCH)
    until("it fits the smaller terminal", lambda: (lambda f: len(f) <= 8 and max(map(len, f)) <= 30)(t.frame()))
    t.key(b"x")
    t.frame()
    t.key(b"q")
    t.ended(0)
    for c in clients:
        c.close()


@test("a signal ends it and gives the terminal back; so does the end of the daemon, with a word about it")
def ends():
    with Daemon() as d:
        t = Terminal(d, "top", "--interval", "100ms")
        t.read("DEVICE")
        t.child.send_signal(signal.SIGINT)
        t.ended(-signal.SIGINT)
    d = Daemon()
    t = Terminal(d, "--timeout", "2s", "top", "--interval", "100ms")
    t.read("DEVICE")
    d.kill()
    t.read(d.address)
    assert "npugraphctl: " in t.text.split("\x1b[?1049l")[1], t.text
    t.ended(1)


@test("--watch runs a command that lists again and again: on a screen, as lines of JSON, and until the daemon ends")
def watch():
    with Daemon() as d:
        t = Terminal(d, "sessions", "--watch=100ms")
        t.read("No sessions")
        c = Client(d, name="somebody")
        t.read("somebody")
        t.key(b"q")
        t.ended(0)
        child = subprocess.Popen([CTL, "--address", d.address, "--json", "--watch", "100ms", "sessions"], stdout=subprocess.PIPE, text=True)
        looks = [json.loads(child.stdout.readline()) for _ in range(2)]
        assert [[s["client_name"] for s in look["sessions"]] for look in looks] == [["somebody"]] * 2
        c.close()
        until("it shows that the session has ended", lambda: json.loads(child.stdout.readline())["sessions"] == [])
        child.stdout.close()
        assert child.wait(PATIENCE) != 0
        for wrong in (["--watch", "1ms", "status"], ["--watch=2s", "drain"], ["--watch", "2s", "status", "now"]):
            out = subprocess.run([CTL, "--address", d.address, *wrong], capture_output=True, text=True, timeout=PATIENCE)
            assert out.returncode == 2 and "npugraphctl: " in out.stderr, (wrong, out)
    d = Daemon()
    t = Terminal(d, "--timeout", "2s", "status", "--watch", "100ms")
    t.read("serving")
    d.kill()
    t.read("npugraphctl: ")
    assert "\x1b[?1049l" in t.text.split("npugraphctl: ")[0], t.text
    t.ended(1)


if __name__ == "__main__":
    main(f"--models-dir={MODEL}")
