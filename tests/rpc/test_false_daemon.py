#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a daemon says that it must not: its clients end the call, and take nothing of it."""
import asyncio
import concurrent.futures
import threading

from harness import *
from python_package import npugraph

import numpy  # the package has looked for it

PROMPT = [5, 6, 7, 8]


class FalseDaemon(grpc.GenericRpcHandler):
    """Opens sessions and sequences, and answers the n-th step with `answers[n]` messages."""

    def __init__(self, answers):
        self.address = f"unix:{SCRATCH}/false"
        self.answers = answers
        self.told = [threading.Event() for _ in answers]
        self.pool = concurrent.futures.ThreadPoolExecutor(8)

    def service(self, call):
        name = call.method.rpartition("/")[2] if "Sessions" not in call.method else "Session"
        request, kind, work = {"Session": (pb.SessionRequest, "stream_stream", self._session), "StepStream": (pb.StepRequest, "stream_stream", self._step),
                               "Open": (pb.OpenRequest, "unary_unary", self._open),
                               "Close": (pb.CloseRequest, "unary_unary", lambda *_: pb.CloseResponse())}[name]
        handler = getattr(grpc, f"{kind}_rpc_method_handler")
        return handler(work, request.FromString, lambda message: message.SerializeToString())

    def _session(self, requests, _):
        yield pb.SessionEvent(opened=pb.SessionOpened(session=1, token=bytes(16)))
        for _ in requests:
            pass

    def _open(self, request, _):
        return pb.OpenResponse(sequence=1, token=9, position=len(request.prompt))

    def _step(self, requests, _):
        position = len(PROMPT)
        for n, _ in enumerate(requests):
            for i in range(self.answers[n]):
                position += 1
                if i + 1 == self.answers[n]:
                    self.told[n].set()
                yield pb.StepResponse(token=10 * (n + 1) + i, position=position)

    def __enter__(self):
        self.server = grpc.server(self.pool, handlers=[self])
        self.server.add_insecure_port(self.address)
        self.server.start()
        return self

    def __exit__(self, *_):
        self.server.stop(0).wait()
        self.pool.shutdown()


@test("an answer to a step that was not begun ends its generation, and its token is not taken")
def answers_too_often():
    async def run(daemon):
        seen = []

        def follow(taken):
            seen.extend(token.id for _, token in taken)
            if len(seen) == 3:
                assert daemon.told[1].wait(PATIENCE)
                time.sleep(0.5)  # no step is under way when the second answer comes
            return [None] * len(taken), numpy.full((len(taken), 4), 255, numpy.uint8)

        async with await npugraph.aio.connect(daemon.address, timeout=PATIENCE) as client:
            sequence = await client.open("m", PROMPT)
            generation, tokens = sequence.drive(follow, None), []
            try:
                async for token in generation:
                    tokens.append(token.id)
                raise AssertionError(f"it ended with {generation.finish} and {tokens}")
            except npugraph.Error as error:
                assert error.reason == "MALFORMED_MESSAGE", error
            assert tokens == seen[:len(tokens)] and seen in ([9, 10], [9, 10, 20]), (seen, tokens)

    with FalseDaemon([1, 2, 1, 1, 1]) as daemon:
        asyncio.run(run(daemon))


class DyingDaemon(FalseDaemon):
    """Dies of each sequence that is restored, and has no model yet at the first try after each start."""

    def __init__(self):
        super().__init__([])
        self.lock, self.starts, self.kills, self.tries = threading.Lock(), 1, 0, 0

    def service(self, call):
        if call.method.endswith("/Generate"):
            return grpc.unary_stream_rpc_method_handler(self._generate, pb.GenerateRequest.FromString, lambda message: message.SerializeToString())
        return super().service(call)

    def _die(self, context):
        self.starts, self.tries = self.starts + 1, 0
        context.abort(grpc.StatusCode.UNAVAILABLE, "socket closed")

    def _refuse(self, context, reason):
        context.set_trailing_metadata((("npugraph-reason", reason),))
        context.abort(grpc.StatusCode.NOT_FOUND, reason)

    def _session(self, requests, context):
        if next(requests).open.HasField("resume"):
            self._refuse(context, "SESSION_GONE")
        yield pb.SessionEvent(opened=pb.SessionOpened(session=self.starts, token=bytes(16)))
        for _ in requests:
            pass

    def _open(self, request, context):
        with self.lock:
            if dict(context.invocation_metadata()).get("npugraph-session") != str(self.starts):
                self._refuse(context, "SESSION_GONE")
            if not request.HasField("restore"):
                return pb.OpenResponse(sequence=1, token=9, position=len(request.prompt), model_id=bytes(32))
            self.tries += 1
            if self.tries == 1:
                self._refuse(context, "MODEL_NOT_FOUND")
            self.kills += 1
            self._die(context)

    def _generate(self, request, context):
        yield pb.GenerateResponse(tokens=[9], position=len(PROMPT))
        with self.lock:
            self._die(context)


@test("a sequence of which each daemon dies is sent to two more, also if their models are loaded later than they serve")
def kills_no_third():
    async def run(daemon):
        async with await npugraph.aio.connect(daemon.address, timeout=PATIENCE) as client:
            sequence = await client.open("m", PROMPT, restore=PATIENCE)
            try:
                async for _ in sequence.generate(100):
                    assert daemon.kills <= 2, daemon.kills
                raise AssertionError("it ended")
            except npugraph.Error as error:
                assert error.reason in ("UNREACHABLE", "SESSION_GONE"), error
            assert daemon.kills == 2, daemon.kills

    with DyingDaemon() as daemon:
        asyncio.run(asyncio.wait_for(run(daemon), PATIENCE))


if __name__ == "__main__":
    main(shared=False)
