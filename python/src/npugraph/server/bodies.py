# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests: read within limits of size and time, and parsed as JSON of limited depth."""
from __future__ import annotations

import asyncio
import json
from typing import Any, NoReturn

from starlette.types import Receive

from .problems import Problem

DEPTH_MAX = 32  # arrays and objects in one another; a conversation needs 4
DIGITS_MAX = 32  # of an integer
DROP_FACTOR = 8


class Gone(Exception):
    """The client has gone; nobody reads an answer."""


async def read_body(receive: Receive, most: int, seconds: float) -> bytes:
    """Returns the body. Raises Problem if it is too large or comes too slowly, and Gone if it ends early.

    A body that is too large is read on and dropped for a while: most clients read the answer behind their last byte only.
    """
    parts, size, more = [], 0, True
    try:
        async with asyncio.timeout(seconds):
            while more and size <= DROP_FACTOR * most:
                message = await receive()
                if message["type"] != "http.request":
                    raise Gone
                part = message.get("body", b"")
                more = message.get("more_body", False)
                size += len(part)
                parts.append(part)
                if size > most:
                    parts.clear()
    except TimeoutError:
        if size <= most:
            raise Problem(408, f"the body did not come within {seconds:g} seconds", code="timeout") from None
    if size > most:
        raise Problem(413, f"the body is larger than {most} bytes", code="body_too_large")
    return b"".join(parts)


def parse(body: bytes) -> Any:
    """Parses JSON. Every string of the value can be encoded as UTF-8."""
    try:
        text = body.decode()
        value = json.loads(text, parse_int=_integer, parse_constant=_constant)
    except UnicodeDecodeError:
        raise _refused("it is not UTF-8") from None
    except RecursionError:
        raise _refused(f"it nests deeper than {DEPTH_MAX}") from None
    except ValueError as error:
        raise _refused(str(error)[:200]) from None
    _check(value, "\\u" in text)
    return value


def _refused(why: str) -> Problem:
    return Problem(400, f"the body is no JSON that this server takes: {why}", code="invalid_json")


def _integer(digits: str) -> int:
    if len(digits) > DIGITS_MAX:
        raise ValueError(f"a number has more than {DIGITS_MAX} digits")
    return int(digits)


def _constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _check(value: Any, escapes: bool) -> None:
    """Checks the depth, and that no string has half of a surrogate pair, which only escapes can make."""
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX + 1):
        if escapes:
            for text in level:
                if isinstance(text, str):
                    _check_text(text)
                elif isinstance(text, dict):
                    for key in text:
                        _check_text(key)
        level = [inner for outer in level if isinstance(outer, (dict, list))
                 for inner in (outer.values() if isinstance(outer, dict) else outer)]
        if not level:
            return
    raise _refused(f"it nests deeper than {DEPTH_MAX}")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _refused("a string has half of a surrogate pair") from None


async def gone(receive: Receive) -> None:
    """Returns when the client has gone. The body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
