#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints tests/unit/jwt_golden.h: new keys, and tokens that PyJWT signs with them (Debian: python3-jwt). They expire in 2100."""
import base64
import json
import textwrap

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

CLAIMS = {"iss": "https://issuer.example.org", "aud": ["other", "npugraphd"], "sub": "trainer", "iat": 1700000000, "exp": 4102444799, "groups": ["ops", "dev"]}


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(n):
    return b64(n.to_bytes((n.bit_length() + 7) // 8, "big"))


def curve(name, key):
    n, size = key.public_key().public_numbers(), (key.key_size + 7) // 8
    return {"kty": "EC", "crv": name, "x": b64(n.x.to_bytes(size, "big")), "y": b64(n.y.to_bytes(size, "big"))}


def define(name, text):
    quoted = textwrap.wrap(text, 100, break_on_hyphens=False, drop_whitespace=False)
    print(f"#define {name} \\\n" + " \\\n".join("    " + json.dumps(line) for line in quoted))


r, e, f = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP521R1())
d = ed25519.Ed25519PrivateKey.generate()
rn = r.public_key().public_numbers()
raw = d.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
keys = [{"kid": "r", "use": "sig", "kty": "RSA", "n": number(rn.n), "e": number(rn.e)}, {"kid": "e", **curve("P-256", e)}, {"kid": "f", **curve("P-521", f)},
        {"kid": "d", "kty": "OKP", "crv": "Ed25519", "x": b64(raw)}]
print("/* SPDX-License-Identifier: Apache-2.0 */\n/* Keys, and tokens that PyJWT has signed with them; tests/unit/jwt_golden.py has made them. */\n"
      "#ifndef NGD_TESTS_JWT_GOLDEN_H\n#define NGD_TESTS_JWT_GOLDEN_H\n\n/* clang-format off */")
define("GOLDEN_KEYS", json.dumps({"keys": keys}))
for alg, kid, key in (("RS256", "r", r), ("PS256", "r", r), ("PS512", "r", r), ("ES256", "e", e), ("ES512", "f", f), ("EdDSA", "d", d)):
    define("GOLDEN_" + alg.upper(), jwt.encode(CLAIMS, key, algorithm=alg, headers={"kid": kid}))
print("/* clang-format on */\n\n#endif")
