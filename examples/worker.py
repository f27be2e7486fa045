#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker in Python on grpcio: a session, a sequence, and the text it generates, streamed.

    protoc --python_out=DIR -I SOURCE SOURCE/proto/npugraph.proto
    PYTHONPATH=DIR python3 worker.py --address unix:/run/npugraphd/npugraphd.sock --model bible \
        --tokenizer examples/model/tokenizer.json --prompt "In the beginning"
"""
import argparse
import json
import queue
import subprocess
import sys
import time

import grpc
from proto import npugraph_pb2 as pb


def byte_alphabet():
    """Byte-level BPE writes each byte as a printable character; this is the way back."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


class Tokenizer:
    """Encodes with `npugraphctl tokenize`, the tokenizer of libnpugraph; a longer-lived worker would load a library."""

    def __init__(self, path, npugraphctl):
        self.encode_with = [npugraphctl, "--json", "tokenize", path]
        with open(path, encoding="utf-8") as f:
            data = json.load(f)
        alphabet = byte_alphabet()
        self.special = {t["id"] for t in data["added_tokens"] if t["special"]}
        self.bytes = {i: bytes(alphabet[c] for c in text if c in alphabet) for text, i in data["model"]["vocab"].items()}

    def encode(self, text):
        return json.loads(subprocess.run([*self.encode_with, text], check=True, stdout=subprocess.PIPE).stdout)["ids"]

    def decode(self, token):
        return b"" if token in self.special else self.bytes.get(token, b"")


def method(channel, kind, name, reply):
    return getattr(channel, kind)(f"/npugraph.v1.{name}", request_serializer=lambda m: m.SerializeToString(),
                                  response_deserializer=reply.FromString)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--address", default="unix:/run/npugraphd/npugraphd.sock")
    args.add_argument("--model", default="bible")
    args.add_argument("--tokenizer", default="examples/model/tokenizer.json")
    args.add_argument("--npugraphctl", default="npugraphctl")
    args.add_argument("--prompt", default="In the beginning")
    args.add_argument("--tokens", type=int, default=64)
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()
    tokenizer = Tokenizer(args.tokenizer, args.npugraphctl)
    with grpc.insecure_channel(args.address) as channel:
        # The session is a stream that stays open. When it ends, the daemon frees all our objects.
        requests = queue.Queue()
        requests.put(pb.SessionRequest(open=pb.SessionOpen(client_name="worker.py")))
        session = method(channel, "stream_stream", "Sessions/Open", pb.SessionEvent)(iter(requests.get, None))
        mine = next(session).opened
        # Over plaintext TCP, where other clients have the same address, the token proves that the session is ours.
        who = (("npugraph-session", str(mine.session)), ("npugraph-session-token-bin", mine.token))
        begin = time.monotonic()
        sampling = pb.Sampling(temperature=0.8, top_k=40, top_p=0.95, seed=args.seed)
        opened = method(channel, "unary_unary", "Sequences/Open", pb.OpenResponse)(
            pb.OpenRequest(model=args.model, prompt=tokenizer.encode(args.prompt), sampling=sampling), metadata=who)
        first = time.monotonic()
        print(args.prompt, end="", flush=True)
        count = 0
        for reply in method(channel, "unary_stream", "Sequences/Generate", pb.GenerateResponse)(
                pb.GenerateRequest(sequence=opened.sequence, max_tokens=args.tokens), metadata=who):
            count += len(reply.tokens)
            sys.stdout.buffer.write(b"".join(map(tokenizer.decode, reply.tokens)))
            sys.stdout.buffer.flush()
        rate = (count - 1) / (time.monotonic() - first)
        print()
        print(f"[worker.py: {count} tokens, first after {(first - begin) * 1e3:.1f} ms, then {rate:.0f} tokens/s]", file=sys.stderr)
        requests.put(None)
        list(session)


if __name__ == "__main__":
    try:
        main()
    except grpc.RpcError as error:
        reason = dict(error.trailing_metadata() or ()).get("npugraph-reason", error.code().name)
        sys.exit(f"worker.py: {error.details()} [{reason}]")
