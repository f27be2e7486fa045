#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds llama.cpp's backend for NPUs (ggml-cann) against the simulator of CANN, and runs it.

    tests/ascend/ggml_cann.py BUILD_DIR                what the table OPERATORS says, and the models
    tests/ascend/ggml_cann.py BUILD_DIR --op MUL_MAT   one operator of llama.cpp's test-backend-ops
    tests/ascend/ggml_cann.py BUILD_DIR --models       only the models

A program that others wrote for NPUs and ran on them, unchanged: where the simulator refuses or computes otherwise what it
does, the simulator is wrong until a source says otherwise.

  1. llama.cpp's own test-backend-ops runs each operator that a Qwen3 and a Llama need, on the simulator and on its CPU
     backend, and compares: with graphs that are captured and replayed, and without.
  2. Checkpoints of random weights, in the shapes of Qwen3 and Llama, are continued greedily by both backends; the tokens
     must be equal.

Needs a build (make devices/ascend/sim/libopapi.la), cmake, ninja and g++. The sources are those of the package named by
LLAMA, which pip fetches into BUILD_DIR/ggml-cann once; without them and without a network, it fails. The first run
compiles for minutes; all takes about 20. What the programs print is in BUILD_DIR/ggml-cann/operators.log and models.log.
CANN's headers are declared from our tables (ggml_cann_acl.h). Operators that ggml-cann calls and the
simulator lacks are linked as functions that fail, and are named at the end.
"""
import argparse
import os
import re
import subprocess
import sys
import tarfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(TOP, "tests", "ascend")
LLAMA = "llama-cpp-python==0.3.36"
GGUF = ["gguf==0.19.0", "numpy==2.4.6"]
LIMIT_S = 1800

# Operators of ggml that a Qwen3 and a Llama need; a pattern of the cases that are run ("": all), one of those that are left
# out, and why. ggml-cann's tables of sines, which a process keeps, grow with the number of positions but not with the
# number of dimensions, and are written behind their end by a later case of more dimensions: such cases get a process each.
SHAPES = r"hsk=(64|128),.*kv=(113|512),nb=(1|3),.*sinks=0,max_bias=0[.]0.*type_K=f16,type_V=f16"
OPERATORS = [
    ("MUL_MAT", "", "", ""),
    ("GET_ROWS", "", "type=q8_0.*vs0=1",
     "parts of a q8_0 tensor: ggml-cann looks for the scales behind the part, not behind the tensor"),
    ("SET_ROWS", "", "type_src=f16,type_dst=f32", "f16 into f32: ggml_cann_set_rows reads the source as if it were f32"),
    ("ROPE", "", r"512,1\],n_dims=(128|256)", "512 positions with more dimensions: they follow"),
    ("ROPE", r"512,1\],n_dims=128", "", ""),
    ("ROPE", r"512,1\],n_dims=256", "", ""),
    ("RMS_NORM", "", "", ""),
    ("SOFT_MAX", "", "", ""),
    ("FLASH_ATTN_EXT", SHAPES, "", "other heads, ALiBi, long contexts: not in these models, and hours on the simulator"),
    ("SWIGLU", "", "", ""),
    ("SILU", "", "", ""),
    ("ADD", "", "", ""),
    ("MUL", "", "", ""),
    ("SCALE", "", "", ""),
    ("CPY", "", "", ""),
    ("CONT", "", "", ""),
    ("DUP", "", "", ""),
]

CMAKE = r"""
cmake_minimum_required(VERSION 3.18)
project(ggml_cann_on_the_simulator C CXX)
add_subdirectory(${LLAMA} llama)
add_executable(test-backend-ops ${LLAMA}/tests/test-backend-ops.cpp)
target_link_libraries(test-backend-ops PRIVATE ggml)
add_executable(greedy ${HERE}/ggml_cann_greedy.cpp)
target_link_libraries(greedy PRIVATE llama)
"""

MISSING = r"""
#include <stdio.h>
#define MISSING(name) \
    int name##GetWorkspaceSize(void); int name(void); \
    int name##GetWorkspaceSize(void) { fprintf(stderr, "the simulator has no %s\n", #name); return 561003; } \
    int name(void) { return 561003; }
"""


def say(text):
    print(text, flush=True)


def call(command, log, **more):
    with open(log, "a", encoding="utf-8") as f:
        f.write(f"$ {' '.join(command)}\n")
        f.flush()
        if subprocess.run(command, stdout=f, stderr=subprocess.STDOUT, check=False, **more).returncode:
            with open(log, encoding="utf-8", errors="replace") as text:
                sys.exit(f"{command[0]} failed; {log} ends with:\n{''.join(text.readlines()[-25:])}")


# ---- building ------------------------------------------------------------------------------------------------------------

def fetch(work, log):
    """The folder of llama.cpp's sources."""
    name = LLAMA.replace("-", "_").replace("==", "-")
    source = os.path.join(work, name)
    if not os.path.exists(source):
        say(f"fetching {LLAMA}")
        call([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", work, LLAMA], log)
        with tarfile.open(f"{source}.tar.gz") as archive:
            archive.extractall(os.path.join(work, "new"), filter="data")
        os.rename(os.path.join(work, "new", name), source)
    return os.path.join(source, "vendor", "llama.cpp")


def rows(path):
    with open(os.path.join(TOP, "devices/ascend", path), encoding="utf-8") as f:
        return set(re.findall(r"^NGD_ACLNN\((\w+)", f.read(), re.M))


def write_if_new(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.exists(path) or open(path, encoding="utf-8").read() != text:
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)


def make_toolkit(work, llama, libraries, log):
    """A folder like an installed CANN's: headers, and the simulator's libraries. Returns the operators that these lack."""
    toolkit = os.path.join(work, "toolkit")
    source = ""
    for name in sorted(os.listdir(os.path.join(llama, "ggml/src/ggml-cann"))):
        with open(os.path.join(llama, "ggml/src/ggml-cann", name), encoding="utf-8") as f:
            source += f.read()
    source = re.sub(r"/\*.*?\*/|//[^\n]*", "", source, flags=re.S)
    calls = set(re.findall(r"GGML_CANN_CALL_(?:ACLNN_OP\(\s*\w+,\s*|OP_UNARY(?:_GATED)?\(\s*)(\w+)", source))
    calls |= set(re.findall(r"\baclnn(\w+)GetWorkspaceSize\(", source))
    calls -= {"OP_NAME"}  # of the macros themselves
    missing = sorted(calls - rows("aclnn_symbols.def") - rows("sim/sim_aclnn_symbols.def"))
    declared = "".join(f"int aclnn{m}GetWorkspaceSize(...); int aclnn{m}(...);\n" for m in missing)
    header = f'#pragma once\n#include "{HERE}/ggml_cann_acl.h"\nextern "C" {{\n{declared}}}\n'
    for name in sorted(set(re.findall(r"#include <(acl(?:nn|nnop)?/\w+\.h)>", source))):
        write_if_new(os.path.join(toolkit, "include", name), header)
    os.makedirs(os.path.join(toolkit, "lib64"), exist_ok=True)
    for name in ("libascendcl.so", "libnnopbase.so", "libopapi.so"):
        path = os.path.join(toolkit, "lib64", name)
        if not os.path.lexists(path) or os.readlink(path) != os.path.join(libraries, name):
            if os.path.lexists(path):
                os.unlink(path)
            os.symlink(os.path.join(libraries, name), path)
    stubs = os.path.join(work, "missing.c")
    write_if_new(stubs, MISSING + "".join(f"MISSING(aclnn{m})\n" for m in missing))
    call(["cc", "-shared", "-fPIC", "-o", os.path.join(toolkit, "lib64", "libacl_op_compiler.so"), stubs], log)
    return sorted(calls), missing


def build(work, llama, log):
    """The programs, in the folder that is returned."""
    write_if_new(os.path.join(work, "cmake", "CMakeLists.txt"), CMAKE)
    out = os.path.join(work, "build")
    cache = [f"-DCMAKE_{c}_COMPILER_LAUNCHER=ccache" for c in ("C", "CXX") if not subprocess.run(
        ["sh", "-c", "command -v ccache"], stdout=subprocess.DEVNULL, check=False).returncode]
    say("building ggml-cann, llama and test-backend-ops (log: " + log + ")")
    call(["cmake", "-G", "Ninja", "-S", os.path.join(work, "cmake"), "-B", out, f"-DLLAMA={llama}", f"-DHERE={HERE}",
          "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1 -w", "-DCMAKE_C_FLAGS=-O2 -w", "-DGGML_NATIVE=OFF",
          "-DGGML_OPENMP=OFF", "-DGGML_CANN=ON", "-DUSE_ACL_GRAPH=ON", "-DSOC_TYPE=Ascend910B3",
          f"-DCANN_INSTALL_DIR={work}/toolkit",
          *(f"-DLLAMA_{x}=OFF" for x in ("CURL", "OPENSSL", "BUILD_COMMON", "BUILD_TESTS", "BUILD_TOOLS", "BUILD_EXAMPLES",
                                         "BUILD_SERVER")),
          *cache], log)
    call(["ninja", "-C", out, "-j", str(os.cpu_count()), "test-backend-ops", "greedy"], log)
    found = {n: os.path.join(d, n) for d, _, names in os.walk(out) for n in names if n in ("test-backend-ops", "greedy")}
    return found


def environment(work, libraries, graphs, more=()):
    """GGML_CANN_ACL_GRAPH is ggml-cann's own switch, lenient is the simulator's (docs/devices/ascend.md)."""
    return dict(os.environ, LD_LIBRARY_PATH=f"{libraries}:{work}/toolkit/lib64", NGD_ACLSIM_LENIENT="1",
                GGML_NO_BACKTRACE="1", GGML_CANN_ACL_GRAPH="on" if graphs else "off", **dict(more))


# ---- operators -----------------------------------------------------------------------------------------------------------

def run_operator(program, env, op, pattern, log):
    """Cases that passed, the names of those that failed, how many ggml-cann does not take, and how the run ended."""
    command = [program, "test", "-b", "CANN0", "-o", op, *(["-p", pattern] if pattern else [])]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, timeout=LIMIT_S,
                              check=False)
        text, ended = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        text, ended = late.stdout or b"", f"no end in {LIMIT_S} s"
    text = re.sub(r"\x1b\[[0-9;]*m", "", text.decode(errors="replace"))
    with open(log, "a", encoding="utf-8") as f:
        f.write(f"$ {' '.join(command)}\n{text}\n")
    cases = re.findall(r"([A-Z][A-Z0-9_]*\([^()\n]*\)): *(OK|FAIL|not supported)", text)
    passed = sum(result == "OK" for _, result in cases)
    failed = [name for name, result in cases if result == "FAIL"]
    refused = len(cases) - passed - len(failed)
    if ended not in (0, 1) or (ended == 1 and not failed):
        said = re.findall(r"CANN error.*|the simulator has no.*", text) or text.splitlines()[-1:]
        failed.append(f"after {cases[-1][0] if cases else 'nothing'}: ended with {ended}: {said[0]}")
    return passed, failed, refused


def passes_again(program, env, op, name, log):
    """A case of other random numbers each time: it passes three times. A sum near 0 has few digits left in f16."""
    match = re.fullmatch(r"[A-Z0-9_]+\((.*)\)", name)
    pattern = match and "^" + re.sub(r"([][.*+?(){}|^$\\])", r"\\\1", match[1]) + "$"
    return bool(pattern) and all(run_operator(program, env, op, pattern, log)[:2] == (1, []) for _ in range(3))


def run_operators(program, work, libraries, wanted, log):
    total = bad = 0
    say(f"{'operator':24} {'graphs':7} {'passed':>7} {'failed':>7} {'not taken':>10}  left out")
    for op, only, leave_out, why in OPERATORS:
        if wanted and op not in wanted:
            continue
        pattern = f"^(?=.*{only}){f'(?!.*({leave_out}))' if leave_out else ''}.*$" if only or leave_out else ""
        for graphs in (True, False):
            env = environment(work, libraries, graphs)
            passed, failed, refused = run_operator(program, env, op, pattern, log)
            chance = [name for name in failed if passes_again(program, env, op, name, log)]
            failed = [name for name in failed if name not in chance]
            passed += len(chance)
            say(f"{op:24} {'yes' if graphs else 'no':7} {passed:7} {len(failed):7} {refused:10}  {why}")
            for name in failed:
                say(f"    {name[:300]}")
            for name in chance:
                say(f"    by the numbers that it drew, failed once and passed three times: {name[:300]}")
            total += passed
            bad += len(failed) + (passed == 0)
    return total, bad


# ---- models --------------------------------------------------------------------------------------------------------------

# Name, architecture of llama.cpp, dtype of the matrices, settings. CANN lays weights out in f16, bf16 and i8 only, and
# ggml-cann asks it to lay out those in f32 too unless it is told not to. No quantised weights: with these the CPU backend
# quantises activations too, and its tokens are others.
MODELS = [("qwen3-f16", "qwen3", "F16", {}), ("qwen3-f32", "qwen3", "F32", {"GGML_CANN_WEIGHT_NZ": "off"}),
          ("llama-f16", "llama", "F16", {})]

# Runs in a Python that has gguf: random weights in the shape of a small model, without a vocabulary of words.
MAKE_MODEL = r"""
import sys
import gguf
import numpy

path, arch, dtype = sys.argv[1:]
VOCAB, EMBD, LAYERS, HEADS, KV, HEAD, FF = 320, 256, 3, 8, 2, 64, 512
rng = numpy.random.default_rng(7)
w = gguf.GGUFWriter(path, arch)
w.add_context_length(512); w.add_embedding_length(EMBD); w.add_block_count(LAYERS); w.add_feed_forward_length(FF)
w.add_head_count(HEADS); w.add_head_count_kv(KV); w.add_key_length(HEAD); w.add_value_length(HEAD)
w.add_rope_dimension_count(HEAD); w.add_rope_freq_base(1e6); w.add_layer_norm_rms_eps(1e-6); w.add_vocab_size(VOCAB)
w.add_tokenizer_model("no_vocab")

def matrix(name, rows, columns, scale=1.0):
    value = (rng.standard_normal((rows, columns)) * scale / columns ** 0.5).astype(numpy.float32)
    w.add_tensor(name, value.astype(numpy.float16) if dtype == "F16" else value)

def norm(name, n):
    w.add_tensor(name, (1 + rng.standard_normal(n) / 8).astype(numpy.float32))

matrix("token_embd.weight", VOCAB, EMBD, EMBD ** 0.5)
matrix("output.weight", VOCAB, EMBD, 4)
norm("output_norm.weight", EMBD)
for i in range(LAYERS):
    norm(f"blk.{i}.attn_norm.weight", EMBD)
    norm(f"blk.{i}.ffn_norm.weight", EMBD)
    matrix(f"blk.{i}.attn_q.weight", HEADS * HEAD, EMBD)
    matrix(f"blk.{i}.attn_k.weight", KV * HEAD, EMBD)
    matrix(f"blk.{i}.attn_v.weight", KV * HEAD, EMBD)
    matrix(f"blk.{i}.attn_output.weight", EMBD, HEADS * HEAD)
    matrix(f"blk.{i}.ffn_gate.weight", FF, EMBD)
    matrix(f"blk.{i}.ffn_up.weight", FF, EMBD)
    matrix(f"blk.{i}.ffn_down.weight", EMBD, FF)
    if arch == "qwen3":
        norm(f"blk.{i}.attn_q_norm.weight", HEAD)
        norm(f"blk.{i}.attn_k_norm.weight", HEAD)
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
"""
PROMPT = [str(t) for t in (1, 17, 250, 4, 99, 31, 7, 200, 63, 5, 311)]
NEW_TOKENS = 24


def make_model(work, name, arch, dtype, log):
    path = os.path.join(work, f"{name}.gguf")
    if not os.path.exists(path):
        python = os.path.join(work, "venv", "bin", "python")
        if not os.path.exists(python):
            say(f"installing {' '.join(GGUF)}")
            call([sys.executable, "-m", "venv", os.path.join(work, "venv")], log)
            call([python, "-m", "pip", "install", "-q", *GGUF], log)
        call([python, "-c", MAKE_MODEL, path + ".new", arch, dtype], log)
        os.rename(path + ".new", path)
    return path


def continue_prompt(program, env, model, device, log):
    """The tokens or what went wrong, and how many operators and replays the simulator was asked for."""
    try:
        done = subprocess.run([program, model, device, str(NEW_TOKENS), *PROMPT], capture_output=True, text=True,
                              errors="replace", env=env, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"no end in {LIMIT_S} s", 0, 0
    with open(log, "a", encoding="utf-8") as f:
        f.write(f"$ {program} {model} {device}\n{done.stderr}\n{done.stdout}\n")
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        return f"ended with {done.returncode}: {said[0] if said else ''}", 0, 0
    tokens, counts = done.stdout.splitlines()
    return tokens, *(int(n) for n in counts.split())


def run_models(program, work, libraries, log):
    total = bad = 0
    say(f"\n{'model':14} {'attention':10} {'graphs':7} {'operators':>10} {'replays':>8}  tokens")
    for name, arch, dtype, settings in MODELS:
        model = make_model(work, name, arch, dtype, log)
        for flash in (False, True):
            more = dict(settings, NGD_ACLSIM_LOG="1", **({"GREEDY_FLASH": "1"} if flash else {}))
            wanted, _, _ = continue_prompt(program, environment(work, libraries, False, more), model, "CPU", log)
            for graphs in (True, False):
                env = environment(work, libraries, graphs, more)
                got, calls, replays = continue_prompt(program, env, model, "CANN0", log)
                # Each token after the prompt is one replay; each layer of a prompt is more than 20 operators.
                used = calls > 60 and (replays >= NEW_TOKENS - 1 if graphs else replays == 0)
                right = got == wanted and len(got.split()) == NEW_TOKENS and used
                say(f"{name:14} {'flash' if flash else 'plain':10} {'yes' if graphs else 'no':7} {calls:10} {replays:8}  "
                    f"{'equal: ' + got if right else 'CPU: ' + wanted + chr(10) + ' ' * 54 + 'CANN: ' + got}")
                total += right
                bad += not right
    return total, bad


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build_dir", help="of this project, with the simulator in it")
    parser.add_argument("--op", action="append", help="only this operator (may be repeated); no models")
    parser.add_argument("--models", action="store_true", help="only the models")
    args = parser.parse_args()
    libraries = os.path.join(os.path.abspath(args.build_dir), "devices/ascend/sim/.libs")
    if not os.path.exists(os.path.join(libraries, "libopapi.so")):
        sys.exit(f"no simulator in {libraries}: build it first (make devices/ascend/sim/libopapi.la)")
    work = os.path.join(os.path.abspath(args.build_dir), "ggml-cann")
    os.makedirs(work, exist_ok=True)
    log = os.path.join(work, "log")
    llama = fetch(work, log)
    calls, missing = make_toolkit(work, llama, libraries, log)
    programs = build(work, llama, log)
    total = bad = 0
    if not args.models:
        total, bad = run_operators(programs["test-backend-ops"], work, libraries, args.op,
                                   os.path.join(work, "operators.log"))
    if not args.op:
        right, wrong = run_models(programs["greedy"], work, libraries, os.path.join(work, "models.log"))
        total += right
        bad += wrong
    say(f"\nggml-cann calls {len(calls)} operators; the simulator lacks {len(missing)}: {' '.join(missing)}")
    say(f"{total} passed, {bad} failed")
    sys.exit(1 if bad or not total else 0)


main()
