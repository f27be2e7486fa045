#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The worker kit (examples/worker-kit): each worker against a live daemon with the bundled model. All must do the same.

Workers in Go and Rust take minutes to build the first time, so this is for the step worker-kit of .ci/run, which sets
NGD_TEST_WORKERS=all. They are built below the build folder, if their toolchains and dependencies can be had.
"""
import functools
import hashlib

from certs import *
from harness import *

MODEL = SOURCE / "examples" / "model"
KIT = SOURCE / "examples" / "worker-kit"
BUILT = BUILD / "examples" / "worker-kit"
PROMPTS = ("In the beginning", "And he said unto them", "Blessed are", "The LORD is my", "And it came to pass", "Behold", "For unto us", "Now the sons of",
           "Verily I say")
SAMPLING = {"temperature": "0.8", "top-k": "40", "top-p": "0.95", "seed": "7", "tokens": "40"}

if CTL is None or not (MODEL / "model.safetensors").exists():
    skip_all("npugraphctl or the bundled model is missing")


# ---- how each is built ------------------------------------------------------------------------------------------------

def tool(name, language):
    if os.environ.get("NGD_TEST_WORKERS") != "all":
        raise Skip(f"{language} worker: .ci/run worker-kit builds it (NGD_TEST_WORKERS=all)")
    if shutil.which(name) is None:
        raise Skip(f"{language} worker: no {name} toolchain")


def step(*command, missing=None, **kwargs):
    """Runs a step of a build. missing: why the worker is skipped if it fails; None: then the test fails."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, **kwargs)
    if done.returncode != 0 and missing:
        raise Skip(f"{missing}: {done.stderr.strip().splitlines()[-1:]}")
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-4000:]}"


def copied(language):
    """Copies the sources into the build folder, since their tools write beside them."""
    to = BUILT / language
    for path in (KIT / language).rglob("*"):
        if path.is_file() and not {"target", "npugraphpb"} & set(path.parts):
            copy = to / path.relative_to(KIT / language)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.exists() or copy.read_bytes() != path.read_bytes():  # an older time would make cargo build it again
                shutil.copyfile(path, copy)
    return to.resolve()


def c_worker():
    return [str(BUILT / "c" / "worker")], {}


def python_worker():
    if importlib.util.find_spec("numpy") is None:
        raise Skip("Python worker: numpy is missing")
    return [sys.executable, str(KIT / "python" / "worker.py")], {"PYTHONPATH": str(SOURCE / "python" / "src"), "NPUGRAPH_LIBRARY_PATH": str(BUILD / ".libs")}


def go_worker():
    tool("go", "Go")
    at = copied("go")
    env = {**os.environ, "NPUGRAPH_SOURCE": str(SOURCE.resolve()), "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    modules = re.findall(r"^\t(\S+) v", (at / "go.mod").read_text(), re.M)
    step("go", "mod", "download", *modules, cwd=at, env=env, missing="Go worker: no module")
    step("sh", "generate.sh", cwd=at, env=env)
    step("go", "vet", ".", cwd=at, env=env)
    step("go", "build", "-o", "worker", cwd=at, env=env)
    return [str(at / "worker")], {}


def rust_worker():
    tool("cargo", "Rust")
    at = copied("rust")
    env = {**os.environ, "NPUGRAPH_SOURCE": str(SOURCE.resolve()), "RUSTFLAGS": "-Dwarnings"}
    env.pop("CC", None)  # a name with arguments, which cargo's build scripts do not take
    step("cargo", "fetch", "--locked", cwd=at, env=env, missing="Rust worker: no crate")
    step("cargo", "build", "--locked", "--offline", cwd=at, env=env)
    return [str(at / "target" / "debug" / "worker")], {}


@functools.cache
def built(language):
    try:
        return {"C": c_worker, "Python": python_worker, "Go": go_worker, "Rust": rust_worker}[language]()
    except Skip as why:
        return why


# ---- running them -----------------------------------------------------------------------------------------------------

class Worker:
    def __init__(self, language, address, *options, in_flight=3, sampling=SAMPLING, token_file=""):
        self.program = built(language)
        if isinstance(self.program, Skip):
            raise self.program
        command, env = self.program
        arguments = [f"--{name}={value}".split("=") for name, value in {**sampling, "in-flight": in_flight, "model": "m", "address": address}.items()]
        self.files = [tempfile.NamedTemporaryFile(dir=SCRATCH, delete=False) for _ in range(2)]
        self.process = subprocess.Popen([*command, *sum(arguments, []), *options], stdin=subprocess.PIPE, stdout=self.files[0], stderr=self.files[1],
                                        env={**os.environ, **env, "NPUGRAPH_TOKEN_FILE": str(token_file)})
        Worker.running.append(self.process)

    running = []

    def said(self):
        return pathlib.Path(self.files[1].name).read_text()

    def results(self):
        return [json.loads(line) for line in pathlib.Path(self.files[0].name).read_text().splitlines()]

    def feed(self, *prompts):
        for prompt in prompts:
            self.process.stdin.write(f"{prompt if isinstance(prompt, str) else json.dumps({'ids': prompt})}\n".encode())
        self.process.stdin.flush()

    def metrics(self):
        """Scrapes it; returns values by name and labels, after a look at their form."""
        port = until("the worker serves metrics", lambda: re.search(r"metrics on http://127\.0\.0\.1:(\d+)/metrics", self.said()))[1]
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=PATIENCE)
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
        connection.close()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def metric(self, name):
        return self.metrics()[f"worker_{name}"]

    def end(self, status=0):
        """Waits for its end; the queue has ended, or the worker drains."""
        assert self.process.wait(PATIENCE) == status, self.said()
        return self.results()


def end_workers():
    for process in Worker.running:
        if process.poll() is None:
            process.kill()
            process.wait()


atexit.register(end_workers)


def ctl(daemon, *arguments):
    return subprocess.run([CTL, "--json", "--address", daemon.address, *arguments], check=True, capture_output=True, text=True).stdout


def load(daemon):
    ctl(daemon, "load", str(MODEL), "--name", "m")


def ready(*options, **kwargs):
    daemon = Daemon(f"--models-dir={SOURCE / 'examples'}", *options, **kwargs)
    load(daemon)
    return daemon


@functools.cache
def prompts():
    return [json.loads(subprocess.run([CTL, "--json", "tokenize", str(MODEL), text], check=True, capture_output=True).stdout)["ids"] for text in PROMPTS]


EXPECTED = {}  # what npugraphctl generate writes, by prompt and number of tokens


def expect(daemon, sampling):
    for prompt in map(tuple, prompts()):
        if (prompt, sampling["tokens"]) not in EXPECTED:
            options = sum(([f"--{name}", value] for name, value in sampling.items()), [])
            EXPECTED[prompt, sampling["tokens"]] = json.loads(ctl(daemon, "generate", "m", "--ids", ",".join(map(str, prompt)), *options))


def check_answers(results, given, sampling=SAMPLING):
    """Each prompt is answered once, and as npugraphctl answers it."""
    assert sorted(r["index"] for r in results) == list(range(len(given))), results
    for r in results:
        expected = EXPECTED[tuple(given[r["index"]]), sampling["tokens"]]
        assert "tokens" in r, r
        assert (r["tokens"], r["finish"]) == (expected["tokens"], expected["finish"]), (r, expected)


# ---- what holds for each of them ----------------------------------------------------------------------------------------

def answers(language, daemon):
    """answers each prompt as npugraphctl does, refuses what is none, and counts"""
    worker = Worker(language, daemon.address)
    wrong = ['{"ids": []}', "", '{"ids": [1, "x"]}', '{"ids": [-1]}', '[1]', "[" * 2000, '{"ids": [1.5]}', '{"ids": [4294967297]}', json.dumps({"ids": [1] * 600_000})]
    worker.feed(*prompts())
    worker.feed(*wrong, [10 ** 6], [5] * 5000)
    until("all is answered", lambda: len(worker.results()) == len(PROMPTS) + len(wrong) + 2)
    results = sorted(worker.results(), key=lambda r: r["index"])
    check_answers(results[:len(PROMPTS)], prompts())
    assert [r["error"] for r in results[len(PROMPTS):]] == ["BAD_LINE"] * len(wrong) + ["TOKEN_RANGE", "PROMPT_TOO_LONG"], results
    counted = until("it has counted all", lambda: (lambda m: m['worker_prompts_total{result="done"}'] == len(PROMPTS) and m)(worker.metrics()))
    assert counted['worker_prompts_total{result="refused"}'] == len(wrong) + 2, counted
    assert counted["worker_tokens_total"] == sum(len(r.get("tokens", [])) for r in results), counted
    assert counted["worker_first_token_seconds_count"] == counted['worker_first_token_seconds_bucket{le="+Inf"}'] == len(PROMPTS), counted
    assert counted["worker_in_flight"] == counted["worker_retries_total"] == 0 and counted["worker_connects_total"] == 1, counted
    worker.process.stdin.close()
    worker.end()


def waits(language, _):
    """waits while the daemon has no room, and loses nothing"""
    with ready("--max-sequences-per-identity=2") as daemon, Client(daemon) as client:
        held = [client.call("Sequences/Open", pb.OpenRequest(model="m", prompt=[1])).sequence for _ in range(2)]
        worker = Worker(language, daemon.address)
        worker.feed(*prompts())
        worker.process.stdin.close()
        until("it was refused", lambda: worker.metric("retries_total") >= 3)
        assert worker.results() == [] and "QUOTA" in worker.said(), worker.said()
        for sequence in held:
            client.call("Sequences/Close", pb.CloseRequest(sequence=sequence))
        check_answers(worker.end(), prompts())
        assert "connected" in worker.said() and worker.said().count("connected") == 1, worker.said()  # refusals cost no connection


LONG = {**SAMPLING, "tokens": "200"}


def restart(language, _):
    """does unfinished prompts again when the daemon was killed and has started again"""
    daemon = ready()
    expect(daemon, LONG)
    worker = Worker(language, daemon.address, sampling=LONG)
    given = prompts() * 2
    worker.feed(*given[:12])
    until("it has tokens", lambda: worker.metric("tokens_total") > 0)
    daemon.signal(signal.SIGSTOP)
    worker.feed(*given[12:])
    # The daemon makes nothing now, so these are unfinished for certain; of those before, what is on its way may still end.
    until("prompts are in flight", lambda: worker.metric("in_flight") == 3)
    daemon.kill()
    until("it has noticed", lambda: "not connected" in worker.said())
    assert len(worker.results()) < len(given)
    with Daemon(f"--models-dir={SOURCE / 'examples'}", dir=daemon.dir) as again:
        until("it has seen that the model is not there yet", lambda: 'no model "m" is loaded' in worker.said())
        load(again)
        worker.process.stdin.close()
        check_answers(worker.end(), given, LONG)
        assert len(re.findall("^worker: connected", worker.said(), re.M)) == 2, worker.said()
        until("its sessions have ended", lambda: again.stats()["sessions"]["open"] == 0)


def drains(language, daemon):
    """drains on SIGTERM: finishes what is in flight, begins nothing, and gives up what the daemon no longer answers"""
    worker = Worker(language, daemon.address)
    given = prompts()[:4]
    worker.feed(given[0])
    until("it is connected and idle", lambda: worker.metric("in_flight") == 0 and worker.metric('prompts_total{result="done"}') == 1)
    daemon.signal(signal.SIGSTOP)
    try:
        worker.feed(*given[1:])
        until("prompts are in flight", lambda: worker.metric("in_flight") == 3)
        worker.process.send_signal(signal.SIGTERM)
        until("it drains", lambda: "draining" in worker.said())
    finally:
        daemon.signal(signal.SIGCONT)
    check_answers(worker.end(), given)
    lost = Worker(language, f"unix:{SCRATCH}/nobody")
    lost.feed(prompts()[0])
    until("it tries to connect", lambda: lost.said().count("not connected") >= 2)
    lost.process.send_signal(signal.SIGTERM)
    assert lost.end(status=1) == [] and "answered 0 of 1 prompts" in lost.said(), lost.said()


def remote(language, _):
    """is served over TCP with a client certificate"""
    if not (CERTS / "ca.pem").exists():
        authority("ca")
        certificate("server", "ca", "DNS:localhost,IP:127.0.0.1")
        certificate("worker", "ca", "URI:spiffe://example.org/worker-1")
    with ready("--listen=127.0.0.1:0", f"--tls-cert={CERTS}/server.pem", f"--tls-key={CERTS}/server.key", f"--tls-client-ca={CERTS}/ca.pem") as daemon:
        address = f"127.0.0.1:{daemon.listening('tls').rsplit(':', 1)[1]}"
        worker = Worker(language, address, "--ca", str(CERTS / "ca.pem"), "--cert", str(CERTS / "worker.pem"), "--key", str(CERTS / "worker.key"))
        worker.feed(*prompts())
        worker.process.stdin.close()
        check_answers(worker.end(), prompts())
        nameless = Worker(language, address, "--ca", str(CERTS / "ca.pem"))
        nameless.feed(prompts()[0])
        until("it is not let in", lambda: "not connected" in nameless.said())
        nameless.process.send_signal(signal.SIGTERM)
        assert nameless.end(status=1) == []


def tokens(language, _):
    """sends the bearer token of a file, which it reads again for its next session, and sends it to no other machine in the clear"""
    first, second, known, mine = "a" * 30, "b" * 30, SCRATCH / f"known-{language}", SCRATCH / f"mine-{language}"
    known.touch(0o600)
    rows = {t: f"{t[0]} sha256:{hashlib.sha256(t.encode()).hexdigest()} never user\n" for t in (first, second)}
    known.write_text("".join(rows.values()))
    mine.write_text(first + "\n")
    with ready(f"--token-file={known}") as daemon:
        worker = Worker(language, daemon.address, token_file=mine)
        worker.feed(prompts()[0])
        until("it has answered", lambda: len(worker.results()) == 1)
        assert "opened by token:a" in daemon.log(), daemon.log()
        mine.write_text(second + "\n")
        known.write_text(rows[second])  # the first token is over, and its session with it
        ctl(daemon, "reload")
        worker.feed(*prompts()[1:])
        worker.process.stdin.close()
        check_answers(worker.end(), prompts())
        assert "opened by token:b" in daemon.log(), daemon.log()
    far = Worker(language, "192.0.2.1:1", token_file=mine)
    far.feed(prompts()[0])
    until("it says why it does not connect", lambda: "TLS" in far.said() or far.process.poll() is not None)
    assert "TLS" in far.said() and second not in far.said(), far.said()
    far.process.kill()


def register(language, check):
    @test(f"{language} worker: {check.__doc__}")
    def run(daemon):
        if not any(m.name == "m" for m in Client(daemon, session=False).call("Sequences/ListModels", pb.ListModelsRequest()).models):
            load(daemon)
        expect(daemon, SAMPLING)
        check(language, daemon)
    run.__name__ = f"{language}_{check.__name__}".lower()


for language in ("C", "Python", "Go", "Rust"):
    for check in (answers, waits, restart, drains, remote, tokens):
        register(language, check)


if __name__ == "__main__":
    main(f"--models-dir={SOURCE / 'examples'}")
