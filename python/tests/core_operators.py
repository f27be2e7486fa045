# SPDX-License-Identifier: Apache-2.0
"""PyTorch's core ATen operators on PyTorch's own samples (OpInfo): which are right, refused, or wrong.

Each sample is traced and decomposed as the backend does it. Each call of a core operator in the trace is a case of that
operator: it is translated alone, run by the daemon, and compared with PyTorch. Run as a program it writes
docs/core-aten.md; NPUGRAPH_ADDRESS names the daemon.
"""
from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import math
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode

from npugraph.errors import Error
from npugraph.torch.extend import decomposition_table
from npugraph.torch.options import Options, parse_options
from npugraph.torch.runner import Runner
from npugraph.torch.translate import Translator

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.bool)
# They ask for sizes, which are symbols of a graph.
SIZES = {"aten.sym_size.int", "aten.sym_stride.int", "aten.sym_numel", "aten.sym_storage_offset",
         "aten.sym_is_contiguous"}


def core_operators() -> dict[str, Any]:
    """Returns the operators that PyTorch tags as core, by name."""
    found = {}
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads() if hasattr(packet, "overloads") else ():
            operator = getattr(packet, overload)
            if torch.Tag.core in operator.tags:
                found[str(operator).removesuffix(".default")] = operator
    return found


@dataclasses.dataclass
class Case:
    """One call of an operator."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def key(self) -> str:
        """Says what makes a case different from others: dtypes, shapes, strides, numbers."""
        def say(a: Any) -> Any:
            return (a.dtype, tuple(a.shape), a.stride()) if isinstance(a, torch.Tensor) else repr(a)
        flat, spec = torch.utils._pytree.tree_flatten((self.args, self.kwargs))
        return f"{[say(a) for a in flat]} {spec}"


class _Recorder(TorchDispatchMode):
    """Keeps the calls of core operators that functional code makes, with copies of their operands."""

    def __init__(self, core: dict[str, Any]) -> None:
        super().__init__()
        self.core = set(core.values())
        self.cases: list[Case] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.core:
            kept = torch.utils._pytree.tree_map(_copied, (tuple(args), dict(kwargs or {})))
            self.cases.append(Case(func, *kept))
        return func(*args, **(kwargs or {}))


def _copied(a: Any) -> Any:
    if not isinstance(a, torch.Tensor):
        return a
    return torch.empty_strided(a.shape, a.stride(), dtype=a.dtype).copy_(a) if 0 not in a.stride() else a.clone()


def samples(only: str | None, per: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Yields up to `per` samples of each operator of PyTorch's tables and each dtype, with its row of the table."""
    for info in op_db:
        for dtype in DTYPES:
            if dtype not in info.dtypes or (only and only not in info.name):
                continue
            torch.default_generator.manual_seed(seed)
            try:  # sample_inputs looks at the stack and seeds all kinds of devices for each sample, which takes minutes
                found = list(info.sample_inputs_func(info, "cpu", dtype, False))
            except Exception:  # samples that this PyTorch cannot make
                continue
            for sample in random.Random(seed).sample(found, min(per, len(found))):
                yield info, sample


def cases_of(info: Any, sample: Any, core: dict[str, Any], decompositions: dict[Any, Any]) -> list[Case]:
    """Returns the calls of core operators that a sample makes, and those in its decomposed trace if it can be traced."""
    flat, spec = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    tensors = [a for a in flat if isinstance(a, torch.Tensor)]

    def run(*given: Any) -> Any:
        fed = iter(given)
        first, args, kwargs = torch.utils._pytree.tree_unflatten(
            [next(fed) if isinstance(a, torch.Tensor) else a for a in flat], spec)
        return info.op(first, *args, **kwargs)

    recorder = _Recorder(core)
    with contextlib.suppress(Exception):
        with recorder:  # as it is called
            run(*[t.clone() for t in tensors])
        traced = make_fx(torch.func.functionalize(run), decomposition_table=decompositions)(*tensors)
        with recorder:  # what the backend makes of it
            traced(*tensors)
    return recorder.cases


def _own(core: dict[str, Any]) -> Iterator[Case]:
    """Yields cases of operators that PyTorch's samples do not reach."""
    aten = torch.ops.aten
    for dtype in (torch.float32, torch.bfloat16):
        image = torch.randn(2, 4, 5, 7).to(dtype)
        ints = torch.arange(12).reshape(3, 4)
        stats = [torch.rand(4).to(dtype) + 0.5 for _ in range(4)]
        calls: list[tuple[Any, tuple[Any, ...]]] = [
            (aten.col2im.default, (torch.randn(2, 12, 20).to(dtype), [5, 6], [2, 2], [1, 1], [0, 0], [1, 1])),
            (aten.col2im.default, (torch.randn(18, 8).to(dtype), [5, 6], [3, 3], [1, 2], [1, 1], [2, 1])),
            (aten.upsample_bilinear2d.vec, (image, [9, 3], False, None)),
            (aten.upsample_bilinear2d.vec, (image, None, True, [2.0, 1.5])),
            (aten.upsample_nearest2d.vec, (image, [9, 3], None)),
            (aten.upsample_nearest2d.vec, (image, None, [2.0, 1.7])),
            (aten.reflection_pad2d.default, (image, [1, 2, 3, 0])),
            (aten.var.dim, (image, [1, 3], True, False)), (aten.var.dim, (image, [0], False, True)),
            (aten._native_batch_norm_legit_no_training.default, (image, *stats, 0.1, 1e-5)),
            (aten._native_batch_norm_legit.no_stats, (image, *stats[:2], True, 0.1, 1e-5)),
            (aten.scatter.value, (image, 3, torch.randint(0, 7, (2, 4, 5, 3)), 2.5)),
            (aten.bitwise_or.Scalar, (ints, 5)), (aten.bitwise_xor.Scalar, (ints.int(), 6)),
            (aten.div.Scalar_mode, (ints - 6, 4, "floor")), (aten.div.Scalar_mode, (image, 0.5, "trunc")),
            (aten.native_dropout.default, (image, 0.5, False)),
            (aten._embedding_bag.default, (torch.randn(9, 4).to(dtype), torch.tensor([1, 3, 8, 0, 3]), torch.tensor([0, 2, 2]))),
        ]
        for operator, args in calls:
            if operator in core.values():
                yield Case(operator, args, {})


def collect(core: dict[str, Any], limit: int, per: int, only: str | None, seed: int) -> dict[str, list[Case]]:
    """Returns up to `limit` different cases of each operator."""
    found: dict[str, dict[str, Case]] = {name: {} for name in core}
    decompositions = decomposition_table()
    for info, sample in samples(only, per, seed):
        with torch.no_grad():
            cases = cases_of(info, sample, core, decompositions)
        for case in cases:
            name = str(case.operator).removesuffix(".default")
            found[name].setdefault(case.key(), case)
    if not only:
        for case in _own(core):
            found[str(case.operator).removesuffix(".default")].setdefault(case.key(), case)
    chosen = {}
    for name, by_key in found.items():
        all_of = list(by_key.values())
        random.Random(seed).shuffle(all_of)
        chosen[name] = all_of[:limit]
    return chosen


# ---- running a case -------------------------------------------------------------------------------------------------

_numbers = itertools.count()


def run(case: Case, options: Options) -> tuple[str, str]:
    """Returns "right", "refused" or "wrong", and why."""
    flat, spec = torch.utils._pytree.tree_flatten((case.args, case.kwargs))
    tensors = [a for a in flat if isinstance(a, torch.Tensor)]

    def call(*given: Any) -> Any:
        fed = iter(given)
        args, kwargs = torch.utils._pytree.tree_unflatten(
            [next(fed) if isinstance(a, torch.Tensor) else a for a in flat], spec)
        return case.operator(*args, **kwargs)

    try:
        want = call(*[t.clone() for t in tensors])
        graph = make_fx(call, decomposition_table=decomposition_table())(*tensors)
    except Exception as why:  # an operator without this dtype in PyTorch
        return "untried", str(why)
    translator = Translator(graph, (), f"case-{next(_numbers)}")
    if translator.program is None:
        return "refused", translator.missing[0].reason
    try:
        got = Runner(translator.program, options)([t.clone() for t in tensors])
    except Error as why:
        return "refused", str(why)
    wanted = list(want) if isinstance(want, (tuple, list)) else [want]
    got = list(got) if isinstance(got, (tuple, list)) else [got]
    if case.operator in _ORDERED:  # PyTorch promises no order of equal elements: places must have the right values
        got[1] = wanted[1] if torch.equal(_at(tensors[0], case, got[1]).nan_to_num(), wanted[0].nan_to_num()) else got[1]
    for number, (g, w) in enumerate(zip(got, wanted, strict=True)):
        problem = difference(g, w, case, tensors, call, number)
        if problem:
            return "wrong", problem
    return "right", ""


def difference(got: Any, want: Any, case: Case, tensors: list[Any], call: Any, number: int) -> str:
    """Says how a result differs from PyTorch's, by the tolerances of torch.testing; or by 4 times PyTorch's own error."""
    if not isinstance(want, torch.Tensor):
        return "" if got == want else f"{got} instead of {want}"
    if case.operator in _VALUELESS:
        want = got if got.shape == want.shape and got.dtype == want.dtype else want
    try:
        torch.testing.assert_close(got, want, equal_nan=True, check_stride=False)
        return ""
    except AssertionError as why:
        told = str(why).replace("\n", " ")[:200]
    if want.dtype.is_floating_point:
        exact = call(*[t.double() if t.dtype.is_floating_point else t for t in tensors])
        exact = exact[number] if isinstance(exact, (tuple, list)) else exact
        scale = exact.nan_to_num(0, 0, 0).abs().max().item() if exact.numel() else 0.0
        finite = exact.isfinite() & want.isfinite() & got.isfinite()
        if torch.equal(want.isfinite(), got.isfinite()) and torch.equal(want.isnan(), got.isnan()):
            own = (want.double() - exact)[finite].abs().max().item() if finite.any() else 0.0
            ours = (got.double() - exact)[finite].abs().max().item() if finite.any() else 0.0
            if ours <= 4 * own + 1e-6 * scale and not math.isnan(ours):
                return ""
    return told


_ORDERED = {torch.ops.aten.sort.default, torch.ops.aten.topk.default}


def _at(x: Any, case: Case, places: Any) -> Any:
    """Returns the elements of x at the places that sort or topk told."""
    number = 1 if case.operator is torch.ops.aten.sort.default else 2
    dim = case.args[number] if len(case.args) > number else case.kwargs.get("dim", -1)
    return torch.gather(x, dim, places)


_VALUELESS = {torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default}  # any values are right


@dataclasses.dataclass
class Verdicts:
    """What became of the cases of one operator."""

    counts: Counter[str]
    reasons: Counter[str]  # of refusals
    wrong: list[str]

    @property
    def takes(self) -> bool:
        return bool(self.counts["right"]) and not self.wrong


def survey(found: dict[str, list[Case]], options: Options) -> dict[str, Verdicts]:
    """Runs all cases."""
    verdicts = {}
    for name, cases in found.items():
        of = verdicts[name] = Verdicts(Counter(), Counter(), [])
        for case in cases:
            verdict, why = run(case, options)
            of.counts[verdict] += 1
            if verdict == "refused":
                of.reasons[why] += 1
            if verdict == "wrong":
                of.wrong.append(f"{case.key()[:300]}: {why}")
    return verdicts


# ---- the table ------------------------------------------------------------------------------------------------------

_HEAD = """# Core ATen operators

What `torch.compile(model, backend="npugraph")` ([pytorch.md](pytorch.md)) takes of the {total}
operators that PyTorch {version} tags as core. Each was tried on PyTorch's own samples (OpInfo) in
f32, bf16, f16, i64, i32 and bool, up to {limit} different ones: a result is right within the
tolerances of `torch.testing`, or if it errs at most 4 times as much as PyTorch itself. What is
refused runs in PyTorch. Written by `python/tests/core_operators.py --write`.

Of {forward} operators that inference needs, {taken} are taken ({share:.0f} %), {wrong} wrongly.
{backward} are of training or ask for sizes.

| operator | right | refused | what is refused |
| --- | --- | --- | --- |
"""

def table(verdicts: dict[str, Verdicts], limit: int) -> str:
    """Returns docs/core-aten.md."""
    forward = {n: v for n, v in verdicts.items() if not n.endswith("_backward") and n not in SIZES}
    taken = [n for n, v in forward.items() if v.takes]
    lines = [_HEAD.format(total=len(verdicts), version=torch.__version__.split("+")[0], limit=limit, forward=len(forward),
                          taken=len(taken), share=100 * len(taken) / len(forward),
                          wrong=sum(bool(v.wrong) for v in forward.values()), backward=len(verdicts) - len(forward))]
    for name, v in forward.items():
        why = "; ".join(_shortened(reason, name) for reason, _ in v.reasons.most_common(3))
        if not v.counts["right"] and not v.counts["refused"]:
            why = "PyTorch has no samples that reach it"
        lines.append(f"| `{name}` | {v.counts['right']} | {v.counts['refused']} | {why} |\n")
    return "".join(lines)


def _shortened(reason: str, name: str) -> str:
    words = reason.split(" [")[0].replace("torch.", "").replace("|", "\\|")
    return words.removeprefix(f"{name} ")[:110]


def main() -> int:
    parser = argparse.ArgumentParser(description="Tries PyTorch's core operators on its own samples.")
    parser.add_argument("--cases", type=int, default=40, help="of each operator at most")
    parser.add_argument("--samples", type=int, default=4, help="of each row of PyTorch's tables and dtype at most")
    parser.add_argument("--only", help="samples of rows with this in their name")
    parser.add_argument("--operator", default="", help="core operators with this in their name")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", help="the file of the table")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    core = {n: o for n, o in core_operators().items() if given.operator in n}
    verdicts = survey(collect(core, given.cases, given.samples, given.only, given.seed), parse_options({}))
    for name, v in verdicts.items():
        print(f"{name}: {dict(v.counts)} {'; '.join(f'{why} ({n})' for why, n in v.reasons.most_common(3))}")
        for wrong in v.wrong:
            print(f"  wrong: {wrong}")
    if given.write:
        with open(given.write, "w", encoding="utf-8") as out:
            out.write(table(verdicts, given.cases))
    return 1 if any(v.wrong for v in verdicts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
