#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Change a line of graphs/ or scheduler/ and see whether a unit test notices.

  tests/campaign/mutants.py --seconds N --seed S [--file FILE...] [--per-file N]

Mutations come from universalmutator (PyPI; installed into build/mutants/venv). Each is put into a copy of the tree and built. If the object
file is the same as before, the mutation is "equal" and not counted. Otherwise the folder's unit tests run until one fails: the mutation was
killed. What survives is listed with its file, line and change: a line that no test checks, or a change that means the same. A survivor is a
lead, not a failure; the part fails only when it cannot work. Not one of CI's minute: the copy's build takes longer.
"""
import argparse
import collections
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

TOP = os.path.abspath(os.environ.get("top_srcdir", os.path.join(os.path.dirname(__file__), "..", "..")))
WORK = os.path.join(TOP, "build", "mutants")
TREE, BUILD, VENV = (os.path.join(WORK, name) for name in ("tree", "objects", "venv"))
TEST_TIME = 60  # seconds: a mutation that makes a test hang is killed, too
FIRST = 3  # tests that are built one by one
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
    # Without -g, so that equal objects are equal files.
    targets = " ".join(test for folder in FOLDERS for test in tests_of(folder))
    must("the copy builds", run("scripts/build.sh", BUILD, "--enable-debug", cwd=TREE, env=dict(os.environ, CFLAGS="-O1", TARGETS=targets)))


def sources(folder):
    for where, _, names in sorted(os.walk(os.path.join(TREE, folder))):
        for name in sorted(names):
            if name.endswith(".c"):
                yield os.path.relpath(os.path.join(where, name), TREE)


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
        if not change or re.match(r"/?\*|//|#include|assert\(", change[1]):
            continue
        yield change, text
        count -= 1
        if count == 0:
            return


def object_of(path):
    """The bytes of a file's object; libtool puts it into .libs."""
    folder, name = os.path.split(path)
    with open(os.path.join(BUILD, folder, ".libs", name[:-2] + ".o"), "rb") as f:
        return f.read()


def make(*tests):
    return run("make", "-s", "-j2", "-C", BUILD, *tests).returncode == 0


def notices(test):
    env = dict(os.environ, top_srcdir=TREE, top_builddir=BUILD)
    # Check forks for each test, so a test that hangs is a group of processes.
    with subprocess.Popen(os.path.join(BUILD, test), cwd=WORK, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          start_new_session=True) as process:
        try:
            return process.wait(TEST_TIME) != 0
        except subprocess.TimeoutExpired:
            return True
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def judge(path, tests, before):
    """The test that notices what is in the tree now; "invalid": it does not compile; "equal": so does nothing; None: it survives."""
    first, rest = tests[:FIRST], tests[FIRST:]
    for test in first:
        if not make(test):
            return "invalid"
        if test == first[0] and object_of(path) == before:
            return "equal"
        if notices(test):
            return test
    if not make(*rest):
        return "invalid"
    return next((test for test in rest if notices(test)), None)


def order(path, killers):
    """The folder's tests: those that killed mutations of this file, the latest first, then those that have its name, then the others."""
    tests = tests_of(path.split("/")[0])
    words = os.path.basename(path)[:-2].split("_")
    alike = sorted((t for t in tests if any(w in t for w in words)), key=lambda t: -sum(w in t for w in words))
    return list(dict.fromkeys([*killers, *alike, *tests]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=3600, help="beyond the build")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", action="append", help="only these files, as graphs/expr.c")
    parser.add_argument("--per-file", type=int, default=10)
    args = parser.parse_args()
    prepare()
    rng = random.Random(args.seed)
    files = args.file or [path for folder in FOLDERS for path in sources(folder)]
    rng.shuffle(files)
    counts = collections.Counter()
    end = time.monotonic() + args.seconds
    for path in files:
        target, before, killers = os.path.join(TREE, path), object_of(path), []
        original = open(target, encoding="utf-8").read()
        for (line, old, new), text in mutants(path, args.per_file, rng):
            if time.monotonic() > end:
                break
            try:
                with open(target, "w", encoding="utf-8") as f:
                    f.write(text)
                result = judge(path, order(path, killers), before)
            finally:
                with open(target, "w", encoding="utf-8") as f:
                    f.write(original)
            outcome = result if result in ("invalid", "equal") else "killed" if result else "survived"
            counts[outcome] += 1
            if outcome == "survived":
                print(f"survived  {path}:{line}\n    - {old}\n    + {new}", flush=True)
            elif outcome == "killed":
                killers.insert(0, result)
                print(f"killed    {path}:{line} by {result}", flush=True)
    tried = counts["killed"] + counts["survived"]
    print(f"{tried} mutations: {counts['killed']} killed, {counts['survived']} survived ({100 * counts['killed'] / max(tried, 1):.0f} % "
          f"killed); {counts['equal']} made the same object, {counts['invalid']} did not compile")
    print(f"{1 if tried else 0} passed, {0 if tried else 1} failed")
    return 0 if tried else 1


if __name__ == "__main__":
    sys.exit(main())
