# SPDX-License-Identifier: Apache-2.0
"""Requests that generate: prompts in, choices out, whole or as a stream of events."""
from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from .. import aio
from ..client import Model
from ..errors import Error
from .calls import ToolForm
from .fields import read
from .forms import ChatForm, CompletionForm, Form
from .guided import Compiled, Guides
from .link import Gate, Link
from .metrics import Metrics, Watch
from .models import ServedModel
from .problems import Problem, bad, problem_of
from .rules import Rule, rule_of
from .texts import Answer, Ask, Piece, sampling_of
from .tools import Offer, offer_of

LOGPROBS_MAX = 1 << 22  # numbers that are kept for clients at the same time; about 900 MB


@dataclasses.dataclass
class Prompt:
    tokens: list[int]
    echo: str  # what its answers begin with


class Generator:
    """Answers requests with the daemon's models."""

    def __init__(self, link: Link, gate: Gate, models: dict[str, ServedModel], metrics: Metrics, restore_seconds: float) -> None:
        self.link, self.gate, self.models, self.metrics = link, gate, models, metrics
        self._restore_seconds = restore_seconds
        self._guides = Guides()
        self._infos: dict[str, Model] = {}
        what = "log-probabilities (choices x max_tokens x (most probable tokens + 1), x 4 without stream)"
        self._logprobs = Gate(LOGPROBS_MAX, what, "max_tokens")

    def model(self, name: str) -> ServedModel:
        if name not in self.models:
            raise Problem(404, f"the model {name[:200]!r} is not served here; GET /v1/models lists those that are", param="model",
                          code="model_not_found")
        return self.models[name]

    @contextlib.asynccontextmanager
    async def begin(self, body: Any, kind: str) -> AsyncIterator[Request]:
        """Checks a request and opens its sequences. They are closed at the end of the block, however it ends."""
        values = read(body, kind)
        model = self.model(values["model"])
        rule = rule_of(values)
        offer = offer_of(values, model.name, model.tool_format, model.tokenizer) if kind == "chat" else None
        if offer is not None:
            rule = offer.rule(rule)
        if rule is not None and values["ignore_eos"]:
            raise bad("ignore_eos", f"cannot be true with {rule.param}: the answer ends where the constraint ends")
        watch = Watch(self.metrics.of(model.name))
        choices = values["n"] * len(values.get("prompt", [""]))
        with self.gate.pass_with(choices), self._logprobs.pass_with(await self._count_logprobs(model, values, choices)), \
                watch.running():
            prompts = await _prompts(model, values, offer)
            grammar = await self._compiled(model, rule) if rule is not None else None
            async with contextlib.AsyncExitStack() as stack:
                ask = Ask.of(values, offer.marks if offer else {})
                answers = await self._open(model, values, prompts, ask, grammar, stack)
                yield Request(model, values, prompts, answers, watch, _form(model, values, kind, offer))

    async def _info(self, model: ServedModel) -> Model:
        """What the daemon says of a model, or said last: opening waits for a daemon that is away, and for its model."""
        try:
            self._infos[model.name] = (await self.link.call(lambda client: client.models(model.name)))[0]
        except Error:
            if model.name not in self._infos:
                raise
        return self._infos[model.name]

    async def _count_logprobs(self, model: ServedModel, values: dict[str, Any], choices: int) -> int:
        """Returns how many log-probabilities the answers may have. An answer may be kept whole, for a client that reads late.
        One that is no stream is kept as objects and text, too, which take four times as much."""
        ask = Ask.of(values, {})
        if ask.logprobs is None:
            return 0
        context = (await self._info(model)).max_context
        count = choices * min(ask.max_tokens or context, context) * (ask.logprobs + 1) * (1 if values["stream"] else 4)
        return count if ask.max_tokens else min(count, LOGPROBS_MAX)  # without max_tokens answers are mostly short

    async def _compiled(self, model: ServedModel, rule: Rule) -> Compiled:
        return await self._guides.compiled(model, await self._info(model), rule)

    async def _open(self, model: ServedModel, values: dict[str, Any], prompts: list[Prompt], ask: Ask, grammar: Compiled | None,
                    stack: contextlib.AsyncExitStack) -> list[Answer]:
        """Opens a sequence for each choice. The choices of a prompt are copies, which share its KV blocks."""
        async def keep(sequence: aio.Sequence) -> aio.Sequence:
            stack.callback(sequence.release)  # waits for nothing: the block may end by a cancellation
            return sequence

        async def open_prompt(at: int) -> list[Answer]:
            prompt, n = prompts[at], values["n"]
            how = [sampling_of(values, at * n + i) for i in range(n)]
            first = await keep(await self.link.call(
                lambda client: client.open(model.name, prompt.tokens, how[0], logprobs=ask.logprobs,
                                           allowed=grammar.mask if grammar else None, restore=self._restore_seconds)))
            sequences = [first, *[await keep(await first.fork(one, logprobs=ask.logprobs)) for one in how[1:]]]
            return [Answer(model, prompt.tokens, sequence, ask, grammar is not None,
                           functools.partial(_start, sequence, ask, grammar))
                    for sequence in sequences]

        if len(prompts) == 1:
            return await open_prompt(0)
        tasks = [asyncio.ensure_future(open_prompt(at)) for at in range(len(prompts))]
        try:
            opened = await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)  # so that what they opened is in the stack
            raise
        return [answer for answers in opened for answer in answers]


def _start(sequence: aio.Sequence, ask: Ask, grammar: Compiled | None) -> aio.Generation:
    if grammar is not None:
        return grammar.start(sequence, ask)
    return sequence.generate(ask.max_tokens, stop_tokens=ask.stop_tokens, ignore_stop=ask.ignore_eos, logprobs=ask.logprobs)


def _form(model: ServedModel, values: dict[str, Any], kind: str, offer: Offer | None) -> Form:
    logprobs, usage = bool(values["logprobs"] is not None and values["logprobs"] is not False), values["stream_options"]
    if offer is not None:
        return ToolForm(model, logprobs, usage, offer)
    return (ChatForm if kind == "chat" else CompletionForm)(model, logprobs, usage)


async def _prompts(model: ServedModel, values: dict[str, Any], offer: Offer | None) -> list[Prompt]:
    if "messages" in values:
        text = await model.render(values["messages"], tools=[tool.shown for tool in values["tools"]] if offer else None)
        return [Prompt(await model.encode(text, template=False), "")]
    prompts = []
    for given in values["prompt"]:
        tokens = await model.encode(given, template=True) if isinstance(given, str) else given
        if not tokens:
            raise Problem(400, "prompt has no tokens; this model needs at least one", param="prompt", code="invalid_value")
        echo = "" if not values["echo"] else given if isinstance(given, str) else model.tokenizer.decode(given)
        prompts.append(Prompt(tokens, echo))
    return prompts


class Request:
    """A request whose sequences are open."""

    def __init__(self, model: ServedModel, values: dict[str, Any], prompts: Sequence[Prompt], answers: list[Answer], watch: Watch,
                 form: Form) -> None:
        self.stream: bool = values["stream"]
        self._answers, self._watch = answers, watch
        self._echoes = [prompt.echo for prompt in prompts for _ in range(values["n"])]
        self._prompt_tokens = sum(len(prompt.tokens) for prompt in prompts)
        self._form = form

    def _usage(self) -> dict[str, int]:
        made = sum(answer.tokens for answer in self._answers)
        return {"prompt_tokens": self._prompt_tokens, "completion_tokens": made, "total_tokens": self._prompt_tokens + made}

    def _end(self, finishes: list[str]) -> None:
        self._watch.end(self._prompt_tokens, sum(answer.tokens for answer in self._answers), finishes)

    async def whole(self) -> bytes:
        """Returns the answer as one object."""
        async def choice(index: int) -> tuple[dict[str, Any], str]:
            text, logprobs, finish = "", [], ""
            async for piece in self._answers[index].pieces():
                self._watch.tokens(index)
                text += piece.text
                logprobs += piece.logprobs
                finish = piece.finish or finish
            return self._form.choice(index, self._echoes[index], text, logprobs, finish), finish

        choices = [choice(index) for index in range(len(self._answers))]
        made = await asyncio.gather(*choices) if len(choices) > 1 else [await choices[0]]
        self._end([finish for _, finish in made])
        return self._form.whole([one for one, _ in made], self._usage())

    async def send_events(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Sends the answer as events. A failure is the last one."""
        finishes: list[str] = []

        def take(index: int, piece: Piece) -> Awaitable[None]:
            self._watch.tokens(index)
            if piece.finish:
                finishes.append(piece.finish)
            return send(self._form.piece(index, piece))

        try:
            for index, echo in enumerate(self._echoes):
                if first := self._form.first(index, echo):
                    await send(first)
            if len(self._answers) == 1:
                async for piece in self._answers[0].pieces():
                    await take(0, piece)
            else:
                async with contextlib.aclosing(_merged(self._answers)) as pieces:
                    async for index, piece in pieces:
                        await take(index, piece)
        except (Error, Problem) as error:
            await send(failure_event(problem_of(error)))
            return
        self._end(finishes)
        if self._form.wants_usage:
            await send(self._form.usage_chunk(self._usage()))
        await send(b"data: [DONE]\n\n")


def failure_event(problem: Problem) -> bytes:
    return b"data: " + problem.response().body + b"\n\n"


async def _merged(answers: list[Answer]) -> AsyncGenerator[tuple[int, Piece], None]:
    """Yields the pieces of all answers as they come, with their indices."""
    ready: asyncio.Queue[tuple[int, Piece | None]] = asyncio.Queue()

    async def follow(index: int) -> None:
        try:
            async for piece in answers[index].pieces():
                ready.put_nowait((index, piece))
        finally:
            ready.put_nowait((index, None))

    tasks = [asyncio.ensure_future(follow(index)) for index in range(len(answers))]
    for task in tasks:
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # one failure is told
    try:
        left = len(tasks)
        while left:
            index, next_piece = await ready.get()
            if next_piece is None:
                left -= 1
                await tasks[index]  # raises what ended it
            else:
                yield index, next_piece
    finally:
        for task in tasks:
            task.cancel()


