# SPDX-License-Identifier: Apache-2.0
"""Functions at random (programs.py) against eager PyTorch. More of them: `pytest tests/test_programs.py --programs 3000`."""
from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from conftest import Daemon

torch = pytest.importorskip("torch")
import programs  # noqa: E402

import npugraph.torch as backend  # noqa: E402
from npugraph.torch.runner import Runner  # noqa: E402

GROUPS = 8  # tests, so that workers share them


@pytest.mark.parametrize("group", range(GROUPS))
def test_programs(daemon: Daemon, group: int, request: Any, monkeypatch: Any) -> None:
    first, count = request.config.getoption("--first-program"), request.config.getoption("--programs")
    seeds = range(first + group, first + count, GROUPS)
    wrong: list[str] = []
    counts: Counter[str] = Counter()  # of verdicts
    ran: set[int] = set()  # programs of which something ran in the daemon
    run = Runner.__call__

    def noted(self: Any, *args: Any) -> Any:
        results = run(self, *args)
        ran.add(seed)
        return results
    monkeypatch.setattr(Runner, "__call__", noted)
    for seed in seeds:
        program = programs.generate(seed)
        kind, what = programs.verdict(program, lambda f: torch.compile(
            f, backend=backend.backend, dynamic=program.dynamic, options={**program.options, "fallback": "silent"}))  # noqa: B023
        counts[kind] += 1
        if kind == "wrong":
            wrong.append(f"{what}\n{program.text()}")
    backend.forget()
    assert not wrong, "\n".join(wrong)
    assert len(seeds) < 10 or (counts["same"] > len(seeds) * 0.7 and len(ran) > len(seeds) * 0.3), (counts, len(ran))
