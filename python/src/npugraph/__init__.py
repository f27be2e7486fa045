# SPDX-License-Identifier: Apache-2.0
"""A client of npugraphd, the daemon that runs captured graphs; and, with torch, a backend of torch.compile, and the export
of decoders of transformers.

    client = npugraph.connect()
    for token in client.open("bible", tokenizer.encode("In the beginning")).generate(60): ...

    fast = torch.compile(model, backend="npugraph")

    npugraph.export("stablelm-2-1_6b", "out")
"""
from __future__ import annotations

import os
import pathlib
from typing import Any

from ._library import VERSION as __version__
from .chat import ChatTemplate, Stops
from .client import Buffer, Client, Device, Model, SharedBuffer, connect
from .errors import (
    Cancelled,
    DeadlineExceeded,
    Error,
    FailedPrecondition,
    GraphRefused,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unreachable,
    Unsupported,
)
from .graphs import Capture, Graph, ReplayStream
from .sequences import Logprobs, Sampling, Sequence, Step
from .tokenizer import TextStream, Tokenizer
from .tracing import trace_context

__all__ = [
    "Buffer", "Cancelled", "Capture", "ChatTemplate", "Client", "DeadlineExceeded", "Device", "Error", "FailedPrecondition",
    "Graph", "GraphRefused", "InvalidArgument", "Logprobs", "Model", "NotFound", "OutOfRange", "PermissionDenied",
    "ReplayStream", "ResourceExhausted", "Sampling", "Sequence", "SharedBuffer", "Step", "Stops", "TextStream", "Tokenizer",
    "Unauthenticated", "Unavailable", "Unreachable", "Unsupported", "__version__", "connect", "export", "trace_context",
]


def export(model: Any, out: str | os.PathLike[str]) -> pathlib.Path:
    """Makes a causal decoder of transformers, a checkpoint's directory or a model, one that `load_model` takes.

    Writes a checkpoint to the directory `out`, which may be the model's own, and returns its path. ValueError: the model
    has what the daemon cannot serve; the message names it. Needs torch and transformers; docs/pytorch.md says more.
    """
    from .torch.export import export as export_model
    return export_model(model, out)
