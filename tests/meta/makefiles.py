# SPDX-License-Identifier: Apache-2.0
"""Every source is named in a makefile fragment, so that it is built and distributed, and each named source exists."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(__file__))
import meta

report = meta.Report()
fragments = [p for p in meta.files(meta.FOLDERS + meta.OTHERS, ".mk")]
text = meta.read("Makefile.am") + "".join(meta.read(p) for p in fragments)
words = set(re.findall(r"[\w./+-]+", text))
# A distributed directory includes all files in it. A unit test's source has the name of its program.
whole = [w for w in words if os.path.isdir(os.path.join(meta.TOP, w)) and w.count("/") and re.search(
    rf"EXTRA_DIST[^\n]*(\\\n[^\n]*)*\s{re.escape(w)}\b", text)]


def named(path):
    return (path in words or (path.endswith(".c") and path[:-2] in words)
            or any(path.startswith(w + "/") for w in whole))


sources = [p for p in meta.files(meta.FOLDERS + ["tests", "bench", "examples"], ".c", ".h", ".def", ".proto", ".sh")]
report.check("each_source_is_in_a_fragment", [p for p in sources if not named(p)],
             "add it to the local.mk of its folder")
report.check("each_source_in_a_fragment_exists",
             sorted(w for w in words if re.match(r"(base|graphs|devices|scheduler|proto|daemon|client|tests|bench|examples)/",
                                                 w) and re.search(r"\.(c|h|def|proto|py|sh)$", w)
                    and not os.path.exists(os.path.join(meta.TOP, w)) and not meta.GENERATED.search(w)))
report.check("each_fragment_is_included",
             [p for p in fragments if f"$(top_srcdir)/{p}" not in text])
# Static kernels are compiled from these files, which the program contains, because there may be no source tree.
static = re.search(r"^NGD_STATIC_FILES = ((?:[^\n]*\\\n)*[^\n]*)", meta.read("devices/local.mk"), re.M)[1].replace("\\\n", " ").split()
missing = {h for p in static for h in re.findall(r'#include "([^"]+)"', meta.read(p)) if h not in static}
# Plans ask these functions of k_gemm.c's table on every CPU.
newer = re.findall(r"^libngddevices_(?:vnni|amx|avx512|avx2)_la_SOURCES = ((?:[^\n]*\\\n)*[^\n]*)", meta.read("devices/local.mk"), re.M)
report.check("what_every_cpu_runs_is_not_compiled_for_newer_ones",
             [f"{p}: {f}" for p in " ".join(newer).split() if p.endswith(".c")
              for f in re.findall(r"^\w[\w ]+ (ngd_\w+_(?:fits?|rows|bytes))\(", meta.read(p), re.M)], "move it to k_gemm_rooms.c")
report.check("static_kernels_have_every_header_that_they_include", sorted(missing), "include less, or add it to NGD_STATIC_FILES")
report.end()
