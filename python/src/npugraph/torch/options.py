# SPDX-License-Identifier: Apache-2.0
"""The options of the backend: those of npugraph_ex by their names, and this package's own."""
from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..client import Client

Pass = Callable[..., Any]

# The daemon has these options (docs/options.md); it checks their values.
DAEMON = ("force_eager", "force_recapture", "capture_limit", "capture_limit_policy", "inplace_pass",
          "input_inplace_pass", "pattern_fusion_pass", "remove_noop_ops", "remove_cat_ops", "disable_passes",
          "assign_streams", "allow_excess_precision", "matmul_precision", "reuse_graph_pool_in_same_fx", "use_graph_pool",
          "clone_input",
          "clone_output", "frozen_parameter", "static_kernel_compile", "disable_static_kernel_compile_cache",
          "bucket_policy", "merge_replays", "dump_tensor_data", "data_dump_stage", "data_dump_dir", "debug_dump",
          "debug_dump_dir", "deadlock_check", "verify_every_n")
# npugraph_ex has these, and nothing here does what they ask for: only the default is taken.
WITHOUT_MEANING: dict[str, Any] = {
    "super_kernel_optimize": False, "super_kernel_optimize_options": None, "super_kernel_debug_options": None,
    "_vllm_aclnn_static_kernel_sym_index": 0, "_vllm_aclnn_static_kernel_sym_range": None, "mode": "npugraph_ex",
    "capture_error_mode": "global",  # captures are the daemon's: no call of this process can disturb them
}
# Defaults of npugraph_ex that the daemon takes only by leaving the option out.
LEFT_OUT: dict[str, Any] = {"use_graph_pool": None, "post_grad_custom_pre_pass": None, "post_grad_custom_post_pass": None}
DUMPS: dict[str, Any] = {"data_dump_stage": "optimized", "data_dump_dir": "./"}  # without dump_tensor_data
PASSES = ("post_grad_custom_pre_pass", "post_grad_custom_post_pass")


@dataclasses.dataclass
class Options:
    """What `options` of torch.compile said."""

    daemon: dict[str, object] = dataclasses.field(default_factory=dict)  # of the graph's registration
    passes: dict[str, Pass] = dataclasses.field(default_factory=dict)  # functions, by the option's name
    address: str | None = None  # of the daemon; None: $NPUGRAPH_ADDRESS, or the system's
    device: str | None = None
    client: Client | None = None  # to use instead of a connection of this process
    reconnect: bool = False  # go on with a new daemon, or a new session, if this one is lost
    resident_states: bool = False  # changed inputs stay on the device until `pull` fetches them
    weights_dir: str | None = None  # a folder that the daemon reads too: equal weights are in memory once
    fallback: str = "warn"  # what cannot be captured runs in PyTorch: warn | silent | error
    frozen_model: bool = False  # of cache_compile: the model and what its code reads stay as they are at a form's first call
    gears: tuple[int, ...] = ()  # sizes that dynamic dimensions are rounded up to

    @property
    def frozen(self) -> bool:
        return bool(self.daemon.get("frozen_parameter", False))


def parse_options(given: Mapping[str, Any] | None) -> Options:
    """Checks the options of torch.compile. ValueError, TypeError: an unknown name or a bad value, and what is allowed.

    Without the option matmul_precision, torch.set_float32_matmul_precision counts.
    """
    options = Options()
    own = {field.name for field in dataclasses.fields(Options)} - {"daemon", "passes"}
    for name, value in _said(given or {}).items():
        if name in PASSES and callable(value):
            options.passes[name] = value
        elif name in PASSES or name in DAEMON:
            options.daemon[name] = _daemon_value(name, value)
        elif name in own:
            setattr(options, name, value)
        elif name in WITHOUT_MEANING:
            if type(value) is not type(WITHOUT_MEANING[name]) or value != WITHOUT_MEANING[name]:
                raise ValueError(f"option {name} has no meaning for npugraphd; leave it out, or {WITHOUT_MEANING[name]!r}")
        else:
            known = sorted({*PASSES, *DAEMON, *own, *WITHOUT_MEANING})
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; is it {near[0]}?" if near else ""
            raise ValueError(f"there is no option {name}{hint} The options are: {', '.join(known)}")
    _check_own(options)
    if "matmul_precision" not in options.daemon and torch.get_float32_matmul_precision() != "highest":
        options.daemon["matmul_precision"] = torch.get_float32_matmul_precision()
    return options


def _said(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options without those that say the default in a way that only npugraph_ex has."""
    silent = LEFT_OUT if given.get("dump_tensor_data") else {**LEFT_OUT, **DUMPS}
    return {name: value for name, value in given.items()
            if name not in silent or type(value) is not type(silent[name]) or value != silent[name]}


def _daemon_value(name: str, value: Any) -> object:
    if name == "use_graph_pool" and isinstance(value, tuple):
        if len(value) != 2 or any(type(part) is not int for part in value):
            raise TypeError(f"option use_graph_pool is {value!r}; allowed are a name and two integers of which one is 0")
        return f"({','.join(map(str, value))})"
    if name in (*PASSES, "use_graph_pool") and not isinstance(value, str):
        what = "names of patterns and a function" if name in PASSES else "a name and a tuple of two integers"
        raise TypeError(f"option {name} is {value!r}; allowed are {what}")
    if not isinstance(value, (bool, int, float, str)):
        raise TypeError(f"option {name} cannot be {value!r}; docs/options.md lists what is allowed")
    return value


def _check_own(options: Options) -> None:
    if options.fallback not in ("warn", "silent", "error"):
        raise ValueError(f"option fallback is {options.fallback!r}; allowed are warn, silent, error")
    for name in ("reconnect", "resident_states", "frozen_model"):
        if not isinstance(getattr(options, name), bool):
            raise TypeError(f"option {name} is {getattr(options, name)!r}; allowed are True and False")
    gears = tuple(options.gears)
    if any(type(g) is not int or g < 1 for g in gears) or list(gears) != sorted(set(gears)):
        raise ValueError(f"option gears is {options.gears!r}; it must be ascending sizes from 1")
    options.gears = gears
    if options.reconnect and options.client is not None:
        raise ValueError("options reconnect and client exclude each other: only a connection of the backend is renewed")
