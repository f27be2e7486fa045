#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an upgrade does not lose (npugraphd --replace): sessions whose clients are away, and calls whose answers a killed daemon takes along."""
import importlib.util
import threading

from replacing import *

PLAIN = """npugraph 1
graph "twice" {
  input %x : f32[4]
  %y = aten.add.Tensor(%x, %x)
  return "y" = %y
}
"""


# ---- clients that are away --------------------------------------------------------------------------------------------

class Away:
    """A session that moves, with a buffer, whose client's connection breaks."""

    def __init__(self, daemon):
        self.client = Client(daemon, session=False)
        self.client.open_session(pb.SessionOpen(client_name="away", moves=True, grace_ms=60000))
        self.buffer = self.client.allocate(64)
        self.client.write(self.buffer, bytes(range(64)))

    def leave(self, daemon=None):
        self.client.stream.cancel()
        self.client.channel.close()
        if daemon:
            until("the daemon knows that it is away", lambda: [s for s in sessions_of(daemon) if s.session == self.client.id and s.broken])

    def come(self, daemon):
        c = Client(daemon, session=False)
        c.open_session(pb.SessionOpen(resume=pb.SessionResume(session=self.client.id, token=self.client.token)))
        assert c.opened.resumed and c.read(self.buffer) == bytes(range(64))
        c.close()


def sessions_of(daemon):
    with Client(daemon, session=False) as c:
        return list(c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions)


@test("a session whose client is away, before or behind the moment of the handover, is in the old daemon again if the new one dies")
def away_taken_back():
    with Line("--drain-grace=60s", load=False) as line:
        before, behind = Away(line.now), Away(line.now)
        before.leave(line.now)
        fresh = line.next()
        behind.leave()
        fresh.kill()
        until("the old daemon serves again", lambda: pid_of(line.now) == line.now.process.pid)
        before.come(line.now)
        behind.come(line.now)


@test("a session whose client is away moves, waits for it in the new daemon, and ends in the old one when it comes")
def away_moves():
    with Line("--drain-grace=60s", load=False) as line:
        away, old = Away(line.now), line.now
        away.leave(old)
        fresh = line.replace()
        away.come(fresh)
        assert old.wait() == 0, old.log()[-3000:]


@test("the daemon before the last one does not keep a session whose client is away: nobody gives it back to that one")
def away_moves_on():
    with Line("--drain-grace=60s", load=False) as line:
        away, leaves, old = Away(line.now), Away(line.now), line.now
        away.leave(old)
        second = line.replace()
        third = line.replace()
        leaves.leave()
        assert old.wait(30) == 0, old.log()[-3000:]  # half of their grace
        for client in (away, leaves):
            client.come(third)
        assert second.wait() == 0, second.log()[-3000:]


# ---- calls whose answers are lost -------------------------------------------------------------------------------------

# A thread for each call, which says when it begins, so that the calls are under way when their daemon is killed.
WORKER = """
import json, struct, sys, threading
import npugraph

address, model, prompt, plain, count, what = json.loads(sys.argv[1])
c = npugraph.connect(address, name="lost", timeout=30, local_transport=False)
results, lock = {}, threading.Lock()
one = struct.pack("<4f", 1, 2, 3, 4)

def text():
    with c.open(model, prompt) as s:
        return [s.token, *s.generate(12)]

def replays():
    stream = c.replay_stream()
    stream.replay(doubled, [one])
    return lambda: list(struct.unpack("<4f", bytes(stream.replay(doubled, [one])[0])))

def counted():
    stream = c.replay_stream()
    stream.replay(counter, [one])
    return lambda: list(struct.unpack("<4f", bytes(stream.replay(counter, [one])[0])))

if what == "home":
    buffer, state = c.upload(bytes(range(64))), c.upload(bytes(16))
    freed = c.upload(bytes(64))
    doubled, counter = c.graph(plain, {}), c.graph(count, {"sum": state})
    calls = {"register": lambda: str(type(c.graph(plain, {}))), "allocate": lambda: len(c.upload(bytes(64)).read()),
             "replay": replays(), "counted": counted()}
else:
    calls = {"text": text, "models": lambda: [m.name for m in c.models()]}

def run(name):
    try:
        answer = calls[name]()
    except npugraph.Error as error:
        answer = error.reason
    with lock:
        results[name] = answer

print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=run, args=(name,)) for name in calls]
for t in threads:
    t.start()
print("sent", flush=True)
for t in threads:
    t.join()
if what == "home":
    results["after"] = list(struct.unpack("<4f", state.read()))
print(json.dumps(results), flush=True)
c.close()
"""


class Lost:
    """A process with libnpugraph whose calls get no answer."""

    def __init__(self, line, what):
        if importlib.util.find_spec("numpy") is None:
            raise Skip("Python's package needs numpy")
        if SANITIZER:
            raise Skip("a program without the sanitizer, as Python is, cannot load a libnpugraph with it")
        arguments = json.dumps([line.now.address, "m", PROMPT, PLAIN, COUNT, what])
        self.process = subprocess.Popen([*END_WITH_US, sys.executable, "-c", WORKER, arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "PYTHONPATH": str(SOURCE / "python" / "src"), "NPUGRAPH_LIBRARY_PATH": str(BUILD / ".libs")})
        assert self.process.stdout.readline() == "ready\n"

    def call(self):
        """Lets it make its calls, to a daemon that is stopped. That they are on their way is likely, and not needed."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "sent\n"
        time.sleep(0.2)

    def results(self):
        told = self.process.stdout.readline()
        assert self.process.wait() == 0
        return json.loads(told)


@test("calls that the old daemon takes along when it is killed are made again in the new one, once each; a replay that changes states says that it may be done")
def lost_behind_commit():
    with Line("--drain-grace=60s") as line:
        lost, old, fresh = Lost(line, "home"), line.now, line.next()
        old.signal(signal.SIGSTOP)
        lost.call()
        old.kill()
        line.now = fresh
        told = lost.results()
        assert told["allocate"] == 64 and told["replay"] == [2, 4, 6, 8] and "Graph" in told["register"], told
        assert told["counted"] in ("ANSWER_UNKNOWN", [2, 4, 6, 8]), told
        assert told["after"] == ([2, 4, 6, 8] if told["counted"] == [2, 4, 6, 8] else [1, 2, 3, 4]), told


@test("what needs nothing of a session is repeated in a new one, if the old daemon is killed with the session")
def lost_before_commit():
    with Line("--drain-grace=60s") as line:
        expected = text_of(line.now)
        lost, old = Lost(line, "anew"), line.now
        fresh = line.next(expect_start=False, env=SLOW)
        until("it has the offer", lambda: "taking over from" in fresh.log())
        old.signal(signal.SIGSTOP)
        lost.call()
        old.kill()
        line.now = fresh
        until("the new one serves", lambda: ": ready" in fresh.log())
        told = lost.results()
        assert told["text"] == expected and told["models"] == ["m"], (told, expected)


BREAKS = """
import json, sys
import npugraph

address, graph, size = json.loads(sys.argv[1])
c = npugraph.connect(address, name="broken", timeout=30, grace=60, local_transport=False)
try:
    c.graph(graph + size // 64 * ("# " + "x" * 61 + "\\n"), {})
except npugraph.Error as error:
    print(error.reason, flush=True)
"""
LARGE = 256 << 10


class Breaker:
    """Passes connections on to a daemon, and breaks each one that carries more than LARGE bytes to it."""

    def __init__(self, daemon):
        self.path, self.broken = str(daemon.dir / "breaker.sock"), 0
        self.daemon = daemon.address.removeprefix("unix:")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            front, back = self.listener.accept()[0], socket.socket(socket.AF_UNIX)
            back.connect(self.daemon)
            for x, y, most in (front, back, LARGE), (back, front, 1 << 30):
                threading.Thread(target=self.copy, args=(x, y, most), daemon=True).start()

    def copy(self, x, y, most):
        with contextlib.suppress(OSError):
            while most > 0 and (some := x.recv(65536)):
                y.sendall(some)
                most -= len(some)
            self.broken += most <= 0
        for s in (x, y):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)


@test("a call that breaks each connection that carries it is not repeated for ever")
def breaks_connections():
    if importlib.util.find_spec("numpy") is None:
        raise Skip("Python's package needs numpy")
    if SANITIZER:
        raise Skip("a program without the sanitizer, as Python is, cannot load a libnpugraph with it")
    with Daemon() as daemon:
        breaker = Breaker(daemon)
        arguments = json.dumps([f"unix:{breaker.path}", PLAIN, 2 * LARGE])
        process = subprocess.Popen([*END_WITH_US, sys.executable, "-c", BREAKS, arguments], stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, "PYTHONPATH": str(SOURCE / "python" / "src"), "NPUGRAPH_LIBRARY_PATH": str(BUILD / ".libs")})
        assert process.communicate(timeout=PATIENCE)[0] == "UNREACHABLE\n"
        assert 2 <= breaker.broken <= 100, breaker.broken


if __name__ == "__main__":
    main()
