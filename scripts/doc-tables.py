#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print a page of docs/ from the .def tables: doc-tables.py reasons|metrics|operators|options|limits|roles.

`doc-tables.py locks` prints the list of locks in docs/architecture.md, from base/lock_rank.h.
"""
import os
import re
import sys

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
GRPC = ["OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
        "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
        "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"]


def rows(name, pattern):
    with open(os.path.join(TOP, "base", name), encoding="utf-8") as f:
        return re.findall(pattern, f.read(), re.M)


def reasons():
    print("""# Reasons

Every failed call returns a gRPC status code, a *reason* and a sentence. The reason is stable and meant
for programs. The sentence is meant for people and names the object at fault. *Scope* says what the
failure affects: only the call (request), the session, the compiled graph, the device, or the daemon.

| reason | gRPC code | scope | meaning |
| --- | --- | --- | --- |""")
    for name, _, scope, code, text in rows("status.def",
                                           r'^NGD_STATUS\((\w+), (-?\d+), (\w+), (\d+), "([^"]*)"\)'):
        if name != "OK":
            print(f"| `{name.removeprefix('ERR_')}` | {GRPC[int(code)]} | {scope.lower()} | {text} |")


def metrics():
    print("""# Metrics

The stats endpoint shows these metrics at `/metrics` in Prometheus text form, each with the prefix `npugraphd_`.
A family with a label has one series per value; after 256 values the rest is summed as `other`.
Series with the labels `identity` and `owner` are shown one by one to administrators, to their owner over
`Admin.Stats`, and at `/metrics` if `stats-names = yes`. For all other readers they are summed as `other`.
Histograms have buckets in steps of 1, 2, 5 from 1 µs to 10 s.

| name | type | label | meaning |
| --- | --- | --- | --- |""")
    for _, kind, name, label, text in rows("metrics.def",
                                           r'^NGD_METRIC\((\w+), (\w+), "([^"]*)", "([^"]*)", "([^"]*)"\)'):
        kind = kind.removeprefix("TIME_").lower()
        print(f"| `npugraphd_{name}` | {kind} | {', '.join(f'`{part}`' for part in label.split(',')) if label else ''} | {text} |")
    print("""
## Readings of the hardware

These gauges have the labels `device` and, for NPUs, `chip`: the chip's number in the machine. A value that the hardware
does not tell has no series. For an NPU whose number is known, each is there a second time under the name and in the unit
of Ascend's npu-exporter (MB, percent), with the labels `id`, the chip's number, and `device`. `npugraphctl devices` and
`top` show those with a column.

| name | the exporter's name | column | meaning |
| --- | --- | --- | --- |""")
    with open(os.path.join(TOP, "devices", "telemetry.def"), encoding="utf-8") as f:
        for name, vendor, column, text in re.findall(r'^NGD_TELEMETRY\(\w+, "([^"]*)", \w+, [^,]+, [^,]+, "([^"]*)", "([^"]*)", "([^"]*)"\)', f.read(), re.M):
            print(f"| `npugraphd_device_{name}` | `{vendor}` | {column} | {text} |")


OPERATOR = re.compile(r'^NGD_OP\((\w+), "([^"]+)", (\w+), (\w+), (\w+), (\w+), (\w+), ([^,]+), ([^,]+), ([^,]+),\s*'
                      r'"([^"]*)",\s*"([^"]*)"\)', re.M)
ROWS = {"NONE": "refused", "LEADING": "yes", "SHAPE": "if rows do not mix"}


def bits(mask):
    """Positions, from 1, of the bits of "(1u << 3) | (1u << 4)"."""
    return [str(int(n) + 1) for n in re.findall(r"1u << (\d+)", mask)]


def arity(least, most):
    most = "any number" if most == "NGD_OP_VARIADIC" else most
    return most if least == most else f"{least} or more" if most == "any number" else f"{least} to {most}"


def attribute(text):
    name, _, rest = text.partition(":")
    kind, eq, default = rest.partition("=")
    return f"`{name}` {kind}" + (f" = {default or 'empty'}" if eq else "")


def on_ascend():
    """Identifiers of the operators that the backend maps; views need no operator of the device's."""
    with open(os.path.join(TOP, "devices", "ascend", "ascend_ops.def"), encoding="utf-8") as f:
        return set(re.findall(r"^NGD_ASCEND_(?:OP|COLLECTIVE)\((\w+),", f.read(), re.M))


def operator(match, mapped):
    ident, name, least, most, results, _, rows, flags, mutates, host, attrs, text = match.groups()
    if "_RANDOM" in flags or "_SYNC" in flags or "_DATA_SHAPE" in flags:
        return
    for numbers, what in ((bits(mutates), "mutates"), (bits(host), "host parameters:")):
        if numbers:
            text += f"; {what} operand{'s' if len(numbers) > 1 else ''} {' and '.join(numbers)}"
    if results == "NGD_OP_VARIADIC":
        results = "one per element of its list"
    attrs = ", ".join(map(attribute, attrs.split()))
    rows = "yes" if "_ELEMENTWISE" in flags else ROWS[rows]
    ascend = "yes" if ident in mapped or "_VIEW" in flags or "_RECORD" in flags or "_WAIT" in flags else ""
    print(f"| `{name}` | {arity(least, most)} | {results} | {attrs} | {rows} | {ascend} | {text.replace('|', chr(92) + '|')} |")


def operators():
    with open(os.path.join(TOP, "graphs", "ops.def"), encoding="utf-8") as f:
        text = f.read()
    print("""# Operators

Names and meaning are those of PyTorch's core ATen operators and of Ascend's fused operators. Operands are tensors in
the order of the schema; the table says where they are host parameters. Everything else is an attribute. An attribute
without a default is required. [graph-text.md](graph-text.md) says how to write a graph.

*Buckets* says whether the operator accepts a bucketed symbol, whose padding must stay invisible. "If rows do not
mix": the operator is accepted if no row of dimension 0 mixes with another, and refused with GRAPH_NOT_ROWWISE
otherwise. Device `host` runs all operators. Device `ascend` runs those with a yes, in the dtypes that its libraries
support.""")
    mapped = on_ascend()
    for section in re.split(r"^/\* (?=[A-Z])", text, flags=re.M)[1:]:
        title, _, rest = section.partition("*/")
        title = " ".join(title.replace("*", " ").split())
        if title.startswith(("SPDX", "NGD_OP")):
            continue
        heading, _, intro = title.partition(". " if ". " in title else ": ")
        print(f"\n## {heading.rstrip('.')}\n" + (f"\n{intro[0].upper()}{intro[1:]}\n" if intro else ""))
        refused = [m for m in OPERATOR.finditer(rest) if "refused" in m.group(6)]
        if refused:
            print("| operator | meaning | reason |\n| --- | --- | --- |")
            for m in refused:
                reason = "GRAPH_RANDOM" if "_RANDOM" in m.group(8) else "GRAPH_SYNC" if "_SYNC" in m.group(8) else \
                    "GRAPH_DATA_DEPENDENT"
                print(f"| `{m.group(2)}` | {m.group(12)} | `{reason}` |")
            continue
        print("| operator | operands | results | attributes | buckets | ascend | meaning |\n"
              "| --- | --- | --- | --- | --- | --- | --- |")
        for m in OPERATOR.finditer(rest):
            operator(m, mapped)


OPTION = re.compile(r'^NGD_OPTION\(\w+, (\w+), (\w+), ([^,]+), ([^,]+), "([^"]*)", "([^"]*)", (\w+), (\w+), (\w+),\s*"([^"]*)"\)', re.M)


def allowed(kind, low, high, words):
    if kind == "BOOL":
        return "`true`, `false`"
    if kind == "INT":
        return f"{low} to {'2^63-1' if high == 'INT64_MAX' else high}"
    return ", ".join(f"`{w}`" for w in words.split()) if kind == "ENUM" else words


def options():
    with open(os.path.join(TOP, "graphs", "options.def"), encoding="utf-8") as f:
        text = f.read()
    print("""# Options of graphs

Options are given by name and value when a graph is registered: `options` of Graphs.Register, or `npugraphctl capture
--option NAME=VALUE`. Names, defaults and meaning are those of npugraph_ex where it has the option. Unknown names,
values that are not allowed, options that contradict each other and repeated options are refused; the error says what
is allowed. `npugraphctl options` prints the table of the running daemon. An option marked (not yet) accepts only its
default.

*Key*: plans depend on the option, so it is part of each key. Graphs that differ in it do not share plans.
*Capture*: a single Graphs.Capture may also set the option, for that capture only. A dry run may set any option and
reports what a registration with them would get.""")
    for section in re.split(r"^/\* (?=[A-Z][a-z]+\. \*/)", text, flags=re.M)[1:]:
        title, _, rest = section.partition(". */")
        print(f"\n## {title}\n\n| option | default | allowed | key | capture | effect |\n| --- | --- | --- | --- | --- | --- |")
        for name, kind, low, high, words, default, key, when, state, effect in OPTION.findall(rest):
            print(f"| `{name}` | {f'`{default}`' if default else 'none'} | {allowed(kind, low, high, words)}"
                  f"{' (not yet)' if state == 'PLANNED' else ''} | {'yes' if key == 'PLAN' else ''} "
                  f"| {'yes' if when == 'CAPTURE' else ''} | {effect} |")


QUOTA = re.compile(r'^NGD_QUOTA\(\w+, "(\w+)", "([^"]+)", (INT|SIZE), "([^"]*)", .*?((?:"[^"]*"\s*)+)\)$', re.M | re.S)


HELD = """
## How each resource is counted

A charge belongs to the object and ends when the object's memory is freed, regardless of who had the last
reference (`base/charge.h`). Resources with "-" are not charged but have a bound of their own.

| resource | counts as | bound |
| --- | --- | --- |
| buffers, loaded tensors (for each load) | `bytes`; their records `host_bytes` | the limits |
| shared buffers | `shared_buffers`, `shared_bytes` | the limits |
| inputs and results of a replay in shared buffers, while it is under way | `host_bytes` above 64 KiB | the limit, and `max-message` for each replay; the daemon keeps two blocks of up to 32 MiB |
| regions of the Open Inference Protocol | `shared_buffers`, `shared_bytes`; their records `host_bytes` | the limits |
| sequences of requests of the Open Inference Protocol | `sequences`; states of a graph `bytes`; of a language model also `kv_blocks` and `sessions`; their records `host_bytes` | the limits |
| inputs and results of an infer request in regions, and each request of a ModelStreamInfer call, while it is under way | `host_bytes` | the limit, `max-message` for each request, and 64 requests for each call |
| rings, about 1 MiB each | `host_bytes`, `connections` | the limits; 256 in total, 64 for each identity; the requests of a ring, at most 16, count neither for `calls` nor for `max-inflight` |
| other connections of the local socket | `connections` | 128 in total, 16 for each identity |
| copies of states for trials, dumps and verified replays | `bytes` of the state's owner | the limit |
| pools of `use_graph_pool`, of graphs without `reuse_graph_pool_in_same_fx`, and of a model's prompts | `bytes` | the limit; the slots' own pools belong to the daemon and are as large as the largest need |
| graphs, their bindings, executables, instances, plans kept for eager runs | `host_bytes`; handles `graphs` | the limits |
| models: tables of KV blocks, staging | `models`, `host_bytes` | the limits |
| sequences, with room for a whole context | `sequences`, `host_bytes` | the limits |
| messages and answers above 64 KiB, until handled or sent | `host_bytes` | the limit |
| smaller messages; their arenas | - | calls under way x 64 KiB; a stream is not read while 16 of its answers wait |
| partly received messages | `unfinished` | the limit, on guarded connections |
| resets, pings, settings and other frames that cost gRPC work | - | a token bucket for each connection, and one of eight times its size for each identity; both delay frames |
| kept answers | `answers` | the limit: the oldest are dropped; also 64 answers and 4 MiB for each session |
| connections, calls, waiting replays, sessions (each with at most 16 orders and 256 events) | `connections`, `calls`, `queued`, `sessions` | the limits |
| captures that wait or run | `captures` | the limit |
| registered patterns | - | 64 for each identity, 512 in total; the text of one registration is at most 128 KiB |
| applied sets of buckets | - | 256 for each graph; graphs are limited |
| observed sizes, removed keys, the flight recorder, the timeline, metrics' labels | - | arrays of fixed size |
| counts of hot keys | - | a list of fixed length, and 64 programs |
| executables captured ahead of requests | - | the same 64 programs |
| dumps: bytes written since the start, in blocks of the disk | `dump_bytes` | the limit; `dump-limit` for all identities together |
| the store's entries: plans, graphs, patterns, compiled kernels | `store_bytes` | the limit: the identity's oldest entries are removed; `store-budget` for all identities together |
"""


def limits():
    print("""# Limits of identities

The daemon counts the resources of each identity, and an option limits each of them. A request beyond a limit is
refused with reason `QUOTA` (waiting replays: `RESOURCE_EXHAUSTED`); the sentence names the current use, the limit and
the option. `npugraphctl quota` shows the use, limits and refusals of each identity. An eighth of `max-sessions` and of
`max-inflight` is reserved for administrators.

| quota | option | default | meaning |
| --- | --- | --- | --- |""")
    with open(os.path.join(TOP, "daemon", "quotas.def"), encoding="utf-8") as f:
        for name, option, _, default, text in QUOTA.findall(f.read()):
            meaning = "".join(re.findall(r'"([^"]*)"', text))
            print(f"| `{name}` | `{option}` | {default} | {meaning} |")
    print(HELD, end="")


def roles():
    order = rows("role.def", r'^NGD_ROLE\((\w+), "(\w+)", "([^"]*)"\)')
    print("""# Roles

Each identity has a role, and each method asks for the least role that may call it. A call of a lesser role is refused
with PERMISSION_DENIED and reason `ROLE`. [operations.md](operations.md#roles) says how an identity gets its role. What a
call may do with an object that another identity owns is in [security.md](security.md#what-belongs-to-whom).

| role | may, besides what the roles above it may |
| --- | --- |""")
    for _, name, text in order:
        print(f"| `{name}` | {text} |")
    print(f"""
| service | method | {' | '.join(name for _, name, _ in order)} |
| --- | --- |{' --- |' * len(order)}""")
    with open(os.path.join(TOP, "daemon", "handlers", "methods.def"), encoding="utf-8") as f:
        methods = re.findall(r'^NGD_RPC\("([\w.]+)", "(\w+)", .* (\w+)\)$', f.read(), re.M)
    ids = [ident for ident, _, _ in order]
    for service, method, least in methods:
        print(f"| `{service}` | `{method}` | {' | '.join('yes' if ident >= ids.index(least) else '-' for ident in range(len(ids)))} |")


def locks():
    """A line for each run of locks of one folder, in the order in which they may be taken."""
    runs = []
    for name, owner in rows("lock_rank.h", r"^    NGD_RANK_(\w+),\s+/\* (\w+): "):
        if not runs or runs[-1][0] != owner:
            runs.append((owner, []))
        runs[-1][1].append(name)
    for owner, names in runs:
        print(f"{owner:9}  {' '.join(names)}")


pages = {"reasons": reasons, "metrics": metrics, "operators": operators, "options": options, "limits": limits,
         "roles": roles, "locks": locks}
if len(sys.argv) != 2 or sys.argv[1] not in pages:
    sys.exit(__doc__)
pages[sys.argv[1]]()
