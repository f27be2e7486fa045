#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JSON Web Tokens: identities by an issuer's keys, roles by a token's groups, new keys, and what is refused and why.

Another implementation (PyJWT, cryptography) makes keys and tokens.
"""
import base64
import hashlib
import hmac

from harness import *

try:
    import jwt
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
except ImportError:
    skip_all("python3-jwt (with python3-cryptography) is not installed")

URL, AUDIENCE = "https://issuer.example.org/realm", "npugraphd.example.org"
CURVES = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
GRAPH = "npugraph 1\ngraph \"g\" {\n  input %x : f32[4]\n  %y = aten.neg(%x)\n  return %y\n}\n"


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(n, size=None):
    return b64(n.to_bytes(size or (n.bit_length() + 7) // 8, "big"))


def make_key(kind):
    if kind.startswith("RSA"):
        return rsa.generate_private_key(65537, int(kind[3:]))
    return ed25519.Ed25519PrivateKey.generate() if kind == "Ed25519" else ec.generate_private_key(CURVES[kind])


def jwk(key, kid=None, **more):
    """Returns the public key as a JSON Web Key."""
    public = key.public_key()
    if isinstance(key, rsa.RSAPrivateKey):
        n = public.public_numbers()
        row = {"kty": "RSA", "n": number(n.n), "e": number(n.e)}
    elif isinstance(key, ed25519.Ed25519PrivateKey):
        raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        row = {"kty": "OKP", "crv": "Ed25519", "x": b64(raw)}
    else:
        n, size = public.public_numbers(), (public.key_size + 7) // 8
        row = {"kty": "EC", "crv": next(c for c, v in CURVES.items() if v.name == public.curve.name), "x": number(n.x, size), "y": number(n.y, size)}
    return {**row, **({"kid": kid} if kid is not None else {}), **more}


KEYS = {kind: make_key(kind) for kind in ("RSA2048", "P-256", "P-384", "P-521", "Ed25519")}
EC, STRANGER = KEYS["P-256"], make_key("P-256")
ALGORITHMS = [(a, k) for a, k in (*((f"{f}{n}", "RSA2048") for f in ("RS", "PS") for n in (256, 384, 512)), ("ES256", "P-256"), ("ES384", "P-384"),
                                  ("ES512", "P-521"), ("EdDSA", "Ed25519"))]


def claims(**changes):
    """Returns the claims of a good token; a change to None leaves one out."""
    now = int(time.time())
    return {k: v for k, v in {"iss": URL, "aud": AUDIENCE, "sub": "trainer", "iat": now, "exp": now + 3600, **changes}.items() if v is not None}


def token(kid="P-256", key=EC, alg="ES256", headers=None, **changes):
    return jwt.encode(claims(**changes), key, algorithm=alg, headers={**({"kid": kid} if kid is not None else {}), **(headers or {})})


def signed(header, payload, key=EC):
    """Returns a token of any two texts, signed with ES256."""
    text = f"{b64(header)}.{b64(payload)}"
    return f"{text}.{b64(jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256).sign(text.encode(), key))}"


ALL_KEYS = [jwk(key, kind) for kind, key in KEYS.items()]
HEADER = json.dumps({"alg": "ES256", "kid": "P-256"}).encode()


class Issuers:
    """A daemon that takes tokens of the issuer "kc", and root's client on its socket."""

    def __init__(self, keys=None, *options, **kwargs):
        self.path = SCRATCH / f"keys{Daemon.count}.json"
        self.write({"keys": ALL_KEYS if keys is None else keys})
        self.daemon = Daemon(f"--jwt-issuer=kc={URL}", f"--jwt-keys=kc={self.path}", f"--jwt-audience={AUDIENCE}", *options, **kwargs)
        self.admin = Client(self.daemon, session=False)

    def write(self, value, mode=0o644):
        fresh = self.path.with_suffix(".new")
        fresh.write_text(value if isinstance(value, str) else json.dumps(value))
        fresh.chmod(mode)
        fresh.rename(self.path)

    def client(self, bearer, **kwargs):
        return Client(self.daemon, bearer=bearer, **kwargs)

    def signatures(self):
        """Returns how many signatures were checked: (right, wrong)."""
        text = self.daemon.http("/metrics")[1]
        return tuple(int(float((re.search(rf'^npugraphd_token_signatures_total{{result="{x}"}} (\S+)$', text, re.M) or [0, 0])[1])) for x in ("right", "wrong"))

    def __enter__(self):
        return self

    def __exit__(self, kind, *rest):
        self.admin.close()
        self.daemon.__exit__(kind, *rest)


@test("tokens of every algorithm are taken, by key id and where only one key fits; the identity names issuer and subject")
def algorithms():
    with Issuers() as i:
        for alg, kind in ALGORITHMS:
            for kid in (kind, None):
                with i.client(token(kid, KEYS[kind], alg, sub=f"{alg}@{kind}")) as c:
                    assert who(c) == f"jwt:kc:{alg}@{kind}", who(c)
        for aud in (["other", AUDIENCE], [AUDIENCE]):
            i.client(token(aud=aud)).close()
        for typ in ("JWT", "at+jwt", "application/AT+JWT"):
            i.client(token(headers={"typ": typ})).close()
        now = time.time()
        for sub, changes in (("late", {"exp": int(now) - 20}), ("early", {"nbf": int(now) + 20, "iat": now + 20.5}), ("x" * 152, {"exp": now + 60.25})):
            with i.client(token(sub=sub, **changes)) as c:
                assert who(c) == f"jwt:kc:{sub}"
        assert i.signatures() == (2 * len(ALGORITHMS) + 8, 0), i.signatures()


@test("a token is checked once, then known; its session needs it no more, and another session of the same subject is the same identity")
def kept():
    with Issuers() as i:
        text = token()
        with i.client(text) as a, i.client(text) as b:
            graph = a.register(GRAPH).graph
            for c in (a, b):
                for _ in range(5):
                    c.call("Admin/Status", pb.StatusRequest())
            a.bearer = None
            a.replay(graph, [bytes(16)])
            assert i.signatures() == (1, 0)
            with i.client(token(iat=int(time.time()) - 5)) as c:
                assert who(c) == "jwt:kc:trainer" and c.call("Graphs/List", pb.ListGraphsRequest()).graphs
            assert i.signatures() == (2, 0)
            a.bearer = text
            refused("ROLE", "PERMISSION_DENIED", a.call, "Admin/Drain", pb.DrainRequest(), session=0)


def hostile():
    """Returns rows of reason, words of the sentence, token."""
    now = int(time.time())
    good = token()
    head, body, signature = good.split(".")
    public = EC.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    sha = lambda secret, text: b64(hmac.new(secret, text.encode(), hashlib.sha256).digest())
    header = lambda **more: json.dumps({"alg": "ES256", "kid": "P-256", **more}).encode()
    none, hs = f"{b64(header(alg='none'))}.{body}", f"{b64(header(alg='HS256'))}.{body}"
    good_claims = json.dumps(claims()).encode()
    unsigned = [(header(alg=a), "is not signed by") for a in ("none", "NONE", "HS256", "RS1", "es256", "", None, 7, ["ES256"])]
    unsigned += [(header(crit=["exp"]), "extensions"), (header(typ="logout+jwt"), "another type"), (header(typ=5), "another type"), (header(kid=5), "key id"),
                 (header(kid="k" * 257), "key id"), (b'{"alg":"ES256","alg":"ES256","kid":"P-256"}', "a name twice"), (b'["ES256"]', "is not an object"), (b"{", "is not an object"),
                 (b'{"alg":"ES256","x":' + b"[" * 9 + b"]" * 9 + b"}", "nested deeper"), (b'{"x":[' + b"0," * 1100 + b"0]}", "more than 1024 values"),
                 (b'{"alg":"ES256","x":1' + b"0" * 400 + b"}", "a number too large"), (b'{"alg":"ES256","kid":"\xff"}', "is not an object"), (b'{"alg":"ES256\\u0000"}', "is not an object")]
    rows = [("TOKEN_MALFORMED", why, f"{b64(text)}.{body}.{signature}") for text, why in unsigned if text[:1] == b"{"]
    rows += [("TOKEN_UNKNOWN", "not in the daemon's token-file", f"{b64(text)}.{body}.{signature}") for text, why in unsigned if text[:1] != b"{"]
    rows += [("TOKEN_MALFORMED", "is not signed by", f"{hs}.{sha(public, hs)}"), ("TOKEN_MALFORMED", "is not signed by", f"{none}.AAAA"),
             ("TOKEN_MALFORMED", "no signature", f"{none}."), ("TOKEN_MALFORMED", "no signature", f"{head}.{body}."),
             ("TOKEN_MALFORMED", "not base64url", f"{head}.{body}.{signature[:-1]}+"), ("TOKEN_MALFORMED", "not base64url", f"{head}.{body}.{signature}=="),
             ("TOKEN_MALFORMED", "not base64url", f"{head}.{body[:-1]}.{signature}" if len(body) % 4 == 2 else f"{head}.{body}A{'A' * (-len(body) % 4)}.{signature}"),
             ("TOKEN_MALFORMED", "at most 8192", f"{head}.{'A' * 8192}.{signature}"), ("TOKEN_UNKNOWN", "not in the daemon's token-file", f"{head}.{body}.{signature}.AAAA"),
             ("TOKEN_UNKNOWN", "not in the daemon's token-file", f"{head}.{body}"), ("TOKEN_MALFORMED", "JSON Web Token", f"e..{'A' * 40}")]
    # The signature is that of other text, of another key, of no key, or has another form.
    raw = base64.urlsafe_b64decode(signature + "==")
    der = EC.sign(f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
    for wrong in (token(key=STRANGER), f"{head}.{b64(json.dumps(claims(sub='admin')).encode())}.{signature}", f"{head}.{body}.{b64(raw[:-1])}", f"{head}.{body}.{b64(bytes(64))}",
                  f"{head}.{body}.{b64(b'' + der)}", f"{head}.{body}.{b64(raw + bytes(1))}", f"{head}.{body}.{b64(bytes([255]) * 64)}", f"{head}.{body}.AAAA"):
        rows.append(("TOKEN_UNKNOWN", "signature is not that", wrong))
    rows += [("TOKEN_UNKNOWN", "no key", token(kid="other")), ("TOKEN_UNKNOWN", "no key", token(kid="p-256")), ("TOKEN_UNKNOWN", "no key", token(kid="RSA2048")),
             ("TOKEN_UNKNOWN", "no key", token("P-256", KEYS["RSA2048"], "RS256")), ("TOKEN_UNKNOWN", "no key", token(kid=""))]
    # Claims of a token that is signed rightly.
    for why, reason, changes in [
            ("issuer (iss)", "TOKEN_UNKNOWN", {"iss": URL + "/"}), ("issuer (iss)", "TOKEN_UNKNOWN", {"iss": None}), ("issuer (iss)", "TOKEN_UNKNOWN", {"iss": 5}),
            ("aud", "TOKEN_UNKNOWN", {"aud": "other"}), ("aud", "TOKEN_UNKNOWN", {"aud": None}), ("aud", "TOKEN_UNKNOWN", {"aud": []}),
            ("aud", "TOKEN_MALFORMED", {"aud": {AUDIENCE: 1}}), ("aud", "TOKEN_MALFORMED", {"aud": [AUDIENCE, 1]}),
            ("does not expire", "TOKEN_MALFORMED", {"exp": None}), ("not a number", "TOKEN_MALFORMED", {"nbf": -1}), ("not a number", "TOKEN_MALFORMED", {"nbf": "soon"}),
            ("not a number", "TOKEN_MALFORMED", {"nbf": True}), ("not a number", "TOKEN_MALFORMED", {"nbf": [1]}), ("not a number", "TOKEN_MALFORMED", {"exp": 253402300800}),
            ("not a number", "TOKEN_MALFORMED", {"exp": 1e300}), ("has expired", "TOKEN_EXPIRED", {"exp": now - 31}), ("has expired", "TOKEN_EXPIRED", {"exp": 0}),
            ("time (nbf or iat)", "TOKEN_UNKNOWN", {"nbf": now + 3600}), ("time (nbf or iat)", "TOKEN_UNKNOWN", {"iat": now + 3600}),
            ("claim sub", "TOKEN_MALFORMED", {"sub": None}), ("claim sub", "TOKEN_MALFORMED", {"sub": ""}), ("claim sub", "TOKEN_MALFORMED", {"sub": 5}),
            ("claim sub", "TOKEN_MALFORMED", {"sub": "x" * 153}), ("claim sub", "TOKEN_MALFORMED", {"sub": "a b"}), ("claim sub", "TOKEN_MALFORMED", {"sub": "a\nb"}),
            ("claim sub", "TOKEN_MALFORMED", {"sub": "\u00e9"})]:
        rows.append((reason, why, signed(HEADER, json.dumps(claims(**changes)).encode())))
    for payload in (b"", b"[]", b"{}x", good_claims[:-1] + b',"sub":"admin"}', good_claims[:-1] + b',"x":1' + b"0" * 30 + b"}", good_claims[:-1] + b',"x":1e999}',
                    good_claims[:-1] + b',"x":NaN}', b"\xef\xbb\xbf" + good_claims):
        rows.append(("TOKEN_MALFORMED", "claims", signed(HEADER, payload)))
    rows.append(("TOKEN_MALFORMED", "nested deeper", signed(HEADER, good_claims[:-1] + b',"x":' + b"[" * 8 + b"]" * 8 + b"}")))
    return rows


@test("tokens that are forged, confused, malformed, for others, too early, too late or too large are refused by reason, and never shown")
def refusals():
    with Issuers() as i, i.daemon.channel() as channel:
        call = channel.unary_unary("/npugraph.v1.Admin/Status", request_serializer=encode, response_deserializer=pb.StatusResponse.FromString)
        rows = hostile()
        for reason, words, text in rows:
            try:
                got = refused(reason, "UNAUTHENTICATED", call, pb.StatusRequest(), metadata=(("authorization", f"Bearer {text}"),), timeout=PATIENCE)
            except AssertionError as e:
                raise AssertionError(f"{words}: {text[:200]}: {e}") from e
            assert words in got.text and text not in got.text, (words, text, got.text)
        log = i.daemon.log()
        assert not any(text in log for _, _, text in rows if len(text) > 40)
        call(pb.StatusRequest(), metadata=(("authorization", f"Bearer {token()}"),), timeout=PATIENCE)
        refused("TOKEN_MALFORMED", "UNAUTHENTICATED", call, pb.StatusRequest(), metadata=(("authorization", f"Bearer {token()}"),) * 2)
    with Daemon() as d:
        refused("TOKEN_UNKNOWN", "UNAUTHENTICATED", Client, d, bearer=token())


@test("a session ends when its token expires, also without another call; the call says so")
def expires():
    with Issuers() as i, i.client(token(exp=int(time.time()) - 28)) as c:
        c.allocate(1 << 20)
        refused("TOKEN_EXPIRED", "UNAUTHENTICATED", lambda: next(c.stream))
        c.stream = None
        got = refused("TOKEN_EXPIRED", "UNAUTHENTICATED", c.allocate, 1)
        assert "issuer" in got.text, got.text
        until("its memory is free", lambda: i.daemon.used_bytes() == 0)


@test("keys are read again when their file changes and by a reload: sessions of a key that stays go on, those of one that left end")
def new_keys():
    other = make_key("P-256")
    with Issuers([jwk(EC, "P-256"), jwk(KEYS["Ed25519"], "Ed25519")]) as i:
        stays, goes = i.client(token()), i.client(token("Ed25519", KEYS["Ed25519"], "EdDSA", sub="b"))
        refused("TOKEN_UNKNOWN", "UNAUTHENTICATED", i.client, token("new", other))
        i.write({"keys": [jwk(other, "new"), jwk(EC, "P-256")]})
        got = refused("TOKEN_EXPIRED", "UNAUTHENTICATED", lambda: next(goes.stream))
        assert "changed" in got.text, got.text
        stays.allocate(1)
        i.client(token("new", other)).close()
        refused("TOKEN_UNKNOWN", "UNAUTHENTICATED", i.client, goes.bearer)
        i.write("{}")  # a file that is not valid is told, and changes nothing
        until("the log tells", lambda: 'no array "keys"' in i.daemon.log())
        stays.allocate(1)
        i.write({"keys": [jwk(other, "P-256")]})  # the id of another key
        i.admin.call("Admin/Reload", pb.ReloadRequest())
        refused("TOKEN_EXPIRED", "UNAUTHENTICATED", lambda: next(stays.stream))
        i.write({"keys": [jwk(EC, "P-256")]})
        i.admin.call("Admin/Reload", pb.ReloadRequest())
        i.client(stays.bearer).close()  # the key is there again
        for dead in (stays, goes):
            dead.stream = None
            dead.close()


def private(key):
    return {**jwk(key, "p"), "d": number(key.private_numbers().private_value)}


@test("key sets with mistakes, secrets, weak keys or a wrong mode are refused at the start and by a reload, with file and key")
def bad_keys():
    good = jwk(EC, "P-256")
    weak = make_key("RSA1024")
    cases = [("", "not a JSON object"), ("[]", "another type"), ("{}", 'no array "keys"'), ({"keys": {}}, 'no array "keys"'), ({"keys": []}, "none of its 0 keys"),
             ({"keys": [good, 5]}, "key 2: it is not an object"), ({"keys": [good, jwk(KEYS["P-384"], "P-256")]}, "key 2: an earlier key has the same kid"),
             ({"keys": [jwk(weak, "w")]}, "1024 bits"), ({"keys": [private(EC)]}, "private numbers"), ({"keys": [good, {"kty": "oct", "k": "AAAA"}]}, "key 2: it is a secret"),
             ({"keys": [{**good, "alg": "RS256"}]}, "does not go with its type EC P-256"), ({"keys": [{**good, "x": good["x"][:-4]}]}, "x and y"), ({"keys": [{**good, "x": good["y"]}]}, "no EC key"),
             ({"keys": [{**good, "x": 5}]}, "x and y"), ({"keys": [{**good, "kid": 5}]}, "kid is not a text"), ({"keys": [{**good, "kid": "k" * 257}]}, "kid is not a text"),
             ({"keys": [{"kty": "RSA", "n": number((1 << 2047) + 1), "e": "AQ"}]}, "no RSA key"), ({"keys": [{"kty": "RSA", "n": number(1 << 2047), "e": "AQAB"}]}, "no RSA key"), ({"keys": [{"kty": "RSA", "n": "AAAA=", "e": "AQAB"}]}, "base64url"),
             ({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}]}, "32 bytes"), ({"keys": [{"kty": "OKP", "crv": "X25519", "x": "AAAA"}, {**good, "use": "enc"}, {"kty": "XYZ"}]}, "none of its 3 keys"),
             ({"keys": [{**good, "key_ops": ["sign"]}]}, "none of its 1 keys"), ('{"keys": [' + "[" * 20 + "]" * 20 + "]}", "depth"),
             ('{"keys": [], "keys": []}', "duplicate"), ({"keys": [jwk(EC, str(n)) for n in range(65)]}, "more than 64 keys"), (json.dumps({"keys": [good], "x": "x" * 300000}), "at most 262144")]
    with Issuers([good]) as i, i.client(token()) as c:
        def wrong(words, *more):
            got = refused("CONFIG", "INVALID_ARGUMENT", i.admin.call, "Admin/Reload", pb.ReloadRequest())
            assert words in got.text and "jwt-keys: " in got.text and str(i.path) in got.text, (words, got.text)
            c.allocate(1)

        for value, words in cases:
            i.write(value)
            wrong(words)
        i.write({"keys": [good]}, mode=0o666)
        wrong("mode 0666")
        i.path.unlink()
        wrong("No such file")
        i.write({"keys": [good, {**good, "kid": "e", "use": "enc"}, {"kty": "XYZ"}]})
        i.admin.call("Admin/Reload", pb.ReloadRequest())
        c.allocate(1)
    for options, words in [(["--jwt-issuer=kc=u"], "jwt-issuer: kc has no entry in jwt-keys"), (["--jwt-keys=kc=f"], "jwt-keys: kc has no entry in jwt-issuer"),
                           (["--jwt-issuer=k:c=u"], "is not NAME=URL"), (["--jwt-issuer=kc"], "is not NAME=URL"), (["--jwt-issuer=a=b", "--jwt-keys=a=c"], "jwt-audience"),
                           (["--jwt-groups-claim=a..b"], "is not a path"), (["--jwt-issuer=a=b", "--jwt-issuer=a=c", "--jwt-keys=a=c"], "a has two entries")]:
        got = subprocess.run([DAEMON, "--check-config", *options], capture_output=True, text=True, timeout=PATIENCE)
        assert got.returncode and words in got.stderr, (options, got.stderr)


@test("issuers are apart: neither makes tokens of the other, nor the same identity, nor that of a listed token")
def issuers():
    second, listed = make_key("P-256"), SCRATCH / "listed"
    keys, opaque = SCRATCH / "second.json", "npugraph_" + "x" * 40
    keys.write_text(json.dumps({"keys": [jwk(second, "P-256")]}))  # the same key id
    keys.chmod(0o644)
    listed.touch(0o600)
    listed.write_text(f"trainer sha256:{hashlib.sha256(opaque.encode()).hexdigest()} never\n")
    with Issuers([jwk(EC, "P-256")], "--jwt-issuer=k8s=https://k8s", f"--jwt-keys=k8s={keys}", f"--token-file={listed}") as i:
        with i.client(token()) as a, i.client(token(key=second, iss="https://k8s")) as b, i.client(opaque) as c:
            assert [who(x) for x in (a, b, c)] == ["jwt:kc:trainer", "jwt:k8s:trainer", "token:trainer"]
        got = refused("TOKEN_UNKNOWN", "UNAUTHENTICATED", i.client, token(key=second))
        assert "https://k8s" in got.text, got.text
        refused("TOKEN_UNKNOWN", "UNAUTHENTICATED", i.client, token(iss="https://k8s"))


def role_of(client):
    """Returns the role of a client, by what it may do."""
    for method, request, role in (("Admin/ReadTimeline", pb.ReadTimelineRequest(), "admin"), ("Admin/Config", pb.ConfigRequest(), "operator"),
                                  ("Graphs/RemovePattern", pb.RemovePatternRequest(), "user"), ("Admin/Status", pb.StatusRequest(), "viewer")):
        try:
            client.call(method, request, session=0)
            return role
        except grpc.RpcError as e:
            if Refusal(e).reason != "ROLE":
                return role
    return "none"


@test("roles: by the identity's own entry, else by the groups that its newest token names, else by group; models are shared with such groups")
def roles():
    model = SOURCE / "examples" / "model"
    now = int(time.time())
    options = ["--role=jwt:kc:boss=admin", "--role=group:kc:/ops=operator", "--role=group:kc:idle=none", "--role=group:locals=viewer", "--group=locals=jwt:kc:local",
               "--default-role=none", "--admin-identities=jwt:kc:chief", "--jwt-groups-claim=groups", f"--models-dir={model}"]
    with Issuers(None, *options) as i:
        def role(sub, groups=None, **more):
            with i.client(token(sub=sub, groups=groups, **more), session=False) as c:
                return role_of(c)

        assert [role(s) for s in ("boss", "chief", "local", "trainer")] == ["admin", "admin", "viewer", "none"]
        assert role("trainer", ["a", "/ops", "idle"]) == role("trainer", "/ops", iat=now - 1) == "operator"
        assert role("trainer", ["/op"]) == role("trainer", []) == role("trainer", ["kc:/ops", "ops"]) == "none"
        assert role("boss", ["idle"]) == "admin"
        for wrong in (5, {"/ops": 1}, ["/ops", 5]):
            refused("TOKEN_MALFORMED", "UNAUTHENTICATED", i.client, token(groups=wrong))
        with i.client(token(sub="x", groups=["/ops"], iat=now - 10)) as c:
            (SCRATCH / "t").write_text(c.bearer)
            done = subprocess.run([CTL, "--address", i.daemon.address, "--token-file", SCRATCH / "t", "--quiet", "load", model, "--name", "m", "--share-with", "group:kc:readers"],
                                  capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, done.stderr
            names = lambda who: [m.name for m in who.call("Sequences/ListModels", pb.ListModelsRequest(), session=0).models]
            with i.client(token(sub="y", groups=["readers", "/ops"])) as y, i.client(token(sub="z", groups=["/ops"])) as z:
                assert names(y) == ["m"] and names(z) == []
            # A later token of x takes the role away from its sessions too, and the earlier one does not give it back.
            assert role("x", []) == "none"
            refused("ROLE", "PERMISSION_DENIED", c.allocate, 1)
            assert role("x", ["/ops"], iat=now - 10) == "none"
    with Issuers(None, *options) as i, i.client(token("Ed25519", KEYS["Ed25519"], "EdDSA", sub="x", groups=["/ops"], iat=now - 10)) as c:
        with i.client(token(sub="x", groups=["idle"]), session=False) as last:
            assert role_of(last) == role_of(c) == "none"
        # What a token of a key that left said of groups counts no longer, though it was issued last.
        i.write({"keys": [k for k in ALL_KEYS if k["kid"] != "P-256"]})
        until("the role of the other token's groups is back", lambda: role_of(c) == "operator")


@test("groups are found inside other claims, where the path says, and nowhere else")
def nested_groups():
    rule = ("--role=group:kc:ops=operator", "--default-role=viewer")

    def role(issuers, **more):
        with issuers.client(token(sub="x", **more), session=False) as c:
            return role_of(c)

    with Issuers(None, "--jwt-groups-claim=realm_access.roles", *rule) as i:
        assert role(i, realm_access={"roles": ["a", "ops"]}) == "operator"
        for other in ({"realm_access": {"roles": []}}, {"realm_access": {"role": ["ops"]}}, {"realm_access": ["ops"]}, {"realm_access": "ops"}, {"roles": ["ops"]},
                      {"realm_access.roles": ["ops"]}, {}):
            assert role(i, **other) == "viewer", other
        for wrong in ({"ops": 1}, 5, ["ops", 5], None):
            refused("TOKEN_MALFORMED", "UNAUTHENTICATED", i.client, token(realm_access={"roles": wrong}))
    with Issuers(None, r"--jwt-groups-claim=resource_access.npu\.example\.org.roles", *rule) as i:
        assert role(i, resource_access={"npu.example.org": {"roles": ["ops"]}}) == "operator"
        assert role(i, resource_access={"npu": {"example": {"org": {"roles": ["ops"]}}}}) == "viewer"


@test("a groups claim that is a URL is one name, and the beginning of a path only if its dots have backslashes")
def url_groups():
    url, groups = "https://example.org/v1.0/groups", {"roles": ["ops"]}
    for path, found, others in ((url, {url: ["ops"]}, ({"https://example": {"org/v1": {"0/groups": ["ops"]}}},)),
                                (url.replace(".", r"\."), {url: ["ops"]}, ()), (url.replace(".", r"\.") + ".roles", {url: groups}, ()),
                                ("realm_access." + url, {"realm_access": {url: ["ops"]}}, ())):
        with Issuers(None, f"--jwt-groups-claim={path}", "--role=group:kc:ops=operator", "--default-role=viewer") as i:
            for more, expected in ((found, "operator"), *((other, "viewer") for other in (*others, {}))):
                with i.client(token(sub="x", **more), session=False) as c:
                    assert role_of(c) == expected, (path, more)


def sign_with_no_key(x):
    """Returns a token whose signature fits the Ed25519 key of the point with y = 1: the same R, and S = 0, for every text."""
    text = f"{b64(json.dumps({'alg': 'EdDSA', 'kid': 'few'}).encode())}.{b64(json.dumps(claims()).encode())}"
    return f"{text}.{b64(x + bytes(32))}"


@test("Ed25519 keys of small order are refused, since anybody can sign for them")
def small_order():
    p = 2**255 - 19
    eighth = int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little")
    one = (1).to_bytes(32, "little")
    ed25519.Ed25519PublicKey.from_public_bytes(one).verify(base64.urlsafe_b64decode(sign_with_no_key(one).split(".")[2] + "=="), b"any text")
    with Issuers([jwk(EC, "P-256")]) as i:
        for y in (0, 1, eighth, p - eighth, p - 1, p, p + 1):
            for sign in (0, 1):
                x = (y | sign << 255).to_bytes(32, "little")
                i.write({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "few", "x": b64(x)}]})
                got = refused("CONFIG", "INVALID_ARGUMENT", i.admin.call, "Admin/Reload", pb.ReloadRequest())
                assert "small order" in got.text, (y, sign, got.text)
        refused("TOKEN_UNKNOWN", "UNAUTHENTICATED", i.client, sign_with_no_key(one))


@test("npugraphctl sends a token of any size that is taken; the audit log names identity and refusal, and no token")
def tools():
    mine, log = SCRATCH / "mine", SCRATCH / "audit"
    with Issuers(None, f"--audit-log={log}") as i:
        def ctl(text, *args):
            mine.write_text(text)
            return subprocess.run([CTL, "--address", i.daemon.address, "--token-file", mine, *args], capture_output=True, text=True, timeout=PATIENCE)

        graph = SCRATCH / "g.txt"
        graph.write_text(GRAPH)
        large = token(more="x" * 5700)
        assert 7900 < len(large) <= 8192, len(large)
        for text in (token(), large + "\n"):
            got = ctl(text, "replay", graph)
            assert got.returncode == 0, got.stderr
        assert "at most 8192" in ctl(token(more="x" * 6200), "status").stderr
        assert "TOKEN_UNKNOWN" in ctl(token(key=STRANGER), "status").stderr
        assert "opened by jwt:kc:trainer" in i.daemon.log()
        until("the refusal is audited", lambda: '"answer":"TOKEN_UNKNOWN"' in log.read_text())
        assert '"identity":"jwt:kc:trainer"' in log.read_text() and large not in log.read_text() and large not in i.daemon.log()


main(shared=False)
