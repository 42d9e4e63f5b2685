"""Wording: how an opening is told, in one place for every surface (invariant O3).

Four outcomes, always as confirmed by whoever drove the engine: ``resumed`` (its own memory), ``restored`` (our log given
back to it exactly), ``seeded`` (a reconstruction written from our log) and ``fresh`` (nothing of what came before). No
sentence here claims that a conversation was restored when it was reconstructed, and none promises what was not confirmed.
"""

from __future__ import annotations

from typing import Final

OPENINGS: Final = ("resumed", "restored", "seeded", "fresh")

_TOLD: Final = {
    "resumed": "The engine went on in the conversation it still holds.",
    "restored": "The engine held nothing of this; the recorded conversation was handed back to it exactly.",
    "seeded": "The engine held nothing of this; it was given a written reconstruction from the log.",
    "fresh": "The engine began with nothing of what came before.",
}


def told(opening: str, reason: str = "") -> str:
    """Return the sentence about an opening, with the reason if there is one."""
    sentence = _TOLD.get(opening, "How the engine got its context is not known.")
    return f"{sentence} {reason}".strip()


def offline(name: str) -> str:
    """Return how every surface says that nobody answers on a machine: what waits for it waits until somebody does."""
    return f"{name} is offline"
