# SPDX-License-Identifier: Apache-2.0
"""Make tests/golden/tokenizers.json: small tokenizers of each kind, random texts, and their ids by Hugging Face tokenizers.

    venv/bin/python tests/golden/make_tokenizers.py                       the committed file, a few texts of each
    venv/bin/python tests/golden/make_tokenizers.py --texts 5000 FILE     more; from 1000 on also all code points

build/.../tests/unit/test_tokenizers FILE compares. Each kind has the settings of a family of published tokenizers. The
vocabularies are trained on the text of examples/train_model.py's kind: what random_text below gives for a fixed seed.
"""
import argparse
import copy
import json
import os
import random
import sys

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
GPT_OSS = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
           r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
           r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
            "\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
# Where Oniguruma is not PCRE: greedy, not possessive; lines for ^ and $; \h is a hexadecimal digit; && in classes; empty
# matches; U+180E is no space.
ODD = [r"\p{N}{1,3}+", r"^a|b$", r"\h+", r"[\w&&[^aeiou]]+", r"(?=b)", r"\s+|x*", r"\R", r"(?i)ss|ſ", r"\bа+\b",
       r"(?<=\s)\S+(?=\s)"]

ADDED = [{"content": "<|end|>", "special": True, "normalized": False}, {"content": "<|end", "special": False, "normalized": False},
         {"content": "<s>", "special": True, "normalized": False}, {"content": "é<x>", "normalized": True},
         {"content": "<mask>", "special": True, "normalized": False, "lstrip": True}, {"content": "<r>", "normalized": False, "rstrip": True},
         {"content": "word", "normalized": False, "single_word": True}, {"content": "  ", "normalized": False},
         {"content": "   ", "normalized": True}, {"content": "\n\n", "normalized": False, "special": False},
         {"content": "한<b>", "normalized": True, "lstrip": True, "rstrip": True}]

WORDS = """the of and in God created heaven earth was void darkness 12 345 6789 don't I'LL we're straße ﬁne Ǆ naïve café
 данные Привет мир 世界 こんにちは カタカナ 안녕하세요 ١٢٣ ①② Ⅻ ½ 👍🏽 👨‍👩‍👧 🇩🇪 é à̖́ Å Ω ﷺ ｆｕｌｌ ㎏ x=1; printf("%d\\n") a_b camelCase HTTPServer
 <|end|> <|end <s> <mask> <r> word words é<x> é<x> 한<b> <|endx
 ᠎ ​ ﻿ ♪♫ +-*/ ... !? «» „“ _ __ 0x1F 3.14""".split()
SPACES = [" ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " ", "　", " ", "", "", "", "▁"]


def random_text(rng):
    """Words, spaces, and characters of all kinds, some of them in long runs."""
    out = []
    for _ in range(rng.randrange(1, 14)):
        kind = rng.random()
        if kind < 0.6:
            out.append(rng.choice(WORDS))
        elif kind < 0.7:
            out.append("".join(rng.choice("0123456789abcxyzABC'-_.,!") for _ in range(rng.randrange(1, 9))))
        elif kind < 0.8:
            out.append(chr(rng.choice(ASSIGNED)) * rng.choice((1, 1, 2, 5)))
        elif kind < 0.9:
            start = rng.choice(ASSIGNED)
            out.append("".join(chr(c) for c in range(start, start + rng.randrange(1, 5)) if not 0xD800 <= c < 0xE000))
        else:
            out.append(rng.choice("aeiouAE ") + "".join(chr(rng.choice(MARKS)) for _ in range(rng.randrange(1, 4))))
        out.append(rng.choice(SPACES))
    return "".join(out)


def code_points(expression):
    pre = pre_tokenizers.Split(Regex(expression), "removed", invert=True)
    text = "".join(chr(c) for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000)
    return sorted({ord(c) for piece, _ in pre.pre_tokenize_str(text) for c in piece})


ASSIGNED = code_points(r"[\p{L}\p{M}\p{N}\p{P}\p{S}\p{Z}\p{Cf}\p{Cc}]")
MARKS = code_points(r"\p{M}")


def split(expression, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(expression), behavior, invert=invert)


def train(kind, vocab_size, alphabet=(), pre=None, normalizer=None, texts=None, **more):
    model = {"bpe": models.BPE, "unigram": models.Unigram}[kind](**more)
    tok = Tokenizer(model)
    if pre is not None:
        tok.pre_tokenizer = pre
    if normalizer is not None:
        tok.normalizer = normalizer
    if kind == "bpe":
        trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=sorted(alphabet), show_progress=False,
                                      special_tokens=[t for t in ("<unk>", "<0x41>") if t == more.get("unk_token")] + more.pop("extra", []),
                                      continuing_subword_prefix=more.get("continuing_subword_prefix") or "",
                                      end_of_word_suffix=more.get("end_of_word_suffix") or "")
    else:
        trainer = trainers.UnigramTrainer(vocab_size=vocab_size, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    tok.train_from_iterator(texts, trainer)
    return tok


def parts(tok):
    return json.loads(tok.to_str())


def with_added(spec, added=ADDED):
    """Adds tokens as they are, so that ids are those that the library gives."""
    tok = Tokenizer.from_str(json.dumps(spec))
    spec = parts(tok)
    have = len(spec["model"]["vocab"])
    spec["added_tokens"] = []
    for t in added:
        full = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": False} | t
        known = tok.token_to_id(t["content"])
        full["id"] = known if known is not None else have
        have += known is None
        spec["added_tokens"].append(full)
    return spec


def make_kinds(texts):
    """Gives {name: tokenizer.json}."""
    kinds = {}
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    base = parts(train("bpe", 420, pre_tokenizers.ByteLevel.alphabet(), pre=pre_tokenizers.Sequence([split(QWEN), byte_level]), texts=texts))
    base["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}

    def derive(name, added=ADDED, **changes):
        spec = copy.deepcopy(base)
        for key, value in changes.items():
            if key.startswith("model_"):
                spec["model"][key[6:]] = value
            else:
                spec[key] = value
        kinds[name] = with_added(spec, added)

    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}

    def sequence(*stages):
        return {"type": "Sequence", "pretokenizers": [*stages]}

    def regex(expression, behavior="Isolated", invert=False):
        return {"type": "Split", "pattern": {"Regex": expression}, "behavior": behavior, "invert": invert}

    derive("qwen", normalizer={"type": "NFC"}, pre_tokenizer=sequence(regex(QWEN), level))
    derive("gpt2", pre_tokenizer=level | {"use_regex": True})
    derive("gpt2_prefix_space", pre_tokenizer=level | {"use_regex": True, "add_prefix_space": True})
    derive("llama3", pre_tokenizer=sequence(regex(LLAMA3), level), model_ignore_merges=True,
           post_processor={"type": "Sequence", "processors": [level, {
               "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
               "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
               "special_tokens": {"<s>": {"id": "<s>", "ids": [len(base["model"]["vocab"]) + 2], "tokens": ["<s>"]}}}]})
    derive("gpt_oss", pre_tokenizer=sequence(regex(GPT_OSS), level))
    derive("deepseek", pre_tokenizer=sequence(*map(regex, DEEPSEEK), level), normalizer={"type": "Sequence", "normalizers": []})
    derive("starcoder", pre_tokenizer=sequence({"type": "Digits", "individual_digits": True}, level | {"use_regex": True}))
    derive("falcon", pre_tokenizer=sequence({"type": "Punctuation", "behavior": "Contiguous"}, level | {"use_regex": True},
                                            {"type": "Digits", "individual_digits": False}, regex("[0-9][0-9][0-9]")))
    derive("byte_level_first", pre_tokenizer=sequence(level, regex("Ġ|[a-z]+")))
    derive("whitespace_split", pre_tokenizer=sequence({"type": "WhitespaceSplit"}, level))
    visible = [t for t in ADDED if t["content"].strip() or not t.get("normalized", True)]
    derive("nfkc", visible, normalizer={"type": "Sequence", "normalizers": [
        {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}, {"type": "Strip", "strip_left": True, "strip_right": True}]})
    derive("nfd", normalizer={"type": "NFD"})
    derive("nfkd", normalizer={"type": "NFKD"})
    derive("fuse_decoder", decoder={"type": "Sequence", "decoders": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                                                                     {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 2, "stop": 3}]})
    for behavior in ("Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        derive(f"split_{behavior}", pre_tokenizer=sequence(regex(r"[\s\d.]", behavior), level))
    derive("split_invert", pre_tokenizer=sequence(regex(r"\p{L}+", "MergedWithPrevious", True), level))
    derive("split_literal", pre_tokenizer=sequence({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithNext", "invert": False}, level))
    for i, expression in enumerate(ODD):
        derive(f"odd_{i}", pre_tokenizer=sequence(regex(expression), level))

    def sentencepiece(name, normalizer, pre, decoder, added=ADDED, **changes):
        spec = copy.deepcopy(metaspace)
        spec["normalizer"], spec["pre_tokenizer"], spec["decoder"] = normalizer, pre, decoder
        spec["model"].update(changes)
        kinds[name] = with_added(spec, added)

    alphabet = "▁" + "".join(chr(c) for c in range(33, 127)) + "éаб世"
    metaspace = parts(train("bpe", 500, alphabet, pre=pre_tokenizers.Metaspace(prepend_scheme="always"),
                            texts=["".join(c for c in t if c in alphabet + " ") for t in texts]))
    vocab = metaspace["model"]["vocab"]
    for token in ["<unk>"] + [f"<0x{b:02X}>" for b in range(256)]:
        vocab.setdefault(token, len(vocab))
    metaspace["model"] |= {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    prepend = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                                                   {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    replace = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    llama = {"type": "Sequence", "decoders": [replace, {"type": "ByteFallback"}, {"type": "Fuse"},
                                              {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    sentencepiece("llama2", prepend, None, llama)
    sentencepiece("mistral", None, meta, llama)
    sentencepiece("gemma", {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                  {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
                  {"type": "Sequence", "decoders": [replace, {"type": "ByteFallback"}, {"type": "Fuse"}]})
    sentencepiece("metaspace_always", None, meta | {"prepend_scheme": "always", "split": True}, meta | {"prepend_scheme": "always", "split": True})
    sentencepiece("metaspace_never", None, meta | {"prepend_scheme": "never", "split": True}, meta | {"prepend_scheme": "never"})
    sentencepiece("unknown_fused", prepend, None, None, byte_fallback=False)
    sentencepiece("unknown_each", prepend, None, None, byte_fallback=False, fuse_unk=False)
    sentencepiece("unknown_dropped", prepend, None, llama, byte_fallback=False, unk_token=None)
    affixed = parts(train("bpe", 500, alphabet, pre=pre_tokenizers.WhitespaceSplit(), continuing_subword_prefix="##", end_of_word_suffix="</w>",
                          unk_token="<unk>", texts=["".join(c for c in t if c in alphabet + " ") for t in texts]))
    affixed["decoder"] = {"type": "BPEDecoder", "suffix": "</w>"}
    kinds["affixes"] = with_added(affixed)

    unigram = parts(train("unigram", 500, pre=pre_tokenizers.Metaspace(prepend_scheme="always"),
                          texts=["".join(c for c in t if c in alphabet + " ") for t in texts]))
    unigram["decoder"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    kinds["unigram"] = with_added(copy.deepcopy(unigram))
    for b in range(256):
        unigram["model"]["vocab"].append([f"<0x{b:02X}>", -20.0])
    unigram["model"]["byte_fallback"] = True
    unigram["decoder"] = llama
    kinds["unigram_bytes"] = with_added(unigram)
    return kinds


def unless_it_panics(make):
    """The library panics where tokens that strip and tokens of spaces overlap, and where Strip finds no text."""
    try:
        return [make()]
    except BaseException as error: # pylint: disable=broad-except
        if type(error).__name__ != "PanicException":
            raise
        return []


def case_of(tok, text):
    ids = tok.encode(text, add_special_tokens=True).ids
    tok.encode_special_tokens = True
    plain = tok.encode(text, add_special_tokens=False).ids
    tok.encode_special_tokens = False
    return {"text": text, "ids": ids, "plain": plain, "all": tok.decode(ids, skip_special_tokens=False),
            "shown": tok.decode(plain, skip_special_tokens=True)}


def random_decode(tok, rng, byte_ids):
    """Ids in any order, as a model may give them."""
    size = tok.get_vocab_size()
    ids = [rng.choice(byte_ids) if byte_ids and rng.random() < 0.4 else rng.randrange(size) for _ in range(rng.randrange(1, 12))]
    return {"decode": ids, "shown": tok.decode(ids, skip_special_tokens=True)}


def cases_of(spec, texts, rng, decodes):
    tok = Tokenizer.from_str(json.dumps(spec))
    byte_ids = sorted(i for t, i in tok.get_vocab().items() if t.startswith("<0x"))
    cases = [c for text in texts for c in unless_it_panics(lambda t=text: case_of(tok, t))]
    return cases + [c for _ in range(decodes) for c in unless_it_panics(lambda: random_decode(tok, rng, byte_ids))]


def main():
    args = argparse.ArgumentParser(description="make tokenizers of each kind, texts and ids")
    args.add_argument("--texts", type=int, default=12)
    args.add_argument("--seed", type=int, default=16)
    args.add_argument("--kinds", help="names, parted by commas; nothing: all")
    args.add_argument("file", nargs="?", default=os.path.join(HERE, "tokenizers.json"))
    args = args.parse_args()
    rng = random.Random(7)
    kinds = make_kinds([random_text(rng) for _ in range(1500)])
    if args.kinds is not None:
        kinds = {name: kinds[name] for name in args.kinds.split(",")}
    tables = [] # vocabularies and merges, which many kinds share
    with open(args.file, "w", encoding="utf-8") as f:
        f.write('{"kinds": [\n')
        for at, (name, spec) in enumerate(kinds.items()):
            rng = random.Random(f"{args.seed} {name}")
            texts = ["", " ", *(random_text(rng) for _ in range(args.texts))]
            if args.texts >= 1000:
                texts += ["".join(chr(c) for c in ASSIGNED[i:i + 40]) for i in range(0, len(ASSIGNED), 40)]
                texts += [" ".join("a" + chr(c) + "1" + chr(c) for c in ASSIGNED[i:i + 10]) for i in range(0, len(ASSIGNED), 10)]
            cases = cases_of(spec, texts, rng, args.texts // 2)
            table = {key: spec["model"].pop(key) for key in ("vocab", "merges") if key in spec["model"]}
            if table not in tables:
                tables.append(table)
            row = {"name": name, "tokenizer": spec, "tables": tables.index(table), "cases": cases}
            f.write(("" if at == 0 else ",\n") + json.dumps(row, ensure_ascii=False))
        f.write('\n], "tables": [\n' + ",\n".join(json.dumps(t, ensure_ascii=False) for t in tables) + "\n]}\n")
    print(f"{args.file}: {len(kinds)} kinds, {os.path.getsize(args.file)} bytes")


if __name__ == "__main__":
    sys.exit(main())
