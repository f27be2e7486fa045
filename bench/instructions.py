#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Count the instructions that a daemon takes for one replay and for one token, where clocks are too noisy to tell.

  bench/instructions.py BUILD [OTHER_BUILD]     build directories, such as build/release

valgrind (Debian: valgrind) counts the instructions of all threads of the daemon, gRPC included. Each scenario runs twice with
different numbers of replays; the difference, divided by theirs, leaves out the start and the end. Counts of one build differ by
about 1 % between runs, since threads still wait for one another. With two builds, the last column is BUILD / OTHER_BUILD.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODEL = os.path.join(TOP, "examples", "model")
START_SECONDS = 120

ONE_NODE = """npugraph 1
graph "neg" {
  input %x : f32[16]
  %y = aten.neg(%x)
  return "y" = %y
}
"""
CHAIN = "npugraph 1\ngraph \"chain\" {\n  input %x0 : f32[16]\n" + "".join(
    f"  %x{i + 1} = aten.sin(%x{i})\n" for i in range(64)) + "  return \"y\" = %x64\n}\n"


def replay(text, n):
    def run(ctl, folder):
        path = os.path.join(folder, "graph.txt")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        ctl("replay", path, "--input", ("x0" if "%x0 :" in text else "x") + "=ones", "--repeat", str(n))
    return run


def generate(n):
    def run(ctl, _):
        ctl("load", MODEL, "--name", "m")
        ctl("generate", "m", "--tokenizer", MODEL, "--prompt", "In the beginning", "--tokens", str(n))
    return run


# Name, scenario with a number of replays, the two numbers.
SCENARIOS = [
    ("replay of one node", lambda n: replay(ONE_NODE, n), 1000, 4000),
    ("replay of 64 nodes", lambda n: replay(CHAIN, n), 1000, 4000),
    ("token, generated", generate, 20, 100),
]


def count(build, scenario):
    """Instructions of a daemon from its start to its end, with the scenario between."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/s"
        log_path = os.path.join(folder, "log")
        with open(log_path, "wb") as log:
            daemon = subprocess.Popen(["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out",
                                       os.path.join(build, "npugraphd"), "--listen", address, "--models-dir", MODEL, "--threads=1", "--inline-limit=1s"], stdout=log, stderr=log)

        def ctl(*args):
            subprocess.run([os.path.join(build, "npugraphctl"), "--quiet", "--address", address, *args], check=True,
                           stdout=subprocess.DEVNULL)

        try:
            end = time.monotonic() + START_SECONDS
            while not os.path.exists(f"{folder}/s") and daemon.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
            scenario(ctl, folder)
            ctl("drain")
            daemon.wait(START_SECONDS)
        finally:
            daemon.kill()
            daemon.wait()
        with open(log_path, encoding="utf-8", errors="replace") as log:
            text = log.read()
        counts = re.findall(r"I\s+refs:\s+([\d,]+)", text)
        if not counts:
            sys.exit(f"instructions.py: valgrind counted nothing; the daemon's log ends: {text[-500:]}")
        return int(counts[-1].replace(",", ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", metavar="BUILD", help="build directory; a second one to compare with")
    args = parser.parse_args()
    if len(args.builds) > 2:
        parser.error("give one or two build directories")
    if not shutil.which("valgrind"):
        sys.exit("instructions.py: valgrind is not installed (Debian: apt-get install valgrind)")
    print(f"{'instructions of the daemon':28}" + "".join(f"{b[-24:]:>26}" for b in args.builds) +
          ("     ratio" if len(args.builds) == 2 else ""))
    for name, scenario, few, many in SCENARIOS:
        each = []
        for build in args.builds:
            each.append((count(build, scenario(many)) - count(build, scenario(few))) / (many - few))
        print(f"{name:28}" + "".join(f"{n:26,.0f}" for n in each) + (f"{each[0] / each[1]:10.3f}" if len(each) == 2 else ""),
              flush=True)


if __name__ == "__main__":
    main()
