# SPDX-License-Identifier: Apache-2.0
"""npugraph.torch.cache_compile: what another process starts with, what is compared, and files that are not trusted."""
from __future__ import annotations

import enum
import json
import os
import pathlib
import stat
import subprocess
import sys
import types
import urllib.request
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import PATIENCE, Daemon

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import npugraph.torch as backend  # noqa: E402
from npugraph import Error  # noqa: E402
from npugraph.torch import CacheWarning, NotCapturable, cache_compile, readable_cache  # noqa: E402
from npugraph.torch.plain import program_data, program_of  # noqa: E402
from npugraph.torch.shapes import computed  # noqa: E402


@pytest.fixture(autouse=True)
def fresh(daemon: Daemon) -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        warnings.filterwarnings("error", ".*LeafSpec", FutureWarning)
        yield
    backend.forget()


class Model(nn.Module):
    """Writes a cache that is inside an object, and returns a dictionary with it."""

    def __init__(self, scale: float = 2.0) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 4), scale

    def forward(self, x: Any, cache: Any = None, *, flag: bool = False) -> Any:
        y = self.layer(x) * self.scale
        if cache is not None:
            cache.rows[0:1] = y[:1]
        return {"y": y + 1 if flag else y, "cache": cache, "pair": (x, "text", None)}


class Cache:
    def __init__(self) -> None:
        self.rows = torch.zeros(3, 4)
        self.limit = 3


def same(got: Any, want: Any) -> None:
    assert got.keys() == want.keys()
    torch.testing.assert_close(got["y"], want["y"], rtol=0, atol=1e-6)
    assert got["cache"] is want["cache"] or isinstance(got["cache"], Cache)
    assert got["pair"][0] is want["pair"][0] and got["pair"][1:] == want["pair"][1:]


def files(cached: Any) -> list[pathlib.Path]:
    return sorted(pathlib.Path(cached.path).glob("compiled_module.*.json"))


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_coo])
def test_sparse_tensors_are_refused_by_dynamo(tmp_path: pathlib.Path, layout: Any) -> None:
    """They have no strides to compare with those of a form."""
    cached = cache_compile(lambda matrix, x: matrix @ x, cache_dir=tmp_path)
    matrix, x = torch.eye(4), torch.randn(4, 4)
    assert torch.equal(cached(matrix, x), x)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="sparse Tensor"):
        cached(matrix.to_sparse(layout=layout), x)
    assert torch.equal(cached(matrix, x), x) and cached.traced == 1


def test_a_second_object_traces_nothing(tmp_path: pathlib.Path) -> None:
    model = Model()
    first = cache_compile(model, cache_dir=tmp_path)
    for rows in (2, 5, 7):
        x = torch.randn(rows, 4)
        same(first(x), model(x))
    assert (first.traced, first.loaded, len(files(first))) == (1, 0, 1)
    second = cache_compile(model, cache_dir=tmp_path)
    for rows in (3, 6):
        x = torch.randn(rows, 4)
        same(second(x), model(x))
    assert (second.traced, second.loaded) == (0, 1)
    model.layer.weight.mul_(2)
    same(second(x), model(x))
    model.load_state_dict({"layer.weight": torch.randn(4, 4), "layer.bias": torch.randn(4)}, assign=True)
    same(second(x), model(x))
    assert second.traced == 0


def test_forms_are_kept_apart(tmp_path: pathlib.Path) -> None:
    model, x = Model(), torch.randn(2, 4)
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((x,), {}), ((x,), {"flag": True}), ((x[:1],), {}), ((x, Cache()), {}), ((x,), {"cache": Cache()}),
        ((torch.randn(4, 2).t(),), {})]
    for traced in (len(calls), 0):
        cached = cache_compile(model.forward, cache_dir=tmp_path)
        for _ in range(2):
            for args, kwargs in calls:
                same(cached(*args, **kwargs), model(*args, **kwargs))
        assert cached.traced == traced
    assert len(files(cached)) == len(calls)


def test_states_are_the_callers(tmp_path: pathlib.Path) -> None:
    model = Model()
    for _ in range(2):
        cached, here, there = cache_compile(model.forward, cache_dir=tmp_path), Cache(), Cache()
        for step in range(4):
            x = torch.randn(2, 4)
            if step == 2:  # what other code writes counts
                here.rows += 1
                there.rows += 1
            got = cached(x, here)
            same(got, model(x, there))
            assert got["cache"] is here
            torch.testing.assert_close(here.rows, there.rows, rtol=0, atol=1e-6)
    assert cached.traced == 0


def test_a_dimension_that_is_counted_from_the_end(tmp_path: pathlib.Path) -> None:
    def function(state: Any, at: Any, row: Any) -> Any:
        return state.index_copy_(-2, at, row).sum()
    for _ in range(2):
        cached, state = cache_compile(function, cache_dir=tmp_path), torch.zeros(3, 4)
        assert cached(state, torch.tensor([1]), torch.ones(1, 4)) == 4 and state[1].tolist() == [1] * 4
    assert cached.traced == 0


def test_calls_that_do_not_have_the_form(tmp_path: pathlib.Path) -> None:
    def step(state: Any, x: Any, y: Any) -> Any:
        state.add_(1)
        return x * 2 + y
    cached = cache_compile(step, cache_dir=tmp_path, dynamic=False)
    cached(torch.zeros(2), torch.ones(2), torch.ones(2))
    [entry], memory, one = cached.entries, torch.zeros(4), torch.ones(2)

    def matches(*args: Any) -> bool:
        return entry.match({"function": step, "owner": None, "args": args, "kwargs": {}}) is not None
    assert matches(memory[:2], one, torch.ones(2))
    assert matches(memory[:2], one, memory[2:]) is False  # which may overlap the state
    assert not matches(one, one, torch.ones(2)) and not matches(memory[1:3], memory[:2], one)
    assert not matches(memory, one, one) and not matches(memory[:2], one.double(), one)
    assert not matches(memory[:2], one) and not matches(memory[:2], one, 3) and not matches(memory[:2], one, one.to("meta"))
    with torch.autocast("cpu"):
        assert not matches(memory[:2], one, torch.ones(2))
    with torch.enable_grad():
        assert not matches(memory[:2], one, torch.ones(2).requires_grad_())
    assert matches(memory[:2], one, torch.ones(2))


@pytest.mark.parametrize("change", ["code", "attribute", "options", "dtype", "settings", "dynamic"])
def test_what_a_translation_depends_on(tmp_path: pathlib.Path, change: str) -> None:
    model, x = Model(), torch.randn(2, 4)
    first = cache_compile(model, cache_dir=tmp_path)
    first(x)
    assert first.traced == 1
    how: dict[str, Any] = {}
    if change == "code":
        model.forward = lambda x: {"y": x * 3, "cache": None, "pair": (x, "text", None)}
    elif change == "attribute":
        model.scale = 3.0
    elif change == "options":
        how["options"] = {"remove_noop_ops": False}
    elif change == "dtype":
        model, x = model.bfloat16(), x.bfloat16()
    elif change == "dynamic":
        how["dynamic"] = False
    with torch.autocast("cpu", torch.bfloat16, enabled=change == "settings"):
        second = cache_compile(model, cache_dir=tmp_path, **how)
        got, want = second(x), model(x)
    assert second.traced == 1
    torch.testing.assert_close(got["y"], want["y"], rtol=2e-2, atol=2e-2)


def test_a_source_that_changed(tmp_path: pathlib.Path) -> None:
    module = tmp_path / "helper_of_test_cache.py"
    module.write_text("def double(x):\n    return x * 2\n")
    sys.path.insert(0, str(tmp_path))
    try:
        import helper_of_test_cache as helper  # type: ignore[import-not-found]

        def function(x: Any) -> Any:
            return helper.double(x)
        first = cache_compile(function, cache_dir=tmp_path)
        assert first(torch.ones(2)).tolist() == [2, 2]
        again = cache_compile(function, cache_dir=tmp_path)
        assert again(torch.ones(2)).tolist() == [2, 2] and again.traced == 0
        module.write_text("def double(x):\n    return x * 2.0\n")
        with pytest.warns(CacheWarning, match=r"helper_of_test_cache\.py has changed"):
            last = cache_compile(function, cache_dir=tmp_path)
            assert last(torch.ones(2)).tolist() == [2, 2]
        assert last.traced == 1 and len(files(last)) == 1
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("helper_of_test_cache", None)


def test_training_is_compared_at_each_call(tmp_path: pathlib.Path) -> None:
    class Halves(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 3 if self.training else x / 2
    model, x = Halves().eval(), torch.ones(2)
    for _ in range(2):
        cached = cache_compile(model, cache_dir=tmp_path)
        assert cached(x).tolist() == [0.5, 0.5]
        model.train()
        assert cached(x).tolist() == [3, 3]
        model.eval()
        assert cached(x).tolist() == [0.5, 0.5]
    assert cached.traced == 0


def test_numbers_and_truth_are_not_mixed_up(tmp_path: pathlib.Path) -> None:
    def function(x: Any, by: Any) -> Any:
        return x + 1 if by is True else x * by
    cached, x = cache_compile(function, cache_dir=tmp_path), torch.full((2,), 5.0)
    assert cached(x, True).tolist() == [6, 6] and cached(x, 1).tolist() == [5, 5] and cached(x, 1.0).tolist() == [5, 5]


class Mode(enum.Enum):
    ADD = 1
    SUBTRACT = 2


class Plain:
    def __init__(self, **own: Any) -> None:
        vars(self).update(own)


def times(by: float) -> Callable[[Any], Any]:
    return lambda x: x * by


@pytest.mark.parametrize(("function", "given"), [
    (lambda x, mode: x + 1 if mode is Mode.ADD else x - 1, list(Mode)),
    (lambda x, dtype: (x / 3).to(dtype), [torch.float16, torch.bfloat16]),
    (lambda x, apply: apply(x) + 1, [torch.relu, torch.tanh, times(2.0), times(3.0)]),
    (lambda x, words: x * (2 if "a" in words else 3), [{"a"}, {"b"}, frozenset("a"), frozenset("b")]),
    (lambda x, by: x * (2 if by == b"a" else by.real if by != b"b" else 3), [b"a", b"b", 2 + 1j, 3 + 1j]),
    (lambda x, size: x.reshape(size) * 2, [torch.Size([2, 3]), torch.Size([3, 2])]),
    (lambda x, setting: x * getattr(setting, "by", 2.0), [Plain(), Plain(by=3.0)]),
    (lambda x, y: x * 2 if y.requires_grad else x * 3, [torch.ones(1), torch.ones(1).requires_grad_()]),
    (lambda x, y: x * 2 if isinstance(y, nn.Parameter) else x * 3, [torch.ones(1), nn.Parameter(torch.ones(1), False)]),
    (lambda x, y: x * 2 if torch.is_grad_enabled() else x * 3, [0, True]),
], ids=["enum", "dtype", "function", "set", "constant", "size", "attribute", "gradient", "parameter", "mode"])
def test_what_an_argument_says(tmp_path: pathlib.Path, function: Any, given: list[Any]) -> None:
    """Whatever the function may ask of an argument, or of PyTorch, tells calls apart: in this process and in others."""
    for _ in range(2):
        cached = cache_compile(function, cache_dir=tmp_path, dynamic=False)
        for value in given * 2:
            with torch.set_grad_enabled(value is True):
                torch.testing.assert_close(cached(torch.ones(6), value), function(torch.ones(6), value))
        given = given[::-1]


@pytest.mark.parametrize("change", [
    lambda c: setattr(c, "limit", 4), lambda c: setattr(c, "limit", True), lambda c: setattr(c, "rows", torch.ones(3, 4)),
    lambda c: c.rows.resize_(2, 4), lambda c: setattr(c, "more", 1.0), lambda c: setattr(c, "rows", c.rows.bfloat16()),
    lambda c: c.parts.append(torch.ones(4)), lambda c: c.parts.__setitem__(0, torch.full((4,), 3.0)), lambda c: c.rows.add_(1),
], ids=["number", "type", "tensor", "size", "attribute", "dtype", "list", "part", "contents"])
def test_an_argument_that_changes(tmp_path: pathlib.Path, change: Any) -> None:
    """What is inside an argument that is given again is compared."""
    def function(x: Any, cache: Any) -> Any:
        y = x * cache.limit * (2 if cache.limit is True else 1) + cache.rows.sum() + getattr(cache, "more", 0.0)
        for part in cache.parts:
            y = y + part
        cache.rows[0:1] = x[:1]
        return y.float()

    def of(shift: float) -> Cache:
        cache = Cache()
        cache.limit, cache.parts = 1, [torch.ones(4)]  # type: ignore[attr-defined]
        cache.rows += shift
        return cache
    caches, wanted = [of(0), of(1)], [of(0), of(1)]
    cached, x = cache_compile(function, cache_dir=tmp_path), torch.randn(2, 4)

    def compare() -> None:
        for cache, want in zip(caches, wanted, strict=True):
            torch.testing.assert_close(cached(x, cache), function(x, want))
            torch.testing.assert_close(cached(x, cache), function(x, want))
            torch.testing.assert_close(cache.rows, want.rows)
    compare()
    compare()
    for cache in (caches[1], wanted[1]):
        change(cache)
    compare()


def test_a_call_after_one_that_failed(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    """The failed call has bound nothing: the next one, with the same cache, must not use the cache before it."""
    def function(x: Any, cache: Any) -> Any:
        cache.rows[0:1] = x[:1]
        return x + cache.rows.sum()
    caches, x = [Cache(), Cache()], torch.ones(2, 4)
    caches[1].rows += 1
    cached = cache_compile(function, cache_dir=tmp_path)
    for _ in range(3):
        torch.testing.assert_close(cached(x, caches[0]), x + 4)
    while caches[1].rows._version < caches[0].rows._version:
        caches[1].rows += 0
    with monkeypatch.context() as patched:
        patched.setattr(cached.entries[0].runner, "_call", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            cached(x, caches[1])
    torch.testing.assert_close(cached(x, caches[1]), x + 12)
    torch.testing.assert_close(cached(x, caches[0]), x + 4)


def test_a_model_that_is_frozen(tmp_path: pathlib.Path) -> None:
    """The option frozen_model leaves out what it says, and no more: arguments are compared."""
    model, x = Model(), torch.randn(2, 4)
    cached = cache_compile(model, cache_dir=tmp_path, options={"frozen_model": True})
    was = model(x)["y"]
    for _ in range(3):
        torch.testing.assert_close(cached(x)["y"], was)
    model.scale = 3.0
    torch.testing.assert_close(cached(x)["y"], was)
    torch.testing.assert_close(cached(x, flag=True)["y"], model(x, flag=True)["y"])
    assert cached.traced == 2


def test_one_tensor_as_two_arguments(tmp_path: pathlib.Path) -> None:
    def function(x: Any, y: Any) -> Any:
        return x * 2 if x is y else x * 3 + y
    cached, x, y = cache_compile(function, cache_dir=tmp_path), torch.ones(2), torch.ones(2)
    assert [cached(*pair).tolist() for pair in ((x, y), (x, x), (x, y))] == [[4, 4], [2, 2], [4, 4]]


SCALE = 2.0


def test_globals_and_closures_are_compared_at_each_call(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    by = 2.0

    def function(x: Any) -> Any:
        return x * by + SCALE
    for _ in range(2):
        by = 2.0
        monkeypatch.setattr(sys.modules[__name__], "SCALE", 2.0)
        cached = cache_compile(function, cache_dir=tmp_path)
        assert cached(torch.ones(2)).tolist() == [4, 4]
        by = 3.0
        assert cached(torch.ones(2)).tolist() == [5, 5]
        monkeypatch.setattr(sys.modules[__name__], "SCALE", 4.0)
        assert cached(torch.ones(2)).tolist() == [7, 7]


@pytest.mark.parametrize("change", [
    lambda m: setattr(m, "scale", 3.0), lambda m: setattr(m, "act", torch.tanh), lambda m: m.words.add("b"),
    lambda m: setattr(m.setting, "by", 4.0), lambda m: m.drop.train(), lambda m: m.layer.register_forward_hook(lambda *a: a[2] * 2),
    lambda m: m.layer.register_parameter("bias", None), lambda m: m.factors.append(3.0),
    lambda m: (setattr(m.layer, "_forward_hooks", OrderedDict()), m.layer.register_forward_hook(lambda *a: a[2] * 2)),
    lambda m: setattr(m, "layer", nn.Linear(4, 4)), lambda m: setattr(m.layer, "weight", nn.Parameter(m.layer.weight * 2)),
    lambda m: setattr(m.layer.weight, "data", m.layer.weight.data.t()), lambda m: setattr(m, "setting", Plain(by=5.0)),
    lambda m: setattr(m.layer, "forward", lambda x: x * 3), lambda m: setattr(m, "scale", True),
], ids=["number", "function", "set", "absent", "training", "hook", "bias", "list", "hooks", "module", "parameter", "transposed",
        "object", "forward", "type"])
def test_a_model_that_changes(tmp_path: pathlib.Path, change: Any) -> None:
    class Changing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.drop, self.scale, self.act = nn.Linear(4, 4), nn.Dropout(0.0), 2.0, torch.relu
            self.words, self.setting, self.factors = {"a"}, Plain(), [2.0]

        def forward(self, x: Any) -> Any:
            x = self.act(self.layer(x) * self.scale) * getattr(self.setting, "by", 1.0)
            for factor in self.factors:
                x = x * factor
            return x + ("b" in self.words) + self.drop.training
    model, x = Changing().eval(), torch.randn(2, 4)
    cached = cache_compile(model, cache_dir=tmp_path)
    for _ in range(3):  # traced, compared in full, and compared with the last call
        torch.testing.assert_close(cached(x), model(x))
    change(model)
    torch.testing.assert_close(cached(x), model(x))
    torch.testing.assert_close(cache_compile(model, cache_dir=tmp_path)(x), model(x))


# ---- what is not kept -----------------------------------------------------------------------------------------------

class Lazy:
    rows: Any = None
    calls = 0


def changes(x: Any, lazy: Lazy) -> Any:
    lazy.calls += 1
    return x * 2


@pytest.mark.parametrize(("function", "args"), [
    (changes, lambda: (torch.ones(3), Lazy())),
    (lambda x: (x * 2, x.view(-1)), lambda: (torch.ones(2, 3),)),
    (lambda x: (x * 2, x.shape[0] + 1), lambda: (torch.ones(4, 3),)),
], ids=["object", "view", "size"])
def test_what_is_not_kept_runs(tmp_path: pathlib.Path, function: Any, args: Callable[[], Any]) -> None:
    cached, given = cache_compile(function, cache_dir=tmp_path), args()
    for _ in range(2):
        got, want = cached(*given), function(*args())
        torch.testing.assert_close(got, want)
    assert not files(cached)
    if function is changes:
        assert given[1].calls == 2


def test_code_that_is_in_no_file(tmp_path: pathlib.Path) -> None:
    names = vars(sys.modules.setdefault("made_by_test_cache", types.ModuleType("made_by_test_cache")))
    exec(compile("def helper(x):\n    return x * 2\ndef outer(x):\n    return helper(x)\n", "<made>", "exec"), names)
    for name, kept in (("helper", 1), ("outer", 0)):  # bytecode of the function itself is in the key
        cached = cache_compile(names[name], cache_dir=tmp_path)
        assert cached(torch.ones(2)).tolist() == [2, 2] and len(files(cached)) == kept


def test_gradients_and_missing_operators_are_refused(tmp_path: pathlib.Path) -> None:
    model, x = Model(), torch.randn(2, 4)
    cached = cache_compile(model, cache_dir=tmp_path)
    cached(x)
    with torch.enable_grad(), pytest.raises(Exception, match="no_grad") as caught:
        cached(x)
    assert NotCapturable.__name__ in str(caught.value)
    with pytest.raises(Exception, match=r"aten\.erfinv"):
        cache_compile(lambda x: torch.special.erfinv(x), cache_dir=tmp_path)(x)
    with pytest.raises(TypeError, match="options="):
        cache_compile(model, config=object(), cache_dir=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="neither a model"):
        cache_compile(3, cache_dir=tmp_path)


# ---- files ----------------------------------------------------------------------------------------------------------

def test_files_are_private_and_readable(tmp_path: pathlib.Path, capsys: Any) -> None:
    model = Model()
    cached = cache_compile(model.forward, cache_dir=tmp_path, global_rank=1, tp_rank=0, options={"frozen_parameter": True})
    cached(torch.randn(2, 4), Cache())
    [file] = files(cached)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert file.parts[-3] == "world1global_rank1_tp_rank0" and file.parts[-4].startswith("Model_dynamic_npugraphcache_")
    out = tmp_path / "text"
    shown = readable_cache(file, file=out)
    assert capsys.readouterr().out == shown == out.read_text() and stat.S_IMODE(out.stat().st_mode) == 0o600
    for part in ("frozen_parameter=True", "owner._modules['layer']._parameters['weight']", "float32[3, 4]", "aten.addmm",
                 "args[1].rows", f"torch: {torch.__version__}"):
        assert part in shown
    assert readable_cache(file, print_output=False) == shown and not capsys.readouterr().out
    with pytest.raises(ValueError, match="damaged"):
        readable_cache(out)
    link = tmp_path / "link"
    link.symlink_to(file)
    with pytest.raises(OSError, match="link"):
        readable_cache(link)


def test_where_files_are(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("NPUGRAPH_CACHE_HOME", raising=False)
    monkeypatch.delenv("TORCHAIR_CACHE_HOME", raising=False)
    assert cache_compile(Model()).path.startswith(str(tmp_path / "xdg" / "npugraph"))
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(tmp_path / "air"))
    assert cache_compile(Model()).path.startswith(str(tmp_path / "air"))
    monkeypatch.setenv("NPUGRAPH_CACHE_HOME", str(tmp_path / "own"))
    assert cache_compile(Model()).path.startswith(str(tmp_path / "own"))


def damage(kind: str, file: pathlib.Path) -> None:
    head, _, body = file.read_bytes().partition(b"\n")
    data = json.loads(body)
    form = data["entry"]["form"]
    if kind == "truncated":
        file.write_bytes(head + b"\n" + body[:-10])
    elif kind == "flipped":
        file.write_bytes(head + b"\n" + body.replace(b"aten.", b"atem.", 1))
    elif kind == "empty":
        file.write_bytes(b"")
    elif kind == "deep":
        rewrite(file, b"[" * 200000)
    elif kind == "open":
        file.chmod(0o666)
    elif kind == "link":
        file.rename(file.with_name("other"))
        file.symlink_to(file.with_name("other"))
    elif kind == "fifo":
        file.unlink()
        os.mkfifo(file, 0o600)
    else:
        if kind == "foreign":
            data["entry"]["key"]["torch"] = "0"
        elif kind == "argument":
            form["program"]["params"][0] = 99
        elif kind == "output":
            form["program"]["places"] = [7]
        elif kind == "result":
            form["leaves"][0] = ["output", 9]
        elif kind == "expression":
            form["conditions"] = ["__import__('os').system('true') == 0"]
        elif kind == "type":
            form["structure"] = form["structure"].replace("builtins.dict", "subprocess.Popen")
        elif kind == "path":
            form["arguments"][0]["path"] = [["call", "system"]]
        elif kind == "graph":
            form["program"]["body"][0] = "  nonsense"
        rewrite(file, json.dumps(data).encode())


def rewrite(file: pathlib.Path, body: bytes) -> None:
    import hashlib
    head = json.dumps({"npugraph cache": 1, "sha256": hashlib.sha256(body).hexdigest()}).encode()
    file.write_bytes(head + b"\n" + body)


@pytest.mark.parametrize("kind", ["truncated", "flipped", "empty", "deep", "open", "link", "fifo", "foreign", "argument",
                                  "output", "result", "expression", "type", "path"])
def test_bad_files_are_compiled_again(tmp_path: pathlib.Path, kind: str) -> None:
    model, x = Model(), torch.randn(2, 4)
    first = cache_compile(model, cache_dir=tmp_path)
    first(x)
    damage(kind, files(first)[0])
    second = cache_compile(model, cache_dir=tmp_path)
    with pytest.warns(CacheWarning, match="is not used"):
        same(second(x), model(x))
    assert second.traced == 1
    third = cache_compile(model, cache_dir=tmp_path)
    same(third(x), model(x))
    assert third.traced == 0


def test_a_graph_that_the_daemon_refuses(tmp_path: pathlib.Path) -> None:
    model, x = Model(), torch.randn(2, 4)
    first = cache_compile(model, cache_dir=tmp_path)
    first(x)
    damage("graph", files(first)[0])
    second = cache_compile(model, cache_dir=tmp_path)
    with pytest.warns(CacheWarning, match="the daemon refuses"):
        same(second(x), model(x))
    assert second.traced == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_other_users(tmp_path: pathlib.Path) -> None:
    model, x = Model(), torch.randn(2, 4)
    first = cache_compile(model, cache_dir=tmp_path)
    first(x)
    os.chown(files(first)[0], 65534, 65534)
    second = cache_compile(model, cache_dir=tmp_path)
    with pytest.warns(CacheWarning, match="belongs to user 65534"):
        same(second(x), model(x))
    assert second.traced == 1


def test_a_folder_that_cannot_be_written(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    model, x = Model(), torch.randn(2, 4)
    cached = cache_compile(model, cache_dir=tmp_path / "file")
    with pytest.warns(CacheWarning, match="Not a directory"):
        same(cached(x), model(x))
    same(cached(x), model(x))


@pytest.mark.parametrize("text", ["__import__('os')", "s0.real", "s0 ** s0", "(lambda: 1)()", "s1", "min(s0)", "'a' * s0", "1.5",
                                  "min(s0, s0, key=s0)", "[s0 for s0 in s0]", "(" * 3000, "s0" * 4000, "", "s0 if s0 else 1"])
def test_only_sizes_are_computed(text: str) -> None:
    with pytest.raises(ValueError, match="expression of"):
        computed(text, ["s0"])


def test_sizes_are_computed() -> None:
    assert computed("floordiv((s0 + 3), 2)*-1 + mod(s0, 4) + max(s0, min(2, s1))", ["s0", "s1"])({"s0": 6, "s1": 9}) == 4
    assert computed("s0 >= 2 and (s0 != 3 or not s0 == 3)", ["s0"])({"s0": 2}) == 1


def test_programs_are_plain_data() -> None:
    seen: list[Any] = []

    def capture(translation: Any) -> None:
        seen.append(translation.program)
    from npugraph.torch.backend import compile_fx
    from npugraph.torch.options import parse_options

    def function(x: Any, state: Any) -> Any:
        state[:1] = x[:1]
        return x + torch.tensor([1.0, 2.0]), x.sum(0), 3
    torch.compile(function, fullgraph=True, dynamic=True, backend=lambda gm, inputs: compile_fx(
        gm, inputs, parse_options(None), True, translated=capture))(torch.ones(3, 2), torch.ones(3, 2))
    data = json.loads(json.dumps(program_data(seen[0])))
    again = program_of(data)
    assert program_data(again) == program_data(seen[0])
    assert again.constants[0].tolist() == [1, 2]
    [update] = data["updates"]
    for change in ({"output": 9}, {"computed": 0}, {"index": 0}, {"kind": "rows"}, {"kind": "rows", "index": 0, "computed": 0},
                   {"kind": "rows", "computed": 9}, {"kind": "resident"}, {"argument": 0},
                   {"kind": "rows", "index": update["argument"]}):
        with pytest.raises(ValueError):
            program_of({**data, "updates": [{**update, **change}]})


def test_states_after_a_call_that_failed(tmp_path: pathlib.Path) -> None:
    """The device may have changed a state when it fails: the caller's counts, for another form of the function too."""
    def append(cache: Any, at: Any, place: Any, row: Any, double: bool) -> Any:
        cache.index_copy_(0, at, row)
        return cache.sum() * (2 if double else 1) + cache.index_select(0, place).sum() * 0
    cached = cache_compile(append, cache_dir=tmp_path)
    cache, row = torch.zeros(8, 3), torch.ones(1, 3)
    for step in range(2):
        for double in (False, True):
            cached(cache, torch.tensor([step]), torch.tensor([0]), row, double)
    with pytest.raises(Error, match="INDEX_RANGE"):
        cached(cache, torch.tensor([5]), torch.tensor([99]), row, False)
    assert cached(cache, torch.tensor([3]), torch.tensor([0]), row, True) == 18
    assert cached(cache, torch.tensor([3]), torch.tensor([0]), row, False) == cache.sum() == 9


# ---- processes ------------------------------------------------------------------------------------------------------

PROCESS = """
import sys
import torch, transformers, npugraph.torch
torch.manual_seed(1)
config = transformers.Qwen3Config(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
                                  num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=64)
model = transformers.Qwen3ForCausalLM(config).eval()
def cache():
    made = transformers.StaticCache(config=config, max_cache_len=16)
    made.early_initialization(1, 2, 8, torch.float32, "cpu")
    return made
with torch.no_grad():
    def call(function, cache, tokens, positions):
        return function(torch.tensor([tokens]), past_key_values=cache, cache_position=torch.tensor(positions)).logits
    mine, theirs = cache(), cache()
    fast = npugraph.torch.cache_compile(model.forward, cache_dir=sys.argv[1])
    got = call(fast, mine, [1, 2, 3], [0, 1, 2])
    assert torch.allclose(got, call(model, theirs, [1, 2, 3], [0, 1, 2]), atol=1e-5)
    for position in (3, 4):
        assert torch.allclose(call(fast, mine, [7], [position]), call(model, theirs, [7], [position]), atol=1e-5)
print(fast.traced, fast.loaded)
"""


def plans(daemon: Daemon) -> dict[str, int]:
    address = daemon.log.read_text(errors="replace").split("statistics on http://")[1].split("/")[0]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE) as answer:
        lines = answer.read().decode().splitlines()
    named = [line for line in lines if line.startswith("npugraphd_graph_plans_total{")]
    return {line.split('source="')[1].split('"')[0]: int(float(line.split()[-1])) for line in named}


def run(daemon: Daemon, folder: pathlib.Path, program: str = PROCESS) -> tuple[int, int]:
    ran = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, check=False,
                         env={**os.environ, "NPUGRAPH_ADDRESS": daemon.address})
    assert ran.returncode == 0, ran.stderr
    traced, loaded = ran.stdout.split()
    return int(traced), int(loaded)


def test_the_second_process_traces_nothing_and_runs_no_pass(tmp_path: pathlib.Path) -> None:
    """Also behind a new daemon, which has the plans in its store."""
    pytest.importorskip("transformers")
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    first = Daemon(tmp_path, f"--store-dir={store}")
    slow = run(first, tmp_path / "kept")
    assert slow == (2, 0) and plans(first)["passes"] == 2
    first.stop()
    (tmp_path / "s").unlink(missing_ok=True)
    second = Daemon(tmp_path, f"--store-dir={store}")
    fast = run(second, tmp_path / "kept")
    assert fast == (0, 2)
    made = plans(second)
    second.stop()
    assert made.get("passes", 0) == 0 and made["store"] == 2


SMALL = """
import sys
import torch, npugraph.torch
torch.manual_seed(1)
layer = torch.nn.Linear(4, 4)
with torch.no_grad():
    fast = npugraph.torch.cache_compile(layer, cache_dir=sys.argv[1])
    for rows in (1, 2, 3):
        assert torch.allclose(fast(torch.ones(rows, 4)), layer(torch.ones(rows, 4)), atol=1e-6)
print(fast.traced, fast.loaded)
"""


def test_two_processes_at_once(tmp_path: pathlib.Path, daemon: Daemon) -> None:
    started = [subprocess.Popen([sys.executable, "-c", SMALL, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=dict(os.environ)) for _ in range(2)]
    for process in started:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert out.split()[0] in ("0", "1", "2")
    assert run(daemon, tmp_path, SMALL) == (0, 2)


@pytest.mark.parametrize("frozen", [False, True])
def test_buffers_are_compared(tmp_path: pathlib.Path, frozen: bool) -> None:
    """Parameters alone are frozen by the option frozen_parameter."""
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.plain = nn.Parameter(torch.ones(3)), torch.zeros(3)
            self.register_buffer("shift", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            return {"y": x * self.scale + self.shift - self.plain, "cache": None, "pair": (x,)}
    for traced in (1, 0):
        model, x = Scale(), torch.randn(2, 3)
        cached = cache_compile(model.forward, cache_dir=tmp_path, options={"frozen_parameter": frozen})
        for number, tensor in enumerate((model.shift, model.plain) * 2):
            for _ in range(4):
                torch.testing.assert_close(cached(x)["y"], model.forward(x)["y"], rtol=0, atol=1e-6)
            if number < 2:
                tensor.data = torch.full((3,), 5.0)
            else:
                tensor.add_(1)
        torch.testing.assert_close(cached(x)["y"], model.forward(x)["y"], rtol=0, atol=1e-6)
        assert cached.traced == traced
