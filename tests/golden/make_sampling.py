# SPDX-License-Identifier: Apache-2.0
"""Make tests/golden/sampling.json: rows of logits, sampling parameters, and the probabilities that transformers gives.

    venv/bin/python tests/golden/make_sampling.py

transformers itself puts its processors in order (GenerationMixin._get_logits_processor), so the order is compared too. It has no
presence and frequency penalty: Counts below is their definition, by the tokens that were generated. tests/unit/test_sampling.c
draws from each row and compares what comes with the probabilities.

No logit occurs twice in a row, because transformers' top_k keeps all equal ones and the daemon the first.
"""
import json
import os
import types

import numpy
import torch
import transformers
from transformers import GenerationConfig
from transformers.generation import GenerationMixin, LogitsProcessor, LogitsProcessorList

HERE = os.path.dirname(os.path.abspath(__file__))
STOPS = [2, 5]


class Counts(LogitsProcessor):
    """presence and frequency penalty of the tokens behind the first `given`."""

    def __init__(self, given, presence, frequency):
        self.given, self.presence, self.frequency = given, presence, frequency

    def __call__(self, input_ids, scores):
        counts = torch.bincount(input_ids[0, self.given:], minlength=scores.shape[-1]).to(scores.dtype)
        return scores - self.frequency * counts - self.presence * (counts > 0)


class Model(GenerationMixin):
    config = types.SimpleNamespace()


def expected(case, logits):
    names = {"top_k": "top_k", "top_p": "top_p", "min_p": "min_p", "typical_p": "typical_p", "repetition_penalty": "repetition_penalty",
             "min_tokens": "min_new_tokens"}
    how = case["sampling"]
    config = GenerationConfig(top_k=0)
    for ours, theirs in names.items():
        if ours in how:
            setattr(config, theirs, how[ours])
    config.do_sample = how.get("temperature", 0) > 0
    config.temperature = how.get("temperature") or None
    if how.get("logit_bias"):
        config.sequence_bias = {(token,): bias for token, bias in how["logit_bias"]}
    if how.get("bad_words"):
        config.bad_words_ids = how["bad_words"]
    config._eos_token_tensor = torch.tensor(STOPS)
    own = LogitsProcessorList()
    if "presence_penalty" in how or "frequency_penalty" in how:
        own.append(Counts(case["given"], how.get("presence_penalty", 0), how.get("frequency_penalty", 0)))
    allowed = case.get("allowed")
    processors = Model()._get_logits_processor(
        config, input_ids_seq_length=case["given"], encoder_input_ids=None,
        prefix_allowed_tokens_fn=(lambda batch, ids: allowed) if allowed else None, logits_processor=own, device="cpu")
    ids = torch.tensor([case["context"]], dtype=torch.long)
    scores = processors(ids, torch.tensor([logits], dtype=torch.float32))[0]
    if not config.do_sample:
        return [[int(scores.argmax()), 1.0]], [type(p).__name__ for p in processors]
    p = torch.softmax(scores.double(), -1)
    return [[int(i), float(f"{p[i]:.8f}")] for i in p.nonzero().flatten()], [type(p).__name__ for p in processors]


def cases(rng):
    """Each parameter alone, each pair of them, and all; small and large vocabularies; contexts that repeat."""
    single = [
        {}, {"top_k": 7}, {"top_p": 0.6}, {"min_p": 0.05}, {"min_p": 0.9}, {"min_p": 1.0}, {"typical_p": 0.2}, {"typical_p": 0.7},
        {"typical_p": 0.97}, {"repetition_penalty": 1.3}, {"repetition_penalty": 0.7}, {"repetition_penalty": 8.0},
        {"presence_penalty": 1.5}, {"presence_penalty": -0.5}, {"frequency_penalty": 0.8}, {"frequency_penalty": -0.3},
        {"min_tokens": 100}, {"min_tokens": 1}, "bias", "bad", "allowed"]
    for vocab in (11, 64, 1025, 3000):
        for first in single:
            others = [{}, {"temperature": 0}] + [single[int(rng.integers(1, len(single)))] for _ in range(2)]
            for second in others if vocab < 100 else others[:1] + others[3:]:
                yield vocab, (first, second)
        for _ in range(12):
            yield vocab, tuple(single)[1 + int(rng.integers(0, 3))::2]


def make(rng, vocab, parts):
    n = int(rng.integers(1, 60))
    context = [int(t) for t in rng.integers(0, min(vocab, 40), n)]
    case = {"vocab": vocab, "context": context, "given": int(rng.integers(1, n + 1)), "sampling": {"temperature": float(rng.choice([0.5, 1, 1.7]))}}
    for part in parts:
        if part == "bias":
            tokens = rng.choice(vocab, min(vocab, 6), replace=False)
            case["sampling"]["logit_bias"] = [[int(t), float(b)] for t, b in zip(tokens, (-100.0, 2.5, -1.5, 100.0 if len(parts) == 1 else 1.0, 0.0, 3.0))]
        elif part == "bad":
            # Words that end here, words that begin here, single tokens; no stop token alone, which transformers leaves out.
            words = [[7], [context[-1], 9], context[-2:] + [1], context[-3:] + [4], [(context[0] + 1) % vocab, 3], [8, 8, 8]]
            case["sampling"]["bad_words"] = [w for w in words if len(w) <= n]
        elif part == "allowed":
            case["allowed"] = sorted(int(t) for t in rng.choice(vocab, max(3, vocab // 3), replace=False))
        else:
            case["sampling"].update(part)
    return case


def main():
    rng = numpy.random.default_rng(20261126)
    out, names = [], set()
    logits = {}
    for vocab in (11, 64, 1025, 3000):
        at = rng.permutation(numpy.linspace(-1, 1, vocab))
        row = numpy.round(7 * at**3 + 2 * at, 5)
        logits[vocab] = row.tolist()
    for vocab, parts in cases(rng):
        case = make(rng, vocab, parts)
        case["expected"], used = expected(case, logits[vocab])
        names.update(used)
        out.append(case)
    assert names >= {"SequenceBiasLogitsProcessor", "RepetitionPenaltyLogitsProcessor", "NoBadWordsLogitsProcessor", "MinPLogitsWarper",
                     "MinNewTokensLengthLogitsProcessor", "PrefixConstrainedLogitsProcessor", "TemperatureLogitsWarper", "TopKLogitsWarper",
                     "TopPLogitsWarper", "TypicalLogitsWarper"}, names
    with open(os.path.join(HERE, "sampling.json"), "w", encoding="utf-8") as f:
        json.dump({"made_by": f"transformers {transformers.__version__}, torch {torch.__version__}", "stops": STOPS,
                   "logits": [[v, logits[v]] for v in logits], "cases": out}, f, separators=(",", ":"))
        f.write("\n")
    print(f"{len(out)} cases")


if __name__ == "__main__":
    main()
