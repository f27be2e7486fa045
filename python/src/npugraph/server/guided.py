# SPDX-License-Identifier: Apache-2.0
"""Constrained answers: llguidance turns a rule into a grammar, and the grammar into the mask of tokens for each step.

A grammar is compiled in one of a few threads, within limits of the library on size and work, and kept for the next
request. Each answer has a copy of its state. Masks are computed for all answers whose tokens came together.
"""
from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import dataclasses
import os
import re
from typing import Any

import numpy as np

from .. import Model, Tokenizer
from ..aio import Generation, Sequence, Token
from .models import ServedModel
from .problems import Problem
from .rules import JSON_SPACE, Rule
from .texts import Ask

try:
    from llguidance import LLExecutor, LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper, grammar_from
    from llguidance.gbnf_to_lark import gbnf_to_lark
    MISSING = False
except ImportError:
    MISSING = True

THREADS = 2
MASK_THREADS = min(4, os.cpu_count() or 1)  # for the answers whose tokens come together
MANY = 8  # from so many masks on, threads compute them: to wake these takes as long as a few masks
WAITING_MAX = 32  # compilations that wait or run; more are refused
KEPT = 16  # compiled grammars, of which a hostile one may take 50 MB
COMPILE_SECONDS = 10.0  # that a request waits for one
LEXER_STATES_MAX = 20000  # about 2 KB each
SYMBOLS_MAX = 50000  # of a grammar; so many take about 10 MB


class Ended(Exception):
    """Nothing can follow: the answer is complete."""


class _Vocabulary:
    """A model's tokens in the form that llguidance asks for. Added tokens have no text: only their ids can be named."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, vocab: int, stops: list[int]) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = stops[0]
        self.special_token_ids = [*{*stops, *(i for i in range(vocab) if tokenizer.is_added(i))}]
        self.tokens = [tokenizer.token_bytes(i) for i in range(vocab)] + [b""] * (max(stops) + 1 - vocab)

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, special=False, template=False)


class Environment:
    """The tokens of a model as a trie."""

    def __init__(self, tokenizer: Tokenizer, model: Model) -> None:
        self.mask_bytes = (model.vocab + 7) // 8
        # Without stop tokens, an answer ends where nothing can follow: the end is a token behind the mask.
        stops = [token for token in model.stop_tokens if token < model.vocab] or [8 * self.mask_bytes]
        vocabulary = _Vocabulary(tokenizer, model.vocab, stops)
        self.tokens = LLTokenizer(TokenizerWrapper(vocabulary), n_vocab=len(vocabulary.tokens), eos_token=stops)
        self._words = (len(vocabulary.tokens) + 31) // 32
        self._executor = LLExecutor(MASK_THREADS)

    def follow(self, taken: list[tuple[_Answer, Token]]) -> tuple[list[str | Problem | None], np.ndarray[Any, np.dtype[np.uint8]]]:
        """Takes tokens of answers, and computes what may follow those that go on. For Sequence.drive."""
        ways = [answer.take(token) for answer, token in taken]
        masks = np.zeros((len(taken), self._words), np.uint32)
        wanted = [(answer.guide.matcher, at) for at, (answer, _) in enumerate(taken) if ways[at] is None]
        first, row_bytes = masks.ctypes.data, masks.strides[0]
        if len(wanted) >= MANY:
            self._executor.unsafe_compute_mask_ptr(wanted, first, row_bytes, len(taken))
        else:
            for matcher, at in wanted:
                matcher.unsafe_compute_mask_ptr(first + at * row_bytes, row_bytes)
        rows = masks.view(np.uint8)[:, :self.mask_bytes]
        some: Any = rows.any(axis=1)
        for at, (answer, _) in enumerate(taken):
            if ways[at] is None:
                ways[at] = answer.guide.refusal(some[at])
        return ways, rows


# llguidance's own look for a Lark grammar takes quadratic time on empty lines, and holds the interpreter's lock meanwhile.
_LARK = re.compile(r"(?m)^[ \t]*(%llguidance\b|start[ \t]*:)")


def _lark(text: str) -> str:
    """Returns a grammar of either kind as Lark's."""
    if _LARK.search(text):
        return text
    try:
        return str(gbnf_to_lark(text))
    except RecursionError:
        raise
    except Exception as error:  # of no class of its own
        raise ValueError(str(error)) from None


def _grammar(rule: Rule) -> str:
    if rule.kind == "json":
        return LLMatcher.grammar_from_json_schema(rule.text, overrides={"whitespace_pattern": JSON_SPACE, "lenient": rule.lenient})
    if rule.kind == "lark":
        return LLMatcher.grammar_from_lark(rule.text)
    if rule.kind == "regex":
        return grammar_from("regex", rule.text)
    return LLMatcher.grammar_from_lark(_lark(rule.text))


def _refused(rule: Rule, why: str) -> Problem:
    return Problem(400, f"{rule.param} cannot be kept to: {why[:500].strip()}", param=rule.param, code="invalid_constraint")


class Guide:
    """The state of one answer: what may follow. One thread at a time."""

    def __init__(self, rule: Rule, matcher: Any, mask_bytes: int) -> None:
        self._rule, self.matcher, self._mask_bytes = rule, matcher, mask_bytes

    def copy(self) -> Guide:
        return Guide(self._rule, self.matcher.deep_copy(), self._mask_bytes)

    def mask(self) -> bytes:
        """Returns the tokens that may follow, stop tokens where the answer may end."""
        mask = bytes(self.matcher.compute_bitmask()[:self._mask_bytes])
        problem = self.refusal(any(mask))
        if problem is not None:
            raise problem
        return mask

    def take(self, token: int) -> None:
        """Takes the token that was chosen. Raises Ended if none can follow."""
        self.matcher.consume_token(token)
        if self.matcher.is_error():
            raise _refused(self._rule, self.matcher.get_error())
        if self.matcher.is_stopped():
            raise Ended

    def refusal(self, allows: bool) -> Problem | None:
        """Returns what is wrong with the mask that was computed last. allows: it allows some token."""
        if self.matcher.is_error():
            return _refused(self._rule, self.matcher.get_error())
        return None if allows else _refused(self._rule, "no token of the model can follow what it has said")


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A grammar with what an answer begins with."""

    environment: Environment
    _guide: Guide
    mask: bytes

    def guide(self) -> Guide:
        return self._guide.copy()

    def start(self, sequence: Sequence, ask: Ask) -> Generation:
        """Starts a generation whose tokens the grammar chooses from; it also ends with `complete`, where nothing can follow."""
        return sequence.drive(self.environment.follow, _Answer(self.guide(), ask, ask.max_tokens), logprobs=ask.logprobs)


class Guides:
    """Compiles rules, and keeps what it compiled."""

    def __init__(self) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(THREADS, "npugraph-grammar")
        self._kept: collections.OrderedDict[tuple[Any, ...], asyncio.Future[Compiled | Problem]] = collections.OrderedDict()
        self._environments: dict[str, tuple[tuple[Any, ...], asyncio.Future[Environment]]] = {}

    async def compiled(self, served: ServedModel, model: Model, rule: Rule) -> Compiled:
        """Returns the grammar of a rule for the tokens of a model."""
        if MISSING:
            raise Problem(400, f"{rule.param} needs the package llguidance, which this server does not have: "
                          'pip install "npugraph[guided]"', param=rule.param, code="unsupported")
        key = (served.name, model.vocab, model.stop_tokens, rule)
        future = self._kept.get(key)
        if future is None or (future.done() and (future.cancelled() or future.exception() is not None)):
            future = self._start(served, model, rule)
            self._kept[key] = future
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        try:
            made = await asyncio.wait_for(asyncio.shield(future), COMPILE_SECONDS)
        except TimeoutError:
            raise Problem(429, "the server is compiling grammars; try again later", param=rule.param, code="server_busy") from None
        except Exception:
            self._kept.pop(key, None)  # nothing that the rule is to blame for
            raise
        if isinstance(made, Problem):
            raise made.with_traceback(None)  # it is kept, and would gather those of all who got it
        return made

    def _start(self, served: ServedModel, model: Model, rule: Rule) -> asyncio.Future[Compiled | Problem]:
        if sum(not future.done() for future in self._kept.values()) >= WAITING_MAX:
            raise Problem(429, f"{WAITING_MAX} grammars wait to be compiled; try again later", param=rule.param, code="server_busy")
        future = asyncio.ensure_future(self._make(served, model, rule))
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # who asked may be gone
        return future

    async def _environment(self, served: ServedModel, model: Model) -> Environment:
        """Returns the model's tokens. They are made again if the model was loaded with others."""
        key = (model.vocab, model.stop_tokens)
        kept = self._environments.get(served.name)
        if kept is None or kept[0] != key or (kept[1].done() and kept[1].exception() is not None):
            made = asyncio.get_running_loop().run_in_executor(self._pool, Environment, served.tokenizer, model)
            self._environments[served.name] = key, made
        return await self._environments[served.name][1]

    async def _make(self, served: ServedModel, model: Model, rule: Rule) -> Compiled | Problem:
        environment = await self._environment(served, model)
        return await asyncio.get_running_loop().run_in_executor(self._pool, _compile, environment, rule)


def _compile(environment: Environment, rule: Rule) -> Compiled | Problem:
    try:
        limits = LLParserLimits(max_lexer_states=LEXER_STATES_MAX, max_grammar_size=SYMBOLS_MAX, verbose_errors=False)
        matcher = LLMatcher(environment.tokens, _grammar(rule), log_level=0, limits=limits)
        if matcher.is_error():
            return _refused(rule, matcher.get_error())
        guide = Guide(rule, matcher, environment.mask_bytes)
        return Compiled(environment, guide, guide.mask())
    except Problem as problem:
        return problem
    except (ValueError, RecursionError) as error:
        return _refused(rule, str(error))


@dataclasses.dataclass
class _Answer:
    """An answer that is made."""

    guide: Guide
    ask: Ask
    left: int | None  # tokens that it may still have

    def take(self, token: Token) -> str | Problem | None:
        """Takes a token. Returns why the answer ends with it; None: it goes on, and a mask is needed."""
        if token.stop or token.id in self.ask.stop_tokens:
            return "stop"
        try:
            self.guide.take(token.id)
        except Ended:
            return "complete"
        except Problem as problem:
            return problem
        if self.left is None:
            return None
        self.left -= 1
        return None if self.left else "length"
