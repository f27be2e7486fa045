# SPDX-License-Identifier: Apache-2.0
"""The backend of torch.compile: `torch.compile(model, backend="npugraph", options={...})`, for inference.

AOTAutograd gives a graph of core ATen operators, which is translated to the daemon's graph text, registered with the
parameters that were uploaded once, captured, and replayed at each call.
"""
from .backend import FallbackWarning, NotCapturable, backend
from .connection import forget, pull

__all__ = ["FallbackWarning", "NotCapturable", "backend", "forget", "pull"]
