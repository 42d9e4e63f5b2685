"""Wording: how an opening is told, in one place for every surface (invariant O3).

All surfaces tell it from one set of facts, ``OpeningFacts``, which the log keeps with the opening: what was asked of the
engine, what it confirmed, and why. Four outcomes: ``resumed`` (its own memory), ``restored`` (our record of it given back
exactly), ``seeded`` (a reconstruction written from the log) and ``fresh`` (nothing of what came before). A surface has its
own register and its own length; the outcome and the reason, word for word, are the same in all of them.

No sentence here claims that a conversation was restored when it was reconstructed, or promises what was not confirmed; a
reconstruction begins by saying what is gone, or that nothing was there. Going on in its own memory is told quietly, and so
is a beginning; everything else so that it is noticed: a brief softens the loss, it does not undo it. People are not told of
sessions. What could not be found out is told as unknown.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from onward.core.bodies import OpeningFacts, SessionChange

OPENINGS: Final = ("resumed", "restored", "seeded", "fresh")

Surface = Literal["cli", "banner", "chat", "mcp"]
"""A line on a terminal; a banner on a page; a notice in a conversation; text for an agent that asked."""
SURFACES: Final = ("cli", "banner", "chat", "mcp")
Tone = Literal["quiet", "warning"]

_Case = Literal["resumed", "restored", "seeded", "first", "unconfirmed", "beginning", "fresh", "unknown"]

_SAYS: Final[dict[Surface, dict[_Case, str]]] = {
    "cli": {
        "resumed": "The engine went on in the conversation it still holds.",
        "restored": "The engine held nothing of this; the recorded conversation was handed back to it exactly.",
        "seeded": (
            "For the engine the earlier conversation is gone; it was given a written reconstruction from the record{size}."
        ),
        "first": "The engine holds nothing of its own here; it was given a written reconstruction from the record{size}.",
        "unconfirmed": (
            "The engine was asked to go on and did not confirm that; it began with nothing of what came before."
        ),
        "beginning": "A new conversation: nothing came before it.",
        "fresh": "The engine began with nothing of what came before.",
        "unknown": "How the engine got its context is not known.",
    },
    "banner": {
        "resumed": "Goes on in the engine's own memory.",
        "restored": "Handed back to the engine exactly, from the record.",
        "seeded": "The engine's own conversation is gone. It works from a written reconstruction of the record{size}.",
        "first": "The engine holds nothing of its own here. It works from a written reconstruction of the record{size}.",
        "unconfirmed": "Asked to go on, not confirmed: the engine began with nothing of what came before.",
        "beginning": "A new conversation: nothing came before it.",
        "fresh": "The engine began with nothing of what came before.",
        "unknown": "How the engine got its context is not known.",
    },
    "chat": {
        "resumed": "The agent goes on in its own memory of this.",
        "restored": "The agent held nothing of this here; its recorded conversation was handed back to it exactly.",
        "seeded": (
            "The earlier conversation is gone for the agent. It was given a written reconstruction from the record{size}, "
            "and may ask again about what that leaves out."
        ),
        "first": (
            "The agent holds nothing of its own here. It was given a written reconstruction from the record{size}, and may "
            "ask again about what that leaves out."
        ),
        "unconfirmed": (
            "The agent was asked to go on and did not confirm that. It knows nothing of what came before."
        ),
        "beginning": "A new conversation: nothing came before it.",
        "fresh": "The agent knows nothing of what came before.",
        "unknown": "What the agent knows of what came before is not known.",
    },
    "mcp": {
        "resumed": "Opened in the engine's own memory.",
        "restored": "Opened with the engine's recorded conversation handed back exactly.",
        "seeded": (
            "Opened without the earlier conversation, which is gone for the engine; it was given a written reconstruction "
            "from the record{size}."
        ),
        "first": (
            "Opened where the engine holds nothing of its own; it was given a written reconstruction from the record{size}."
        ),
        "unconfirmed": "Opened with nothing of what came before: going on was asked for and not confirmed.",
        "beginning": "Opened a new conversation: nothing came before it.",
        "fresh": "Opened with nothing of what came before.",
        "unknown": "Opened; how the engine got its context is not known.",
    },
}


NEVER_HELD: Final = frozenset(("nothing_to_resume", "cannot_resume"))
"""Branches of a decision in which the engine had no conversation of its own that could be gone: a successor's first turn,
and engines that keep none."""


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """An opening, told for one surface."""

    text: str
    tone: Tone


def tell(facts: OpeningFacts | None, surface: Surface = "cli") -> Telling:
    """Return how a surface tells an opening; None are the facts of one that nobody decided or recorded."""
    case = _case(facts)
    says = _SAYS[surface][case].format(size=_size(facts) if facts else "")
    parts = [says]
    if facts is not None:
        parts.append(facts.reason)
        if facts.fault and case in ("fresh", "unconfirmed"):
            parts.append(f"A reconstruction could not be written: {facts.fault.rstrip('.')}.")
    tone: Tone = "quiet" if case in ("resumed", "beginning") else "warning"
    return Telling(text=" ".join(part for part in parts if part), tone=tone)


def sentence(facts: OpeningFacts | None) -> str:
    """Return an opening as a line on a terminal; nothing at all where no engine began."""
    return tell(facts).text if facts is not None else ""


def document(facts: OpeningFacts | None) -> dict[str, Any]:
    """Return an opening for a program: every fact by name, and the sentence for whoever the program shows it to."""
    told = tell(facts)
    facts = facts or OpeningFacts()
    seed = None
    if facts.given is not None:
        seed = {
            "given": facts.given,
            "scope": facts.scope,
            "rows": facts.rows,
            "oldest": facts.oldest,
            "newest": facts.newest,
        }
    return {
        "opening": facts.outcome,
        "reason": facts.reason,
        "engine": facts.engine or None,
        "branch": facts.branch or None,
        "asked": facts.asked,
        "native": facts.native,
        "seed": seed,
        "fault": facts.fault or None,
        "told": told.text,
        "tone": told.tone,
    }


def facts_of(change: SessionChange) -> OpeningFacts | None:
    """Return the facts of an opening in the log, also of one from before they were kept together; None for another event."""
    if change.change != "opening":
        return None
    if change.facts is not None:
        return change.facts
    known = next((name for name in OPENINGS if name == change.opening), None)
    return OpeningFacts(outcome=known, reason=change.reason or "", engine=change.engine or "")


def _case(facts: OpeningFacts | None) -> _Case:
    if facts is None or facts.outcome is None:
        return "unknown"
    if facts.outcome == "fresh" and facts.asked in ("resume", "restore"):
        return "unconfirmed"
    if facts.outcome == "seeded" and facts.branch in NEVER_HELD:
        return "first"
    if facts.outcome == "fresh" and facts.branch in NEVER_HELD and not facts.fault:
        return "beginning"  # whatever had come before would have been told to it
    return facts.outcome


def _size(facts: OpeningFacts) -> str:
    """Return how large a reconstruction is, for the middle of a sentence."""
    if not facts.rows:
        return ""
    unit = "message" if facts.given == "messages" and facts.scope is None else "entry"
    many = {"message": "messages", "entry": "entries"}
    return f" (1 {unit})" if facts.rows == 1 else f" ({facts.rows} {many[unit]})"


def offline(name: str) -> str:
    """Return how every surface says that nobody answers on a machine: what waits for it waits until somebody does."""
    return f"{name} is offline"


def asleep(name: str, count: int) -> str:
    """Return how one sweep is told that put engines' processes to sleep."""
    many = "1 conversation was" if count == 1 else f"{count} conversations were"
    return f"{many} put to sleep on {name}. The next message wakes each of them."
