# SPDX-License-Identifier: Apache-2.0
"""The backend of torch.compile: `torch.compile(model, backend="npugraph", options={...})`, for inference.

AOTAutograd gives a graph of core ATen operators, which is translated to the daemon's graph text, registered with the
parameters that were uploaded once, captured, and replayed at each call. `cache_compile` keeps the translation in files.
"""
from .backend import FallbackWarning, NotCapturable, backend
from .cache import cache_compile
from .connection import forget, pull
from .extend import register_converter, register_decomposition, register_replacement
from .files import CacheWarning
from .readable import readable_cache

__all__ = ["CacheWarning", "FallbackWarning", "NotCapturable", "backend", "cache_compile", "forget", "pull", "readable_cache",
           "register_converter", "register_decomposition", "register_replacement"]
