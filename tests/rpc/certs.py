# SPDX-License-Identifier: Apache-2.0
"""Certificates for the tests of TLS: authorities, and what they sign."""
import shutil
import subprocess

from harness import *

CERTS = SCRATCH / "certs"
CERTS.mkdir()


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], cwd=CERTS, check=True, capture_output=True)


def authority(name):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout", f"{name}.key",
            "-out", f"{name}.pem", "-subj", f"/CN={name}")


def certificate(name, ca, alternative):
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
            "-subj", f"/CN={name}")
    (CERTS / "ext").write_text(f"subjectAltName={alternative}\n")
    openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", "2",
            "-out", f"{name}.pem", "-extfile", "ext")


def credentials(name=None, ca="ca"):
    read = lambda file: (CERTS / file).read_bytes()
    if name is None:
        return grpc.ssl_channel_credentials(read(f"{ca}.pem"))
    return grpc.ssl_channel_credentials(read(f"{ca}.pem"), read(f"{name}.key"), read(f"{name}.pem"))


if shutil.which("openssl") is None:
    skip_all("openssl is not installed")
