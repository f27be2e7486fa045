# SPDX-License-Identifier: Apache-2.0
"""The options of npugraph_ex, as docs/pytorch.md lists them, and what the log says of compilations."""
from __future__ import annotations

import ast
import logging
import pathlib
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import SOURCE, Daemon

torch = pytest.importorskip("torch")

import npugraph.torch as backend  # noqa: E402
from npugraph.torch.options import parse_options  # noqa: E402

# Those that npugraph_ex has, so that the page can neither forget nor invent one.
NAMES = [
    "force_eager", "force_recapture", "capture_error_mode", "capture_limit", "inplace_pass", "input_inplace_pass",
    "pattern_fusion_pass", "remove_noop_ops", "remove_cat_ops", "reuse_graph_pool_in_same_fx", "use_graph_pool",
    "clone_input", "clone_output", "frozen_parameter", "static_kernel_compile", "disable_static_kernel_compile_cache",
    "_vllm_aclnn_static_kernel_sym_index", "_vllm_aclnn_static_kernel_sym_range", "super_kernel_optimize",
    "super_kernel_optimize_options", "super_kernel_debug_options", "post_grad_custom_pre_pass", "post_grad_custom_post_pass",
    "dump_tensor_data", "data_dump_stage", "data_dump_dir", "deadlock_check", "mode",
]


def table() -> dict[str, tuple[Any, str]]:
    """Returns the page's options: the default, and the cell with another value."""
    page = (SOURCE / "docs" / "pytorch.md").read_text()
    part = page.split("## Options of npugraph_ex")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \| (.*?) \|", part, re.M)
    return {name: (ast.literal_eval(default), other.strip("`")) for name, default, other in rows}


TABLE = table()
REFUSED = [name for name, (_, other) in TABLE.items() if other == "refused"]


@pytest.fixture(autouse=True)
def fresh(daemon: Daemon) -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", backend.FallbackWarning)
        yield
    backend.forget()


def run(**options: Any) -> None:
    x = torch.ones(2, 3)
    got = torch.compile(lambda x: (x + 1) @ x.t(), backend="npugraph_ex", fullgraph=True, options=options)(x)
    assert torch.equal(got, (x + 1) @ x.t())


def test_the_page_lists_all() -> None:
    assert list(TABLE) == NAMES


def test_the_defaults_are_taken() -> None:
    run(**{name: default for name, (default, _) in TABLE.items()})


@pytest.mark.parametrize("name", NAMES)
def test_each_option(name: str, tmp_path: pathlib.Path) -> None:
    default, other = TABLE[name]
    run(**{name: default})
    torch._dynamo.reset()
    if other == "refused":
        for value in ("another", 7, {"a": 1}, default == 0):
            with pytest.raises(ValueError, match=f"option {name} has no meaning for npugraphd"):
                parse_options({name: value})
    elif other == "a function":
        calls: list[Any] = []
        run(**{name: lambda gm, inputs, options: calls.append((gm, inputs, options))})
        assert len(calls) == 1
    elif not name.startswith(("dump_", "data_")):  # which are below
        needs = {"static_kernel_compile": True} if name == "disable_static_kernel_compile_cache" else {}
        run(**{name: ast.literal_eval(other)}, **needs)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
@pytest.mark.parametrize("value", [object(), {"a": 1}, [1], "no such value!", -1], ids=["object", "dict", "list", "text", "number"])
def test_bad_values(name: str, value: Any) -> None:
    """An error that names the option or the value, either here or from the daemon."""
    with pytest.raises(Exception, match=rf"{name}|no such value|dump-dir|{'-1'}"):
        run(**{name: value, **({"dump_tensor_data": True} if name.startswith("data_") else {})})


def test_dumps(tmp_path: pathlib.Path) -> None:
    dumping = Daemon(tmp_path, f"--dump-dir={tmp_path}")
    for stage in ("optimized", "original"):
        torch._dynamo.reset()
        folder = tmp_path / stage
        folder.mkdir()
        run(dump_tensor_data=True, data_dump_stage=stage, data_dump_dir=str(folder), address=dumping.address)
        assert list(folder.rglob("*.npy"))
    backend.forget()
    dumping.stop()


def test_pools_are_names_or_two_integers() -> None:
    assert parse_options({"use_graph_pool": (0, 7)}).daemon["use_graph_pool"] == "(0,7)"
    for value in (3, (1,), (1, 2, 3), ("a", 0), [0, 1]):
        with pytest.raises(TypeError, match="use_graph_pool"):
            parse_options({"use_graph_pool": value})


def test_recompilations_are_told() -> None:
    messages: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())
    log, handler = logging.getLogger("npugraph"), Keep()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        fast = torch.compile(lambda x, by: x * by, backend="npugraph", fullgraph=True, dynamic=False)
        fast(torch.ones(2, 3), 2)
        assert not messages
        fast(torch.ones(2, 3), 2)
        fast(torch.ones(5, 3), 2)
        fast(torch.ones(5, 3), 7)
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    assert len(messages) == 2
    assert "traced again (compilation" in messages[0] and "size mismatch" in messages[0] and "expected 2, actual 5" in messages[0]
    assert "by" in messages[1] and "traced again" in messages[1]
