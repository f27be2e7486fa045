#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker of the kit in Python, on npugraph.aio: a task for each prompt in flight. ../README.md says what it does.

    pip install ./python                    # in the sources of npugraphd
    python3 worker.py --model bible prompts.jsonl
"""
import argparse
import asyncio
import contextlib
import json
import random
import signal
import sys
import threading
import time

import npugraph.aio

PROMPT_MAX = 1 << 20  # bytes of a line
PAUSE_MIN, PAUSE_MAX = 0.1, 5.0  # seconds before the second try; each further pause is twice as long
BOUNDS = (0.005, 0.02, 0.1, 0.5, 2, 10)  # seconds
WRONG = (npugraph.InvalidArgument, npugraph.PermissionDenied, npugraph.OutOfRange, npugraph.Unsupported)


def say(text):
    print(f"worker: {text}", file=sys.stderr, flush=True)


class Drained(Exception):
    """The worker drains: what is not under way does not begin."""


class Metrics:
    def __init__(self):
        self.read = self.done = self.refused = self.retries = self.connects = self.tokens = self.in_flight = 0
        self.first, self.first_sum = [0] * (len(BOUNDS) + 1), 0.0

    def count_first(self, seconds):
        self.first[next((i for i, bound in enumerate(BOUNDS) if seconds <= bound), len(BOUNDS))] += 1
        self.first_sum += seconds

    def text(self):
        lines = ["# TYPE worker_prompts_total counter", f'worker_prompts_total{{result="done"}} {self.done}',
                 f'worker_prompts_total{{result="refused"}} {self.refused}']
        for name, kind in (("retries_total", "counter"), ("connects_total", "counter"), ("tokens_total", "counter"), ("in_flight", "gauge")):
            lines += [f"# TYPE worker_{name} {kind}", f"worker_{name} {getattr(self, name.removesuffix('_total'))}"]
        lines.append("# TYPE worker_first_token_seconds histogram")
        lines += [f'worker_first_token_seconds_bucket{{le="{bound}"}} {sum(self.first[:i + 1])}'
                  for i, bound in enumerate((*BOUNDS, "+Inf"))]
        lines += [f"worker_first_token_seconds_sum {self.first_sum}", f"worker_first_token_seconds_count {sum(self.first)}", ""]
        return "\n".join(lines)

    async def answer(self, reader, writer):
        """Answers each connection with the metrics, whatever it asks for."""
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 2)
            body = self.text().encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n"
                         b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            await asyncio.wait_for(writer.drain(), 2)
        writer.close()


class Worker:
    def __init__(self, args):
        self.args = args
        self.sampling = npugraph.Sampling(temperature=args.temperature, top_k=args.top_k, top_p=args.top_p, seed=args.seed)
        self.metrics = Metrics()
        self.draining = asyncio.Event()
        self.lines = asyncio.Queue(1)
        self.client = None  # the session that all slots share
        self.connecting = asyncio.Lock()
        self.closing = set()  # sessions that were lost, until they have closed

    async def unless_drained(self, work):
        """Waits for a coroutine; raises Drained if the worker drains before it has ended."""
        work, drained = asyncio.ensure_future(work), asyncio.ensure_future(self.draining.wait())
        try:
            await asyncio.wait((work, drained), return_when=asyncio.FIRST_COMPLETED)
            if self.draining.is_set():
                raise Drained
            return work.result()
        finally:
            work.cancel()
            drained.cancel()

    async def pause(self, tries):
        """Waits before the next try: at random between half of the pause and all of it, so that workers that were
        refused together do not come back together."""
        await self.unless_drained(asyncio.sleep(min(PAUSE_MIN * 2 ** min(tries, 10), PAUSE_MAX) * random.uniform(0.5, 1)))

    # ---- the connection ----

    async def session(self):
        """Returns the session, once there is one with the model: a daemon that was started again has to load it first."""
        async with self.connecting:  # one slot connects, the others wait
            tries = 0
            while self.client is None:
                try:
                    self.client = await self.connect()
                except npugraph.Error as error:
                    say(f"not connected: {error}")
                    await self.pause(tries)
                    tries += 1
            return self.client

    async def connect(self):
        args = self.args
        client = await self.unless_drained(npugraph.aio.connect(
            args.address, name="worker.py", timeout=args.timeout, tls_ca=args.ca, tls_cert=args.cert, tls_key=args.key,
            threads=args.in_flight))
        try:
            await client.models(args.model)
        except npugraph.Error:
            await client.close()
            raise
        self.metrics.connects += 1
        say("connected")
        return client

    def lose(self, client):
        if self.client is client:
            self.client = None
            task = asyncio.create_task(client.close())
            self.closing.add(task)
            task.add_done_callback(self.closing.discard)

    # ---- a prompt ----

    async def generate(self, client, ids):
        """Generates a text from its beginning; returns its tokens and why it ended."""
        begin, tokens = time.monotonic(), []
        self.metrics.in_flight += 1
        try:
            async with await client.open(self.args.model, ids, self.sampling) as sequence:
                generation = sequence.generate(self.args.tokens)
                async for token in generation:
                    if not tokens:
                        self.metrics.count_first(time.monotonic() - begin)
                    tokens.append(token.id)
                    self.metrics.tokens += 1
                if generation.finish == "cancelled":  # another slot lost the session, and closed it
                    raise npugraph.Cancelled("CANCELLED", "the session was closed")
                return tokens, generation.finish
        finally:
            self.metrics.in_flight -= 1

    async def answer(self, index, ids):
        """Tries until the prompt is answered."""
        tries = 0
        while True:
            client = await self.unless_drained(self.session())
            try:
                tokens, finish = await self.generate(client, ids)
                self.write(index=index, tokens=tokens, finish=finish)
                self.metrics.done += 1
                return
            except npugraph.Unauthenticated as error:  # its token is over; the next session has that of the file
                say(f"prompt {index} again: {error}")
                self.lose(client)
            except WRONG as error:
                self.refuse(index, error.reason, error.message)
                return
            except npugraph.ResourceExhausted as error:
                say(f"prompt {index} again: {error}")
            except npugraph.Error as error:
                say(f"prompt {index} again: {error}")
                self.lose(client)
            self.metrics.retries += 1
            await self.pause(tries)
            tries += 1

    def refuse(self, index, reason, message):
        self.metrics.refused += 1
        self.write(index=index, error=reason, message=message)

    @staticmethod
    def write(**result):
        print(json.dumps(result, separators=(",", ":")), flush=True)

    async def slot(self):
        with contextlib.suppress(Drained):
            while (line := await self.unless_drained(self.lines.get())) is not None:
                index, ids = line
                if ids:
                    await self.answer(index, ids)
                else:
                    self.refuse(index, "BAD_LINE", 'a prompt is a line of JSON, {"ids": [1, 2, 3]}')

    # ---- the queue ----

    def read(self, loop, file):
        """Reads lines, in a thread of its own, as fast as slots take them: what is not begun stays in the queue."""
        def put(item):
            asyncio.run_coroutine_threadsafe(self.lines.put(item), loop).result()

        for index, line in enumerate(file):
            self.metrics.read += 1
            put((index, parse(line)))
        for _ in range(self.args.in_flight):
            put(None)

    async def run(self):
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.drain, number)
        host, port = self.args.metrics.rsplit(":", 1)
        server = await asyncio.start_server(self.metrics.answer, host, int(port))
        say("metrics on http://%s:%d/metrics" % server.sockets[0].getsockname())
        file = open(self.args.file, "rb") if self.args.file else sys.stdin.buffer  # noqa: SIM115
        threading.Thread(target=self.read, args=(loop, file), daemon=True).start()
        await asyncio.gather(*[self.slot() for _ in range(self.args.in_flight)])
        if self.client is not None:
            await self.client.close()
        answered = self.metrics.done + self.metrics.refused
        say(f"answered {answered} of {self.metrics.read} prompts")
        return 0 if answered == self.metrics.read else 1

    def drain(self, number):
        """Drains at the first signal; the second one ends the worker at once."""
        say("draining")
        signal.signal(number, signal.SIG_DFL)
        self.draining.set()


def parse(line):
    """Returns the token ids of a line; None: it is no prompt."""
    try:
        ids = json.loads(line)["ids"] if len(line) <= PROMPT_MAX else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return ids if isinstance(ids, list) and all(type(i) is int and 0 <= i < 1 << 31 for i in ids) else None


def main():
    args = argparse.ArgumentParser(description="Answers prompts of a queue; README.md beside it has the options.")
    for name in ("address", "ca", "cert", "key"):
        args.add_argument(f"--{name}")
    args.add_argument("--model", default="bible")
    args.add_argument("--metrics", default="127.0.0.1:0")
    for name, default in (("in-flight", 4), ("tokens", 64), ("seed", 0), ("top-k", 0)):
        args.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("temperature", 0.0), ("top-p", 0.0), ("timeout", 60.0)):
        args.add_argument(f"--{name}", type=float, default=default)
    args.add_argument("file", nargs="?")
    return asyncio.run(Worker(args.parse_args()).run())


if __name__ == "__main__":
    import os
    status = main()
    os._exit(status)  # the thread that reads still waits for input
