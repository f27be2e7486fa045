# SPDX-License-Identifier: Apache-2.0
"""Digests of what a compilation depends on: code, models, files."""
from __future__ import annotations

import functools
import hashlib
import inspect
import os
import stat
import types
from collections.abc import Callable
from typing import Any

import torch

SOURCE_BYTES = 64 << 20  # of a file whose digest is taken


def of_text(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)} ".encode() + part.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def of_code(code: types.CodeType) -> str:
    """Returns a digest of compiled code, without its place in a file."""
    constants = [of_code(c) if isinstance(c, types.CodeType) else _constant(c) for c in code.co_consts]
    arguments = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_exceptiontable)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return of_text(code.co_name, code.co_code.hex(), *map(repr, (*arguments, *names)), *constants)


def codes_of(owner: Any, function: Any) -> set[str]:
    """Returns digests of the code of a function and of the methods of a model's classes, with the functions inside."""
    classes = {type(m) for m in owner.modules()} if isinstance(owner, torch.nn.Module) else {type(owner)}
    found = [getattr(f, "__func__", f) for kind in classes for base in kind.__mro__ for f in vars(base).values()]
    open_codes = [f.__code__ for f in [*found, inspect.unwrap(function)] if isinstance(f, types.FunctionType)]
    digests: set[str] = set()
    while open_codes:
        code = open_codes.pop()
        digests.add(of_code(code))
        open_codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return digests


def _constant(value: Any) -> str:
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def of_call(function: Any) -> str:
    """Returns a digest of a function: its code, defaults and what it closes over. Other objects count by their type."""
    if isinstance(function, functools.partial):
        return of_text("partial", of_call(function.func), *map(_plain, function.args), *map(_plain, function.keywords.items()))
    function = inspect.unwrap(getattr(function, "__func__", function)) if callable(function) else function
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType):
        named = function if isinstance(function, type) else type(function)
        own = vars(type(function)).get("__call__")
        extra = of_call(own) if isinstance(own, types.FunctionType) else ""
        return of_text(f"{named.__module__}.{named.__qualname__}", extra)
    closed = [_plain(_contents(cell)) for cell in function.__closure__ or ()]
    return of_text(of_code(code), _plain(function.__defaults__), _plain(function.__kwdefaults__), *closed)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"


def _plain(value: Any) -> str:
    if value is None or isinstance(value, (bool, int, float, str, bytes, complex)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return of_text(type(value).__name__, *map(_plain, value))
    if isinstance(value, dict):
        return of_text("dict", *(part for key, v in value.items() for part in (_plain(key), _plain(v))))
    if isinstance(value, types.FunctionType):
        return of_code(value.__code__)
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{tuple(value.shape)}"
    named = value if isinstance(value, type) else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def of_model(model: torch.nn.Module) -> str:
    """Returns a digest of a model without its weights' contents: classes, their code, attributes' names, parameters."""
    parts = [repr(model)]
    classes: dict[type, str] = {}
    for name, module in model.named_modules():
        kind = type(module)
        if kind not in classes:
            classes[kind] = _class(kind)
        hooks = [len(module.__dict__.get(h) or ()) for h in ("_forward_hooks", "_forward_pre_hooks")]
        parts.append(f"{name} {module.training} {sorted(module.__dict__)} {hooks}")
    parts += [f"{k.__module__}.{k.__qualname__} {digest}" for k, digest in classes.items()]
    for tensors in (model.named_parameters(remove_duplicate=False), model.named_buffers(remove_duplicate=False)):
        parts += [f"{name} {t.dtype} {tuple(t.shape)}" for name, t in tensors]
    return of_text(*parts)


def _class(kind: type) -> str:
    """Returns a digest of the methods of a class and its bases; PyTorch's count by its version."""
    parts = []
    for base in kind.__mro__:
        if base.__module__.split(".")[0] not in ("torch", "builtins"):
            functions = [(name, getattr(f, "__func__", f)) for name, f in vars(base).items()]
            parts += [name + of_call(f) for name, f in functions if isinstance(f, types.FunctionType)]
    return of_text(*parts)


def of_file(path: str) -> str | None:
    """Returns the digest of a file's contents; None: it is no regular file, or too large."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > SOURCE_BYTES:
                return None
            return _of_contents(path, status.st_size, status.st_mtime_ns, file.read)
    except (OSError, ValueError):
        return None


_known: dict[tuple[str, int, int], str] = {}


def _of_contents(path: str, size: int, changed: int, read: Callable[[], bytes]) -> str:
    key = (path, size, changed)
    if key not in _known:
        _known[key] = hashlib.sha256(read()).hexdigest()
    return _known[key]


@functools.cache
def of_package() -> str:
    """Returns a digest of this package's own code."""
    folder = os.path.dirname(os.path.abspath(__file__))
    return of_text(*(of_file(os.path.join(folder, name)) or "" for name in sorted(os.listdir(folder)) if name.endswith(".py")))
