# SPDX-License-Identifier: Apache-2.0
"""readable_cache: what a file of cache_compile has, for people."""
from __future__ import annotations

import os
from typing import Any

from .entries import Form, form_of
from .files import contents
from .paths import Path


def readable_cache(cache_bin: str | os.PathLike[str], print_output: bool = True,
                   file: str | os.PathLike[str] | None = None) -> str:
    """Returns a file of cache_compile as text: what it depends on, its arguments, conditions, results and graph.

    The text is printed too, unless `print_output` is False, and written to `file`, which only the user may read.
    ValueError: the file is damaged, somebody else's, or not one of cache_compile. Nothing in it is executed.
    """
    entry = contents(os.fspath(cache_bin))["entry"]
    if not isinstance(entry, dict):
        raise ValueError(f"{cache_bin} has no entry")
    shown = "\n".join([*_key(entry.get("key")), *_form(form_of(entry.get("form")))]) + "\n"
    if print_output:
        print(shown, end="")
    if file is not None:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as out:
            out.write(shown)
    return shown


def _key(key: Any) -> list[str]:
    lines = ["# depends on"]
    for name, value in (key if isinstance(key, dict) else {}).items():
        shown = ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value
        lines.append(f"{name}: {shown}")
    return lines


def _form(form: Form) -> list[str]:
    lines = ["", "# arguments of the graph"]
    program = form.program
    kinds = {a: f"{word}{n}" for word, places in (("p", program.params), ("s", program.states), ("i", program.inputs),
                                                  ("u", program.uploads)) for n, a in enumerate(places)}
    for number, argument in enumerate(form.arguments):
        dtype = str(argument.dtype).removeprefix("torch.") if argument.dtype else "int"
        sizes = f"[{', '.join(map(str, argument.shape))}]" if argument.dtype else ""
        lines.append(f"{kinds.get(number, '-')}: {dtype}{sizes} {_path(argument.path)}")
    lines += ["", "# symbols", *(f"{name} = {_source(form, place)}" for name, place in form.symbols.items())]
    lines += ["", "# conditions", *form.conditions]
    lines += [f"{_path(path)}: {' '.join(map(str, expected))}" for path, expected in (*form.call, *form.model)]
    lines += ["", "# result", form.structure]
    lines += [f"{kind} {_path(what) if kind == 'path' else what}" for kind, what in form.leaves]
    lines += ["", "# files of the code", *form.sources]
    return [*lines, "", "# graph", program.text(dict.fromkeys(program.symbols, 2**31)).rstrip("\n")]


def _source(form: Form, place: tuple[int, int]) -> str:
    argument, dim = place
    path = _path(form.arguments[argument].path)
    return path if dim < 0 else f"{path}.shape[{dim}]"


def _path(path: Path) -> str:
    text = str(path[0][1])
    for kind, key in path[1:]:
        text += {"attribute": f".{key}", "has": f" has {key}", "own": f" has its own {key}", "item": f"[{key!r}]",
                 "size": ".size()", "stride": ".stride()", "type": ".__class__", "module": ""}[kind]
    return text
