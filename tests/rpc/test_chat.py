#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""npugraphctl chat: history, KV blocks of earlier turns, ^C and ^D on a terminal, and templates that cannot be used."""
import fcntl
import pty
import shutil
import termios

from harness import *

MODEL = SOURCE / "examples" / "model"
CHATML = json.loads((SOURCE / "tests" / "golden" / "chat.json").read_text())["templates"]["chatml"]
DIR = SCRATCH / "models" / "chat" # the bundled model, with a template and a context that takes long to fill

if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")
if subprocess.run(["python3", "-I", "-c", "import jinja2"], capture_output=True).returncode != 0:
    skip_all("python3-jinja2 is not installed")
shutil.copytree(MODEL, DIR)
(DIR / "config.json").write_text(json.dumps({**json.loads((MODEL / "config.json").read_text()), "max_position_embeddings": 16384}))
(DIR / "chat_template.jinja").write_text(CHATML)


def load(daemon):
    with Client(daemon, session=False) as c:
        if [m.name for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models]:
            return
    subprocess.run([CTL, "--quiet", "--address", daemon.address, "load", DIR, "--name", "m", "--max-context", "16384", "--kv-bytes", "64M"],
                   check=True, capture_output=True)


def chat(daemon, lines, *options, directory=DIR):
    """Says the lines; returns (answers, the finished process)."""
    load(daemon)
    out = subprocess.run([CTL, "--json", "--address", daemon.address, "chat", "m", "--tokenizer", directory, *options], text=True,
                         input="".join(line + "\n" for line in lines), capture_output=True, timeout=PATIENCE)
    return [json.loads(line) for line in out.stdout.splitlines()], out


def ids_of(text):
    out = subprocess.run([CTL, "--json", "tokenize", MODEL, text], capture_output=True, text=True, check=True)
    return json.loads(out.stdout)["ids"]


def says(role, text):
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


@test("a turn goes on in the sequence of the turns before, and its answer is that of the whole text as a prompt")
def history(daemon):
    lines = ["Who made the heaven?", "And the earth, and the sea?", "Why?"]
    answers, out = chat(daemon, lines, "--system", "Be short.", "--tokens", "9", "--min-tokens", "9")
    assert out.returncode == 0 and not out.stderr and [a["tokens"] for a in answers] == [9, 9, 9], out
    assert [a["finish"] for a in answers] == ["length"] * 3
    text, there = says("system", "Be short."), 0
    for line, answer in zip(lines, answers):
        text += says("user", line) + "<|im_start|>assistant\n"
        assert answer["reused"] == there and answer["given"] + there == len(ids_of(text)), (answer, there)
        with Client(daemon) as c:
            prompt = c.call("Sequences/Open", pb.OpenRequest(model="m", prompt=ids_of(text), sampling=pb.Sampling(min_tokens=9)))
            want = [t for m in c.call("Sequences/Generate", pb.GenerateRequest(sequence=prompt.sequence, max_tokens=9)) for t in m.tokens]
        said = subprocess.run([CTL, "tokenize", MODEL, "--decode", ",".join(map(str, want))], capture_output=True, text=True, check=True).stdout
        assert said == answer["content"] + "\n", (said, answer)
        there += answer["given"] + 8 # the last token of the answer is given with the next turn
        text += answer["content"] + "<|im_end|>\n"


@test("a turn whose text goes on in the middle of a word has the tokens of the whole text, and goes on in the sequence")
def middle(daemon):
    first = SCRATCH / "first"  # marks the beginning of a text, and not that of its parts
    shutil.copytree(DIR, first)
    words = {"\u2581": 0, **{chr(ord("a") + i): i + 1 for i in range(26)}}
    space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    (first / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": space, "post_processor": None, "decoder": space,
        "model": {"type": "BPE", "unk_token": None, "fuse_unk": False, "byte_fallback": False, "vocab": words, "merges": []}}))
    (first / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    answers, out = chat(daemon, ["ab", "de"], "--tokens", "3", "--min-tokens", "3", "--logit-bias", f"{words['c']}=1000", directory=first)
    assert [a["content"] for a in answers] == ["ccc", "ccc"], out
    assert [(a["given"], a["reused"]) for a in answers] == [(3, 0), (3, 5)], answers  # the answer's last token is given with the turn


@test("/reset forgets, //text is said, a template that drops what was said begins a new prompt")
def commands(daemon):
    answers, out = chat(daemon, ["Who?", "/reset", "Who?", "/help", "/nothing", "//Who?", "/quit", "not said"], "--tokens", "5", "--min-tokens", "5")
    assert out.returncode == 0 and len(answers) == 3 and answers[0] == answers[1], answers
    assert "There is no such command" in out.stderr and out.stderr.count("/reset forgets") == 2 and answers[2]["reused"] > 0
    last = SCRATCH / "last.jinja"
    last.write_text("{{ messages[-1].content }}")
    answers, _ = chat(daemon, ["Who is he?", "And she?"], "--template", last, "--tokens", "4", "--min-tokens", "4")
    assert [a["reused"] for a in answers] == [0, 0] and answers[1]["given"] == len(ids_of("And she?"))
    answers, _ = chat(daemon, ["In the", " and", ""], "--plain", "--tokens", "4", "--min-tokens", "4")
    assert [a["reused"] > 0 for a in answers] == [False, True, True] and answers[2]["given"] == 1
    answers, _ = chat(daemon, ["Who?"], "--tokens", "40", "--min-tokens", "40", "--stop", " of")
    assert answers[0]["finish"] == "stop" and " of" not in answers[0]["content"]


@test("without a template chat says what to do; templates that fail or do not end cost a turn; what does not fit is told")
def templates(daemon):
    answers, out = chat(daemon, ["x"], directory=MODEL)
    assert out.returncode == 1 and not answers and "no chat template" in out.stderr and "--plain" in out.stderr, out
    bad = SCRATCH / "bad.jinja"
    bad.write_text("{% if messages[-1].content == 'loop' %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}{% endif %}"
                   "{% if messages[-1].content == 'raise' %}{{ raise_exception('not that') }}{% endif %}{{ messages | map(attribute='content') | join(' ') }}")
    answers, out = chat(daemon, ["one", "loop", "raise", "two"], "--template", bad, "--tokens", "3", "--min-tokens", "3")
    slow = "processor time" in out.stderr or "was not rendered within" in out.stderr  # the second where other programs have the CPUs
    assert len(answers) == 2 and slow and "not that" in out.stderr, out
    answers, out = chat(daemon, ["word " * 20000, "one"], "--tokens", "3")
    assert len(answers) == 1 and "PROMPT_TOO_LONG" in out.stderr and "/reset" in out.stderr, out
    for options, text in ((["--plain", "--system", "x"], "--plain"), (["--tokens", "0"], "--tokens"), (["--min-p", "x"], "--min-p")):
        _, out = chat(daemon, [], *options)
        assert out.returncode == 2 and text in out.stderr, out
    until("all sequences are closed", lambda: daemon.stats()["sequences"]["open"] == 0)


@test("a line that is not UTF-8 is told and left out, and a template that is a directory is refused")
def not_text(daemon):
    load(daemon)
    command = [CTL, "--json", "--address", daemon.address, "chat", "m", "--tokenizer", DIR, "--tokens", "3", "--min-tokens", "3"]
    out = subprocess.run(command, input=b"Who?\nna\xefve\n", capture_output=True, timeout=PATIENCE)
    assert len(out.stdout.splitlines()) == 1 and b"not UTF-8" in out.stderr, out
    out = subprocess.run([*command, "--template", str(SCRATCH)], input=b"Who?\n", capture_output=True, timeout=PATIENCE)
    assert out.returncode == 1 and b"cannot be read" in out.stderr, out


@test("on a terminal ^C ends the answer and not the chat, ^D ends the chat")
def terminal(daemon):
    load(daemon)
    master, slave = pty.openpty()
    child = subprocess.Popen([CTL, "--address", daemon.address, "chat", "m", "--tokenizer", DIR, "--tokens", "15000", "--min-tokens", "15000"],
                             stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                             preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(slave)
    seen = "" # that nobody waited for yet

    def read_until(what):
        nonlocal seen
        while what not in seen:
            seen += os.read(master, 65536).decode(errors="replace")
        before, _, seen = seen.partition(what)
        return before

    try:
        read_until("> ")
        for turn in range(2):
            os.write(master, b"Who made it?\n")
            read_until("Who made it?\r\n")
            until("the answer is under way", lambda: daemon.stats()["sequences"]["open"] == 1)
            read_until(" ")
            os.write(master, b"\x03")
            read_until("interrupted")
            assert (", 0 were there]" in read_until("\n> ")) == (turn == 0)
        for _ in range(300):  # also just before it begins to wait for a line
            os.write(master, b"half a line\x03")
            read_until("\n> ")
        os.write(master, b"\x04")
        assert child.wait(PATIENCE) == 0, child.returncode
    finally:
        child.kill()
        child.wait()
        os.close(master)


if __name__ == "__main__":
    main(f"--models-dir={DIR.parent}")
