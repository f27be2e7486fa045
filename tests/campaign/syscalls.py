#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The n-th system call on files, sockets and threads fails (or moves a single byte), in each scenario, with each of its errors."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from alloc import *  # noqa: E402,F403

CODES = ("RESOURCE_EXHAUSTED", "UNAVAILABLE", "INTERNAL", "PERMISSION_DENIED", "NOT_FOUND", "DATA_LOSS")
FAILED = tuple(getattr(grpc.StatusCode, name) for name in CODES)
PICKS = list(range(6))

if __name__ == "__main__":
    ARGS = arguments(__doc__, lambda p: p.add_argument("--grpc", action="store_true", help="those that gRPC makes, too"))
    TOTAL, FAILING = Sum(), Failing()
    CALLERS = OWN | HELPERS | (GRPC if ARGS.grpc else 0)
    if chosen(ARGS):
        Sweep(ARGS, FAILING, TOTAL, CALLS, CALLERS, FAILED, picks=PICKS, bursts=[1, 4] if ARGS.seconds else [1]).run(chosen(ARGS))
    if not ARGS.only or "start" in ARGS.only:
        for PICK in [PICKS] if ARGS.seconds else [[pick] for pick in PICKS]:
            starts(ARGS, FAILING, TOTAL, CALLS, CALLERS, PICK)
    TOTAL.end()
