# SPDX-License-Identifier: Apache-2.0
"""OpenVINO on the CPU, with the stateful graph that optimum-intel exports. Variants: bf16, f16, f32, as the weights are kept."""
import os
import shutil

import text

args = text.arguments(__doc__)
os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
MODEL = os.path.join(args.work, f"openvino-{args.variant}")


def export():
    import torch
    from optimum.intel import OVModelForCausalLM

    dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[args.variant]
    shutil.rmtree(MODEL + ".new", ignore_errors=True)
    model = OVModelForCausalLM.from_pretrained(args.checkpoint, export=True, compile=False, load_in_8bit=False,
                                               stateful=True, torch_dtype=dtype)
    model.save_pretrained(MODEL + ".new")
    os.rename(MODEL + ".new", MODEL)


class Model:
    def __init__(self):
        import numpy
        import openvino
        self.np = numpy
        config = {"INFERENCE_NUM_THREADS": args.threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
                  "KV_CACHE_PRECISION": "f16"}
        core = openvino.Core()
        self.compiled = core.compile_model(os.path.join(MODEL, "openvino_model.xml"), "CPU", config)
        self.request = self.compiled.create_infer_request()

    def infer(self, state, tokens):
        np = self.np
        n, length = tokens.shape
        end = state["position"] + length
        inputs = {"input_ids": tokens, "attention_mask": np.ones((n, end), np.int64),
                  "position_ids": np.tile(np.arange(state["position"], end), (n, 1)),
                  "beam_idx": np.arange(n, dtype=np.int32)}
        names = {name for port in self.compiled.inputs for name in port.names}
        self.request.infer({k: v for k, v in inputs.items() if k in names}, share_inputs=True, share_outputs=True)
        state["position"] = end
        return self.request.get_tensor("logits").data

    def open(self, n, length, seed):
        self.request.reset_state()
        state = {"position": 0}
        logits = self.infer(state, self.np.array([text.prompt(length, seed + i) for i in range(n)]))
        state["token"] = logits[:, -1].argmax(-1)
        return state

    def step(self, state):
        state["token"] = self.infer(state, state["token"][:, None])[:, -1].argmax(-1)


def write_logits(model):
    model.request.reset_state()
    state = {"position": 0}
    with open(args.out, "wb") as f:
        for tokens in [text.prompt(text.PROMPT, 0)] + [[text.forced(k)] for k in range(text.FORCED)]:
            model.infer(state, model.np.array([tokens]))[0, -1].astype(model.np.float32).tofile(f)


if args.action == "prepare":
    if not os.path.exists(MODEL):
        export()
elif args.action == "logits":
    write_logits(Model())
else:
    text.measure(args, Model())
