# SPDX-License-Identifier: Apache-2.0
"""Black-box tests of npugraphd: a daemon on a private socket, calls over gRPC, and a line per check.

A test file registers functions with @test("what holds") and calls main(). Each prints "ok - what", "not ok - what" or
"skip - what: why"; the exit status is 0 only when none failed. After each test the daemon that it used must still be
alive, and when it stops it must exit with status 0.

The daemon is $NPUGRAPHD, or npugraphd in the build folder. Processes are ended by their own pid, nothing else.
"""
import atexit
import contextlib
import faulthandler
import http.client
import importlib
import json
import os
import pathlib
import pty
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

SOURCE = pathlib.Path(os.environ.get("top_srcdir", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("top_builddir", SOURCE))
# The name has the process id, so that directories of killed tests can be found and removed. It is not below the build folder, whose
# path may be too long for a socket.
SCRATCH = pathlib.Path(tempfile.mkdtemp(prefix=f"npugraphd-test-p{os.getpid()}-"))
ISA = os.environ.get("NGD_TEST_ISA")  # set by .ci/run's step isa: makes the daemon use kernels of an older CPU
GUARD = os.environ.get("NGD_TEST_GUARD")  # "all": each connection goes through the guard of HTTP/2 frames, root's too
SANITIZER = "SANITIZER" in os.environ  # sanitizers are slow, so times are not checked
PATIENCE = float(os.environ.get("NGD_TEST_PATIENCE", "120" if SANITIZER else "30"))  # seconds after which an event that must happen counts as lost
HANGS = 600  # seconds after which a single test hangs: it is ended, and prints where it was


def _program(name, variable):
    for path in (os.environ.get(variable), BUILD / name, BUILD / ".libs" / name):
        if path and os.access(path, os.X_OK):
            return str(path)
    return None


DAEMON = _program("npugraphd", "NPUGRAPHD")
CTL = _program("npugraphctl", "NPUGRAPHCTL")


def skip_all(why):
    print(f"skip - {pathlib.Path(sys.argv[0]).name}: {why}")
    sys.exit(77)


# ---- protocol code, made here so that the tests speak what the .proto files say ---------------------------------------

def _compile_protos():
    out = SCRATCH / "gen"
    out.mkdir()
    files = sorted(str(p.relative_to(SOURCE)) for p in (SOURCE / "proto").glob("*.proto"))
    subprocess.run(["protoc", f"--python_out={out}", "-I", str(SOURCE), *files], cwd=SOURCE, check=True)
    sys.path.insert(0, str(out))


try:
    import grpc
except ImportError:
    skip_all("python3-grpcio is not installed")
if shutil.which("protoc") is None:
    skip_all("protoc is not installed")
if DAEMON is None:
    skip_all("npugraphd was not built; set NPUGRAPHD")
_compile_protos()
pb = importlib.import_module("proto.npugraph_pb2")
health = importlib.import_module("proto.health_pb2")
reflection = importlib.import_module("proto.reflection_pb2")
rpc_status = importlib.import_module("proto.google_rpc_pb2")


def word(message, field):
    """Returns npugraphctl's word for the value of an enum field: "healthy" for DEVICE_STATE_HEALTHY."""
    names = {v.number: v.name for v in message.DESCRIPTOR.fields_by_name[field].enum_type.values}
    return names[getattr(message, field)].removeprefix(names[0].removesuffix("UNSPECIFIED")).lower()


# If a test is killed, its processes end with it. (A preexec_fn would need fork, which gRPC's threads forbid.)
if shutil.which("setpriv") is None:
    skip_all("setpriv is missing (Debian: util-linux)")
END_WITH_US = ["setpriv", "--pdeathsig", "KILL", "--"]


def _cleanup():
    for daemon in list(Daemon.running):
        daemon.kill()
    shutil.rmtree(SCRATCH, ignore_errors=True)


atexit.register(_cleanup)


def remove_scratch_of_the_dead():
    """Removes directories of killed tests: this user's, named npugraphd-test-p<process>-..., whose process is gone."""
    for path in SCRATCH.parent.glob("npugraphd-test-p*"):
        name = re.fullmatch(r"npugraphd-test-p(\d+)-\w+", path.name)
        with contextlib.suppress(FileNotFoundError):  # another test may be removing it
            if name and path.lstat().st_uid == os.getuid() and not pathlib.Path("/proc", name[1]).exists():
                shutil.rmtree(path, ignore_errors=True)


remove_scratch_of_the_dead()


def until(what, condition, timeout=None):
    """Waits until condition() is true, and returns its value."""
    end = time.monotonic() + (PATIENCE if timeout is None else timeout)
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"did not happen in time: {what}")
        time.sleep(0.01)


# ---- a daemon -----------------------------------------------------------------------------------------------------------

class Daemon:
    running = []
    count = 0

    def __init__(self, *options, listen="unix", env=None, expect_start=True, **kwargs):
        Daemon.count += 1
        self.dir = pathlib.Path(kwargs.get("dir") or SCRATCH / f"d{Daemon.count}")
        self.dir.mkdir(exist_ok=True)
        self.socket = self.dir / "s"
        self.log_path = self.dir / f"log{Daemon.count}"
        # bare: the options are those of the caller alone, for tests of files.
        usual = [] if kwargs.get("bare") else ["--stats-listen=127.0.0.1:0", "--stats-names=yes", "--device-memory=256M", "--drain-grace=10s"]
        command = [DAEMON, *usual]
        if listen == "unix":
            command.append(f"--listen=unix:{self.socket}")
        elif listen:
            command.append(f"--listen={listen}")
        if ISA:
            command.append(f"--isa={ISA}")
        if GUARD:
            command.append(f"--guard-unix={GUARD}")
        command += options
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(END_WITH_US + kwargs.get("through", []) + command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env={**os.environ, **(env or {})}, pass_fds=kwargs.get("pass_fds", ()))
        Daemon.running.append(self)
        if env and "NPUGRAPHD_FAULT" in env:
            self._need_faults()
        if expect_start:
            until(f"the daemon starts\n{self.log()}", lambda: self._started())

    def _started(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the daemon ended with status {self.process.returncode}:\n{self.log()}")
        return ": ready" in self.log()

    def _need_faults(self):
        until("the daemon says something", lambda: self.log() or not self.alive())
        if "this build has no fault points" in self.log():
            self.kill()
            raise Skip("this build has no fault points")

    def log(self):
        return self.log_path.read_text(errors="replace")

    def listening(self, scheme):
        """Returns the first address of that scheme in the log, without the scheme."""
        for line in self.log().splitlines():
            _, found, address = line.partition(f"listening on {scheme}:")
            if found:
                return address
        raise AssertionError(f"no {scheme} address in the log")

    @property
    def address(self):
        return f"unix:{self.socket}"

    def channel(self, address=None, options=(), **kwargs):
        # Each test gets its own channel; otherwise grpcio would share connections between tests.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1), *options]
        if "credentials" in kwargs:
            return grpc.secure_channel(address, kwargs["credentials"], options)
        return grpc.insecure_channel(address or self.address, options)

    def http(self, path, method="GET"):
        address = self.log().split("statistics on http://")[1].split("/")[0]
        connection = http.client.HTTPConnection(address, timeout=PATIENCE)
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, body

    def stats(self):
        status, body = self.http("/stats.json")
        assert status == 200, status
        return json.loads(body)

    def used_bytes(self):
        """Returns the used bytes without the pool, which belongs to the device and keeps the size of the largest graph."""
        device = self.stats()["devices"][0]
        return device["used_bytes"] - device["pool_bytes"]

    def settle(self):
        """Waits until all memory of earlier clients is free, except weights, which are freed a little later. No session may be open."""
        def left():
            stats = self.stats()
            return stats["sessions"]["open"] + stats["requests"]["in_flight"]
        until("no session and no call is left", lambda: left() == 0)
        Client(self).close()  # sessions are freed one after the other, so the earlier ones are free now

    def alive(self):
        return self.process.poll() is None

    def signal(self, number):
        os.kill(self.process.pid, number)

    def wait(self, timeout=None):
        status = self.process.wait(PATIENCE if timeout is None else timeout)
        if self in Daemon.running:
            Daemon.running.remove(self)
        return status

    def stop(self):
        """Stops the daemon with SIGTERM; a clean exit is part of every test."""
        if not self.alive():
            status = self.wait()
            raise AssertionError(f"the daemon had ended with status {status}:\n{self.log()[-3000:]}")
        self.signal(signal.SIGTERM)
        status = self.wait()
        assert status == 0, f"exit status {status}:\n{self.log()[-3000:]}"

    def kill(self):
        if self.alive():
            self.process.kill()
            self.process.wait()
        if self in Daemon.running:
            Daemon.running.remove(self)

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        if kind is None:
            self.stop()
        else:
            sys.stderr.write(f"--- log of the daemon ---\n{self.log()[-4000:]}\n")
            self.kill()


# ---- a client -----------------------------------------------------------------------------------------------------------

METHODS = {  # name: (kind, reply); the request's type is the argument's
    "Sessions/Open": ("stream_stream", pb.SessionEvent),
    "Memory/Allocate": ("unary_unary", pb.AllocateResponse),
    "Memory/Write": ("stream_unary", pb.WriteResponse),
    "Memory/Read": ("unary_stream", pb.ReadResponse),
    "Memory/Copy": ("unary_unary", pb.CopyResponse),
    "Memory/Free": ("unary_unary", pb.FreeResponse),
    "Memory/LoadSafetensors": ("unary_stream", pb.LoadProgress),
    "Memory/ReadFile": ("unary_unary", pb.ReadFileResponse),
    "Memory/ListBuffers": ("unary_unary", pb.ListBuffersResponse),
    "Graphs/Register": ("unary_unary", pb.RegisterResponse),
    "Graphs/Capture": ("unary_unary", pb.CaptureResponse),
    "Graphs/Replay": ("unary_unary", pb.ReplayResponse),
    "Graphs/ReplayStream": ("stream_stream", pb.ReplayResponse),
    "Graphs/Describe": ("unary_unary", pb.DescribeResponse),
    "Graphs/List": ("unary_unary", pb.ListGraphsResponse),
    "Graphs/Release": ("unary_unary", pb.ReleaseResponse),
    "Graphs/Bind": ("unary_unary", pb.BindResponse),
    "Graphs/CreateGroup": ("unary_unary", pb.CreateGroupResponse),
    "Graphs/GroupRoot": ("unary_unary", pb.GroupRootResponse),
    "Graphs/JoinRanks": ("unary_unary", pb.JoinRanksResponse),
    "Graphs/ListGroups": ("unary_unary", pb.ListGroupsResponse),
    "Graphs/Explain": ("unary_unary", pb.ExplainResponse),
    "Graphs/Doctor": ("unary_unary", pb.DoctorResponse),
    "Graphs/Trace": ("unary_unary", pb.TraceResponse),
    "Graphs/Buckets": ("unary_unary", pb.BucketsResponse),
    "Graphs/RegisterPattern": ("unary_unary", pb.RegisterPatternResponse),
    "Graphs/ListPatterns": ("unary_unary", pb.ListPatternsResponse),
    "Graphs/RemovePattern": ("unary_unary", pb.RemovePatternResponse),
    "Graphs/ListOptions": ("unary_unary", pb.ListOptionsResponse),
    "Sequences/RegisterModel": ("unary_unary", pb.RegisterModelResponse),
    "Sequences/UnloadModel": ("unary_unary", pb.UnloadModelResponse),
    "Sequences/ShareModel": ("unary_unary", pb.ShareModelResponse),
    "Sequences/ListModels": ("unary_unary", pb.ListModelsResponse),
    "Sequences/Open": ("unary_unary", pb.OpenResponse),
    "Sequences/Embed": ("unary_unary", pb.EmbedResponse),
    "Sequences/Fork": ("unary_unary", pb.OpenResponse),
    "Sequences/Step": ("unary_unary", pb.StepResponse),
    "Sequences/StepStream": ("stream_stream", pb.StepResponse),
    "Sequences/Generate": ("unary_stream", pb.GenerateResponse),
    "Sequences/Close": ("unary_unary", pb.CloseResponse),
    "Sequences/List": ("unary_unary", pb.ListSequencesResponse),
    "Admin/Status": ("unary_unary", pb.StatusResponse),
    "Admin/Stats": ("unary_unary", pb.StatsResponse),
    "Admin/Devices": ("unary_unary", pb.DevicesResponse),
    "Admin/DoctorDevice": ("unary_unary", pb.DoctorDeviceResponse),
    "Admin/ListSessions": ("unary_unary", pb.ListSessionsResponse),
    "Admin/ListShares": ("unary_unary", pb.ListSharesResponse),
    "Admin/Drain": ("unary_unary", pb.DrainResponse),
    "Admin/Reload": ("unary_unary", pb.ReloadResponse),
    "Admin/Config": ("unary_unary", pb.ConfigResponse),
    "Admin/SetConfig": ("unary_unary", pb.SetConfigResponse),
    "Admin/Logs": ("unary_unary", pb.LogsResponse),
    "Admin/StartTimeline": ("unary_unary", pb.StartTimelineResponse),
    "Admin/StopTimeline": ("unary_unary", pb.StopTimelineResponse),
    "Admin/ReadTimeline": ("unary_unary", pb.ReadTimelineResponse),
    "Admin/ListStore": ("unary_unary", pb.ListStoreResponse),
    "Admin/ReadStore": ("unary_stream", pb.ReadStoreResponse),
    "Admin/ImportStore": ("stream_unary", pb.ImportStoreResponse),
    "Admin/VerifyStore": ("unary_unary", pb.VerifyStoreResponse),
    "Admin/ClearStore": ("unary_unary", pb.ClearStoreResponse),
}


def encode(message):
    return message if isinstance(message, bytes) else message.SerializeToString()


def who(c):
    """Returns the identity of a client's session, which sees no other's."""
    return c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions[0].identity


class Client:
    """Opens a channel, and a session on it unless session=False."""

    def __init__(self, daemon, session=True, name="test", grace_ms=0, resume=None, address=None, bearer=None, **kwargs):
        self.daemon, self.bearer = daemon, bearer
        self.channel = daemon.channel(address, **kwargs)
        self.id, self.token, self.stream = 0, b"", None
        if session:
            try:
                self.open_session(pb.SessionOpen(client_name=name, grace_ms=grace_ms, resume=resume))
            except BaseException:
                self.channel.close()  # otherwise it would connect again at any time
                raise

    def open_session(self, request):
        self.requests = queue.Queue()
        self.requests.put(pb.SessionRequest(open=request))
        self.stream = self.method("Sessions/Open")(iter(self.requests.get, None), metadata=self.metadata())
        self.opened = next(self.stream).opened
        self.id, self.token = self.opened.session, self.opened.token

    def method(self, name):
        kind, reply = METHODS[name]
        return getattr(self.channel, kind)(f"/npugraph.v1.{name}", request_serializer=encode, response_deserializer=reply.FromString)

    def metadata(self, request_id=None, session=None):
        data = []
        if session or (session is None and self.id):
            data.append(("npugraph-session", str(session or self.id)))
        if self.token and session in (None, self.id):
            data.append(("npugraph-session-token-bin", self.token))
        if request_id:
            data.append(("npugraph-request-id", request_id))
        if self.bearer:
            data.append(("authorization", f"Bearer {self.bearer}"))
        return tuple(data)

    def call(self, name, request, request_id=None, session=None, timeout=None, **kwargs):
        return self.method(name)(request, metadata=self.metadata(request_id, session), timeout=timeout or PATIENCE, **kwargs)

    def ping(self, value=7):
        self.requests.put(pb.SessionRequest(ping=pb.SessionPing(value=value)))
        return next(self.stream)

    def allocate(self, size, label="", **kwargs):
        return self.call("Memory/Allocate", pb.AllocateRequest(bytes=size, label=label), **kwargs).buffer

    def write(self, buffer, data, offset=0, chunk=256 << 10):
        messages = (pb.WriteRequest(buffer=buffer, offset=offset + at, data=data[at:at + chunk]) for at in range(0, len(data), chunk))
        return self.call("Memory/Write", messages).bytes

    def read(self, buffer, offset=0, size=0):
        return b"".join(r.data for r in self.call("Memory/Read", pb.ReadRequest(buffer=buffer, offset=offset, bytes=size)))

    def register(self, text, bindings=None, options=None, **kwargs):
        request = pb.RegisterRequest(text=text)
        for name, buffer in (bindings or {}).items():
            request.bindings.add(name=name, buffer=buffer)
        for name, value in (options or {}).items():
            request.options.add(name=name, value=value)
        return self.call("Graphs/Register", request, **kwargs)

    def replay(self, graph, inputs=(), symbols=(), **kwargs):
        return self.call("Graphs/Replay", pb.ReplayRequest(graph=graph, inputs=list(inputs), symbols=list(symbols), **kwargs))

    def load(self, path, tensors=()):
        last = None
        for last in self.call("Memory/LoadSafetensors", pb.LoadSafetensorsRequest(path=str(path), tensors=list(tensors))):
            pass
        return last.done

    def end_session(self):
        """Half-closes the session's stream and waits for the daemon's end."""
        if self.stream:
            self.requests.put(None)
            for _ in self.stream:
                pass
            self.stream = None

    def close(self):
        with contextlib.suppress(grpc.RpcError):
            self.end_session()
        self.channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


# ---- refusals -------------------------------------------------------------------------------------------------------------

class Refusal:
    def __init__(self, error):
        self.code = error.code()
        self.text = error.details() or ""
        trailing = dict(error.trailing_metadata() or ())
        self.reason = trailing.get("npugraph-reason", "")
        self.details = trailing.get("grpc-status-details-bin", b"")


def refused(reason, code, fn, *args, **kwargs):
    """Checks that fn fails with that reason (or one of several) and status, a sentence, and details with the same reason."""
    try:
        value = fn(*args, **kwargs)
        if hasattr(value, "__next__"):
            for _ in value:
                pass
    except grpc.RpcError as error:
        got = Refusal(error)
    else:
        raise AssertionError(f"was accepted; expected {reason}")
    reasons = (reason,) if isinstance(reason, str) else reason
    assert got.reason in reasons, f"reason {got.reason or '(none)'} ({got.code.name}: {got.text}), expected {reason}"
    assert got.code is getattr(grpc.StatusCode, code), f"status {got.code.name}, expected {code}"
    assert len(got.text) > 15 and got.text[-1] != "\n", f"not a sentence to act on: {got.text!r}"
    status = rpc_status.Status.FromString(got.details)
    info = rpc_status.ErrorInfo.FromString(status.details[0].value)
    assert (info.reason, info.domain) == (got.reason, "npugraph.v1"), info
    assert status.code == got.code.value[0] and status.message == got.text, status
    return got


# ---- other processes --------------------------------------------------------------------------------------------------------

class Child:
    """Runs Python code in a separate process, with this module; it answers by printing lines."""

    def __init__(self, daemon, code):
        prelude = f"import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r}); sys.argv = ['child']\n" \
                  f"from harness import *\n" \
                  f"class D:\n    address = {daemon.address!r}\n    channel = Daemon.channel\n" \
                  f"daemon = D()\n"
        self.process = subprocess.Popen([*END_WITH_US, sys.executable, "-u", "-c", prelude + code], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def line(self):
        text = self.process.stdout.readline().strip()
        if not text:
            raise AssertionError(f"the child said nothing: {self.process.communicate()[1]}")
        return text

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.line()

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def wait(self):
        out, err = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, err
        return out


# ---- running ------------------------------------------------------------------------------------------------------------------

class Skip(Exception):
    pass


def open_terminal():
    """Returns both ends of a pseudo terminal. The test is skipped where there is none, as in some containers of builds."""
    try:
        return pty.openpty()
    except OSError as e:
        raise Skip(f"no pseudo terminal can be opened: {e}; is /dev/pts mounted?") from e


_tests = []


def test(what):
    def register_test(fn):
        _tests.append((what, fn))
        return fn
    return register_test


def main(*options, shared=True):
    """Runs the tests of the file. shared: one daemon with these options serves all tests that take an argument."""
    only = sys.argv[1:]
    passed = failed = 0
    daemon = None
    for what, fn in _tests:
        if only and not any(o in fn.__name__ for o in only):
            continue
        wants = fn.__code__.co_argcount > 0
        try:
            if wants and daemon is None and shared:
                daemon = Daemon(*options)
            began = time.monotonic()
            faulthandler.dump_traceback_later(HANGS, exit=True)
            fn(daemon) if wants else fn()
            faulthandler.cancel_dump_traceback_later()
            if wants:
                assert daemon.alive(), f"the daemon has died:\n{daemon.log()[-3000:]}"
        except Skip as why:
            print(f"skip - {what}: {why}", flush=True)
            continue
        except Exception:
            failed += 1
            print(f"not ok - {what}", flush=True)
            traceback.print_exc()
            if daemon and not daemon.alive():
                sys.stderr.write(daemon.log()[-3000:])
                daemon.kill()
                daemon = None
            continue
        passed += 1
        print(f"ok - {what} ({time.monotonic() - began:.2f} s)", flush=True)
    if daemon:
        try:
            daemon.stop()
        except Exception:
            failed += 1
            print("not ok - the daemon stops cleanly after all of it", flush=True)
            traceback.print_exc()
            daemon.kill()
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)
