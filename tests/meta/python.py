# SPDX-License-Identifier: Apache-2.0
"""The Python package agrees with the C library, the options and the version, and is distributed as a whole."""
import ctypes
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
import meta

report = meta.Report()
ABI = "python/src/npugraph/_abi.py"


def load(path):
    spec = importlib.util.spec_from_file_location("loaded", os.path.join(meta.TOP, path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measured(structs):
    """Returns (struct, field or None) -> the offset or size that the C compiler gives it."""
    lines = [f'printf("{s} - %zu\\n", sizeof(struct {s}));' for s in structs]
    lines += [f'printf("{s} {f} %zu\\n", offsetof(struct {s}, {f}));' for s, c in structs.items() for f, *_ in c._fields_]
    program = "#include <npugraph_hf.h>\n#include <stdio.h>\nint main(void)\n{\n" + "\n".join(lines) + "\nreturn 0;\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "sizes")
        subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-xc", "-", "-o", out, f"-I{meta.TOP}/client/lib",
                        f"-I{meta.TOP}/client/hf"], input=program, text=True, check=True)
        text = subprocess.run([out], capture_output=True, text=True, check=True).stdout
    return {(s, f): int(n) for s, f, n in (line.split() for line in text.splitlines())}


printed = subprocess.run([sys.executable, os.path.join(meta.TOP, "scripts/python-abi.py")], capture_output=True, text=True)
report.check("ctypes_module_agrees_with_the_headers", [] if printed.stdout == meta.read(ABI) else [printed.stderr or ABI],
             f"run: scripts/python-abi.py > {ABI}")
structs = {name: kind for name, kind in vars(load(ABI)).items()
           if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind is not ctypes.Structure}
in_c = measured(structs)
report.check("structs_have_the_compilers_layout",
             [f"{s}.{f}: {getattr(c, f).offset}, in C {in_c[s, f]}" for s, c in structs.items() for f, *_ in c._fields_
              if getattr(c, f).offset != in_c[s, f]] +
             [f"{s}: {ctypes.sizeof(c)} bytes, in C {in_c[s, '-']}" for s, c in structs.items() if ctypes.sizeof(c) != in_c[s, "-"]])
version = re.search(r"AC_INIT\(\[[^]]*\], *\[([^]]*)\]", meta.read("configure.ac"))[1]
claims = {path: re.search(pattern, meta.read(path), re.M)[1] for path, pattern in (
    ("python/pyproject.toml", r'^version = "(.*)"$'), ("python/src/npugraph/_library.py", r'^VERSION = "(.*)"'))}
report.check("versions_agree", [f"{path}: {claim}, not {version}" for path, claim in claims.items() if claim != version])
listed = set(re.findall(r"python/[\w./-]+", meta.read("python/local.mk")))
MADE = re.compile(r"^python/build/|egg-info|_cache/|\.pyc$")  # by `pip install ./python` and its tests
report.check("each_file_is_distributed", [p for p in meta.files(["python"]) if not p.endswith("local.mk") and not MADE.search(p)
                                          and p not in listed], "add it to python/local.mk")
report.check("each_distributed_file_exists", [p for p in listed if not os.path.exists(os.path.join(meta.TOP, p))])
report.end()
