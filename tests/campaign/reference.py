#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each node of random graphs, worked out again with numpy.

  tests/campaign/reference.py --seconds N --seed S [--runs N]

tests/ops/fuzz_run draws graphs and runs them, on each instruction set, under all options with the same bits, and prints what each
value was (--emit). Here each node's results are computed from its operands' values in f64, and compared: equal where the operator is
exact, else within the rounding of the result's dtype and of the sums that it takes. What a node got is what the daemon's kernels made, so
errors do not add up. Operators without a definition here (`DEFINED`) are counted and passed over; tests/golden compares all of them
with PyTorch. Needs numpy.
"""
import collections
import json
import math
import os
import pathlib
import subprocess
import time
import warnings

import part

try:
    import numpy as np
except ImportError:
    np = None

warnings.simplefilter("ignore")  # of means of nothing, which are NaN
BUILD = pathlib.Path(os.environ.get("top_builddir", "build/check"))
CHUNK = 2000  # graphs of one call of fuzz_run
INTS = {"i8": "int8", "u8": "uint8", "i16": "int16", "i32": "int32", "i64": "int64", "bool": "bool"}
BITS = {"f32": 23, "f16": 10, "bf16": 7}  # of the fraction
LARGEST = {"f32": 3.4028235e38, "f16": 65504.0, "bf16": 3.3895314e38}
DEFINED = {}


class Pass(Exception):
    """Not defined here with these attributes or values."""


def define(*names):
    def register(fn):
        for name in names:
            DEFINED[name] = fn
        return fn
    return register


# ---- values ---------------------------------------------------------------------------------------------------------------

class Value:
    def __init__(self, entry):
        self.dtype, self.dims, self.state = entry["dtype"], tuple(entry["dims"]), entry["state"]
        raw = bytes.fromhex(entry["data"])
        if self.dtype == "f32":
            self.x = np.frombuffer(raw, "<f4").astype("f8")
        elif self.dtype == "f16":
            self.x = np.frombuffer(raw, "<f2").astype("f8")
        elif self.dtype == "bf16":
            self.x = (np.frombuffer(raw, "<u2").astype("u4") << 16).view("f4").astype("f8")
        elif self.dtype == "bool":  # any byte but 0 is true; numpy's own operators would compare the bytes
            self.x = np.frombuffer(raw, "u1") != 0
        elif self.dtype in INTS:
            self.x = np.frombuffer(raw, INTS[self.dtype])
        else:
            raise Pass(self.dtype)
        self.x = self.x.reshape(self.dims)

    @property
    def is_float(self):
        return self.dtype in BITS


def rounded(x, dtype):
    """As a value of that dtype, in f64."""
    x = np.asarray(x, "f8")
    if dtype == "f32":
        return x.astype("f4").astype("f8")
    if dtype == "f16":
        return x.astype("f2").astype("f8")
    bits = x.astype("f4").view("u4")
    up = ((bits >> 16) & 1) + 0x7fff
    out = ((bits + up) & 0xffff0000).astype("u4").view("f4").astype("f8")
    return np.where(np.isnan(x), np.nan, out)


# ---- operators: fn(node, operands as arrays, operands as Values, attrs) -> result, or (result, scale of its terms) ---------------

UNARY = {
    "aten.neg": np.negative, "aten.abs": np.abs, "aten.exp": np.exp, "aten.log": np.log, "aten.sqrt": np.sqrt,
    "aten.rsqrt": lambda x: 1 / np.sqrt(x), "aten.reciprocal": lambda x: 1 / x, "aten.sin": np.sin, "aten.cos": np.cos, "aten.tanh": np.tanh,
    "aten.sigmoid": lambda x: 1 / (1 + np.exp(-x)), "aten.silu": lambda x: x / (1 + np.exp(-x)), "aten.floor": np.floor,
    "aten.ceil": np.ceil, "aten.round": np.round, "aten.trunc": np.trunc,
    "aten.relu": lambda x: np.maximum(x, x.dtype.type(0)), "aten.isnan": lambda x: np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool),
    "aten.isinf": lambda x: np.isinf(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool), "aten.logical_not": lambda x: x == 0,
    "aten.bitwise_not": np.invert, "aten.clone": lambda x: x, "aten.lift_fresh_copy": lambda x: x, "aten.alias": lambda x: x,
    "aten.detach": lambda x: x, "aten.t": lambda x: x.T, "aten.zeros_like": np.zeros_like, "aten.ones_like": np.ones_like,
    "aten.sign": lambda x: np.where(np.isnan(x), 0, np.sign(x)) if x.dtype.kind == "f" else np.sign(x),
    "aten.erf": np.vectorize(math.erf, otypes=["f8"]), "aten.erfc": np.vectorize(math.erfc, otypes=["f8"]),
}
BINARY = {
    "aten.mul.Tensor": np.multiply, "aten.maximum": np.maximum, "aten.minimum": np.minimum, "aten.div.Tensor": np.divide,
    "aten.pow.Tensor_Tensor": np.power, "aten.eq.Tensor": np.equal, "aten.ne.Tensor": np.not_equal, "aten.lt.Tensor": np.less,
    "aten.le.Tensor": np.less_equal, "aten.gt.Tensor": np.greater, "aten.ge.Tensor": np.greater_equal,
    "aten.logical_and": np.logical_and, "aten.logical_or": np.logical_or, "aten.logical_xor": np.logical_xor,
    "aten.bitwise_and.Tensor": np.bitwise_and, "aten.bitwise_or.Tensor": np.bitwise_or, "aten.bitwise_xor.Tensor": np.bitwise_xor,
}
for _name, _fn in UNARY.items():
    DEFINED[_name] = lambda n, x, v, a, fn=_fn: fn(x[0])
for _name, _fn in BINARY.items():
    DEFINED[_name] = lambda n, x, v, a, fn=_fn: fn(x[0], x[1])


def floats_only(v):
    if not all(o.is_float for o in v if o):
        raise Pass("integers")


@define("aten.add.Tensor", "aten.sub.Tensor")
def add(n, x, v, a):
    floats_only(v)
    b = a["alpha"] * x[1] * (-1 if "sub" in n else 1)
    return x[0] + b, np.abs(x[0]) + np.abs(b)


@define("aten.add.Scalar", "aten.sub.Scalar", "aten.rsub.Scalar")
def add_scalar(n, x, v, a):
    floats_only(v)
    if "rsub" in n:
        return a["other"] - a["alpha"] * x[0], abs(a["other"]) + np.abs(a["alpha"] * x[0])
    b = a["alpha"] * a["other"] * (-1 if "sub" in n else 1)
    return x[0] + b, np.abs(x[0]) + abs(b)


@define("aten.mul.Scalar", "aten.div.Scalar", "aten.pow.Tensor_Scalar")
def by_scalar(n, x, v, a):
    floats_only(v)
    return x[0] * a["other"] if "mul" in n else x[0] / a["other"] if "div" in n else np.power(x[0], a["exponent"])


@define("aten.leaky_relu")
def leaky_relu(n, x, v, a):
    return np.where(x[0] > 0, x[0], a["negative_slope"] * x[0])


@define("aten.clamp")
def clamp(n, x, v, a):
    floats_only(v)
    return np.where(np.isnan(x[0]), x[0], np.minimum(np.maximum(x[0], a["min"]), a["max"]))


@define("aten.gelu")
def gelu(n, x, v, a):
    if a["approximate"] == "tanh":
        return 0.5 * x[0] * (1 + np.tanh(math.sqrt(2 / math.pi) * (x[0] + 0.044715 * x[0] ** 3))), np.abs(x[0])
    return 0.5 * x[0] * (1 + UNARY["aten.erf"](x[0] / math.sqrt(2))), np.abs(x[0])


@define("aten.where.self")
def where(n, x, v, a):
    return np.where(x[0], x[1], x[2])


@define("aten.masked_fill.Scalar")
def masked_fill(n, x, v, a):
    floats_only(v[:1])
    return np.where(x[1], a["value"], x[0])


@define("aten.mm", "aten.bmm")
def mm(n, x, v, a):
    return np.matmul(x[0], x[1]), np.matmul(np.abs(x[0]), np.abs(x[1]))


@define("aten.linear")
def linear(n, x, v, a):
    bias = x[2] if len(x) > 2 and x[2] is not None else 0.0
    return np.matmul(x[0], x[1].T) + bias, np.matmul(np.abs(x[0]), np.abs(x[1]).T) + np.abs(bias)


@define("aten.addmm")
def addmm(n, x, v, a):
    bias = a["beta"] * x[0] if a["beta"] else 0.0  # PyTorch: with a beta of 0 the bias is ignored, and so is a NaN in it
    return (bias + a["alpha"] * np.matmul(x[1], x[2]),
            np.abs(bias) + abs(a["alpha"]) * np.matmul(np.abs(x[1]), np.abs(x[2])))


def stable(x, axis):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e, np.sum(e, axis=axis, keepdims=True)


@define("aten._softmax", "aten.softmax.int", "aten._log_softmax", "aten.log_softmax.int")
def softmax(n, x, v, a):
    if not x[0].shape or 0 in x[0].shape:
        raise Pass("empty")
    e, total = stable(x[0], a["dim"])
    if "log" not in n:
        return e / total, 1 + np.abs(x[0]) * 0.1
    low = x[0] - np.max(x[0], axis=a["dim"], keepdims=True)
    return low - np.log(total), 1 + np.abs(x[0])


def axes(a, rank):
    dims = a.get("dim", [])
    dims = [dims] if isinstance(dims, int) else dims
    return tuple(d % rank if rank else 0 for d in dims) if dims and rank else None


@define("aten.sum.dim_IntList", "aten.mean.dim", "aten.sum", "aten.mean")
def total(n, x, v, a):
    if a.get("dtype"):
        raise Pass("dtype")
    dims, keep = axes(a, x[0].ndim), a.get("keepdim", False)
    if not v[0].is_float:
        return np.sum(x[0].astype("i8"), axis=dims, keepdims=keep)
    fn = np.mean if "mean" in n else np.sum
    return fn(x[0], axis=dims, keepdims=keep), fn(np.abs(x[0]), axis=dims, keepdims=keep)


@define("aten.amax", "aten.amin", "aten.max", "aten.min")
def extreme(n, x, v, a):
    if 0 in x[0].shape:
        raise Pass("empty")
    return (np.max if "max" in n else np.min)(x[0], axis=axes(a, x[0].ndim), keepdims=a.get("keepdim", False))


@define("aten.any", "aten.all", "aten.any.dim", "aten.all.dim", "aten.any.dims", "aten.all.dims")
def truth(n, x, v, a):
    return (np.any if "any" in n else np.all)(x[0] != 0, axis=axes(a, x[0].ndim), keepdims=a.get("keepdim", False))


@define("aten.argmax", "aten.argmin")
def arg_extreme(n, x, v, a):
    if not isinstance(a.get("dim"), int) or not x[0].ndim or 0 in x[0].shape or abs(a["dim"]) > x[0].ndim:
        raise Pass("all dimensions")
    return (np.argmax if "max" in n else np.argmin)(x[0], axis=a["dim"], keepdims=a.get("keepdim", False))


@define("aten.cumsum")
def cumsum(n, x, v, a):
    if a.get("dtype") or not v[0].is_float or not x[0].ndim:
        raise Pass("dtype")
    return np.cumsum(x[0], axis=a["dim"]), np.cumsum(np.abs(x[0]), axis=a["dim"])


@define("aten.prod.dim_int")
def product(n, x, v, a):
    if a.get("dtype") or not v[0].is_float or not x[0].ndim:
        raise Pass("dtype")
    got = np.prod(x[0], axis=a["dim"], keepdims=a.get("keepdim", False))
    return got, np.abs(got) * (1 + x[0].shape[a["dim"]])


@define("aten.var.correction")
def variance(n, x, v, a):
    dims = axes(a, x[0].ndim)
    count = x[0].size if dims is None else math.prod(x[0].shape[d] for d in dims)
    if count - a["correction"] <= 0 or 0 in x[0].shape:
        raise Pass("nothing to divide by")
    got = np.var(x[0], axis=dims, keepdims=a["keepdim"]) * count / (count - a["correction"])
    return got, got + 1e-3 * np.mean(x[0] ** 2, axis=dims, keepdims=a["keepdim"])


@define("aten.layer_norm")
def layer_norm(n, x, v, a):
    dims = tuple(range(-len(a["normalized_shape"]), 0))
    if 0 in x[0].shape or not dims:
        raise Pass("empty")
    mean, var = x[0].mean(axis=dims, keepdims=True), x[0].var(axis=dims, keepdims=True)
    got = (x[0] - mean) / np.sqrt(var + a["eps"])
    scale = (np.abs(x[0]) + np.abs(mean)) / np.sqrt(var + a["eps"])
    if len(x) > 1 and x[1] is not None:
        got, scale = got * x[1], scale * np.abs(x[1])
    if len(x) > 2 and x[2] is not None:
        got, scale = got + x[2], scale + np.abs(x[2])
    return got, scale * (4 + math.prod(a["normalized_shape"]) / 64)


@define("aten.permute")
def permute(n, x, v, a):
    return np.transpose(x[0], a["dims"])


@define("aten.transpose.int")
def transpose(n, x, v, a):
    return np.swapaxes(x[0], a["dim0"], a["dim1"]) if x[0].ndim else x[0]


@define("aten.unsqueeze")
def unsqueeze(n, x, v, a):
    return np.expand_dims(x[0], a["dim"])


@define("aten.select.int")
def select(n, x, v, a):
    return np.take(x[0], a["index"], axis=a["dim"])


@define("aten.slice.Tensor")
def slice_of(n, x, v, a):
    at = [slice(None)] * x[0].ndim
    at[a["dim"]] = slice(a["start"], a["end"], a["step"])
    return x[0][tuple(at)]


@define("aten.cat")
def cat(n, x, v, a):
    if any(len(o.dims) != len(v[0].dims) for o in v):
        raise Pass("an empty list")
    return np.concatenate(x, axis=a["dim"])


@define("aten.stack")
def stack(n, x, v, a):
    return np.stack(x, axis=a["dim"])


@define("aten.repeat")
def repeat(n, x, v, a):
    return np.tile(x[0], a["repeats"])


@define("aten.tril", "aten.triu")
def triangle(n, x, v, a):
    return (np.tril if "tril" in n else np.triu)(x[0], a["diagonal"])


@define("aten.embedding", "aten.index.Tensor")
def rows_of(n, x, v, a):
    return x[0][x[1].astype("i8")]


@define("aten.index_select")
def index_select(n, x, v, a):
    return np.take(x[0], x[1].astype("i8"), axis=a["dim"])


@define("npu.swiglu")
def swiglu(n, x, v, a):
    left, right = np.split(x[0], 2, axis=a["dim"])
    return UNARY["aten.silu"](left) * right


@define("aten.full", "aten.zeros", "aten.ones", "aten.scalar_tensor", "aten.full_like", "aten.new_full", "aten.new_zeros", "aten.new_ones")
def full(n, x, v, a):
    value = a["fill_value"] if "fill_value" in a else a["s"] if "s" in a else 1 if "ones" in n else 0
    return value  # in whatever shape the result has


RESHAPES = ("aten.view", "aten.reshape", "aten._unsafe_view", "aten.squeeze.dim", "aten.squeeze.dims")
for _name in RESHAPES:
    DEFINED[_name] = lambda n, x, v, a: x[0].reshape(-1)
EXACT = {*RESHAPES, "aten.neg", "aten.abs", "aten.floor", "aten.ceil", "aten.round", "aten.trunc", "aten.relu", "aten.sign", "aten.clone",
         "aten.lift_fresh_copy", "aten.alias", "aten.detach", "aten.t", "aten.zeros_like", "aten.ones_like", "aten.maximum", "aten.minimum",
         "aten.where.self", "aten.permute", "aten.transpose.int", "aten.unsqueeze", "aten.select.int", "aten.slice.Tensor", "aten.cat",
         "aten.stack", "aten.repeat", "aten.tril", "aten.triu", "aten.embedding", "aten.index.Tensor", "aten.index_select",
         "aten.amax", "aten.amin", "aten.max", "aten.min"}
ROUNDED = {"aten.clamp", "aten.masked_fill.Scalar", "aten.full", "aten.zeros", "aten.ones", "aten.scalar_tensor", "aten.full_like",
           "aten.new_full", "aten.new_zeros", "aten.new_ones", "aten._to_copy"}  # exact, once rounded to the dtype


@define("aten._to_copy")
def cast(n, x, v, a):
    if v[0].is_float and a["dtype"] in INTS and not (a["dtype"] == "bool"):
        raise Pass("a float as an integer")
    return x[0]


@define("aten.expand")
def expand(n, x, v, a):
    return x[0]  # broadcast by the comparison


EXACT.add("aten.expand")


# ---- comparison -----------------------------------------------------------------------------------------------------------

def shaped(got, want):
    got = np.asarray(got)
    if got.size == want.x.size and got.shape != want.dims:
        return got.reshape(want.dims)
    return np.broadcast_to(got, want.dims)


def differs(name, result, want):
    """The index of an element that is too far off, or None."""
    result, scale = result if isinstance(result, tuple) else (result, None)
    result = shaped(result, want)
    if not want.is_float:
        with np.errstate(all="ignore"):
            bad = result.astype(INTS[want.dtype]) != want.x
        return tuple(np.argwhere(bad)[0]) if np.any(bad) else None
    result = result.astype("f8")
    if name in EXACT or name in ROUNDED:
        exact = result if name in EXACT else rounded(result, want.dtype)
        bad = ~((exact == want.x) | (np.isnan(exact) & np.isnan(want.x)))
        return tuple(np.argwhere(bad)[0]) if np.any(bad) else None
    ulp = 2.0 ** -BITS[want.dtype]
    scale = np.abs(result) if scale is None else np.broadcast_to(shaped(scale, want), want.dims)
    tolerance = 1.01 * ulp * np.abs(result) + 2e-5 * scale + (6e-8 if want.dtype == "f16" else 1e-37)
    near = np.abs(result - want.x) <= tolerance
    same = (result == want.x) | (np.isnan(result) & np.isnan(want.x))
    over = np.isinf(want.x) & (np.abs(result) >= LARGEST[want.dtype] * (1 - ulp)) & (np.sign(result) == np.sign(want.x))
    near_edge = ~np.isfinite(scale) | ~np.isfinite(result)  # a sum that passes the largest number on its way
    edge = near_edge & ~np.isfinite(want.x) | (scale > 1e30)
    bad = ~(near | same | over | edge)
    return tuple(np.argwhere(bad)[0]) if np.any(bad) else None


def check_node(node, values, by_op):
    """A sentence, or None."""
    name = node["op"]
    fn = DEFINED.get(name)
    if not fn or len(node["out"]) != 1:
        by_op["undefined " + name] += 1
        return None
    operands = [None if i is None else values[i] for i in node["in"]]
    try:
        if any(isinstance(a, float) and 3.4e38 < abs(a) < math.inf for a in node["attrs"].values()):
            raise Pass("kernels compute with numbers of f32, where this one is infinite")
        with np.errstate(all="ignore"):
            result = fn(name, [None if o is None else o.x for o in operands], operands, node["attrs"])
            at = differs(name, result, values[node["out"][0]])
    except Pass:
        by_op["undefined " + name] += 1
        return None
    by_op[name] += 1
    if at is None:
        return None
    want = values[node["out"][0]]
    value = shaped(result[0] if isinstance(result, tuple) else result, want)[at]
    return (f"{name} {node['attrs']} of {[(o.dtype, o.dims) for o in operands if o]}: element {tuple(map(int, at))} of {want.dtype}{want.dims} "
            f"is {want.x[at]}, not {value}")


def check_graph(case, by_op):
    values, unknown = {}, set()
    for i, entry in case["values"].items():
        try:
            values[int(i)] = Value(entry)
        except Pass:
            unknown.add(int(i))
    # What a node read of a state that another node writes is not known: only where it was at the end.
    written = any(node["mutates"] for node in case["nodes"])
    tainted = {i for i, v in values.items() if v.state} if written else set()
    problems = []
    for node in case["nodes"]:
        if tainted & set(node["in"]):
            tainted |= set(node["out"])
        if node["mutates"] or tainted & set(node["out"]) or any(i not in values for i in [*node["in"], *node["out"]] if i is not None):
            continue
        problem = check_node(node, values, by_op)
        if problem:
            problems.append(problem)
    return problems


def run(seed, runs, by_op):
    """Graphs compared, problems, and what fuzz_run itself found."""
    command = [str(BUILD / "tests" / "ops" / "fuzz_run"), "--emit", "1", "--runs", str(runs), "--seed", str(seed)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")
    graphs = failed = 0
    for line in process.stdout:
        if not line.startswith('{"seed"'):
            if "passed," not in line and "Running suite" not in line and "Checks:" not in line:
                print(line, end="", flush=True)
            continue
        case = json.loads(line)
        graphs += 1
        for problem in check_graph(case, by_op):
            failed += 1
            print(f"fuzz_run --one {case['seed']} --emit 1, on {case['isa']}: {problem}", flush=True)
    return graphs, failed + (process.wait() != 0)


def main():
    args = part.arguments(__doc__, 60, lambda parser: parser.add_argument(
        "--runs", type=int, default=1 << 40, help="graphs that are drawn, at most; some have nothing to run"))
    if np is None:
        part.skip("reference: numpy is not installed (Debian: python3-numpy)")
    subprocess.run(["make", "-s", "-C", str(BUILD), "tests/ops/fuzz_run"], check=True, stdout=subprocess.DEVNULL)
    args.end = time.monotonic() + args.seconds  # without the build
    by_op, graphs, failed, drawn = collections.Counter(), 0, 0, 0
    while time.monotonic() < args.end and drawn < args.runs:
        n = min(CHUNK, args.runs - drawn)
        more, bad = run((args.seed << 12) + drawn // CHUNK, n, by_op)
        graphs, failed, drawn = graphs + more, failed + bad, drawn + n
    defined = {name: n for name, n in by_op.items() if not name.startswith("undefined ")}
    print(f"{drawn} graphs drawn, {graphs} ran, {sum(defined.values())} nodes of {len(defined)} operators compared, "
          f"{sum(by_op.values()) - sum(defined.values())} without a definition here")
    print("compared: " + ", ".join(f"{name} {n}" for name, n in sorted(defined.items())))
    print("not: " + ", ".join(f"{name[10:]} {n}" for name, n in sorted(by_op.items()) if name.startswith("undefined ")))
    part.end(graphs, failed)


if __name__ == "__main__":
    main()
