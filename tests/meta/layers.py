# SPDX-License-Identifier: Apache-2.0
"""Includes point downwards only, and external libraries stay behind the files named for them."""
import fnmatch
import os
import re
import sys

sys.path.insert(0, os.path.dirname(__file__))
import meta

# folder -> folders whose headers it may include, besides its own.
MAY_INCLUDE = {
    "base": [],
    "graphs": ["base"],
    "devices": ["base", "graphs"],
    "scheduler": ["base", "graphs", "devices"],
    "proto": ["base"],
    "daemon": ["base", "graphs", "devices", "scheduler", "proto"],
    "client": ["base", "proto"],
    "client/hf": ["base"],
}
# Headers that a folder may not include, although it may include the rest of their folder.
HIDDEN = {
    "devices": {"graphs/gcache.h"},
    "scheduler": {"devices/backend.h"},
    "daemon": {"devices/backend.h"},
}
# Inner folder -> headers or whole folders of the outer folder that it may include, besides its own.
INNER = {
    "devices": set(),
    "devices/host": {"devices", "devices/host/kernels"},
    "devices/host/kernels": {"devices", "devices/host"},
    "devices/ascend": {"devices"},
    "devices/ascend/sim": {"devices/ascend"},
    "daemon": {"daemon/trace"},
    "daemon/trace": set(),
    "daemon/front": {"daemon/identity.h", "daemon/peers.h"},
    "client/lib": set(),
    "client/hf": {"client/lib/error.h", "client/lib/npugraph.h"},
    "client/ctl": {"client/lib/client_int.h", "client/hf/npugraph_hf.h"},
    "daemon/rpc": {"daemon", "daemon/trace"},
    "daemon/control": {"daemon", "daemon/front", "daemon/page", "daemon/rpc", "daemon/trace"},
    "daemon/handlers": {"daemon", "daemon/control", "daemon/rpc", "daemon/trace"},
    "daemon/handover": {"daemon", "daemon/control", "daemon/handlers", "daemon/rpc"},
}
# These create all parts of the outer folder.
TOPS = {"daemon/startup.c", "daemon/main.c"}
# External header -> files that may include it.
EXTERNAL = [
    (r"jemalloc/", {"base/pages.c"}),
    (r"openssl/", {"base/digest.c", "daemon/front/tls_*.[ch]", "daemon/jwk.c"}),
    (r"libxsmm", {"devices/host/kernels/k_gemm_xsmm.c"}),
    (r"grpc/", {"daemon/rpc/rpc_*.[ch]", "client/lib/channel*.[ch]", "client/lib/chunk.c", "client/lib/copier.c", "client/lib/credentials.c",
              "client/lib/follower.c", "client/lib/message.c"}),
    (r"event2/", {"daemon/reactor.c", "daemon/http.c"}),
    (r"systemd/", {"daemon/sdnotify.c"}),
    (r"libsmartcols", {"client/ctl/ctl_output.c"}),
    (r"jansson\.h", {"client/hf/*.[ch]", "client/ctl/*.[ch]", "daemon/*.[ch]", "devices/ascend/sim/sim_hccl.c"}),
    (r"oniguruma\.h|utf8proc\.h", {"client/hf/tokenizer*"}),
    (r"google/protobuf-c/|protobuf-c/", {"daemon/*", "client/lib/*", "proto/word.h"}),
    (r"check\.h", set()),
]


def allowed(path, places):
    return any(fnmatch.fnmatch(path, place) for place in places)


def includes(path):
    for number, line in enumerate(meta.strip_c(meta.read(path), keep_strings=True).split("\n"), 1):
        match = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
        if match:
            yield number, match.group(1), match.group(2)


def project_header(path, name):
    """Returns the path of an included header of the project, or None."""
    for candidate in (name, os.path.join(os.path.dirname(path), name), os.path.join("client/lib", name)):
        if os.path.exists(os.path.join(meta.TOP, candidate)):
            return os.path.normpath(candidate)
    if re.match(r"[a-z]+/.*\.pb-c\.h$|[a-z/]+/[a-z_]+_text\.inc$|devices/host/static_(files|flags)\.inc$", name): # made by the build
        return name
    return None


report = meta.Report()
upward, hidden, external, unknown, private = [], [], [], [], []
for path in meta.files(meta.FOLDERS, ".c", ".h"):
    folder, inner = path.split("/")[0], os.path.dirname(path)
    for number, quote, name in includes(path):
        at = f"{path}:{number}: {name}"
        header = project_header(path, name) if quote == '"' else None
        if header:
            target = header.split("/")[0]
            if target != folder and target not in MAY_INCLUDE.get(inner, MAY_INCLUDE[folder]):
                upward.append(at)
            if header in HIDDEN.get(folder, ()):
                hidden.append(at)
            if (inner in INNER and path not in TOPS and target == folder and os.path.dirname(header) != inner
                    and not {header, os.path.dirname(header)} & INNER[inner]):
                hidden.append(at)
            if header.endswith("_int.h") and target != folder:
                private.append(at)
        elif quote == '"' and name != "config.h":
            unknown.append(at)
        else:
            for pattern, places in EXTERNAL:
                if re.match(pattern, name) and not allowed(path, places):
                    external.append(f"{at} (allowed in: {', '.join(sorted(places)) or 'tests'})")

table = "may include: " + "; ".join(f"{f} <- {', '.join(v) or 'libc'}" for f, v in MAY_INCLUDE.items())
report.check("includes_point_to_lower_layers_only", upward, table)
report.check("headers_closed_to_a_layer_are_not_included_there", hidden)
report.check("external_libraries_stay_in_their_files", external, "the list is EXTERNAL in tests/meta/layers.py")
report.check("quoted_includes_name_headers_of_the_project", unknown)
report.check("int_headers_stay_in_their_folder", private)

# A rule without a match is for an include that is written in another way, or that has gone.
written = [(path, name, project_header(path, name) if quote == '"' else None)
           for path in meta.files(meta.FOLDERS + ["tests", "bench", "examples"], ".c", ".h") for _, quote, name in includes(path)]
included = {header for _, _, header in written}
stale = [f"HIDDEN[{folder}]: nobody includes {header}" for folder, headers in HIDDEN.items() for header in headers if header not in included]
stale += [f"INNER[{folder}]: {header} is not included there" for folder, headers in INNER.items() for header in headers
          if not any(h and header in (h, os.path.dirname(h)) and os.path.dirname(path) == folder for path, _, h in written)]
stale += [f"INNER[{folder}]: there is no such folder" for folder in INNER if not os.path.isdir(os.path.join(meta.TOP, folder))]
for pattern, places in EXTERNAL:
    users = {path for path, name, header in written if header is None and re.match(pattern, name)}
    stale += [f"EXTERNAL: nobody includes {pattern}"] if not users else []
    stale += [f"EXTERNAL: {pattern} is not included in {place}" for place in sorted(places)
              if not any(fnmatch.fnmatch(path, place) for path in users)]
report.check("each_rule_matches_an_include", stale, "drop the row, or write it as the include is written")

# Installed headers may not include headers of the project.
installed = [f"{p}:{n}: {h}" for p in ["client/lib/npugraph.h", "client/hf/npugraph_hf.h"] if os.path.exists(os.path.join(meta.TOP, p))
             for n, q, h in includes(p) if q == '"']
report.check("installed_headers_include_nothing_of_the_project", installed)
report.end()
