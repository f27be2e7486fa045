#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The option load: models that the daemon loads when it starts and at a reload."""
import hashlib
import re

from replacing import *
from sequences import close, generate, start

SMALL = "--kv-bytes 8M --max-batch 4"


def conf(name, *entries, models=(MODEL,), more=""):
    path = SCRATCH / name
    path.write_text(f"stats-listen = 127.0.0.1:0\ndevice-memory = 512M\nstats-names = yes\n{more}" + "".join(f"models-dir = {m}\n" for m in models)
                    + "".join(f"load = {e}\n" for e in entries))
    return path


def daemon_of(path, **kwargs):
    return Daemon(f"--config={path}", bare=True, **kwargs)


def ctl(daemon, *arguments, code=0):
    done = subprocess.run([CTL, "--address", daemon.address, "--timeout", f"{PATIENCE:.0f}s", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=2 * PATIENCE)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def wait_for_models(daemon):
    return json.loads(ctl(daemon, "--json", "status", "--wait", "--models"))


def models_of(daemon, **kwargs):
    with Client(daemon, session=False, **kwargs) as c:
        return {m.name: m for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models}


def wanted(daemon):
    with Client(daemon, session=False) as c:
        return {m.name: m for m in c.call("Admin/Status", pb.StatusRequest()).wanted_models}


def state(daemon, name):
    return word(wanted(daemon)[name], "state")


def is_serving(daemon):
    with daemon.channel() as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=encode, response_deserializer=health.HealthCheckResponse.FromString)
        return check(health.HealthCheckRequest(), timeout=PATIENCE).status == health.HealthCheckResponse.SERVING


def text(daemon, model, n=8):
    with Client(daemon) as c:
        s = start(c, model, PROMPT)
        tokens = [s.token, *generate(c, s.sequence, n)]
        close(c, s.sequence)
        return tokens


def loader_of(daemon):
    """Returns the process that loads a model: the daemon's child."""
    def find():
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rsplit(")", 1)[1].split()
                if int(fields[1]) == daemon.process.pid and fields[0] != "Z" and "load" in (path.parent / "cmdline").read_text().split("\0"):
                    return int(path.parent.name)
        return None
    return until("a load runs", find)


def is_gone(pid):
    return not pathlib.Path("/proc", str(pid)).exists()


def alone(name, npugraphctl=None):
    """Makes a directory with npugraphd and, beside it, a script in place of npugraphctl. Returns what starts that daemon."""
    path = SCRATCH / name
    path.mkdir()
    shutil.copy(DAEMON, path / "npugraphd")
    if npugraphctl:
        (path / "npugraphctl").write_text("#!/bin/sh\n" + npugraphctl)
        (path / "npugraphctl").chmod(0o700)
    return ["sh", "-c", f'shift; exec {path}/npugraphd "$@"', "sh"]


def stuck(name):
    """Returns what starts a daemon whose load of the model `never` never ends."""
    return alone(name, f'[ "$6" != never ] || {{ sleep 1000; exit 1; }}\nexec {CTL} "$@"\n')


@test("models are there after a start, in the order of the file; the daemon is ready when all are")
def starts():
    with daemon_of(conf("two", f"one {MODEL} {SMALL}", f'"two" "{MODEL}" {SMALL} --max-context 64 --private')) as d:
        shown = wait_for_models(d)
        assert shown["models"] == 2 and "missing_models" not in shown, shown
        assert d.http("/readyz") == (200, "serving\n") and is_serving(d)
        models = models_of(d)
        assert {m.owner for m in models.values()} == {f"uid:{os.geteuid()}"}
        assert models["one"].audience == "public" and models["two"].audience == "private", models
        assert models["two"].max_context == 64
        assert text(d, "one") == text(d, "two")
        log = d.log()
        assert 0 < log.index("model one is loaded, after") < log.index("model two is loaded, after"), log
        assert "npugraphd_missing_models 0\n" in d.http("/metrics")[1]


@test("it is not ready while a model is being loaded, and says so on every way; the loop and other calls go on")
def loading():
    with daemon_of(conf("stuck.conf", f"never {MODEL}", f"one {MODEL} {SMALL}"), through=stuck("never")) as d:
        loader = loader_of(d)
        assert state(d, "never") == "loading" and state(d, "one") == "waiting"
        status, body = d.http("/readyz")
        assert status == 503 and body == "serving; 2 of the models of the option load are missing (npugraphctl status)\n", body
        assert not is_serving(d) and d.http("/healthz")[0] == 200
        metrics = d.http("/metrics")[1]
        assert "npugraphd_missing_models 2\n" in metrics and "npugraphd_ready 0\n" in metrics
        assert "2 of the models of the daemon's option load are missing" in ctl(d, "--timeout", "1s", "status", "--wait", "--models", code=1)
        ctl(d, "status", "--wait")
        with Client(d) as c:
            c.allocate(64)
        # Its death is told; the next one has its turn.
        os.kill(loader, signal.SIGKILL)
        until("it is told", lambda: "model never cannot be loaded: npugraphctl was ended by signal 9" in d.log())
        until("the other one is loaded", lambda: state(d, "one") == "loaded")
        assert wanted(d)["never"].error.startswith("npugraphctl was ended by signal 9") and wanted(d)["never"].next_ms <= 5000
        assert "1 of the models of the option load is missing" in d.http("/readyz")[1]
        again = loader_of(d)  # five seconds later
        began = time.monotonic()
    until("the daemon ends a load that runs when it stops", lambda: is_gone(again))
    assert SANITIZER or time.monotonic() - began < 8, "and does not wait for it"


@test("a model that cannot be loaded is told by log, status, metrics and readiness, is tried again, and harms nobody")
def failing():
    late = SCRATCH / "late"
    with daemon_of(conf("late.conf", f"late {late} {SMALL}", f"one {MODEL} {SMALL}", models=(MODEL, SCRATCH))) as d:
        until("it has failed", lambda: state(d, "late") == "failed")
        until("the other one is there", lambda: state(d, "one") == "loaded")
        text(d, "one")
        m = wanted(d)["late"]
        assert str(late) in m.error and "FILE_NOT_FOUND" in m.error or "PATH_NOT_ALLOWED" in m.error, m.error
        assert re.search(rf"error daemon: load: model late cannot be loaded: .*{late}.*; the next attempt is in 5 s", d.log()), d.log()
        shown = ctl(d, "status")
        assert re.search(r"Missing models +1\n", shown) and re.search(rf"Load +late: failed: .*{late}.*next attempt in \d s", shown), shown
        assert "cannot load the model late" in ctl(d, "--timeout", "1s", "status", "--wait", "--models", code=1)
        assert d.http("/readyz")[0] == 503 and not is_serving(d)
        assert "npugraphd_load_failures_total 1\n" in d.http("/metrics")[1]
        shutil.copytree(MODEL, late)
        wait_for_models(d)
        assert is_serving(d) and d.http("/readyz")[0] == 200 and text(d, "late") == text(d, "one")


@test("who waits for models asks over one connection, and is told why they are missing, not that the daemon was not there at first")
def waiting():
    home = SCRATCH / "waiting"
    home.mkdir()
    ctl_waits = subprocess.Popen([*END_WITH_US, CTL, "--address", f"unix:{home}/s", "--timeout", f"{PATIENCE / 8:.0f}s", "status", "--wait", "--models"], stderr=subprocess.PIPE, text=True)
    sockets = set()

    def look():
        for fd in pathlib.Path(f"/proc/{ctl_waits.pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                sockets.add(os.readlink(fd))
        return ctl_waits.poll() is not None

    time.sleep(0.2)
    with daemon_of(conf("waiting.conf", f"absent {SCRATCH}/absent", models=(SCRATCH,)), dir=home) as d:
        until("it has failed", lambda: state(d, "absent") == "failed")
        time.sleep(0.2)
        sockets.clear()
        until("it gives up", look)
        told = ctl_waits.communicate()[1]
        assert ctl_waits.returncode == 1 and "cannot load the model absent: " in told and "UNREACHABLE" not in told, told
        assert len([s for s in sockets if s.startswith("socket:")]) == 1, sockets


@test("who may not see options sees how many are missing, and not which")
def roles():
    bearer, tokens = "npugraph_" + "v" * 43, SCRATCH / "viewers"
    tokens.write_text(f"v sha256:{hashlib.sha256(bearer.encode()).hexdigest()} never viewer\n")
    tokens.chmod(0o600)
    with daemon_of(conf("viewer", f"secret {SCRATCH}/none", models=(SCRATCH,), more=f"token-file = {tokens}\n")) as d:
        until("it has failed", lambda: state(d, "secret") == "failed")
        with Client(d, bearer=bearer, session=False) as c:
            r = c.call("Admin/Status", pb.StatusRequest())
            assert r.missing_models == 1 and not r.wanted_models
        assert "secret" not in d.http("/readyz")[1] + d.http("/metrics")[1]


@test("a pipe in a checkpoint keeps no load waiting")
def pipes():
    for file in ("config.json", "generation_config.json", "model.safetensors.index.json"):
        path = SCRATCH / f"pipe-{file}"
        shutil.copytree(MODEL, path)
        (path / file).unlink(missing_ok=True)
        os.mkfifo(path / file)
    paths = sorted(SCRATCH.glob("pipe-*"))
    with daemon_of(conf("pipes.conf", *(f"m{i} {path} {SMALL}" for i, path in enumerate(paths)), models=(*paths, MODEL))) as d:
        until("all loads have ended", lambda: all(word(m, "state") in ("failed", "loaded") for m in wanted(d).values()))
        assert "config.json: is not a regular file" in wanted(d)["m0"].error, wanted(d)


@test("quotas of the daemon's user count, if they are set")
def quota():
    with daemon_of(conf("quota", f"one {MODEL} {SMALL}", f"two {MODEL} {SMALL}", more="max-models-per-identity = 1\n")) as d:
        until("the second one has failed", lambda: state(d, "two") == "failed")
        assert "max-models-per-identity" in wanted(d)["two"].error and state(d, "one") == "loaded"


@test("a reload loads what is new, keeps what is there, and changes nothing if an entry has a mistake")
def reload():
    path = conf("reload", f"one {MODEL} {SMALL}")
    with daemon_of(path) as d:
        wait_for_models(d)
        conf("reload", f"one {MODEL} {SMALL}", f"two {MODEL} {SMALL} --max-context 0")
        told = ctl(d, "reload", code=1)
        assert f"{path}:" in told and "load: --max-context is" in told, told
        assert set(wanted(d)) == {"one"} and is_serving(d)
        conf("reload", f"one {MODEL} {SMALL} --max-context 32", f"two {MODEL} {SMALL} --max-context 64")
        assert "load" in ctl(d, "reload")
        wait_for_models(d)
        models = models_of(d)
        assert models["one"].max_context != 32 and models["two"].max_context == 64
        assert "the entry of model one changed, and the model stays as it is" in d.log()
        assert d.log().count("load: loading model one") == 1
        ctl(d, "unload", "one")
        assert is_serving(d) and set(models_of(d)) == {"two"}, "what was unloaded by hand stays so"
        ctl(d, "reload")
        wait_for_models(d)
        assert models_of(d)["one"].max_context == 32
        conf("reload")
        ctl(d, "reload")
        assert set(models_of(d)) == {"one", "two"} and not wanted(d) and is_serving(d)
        assert "model two has no entry any more; it stays until npugraphctl unload" in d.log()
        shown = json.loads(ctl(d, "--json", "config", "show", "load"))
        assert "load" in json.dumps(shown)


@test("an entry that a reload removes ends its load; one that stays goes on")
def reload_while_loading():
    with daemon_of(conf("while", f"never {MODEL}", f"one {MODEL} {SMALL}"), through=stuck("never2")) as d:
        loader = loader_of(d)
        conf("while", f"one {MODEL} {SMALL}", f"never {MODEL}")
        ctl(d, "reload")
        assert not is_gone(loader) and state(d, "never") == "loading"
        conf("while", f"one {MODEL} {SMALL}")
        ctl(d, "reload")
        until("its load ends", lambda: is_gone(loader))
        wait_for_models(d)


@test("entries with mistakes are refused with what is allowed, before anything starts")
def mistakes():
    m = str(MODEL)
    bad = {
        "x": "is not NAME PATH", "one": "is not NAME PATH", f"a/b {m}": "no name of a model", f'"" {m}': "no name of a model", f"{'n' * 65} {m}": "no name of a model",
        "one models/x": "not an absolute path", "one --public": "not an absolute path", f"one {m} other": "none of the options", f"one {m} --name x": "none of the options",
        f"one {m} --max-context": "needs a value", f"one {m} --max-context 0": "allowed: 1 to", f"one {m} --max-context -1": "allowed: 1 to", f"one {m} --max-batch 1e9": "allowed: 1 to",
        f"one {m} --chunk 99999999999999999999": "allowed: 1 to", f"one {m} --kv-bytes lots": "a size such as 64M", f"one {m} --kv-dtype f64": "one of: auto int8",
        f'one {m} --kv-dtype ""': "one of: auto", f'one {m} --kv-dtype "f32 f16"': "one of: auto", f"one {m} --kv-policy default": "one of: refuse preempt", f"one {m} --devices host:0,,host:1": "a list",
        f"one {m} --share-with ,": "a list", f"one {m} --share-with --quiet": "a list", f"one {m} --devices --address=unix:/x --public": "a list",
        f"--quiet {m}": "no name of a model", f"-one {m}": "no name of a model", f"one {m} --public --private": "one of --share-with", f'one "{m}': "an open quote", "one " + m + " --public" * 60: "more than 48 words",
        "one /" + "x" * 9000: "longer than 8192 bytes", f"one {m} --public=yes": "none of the options",
    }
    for entry, says in bad.items():
        path = conf("bad", f"good {m}", entry)
        done = subprocess.run([DAEMON, f"--config={path}", "--check-config"], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 2 and says in done.stderr and f"{path}:" in done.stderr and "load" in done.stderr, (entry, done.stderr)
    for entries, says in (([f"one {m}", f'"one" {m} --public'], "two entries have the name one"), ([f"m{n} {m}" for n in range(65)], "65 models; allowed: 64")):
        done = subprocess.run([DAEMON, *(f"--load={e}" for e in entries), "--check-config"], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 2 and says in done.stderr, done.stderr
    done = subprocess.run([DAEMON, f"--load=m {m}", "--check-config"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


@test("the options are those of npugraphctl load")
def same_options():
    usage = subprocess.run([CTL, "help", "load"], capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    head = re.sub(r"\s+", " ", usage.split("\n\n")[0])
    options = re.findall(r"(--[a-z-]+)(?: ([^\]|\[]+))?", head)
    values = {"N": "7", "SIZE": "64M", "LIST": "host:0"}
    assert len(options) == 16, options
    for name, value in options:
        first = re.search(rf"{name} ([a-z0-9|]+)\]", head)
        value = first[1].split("|")[0] if first else values.get(value.strip(), "")
        done = subprocess.run([DAEMON, f"--load=m {MODEL} {name} {value}", "--check-config"], capture_output=True, text=True, timeout=PATIENCE)
        assert (done.returncode == 0) == (name != "--name"), (name, value, done.stderr)
        for word_of in (first[1].split("|") if first else ()):
            subprocess.run([DAEMON, f"--load=m {MODEL} {name} {word_of}", "--check-config"], capture_output=True, timeout=PATIENCE, check=True)


@test("without a Unix socket, or npugraphctl, the status says what is missing")
def no_way():
    path = conf("tcp", f"one {MODEL}", more="allow-plaintext = yes\nadmin-identities = tcp:127.0.0.1\n")
    with daemon_of(path, listen="tcp:127.0.0.1:0") as d:
        until("it has failed", lambda: "load: model one cannot be loaded: the daemon listens on no Unix socket" in d.log())
        assert d.http("/readyz")[0] == 503
    with daemon_of(conf("alone.conf", f"one {MODEL}"), through=alone("alone")) as d:
        until("it has failed", lambda: "npugraphctl is not installed beside npugraphd" in d.log())


@test("whatever a load writes, its last line is told as UTF-8 without control characters")
def words():
    said = {"latin1": (r"printf 'first\ncaf\351 \033[31m\n'", "caf? ?[31m"), "much": ("yes | head -c 300000; echo the end", "the end"), "nothing": ("true", "npugraphctl failed without a word")}
    # A character of three bytes is cut at one of the three, wherever the room ends.
    said |= {f"long{n}": (f"echo {'x' * n}{'模' * 250}", f"{'x' * n}模") for n in range(3)}
    script = 'case $6 in\n' + "".join(f"{name}) {{ {command}; }} >&2 ;;\n" for name, (command, _) in said.items()) + "esac\nexit 1\n"
    with daemon_of(conf("words.conf", *(f"{name} {MODEL}" for name in said)), through=alone("words", script)) as d:
        until("all have failed", lambda: all(word(m, "state") == "failed" for m in wanted(d).values()))
        for name, m in wanted(d).items():
            assert m.error.startswith(said[name][1]) and "\ufffd" not in m.error, (name, m.error)


@test("a daemon whose parent ignores the ends of processes knows how a load ended; one that drains takes no end for a failure")
def ends():
    ignore = ["sh", "-c", 'trap "" CHLD; exec "$@"', "sh"]
    with daemon_of(conf("ignored", f"one {MODEL} {SMALL}"), through=ignore) as d:
        wait_for_models(d)
        assert "model one is loaded, after" in d.log() and "cannot be loaded" not in d.log(), d.log()
    with daemon_of(conf("drained", f"never {MODEL}"), through=stuck("never4")) as d:
        loader = loader_of(d)
        with Client(d, session=False) as c:
            c.call("Admin/Drain", pb.DrainRequest(stay=True))
            os.kill(loader, signal.SIGTERM)  # as systemd does to all processes of a service
        until("the load ends", lambda: state(d, "never") != "loading")
        assert state(d, "never") == "waiting" and "cannot be loaded" not in d.log(), d.log()


@test("a load looks for families of models where the daemon's environment says")
def families():
    own = SCRATCH / "families"
    own.mkdir()
    (own / "decoder.lua").write_text((SOURCE / "client/hf/families/decoder.lua").read_text().replace('"aten.silu"', '"aten.sila"'))
    with daemon_of(conf("families.conf", f"one {MODEL} {SMALL}"), env={"NPUGRAPH_FAMILIES": str(own)}) as d:
        until("it has failed", lambda: state(d, "one") == "failed")
        assert "aten.sila" in wanted(d)["one"].error


@test("a daemon that is killed has its models again after the next start")
def killed():
    path = conf("killed", f"one {MODEL} {SMALL}")
    first = daemon_of(path)
    wait_for_models(first)
    before = text(first, "one")
    first.kill()
    with daemon_of(path, dir=first.dir) as d:
        wait_for_models(d)
        assert text(d, "one") == before


class Chat:
    """A conversation of npugraphctl, by lines."""

    def __init__(self, daemon, *arguments):
        self.process = subprocess.Popen([*END_WITH_US, CTL, "--json", "--address", daemon.address, "chat", "one", "--tokenizer", str(MODEL), "--plain", "--tokens", "12", *arguments],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def say(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return json.loads(line)

    def ask(self, text):
        self.say(text)
        return self.hear()


@test("a conversation of npugraphctl goes on when the daemon is killed and another one has loaded the model; without --restore-timeout it does not")
def conversation():
    path = conf("chat", f"one {MODEL} {SMALL}")
    says = ["In the beginning", "And it came", "to pass"]
    with daemon_of(path) as d:
        wait_for_models(d)
        undisturbed = Chat(d)
        expected = [undisturbed.ask(s) for s in says]
        assert expected[1]["reused"] > 0, expected
        undisturbed.process.communicate()
    first = daemon_of(path)
    wait_for_models(first)
    lasting, left, fragile = Chat(first, "--restore-timeout", "100s"), Chat(first, "--restore-timeout", "100s"), Chat(first)
    assert [chat.ask(says[0]) for chat in (lasting, left, fragile)] == 3 * [expected[0]]
    first.kill()
    left.say(says[1])
    time.sleep(0.5)
    for _ in range(3):
        assert left.process.poll() is None
        left.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    assert left.process.wait(PATIENCE) == -signal.SIGINT, "the third ^C ends what waits for a daemon"
    lasting.say(says[1])
    with daemon_of(path, dir=first.dir) as d:
        assert lasting.hear() == expected[1], "its context was restored"
        assert lasting.ask(says[2]) == expected[2]
        fragile.say(says[1])
        assert fragile.process.stderr.readline(), "it is told"
        for chat in (lasting, fragile):
            out, _ = chat.process.communicate(timeout=PATIENCE)
            assert (chat.process.returncode == 0) == (chat is lasting) and not out, (out, chat.process.returncode)
        assert "npugraphd_sequences_restored_total 1\n" in d.http("/metrics")[1]
        text = json.loads(ctl(d, "--json", "generate", "one", "--tokenizer", str(MODEL), "--prompt", says[0], "--tokens", "4", "--restore-timeout", "5s"))
        assert len(text["tokens"]) == 4
        for bad in ("x", "25h", "-1s"):
            ctl(d, "generate", "one", "--prompt", "x", "--restore-timeout", bad, code=2)


@test("an upgrade loads no model twice, and loads what the old daemon has not; the old one loads nothing more")
def replaced():
    path = conf("replaced", f"one {MODEL} {SMALL}")
    old = daemon_of(path)
    wait_for_models(old)
    before = text(old, "one")
    conf("replaced", f"one {MODEL} {SMALL}", f"two {MODEL} {SMALL}")
    with Daemon(f"--config={path}", "--replace", bare=True, dir=old.dir) as d:
        wait_for_models(d)
        assert "loading model one" not in d.log() and "loading model two" in d.log(), d.log()
        assert text(d, "one") == before == text(d, "two")
        assert old.wait() == 0
        assert "loading model two" not in old.log()


@test("a load that runs while another daemon takes over is that one's")
def replaced_while_loading():
    path, through = conf("replaced2", f"one {MODEL} {SMALL}", f"never {MODEL}"), stuck("never3")
    old = daemon_of(path, through=through)
    until("the first one is loaded", lambda: state(old, "one") == "loaded")
    loader = loader_of(old)
    with Daemon(f"--config={path}", "--replace", bare=True, dir=old.dir, through=through) as d:
        assert old.wait() == 0, old.log()[-2000:]
        until("its load ends", lambda: is_gone(loader))
        assert state(d, "one") == "loaded" and loader_of(d) != loader and state(d, "never") == "loading"


if __name__ == "__main__":
    main()
