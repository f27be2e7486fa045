#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""npugraphd --replace: one daemon takes over from another one, and no call of a client fails."""
import random
import socket
import struct
import threading

from harness import *
from sequences import close, generate, listed, start

MODEL = SOURCE / "examples" / "model"
PROMPT = [5, 6, 7, 8]

if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")

handover = importlib.import_module("proto.handover_pb2")


# ---- daemons, one after the other at one address ----------------------------------------------------------------------

class Line:
    """A line of daemons at one address: each replaces the one before."""

    def __init__(self, *options, load=True, **kwargs):
        self.options = [f"--models-dir={MODEL}", "--device-memory=512M", *options]
        self.now = Daemon(*self.options, **kwargs)
        self.gone = []
        if load:
            self.ctl("load", str(MODEL), "--name", "m")

    def ctl(self, *arguments, ok=True):
        done = subprocess.run([CTL, "--address", self.now.address, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              timeout=PATIENCE, check=False)
        assert not ok or done.returncode == 0, done.stderr
        return done

    def next(self, *options, expect_start=True, **kwargs):
        """Starts a daemon that is to replace the present one."""
        return Daemon(*self.options, "--replace", *options, dir=self.now.dir, expect_start=expect_start, **kwargs)

    def replace(self, *options, **kwargs):
        fresh = self.next(*options, **kwargs)
        self.gone.append(self.now)
        self.now = fresh
        return fresh

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        for daemon in self.gone:
            if kind is None:
                assert daemon.wait() == 0, daemon.log()[-3000:]
            else:
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


# ---- what is handed over ----------------------------------------------------------------------------------------------

@test("a daemon takes over the address, the models and the statistics of the one that runs, which ends")
def takes_over():
    with Line() as line:
        before, stats = text_of(line.now), line.now.stats()["pid"] if "pid" in line.now.stats() else None
        old = line.now
        fresh = line.replace()
        assert old.wait() == 0, old.log()[-3000:]
        assert pid_of(fresh) == fresh.process.pid
        assert text_of(fresh) == before, stats
        with Client(fresh) as c:
            assert listed(c, "m") is not None
        assert fresh.stats()["models"], "the statistics are served"
        assert f"{fresh.process.pid}" == (line.now.dir / "s.lock").read_text().strip(), "the lock says who holds it"


@test("a line of five daemons")
def five():
    with Line() as line:
        before = text_of(line.now)
        for _ in range(4):
            line.replace()
            assert text_of(line.now) == before


@test("a session lives on in the old daemon, is told, and everything of it works until it ends")
def sessions_stay():
    with Line() as line:
        old = line.now
        before = text_of(old)
        with Client(old) as c:
            buffer = c.allocate(64)
            c.write(buffer, b"x" * 64)
            s = start(c, "m", PROMPT)
            fresh = line.replace()
            told = next(c.stream).draining
            assert told.replaced and told.grace_ms == 10000
            assert [s.token, *generate(c, s.sequence, 12)] == before
            assert c.read(buffer) == b"x" * 64
            again = start(c, "m", PROMPT)
            assert generate(c, again.sequence, 12) == before[1:]
            assert c.call("Admin/Status", pb.StatusRequest()).handover == f"replaced by process {fresh.process.pid}"
            assert old.alive() and pid_of(fresh) == fresh.process.pid
            other = c.channel  # the connection is the old daemon's
        other.close()
        assert old.wait() == 0


# ---- what fails -------------------------------------------------------------------------------------------------------

def fails(line, *options, says, status, **kwargs):
    """A daemon that cannot take over ends with that status, and leaves the one that runs as it was."""
    before, old = text_of(line.now), line.now
    fresh = line.next(*options, expect_start=False, **kwargs)
    assert fresh.wait() == status, fresh.log()
    assert says in fresh.log(), fresh.log()
    assert old.alive() and pid_of(old) == old.process.pid and text_of(old) == before
    with Client(old) as c:
        until("the handover is off", lambda: c.call("Admin/Status", pb.StatusRequest()).handover == "")
        assert not c.call("Admin/Status", pb.StatusRequest()).sessions > 1


@test("a daemon that cannot come up leaves the one that runs as it was, whatever is wrong; another one takes over then")
def cannot_come_up():
    with Line() as line:
        fails(line, "--device=nonsense", says="nonsense", status=1)
        fails(line, "--no-such-option=1", says="no-such-option", status=2)
        fails(line, "--device-memory=4M", says='model "m"', status=1)
        fails(line, "--models-dir=/nonexistent", "--listen=127.0.0.1:1", says="plaintext", status=2)
        fails(line, "--max-bytes-per-identity=1M", "--token-file=/nonexistent", says="token", status=2)
        assert "does not take over: it has ended" in line.now.log()
        line.replace()


@test("a file that changed since it was loaded is not read again: its weights are handed over as they are")
def changed_file():
    models = SCRATCH / "changing"
    shutil.copytree(MODEL, models)
    with Line(f"--models-dir={models}", load=False) as line:
        line.ctl("load", str(models), "--name", "m")
        before = text_of(line.now)
        weights = models / "model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-4096:] = bytes(4096)
        (models / "new").write_bytes(data)
        os.replace(models / "new", weights)
        line.replace()
        assert text_of(line.now) == before
        weights.unlink()
        line.replace()
        assert text_of(line.now) == before


@test("without a daemon to replace, --replace starts one; without a socket to be replaced by, it is refused")
def nobody():
    with Line("--replace"):
        pass
    with Line("--replace-socket=off", load=False) as line:
        fails_to_start = line.next(expect_start=False)
        assert fails_to_start.wait() == 2 and "replace-socket" in fails_to_start.log()


@test("of two daemons that want to take over at once, one does, and the other is told who is ahead")
def two_at_once():
    with Line() as line:
        first = line.next(expect_start=False, env={"NPUGRAPHD_FAULT": "handover-slow:0:99"})
        until("the first one is at it", lambda: "asks to take over" in line.now.log())
        second = line.next(expect_start=False)
        assert second.wait() == 3 and f"process {first.process.pid} is taking over" in second.log(), second.log()
        until("the first one serves", lambda: ": ready" in first.log())
        line.gone.append(line.now)
        line.now = first


# ---- what changes meanwhile -------------------------------------------------------------------------------------------

@test("models that are loaded, unloaded and shared while another daemon prepares are there, or not, afterwards")
def changes_meanwhile():
    with Line() as line:
        line.ctl("load", str(MODEL), "--name", "gone")
        fresh = line.next(expect_start=False, env={"NPUGRAPHD_FAULT": "handover-slow:0:99"})
        until("it has the first offer", lambda: "taking over from" in fresh.log())
        line.ctl("load", str(MODEL), "--name", "late")
        line.ctl("unload", "gone")
        until("it serves", lambda: ": ready" in fresh.log())
        assert "making them again" in fresh.log()
        line.gone.append(line.now)
        line.now = fresh
        with Client(fresh) as c:
            assert listed(c, "m") and listed(c, "late") and not listed(c, "gone")


# ---- under load -------------------------------------------------------------------------------------------------------

class Load:
    """Workers that ask for one text after the other, each time in a session of its own, as the worker kit does when it is told to go."""

    def __init__(self, line, workers=4):
        self.line, self.stop, self.pauses, self.errors, self.lock = line, threading.Event(), [], [], threading.Lock()
        self.expected = text_of(line.now)
        self.done = 0
        self.threads = [threading.Thread(target=self.work) for _ in range(workers)]
        for t in self.threads:
            t.start()
        until("the load is there", lambda: self.done >= workers)

    def work(self):
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                tokens = text_of(self.line.now)
                if tokens != self.expected:
                    raise AssertionError(f"another text: {tokens}")
            except Exception as e:
                self.errors.append(e)
            with self.lock:
                self.done += 1
                self.pauses.append(time.monotonic() - began)

    def end(self, more=8):
        """Waits until the workers have done some more, and stops them."""
        at = self.done
        until("the workers go on", lambda: self.done >= at + more)
        self.stop.set()
        for t in self.threads:
            t.join()
        return self.errors


@test("three upgrades under load: no call fails, and each text is what it was")
def upgrades_under_load():
    with Line("--drain-grace=60s") as line:
        load = Load(line)
        for _ in range(3):
            fresh = line.next()
            line.gone.append(line.now)
            line.now = fresh
        assert not load.end(), load.errors[:3]


@test("the new daemon is killed at any moment, before and after it took over: the old one serves, no promise is broken")
def new_one_killed():
    rng = random.Random(11)
    with Line("--drain-grace=60s") as line:
        with Client(line.now) as holder:  # its session keeps the old daemon there
            assert holder.id
            load = Load(line, workers=3)
            for _ in range(6):
                fresh = line.next(expect_start=False, env={"NPUGRAPHD_FAULT": "handover-slow:0:99"})
                time.sleep(rng.uniform(0, 1.6))
                fresh.kill()
                until("the old daemon serves", lambda: pid_of(line.now) == line.now.process.pid)
            fresh = line.next()
            fresh.kill()
            until("the old daemon serves again", lambda: pid_of(line.now) == line.now.process.pid)
            assert "serves new clients again" in line.now.log()
            load.stop.set()
            [t.join() for t in load.threads]
            # A kill breaks the calls that the killed one served, and nothing else.
            assert all("UNAVAILABLE" in str(e) for e in load.errors), load.errors[:3]
            assert text_of(line.now) == load.expected


@test("the old daemon is killed at any moment: the new one has the sockets, and all models that it was told of")
def old_one_killed():
    rng = random.Random(13)
    for _ in range(4):
        with Line("--drain-grace=60s") as line:
            before = text_of(line.now)
            fresh = line.next(expect_start=False, env={"NPUGRAPHD_FAULT": "handover-slow:0:99"})
            until("it has the offer", lambda: "taking over from" in fresh.log())
            time.sleep(rng.uniform(0, 1.2))
            line.now.kill()
            line.now = fresh
            until("the new one serves", lambda: ": ready" in fresh.log())
            assert text_of(fresh) == before


# ---- hostile peers ----------------------------------------------------------------------------------------------------

def connect_to(path):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(PATIENCE)
    s.connect(str(path))
    return s


def packet(**kind):
    return handover.Packet(protocol=1, **kind).SerializeToString()


@test("packets that are no packets, come in the wrong order or bring descriptors are refused, and the daemon serves")
def hostile():
    with Line() as line:
        path = line.now.dir / "s.replace"
        assert path.stat().st_mode & 0o777 == 0o600
        rng = random.Random(7)
        hello = packet(hello=handover.Hello(version="9\n", pid=1))
        opening = [b"", b"\xff" * 100, bytes(65000), handover.Packet(protocol=2, hello=handover.Hello()).SerializeToString(),
                   packet(ready=handover.Ready(digest=bytes(32))), packet(serving=handover.Serving()), packet(go=handover.Go()), packet(bye=handover.Bye()),
                   packet(offer=handover.Offer(items=[handover.Item(kind=1, text="x")] * 100)), packet(), *(rng.randbytes(rng.randrange(200)) for _ in range(50))]
        for data in opening:
            with connect_to(path) as s:
                s.send(data) if data else None
                s.shutdown(socket.SHUT_WR)
                while s.recv(65536):
                    pass
        with connect_to(path) as s:  # many descriptors
            socket.send_fds(s, [hello], [0] * 200)
            until("it is answered", lambda: s.recv(65536))
        for _ in range(3):
            with connect_to(path) as s:  # a Hello, and then what is no answer to an offer
                s.send(hello)
                data, fds, _, _ = socket.recv_fds(s, 65536, 200)
                offer = handover.Packet.FromString(data).offer
                assert len(fds) == len(offer.items) + 1 + (offer.upload_bytes > 0) and offer.digest
                s.send(packet(ready=handover.Ready(digest=bytes(32))))
                refusal = handover.Packet.FromString(s.recv(65536))
                assert refusal.HasField("refusal"), refusal
                for fd in fds:
                    os.close(fd)
        assert text_of(line.now)
        line.replace()


@test("an old daemon that hands over nonsense does not harm the new one")
def hostile_old():
    offers = [b"\xff" * 40, packet(hello=handover.Hello()), packet(offer=handover.Offer(description_bytes=1 << 60, digest=bytes(32))),
              packet(refusal=handover.Refusal(text="no")), handover.Packet(protocol=3).SerializeToString(),
              packet(offer=handover.Offer(items=[handover.Item(kind=1, text="unix:/x")], description_bytes=5, digest=bytes(32)))]
    for i, answer in enumerate(offers):
        directory = SCRATCH / f"hostile{i}"
        directory.mkdir()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as old:
            old.bind(str(directory / "s.replace"))
            old.listen()
            fresh = Daemon("--replace", dir=directory, expect_start=False)
            peer, _ = old.accept()
            with peer:
                peer.recv(65536)
                socket.send_fds(peer, [answer], [peer.fileno()])
                assert fresh.wait() in (1, 3), fresh.log()
            assert "cannot start" in fresh.log(), fresh.log()


if __name__ == "__main__":
    main()
