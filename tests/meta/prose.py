# SPDX-License-Identifier: Apache-2.0
"""The files that comments and documents name exist."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(__file__))
import meta

report = meta.Report()
DOCUMENTS = meta.files(["docs"], ".md") + [p for p in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
                                           if os.path.exists(os.path.join(meta.TOP, p))]
everything = set(meta.files(meta.FOLDERS + meta.OTHERS)) | set(DOCUMENTS)
ends = {path.split("/", i)[-1] for path in everything for i in range(path.count("/") + 1)}

# A source as a comment or a document names it: "replay.c", "base/lock.h". Words with a placeholder ("k_x.c", "NAME.c",
# "_avx2.c"), and files that the build or a vendor makes, are not checked.
NAME = re.compile(r"(?<![\w/.<>{*$-])((?:[\w.-]+/)*\w[\w-]*\.(?:c|h|def|mk|proto|py|sh|md))(?![\w/(-])")
NOT_OURS = re.compile(r"_|k_x|(.*/)?\w*NAME|config\.h$|grpc/|google/|asm/|acl|hccl/|proto/descriptors\.c$|descriptor\.proto$|\.\./")


def comments(path):
    """Yields (line number, text) of the comments of a C file."""
    for match in re.finditer(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', meta.read(path), re.S):
        if match[0][0] == "/":
            first = meta.read(path).count("\n", 0, match.start()) + 1
            yield from enumerate(match[0].split("\n"), first)


def lost(path, lines):
    return [f"{path}:{number}: {name}" for number, line in lines for name in NAME.findall(line)
            if name not in ends and not NOT_OURS.match(name)]


sources = [p for p in meta.files(meta.FOLDERS + ["tests", "bench", "examples"], ".c", ".h", ".def")]
report.check("files_that_comments_name_exist", [at for p in sources for at in lost(p, comments(p))],
             "say where it is now")
report.check("files_that_documents_name_exist",
             [at for p in DOCUMENTS for at in lost(p, enumerate(meta.read(p).split("\n"), 1))], "say where it is now")
links = [(p, n, target) for p in DOCUMENTS for n, line in enumerate(meta.read(p).split("\n"), 1)
         for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", line)]
report.check("links_of_documents_lead_to_files",
             [f"{p}:{n}: {t}" for p, n, t in links if not os.path.exists(os.path.join(meta.TOP, os.path.dirname(p), t))])
words = re.findall(r"^\| ([^|]+?) \|", meta.read("docs/glossary.md"), re.M)[2:]
report.check("glossary_has_each_word_once_in_order",
             [b for a, b in zip(words, words[1:]) if a.lower() >= b.lower()] if words else ["there are none"])

COLUMNS = 100
PRINTED = {f"docs/{page}.md" for page in ("reasons", "metrics", "operators", "options", "limits", "roles")}  # by scripts/doc-tables.py


def long_lines(path):
    """Yields the long lines of paragraphs and lists; tables, headings and code may be wider."""
    code = False
    for number, line in enumerate(meta.read(path).split("\n"), 1):
        code ^= line.lstrip().startswith("```")
        if len(line) > COLUMNS and not code and not line.lstrip().startswith(("|", "#", "```")) and not line.startswith("    "):
            yield f"{path}:{number}: {len(line)} columns"


report.check("lines_of_documents_have_at_most_100_columns",
             [at for p in DOCUMENTS if p not in PRINTED and p != "CHANGELOG.md" for at in long_lines(p)],
             "run: scripts/wrap-docs.py FILE")
report.end()
