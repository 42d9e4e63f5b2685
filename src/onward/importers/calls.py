"""Calls and results, paired by id although provider ids repeat.

Some providers count their call ids from one in every turn. Within a session our id of a call is the provider's, and a
repeated one gets a suffix made from the record that repeats it. A session with more calls than can be remembered from
import to import gives every later call its suffix. A result belongs to the newest open call of its provider id; one
without a call keeps that id, and its event.

A call that never gets a result is closed where the conversation moved on, or at the end of what was written, with
``outcome_unknown``: it may have had its effect (transcript invariant T1). A real result that comes later is one more event.
"""

from __future__ import annotations

import hashlib
from typing import Final

from onward.importers.contract import Draft, Strand, body

REMEMBERED: Final = 4_000
"""Calls of one strand whose ids are remembered from import to import."""


def short_digest(*parts: str) -> str:
    """Return ten hexadecimal digits that stand for these parts."""
    return hashlib.sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:10]


def open_call(strand: Strand, provider: str, name: str, ident: str) -> str:
    """Take a new call into the book and return our id for it."""
    ours = provider or f"call~{short_digest(ident)}"
    key = short_digest(ours)
    if older := strand.open.pop(provider, None):
        strand.open[f"{provider}\x00{older[0]}"] = (
            older  # still unanswered, and only a closer can answer it now
        )
        ours = f"{ours}~{short_digest(ident)[:6]}"
    elif strand.used is None or key in strand.used:
        ours = f"{ours}~{short_digest(ident)[:6]}"
    elif len(strand.used) >= REMEMBERED:
        strand.used = None
    else:
        strand.used.add(key)
    if provider in strand.early:
        strand.early.discard(provider)  # its result was written before it
    else:
        strand.open[provider] = [ours, name]
    return ours


def take_result(strand: Strand, provider: str) -> tuple[str, str | None]:
    """Close the call that this result answers; return our id of the call and the tool's name, if known."""
    found = strand.open.pop(provider, None) or strand.closed.pop(provider, None)
    if found is not None:
        return found[0], found[1]
    if strand.used is not None and short_digest(provider) not in strand.used:
        strand.early.add(provider)
    return provider, None


def closers(strand: Strand, at: int, *, only: set[str] | None = None) -> list[Draft]:
    """Return a closing result for every open call (or those in ``only``), and close them."""
    drafts: list[Draft] = []
    for provider in [p for p in strand.open if only is None or p in only]:
        ours, name = strand.closed[provider] = strand.open.pop(provider)
        drafts.append(
            Draft(
                strand=strand.key,
                at=at,
                kind="tool_result",
                actor="system",
                body=body(
                    {
                        "call": ours,
                        "output": "No result was recorded for this call. It may or may not have taken effect.",
                        "status": "outcome_unknown",
                        "name": name,
                        "provider_call": provider.partition("\x00")[0] or None,
                        "closer": True,
                    }
                ),
                ident=f"closer\x00{strand.key}\x00{ours}",
            )
        )
    return drafts
