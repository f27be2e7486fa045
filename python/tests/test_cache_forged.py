# SPDX-License-Identifier: Apache-2.0
"""Kept files whose fields somebody changed, under a digest that fits: no call writes outside the caller's tensors."""
from __future__ import annotations

import copy
import ctypes
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Daemon

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402

import npugraph.torch as backend  # noqa: E402
from npugraph import Error, _abi  # noqa: E402
from npugraph.torch import cache_compile  # noqa: E402
from npugraph.torch.answer import Answer, Writer  # noqa: E402
from npugraph.torch.entries import form_of  # noqa: E402
from npugraph.torch.match import Entry  # noqa: E402
from npugraph.torch.translate import Update  # noqa: E402

GUARD = 4096  # bytes before and behind a tensor
FILLING = 0xA5


class Guarded:
    """A tensor whose storage is its own bytes alone, in the middle of memory that must not change."""

    def __init__(self, *shape: int, dtype: Any = torch.float32) -> None:
        self.nbytes = torch.empty(shape, dtype=dtype).nbytes
        self.memory = np.full(self.nbytes + 2 * GUARD, FILLING, np.uint8)
        self.tensor = torch.frombuffer(self.memory, dtype=dtype, count=self.nbytes // dtype.itemsize, offset=GUARD).view(shape)
        self.tensor.zero_()

    def intact(self) -> bool:
        around = np.concatenate([self.memory[:GUARD], self.memory[GUARD + self.nbytes:]])
        return bool((around == FILLING).all())


# ---- one field at a time --------------------------------------------------------------------------------------------

def step(rows: Any, part: Any, whole: Any, at: Any, x: Any) -> Any:
    """Writes a row, a part and the whole of a state."""
    rows.index_copy_(0, at, x[:1])
    part[1:3] = x[:1]
    whole.mul_(2)
    return x.t() * 2, x.sum() + torch.tensor([1.0, 2.0])


def arguments(rows: int) -> list[Any]:
    return [Guarded(rows, 4), Guarded(rows, 4), Guarded(rows, 4), Guarded(1, dtype=torch.int64), Guarded(2, 4)]


def forgeries(data: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields the way to each field, and what to put there instead."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield (*way, key), None
            yield from forgeries(value, (*way, key))
    elif isinstance(data, list):
        if data:
            yield way, data[1:]
            yield way, [*data, data[0]]
        for place, value in enumerate(data):
            yield from forgeries(value, (*way, place))
    elif type(data) is int:
        for other in {-1, 0, 1, data + 1, data * 8, 1 << 40} - {data}:
            yield way, other
        yield way, "s0"
    elif isinstance(data, str):
        for text in {"", "f64", "u8", "1", data + "1", "whole", "rows"} - {data}:
            yield way, text


def changed(data: Any, way: tuple[Any, ...], value: Any) -> Any:
    data = copy.deepcopy(data)
    at = data
    for step_to in way[:-1]:
        at = at[step_to]
    at[way[-1]] = value
    return data


def attempt(data: Any, options: Any, given: list[Any]) -> str:
    """Uses a forged form twice, and returns how far it came."""
    try:
        entry = Entry(form_of(data), options)
    except (ValueError, TypeError, KeyError, IndexError):  # those that cache_compile makes a CacheWarning of
        return "refused"
    came = "unlike"
    for _ in range(2):
        roots = {"function": step, "owner": None, "args": tuple(g.tensor for g in given), "kwargs": {}}
        try:
            found = entry.match(roots)
            if found is None:
                return came
            came = "failed"
            entry.run(found, roots)
            came = "ran"
        except (Error, ValueError):
            return came
        finally:
            assert all(g.intact() for g in given)
    return came


def test_forged_fields(daemon: Daemon, tmp_path: pathlib.Path) -> None:
    torch._dynamo.reset()
    with torch.no_grad():
        cached = cache_compile(step, cache_dir=tmp_path)
        cached(*(g.tensor for g in arguments(5)))
        [file] = pathlib.Path(cached.path).glob("compiled_module.*.json")
        form = json.loads(file.read_bytes().split(b"\n", 1)[1])["entry"]["form"]
        given = arguments(5)
        assert attempt(form, cached.options, given) == "ran"
        assert {u["kind"] for u in form["program"]["updates"]} == {"rows", "part", "whole"}
        ends = {}
        for way, value in forgeries(form):
            if way[0] not in ("sources", "model", "context", "call"):  # what those say is compared, and nothing else
                ends[way, str(value)] = attempt(changed(form, way, value), cached.options, given)
        print({end: list(ends.values()).count(end) for end in set(ends.values())})
        assert len(ends) > 500 and {"refused", "unlike", "failed"} <= set(ends.values())
        # Without the conditions, and with the sizes of states as symbols, states of any size had the form.
        for place in form["program"]["states"]:
            loose = changed({**form, "conditions": []}, ("arguments", place, "shape", 0), next(iter(form["symbols"])))
            assert attempt(loose, cached.options, given) == "refused"
        for other in (arguments(3), arguments(2)):
            assert attempt({**form, "conditions": []}, cached.options, other) == "unlike"
    backend.forget()


# ---- where memory is copied -----------------------------------------------------------------------------------------

def answered(*outputs: bytes) -> Answer:
    outs = (_abi.npugraph_output * len(outputs))()
    kept = [ctypes.create_string_buffer(data, len(data)) for data in outputs]
    for out, data in zip(outs, kept, strict=True):
        out.data, out.bytes = ctypes.addressof(data), len(data)
    answer = Answer(ctypes.cast(outs, ctypes.POINTER(_abi.npugraph_output)), len(outputs), range(len(outputs)), [])
    answer.kept = kept  # type: ignore[attr-defined]
    return answer


def writer(update: Update) -> Writer:
    return Writer([update])


WHOLE = Update(0, "whole", output=0)
ROW = Update(0, "rows", output=0, dim=1, index=1)


@pytest.mark.parametrize("update", [WHOLE, ROW], ids=["whole", "row"])
def test_a_state_that_is_smaller_than_at_the_last_call(update: Update) -> None:
    """The answers are as large as before, so that the plan of the last call seems to fit."""
    index = torch.tensor([5])
    answer = answered(bytes(range(64)) if update is WHOLE else bytes(range(8)))
    into, large = writer(update), Guarded(2, 8)
    into.write([large.tensor, index], answer)
    assert large.intact() and large.tensor.any()
    for small in (Guarded(2, 2), Guarded(2, 4), Guarded(1, 8)):
        with pytest.raises((Error, IndexError)):
            into.write([small.tensor, index], answer)
        assert small.intact() and not small.tensor.any()
    into.write([Guarded(2, 8).tensor, index], answer)


@pytest.mark.parametrize("update", [WHOLE, ROW], ids=["whole", "row"])
def test_a_state_whose_memory_was_taken_away(update: Update) -> None:
    index = torch.tensor([5])
    answer = answered(bytes(range(64)) if update is WHOLE else bytes(range(8)))
    into, state = writer(update), torch.zeros(2, 8)
    into.write([state, index], answer)
    assert state.any()
    state.untyped_storage().resize_(32)
    with pytest.raises(ValueError, match="needs 64 bytes, and its storage has 32"):
        into.write([state, index], answer)


def test_a_state_that_is_no_longer_contiguous() -> None:
    answer = answered(bytes(range(64)))
    into, state = writer(WHOLE), torch.zeros(4, 4)
    into.write([state], answer)
    turned = torch.zeros(4, 4).t()
    into.write([turned], answer)
    assert turned.tolist() == state.tolist()


@pytest.mark.parametrize(("shape", "outputs"), [((2, 8), bytes(60)), ((2, 8), bytes(68)), ((2, 8), b"")])
def test_an_answer_of_another_size(shape: tuple[int, ...], outputs: bytes) -> None:
    state = Guarded(*shape)
    with pytest.raises(Error, match=r"has \d+ bytes, and a tensor of shape"):
        writer(WHOLE).write([state.tensor], answered(outputs))
    assert state.intact()
