"""Why a request has no answer, as its sender is told: a status, and JSON that says what and what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pydantic_core import to_json
from starlette.responses import Response

from offramp.errors import OfframpError, one_line
from offramp.serving.answers import Closing, Overloaded, TooLate

LONGEST = 500
"""Letters of a message: what a sender wrote is not sent back in full."""
KINDS = {
    400: "validation",
    401: "unauthorized",
    404: "not_found",
    405: "not_allowed",
    408: "timeout",
    413: "too_large",
    415: "validation",
    422: "validation",
    429: "overloaded",
    500: "internal",
    503: "unhealthy",
    504: "timeout",
}
"""Of errors, by status."""
OUTCOMES = {413: "too_large", 429: "overloaded", 503: "closing", 504: "too_late"}
"""What a request counts as in the metrics; other refusals are `invalid`."""

REFUSED = "refused"
"""In the state of a request that the application waits for in vain: the status that its connection answered with."""


class Refused(Exception):
    """A request that is not answered."""

    def __init__(self, status: int, why: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.why = why
        self.headers = dict(headers or {})

    @property
    def content(self) -> bytes:
        return to_json({"error": self.why, "error_type": KINDS.get(self.status, "validation")})

    def response(self) -> Response:
        return Response(self.content, self.status, self.headers, "application/json")


def refusal(error: Exception) -> Refused | None:
    """What the sender is told of an exception; None where it is not theirs to know."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, Overloaded):
        return Refused(429, str(error), retry_after(error.retry_after))
    if isinstance(error, TooLate):
        return Refused(504, str(error) or "the deadline passed before there was an answer")
    if isinstance(error, Closing):
        return Refused(503, str(error) or "the server is starting, or shutting down", retry_after(1))
    if isinstance(error, OfframpError):
        return Refused(422, one_line(error, LONGEST))
    return None


def retry_after(seconds: float) -> dict[str, str]:
    return {"retry-after": str(max(1, math.ceil(seconds)))}


def outcome(status: int) -> str:
    """What a status counts as."""
    if status < 400:
        return "ok"
    return OUTCOMES.get(status, "invalid" if status < 500 else "failed")
