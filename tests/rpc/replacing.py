# SPDX-License-Identifier: Apache-2.0
"""Daemons that replace one another (npugraphd --replace), and a load of libnpugraph's clients beside them."""
import fcntl
import importlib.util
import socket

from harness import *
from sequences import close, generate, start

handover = importlib.import_module("proto.handover_pb2")
MODEL = SOURCE / "examples" / "model"
PROMPT = [5, 6, 7, 8]
SLOW = {"NPUGRAPHD_FAULT": "handover-slow:0:99"}  # each step of the new daemon takes 300 ms longer
PATIENT = {"NPUGRAPHD_FAULT": "depart-patient:0:99"}  # that a session moves is not decided by the 100 ms that its calls have to end

if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")

COUNT = """npugraph 1
graph "count" {
  state %s : f32[4] = "sum"
  input %x : f32[4]
  %y = aten.add.Tensor(%s, %x)
  aten.copy_(%s, %y)
  return "y" = %y
}
"""


class Line:
    """A line of daemons at one address: each replaces the one before."""

    def __init__(self, *options, load=True, env=None, **kwargs):
        self.options = [f"--models-dir={MODEL}", "--device-memory=512M", *options]
        self.env = env or {}  # of all of them
        self.now = Daemon(*self.options, env=self.env, **kwargs)
        self.gone = []
        if load:
            self.ctl("load", str(MODEL), "--name", "m")

    def ctl(self, *arguments, env=None):
        """Runs npugraphctl; again, if a daemon says that it is just being replaced."""
        while True:
            done = subprocess.run([CTL, "--address", self.now.address, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                  timeout=PATIENCE, check=False, env={**os.environ, **(env or {})})
            if done.returncode == 0:
                return done.stdout
            assert "connect again and repeat the call" in done.stderr, done.stderr

    def next(self, *options, expect_start=True, env=None, **kwargs):
        """Starts a daemon that is to replace the present one."""
        return Daemon(*self.options, "--replace", *options, dir=self.now.dir, expect_start=expect_start, env={**self.env, **(env or {})}, **kwargs)

    def follow(self, fresh):
        """Waits until the daemon serves; from now on it is the present one."""
        until("the new daemon serves", lambda: fresh._started())
        self.gone.append(self.now)
        self.now = fresh

    def replace(self, *options, **kwargs):
        self.follow(self.next(*options, **kwargs))
        return self.now

    def leave(self):
        """Checks that the daemons that were replaced have ended in order."""
        for daemon in self.gone:
            assert daemon.wait() == 0, daemon.log()[-3000:]
        self.gone = []

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        if kind is None:
            self.leave()
        for daemon in self.gone:
            daemon.kill()
        self.now.__exit__(kind, *rest)


def text_of(daemon, n=12):
    with Client(daemon) as c:
        s = start(c, "m", PROMPT)
        tokens = [s.token, *generate(c, s.sequence, n)]
        close(c, s.sequence)
        return tokens


def pid_of(daemon):
    with Client(daemon, session=False) as c:
        return c.call("Admin/Status", pb.StatusRequest()).pid


# Workers, a thread and a client each: a sequence after the other, step by step, at a rate. Only an error makes one connect again. The
# first ones let the library restore their sequences, and every second of these is generated in one call.
WORKERS = """
import json, sys, threading, time
import npugraph

address, model, prompt, expected, workers, rate, restoring = json.loads(sys.argv[1])
calls, wrong, sequences = [], [], []
stop = threading.Event()

def work(i):
    client = None
    every, due, done = workers / rate, time.monotonic() + i / rate, 0
    restore = 60 if i < restoring else 0

    def timed(what, fn):
        begin = time.monotonic()
        try:
            return fn()
        except npugraph.Error as error:
            wrong.append((begin, i, f"{what}: {error.reason}: {error}"))
            raise
        finally:
            calls.append((begin, time.monotonic() - begin, i))

    while not stop.is_set():
        try:
            if client is None:
                client = timed("connect", lambda: npugraph.connect(address, name=f"load-{i}", timeout=30))
            tokens = []
            with timed("open", lambda: client.open(model, prompt, restore=restore)) as sequence:
                tokens.append(sequence.token)
                if restore and done % 2:
                    tokens = timed("generate", lambda: list(sequence.generate(len(expected), ignore_stop=True)))
                    due += every * len(tokens)
                for _ in range(len(expected) - len(tokens)):
                    due = max(due + every, time.monotonic() - every)
                    time.sleep(max(0, due - time.monotonic()))
                    tokens.append(timed("step", sequence.step).token)
            sequences.append(i)
            done += 1
            if tokens != expected:
                wrong.append((time.monotonic(), i, f"another text: {tokens}"))
        except npugraph.Error:
            if client is not None:
                client.close()
            client = None
            time.sleep(0.1)
    if client is not None:
        client.close()

threads = [threading.Thread(target=work, args=(i,)) for i in range(workers)]
for t in threads:
    t.start()
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "count":
        print(len(sequences), flush=True)
stop.set()
for t in threads:
    t.join()
print(json.dumps({"calls": calls, "wrong": wrong, "sequences": len(sequences)}), flush=True)
"""


class Load:
    """Workers with libnpugraph in a process of their own."""

    def __init__(self, line, workers=16, rate=100, tokens=24, restoring=0):
        if importlib.util.find_spec("numpy") is None:
            raise Skip("Python's package needs numpy")
        if SANITIZER:
            raise Skip("a program without the sanitizer, as Python is, cannot load a libnpugraph with it")
        expected = text_of(line.now, tokens)[1:]  # a generation has the first token too
        arguments = json.dumps([line.now.address, "m", PROMPT, expected, workers, rate, restoring])
        self.process = subprocess.Popen([*END_WITH_US, sys.executable, "-c", WORKERS, arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "PYTHONPATH": str(SOURCE / "python" / "src"), "NPUGRAPH_LIBRARY_PATH": str(BUILD / ".libs")})
        assert self.process.stdout.readline() == "ready\n"
        self.go_on(workers)

    def sequences(self):
        self.process.stdin.write("count\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def go_on(self, more):
        """Waits until the workers have ended so many more sequences."""
        before = self.sequences()
        until("the workers go on", lambda: self.sequences() >= before + more)

    def end(self):
        """Returns {"calls": [[begin, seconds, worker]...], "wrong": [[time, worker, text]...]}; times are time.monotonic()."""
        self.process.stdin.close()
        told = json.loads(self.process.stdout.read())
        assert self.process.wait() == 0
        return told


def pauses(told, moments):
    """For each worker and each [begin, end): its longest call that began in it or reached into it. Seconds, sorted."""
    longest = {}
    for begin, seconds, worker in told["calls"]:
        for k, (first, last) in enumerate(moments):
            if begin < last and begin + seconds >= first:
                longest[worker, k] = max(longest.get((worker, k), 0), seconds)
    return sorted(longest.values())


def percentile(values, p):
    return values[min(len(values) - 1, int(len(values) * p / 100))] if values else 0.0


# ---- a daemon that the test plays -------------------------------------------------------------------------------------

def connect_to(path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(PATIENCE)
    s.connect(str(path))
    return s


def packet(**kind):
    return handover.Packet(protocol=1, **kind).SerializeToString()


def sealed(data):
    fd = os.memfd_create("description", os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL)
    return fd


class Old:
    """A daemon that is to be replaced, played by the test."""

    def __init__(self, name):
        self.dir = SCRATCH / name
        self.dir.mkdir()
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(self.dir / "s.replace"))
        self.listener.listen()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def meet(self, **kwargs):
        """Starts a daemon that takes over, and takes its Hello."""
        self.fresh = Daemon("--replace", f"--models-dir={MODEL}", dir=self.dir, expect_start=False, **kwargs)
        self.listener.settimeout(PATIENCE)
        self.peer, _ = self.listener.accept()
        self.peer.settimeout(PATIENCE)
        assert self.hear().HasField("hello")

    def hear(self):
        return handover.Packet.FromString(self.peer.recv(65536))

    def offer_nothing(self):
        fd = sealed(b"\0")
        socket.send_fds(self.peer, [packet(offer=handover.Offer(description_bytes=1, digest=bytes(32)))], [fd])
        os.close(fd)

    def leave(self):
        """Ends the connection as a daemon does, so that what it said last is heard."""
        self.peer.shutdown(socket.SHUT_RDWR)
        while self.peer.recv(65536):
            pass
        self.peer.close()
