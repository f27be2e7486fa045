# SPDX-License-Identifier: Apache-2.0
"""Writes a traced model as a file that `npugraphctl load` runs: the nodes of a step, in Lua (docs/families.md)."""
from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import torch

from .export_experts import NAME, Refused
from .export_trace import Trace
from .shapes import Unsupported, size_text
from .values import HANDLERS, Value, Writer, attribute_text, float_or_int, written

Node = Any  # an FX node; PyTorch's types of its arguments say too little
_ANGLES = 4096  # positions that are looked at
_PRODUCTS = {"aten.mm.default": 1, "aten.addmm.default": 2}  # which operand is the weight


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of the model that is not yet written. turned: its transpose."""

    names: tuple[str, ...]  # in the checkpoint; of several, each with %d for the number of an expert
    shape: tuple[int, ...]
    turned: bool = False

    @property
    def name(self) -> str:
        if len(self.names) != 1 or "%" in self.names[0]:
            raise Unsupported(f"a parameter that is made of the tensors {', '.join(self.names)}")
        return self.names[0]


class LuaWriter(Writer):
    """Writes nodes as lines of Lua. Sizes of rows are left to the daemon."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []  # nodes since the last statement
        self.statements: list[str] = []
        self.rows: Value | None = None  # has one number for each row; None: rows are those that were picked

    def node(self, operator: str, operands: Sequence[Value | None], results: Sequence[tuple[torch.dtype, Sequence[Any]]],
             /, **attributes: Any) -> list[Value]:
        values = [self.value(dtype, shape) for dtype, shape in results]
        shown = ", ".join(f"{k}={self._attribute(operator, v)}" for k, v in attributes.items())
        names = ", ".join(v.name for v in values)
        read = ", ".join(v.name if v else "none" for v in operands)
        self.text.append(f"  {names}{' = ' if names else ''}{operator}({read}){' {' + shown + '}' if shown else ''}\n")
        return values

    def value(self, dtype: torch.dtype, shape: Sequence[Any]) -> Value:
        """Returns a new value."""
        self._count += 1
        return Value(f"%v{self._count}", dtype, tuple(shape))

    def constant(self, tensor: torch.Tensor) -> Value:
        raise Unsupported("a table of constants, as convolutions and other operators of images need it")

    def full(self, dtype: torch.dtype, shape: Sequence[Any], fill: float | int | bool) -> Value:
        if not shape or not isinstance(shape[0], torch.SymInt):
            return super().full(dtype, shape, fill)
        if self.rows is None or str(self.rows.shape[0]) != str(shape[0]):
            raise Unsupported("a constant for other rows than those of tokens")
        ones = [1] * (len(shape) - 1)
        rows = self.reshape(self.rows, [shape[0], *ones])
        same = self.op("aten.full_like", [rows], dtype, [shape[0], *ones], fill_value=float_or_int(fill), dtype=dtype)
        return self.op("aten.expand", [same], dtype, shape, size=list(shape)) if any(n != 1 for n in shape[1:]) else same

    def call(self, statement: str) -> None:
        """Writes a statement of Lua behind the nodes so far."""
        if self.text:
            self.statements.append("emit [[\n" + "".join(self.text) + "]]\n")
            self.text = []
        if statement:
            self.statements.append(statement + "\n")

    def _attribute(self, operator: str, value: Any) -> str:
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.SymInt):
            value = [-1, *value[1:]]
        if any(isinstance(v, torch.SymInt) for v in (value if isinstance(value, (list, tuple)) else [value])):
            raise Unsupported(f"{operator} with an attribute that depends on the number of rows")
        return attribute_text(value)


class Exporter:
    """Writes one model. `stored` has the names of each parameter's tensors (Parameter), `floats` those of the weights that are
    never quantised: the head's, and what a quantised checkpoint has as floats."""

    def __init__(self, traced: Trace, stored: dict[str, tuple[str, ...]], floats: set[str]) -> None:
        self.traced = traced
        self.stored = stored
        self.floats = floats
        self.writer = LuaWriter()
        self.values: dict[Node, Any] = {}
        self.written: dict[tuple[str, str], Value] = {}  # parameters, by how they are read
        self.tables: dict[tuple[float, ...], str] = {}
        self.hidden = False
        self.caches = 0
        nodes = traced.gm.graph.nodes
        self.places = [n for n in nodes if n.op == "placeholder"]
        self.tokens, self.positions = self.places[-2:]
        self.known = self._known()
        self.own = {"attention": self._attention, "hidden": self._hidden, "route": self._route, "grouped": self._grouped,
                    "combine": self._combine}

    def build(self) -> str:
        """Returns the body of build()."""
        for node in self.traced.gm.graph.nodes:
            if node in self.known:
                continue  # written where it is read
            try:
                self._node(node)
            except Unsupported as why:
                raise Refused(f"{why}: the daemon cannot express it") from None
        return "".join("  " + s for s in self.writer.statements)

    # ---- what depends on positions alone ----

    def _known(self) -> dict[Node, bool]:
        """Returns the nodes that depend on buffers and positions alone; true: on positions."""
        known: dict[Node, bool] = {}
        for node in self.traced.gm.graph.nodes:
            if node is self.positions:
                known[node] = True
            elif node.op == "placeholder":
                name = self.traced.names[self.places.index(node)] if node is not self.tokens else ""
                if name and name not in self.stored and not isinstance(self.traced.tensors[name], torch.nn.Parameter):
                    known[node] = False
            elif node.op == "call_function" and not str(node.target).startswith(NAME):
                if str(node.target).startswith("aten.sym_size"):
                    continue
                read = [n for n in node.all_input_nodes if not str(n.target).startswith("aten.sym_size")]
                if all(n in known for n in read):
                    known[node] = any(known[n] for n in read)
            elif node.op == "get_attr":
                known[node] = False
        return known

    def _evaluate(self, node: Node, positions: torch.Tensor) -> Any:
        """Returns the value of a known node."""
        done: dict[Node, Any] = {self.positions: positions}

        def of(n: Node) -> Any:
            if n not in done:
                if n.op == "placeholder" and n is not self.tokens:
                    done[n] = self.traced.tensors[self.traced.names[self.places.index(n)]]
                elif n.op == "get_attr":
                    done[n] = getattr(self.traced.gm, n.target)
                elif str(n.target).startswith("aten.sym_size"):
                    done[n] = positions.shape[n.args[1]]
                else:
                    done[n] = n.target(*torch.fx.node.map_arg(n.args, of), **torch.fx.node.map_arg(n.kwargs, of))
            return done[n]
        return of(node)

    def _needed(self, node: Node) -> Any:
        """Returns the value of a node, and writes what is known in advance where it is first needed."""
        if node in self.values:
            return self.values[node]
        if node not in self.known:
            return node.meta.get("val")  # a size
        if not self.known[node]:
            self.values[node] = self._constant(node)
        elif str(node.target) in ("aten.cos.default", "aten.sin.default"):
            self.values[node] = self._turn(node)
        else:
            self._node(node)
        return self.values[node]

    def _constant(self, node: Node) -> Any:
        value = self._evaluate(node, torch.zeros((1, 1), dtype=torch.int64))
        if not isinstance(value, torch.Tensor):
            return value
        flat = value.reshape(-1)
        if not flat.numel() or not bool((flat == flat[0]).all()):
            raise Unsupported(f"a constant {list(value.shape)} of the code ({node.name})")
        meta = node.meta["val"]
        if any(isinstance(size, torch.SymInt) for size in meta.shape):
            raise Unsupported(f"a constant with a size that depends on the number of rows ({node.name})")
        return self.writer.full(meta.dtype, meta.shape, flat[0].item())

    def _turn(self, node: Node) -> Value:
        """Writes a cosine or sine of angles, which grow with the position, as a row of a table."""
        out = node.meta["val"]
        some = torch.cat([torch.arange(_ANGLES), torch.arange(_ANGLES) * 31 + _ANGLES])[:, None]
        angles = self._evaluate(node.args[0], some).to(torch.float32).reshape(len(some), -1)
        steps = angles[1]
        if angles.shape[1] != out[0].numel() or not torch.equal(some.to(torch.float32) * steps, angles):
            raise Unsupported(f"{node.target} of angles that do not grow with the position alone")
        half = len(steps) // 2
        halves = len(steps) % 2 == 0 and torch.equal(steps[:half], steps[half:])
        table = self._table(tuple((steps[:half] if halves else steps).tolist()))
        word = str(node.target).split(".")[1]
        w = self.writer
        width = len(steps) if halves else 2 * len(steps)
        row = w.op("aten.embedding", [Value(f"%{table}.{word}", torch.float32, ()), Value("%positions", torch.int32, ())],
                   torch.float32, (out.shape[0], width))
        if not halves:
            row = w.op("aten.slice.Tensor", [row], row.dtype, (out.shape[0], len(steps)), dim=1, start=0, end=len(steps))
        return w.reshape(row, out.shape)

    def _table(self, steps: tuple[float, ...]) -> str:
        if steps not in self.tables:
            if min(steps) <= 0:
                raise Unsupported("rotary frequencies of 0 or less")
            if len(self.tables) == 4:
                raise Unsupported("more than four kinds of rotary frequencies")
            self.tables[steps] = f"turns{len(self.tables) + 1}"
            shown = ", ".join(map(repr, steps))
            self.writer.call(f'rope("{self.tables[steps]}", {2 * len(steps)}, {{kind = "given", factors = {{{shown}}}}})')
        return self.tables[steps]

    # ---- nodes ----

    def _node(self, node: Node) -> None:
        if node.op == "placeholder":
            self.values[node] = self._placeholder(node)
        elif node.op == "output":
            self._output(node)
        elif node.target is operator.getitem:
            self.values[node] = self._needed(node.args[0])[node.args[1]]
        elif isinstance(node.meta.get("val"), (torch.SymInt, int)):
            self.values[node] = node.meta["val"]
        elif str(node.target).startswith("aten._assert"):
            self.values[node] = None
        elif str(node.target).startswith(NAME):
            self.values[node] = self.own[str(node.target).split(".")[1]](node)
        else:
            self.values[node] = self._operator(node)

    def _placeholder(self, node: Node) -> Any:
        w = self.writer
        if node in (self.tokens, self.positions):
            name = "%tokens" if node is self.tokens else "%positions"
            if not node.users:
                return None
            shape = node.meta["val"].shape
            w.rows = Value(name, torch.int32, shape[:1])
            return w.reshape(Value(name, torch.int32, shape[:1]), shape)
        name = self.traced.names[self.places.index(node)]
        if not node.users:
            return None
        if name not in self.stored:
            raise Refused(f"the checkpoint has no tensor for the parameter {name}")
        return Parameter(self.stored[name], tuple(node.meta["val"].shape))

    def _operator(self, node: Node) -> Any:
        name = str(node.target).removesuffix(".default")
        given = node.args[0] if node.args and isinstance(node.args[0], torch.fx.Node) else None
        value = self._needed(given) if given is not None else None
        if isinstance(value, Parameter):
            if len(value.shape) == 2 and (name == "aten.t" or name == "aten.permute" and list(node.args[1]) == [1, 0]):
                return dataclasses.replace(value, turned=not value.turned)
            if name in ("aten.alias", "aten.detach", "aten.clone"):
                return value
            if name == "aten.embedding":
                return self._lookup(node, value)
        if str(node.target) in _PRODUCTS:
            weight = self._needed(node.args[_PRODUCTS[str(node.target)]])
            if isinstance(weight, Parameter):
                return self._product(node, weight)
        handler = HANDLERS.get(name)
        if handler is None:
            raise Unsupported(f"there is no operator {name}")
        return written(self.writer, node, handler, self.values, self._value)

    def _value(self, node: Node) -> Any:
        value = self._needed(node)
        return self._read(value, "wide") if isinstance(value, Parameter) else value

    def _read(self, p: Parameter, how: str) -> Value:
        """Declares a tensor. how: wide, as f32; narrow, as it is."""
        if (p.name, how) not in self.written:
            value = self.writer.value(torch.float32, p.shape)
            shape = ", ".join(map(str, p.shape))
            self.writer.call(f'{how}("{value.name[1:]}", "{p.name}", {{{shape}}})')
            self.written[p.name, how] = value
        value = self.written[p.name, how]
        return self.writer.view("aten.t", value, p.shape[::-1]) if p.turned else value

    def _lookup(self, node: Node, table: Parameter) -> Value:
        w, out = self.writer, node.meta["val"]
        indices = self._value(node.args[1])
        value = w.value(torch.float32, out.shape)
        w.call(f'lookup("{value.name[1:]}", "{table.name}", {table.shape[0]}, {table.shape[1]}, "{indices.name}")')
        return value

    def _product(self, node: Node, weight: Parameter) -> Value:
        """x * w^T + b, as a linear of a checkpoint, which may be quantised; other products with the tensor as it is."""
        w, out = self.writer, node.meta["val"]
        bias = self._needed(node.args[0]) if len(node.args) == 3 else None
        x = self._value(node.args[-2] if bias is None else node.args[1])
        stem = weight.name.removesuffix(".weight")
        plain = not any(k in node.kwargs and node.kwargs[k] != 1 for k in ("beta", "alpha"))
        named = bias is None or isinstance(bias, Parameter) and bias.name == stem + ".bias"
        if weight.turned and stem != weight.name and named and plain:
            value = w.value(out.dtype, out.shape)
            rows, columns = weight.shape
            call = "plain_linear" if weight.name in self.floats else "whole_linear"
            w.call(f'{call}("{value.name[1:]}", "{x.name}", "{stem}", {rows}, {columns}, '
                   f'{"false" if bias is None else "true"})')
            return value
        matrix = self._read(weight, "narrow")
        y = w.op("aten.mm", [x, matrix], out.dtype, out.shape)
        if not plain:
            raise Unsupported("aten.addmm with factors")
        if bias is None:
            return y
        return w.op("aten.add.Tensor", [y, self._value(node.args[0])], out.dtype, out.shape)

    def _rows(self, x: Value) -> Value:
        """Turns heads of one token each, [rows, heads, 1, dim], to [rows, heads, dim]."""
        rows, heads, _, dim = x.shape
        turned = self.writer.view("aten.transpose.int", x, (rows, 1, heads, dim), dim0=1, dim1=2)
        return self.writer.reshape(turned, (rows, heads, dim))

    def _attention(self, node: Node) -> Value:
        w, out = self.writer, node.meta["val"]
        query, key, value = (self._rows(self._value(n)) for n in (node.args[0], *map(_unrepeated, node.args[1:3])))
        sinks, scale, window, cap = node.args[3:]
        heads, value_dim = query.shape[1], value.shape[2]
        dim = max(query.shape[2], value_dim)  # caches have heads of one size: zeros change neither scores nor sums
        query, key, value = (self._padded(x, dim) for x in (query, key, value))
        options = [f"heads = {heads}, kv_heads = {key.shape[1]}, dim = {dim}, scale = {scale!r}"]
        options += [f"window = {window}"] if window else []
        options += [f"cap = {cap!r}"] if cap else []
        if sinks is not None:
            given = self._needed(sinks)
            given = self._read(given, "narrow") if isinstance(given, Parameter) else self._value(sinks)
            options += [f'sinks = "{given.name}"']
        att = w.value(out.dtype, (out.shape[0], heads, dim))
        w.call(f'attend("{att.name[1:]}", "{query.name}", "{key.name}", "{value.name}", {{{", ".join(options)}}})')
        self.caches += 1
        if value_dim != dim:
            att = w.view("aten.slice.Tensor", att, (out.shape[0], heads, value_dim), dim=2, start=0, end=value_dim)
        return w.reshape(att, out.shape)

    def _padded(self, x: Value, dim: int) -> Value:
        more = dim - x.shape[2]
        if not more:
            return x
        return self.writer.op("aten.constant_pad_nd", [x], x.dtype, (*x.shape[:2], dim), pad=[0, more])

    def _route(self, node: Node) -> list[Value]:
        x, chosen = (self._value(n) for n in node.args[:2])
        outs = [(out.dtype, out.shape) for out in node.meta["val"]]
        return self.writer.node("npu.moe_init_routing_v2", [x, chosen], outs, expert_num=node.args[2])

    def _grouped(self, node: Node) -> Value:
        x, counts = (self._value(n) for n in node.args[:2])
        weights, bias, turned = [self._needed(n) for n in node.args[2]], node.args[3], node.args[4]
        names = weights[0].names if len(weights) == 1 else (_pattern([p.name for p in weights]),)
        out, (rows, columns) = node.meta["val"], weights[0].shape[-2:]
        if len(weights) == 1 and "%" not in names[0]:
            return self._stacked(x, counts, weights[0], self._needed(bias) if bias is not None else None, turned, out)
        if bias is not None or turned or rows % len(names) or not all(n.endswith(".weight") for n in names):
            raise Unsupported(f"experts with the tensors {', '.join(names)}")
        number = weights[0].shape[0] if len(weights) == 1 else len(weights)
        parts = [self.writer.value(out.dtype, (out.shape[0], rows // len(names))) for _ in names]
        for part, pattern in zip(parts, names, strict=True):
            self.writer.call(f'grouped("{part.name[1:]}", "{x.name}", "{counts.name}", {number}, '
                             f'"{pattern.removesuffix(".weight")}", {rows // len(names)}, {columns}, "whole")')
        return parts[0] if len(parts) == 1 else self.writer.op("aten.cat", parts, out.dtype, out.shape, dim=1)

    def _stacked(self, x: Value, counts: Value, weight: Parameter, bias: Parameter | None, turned: bool, out: Any) -> Value:
        value = self.writer.value(out.dtype, out.shape)
        shape, more = ", ".join(map(str, weight.shape)), f', "{bias.name}"' if bias is not None else ""
        self.writer.call(f'stacked("{value.name[1:]}", "{x.name}", "{counts.name}", "{weight.name}", {{{shape}}}, '
                         f'{"true" if turned else "false"}{more})')
        return value

    def _combine(self, node: Node) -> Value:
        out = node.meta["val"]
        y, scales, places = (self._value(n) for n in node.args)
        return self.writer.op("npu.moe_finalize_routing", [y, self.writer.cast(scales, torch.float32), places], out.dtype,
                              out.shape)

    def _hidden(self, node: Node) -> Value:
        w, out = self.writer, node.meta["val"]
        self.hidden = True
        x = w.reshape(self._value(node.args[0]), (out.shape[0], out.shape[-1]))
        picked = w.value(out.dtype, (out.shape[0], out.shape[-1]))
        w.call(f'local hidden_states = states("{picked.name[1:]}", "{x.name}")')
        w.call("if headless then return nil, hidden_states end")
        w.rows = None
        return w.reshape(picked, out.shape)

    def _output(self, node: Node) -> None:
        logits = node.args[0][0] if isinstance(node.args[0], (tuple, list)) else node.args[0]
        value = self._value(logits)
        if not self.hidden:
            raise Refused("its head does not read what the part below it returns")
        if len(value.shape) == 3:
            value = self.writer.reshape(value, (value.shape[0], value.shape[2]))
        self.writer.call(f'return "{value.name}", hidden_states')


def _unrepeated(node: Node) -> Node:
    """Returns keys or values before each head was repeated for the queries that share it: attention does that."""
    at: Node = node
    targets = ("view", "reshape", "_unsafe_view", "clone", "expand", "slice", "unsqueeze")
    repeated = node.meta["val"].shape
    while getattr(at, "op", "") == "call_function" and str(at.target).count(".") and str(at.target).split(".")[1] in targets:
        word = str(at.target).split(".")[1]
        below = at.args[0]
        if word == "unsqueeze":
            shape = below.meta["val"].shape
            fits = at.args[1] == 2 and len(shape) == 4 and shape[2:] == repeated[2:] and repeated[1] % shape[1] == 0
            return below if fits else node
        if word == "slice" and at.meta["val"].shape != below.meta["val"].shape:
            return node
        at = below
    return node


def _pattern(names: list[str]) -> str:
    """Returns a format that gives the name of each expert's tensor by its number, or "" """
    for at in range(len(names[0])):
        pattern = names[0][:at] + "%d" + names[0][at + 1:]
        if names[0][at] == "0" and all(pattern % n == name for n, name in enumerate(names)):
            return pattern
    return ""


def sizes_text(sizes: dict[str, Any]) -> str:
    """Returns a table of Lua."""
    return ", ".join(f"{k} = {size_text(v)}" for k, v in sizes.items())
