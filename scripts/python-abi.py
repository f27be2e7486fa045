#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print python/src/npugraph/_abi.py: the structs and functions of npugraph.h and npugraph_hf.h for ctypes."""
import contextlib
import io
import os
import re
import textwrap

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
HEADERS = ["client/lib/npugraph.h", "client/hf/npugraph_hf.h"]
SCALARS = {"char": "c_char", "int": "c_int", "unsigned": "c_uint", "bool": "c_bool", "size_t": "c_size_t", "float": "c_float", "double": "c_double",
           **{f"{u}int{n}_t": f"c_{u}int{n}" for u in ("u", "") for n in (8, 16, 32, 64)}}


def header(path):
    """Returns a header's declarations without comments and preprocessor lines."""
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", " ", f.read(), flags=re.S)
    text = re.sub(r'^\s*#.*$', "", text, flags=re.M)
    return re.sub(r'extern "C" \{|NPUGRAPH_API', "", text)


def python_type(c_type, pointers, structs, callbacks):
    """Returns the ctypes expression of a C type, for a field of a struct."""
    c_type = re.sub(r"\bconst\b", "", c_type).strip()
    if pointers == 1 and c_type == "char":
        return "c_char_p"
    if pointers == 0 and c_type.startswith("enum "):
        return "c_int"
    if pointers == 0 and c_type in callbacks:
        return c_type
    name = c_type.removeprefix("struct ")
    known = name in structs
    if pointers == 0:
        return name if known else SCALARS[c_type]
    if pointers == 1 and known:
        return f"POINTER({name})"
    if pointers == 1 and c_type in SCALARS:
        return f"POINTER({SCALARS[c_type]})"
    return "POINTER(c_char_p)" if c_type == "char" and pointers == 2 else "c_void_p"


def fields(body, structs, callbacks):
    """Yields (name, ctypes expression) of each field of a struct."""
    for line in filter(None, (part.strip() for part in body.split(";"))):
        first, *others = [part.strip() for part in line.split(",")]
        c_type = re.match(r"((?:const\s+)?(?:struct |enum )?\w+)", first)[1]
        for declarator in [first[len(c_type):], *others]:
            stars = declarator.count("*")
            name, size = re.fullmatch(r"[\s*]*(?:const)?[\s*]*(\w+)(?:\[(\d+)\])?", declarator).groups()
            expression = python_type(c_type, stars, structs, callbacks)
            yield name, f"{expression} * {size}" if size else expression


def argument(text, callbacks):
    """Returns the ctypes expression of a parameter. Pointers to anything but text are addresses."""
    text = re.sub(r"\bconst\b", "", text).strip()
    if "*" in text:
        return "c_char_p" if re.match(r"char\s*\*\s*\w+$", text) else "c_void_p"
    c_type = text.rsplit(None, 1)[0]
    return "c_int" if c_type.startswith("enum ") else "c_void_p" if c_type in callbacks else SCALARS[c_type]


def print_body():
    text = "\n".join(header(path) for path in HEADERS)
    bodies = re.findall(r"^struct (\w+) \{(.*?)^\};", text, re.M | re.S)
    callbacks = re.findall(r"^typedef (\w+) \(\*(\w+)\)\((.*?)\);", text, re.M | re.S)
    names = {name for name, _ in bodies}
    for result, name, parameters in callbacks:
        kinds = ["None" if result == "void" else SCALARS[result]] + [argument(p, ()) for p in parameters.split(",")]
        print(f"{name} = CFUNCTYPE({', '.join(kinds)})")
    kinds = {name for _, name, _ in callbacks}
    for name, body in bodies:
        print(f"\n\nclass {name}(Structure):\n    _fields_ = [")
        for field, expression in fields(body, names, kinds):
            print(f'        ("{field}", {expression}),')
        print("    ]")
    for name, body in re.findall(r"^enum (\w+) \{(.*?)\};", text, re.M | re.S):
        print(f"\n\n# enum {name}")
        for number, constant in enumerate(re.findall(r"\w+", body)):
            print(f"{constant.removeprefix('NPUGRAPH_')} = {number}")
    print("\n\nFUNCTIONS: dict[str, tuple[Any, list[Any]]] = {")
    for result, stars, name, parameters in re.findall(r"^\s*((?:const )?(?:struct )?\w+) (\*?)(npugraph_\w+)\((.*?)\);", text, re.M | re.S):
        kind = "c_char_p" if stars and "char" in result else "c_void_p" if stars else "None" if result == "void" else SCALARS[result]
        arguments = [] if parameters.strip() == "void" else [argument(" ".join(p.split()), kinds) for p in parameters.split(",")]
        print(f'    "{name}": ({kind}, [{", ".join(arguments)}]),')
    print("}")


def main():
    body = io.StringIO()
    with contextlib.redirect_stdout(body):
        print_body()
    used = sorted(set(re.findall(r"\b(?:CFUNCTYPE|POINTER|Structure|c_[a-z0-9_]+)\b", body.getvalue())))
    print('# SPDX-License-Identifier: Apache-2.0\n'
          '"""The C interface of libnpugraph for ctypes. Printed by scripts/python-abi.py from npugraph.h and npugraph_hf.h."""\n'
          + "\n".join(textwrap.wrap(f"from ctypes import {', '.join(used)}", 118, break_long_words=False)).replace(",\n", "\nfrom ctypes import ")
          + "\nfrom typing import Any\n")
    print(body.getvalue(), end="")


if __name__ == "__main__":
    main()
