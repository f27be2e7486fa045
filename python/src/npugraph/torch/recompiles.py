# SPDX-License-Identifier: Apache-2.0
"""Says why Dynamo traces a function again: which guard failed."""
from __future__ import annotations

import logging

import torch

log = logging.getLogger("npugraph")


def tell_recompilation() -> None:
    """Logs the guard that failed, at level info, if Dynamo is tracing a function that it has traced before."""
    reason = _reason()
    if reason is None:
        return
    context = torch._guards.CompileContext.try_get()
    number = f" (compilation {context.compile_id})" if context is not None else ""
    log.info("npugraph: traced again%s, as this guard failed: %s", number, reason)


def _reason() -> str | None:
    """Returns what Dynamo noted of the compilation under way; there is no public way to ask."""
    try:
        from torch._dynamo.utils import get_metrics_context
        reason = get_metrics_context()._metrics.get("recompile_reason")
    except (ImportError, AttributeError):
        return None
    return str(reason) if reason else None
