# SPDX-License-Identifier: Apache-2.0
"""The models that the server knows: names of the daemon, each with its tokenizer and chat template."""
from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable
from typing import Any

from .. import ChatTemplate, Client, Error, NotFound, Tokenizer
from .problems import Problem
from .tools import FORMATS, Format, format_of

INLINE_BYTES = 4096  # shorter texts are encoded at once, in the loop's thread: about 1 ms
Names = tuple[str | None, str | None, str | None]  # directory, template and form of calls, if they were given
TEMPLATES = 2  # renderers of a model; a conversation that takes long delays only some others


class ServedModel:
    """A model with its tokenizer and template."""

    def __init__(self, name: str, directory: str, template: str | None, tool_format: str | None) -> None:
        self.name = name
        self.created = int(time.time())
        self.tokenizer = Tokenizer(directory)
        self.tool_format = FORMATS[tool_format] if tool_format else None
        self._templates: asyncio.Queue[ChatTemplate] = asyncio.Queue()
        try:
            for _ in range(TEMPLATES):
                self._templates.put_nowait(_started(ChatTemplate(directory, template)))
            self.has_template = True
            if tool_format is None:
                self.tool_format = _format(ChatTemplate(directory, template))
        except NotFound as error:
            if error.reason != "NOT_FOUND":
                raise  # a file that was named
            self.has_template = False

    async def encode(self, text: str, *, template: bool) -> list[int]:
        """Returns the ids of a text. template: with those that begin a text."""
        work = functools.partial(self.tokenizer.encode, text, template=template)
        return work() if len(text) < INLINE_BYTES else await asyncio.to_thread(work)

    async def render(self, messages: list[dict[str, Any]], *, tools: list[dict[str, Any]] | None = None,
                     generation_prompt: bool = True) -> str:
        """Returns the text of a conversation. tools: those that the model may call."""
        if not self.has_template:
            raise Problem(400, f"{self.name} has no chat template: neither chat_template.jinja nor a chat_template in its "
                          "tokenizer_config.json; use /v1/completions", param="messages", code="no_chat_template")
        template = await self._templates.get()
        work = asyncio.ensure_future(asyncio.to_thread(template.render, messages, tools=tools, generation_prompt=generation_prompt))
        work.add_done_callback(lambda _: self._templates.put_nowait(template))  # also when nobody waits any more
        return await asyncio.shield(work)

    @functools.lru_cache(maxsize=1 << 16)  # noqa: B019  # a model lives as long as the server
    def token_bytes(self, token: int) -> bytes:
        return self.tokenizer.token_bytes(token)


def open_models(names: dict[str, Names], daemon: Callable[[], Client]) -> dict[str, ServedModel]:
    """Opens each model's tokenizer and template: of its directory, or of the files that the daemon sees."""
    models, client = {}, None
    try:
        for name, (directory, template, tools) in names.items():
            if directory is not None:
                models[name] = ServedModel(name, directory, template, tools)
                continue
            client = client or daemon()
            with client.model_files(name) as files:
                models[name] = ServedModel(name, files, template, tools)
    finally:
        if client is not None:
            client.close()
    return models


def _format(template: ChatTemplate) -> Format | None:
    try:
        return format_of(template.render)
    finally:
        template.close()


def _started(template: ChatTemplate) -> ChatTemplate:
    """Starts the template's process, so that no request waits for that."""
    with contextlib.suppress(Error):  # it may refuse such a conversation; another time that is the client's matter
        template.render([{"role": "user", "content": "?"}])
    return template


def read_names(values: list[str], templates: list[str], formats: list[str]) -> dict[str, Names]:
    """Reads --model NAME or NAME=DIR, --chat-template NAME=FILE, --tool-format NAME=FORMAT. ValueError: what is wrong."""
    models: dict[str, Names] = {}
    for value in values:
        name, equals, directory = value.partition("=")
        if not name or (equals and not directory) or name in models:
            raise ValueError(f"--model {value}: it must be NAME or NAME=DIR, each name once")
        models[name] = (directory or None, None, None)
    for value in templates:
        name, _, file = value.partition("=")
        if name not in models or not file:
            raise ValueError(f"--chat-template {value}: it must be NAME=FILE, with the name of a --model")
        models[name] = (models[name][0], file, None)
    for value in formats:
        name, _, form = value.partition("=")
        if name not in models or form not in FORMATS:
            raise ValueError(f"--tool-format {value}: it must be NAME=FORMAT, with the name of a --model and one of "
                             f"{', '.join(FORMATS)}")
        models[name] = (*models[name][:2], form)
    return models
