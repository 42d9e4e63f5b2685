"""Context pressure: how full the model's window was when it was last asked, and what to say about it.

The meter reads measured usage and nothing else: the prompt of the newest model request, over the window of that model.
Before a first measurement there is no reading, and a fresh successor has none (invariant C8); an estimate would look the
same and be wrong in the cases that matter (tool definitions, images, a provider's own wrapping).

It says two things, each once a session: at 70 % to look for a boundary, at 85 % to continue before answering more. It is
deliberately not a trigger: nothing is summarised or continued by itself, since an automatic summary loses in silence.
"""

from __future__ import annotations

from typing import Final

import msgspec

from onward.core import ids as make
from onward.core.bodies import Notice, Usage

LOOK: Final = 0.70
"""The share of the window from which a good place to continue should be looked for."""
ACT: Final = 0.85
"""The share from which the work should be continued before anything more is answered."""
THRESHOLDS: Final = (LOOK, ACT)


class Pressure(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of the meter."""

    tokens: int
    """The prompt of the newest model request."""
    window: int
    """The context window of the model, in tokens."""
    share: float
    """``tokens / window``, to three places. More than 1 where a provider counts beyond its window."""


def reading(usage: Usage | None, *, window: int | None = None, one_request: bool = False) -> Pressure | None:
    """Return what the usage of a turn says about the window, or None where it was not measured.

    ``window`` is used where the usage names none. ``one_request`` says that the turn made a single model request: then its
    sum of prompts is that request's prompt.
    """
    if usage is None:
        return None
    tokens = usage.context_tokens
    if tokens is None and one_request:
        tokens = usage.input_tokens
    size = usage.window or window
    if tokens is None or tokens < 0 or not size or size < 1:
        return None
    return Pressure(tokens=tokens, window=size, share=round(tokens / size, 3))


def reached(found: Pressure) -> float | None:
    """Return the highest threshold that a reading has reached, or None below the first."""
    return max((t for t in THRESHOLDS if found.tokens >= t * found.window), default=None)


def notice(found: Pressure, threshold: float) -> Notice:
    """Return what is said when a threshold was reached: a summary for people, and the same with its reason for the agent."""
    full = f"{found.share:.0%} of the context window is used ({found.tokens:,} of {found.window:,} tokens)"
    if threshold >= ACT:
        return Notice(
            summary=f"The context is {found.share:.0%} full: continue in a fresh session before answering more.",
            text=f"{full}. Continue in a fresh session before answering more: cite the events that matter, because what "
            "does not fit any more may be lost to the model. Nothing is summarised by itself.",
        )
    return Notice(
        summary=f"The context is {found.share:.0%} full: look for a good place to continue.",
        text=f"{full}. Look for a boundary (a finished step, a change of subject) at which the work can continue in a "
        "fresh session. There is no need to stop in the middle of something.",
    )


def notice_id(session_id: str, created_at: int, threshold: float) -> str:
    """Return the id of the notice of a threshold in a session: it has one, so the log holds it once (invariant L3)."""
    return make.derived_id(make.EVENT, created_at, "pressure", session_id, round(threshold * 100))
