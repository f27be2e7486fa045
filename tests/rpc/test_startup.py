#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starting and stopping: options, a second daemon, stale sockets, activation."""
import socket
import stat
import subprocess

from harness import *

EXIT_CONFIG, EXIT_OTHER = 2, 3


def run(*arguments, **kwargs):
    return subprocess.run([DAEMON, *arguments], capture_output=True, text=True, timeout=PATIENCE, **kwargs)


@test("a second daemon on the same socket is refused, and the first serves on")
def second_on_socket(daemon):
    second = run(f"--listen=unix:{daemon.socket}", "--stats-listen=off")
    assert second.returncode == EXIT_OTHER and str(daemon.process.pid) in second.stderr, second
    with Client(daemon) as c:
        c.allocate(1)
    assert daemon.socket.exists()


@test("a second daemon on the same TCP port, or statistics port, is refused")
def second_on_port():
    with Daemon("--allow-plaintext=yes", listen="tcp:127.0.0.1:0") as d:
        address = d.listening("tcp")
        second = run(f"--listen=tcp:{address}", "--allow-plaintext=yes", "--stats-listen=off")
        assert second.returncode != 0 and "in use" in second.stderr, second
        stats = d.log().split("statistics on http://")[1].split("/")[0]
        third = run(f"--listen=unix:{SCRATCH}/third", f"--stats-listen={stats}")
        assert third.returncode != 0 and "stats-listen" in third.stderr, third
        with Client(d, address=address) as c:
            c.allocate(1)
            assert c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions[0].identity == "tcp:127.0.0.1"


@test("a socket that a dead daemon left is replaced; a file in its place is not")
def stale():
    d = Daemon()
    d.kill()
    assert d.socket.exists()
    with Daemon(dir=d.dir) as again, Client(again) as c:
        c.allocate(1)
    assert not again.socket.exists(), "a clean stop removes the socket"
    (SCRATCH / "file").write_text("precious")
    out = run(f"--listen=unix:{SCRATCH}/file", "--stats-listen=off")
    assert out.returncode != 0 and "not a socket" in out.stderr and (SCRATCH / "file").read_text() == "precious"


@test("socket-mode is the socket's mode from the start")
def mode():
    for text, want in (("600", 0o600), ("666", 0o666)):
        with Daemon(f"--socket-mode={text}") as d:
            assert stat.S_IMODE(d.socket.stat().st_mode) == want
    assert run("--socket-mode=888").returncode == EXIT_CONFIG


@test("unknown options and bad values are refused with what is allowed; in a file with its line")
def bad_options():
    for arguments, text in ((["--lissten=x"], "did you mean listen"), (["--slots=0"], "1 to 64"), (["--isa=mmx"], "one of"),
                            (["--slots"], "needs a value"), (["plain"], "unexpected"), (["--listen=nonsense"], "allowed"),
                            (["--tls-cert=x"], "go together"), (["--static-compiler=cc"], "absolute path"),
                            (["--static-dir=x"], "absolute path"), (["--config=/does/not/exist"], "cannot be read")):
        out = run(*arguments)
        assert out.returncode == EXIT_CONFIG and text in out.stderr, (arguments, out)
    conf = SCRATCH / "conf"
    conf.write_text("# a comment\nslots = 2\nslotz = 3\n")
    out = run(f"--config={conf}", "--check-config")
    assert out.returncode == EXIT_CONFIG and f"{conf}:3:" in out.stderr, out


@test("--print-config prints a file that is valid; --help and --version answer")
def print_config():
    conf = SCRATCH / "sample"
    conf.write_text(run("--print-config").stdout)
    out = run(f"--config={conf}", "--check-config")
    assert out.returncode == 0 and "valid" in out.stdout, out
    conf.write_text("\n".join(l[1:] if l.startswith("#") and " =" in l and not l.startswith("# ") else l for l in conf.read_text().splitlines()) + "\n")
    assert run(f"--config={conf}", "--check-config").returncode == 0
    assert "--listen" in run("--help").stdout and run("--version").stdout.startswith("npugraphd ")


@test("a start warns of directories that cannot be used and of host devices that are the same hardware, and serves")
def warnings():
    (SCRATCH / "plain").write_text("")
    with Daemon("--models-dir=/does/not/exist", f"--models-dir={SCRATCH}", f"--dump-dir={SCRATCH}/plain", "--device=host:0", "--device=host:1",
                "--device-memory=0") as d, Client(d) as c:
        log = d.log()
        assert "warning daemon: models-dir /does/not/exist: No such file or directory; no file can be loaded from it until that is mended" in log, log
        assert f"dump-dir {SCRATCH}/plain: Not a directory" in log and log.count("models-dir") == 1, log
        assert "2 host devices share the CPUs and the memory of this machine" in log, log
        two = [dev.memory_bytes for dev in c.call("Admin/Devices", pb.DevicesRequest()).devices]
    with Daemon("--device-memory=0") as d, Client(d) as c:
        one = c.call("Admin/Devices", pb.DevicesRequest()).devices[0].memory_bytes
        assert "warning" not in d.log(), d.log()
    assert two[0] == two[1] and abs(sum(two) - one) <= 2, (one, two)


@test("the manual page's options are those of the daemon")
def manual():
    page = (SOURCE / "man" / "npugraphd.conf.5").read_text()
    options = page.partition(".SH OPTIONS\n")[2].partition(".SH ")[0]
    assert ".TP" in options
    assert options == run("--print-man").stdout, "the list in man/npugraphd.conf.5 is not what npugraphd --print-man prints"
    sample = (SOURCE / "systemd/npugraphd.conf").read_text()
    assert sample == run("--print-config").stdout, "systemd/npugraphd.conf is not what npugraphd --print-config prints"


@test("plaintext TCP is refused unless it is allowed in so many words, also on loopback addresses")
def plaintext():
    addresses = ["0.0.0.0", "127.0.0.1", "[::1]"]
    with contextlib.suppress(socket.gaierror):  # a minimal container has no /etc/hosts
        socket.getaddrinfo("localhost", 0)
        addresses.append("localhost")
    for address in addresses:
        out = run(f"--listen=tcp:{address}:0", "--stats-listen=off")
        assert out.returncode == EXIT_CONFIG and "--allow-plaintext=yes" in out.stderr, out
    with Daemon("--allow-plaintext=yes", listen="tcp:0.0.0.0:0") as d:
        assert d.listening("tcp").startswith("0.0.0.0:")
    with Daemon("--allow-plaintext=yes", listen="tcp:[::1]:0") as d, Client(d, address=d.listening("tcp")) as c:
        c.allocate(1)


@test("plaintext TCP on a socket that systemd passes is refused as well")
def plaintext_passed():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = f'exec 3<&{listener.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "{DAEMON}" --stats-listen=off --listen=unix:{SCRATCH}/none/s'
        out = subprocess.run([*END_WITH_US, "bash", "-c", command], pass_fds=[listener.fileno()], capture_output=True, text=True, timeout=PATIENCE)
    assert out.returncode != 0, out
    if f"{SCRATCH}/none" in out.stderr:
        raise Skip("built without systemd")
    assert out.returncode == EXIT_CONFIG and "--allow-plaintext=yes" in out.stderr, out


@test("a socket that systemd passes is served, with no other")
def activation():
    path = SCRATCH / "activated"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    # LISTEN_PID must be the daemon's process id: a shell sets it to its own and becomes the daemon.
    command = f'exec 3<&{listener.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "{DAEMON}" --stats-listen=off --device-memory=64M'
    log = open(SCRATCH / "activated.log", "wb")
    process = subprocess.Popen([*END_WITH_US, "bash", "-c", command], pass_fds=[listener.fileno()], stdout=log, stderr=log)
    try:
        until("it is ready", lambda: b": ready" in (SCRATCH / "activated.log").read_bytes() or process.poll() is not None)
        text = (SCRATCH / "activated.log").read_text()
        if "listening on unix:/run" in text or process.poll() is not None:
            raise Skip("built without systemd")
        channel = grpc.insecure_channel(f"unix:{path}")
        status = channel.unary_unary("/npugraph.v1.Admin/Status", lambda m: b"", pb.StatusResponse.FromString)(None, timeout=PATIENCE)
        assert list(status.listen) == [f"unix:{path}"]
        channel.close()
        process.terminate()
        assert process.wait(PATIENCE) == 0
        assert path.exists(), "the socket is systemd's to remove"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


@test("readiness and stopping are told to systemd")
def notify():
    path = SCRATCH / "notify"
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(str(path))
    s.settimeout(PATIENCE)
    with Daemon(env={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "300000"}) as d:
        if not select_ready(s):
            raise Skip("built without systemd")
        messages = [s.recv(1000)]
        assert b"READY=1" in messages[0], messages
        assert b"WATCHDOG=1" in s.recv(1000)
        d.signal(signal.SIGTERM)
        until("it says that it stops", lambda: b"STOPPING=1" in s.recv(1000))
        assert d.wait() == 0
        d.stop = lambda: None


def select_ready(s):
    import select
    return select.select([s], [], [], 3)[0]


if __name__ == "__main__":
    main()
