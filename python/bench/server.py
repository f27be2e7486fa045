# SPDX-License-Identifier: Apache-2.0
"""What npugraph-server adds to the daemon's own times: streams straight from the daemon and through the server, in turns.

    python/bench/server.py MODEL URL [--pid PID]     # the daemon is $NPUGRAPH_ADDRESS; the pid is the server's

Both kinds of streams are followed by this process with one thread, so its own costs are in both. The figures are medians
over the rounds, with the least and the greatest in brackets.
"""
from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import statistics
import time
import urllib.parse

import npugraph.aio

PROMPT = list(range(100, 108))  # any tokens


class Times:
    """First tokens, mean times between tokens, and the gaps between arrivals, which may bring several tokens; in ms."""

    def __init__(self) -> None:
        self.first: list[float] = []
        self.means: list[float] = []
        self.gaps: list[float] = []

    def add(self, begin: float, stamps: list[float], tokens: int) -> None:
        self.first.append((stamps[0] - begin) * 1e3)
        self.means.append((stamps[-1] - stamps[0]) / (tokens - 1) * 1e3)
        self.gaps += [(b - a) * 1e3 for a, b in zip(stamps, stamps[1:], strict=False)]

    def figures(self) -> dict[str, float]:
        def at(values: list[float], part: float) -> float:
            return sorted(values)[min(len(values) - 1, int(len(values) * part))]
        return {"first p50": at(self.first, 0.5), "first p99": at(self.first, 0.99), "mean": statistics.mean(self.means),
                "gap p50": at(self.gaps, 0.5), "gap p99": at(self.gaps, 0.99)}


async def direct(client: npugraph.aio.Client, model: str, tokens: int, times: Times) -> None:
    begin, stamps = time.perf_counter(), []
    async with await client.open(model, PROMPT) as sequence:
        async for _ in sequence.generate(tokens, ignore_stop=True):
            stamps.append(time.perf_counter())
    times.add(begin, stamps, tokens)


async def served(url: urllib.parse.SplitResult, model: str, tokens: int, times: Times) -> None:
    body = json.dumps({"model": model, "prompt": PROMPT, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                       "stream": True, "stream_options": {"include_usage": True}}).encode()
    begin, stamps, last = time.perf_counter(), [], b""
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    while line := await reader.readline():
        if line.startswith(b'data: {"id"'):
            stamps.append(time.perf_counter())
            last = line
    writer.close()
    made = json.loads(last[6:])["usage"]["completion_tokens"]
    assert made == tokens, last
    times.add(begin, stamps[:-2], tokens)  # without the end and the usage


def cpu_seconds(pid: int) -> float:
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(options: argparse.Namespace, clients: int) -> None:
    url = urllib.parse.urlsplit(options.url)
    rounds: dict[str, list[dict[str, float]]] = {"daemon": [], "server": []}
    busy = 0.0
    async with await npugraph.aio.connect(threads=clients) as client:
        for _ in range(options.rounds):
            for way, found in rounds.items():
                times, before = Times(), cpu_seconds(options.pid) if options.pid else 0
                await asyncio.gather(*[direct(client, options.model, options.tokens, times) if way == "daemon" else
                                       served(url, options.model, options.tokens, times) for _ in range(clients)])
                found.append(times.figures())
                if options.pid and way == "server":
                    busy += cpu_seconds(options.pid) - before
    for way, found in rounds.items():
        shown = [f"{name} {statistics.median(r[name] for r in found):.2f} [{min(r[name] for r in found):.2f}, "
                 f"{max(r[name] for r in found):.2f}]" for name in found[0]]
        print(f"{clients:3} clients, {way}: " + ", ".join(shown) + " ms")
    if options.pid:
        print(f"{clients:3} clients: the server used {busy / (options.rounds * clients * options.tokens) * 1e6:.0f} us a token")


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("url")
    p.add_argument("--pid", type=int)
    p.add_argument("--clients", type=int, nargs="+", default=[1, 64])
    p.add_argument("--tokens", type=int, default=100)
    p.add_argument("--rounds", type=int, default=5)
    options = p.parse_args()
    for clients in options.clients:
        asyncio.run(measure(options, clients))


main()
