# SPDX-License-Identifier: Apache-2.0
"""Make tests/golden/gguf.json: blocks of each quantised type with their values by the gguf package, and a SentencePiece
vocabulary of scores with ids by transformers' conversion of GGUF files and the tokenizers library.

    venv/bin/python tests/golden/make_gguf.py     needs gguf 0.19, numpy, tokenizers, transformers

tests/rpc/test_gguf.py compares.
"""
import json
import os
import random

import gguf
import numpy as np
from transformers.integrations.ggml import GGUFLlamaConverter

HERE = os.path.dirname(os.path.abspath(__file__))
# Where a block has its f16 factors; random bits there would be infinities and NaN.
FACTORS = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
WORDS = "the of and to in that he shall unto for they be is him his all it with them thee ye not a man people have upon my".split()


def blocks(name, at, rng):
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (512 // elements, size), dtype=np.uint8)
    for k in at:
        data[:, k:k + 2] = rng.normal(0, 0.1, (len(data), 1)).astype(np.float16).view(np.uint8)
    values = gguf.quants.dequantize(data.reshape(-1), kind)
    return {"id": int(kind), "blocks": data.tobytes().hex(), "values": values.astype("<f4").tobytes().hex()}


def sentencepiece(rng):
    """Pieces of a few words and their parts, with scores that have ties, as the `llama` tokenizers of GGUF files."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    kinds = [2, 3, 3] + [6] * 256
    pieces = {"▁", *"".join(WORDS)}
    for word in WORDS:
        word = "▁" + word
        pieces.update(word[a:b] for a in range(len(word)) for b in range(a + 2, len(word) + 1) if rng.random() < 0.4 or a == 0)
    pieces = sorted(pieces, key=lambda p: (-len(p), p))
    scores = [0.0] * len(tokens) + [-float(rng.randrange(len(pieces))) for _ in pieces]
    tokens, kinds = tokens + pieces, kinds + [1] * len(pieces)
    read = {"tokens": tokens, "scores": scores, "token_type": kinds, "bos_token_id": 1, "eos_token_id": 2, "unk_token_id": 0,
            "add_prefix_space": True, "tokenizer_type": "llama"}
    tok = GGUFLlamaConverter(read).converted()
    texts = ["", " ", "the people of man", "thethe  shall\nunto", "Zoë and all", "  a", "ye ▁ not", "ααα he 中", "<0x41> them"]
    texts += ["".join(rng.choice(WORDS + [" ", " ", "é", "x", "\t"]) for _ in range(12)) for _ in range(20)]
    ids = [tok.encode(t, add_special_tokens=False).ids for t in texts]
    return {"tokens": tokens, "scores": scores, "token_type": kinds, "texts": texts, "ids": ids}


def main():
    rng = np.random.default_rng(16)
    made = {"blocks": {name: blocks(name, at, rng) for name, at in FACTORS.items()}, "sentencepiece": sentencepiece(random.Random(16))}
    with open(os.path.join(HERE, "gguf.json"), "w") as f:
        json.dump(made, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


main()
