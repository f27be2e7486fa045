# SPDX-License-Identifier: Apache-2.0
"""Constrained answers: llguidance turns a rule into a grammar, and the grammar into the mask of tokens for each step.

A grammar is compiled in one of a few threads, within limits of the library on size and work, and kept for the next
request. Each answer has a copy of its state. Masks are computed in the threads that make the steps.
"""
from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import dataclasses
import re
from typing import Any

from .. import Model, Tokenizer
from ..aio import Generation, Hand, Sequence, Token
from ..errors import Error
from ..sequences import Sequence as SyncSequence
from .models import ServedModel
from .problems import Problem
from .rules import JSON_SPACE, Rule
from .texts import Ask

try:
    from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper, grammar_from
    from llguidance.gbnf_to_lark import gbnf_to_lark
    MISSING = False
except ImportError:
    MISSING = True

THREADS = 2
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


class _Environment:
    """The tokens of a model as a trie."""

    def __init__(self, tokenizer: Tokenizer, model: Model) -> None:
        self.mask_bytes = (model.vocab + 7) // 8
        # Without stop tokens, an answer ends where nothing can follow: the end is a token behind the mask.
        stops = [token for token in model.stop_tokens if token < model.vocab] or [8 * self.mask_bytes]
        vocabulary = _Vocabulary(tokenizer, model.vocab, stops)
        self.tokens = LLTokenizer(TokenizerWrapper(vocabulary), n_vocab=len(vocabulary.tokens), eos_token=stops)


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
        self._rule, self._matcher, self._mask_bytes = rule, matcher, mask_bytes

    def copy(self) -> Guide:
        return Guide(self._rule, self._matcher.deep_copy(), self._mask_bytes)

    def mask(self) -> bytes:
        """Returns the tokens that may follow, stop tokens where the answer may end."""
        mask = bytes(self._matcher.compute_bitmask()[:self._mask_bytes])
        if self._matcher.is_error():
            raise _refused(self._rule, self._matcher.get_error())
        if not any(mask):
            raise _refused(self._rule, "no token of the model can follow what it has said")
        return mask

    def take(self, token: int) -> None:
        """Takes the token that was chosen. Raises Ended if none can follow."""
        self._matcher.consume_token(token)
        if self._matcher.is_error():
            raise _refused(self._rule, self._matcher.get_error())
        if self._matcher.is_stopped():
            raise Ended

    def follow(self, token: int) -> bytes:
        """Takes a token and returns what may follow it."""
        self.take(token)
        return self.mask()


@dataclasses.dataclass(frozen=True)
class Compiled:
    """A grammar with what an answer begins with."""

    _guide: Guide
    mask: bytes

    def guide(self) -> Guide:
        return self._guide.copy()


class Guides:
    """Compiles rules, and keeps what it compiled."""

    def __init__(self) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(THREADS, "npugraph-grammar")
        self._kept: collections.OrderedDict[tuple[Any, ...], asyncio.Future[Compiled | Problem]] = collections.OrderedDict()
        self._environments: dict[str, tuple[tuple[Any, ...], asyncio.Future[_Environment]]] = {}

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

    async def _environment(self, served: ServedModel, model: Model) -> _Environment:
        """Returns the model's tokens. They are made again if the model was loaded with others."""
        key = (model.vocab, model.stop_tokens)
        kept = self._environments.get(served.name)
        if kept is None or kept[0] != key or (kept[1].done() and kept[1].exception() is not None):
            made = asyncio.get_running_loop().run_in_executor(self._pool, _Environment, served.tokenizer, model)
            self._environments[served.name] = key, made
        return await self._environments[served.name][1]

    async def _make(self, served: ServedModel, model: Model, rule: Rule) -> Compiled | Problem:
        environment = await self._environment(served, model)
        return await asyncio.get_running_loop().run_in_executor(self._pool, _compile, environment, rule)


def _compile(environment: _Environment, rule: Rule) -> Compiled | Problem:
    try:
        limits = LLParserLimits(max_lexer_states=LEXER_STATES_MAX, max_grammar_size=SYMBOLS_MAX, verbose_errors=False)
        matcher = LLMatcher(environment.tokens, _grammar(rule), log_level=0, limits=limits)
        if matcher.is_error():
            return _refused(rule, matcher.get_error())
        guide = Guide(rule, matcher, environment.mask_bytes)
        return Compiled(guide, guide.mask())
    except Problem as problem:
        return problem
    except (ValueError, RecursionError) as error:
        return _refused(rule, str(error))


def guided(sequence: Sequence, guide: Guide, ask: Ask) -> Generation:
    """Starts a generation whose tokens a guide chooses from; it also ends with `complete`, where nothing can follow.

    Each mask is computed and its step begun as soon as the last token is there, while others still make text of that.
    """
    def finish_at(token: int) -> str:
        """Returns why an answer ends that may have no more tokens: it may be complete."""
        try:
            guide.take(token)
        except Ended:
            return "complete"
        return "length"

    def work(steps: SyncSequence, hand: Hand) -> str:
        last, left = steps.last, ask.max_tokens
        while hand(Token(last.token, last.logprobs)):
            if last.stop or last.token in ask.stop_tokens:
                return "stop"
            if left is not None:
                left -= 1
                if left == 0:
                    return finish_at(last.token)
            try:
                last = steps.step(logprobs=ask.logprobs, allowed=guide.follow(last.token))
            except Ended:
                return "complete"
            except Error as error:
                if error.reason != "CONTEXT_FULL":
                    raise
                return "context"
        return "cancelled"

    return sequence.drive(work)
