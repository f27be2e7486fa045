# SPDX-License-Identifier: Apache-2.0
"""Clang understands the annotations of base/annotations.h: it refuses each mistake of thread_safety.c."""
import os
import re
import shlex
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import meta

SOURCE = "tests/meta/thread_safety.c"
flags = shlex.split(os.environ.get("NGD_CPPFLAGS", f"-D_GNU_SOURCE -I{meta.TOP}"))


def is_clang(command):
    run = subprocess.run(command + ["-dM", "-E", "-x", "c", "/dev/null"], capture_output=True, text=True)
    return run.returncode == 0 and "__clang__" in run.stdout


def find_clang():
    """Returns the compiler of this build if it is clang, otherwise Debian's clang."""
    own = shlex.split(os.environ.get("CC", "cc"))
    if is_clang(own):
        return own
    return [shutil.which("clang")] if shutil.which("clang") else None


def analyse(clang, case=None):
    define = [f"-D{case}"] if case else []
    return subprocess.run(clang + flags + define + ["-std=gnu11", "-Wall", "-Wextra", "-Wthread-safety", "-Werror", "-fsyntax-only",
                                                    os.path.join(meta.TOP, SOURCE)], capture_output=True, text=True)


def cases():
    """Returns each case, with the expected words of clang and their line."""
    name = None
    for number, line in enumerate(meta.read(SOURCE).splitlines(), 1):
        begins = re.match(r"#(?:el)?if defined\((\w+)\)", line)
        if begins:
            name = begins.group(1)
        expected = re.search(r"/\* expect: (.*) \*/", line)
        if expected:
            yield name, number, expected.group(1)


report = meta.Report()
clang = find_clang()
if not clang:
    report.skip("thread_safety_analysis", "clang is not installed")
    sys.exit(77)
right = analyse(clang)
report.check("right_use_of_locks_is_accepted", [right.stderr] if right.returncode else [])
for name, number, text in cases():
    run = analyse(clang, name)
    first = re.search(r":(\d+):\d+: error: (.*)", run.stderr)
    problems = []
    if run.returncode == 0 or not first:
        problems = [f"{SOURCE} compiles with -D{name}"]
    elif int(first.group(1)) != number or not first.group(2).startswith(text):
        problems = [f"expected at line {number}: {text}", f"got at line {first.group(1)}: {first.group(2)}"]
    report.check(f"{name.lower()}_is_refused", problems)
report.end()
