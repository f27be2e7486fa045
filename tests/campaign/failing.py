# SPDX-License-Identifier: Apache-2.0
"""Makes the n-th allocation or system call of a daemon fail (tests/campaign/failing.c), scenario by scenario.

A sweep takes each scenario and each n from 1 on until nothing fails any more, in the order of a seed when it is bounded by
time. After each failure the daemon must be alive, and what the client got must be the right answer or a refusal. Then the same
scenario, undisturbed, must give the right answer, and all that was charged must be given back.
"""
import collections
import ctypes
import mmap
import pathlib
import secrets
import socket
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "rpc"))
import part  # noqa: E402
from harness import *  # noqa: E402,F403
from harness import BUILD, DAEMON, SCRATCH, SOURCE, Daemon  # noqa: E402

OWN, HELPERS, LIBC, GRPC = 1, 2, 4, 8
ALLOC, CALLS, KILLS = 1, 2, 4
FRAMES = 24


class Page(ctypes.Structure):
    _fields_ = [("kinds", ctypes.c_uint64), ("callers", ctypes.c_uint64), ("left", ctypes.c_int64), ("times", ctypes.c_int64),
                ("pick", ctypes.c_uint64), ("counted", ctypes.c_uint64), ("failed", ctypes.c_uint64),
                ("error", ctypes.c_uint64), ("name", ctypes.c_char * 32), ("n_frames", ctypes.c_uint64), ("base", ctypes.c_uint64),
                ("frames", ctypes.c_uint64 * FRAMES)]


def build():
    """The shared object, made by the system's compiler."""
    path = SCRATCH / "libngd-failing.so"
    subprocess.run([*os.environ.get("CC", "cc").split(), "-std=gnu11", "-O1", "-g", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror",
                    "-fno-omit-frame-pointer", "-o", str(path), str(SOURCE / "tests/campaign/failing.c"), "-ldl"], check=True)
    return path


class Failing:
    """The page that a daemon looks at, and how to start a daemon that looks at it."""

    def __init__(self):
        self.shim = build()
        self.path = SCRATCH / "failing"
        with open(self.path, "wb") as f:
            f.write(bytes(4096))
        with open(self.path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 4096)
        self.page = Page.from_buffer(self.map)
        self.names = {}

    def daemon(self, *options, **kwargs):
        env = {**kwargs.pop("env", {})}
        through = ["env", f"LD_PRELOAD={self.shim}", f"NGD_FAILING={self.path}"]
        return Daemon(*options, env=env, through=through, **kwargs)

    def arm(self, kinds, callers, n, times=1, pick=0):
        p = self.page
        p.kinds = 0
        p.counted = p.failed = p.error = p.n_frames = 0
        p.callers, p.left, p.times, p.pick = callers, n - 1, times, pick
        p.kinds = kinds

    def disarm(self):
        """Calls that failed since it was armed."""
        self.page.kinds = 0
        return self.page.failed

    def where(self):
        """What failed last, and the daemon's functions that led there."""
        p = self.page
        addresses = [hex(p.frames[i] - p.base - 1) for i in range(min(p.n_frames, FRAMES)) if p.frames[i] > p.base]
        out = subprocess.run(["addr2line", "-fe", DAEMON, *addresses], capture_output=True, text=True, check=False).stdout.splitlines()
        names = [f"{out[i]} ({pathlib.Path(out[i + 1].split(' ')[0]).name})" for i in range(0, len(out) - 1, 2) if out[i] != "??"]
        return p.name.decode() + (f" ({os.strerror(p.error) if 0 < p.error < 200 else 'short'})" if p.error else "") + \
            " <- " + " <- ".join(names[:7])

    def point(self):
        """Tells places apart in which a call fails."""
        p = self.page
        return (p.name, *[p.frames[i] for i in range(min(p.n_frames, 8))])


# ---- counting what holds ------------------------------------------------------------------------------------------------

class Sum:
    def __init__(self):
        self.passed, self.failed, self.notes = 0, 0, collections.Counter()

    def check(self, what, good, why=""):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print(f"not ok - {what}: {why}", flush=True)
        return good

    def end(self):
        for note, n in sorted(self.notes.items()):
            print(f"{n:7}  {note}")
        part.end(self.passed, self.failed)


def arguments(what, more=lambda parser: None):
    """Without --seconds all points are taken, in order; otherwise in a random order, until then."""
    def and_only(parser):
        parser.add_argument("--only", action="append", help="this scenario; may be given several times")
        more(parser)
    return part.arguments(what, None, and_only, seed=secrets.randbelow(1 << 31))


# ---- scenarios ----------------------------------------------------------------------------------------------------------

ADD = """npugraph 1
graph "add" {
  sym N 1..64 buckets 4, 16, 64
  param %w : f32[4] = "w"
  state %s : f32[4] = "s"
  input %x : f32[N,4]
  %a = aten.add.Tensor(%x, %w)
  %b = aten.relu(%a)
  %c = aten.mul.Tensor(%b, %b)
  return "y" = %c
}"""
TOGETHER = """npugraph 1
graph "together" {
  sym B 1..32 batch buckets 1, 32
  input %x : f32[B,4]
  %s = aten._softmax(%x) {dim=1}
  return "s" = %s
}"""
MODEL = SOURCE / "examples" / "model"
ROWS = b"".join(struct.pack("<4f", i, -i, 2 * i, 1) for i in range(5))


def weights(path):
    header = json.dumps({f"t{i}": {"dtype": "F32", "shape": [4], "data_offsets": [16 * i, 16 * i + 16]} for i in range(8)}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(range(128)))


class Refused(Exception):
    """An error inside a stream, or of HTTP."""

    def __init__(self, code, text):
        super().__init__(text)
        self.number, self.text = code, text

    def code(self):
        return next(c for c in grpc.StatusCode if c.value[0] == self.number)

    def details(self):
        return self.text


def good(answers):
    for a in answers:
        if a.HasField("error"):
            raise Refused(a.error.code, a.error.message)
        yield a


class Fresh:
    """A client for one run. Its session is given back however the run ends."""

    def __init__(self, daemon):
        self.daemon = daemon

    def __enter__(self):
        self.client = Client(self.daemon)
        return self.client

    def __exit__(self, *exc):
        self.client.close()


def session(daemon):
    with Fresh(daemon) as c:
        c.requests.put(pb.SessionRequest(ping=pb.SessionPing(value=9)))
        for event in c.stream:
            if event.HasField("pong"):  # not the word of a daemon that ends, which may come first
                return event.pong.value
        raise Refused(grpc.StatusCode.UNAVAILABLE.value[0], "the session ended")


def memory(daemon):
    with Fresh(daemon) as c:
        b = c.allocate(4096, "scratch")
        c.write(b, bytes(range(256)) * 16)
        listed = [x.label for x in c.call("Memory/ListBuffers", pb.ListBuffersRequest()).buffers if x.label == "scratch"]
        data = c.read(b)
        c.call("Memory/Free", pb.FreeRequest(buffers=[b]))
        return listed, data


def graph(daemon):
    with Fresh(daemon) as c:
        w, s = c.allocate(16), c.allocate(16)
        c.write(w, struct.pack("<4f", 1, 2, 3, 4))
        g = c.register(ADD, {"w": w, "s": s}).graph
        out = list(c.replay(g, [ROWS], [5]).outputs)
        out += c.replay(g, [ROWS[:16]], [1]).outputs
        c.call("Graphs/Capture", pb.CaptureRequest(graph=g, symbols=[16]))
        listed = len(c.call("Graphs/List", pb.ListGraphsRequest()).graphs)
        c.call("Graphs/Describe", pb.DescribeRequest(graph=g))
        c.call("Graphs/Release", pb.ReleaseRequest(graph=g))
        return out, listed


def eager(daemon):
    with Fresh(daemon) as c:
        w, s = c.allocate(16), c.allocate(16)
        c.write(w, struct.pack("<4f", 1, 2, 3, 4))
        g = c.register(ADD, {"w": w, "s": s}, {"force_eager": "true"}).graph
        return list(c.replay(g, [ROWS], [5]).outputs)


def stream(daemon):
    with Fresh(daemon) as c:
        g = c.register(TOGETHER).graph
        requests = [pb.ReplayRequest(graph=g, inputs=[ROWS[:16]], symbols=[1]) for _ in range(6)]
        return [list(r.outputs) for r in good(c.call("Graphs/ReplayStream", iter(requests)))]


def together(daemon):
    with Fresh(daemon) as a, Fresh(daemon) as b:
        graphs = [c.register(TOGETHER).graph for c in (a, b)]
        calls = [c.method("Graphs/Replay").future(pb.ReplayRequest(graph=g, inputs=[ROWS], symbols=[5]), metadata=c.metadata(), timeout=PATIENCE)
                 for _ in range(4) for c, g in zip((a, b), graphs)]
        failed, got = None, []
        for call in calls:
            try:
                got.append(list(call.result().outputs))
            except grpc.RpcError as error:
                failed = error
        if any(g != got[0] for g in got):
            return "results differ", got
        if failed:
            raise failed
        return got


def load(daemon):
    with Fresh(daemon) as c:
        done = c.load(daemon.models / "w.safetensors")
        return [(t.name, c.read(t.buffer)) for t in done.tensors]


def generate(daemon):
    with Fresh(daemon) as c:
        opened = c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[5, 6, 7]))
        answers = list(c.call("Sequences/Generate", pb.GenerateRequest(sequence=opened.sequence, max_tokens=6, ignore_stop=True)))
        c.call("Sequences/Close", pb.CloseRequest(sequence=opened.sequence))
        return opened.token, [t for m in answers for t in m.tokens], answers[-1].finish


def steps(daemon):
    with Fresh(daemon) as c:
        one = c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[9, 8, 7, 6]))
        two = c.call("Sequences/Fork", pb.ForkRequest(sequence=one.sequence)).sequence
        tokens = [c.call("Sequences/Step", pb.StepRequest(sequence=s)).token for s in (one.sequence, two)]
        tokens += [r.token for r in good(c.call("Sequences/StepStream", iter([pb.StepRequest(sequence=s) for s in (one.sequence, two)])))]
        listed = len(c.call("Sequences/List", pb.ListSequencesRequest()).sequences)
        return tokens, listed


def admin(daemon):
    with Fresh(daemon) as c:
        c.call("Admin/Status", pb.StatusRequest())
        c.call("Admin/Devices", pb.DevicesRequest())
        names = [s.client_name for s in c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions]
        c.call("Admin/ListShares", pb.ListSharesRequest())
        models = [m.name for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models]
        c.call("Admin/Stats", pb.StatsRequest())
        options = len(c.call("Graphs/ListOptions", pb.ListOptionsRequest()).options)
        return names, models, options


def store(daemon):
    with Fresh(daemon) as c:
        listed = c.call("Admin/ListStore", pb.ListStoreRequest()).entries
        names = sorted(e.name for e in listed if e.kind == pb.STORE_ENTRY_KIND_GRAPH)
        data = [b"".join(p.data for p in c.call("Admin/ReadStore", pb.ReadStoreRequest(name=n))) for n in names[:2]]
        verified = c.call("Admin/VerifyStore", pb.VerifyStoreRequest())
        bad = [e.reason for e in verified.bad if e.reason != "io"]  # "cannot be read" says nothing of the entry
        return len(names) > 0, bool(data and data[0]), bad


def explain(daemon):
    with Fresh(daemon) as c:
        g = c.register(TOGETHER).graph
        c.replay(g, [ROWS], [5])
        c.call("Graphs/Explain", pb.ExplainRequest())
        traced = c.call("Graphs/Trace", pb.DoctorRequest(graph=g, symbols=[5], inputs=[ROWS]))
        return traced is not None


def refusal(daemon):
    """Errors are made of memory too."""
    with Fresh(daemon) as c:
        for call in (lambda: c.register("nonsense"), lambda: c.load("/etc/passwd"), lambda: c.replay(12345, [b""])):
            try:
                call()
                return "was accepted"
            except grpc.RpcError as error:
                if error.code() not in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND):
                    raise
        return "refused"


def statistics(daemon):
    """A scraper gets all of it, an error, or nothing. It comes again."""
    try:
        answers = [daemon.http(path) for path in ("/stats.json", "/metrics")]
    except (OSError, http.client.HTTPException) as error:
        raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], repr(error)) from None
    if any(status in (500, 503) for status, _ in answers):
        raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], "refused")
    json.loads(answers[0][1])
    text = answers[1][1]
    return sorted({line.split("{")[0].split(" ")[0] for line in text.splitlines() if line.startswith("npugraphd_sessions")})


SCENARIOS = {f.__name__: f for f in (session, memory, graph, eager, stream, together, load, generate, steps, admin, store, explain, refusal,
                                     statistics)}


def serves(daemon):
    """It said so, or answers: the line of the log may be what was lost. The guard lets nothing through before the client has spoken."""
    if ": ready" in daemon.log():
        return True
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:
        s.settimeout(0.2)
        s.connect(str(daemon.socket))
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        return len(s.recv(9)) > 0  # SETTINGS of HTTP/2
    return False


def start_daemon(failing, name="d", model=True, **kwargs):
    models_dir = SCRATCH / "campaign-models"
    models_dir.mkdir(exist_ok=True)
    if not (models_dir / "w.safetensors").exists():
        weights(models_dir / "w.safetensors")
    (SCRATCH / name).mkdir(mode=0o700, exist_ok=True)
    # Through the guard, also on root's own socket: its calls may fail, too.
    daemon = failing.daemon("--guard-unix=all", f"--models-dir={models_dir}", f"--models-dir={MODEL}", f"--store-dir={SCRATCH / name / 'store'}", **kwargs)
    daemon.models = models_dir
    daemon.serves = lambda: serves(daemon)
    if model:
        subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", str(MODEL), "--name", "m"], check=True, capture_output=True)
    return daemon
