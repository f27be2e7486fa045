#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the bill of materials of a build as CycloneDX JSON: scripts/sbom.py BUILD [TARBALL]

The libraries are those that configure found in the directory BUILD, with the versions that pkg-config names. With TARBALL, its
hash is there. The output depends on these alone, and on SOURCE_DATE_EPOCH.
"""
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import uuid

# Prefix of configure's variables -> name, module of pkg-config, licence. tests/meta/packaging.py finds a library that is not here.
LIBRARIES = {
    "CHECK": ("check", "check", "LGPL-2.1-or-later"),
    "CRYPTO": ("openssl", "libcrypto", "Apache-2.0"),
    "GRPC": ("grpc", "grpc", "Apache-2.0"),
    "JANSSON": ("jansson", "jansson", "MIT"),
    "JEMALLOC": ("jemalloc", "jemalloc", "BSD-2-Clause"),
    "LIBEVENT": ("libevent", "libevent", "BSD-3-Clause"),
    "LUA": ("lua", "lua5.4|lua", "MIT"),
    "ONIGURUMA": ("oniguruma", "oniguruma", "BSD-2-Clause"),
    "PROTOBUF_C": ("protobuf-c", "libprotobuf-c", "BSD-2-Clause"),
    "SMARTCOLS": ("libsmartcols", "smartcols", "LGPL-2.1-or-later"),
    "SSL": ("openssl", "libssl", "Apache-2.0"),
    "SYSTEMD": ("libsystemd", "libsystemd", "LGPL-2.1-or-later"),
    "UTF8PROC": ("utf8proc", "libutf8proc", "MIT"),
    "XSMM": ("libxsmm", "", "BSD-3-Clause"),
}
# Of the tests: not in what is installed.
EXCLUDED = {"check"}


def output_of(*command):
    """Returns what a command prints, or None if it fails."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return run.stdout.strip() if run.returncode == 0 else None


def version_of(prefix, modules):
    if prefix == "XSMM":  # which has no module; the compiler finds the header where configure did
        found = output_of("sh", "-c", "echo LIBXSMM_CONFIG_VERSION | ${CC:-cc} -E -P -include libxsmm_config.h -")
        return (found or "").strip().strip('"') or None
    for module in modules.split("|"):
        version = output_of("pkg-config", "--modversion", module)
        if version:
            return version
    return None


def components(log):
    found = {}
    for prefix, (name, modules, licence) in LIBRARIES.items():
        if not re.search(rf"^{prefix}_LIBS='.+'$", log, re.M):
            continue
        version = version_of(prefix, modules)
        found[name] = {
            "type": "library", "bom-ref": name, "name": name, **({"version": version} if version else {}),
            "scope": "excluded" if name in EXCLUDED else "required", "licenses": [{"license": {"id": licence}}],
            "purl": f"pkg:generic/{name}" + (f"@{version}" if version else ""),
        }
        if name == "grpc":
            found[name]["description"] = "The version is that of gRPC's core: 29 belongs to gRPC 1.51."
    return [found[name] for name in sorted(found)]


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.split("\n\n", maxsplit=1)[0])
    with open(os.path.join(sys.argv[1], "config.log"), encoding="utf-8", errors="replace") as f:
        log = f.read()
    version = re.search(r"^PACKAGE_VERSION='(.*)'$", log, re.M)[1]
    parts = components(log)
    own = {"type": "application", "bom-ref": "npugraphd", "name": "npugraphd", "version": version,
           "licenses": [{"license": {"id": "Apache-2.0"}}], "purl": f"pkg:generic/npugraphd@{version}"}
    if len(sys.argv) == 3:
        with open(sys.argv[2], "rb") as f:
            own["hashes"] = [{"alg": "SHA-256", "content": hashlib.file_digest(f, "sha256").hexdigest()}]
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"component": own}, "components": parts,
        "dependencies": [{"ref": "npugraphd", "dependsOn": [p["bom-ref"] for p in parts if p["scope"] == "required"]}],
    }
    if "SOURCE_DATE_EPOCH" in os.environ:
        when = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
        bill["metadata"]["timestamp"] = when.strftime("%Y-%m-%dT%H:%M:%SZ")
    bill["serialNumber"] = "urn:uuid:" + str(uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bill, sort_keys=True)))
    json.dump(bill, sys.stdout, indent=2, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
