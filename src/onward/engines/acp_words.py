"""Small readings of the Agent Client Protocol: its texts, its reasons to stop, its errors and its choices.

Each is a pure function of one value as an agent sent it, and says what it makes of values that the protocol does not
know. What is decided here: only ``end_turn`` is a success. A turn that ended at a limit or by a refusal is a failure,
because the agent did not finish what was asked, and one that refused has dropped the question from its own memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from onward.engines.contract import Finished
from onward.engines.jsonrpc import INTERNAL_ERROR, PeerError

SUBJECT: Final = 200
"""Characters of the line that says what a permission is about."""
REASON: Final = 2_000
"""Characters of a reason that an agent gave."""
AUTHENTICATION_REQUIRED: Final = -32000
_STATUS: Final = re.compile(r"^\W*(?:HTTP\s+)?([45]\d\d)\b")

Ending = Literal["completed", "failed", "cancelled", "continued"]


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One of the answers that an agent offers to its question for permission."""

    id: str
    kind: str


def text_of(content: Any) -> str | None:
    """Return the text of a content block; None if it is something else."""
    if isinstance(content, dict) and content.get("type") == "text" and isinstance(content.get("text"), str):
        return str(content["text"])
    return None


def cut(text: str, limit: int = SUBJECT) -> str:
    """Return a text on one line, cut with an ellipsis beyond the limit."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def read_options(options: Any) -> tuple[Option, ...]:
    """Return the answers that are offered; what cannot be read is none."""
    found = [option for option in options if isinstance(option, dict)] if isinstance(options, list) else []
    return tuple(
        Option(id=option["optionId"], kind=str(option.get("kind")))
        for option in found
        if isinstance(option.get("optionId"), str)
    )


def chosen(options: Iterable[Option], *, granted: bool) -> str | None:
    """Return the option that says so once; None when no option does, which is answered as cancelled.

    A permission is never given for longer than was asked of us: ``allow_always`` is no substitute for ``allow_once``,
    because what it opens is not in the log. A refusal for good is still a refusal.
    """
    kinds = ("allow_once",) if granted else ("reject_once", "reject_always")
    for kind in kinds:
        for option in options:
            if option.kind == kind:
                return option.id
    return None


def in_words(stop_reason: Any) -> tuple[Ending, str, str]:
    """Return how a turn ended, why, and the kind of failure, from the ``stopReason`` of its answer."""
    match stop_reason:
        case "end_turn":
            return "completed", "", ""
        case "cancelled":
            return "cancelled", "The agent was told to stop, and stopped.", ""
        case "max_tokens":
            return (
                "failed",
                "The answer was cut off: the model reached its limit of output tokens.",
                "unknown",
            )
        case "max_turn_requests":
            return (
                "failed",
                "The agent stopped at its own limit of requests to the model in one turn.",
                "policy",
            )
        case "refusal":
            return (
                "failed",
                "The agent refused; what was asked is not in its conversation.",
                "invalid_request",
            )
        case _:
            return (
                "failed",
                f"The agent ended its turn for a reason unknown here: {stop_reason!r}.",
                "protocol",
            )


def error_of(error: Any) -> PeerError:
    """Return the error of an answer; some agents send less than the protocol's object."""
    if not isinstance(error, dict):
        return PeerError(INTERNAL_ERROR, str(error))
    code, message = error.get("code"), error.get("message")
    return PeerError(
        code if isinstance(code, int) else INTERNAL_ERROR,
        message if isinstance(message, str) else "an error without a message",
        error.get("data"),
    )


def failure(error: PeerError, *, did_nothing: bool) -> Finished:
    """Return the end of a turn whose prompt was answered with an error.

    ``did_nothing`` says that nothing had been said or done: only then is the same turn safe to repeat.
    """
    details = error.data.get("details") if isinstance(error.data, dict) else None
    reason = error.message if not isinstance(details, str) else f"{error.message}: {details}"
    found = _STATUS.match(details if isinstance(details, str) else error.message)
    status = error.code if 400 <= error.code < 600 else int(found[1]) if found else None
    code = _code(error.code, status)
    retryable = did_nothing and code in ("rate_limited", "unavailable")
    return Finished(status="failed", reason=cut(reason, REASON), code=code, retryable=retryable)


def _code(rpc: int, status: int | None) -> str:
    if rpc == AUTHENTICATION_REQUIRED or status in (401, 403):
        return "authentication"
    if status == 402:
        return "quota"
    if status == 429:
        return "rate_limited"
    if status is not None and status >= 500:
        return "unavailable"
    if status is not None:
        return "invalid_request"
    return "unknown"
