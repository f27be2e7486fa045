# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libnpugraph, and turns its errors into exceptions."""
from __future__ import annotations

import ctypes
import functools
import os
import weakref
from collections.abc import Callable
from typing import Any

from . import _abi, tracing
from .errors import error_of

VERSION = "0.1.0"  # of this package; structs of another version of the library may have other fields
_SONAME = "libnpugraph.so.0"
_HF_SONAME = "libnpugraph-hf.so.0"


def finalize(owner: object, function: Callable[..., Any], *args: Any) -> weakref.finalize[..., Any]:
    """As weakref.finalize, but does nothing in a forked child, whose copy of the connection is its parent's."""
    return weakref.finalize(owner, _finalize, os.getpid(), function, *args)


def _finalize(process: int, function: Callable[..., Any], *args: Any) -> None:
    if os.getpid() == process:
        function(*args)


def _open(name: str) -> ctypes.CDLL:
    folder = os.environ.get("NPUGRAPH_LIBRARY_PATH", "")
    try:
        return ctypes.CDLL(os.path.join(folder, name))
    except OSError as error:
        raise ImportError(f"{error}. It comes with npugraphd: install that (and run ldconfig), or name the library's "
                          "folder in NPUGRAPH_LIBRARY_PATH") from None


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            continue  # it is in the other one of the two libraries
        function.restype, function.argtypes = result, arguments
    return library


@functools.cache
def library() -> Any:
    """Returns libnpugraph. ImportError: it is not installed, or has another version."""
    loaded = _declare(_open(_SONAME))
    version = loaded.npugraph_version().decode()
    if version != VERSION:
        raise ImportError(f"libnpugraph has version {version}, and this package {VERSION}: install the same of both")
    return loaded


@functools.cache
def hf_library() -> Any:
    """Returns libnpugraph-hf: checkpoints and tokenizers."""
    library()
    return _declare(_open(_HF_SONAME))


@functools.cache
def quick_client_library() -> Any:
    """Returns libnpugraph for calls that keep the interpreter's lock, as `quick_library` does."""
    return _declare(ctypes.PyDLL(library()._name))


@functools.cache
def quick_library() -> Any:
    """Returns libnpugraph-hf for calls of about a microsecond, which keep the interpreter's lock: to let go of it and to
    get it again would take longer."""
    hf_library()
    return _declare(ctypes.PyDLL(hf_library()._name))


def text(value: str | os.PathLike[str] | None) -> bytes | None:
    """Returns a C string, or NULL for None. ValueError: the text has a NUL character, which would cut it."""
    if value is None:
        return None
    data = os.fspath(value).encode()
    if b"\0" in data:
        raise ValueError("a text for the daemon has a NUL character")
    return data


def strings(values: list[str]) -> Any:
    """Returns a C array of strings."""
    return (ctypes.c_char_p * len(values))(*map(text, values))


def call(function: Any, *arguments: Any) -> None:
    """Calls a function of the library that ends with an error parameter; raises what it reports."""
    error = _abi.npugraph_error()
    tracing.apply(library())
    if function(*arguments, ctypes.byref(error)) != 0:
        raise raised(error)


def raised(error: _abi.npugraph_error) -> Exception:
    """Returns the exception for an error that the library filled."""
    return error_of(error.code, error.reason.decode(errors="replace"), error.message.decode(errors="replace"))
