# SPDX-License-Identifier: Apache-2.0
"""PyTorch with transformers. Variants: DTYPE (eager, a cache that grows) and DTYPE-compiled (torch.compile, a static one)."""
import os

import text

args = text.arguments(__doc__)
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(args.work, "inductor"))
os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS=str(args.threads), TOKENIZERS_PARALLELISM="false")

import torch  # noqa: E402  pylint: disable=wrong-import-position
import transformers  # noqa: E402  pylint: disable=wrong-import-position

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


class State:
    """Sequences of the same length: their cache, the last token of each, and the position that it gets."""

    def __init__(self, cache, logits, position):
        self.cache = cache
        self.logits = logits
        self.token = logits.argmax(-1, keepdim=True)
        self.position = position


class Model:
    def __init__(self):
        dtype, _, compiled = args.variant.partition("-")
        torch.set_num_threads(args.threads)
        torch.set_grad_enabled(False)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(args.checkpoint, dtype=DTYPES[dtype])
        self.model.eval()
        self.compiled = compiled == "compiled"
        self.run = self.model.forward
        if self.compiled:
            torch._dynamo.config.cache_size_limit = 64
            self.run = torch.compile(self.model.forward, dynamic=False)

    def open(self, n, length, seed):
        tokens = torch.tensor([text.prompt(length, seed + i) for i in range(n)])
        if self.compiled:
            cache = transformers.StaticCache(config=self.model.config, max_cache_len=length + 64)
        else:
            cache = transformers.DynamicCache(config=self.model.config)
        # Logits of the last position alone, as the others compute them. Prompts run eagerly: each length would be compiled.
        at = torch.arange(length)
        logits = self.model(input_ids=tokens, past_key_values=cache, use_cache=True, cache_position=at,
                            position_ids=at.expand(n, -1), logits_to_keep=1).logits
        return State(cache, logits[:, -1], length)

    def append(self, state):
        """Logits after the tokens of the state."""
        at = torch.tensor([state.position])
        logits = self.run(input_ids=state.token, past_key_values=state.cache, use_cache=True, cache_position=at,
                          position_ids=at.expand(state.token.shape[0], -1)).logits[:, -1]
        state.position += 1
        return logits

    def step(self, state):
        state.token = self.append(state).argmax(-1, keepdim=True)


def write_logits(model):
    if model.compiled:
        state = model.open(1, text.PROMPT, 0)
        rows = [state.logits]
        for k in range(text.FORCED):
            state.token = torch.tensor([[text.forced(k)]])
            rows.append(model.append(state))
        torch.cat(rows).float().numpy().tofile(args.out)
        return
    tokens = torch.tensor([text.prompt(text.PROMPT, 0) + [text.forced(k) for k in range(text.FORCED)]])
    logits = model.model(input_ids=tokens).logits[0, text.PROMPT - 1:]
    logits.float().numpy().tofile(args.out)


if args.action == "logits":
    write_logits(Model())
elif args.action == "measure":
    text.measure(args, Model())
