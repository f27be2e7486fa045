# SPDX-License-Identifier: Apache-2.0
"""Small functions at random, for torch.compile: views, writes to inputs and to views of them, results that share memory.

A program is text: what makes its arguments from two sizes, and the function. It is written a line at a time, and a line stays
if eager PyTorch takes it. `compare` runs a program in eager and compiled, on arguments of their own, and says what differs:
results and all arguments, after each of several calls, with other contents, other sizes and other objects; and which elements
share memory.
"""
from __future__ import annotations

import copy
import dataclasses
import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

DTYPES = ("float32",) * 6 + ("int64", "int64", "bfloat16", "bool", "int32", "float16", "int8")
SHAPES = ("m, n",) * 4 + ("m,", "m,", "n,", "", "1, n", "m, 1", "n, m", "m, m", "2, m, n", "0, n", "4, 3", "4,")
SIZES = ((4, 3), (3, 4), (2, 5), (5, 5), (1, 4), (4, 1), (6, 2), (2, 6), (1, 1), (0, 3), (8, 3))
LARGEST = 2048  # elements
LINES = 8
REFUSED = (": raises NotCapturable", "INDEX_RANGE")  # aloud, as documented, where eager PyTorch takes a call


@dataclasses.dataclass
class Program:
    """A function and what makes its arguments, as text."""

    seed: int
    maker: str  # def make(m, n, fill, index): the arguments; and attributes of a module
    body: str  # def f(self, a, b, ...)
    module: bool
    dynamic: bool | None
    options: dict[str, Any]
    marked: bool
    sizes: list[tuple[int, int]]

    def text(self) -> str:
        return (f"# seed {self.seed}, dynamic={self.dynamic}, options={self.options}, marked={self.marked}, sizes={self.sizes}, "
                f"module={self.module}\n{self.maker}\n{self.body}")


class Filler:
    """Contents of tensors: small whole numbers, so that sums are the same in any order."""

    def __init__(self, seed: int) -> None:
        self.random = torch.Generator().manual_seed(seed)

    def fill(self, dtype: Any, *shape: int) -> Any:
        low, high = (0, 2) if dtype == torch.bool else (-3, 4)
        return torch.randint(low, high, shape, generator=self.random).to(dtype)

    def index(self, count: int, bound: int) -> Any:
        return torch.randperm(bound, generator=self.random)[:count]


def _namespace() -> dict[str, Any]:
    return {"torch": torch}


# ---- arguments ------------------------------------------------------------------------------------------------------

def _argument(rng: random.Random, name: str, before: list[str]) -> str:
    """Returns a line that makes an argument: of memory of its own, or of that of another one."""
    kind = rng.random()
    if before and kind < 0.3:
        other = rng.choice(before)
        how = rng.choice(["{o}", "{o}", "{o}[1:]", "{o}.t()", "{o}.view(-1)", "{o}[:1]", "{o}[..., ::2]", "{o}[0]",
                          "{o}.view({o}.shape)", "{o}.flatten()[:3]"])
        return f"{name} = {how.format(o=other)}"
    if kind < 0.38:
        return f"{name} = index(2, m)"
    if kind < 0.46:
        return f"{name} = {rng.choice(['m', 'n', '3', '2.5', 'True', '1'])}"
    dtype, shape = f"torch.{rng.choice(DTYPES)}", rng.choice(SHAPES)
    dims = [d.strip() for d in shape.split(",") if d.strip()]
    total, listed = " * ".join(dims) or "1", ", ".join(dims)
    ways = [f"fill({dtype}, {listed})" if dims else f"fill({dtype})"] * 5
    ways.append(f"fill({dtype}, {total} + 3)[3:].view({listed or '()'})")
    if dims:
        ways += [f"fill({dtype}, {', '.join(reversed(dims))}).permute({', '.join(map(str, reversed(range(len(dims)))))})",
                 f"fill({dtype}, 2 * {dims[0]}{''.join(', ' + d for d in dims[1:])})[::2]",
                 f"fill({dtype}, {', '.join(dims[:-1] + [dims[-1] + ' + 2'])})[..., 1:-1]",
                 f"fill({dtype}, {', '.join(['1'] + dims[1:])}).expand({listed})",
                 f"fill({dtype}, {', '.join(dims[:-1] + ['1'])}).expand({listed})"]
    return f"{name} = {rng.choice(ways)}"


# ---- lines of the function ------------------------------------------------------------------------------------------

def _loose(t: Any) -> bool:
    """Returns whether no element of a tensor is another one's memory."""
    return all(step != 0 or size <= 1 for size, step in zip(t.shape, t.stride(), strict=True))


def _dim(rng: random.Random, t: Any) -> int:
    return rng.randrange(-t.dim(), t.dim()) if t.dim() else 0


def _view(rng: random.Random, a: str, t: Any) -> str:
    d = _dim(rng, t)
    return rng.choice([
        f"{a}[1:]", f"{a}[..., 1:]", f"{a}[::2]", f"{a}[..., ::2]", f"{a}[0]", f"{a}[-1]", f"{a}[..., 0]", f"{a}[..., -1]",
        f"{a}.transpose(0, -1)", f"{a}.t()", f"{a}.view(-1)", f"{a}.reshape(-1)", f"{a}.flatten()", f"{a}.unsqueeze({d})",
        f"{a}.squeeze()", f"{a}.squeeze({d})", f"{a}.expand(2, {', '.join(['-1'] * t.dim()) or 1})", f"{a}.diagonal()",
        f"{a}.narrow({d}, 1, 2)", f"{a}.view({a}.shape)", f"{a}.detach()", f"{a}[None]", f"{a}.permute({_order(rng, t)})",
        f"{a}.unfold({d}, 2, 1)", f"{a}[{a}.shape[0] // 2:]", f"{a}[: {a}.shape[0] - 1]", f"{a}[..., {a}.shape[-1] - 1]",
        f"{a}.reshape({a}.shape[0], -1)", f"{a}.view(-1, {a}.shape[-1])", f"{a}.as_strided((2,), (1,), 1)",
        f"{a}.view_as({a})", f"{a}.movedim(0, -1)", f"{a}.mT", f"{a}.contiguous()", f"{a}.unflatten(-1, (1, -1))",
        f"{a}.select({d}, 1)", f"{a}.swapaxes(0, 1)", f"{a}.to({a}.dtype)", f"{a}.expand_as({a})", f"{a}.squeeze(0)",
        f"{a}.tensor_split(2)[1]", f"{a}.ravel()", f"{a}.narrow(0, {a}.shape[0] - 1, 1)",
    ])


def _order(rng: random.Random, t: Any) -> str:
    return ", ".join(map(str, rng.sample(range(t.dim()), t.dim())))


def _several(rng: random.Random, a: str, t: Any) -> str:
    return rng.choice([f"{a}.split(2)", f"{a}.chunk(2, -1)", f"{a}.unbind(0)", f"{a}.unbind(-1)", f"{a}.split(1, -1)",
                       f"{a}.max(0)", f"{a}.sort(-1, stable=True)"])


def _fresh(rng: random.Random, a: str, b: str, t: Any, number: str) -> str:
    d = _dim(rng, t)
    return rng.choice([
        f"{a} + {b}", f"{a} + 1", f"{a} * 2", f"-{a}", f"{a}.clone()", f"{a} + {number}", f"{a} * {b}", f"{a}.sum({d})",
        f"{a}.sum()", f"{a}.relu()", f"torch.cat([{a}, {a}], {d})", f"torch.stack([{a}, {a}])", f"torch.where({a} > 0, {a}, {b})",
        f"{a} > {b}",
        f"~({a} > 0)", f"{a}.float() @ {b}.float()", f"torch.zeros_like({a})", f"{a}.new_ones({a}.shape)", f"{a}.float()",
        f"{a}.to(torch.{rng.choice(DTYPES)})", f"torch.maximum({a}, {b})", f"{a} - {b}", f"{a}.amax({d})", f"{a}.repeat(2, 1)",
        f"{a}.flip(0)", f"{a}.cumsum(0)", f"torch.arange({a}.shape[0])", f"{a} * {a}.shape[0]", f"{a}.masked_fill({b} > 0, 1)",
        f"{a}.t().clone()", f"{a}.roll(1, 0)", f"{a}.index_select(0, torch.zeros(2, dtype=torch.int64))", f"{a}.eq({b})",
        f"torch.full_like({a}, 2)", f"{a}.half() + 1", f"{a}.any()", "torch.tensor([1, 2, 3])", "torch.ones(3)",
    ])


def _write(rng: random.Random, a: str, b: str, t: Any, number: str) -> str:
    """Returns a line that writes to a tensor, through a view or not."""
    place = rng.choice([a, a, a, f"{a}[1:]", f"{a}[0]", f"{a}.t()", f"{a}[..., 1:]", f"{a}.view(-1)", f"{a}[..., ::2]",
                        f"{a}[None]", f"{a}.transpose(0, -1)", f"{a}.diagonal()", f"{a}.detach()", f"{a}[-1]",
                        f"{a}[{a}.shape[0] // 2:]", f"{a}.flatten()", f"{a}.squeeze()"])
    return rng.choice([
        f"{place}.add_(1)", f"{place}.mul_(2)", f"{place}.copy_({b}.clone())", f"{place}.zero_()", f"{place}.fill_(3)",
        f"{place}.add_({b}.clone())", f"{place}.neg_()", f"{a}[0] = 1", f"{a}[..., 1] = {b}.clone()", f"{a}[1:] = 2",
        f"{place}.index_fill_(0, torch.zeros(1, dtype=torch.int64), 5)", f"{place}.masked_fill_({b} > 0, 2)",
        f"{place}.index_copy_(0, torch.tensor([1, 0]), {b}.clone()[:2])", f"{a}[{b} > 0] = 1", f"{place}.relu_()",
        f"{place}.index_add_(0, torch.tensor([0, 1]), {b}.clone()[:2])", f"{place}.add_({number})", f"{a}[:, 1:2] = 4",
        f"torch.add({a}, 1, out={a})", f"{place}.clamp_(-1, 2)", f"{place}.copy_({b}.clone()[0])", f"{place}.sub_(1)",
        f"{place}.logical_not_()", f"{place}.add_({a}.shape[0])", f"{place}.scatter_(0, {b}.clone().long() * 0, 2)",
        f"{a}[{b}] = 7", f"{place}.index_copy_(0, {b}, {a}.clone()[:2])", f"{place}.copy_({a}.clone().flip(0))",
        f"{place}.bitwise_xor_(1)", f"{a} += 1", f"{a} *= {number}",
    ])


def _metadata(rng: random.Random, a: str, t: Any) -> str:
    return rng.choice([f"{a}.t_()", f"{a}.unsqueeze_(0)", f"{a}.squeeze_()", f"{a}.transpose_(0, 1)"])


class _Writer:
    """Writes the function, a line at a time; each is run at once on sample arguments."""

    def __init__(self, rng: random.Random, names: list[str], env: dict[str, Any]) -> None:
        self.rng, self.env, self.lines = rng, env, []
        self.names = list(names)
        self.arguments = list(names)
        self.count = 0

    def tensors(self) -> list[str]:
        return [n for n in self.names if isinstance(self.env[n], torch.Tensor)]

    def number(self) -> str:
        numbers = [n for n in self.names if not isinstance(self.env[n], torch.Tensor)]
        return self.rng.choice(numbers or ["2"])

    def line(self) -> None:
        rng, tensors = self.rng, self.tensors()
        a = rng.choice(tensors[-3:] if rng.random() < 0.4 else tensors)
        b, t = rng.choice(tensors), self.env[a]
        kind, new = rng.random(), f"v{self.count}"
        if kind < 0.36:
            text, made = f"{new} = {_view(rng, a, t)}", [new]
        elif kind < 0.42:
            text, made = f"{new}, {new}_ = {_several(rng, a, t)}[:2]", [new, new + "_"]
        elif kind < 0.66:
            text, made = f"{new} = {_fresh(rng, a, b, t, self.number())}", [new]
        elif kind < 0.97:
            if not _loose(t):
                return
            text, made = _write(rng, a, b, t, self.number()), []
        elif kind < 0.985:
            text, made = _metadata(rng, a, t), []
        else:
            text, made = "torch._dynamo.graph_break()", []
        self.take(text, made)

    def take(self, text: str, made: list[str]) -> None:
        # A line that fails may have written half of what it writes, so it is tried on copies.
        trial = copy.deepcopy(self.env, {id(torch): torch})
        try:
            exec(text, _namespace(), trial)  # noqa: S102
        except Exception:
            return
        for name in made:
            value = trial[name]
            if not isinstance(value, torch.Tensor) or value.numel() > LARGEST or value.dtype == torch.float64:
                return
        exec(text, _namespace(), self.env)  # noqa: S102
        self.names += made
        self.count += 1
        self.lines.append(text)

    def returned(self) -> str:
        rng = self.rng
        own = [n for n in self.names if n not in self.arguments or rng.random() < 0.5]
        picked = [rng.choice(own or self.names) for _ in range(rng.randint(1, 5))]
        shown = []
        for name in picked:
            extra = rng.random()
            t = self.env[name]
            if isinstance(t, torch.Tensor) and t.dim() and extra < 0.1:
                name = f"{name}.shape[0]"
            elif isinstance(t, torch.Tensor) and extra < 0.2:
                name = rng.choice([f"{name}.detach()", f"{name}.view({name}.shape)", f"{name}[...]"])
            shown.append(name)
        return ", ".join(shown) + ","


def generate(seed: int) -> Program:
    """Returns the program of a seed."""
    rng = random.Random(seed)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while True:
            made = _generate(rng, seed)
            if made is not None:
                return made


def _generate(rng: random.Random, seed: int) -> Program | None:
    names, lines = [], []
    for k in range(rng.randint(1, 4)):
        lines.append(_argument(rng, f"a{k}", names))
        names.append(f"a{k}")
    module = rng.random() < 0.3
    attributes = []
    if module:
        lines.append(f"w = fill(torch.{rng.choice(DTYPES)}, 4, 3)")
        attributes = ["w"]
        if rng.random() < 0.5:
            lines.append("u = " + rng.choice(["w[1:]", "w.t()", "w[0]", "fill(torch.float32, 3)", "fill(torch.float32)"]))
            attributes.append("u")
    maker = "def make(m, n, fill, index):\n" + "".join(f"    {line}\n" for line in lines)
    maker += f"    return ({', '.join(names)},), dict({', '.join(f'{a}={a}' for a in attributes)})\n"
    sizes = [rng.choice(SIZES[:4])]
    sizes += [sizes[0], rng.choice(SIZES), sizes[0] if rng.random() < 0.3 else rng.choice(SIZES)]
    try:
        given, owned = _made(maker, *sizes[0], seed)
    except Exception:
        return None
    if not any(isinstance(t, torch.Tensor) for t in given):
        return None
    env = dict(zip(names, given, strict=True)) | {f"w{k}": owned[a] for k, a in enumerate(attributes)}
    writer = _Writer(rng, list(env), env)
    for _ in range(rng.randint(LINES, 4 * LINES)):
        writer.line()
        if len(writer.lines) >= LINES:
            break
    head = "".join(f"    w{k} = self.{a}\n" for k, a in enumerate(attributes))
    body = (f"def f({'self, ' if module else ''}{', '.join(names)}):\n{head}" + "".join(f"    {line}\n" for line in writer.lines)
            + f"    return {writer.returned()}\n")
    options = rng.choice([{}, {}, {}, {"frozen_parameter": True}, {"input_inplace_pass": False}, {"force_eager": True}])
    return Program(seed, maker, body, module, rng.choice([None, None, True, True, False]), dict(options), rng.random() < 0.1, sizes)


def _made(maker: str, m: int, n: int, seed: int) -> Any:
    space = _namespace()
    exec(maker, space)  # noqa: S102
    filler = Filler(seed)
    return space["make"](m, n, filler.fill, filler.index)


# ---- running --------------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Seen:
    """What a call left: of each tensor, contents and layout; which elements share memory; and which objects are the same."""

    values: list[Any]
    layouts: list[Any]
    places: list[list[int]]
    objects: list[int]


def _flat(value: Any) -> list[Any]:
    return [part for v in value for part in _flat(v)] if isinstance(value, (tuple, list)) else [value]


def _places(tensors: Sequence[Any]) -> list[list[int]]:
    """Returns a number for each element of each tensor: equal numbers are one place in memory."""
    numbers: dict[int, int] = {}
    found = []
    for t in tensors:
        offsets = torch.zeros((), dtype=torch.int64)
        for size, step in zip(t.shape, t.stride(), strict=True):
            offsets = offsets[..., None] + torch.arange(size) * step
        first = t.data_ptr()
        found.append([numbers.setdefault(first + k * t.element_size(), len(numbers)) for k in offsets.flatten().tolist()])
    return found


def _strides(t: Any) -> Any:
    return tuple(step for size, step in zip(t.shape, t.stride(), strict=True) if size > 1) if t.numel() else ()


def look(results: Any, given: Sequence[Any]) -> Seen:
    parts = [*_flat(results), *given]
    tensors = [p for p in parts if isinstance(p, torch.Tensor)]
    first: dict[int, int] = {}
    return Seen([p.detach().clone() if isinstance(p, torch.Tensor) else p for p in parts],
                [(p.dtype, tuple(p.shape), _strides(p)) if isinstance(p, torch.Tensor) else type(p) for p in parts],
                _places(tensors), [first.setdefault(id(t), k) for k, t in enumerate(tensors)])


def difference(want: Seen, got: Seen) -> str:
    """Returns what differs, or an empty text. Results come first, then arguments."""
    for k, (a, b) in enumerate(zip(want.layouts, got.layouts, strict=True)):
        if a != b:
            return f"layout of {k}: eager {a}, compiled {b}"
    for k, (a, b) in enumerate(zip(want.values, got.values, strict=True)):
        if not _equal(a, b):
            return f"contents of {k}: eager {a}, compiled {b}"
    if want.places != got.places:
        return "which elements share memory"
    if want.objects != got.objects:
        return f"which objects are the same: eager {want.objects}, compiled {got.objects}"
    return ""


def _equal(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor):
        return bool(a == b)
    if not a.is_floating_point():
        return torch.equal(a, b)
    scale = max(1.0, a.float().nan_to_num(0, 0, 0).abs().max().item()) if a.numel() else 1.0
    tolerance = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}.get(a.dtype, 1e-6) * scale
    return torch.allclose(a.float(), b.float(), rtol=0, atol=tolerance, equal_nan=True)


class Subject:
    """A function with arguments of its own, in eager or compiled."""

    def __init__(self, program: Program, wrap: Callable[[Any], Any], marked: bool) -> None:
        self.program, self.marked = program, marked
        space = _namespace()
        exec(program.body, space)  # noqa: S102
        self.owned: dict[str, Any] = {}
        function = space["f"]
        if program.module:
            self.owned = _made(program.maker, *program.sizes[0], program.seed)[1]
            made = type("Module", (torch.nn.Module,), {"forward": function})()
            for name, tensor in self.owned.items():
                made.register_buffer(name, tensor)
            function = made
        self.function = wrap(function)

    def arguments(self, call: int) -> tuple[Any, ...]:
        m, n = self.program.sizes[call]
        given = _made(self.program.maker, m, n, self.program.seed + call)[0]
        if self.marked:
            for t in given:
                if isinstance(t, torch.Tensor):
                    for dim in range(t.dim()):
                        if t.shape[dim] > 1:
                            torch._dynamo.maybe_mark_dynamic(t, dim)
        return given  # type: ignore[no-any-return]


def _disturb(tensors: Sequence[Any]) -> None:
    """Writes to tensors between calls, as a caller does."""
    for k, t in enumerate(tensors):
        if isinstance(t, torch.Tensor) and t.numel() and _loose(t) and k % 2 == 0:
            part = t[..., :1] if t.dim() else t
            part.logical_not_() if t.dtype == torch.bool else part.add_(1)


def run(program: Program, wrap: Callable[[Any], Any]) -> list[tuple[str, Seen | str]]:
    """Returns what was seen after each step, or why it failed."""
    subject = Subject(program, wrap, program.marked)
    seen: list[tuple[str, Seen | str]] = []
    first = None
    for call in range(len(program.sizes)):
        try:
            given = subject.arguments(call)
        except Exception:
            continue
        first = given if first is None else first
        turns = [("new", given)] + ([("again", given)] if call in (0, 2) else [("first", first)] if call == 3 else [])
        for what, arguments in turns:
            tensors = [*[a for a in arguments if isinstance(a, torch.Tensor)], *subject.owned.values()]
            try:
                results = subject.function(*arguments)
            except Exception as why:
                seen.append((f"call {call} {what}", f"{type(why).__name__}: {why}"))
                return seen  # what a failed call leaves is not defined
            seen.append((f"call {call} {what}", look(results, tensors)))
            _disturb([*_flat(results), *tensors])
            seen.append((f"writes after call {call} {what}", look(results, tensors)))
    return seen


def compare(program: Program, wrap: Callable[[Any], Any], want: list[tuple[str, Seen | str]]) -> str:
    """Returns what differs from eager, or an empty text."""
    torch._dynamo.reset()
    got = run(program, wrap)
    for (step, a), (_, b) in zip(want, got, strict=False):
        if isinstance(a, str) or isinstance(b, str):
            return "" if isinstance(a, str) else f"{step}: raises {b}"  # compiled, what is not used is not computed
        found = difference(a, b)
        if found:
            return f"{step}: {found}"
    return ""


def verdict(program: Program, compiled: Callable[[Any], Any]) -> tuple[str, str]:
    """Returns ("same", ""), ("wrong", what), ("refused", what), or ("pytorch", what): a backend that only runs the graph in eager
    PyTorch differs from eager too."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = run(program, lambda f: f)
        found = compare(program, compiled, want)
        if not found:
            return "same", ""
        theirs = compare(program, lambda f: torch.compile(f, backend="aot_eager", dynamic=program.dynamic), want)
        kind = "pytorch" if theirs else "refused" if any(word in found for word in REFUSED) else "wrong"
        return kind, found + (f"\n  aot_eager: {theirs}" if theirs else "")
