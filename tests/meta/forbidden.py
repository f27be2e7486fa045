# SPDX-License-Identifier: Apache-2.0
"""Rules for every file: a licence line, no forbidden calls, no open ends, and a bounded length."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(__file__))
import meta

report = meta.Report()

# Call -> what to use.
CALLS = {
    "strcpy": "memcpy, or base/strbuf.h", "strcat": "base/strbuf.h", "sprintf": "snprintf", "vsprintf": "vsnprintf",
    "gets": "fgets", "atoi": "strtol, or ngd_parse_size", "atol": "strtol", "atof": "strtod", "strtok": "strcspn",
    "alloca": "base/mem.h", "malloc": "ngd_malloc", "calloc": "ngd_calloc", "realloc": "ngd_realloc",
    "reallocarray": "ngd_reallocarray", "free": "ngd_free", "strdup": "ngd_strdup", "strndup": "ngd_strndup",
    "posix_memalign": "ngd_aligned_alloc", "aligned_alloc": "ngd_aligned_alloc", "asprintf": "base/strbuf.h",
    "system": "nothing: no shell", "popen": "nothing: no shell", "tmpnam": "mkstemp", "mktemp": "mkstemp",
}
# libnpugraph is part of users' processes and gives them memory for their own free(). The simulator of CANN takes the place
# of a vendor's libraries, which have their own heap.
OWN_HEAP = ("client/", "devices/ascend/sim/")
HEAP = {"malloc", "calloc", "realloc", "reallocarray", "free", "strdup", "strndup", "posix_memalign", "aligned_alloc"}
pattern = re.compile(r"(?<![\w.>])(" + "|".join(CALLS) + r")\s*\(")
found = []
for path in meta.files(meta.FOLDERS, ".c", ".h"):
    if path == "base/mem.c":
        continue
    for number, line in enumerate(meta.strip_c(meta.read(path)).split("\n"), 1):
        for match in pattern.finditer(line):
            if path.startswith(OWN_HEAP) and match.group(1) in HEAP:
                continue
            found.append(f"{path}:{number}: {match.group(1)}; use {CALLS[match.group(1)]}")
report.check("no_forbidden_call_is_made", found)

TEXT = (".c", ".h", ".def", ".py", ".sh", ".mk", ".m4", ".ac", ".am", ".proto", ".in", ".socket", ".conf", ".supp",
        ".bash", ".yml")
BINARY = (".safetensors", ".npy", ".bin", ".png", ".pyc")
TOP_FILES = ["configure.ac", "Makefile.am", "check", "quickstart", ".ci/run"]
ours = meta.files(meta.FOLDERS + meta.OTHERS, *TEXT)
ours += [p for p in TOP_FILES if os.path.exists(os.path.join(meta.TOP, p))]
report.check("each_file_has_one_licence_line",
             [p for p in ours if len(re.findall(r"^\W*SPDX-License-Identifier: Apache-2\.0\b", "\n".join(
                 meta.read(p).split("\n")[:4]), re.M)) != 1],
             "the first line (the second after #!) is: SPDX-License-Identifier: Apache-2.0")

marker = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
report.check("nothing_is_marked_as_left_open",
             [f"{p}:{n}" for p in ours for n, line in enumerate(meta.read(p).split("\n"), 1) if marker.search(line)
              and "mkstemp" not in line and "XXXXXX" not in line])
# The machine's configuration says where packages come from. The name of a host here would bypass its mirror.
hosts = re.compile(r"\b(?:[\w-]+\.)*(?:debian|ubuntu|launchpad|pypi|pythonhosted|anaconda|npmjs|nodesource|rubygems|maven|"
                   r"fedoraproject|alpinelinux|archlinux|launchpadcontent|golang|goproxy|crates|docker|quay)\.(?:org|com|io|net|dev)\b", re.I)
# In these, such names are those of packages: their tools look up in the machine's configuration where to get them.
lock_line = re.compile(r'^source = "registry\+https://github\.com/rust-lang/crates\.io-index"$')


def names_a_package(path, line, match):
    if path.endswith("/Cargo.lock"):
        return lock_line.match(line) is not None
    return path.endswith((".go", "/go.mod", "/go.sum")) and line[match.end():][:1] == "/" and line[:match.start()][-3:] != "://"


named = [".ci/run", "check", "quickstart", "Makefile.am", "configure.ac"] + meta.files(
    ["scripts", "tests", "bench", "examples", "m4", "systemd", ".ci", ".github", "docs"] + meta.FOLDERS)
report.check("no_file_names_a_host_of_packages",
             sorted({f"{p}:{n}: {m[0]}" for p in named if os.path.exists(os.path.join(meta.TOP, p)) and not p.endswith(BINARY)
                     and "/corpus/" not in p for n, line in enumerate(meta.read(p).split("\n"), 1)
                     for m in hosts.finditer(line) if not names_a_package(p, line, m)}),
             "take it from the machine's configuration, as scripts/cross-aarch64.sh does")
LINES_MAX = 900
report.check(f"no_source_has_more_than_{LINES_MAX}_lines",
             [f"{p}: {n}" for p in ours if p.endswith((".c", ".h", ".py")) and (n := meta.read(p).count("\n")) > LINES_MAX],
             "part it by what its sections are about")
report.check("no_tab_or_trailing_blank_in_c_files",
             [f"{p}:{n}" for p in ours if p.endswith((".c", ".h", ".def"))
              for n, line in enumerate(meta.read(p).split("\n"), 1) if "\t" in line or line != line.rstrip()])
report.end()
