# SPDX-License-Identifier: Apache-2.0
"""What all implementations compute: the same prompts, the same fixed text, and the arguments of their programs.

The formulas of tokens are those of bench_sequences.c.
"""
import argparse
import json
import time

PROMPT = 16  # tokens of a sequence that generates
FORCED = 8   # tokens that follow the prompt of the fixed text


def prompt(n, seed):
    return [(seed * 131 + k * 17 + 3) % 5000 for k in range(n)]


def forced(k):
    return (k * 29 + 11) % 5000


def arguments(what):
    """Of an engine_*.py: prepare, logits or measure."""
    args = argparse.ArgumentParser(description=what)
    args.add_argument("action", choices=["prepare", "logits", "measure"])
    args.add_argument("--variant", required=True)
    args.add_argument("--checkpoint", required=True, help="directory in Hugging Face's layout")
    args.add_argument("--work", required=True, help="directory for what this program makes")
    args.add_argument("--out", help="file for the logits")
    args.add_argument("--sequences", default="1,4,8,32")
    args.add_argument("--tokens", type=int, default=32)
    args.add_argument("--prompt", type=int, default=512)
    args.add_argument("--depth", type=int, default=PROMPT, help="tokens of a prompt of a sequence that generates")
    args.add_argument("--threads", type=int, default=2)
    args = args.parse_args()
    args.counts = [int(n) for n in args.sequences.split(",")]
    return args


def measure(args, model):
    """Prints tokens per second, as bench_sequences does.

    model.open(n, length, seed) computes n prompts and returns a state. model.step(state) appends a token to each
    sequence, the most probable one.
    """
    def sequences(n, tokens):
        state = model.open(n, args.depth, 0)
        begin = time.monotonic()
        for _ in range(tokens):
            model.step(state)
        return n * tokens / (time.monotonic() - begin)

    def one_prompt(seed):
        begin = time.monotonic()
        model.open(1, args.prompt, seed)
        return args.prompt / (time.monotonic() - begin)

    one_prompt(1000)  # warms up, and compiles
    for n in args.counts:
        sequences(n, 2)
    rates = {"prompt": one_prompt(1001)}
    for n in args.counts:
        rates[str(n)] = sequences(n, args.tokens)
    print(json.dumps(rates))
