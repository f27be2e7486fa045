# SPDX-License-Identifier: Apache-2.0
"""examples/compile.ipynb: a valid notebook with the outputs of a whole run, whose code is examples/compile.py's."""
from __future__ import annotations

import ast
import json
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import SOURCE, Daemon

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import npugraph.torch as backend  # noqa: E402

NOTEBOOK = SOURCE / "examples" / "compile.ipynb"
SIZE = 200 << 10
SMALL = "--layers 1 --hidden 64 --vocab 128 --tokens 3 --context 32 --variants eager,npugraph"


@pytest.fixture
def notebook() -> Any:
    return json.loads(NOTEBOOK.read_text())


@pytest.fixture
def example(daemon: Daemon) -> Iterator[Any]:
    """The script as a module, as the notebook imports it."""
    sys.path.insert(0, str(SOURCE / "examples"))
    threads = torch.get_num_threads()
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error", backend.FallbackWarning)
        import compile as module  # type: ignore[import-not-found]
        yield module
    torch.set_num_threads(threads)
    sys.path.remove(str(SOURCE / "examples"))
    sys.modules.pop("compile", None)
    backend.forget()


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_it_is_a_notebook_with_outputs(notebook: Any) -> None:
    assert NOTEBOOK.stat().st_size < SIZE
    assert notebook["nbformat"] == 4 and notebook["nbformat_minor"] >= 5 and notebook["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[\w-]{1,64}", name) for name in ids)
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("code", "markdown") and isinstance(cell["metadata"], dict) and "".join(cell["source"])
    assert [cell["execution_count"] for cell in code(notebook)] == list(range(1, len(code(notebook)) + 1))
    outputs = [output for cell in code(notebook) for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"execute_result"}  # no errors, no warnings
    kinds = {kind for output in outputs for kind in output["data"]}
    assert {"text/plain", "text/markdown", "image/svg+xml"} <= kinds


def test_its_table_is_the_scripts(notebook: Any, example: Any) -> None:
    tables = [output["data"]["text/markdown"] for cell in code(notebook) for output in cell["outputs"]
              if "text/markdown" in output["data"]]
    head = str(example.Table([])).splitlines()
    assert len(tables) == 1
    lines = "".join(tables[0]).splitlines()
    assert lines[:2] == head
    assert [line.split("|")[1].strip() for line in lines[2:]] == example.arguments([]).variants.split(",")


def test_its_code_is_the_scripts(notebook: Any, example: Any) -> None:
    """Cells only call what the script has: no function or class is defined there."""
    for cell in code(notebook):
        for node in ast.walk(ast.parse("".join(cell["source"]))):
            assert not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "example":
                assert hasattr(example, node.attr)


def test_its_cells_run(notebook: Any, example: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("EXAMPLE_ARGUMENTS", SMALL)
    names: dict[str, Any] = {}
    results = []
    for cell in code(notebook):
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            assert isinstance(last, ast.Expr)
            results.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
    runs = names["runs"]
    assert [run.name for run in runs] == ["eager", "npugraph"] and all(len(run.tokens) == 5 for run in runs)
    assert runs[0].tokens == runs[1].tokens
    shown = [result._repr_svg_() for result in results if hasattr(result, "_repr_svg_")]
    assert len(shown) == 1 and shown[0].count("<rect") == 3
    assert any(isinstance(result, str) and result.startswith("In the beginning of the world") for result in results)
