# SPDX-License-Identifier: Apache-2.0
"""Random fields and torn bodies: each is taken or refused with 400, and what is taken can be used."""
from __future__ import annotations

import json
import random
from typing import Any

from npugraph.server.bodies import parse
from npugraph.server.fields import FIELDS, read
from npugraph.server.problems import Problem
from npugraph.server.texts import Ask, sampling_of

ROUNDS = 10000
ATOMS: list[Any] = [
    None, True, False, 0, 1, -1, 2, 20, 21, 1.5, -0.0, 1e308, 1 << 31, 1 << 62, 1 << 63, 1 << 64, -(1 << 63), "", "a", "0", "5",
    "\0", "\ud7ff", "auto", "none", "text", "user", "é" * 600, [], {}, [0], ["a"], [[1]], {"type": "text"}, {"include_usage": True},
    {"5": 1}, {"role": "user", "content": "a"}, {"type": "text", "text": "x"},
]
NAMES = ["role", "content", "name", "type", "text", "include_usage", "5", "x"]
RIGHT: dict[str, dict[str, Any]] = {"completions": {"prompt": "a"}, "chat": {"messages": [{"role": "user", "content": "a"}]},
                                   "embeddings": {"input": "a"}}
BODY = rb'{"model":"bible","prompt":["a\ud83d\ude42",{"x":[1,2.5e3,null]}],"n":1}'


def value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.random()
    if kind < 0.75 or depth > 3:
        return chance.choice(ATOMS)
    if kind < 0.9:
        return [value(chance, depth + 1) for _ in range(chance.randint(0, 3))]
    return {chance.choice(NAMES): value(chance, depth + 1) for _ in range(chance.randint(0, 3))}


def test_fields() -> None:
    chance, taken = random.Random(1), 0
    for _ in range(ROUNDS):
        kind = chance.choice(["completions", "chat", "embeddings"])
        body = {"model": "m"} | RIGHT[kind]
        for _ in range(chance.randint(0, 3)):
            body[chance.choice([*FIELDS, "other"])] = value(chance)
        try:
            values = read(body, kind)
        except Problem as problem:
            assert problem.status == 400 and problem.param, body
            continue
        taken += 1
        if kind == "embeddings":
            assert values["input"] and values["dimensions"] != 0, body
            continue
        assert Ask.of(values, {}).max_tokens != 0 and sampling_of(values, 1)._c().seed >= 0
    assert ROUNDS / 20 < taken < ROUNDS / 2


def test_bodies() -> None:
    chance, taken = random.Random(2), 0
    for _ in range(ROUNDS):
        body = bytearray(BODY)
        for _ in range(chance.randint(0, 3)):
            at = chance.randrange(len(body))
            change = chance.randrange(3)
            if change == 0:
                body[at] = chance.randrange(256)
            elif change == 1:
                body[at:at] = bytes(chance.choices(rb'[]{}",:\u0123deE+-NaI' + b"\xff\0", k=chance.randint(1, 4)))
            else:
                del body[at:at + chance.randint(1, 6)]
        try:
            json.dumps(parse(bytes(body)), ensure_ascii=False).encode()
            taken += 1
        except Problem as problem:
            assert problem.status == 400
    assert ROUNDS / 20 < taken < ROUNDS
