# SPDX-License-Identifier: Apache-2.0
"""PyTorch's core operators: a few samples of each are right or refused, and docs/core-aten.md says which."""
from __future__ import annotations

import re
import warnings

import pytest
from conftest import SOURCE, Daemon

pytest.importorskip("torch")
import core_operators  # noqa: E402

import npugraph.torch as backend  # noqa: E402
from npugraph.torch.options import parse_options  # noqa: E402


def test_core_operators(daemon: Daemon) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = core_operators.collect(core_operators.core_operators(), limit=6, per=1, only=None, seed=3)
    verdicts = core_operators.survey(found, parse_options({}))
    backend.forget()
    assert [f"{name}: {wrong}" for name, v in verdicts.items() for wrong in v.wrong] == []
    assert sum(v.counts["right"] for v in verdicts.values()) > 400
    rows = re.findall(r"^\| `(.+?)` \| (\d+) \|", (SOURCE / "docs" / "core-aten.md").read_text(), re.M)
    assert len(rows) > 150
    for name, right in rows:
        if name in verdicts and verdicts[name].counts.total() >= 4:  # a few samples may all be of a dtype that is refused
            assert (int(right) > 0) == (verdicts[name].counts["right"] > 0), name
