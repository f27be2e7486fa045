#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The standard services and the statistics endpoint: health, reflection, HTTP."""
import re
import shutil
import socket
import subprocess

from google.protobuf import descriptor_pb2

from harness import *

SERVICES = {"npugraph.v1.Sessions", "npugraph.v1.Memory", "npugraph.v1.Graphs", "npugraph.v1.Sequences", "npugraph.v1.Admin",
            "inference.GRPCInferenceService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
SERVING, UNKNOWN = 1, 3


def health_method(channel, kind, name, reply):
    return getattr(channel, kind)(f"/grpc.health.v1.Health/{name}", lambda m: m.SerializeToString(), reply.FromString)


@test("health: Check knows the server and every service, and refuses others")
def check(daemon):
    with daemon.channel() as channel:
        call = health_method(channel, "unary_unary", "Check", health.HealthCheckResponse)
        for service in {"", *SERVICES}:
            assert call(health.HealthCheckRequest(service=service)).status == SERVING, service
        refused("NOT_FOUND", "NOT_FOUND", call, health.HealthCheckRequest(service="no.Such"))
        statuses = health_method(channel, "unary_unary", "List", health.HealthListResponse)(health.HealthListRequest()).statuses
        assert {k: v.status for k, v in statuses.items()} == {s: SERVING for s in {"", *SERVICES}}


@test("health: Watch answers at once, keeps open for an unknown service, and tells of a drain")
def watch():
    with Daemon() as d, d.channel() as channel:
        call = health_method(channel, "unary_stream", "Watch", health.HealthCheckResponse)
        known, unknown = call(health.HealthCheckRequest()), call(health.HealthCheckRequest(service="no.Such"))
        assert next(known).status == SERVING and next(unknown).status == UNKNOWN
        with Client(d) as c:
            c.call("Admin/Drain", pb.DrainRequest(stay=True))
        assert next(known).status == 2
        check_call = health_method(channel, "unary_unary", "Check", health.HealthCheckResponse)
        assert check_call(health.HealthCheckRequest()).status == 2
        assert d.http("/readyz")[0] == 503 and d.http("/healthz")[0] == 200
        known.cancel()
        unknown.cancel()
        until("no call is left", lambda: d.stats()["requests"]["in_flight"] == 0)


@test("reflection: v1 and v1alpha list the services and give the file of any symbol")
def reflect(daemon):
    with daemon.channel() as channel:
        for version in ("v1", "v1alpha"):
            call = channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                                         lambda m: m.SerializeToString(), reflection.ServerReflectionResponse.FromString)
            Request = reflection.ServerReflectionRequest
            symbols = ["npugraph.v1.Graphs", "npugraph.v1.Graphs.Replay", "npugraph.v1.ReplayRequest", "google.rpc.ErrorInfo.MetadataEntry",
                       "grpc.health.v1.HealthCheckResponse.ServingStatus"]
            requests = [Request(list_services=""), *(Request(file_containing_symbol=s) for s in symbols),
                        Request(file_by_filename="proto/npugraph.proto"), Request(file_containing_symbol="no.Such"),
                        Request(file_by_filename="nothing.proto"), Request(all_extension_numbers_of_type="npugraph.v1.ReplayRequest"),
                        Request(), Request(list_services="", host="me")]
            answers = list(call(iter(requests), timeout=PATIENCE))
            assert len(answers) == len(requests)
            assert {s.name for s in answers[0].list_services_response.service} == SERVICES
            for symbol, answer in zip(symbols, answers[1:]):
                files = [descriptor_pb2.FileDescriptorProto.FromString(f) for f in answer.file_descriptor_response.file_descriptor_proto]
                assert any(symbol.startswith(f.package) for f in files), symbol
            assert answers[6].file_descriptor_response.file_descriptor_proto
            for answer in answers[7:9]:
                assert answer.error_response.error_code == 5, answer
            assert answers[-1].valid_host == "me" and answers[-1].original_request.list_services == ""


@test("HTTP: the pages are there, others are not, and only GET and HEAD are taken")
def http_pages(daemon):
    assert daemon.http("/healthz") == (200, "ok\n") and daemon.http("/readyz") == (200, "serving\n")
    assert daemon.http("/")[0] == 200 and "<title>npugraphd</title>" in daemon.http("/")[1]
    assert daemon.http("/metrics", "HEAD") == (200, "")
    assert daemon.http("/nothing")[0] == 404 and daemon.http("/../etc/passwd")[0] == 404 and daemon.http("/metrics/")[0] == 404
    for method in ("POST", "PUT", "DELETE"):
        assert daemon.http("/metrics", method)[0] in (405, 501), method
    assert daemon.http("/" + "x" * 20000)[0] == 431
    assert {"requests", "cache", "devices", "graphs", "models", "latency", "sessions", "sequences", "kv", "tokens"} <= set(daemon.stats())


def raw_http(daemon, data=b"", wait=None):
    """Sends these bytes to the statistics endpoint. Returns the socket, or the whole answer."""
    host, port = daemon.log().split("statistics on http://")[1].split("/")[0].rsplit(":", 1)
    s = socket.create_connection((host, int(port)), timeout=wait or PATIENCE)
    s.sendall(data)
    if wait is None:
        return s
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := s.recv(1 << 16):
            answer += piece
    s.close()
    return answer


@test("HTTP: what is not a request, has a body or is too long is refused by status")
def http_refusals(daemon):
    head = b" HTTP/1.1\r\nHost: localhost\r\n"
    for request, status in ((b"GET /healthz" + head + b"\r\n", 200), (b"GET http://localhost/healthz?x=1" + head + b"\r\n", 200),
                            (b"GET http://localhost?x=/" + head + b"\r\n", 200), (b"GET healthz" + head + b"\r\n", 400),
                            (b"GET /healthz" + head + b"no colon\r\n\r\n", 400), (b"GET /healthz" + head + b" folded: x\r\n\r\n", 400),
                            (b"GET /healthz" + head + b"A : x\r\n\r\n", 400), (b"GET /healthz" + head + b"A: \x7f\r\n\r\n", 400),
                            (b"GET /healthz" + head + b"A: b\nHost: x\r\n\r\n", 400), (b"GET /health z HTTP/1.1\r\n\r\n", 400),
                            (b"GET /healthz" + head + b"Content-Length: 0\r\n\r\n", 200),
                            (b"GET /healthz" + head + b"Content-Length: 5\r\n\r\nhello", 413),
                            (b"GET /healthz" + head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
                            (b"GET /" + b"x" * 9000 + head + b"\r\n", 431), (b"GET /" + head + b"A: " + b"x" * 200000, 431),
                            (b"POST /healthz" + head + b"\r\n", 405), (b"GET /healthz HTTP/2.0\r\n\r\n", 505),
                            (b"nonsense\r\n\r\n", 400), (b"\r\n\r\n", 400), (b"GET /\0 HTTP/1.1\r\n\r\n", 400),
                            (b"\x16\x03\x01" + bytes(200) + b"\r\n\r\n", 400)):
        answer = raw_http(daemon, request, PATIENCE)
        assert answer.startswith(b"HTTP/1.1 %d " % status), (request[:60], answer[:100])
    assert raw_http(daemon, b"HEAD /metrics" + head + b"\r\n", PATIENCE).endswith(b"\r\n\r\n")


@test("HTTP: only requests for hosts that are known are answered, and none from pages of other origins")
def http_hosts():
    with Daemon("--stats-hosts=Node7.example.org", "--stats-hosts=metrics") as d:
        def status(host, *lines, target="/healthz", version="1.1"):
            hosts = [f"Host: {h}" for h in ([host] if isinstance(host, str) else host)]
            request = "\r\n".join((f"GET {target} HTTP/{version}", *hosts, *lines, "", ""))
            return int(raw_http(d, request.encode(), PATIENCE).split()[1])
        for host in ("127.0.0.1", "127.0.0.1:17947", "10.1.2.3:80", "[::1]", "[fe80::1]:9400", "localhost", "LOCALHOST:1", "node7.example.org:9400", "metrics"):
            assert status(host) == 200, host
            assert status(host, f"Origin: http://{host}") == status(host, f"Origin: https://{host}") == 200, host
            assert status("localhost", target=f"http://{host}/healthz") == 200, host
        for host in ("", "evil.example.org", "localhost.evil.org", "evil.org:127.0.0.1", "127.0.0.1.evil.org", "127.0.0.1:80:80", "127.1", "[::1", "[::1]x", "[]",
                     "[127.0.0.1]", "metrics.", "metrics:http", "user@metrics", "x" * 300, "node7.example.org,metrics"):
            assert status(host) == 421, host
            assert status(host, version="1.0") == 421, host
            assert status("localhost", target=f"http://{host}/healthz") == 421, host
        assert b"stats-hosts" in raw_http(d, b"GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n", PATIENCE)
        assert status([]) == 400 and status([], version="1.0") == 200
        assert status(["localhost", "localhost"]) == 400 and status("localhost", "Origin: http://localhost", "Origin: http://localhost") == 400
        for origin in ("http://evil.org", "null", "", "http://localhost", "http://metrics:80", "https://metrics.evil.org", "metrics"):
            assert status("metrics", f"Origin: {origin}") == 403, origin
        assert status([], "Origin: http://metrics", version="1.0") == 403
    for bad in ("a:1", "http://a", "*"):
        out = subprocess.run([DAEMON, "--check-config", f"--stats-hosts={bad}"], capture_output=True, text=True, timeout=PATIENCE)
        assert out.returncode == 2 and "stats-hosts" in out.stderr, (bad, out)


@test("HTTP: slow and many clients are bounded, keep no scraper away, and are closed after 10 s")
def http_crowd(daemon):
    count = lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
    before = count()
    began = time.monotonic()
    slow = [raw_http(daemon, b"GET /metr") for _ in range(300)]
    assert daemon.http("/healthz") == (200, "ok\n")
    until("the oldest are closed", lambda: count() <= before + 65)
    last = slow[-1]
    for byte in b"ics HTTP/1.1":  # each byte is late, but within any limit for a single read
        if time.monotonic() - began > 9:
            break
        time.sleep(0.7)
        with contextlib.suppress(ConnectionError):  # it is closed by now if this thread was late
            last.sendall(bytes([byte]))
    assert daemon.stats()["state"] == "serving"
    until("all of them are closed", lambda: count() <= before)
    assert time.monotonic() - began > 9, time.monotonic() - began
    for s in slow:
        s.close()


@test("/metrics is what promtool accepts, before and after work")
def promtool(daemon):
    if shutil.which("promtool") is None and "CI" not in os.environ:  # in CI, scripts/deps.sh has installed it
        raise Skip("promtool is not installed (Debian: prometheus)")
    with Client(daemon) as c:
        g = c.register('npugraph 1\ngraph "with \\"quotes\\"" { input %x : f32[4] %y = aten.neg(%x) return %y }').graph
        c.replay(g, [bytes(16)])
        for text in (daemon.http("/metrics")[1], c.call("Admin/Stats", pb.StatsRequest(form=pb.STATS_FORM_PROMETHEUS)).text):
            out = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True)
            assert out.returncode == 0, out.stderr + out.stdout
        assert json.loads(c.call("Admin/Stats", pb.StatsRequest()).text)["replays_total"] >= 1
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Admin/Stats", pb.StatsRequest(form=3))


@test("Admin: status, devices and sessions say what there is")
def admin(daemon):
    with Client(daemon, name="who") as c:
        s = c.call("Admin/Status", pb.StatusRequest())
        assert s.state == pb.DAEMON_STATE_SERVING and s.pid == daemon.process.pid and s.sessions == 1 and s.stats_address
        assert list(s.listen) == [daemon.address]
        assert re.fullmatch(r"expiry (realtime|slice|nice|ordinary), rpc (slice|ordinary)", s.wakeup), s.wakeup
        d = c.call("Admin/Devices", pb.DevicesRequest()).devices
        assert [x.name for x in d] == ["host:0"] and d[0].state == pb.DEVICE_STATE_HEALTHY and d[0].memory_bytes == 256 << 20
        sessions = c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions
        assert [(x.session, x.client_name) for x in sessions] == [(c.id, "who")] and sessions[0].identity.startswith("uid:")


if __name__ == "__main__":
    main()
