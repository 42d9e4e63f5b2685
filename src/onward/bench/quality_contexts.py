"""The contexts that are compared: what a model is given before a question about earlier work.

Five of them, made from the same conversation under the same budget (the full transcript has none):

``cold``        nothing
``last``        the newest messages and tool calls, as many as fit, stopping at the first that does not
``summary``     a rolling summary by the same model: summary so far and next part give the new summary
``projection``  what Onward compiles: a draft for the purpose, then a continuation with the question as the newest message
``full``        the whole conversation

The budget holds for context and question together, counted by one counter. Except for the projection, which is what it is,
events are lines in the shape ``[seq] who: text``, which is also the shape of the lines in a projection: what differs is
which text is given, not how it is dressed. A draft is made for what the work is about and sees the question as anybody's
newest message, exactly as ``onward draft`` and ``onward continue`` do; nothing tells it what the answer is or where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from onward.bench.quality_scenes import Fact, Scene
from onward.bench.quality_talk import asked, opened
from onward.core.bodies import ProjectionContext
from onward.core.budget import MESSAGE_OVERHEAD, Counter
from onward.core.codec import body_of
from onward.core.events import Event
from onward.core.lines import whole
from onward.errors import BudgetTooSmall
from onward.library import Onward

CONDITIONS: Final = ("cold", "last", "summary", "projection", "full")

CHUNK: Final = 1400
"""Tokens of conversation that a summary takes up at a time; with summary and answer they stay well within 4,096."""
SUMMARISE: Final = "Summarise the conversation in a few sentences. Keep names, numbers, dates and files."
"""The control text under which summaries are written."""

Write = Callable[[str], str]
"""Gives a model's answer to a text under ``SUMMARISE``."""


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A successor that waits for its first run."""

    log: Onward
    successor: str
    text: str
    """The projection."""
    included: bool
    """Whether the event that answers is in the projection, by its manifest."""


def least_room(counter: Counter, budget: int, scene: Scene) -> int:
    """Return the tokens that the longest question of a scene leaves of the budget for the context.

    All questions of a scene then share one context, which the model reads once.
    """
    return budget - MESSAGE_OVERHEAD - max(counter.count(fact.asks) for fact in scene.facts)


def newest(events: Sequence[Event], counter: Counter, tokens: int) -> str:
    """Return the lines of the newest events, as many as fit."""
    kept: list[str] = []
    for event in reversed(events):
        longer = [whole(event), *kept]
        if counter.count("\n".join(longer)) > tokens:
            break
        kept = longer
    return "\n".join(kept)


def everything(events: Sequence[Event]) -> str:
    """Return the lines of all events."""
    return "\n".join(whole(event) for event in events)


def rolled(events: Sequence[Event], counter: Counter, tokens: int, write: Write) -> str:
    """Return a rolling summary of at most this many tokens; what is longer is cut at its end."""
    summary = ""
    for part in parts(events, counter):
        before = f"Summary so far:\n{summary}\n\n" if summary else ""
        summary = cut(write(f"{before}Conversation:\n{part}"), counter, tokens)
    return summary


def parts(events: Sequence[Event], counter: Counter) -> list[str]:
    """Return a conversation in parts of at most ``CHUNK`` tokens, none of which cuts an event."""
    out: list[list[str]] = [[]]
    for event in events:
        line = whole(event)
        if out[-1] and counter.count("\n".join([*out[-1], line])) > CHUNK:
            out.append([])
        out[-1].append(line)
    return ["\n".join(lines) for lines in out]


def cut(text: str, counter: Counter, tokens: int) -> str:
    """Return a text, or as many of its first words as fit."""
    words = text.split(" ")
    low, high = 0, len(words)
    while low < high:  # the longest beginning that fits; a longer one never costs less
        middle = (low + high + 1) // 2
        if counter.count(" ".join(words[:middle])) <= tokens:
            low = middle
        else:
            high = middle - 1
    return " ".join(words[:low])


def compiled(scene: Scene, fact: Fact, counter: Counter, budget: int) -> Compiled | None:
    """Draft a handoff for the topic of a question and continue with the question, in a store of its own.

    None where what is never left out does not fit the budget.
    """
    log, written = opened(scene, counter)
    asked(log, written.session, fact.asks)
    try:
        draft = log.draft(written.session, scene.purposes[fact.topic], budget=budget)
        made = log.continue_session(written.session, draft, budget=budget)
    except BudgetTooSmall:
        log.close()
        return None
    evidence = written.evidence[fact.asks]
    included = any(
        piece.session == written.session and piece.from_seq <= evidence <= piece.to_seq
        for piece in log.manifest(made.successor).included
    )
    begun = log.read(made.successor, limit=50).events
    projection = next(body for event in begun if isinstance(body := body_of(event), ProjectionContext))
    return Compiled(log=log, successor=made.successor, text=projection.text, included=included)
