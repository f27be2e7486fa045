#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turn the output of `make -Bnk V=1` on stdin into compile_commands.json on stdout."""
import json
import os
import re
import shlex
import sys

entries, seen = [], set()
directory = os.getcwd()
for line in sys.stdin.read().replace("\\\n", " ").split("\n"):
    # The compile step of an object: through libtool or not, up to the shell's next command.
    match = re.search(r"(?:--mode=compile )?((?:\S*gcc|\S*clang|\S*cc)(?:-\d+)? [^;&|]*? -c -o \S+ [^;&|]*)", line)
    if not match:
        continue
    # The source may be written as `test -f 'x.c' || echo '../'`x.c.
    text = re.sub(r"`test -f '?[^`]*`", "@srcdir@/", line[match.start(1):].split("&&")[0].rstrip())
    try:
        words = shlex.split(text)
    except ValueError:
        continue
    source = words[-1].replace("@srcdir@/", "")
    if source.startswith("@") or not source.endswith(".c"):
        continue
    for top in ("", os.environ["srcdir"] + "/"):
        if os.path.exists(top + source):
            source = top + source
            break
    words = [w for w in words[:-1] if w not in ("-MD", "-MP")] + [source]
    if source not in seen:
        seen.add(source)
        entries.append({"directory": directory, "file": os.path.abspath(source), "arguments": words})
json.dump(entries, sys.stdout, indent=1)
print()
