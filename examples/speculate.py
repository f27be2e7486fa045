#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding from a worker: each step brings a draft, and gets the beginning of it that is right, and the next token.

The draft is what followed when the text's last two tokens last stood side by side (prompt lookup): no second model is
needed, and text that repeats itself takes fewer steps. The text is that of worker.py, token by token. Started as worker.py is.
"""
import argparse
import queue
import sys

import grpc
from proto import npugraph_pb2 as pb
from worker import Tokenizer, method


def draft_of(tokens, n):
    for at in range(len(tokens) - 2, 0, -1):
        if tokens[at - 1:at + 1] == tokens[-2:]:
            return tokens[at + 1:at + 1 + n]
    return []


def speculate(step, opened, prompt, args):
    """Yields tokens; returns the number of steps."""
    tokens, steps = [*prompt, opened.token], 0
    yield opened.token
    while (left := args.tokens - (len(tokens) - len(prompt))) > 0:
        draft = draft_of(tokens, min(args.draft, left - 1))
        reply = step(pb.StepRequest(sequence=opened.sequence, draft=draft))
        steps += 1
        said = [*draft[:reply.accepted], reply.token]
        tokens += said
        yield from said
        if reply.stop:
            break
    return steps


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--address", default="unix:/run/npugraphd/npugraphd.sock")
    args.add_argument("--model", default="bible")
    args.add_argument("--tokenizer", default="examples/model/tokenizer.json")
    args.add_argument("--npugraphctl", default="npugraphctl")
    args.add_argument("--prompt", default="In the beginning")
    args.add_argument("--tokens", type=int, default=64)
    args.add_argument("--draft", type=int, default=4, help="tokens of a draft")
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()
    tokenizer = Tokenizer(args.tokenizer, args.npugraphctl)
    with grpc.insecure_channel(args.address) as channel:
        requests = queue.Queue()
        requests.put(pb.SessionRequest(open=pb.SessionOpen(client_name="speculate.py")))
        session = method(channel, "stream_stream", "Sessions/Open", pb.SessionEvent)(iter(requests.get, None))
        mine = next(session).opened
        # Over plaintext TCP, where other clients have the same address, the token proves that the session is ours.
        who = (("npugraph-session", str(mine.session)), ("npugraph-session-token-bin", mine.token))
        prompt = tokenizer.encode(args.prompt)
        sampling = pb.Sampling(temperature=0.8, top_k=40, top_p=0.95, seed=args.seed)
        opened = method(channel, "unary_unary", "Sequences/Open", pb.OpenResponse)(
            pb.OpenRequest(model=args.model, prompt=prompt, sampling=sampling), metadata=who)
        one = method(channel, "unary_unary", "Sequences/Step", pb.StepResponse)
        print(args.prompt, end="", flush=True)
        said, run = 0, speculate(lambda q: one(q, metadata=who), opened, prompt, args)
        while True:
            try:
                token = next(run)
            except StopIteration as end:
                steps = end.value
                break
            said += 1
            sys.stdout.buffer.write(tokenizer.decode(token))
            sys.stdout.buffer.flush()
        print()
        print(f"[speculate.py: {said} tokens in {steps} steps]", file=sys.stderr)
        requests.put(None)
        list(session)


if __name__ == "__main__":
    try:
        main()
    except grpc.RpcError as error:
        reason = dict(error.trailing_metadata() or ()).get("npugraph-reason", error.code().name)
        sys.exit(f"speculate.py: {error.details()} [{reason}]")
