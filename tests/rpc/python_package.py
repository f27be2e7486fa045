# SPDX-License-Identifier: Apache-2.0
"""npugraph, the package in python/, with the library of this build. A test that imports it is skipped where that cannot be loaded."""
import importlib.util
import sys

from harness import *

if SANITIZER:
    skip_all("a program without the sanitizer, as Python is, cannot load a libnpugraph with it")
if importlib.util.find_spec("numpy") is None:
    skip_all("Python's package needs numpy")
os.environ["NPUGRAPH_LIBRARY_PATH"] = str(BUILD / ".libs")
sys.path.insert(0, str(SOURCE / "python" / "src"))
import npugraph  # noqa: E402, F401
import npugraph.aio  # noqa: E402, F401
