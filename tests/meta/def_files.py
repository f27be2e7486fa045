# SPDX-License-Identifier: Apache-2.0
"""The X-macro tables: names and values are unique, and what a row refers to exists."""
import collections
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import meta


def rows(path):
    """Yields (line number, macro, arguments) of each row."""
    text = meta.strip_c(meta.read(path), keep_strings=True)
    for match in re.finditer(r"^(NGD_\w+)\(", text, re.M):
        args, depth, start, i = [], 1, match.end(), match.end()
        quoted = False
        while depth:
            c = text[i]
            if quoted:
                if c == "\\":
                    i += 1
                elif c == '"':
                    quoted = False
            elif c == '"':
                quoted = True
            elif c == "(":
                depth += 1
            elif c == ")":
                depth -= 1
            if not quoted and ((c == "," and depth == 1) or depth == 0):
                args.append(" ".join(text[start:i].split()))
                start = i + 1
            i += 1
        yield text.count("\n", 0, match.start()) + 1, match.group(1), args


def duplicates(path, column, table):
    seen = {}
    for number, _, args in table:
        if column < len(args):
            value = args[column]
            if value in seen:
                yield f"{path}:{number}: {value} is in line {seen[value]} already"
            seen.setdefault(value, number)


report = meta.Report()
tables = {path: list(rows(path)) for path in meta.files(meta.FOLDERS, ".def")}

report.check("def_files_have_rows_with_the_same_number_of_columns",
             [f"{p}: rows of {sorted({len(a) for _, m, a in t if m == macro})} columns" if t else f"{p}: no rows"
              for p, t in tables.items() for macro in sorted({m for _, m, _ in t} or {None})
              if not t or len({len(a) for _, m, a in t if m == macro}) != 1])
# methods.def has no ids: there, service and method together name a row.
for p, t in tables.items():
    if t and t[0][2][0].startswith('"'):
        tables[p] = [(n, m, [f"{a[0]}/{a[1]}", *a[2:]]) for n, m, a in t]
# operator_rules.def has many rows for each operator: with its operands, or the rule's name, and the chips they are one.
for p, t in tables.items():
    if t and t[0][1].startswith("NGD_OPERATOR_"):
        tables[p] = [(n, m, ["/".join(a[:3]), *a[3:]]) for n, m, a in t]
# tokenizer_unicode.def has several tables of ranges: there, the macro is a part of the row's name.
for p, t in tables.items():
    if t and t[0][1].startswith("NGD_TOKENIZER_"):
        tables[p] = [(n, m, [f"{m}/{a[0]}", *a[1:]]) for n, m, a in t]
report.check("ids_are_unique", [d for p, t in tables.items() for d in duplicates(p, 0, t)])
report.check("names_are_unique",
             [d for p, t in tables.items() if t and len(t[0][2]) > 1 and t[0][2][1].startswith('"')
              for d in duplicates(p, 1, t)])
report.check("status_values_are_unique", duplicates("base/status.def", 1, tables["base/status.def"]))
report.check("metric_names_are_unique", duplicates("base/metrics.def", 2, tables["base/metrics.def"]))

sources = {p: meta.strip_c(meta.read(p)) for p in meta.files(meta.FOLDERS, ".c", ".h")}

passed = collections.Counter(name for t in sources.values() for name in re.findall(r"\bNGD_FAULT\((\w+)\)", t))
report.check("each_fault_point_is_passed_in_one_place",
             [f"{a[0]}: {passed[a[0]]} places" for _, _, a in tables["base/fault.def"] if passed[a[0]] != 1])
# Some tables have rows that name the metrics that they count.
tables_text = [meta.read(p) for p in meta.files(meta.FOLDERS, ".def")]
written = {name for t in (*sources.values(), *tables_text) for name in re.findall(r"\bNGD_M_(\w+)\b", t)}
report.check("each_metric_is_written_somewhere",
             [f"NGD_M_{a[0]} is never set" for _, _, a in tables["base/metrics.def"] if a[0] not in written],
             "a metric that nothing writes shows a zero that means nothing; drop the row or count it")

# Properties that several operators share are columns of their tables. Only code about a single operator compares ids.
compared = []
for path, text in sources.items():
    if path.startswith("graphs/op_"):
        continue
    lines = meta.read(path).split("\n")
    for number, line in enumerate(text.split("\n")):
        if re.search(r"(?:[!=]=|\bcase) *(?:NGD_OP_(?!MAX|VARIADIC\b)|&?ngd_shape_)[A-Za-z]", line):
            compared.append((f"{path}:{number + 1}", any("*/" in near for near in lines[max(number - 4, 0):number + 1])))
report.check("comparisons_of_operators_have_a_reason_beside_them", [place for place, reason in compared if not reason],
             "ask graphs/op_traits.h, or say in a comment why this is about one operator")
report.check("less_than_ten_places_compare_operators", [place for place, _ in compared] if len(compared) > 9 else [],
             "ask graphs/op_traits.h")

# Pages that list the rows of tables are printed from the tables.
for script, page in (("scripts/doc-tables.py", "docs/reasons.md"), ("scripts/doc-tables.py", "docs/metrics.md"),
                     ("scripts/doc-tables.py", "docs/operators.md"), ("scripts/doc-tables.py", "docs/options.md"),
                     ("scripts/doc-tables.py", "docs/limits.md"), ("scripts/doc-tables.py", "docs/roles.md")):
    run = subprocess.run([sys.executable, os.path.join(meta.TOP, script), os.path.basename(page)[:-3]],
                         capture_output=True, text=True, cwd=meta.TOP)
    name = f"{os.path.basename(page)[:-3]}_page_agrees_with_its_table"
    if run.returncode:
        report.check(name, [run.stderr.strip()])
    else:
        have = meta.read(page) if os.path.exists(os.path.join(meta.TOP, page)) else ""
        report.check(name, [] if have == run.stdout else [f"{page} is out of date"],
                     f"run: {script} {os.path.basename(page)[:-3]} > {page}")
locks = subprocess.run([sys.executable, os.path.join(meta.TOP, "scripts/doc-tables.py"), "locks"], capture_output=True, text=True,
                       cwd=meta.TOP)
report.check("list_of_locks_in_architecture_agrees_with_their_ranks",
             [] if locks.stdout and f"\n```\n{locks.stdout}```\n" in meta.read("docs/architecture.md") else
             ["docs/architecture.md is out of date", *locks.stdout.split("\n")],
             "put the output of scripts/doc-tables.py locks into the section Locks")
ranks = re.findall(r"^    NGD_RANK_(\w+)", meta.read("base/lock_rank.h"), re.M)
report.check("each_lock_is_in_the_list", [r for r in ranks if r not in ("NONE", "MAX") and r not in locks.stdout.split()],
             "its comment begins with its folder and a colon")
report.end()
