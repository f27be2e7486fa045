# SPDX-License-Identifier: Apache-2.0
"""Compiles one form of a function with Dynamo, and records what another process needs to make the same calls."""
from __future__ import annotations

import dataclasses
import os
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from .backend import Translation, compile_fx
from .digests import codes_of, of_code, of_file
from .entries import Argument, Form, described, settings, structure_of
from .options import Options
from .paths import Path, Unwalkable, path_of, walk
from .plain import Malformed
from .recompiles import tell_recompilation
from .shapes import Unsupported, condition_text, expression, plain_sizes

RECOMPILATIONS = 64  # forms of one function that Dynamo traces
_SETTINGS = {"specialize_float": True, "specialize_int": True, "recompile_limit": RECOMPILATIONS,
             "skip_nnmodule_hook_guards": False}
if hasattr(torch._dynamo.config, "skip_tensor_guards_with_matching_dict_tags"):  # PyTorch 2.9 misses parameter.data = other
    _SETTINGS["skip_tensor_guards_with_matching_dict_tags"] = False
_HERE = os.path.dirname(os.path.abspath(__file__))
_TORCH = os.path.dirname(os.path.abspath(torch.__file__))
# Guards on objects whose code is in a file that is compared.
_BY_FILE = {"CLOSURE_MATCH", "FUNCTION_MATCH", "TYPE_MATCH", "BUILTIN_MATCH", "CLASS_MATCH", "MODULE_MATCH", "WEAKREF_ALIVE"}
_OWN_GLOBALS = ("G['pytree']", "G['__builtins__']")
# Where transformers 5 notes which classes can return hidden states; it grows with each model that is imported.
_REGISTRY = "G['__import_transformers_dot_utils_dot_output_capturing']._CAN_RECORD_REGISTRY"


_CALL = (("item", "args"), ("item", "kwargs"))


class NotKept(Exception):
    """A form works, but cannot be kept for another process; the message says why."""


def _call(function: Any, owner: Any, args: Any, kwargs: Any) -> Any:
    if owner is None:
        return pytree.tree_flatten(function(*args, **kwargs))
    return pytree.tree_flatten(function(owner, *args, **kwargs))


class Recorder:
    """Compiles a function for the backend, once for each form. Its calls are right whether a form can be kept or not."""

    def __init__(self, options: Options, dynamic: bool | None, decompositions: Mapping[Any, Any]) -> None:
        self.options = options
        self.decompositions = decompositions
        code = _call.__code__.replace(co_name="npugraph_cached_call")  # Dynamo counts forms for each code object
        own = types.FunctionType(code, {"pytree": pytree, "__builtins__": __builtins__, "__name__": __name__})
        self.compiled = torch.compile(own, backend=self._backend, fullgraph=True, dynamic=dynamic)
        self.count = 0  # of compilations
        self.roots: dict[str, Any] = {}

    def call(self, roots: dict[str, Any]) -> tuple[Any, Form | None, str]:
        """Makes a call. Returns its result, and the form if Dynamo traced one that can be kept, or else why not."""
        self.roots, self.seen, self.why, before = roots, _Seen(), "", self.count
        try:
            with torch._dynamo.config.patch(_SETTINGS):
                leaves, structure = self.compiled(*(roots[name] for name in ("function", "owner", "args", "kwargs")))
            result = pytree.tree_unflatten(leaves, structure)
            if self.count == before:
                return result, None, ""
            if self.why:
                return result, None, self.why
            try:
                return result, self._form(leaves, structure), ""
            except NotKept as why:
                return result, None, str(why)
        finally:
            self.roots = {}

    def _backend(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.count += 1
        tell_recompilation()
        seen = self.seen = _Seen()
        try:
            _look(gm, self.roots, seen)
        except NotKept as why:
            self.why = str(why)
        compiled = compile_fx(gm, example_inputs, self.options, True, self.decompositions, seen.translations.append)
        if not self.why:
            try:
                _sizes(seen)
            except (NotKept, Unsupported) as why:
                self.why = str(why)

        def run(*args: Any) -> Any:
            outputs = compiled(*args)
            seen.given, seen.outputs = list(args), list(outputs)
            return outputs
        return run

    # ---- the form ----

    def _form(self, leaves: list[Any], structure: pytree.TreeSpec) -> Form:
        seen = self.seen
        if len(seen.translations) != 1:
            raise NotKept("the graph has no operators")
        program, metadata = seen.translations[0].program, seen.translations[0].metadata
        kinds = {str(info.output_type).split(".")[-1] for info in metadata.output_info}
        if seen.translations[0].unkept:
            raise NotKept(seen.translations[0].unkept)
        if not kinds <= {"non_alias", "unsafe_view_alias", "is_input"} or len(metadata.output_info) != len(program.outputs):
            raise NotKept("a result that is a view of an input, or an input whose shape changes")
        try:
            data = pytree.treespec_dumps(structure)
            structure_of(data)
        except (Malformed, NotImplementedError, TypeError, ValueError) as why:
            raise NotKept(f"the structure of the result: {why}") from None
        calls = [check for check in seen.checks if check[0][0] in _CALL]
        model = [check for check in seen.checks if check not in calls]
        program = dataclasses.replace(program, head="cached")
        return Form(program, seen.arguments, seen.symbols, seen.conditions, settings(self.roots["owner"]), model, calls, seen.same,
                    [self._leaf(leaf, seen) for leaf in leaves], data, seen.sources)

    def _leaf(self, leaf: Any, seen: _Seen) -> list[Any]:
        for kind, known in (("output", seen.outputs), ("argument", seen.given)):
            for k, value in enumerate(known):
                if value is leaf and isinstance(leaf, torch.Tensor):
                    return [kind, k]
        if isinstance(leaf, torch.Tensor):
            raise NotKept("a tensor in the result that is neither computed by the graph nor an argument of it")
        if leaf is None or isinstance(leaf, (bool, int, float, str)):
            if type(leaf) in (int, float) and not all(isinstance(o, torch.Tensor) for o in seen.outputs):
                raise NotKept("a number in the result that depends on sizes")
            return ["value", leaf]
        for path, _ in seen.checks:
            if walk(self.roots, path) is leaf:
                return ["path", path]
        raise NotKept(f"a {type(leaf).__name__} in the result that is not an argument")


class _Seen:
    """What is known of a compilation."""

    def __init__(self) -> None:
        self.arguments: list[Argument] = []
        self.examples: list[Any] = []  # fake tensors and symbols of the arguments
        self.symbols: dict[str, tuple[int, int]] = {}
        self.conditions: list[str] = []
        self.checks: list[tuple[Path, Any]] = []
        self.same: list[tuple[Path, Path]] = []
        self.sources: dict[str, str] = {}
        self.translations: list[Translation] = []
        self.shape_env: Any = None
        self.given: list[Any] = []
        self.outputs: list[Any] = []


def _name(source: Any) -> str:
    """Returns the name of a source of Dynamo's: a method before PyTorch 2.10, an attribute since."""
    name = source.name
    return str(name() if callable(name) else name)


def _look(gm: GraphModule, roots: dict[str, Any], seen: _Seen) -> None:
    """Reads from Dynamo, while it compiles, where arguments come from and what else the trace depends on."""
    from torch._dynamo.symbolic_convert import InstructionTranslator
    output = InstructionTranslator.current_tx().output
    seen.shape_env = output.shape_env
    if torch._C._len_torch_function_stack():
        raise NotKept("a mode for functions of PyTorch is active, such as a default device")
    _refuse_side_effects(output.side_effects)
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            source = getattr(node.meta.get("grapharg"), "source", None)
            try:
                seen.arguments.append(Argument(path_of(_name(source) if source else ""), None))
            except Unwalkable as why:
                raise NotKept(f"an argument of the graph that is no argument of the function: {why}") from None
            seen.examples.append(node.meta["example_value"])
    if next(gm.parameters(), None) is not None or next(gm.buffers(), None) is not None:
        raise NotKept("the graph has parameters that are not the model's")
    _guards(output.guards, output.global_scope, roots, seen)
    _traced(torch._guards.TracingContext.get().traced_code or [], roots, seen)


def _refuse_side_effects(effects: Any) -> None:
    changed = [v for v in effects.id_to_variable.values() if type(v).__name__ != "TorchFunctionModeStackVariable"
               and getattr(v.mutation_type, "scope", 1) == 0 and effects.is_modified(v) and not _is_reset(v)]
    tensors = [v for v in changed if type(v).__name__ == "TensorVariable"]
    if len(changed) > len(tensors) or effects.tensor_hooks:
        names = sorted({getattr(getattr(v, "value", v), "__class__", type(v)).__name__ for v in changed})
        raise NotKept(f"the call changes objects: {', '.join(names)}")


def _is_reset(variable: Any) -> bool:
    """Whether an object is changed for the time of a call: what transformers 5 collects hidden states with."""
    kind = type(getattr(variable, "value", None))
    return kind.__name__ == "CompileableContextVar" and kind.__module__.startswith("transformers.")


_INSTALLED = re.compile(r"G\['(_\d+_c\d+)'\]")


def _named(name: str, names: dict[str, Any]) -> str:
    """Returns the name of a guard, in which modules that Dynamo keeps under numbers have their names."""
    found = _INSTALLED.search(name)
    module = names.get(found[1]) if found else None
    if found is None or not isinstance(module, types.ModuleType):
        return name
    imported = module.__name__.replace(".", "_dot_")
    return name.replace(found[0], f"G['__import_{imported}']")


def _guards(guards: Any, names: dict[str, Any], roots: dict[str, Any], seen: _Seen) -> None:
    """Notes what Dynamo's guards compare, and the arguments, by paths that another process can walk."""
    inputs = {argument.path for argument in seen.arguments}
    checks: dict[Path, Any] = {}
    for name in ("args", "kwargs"):
        checks[(("item", name),)] = described(roots[name])
    for guard in guards:
        name = _named(guard.name, names)
        found = None if _is_compared_elsewhere(name) else _guarded(guard, name, checks, roots)
        if found is None:
            continue
        path, value = found
        if guard.create_fn_name() == "DUPLICATE_INPUT":
            _same(guard, path, value, seen)
        if not _of_torch(path):
            _check(guard, name, path, value, inputs, checks)
    seen.checks = sorted(checks.items(), key=repr)  # so that processes write equal files
    seen.same.sort(key=repr)


def _is_compared_elsewhere(name: str) -> bool:
    """Returns whether a guard is on settings, which are compared, on Python's builtins, or on what pytree or PyTorch registers."""
    return not name or name.startswith("G['__builtins_dict__") or any(
        part in name for part in ("_LEAF_SPEC", "SUPPORTED_NODES", _REGISTRY))


def _guarded(guard: Any, name: str, checks: dict[Path, Any], roots: dict[str, Any]) -> tuple[Path, Any] | None:
    """Returns the path and value that a guard is on. None: it is absent, or what a file that is compared says."""
    kind = guard.create_fn_name()
    try:
        path = path_of(name)
        if kind in _PRESENCE:
            _presence(guard, path, checks, roots)
        return path, walk(roots, path)
    except Unwalkable:
        if kind in _BY_FILE or name.startswith(_OWN_GLOBALS):
            return None
        raise NotKept(f"a guard on {name}") from None
    except (LookupError, AttributeError, TypeError):
        return None


def _check(guard: Any, name: str, path: Path, value: Any, inputs: set[Path], checks: dict[Path, Any]) -> None:
    """Notes what a value must be, unless it is an argument of the graph, which may be another."""
    if path not in inputs or path[0] in _CALL:
        checks[path] = described(value)
    if (guard.create_fn_name() == "ID_MATCH" and checks.get(path, [""])[0] == "object"
            and not isinstance(value, torch.nn.Module)):
        raise NotKept(f"the identity of an object, {name}")


_PRESENCE = {"HASATTR": "has", "NOT_PRESENT_IN_GENERIC_DICT": "own"}


def _presence(guard: Any, path: Path, checks: dict[Path, Any], roots: dict[str, Any]) -> None:
    """Notes whether there is an attribute. Versions of PyTorch say its name, or end the path with it."""
    attribute = getattr(guard.create_fn, "keywords", {}).get("attr")
    if attribute is None:
        path, (step, attribute) = path[:-1], path[-1]
        if step != "attribute":
            raise NotKept(f"a guard on an attribute, {guard.name}")
    own = (*path, (_PRESENCE[guard.create_fn_name()], attribute))
    if not _of_torch(own):
        checks[own] = described(walk(roots, own))


def _of_torch(path: Path) -> bool:
    """Returns whether a path is into PyTorch, which counts by its version."""
    return path[0][0] == "module" and path[0][1].split(".")[0] == "torch"


def _same(guard: Any, path: Path, value: Any, seen: _Seen) -> None:
    """Notes that two tensors are one: the graph has one argument for them."""
    other = getattr(guard.create_fn, "keywords", {}).get("source_b")
    if isinstance(value, torch.Tensor) and other is not None:
        try:
            seen.same.append((path, path_of(_name(other))))
        except Unwalkable as why:
            raise NotKept(f"a tensor that is given twice, as {why}") from None


def _traced(codes: Sequence[types.CodeType], roots: dict[str, Any], seen: _Seen) -> None:
    """Notes the files of the code that was traced. PyTorch's and this package's count by their versions."""
    known: set[str] | None = None  # code that counts by its bytecode
    for code in codes:
        path = os.path.abspath(code.co_filename)
        if path in seen.sources or path.startswith((_TORCH + os.sep, _HERE + os.sep)):
            continue
        digest = of_file(path)
        if digest is not None:
            seen.sources[path] = digest
            continue
        if code.co_filename == "<string>" and code.co_name.startswith("__"):  # made for a dataclass or a named tuple
            continue
        if code.co_filename.startswith("<frozen "):  # Python's own, by its version
            continue
        known = codes_of(roots["owner"], roots["function"]) if known is None else known
        if of_code(code) not in known:
            raise NotKept(f"code that is in no file: {code.co_name} of {code.co_filename}")
    seen.sources = dict(sorted(seen.sources.items()))


def _sizes(seen: _Seen) -> None:
    """Notes sizes, after AOTAutograd, which may add conditions on them."""
    metadata = seen.translations[0].metadata if seen.translations else None
    if metadata is None or len(seen.translations[0].program.outputs) != len(metadata.output_info):
        raise NotKept("the graph has no operators, or other results than the function's")
    if len(metadata.input_info) != len(seen.arguments):
        raise NotKept("arguments that share memory")
    for k, (argument, example) in enumerate(zip(seen.arguments, seen.examples, strict=True)):
        if isinstance(example, torch.Tensor):
            argument.dtype = example.dtype
            argument.shape, argument.stride = plain_sizes(example.shape), plain_sizes(example.stride())
            places = list(enumerate(example.shape))
        else:
            places = [(-1, example)]
        for dim, size in places:
            if isinstance(size, torch.SymInt) and expression(size).is_Symbol:
                seen.symbols.setdefault(str(expression(size)), (k, dim))
    _conditions(seen)


def _conditions(seen: _Seen) -> None:
    env, texts, used = seen.shape_env, [], set()
    for guard in env.guards:
        condition = guard.expr.xreplace(env.replacements)
        if str(condition) != "True":
            texts.append(condition_text(condition))
            used |= {str(symbol) for symbol in condition.free_symbols}
    for symbol, bounds in env.var_to_range.items():
        if str(symbol) in seen.symbols:
            for bound, sign in ((bounds.lower, ">="), (bounds.upper, "<=")):
                if bound.is_Integer:
                    texts.append(f"{symbol} {sign} {int(bound)}")
    if not used <= set(seen.symbols):
        raise NotKept(f"conditions on sizes that no argument has: {', '.join(sorted(used - set(seen.symbols)))}")
    for example in seen.examples:
        if not isinstance(example, (torch.Tensor, torch.SymInt)):
            raise NotKept(f"an argument that is a {type(example).__name__}")
    seen.conditions = list(dict.fromkeys(texts))
