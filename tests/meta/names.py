# SPDX-License-Identifier: Apache-2.0
"""Static functions of the programs have names of their own, so that a backtrace or a profile tells them apart."""
import collections
import os
import re
import sys

sys.path.insert(0, os.path.dirname(__file__))
import meta

# As clang-format lays a definition out: it begins a line, and its last line ends in the brace.
DEFINITION = re.compile(r"^static [^;={}()]*?(?:__attribute__\(\([^()]*(?:\([^()]*\))?\)\) [^;={}()]*?)?\b(\w+)\((?:[^;{}]*?)\)[^;={}]*\{", re.M)
FOUND_AT_LEAST = 2000 # far fewer: the pattern fits no more
# The simulator of CANN stands for a vendor's libraries; nobody profiles it.
EXEMPT = ("devices/ascend/sim/",)

report = meta.Report()
where = collections.defaultdict(list)
for path in meta.files([f for f in meta.FOLDERS if f != "proto"], ".c"):
    if not path.startswith(EXEMPT):
        for name in set(DEFINITION.findall(meta.strip_c(meta.read(path)))):
            where[name].append(path)
report.check("the_pattern_finds_definitions", [] if len(where) > FOUND_AT_LEAST else [f"only {len(where)} static functions"])
report.check("each_static_function_has_a_name_of_its_own",
             [f"{name}: {', '.join(paths)}" for name, paths in sorted(where.items()) if len(paths) > 1],
             "name what it works on, as in grow_table or replay_run")
report.end()
