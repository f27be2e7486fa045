# SPDX-License-Identifier: Apache-2.0
"""What npugraph-server adds to the daemon's own times, beside the bars that docs/openai.md sets.

    python/bench/server.py CHECKPOINT --build build/release     # starts a daemon and a server, and ends them

The same streams come straight from the daemon and through the server, in turns, followed by this process with one thread,
so that its own costs are in both. Constrained streams, whose tokens a regular expression allows all, follow in the same
turns. Differences are those of neighbouring turns; their median is shown, with the least and the greatest in brackets. A
checkpoint without a tokenizer, as bench/rpc/make_checkpoint writes it, gets one that only decodes.
"""
from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import npugraph.aio

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROMPT = list(range(100, 108))  # any tokens
ADDED_MS = {"p50": 1.0, "p99": 5.0}  # the bars
CONSTRAINED_PERCENT = 5.0  # of a step
ANYTHING = r"(.|\n)*"


class Times:
    """First tokens, and the gaps between arrivals, in ms. An arrival may bring several tokens."""

    def __init__(self) -> None:
        self.first: list[float] = []
        self.gaps: list[float] = []
        self.means: list[float] = []  # of each stream: its time for a token
        self.seconds = 0.0  # of the turn
        self.cpu = 0.0  # of the server

    def add(self, begin: float, stamps: list[float], tokens: int) -> None:
        self.first.append((stamps[0] - begin) * 1e3)
        self.gaps += [(b - a) * 1e3 for a, b in zip(stamps, stamps[1:], strict=False)]
        self.means.append((stamps[-1] - stamps[0]) / (tokens - 1) * 1e3)

    def figures(self) -> dict[str, float]:
        def at(values: list[float], part: float) -> float:
            return sorted(values)[min(len(values) - 1, int(len(values) * part))]
        return {"first p50": at(self.first, 0.5), "first p99": at(self.first, 0.99), "gap p50": at(self.gaps, 0.5),
                "gap p99": at(self.gaps, 0.99), "token mean": statistics.mean(self.means), "seconds": self.seconds, "cpu": self.cpu}


async def direct(client: npugraph.aio.Client, tokens: int, times: Times) -> None:
    begin, stamps = time.perf_counter(), []
    async with await client.open("m", PROMPT) as sequence:
        async for _ in sequence.generate(tokens, ignore_stop=True):
            stamps.append(time.perf_counter())
    times.add(begin, stamps, tokens)


async def served(port: int, tokens: int, times: Times, fields: dict[str, Any]) -> None:
    body = json.dumps({"model": "m", "prompt": PROMPT, "max_tokens": tokens, "temperature": 0, "stream": True,
                       "stream_options": {"include_usage": True}} | fields).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)  # clients keep connections
    begin, stamps, last, lines = time.perf_counter(), [], b"", []
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    while line := await reader.readline():
        if line.startswith(b'data: {"id"'):
            stamps.append(time.perf_counter())
            last = line
        elif not stamps:
            lines.append(line)
    writer.close()
    assert last, b"".join(lines)
    made = json.loads(last[6:])["usage"]["completion_tokens"]
    assert made == tokens, last
    times.add(begin, stamps[:-2], tokens)  # without the end and the usage


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shown(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}]"


def verdict(value: float, bar: float) -> str:
    return f"bar {bar:g}: {'kept' if value <= bar else 'MISSED'}"


async def measure(options: argparse.Namespace, port: int, pid: int, clients: int) -> None:
    tokens = options.tokens
    ways: dict[str, list[dict[str, float]]] = {"daemon": [], "server": [], "constrained": []}
    fields = {"server": {"ignore_eos": True}, "constrained": {"guided_regex": ANYTHING, "min_tokens": tokens}}
    async with await npugraph.aio.connect(threads=clients) as client:
        for turn in range(options.rounds + 1):  # the first one warms up
            for way, found in ways.items():
                times, begin, before = Times(), time.perf_counter(), cpu_seconds(pid)
                await asyncio.gather(*[direct(client, tokens, times) if way == "daemon" else
                                       served(port, tokens, times, fields[way]) for _ in range(clients)])
                times.seconds, times.cpu = time.perf_counter() - begin, cpu_seconds(pid) - before
                if turn:
                    found.append(times.figures())
    print(f"\n{clients} clients, {tokens} tokens, {options.rounds} turns of each")
    for way, found in ways.items():
        print(f"  {way:12}" + ", ".join(f"{name} {shown([f[name] for f in found])}" for name in list(found[0])[:5]) + " ms, "
              f"{clients / statistics.median(f['seconds'] for f in found):.2f} requests/s, "
              f"{statistics.median(f['cpu'] for f in found) / clients / tokens * 1e6:.0f} us of the server a token")
    for name in ("gap p50", "gap p99", "first p50", "first p99"):
        added = [s[name] - d[name] for s, d in zip(ways["server"], ways["daemon"], strict=True)]
        print(f"  {name}: {shown(added)} ms above the daemon's; {verdict(statistics.median(added), ADDED_MS[name[-3:]])}")
    parts = [100 * (c["token mean"] / s["token mean"] - 1) for c, s in zip(ways["constrained"], ways["server"], strict=True)]
    print(f"  constrained: {shown(parts)} % of a step more a token; {verdict(statistics.median(parts), CONSTRAINED_PERCENT)}")


def make_tokenizer(path: pathlib.Path, vocab: int) -> None:
    """Writes the bundled model's tokenizer with as many tokens as the model has. No text is encoded with the new ones."""
    data = json.loads((SOURCE / "examples" / "model" / "tokenizer.json").read_text()) | {"added_tokens": [], "post_processor": None}
    words = data["model"]["vocab"]
    taken = {*words.values()}
    words.update({f"Ġx{i:06}": i for i in range(vocab) if i not in taken})
    path.write_text(json.dumps(data))


@contextlib.contextmanager
def running(command: list[str], log: pathlib.Path, ready: str) -> Iterator[subprocess.Popen[bytes]]:
    with open(log, "wb") as out, subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL) as process:
        try:
            while ready not in log.read_text(errors="replace"):
                if process.poll() is not None:
                    sys.exit(f"{command[0]} ended:\n{log.read_text(errors='replace')[-3000:]}")
                time.sleep(0.05)
            yield process
        finally:
            process.terminate()


def run(options: argparse.Namespace, work: pathlib.Path) -> None:
    build, checkpoint = options.build.resolve(), options.checkpoint.resolve()
    tokenizer = options.tokenizer or (checkpoint if (checkpoint / "tokenizer.json").exists() else work / "tokenizer")
    if tokenizer == work / "tokenizer":
        tokenizer.mkdir()
        make_tokenizer(tokenizer / "tokenizer.json", json.loads((checkpoint / "config.json").read_text())["vocab_size"])
    address = os.environ["NPUGRAPH_ADDRESS"] = f"unix:{work}/s"
    os.environ.setdefault("NPUGRAPH_LIBRARY_PATH", str(build / ".libs"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    daemon = [str(build / "npugraphd"), f"--listen={address}", "--stats-listen=127.0.0.1:0", f"--models-dir={checkpoint}",
              "--device-memory=8G", f"--threads={options.threads}"]
    load = [str(build / "npugraphctl"), "load", str(checkpoint), "--name", "m", "--max-context", "512", "--max-batch",
            str(max(options.clients))]
    serve = [sys.executable, "-m", "npugraph.server", f"--model=m={tokenizer}", f"--listen=127.0.0.1:{port}"]
    with running(daemon, work / "daemon", ": ready"):
        subprocess.run(load, check=True, stdout=subprocess.DEVNULL)
        with running(serve, work / "server", "Uvicorn running") as server:
            for clients in options.clients:
                asyncio.run(measure(options, port, server.pid, clients))


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("checkpoint", type=pathlib.Path)
    p.add_argument("--tokenizer", type=pathlib.Path, help="a directory or GGUF file with another tokenizer than the checkpoint's")
    p.add_argument("--build", type=pathlib.Path, default=SOURCE / "build" / "release")
    p.add_argument("--clients", type=int, nargs="+", default=[1, 64])
    p.add_argument("--tokens", type=int, default=32)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=0, help="CPUs of the daemon; 0: all, so that the server shares them")
    options = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the daemon and the server end too
    work = pathlib.Path(tempfile.mkdtemp(prefix="npugraph-bench-"))
    try:
        run(options, work)
    finally:
        shutil.rmtree(work)


main()
