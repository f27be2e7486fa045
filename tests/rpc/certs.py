# SPDX-License-Identifier: Apache-2.0
"""Certificates for the tests of TLS: authorities, and the certificates that they sign."""
import shutil
import subprocess

from harness import *

CERTS = SCRATCH / "certs"
CERTS.mkdir()


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], cwd=CERTS, check=True, capture_output=True)


def authority(name):
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout", f"{name}.key",
            "-out", f"{name}.pem", "-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # Python 3.13 demands it


def certificate(name, ca, alternative=None, subject=None, days=2, until=None):
    """alternative: a name of subjectAltName, or None. until: an end time as openssl writes it (YYYYMMDDHHMMSSZ), instead of days."""
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
            "-subj", subject or f"/CN={name}", "-utf8")
    (CERTS / "ext").write_text(f"subjectAltName={alternative}\n" if alternative else "basicConstraints=CA:FALSE\n")
    if until is None:
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", str(days),
                "-out", f"{name}.pem", "-extfile", "ext")
    else:
        book(ca)
        openssl("ca", "-config", f"{ca}.cnf", "-batch", "-notext", "-in", f"{name}.csr", "-out", f"{name}.pem", "-extfile", "ext",
                "-enddate", until)


def book(ca):
    """Makes the files that `openssl ca` needs for an authority."""
    if (CERTS / f"{ca}.cnf").exists():
        return
    (CERTS / f"{ca}.index").write_text("")
    (CERTS / f"{ca}.crlnumber").write_text("01\n")
    (CERTS / f"{ca}.serial").write_text("7000\n")
    (CERTS / f"{ca}.index.attr").write_text("unique_subject = no\n")
    (CERTS / f"{ca}.cnf").write_text(
        "[ca]\ndefault_ca = it\n[it]\n"
        f"database = {CERTS}/{ca}.index\nnew_certs_dir = {CERTS}\nserial = {CERTS}/{ca}.serial\ncrlnumber = {CERTS}/{ca}.crlnumber\n"
        f"certificate = {CERTS}/{ca}.pem\nprivate_key = {CERTS}/{ca}.key\ndefault_md = sha256\ndefault_days = 2\npolicy = any\n"
        "[any]\ncommonName = optional\n")


def revocations(ca, *names, seconds=86400, file=None):
    """Writes the authority's revocation list, with these certificates and those of earlier calls."""
    book(ca)
    for name in names:
        openssl("ca", "-config", f"{ca}.cnf", "-revoke", f"{name}.pem")
    temporary = CERTS / f"{file or ca + '.crl'}.new"
    openssl("ca", "-config", f"{ca}.cnf", "-gencrl", "-crlsec", str(seconds), "-out", str(temporary))
    temporary.rename(CERTS / (file or f"{ca}.crl"))


def credentials(name=None, ca="ca"):
    read = lambda file: (CERTS / file).read_bytes()
    if name is None:
        return grpc.ssl_channel_credentials(read(f"{ca}.pem"))
    return grpc.ssl_channel_credentials(read(f"{ca}.pem"), read(f"{name}.key"), read(f"{name}.pem"))


if shutil.which("openssl") is None:
    skip_all("openssl is not installed")
