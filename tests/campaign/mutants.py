#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Change a line of graphs/ or scheduler/ and see whether a unit test notices.

  tests/campaign/mutants.py --seconds N --seed S [--file FILE...]

Mutations come from universalmutator (PyPI; installed into build/mutants/venv). Each is put into a copy of the tree, built, and the folder's
unit tests run until one fails: the mutation was killed. What survives is listed with its file, line and change: a line that no test
holds on to, or a change that means the same. A survivor is a lead, not a failure; the part fails only when it cannot work. Not one of
CI's minute: the copy's build takes longer.
"""
import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import time

TOP = os.path.abspath(os.environ.get("top_srcdir", os.path.join(os.path.dirname(__file__), "..", "..")))
WORK = os.path.join(TOP, "build", "mutants")
TREE, BUILD, VENV = (os.path.join(WORK, name) for name in ("tree", "objects", "venv"))
TEST_TIME = 60  # seconds: a mutation that makes a test hang is killed, too
FOLDERS = {"graphs": ["tests/unit/graphs.mk"], "scheduler": ["tests/unit/scheduler.mk"]}


def run(*command, **kwargs):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False, **kwargs)


def must(what, result):
    if result.returncode != 0:
        print(result.stdout[-3000:])
        print(f"not ok - {what}\n0 passed, 1 failed")
        sys.exit(1)


def copy_tree():
    """Tracked files, as they are in the work tree. Unchanged files keep their times, so that make builds little."""
    names = run("git", "ls-files", cwd=TOP).stdout.splitlines()
    for name in names:
        source, target = os.path.join(TOP, name), os.path.join(TREE, name)
        if not os.path.isfile(source):
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(source, "rb") as a:
            text = a.read()
        if not os.path.exists(target) or open(target, "rb").read() != text:
            shutil.copy(source, target)


def prepare():
    os.makedirs(WORK, exist_ok=True)
    if not os.path.exists(os.path.join(VENV, "bin", "mutate")):
        must("a virtual environment", run(sys.executable, "-m", "venv", VENV))
        must("universalmutator", run(os.path.join(VENV, "bin", "pip"), "install", "-q", "universalmutator"))
    copy_tree()
    must("the copy builds", run("scripts/build.sh", BUILD, "--enable-debug", cwd=TREE, env=dict(os.environ, CFLAGS="-O1")))


def tests_of(folder):
    text = "".join(open(os.path.join(TREE, name), encoding="utf-8").read() for name in FOLDERS[folder])
    return sorted(set(re.findall(r"tests/unit/test_\w+(?= |\n|\\)", text)))


def changed_line(old, new):
    for number, (a, b) in enumerate(zip(old.splitlines(), new.splitlines()), 1):
        if a != b:
            return number, a.strip(), b.strip()
    return None


def mutants(path, count, rng):
    """Up to count changes of a file, none of them in a comment."""
    out = os.path.join(WORK, "made")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    run(os.path.join(VENV, "bin", "mutate"), path, "--noCheck", "--mutantDir", out, cwd=TREE)
    original = open(os.path.join(TREE, path), encoding="utf-8").read()
    names = sorted(os.listdir(out))
    rng.shuffle(names)
    for name in names:
        text = open(os.path.join(out, name), encoding="utf-8", errors="replace").read()
        change = changed_line(original, text)
        if not change or re.match(r"/?\*|//|#include", change[1]):
            continue
        yield change, text
        count -= 1
        if count == 0:
            return


def judge(tests, last_killer):
    """The test that notices what is in the tree now; "invalid" when it does not compile; None: it survives."""
    env = dict(os.environ, top_srcdir=TREE, top_builddir=BUILD)
    order = sorted(tests, key=lambda t: t != last_killer)
    for test in order:
        made = run("make", "-s", "-j2", "-C", BUILD, test)
        if made.returncode != 0:
            return "invalid"
        try:
            if run(os.path.join(BUILD, test), cwd=WORK, env=env, timeout=TEST_TIME).returncode != 0:
                return test
        except subprocess.TimeoutExpired:
            return test
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3600, help="beyond the build")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", action="append", help="only these files, as graphs/expr.c")
    parser.add_argument("--per-file", type=int, default=10)
    args = parser.parse_args()
    prepare()
    rng = random.Random(args.seed)
    files = args.file or [f"{d}/{n}" for d in FOLDERS for n in sorted(os.listdir(os.path.join(TREE, d))) if n.endswith(".c")]
    rng.shuffle(files)
    killed = survived = invalid = 0
    end, killer = time.monotonic() + args.seconds, None
    for path in files:
        target = os.path.join(TREE, path)
        original = open(target, encoding="utf-8").read()
        for (line, before, after), text in mutants(path, args.per_file, rng):
            if time.monotonic() > end:
                break
            try:
                with open(target, "w", encoding="utf-8") as f:
                    f.write(text)
                result = judge(tests_of(path.split("/")[0]), killer)
            finally:
                with open(target, "w", encoding="utf-8") as f:
                    f.write(original)
            invalid += result == "invalid"
            survived += result is None
            if result is None:
                print(f"survived  {path}:{line}\n    - {before}\n    + {after}", flush=True)
            elif result != "invalid":
                killed, killer = killed + 1, result
                print(f"killed    {path}:{line} by {result}", flush=True)
    tried = killed + survived
    print(f"{tried} mutations: {killed} killed, {survived} survived ({100 * killed / max(tried, 1):.0f} % killed); {invalid} did not compile")
    print(f"{1 if tried else 0} passed, {0 if tried else 1} failed")
    return 0 if tried else 1


if __name__ == "__main__":
    sys.exit(main())
