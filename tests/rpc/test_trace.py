#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces: which calls are traced, what their spans say, and collectors that are slow, dead or hostile."""
import http.server
import re
import socket
import socketserver
import threading

from harness import *
from oip_client import MODEL, Oip, pack, request
from ring import ELSEWHERE, Ring

TEXT = """npugraph 1
graph "traced" {
  input %x : f32[64,64]
  %a = aten.mm(%x, %x)
  return "y" = %a
}"""
INPUT = bytes(64 * 64 * 4)
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ME = f"uid:{os.getuid()}"


def parent(trace=TRACE, span=SPAN, flags="01"):
    return f"00-{trace}-{span}-{flags}"


class Collector:
    """Takes OTLP over HTTP, on a loopback port or a Unix socket, and checks what comes by the protocol's rules for JSON."""

    def __init__(self, path=None, answers=(), interim=()):
        self.spans, self.resources, self.errors, self.posts = [], [], [], 0
        self.answers = list(answers)  # (code, headers, body) of the first requests; then 200
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                code, headers, text = outer.answers.pop(0) if outer.answers else (200, {}, b"{}")
                outer.posts += 1
                for early in interim:  # answers that are not the last
                    self.send_response_only(early)
                    self.end_headers()
                self.send_response(code)
                for name, value in {"Content-Length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(text)
                try:
                    assert self.path == "/v1/traces" and self.headers["Content-Type"] == "application/json"
                    if code == 200:
                        outer.take(json.loads(body))
                except Exception as error:
                    outer.errors.append(error)

            def log_message(self, *_):
                pass

            def address_string(self):
                return "test"

        class Unix(socketserver.ThreadingUnixStreamServer):
            daemon_threads = True

        self.server = Unix(str(path), Handler) if path else http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"unix:{path}" if path else f"http://127.0.0.1:{self.server.server_address[1]}/v1/traces"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def take(self, request):
        assert list(request) == ["resourceSpans"]
        for resource in request["resourceSpans"]:
            self.resources.append(attributes(resource["resource"]))
            for scope in resource["scopeSpans"]:
                assert scope["scope"]["name"] == "npugraphd"
                for span in scope["spans"]:
                    check_span(span)
                    self.spans.append(span)

    def got(self, n, trace=None):
        """Waits for n spans of a trace, or of all."""
        def there():
            assert not self.errors, self.errors
            mine = [s for s in list(self.spans) if trace in (None, s["traceId"])]
            return mine if len(mine) >= n else None
        return until(f"{n} spans come", there)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        assert not self.errors, self.errors


def attributes(holder):
    found = {}
    for a in holder.get("attributes", ()):
        assert list(a) == ["key", "value"] and len(a["value"]) == 1 and a["key"] not in found, a
        kind, value = next(iter(a["value"].items()))
        assert kind in ("stringValue", "intValue") and isinstance(value, str), a
        found[a["key"]] = int(value) if kind == "intValue" else value
    return found


def check_span(s):
    assert set(s) <= {"traceId", "spanId", "parentSpanId", "traceState", "name", "kind", "flags", "startTimeUnixNano", "endTimeUnixNano",
                      "attributes", "status"}, s
    assert re.fullmatch("[0-9a-f]{32}", s["traceId"]) and s["traceId"].strip("0"), s
    for key in ("spanId", "parentSpanId"):
        assert key == "parentSpanId" and key not in s or re.fullmatch("[0-9a-f]{16}", s[key]) and s[key].strip("0"), s
    assert s["name"] and s["kind"] in (1, 2) and s["flags"] & 0x101 == 0x101, s
    begin, end = int(s["startTimeUnixNano"]), int(s["endTimeUnixNano"])
    assert begin <= end and abs(end / 1e9 - time.time()) < 600, s
    attributes(s)


def tree(spans):
    """Checks that spans nest, and returns {name: span} of the children of the one server span, and that span."""
    top, = [s for s in spans if s["kind"] == 2]
    by_id = {s["spanId"]: s for s in spans}
    assert len(by_id) == len(spans), spans
    for s in spans:
        if s is not top:
            above = by_id[s["parentSpanId"]]
            assert above["traceId"] == s["traceId"]
            assert int(above["startTimeUnixNano"]) <= int(s["startTimeUnixNano"]), (above, s)
            assert int(s["endTimeUnixNano"]) <= int(above["endTimeUnixNano"]), (above, s)
    return top, {s["name"]: s for s in spans if s is not top}


def metric(daemon, name):
    """A metric's value; 0: it has no such row yet."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in daemon.http("/metrics")[1].splitlines() if line.startswith(f"npugraphd_{name} "))


def with_context(c, name, request, *more):
    """Makes a call with metadata."""
    return c.method(name)(request, metadata=c.metadata() + more, timeout=PATIENCE)


@contextlib.contextmanager
def traced(collector, sample="0", **options):
    more = [f"--{k.replace('_', '-')}={v}" for k, v in options.items()]
    with Daemon(f"--trace-endpoint={collector.url}", f"--trace-sample={sample}", *more) as daemon, Client(daemon) as c:
        yield daemon, c


@test("the first replay of a graph: queue with the capture inside, copies and the replay, under the client's span")
def spans_of_a_replay():
    with Collector() as collector, traced(collector) as (daemon, c):
        graph = c.register(TEXT).graph
        request = pb.ReplayRequest(graph=graph, inputs=[INPUT], tag=77, timing=True)
        answer = with_context(c, "Graphs/Replay", request, ("traceparent", parent()), ("tracestate", "a=1,b=2"))
        top, below = tree(collector.got(9))
        assert {"queue", "capture", "passes", "plan", "instantiate", "copy in", "replay", "copy out"} == set(below), below
        assert top["traceId"] == TRACE and top["parentSpanId"] == SPAN and top["traceState"] == "a=1,b=2" and top["flags"] == 0x301
        assert top["name"] == "npugraph.v1.Graphs/Replay" and "status" not in top
        said = attributes(top)
        assert (said["rpc.service"], said["rpc.method"], said["rpc.grpc.status_code"]) == ("npugraph.v1.Graphs", "Replay", 0)
        assert said["npugraph.identity"] == ME and said["npugraph.graph"] == "traced" and said["npugraph.tag"] == 77
        assert said["npugraph.device"] == "host:0" and said["npugraph.session"] == c.id and re.fullmatch("[0-9a-f]{16}", said["npugraph.key"])
        assert below["passes"]["parentSpanId"] == below["capture"]["spanId"] and below["capture"]["parentSpanId"] == below["queue"]["spanId"]
        for name, ns in (("replay", answer.timing.replay_ns), ("copy in", answer.timing.copy_in_ns), ("queue", answer.timing.queue_ns)):
            took = int(below[name]["endTimeUnixNano"]) - int(below[name]["startTimeUnixNano"])
            assert took == ns, (name, took, ns)
        assert collector.resources[0]["service.name"] == "npugraphd"
        with_context(c, "Graphs/Replay", request, ("traceparent", parent(trace="1" * 32)))
        assert {"queue", "copy in", "replay", "copy out"} >= set(tree(collector.got(4, "1" * 32))[1])
        assert metric(daemon, "trace_spans_sent_total") >= 9


@test("messages of streams are children of the message's context, of the stream's, or traces of their own; so over a ring")
def messages():
    with Collector() as collector, traced(collector) as (daemon, c):
        graph = c.register(TEXT).graph
        c.replay(graph, [INPUT])
        own = bytes.fromhex("2" * 32 + "3" * 16 + "01")
        requests = [pb.ReplayRequest(graph=graph, inputs=[INPUT], trace_parent=p) for p in (b"", own, own[:-1], own[:-1] + b"\0")]
        requests.append(pb.ReplayRequest(graph=99, inputs=[INPUT], trace_parent=own))
        answers = list(c.method("Graphs/ReplayStream")(iter(requests), metadata=c.metadata() + (("traceparent", parent()),), timeout=PATIENCE))
        assert [a.error.reason for a in answers] == [""] * 4 + ["BAD_ID"] or answers[4].error.reason, answers
        stream = [s for s in collector.got(2, TRACE) if s["kind"] == 2]
        mine = [s for s in collector.got(2, "2" * 32) if s["kind"] == 2]
        assert [s["parentSpanId"] for s in stream] == [SPAN] * 2  # the first message, and the one whose context is cut
        assert [s["parentSpanId"] for s in mine] == ["3" * 16] * 2 and [s.get("status", {}).get("code") for s in mine] == [None, 2]
        assert mine[1]["status"]["message"] == answers[4].error.message
        assert attributes(mine[1])["npugraph.reason"] == answers[4].error.reason and attributes(mine[0])["npugraph.unit"] == "message"
        with Ring(c) as ring:
            large = c.register(TEXT.replace("64,64", "512,512")).graph  # its answer does not fit: the client asks again over gRPC
            assert ring.ask(0, pb.ReplayRequest(graph=large, inputs=[b""], trace_parent=own))[0] == ELSEWHERE
            ring.replay(0, graph=graph, inputs=[INPUT], trace_parent=bytes.fromhex("4" * 32 + "5" * 16 + "01"))
            ring.replay(0, graph=graph, inputs=[INPUT])
        assert tree(collector.got(4, "4" * 32))[0]["parentSpanId"] == "5" * 16
        assert len([s for s in collector.spans if s["kind"] == 2]) == 5


@test("a call is traced as its client says; without a context by the last bits of its trace id, none at 0 and all at 1")
def sampling():
    with Collector() as collector, traced(collector, sample="1") as (daemon, c):
        graph = c.register(TEXT).graph
        collector.got(1)
        c.replay(graph, [INPUT])
        with_context(c, "Graphs/Replay", pb.ReplayRequest(graph=graph, inputs=[INPUT]), ("traceparent", parent(flags="00")))
        with_context(c, "Admin/Status", pb.StatusRequest(), ("traceparent", parent()))
        names = [s["name"] for s in collector.got(7) if s["kind"] == 2]
        assert sorted(names) == ["npugraph.v1.Admin/Status", "npugraph.v1.Graphs/Register", "npugraph.v1.Graphs/Replay"], names
        assert not [s for s in collector.spans if s["traceId"] == TRACE and "Replay" in s["name"]]
        c.call("Admin/Status", pb.StatusRequest())  # no work: traced only with a context
    with Collector() as collector, traced(collector, sample="0.25", trace_limit=1000000) as (daemon, c):
        graph = c.register(TEXT).graph
        for _ in range(400):
            c.replay(graph, [INPUT])
        with_context(c, "Admin/Status", pb.StatusRequest(), ("traceparent", parent()))
        collector.got(1, TRACE)
        roots = [s for s in collector.spans if s["kind"] == 2 and s["traceId"] != TRACE]
        assert 40 < len(roots) < 170, len(roots)  # 100 are expected; less often than once in a million it is none of these
        assert all(int(s["traceId"][-14:], 16) < 0.25 * 2 ** 56 and "parentSpanId" not in s for s in roots)


@test("a traceparent that is not well formed is ignored, and the call served; later versions are read, a bad tracestate is left out")
def hostile_contexts():
    bad = ["", "00", parent().upper(), parent(trace="0" * 32), parent(span="0" * 16), "ff" + parent()[2:], parent() + "-00", parent()[:-1],
           parent() + " ", parent().replace("-", "_"), parent(trace=TRACE[:-1] + "g"), "0" * 4000, "01" + parent()[2:] + "x"]
    with Collector() as collector, traced(collector) as (daemon, c):
        for text in bad:
            with_context(c, "Admin/Status", pb.StatusRequest(), ("traceparent", text))
        with_context(c, "Admin/Status", pb.StatusRequest(), ("traceparent", parent()), ("traceparent", parent()))
        with_context(c, "Admin/Status", pb.StatusRequest(), ("traceparent", "cc" + parent()[2:] + "-what-comes"), ("tracestate", "x=" + "y" * 600))
        with_context(c, "Admin/Status", pb.StatusRequest(), ("traceparent", parent(trace="6" * 32)), ("tracestate", "a=1"), ("tracestate", "b=2"))
        collector.got(1, "6" * 32)
        assert [(s["traceId"], s.get("traceState")) for s in collector.spans] == [(TRACE, None), ("6" * 32, "a=1,b=2")]


@test("an identity has trace-limit spans a second; more are dropped and counted, and its calls served")
def rate():
    with Collector() as collector, traced(collector, trace_limit=1) as (daemon, c):
        for _ in range(200):
            with_context(c, "Admin/Status", pb.StatusRequest(), ("traceparent", parent()))
        dropped = metric(daemon, 'trace_spans_dropped_total{reason="limit"}')
        assert 100 < dropped < 200, dropped
        until("the others come", lambda: len(collector.spans) == 200 - dropped)


@test("collectors that refuse, ask to wait, answer nonsense or far too much, close, or never answer hold up nothing")
def hostile_collectors():
    def post(c):
        with_context(c, "Admin/Status", pb.StatusRequest(), ("traceparent", parent()))

    with Collector(answers=[(429, {"Retry-After": "1"}, b""), (503, {}, b""), (200, {}, b"")]) as collector, traced(collector) as (daemon, c):
        post(c)
        collector.got(1)
        assert collector.posts == 3 and metric(daemon, "trace_spans_sent_total") == 1
    with Collector(answers=[(200, {}, b'{"partialSuccess":{"rejectedSpans":"1"}}')], interim=(100, 103)) as collector, traced(collector) as (daemon, c):
        post(c)
        until("the answer behind interim ones is read", lambda: metric(daemon, 'trace_spans_dropped_total{reason="collector"}') == 1)
        post(c)
        until("it is taken", lambda: metric(daemon, "trace_spans_sent_total") == 1)
    with Collector(answers=[(400, {}, b"no"), (200, {}, b'{"partialSuccess":{"rejectedSpans":"1"}}'), (200, {}, b"x" * 5_000_000)]) as collector:
        with traced(collector) as (daemon, c):
            for n, sent in ((1, 0), (2, 0), (2, 1)):
                post(c)
                until("it is counted", lambda: (metric(daemon, 'trace_spans_dropped_total{reason="collector"}'), metric(daemon, "trace_spans_sent_total")) == (n, sent))

    for answer in (None, b"", b"\0garbage\r\n\r\n", b"HTTP/1.1 9\r\n\r\n"):  # None: never
        with socket.create_server(("127.0.0.1", 0)) as server:
            held, stop = [], threading.Event()

            def serve():
                with contextlib.suppress(OSError):
                    while not stop.is_set():
                        held.append(server.accept()[0])
                        if answer is not None:
                            held[-1].sendall(answer)
                            held.pop().close()

            threading.Thread(target=serve, daemon=True).start()
            options = (f"--trace-endpoint=http://127.0.0.1:{server.getsockname()[1]}", "--trace-sample=1", "--trace-limit=1000000")
            with Daemon(*options) as daemon, Client(daemon) as c:
                graph = c.register(TEXT).graph
                for _ in range(100):
                    c.replay(graph, [INPUT])
                until("it is tried", lambda: held or answer is not None)
                began = time.monotonic()
            took = time.monotonic() - began
            assert SANITIZER or took < 8, took  # the flush has 2 seconds
            stop.set()
            for s in held:
                s.close()


@test("what waits is sent at the stop, also to a Unix socket")
def flush():
    path = SCRATCH / "otlp.sock"
    with Collector(path) as collector:
        with traced(collector) as (daemon, c):
            with_context(c, "Admin/Status", pb.StatusRequest(), ("traceparent", parent()))
        assert len(collector.spans) == 1


@test("a reload turns tracing on and off, to another collector too; values that are not allowed change nothing")
def reload():
    conf = SCRATCH / "trace.conf"

    def write(text):
        conf.write_text(f"stats-listen = 127.0.0.1:0\n{text}")

    write("")
    with Collector() as one, Collector() as two, Daemon(f"--config={conf}") as daemon, Client(daemon) as c:
        def post():
            with_context(c, "Admin/Status", pb.StatusRequest(), ("traceparent", parent()))
        post()
        write(f"trace-endpoint = {one.url}\n")
        assert set(c.call("Admin/Reload", pb.ReloadRequest()).changed) == {"trace-endpoint"}
        post()
        one.got(1)
        for bad in ("trace-endpoint = https://x:1/", "trace-endpoint = http://", "trace-endpoint = http://a:0/", "trace-endpoint = http://a b/",
                    "trace-endpoint = unix:x", "trace-sample = 2", "trace-sample = -1", "trace-sample = nan", "trace-limit = 0"):
            write(bad + "\n")
            refused("CONFIG", "INVALID_ARGUMENT", c.call, "Admin/Reload", pb.ReloadRequest())
        write(f"trace-endpoint = {two.url}\ntrace-sample = 1\n")
        c.call("Admin/Reload", pb.ReloadRequest())
        c.register(TEXT)
        two.got(1)
        write("")
        c.call("Admin/Reload", pb.ReloadRequest())
        post()
        c.register(TEXT)
        assert len(one.spans) == 1 and metric(daemon, "trace_spans_dropped_total") == 0


@test("a model's calls: prefill with its wait, a step, a generation with its first token and the rest")
def generations():
    bible = SOURCE / "examples" / "model"
    if CTL is None or not (bible / "model.safetensors").exists():
        raise Skip("npugraphctl or the bundled model is missing")
    with Collector() as collector, traced(collector, models_dir=bible) as (daemon, c):
        subprocess.run([CTL, "--address", daemon.address, "load", bible, "--name", "m", "--kv-bytes", "8M"], check=True, capture_output=True, timeout=PATIENCE)
        opened = with_context(c, "Sequences/Open", pb.OpenRequest(model="m", prompt=range(1, 20)), ("traceparent", parent(trace="a" * 32)))
        with_context(c, "Sequences/Step", pb.StepRequest(sequence=opened.sequence), ("traceparent", parent(trace="b" * 32)))
        told = [t for m in with_context(c, "Sequences/Generate", pb.GenerateRequest(sequence=opened.sequence, max_tokens=5, ignore_stop=True),
                                        ("traceparent", parent(trace="c" * 32))) for t in m.tokens]
        top, below = tree(collector.got(3, "a" * 32))
        assert set(below) == {"queue", "prefill"} and attributes(top)["npugraph.model"] == "m" and attributes(top)["npugraph.position"] == 19
        top, below = tree(collector.got(3, "b" * 32))
        assert set(below) == {"queue", "decode"} and attributes(top)["npugraph.device_ns"] > 0
        top, below = tree(collector.got(3, "c" * 32))
        assert set(below) == {"first token", "decode"} and attributes(top)["npugraph.tokens"] == len(told) == 5


@test("the Open Inference Protocol: a request to a graph, requests of a stream inside its span, and generations")
def oip_calls():
    if CTL is None or not (MODEL / "model.safetensors").exists():
        raise Skip("npugraphctl or the bundled model is missing")
    with Collector() as collector, traced(collector, models_dir=MODEL) as (daemon, c), Oip(daemon) as o:
        subprocess.run([CTL, "--address", daemon.address, "--quiet", "load", MODEL, "--name", "m"], check=True, capture_output=True)
        c.register(TEXT)
        x = request("traced", inputs=[("x", "FP32", [64, 64], INPUT)], id="g")
        ids = request("m", inputs=[("input_ids", "INT64", [3], pack([5, 6, 7], "q"))], parameters={"max_tokens": 5, "ignore_stop": True})
        o.infer(x, metadata=[("traceparent", parent(trace="a" * 32))])
        top, below = tree(collector.got(9, "a" * 32))
        assert set(below) == {"queue", "capture", "passes", "plan", "instantiate", "copy in", "replay", "copy out"}, below
        assert top["name"] == "inference.GRPCInferenceService/ModelInfer" and attributes(top)["npugraph.graph"] == "traced" and attributes(top)["npugraph.key"]
        o.infer(ids, metadata=[("traceparent", parent(trace="b" * 32))])
        top, below = tree(collector.got(4, "b" * 32))
        assert {"queue", "prefill", "decode"} <= set(below) and attributes(top)["npugraph.model"] == "m" and attributes(top)["npugraph.tokens"] == 5
        answers = o.stream(x, ids, request("nobody"), metadata=[("traceparent", parent(trace="c" * 32))])
        assert sum(bool(a.error_message) for a in answers) == 1
        spans = collector.got(10, "c" * 32)
        stream, = [s for s in spans if s.get("parentSpanId") == SPAN]
        asked = [s for s in spans if s.get("parentSpanId") == stream["spanId"]]
        assert len(asked) == 3 and all(s["kind"] == 2 and attributes(s)["npugraph.unit"] == "message" for s in asked), asked
        assert sorted(attributes(s).get("npugraph.graph") or attributes(s).get("npugraph.model") or "" for s in asked) == ["", "m", "traced"]
        assert [attributes(s)["npugraph.reason"] for s in asked if "status" in s] == ["MODEL_NOT_FOUND"]
        inside = {s["name"] for s in spans if s["parentSpanId"] in [a["spanId"] for a in asked]}
        assert {"queue", "copy in", "replay", "copy out", "prefill", "decode"} <= inside, inside
    with Collector() as collector, traced(collector, sample="1", models_dir=MODEL) as (daemon, c), Oip(daemon) as o:
        c.register(TEXT)
        o.stream(x)  # the stream itself has no context, and its requests are traces of their own
        requests = until("its request is sent", lambda: [s for s in collector.spans if s["name"].endswith("ModelStreamInfer")])
        assert "parentSpanId" not in requests[0] and attributes(requests[0])["npugraph.graph"] == "traced"


@test("embeddings: the prompts of a call, as many as a record has room for")
def embeddings():
    if CTL is None or not (MODEL / "model.safetensors").exists():
        raise Skip("npugraphctl or the bundled model is missing")
    with Collector() as collector, traced(collector, models_dir=MODEL) as (daemon, c):
        subprocess.run([CTL, "--address", daemon.address, "--quiet", "load", MODEL, "--name", "m", "--embedding"], check=True, capture_output=True)
        for n in (2, 40):
            q = pb.EmbedRequest(model="m", prompts=[pb.EmbedPrompt(tokens=[5 + i, 6, 7]) for i in range(n)])
            with_context(c, "Sequences/Embed", q, ("traceparent", parent(trace=f"{n:032x}")))
            mine = collector.got(3, f"{n:032x}")
            tops = [s for s in mine if s["kind"] == 2]
            assert len(tops) == 1 and {s["name"] for s in mine if s not in tops} == {"queue", "prefill"} and len(mine) <= 11
            assert attributes(tops[0])["npugraph.model"] == "m" and attributes(tops[0])["npugraph.prompts"] == n


def open_metrics(daemon):
    connection = http.client.HTTPConnection(daemon.log().split("statistics on http://")[1].split("/")[0], timeout=PATIENCE)
    connection.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3"})
    answer = connection.getresponse()
    assert answer.getheader("Content-Type") == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    return answer.read().decode()


@test("OpenMetrics, if the scraper asks for it, with the traces of observations for those who may see all names; the older form has none")
def exemplars():
    with Collector() as collector, traced(collector, stats_names="no") as (daemon, c):
        graph = c.register(TEXT).graph
        with_context(c, "Graphs/Replay", pb.ReplayRequest(graph=graph, inputs=[INPUT]), ("traceparent", parent()))
        text = open_metrics(daemon)
        assert "trace_id" not in text and re.search(r'npugraphd_replay_seconds_bucket{le="\+Inf"} 1\n', text)
    with Collector() as collector, traced(collector) as (daemon, c):
        graph = c.register(TEXT).graph
        for _ in range(2):
            with_context(c, "Graphs/Replay", pb.ReplayRequest(graph=graph, inputs=[INPUT]), ("traceparent", parent()))
        text = open_metrics(daemon)
        assert text.endswith("\n# EOF\n") and "# TYPE npugraphd_rpc_requests counter" in text and "npugraphd_rpc_requests_total{" in text
        for name in ("rpc_seconds", "queue_seconds", "replay_seconds"):
            rows = re.findall(rf'npugraphd_{name}_bucket{{le="([^"]+)"}} (\d+) # {{trace_id="(\w+)"}} (\S+) (\S+)', text)
            assert rows, name
            for le, count, trace, value, at in rows:
                assert trace == TRACE and float(value) <= float(le) and int(count) > 0 and abs(float(at) - time.time()) < 600
        plain = daemon.http("/metrics")[1]
        assert "trace_id" not in plain and "# EOF" not in plain and "# TYPE npugraphd_rpc_requests_total counter" in plain


if __name__ == "__main__":
    main()
