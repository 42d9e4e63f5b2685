"""Opening: which memory an engine wakes up with, decided before anything is read or started.

A conversation belongs to the log. What an engine holds of it is an optimisation, and this is where it is judged whether to
rely on it: ``decide_opening`` is pure, asks its questions in a fixed order, and the first that applies is the answer. Every
answer has a reason of its own, written for a person (who is not expected to know what a session is), and says what the
engine is given in place of a memory (invariant O1). Only an explicit clean slate may give nothing; a branch that is added
later gets the reconstruction by writing nothing at all, because that is the default of ``_fresh``.

What is decided is a wish. The engine may turn out not to hold what it should, so a decision to resume also says what takes
its place then; and what is reported is never this, but what the engine confirmed (O2, see ``wording``).
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from onward.core.ages import MICROSECONDS, span
from onward.errors import InvalidInput

Mode = Literal["resume", "restore", "fresh"]
"""Its own memory; our record of it, given back exactly; neither."""
Seed = Literal["record"]
"""Where the reconstruction comes from: the log. Which part of it is found when it is read, see ``service.briefing``."""
Asked = Literal["auto", "replay", "native", "none"]
"""What a caller may ask for: decide; never its own memory; only its own memory; a clean slate."""
Memory = Literal["engine", "platform"]
"""Whose memory comes first where both would do: what the engine holds, or what the log holds."""
Branch = Literal[
    "clean_slate",
    "replay",
    "cannot_resume",
    "nothing_to_resume",
    "native",
    "other_engine",
    "ended_in_error",
    "activity_unknown",
    "other_machine",
    "past_window",
    "platform_first",
    "platform_restore",
    "restore",
    "resume",
]

MEMORIES: Final = ("engine", "platform")
RESUME_WINDOW: Final = 4 * 24 * 3600.0
"""Seconds after which an engine's own memory is not relied on any more: long enough for a long weekend."""
BROKEN: Final = frozenset(("failed", "interrupted"))
"""How a run ends that leaves the engine's own memory in doubt: it failed, or was cut off."""
_UNITS: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


class Able(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be known of the engine that is about to run."""

    name: str
    memory: bool = False
    """It keeps a conversation of its own."""
    restorable: bool = False
    """It can be given our record of that conversation, and we have one."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation that the engine should still hold, by the engine's own id."""

    native_id: str
    machine: str | None = None
    """Where it is kept; None where that was not written down, which counts as here."""


class Previous(msgspec.Struct, frozen=True, kw_only=True):
    """The turn before this one, whichever engine took it."""

    engine: str
    state: str
    """How it ended, one of the run states."""
    active_at: int | None = None
    """When something last happened in it, in microseconds; None when nobody knows."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The dials."""

    memory: Memory = "engine"
    window: float | None = RESUME_WINDOW
    """Seconds; None for ever."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine is to wake up with."""

    branch: Branch
    mode: Mode
    reason: str
    """Why, in a sentence for a person."""
    seed: Seed | None
    """What it is given where it turns out to hold nothing; None only for a clean slate."""
    native_id: str | None = None
    """The engine's own conversation to go on in; None whenever it begins anew."""
    instead: Literal["restore", "seed", "fail"] | None = None
    """What takes the place of ``native_id`` if the engine does not confirm it; None where nothing is asked of it."""


def decide_opening(
    engine: Able,
    held: Held | None,
    previous: Previous | None,
    machine: str,
    policy: Policy,
    now: int,
    *,
    asked: Asked = "auto",
) -> Decision:
    """Return what an engine should wake up with, and why. Pure; ``now`` is in microseconds.

    The order is that of the design: clean slate, engine cannot resume, nothing to resume, other engine, previous ended in
    error, last activity unknown, other machine and not restorable, past the window, resume. What a caller asks for by name
    (``replay``, ``native``) comes before what would be judged.
    """
    if asked == "none":
        return _fresh("clean_slate", "A clean slate was asked for.", seed=None)
    if asked == "replay":
        return _fresh(
            "replay", "It was asked for that the record be read out, whatever the engine still holds."
        )
    if not engine.memory:
        return _fresh("cannot_resume", f"The engine {engine.name} keeps no conversation of its own.")
    if held is None:
        return _fresh("nothing_to_resume", f"There is nothing yet that {engine.name} could go on with.")
    if asked == "native":
        return Decision(
            branch="native",
            mode="resume",
            reason="It was asked for that the engine go on in its own memory, or not at all.",
            seed="record",
            native_id=held.native_id,
            instead="fail",
        )
    if previous is not None and previous.engine != engine.name:
        return _fresh(
            "other_engine",
            f"The turn before this one was taken by {previous.engine}, and {engine.name} knows nothing of it.",
        )
    if previous is not None and previous.state in BROKEN:
        how = "failed" if previous.state == "failed" else "was cut off in the middle"
        return _fresh(
            "ended_in_error",
            f"The turn before this one {how}, so what the engine holds of it cannot be relied on.",
        )
    if previous is None or previous.active_at is None or previous.active_at <= 0:
        return _fresh("activity_unknown", "It is not known when this was last worked on.")
    elsewhere = held.machine is not None and held.machine != machine
    if elsewhere and not engine.restorable:
        return _fresh(
            "other_machine", f"The engine's own memory of this is on another machine, {held.machine}."
        )
    age = max(0, now - previous.active_at)
    if policy.window is not None and age > policy.window * MICROSECONDS:
        return _fresh(
            "past_window",
            f"This was last worked on {span(age)} ago; what an engine holds itself is relied on for "
            f"{told_window(policy.window)}.",
        )
    if policy.memory == "platform":
        first = "The record of the platform comes first, as it is set"
        if engine.restorable:
            return _restore("platform_restore", held, f"{first}: it is given back to the engine.")
        return _fresh("platform_first", f"{first}: what the engine holds itself is left aside.")
    if elsewhere:
        return _restore(
            "restore",
            held,
            f"The engine's own memory of this is on another machine, {held.machine}; its record is here.",
        )
    return Decision(
        branch="resume",
        mode="resume",
        reason=f"This was last worked on {span(age)} ago, and the engine should still hold it.",
        seed="record",
        native_id=held.native_id,
        instead="restore" if engine.restorable else "seed",
    )


def _fresh(branch: Branch, reason: str, *, seed: Seed | None = "record") -> Decision:
    """Return an answer that asks nothing of the engine's memory. Declining the seed has to be written out."""
    return Decision(branch=branch, mode="fresh", reason=reason, seed=seed)


def _restore(branch: Branch, held: Held, reason: str) -> Decision:
    return Decision(
        branch=branch, mode="restore", reason=reason, seed="record", native_id=held.native_id, instead="seed"
    )


def parse_window(text: str) -> float | None:
    """Return a resume window in seconds, None for ever.

    Read are ``4d``, ``36h``, ``90m``, ``30s``, plain seconds, and ``unlimited``. Raises InvalidInput for anything else.
    """
    told = text.strip().lower()
    if told in ("unlimited", "none", "forever"):
        return None
    digits = told.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = told[len(digits) :] or "s"
    try:
        number = float(digits)
    except ValueError:
        number = -1.0
    if unit not in _UNITS or not 0 <= number < 1e12:
        raise InvalidInput(
            what=f"the window {text!r}",
            why="it is a number with s, m, h, d or w, such as 4d or 36h, or unlimited",
        )
    return number * _UNITS[unit]


def told_window(window: float | None) -> str:
    """Return a window as a person says it."""
    return "any time" if window is None else span(round(window * MICROSECONDS))
