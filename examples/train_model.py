#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train the small language model that is bundled in examples/model.

The model is a Qwen3ForCausalLM of about 2.8 million parameters, trained from
scratch on the King James Bible with a byte-level BPE tokenizer of 2048 tokens.
It exists so that npugraphd can be shown, tested and measured with a real
checkpoint whose output a person can read, without a download.

Text.  The translation is of 1611 and in the public domain.  Debian packages it:

    apt-get install bible-kjv
    bible -f gen1:1-rev22:21 > kjv.txt

Every line of that file is one verse, `Ge1:1 In the beginning ...`.  Verse
numbers are dropped and the verses of a chapter are joined to paragraphs under
a heading (`Genesis 1`), so that the model writes prose.  Each chapter is one
document, closed by <|endoftext|>.

Run.  A CPU with two cores needs some hours, a GPU (--device cuda) minutes:

    python3 -m venv venv
    venv/bin/pip install torch 'transformers>=4.56,<5' tokenizers safetensors numpy
    nice -n 10 venv/bin/python examples/train_model.py --text kjv.txt --out model \\
        --work work --threads 2

Everything random is drawn from --seed.  On a CPU the result is the same again on the
same machine with the same versions and thread count; elsewhere it differs by
the rounding of sums, so expect the same losses, not the same bytes.

The weights in --out are an exponential moving average of the trained ones.
They are written every --export-every steps, each time through a temporary
folder, so a usable checkpoint is there from early on; --work holds the
optimiser's state, from which --resume goes on.
"""

import argparse
import copy
import json
import math
import os
import random
import re
import shutil
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import GenerationConfig, Qwen2TokenizerFast, Qwen3Config, Qwen3ForCausalLM

EOT = "<|endoftext|>"
SPECIALS = [EOT, "<|im_start|>", "<|im_end|>"]

# The pre-tokenizer of Qwen2 and Qwen3, character by character.
QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)

BOOKS = (
    "Genesis,Exodus,Leviticus,Numbers,Deuteronomy,Joshua,Judges,Ruth,1 Samuel,2 Samuel,1 Kings,"
    "2 Kings,1 Chronicles,2 Chronicles,Ezra,Nehemiah,Esther,Job,Psalms,Proverbs,Ecclesiastes,"
    "Song of Solomon,Isaiah,Jeremiah,Lamentations,Ezekiel,Daniel,Hosea,Joel,Amos,Obadiah,Jonah,"
    "Micah,Nahum,Habakkuk,Zephaniah,Haggai,Zechariah,Malachi,Matthew,Mark,Luke,John,Acts,Romans,"
    "1 Corinthians,2 Corinthians,Galatians,Ephesians,Philippians,Colossians,1 Thessalonians,"
    "2 Thessalonians,1 Timothy,2 Timothy,Titus,Philemon,Hebrews,James,1 Peter,2 Peter,1 John,"
    "2 John,3 John,Jude,Revelation"
).split(",")


# ---------------------------------------------------------------- text


def read_chapters(path):
    """Return the text as a list of chapters, each a heading and paragraphs."""
    verse_re = re.compile(r"^(\d?[A-Za-z]+)(\d+):(\d+) (.*)$")
    chapters = []  # (book's abbreviation, chapter, [verses])
    with open(path, encoding="utf-8") as f:
        for line in f:
            m = verse_re.match(line.rstrip("\n"))
            if m is None:
                sys.exit(f"{path}: this line is not a verse: {line!r}")
            book, chapter, verse = m[1], int(m[2]), re.sub(r"\s+", " ", m[4]).strip()
            if not chapters or chapters[-1][:2] != (book, chapter):
                chapters.append((book, chapter, []))
            chapters[-1][2].append(verse)
    abbreviations = list(dict.fromkeys(c[0] for c in chapters))
    if len(abbreviations) != len(BOOKS):
        sys.exit(f"{path}: {len(abbreviations)} books, expected {len(BOOKS)}")
    names = dict(zip(abbreviations, BOOKS))

    out = []
    for book, chapter, verses in chapters:
        paragraphs, now = [], []
        for verse in verses:
            now.append(verse)
            # The source has no paragraph marks: break after a full stop, four verses or more.
            if len(now) >= 4 and verse.endswith("."):
                paragraphs.append(" ".join(now))
                now = []
        if now:
            paragraphs.append(" ".join(now))
        out.append(f"{names[book]} {chapter}\n\n" + "\n\n".join(paragraphs) + "\n")
    return out


def split_chapters(chapters, heldout, seed):
    """Whole chapters are held out, so that no sentence is seen from both sides."""
    picked = set(random.Random(seed).sample(range(len(chapters)), heldout))
    train = [c for i, c in enumerate(chapters) if i not in picked]
    return train, [chapters[i] for i in sorted(picked)]


# ---------------------------------------------------------------- tokenizer


def train_tokenizer(chapters, vocab_size):
    """A byte-level BPE tokenizer that has the same parts as Qwen3's own."""
    tok = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_SPLIT), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tok.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tok.train_from_iterator(
        chapters,
        trainers.BpeTrainer(
            vocab_size=vocab_size - len(SPECIALS),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    tok.add_special_tokens(SPECIALS)  # after the vocabulary, as in Qwen3
    assert tok.get_vocab_size() == vocab_size
    return tok


def encode_chapters(tok, chapters):
    """Return one token array and the number of UTF-8 bytes that it stands for."""
    eot, ids, size = tok.token_to_id(EOT), [], 0
    for chapter in chapters:
        ids += tok.encode(chapter, add_special_tokens=False).ids + [eot]
        size += len(chapter.encode())
    return np.array(ids, dtype=np.int64), size


# ---------------------------------------------------------------- model


def make_model(args, tok):
    eot = tok.token_to_id(EOT)
    config = Qwen3Config(
        vocab_size=tok.get_vocab_size(),
        hidden_size=args.hidden,
        intermediate_size=args.ffn,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        num_key_value_heads=args.kv_heads,
        head_dim=args.head_dim,
        hidden_act="silu",
        max_position_embeddings=args.max_positions,
        rms_norm_eps=1e-6,
        rope_theta=args.rope_theta,
        tie_word_embeddings=True,
        attention_bias=False,
        use_cache=True,
        bos_token_id=eot,
        eos_token_id=eot,
        pad_token_id=None,
    )
    model = Qwen3ForCausalLM._from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    # Residual branches start small, so that depth does not grow the variance.
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_((2 * args.layers) ** -0.5)
            layer.mlp.down_proj.weight.mul_((2 * args.layers) ** -0.5)
    return model


def add_dropout(model, p):
    """Dropout on both residual branches; Qwen3 has none of its own there."""
    if p <= 0:
        return

    def hook(module, _inputs, output):
        return F.dropout(output, p, module.training)

    for layer in model.model.layers:
        layer.self_attn.o_proj.register_forward_hook(hook)
        layer.mlp.down_proj.register_forward_hook(hook)


def lm_loss(model, tokens):
    """Mean cross entropy in nats of predicting tokens[:, 1:]."""
    hidden = model.model(input_ids=tokens[:, :-1], use_cache=False).last_hidden_state
    logits = model.lm_head(hidden)
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class Batches:
    """Windows of the token stream in random order, each epoch at another offset."""

    def __init__(self, data, seed):
        self.data, self.rng = data, np.random.default_rng(seed)
        self.starts, self.length = [], 0

    def next(self, batch, length):
        if length != self.length or len(self.starts) < batch:
            self.length = length
            first = int(self.rng.integers(0, length))
            starts = np.arange(first, len(self.data) - length - 1, length)
            self.starts = list(self.rng.permutation(starts))
        rows = [self.data[s : s + length + 1] for s in (self.starts.pop() for _ in range(batch))]
        return torch.from_numpy(np.stack(rows))


@torch.no_grad()
def evaluate(model, data, length=512):
    """Held-out loss in nats per token: every token predicted once."""
    model.eval()
    total, count = 0.0, 0
    for start in range(0, len(data) - 1, length):
        window = torch.from_numpy(data[start : start + length + 1])[None].to(model.device)
        n = window.shape[1] - 1
        total += lm_loss(model, window).item() * n
        count += n
    return total / count


@torch.no_grad()
def sample(model, tok, prompt, count, temperature=0.0, seed=0):
    model.eval()
    ids = tok.encode(prompt, add_special_tokens=False).ids
    gen = torch.Generator().manual_seed(seed)
    for _ in range(count):
        logits = model(input_ids=torch.tensor([ids], device=model.device), use_cache=False).logits[0, -1].cpu()
        if temperature == 0.0:
            ids.append(int(logits.argmax()))
        else:
            p = torch.softmax(logits / temperature, -1)
            ids.append(int(torch.multinomial(p, 1, generator=gen)))
        if ids[-1] == tok.token_to_id(EOT):
            break
    return tok.decode(ids, skip_special_tokens=False)


# ---------------------------------------------------------------- export


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=2, ensure_ascii=False)
        f.write("\n")


def export(model, tok, out, facts):
    """Write a Hugging Face checkpoint in bf16 to the folder out, each file at once."""
    eot = tok.token_to_id(EOT)
    tmp = out.rstrip("/") + ".tmp"
    shutil.rmtree(tmp, ignore_errors=True)
    os.makedirs(tmp)
    os.makedirs(out, exist_ok=True)

    bf16 = copy.deepcopy(model).to("cpu", torch.bfloat16)
    for module in bf16.modules():
        module._forward_hooks.clear()
    bf16.config.architectures = ["Qwen3ForCausalLM"]
    bf16.generation_config = GenerationConfig(
        bos_token_id=eot, eos_token_id=[eot, tok.token_to_id("<|im_end|>")], do_sample=False, max_new_tokens=256
    )
    bf16.save_pretrained(tmp, safe_serialization=True)

    fast = Qwen2TokenizerFast(
        tokenizer_object=tok,
        unk_token=None,
        bos_token=None,
        eos_token=EOT,
        pad_token=EOT,
        additional_special_tokens=SPECIALS[1:],
        add_prefix_space=False,
        model_max_length=model.config.max_position_embeddings,
    )
    fast.save_pretrained(tmp)
    # The fast class changes details: write the tokenizer that was trained, with the fields that
    # the library leaves at other defaults (they have no effect) set as in Qwen3's own file.
    parts = json.loads(tok.to_str())
    parts["model"].update(continuing_subword_prefix="", end_of_word_suffix="")
    parts["decoder"].update(add_prefix_space=False, trim_offsets=False, use_regex=False)
    write_json(os.path.join(tmp, "tokenizer.json"), parts)
    for extra in ("vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json"):
        if os.path.exists(os.path.join(tmp, extra)):
            os.remove(os.path.join(tmp, extra))
    path = os.path.join(tmp, "tokenizer_config.json")
    with open(path) as f:
        settings = json.load(f)
    settings["tokenizer_class"] = "Qwen2Tokenizer"
    write_json(path, settings)
    write_json(os.path.join(tmp, "training.json"), facts)
    for name in sorted(os.listdir(tmp)):
        os.chmod(os.path.join(tmp, name), 0o644)
        os.replace(os.path.join(tmp, name), os.path.join(out, name))
    os.rmdir(tmp)


# ---------------------------------------------------------------- training


def learning_rate(args, step):
    """Linear warm-up, a plateau, and a linear descent over the last --decay-steps.

    A plateau knows nothing of --steps: a run that is resumed with another --steps before the
    descent begins ends as if it had been started with it.
    """
    rise = (step + 1) / args.warmup
    fall = (args.steps - step) / args.decay_steps
    return args.lr * min(1.0, rise, fall)


def main():
    ap = argparse.ArgumentParser(description="train the model of examples/model")
    ap.add_argument("--text", required=True, help="output of bible -f gen1:1-rev22:21")
    ap.add_argument("--out", required=True, help="folder for the checkpoint")
    ap.add_argument("--work", required=True, help="folder for state and the log")
    ap.add_argument("--resume", action="store_true", help="go on from the state in --work")
    ap.add_argument("--seed", type=int, default=1611)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--device", default="cpu", help="cpu or cuda")
    ap.add_argument("--compile", action="store_true", help="use torch.compile (needs a C++ compiler)")
    ap.add_argument("--vocab", type=int, default=2048)
    ap.add_argument("--hidden", type=int, default=192)
    ap.add_argument("--layers", type=int, default=6)
    ap.add_argument("--heads", type=int, default=4)
    ap.add_argument("--kv-heads", type=int, default=2)
    ap.add_argument("--head-dim", type=int, default=64)
    ap.add_argument("--ffn", type=int, default=448)
    ap.add_argument("--max-positions", type=int, default=1024)
    ap.add_argument("--rope-theta", type=float, default=10000.0)
    ap.add_argument("--steps", type=int, default=3900)
    ap.add_argument("--decay-steps", type=int, default=1500)
    ap.add_argument(
        "--long-steps", type=int, default=250, help="of these, so many at the end use windows of --max-positions"
    )
    ap.add_argument("--batch-tokens", type=int, default=2048)
    ap.add_argument("--length", type=int, default=256)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--warmup", type=int, default=200)
    ap.add_argument("--weight-decay", type=float, default=0.1)
    ap.add_argument("--dropout", type=float, default=0.05)
    ap.add_argument("--ema", type=float, default=0.997)
    ap.add_argument("--heldout", type=int, default=40, help="chapters held out")
    ap.add_argument("--eval-every", type=int, default=400)
    ap.add_argument("--export-every", type=int, default=200)
    args = ap.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    os.makedirs(args.work, exist_ok=True)
    log = open(os.path.join(args.work, "log.txt"), "a", buffering=1)

    def say(text):
        print(text, flush=True)
        log.write(text + "\n")

    train_text, heldout_text = split_chapters(read_chapters(args.text), args.heldout, args.seed)
    tok = train_tokenizer(train_text, args.vocab)
    train_ids, train_bytes = encode_chapters(tok, train_text)
    held_ids, held_bytes = encode_chapters(tok, heldout_text)
    held_ratio = len(held_ids) / held_bytes / math.log(2)  # nats per token -> bits per byte
    say(f"train {len(train_ids)} tokens of {train_bytes} bytes; held out {len(held_ids)} of {held_bytes}")

    model = make_model(args, tok).to(args.device)
    params = sum(p.numel() for p in model.parameters())
    say(f"{params} parameters")
    ema = copy.deepcopy(model).requires_grad_(False)
    add_dropout(model, args.dropout)

    decay = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": args.weight_decay}, {"params": plain, "weight_decay": 0.0}],
        lr=args.lr,
        betas=(0.9, 0.95),
        eps=1e-8,
        fused=True,
    )
    batches = Batches(train_ids, args.seed)

    state_path = os.path.join(args.work, "state.pt")
    first, tokens, spent = 0, 0, 0.0
    if args.resume:
        state = torch.load(state_path, map_location="cpu", weights_only=False)
        model.load_state_dict(state["model"])
        ema.load_state_dict(state["ema"])
        opt.load_state_dict(state["opt"])
        torch.set_rng_state(state["rng"])
        batches = state["batches"]
        first, tokens, spent = state["step"], state["tokens"], state["spent"]

    loss_fn = torch.compile(lm_loss, dynamic=False) if args.compile else lm_loss
    begun, recent = time.time() - spent, []
    for step in range(first, args.steps):
        length = args.length if step < args.steps - args.long_steps else args.max_positions
        lr = learning_rate(args, step)
        for group in opt.param_groups:
            group["lr"] = lr

        model.train()
        window = batches.next(args.batch_tokens // length, length).to(args.device)
        loss = loss_fn(model, window)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        tokens += window.shape[0] * (window.shape[1] - 1)
        recent = (recent + [loss.item()])[-100:]

        with torch.no_grad():  # the average follows closely while it is young
            keep = min(args.ema, (step + 1) / (step + 10))
            torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - keep)

        done = step + 1
        if done % 20 == 0:
            say(
                f"step {done} lr {lr:.2e} loss {sum(recent[-20:]) / len(recent[-20:]):.4f} "
                f"{(time.time() - begun):.0f} s"
            )
        if done % args.eval_every == 0 or done == args.steps:
            held = evaluate(ema, held_ids)
            say(f"step {done}: held-out {held:.4f} nats/token, {held * held_ratio:.4f} bits/byte")
        if done % args.export_every == 0 or done == args.steps:
            rounded = copy.deepcopy(ema).to(torch.bfloat16).to(torch.float32)
            held = evaluate(rounded, held_ids)
            shown = evaluate(rounded, train_ids[: len(held_ids)])
            facts = {
                "steps": done,
                "steps_planned": args.steps,
                "tokens": tokens,
                "epochs": round(tokens / len(train_ids), 2),
                "parameters": params,
                "train_tokens": len(train_ids),
                "heldout_tokens": len(held_ids),
                "heldout_bytes": held_bytes,
                "train_loss_running": round(sum(recent) / len(recent), 4),
                "train_loss_no_dropout": round(shown, 4),
                "heldout_loss": round(held, 4),
                "heldout_bits_per_byte": round(held * held_ratio, 4),
                "seconds": round(time.time() - begun),
                "seed": args.seed,
                "torch": torch.__version__,
            }
            export(rounded, tok, args.out, facts)
            torch.save(
                {
                    "model": model.state_dict(),
                    "ema": ema.state_dict(),
                    "opt": opt.state_dict(),
                    "rng": torch.get_rng_state(),
                    "batches": batches,
                    "step": done,
                    "tokens": tokens,
                    "spent": time.time() - begun,
                },
                state_path + ".tmp",
            )
            os.replace(state_path + ".tmp", state_path)
            say(f"exported: {json.dumps(facts)}")
            say(sample(rounded, tok, "And it came to pass", 60))


if __name__ == "__main__":
    main()
