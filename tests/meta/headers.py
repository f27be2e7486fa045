# SPDX-License-Identifier: Apache-2.0
"""Every header compiles alone, so that including it does not depend on earlier includes."""
import concurrent.futures
import os
import re
import shlex
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import meta

compiler = shlex.split(os.environ.get("CC", "cc"))
flags = shlex.split(os.environ.get("NGD_CPPFLAGS", f"-D_GNU_SOURCE -I{meta.TOP} -I{meta.TOP}/client/lib -I{meta.TOP}/client/hf -I{meta.BUILD}"))
KERNEL_FLAGS = [("avx512", "NGD_AVX512BF16_CFLAGS"), ("avx2", "NGD_AVX2_CFLAGS")]


def compile_alone(path):
    extra = []
    for word, variable in KERNEL_FLAGS:
        if word in path:
            extra = shlex.split(os.environ.get(variable, ""))
            if not extra:
                return None
            break
    run = subprocess.run(compiler + flags + extra + ["-std=gnu11", "-Wall", "-Wextra", "-Wno-unused", "-Werror",
                                                     "-fsyntax-only", "-include", "/dev/null", "-x", "c", "-"],
                         input=f'#include "{path}"\n', capture_output=True, text=True)
    return f"{path}: " + run.stderr.strip().replace("\n", "\n    ") if run.returncode else None


report = meta.Report()
# A template, *_impl.h, is included after the macros that it needs, more than once.
headers = [p for p in meta.files(meta.FOLDERS, ".h") if not p.endswith("_impl.h")]
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    broken = [p for p in pool.map(compile_alone, headers) if p]
report.check("each_header_compiles_alone", broken)

problems, seen = [], {}
for path in headers:
    match = re.search(r"^#ifndef (\w+)\n#define (\w+)\n", meta.read(path), re.M)
    if not match or match.group(1) != match.group(2):
        problems.append(f"{path}: no include guard")
    elif match.group(1) in seen:
        problems.append(f"{path}: the guard {match.group(1)} is that of {seen[match.group(1)]}")
    else:
        seen[match.group(1)] = path
report.check("each_header_has_a_guard_of_its_own", problems)
report.end()
