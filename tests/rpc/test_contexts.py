#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Contexts of npugraphctl: which one is used, what comes before it, and files that are wrong."""
from harness import *

CONFIG = SCRATCH / "config"
FILES = CONFIG / "npugraph" / "contexts"


def ctl(*args, **env):
    """Runs npugraphctl in a directory of its own, with the user's configuration in CONFIG."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("NPUGRAPH_")}
    return subprocess.run([CTL, *args], capture_output=True, text=True, timeout=60,
                          env={**clean, "XDG_CONFIG_HOME": str(CONFIG), **env})


def write(name, text):
    FILES.mkdir(parents=True, exist_ok=True)
    (FILES / name).write_text(text)


def version_of(result):
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["pid"]


def refusal(result, words, code=1):
    assert result.returncode == code and words in result.stderr, (result.returncode, result.stderr)


@test("a context names a daemon; options come before it, and it before the environment")
def test_context_names_a_daemon():
    with Daemon() as one, Daemon() as two:
        write("one.conf", f"# the first\naddress = {one.address}\n")
        write("two.conf", f"address = {two.address}\n")
        assert version_of(ctl("--context", "one", "status", "--json")) == one.process.pid
        assert version_of(ctl("status", "--json", "--context=two")) == two.process.pid
        assert version_of(ctl("status", "--json", NPUGRAPH_CONTEXT="two")) == two.process.pid
        assert version_of(ctl("status", "--wait", "--json", "--context=one")) == one.process.pid
        # An option comes before the context, and the context before the environment's address.
        assert version_of(ctl("status", "--json", "--context=two", "--address", one.address)) == one.process.pid
        assert version_of(ctl("status", "--json", "--context=two", NPUGRAPH_ADDRESS=one.address)) == two.process.pid
        write("default.conf", f"address = {one.address}\n")
        assert version_of(ctl("status", "--json")) == one.process.pid
        assert version_of(ctl("status", "--json", NPUGRAPH_ADDRESS=two.address)) == two.process.pid
        rows = json.loads(ctl("contexts", "--json", "--context=two").stdout)["contexts"]
        assert [(r["name"], r["address"], r["used"]) for r in rows] == [
            ("default", one.address, ""), ("one", one.address, ""), ("two", two.address, "yes")], rows


@test("contexts that are wrong or absent are refused with their file and line")
def test_what_is_wrong_is_told():
    refusal(ctl("status", "--context", "nobody"), "there is no context nobody: no file " + str(FILES))
    for name in ("../one", "", ".one", "a/b", "x" * 65, "one two"):
        refusal(ctl("status", "--context", name), "is no context's name")
    for text, words in (("", "it has no address"), ("addres = x\n", "addres"), ("address = unix:/x\ntoken-file = t\n", "token-file is t"),
                        ("address = unix:/x\naddress = unix:/y\n", "was set in line 1")):
        write("bad.conf", text)
        refusal(ctl("status", "--context", "bad"), words)
        rows = json.loads(ctl("contexts", "--json").stdout)["contexts"]
        assert any(r["name"] == "bad" and words in r["error"] for r in rows), rows
    (FILES / "bad.conf").unlink()
    # A context's token is for its own daemon.
    write("two.conf", "address = unix:/absent\ntoken-file = /absent/token\n")
    assert "/absent/token" in ctl("status", "--context", "two").stderr
    assert "/absent/token" not in ctl("status", "--context", "two", "--address", "unix:/nowhere", "--timeout", "1s").stderr
    write("default.conf", "nonsense\n")
    refusal(ctl("status"), "default.conf")
    assert ctl("completion", "bash").returncode == 0  # needs no daemon
    (FILES / "default.conf").unlink()


@test("without a home there are no contexts")
def test_without_a_home_there_are_no_contexts():
    result = ctl("contexts", XDG_CONFIG_HOME="", HOME="")
    assert result.returncode == 0 and "no contexts" in result.stdout, result


main(shared=False)
