#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""npugraphd --replace: one daemon takes over from another one, and no call of a client fails."""
import concurrent.futures
import hashlib
import random
import socket

from replacing import *
from sequences import close, generate, listed, start

# ---- what is handed over ----------------------------------------------------------------------------------------------

@test("a daemon takes over the address, the models and the statistics of the one that runs, which ends")
def takes_over():
    with Line() as line:
        before = text_of(line.now)
        old = line.now
        fresh = line.replace()
        assert old.wait() == 0, old.log()[-3000:]
        assert pid_of(fresh) == fresh.process.pid
        assert text_of(fresh) == before
        assert fresh.stats()["models"], "the statistics are served"
        with Client(fresh) as c:
            assert c.opened.local_socket == f"{fresh.dir}/s.local"
        assert f"{fresh.process.pid}" == (line.now.dir / "s.lock").read_text().strip(), "the lock says who holds it"


@test(f"a line of {3 if SANITIZER else 5} daemons")
def in_line():
    with Line() as line:
        before = text_of(line.now)
        for _ in range(2 if SANITIZER else 4):
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
            fresh.signal(signal.SIGSTOP)
            with concurrent.futures.ThreadPoolExecutor() as pool:
                page = pool.submit(fresh.http, "/metrics")
                time.sleep(0.3)  # the old daemon would answer, if it still accepted
                fresh.signal(signal.SIGCONT)
                assert "\nnpugraphd_handovers_taken_total 1\n" in page.result()[1]
            other = c.channel  # the connection is the old daemon's
        other.close()
        assert old.wait() == 0


@test("models of other identities, shared or private, and registered patterns are what they were; so are the weights that no file has")
def owners():
    bearer, path, tokens = "npugraph_" + "k" * 43, SCRATCH / "bearer", SCRATCH / "tokens"
    path.write_text(bearer)
    path.chmod(0o600)
    tokens.write_text(f"a  sha256:{hashlib.sha256(bearer.encode()).hexdigest()}  never\n")
    tokens.chmod(0o600)
    pattern = 'pattern "neg_neg" {\n  version 3\n  doc "minus minus"\n  dim N\n  input %x : f32[N]\n  source { %a = aten.neg(%x) %y = aten.neg(%a) ' \
              'return %y }\n  replacement { %y = aten.mul.Scalar(%x) {other=1} return %y }\n}'

    def seen(daemon):
        with Client(daemon) as root, Client(daemon, bearer=bearer) as a:
            models = {(m.name, m.owner, m.audience) for m in root.call("Sequences/ListModels", pb.ListModelsRequest()).models}
            patterns = [[(p.name, p.version, p.owner) for p in c.call("Graphs/ListPatterns", pb.ListPatternsRequest()).patterns] for c in (root, a)]
            s = start(a, "private", PROMPT)
            return models, patterns, [s.token, *generate(a, s.sequence, 12)]

    with Line(f"--token-file={tokens}") as line:
        for name, more in (("private", ()), ("shared", ("--share-with", "uid:4711,group:team"))):
            line.ctl("load", str(MODEL), "--name", name, *more, env={"NPUGRAPH_TOKEN_FILE": str(path)})
        with Client(line.now, bearer=bearer) as a, Client(line.now) as root:
            a.call("Graphs/RegisterPattern", pb.RegisterPatternRequest(text=pattern))
            root.call("Graphs/RegisterPattern", pb.RegisterPatternRequest(text=pattern.replace("neg_neg", "for_all"), for_all=True))
        before = seen(line.now)
        assert {(n, o) for n, o, _ in before[0]} == {("m", f"uid:{os.getuid()}"), ("private", "token:a"), ("shared", "token:a")}, before[0]
        line.replace()
        assert seen(line.now) == before


@test("addresses over TCP stay open, those that the new daemon does not configure are closed, and new ones are opened")
def addresses():
    with Line("--allow-plaintext=yes", "--listen=127.0.0.1:0", load=False) as line:
        address = line.now.listening("tcp")
        line.replace()
        assert line.now.listening("tcp") == address
        with Client(line.now, address=address) as c:
            assert c.call("Admin/Status", pb.StatusRequest()).pid == line.now.process.pid
        line.options = [o for o in line.options if not o.startswith("--listen")] + [f"--listen=unix:{line.now.dir}/more"]
        line.replace()
        line.leave()
        host, _, port = address.rpartition(":")
        with socket.socket() as s:
            assert s.connect_ex((host, int(port))) != 0, "nobody listens there any more"
        with Client(line.now, address=f"unix:{line.now.dir}/more") as c:
            assert c.call("Admin/Status", pb.StatusRequest()).pid == line.now.process.pid


@test("systemd is told of the new main process, and a socket that it passed goes from daemon to daemon and is not removed")
def systemd():
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(SCRATCH / "notify"))
    notify.settimeout(PATIENCE)
    passed = socket.socket(socket.AF_UNIX)
    passed.bind(str(SCRATCH / "passed"))
    passed.listen()
    options = ["--stats-listen=off", "--device-memory=64M", f"--replace-socket={SCRATCH}/next"]
    env = {"NOTIFY_SOCKET": str(SCRATCH / "notify"), "WATCHDOG_USEC": "300000"}
    shell = ["bash", "-c", f'exec 3<&{passed.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 WATCHDOG_PID=$$ exec "$@"', "-"]
    old = Daemon(*options, bare=True, listen=None, env=env, through=shell, pass_fds=[passed.fileno()])
    if "listening on unix:/run" in old.log():
        raise Skip("built without systemd")
    env |= {"LISTEN_PID": str(old.process.pid), "LISTEN_FDS": "1", "WATCHDOG_PID": str(old.process.pid)}
    with Daemon(*options, "--replace", bare=True, listen=None, env=env) as fresh:
        assert f"listening on unix:{SCRATCH}/passed" in fresh.log() and "/run" not in fresh.log().replace(str(SCRATCH), ""), fresh.log()
        until("the main process is told", lambda: f"MAINPID={fresh.process.pid}".encode() in notify.recv(1000))
        with Client(fresh, address=f"unix:{SCRATCH}/passed", session=False) as c:
            assert c.call("Admin/Status", pb.StatusRequest()).pid == fresh.process.pid
        # Both write to the socket all the time: while nobody reads, it is full, and holds them up.
        until("the old one ends", lambda: notify.recv(1000) and old.process.poll() is not None)
        assert old.wait() == 0
        until("nothing of the old one is left to be said", lambda: b"WATCHDOG=1" in notify.recv(1000))
        for _ in range(5):
            assert b"STOPPING" not in notify.recv(1000), "the service does not stop"
    assert (SCRATCH / "passed").exists()


@test("a daemon that was replaced still says so when the next one has ended, and is not reloaded")
def next_one_stopped():
    old = Daemon()
    with Client(old) as c:
        with Daemon("--replace", dir=old.dir) as fresh:
            pass
        until("it is told", lambda: not (old.dir / "s").exists())
        assert c.call("Admin/Status", pb.StatusRequest()).handover == f"replaced by process {fresh.process.pid}"
        refused("BUSY", "FAILED_PRECONDITION", c.call, "Admin/Reload", pb.ReloadRequest())
    assert old.wait() == 0


@test("a session that does not end is ended when drain-grace is over, and the old daemon with it; a reload meanwhile is refused")
def grace():
    with Line(f"--drain-grace={3 if SANITIZER else 1}s", load=False) as line:
        old = line.now
        with Client(old) as c:
            line.replace()
            assert next(c.stream).draining.replaced
            refused("BUSY", "FAILED_PRECONDITION", c.call, "Admin/Reload", pb.ReloadRequest())
            assert next(c.stream).HasField("draining")  # now as by SIGTERM
            refused("DRAINING", "UNAVAILABLE", lambda: c.stream)
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
        if SANITIZER:
            print("# with a sanitizer: two of five mistakes", flush=True)
        else:
            fails(line, "--no-such-option=1", says="no-such-option", status=2)
            fails(line, "--models-dir=/nonexistent", "--listen=127.0.0.1:1", says="plaintext", status=2)
            fails(line, "--max-bytes-per-identity=1M", "--token-file=/nonexistent", says="token", status=2)
        fails(line, "--device-memory=4M", says='model "m"', status=1)
        assert "does not take over: it has ended" in line.now.log()
        line.replace()


@test("a daemon that fails when it has taken over gives all back")
def fails_late():
    with Line() as line:
        before, old = text_of(line.now), line.now
        (old.dir / "link").symlink_to("s.replace")
        fresh = line.next(f"--replace-socket={old.dir}/link", expect_start=False)  # the old one listens there, but the new one cannot
        assert fresh.wait() != 0 and "replace-socket" in fresh.log(), fresh.log()
        until("the old daemon serves again", lambda: "serves new clients again" in old.log())
        assert pid_of(old) == old.process.pid and text_of(old) == before and old.stats()["models"]
        assert f"{old.process.pid}" == (old.dir / "s.lock").read_text().strip()
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
        first = line.next(expect_start=False, env=SLOW)
        until("the first one is at it", lambda: "asks to take over" in line.now.log())
        first.signal(signal.SIGSTOP)  # it is not ready before the second one comes
        second = line.next(expect_start=False)
        assert second.wait() == 3 and f"process {first.process.pid} is taking over" in second.log(), second.log()
        first.signal(signal.SIGCONT)
        until("the first one serves", lambda: ": ready" in first.log())
        line.gone.append(line.now)
        line.now = first


# ---- what changes meanwhile -------------------------------------------------------------------------------------------

@test("models that are loaded, unloaded and shared while another daemon prepares are there, or not, afterwards")
def changes_meanwhile():
    pattern = 'pattern "gone" { version 1 doc "minus minus" dim N input %x : f32[N] source { %a = aten.neg(%x) %y = aten.neg(%a) return %y } ' \
              'replacement { %y = aten.mul.Scalar(%x) {other=1} return %y } }'
    with Line() as line, Client(line.now) as c:
        c.call("Graphs/RegisterPattern", pb.RegisterPatternRequest(text=pattern))
        line.ctl("load", str(MODEL), "--name", "gone")
        fresh = line.next(expect_start=False, env=SLOW)
        until("it has the first offer", lambda: "taking over from" in fresh.log())
        fresh.signal(signal.SIGSTOP)  # it is not ready before all is changed
        line.ctl("load", str(MODEL), "--name", "late")
        line.ctl("unload", "gone")
        c.call("Graphs/RemovePattern", pb.RemovePatternRequest(name="gone"))
        c.close()
        fresh.signal(signal.SIGCONT)
        until("it serves", lambda: ": ready" in fresh.log())
        assert "making them again" in fresh.log()
        line.gone.append(line.now)
        line.now = fresh
        with Client(fresh) as c:
            assert listed(c, "m") and listed(c, "late") and not listed(c, "gone")
            assert not [p.name for p in c.call("Graphs/ListPatterns", pb.ListPatternsRequest()).patterns if p.owner != "built-in"]


# ---- under load -------------------------------------------------------------------------------------------------------

@test("two upgrades under a load of 16 workers, 100 steps a second: no call fails, each text is what it was, and the old daemons end")
def upgrades_under_load():
    with Line("--drain-grace=120s") as line:
        load, moments, quiet = Load(line, tokens=12), [], []
        for _ in range(2):
            begin = time.monotonic()
            line.replace()
            load.go_on(32)
            line.leave()
            moments.append((begin, time.monotonic()))
            load.go_on(32)
            quiet.append((moments[-1][1], time.monotonic()))
        told = load.end()
        assert not told["wrong"], told["wrong"][:3]
        longest, usual = pauses(told, moments), pauses(told, quiet)
        print(f"# {len(told['calls'])} calls; longest of a worker in an upgrade: median {percentile(longest, 50) * 1e3:.0f} ms, "
              f"p99 {percentile(longest, 99) * 1e3:.0f} ms; without one: {percentile(usual, 50) * 1e3:.0f} and {percentile(usual, 99) * 1e3:.0f} ms", flush=True)


@test("the new daemon is killed at any moment before it took over: no call fails; after it took over: the old one serves again")
def new_one_killed():
    rng = random.Random(11)
    with Line("--drain-grace=120s") as line:
        with Client(line.now) as holder:  # its session keeps the old daemon there
            assert holder.id
            load = None if SANITIZER else Load(line, workers=4)
            for _ in range(2 if SANITIZER else 5):
                fresh = line.next(expect_start=False, env=SLOW)
                time.sleep(rng.uniform(0, 1.0))  # it takes 1.2 s to come to its last step
                fresh.kill()
                until("the old daemon serves", lambda: pid_of(line.now) == line.now.process.pid)
            if load:
                told = load.end()
                assert not told["wrong"], told["wrong"][:3]
            expected = text_of(line.now)
            before, times = line.now.log().count("does not take over any more"), 1 if SANITIZER else 3
            for _ in range(times):
                line.next().kill()
                until("the old daemon serves again", lambda: pid_of(line.now) == line.now.process.pid)
                assert text_of(line.now) == expected
            assert line.now.log().count("does not take over any more") == before + times
        line.replace()
        assert text_of(line.now) == expected


@test("the old daemon is killed at any moment: the new one has the sockets, and all models that it was told of")
def old_one_killed():
    rng = random.Random(13)
    for _ in range(1 if SANITIZER else 4):
        with Line("--drain-grace=60s") as line:
            before = text_of(line.now)
            fresh = line.next(expect_start=False, env=SLOW)
            until("it has the offer", lambda: "taking over from" in fresh.log())
            time.sleep(rng.uniform(0, 1.2))
            line.now.kill()
            line.now = fresh
            until("the new one serves", lambda: ": ready" in fresh.log())
            assert text_of(fresh) == before


@test("of three daemons the second one is killed: the third one serves, and the first one does not come back beside it")
def middle_killed():
    with Line("--drain-grace=120s", load=False) as line:
        first = line.now
        with Client(first), Client(line.replace()) as of_second:
            second, third = line.now, line.replace()
            assert of_second.id
            second.kill()
            line.gone.remove(second)
            for _ in range(20):
                assert pid_of(third) == third.process.pid
            assert "serves new clients again" not in first.log()


@test("a daemon that is stopped while it describes again leaves the sockets to the next one, which has them")
def stopped_while_describing():
    old = Daemon(env=SLOW)
    with connect_to(old.dir / "s.replace") as s:
        s.send(packet(hello=handover.Hello(pid=1)))
        data, fds, _, _ = socket.recv_fds(s, 65536, 200)
        s.send(packet(ready=handover.Ready(digest=handover.Packet.FromString(data).offer.digest)))
        old.signal(signal.SIGTERM)
        assert old.wait() == 0
        assert (old.dir / "s").exists() and (old.dir / "s.replace").exists()
        for fd in fds:
            os.close(fd)


# ---- hostile peers ----------------------------------------------------------------------------------------------------

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


@test("a daemon that was not heard in time, and is refused, ends: the old one serves, and two would at once")
def refused_late():
    with Old("late") as old:
        old.meet(through=["env", "NPUGRAPHD_FAULT=" + SLOW["NPUGRAPHD_FAULT"]])
        old.offer_nothing()
        assert old.hear().HasField("ready")
        old.peer.send(packet(go=handover.Go()))
        old.peer.send(packet(refusal=handover.Refusal(text="it does not answer")))
        old.leave()  # before its answer, which comes 300 ms later
        assert old.fresh.wait() == 3 and "not replaced: it does not answer" in old.fresh.log(), old.fresh.log()


@test("a daemon that waits for the one that it replaces ends by a signal")
def signalled():
    with Old("silent") as old:
        old.meet()
        old.fresh.signal(signal.SIGTERM)
        assert old.fresh.wait() == 1 and "a signal has ended the handover" in old.fresh.log(), old.fresh.log()


@test("a process of another user that listens at replace-socket is not taken for the daemon that runs")
def stranger():
    if os.getuid() != 0:
        raise Skip("needs root, to be two users")
    directory = SCRATCH / "stranger"
    directory.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.bind(str(directory / "s.replace"))
        subprocess.run([sys.executable, "-c", f"import socket; socket.socket(fileno={s.fileno()}).listen()"], pass_fds=[s.fileno()], user=65534, check=True)
        fresh = Daemon("--replace", dir=directory, expect_start=False)
        assert fresh.wait() == 1 and "another user" in fresh.log(), fresh.log()


if __name__ == "__main__":
    main()
