# SPDX-License-Identifier: Apache-2.0
"""Make tests/golden/gguf_pre.json: a vocabulary with tokens that cross the borders of words, so that ids show where a text
is split, and ids of texts by the tokenizers library for each name in tokenizer.ggml.pre. Expressions are those of
transformers' reader of GGUF files where it has them.

    venv/bin/python tests/golden/make_gguf_pre.py     needs transformers 5.24 and its tokenizers

tests/rpc/test_gguf_tokenizers.py compares.
"""
import json
import os
import random

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import CohereTokenizer
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

HERE = os.path.dirname(os.path.abspath(__file__))
SPLIT = {name: name for name in ("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "dbrx", "qwen2", "tekken", "gpt-4o")}
SPLIT |= {"glm4": "llama-bpe", "chatglm-bpe": "llama-bpe"}  # the same expression (THUDM/glm-4-9b-chat)
SPLIT |= {"falcon3": "falcon3", "pixtral": "pixtral", "deepseek-r1-qwen": "deepseek-r1-qwen"}
BY_DIGIT, NFC = ("smollm", "refact", "starcoder", "command-r"), ("qwen2", "deepseek-r1-qwen", "olmo", "command-r")
# Pre-tokenizers of the models' own tokenizer.json, one after the other (deepseek-ai/deepseek-coder-6.7b-base, DeepSeek-V3). That of
# deepseek-llm is too long to be written twice: scripts/check-published compares it with ids that were published.
STAGES = {
    "deepseek-coder": ["[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}"],
    "deepseek-v3": ["\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
                    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
                    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"],
}
TEXTS = ["In the beginning", "I'LL  he'd 'Twas we'RE", "1234567 12 3", "x/y//\n\n z ", "HTTPServer getURL iPhone McDonald ǅungla",
         "Zoe\u0308 nai\u0308ve e\u0301", "中文字 かな カナ 한국어", "\t\ttab  \r\n\r\n end", "a_b-c --> <= !=\n/", "½ ² ١٢٣ Ⅻ", "мир МИР Мир",
         "  leading   and trailing   ", "a\u00a0b\u2003c\u180ed", "नमस्ते दुनिया", "ﬁ ǆ ʼn 'S 'T", "🙂🙂 x🙂"]


def texts(rng):
    parts = TEXTS + ["the", " ", "\n", "LORD", "'s", "'S", "9", "é", "/", "\u0301", "中"]
    return TEXTS + ["".join(rng.choice(parts) for _ in range(8)) for _ in range(24)]


def vocabulary(lines):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=1500, min_frequency=1, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tok.train_from_iterator(lines, trainer)
    return json.loads(tok.to_str())["model"]


def tokenizer(name, model):
    tok = Tokenizer(models.BPE(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]],
                               ignore_merges=name in ("llama-bpe", "llama3", "llama-v3")))
    if name == "command-r":
        whole = CohereTokenizer().backend_tokenizer
        tok.normalizer, tok.pre_tokenizer = whole.normalizer, whole.pre_tokenizer
        return tok
    if name in NFC:
        tok.normalizer = normalizers.NFC()
    stages = [pre_tokenizers.Digits(individual_digits=True)] if name in BY_DIGIT else []
    stages += [pre_tokenizers.Split(Regex(e), behavior="isolated") for e in STAGES.get(name, [])]
    if name in SPLIT:
        stages += [pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS[SPLIT[name]]), behavior="isolated")]
    stages += [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name not in SPLIT and name not in STAGES)]
    tok.pre_tokenizer = pre_tokenizers.Sequence(stages)
    return tok


def main():
    lines = texts(random.Random(21))
    model = vocabulary(lines)
    names = [*SPLIT, *STAGES, *(n for n in (*BY_DIGIT, "olmo", "gpt-2") if n not in SPLIT)]
    made = {"tokens": sorted(model["vocab"], key=model["vocab"].get), "merges": [" ".join(m) for m in model["merges"]], "texts": lines,
            "ids": {name: [tokenizer(name, model).encode(t, add_special_tokens=False).ids for t in lines] for name in names}}
    with open(os.path.join(HERE, "gguf_pre.json"), "w", encoding="utf-8") as f:
        json.dump(made, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


main()
