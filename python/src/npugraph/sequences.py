# SPDX-License-Identifier: Apache-2.0
"""Sequences: texts that a model of the daemon continues."""
from __future__ import annotations

import contextvars
import ctypes
import dataclasses
import math
import operator
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _abi
from ._library import call, finalize, library, quick_client_library, text
from .errors import Error

if TYPE_CHECKING:
    from .client import Client

FINISH = ("cancelled", "length", "stop", "context")


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How tokens are chosen; ranges and the order in which they apply are in docs/protocol.md, "Sampling".

    Temperature 0 is greedy. 0 is off for the others, and 1 too where it changes nothing.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 0.0
    seed: int = 0
    min_p: float = 0.0
    typical_p: float = 0.0
    repetition_penalty: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    min_tokens: int = 0
    logit_bias: Mapping[int, float] = dataclasses.field(default_factory=dict)  # by token
    bad_words: tuple[tuple[int, ...], ...] = ()  # in tokens

    def _c(self) -> _abi.npugraph_sampling:
        biases = [_abi.npugraph_logit_bias(token, bias) for token, bias in self.logit_bias.items()]
        words = [_abi.npugraph_token_word((ctypes.c_int32 * len(w))(*w), len(w)) for w in self.bad_words]
        return _abi.npugraph_sampling(
            self.temperature, self.top_k, self.top_p, self.seed, self.min_p, self.typical_p, self.repetition_penalty,
            self.presence_penalty, self.frequency_penalty, self.min_tokens,
            (_abi.npugraph_logit_bias * len(biases))(*biases), len(biases),
            (_abi.npugraph_token_word * len(words))(*words), len(words))


@dataclasses.dataclass(frozen=True)
class Logprobs:
    """Log-probabilities of a token that was chosen, by the logits alone."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]  # the most probable tokens with theirs, most probable first


def logprobs_of(c: _abi.npugraph_logprobs) -> Logprobs:
    return Logprobs(c.token, c.logprob, tuple((c.top[i].token, c.top[i].logprob) for i in range(c.n_top)))


@dataclasses.dataclass(frozen=True)
class Step:
    """The result of a decode step."""

    token: int  # chosen, and not yet part of the context
    position: int  # tokens in the context
    stop: bool  # it is a stop token of the model
    accepted: int  # tokens of the draft that are in the context
    logits: Any  # float32 array of the vocabulary, if wanted; else None
    logprobs: Logprobs | None = None  # of `token`, if wanted


def _step(c: _abi.npugraph_step) -> Step:
    logits = np.ctypeslib.as_array(c.logits, (c.vocab,)).copy() if c.logits else None
    logprobs = logprobs_of(c.logprobs[c.n_logprobs - 1]) if c.n_logprobs else None
    return Step(c.token, c.position, c.stop, c.accepted, logits, logprobs)


def _mask(allowed: bytes | None) -> tuple[Any, int]:
    """Returns pointer and size of a mask. The pointer keeps the bytes."""
    return ctypes.cast(ctypes.c_char_p(allowed), ctypes.POINTER(ctypes.c_uint8)), len(allowed or b"")


def tokens_of(values: Iterable[int]) -> Any:
    """Returns an array that C can read. TypeError: one is no integer, which numpy would cut to one."""
    return np.array([operator.index(value) for value in values], np.int32)


class Sequence:
    """A sequence of a model: its context lives in the daemon. One thread at a time."""

    def __init__(self, client: Client, handle: ctypes.c_void_p, first: Step) -> None:
        self.client = client
        self.last = first  # of the last step
        self.finish: str | None = None  # why the last generation ended: length, stop, context, cancelled
        self._c = handle
        self._close = finalize(self, _close, client, handle)
        client._children.add(self)

    @property
    def _handle(self) -> ctypes.c_void_p:
        if not self._close.alive:
            raise Error("SESSION_GONE", "the sequence is closed")
        return self._c

    @property
    def token(self) -> int:
        """The token that was chosen last; the next step appends it."""
        return self.last.token

    @property
    def position(self) -> int:
        """Tokens in the context."""
        return self.last.position

    def step(self, token: int | None = None, *, draft: Iterable[int] = (), want_logits: bool = False,
             logprobs: int | None = None, allowed: bytes | None = None) -> Step:
        """Makes a decode step: appends a token, by default the one that was chosen last, and chooses the next.

        The longest beginning of `draft` that steps without it would have chosen is appended too. `logprobs`: as in
        Client.open. `allowed`: tokens that the chosen one may be, a bit for each of the vocabulary, the first in the
        lowest bit of the first byte; not with a draft.
        """
        params = _abi.npugraph_step_params()
        library().npugraph_step_params_init(ctypes.byref(params))
        guesses = tokens_of(draft)
        params.draft, params.n_draft = guesses.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)), len(guesses)
        params.forced = -1 if token is None else token
        params.want_logits = want_logits
        params.want_logprobs, params.top = logprobs is not None, logprobs or 0
        params.allowed, params.allowed_bytes = _mask(allowed)
        result = _abi.npugraph_step()
        call(library().npugraph_sequence_step, self._handle, ctypes.byref(params), ctypes.byref(result))
        self.last = _step(result)
        return self.last

    def generate(self, max_tokens: int | None = None, *, stop_tokens: Iterable[int] = (),
                 ignore_stop: bool = False) -> Iterator[int]:
        """Yields tokens as they are made, the one that was chosen last first. Leaving the loop ends the generation;
        the sequence stays usable. `finish` says afterwards why it ended."""
        return _Generation(self, generate_params(max_tokens, stop_tokens, ignore_stop)).tokens()

    def fork(self, sampling: Sampling | None = None, *, logprobs: int | None = None) -> Sequence:
        """Copies an idle sequence; full blocks of its context are shared. The next token is drawn again.

        `logprobs`: as in Client.open.
        """
        handle, first = ctypes.c_void_p(), _abi.npugraph_step()
        chosen = sampling._c() if sampling else None
        params = _abi.npugraph_fork_params(ctypes.pointer(chosen) if chosen is not None else None,
                                           want_logprobs=logprobs is not None, top=logprobs or 0)
        call(library().npugraph_sequence_fork, self._handle, ctypes.byref(params), ctypes.byref(handle), ctypes.byref(first))
        return Sequence(self.client, handle, _step(first))

    def close(self) -> None:
        """Frees its memory in the daemon."""
        self._close()

    def __enter__(self) -> Sequence:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close(client: Client, handle: ctypes.c_void_p) -> None:
    if not client.closed:
        library().npugraph_sequence_close(handle)


def generate_params(max_tokens: int | None, stop_tokens: Iterable[int], ignore_stop: bool,
                    logprobs: int | None = None) -> _abi.npugraph_generate_params:
    """Returns the parameters of a generation."""
    params, stop = _abi.npugraph_generate_params(), list(stop_tokens)
    quick_client_library().npugraph_generate_params_init(ctypes.byref(params))
    if max_tokens is not None:
        params.max_tokens = max_tokens
    params.ignore_stop = ignore_stop
    params.stop_tokens, params.n_stop_tokens = (ctypes.c_int32 * len(stop))(*stop), len(stop)
    params.want_logprobs, params.top = logprobs is not None, logprobs or 0
    return params


class _Generation:
    """A thread waits in the C call and queues tokens; None ends them."""

    def __init__(self, sequence: Sequence, params: _abi.npugraph_generate_params) -> None:
        self.sequence = sequence
        self.params = params
        self.ready: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self.wanted = True
        self.error: Exception | None = None

    def _token(self, _user: int, token: int, _logprobs: int) -> bool:
        self.ready.put(token)
        return self.wanted

    def _run(self, handle: ctypes.c_void_p) -> None:
        finish = ctypes.c_int()
        try:
            call(library().npugraph_sequence_generate, handle, ctypes.byref(self.params),
                 _abi.npugraph_token_fn(self._token), None, ctypes.byref(finish))
            self.sequence.finish = FINISH[finish.value]
        except Exception as error:
            self.error = error
        self.ready.put(None)

    def tokens(self) -> Iterator[int]:
        context = contextvars.copy_context()  # of the trace
        thread = threading.Thread(target=context.run, args=(self._run, self.sequence._handle), daemon=True)
        thread.start()
        try:
            while (token := self.ready.get()) is not None:
                yield token
        finally:
            self.wanted = False  # the next token's callback ends the call
            thread.join()
        if self.error is not None:
            raise self.error


def open_sequence(client: Client, model: str, prompt: Iterable[int], sampling: Sampling | None, logprobs: int | None,
                  allowed: bytes | None, restore: float) -> Sequence:
    """Opens a sequence; see Client.open."""
    if not 0 <= restore < 1 << 22:
        raise ValueError(f"restore is {restore}; it is 0 (off) or how many seconds to wait for another daemon")
    tokens = tokens_of(prompt)
    params = _abi.npugraph_open_params()
    quick_client_library().npugraph_open_params_init(ctypes.byref(params))
    chosen = sampling._c() if sampling else None
    if chosen is not None:
        params.sampling = ctypes.pointer(chosen)
    params.want_logprobs, params.top = logprobs is not None, logprobs or 0
    params.allowed, params.allowed_bytes = _mask(allowed)
    params.restore_ms = math.ceil(restore * 1000)
    handle, first = ctypes.c_void_p(), _abi.npugraph_step()
    call(library().npugraph_sequence_open, client._handle, text(model), tokens.ctypes.data, len(tokens),
         ctypes.byref(params), ctypes.byref(handle), ctypes.byref(first))
    return Sequence(client, handle, _step(first))
