# SPDX-License-Identifier: Apache-2.0
"""The routes of the server."""
from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from .. import Error, __version__, trace_context
from .bodies import Gone, gone, parse, read_body
from .embed import Embedder
from .fields import read
from .generate import Generator, Request, failure_event
from .link import Gate, Link, Pulse
from .metrics import Metrics
from .models import ServedModel
from .problems import Problem, problem_of

TEXTS_MAX = 16  # requests of /tokenize at the same time


@dataclasses.dataclass(frozen=True)
class Limits:
    body_bytes: int
    body_seconds: float
    request_seconds: float
    restore_seconds: float  # for another daemon that goes on with an answer


class Endpoint:
    """A POST route: reads the body, runs the work until it ends, its time is over or the client has gone."""

    def __init__(self, limits: Limits, metrics: Metrics, work: Callable[[Any, _Started], Awaitable[None]]) -> None:
        self._limits, self._metrics, self._work = limits, metrics, work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = _Started(send)
        try:
            body = await read_body(receive, self._limits.body_bytes, self._limits.body_seconds)
            await _unless_gone(receive, self._answer(parse(body), answer))
        except Gone:
            self._metrics.abandoned.inc()
        except Exception as error:
            problem = problem_of(error)
            self._metrics.failed.labels(str(problem.status)).inc()
            if not answer.started:
                await problem.response()(scope, receive, send)
            if problem.code == "internal_error":
                raise  # for the log

    async def _answer(self, value: Any, send: _Started) -> None:
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                await self._work(value, send)
        except TimeoutError:
            problem = Problem(504, f"the request took longer than {self._limits.request_seconds:g} seconds", code="timeout")
            if send.started:
                with contextlib.suppress(TimeoutError):  # the client may not read
                    async with asyncio.timeout(1):
                        await send({"type": "http.response.body", "body": failure_event(problem)})
            raise problem from None


class _Started:
    """A `send` that knows whether an answer has begun."""

    def __init__(self, send: Send) -> None:
        self._send, self.started = send, False

    async def __call__(self, message: Any) -> None:
        self.started = True
        await self._send(message)

    async def part(self, body: bytes) -> None:
        """Sends a part of a body that was begun."""
        await self._send({"type": "http.response.body", "body": body, "more_body": True})


async def _unless_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Runs the work; cancels it and raises Gone if the client goes."""
    task, watch = asyncio.current_task(), asyncio.ensure_future(gone(receive))
    assert task is not None
    has_left = False

    def leave(_: object) -> None:
        nonlocal has_left
        has_left = True
        task.cancel()

    watch.add_done_callback(leave)
    try:
        await work
    except asyncio.CancelledError:
        if has_left and task.uncancel() == 0:
            raise Gone from None
        raise
    finally:
        watch.remove_done_callback(leave)
        watch.cancel()


async def _send_json(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_events(answer: _Started, request: Request) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
    await answer({"type": "http.response.start", "status": 200, "headers": headers})
    await request.send_events(answer.part)
    await answer({"type": "http.response.body", "body": b""})


class Server:
    """What the routes share."""

    def __init__(self, link: Link, models: dict[str, ServedModel], limits: Limits, sequences: int, metrics: Metrics) -> None:
        self._link, self._models, self._limits, self._metrics = link, models, limits, metrics
        self._pulse, self._texts = Pulse(link), Gate(TEXTS_MAX, "texts to tokenize")
        self._generator = Generator(link, Gate(sequences), models, metrics, limits.restore_seconds)
        self._embedder = Embedder(self._generator)

    def _generates(self, kind: str) -> Endpoint:
        async def work(value: Any, send: _Started) -> None:
            async with self._generator.begin(value, kind) as request:
                if request.stream:
                    await _send_events(send, request)
                else:
                    await _send_json(send, await request.whole())
        return Endpoint(self._limits, self._metrics, work)

    async def _embed(self, value: Any, send: Send) -> None:
        await _send_json(send, await self._embedder.answer(value))

    async def _tokenize(self, value: Any, send: Send) -> None:
        values = read(value, "tokenize")
        model = self._generator.model(values["model"])
        if (values["prompt"] is None) == (values["messages"] is None):
            raise Problem(400, "give one of prompt and messages", param="prompt", code="invalid_value")
        with self._texts.pass_with(1):
            tokens = await self._tokens(model, values)
        await _send_json(send, json.dumps({"count": len(tokens), "tokens": tokens}).encode())

    async def _tokens(self, model: ServedModel, values: dict[str, Any]) -> list[int]:
        text, special = values["prompt"], True
        if text is None:
            tools = [tool.shown for tool in values["tools"] or []] or None
            text, special = await model.render(values["messages"], tools=tools,
                                               generation_prompt=values["add_generation_prompt"]), False
        if values["add_special_tokens"] is not None:
            special = values["add_special_tokens"]
        return await model.encode(text, template=special)

    async def _loaded(self) -> list[dict[str, Any]]:
        """Returns the served models that are loaded."""
        loaded = await self._link.call(lambda client: client.models())
        return [{"id": m.name, "object": "model", "created": self._models[m.name].created, "owned_by": m.owner,
                 "max_model_len": m.max_context} for m in loaded if m.name in self._models]

    async def _list(self, request: HttpRequest) -> Response:
        return _json({"object": "list", "data": await self._loaded()})

    async def _one(self, request: HttpRequest) -> Response:
        name = request.path_params["name"]
        for model in await self._loaded():
            if model["id"] == name:
                return _json(model)
        raise Problem(404, f"the model {name[:200]!r} is not loaded, or not served here", param="model", code="model_not_found")

    async def _health(self, request: HttpRequest) -> Response:
        """Answers 200 if the daemon answers, else 503."""
        await self._pulse.check()
        return PlainTextResponse("ok\n")

    async def _show_metrics(self, request: HttpRequest) -> Response:
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _version(self, request: HttpRequest) -> Response:
        return _json({"version": __version__})

    def app(self) -> ASGIApp:
        posts = {"/v1/completions": self._generates("completions"), "/v1/chat/completions": self._generates("chat"),
                 "/v1/embeddings": Endpoint(self._limits, self._metrics, self._embed),
                 "/tokenize": Endpoint(self._limits, self._metrics, self._tokenize)}
        routes = [
            *[Route(path, endpoint, methods=["POST"]) for path, endpoint in posts.items()],
            Route("/v1/models", self._list), Route("/v1/models/{name:path}", self._one), Route("/health", self._health),
            Route("/metrics", self._show_metrics), Route("/version", self._version),
        ]

        @contextlib.asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            await self._link.close()

        async def failed(_: HttpRequest, error: Exception) -> Response:
            return problem_of(error).response()

        async def no_route(request: HttpRequest, error: Exception) -> Response:
            status = getattr(error, "status_code", 404)
            return Problem(status, f"{request.method} {request.url.path[:200]} is nothing that this server has",
                           code="not_found" if status == 404 else "method_not_allowed").response()

        handlers: dict[Any, Any] = {404: no_route, 405: no_route, Problem: failed, Error: failed}
        starlette = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            """Skips the layers of Starlette, which each event of a stream would pass, where an endpoint needs none of them."""
            endpoint = posts.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
            with _trace_of(scope):
                await (endpoint or starlette)(scope, receive, send)

        return app


def _trace_of(scope: Scope) -> contextlib.AbstractContextManager[None]:
    """The daemon's calls for a request carry its trace context; without one they carry OpenTelemetry's, if that is in use."""
    found: dict[bytes, list[bytes]] = {b"traceparent": [], b"tracestate": []}
    for name, value in scope.get("headers", ()):
        if name in found:
            found[name].append(value)
    if len(found[b"traceparent"]) != 1:
        return contextlib.nullcontext()
    return trace_context(found[b"traceparent"][0], b",".join(found[b"tracestate"]))


def _json(value: Any) -> Response:
    return Response(json.dumps(value), media_type="application/json")


class Guard:
    """Asks for an API key before anything but /health and /metrics."""

    OPEN = ("/health", "/metrics")

    def __init__(self, app: ASGIApp, keys: list[str]) -> None:
        self._app = app
        self._keys = {_digest(key.encode()) for key in keys}  # digests, so that the time of a look-up tells nothing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._keys and scope["path"] not in self.OPEN and not self._knows(scope):
            problem = Problem(401, "give a valid API key: the header Authorization: Bearer KEY", code="invalid_api_key")
            await problem.response()(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        for name, value in scope["headers"]:
            if name == b"authorization":
                kind, _, key = value.partition(b" ")
                return kind.lower() == b"bearer" and _digest(key.strip()) in self._keys
        return False


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
