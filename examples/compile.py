#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode steps of transformers' Qwen3 in eager PyTorch, with inductor, and with npugraphd: tokens per second.

    pip install "./python[transformers]"
    python3 examples/compile.py --address unix:/run/npugraphd/npugraphd.sock [--layers 28 --hidden 1024]

Weights are random, so the tokens mean nothing; they are compared. The variants take turns, so that a busy machine slows
them alike. `--variants` chooses some.
"""
import argparse
import statistics
import time

import torch
import transformers


def model_of(args):
    torch.manual_seed(0)
    heads = max(args.hidden // 64, 2)
    config = transformers.Qwen3Config(
        vocab_size=args.vocab, hidden_size=args.hidden, intermediate_size=3 * args.hidden, num_hidden_layers=args.layers,
        num_attention_heads=heads, num_key_value_heads=heads // 2, head_dim=max(2 * args.hidden // heads, 16) if args.hidden > 64 else 16,
        max_position_embeddings=args.context)
    return transformers.Qwen3ForCausalLM(config).eval().to(getattr(torch, args.dtype))


class Run:
    """One variant: a cache of its own, and greedy steps."""

    def __init__(self, name, function, model, args):
        self.name, self.function, self.context = name, function, args.context
        self.cache = transformers.StaticCache(config=model.config, max_cache_len=args.context)
        self.position, self.tokens, self.times = 0, [], []
        began = time.perf_counter()
        self.last = self.call(torch.arange(1, args.prompt + 1)[None])
        self.step()
        self.first = time.perf_counter() - began
        self.times.clear()

    def call(self, tokens):
        positions = torch.arange(self.position, self.position + tokens.shape[1])
        out = self.function(tokens, past_key_values=self.cache, cache_position=positions, use_cache=True)
        self.position += tokens.shape[1]
        return int(out.logits[0, -1].argmax())

    def step(self):
        began = time.perf_counter()
        self.last = self.call(torch.tensor([[self.last]]))
        self.times.append(time.perf_counter() - began)
        self.tokens.append(self.last)


def main():
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
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = model_of(args)
    options = {"frozen_parameter": True, "resident_states": True, **({"address": args.address} if args.address else {})}
    variants = {"eager": lambda: model,
                "inductor": lambda: torch.compile(model, backend="inductor"),
                "npugraph": lambda: torch.compile(model, backend="npugraph", options=options)}
    with torch.no_grad():
        runs = []
        for name in args.variants.split(","):
            runs.append(Run(name, variants[name](), model, args))
        for _ in range(args.tokens):
            for run in runs:
                run.step()
    print("| | tokens/s | ms per token | until the second token, s | tokens equal to the first variant's |\n| --- | --- | --- | --- | --- |")
    for run in runs:
        step = statistics.median(run.times)
        same = sum(a == b for a, b in zip(run.tokens, runs[0].tokens))
        print(f"| {run.name} | {1 / step:.1f} | {step * 1e3:.2f} | {run.first:.1f} | {same} of {len(run.tokens)} |")


if __name__ == "__main__":
    main()
