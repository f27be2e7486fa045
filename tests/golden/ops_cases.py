# SPDX-License-Identifier: Apache-2.0
"""The entries that make_ops.py writes for cases, and the tensors that cases are made of."""

import hashlib

import torch

NAMES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "bool",
}
DTYPES = {v: k for k, v in NAMES.items()}
FLOATS = ("f32", "bf16", "f16")
INTS = ("i8", "u8", "i32", "i64")
INF, NAN = float("inf"), float("nan")
# One unit in the last place of the result, for a value just above a power of two.
ULP = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}

tensors, by_content, cases, counts = {}, {}, [], {}
gen = torch.Generator().manual_seed(20240611)


def keep(t):
    """Name a tensor in the file; equal tensors are stored once."""
    if t is None:
        return None
    t = t.detach().contiguous()
    raw = t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
    key = (t.dtype, tuple(t.shape), hashlib.sha256(raw).digest())
    if key not in by_content:
        by_content[key] = f"t{len(tensors)}"
        tensors[by_content[key]] = t.clone()
    return by_content[key]


def case(op, inputs, outputs, attrs=None, tol=(0.0, 0.0), mutates=None, tag=None):
    """tol = (relative, absolute): |got - expected| <= absolute + relative * |expected|."""
    main = next((t for t in list(inputs) + list(outputs) if t is not None), None)
    dtype = NAMES[main.dtype] if main is not None else "none"
    counts[op] = counts.get(op, 0) + 1
    row = {
        "name": f"{op}/{counts[op]}_{tag + '_' if tag else ''}{dtype}",
        "op": op,
        "attrs": attrs or {},
        "inputs": [keep(t) for t in inputs],
        "outputs": [keep(t) for t in outputs],
        "tol": {"rel": float(f"{tol[0]:.3g}") or 0, "abs": float(f"{tol[1]:.3g}") or 0},
    }
    if mutates:
        row["mutates"] = [{"input": i, "expected": keep(t)} for i, t in mutates]
    cases.append(row)


def randn(*shape, dtype="f32", scale=1.0, shift=0.0):
    return (torch.randn(shape, generator=gen, dtype=torch.float64) * scale + shift).to(DTYPES[dtype])


def randint(low, high, *shape, dtype="i64"):
    return torch.randint(low, high, shape, generator=gen).to(DTYPES[dtype])


def value(values, dtype="f32"):
    return torch.tensor(values, dtype=torch.float64 if dtype in FLOATS else None).to(DTYPES[dtype])


def f64(t):
    return None if t is None else (t.double() if t.dtype.is_floating_point else t)


def rounded(t, dtype):
    return t.to(DTYPES[dtype])


def tolerance(dtype, expected=None, ulps=2, loose=0.0):
    """Tolerance of `ulps` units in the last place; loose: an absolute part for sums, relative to the largest result."""
    top = 0.0
    if expected is not None and expected.numel():
        finite = expected.double().abs()
        finite = finite[torch.isfinite(finite)]
        top = finite.max().item() if finite.numel() else 0.0
    n = 1 if dtype != "f32" else ulps  # half-width results: f32 inside, so at most one unit off
    smallest = {"f32": 1e-37, "f16": 2.0**-24, "bf16": 1e-37}[dtype]
    return (n * ULP[dtype], loose * top + smallest)
