"""Failing: one shape for every error, whatever raised it, and the status that goes with its code.

``{"error": {"code", "message", "details"}}``. The code is that of ``onward.errors``; codes that only HTTP has are here.
What was not raised on purpose says nothing about the inside, only under which id the log has it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from onward import errors
from onward.core.codec import encode
from onward.errors import OnwardError

NOT_A_ROUTE: Final = "no_such_route"
WRONG_METHOD: Final = "method_not_allowed"
TOO_LARGE: Final = "body_too_large"
WRONG_MEDIA: Final = "unsupported_media_type"
INTERNAL: Final = "internal_error"

# The first that fits, so the more particular come first.
_STATUS: Final[tuple[tuple[type[OnwardError], int], ...]] = (
    (errors.Unauthorized, 401),
    (errors.Forbidden, 403),
    (errors.NotFound, 404),
    (errors.TooManyRequests, 429),
    (errors.RateLimited, 429),
    (errors.TooManyStreams, 429),
    (errors.ServerBusy, 503),
    (errors.StoreBusy, 503),
    (errors.StoreFull, 507),
    (errors.StoreError, 500),
    (errors.InvalidInput, 400),
    (errors.InvalidContinuation, 400),
    (errors.EngineError, 409),
    (errors.MissingExtra, 501),
    (OnwardError, 409),
)
"""What is refused because of how things stand is a conflict (409); what is wrong in itself is a bad request (400)."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong."""

    code: str
    message: str
    details: dict[str, Any] = {}


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every answer that is no success."""

    error: Fault


def status_of(error: OnwardError) -> int:
    """Return the HTTP status of an error."""
    return status_for(type(error))


def status_for(kind: type[OnwardError]) -> int:
    """Return the HTTP status of a kind of error."""
    return next(status for known, status in _STATUS if issubclass(kind, known))


def refusal(code: str, message: str, details: dict[str, Any] | None = None) -> bytes:
    """Return the body of an error."""
    fault = Fault(code=code, message=message, details=_plain(details or {}))
    return encode(Refusal(error=fault))  # type: ignore[arg-type]  # any struct can be encoded


def of(error: OnwardError) -> tuple[int, bytes]:
    """Return the status and the body of an error."""
    return status_of(error), refusal(error.code, error.message, error.details)


def _plain(value: Any) -> Any:
    """Return details in types that JSON has; anything else as text."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
