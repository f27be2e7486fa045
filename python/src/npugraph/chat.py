# SPDX-License-Identifier: Apache-2.0
"""Chat templates and stop strings. They need no daemon."""
from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ._library import call, finalize, hf_library, quick_library, strings, text
from .tokenizer import _free


class ChatTemplate:
    """The chat template of a checkpoint's directory. Jinja renders it in a child process with limits (docs/chat.md)."""

    def __init__(self, directory: str | os.PathLike[str], file: str | None = None) -> None:
        """`file`: a template to use instead of the directory's own. One thread at a time."""
        self._handle = ctypes.c_void_p()
        call(hf_library().npugraph_chat_template_open, text(directory), text(file), ctypes.byref(self._handle))
        self._close = finalize(self, hf_library().npugraph_chat_template_close, self._handle)

    def render(self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] | None = None,
               generation_prompt: bool = True) -> str:
        """Returns the text of a conversation. `generation_prompt`: it ends where the assistant's answer begins."""
        at, n = ctypes.c_void_p(), ctypes.c_size_t()
        call(hf_library().npugraph_chat_template_render, self._handle, json.dumps(messages).encode(),
             json.dumps(tools).encode() if tools is not None else None, generation_prompt, ctypes.byref(at), ctypes.byref(n))
        try:
            return ctypes.string_at(at, n.value).decode()
        finally:
            _free(at)

    def close(self) -> None:
        """Ends the child process."""
        self._close()


class Stops:
    """Finds stop strings in a text that comes in pieces. Text that may begin one is held back until that is known."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._handle = ctypes.c_void_p()
        call(hf_library().npugraph_stops_create, strings(list(stops)), len(stops), ctypes.byref(self._handle))
        self._close = finalize(self, hf_library().npugraph_stops_destroy, self._handle)

    def add(self, piece: str) -> tuple[str, bool]:
        """Adds a piece. Returns the text that can be shown now, and whether a stop string ended the text."""
        data = piece.encode()
        return self._take(quick_library().npugraph_stops_add, data, len(data))

    def end(self) -> tuple[str, bool]:
        """Ends the text: returns what was held back, and whether a stop string ended the text."""
        return self._take(quick_library().npugraph_stops_end)

    def _take(self, function: Any, *arguments: Any) -> tuple[str, bool]:
        at, n = ctypes.c_void_p(), ctypes.c_size_t()
        met = function(self._handle, *arguments, ctypes.byref(at), ctypes.byref(n))
        return ctypes.string_at(at, n.value).decode() if n.value else "", bool(met)
