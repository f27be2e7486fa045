#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/golden/embeddings.safetensors: hidden states of the prompts of manifest.json by transformers' AutoModel.

    venv/bin/python tests/golden/make_embeddings.py     needs torch, transformers, safetensors

For each checkpoint of floats, f32 [2, H]: last_hidden_state[0, -1], and the mean of last_hidden_state[0]. The model is
computed in f32, in eager form. tests/models/test_embeddings.c compares.
"""
import json
import os

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

import family_cases

HERE = os.path.dirname(os.path.abspath(__file__))


def hidden_states(path, prompt):
    config = transformers.AutoConfig.from_pretrained(path)
    if getattr(config, "rope_parameters", None):  # the form of transformers 5
        config.rope_scaling = dict(config.rope_parameters)
        config.rope_theta = config.rope_scaling.pop("rope_theta")
    model = transformers.AutoModelForCausalLM.from_pretrained(path, config=config, dtype=torch.float32, attn_implementation="eager")
    model = family_cases.mended(model).eval()
    with torch.no_grad():
        states = model.model(torch.tensor([prompt]), use_cache=False).last_hidden_state[0]
        double = family_cases.doubled(model).model(torch.tensor([prompt]), use_cache=False).last_hidden_state[0]
    noise = (states - double).abs().max() / double.abs().max()
    assert noise < 1e-5, (path, noise)
    return torch.stack([states[-1], states.mean(0)]).contiguous()


def main():
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    with open(os.path.join(HERE, "manifest.json")) as f:
        models = json.load(f)["models"]
    made = {}
    for m in models:
        path = os.path.join(HERE, m["checkpoint"])
        with open(os.path.join(path, "config.json")) as f:
            if "quantization_config" in json.load(f):
                continue
        with safe_open(os.path.join(HERE, m["expect"]), "pt") as f:
            prompt = f.get_tensor("prompt").tolist()
        made[m["name"]] = hidden_states(path, prompt)
        print(m["name"], tuple(made[m["name"]].shape), f"{made[m['name']].abs().max():.3f}")
    save_file(made, os.path.join(HERE, "embeddings.safetensors"))


main()
