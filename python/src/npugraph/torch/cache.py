# SPDX-License-Identifier: Apache-2.0
"""cache_compile: torch.compile whose translation is kept in files, so that another process traces nothing."""
from __future__ import annotations

import functools
import logging
import os
import platform
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..errors import GraphRefused, Unsupported
from .digests import of_call, of_file, of_model, of_package, of_text
from .entries import Form, form_of
from .extend import extensions
from .files import CacheWarning, Folder
from .match import Entry
from .options import Options, parse_options
from .record import Recorder

log = logging.getLogger("npugraph")
FORMAT = 1
_OWN = ("address", "device", "client", "reconnect", "weights_dir", "fallback", "frozen_model")  # no translation depends on them


def cache_compile(function: Any, *, options: Mapping[str, Any] | None = None, config: None = None, dynamic: bool | None = True,
                  cache_dir: str | os.PathLike[str] | None = None, global_rank: int | None = None,
                  tp_rank: int | None = None, pp_rank: int | None = None,
                  custom_decompositions: Mapping[Any, Callable[..., Any]] | None = None) -> CachedFunction:
    """Compiles a model, a method of one, or a function, and keeps the translation for other processes.

    As torch.compile(function, backend="npugraph", fullgraph=True). What each form of a call (its shapes, dtypes and
    objects) was translated to is written to a file below `cache_dir`; where a file fits, nothing is traced. `cache_dir`:
    $NPUGRAPH_CACHE_HOME, $TORCHAIR_CACHE_HOME, or npugraph in the user's cache folder. The ranks name a folder each.
    """
    if config is not None:
        raise TypeError("cache_compile takes options=, by the names of docs/pytorch.md, and no config")
    owner, called = _parts(function)
    parsed = parse_options(options)
    decompositions = dict(custom_decompositions or {})
    key = _key(owner, called, parsed, dynamic, decompositions)
    name = type(owner).__name__ if owner is not None else "function"
    path = os.path.join(_home(cache_dir), f"{name}_{_dynamic_word(dynamic)}_npugraphcache_{of_text(repr(key))[:32]}",
                        *_rank_folder(global_rank, tp_rank, pp_rank), getattr(called, "__name__", "function").strip("<>"))
    return CachedFunction(function, owner, called, parsed, Recorder(parsed, dynamic, decompositions), key, Folder(path))


def _parts(function: Any) -> tuple[Any, Callable[..., Any]]:
    """Returns the object that a method is of, or None, and the plain function."""
    if isinstance(function, torch.nn.Module):
        return function, type(function).__call__
    if hasattr(function, "__self__") and hasattr(function, "__func__"):
        return function.__self__, function.__func__
    if not callable(function):
        raise TypeError(f"{function!r} is neither a model, nor a method, nor a function")
    return None, function


def _home(cache_dir: str | os.PathLike[str] | None) -> str:
    for given in (cache_dir, os.environ.get("NPUGRAPH_CACHE_HOME"), os.environ.get("TORCHAIR_CACHE_HOME")):
        if given:
            return os.path.abspath(given)
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "npugraph")


def _dynamic_word(dynamic: bool | None) -> str:
    return {True: "dynamic", False: "static", None: "automatic"}[dynamic]


def _rank_folder(world: int | None, tp: int | None, pp: int | None) -> list[str]:
    if world is None and tp is None and pp is None:
        return []
    size = os.environ.get("WORLD_SIZE", "1")
    parts = [f"world{size}global_rank{world if world is not None else 0}"]
    parts += [f"{word}_rank{rank}" for word, rank in (("tp", tp), ("pp", pp)) if rank is not None]
    return ["_".join(parts)]


def _key(owner: Any, called: Any, options: Options, dynamic: bool | None, decompositions: Mapping[Any, Any]) -> dict[str, Any]:
    """Returns what all forms of a function depend on."""
    own = {name: repr(value) for name, value in vars(options).items() if name not in (*_OWN, "passes", "daemon")}
    return {
        "format": FORMAT, "package": of_package(), "torch": torch.__version__, "python": platform.python_version(),
        "function": f"{called.__module__}.{called.__qualname__}", "code": of_call(called),
        "model": of_model(owner) if isinstance(owner, torch.nn.Module) else type(owner).__qualname__,
        "dynamic": _dynamic_word(dynamic),
        "options": {**{name: str(value) for name, value in options.daemon.items()}, **own},
        "passes": {name: of_call(function) for name, function in options.passes.items()},
        "decompositions": sorted(f"{op} {of_call(function)}" for op, function in decompositions.items()),
        "extensions": extensions(),
    }


class CachedFunction:
    """What cache_compile returns. `loaded` and `traced` count the forms that came from files and from Dynamo."""

    def __init__(self, function: Any, owner: Any, called: Callable[..., Any], options: Options, recorder: Recorder,
                 key: dict[str, Any], folder: Folder) -> None:
        if not isinstance(function, torch.nn.Module):
            functools.update_wrapper(self, function)
        self.owner, self.called, self.options, self.recorder = owner, called, options, recorder
        self.key, self.folder = key, folder
        self.lock = threading.RLock()
        self.entries: list[Entry] = []  # those that calls are compared with, the last one used first
        self.loaded = 0
        self._read = False

    @property
    def traced(self) -> int:
        return self.recorder.count

    @property
    def path(self) -> str:
        """The folder of the files."""
        return self.folder.path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        roots = {"function": self.called, "owner": self.owner, "args": args, "kwargs": kwargs}
        with self.lock:
            if not self._read:
                self._read = True
                self._load()
            for entry in self.entries:
                given = entry.match(roots)
                if given is not None:
                    if entry is not self.entries[0]:
                        self.entries.remove(entry)
                        self.entries.insert(0, entry)
                    return self._run(entry, given, roots)
            return self._trace(roots)

    def _run(self, entry: Entry, given: list[Any], roots: dict[str, Any]) -> Any:
        try:
            return entry.run(given, roots)
        except (GraphRefused, Unsupported) as why:  # when it is registered: nothing has been written
            self.entries.remove(entry)
            warnings.warn(f"a form of {self.key['function']} is compiled again, as the daemon refuses the graph in its file: "
                          f"{why}", CacheWarning, stacklevel=3)
        return self._trace(roots)

    def _load(self) -> None:
        for name, data in self.folder.read():
            why = self._take(data)
            if why:
                warnings.warn(f"{os.path.join(self.path, name)} is not used: {why}", CacheWarning, stacklevel=4)
                self.folder.remove(name)
        if self.loaded:
            log.info("npugraph: %d forms of %s from %s", self.loaded, self.key["function"], self.path)

    def _take(self, data: Any) -> str:
        """Adds the entry that a file has, or returns why not."""
        try:
            if not isinstance(data, dict) or data.get("key") != self.key:
                return "it was written for another function, or with other versions"
            form = form_of(data.get("form"))
            stale = [path for path, digest in form.sources.items() if of_file(path) != digest]
            if stale:
                return f"{stale[0]} has changed"
            self.entries.append(Entry(form, self.options))
        except (ValueError, TypeError, KeyError, IndexError, RecursionError) as why:
            return f"it is malformed: {why}"
        self.loaded += 1
        return ""

    def _trace(self, roots: dict[str, Any]) -> Any:
        result, form, why = self.recorder.call(roots)
        if form is not None:
            self._keep(form)
        if why:
            log.warning("npugraph: a form of %s is not kept: %s", self.key["function"], why)
        return result

    def _keep(self, form: Form) -> None:
        try:
            data = {"key": self.key, "form": form.data()}
            self.entries.insert(0, Entry(self.folder.write(data, form_of), self.options))
        except (ValueError, OSError) as why:
            warnings.warn(f"nothing is kept in {self.path}: {why}", CacheWarning, stacklevel=4)
