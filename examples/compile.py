#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode steps of transformers' Qwen3 in eager PyTorch, with inductor, and with npugraphd: tokens per second.

    pip install "./python[transformers]"
    python3 examples/compile.py --address unix:/run/npugraphd/npugraphd.sock [--layers 28 --hidden 1024]

Weights are random, so the tokens mean nothing; they are compared. The variants take turns, so that a busy machine slows
them alike. `--variants` chooses some; docs/pytorch.md explains default, unguarded, cached and frozen. Measure each
variant of torch.compile in a process of its own, beside eager alone: variants share the model's code, so PyTorch compares a call
with the guards of all of them. examples/compile.ipynb shows the
same with a picture.
"""
import argparse
import inspect
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import transformers

import npugraph.torch

BUNDLED = pathlib.Path(__file__).resolve().parent / "model"


def arguments(words=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--address")
    parser.add_argument("--variants", default="eager,inductor,npugraph")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--start", metavar="DIR", help="print the seconds to the first result of cache_compile with files in DIR")
    return parser.parse_args(words)


def model_of(args):
    """Returns a Qwen3 with random weights. With 28 layers of 1024 and a vocabulary of 151936 it is Qwen3-0.6B's shape."""
    torch.manual_seed(0)
    heads = max(args.hidden // 64, 2)
    config = transformers.Qwen3Config(
        vocab_size=args.vocab, hidden_size=args.hidden, intermediate_size=3 * args.hidden, num_hidden_layers=args.layers,
        num_attention_heads=heads, num_key_value_heads=heads // 2, head_dim=max(2 * args.hidden // heads, 16) if args.hidden > 64 else 16,
        max_position_embeddings=args.context, tie_word_embeddings=True)
    with torch.device("meta"):
        model = transformers.Qwen3ForCausalLM(config)
    model = model.to(getattr(torch, args.dtype)).to_empty(device="cpu").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.02) if parameter.dim() > 1 else parameter.fill_(1)
    model.tie_weights()
    rotary = model.model.rotary_emb
    model.model.rotary_emb = type(rotary)(config)
    return model


def cache_of(model, context):
    """Returns a cache that is allocated already: a first call that allocates it would be traced on its own."""
    config = model.config
    cache = transformers.StaticCache(config=config, max_cache_len=context)
    cache.early_initialization(1, config.num_key_value_heads, config.head_dim, model.dtype, "cpu")
    return cache


def cache_word(model):
    """Returns what the model's forward calls its cache, which newer versions of transformers have renamed."""
    return "cache" if "cache" in inspect.signature(type(model).forward).parameters else "past_key_values"


def variants_of(model, args):
    """Returns functions that make each variant by its name."""
    address = {"address": args.address} if args.address else {}
    options = {"frozen_parameter": True, "resident_states": True, **address}
    unguarded = {**options, "guard_filter_fn": getattr(torch.compiler, "skip_guard_on_all_nn_modules_unsafe", None)}
    every = {"eager": lambda: model,
             "inductor": lambda: torch.compile(model, backend="inductor"),
             "default": lambda: torch.compile(model, backend="npugraph", options=address),
             "npugraph": lambda: torch.compile(model, backend="npugraph", options=options),
             "unguarded": lambda: torch.compile(model, backend="npugraph", options=unguarded),
             "cached": lambda: npugraph.torch.cache_compile(model.forward, dynamic=False, options=options),
             "frozen": lambda: npugraph.torch.cache_compile(model.forward, dynamic=False, options={**options, "frozen_model": True})}
    return {name: every[name] for name in args.variants.split(",")}


class Run:
    """One variant: a cache of its own, and greedy steps."""

    def __init__(self, name, function, model, context, prompt):
        self.name, self.function = name, function
        self.cache = {cache_word(model): cache_of(model, context)}
        self.position, self.tokens, self.times = 0, [], []
        began = time.perf_counter()
        self.last = self.call(torch.tensor([prompt]))
        self.first_token = time.perf_counter() - began
        self.tokens.append(self.last)
        self.step()
        self.first = time.perf_counter() - began
        self.times.clear()

    def call(self, tokens):
        positions = torch.arange(self.position, self.position + tokens.shape[1])
        out = self.function(tokens, **self.cache, cache_position=positions, use_cache=True)
        self.position += tokens.shape[1]
        return int(out.logits[0, -1].argmax())

    def step(self):
        began = time.perf_counter()
        self.last = self.call(torch.tensor([[self.last]]))
        self.times.append(time.perf_counter() - began)
        self.tokens.append(self.last)

    @property
    def seconds(self):
        return statistics.median(self.times)


def measure(model, args):
    """Returns a run of each variant, after `args.tokens` steps in turns."""
    with torch.no_grad():
        runs = [Run(name, make(), model, args.context, range(1, args.prompt + 1)) for name, make in variants_of(model, args).items()]
        for _ in range(args.tokens):
            for run in runs:
                run.step()
    return runs


class Table:
    """The runs as a table in Markdown, which notebooks show."""

    def __init__(self, runs):
        lines = ["| | tokens/s | ms per token | first token, s | until the second token, s | tokens equal to the first variant's |",
                 "| --- | --- | --- | --- | --- | --- |"]
        for run in runs:
            same = sum(a == b for a, b in zip(run.tokens, runs[0].tokens, strict=True))
            lines.append(f"| {run.name} | {1 / run.seconds:.1f} | {run.seconds * 1e3:.2f} | {run.first_token:.1f} | {run.first:.1f} "
                         f"| {same} of {len(run.tokens)} |")
        self.text = "\n".join(lines)

    def __str__(self):
        return self.text

    def _repr_markdown_(self):
        return self.text


class Picture:
    """Tokens per second of the runs as bars, which notebooks show."""

    def __init__(self, runs):
        most = max(1 / run.seconds for run in runs)
        parts = []
        for row, run in enumerate(runs):
            rate, y = 1 / run.seconds, 30 * row + 10
            width = 300 * rate / most
            parts.append(f'<text x="90" y="{y + 14}" text-anchor="end">{run.name}</text>'
                         f'<rect x="100" y="{y}" width="{width:.0f}" height="20" fill="#3b6ea5"/>'
                         f'<text x="{width + 106:.0f}" y="{y + 14}">{rate:.1f} tokens/s</text>')
        self.text = (f'<svg xmlns="http://www.w3.org/2000/svg" width="520" height="{30 * len(runs) + 10}" '
                     f'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>')

    def _repr_svg_(self):
        return self.text


def start(model, args):
    """Returns the seconds from cache_compile to its first result, weights that are sent to the daemon among them."""
    with torch.no_grad():
        options = {"frozen_parameter": True, **({"address": args.address} if args.address else {})}
        tokens, positions, cache = torch.tensor([[1]]), torch.arange(1), {cache_word(model): cache_of(model, args.context)}
        began = time.perf_counter()
        function = npugraph.torch.cache_compile(model.forward, cache_dir=args.start, dynamic=False, options=options)
        function(tokens, **cache, cache_position=positions, use_cache=True)
        return time.perf_counter() - began


def starts(args):
    """Returns what `start` takes in two processes, one after the other: the first writes the files that the second has."""
    with tempfile.TemporaryDirectory() as made:
        words = [f"--{name}={value}" for name, value in {**vars(args), "start": made}.items() if value is not None]
        runs = [subprocess.run([sys.executable, __file__, *words], check=True, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    return [float(run.stdout) for run in runs]


def text_of(prompt, count, args):
    """Returns what the bundled model writes, compiled for the daemon."""
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(BUNDLED)
    model = transformers.AutoModelForCausalLM.from_pretrained(BUNDLED, dtype=torch.float32).eval()
    tokens = tokenizer(prompt)["input_ids"]
    args = argparse.Namespace(address=args.address, variants="npugraph")
    [function] = [make() for make in variants_of(model, args).values()]
    with torch.no_grad():
        run = Run("npugraph", function, model, len(tokens) + count, tokens)
        while len(run.tokens) < count:
            run.step()
    return prompt + tokenizer.decode(run.tokens)


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    model = model_of(args)
    print(start(model, args) if args.start else Table(measure(model, args)))


if __name__ == "__main__":
    main()
