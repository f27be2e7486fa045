#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions that move, with sequences, buffers and graphs, to the daemon that takes over (npugraphd --replace)."""
import importlib.util
import random
import re
import struct
import threading

from replacing import *
from sequences import close, generate, start, step


SLOW_PATIENT = {"NPUGRAPHD_FAULT": ",".join(env["NPUGRAPHD_FAULT"] for env in (SLOW, PATIENT))}


def reason_of(error):
    return dict(error.trailing_metadata() or ()).get("npugraph-reason", "")


class Mover(Client):
    """A client whose session asks to move, and which does by hand what libnpugraph does."""

    def __init__(self, daemon, **kwargs):
        super().__init__(daemon, session=False)
        self.open_session(pb.SessionOpen(client_name="mover", moves=True, **kwargs))

    def follow(self, daemon):
        """Resumes the session on another connection; the old one stays open in .before until .leave()."""
        other = Client(daemon, session=False)
        other.open_session(pb.SessionOpen(resume=pb.SessionResume(session=self.id, token=self.token)))
        assert other.opened.resumed and other.id == self.id
        return other


def refused(c, fn, *args):
    try:
        fn(*args)
    except grpc.RpcError as error:
        return reason_of(error)
    return ""


# ---- by the protocol --------------------------------------------------------------------------------------------------

@test("a session that asks for it moves: its sequence, buffer and graph have their ids and contents, and the old daemon ends at once")
def moves():
    with Line("--drain-grace=60s", env=PATIENT) as line:
        expected = text_of(line.now)
        c, old = Mover(line.now), line.now
        buffer, state = c.allocate(1 << 20), c.allocate(16)
        c.write(buffer, bytes(range(256)) * 4096)
        graph = c.register(COUNT, {"sum": state}).graph
        one = np_floats(1, 2, 3, 4)
        assert c.call("Graphs/Replay", pb.ReplayRequest(graph=graph, inputs=[one])).outputs[0] == one
        s = start(c, "m", PROMPT)
        tokens = [s.token] + [step(c, s.sequence).token for _ in range(3)]
        once = c.allocate(96, request_id="once")
        freed = c.allocate(64)
        c.call("Memory/Free", pb.FreeRequest(buffers=[freed]))
        fresh = line.replace()
        told = next(c.stream).draining
        assert told.replaced and told.moved
        assert refused(c, step, c, s.sequence) == "SESSION_MOVED"
        assert refused(c, c.read, buffer) == "SESSION_MOVED"
        d = c.follow(fresh)
        assert old.wait() == 0, old.log()[-3000:]
        tokens += [step(d, s.sequence).token for _ in range(4)]
        assert [tokens[0], *tokens] == expected[:9], (tokens, expected)
        assert d.read(buffer) == bytes(range(256)) * 4096
        assert d.call("Graphs/Replay", pb.ReplayRequest(graph=graph, inputs=[one])).outputs[0] == np_floats(2, 4, 6, 8)
        assert refused(d, d.read, freed) == "STALE_ID"
        assert d.allocate(96, request_id="once") == once
        assert d.allocate(64) not in (buffer, state, freed)
        close(d, s.sequence)
        page = fresh.http("/metrics")[1]
        assert "\nnpugraphd_sessions_moved_total 1\n" in page and "\nnpugraphd_session_pause_seconds_count 1\n" in page
        parts = re.findall(r'\nnpugraphd_handover_pause_seconds_total{part="(\w+)"} ([\d.]+)', page)
        assert [name for name, _ in parts] == ["begin", "quiet", "describe", "pass", "make", "commit", "first", "last"], parts
        assert 0 < sum(float(value) for _, value in parts) < PATIENCE and "1 of 1 clients have come" in fresh.log(), parts
        d.close()
        c.close()


def np_floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


@test("a step whose answer was lost gets the answer again, and is not done twice; a generation goes on where it broke off")
def repeated():
    with Daemon(f"--models-dir={MODEL}", "--device-memory=512M") as daemon:
        subprocess.run([CTL, "--address", daemon.address, "load", str(MODEL), "--name", "m"], check=True, stdout=subprocess.DEVNULL)
        expected = text_of(daemon, 12)[1:]
        with Client(daemon) as c:
            s = start(c, "m", PROMPT)
            q = s.sequence
            first = step(c, q, position=s.position)
            again = step(c, q, position=s.position)
            assert (again.token, again.position, again.accepted) == (first.token, first.position, 0)
            assert refused(c, lambda: step(c, q, position=first.position + 1)) == "INVALID_ARGUMENT"
            assert refused(c, lambda: step(c, q, position=s.position, want_logits=True)) == "ANSWER_LOST"
            drafted = step(c, q, position=first.position, draft=expected[2:4])
            again = step(c, q, position=first.position, draft=expected[2:4])
            assert (again.token, again.position, again.accepted) == (drafted.token, drafted.position, drafted.accepted), (again, drafted)
            told = generate(c, q, 4)
            at = drafted.position
            for begin in range(4):
                request = pb.GenerateRequest(sequence=q, max_tokens=4 - begin, ignore_stop=True)
                setattr(request, "from", at + begin)
                assert [t for m in c.call("Sequences/Generate", request) for t in m.tokens] == told[begin:]
            request = pb.GenerateRequest(sequence=q, max_tokens=1)
            setattr(request, "from", at + 99)
            assert refused(c, lambda: list(c.call("Sequences/Generate", request))) == "INVALID_ARGUMENT"


@test("sessions that do not ask, or have what cannot move, stay in the old daemon and work there; so do those that the new one refuses")
def stay():
    with Line("--drain-grace=60s", env=PATIENT) as line:
        expected = text_of(line.now)
        movers = [Mover(line.now) for _ in range(2)]
        with Client(line.now) as c:
            s = start(c, "m", PROMPT)
            t = start(movers[0], "m", PROMPT)
            movers[1].allocate(300 << 20)  # more than moves at a time
            old, fresh = line.now, line.replace()
            assert not next(c.stream).draining.moved and not next(movers[1].stream).draining.moved
            assert [s.token, *generate(c, s.sequence, 12)] == expected
            movers[1].allocate(64)
            assert refused(movers[1], movers[1].follow, fresh) == "SESSION_GONE"
            d = movers[0].follow(fresh)
            assert [t.token, *generate(d, t.sequence, 12)] == expected
            assert old.alive() and "more" in old.log()
            for x in (d, *movers):
                x.close()


def products(n):
    """A graph that multiplies a matrix by itself n times, one product after another."""
    lines = [f"  %y{i + 1} = aten.mm(%y{i}, %y0)" for i in range(n)]
    return "\n".join(["npugraph 1", 'graph "products" {', '  state %y0 : f32[1024,1024] = "m"', *lines, f'  return "y" = %y{n}', "}", ""])


@test("a session whose calls take longer than the 100 ms that they have to end stays, and they are served; others move")
def busy():
    done, over = [], threading.Event()

    def keep_busy(c, graph):
        while not over.is_set():
            if refused(c, c.call, "Graphs/Replay", pb.ReplayRequest(graph=graph)) == "":
                done.append(1)
            else:
                time.sleep(0.01)  # until it is known that the session stays

    with Line("--drain-grace=60s") as line:
        c, other, old = Mover(line.now), Mover(line.now), line.now
        graph = c.register(products(8), {"m": c.allocate(4 << 20)}).graph
        s = start(other, "m", PROMPT)
        threads = [threading.Thread(target=keep_busy, args=(c, graph)) for _ in range(5)]  # the last of them waits for four products
        for t in threads:
            t.start()
        try:
            fresh = line.replace()
            assert not next(c.stream).draining.moved and next(other.stream).draining.moved
            n = len(done)
            until("calls of the session that stays are served", lambda: len(done) > n + 5)
        finally:
            over.set()
            for t in threads:
                t.join()
        step(other.follow(fresh), s.sequence)
        c.close()
        assert old.wait() == 0


@test("if the new daemon dies when it has taken over, sessions whose clients have not come there are served again by the old one")
def taken_back():
    with Line("--drain-grace=60s", env=PATIENT) as line:
        expected = text_of(line.now)
        come, waits = Mover(line.now), Mover(line.now)
        s, t = start(come, "m", PROMPT), start(waits, "m", PROMPT)
        fresh = line.next()
        d = come.follow(fresh)
        assert [s.token, *generate(d, s.sequence, 12)] == expected
        assert refused(waits, step, waits, t.sequence) == "SESSION_MOVED"
        fresh.kill()
        until("the old daemon serves again", lambda: pid_of(line.now) == line.now.process.pid)
        assert [t.token, *generate(waits, t.sequence, 12)] == expected
        assert refused(come, step, come, s.sequence) == "SESSION_GONE", "what happened in the new daemon is lost with it"
        for x in (come, d, waits):
            x.close()


@test("a session whose client leaves the old daemon instead of coming ends in the new one; one that comes late is there")
def left():
    with Line("--drain-grace=60s", env=PATIENT) as line:
        ends, late = Mover(line.now), Mover(line.now)
        buffer = late.allocate(64)
        fresh = line.replace()
        sessions = lambda: fresh.stats()["sessions"]["open"]
        until("both are there", lambda: sessions() == 2)
        ends.close()
        until("one has ended", lambda: sessions() == 1)
        line.now = fresh
        third = line.replace()  # it moves once more before its client comes
        d = late.follow(third)
        assert d.read(buffer) == bytes(64)
        d.close()
        late.close()


@test("a session whose client comes while it is on its way to a third daemon is not served by the second one, and has lost nothing in the third")
def comes_between():
    with Line("--drain-grace=60s", env=PATIENT) as line:
        c = Mover(line.now)
        buffer = c.allocate(64)
        second = line.replace(env=SLOW_PATIENT)  # what it describes takes 300 ms longer to be handed over
        other, late = Mover(second), Client(second, session=False)
        mine = other.allocate(64)
        late.call("Admin/Status", pb.StatusRequest())  # connected before the second daemon stops to accept
        third = line.next(expect_start=False)
        while refused(other, other.read, mine) != "SESSION_MOVED":  # until the second daemon has frozen its sessions
            pass
        came = refused(late, late.open_session, pb.SessionOpen(resume=pb.SessionResume(session=c.id, token=c.token)))
        assert came in ("", "SESSION_GONE"), came  # it may have gone by now
        if not came:
            assert refused(late, late.write, buffer, b"x" * 64) == "SESSION_MOVED"
        line.follow(third)
        d, e = c.follow(third), other.follow(third)
        assert d.read(buffer) == bytes(64)
        for x in (d, e, late, other, c):
            x.close()


# ---- by libnpugraph ---------------------------------------------------------------------------------------------------

WORKER = """
import json, struct, sys, threading, time
import npugraph

address, model, prompt, expected, ring, graph = json.loads(sys.argv[1])
c = npugraph.connect(address, name="mover", local_transport=ring)
buffer, state = c.upload(bytes(range(256))), c.upload(bytes(16))
g = c.graph(graph, {"sum": state})
s, other = c.open(model, prompt), c.open(model, prompt)
tokens, replays, texts, wrong = [s.token], 0, 0, []
stop = threading.Event()

def texts_of():
    global texts
    while not stop.is_set():
        with c.open(model, prompt) as q:
            told = list(q.generate(len(expected)))
        if told != expected:
            wrong.append(told)
        texts += 1

threads = [threading.Thread(target=texts_of, daemon=True) for _ in range(2)]
for t in threads:
    t.start()
print("ready", flush=True)
stream = c.replay_stream()
for line in sys.stdin:
    before = texts
    while texts < before + 4:
        assert all(t.is_alive() for t in threads), "a generation has failed"
        time.sleep(0.01)
    tokens.append(s.step().token)
    replays += 1
    result = stream.replay(g, [struct.pack("<4f", 1, 0, 0, 0)])
    assert bytes(result[0]) == struct.pack("<4f", replays, 0, 0, 0), replays
    assert buffer.read() == bytes(range(256))
    print(c.session, c.has_ring, flush=True)
stop.set()
for t in threads:
    t.join()
tokens += list(other.generate(4))
c.close()
print(json.dumps({"tokens": tokens, "texts": texts, "wrong": wrong}), flush=True)
"""


def library_worker(line, ring, expected):
    if importlib.util.find_spec("numpy") is None:
        raise Skip("Python's package needs numpy")
    if SANITIZER:
        raise Skip("a program without the sanitizer, as Python is, cannot load a libnpugraph with it")
    arguments = json.dumps([line.now.address, "m", PROMPT, expected, ring, COUNT])
    worker = subprocess.Popen([*END_WITH_US, sys.executable, "-c", WORKER, arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": str(SOURCE / "python" / "src"), "NPUGRAPH_LIBRARY_PATH": str(BUILD / ".libs")})
    assert worker.stdout.readline() == "ready\n"
    return worker


def go_on(worker):
    worker.stdin.write("\n")
    worker.stdin.flush()
    return worker.stdout.readline().split() or [f"status {worker.wait()}"]


def pauses_only(ring):
    with Line("--drain-grace=60s", env=PATIENT) as line:
        expected = text_of(line.now, 12)[1:]
        worker = library_worker(line, ring, expected)
        session = go_on(worker)[0]
        for _ in range(2):
            line.replace()
            line.leave()
            assert go_on(worker)[0] == session, "its session has moved"
        failing = line.next("--device-memory=1M", expect_start=False)
        assert failing.wait() != 0
        assert go_on(worker)[0] == session
        worker.stdin.close()
        told = json.loads(worker.stdout.read())
        assert worker.wait() == 0
        assert not told["wrong"] and told["tokens"] == expected[:5] + expected[:4], (told, expected)


@test("a client of libnpugraph notices nothing: steps, generations, replays of a graph with a state, buffers, over gRPC")
def library():
    pauses_only(False)


@test("the same, by shared memory")
def library_ring():
    pauses_only(True)


# ---- hostile records --------------------------------------------------------------------------------------------------

def departure(**changes):
    """A session that could move: a sequence without keys and values, and a buffer."""
    sequence = dict(id=(7 << 32) + 2, model="m", tokens=struct.pack("<4i", *PROMPT), n_prompt=4, n_given=4, draws=1, chosen=9, priority=1)
    upload = handover.Upload(offset=0)
    buffer = handover.Buffer(device="host:0", label="b", bytes=64, upload=upload)
    session = dict(id=1234, token=bytes(16), client_name="c", identity=f"uid:{os.getuid()}", generation=7, slots=3, buffers=[buffer],
                   buffer_ids=[(7 << 32) + 1], read_only=[False])
    sequence.update({k[2:]: v for k, v in changes.items() if k.startswith("q_")})
    session.update({k: v for k, v in changes.items() if not k.startswith("q_")})
    return handover.Departure(sessions=[handover.Session(sequences=[handover.Sequence(**sequence)], **session)]).SerializeToString()


@test("records that are cut, random, or say what cannot be, are refused one by one, and the daemon serves")
def hostile():
    bad = [dict(id=0), dict(id=1 << 63), dict(token=b"x"), dict(identity=""), dict(identity="x" * 200), dict(grace_ms=60001), dict(client_name="n" * 65),
           dict(slots=1), dict(slots=1 << 31), dict(buffer_ids=[5]), dict(buffer_ids=[(7 << 32) + 1] * 2, read_only=[False] * 2), dict(read_only=[]),
           dict(buffers=[handover.Buffer(device="host:0", bytes=64, upload=handover.Upload(offset=1))]),
           dict(buffers=[handover.Buffer(device="host:9", bytes=64)]), dict(buffers=[handover.Buffer(device="host:0", bytes=1 << 60)]),
           dict(graphs=[handover.Graph(text="npugraph 1", device="host:0")]), dict(graph_ids=[(7 << 32) + 3]),
           dict(q_id=(7 << 32) + 1), dict(q_model="none"), dict(q_tokens=b"abc"), dict(q_tokens=b""), dict(q_tokens=b"\xff" * 16), dict(q_n_prompt=5),
           dict(q_position=5), dict(q_draws=0), dict(q_draws=1 << 63), dict(q_chosen=1 << 31), dict(q_priority=77), dict(q_tables=bytes(7)), dict(q_tables=bytes(800)),
           dict(q_tables=bytes(8), q_kv_bytes=1 << 40, q_kv=handover.Upload()), dict(q_sampling=b"\xff\xff"), dict(q_allowed=b"\0"),
           dict(q_sampling=pb.Sampling(temperature=-1).SerializeToString()), dict(q_logprobs=pb.Logprobs(token=-5).SerializeToString())]
    good, rng = departure(), random.Random(3)
    records = [departure(**b) for b in bad] + [good[:n] for n in rng.sample(range(1, len(good)), 8)] + [rng.randbytes(rng.randrange(1, 200)) for _ in range(8)]
    joined = handover.Departure()  # all that are messages at once, and one that is good, so that one daemon is enough
    for r in records:
        try:
            joined.sessions.extend(handover.Departure.FromString(r).sessions[:1])
        except Exception:
            pass
    joined.sessions.append(handover.Departure.FromString(departure(id=77)).sessions[0])
    with Line() as line, connect_to(line.now.dir / "s.replace") as real:
        real.send(packet(hello=handover.Hello(pid=1)))
        data, fds, _, _ = socket.recv_fds(real, 65536, 200)  # what the model is, for a daemon that the test gives nothing else
        offer = handover.Packet.FromString(data).offer
        for i, (record, taken) in enumerate([(joined.SerializeToString(), 77), (good[:50], 0), (b"\xff" * 60, 0), (good, 1234)]):
            with Old(f"record{i}") as old:
                serve_record(old, offer, fds[len(offer.items):], record, taken)
        for fd in fds:
            os.close(fd)


def serve_record(old, offer, description, record, taken):
    uploads = bytes(range(64))
    old.meet()
    told = packet(offer=handover.Offer(description_bytes=offer.description_bytes, upload_bytes=offer.upload_bytes, digest=offer.digest))
    socket.send_fds(old.peer, [told], description)
    ready = old.hear()
    assert ready.HasField("ready"), (ready, old.fresh.log()[-3000:])
    fds = [sealed(record + b"\0"), sealed(uploads)]
    lies = {"frozen_at": (1 << 64) - taken, "begin_ns": (1 << 64) - 1} if taken == 77 else {"frozen_at": 1} if taken else {"quiet_ns": 1 << 63}
    socket.send_fds(old.peer, [packet(go=handover.Go(departure_bytes=len(record) + 1, upload_bytes=len(uploads), **lies))], fds)
    for fd in fds:
        os.close(fd)
    answer = old.hear().serving
    assert list(answer.taken) == ([taken] if taken else []), (list(answer.taken), old.fresh.log()[-6000:])
    old.peer.send(packet(bye=handover.Bye()))
    until("the daemon serves", lambda: old.fresh._started())
    if taken:
        with Client(old.fresh, session=False) as c:
            c.open_session(pb.SessionOpen(resume=pb.SessionResume(session=taken, token=bytes(16))))
            assert old.hear().adopted.session == taken
            assert c.read((7 << 32) + 1) == uploads
            assert step(c, (7 << 32) + 2, position=4).position == 5
        spent = re.search(r"\nnpugraphd_session_pause_seconds_sum ([\d.]+)\n", old.fresh.http("/metrics")[1])
        assert float(spent[1]) < PATIENCE, "a time that cannot be was believed"
    old.fresh.stop()


if __name__ == "__main__":
    main()
