# SPDX-License-Identifier: Apache-2.0
"""What went wrong with a request, in OpenAI's form: an HTTP status, a type, a code, the field, a sentence."""
from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from .. import errors

RETRY_SECONDS = 1
_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
          405: "invalid_request_error", 408: "timeout_error", 413: "invalid_request_error", 429: "rate_limit_error",
          504: "timeout_error"}
_CODES = {"PROMPT_TOO_LONG": "context_length_exceeded", "CONTEXT_FULL": "context_length_exceeded"}
_BY_REASON = {"SESSION_GONE": 503, "STALE_ID": 503,  # the daemon, or the model, went away under the request
              "MESSAGE_TOO_LARGE": 400, "NO_EMBEDDINGS": 400, "NO_GENERATION": 400}
_STATUS: tuple[tuple[type[errors.Error], int], ...] = (
    (errors.InvalidArgument, 400), (errors.OutOfRange, 400), (errors.NotFound, 404), (errors.PermissionDenied, 403),
    (errors.ResourceExhausted, 429), (errors.DeadlineExceeded, 504), (errors.Unavailable, 503), (errors.Cancelled, 503),
    (errors.Unsupported, 400),
)


class Problem(Exception):
    """A request is refused or failed."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        headers = {"retry-after": str(RETRY_SECONDS)} if self.status in (429, 503) else {}
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        if self.status in (408, 413):
            headers["connection"] = "close"  # the rest of the body is not read
        return Response(json.dumps(self.body()), self.status, headers, "application/json")


def bad(param: str, message: str) -> Problem:
    """Returns the refusal of a field."""
    return Problem(400, f"{param} {message}", param=param, code="invalid_value")


def problem_of(error: Exception) -> Problem:
    """Returns the problem that an exception of the client library stands for."""
    if isinstance(error, Problem):
        return error
    if not isinstance(error, errors.Error):
        return Problem(500, f"an error of the server: {type(error).__name__}", code="internal_error")
    status = _BY_REASON.get(error.reason) or next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    return Problem(status, error.message, code=_CODES.get(error.reason, error.reason.lower() or None))
