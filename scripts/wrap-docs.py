#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Wrap paragraphs and lists of documents at 100 columns: wrap-docs.py FILE...

Only paragraphs with a longer line change. Tables, headings and code stay, and so does each word.
"""
import re
import sys

COLUMNS = 100
ITEM = re.compile(r" *([-*+]|\d+[.)]) +")
APART = re.compile(r" *(#|\||>|<|```|---+\s*$|===+)")  # lines that are no part of a paragraph


def glue(text):
    """Blanks at which no line may end become NUL: in code and links, and before what would begin a list or a table."""
    for pattern in (r"(`+).+?\1", r"\]\([^)]*\)"):
        text = re.sub(pattern, lambda m: m[0].replace(" ", "\0"), text)
    return re.sub(r" (?=[|>#]|(?:[-+*]|\d+[.)]|=+|-+)(?: |$))", "\0", text)


def wrap(text, first, rest):
    lines, line, empty = [], first, True
    for word in glue(text).split(" "):
        if not empty and len(line) + 1 + len(word) > COLUMNS:
            lines.append(line)
            line, empty = rest, True
        line += word if empty else " " + word
        empty = False
    return [each.replace("\0", " ") for each in lines + [line]]


def wrapped(lines):
    out, code, i = [], False, 0
    while i < len(lines):
        fence = lines[i].lstrip().startswith("```")
        code ^= fence
        if code or fence or not lines[i].strip() or APART.match(lines[i]):
            out.append(lines[i])
            i += 1
            continue
        end = i + 1
        while end < len(lines) and lines[end].strip() and not APART.match(lines[end]) and not ITEM.match(lines[end]):
            end += 1
        block, item = lines[i:end], ITEM.match(lines[i])
        indent = re.match(" *", block[0])[0]
        is_code = not item and len(indent) >= 4 and not any(ITEM.match(line) for line in out[-30:])
        breaks = any(line.endswith(("  ", "\\")) for line in block)
        if is_code or breaks or all(len(line) <= COLUMNS for line in block):
            out += block
        else:
            first = item[0] if item else indent
            text = " ".join(line.strip() for line in [block[0][len(first):], *block[1:]])
            out += wrap(text, first, " " * len(first))
        i = end
    return out


if len(sys.argv) < 2:
    sys.exit(__doc__)
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as f:
        old = f.read()
    new = "\n".join(wrapped(old.split("\n")))
    assert new.split() == old.split(), path
    if new != old:
        with open(path, "w", encoding="utf-8") as f:
            f.write(new)
