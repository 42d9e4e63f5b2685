"""How a turn of Claude Code ended, and why one could not begin: its words as our kinds of failure.

A result is believed for what it says (``is_error``), never for its ``subtype``, which stays ``success`` when the provider
refused the request. Why a conversation could not be opened, the program says before any model was asked, so nothing is
spent by finding out.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from onward.engines.contract import Finished

_BY_STATUS: Final = {
    400: "invalid_request", 401: "authentication", 402: "quota", 403: "authentication", 404: "invalid_request",
    408: "timeout", 413: "invalid_request", 422: "invalid_request", 429: "rate_limited", 529: "unavailable",
}  # fmt: skip
_BY_WORDS: Final = (
    ("credit balance is too low", "quota"),
    ("usage limit reached", "quota"),
    ("hit your limit", "quota"),
    ("out of extra usage", "quota"),
    ("invalid api key", "authentication"),
    ("please run /login", "authentication"),
    ("not logged in", "authentication"),
    ("oauth token", "authentication"),
    ("overloaded", "unavailable"),
    ("connection error", "unavailable"),
    ("unable to connect", "unavailable"),
    ("request timed out", "timeout"),
    ("prompt is too long", "invalid_request"),
)
"""Words that tell more than the status, or come without one."""
_LIMITS: Final = {
    "error_max_turns": "policy",
    "error_max_budget_usd": "policy",
    "error_max_structured_output_retries": "invalid_request",
}
PASSING: Final = frozenset(("rate_limited", "unavailable", "timeout"))
"""Causes that pass by themselves."""
REASON_CHARACTERS: Final = 2_000


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why the program would not open a conversation."""

    kind: Literal["unknown", "taken", "other"]
    """It does not know the id; the id of a new one is taken; something else."""
    said: str
    code: str = "unknown"


def end_of(record: dict[str, Any], *, acted: bool, interrupted: bool) -> Finished:
    """Return how a turn ended by its result.

    ``acted``: a tool was called in it, so that trying again is not free of effects. ``interrupted``: we had asked it to
    stop, so an end with an error is what we asked for.
    """
    if record.get("is_error") is False:
        return Finished(status="completed")
    reason = _reason(record)
    if interrupted:
        return Finished(status="cancelled", reason="It was interrupted.")
    if record.get("is_error") is not True:
        return Finished(
            status="failed", code="protocol", reason=f"Its result does not say whether it succeeded. {reason}"
        )
    if str(record.get("terminal_reason")).startswith("aborted"):
        return Finished(
            status="failed", code="unknown", reason=f"Something other than Onward interrupted it: {reason}"
        )
    code = _code(record, reason)
    return Finished(status="failed", reason=reason, code=code, retryable=code in PASSING and not acted)


def refusal_of(result: dict[str, Any] | None, stderr: str) -> Refusal:
    """Return why it ended before it took a prompt, from the result that it may have written and from standard error."""
    said = " ".join((*_errors(result or {}), stderr)).strip()
    words = said.lower()
    if "no conversation found" in words or "does not match any session" in words:
        return Refusal(kind="unknown", said=said)
    if "is already in use" in words:
        return Refusal(kind="taken", said=said)
    if "cannot be used with root" in words or "bypass" in words:
        return Refusal(kind="other", said=said, code="policy")
    return Refusal(kind="other", said=said, code=_by_words(words) or "crashed")


def _code(record: dict[str, Any], reason: str) -> str:
    if found := _by_words(reason.lower()):
        return found
    status = record.get("api_error_status")
    if isinstance(status, int):
        return _BY_STATUS.get(status) or ("unavailable" if status >= 500 else "unknown")
    return _LIMITS.get(str(record.get("subtype")), "unknown")


def _by_words(words: str) -> str | None:
    return next((code for sign, code in _BY_WORDS if sign in words), None)


def _reason(record: dict[str, Any]) -> str:
    said = record.get("result")
    words = [said] if isinstance(said, str) and said else _errors(record)
    reason = " ".join(words) or f"It ended with {record.get('subtype') or 'an error'} and said nothing more."
    return reason[:REASON_CHARACTERS]


def _errors(record: dict[str, Any]) -> list[str]:
    errors = record.get("errors")
    return [error for error in errors if isinstance(error, str)] if isinstance(errors, list) else []
