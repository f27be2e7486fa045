# SPDX-License-Identifier: Apache-2.0
"""What a constraint costs for each token: compiling, masks and taking tokens, with a model's own vocabulary.

    python/bench/guided.py TOKENIZER     # a tokenizer.json, a checkpoint's directory or a GGUF file; no daemon is needed

Times are those of the thread's processor: one mask in a hundred would else show the time slices of other programs.
"""
from __future__ import annotations

import json
import random
import statistics
import sys
import time

import npugraph
from npugraph.client import Model
from npugraph.server.guided import Compiled, Ended, Environment, _compile
from npugraph.server.problems import Problem
from npugraph.server.rules import Rule

SCHEMAS = {
    "a schema of four fields": {
        "type": "object", "required": ["name", "age", "tags"], "additionalProperties": False, "properties": {
            "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "mail": {"type": "string", "format": "email"},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}}}},
    "any JSON object": {"type": "object"},
    "an enum of 500 strings": {"enum": [f"value{i}" for i in range(500)]},
    "a pattern with repetitions": {"type": "string", "pattern": "^[A-Z][a-z]{2,30}( [A-Z][a-z]+)*$"},
}
ANSWERS, TOKENS = 20, 60


def draw(chance: random.Random, mask: bytes) -> int:
    """Returns a token that the mask allows."""
    at = chance.randrange(len(mask))
    while not mask[at]:
        at = (at + 1) % len(mask)
    return 8 * at + chance.choice([bit for bit in range(8) if mask[at] >> bit & 1])


def main() -> None:
    tokenizer = npugraph.Tokenizer(sys.argv[1])
    stop = next((i for i in range(len(tokenizer)) if tokenizer.is_added(i)), 0)
    model = Model("", "", "", "", 0, 0, len(tokenizer), 0, (stop,))
    begin = time.thread_time()
    environment = Environment(tokenizer, model)
    print(f"{len(tokenizer)} tokens: {time.thread_time() - begin:.2f} s to make a trie of them")
    chance = random.Random(1)
    for name, schema in SCHEMAS.items():
        begin = time.thread_time()
        compiled = _compile(environment, Rule("json", json.dumps(schema), "schema"))
        took = time.thread_time() - begin
        assert isinstance(compiled, Compiled), compiled
        masks, takes = [], []
        for _ in range(ANSWERS):
            guide, mask = compiled.guide(), compiled.mask
            for _ in range(TOKENS):
                token = draw(chance, mask)
                if token == stop:
                    break
                try:
                    begin = time.thread_time()
                    guide.take(token)
                    between = time.thread_time()
                    mask = guide.mask()
                except (Ended, Problem):
                    break
                takes.append(between - begin)
                masks.append(time.thread_time() - between)
        masks.sort()
        print(f"{name}: compile {took * 1e3:.1f} ms; mask mean {statistics.mean(masks) * 1e3:.3f} ms, "
              f"p99 {masks[int(len(masks) * 0.99)] * 1e3:.1f} ms, most {masks[-1] * 1e3:.1f} ms; "
              f"take mean {statistics.mean(takes) * 1e6:.0f} us; {len(masks)} tokens")


if __name__ == "__main__":
    main()
