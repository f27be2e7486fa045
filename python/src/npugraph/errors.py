# SPDX-License-Identifier: Apache-2.0
"""Exceptions. Each has the daemon's stable reason (docs/reasons.md), a gRPC status code, and a sentence for people."""
from __future__ import annotations


class Error(Exception):
    """A call failed. Subclasses are the kinds that programs treat differently; `reason` says exactly why."""

    def __init__(self, reason: str, message: str, code: int = 0) -> None:
        super().__init__(f"{message} [{reason}]" if reason else message)
        self.reason = reason
        self.message = message
        self.code = code


class InvalidArgument(Error):
    """A value of the request is wrong; the same request never succeeds."""


class GraphRefused(InvalidArgument):
    """The daemon refused a graph (reasons GRAPH_...): the sentence names the node."""


class NotFound(Error):
    """An object does not exist, or no longer."""


class PermissionDenied(Error):
    """This identity may not do it."""


class Unauthenticated(PermissionDenied):
    """The token is missing, unknown or over; a new one may be taken (reasons TOKEN_...)."""


class ResourceExhausted(Error):
    """A limit, a quota or the memory is reached; later or smaller requests may succeed."""


class FailedPrecondition(Error):
    """The object is not in the state that the call needs, such as GUARD_FAILED or BUSY."""


class OutOfRange(Error):
    """An index or position lies outside its object."""


class Unsupported(Error):
    """The daemon or the device does not have it."""


class DeadlineExceeded(Error):
    """The call took longer than the client's timeout."""


class Cancelled(Error):
    """The call was cancelled."""


class Unavailable(Error):
    """The daemon or a device does not serve now."""


class Unreachable(Unavailable):
    """No daemon answers at the address, or the connection to it broke."""


_BY_CODE: dict[int, type[Error]] = {
    1: Cancelled, 3: InvalidArgument, 4: DeadlineExceeded, 5: NotFound, 7: PermissionDenied, 8: ResourceExhausted,
    9: FailedPrecondition, 11: OutOfRange, 12: Unsupported, 14: Unavailable, 16: Unauthenticated,
}


def error_of(code: int, reason: str, message: str) -> Error:
    """Returns the exception for a failed call."""
    kind = _BY_CODE.get(code, Error)
    if reason == "UNREACHABLE":
        kind = Unreachable
    elif reason.startswith("GRAPH_") and code in (3, 12):
        kind = GraphRefused
    return kind(reason, message, code)
