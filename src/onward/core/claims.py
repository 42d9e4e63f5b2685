"""Claims: whether what a handoff states is borne out by the events that it names.

A fact or a decision is *verified* when an event that it cites holds its words, and that event is something other than the
agent's own account: what a person or a trigger said, what a tool answered, or a tool call that was answered without an
error. Words in “quotation marks” have to stand there as they are; of other text, nearly every word has to stand there.
Everything else is *unverified*, which does not mean false. Whether a later event contradicts or replaces a claim is asked
elsewhere, see ``superseding.py``.

It judges by words alone. It is deliberately not an opinion on what is true, and it never changes what a person wrote.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from onward.core import words
from onward.core.bodies import Body, Message, ToolCall, ToolResult
from onward.core.codec import body_of
from onward.core.events import Event
from onward.core.lines import said
from onward.core.stemming import stem

HELD: Final = 0.8
"""The share of a claim's words that an event has to have, where nothing is quoted."""
SHOWN: Final = 160
"""Characters of a claim in a warning."""

Place = tuple[str, int]
"""Session and number of an event."""

_MARK: Final = re.compile(r"\[(?:(ses_[0-9A-Za-z]+):)?(\d{1,15})(?:-(\d{1,15}))?\]")
_QUOTED: Final = re.compile(r"“([^“”]+)”")
_SUPERSEDED: Final = re.compile(r" \(superseded by \[[^\]]*\]\)$")


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One fact or decision of a handoff, and what the log says about it."""

    heading: str
    """``established_facts`` or ``decisions``."""
    text: str
    cites: tuple[str, ...] = ()
    """The events that it rests on, ``ses_…:12``: those it names, else those among the sources that hold its words."""
    verified: bool = False
    superseded_by: str | None = None
    """A later event that contradicts or replaces it, ``ses_…:41``."""


def places(text: str, session: str) -> list[tuple[int, int, tuple[str, int, int]]]:
    """Return where a text names events in brackets: start and end of each mark, with session, first and last."""
    return [
        (m.start(), m.end(), (m[1] or session, int(m[2]), int(m[3] or m[2]))) for m in _MARK.finditer(text)
    ]


def marked(text: str, session: str) -> list[tuple[str, int, int]]:
    """Return the events that a text names in brackets, ``[12]``, ``[12-18]`` or ``[ses_…:12]``: session, first and last."""
    out = []
    for match in _MARK.finditer(_SUPERSEDED.sub("", text)):
        first = int(match[2])
        out.append((match[1] or session, first, int(match[3] or first)))
    return out


def statement(text: str) -> str:
    """Return what a claim says by itself: its quoted words, or all of it without the marks."""
    return " ".join(_QUOTED.findall(text)) or plain(text)


def plain(text: str) -> str:
    """Return a claim without the events that it names and without the mark of what supersedes it."""
    return " ".join(_MARK.sub(" ", _SUPERSEDED.sub("", text)).split())


def superseded(text: str, by: str) -> str:
    """Return a claim with the mark that a later event replaces it. Marking again replaces the mark."""
    return f"{_SUPERSEDED.sub('', text)} (superseded by [{by}])"


def judged(
    heading: str, text: str, session: str, events: Mapping[Place, Event], among: Sequence[Event]
) -> Claim:
    """Return a claim with what it rests on.

    ``events`` are those that were loaded, ``among`` the events of the handoff's sources, where a claim names none itself.
    """
    named = [
        event
        for name, first, last in marked(text, session)
        for seq in range(first, min(last, first + 99) + 1)
        if (event := events.get((name, seq))) is not None
    ]
    answered = frozenset(
        (event.session_id, body.call)
        for event in events.values()
        if event.kind == "tool_result"
        and isinstance(body := body_of(event), ToolResult)
        and body.status == "ok"
    )
    quotes = _QUOTED.findall(text)
    wanted = frozenset(_telling(plain(text)))
    cited = named or [event for event in among if _holds(event, quotes, wanted)]
    evidence = [event for event in cited if _is_evidence(event, answered)]
    verified = bool(evidence) and (
        all(any(_holds(event, [quote], wanted) for event in evidence) for quote in quotes)
        if quotes
        else any(_holds(event, [], wanted) for event in evidence)
    )
    places = dict.fromkeys(f"{event.session_id}:{event.seq}" for event in cited)
    return Claim(heading=heading, text=text, cites=tuple(places), verified=verified)


def _is_evidence(event: Event, answered: frozenset[tuple[str, str]]) -> bool:
    """Whether an event is more than the agent's own account."""
    body: Body = body_of(event)
    match body:
        case Message():
            return event.actor in ("user", "trigger") and not body.aside
        case ToolResult():
            return not body.closer
        case ToolCall():
            return (event.session_id, body.call) in answered
        case _:
            return False


def _holds(event: Event, quotes: Sequence[str], wanted: frozenset[str]) -> bool:
    """Whether an event has the quoted words as they are, or else nearly all of the wanted ones."""
    text = said(event)
    if quotes:
        line = " ".join(text.split())
        return any(" ".join(quote.split()) in line for quote in quotes)
    return bool(wanted) and len(wanted & frozenset(_telling(text))) >= HELD * len(wanted)


def _telling(text: str) -> list[str]:
    """Return the stems of the words of a text that tell something."""
    return [stem(term) for term in words.cut(text) if term not in words.STOP_WORDS]
