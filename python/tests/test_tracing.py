# SPDX-License-Identifier: Apache-2.0
"""Calls carry the trace context that is set, or OpenTelemetry's; also those of threads, of asyncio and of streams."""
from __future__ import annotations

import asyncio
import http.server
import json
import pathlib
import sys
import threading
import time
import types

import numpy as np
import pytest
from conftest import MODEL, PATIENCE, Daemon

import npugraph
import npugraph.aio

GRAPH = 'npugraph 1\ngraph "g" {\n  input %x : f32[4,4]\n  %a = aten.exp(%x)\n  return "y" = %a\n}'
SPAN = "00f067aa0ba902b7"


def parent(digit: str) -> str:
    return f"00-{digit * 32}-{SPAN}-01"


def test_calls_carry_their_context(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[str]] = {}

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            for resource in json.loads(self.rfile.read(int(self.headers["Content-Length"])))["resourceSpans"]:
                for span in resource["scopeSpans"][0]["spans"]:
                    if span.get("parentSpanId") == SPAN:
                        seen.setdefault(span["traceId"][0], []).append(span["name"].rsplit("/")[-1])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    async def generate(address: str) -> None:
        async with await npugraph.aio.connect(address) as client:
            with npugraph.trace_context(parent("3")):
                async with await client.open("m", range(1, 9)) as sequence:
                    assert len([token async for token in sequence.generate(3, ignore_stop=True)]) == 3

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    daemon = Daemon(tmp_path, f"--trace-endpoint=http://127.0.0.1:{server.server_address[1]}", "--trace-sample=0")
    with npugraph.connect(daemon.address) as client:
        client.load_model(str(MODEL), name="m", keep=True)
        graph = client.graph(GRAPH)
        x = np.zeros((4, 4), np.float32)
        with npugraph.trace_context(parent("1"), "a=b"):
            graph.replay([x])
            stream = client.replay_stream()
            stream.replay(graph, [x])
            stream.close()
        graph.replay([x])  # none
        with npugraph.trace_context("nonsense"):
            graph.replay([x])
        with npugraph.trace_context(parent("5"), "a=" + "b" * 600):  # too long: left out alone
            graph.replay([x])
        with npugraph.trace_context(parent("2")), client.open("m", range(1, 9)) as sequence:
            assert len(list(sequence.generate(3, ignore_stop=True))) == 3  # in a thread
        asyncio.run(generate(daemon.address))
        context = types.SimpleNamespace(is_valid=True, trace_id=int("4" * 32, 16), span_id=int(SPAN, 16), trace_flags=1,
                                        trace_state=types.SimpleNamespace(to_header=lambda: ""))
        fake = types.ModuleType("opentelemetry.trace")
        fake.get_current_span = lambda: types.SimpleNamespace(get_span_context=lambda: context)  # type: ignore[attr-defined]
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "opentelemetry.trace", fake)
            graph.replay([x])
        graph.replay([x])
    daemon.stop()  # sends what waits
    end = time.monotonic() + PATIENCE
    while len(seen) < 5:
        assert time.monotonic() < end, seen
        time.sleep(0.02)
    server.shutdown()
    server.server_close()
    assert sorted(seen["1"]) == ["Replay", "ReplayStream"] and seen["4"] == seen["5"] == ["Replay"]
    for digit in "23":
        assert {"Open", "Generate"} <= set(seen[digit]) <= {"Open", "Generate", "Close"}, seen
