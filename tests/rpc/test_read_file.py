#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Memory.ReadFile, and clients that have no files of their own: load by a path of the daemon's, the model's tokenizer and template."""
import json
import os
import shutil

from harness import *

MODEL = SOURCE / "examples" / "model"
MODELS = SCRATCH / "models"
OUTSIDE = SCRATCH / "outside"
TMP = SCRATCH / "tmp"
OTHER = SCRATCH / "other"  # a second models-dir, with a part of another checkpoint of the same name
for directory in (MODELS, OUTSIDE, TMP, OTHER, OTHER / "away"):
    directory.mkdir()
(OTHER / "away" / "chat_template.jinja").write_text("{{ raise_exception('of another model') }}")
PIECE = 256 << 10

if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")
shutil.copytree(MODEL, MODELS / "away")


def ctl(daemon, *arguments, stdin=""):
    """Runs where the path `away` leads nowhere."""
    return subprocess.run([CTL, "--address", daemon.address, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE, input=stdin,
                          cwd=TMP, env={**os.environ, "TMPDIR": str(TMP)})


def read(c, path, offset=0):
    return c.call("Memory/ReadFile", pb.ReadFileRequest(path=str(path), offset=offset))


@test("pieces of a file are its bytes, with its size and a version that another content does not have")
def pieces(daemon):
    content = os.urandom(2 * PIECE + 5)
    path = MODELS / "big.json"
    path.write_bytes(content)
    (MODELS / "empty.jinja").write_bytes(b"")
    with Client(daemon) as c:
        got = [read(c, path, at) for at in (0, PIECE, 2 * PIECE, len(content), len(content) + 7)]
        assert b"".join(g.data for g in got) == content and [len(g.data) for g in got] == [PIECE, PIECE, 5, 0, 0]
        assert {(g.bytes, g.version) for g in got} == {(len(content), got[0].version)}
        assert read(c, "big.json", 3).data == content[3:3 + PIECE]
        (MODELS / "npugraph.lua").write_text("-- a family")
        assert read(c, "npugraph.lua").data == b"-- a family"
        empty = read(c, "empty.jinja")
        assert (empty.data, empty.bytes) == (b"", 0)
        path.write_bytes(os.urandom(len(content)))
        again = read(c, path)
        assert again.version != got[0].version and again.data == path.read_bytes()[:PIECE]


@test("only files of models are read: names, places, links and offsets are checked")
def checked(daemon):
    secret = OUTSIDE / "secret.json"
    secret.write_text("{}")
    (MODELS / "notes.txt").write_text("no")
    (MODELS / "leads.json").symlink_to(secret)
    (MODELS / "directory.json").mkdir()
    os.mkfifo(MODELS / "pipe.json")
    with Client(daemon) as c:
        for path in (MODELS / "notes.txt", "notes.txt", "", ".json", "x.json/", MODELS / "away", "x.lua", "xnpugraph.lua", "npugraph.lua/"):
            refused("PATH_NOT_ALLOWED", "PERMISSION_DENIED", read, c, path)
        for path in (secret, "../outside/secret.json", MODELS / "leads.json", MODELS / "away/../../outside/secret.json"):
            refused("PATH_NOT_ALLOWED", "PERMISSION_DENIED", read, c, path)
        refused("FILE_NOT_FOUND", "NOT_FOUND", read, c, "absent.json")
        for path in ("directory.json", "pipe.json"):
            refused("FILE_UNSUPPORTED", "INVALID_ARGUMENT", read, c, path)
        for offset in (1 << 27, (1 << 63) - 1, 1 << 63, (1 << 64) - 1):
            assert read(c, "away/config.json", offset).data == b""


@test("a client without files loads a model by the daemon's path, and its prompts use the model's own tokenizer")
def away(daemon):
    got = ctl(daemon, "load", "away/", "--max-context", 64)
    assert got.returncode == 0 and "away" in got.stdout, got
    with Client(daemon) as c:
        models = c.call("Sequences/ListModels", pb.ListModelsRequest()).models
        assert [(m.name, m.source) for m in models] == [("away", str(MODELS / "away"))], models
        assert [m.name for m in c.call("Sequences/ListModels", pb.ListModelsRequest(name="uid:0/away" if os.getuid() == 0 else "away")).models] == ["away"]
        refused("MODEL_NOT_FOUND", "NOT_FOUND", c.call, "Sequences/ListModels", pb.ListModelsRequest(name="nobody"))
        graphs = dict(prefill_graph=1, decode_graph=1)
        for source in ("a\nb", "x" * 4096):
            got = refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", c.call, "Sequences/RegisterModel",
                          pb.RegisterModelRequest(name="bad", source=source, **graphs))
            assert "the source of a model" in got.text, got.text
    prompt = ("--prompt", "In the beginning", "--tokens", 8)
    got = ctl(daemon, "generate", "away", *prompt, "--stop", "zzz")
    assert got.returncode == 0 and got.stdout == ctl(daemon, "generate", "away", "--tokenizer", MODEL, *prompt).stdout, got
    assert got.stdout.startswith("In the beginning ")
    chat = ctl(daemon, "--json", "chat", "away", "--plain", "--tokens", 3, "--min-tokens", 3, stdin="And he\n")
    assert chat.returncode == 0 and json.loads(chat.stdout)["finish"] == "length", chat
    template = SCRATCH / "t.jinja"
    template.write_text("{{ messages[-1].content }}")
    chat = ctl(daemon, "--json", "chat", "away", "--template", template, "--tokens", 3, "--min-tokens", 3, stdin="And he\n")
    assert chat.returncode == 0 and json.loads(chat.stdout)["finish"] == "length", chat
    chat = ctl(daemon, "chat", "away", stdin="And he\n")
    assert chat.returncode == 1 and "the files of away have no chat template; --template" in chat.stderr, chat
    (MODELS / "away" / "chat_template.jinja").write_text("{{ messages[-1].content }}")
    chat = ctl(daemon, "--json", "chat", "away", "--tokens", 3, "--min-tokens", 3, stdin="And he\n")
    assert chat.returncode == 0 and json.loads(chat.stdout)["finish"] == "length", chat
    assert not list(TMP.iterdir()), "copies are left"


@test("what is not there, or is no checkpoint, is refused with the daemon's path, and leaves nothing")
def absent(daemon):
    (MODELS / "bare").mkdir()
    (MODELS / "lies").mkdir()
    (MODELS / "lies" / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"], "vocab_size": "many"}')
    shutil.copytree(MODELS / "away", MODELS / "own")
    (MODELS / "own" / "npugraph.lua").write_text("no Lua at all")
    (MODELS / "cut.gguf").write_bytes(b"GGUF\3\0\0\0" + b"\1" * 40)
    (MODELS / "empty.gguf").write_bytes(b"")
    for arguments, says in ((("load", "bare"), "bare/config.json"), (("load", "nowhere"), "nowhere/config.json"), (("load", "lies"), "vocab_size"), (("load", "own"), "npugraph.lua"),
                            (("load", "cut.gguf"), f"{MODELS}/cut.gguf"), (("load", "empty.gguf"), f"{MODELS}/empty.gguf"), (("load", "none.gguf"), "none.gguf"), (("load", ""), "1 to"),
                            (("load", "../../outside"), "models-dir"), (("generate", "nobody", "--prompt", "x"), "nobody")):
        got = ctl(daemon, *arguments)
        assert got.returncode == 1 and says in got.stderr, got
    assert not list(TMP.iterdir()), "copies are left"


if __name__ == "__main__":
    main(f"--models-dir={MODELS}", f"--models-dir={OTHER}")
