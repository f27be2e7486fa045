# SPDX-License-Identifier: Apache-2.0
"""Renders chat templates for client/hf/chat_template.c, which runs it as a child: a line of JSON comes in for each text, and one goes out.

A template comes with a model, so it is not trusted: it runs in Jinja's immutable sandbox, in a process that may use so much memory, and time
for each text, and write no file; and a text may only be so long. The extensions are those that transformers has. After a failure the process
ends, so that nothing of it is left.
"""
import functools
import json
import resource
import sys

MEMORY, SECONDS, TEXT = 512 << 20, 5, 4 << 20


def answer(**fields):
    print(json.dumps(fields), flush=True)
    if "error" in fields:
        sys.exit(0)


def limit(what, most):
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def limit_time():
    """Gives the process at most SECONDS more, at least one less; the kernel ends it when they are over."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + SECONDS)


limit(resource.RLIMIT_AS, MEMORY)
limit(resource.RLIMIT_FSIZE, 0)
limit(resource.RLIMIT_CORE, 0)
limit_time()
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


@functools.lru_cache(1)
def compiled(source):
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = tojson
    environment.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return environment.from_string(source)


def render(request):
    pieces, size = [], 0
    for piece in compiled(request["template"]).generate(**request["variables"]):
        size += len(piece)
        if size > TEXT:
            raise Refusal(f"its text is longer than {TEXT} characters")
        pieces.append(piece)
    return "".join(pieces)


def answer_line(line):
    try:
        text = render(json.loads(line))
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


while line := sys.stdin.readline():
    limit_time()
    answer_line(line)
