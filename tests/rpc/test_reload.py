#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reloading the configuration: SIGHUP, Admin.Reload, Admin.Config. Each option is tried, as the daemon's own table lists them."""
import hashlib
import re
import socket
import stat
import subprocess
import urllib.error
import urllib.request

from certs import *
from harness import *
from ring import Refused, Ring

EXIT_CONFIG = 2
authority("ca")
certificate("server", "ca", "DNS:localhost,IP:127.0.0.1")
certificate("worker", "ca", None, "/CN=worker")
revocations("ca")
GRAPH = """npugraph 1
graph "g" {
  input %x : f32[8,8]
  %y = aten.exp(%x)
  %z = aten.mm(%y, %x)
  return "z" = %z
}
"""


def run(*arguments):
    return subprocess.run([DAEMON, *arguments], capture_output=True, text=True, timeout=PATIENCE)


def table():
    """Returns the options of --print-config: {name: (default, what is allowed, whether a reload changes it)}."""
    blocks = re.findall(r"((?:^# .*\n)+)^#([a-z-]+) =[ ]?(.*)$", run("--print-config").stdout, re.M)
    options = {}
    for text, name, default in blocks:
        text = " ".join(re.sub("^# ", "", text, flags=re.M).split())
        live, restart = "A reload changes it." in text, "A change needs a restart." in text
        assert live != restart, (name, text)
        options[name] = (default, text.split("Allowed:")[-1].split("Default:")[0] if "Allowed:" in text else "", live)
    assert len(options) > 60, options
    return options


class Live:
    """A daemon with a file of options, and nothing else than its socket on the command line."""

    def __init__(self, **start):
        self.conf = SCRATCH / f"live{Daemon.count}.conf"
        self.options = {}
        self.write({"stats-listen": "127.0.0.1:0", "device-memory": "256M", **{k.replace("_", "-"): v for k, v in start.items()}})
        self.daemon = Daemon(f"--config={self.conf}", bare=True)
        self.admin = Client(self.daemon, session=False)

    def write(self, changes):
        """Values are texts, or lists of them; None takes the option out of the file."""
        self.options = {k: v for k, v in {**self.options, **changes}.items() if v is not None}
        self.conf.write_text("".join(f"{k} = {v}\n" for k, values in self.options.items() for v in (values if isinstance(values, list) else [values])))

    def reload(self):
        return self.admin.call("Admin/Reload", pb.ReloadRequest())

    def change(self, changes):
        """Changes the file and reloads; all of these options must be taken."""
        self.write(changes)
        r = self.reload()
        assert set(changes) <= set(r.changed) and not r.needs_restart, (changes, r)

    def shown(self):
        return {o.name: list(o.values) for o in self.admin.call("Admin/Config", pb.ConfigRequest()).options}

    def http(self, host=None, path="/metrics"):
        address = self.daemon.log().split("statistics on http://")[-1].split("/")[0]
        request = urllib.request.Request(f"http://{address}{path}", headers={"Host": host} if host else {})
        try:
            return urllib.request.urlopen(request, timeout=PATIENCE).read().decode()
        except urllib.error.HTTPError as e:
            return e.code

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.admin.close()
        self.daemon.__exit__(kind, *rest)


# ---- what a change does, by option ---------------------------------------------------------------------------------

def share(c):
    return next(s for s in c.call("Admin/ListShares", pb.ListSharesRequest()).shares if s.identity == f"uid:{os.getuid()}")


def listen(d):
    other = SCRATCH / "other"
    d.change({"listen": f"unix:{other}"})
    with Client(d.daemon, address=f"unix:{other}") as there:
        there.allocate(1)
        assert f"unix:{other}" in d.admin.call("Admin/Status", pb.StatusRequest()).listen
        d.change({"listen": None})
        assert not other.exists() and len(d.admin.call("Admin/Status", pb.StatusRequest()).listen) == 1
        there.allocate(1)  # a connection stays when its address goes
    d.change({"listen": f"unix:{other}"})
    with Client(d.daemon, address=f"unix:{other}") as there:
        there.allocate(1)


def socket_mode(d):
    d.change({"socket-mode": "600"})
    assert stat.S_IMODE(d.daemon.socket.stat().st_mode) == 0o600


def stats_listen(d):
    before = d.admin.call("Admin/Status", pb.StatusRequest()).stats_address
    d.change({"stats-listen": "[::1]:0"})
    assert "npugraphd_" in d.http()
    now = d.admin.call("Admin/Status", pb.StatusRequest()).stats_address
    assert now != before and now.startswith("[::1]:"), (before, now)
    try:
        socket.create_connection(("127.0.0.1", int(before.rsplit(":", 1)[1])), timeout=PATIENCE)
        raise AssertionError("the old address still answers")
    except ConnectionRefusedError:
        pass
    d.change({"stats-listen": "off"})
    assert d.admin.call("Admin/Status", pb.StatusRequest()).stats_address == ""


def stats_hosts(d):
    assert d.http("node7.example.org") == 421
    d.change({"stats-hosts": "node7.example.org"})
    assert "npugraphd_" in d.http("node7.example.org")


def stats_names(d):
    with Client(d.daemon) as c:
        c.allocate(1)
        assert f'identity="uid:{os.getuid()}"' not in d.http()
        d.change({"stats-names": "yes"})
        assert f'identity="uid:{os.getuid()}"' in d.http()


def stats_graphs(d):
    d.change({"stats-names": "yes", "stats-graphs": "yes"})
    assert '"graphs": true' in d.http(path="/stats.json")


def models_dir(d):
    model = SOURCE / "examples/model/model.safetensors"
    with Client(d.daemon) as c:
        refused("PATH_NOT_ALLOWED", "PERMISSION_DENIED", c.load, str(model))
        d.change({"models-dir": [str(SCRATCH), str(model.parent)]})
        c.load(str(model))
        d.change({"models-dir": str(SCRATCH)})
        refused("PATH_NOT_ALLOWED", "PERMISSION_DENIED", c.load, str(model))


def load(d):
    model = SOURCE / "examples/model"
    d.change({"models-dir": str(model), "load": f"bible {model} --kv-bytes 8M"})
    with Client(d.daemon) as c:
        until("the model is loaded", lambda: [m.name for m in c.call("Sequences/ListModels", pb.ListModelsRequest()).models] == ["bible"])


def dump_dir(d):
    options = {"dump_tensor_data": "true", "data_dump_dir": str(SCRATCH)}
    with Client(d.daemon) as c:
        refused("PERMISSION_DENIED", "PERMISSION_DENIED", c.register, GRAPH, options=options)
        d.change({"dump-dir": str(SCRATCH)})
        c.register(GRAPH, options=options)


def max_capture_time(d):
    with Client(d.daemon) as c:
        g = c.register(GRAPH).graph
        d.change({"max-capture-time": "1us"})
        refused("CAPTURE_STOPPED", "ABORTED", c.call, "Graphs/Capture", pb.CaptureRequest(graph=g))
        d.change({"max-capture-time": None})
        g = c.register(GRAPH.replace("8,8", "9,9")).graph  # a refusal is remembered for a while
        c.call("Graphs/Capture", pb.CaptureRequest(graph=g))


def capture_limit(d):
    with Client(d.daemon) as c:
        c.register(GRAPH)
        d.change({"capture-limit": "7"})
        c.register(GRAPH.replace('"g"', '"h"'))
        limits = {g.name: "capture_limit=7" in g.options for g in c.call("Graphs/List", pb.ListGraphsRequest()).graphs}
        assert limits == {"g": False, "h": True}, c.call("Graphs/List", pb.ListGraphsRequest())


def weight(d):
    with Client(d.daemon) as c:
        assert share(c).weight == 100
        d.change({"weight": f"uid:{os.getuid()}=7"})
        assert share(c).weight == 7, "sessions that are open have the new weight"


def device_share(d):
    with Client(d.daemon) as c:
        d.change({"max-device-share-per-identity": "30"})
        assert share(c).device_percent == 30


def over_tcp(d, what, before, after):
    """what(client over plaintext TCP) is refused before the change, and works after it."""
    d.write({"allow-plaintext": "yes", "listen": "tcp:127.0.0.1:0"})
    d.reload()
    with Client(d.daemon, address=d.daemon.listening("tcp")) as c:
        refused(*before, what, c)
        d.change(after)
        what(c)


def admin_identities(d):
    over_tcp(d, lambda c: c.call("Admin/Config", pb.ConfigRequest()), ("ROLE", "PERMISSION_DENIED"), {"admin-identities": "tcp:127.0.0.1"})


def allow_plaintext(d):
    d.write({"listen": "tcp:127.0.0.1:0"})
    refused("CONFIG", "INVALID_ARGUMENT", d.reload)
    d.change({"allow-plaintext": "yes"})
    with Client(d.daemon, address=d.daemon.listening("tcp")) as c:
        c.allocate(1)
    d.write({"allow-plaintext": "no"})
    refused("CONFIG", "INVALID_ARGUMENT", d.reload)


def tls(d):
    d.write({"listen": "tcp:127.0.0.1:0", "allow-plaintext": "yes"})
    d.reload()
    address = d.daemon.listening("tcp")
    files = {"tls-cert": f"{CERTS}/server.pem", "tls-key": f"{CERTS}/server.key", "tls-client-ca": f"{CERTS}/ca.pem"}
    # Each file is needed, and must be what it is said to be.
    for name in files:
        d.write({**files, name: f"{CERTS}/none"})
        assert f"{name}: {CERTS}/none" in refused("CONFIG", "INVALID_ARGUMENT", d.reload).text
    d.change({**files, "tls-allow-cn": "yes"})
    assert d.daemon.listening("tls") == address, "the socket is the same one"
    with Client(d.daemon, address=address, credentials=credentials("worker")) as c:
        assert c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions[0].identity == "tls-cn:worker"
        revocations("ca", "worker")
        d.change({"tls-crl": f"{CERTS}/ca.crl"})
        until("the revoked client's connection ends", lambda: "certificate revoked" in d.daemon.log())
    d.change({name: None for name in [*files, "tls-crl"]})
    with Client(d.daemon, address=address) as c:
        c.allocate(1)


def log_level(d):
    d.change({"log-level": "error"})
    with Client(d.daemon):
        pass
    d.change({"log-level": "debug"})
    with Client(d.daemon):
        pass
    quiet, loud = d.daemon.log().split("configuration reloaded; changed: log-level")
    assert "info session" not in quiet.split("reload requested")[-1], quiet
    assert "info session" in loud, loud


def max_sessions(d):
    with Client(d.daemon):
        d.change({"max-sessions": "1"})
        refused("RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", Client, d.daemon)
        d.change({"max-sessions": "2"})
        with Client(d.daemon) as c:
            c.allocate(1)


def max_connections(d):
    d.change({"max-connections": "1"})
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(d.daemon.socket))
    connection.settimeout(PATIENCE)
    assert connection.recv(100) == b"" and "max-connections is reached" in d.daemon.log()


def token_file(d):
    path, token = SCRATCH / "tokens", "t" * 40
    path.write_text(f"t sha256:{hashlib.sha256(token.encode()).hexdigest()} never\n")
    path.chmod(0o600)
    refused("TOKEN_UNKNOWN", "UNAUTHENTICATED", Client, d.daemon, bearer=token)
    d.change({"token-file": str(path)})
    Client(d.daemon, bearer=token).close()


def golden(name):
    """Returns a text of tests/unit/jwt_golden.h."""
    lines = re.search(rf'#define {name} \\\n((?:    ".*\n)+)', (SOURCE / "tests/unit/jwt_golden.h").read_text())[1]
    return "".join(json.loads(line.strip(" \\")) for line in lines.splitlines())


def key_set():
    path = SCRATCH / "keys.json"
    path.write_text(golden("GOLDEN_KEYS"))
    path.chmod(0o644)
    return path


def jwt(d):
    token = golden("GOLDEN_ES256")

    def identity():
        with Client(d.daemon, bearer=token) as c:
            return c.call("Admin/ListSessions", pb.ListSessionsRequest()).sessions[0].identity

    refused("TOKEN_UNKNOWN", "UNAUTHENTICATED", Client, d.daemon, bearer=token)
    d.change({"jwt-issuer": "kc=https://issuer.example.org", "jwt-keys": f"kc={key_set()}", "jwt-audience": "npugraphd"})
    assert identity() == "jwt:kc:trainer"
    d.change({"jwt-claim": "iss"})
    assert identity() == "jwt:kc:https://issuer.example.org"
    d.change({"jwt-groups-claim": "groups", "role": "group:kc:ops=none"})
    refused("ROLE", "PERMISSION_DENIED", Client, d.daemon, bearer=token)
    d.change({"jwt-audience": "other.example.org"})
    refused("TOKEN_UNKNOWN", "UNAUTHENTICATED", Client, d.daemon, bearer=token)


def local_socket(d):
    local = lambda: Client(d.daemon).opened.local_socket  # noqa: E731
    first = local()
    assert first == f"{d.daemon.socket}.local" and os.path.exists(first)
    other = str(SCRATCH / "other.local")
    d.change({"local-socket": other})
    assert local() == other and os.path.exists(other) and not os.path.exists(first)
    d.change({"local-socket": "off"})
    assert local() == "" and not os.path.exists(other)
    d.change({"local-socket": "auto"})
    assert local() == first


def local_transport(d):
    with Client(d.daemon) as c:
        Ring(c).close()
        d.change({"local-transport": "off"})
        try:
            Ring(c)
        except Refused as got:
            assert str(got) == "UNIMPLEMENTED"
        else:
            raise AssertionError("a ring was opened")


def store_budget(d):
    assert d.admin.call("Admin/ListStore", pb.ListStoreRequest()).budget == 1 << 30
    d.change({"store-budget": "5M"})
    assert d.admin.call("Admin/ListStore", pb.ListStoreRequest()).budget == 5 << 20


def oip_shared_memory(d):
    oip = importlib.import_module("proto.inference_pb2")
    with d.daemon.channel() as channel:
        ask = channel.unary_unary("/inference.GRPCInferenceService/ServerMetadata", request_serializer=encode,
                                  response_deserializer=oip.ServerMetadataResponse.FromString)
        for value in ("yes", "no"):
            d.change({"oip-shared-memory": value})
            assert ("system_shared_memory" in ask(oip.ServerMetadataRequest()).extensions) == (value == "yes")


EFFECTS = {
    "listen": listen, "socket-mode": socket_mode, "stats-listen": stats_listen, "stats-hosts": stats_hosts, "stats-names": stats_names, "stats-graphs": stats_graphs,
    "models-dir": models_dir, "load": load, "dump-dir": dump_dir, "max-capture-time": max_capture_time, "capture-limit": capture_limit, "weight": weight,
    "max-device-share-per-identity": device_share, "admin-identities": admin_identities, "allow-plaintext": allow_plaintext,
    "oip-shared-memory": oip_shared_memory,
    **dict.fromkeys(("tls-cert", "tls-key", "tls-client-ca", "tls-crl", "tls-allow-cn"), tls),
    **dict.fromkeys(("jwt-issuer", "jwt-keys", "jwt-audience", "jwt-claim", "jwt-groups-claim"), jwt),
    "token-file": token_file, "log-level": log_level, "max-sessions": max_sessions, "max-connections": max_connections,
    "local-socket": local_socket, "local-transport": local_transport, "store-budget": store_budget,
}
# Limits of one identity: ListShares has them.
QUOTAS = dict(re.findall(r'^NGD_QUOTA\(\w+, "(\w+)", "([\w-]+)"', (SOURCE / "daemon/quotas.def").read_text(), re.M))
# Those whose effect takes long to see, or chance. Admin.Config shows that they have the new value.
SHOWN = {"dump-limit", "inline-limit", "max-replay-time", "merge", "merge-wait", "prompt-share", "queue-limit", "static-timeout", "tcp-keepalive",
         "guard-unix", "guard-poll", "local-spin", "max-inflight", "max-connection-age", "may-publish", "group", "role", "default-role", "allow-plaintext-tokens", "share-prefixes", "drain-grace", "stop-grace",
         "tls-client-certificate",  # its effect: test_tls
         "trace-endpoint", "trace-sample", "trace-limit",  # theirs: test_trace
         "log-format",  # logs()
         "oip-sequence-timeout"}  # test_oip_sequences


@test("each option that a reload changes takes effect without a restart")
def effects():
    live = {name for name, (_, _, is_live) in table().items() if is_live}
    assert set(EFFECTS) | set(QUOTAS.values()) | SHOWN == live, set(EFFECTS) | set(QUOTAS.values()) | SHOWN ^ live
    for effect in dict.fromkeys(EFFECTS.values()):
        with Live(**({"store_dir": str(SCRATCH / "store")} if effect is store_budget else {})) as d:
            try:
                effect(d)
            except Exception as e:
                raise AssertionError(f"{effect.__name__}: {e!r}") from e


@test("limits of identities change for those that are connected")
def quotas():
    with Live() as d, Client(d.daemon) as c:
        d.change({option: "2M" if "bytes" in option else "77" for option in QUOTAS.values()})
        for q in share(c).quotas:
            assert q.limit == ((2 << 20) if "bytes" in QUOTAS[q.name] else 77), q
        d.change({"max-graphs-per-identity": "1"})
        c.register(GRAPH)
        assert "max-graphs-per-identity" in refused("QUOTA", "RESOURCE_EXHAUSTED", c.register, GRAPH).text


# ---- all options at once ---------------------------------------------------------------------------------------------

def another_value(name, default, allowed):
    """Returns a value that is allowed, and not the default."""
    special = {"listen": f"unix:{SCRATCH}/all", "device": "host:1", "weight": "uid:7=3", "group": "team=uid:7", "role": "uid:7=viewer", "socket-mode": "600",
               "static-compiler": "off", "static-dir": "/tmp", "stats-listen": "off", "nz-weights": "auto", "isa": "scalar", "log-level": "debug",
               "jwt-issuer": "kc=https://issuer.example.org", "jwt-keys": f"kc={key_set()}", "trace-endpoint": f"unix:{SCRATCH}/none",
               "load": f"x {SCRATCH}/none", "local-spin": "1us", "local-socket": str(SCRATCH / "other.local"), "guard-poll": "1ms", "trace-sample": "0"}
    if name.startswith("tls-") and name not in ("tls-allow-cn", "tls-client-certificate"):
        return f"{CERTS}/" + {"tls-cert": "server.pem", "tls-key": "server.key", "tls-client-ca": "ca.pem", "tls-crl": "ca.crl"}[name]
    if name == "token-file":
        path = SCRATCH / "no-tokens"
        path.touch(0o600)
        return str(path)
    if name in special:
        return special[name]
    if "yes or no" in allowed:
        return "no" if default == "yes" else "yes"
    if "one of:" in allowed:
        return next(c for c in re.findall(r"[a-z]+", allowed.split("one of:")[1]) if c != default)
    if "an integer" in allowed:
        return "1" if default != "1" else "2"
    if "K, M, G" in allowed:
        return "64M" if default != "64M" else "65M"
    return ("1s" if default != "1s" else "2s") if "us, ms" in allowed else "other-value"


@test("SIGHUP: of all options, each that changed is taken or named as needing a restart, as its help says; Config shows it")
def all_options():
    options = table()
    wanted = {name: another_value(name, default, allowed) for name, (default, allowed, _) in options.items()}
    live = {name for name in options if options[name][2]}
    with Live() as d:
        base = dict.fromkeys(("stats-listen", "device-memory"))
        d.write({**base, **wanted})
        d.daemon.signal(signal.SIGHUP)
        line = until("it is reloaded", lambda: re.search(r"configuration reloaded; changed: ([^\"\n]*)", d.daemon.log()))[1]
        kept = re.search(r"needs a restart: ([^\"\n]*)", d.daemon.log())[1]
        assert set(line.split(", ")) == live and set(kept.split(", ")) == set(options) - live, (live ^ set(line.split(", ")), kept)
        shown = d.shown()
        for name, value in wanted.items():
            assert (value in shown[name]) == (name in live), (name, value, shown[name])
        r = d.admin.call("Admin/Config", pb.ConfigRequest(compare=True)).options
        assert {o.name for o in r} == set(options) - live and all(wanted[o.name] in o.new_values for o in r), r
        r = d.reload()
        assert not r.changed and set(r.needs_restart) == set(options) - live, "what was taken is in effect now, and the rest still needs a restart"
        sources = {o.name: (o.source, o.live) for o in d.admin.call("Admin/Config", pb.ConfigRequest()).options}
        assert sources["log-level"] == (f"{d.conf}:{list(d.options).index('log-level') + 1}", True), sources
        assert sources["listen"][0].endswith(", command line") and sources["slots"] == ("default", False), sources
        d.write(dict.fromkeys(wanted))
        r = d.reload()
        assert set(r.changed) == live and set(r.needs_restart) == {"device-memory"}, "and back"


@test("a value that is not allowed changes nothing, whichever option has it, and is told with its line")
def bad_values():
    bad = {"listen": "nonsense", "stats-listen": "unix:/x", "stats-hosts": "a:b", "weight": "x", "group": "x", "load": "x", "static-compiler": "cc", "static-dir": "x",
           "admin-identities": "tls:x", "socket-mode": "999", "trace-endpoint": "x", "trace-sample": "x", **{f"tls-{n}": f"{SCRATCH}/none" for n in ("cert", "key", "client-ca", "crl")}}
    with Live() as d:
        before = d.shown()
        for name, (_, allowed, _) in table().items():
            if name not in bad and not allowed:
                continue  # any text is a path or a name
            d.conf.write_text(f"stats-listen = 127.0.0.1:0\ndevice-memory = 256M\nlog-level = debug\ndrain-grace = 7s\n{name} = {bad.get(name, 'x?')}\n"
                              .replace("log-level = debug\n", "" if name == "log-level" else "log-level = debug\n")
                              .replace("drain-grace = 7s\n", "" if name == "drain-grace" else "drain-grace = 7s\n")
                              .replace("stats-listen = 127.0.0.1:0\n", "" if name == "stats-listen" else "stats-listen = 127.0.0.1:0\n")
                              .replace("device-memory = 256M\n", "" if name == "device-memory" else "device-memory = 256M\n"))
            text = refused("CONFIG", "INVALID_ARGUMENT", d.reload).text
            assert f"{d.conf}:{d.conf.read_text().count(chr(10))}" in text and name in text, (name, text)
            assert d.shown() == before, name
        assert "Z debug " not in d.daemon.log()


@test("a file that is cut off anywhere is refused as a whole, or taken as a whole")
def torn():
    with Live() as d:
        text = ("# a file of which only a part is there yet\ndevice-memory = 256M\nstats-listen = 127.0.0.1:0\nlog-level = warning\n"
                f"models-dir = {SCRATCH}\nmax-graphs-per-identity = 4000\nlisten = unix:{SCRATCH}/torn\nmerge-wait = 300us\nsocket-mode = 640\n")
        for n in range(len(text) + 1):
            before = d.shown()
            d.conf.write_text(text[:n])
            try:
                d.reload()
            except grpc.RpcError as e:
                assert f"{d.conf}:" in e.details(), e.details()
                assert d.shown() == before, text[:n]
                continue
            left = d.admin.call("Admin/Config", pb.ConfigRequest(compare=True)).options
            assert all(not o.live for o in left), (text[:n], left)
        assert d.shown()["models-dir"] == [str(SCRATCH)] and (SCRATCH / "torn").exists()


# ---- single options ---------------------------------------------------------------------------------------------------

def settable():
    """Returns the options that SetConfig changes, by what the daemon says of its table."""
    text = " ".join(run("--print-config").stdout.replace("\n#", "\n").split())
    return {name for name in table() if re.search(rf"So does npugraphctl config set\. {name} =", text)}


@test("SetConfig changes each option that it may change, without the files, until unset; it refuses the others by name and reason")
def set_all():
    options, may = table(), settable()
    assert {"log-level", "weight", "max-sessions", "merge"} <= may, may
    # Whatever gives files, addresses, commands or rights is left to who may write the daemon's files.
    assert not {n for n in may if re.search(r"dir|file|socket|listen|cert|tls|jwt|token|admin|role|group|plaintext|stats|publish|compiler|endpoint|share-prefixes", n)}, may
    with Live() as d:
        original = d.shown()
        d.write({"drain-grace": "7s"})  # not taken over by a SetConfig
        for name, (default, allowed, live) in options.items():
            ask = pb.SetConfigRequest(name=name, values=[another_value(name, default, allowed)])
            before = d.shown()
            if name not in may:
                reason = ("PERMISSION_DENIED", "PERMISSION_DENIED") if live else ("NEEDS_RESTART", "FAILED_PRECONDITION")
                got = refused(*reason, d.admin.call, "Admin/SetConfig", ask)
                assert name in got.text and ("needs a restart" in got.text) == (not live), got.text
                assert d.shown() == before, name
                continue
            o = d.admin.call("Admin/SetConfig", ask).option
            assert o.name == name and list(o.values) == list(ask.values) and o.set and o.settable and o.source == f"set by uid:{os.getuid()}", o
            assert {n for n, v in d.shown().items() if v != before[n]} == {name}, name
        r = d.reload()
        assert set(r.set) == may and not r.changed, r
        assert "because of config set: " in d.daemon.log()
        r = {o.name: o for o in d.admin.call("Admin/Config", pb.ConfigRequest(compare=True)).options}
        assert set(r) == may and all(o.set for o in r.values()) and list(r["drain-grace"].new_values) == ["7s"], r
        for name in may:
            o = d.admin.call("Admin/SetConfig", pb.SetConfigRequest(name=name, unset=True)).option
            assert not o.set and list(o.values) == (["7s"] if name == "drain-grace" else original[name]), o
        assert not d.admin.call("Admin/Config", pb.ConfigRequest(compare=True)).options


@test("a SetConfig that is refused changes nothing: bad values, unknown names, several values, unset with values, too many, broken files")
def set_bad():
    with Live() as d:
        d.admin.call("Admin/SetConfig", pb.SetConfigRequest(name="weight", values=["uid:1=7", "uid:2=8"]))
        before = d.shown()
        assert before["weight"] == ["uid:1=7", "uid:2=8"]
        call = lambda **k: refused("CONFIG", "INVALID_ARGUMENT", d.admin.call, "Admin/SetConfig", pb.SetConfigRequest(**k)).text
        assert "allowed: one of: error" in call(name="log-level", values=["loud"])
        assert "did you mean log-level?" in call(name="log-levl", values=["info"])
        assert "2 values; allowed: one" in call(name="log-level", values=["info", "debug"])
        assert "0 values; allowed: one" in call(name="log-level")
        assert "is not IDENTITY=N" in call(name="weight", values=["uid:1=7", "uid:2"])
        assert "control characters" in call(name="weight", values=["uid:1=7\nmodels-dir=/"])
        assert "unknown option" in call()
        refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", d.admin.call, "Admin/SetConfig", pb.SetConfigRequest(name="merge", values=["no"], unset=True))
        with contextlib.suppress(grpc.RpcError):
            d.admin.call("Admin/SetConfig", pb.SetConfigRequest(name="weight", values=["uid:1=7"] * 2000))
            raise AssertionError("2000 values were taken")
        d.write({"merge": "perhaps"})
        assert f"{d.conf}:" in call(name="weight", unset=True)
        d.admin.call("Admin/SetConfig", pb.SetConfigRequest(name="drain-grace", values=["9s"]))  # needs no file
        assert d.shown() == {**before, "drain-grace": ["9s"]}
        d.write({"merge": None})
        d.admin.call("Admin/SetConfig", pb.SetConfigRequest(name="weight"))  # an empty list is one too
        assert d.shown()["weight"] == []


@test("several options are set and unset together: all of them, or none if one is refused")
def set_several():
    change = lambda name, *values, **more: pb.SetConfigChange(name=name, values=values, **more)
    with Live() as d:
        call = lambda *changes, **k: d.admin.call("Admin/SetConfig", pb.SetConfigRequest(changes=changes, **k))
        before = d.shown()
        r = call(change("drain-grace", "9s"), change("weight", "uid:1=7", "uid:2=8"), change("merge", "no"))
        assert [(o.name, list(o.values), o.set) for o in r.options] == [("drain-grace", ["9s"], True), ("weight", ["uid:1=7", "uid:2=8"], True), ("merge", ["no"], True)]
        assert r.option == r.options[0]
        after = {**before, "drain-grace": ["9s"], "weight": ["uid:1=7", "uid:2=8"], "merge": ["no"]}
        assert d.shown() == after
        good = change("drain-grace", "8s")
        for reason, code, text, bad in (("CONFIG", "INVALID_ARGUMENT", "allowed: one of: error", change("log-level", "loud")), ("CONFIG", "INVALID_ARGUMENT", "did you mean", change("mergee", "no")),
                                        ("PERMISSION_DENIED", "PERMISSION_DENIED", "models-dir", change("models-dir", "/")), ("NEEDS_RESTART", "FAILED_PRECONDITION", "slots", change("slots", "2")),
                                        ("INVALID_ARGUMENT", "INVALID_ARGUMENT", "drain-grace is changed twice", change("drain-grace", "7s")),
                                        ("INVALID_ARGUMENT", "INVALID_ARGUMENT", "changed twice", change("drain-grace", unset=True)),
                                        ("INVALID_ARGUMENT", "INVALID_ARGUMENT", "no values; 1 were given for merge", change("merge", "no", unset=True))):
            assert text in refused(reason, code, call, good, bad).text, text
            if "twice" not in text:
                assert text in refused(reason, code, call, bad, good).text, text
        assert "as one of the changes" in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", call, good, name="merge", values=["yes"]).text
        with contextlib.suppress(grpc.RpcError):
            call(*[change(f"x{n}", "1") for n in range(65)])
            raise AssertionError("65 changes were taken")
        assert d.shown() == after and "drain-grace=8s" not in d.daemon.log()
        d.write({"drain-grace": "7s"})
        r = call(change("drain-grace", unset=True), change("merge", "yes"), change("weight", unset=True))
        assert d.shown() == {**before, "drain-grace": ["7s"], "merge": ["yes"]} and [o.set for o in r.options] == [False, True, False]
        d.write({"drain-grace": "perhaps"})  # the files count for what is unset, and for nothing else
        call(change("drain-grace", "6s"), change("merge", "no"))
        assert f"{d.conf}:" in refused("CONFIG", "INVALID_ARGUMENT", call, change("log-level", "debug"), change("merge", unset=True)).text
        assert d.shown()["log-level"] == before["log-level"] and d.shown()["merge"] == ["no"]


@test("an option that is set takes effect at once, and for sessions that are open")
def set_effects():
    with Live() as d, Client(d.daemon) as c:
        give = lambda name, *values: d.admin.call("Admin/SetConfig", pb.SetConfigRequest(name=name, values=values))
        give("weight", f"uid:{os.getuid()}=7")
        give("max-graphs-per-identity", "1")
        assert share(c).weight == 7
        c.register(GRAPH)
        assert "max-graphs-per-identity" in refused("QUOTA", "RESOURCE_EXHAUSTED", c.register, GRAPH).text
        give("log-level", "debug")
        assert "configuration: set log-level=debug identity=uid:" in d.daemon.log()
        refused("ROLE", "PERMISSION_DENIED", operator(d, "SetConfig", pb.SetConfigRequest(name="log-level", values=["info"])))
        refused("ROLE", "PERMISSION_DENIED", operator(d, "Logs", pb.LogsRequest()))


def operator(d, method, request):
    """Returns a call by somebody with the role operator."""
    path, token = SCRATCH / "operators", "o" * 40
    path.touch(0o600)
    path.write_text(f"o sha256:{hashlib.sha256(token.encode()).hexdigest()} never operator\n")
    d.change({"token-file": str(path)} if "token-file" not in d.options else {})
    client = Client(d.daemon, bearer=token, session=False)
    client.call("Admin/Config", pb.ConfigRequest())
    return lambda: client.call(f"Admin/{method}", request)


@test("Logs has the daemon's lines by number, level and time; log-format = json writes the same")
def logs():
    with Live() as d:
        ask = lambda **k: d.admin.call("Admin/Logs", pb.LogsRequest(**k))
        first = ask(limit=1000)
        shown = [f"{l.level} {l.component}: {l.text}" for l in first.lines]
        written = [line.split(" ", 1)[1] for line in d.daemon.log().splitlines()]
        assert len(shown) > 3 and shown == written[:len(shown)], (shown, written)
        assert [l.number for l in first.lines] == list(range(1, first.last + 1)) and first.lost == 0
        assert not ask(after=first.last, level="error").lines
        assert [l.number for l in ask(after=2, limit=2).lines] == [3, 4] and ask(after=2, limit=2).last == 4
        assert len(ask(since_ms=3_600_000, limit=1000).lines) >= len(shown)
        middle = first.lines[len(first.lines) // 2].time_ms
        late = [l.number for l in first.lines if l.time_ms >= middle]
        assert [l.number for l in ask(since_time_ms=middle, limit=1000).lines][:len(late)] == late and not ask(since_time_ms=1 << 63).lines
        # Numbers of another start mean nothing here: all lines are there, and what would be lost is counted.
        assert ask(after=1).start == first.start != 0 and ask(after=1, start=first.start).lines[0].number == 2
        assert ask(after=1, start=first.start - 1).lines[0].number == 1
        for bad, text in ((dict(level="loud"), "allowed: error, warning"), (dict(limit=1001), "0 to 1000")):
            assert text in refused("INVALID_ARGUMENT", "INVALID_ARGUMENT", ask, **bad).text
        d.change({"log-format": "json"})
        n = ask(limit=1000).last
        with contextlib.suppress(grpc.RpcError):
            d.admin.call("Sequences/UnloadModel", pb.UnloadModelRequest(name='a"\\b\n\u20ac'))
        line = next(l for l in ask(after=n).lines if "UnloadModel" in l.text)
        got = json.loads(next(x for x in d.daemon.log().splitlines() if "UnloadModel" in x))
        assert (got["level"], got["component"], got["text"]) == (line.level, line.component, line.text) and list(got) == ["time", "level", "component", "text"]
        for _ in range(700):  # about 400 bytes each: more than is kept
            refused("CONFIG", "INVALID_ARGUMENT", d.admin.call, "Admin/SetConfig", pb.SetConfigRequest(name="x" * 200))
        r = ask(after=1)
        assert r.lost > 100 and r.lines[0].number == r.lost + 2, r.lost
        again = ask(after=400, start=r.start - 1)  # nothing of this start was read
        assert again.lines[0].number == again.lost + 1 and again.lost >= r.lost + 1, again.lost


@test("Reload and Config are for operators, SetConfig and Logs for administrators")
def administrators():
    with Daemon("--allow-plaintext=yes", listen="tcp:127.0.0.1:0") as d, Client(d, address=d.listening("tcp")) as c:
        for method, request in (("Admin/Reload", pb.ReloadRequest()), ("Admin/Config", pb.ConfigRequest()), ("Admin/Config", pb.ConfigRequest(compare=True)),
                                ("Admin/SetConfig", pb.SetConfigRequest(name="log-level", values=["debug"])), ("Admin/Logs", pb.LogsRequest())):
            refused("ROLE", "PERMISSION_DENIED", c.call, method, request)
        assert "configuration reloaded" not in d.log()


@test("a reload leaves a path alone whose mode it need not change, and what a person put in its place")
def paths():
    with Live() as d:
        path, other = d.daemon.address.removeprefix("unix:"), SCRATCH / "private"
        os.chmod(path, 0o666)
        d.change({"log-level": "debug"})
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o666
        other.write_text("secret")
        other.chmod(0o600)
        os.rename(path, path + ".old")
        os.symlink(other, path)
        d.change({"socket-mode": "666"})
        assert stat.S_IMODE(other.stat().st_mode) == 0o600
        os.rename(path + ".old", path)


@test("a certificate that is a FIFO is refused, and holds nobody up")
def fifo():
    pipe = SCRATCH / "fifo"
    os.mkfifo(pipe)
    with Live() as d:
        for option in ("tls-cert", "tls-key", "tls-client-ca"):
            d.write({"tls-cert": "/dev/null", "tls-key": "/etc/hostname", "tls-client-ca": "/etc/hostname", option: str(pipe)})
            if option != "tls-cert":
                d.write({"tls-cert": str(d.conf)})
            message = refused("CONFIG", "INVALID_ARGUMENT", d.reload)
            assert "not a regular file" in message.text, message.text
        d.write({"tls-cert": None, "tls-key": None, "tls-client-ca": None})
        d.reload()


@test("reloads while clients work, and while the daemon stops, end with an answer")
def beside_work():
    import threading
    with Live() as d:
        done, failures, replays = threading.Event(), [], []

        def work():
            try:
                while not done.is_set():
                    with Client(d.daemon) as c:
                        g = c.register(GRAPH).graph
                        replays.append(c.replay(g, [bytes(256)]))
                        assert len(c.call("Admin/Status", pb.StatusRequest()).listen) >= 1
            except Exception as e:
                failures.append(e)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        for i in range(60):
            d.change({"weight": [f"uid:{os.getuid()}={i + 1}", f"uid:7={i + 1}"], "models-dir": f"/tmp/{i}", "dump-dir": f"/tmp/{i}", "group": f"a{i}=uid:7",
                      "admin-identities": f"uid:{i + 1}", "max-graphs-per-identity": str(1000 + i), "max-replay-time": f"{i + 1}s"})
        done.set()
        for t in threads:
            t.join()
        assert replays and not failures, failures
        waiting = [threading.Thread(target=lambda: ends(d)) for _ in range(8)]
        for t in waiting:
            t.start()
        d.daemon.signal(signal.SIGTERM)
        for t in waiting:
            t.join(PATIENCE)
            assert not t.is_alive()
        d.daemon.stop = d.daemon.wait


def ends(d):
    for _ in range(1000):
        try:
            d.reload()
        except grpc.RpcError:
            return


def reloaded(d):
    """Signals the daemon, and returns the names of the options that it took over."""
    d.signal(signal.SIGHUP)
    return set(until("it is reloaded", lambda: re.findall(r"configuration reloaded; changed: ([^\"\n]*)", d.log()))[0].split(", "))


@test("SIGHUP reads the drop-ins of conf.d too, in their order; a mistake in any file is told with its line, and changes nothing")
def reload_files():
    top = SCRATCH / "etc"
    (top / "conf.d").mkdir(parents=True)
    conf, second = top / "npugraphd.conf", top / "conf.d" / "20-second.conf"
    conf.write_text("log-level = notice\nmodels-dir = /a\n")
    (top / "conf.d" / "10-first.conf").write_text("log-level = warning\n")
    second.write_text("log-level = info\nmodels-dir = /b\n")
    (top / "conf.d" / "30-third.conf.bak").write_text("nonsense\n")  # a file that an editor left
    with Daemon(f"--config={conf}") as d:
        assert "models-dir /a" in d.log() and "models-dir /b" in d.log(), "the lists of all files count"
        assert "debug" not in d.log()
        second.write_text("log-level = debug\nmodels-dir = /b\n")
        assert reloaded(d) == {"log-level"}
        second.write_text("drain-grace = 1s\nlog-level = error\nslotz = 1\n")
        d.signal(signal.SIGHUP)
        until("it is refused", lambda: f"nothing of it changed: {second}:3: unknown option" in d.log() and "did you mean slots?" in d.log())
        with Client(d) as c:
            c.allocate(1)
        until("it still logs what is no error", lambda: "info session" in d.log().split("nothing of it changed")[1])
    out = run(f"--config={conf}", "--check-config")
    assert out.returncode == EXIT_CONFIG and f"{second}:3:" in out.stderr, out


if __name__ == "__main__":
    main()
