# SPDX-License-Identifier: Apache-2.0
"""Shared by the checks of the sources: the tree, C text without comments, and the report."""
import os
import re
import sys

TOP = os.path.abspath(os.environ.get("top_srcdir") or os.path.join(os.path.dirname(__file__), "..", ".."))
BUILD = os.path.abspath(os.environ.get("top_builddir") or TOP)
FOLDERS = ["base", "graphs", "devices", "scheduler", "proto", "daemon", "client"]
# Included in checks that hold for every file of the project.
OTHERS = ["tests", "bench", "examples", "scripts", "systemd", "packaging", "m4", "man", "python", "docs", ".ci", ".github"]
GENERATED = re.compile(r"(\.pb-c\.[ch]|proto/descriptors\.c|m4/libtool\.m4|m4/lt[a-z~]*\.m4)$")


def files(folders, *suffixes):
    """Returns the paths below the given folders, relative to the top, sorted."""
    found = []
    for folder in folders:
        for where, dirs, names in os.walk(os.path.join(TOP, folder)):
            dirs[:] = [d for d in dirs if d not in (".deps", ".libs", "__pycache__")]
            for name in names:
                path = os.path.relpath(os.path.join(where, name), TOP)
                if (not suffixes or name.endswith(suffixes)) and not GENERATED.search(path):
                    found.append(path)
    return sorted(found)


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def strip_c(text, keep_strings=False):
    """Returns C text with comments (and strings) blanked; lines stay."""
    def blank(match):
        token = match.group(0)
        if token[0] in "\"'":
            return token if keep_strings else token[0] * 2
        return " " + "\n" * token.count("\n")
    return _TOKEN.sub(blank, text)


class Report:
    """Prints one line per check; exits non-zero if one failed."""

    def __init__(self):
        self.failed = 0

    def check(self, name, problems, advice=""):
        problems = list(problems)
        if not problems:
            print(f"ok - {name}")
            return
        self.failed += 1
        for problem in problems:
            print(f"  {problem}")
        if advice:
            print(f"  {advice}")
        print(f"not ok - {name}")

    def skip(self, name, why):
        print(f"skip - {name}: {why}")

    def end(self):
        sys.exit(1 if self.failed else 0)
