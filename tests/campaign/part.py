# SPDX-License-Identifier: Apache-2.0
"""What the programs of the campaign's parts share: the arguments that scripts/campaign gives them, and how they end."""
import argparse
import random
import sys
import time

ARGUMENTS = sys.argv[1:]  # before a harness takes them for names of tests


def arguments(what, seconds, more=lambda parser: None, seed=1):
    """Returns the arguments, with a generator of random numbers and the time at which the part is to end."""
    parser = argparse.ArgumentParser(description=what, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=seconds, help="about how long it runs" + (" (default: all of it)" if seconds is None else ""))
    parser.add_argument("--seed", type=int, default=seed, help="of all choices")
    more(parser)
    args = parser.parse_args(ARGUMENTS)
    args.end = time.monotonic() + args.seconds if args.seconds else float("inf")
    args.random = random.Random(args.seed)
    print(f"seed {args.seed}", flush=True)
    return args


def end(passed, failed):
    """Prints the sum, which scripts/campaign reads, and ends the program."""
    print(f"{passed} passed, {failed} failed", flush=True)
    sys.exit(1 if failed else 0)


def skip(why):
    print(f"skip - {why}", flush=True)
    end(0, 0)
