#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fuzz every parser with clang's libFuzzer, under the address and undefined-behaviour sanitizers.

  tests/campaign/fuzz.py --seconds N --seed S [--target NAME...] [--jobs N] [--keep DIR]

Builds in build/fuzz and gives each target its part of the time. Starts from tests/fuzz/corpus, what the targets make themselves
(fuzz_seed), and what earlier runs found in build/fuzz/found. A finding is an input that breaks a promise, crashes, leaks, or takes
more than 10 s or 2 GiB; it stays in build/fuzz/crashes. With --keep, DIR/NAME gets the inputs that reach branches that it and fuzz_seed
do not reach yet, as few and as small as libFuzzer can choose; --seconds 0 does only that.
A run of up to five minutes ends by a number of inputs, which a slow machine can do in that time: in CI a fast one looks no further. The
same seed does not try exactly the same inputs again, since libFuzzer's choices depend on addresses and times too.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import time

import part

TOP = os.path.abspath(os.environ.get("top_srcdir", os.path.join(os.path.dirname(__file__), "..", "..")))
BUILD = os.path.join(TOP, "build", "fuzz")
SEEDS = os.path.join(os.environ.get("top_builddir", os.path.join(TOP, "build", "check")), "tests", "fuzz")
LIMITS = ["-rss_limit_mb=2048", "-timeout=10", "-max_len=65536"]
KEEP_FILES, KEEP_BYTES = 60, 100_000  # of a corpus: make check runs it
SHORT, RATE, LATE = 300, 3000, 10  # seconds; inputs a second of a short run; how much longer than its time it may take
DONE = re.compile(r"^#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)/", re.M)
RUNS = re.compile(r"Done (\d+) runs")


def targets():
    return sorted(name[5:-2] for name in os.listdir(os.path.join(TOP, "tests", "fuzz"))
                  if name.startswith("fuzz_") and name.endswith(".c") and name != "fuzz_main.c")


def build(names):
    if shutil.which("clang") is None:
        print("not ok - clang is not installed (scripts/deps.sh ci)")
        return False
    env = dict(os.environ, CC="clang", CFLAGS="-O1 -g1", TARGETS=" ".join(f"tests/fuzz/fuzz_{name}" for name in names))
    began = time.monotonic()
    # Kernels are the longest to compile, and no target runs those that the CPU cannot.
    less = [] if "avx512f" in open("/proc/cpuinfo", encoding="utf-8").read() else ["--without-avx512"]
    ok = subprocess.run(["scripts/build.sh", BUILD, "--enable-debug", "--enable-asan", "--enable-fuzzer", *less], cwd=TOP, env=env,
                        check=False).returncode == 0
    print(f"built in {time.monotonic() - began:.0f} s", flush=True)
    return ok


def folder(*parts):
    path = os.path.join(BUILD, *parts)
    os.makedirs(path, exist_ok=True)
    return path


def write_seeds(name):
    """What code makes; the plain build of the target writes it."""
    program = os.path.join(SEEDS, f"fuzz_{name}")
    out = folder("seeds", name)
    if os.access(program, os.X_OK):
        subprocess.run([program, "--write-seeds", out], check=True, stdout=subprocess.DEVNULL)
    return out


def corpora(name):
    given = [os.path.join(TOP, "tests", "fuzz", "corpus", name)]
    if name == "graph_text":
        given.append(os.path.join(TOP, "tests", "golden", "graphs"))
    return [folder("found", name), *(path for path in given if os.path.isdir(path)), write_seeds(name)]


def bounds(seconds, short):
    return [f"-runs={seconds * RATE}", f"-max_total_time={seconds * LATE}"] if short else [f"-max_total_time={seconds}"]


def fuzz(name, seconds, seed, short):
    log_path = os.path.join(folder("logs"), name + ".log")
    words = os.path.join(TOP, "tests", "fuzz", "dict", name + ".dict")
    command = [os.path.join(BUILD, "tests", "fuzz", f"fuzz_{name}"), *bounds(seconds, short), f"-seed={seed or 1}",
               f"-artifact_prefix={folder('crashes')}/{name}-", "-print_final_stats=1", *LIMITS,
               *([f"-dict={words}"] if os.path.exists(words) else []), *corpora(name)]
    env = dict(os.environ, ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:allocator_may_return_null=1",
               LSAN_OPTIONS=f"suppressions={TOP}/tests/lsan.supp:print_suppressions=0",
               UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1")
    with open(log_path, "wb") as log:
        status = subprocess.run(command, stdout=log, stderr=log, env=env, check=False).returncode
    text = open(log_path, errors="replace", encoding="utf-8").read()
    last, runs = DONE.findall(text), RUNS.findall(text)
    return {"name": name, "status": status, "runs": int(runs[-1]) if runs else int(last[-1][0]) if last else 0,
            "cov": last[-1][1] if last else "-", "inputs": last[-1][3] if last else "-", "log": text}


def keep(name, directory):
    """Adds a small set of inputs with the same branches to what is in the directory. At most KEEP_FILES and KEEP_BYTES are there afterwards."""
    out, merged = os.path.join(directory, name), folder("merged", name)
    shutil.rmtree(merged)
    for given in (write_seeds(name), out):
        if os.path.isdir(given):
            shutil.copytree(given, merged, dirs_exist_ok=True)
    old = set(os.listdir(merged))
    subprocess.run([os.path.join(BUILD, "tests", "fuzz", f"fuzz_{name}"), "-set_cover_merge=1", "-use_counters=0", *LIMITS, merged,
                    *corpora(name)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.makedirs(out, exist_ok=True)
    have = [os.path.getsize(os.path.join(out, found)) for found in os.listdir(out)]
    files, room = len(have), KEEP_BYTES - sum(have)
    for size, found in sorted((os.path.getsize(os.path.join(merged, found)), found) for found in os.listdir(merged) if found not in old):
        if files < KEEP_FILES and size <= room:
            shutil.copy(os.path.join(merged, found), os.path.join(out, found[:12]))
            files, room = files + 1, room - size


def main():
    def more(parser):
        parser.add_argument("--target", action="append", help="only these; --seconds is for all together, without the build")
        parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time (default: one for each CPU)")
        parser.add_argument("--keep", metavar="DIR", help="add inputs with new coverage to DIR/NAME afterwards")
    args = part.arguments(__doc__, 600, more)
    names = args.target or targets()
    if not build(names):
        part.end(0, 1)
    each = max(int(args.seconds * args.jobs) // len(names), 1)
    print(f"{'TARGET':16} {'RUNS':>10} {'BRANCHES':>9} {'INPUTS':>7}  RESULT", flush=True)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for got in pool.map(lambda name: fuzz(name, each, args.seed, args.seconds <= SHORT), names if args.seconds else ()):
            ok = got["status"] == 0 and got["runs"] > 0
            failed += not ok
            print(f"{got['name']:16} {got['runs']:10} {got['cov']:>9} {got['inputs']:>7}  {'ok' if ok else 'FAILED'}", flush=True)
            if not ok:
                print("\n".join("  | " + line[:300] for line in got["log"].splitlines()[-45:]))
    if args.keep:
        for name in names:
            keep(name, args.keep)
    part.end(len(names) - failed, failed)


if __name__ == "__main__":
    main()
