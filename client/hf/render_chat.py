# SPDX-License-Identifier: Apache-2.0
"""Renders a chat template for client/hf/chat_template.c, which runs it as a child: JSON on standard input, JSON on standard output.

A template comes with a model, so it is not trusted: it runs in Jinja's immutable sandbox, in a process that may use so much memory and time
and write no file, and its text may only be so long. The extensions are those that transformers has.
"""
import json
import resource
import sys

MEMORY, SECONDS, TEXT = 512 << 20, 5, 4 << 20


def answer(**fields):
    json.dump(fields, sys.stdout)
    sys.stdout.flush()
    sys.exit(0)


for what, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, SECONDS), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
    hard = resource.getrlimit(what)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))
try:
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    answer(error="python3 has no jinja2: install the package python3-jinja2")


class Refusal(Exception):
    pass


def shown(e):
    """Returns what an exception says, short and without what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in str(e)[:500])


class Generation(Extension):
    """{% generation %}: marks what the assistant says, for training. Here it is text like any other."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(["name:endgeneration"], drop_needle=True), lineno=line)


def raise_exception(message):
    raise Refusal(str(message))


def strftime_now(form):
    import datetime
    return datetime.datetime.now().strftime(form)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def render(request):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    pieces, size = [], 0
    for piece in environment.from_string(request["template"]).generate(**request["variables"]):
        size += len(piece)
        if size > TEXT:
            raise Refusal(f"its text is longer than {TEXT} characters")
        pieces.append(piece)
    return "".join(pieces)


try:
    text = render(json.load(sys.stdin))
    text.encode("utf-8")
except Refusal as e:
    answer(error=f"the chat template refuses the conversation: {shown(e)}")
except MemoryError:
    answer(error=f"the chat template needs more than {MEMORY >> 20} MiB of memory")
except RecursionError:
    answer(error="the chat template nests too deeply")
except jinja2.TemplateSyntaxError as e:
    answer(error=f"the chat template has a mistake in line {e.lineno}: {shown(e.message)}")
except Exception as e: # anything that a template can raise
    answer(error=f"the chat template fails: {type(e).__name__}: {shown(e)}")
answer(text=text)
