# SPDX-License-Identifier: Apache-2.0
"""Make client/hf/tokenizer_unicode.def: how the Unicode tables of Hugging Face tokenizers differ from older ones.

    venv/bin/python tests/golden/make_unicode.py > client/hf/tokenizer_unicode.def

Asks the library for the class of each code point. Needs a Python whose unicodedata has the oldest tables that a
supported Oniguruma or utf8proc has: 14.0, as Python 3.11.
"""
import sys
import unicodedata

from tokenizers import Regex, normalizers
from tokenizers import pre_tokenizers as pre

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Cf".split()


def kept_by(tokenizer, text="".join(map(chr, POINTS))):
    return {ord(c) for piece, _ in tokenizer.pre_tokenize_str(text) for c in piece}


def matched(expression):
    return kept_by(pre.Split(Regex(expression), "removed", invert=True))


def runs(points, key=lambda c: None):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1 and out[-1][2] == key(c):
            out[-1][1] = c
        else:
            out.append([c, c, key(c)])
    return out


def size(c):
    return len(chr(c).encode())


def stand_in(first, category, han):
    """The nearest older character of the category, in UTF-8 of the same length."""
    return min((c for c in POINTS if unicodedata.category(chr(c)) == category and NEW.get(c, category) == category and
                size(c) == size(first) and (c in HAN) == han), key=lambda c: abs(c - first))


if unicodedata.unidata_version != "14.0.0":
    sys.exit(f"unicodedata is {unicodedata.unidata_version}; 14.0.0 is needed")
NEW = {c: name for name in CATEGORIES for c in matched(r"\p{%s}" % name)}
NEW = {c: name for c, name in NEW.items() if unicodedata.category(chr(c)) != name}
HAN = matched(r"\p{Han}")
PUNCTUATION = {c for c in POINTS if unicodedata.category(chr(c))[0] == "P" or chr(c) in "$+<=>^`|~"} | {
    c for c, name in NEW.items() if name[0] == "P"}
LIBRARY_PUNCTUATION = set(POINTS) - kept_by(pre.Punctuation("removed"))
NUMBERS = {c for c in POINTS if unicodedata.category(chr(c))[0] == "N"} | {c for c, name in NEW.items() if name[0] == "N"}
LIBRARY_NUMBERS = {ord(p) for p, _ in pre.Digits().pre_tokenize_str("a".join(map(chr, POINTS))) if len(p) == 1} - {ord("a")}
print("""/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Made by tests/golden/make_unicode.py from tokenizers 0.22.2.
 * NGD_TOKENIZER_NEW: characters that Unicode 14.0 lacks or has in another category, and the stand-in for each.
 * NGD_TOKENIZER_PUNCTUATION: characters that the library's older table of punctuation has (true) or lacks (false).
 * NGD_TOKENIZER_NUMBER: numbers that only the library's newest table has.
 * NGD_TOKENIZER_UNFORMED: characters of Unicode 14.0 that the library's older normal forms leave alone.
 */""")
for first, last, (name, han) in runs(NEW, lambda c: (NEW[c], c in HAN)):
    print(f"NGD_TOKENIZER_NEW(0x{first:04x}, 0x{last:04x}, 0x{stand_in(first, name, han):04x}) /* {name} */")
for has, points in ((True, LIBRARY_PUNCTUATION - PUNCTUATION), (False, PUNCTUATION - LIBRARY_PUNCTUATION)):
    for first, last, _ in runs(points):
        print(f"NGD_TOKENIZER_PUNCTUATION(0x{first:04x}, 0x{last:04x}, {str(has).lower()})")
assert not NUMBERS - LIBRARY_NUMBERS
for first, last, _ in runs(LIBRARY_NUMBERS - NUMBERS):
    print(f"NGD_TOKENIZER_NUMBER(0x{first:04x}, 0x{last:04x})")


def is_unformed(c):
    text = chr(c)
    nfd, nfkd = normalizers.NFD().normalize_str, normalizers.NFKD().normalize_str
    if unicodedata.normalize("NFKD", text) != nfkd(text) or unicodedata.normalize("NFD", text) != nfd(text):
        return True
    return unicodedata.combining(text) not in (0, 240) and nfd("a\u0345" + text)[1] == "\u0345" # class 240 comes last


UNFORMED = {c for c in POINTS if is_unformed(c)}
# What a character unknown to the library would be composed from must not be composed either.
PAIRS = [unicodedata.decomposition(chr(c)).split() for c in UNFORMED]
for first, last, _ in runs(UNFORMED | {int(pair[0], 16) for pair in PAIRS if pair and not pair[0].startswith("<")}):
    print(f"NGD_TOKENIZER_UNFORMED(0x{first:04x}, 0x{last:04x})")
