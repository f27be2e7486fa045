#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The example workers: each against a live daemon with the bundled model, and both at once."""
import re

from harness import *

MODEL = SOURCE / "examples" / "model"
WORKER = BUILD / "examples" / "worker"

if CTL is None or not WORKER.exists() or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl, examples/worker or the bundled model is missing")

# The text has quotes, a line break and letters beyond ASCII: both must make the same tokens of it.
PROMPT = "And he said unto them, \"Don't\"\n  go, Esaü 12"


def command(daemon, worker, seed, prompt=PROMPT, tokens=60):
    program = {"c": [str(WORKER)], "python": [sys.executable, str(SOURCE / "examples" / "worker.py"), "--npugraphctl", CTL]}[worker]
    return [*program, "--address", daemon.address, "--model", "m", "--tokenizer", str(MODEL / "tokenizer.json"), "--prompt", prompt,
            "--seed", str(seed), "--tokens", str(tokens)]


def begin(*args, **kwargs):
    return subprocess.Popen(command(*args, **kwargs), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, "PYTHONPATH": str(SCRATCH / "gen")})


def end(process):
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err.decode()
    last = re.search(r"\[[\w.]+: (\d+) tokens, first after [\d.]+ ms, then \d+ tokens/s\]", err.decode())
    assert last, err.decode()
    return out.decode(), int(last[1])


def text_of(*args, **kwargs):
    return end(begin(*args, **kwargs))


@test("the C and the Python worker write the same text from the same seed, and another from another")
def alone(daemon):
    subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", str(MODEL), "--name", "m"], check=True, capture_output=True)
    texts = {(worker, seed): text_of(daemon, worker, seed) for worker in ("c", "python") for seed in (1, 2)}
    for seed in (1, 2):
        text, tokens = texts["c", seed]
        assert texts["python", seed] == (text, tokens), texts
        assert text.startswith(PROMPT) and tokens == 60 and len(text) > len(PROMPT) + 60, text
    assert texts["c", 1] != texts["c", 2]


@test("the speculating worker writes that text too, token by token, in fewer steps")
def speculating(daemon):
    repeated = "And God said, Let there be light. And God said, Let there be"
    steps = 0
    for prompt, seed, draft in ((PROMPT, 1, 4), (repeated, 2, 6), (repeated, 3, 0)):
        plain, tokens = end(begin(daemon, "python", seed, prompt, 80))
        args = command(daemon, "python", seed, prompt, 80)
        args[1] = str(SOURCE / "examples" / "speculate.py")
        out = subprocess.run([*args, "--draft", str(draft)], capture_output=True, timeout=PATIENCE,
                             env={**os.environ, "PYTHONPATH": str(SCRATCH / "gen")})
        assert out.returncode == 0 and out.stdout.decode() == plain, out
        said, took = map(int, re.search(r"\[speculate.py: (\d+) tokens in (\d+) steps\]", out.stderr.decode()).groups())
        assert said == tokens and took <= tokens - 1 and (draft or took == tokens - 1)
        steps += tokens - 1 - took
    assert steps > 0, "no draft was right"


@test("side by side, C and Python, each writes what it writes alone; everything is given back")
def together(daemon):
    alone = {key: text_of(daemon, *key) for key in (("c", 3), ("python", 4))}
    for _ in range(3):
        running = [(key, begin(daemon, *key)) for key in [*alone, *alone]]
        more = [begin(daemon, "c", seed, tokens=200) for seed in (5, 6)]
        for key, process in running:
            assert end(process) == alone[key], key
        for process in more:
            end(process)
    left = lambda stats: (stats["sequences"]["open"], stats["kv"]["blocks_used"], stats["sessions"]["open"])
    until("everything is given back", lambda: left(daemon.stats()) == (0, 0, 0))  # the C worker waits for that, but not for long
    stats = daemon.stats()
    assert sorted(g["captures_total"] for g in stats["graphs"]) == [1, 1]


@test("a model that is not there, and a daemon that is not: one line that says so, and a status")
def mistakes(daemon):
    for worker in ("c", "python"):
        line = command(daemon, worker, 1)
        line[line.index("m")] = "nothing"
        out = subprocess.run(line, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(SCRATCH / "gen")}, timeout=PATIENCE)
        assert out.returncode != 0 and "nothing" in out.stderr and "MODEL_NOT_FOUND" in out.stderr, out.stderr
    line = command(daemon, "c", 1)
    line[line.index(daemon.address)] = f"unix:{SCRATCH}/nobody"
    out = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)
    assert out.returncode != 0 and f"{SCRATCH}/nobody" in out.stderr, out.stderr


@test("both stay below a hundred lines")
def short():
    for name in ("worker.c", "worker.py"):
        assert len((SOURCE / "examples" / name).read_text().splitlines()) < 100, name


if __name__ == "__main__":
    main(f"--models-dir={SOURCE / 'examples'}")
