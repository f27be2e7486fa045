#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers and chat templates of GGUF files."""

from gguf_files import *

TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def tokenizer_metadata():
    """The bundled model's tokenizer as metadata."""
    made = json.loads((MODEL / "tokenizer.json").read_text())
    tokens = sorted(made["model"]["vocab"], key=made["model"]["vocab"].get)
    kinds = [1] * len(tokens) + [3] * len(made["added_tokens"])
    tokens += [t["content"] for t in made["added_tokens"]]
    merges = [m if isinstance(m, str) else " ".join(m) for m in made["model"]["merges"]]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": merges, "tokenizer.ggml.eos_token_id": 2045,
            "tokenizer.ggml.bos_token_id": 2046, "tokenizer.chat_template": TEMPLATE}


def tokenize(path, *arguments):
    out = subprocess.run([CTL, "tokenize", path, *arguments], capture_output=True, text=True, timeout=PATIENCE)
    assert out.returncode == 0, out
    return out.stdout


@test("a gpt2 tokenizer gives the ids of the checkpoint's tokenizer.json, and begins and ends texts if the file says so")
def byte_level(daemon):
    metadata = tokenizer_metadata()
    path = write("gpt2.gguf", metadata, [])
    for line in ("In the beginning", " In  the\n\nbeginning 123!", "I'll <|im_end|> é中\t", "x"):
        ids = tokenize(MODEL, line)
        assert tokenize(path, line) == ids
        assert tokenize(path, "--decode", ids.strip()) == tokenize(MODEL, "--decode", ids.strip())
    both = write("both.gguf", {**metadata, "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}, [])
    assert tokenize(both, "x").strip() == "2046," + tokenize(MODEL, "x").strip() + ",2045"
    for key, value, says in (("pre", "default", "llama-bpe"), ("model", "bert", "gpt2 and llama"), ("merges", 3, "merges"),
                             ("token_type", [1], "token_type"), ("bos_token_id", 9999, "9999"), ("precompiled_charsmap", "x", "precompiled"),
                             ("tokens", ["a", "a"], "twice"), ("add_bos_token", "yes", "bool")):
        wrong = {**metadata, "tokenizer.ggml." + key: value, **({} if key == "add_bos_token" else {"tokenizer.ggml.add_bos_token": True})}
        out = subprocess.run([CTL, "tokenize", write("wrong.gguf", wrong, []), "x"], capture_output=True, text=True, timeout=PATIENCE)
        assert out.returncode == 1 and f"tokenizer.ggml.{key}" in out.stderr and says in out.stderr, out


@test("each name in tokenizer.ggml.pre gives the ids of the tokenizers library; merges that do not make a token are refused where it matters")
def pre_tokenizers():
    made = json.loads((GOLDEN / "gguf_pre.json").read_text())
    end = len(made["tokens"])
    metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": [*made["tokens"], "<end>"], "tokenizer.ggml.merges": made["merges"],
                "tokenizer.ggml.token_type": [1] * end + [3], "tokenizer.ggml.add_bos_token": False}
    for name, ids in made["ids"].items():
        path = write("pre.gguf", {**metadata, "tokenizer.ggml.pre": name}, [])
        got = tokenize(path, "<end>".join(made["texts"])).strip().split(f",{end},")
        for line, wanted, one in zip(made["texts"], ids, got, strict=True):
            assert one == ",".join(map(str, wanted)), (name, line)
        path = write("fewer.gguf", {**metadata, "tokenizer.ggml.pre": name, "tokenizer.ggml.merges": made["merges"][:-1]}, [])
        out = subprocess.run([CTL, "tokenize", path, "x"], capture_output=True, text=True, timeout=PATIENCE)
        refused = name in ("smaug-bpe", "dbrx", "glm4", "chatglm-bpe", "tekken", "gpt-4o", "falcon3", "pixtral")
        assert out.returncode == refused and ("make no token" in out.stderr) == refused, (name, out)


@test("spaces without end are split in a time that grows with their number")
def spaces():
    made = json.loads((GOLDEN / "gguf_pre.json").read_text())
    metadata = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": made["tokens"], "tokenizer.ggml.merges": made["merges"],
                "tokenizer.ggml.add_bos_token": False}
    for name in made["ids"] | {"deepseek-llm": None}:
        ids = tokenize(write("pre.gguf", {**metadata, "tokenizer.ggml.pre": name}, []), " " * 40000 + "1").strip().split(",")
        assert made["tokens"][int(ids[-1])] == "1", name


@test("a llama tokenizer makes its merges of the scores, with the ids of transformers' conversion")
def sentencepiece(daemon):
    made = MADE["sentencepiece"]
    path = write("spm.gguf", {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": made["tokens"],
                              "tokenizer.ggml.scores": made["scores"], "tokenizer.ggml.token_type": made["token_type"],
                              "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
                              "tokenizer.ggml.unknown_token_id": 0}, [])
    for line, ids in zip(made["texts"], made["ids"]):
        if line:
            assert tokenize(path, line).strip() == ",".join(map(str, [1] + ids)), line
            if len(line) % 4 == 0 or len(line) < 12:
                assert tokenize(path, "--decode", ",".join(map(str, ids))).removesuffix("\n") == line.replace("▁", " ")


@test("chat takes the template from the file, and generation ends with its tokens")
def chat(daemon):
    tensors = [(name_in_gguf(name), t["shape"], BF16, data) for name, t, data in read_directory(MODEL)]
    path = write("chat.gguf", {**metadata_of(json.loads((MODEL / "config.json").read_text())), **tokenizer_metadata()}, tensors)
    ctl(daemon, "load", path, "--max-batch", 2)
    ctl(daemon, "load", MODEL, "--name", "m", "--max-batch", 2)
    prompt = "<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n"
    wanted = json.loads(ctl(daemon, "--json", "generate", "m", "--tokenizer", MODEL, "--ids", tokenize(MODEL, prompt).strip(),
                            "--tokens", 8).stdout)
    out = subprocess.run([CTL, "--json", "--address", daemon.address, "chat", "chat", "--tokenizer", path, "--tokens", "8"],
                         input="Who?\n", capture_output=True, text=True, timeout=PATIENCE)
    assert out.returncode == 0, out
    assert json.loads(out.stdout.splitlines()[0])["content"] == wanted["text"], (out.stdout, wanted)
    own = subprocess.run([CTL, "--json", "--address", daemon.address, "chat", "chat", "--tokens", "8"], input="Who?\n",
                         capture_output=True, text=True, timeout=PATIENCE)
    assert own.stdout == out.stdout, own
    moved = subprocess.run([CTL, "--json", "--address", daemon.address, "load", path.name, "--name", "moved", "--max-batch", "2"],
                           capture_output=True, text=True, timeout=PATIENCE, cwd="/")
    assert moved.returncode == 0, moved
    assert json.loads(ctl(daemon, "--json", "generate", "moved", "--ids", tokenize(MODEL, prompt).strip(), "--tokens", 8).stdout)["tokens"] \
        == wanted["tokens"]
    bare = write("bare.gguf", {k: v for k, v in tokenizer_metadata().items() if "chat" not in k}, [])
    out = subprocess.run([CTL, "--address", daemon.address, "chat", "chat", "--tokenizer", bare], input="x\n", capture_output=True, text=True,
                         timeout=PATIENCE)
    assert out.returncode == 1 and "tokenizer.chat_template" in out.stderr, out


if __name__ == "__main__":
    main(*FOLDERS)
