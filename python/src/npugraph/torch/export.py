# SPDX-License-Identifier: Apache-2.0
"""npugraph.export: makes a checkpoint of any causal decoder of transformers one that the daemon serves."""
from __future__ import annotations

import importlib
import json
import os
import pathlib
import re
import shutil
from typing import Any

import torch

from .export_experts import Refused
from .export_trace import check_rowwise, last_position, skeleton, trace
from .export_write import Exporter, sizes_text

FILE = "npugraph.lua"
# What a checkpoint has besides its weights.
_SMALL = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
          "chat_template.jinja", "model.safetensors.index.json")
# The quant_method of what a load reads (docs/families.md).
_QUANTISED = ("compressed-tensors", "fp8", "modelopt", "gptq", "awq", "mxfp4")
_SCALES = (".scales", ".weight_scale", ".weight_scale_inv")


def export(model: Any, out: str | os.PathLike[str]) -> pathlib.Path:
    """Writes a checkpoint to the directory `out`, with a file that says what the model computes; returns its path.

    model: a directory with config.json and safetensors, or a model of transformers.
    """
    target = pathlib.Path(out)
    if isinstance(model, torch.nn.Module):
        source, cls = _saved(model, target), type(model)
    else:
        source, cls = pathlib.Path(model), None
    config = _config(source)
    text = _describe(skeleton(config, cls), source)
    target.mkdir(parents=True, exist_ok=True)
    if target.resolve() != source.resolve():
        _link(source, target)
    partial = target / (FILE + ".partial")
    partial.write_text(text)
    partial.replace(target / FILE)
    return target


def _describe(model: Any, source: pathlib.Path) -> str:
    """Returns the text of the file for a model without weights, and its checkpoint."""
    _refuse_kinds(model.config)
    stored = _tensors(source)
    check_rowwise(trace(model, (1, 7), 1))
    traced = trace(model, (7, 1), 0)
    names = _names(model, traced.names, stored)
    _read_numbers(model, names, source)
    head = model.get_output_embeddings().weight
    heads = {names[n][0] for n in names if traced.tensors[n] is head}
    exporter = Exporter(traced, names, heads | _floats(stored))
    body = exporter.build()
    return _text(model, exporter, body)


def _text(model: Any, exporter: Exporter, body: str) -> str:
    import transformers
    hidden = model.get_input_embeddings().weight.shape[1]
    vocab = model.get_output_embeddings().weight.shape[0]
    sizes = {"vocab": vocab, "hidden": hidden, "layers": exporter.caches, "positions": last_position(model)}
    return (f"-- {type(model).__name__}, written by npugraph.export with transformers {transformers.__version__} and PyTorch "
            f"{torch.__version__}.\ninclude \"traced\"\nbegins {{{sizes_text(sizes)}}}\n\nfunction build()\n{body}end\n")


def _refuse_kinds(config: Any) -> None:
    name = type(config).__name__
    if getattr(config, "is_encoder_decoder", False):
        raise Refused(f"{name} is of an encoder and a decoder: only decoders can be exported")


def _saved(model: Any, target: pathlib.Path) -> pathlib.Path:
    """Writes a model that is in memory to the directory."""
    name = type(model).__name__
    if model.training:
        raise Refused(f"{name} is in training mode: call model.eval() first")
    if getattr(model, "hf_quantizer", None) is not None or getattr(model, "is_quantized", False):
        raise Refused(f"{name} has quantised modules: export the checkpoint's directory, whose quantised linears are "
                      "served as they are, or a model of floats")
    model.save_pretrained(target, safe_serialization=True)
    return target


def _config(source: pathlib.Path) -> Any:
    import transformers
    from transformers import AutoConfig
    if not (source / "config.json").is_file():
        raise Refused(f"{source} has no config.json: give the directory of a checkpoint of transformers")
    try:
        config: Any = AutoConfig.from_pretrained(source, local_files_only=True, trust_remote_code=False)
    except Exception as why:  # transformers has many kinds
        raise Refused(f"{source / 'config.json'}: transformers {transformers.__version__} does not take it: "
                      + " ".join(str(why).split())) from why
    if hasattr(config, "quantization_config"):
        _refuse_quantisation(source, config.quantization_config)
        del config.quantization_config  # linears are what they are in the file; the load reads that
    return config


def _refuse_quantisation(source: pathlib.Path, given: Any) -> None:
    method = str(given.get("quant_method") if isinstance(given, dict) else getattr(given, "quant_method", None))
    if method not in _QUANTISED:
        raise Refused(f"{source} is quantised by {method}, which the daemon does not read: export a checkpoint of floats, and "
                      f"quantise it with npugraphctl quantize; or one quantised by {', '.join(_QUANTISED)}")


# ---- tensors ----

def _files(source: pathlib.Path) -> list[str]:
    """Returns the names of the files that have a checkpoint's weights."""
    index = source / "model.safetensors.index.json"
    if not index.is_file():
        return ["model.safetensors"]
    return sorted(set(json.loads(index.read_text())["weight_map"].values()))


def _tensors(source: pathlib.Path) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a checkpoint's tensors, by their names."""
    found: dict[str, tuple[int, ...]] = {}
    for file in _files(source):
        if not (source / file).is_file():
            raise Refused(f"{source} has no {file}: weights must be safetensors")
        with open(source / file, "rb") as f:
            head = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        found |= {name: tuple(t["shape"]) for name, t in head.items() if name != "__metadata__"}
    return found


def _floats(stored: dict[str, tuple[int, ...]]) -> set[str]:
    """Returns the weights that a quantised checkpoint has as floats: routers of experts, and what its tool was told to leave."""
    scaled = {name.removesuffix(end) + ".weight" for name in stored for end in _SCALES if name.endswith(end)}
    return {name for name in stored if scaled and name.endswith(".weight") and name not in scaled}


def _names(model: Any, names: list[str], stored: dict[str, tuple[int, ...]]) -> dict[str, tuple[str, ...]]:
    """Returns the tensors of each parameter, and of each buffer that checkpoints have: those of its own name, of that of a
    parameter it is tied to, or with or without the prefix of the part below the head."""
    prefix = model.base_model_prefix + "."
    same: dict[int, list[str]] = {}
    every = dict(model.named_parameters(remove_duplicate=False)) | model.state_dict(keep_vars=True)
    for name, p in every.items():
        same.setdefault(id(p), []).append(name)
    renamed = _renamed(model, stored)
    found: dict[str, tuple[str, ...]] = {}
    for name in (n for n in names if n in every):
        for tied in same[id(every[name])]:
            for tried in (tied, tied.removeprefix(prefix), prefix + tied):
                if tried in renamed:
                    found.setdefault(name, renamed[tried])
    return found


def _read_numbers(model: Any, names: dict[str, tuple[str, ...]], source: pathlib.Path) -> None:
    """Gives buffers of one number the checkpoint's. They become constants: files of families have tensors with dimensions."""
    from safetensors import safe_open
    buffers = {names.pop(name)[0]: b for name, b in model.named_buffers() if name in names and not b.dim()}
    for file in _files(source) if buffers else []:
        with safe_open(source / file, "pt") as tensors:
            for name in buffers.keys() & set(tensors.keys()):
                buffers[name].copy_(tensors.get_tensor(name))


def _renamed(model: Any, stored: dict[str, tuple[int, ...]]) -> dict[str, tuple[str, ...]]:
    """Returns the checkpoint's tensors by the names that transformers gives them when it loads them. Those of experts that
    it merges have %d for the number of an expert. Quantised tensors count as the weight that they are of."""
    files = {_unquantised(name): _unquantised(name) for name in stored}
    try:
        mapping: Any = importlib.import_module("transformers.conversion_mapping")
    except ImportError:  # transformers 4 renames nothing in decoders
        return {name: (name,) for name in files}
    loading: Any = importlib.import_module("transformers.core_model_loading")
    transforms = mapping.get_model_conversion_mapping(model)
    renamings = [t for t in transforms if isinstance(t, loading.WeightRenaming)]
    converters = [t for t in transforms if isinstance(t, loading.WeightConverter)]
    merged: dict[str, dict[str, set[str]]] = {}
    for name in files:
        target, source = loading.rename_source_key(name, renamings, converters)
        merged.setdefault(target, {}).setdefault(source or "", set()).add(re.sub(r"(\.experts\.)\d+\.", r"\1%d.", name) if source
                                                                          else name)
    order = [pattern for c in converters if _merges(c) for pattern in c.source_patterns]
    found: dict[str, tuple[str, ...]] = {}
    for target, sources in merged.items():
        if list(sources) == [""]:
            found[target] = tuple(sources[""])
        elif all(s in order and len(sources[s]) == 1 for s in sources):
            found[target] = tuple(next(iter(sources[s])) for s in sorted(sources, key=order.index))
    return found


def _merges(converter: Any) -> bool:
    """Says whether experts of their own become one parameter, first the gates and then the others, and no more is done."""
    kinds = [type(op).__name__ for op in converter.operations]
    return kinds in (["MergeModulelist"], ["MergeModulelist", "Concatenate"])


def _unquantised(name: str) -> str:
    """Returns the name of the weight that a quantised tensor is of. Experts in MXFP4 have blocks, and scales beside them."""
    return re.sub(r"_proj_blocks$", "_proj", re.sub(r"\.(weight_packed|qweight)$", ".weight", name))


def _link(source: pathlib.Path, target: pathlib.Path) -> None:
    """Gives the new directory the checkpoint's files: the same ones where the file system can do that."""
    weights = _files(source)
    for name in (*_SMALL, *weights):
        old, new = (source / name), target / name
        if not old.is_file():
            continue
        new.unlink(missing_ok=True)
        if name in weights:
            try:
                os.link(old.resolve(), new)
                continue
            except OSError:
                pass
        shutil.copyfile(old, new)
