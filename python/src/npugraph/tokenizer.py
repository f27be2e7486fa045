# SPDX-License-Identifier: Apache-2.0
"""The tokenizer of a Hugging Face checkpoint. It needs no daemon."""
from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from . import _abi
from ._library import call, finalize, hf_library, quick_library, raised, text

_SHORT = 4096  # tokens, whose text is made in less than a millisecond


class Tokenizer:
    """Reads tokenizer.json, or that of a checkpoint's directory."""

    def __init__(self, path: str) -> None:
        if os.path.isdir(path):
            path = os.path.join(path, "tokenizer.json")
        self._handle = ctypes.c_void_p()
        call(hf_library().npugraph_tokenizer_open, text(path), ctypes.byref(self._handle))
        self._close = finalize(self, hf_library().npugraph_tokenizer_close, self._handle)

    def __len__(self) -> int:
        return int(hf_library().npugraph_tokenizer_size(self._handle))

    def encode(self, words: str, *, special: bool = True, template: bool = True) -> list[int]:
        """Returns the ids of a text. special: special tokens in it are recognised; template: with those around it."""
        data = words.encode()
        ids, n = ctypes.c_void_p(), ctypes.c_size_t()
        call(hf_library().npugraph_tokenizer_encode, self._handle, data, len(data), special | template << 1,
             ctypes.byref(ids), ctypes.byref(n))
        try:
            return list((ctypes.c_int32 * n.value).from_address(ids.value)) if ids.value else []
        finally:
            _free(ids)

    def token_bytes(self, token: int) -> bytes:
        """Returns what a token stands for behind others; it may be a part of a character. Empty: there is no such token."""
        n = ctypes.c_size_t()
        at = _bytes_function()(self._handle, token, ctypes.byref(n), None)
        return ctypes.string_at(at, n.value) if at is not None else b""

    def is_added(self, token: int) -> bool:
        """Returns whether a token is one of added_tokens: often a mark, and no text."""
        return bool(_added_function()(self._handle, token))

    def stream(self, prompt: Iterable[int] = (), *, special: bool = False) -> TextStream:
        """Turns ids into text as they come, behind a prompt whose text is not repeated."""
        return TextStream(self, prompt, special)

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """Returns the text of ids."""
        stream = self.stream(special=special)
        return "".join([*map(stream.add, ids), stream.end()])


class TextStream:
    """Text of ids. It is always whole characters; what is not complete is held back."""

    def __init__(self, tokenizer: Tokenizer, prompt: Iterable[int], special: bool) -> None:
        self._tokenizer = tokenizer
        self._handle = ctypes.c_void_p()
        ids = np.ascontiguousarray(list(prompt), np.int32)
        from_library = quick_library if len(ids) < _SHORT else hf_library
        call(from_library().npugraph_detokenizer_create, tokenizer._handle, ids.ctypes.data, len(ids), special,
             ctypes.byref(self._handle))
        self._close = finalize(self, hf_library().npugraph_detokenizer_destroy, self._handle)
        # What each call needs is made once: a stream has a call for each token.
        self._at, self._n, self._error = ctypes.c_void_p(), ctypes.c_size_t(), _abi.npugraph_error()
        self._results = ctypes.byref(self._at), ctypes.byref(self._n), ctypes.byref(self._error)

    def add(self, token: int) -> str:
        """Returns the text that the id completes."""
        return self._text(quick_library().npugraph_detokenizer_add(self._handle, token, *self._results))

    def end(self) -> str:
        """Returns what was held back."""
        return self._text(quick_library().npugraph_detokenizer_end(self._handle, *self._results))

    def _text(self, code: int) -> str:
        if code != 0:
            raise raised(self._error)
        n = self._n.value
        return ctypes.string_at(self._at, n).decode() if n else ""


@functools.cache
def _bytes_function() -> Any:
    """Returns npugraph_tokenizer_bytes with an address as its result: a token may have zero bytes."""
    function = hf_library()["npugraph_tokenizer_bytes"]
    function.restype, function.argtypes = ctypes.c_void_p, _abi.FUNCTIONS["npugraph_tokenizer_bytes"][1]
    return function


@functools.cache
def _added_function() -> Any:
    return hf_library()["npugraph_tokenizer_is_added"]


@functools.cache
def _free_function() -> Any:
    function = ctypes.PyDLL(None)["free"]
    function.restype, function.argtypes = None, [ctypes.c_void_p]
    return function


def _free(memory: ctypes.c_void_p) -> None:
    _free_function()(memory)


__all__ = ["TextStream", "Tokenizer"]
