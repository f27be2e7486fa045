# SPDX-License-Identifier: Apache-2.0
"""A client of npugraphd, the daemon that runs captured graphs; and, with torch, a backend of torch.compile.

    client = npugraph.connect()
    for token in client.open("bible", tokenizer.encode("In the beginning")).generate(60): ...

    fast = torch.compile(model, backend="npugraph")
"""
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
    Unavailable,
    Unreachable,
    Unsupported,
)
from .graphs import Capture, Graph, ReplayStream
from .sequences import Logprobs, Sampling, Sequence, Step
from .tokenizer import TextStream, Tokenizer

__all__ = [
    "Buffer", "Cancelled", "Capture", "ChatTemplate", "Client", "DeadlineExceeded", "Device", "Error", "FailedPrecondition",
    "Graph", "GraphRefused", "InvalidArgument", "Logprobs", "Model", "NotFound", "OutOfRange", "PermissionDenied",
    "ReplayStream", "ResourceExhausted", "Sampling", "Sequence", "SharedBuffer", "Step", "Stops", "TextStream", "Tokenizer",
    "Unavailable", "Unreachable", "Unsupported", "__version__", "connect",
]
