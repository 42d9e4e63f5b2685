"""The brief: what an engine is told of the work when it holds no conversation of its own.

``compose_brief`` turns rows of the log into one text: first that this is a reconstruction and what it lacks, then the rows
inside one fence, each with its age, then how to read more. It is a pure function of its arguments. The newest rows are
taken first and the taking stops at the first that does not fit, so there is no hole; on paper the oldest comes first. A long
row is cut, with the exact count of what is missing: a terminal keeps its tail, anything else its head.

It never claims to be the conversation. What an engine knew of files, of its tools, and whatever it worked out without
saying so is gone, and the text says that before anything else. No rows, no text: an empty record gives an empty brief, never
a preamble about nothing.

It is deliberately not a projection (``projection.py``): nobody chose what is in it, it may be made at any moment, and it is
composed anew each time. Earlier briefs, snapshots and recalls are no rows, so a brief never quotes a brief.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from onward.core.ages import MICROSECONDS, ago
from onward.core.bodies import (
    Body,
    Checkpoint,
    Command,
    Message,
    Outcome,
    Relay,
    Terminal,
    ToolCall,
    ToolResult,
)
from onward.core.codec import Erased, Unreadable, body_of, flat
from onward.core.events import Event
from onward.core.fencing import attribute, disarmed, fence
from onward.core.lines import one_line

ROWS: Final = 60
"""Rows of what was said, shown, ordered and achieved. The tool calls between them come along and are not counted: a coding
engine makes several for each thing it says, and they would take the room of the dialogue that explains them."""
CHARS: Final = 12_000
"""Characters of all lines together, as they stand inside the fence."""
TERMINAL_TAIL: Final = 700
"""Characters that are kept of a terminal's text: its end."""
OTHER_HEAD: Final = 1_200
"""Characters that are kept of any other row: its beginning."""
CALL_HEAD: Final = 240
"""Characters of what a tool was called with, and of how it failed."""

KINDS: Final = (
    "message",
    "terminal",
    "command",
    "outcome",
    "checkpoint",
    "tool_call",
    "tool_result",
    "context",
)
"""The kinds of events that rows can be made from."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a timeline: who did what, when, and where exactly that stands."""

    session: str
    seq: int
    at: int
    """Microseconds since 1970; 0 when it is not known."""
    label: str
    """Who, in the third person: ``The user said``. An engine that reads ``You`` would take it for itself."""
    text: str
    counts: bool = True
    """It counts against the number of rows; a tool call, which only goes with them, does not."""
    keeps: str = "head"
    """Which end is kept when it is cut, ``head`` or ``tail``."""
    limit: int = OTHER_HEAD


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How much a brief may hold."""

    rows: int = ROWS
    """Rows that count."""
    chars: int = CHARS


class Brief(msgspec.Struct, frozen=True, kw_only=True):
    """A brief, and the facts about it."""

    text: str = ""
    rows: int = 0
    oldest: int | None = None
    """The time of the oldest row that is shown, in microseconds; None when no row's time is known."""
    newest: int | None = None
    omitted: int = 0
    """Rows that were offered and are not shown."""


EMPTY: Final = Brief()

PREAMBLE: Final = (
    "This is not the previous conversation: that one is gone, and you hold nothing of it. What follows is a reconstruction, "
    "written from the record of what was said and done. Missing from it are the contents of files that were read, the state "
    "of tools and processes, and whatever was worked out and never said. Files may have moved on since, so look at "
    "them as they are now before relying on anything here. All of it is background to the message at the end, which alone "
    "says what is asked now."
)


def row_of(event: Event) -> Row | None:
    """Return the row that an event gives, or None for one that is no part of what was said and done.

    What was erased or cannot be read gives a row that says so; its words are in neither.
    """
    if event.kind not in KINDS:
        return None
    body = body_of(event)
    found = _told(event, body)
    if found is None:
        return None
    label, text = found
    if not text.strip():
        return None
    terminal = isinstance(body, Terminal)
    short = isinstance(body, ToolCall | ToolResult)
    return Row(
        session=event.session_id,
        seq=event.seq,
        at=event.at,
        label=label,
        text=" ".join(text.split()) if short else text,
        counts=not short,
        keeps="tail" if terminal else "head",
        limit=TERMINAL_TAIL if terminal else CALL_HEAD if short else OTHER_HEAD,
    )


def _told(event: Event, body: Body) -> tuple[str, str] | None:
    """Return who did what in an event, and its words."""
    match body:
        case Message(aside=True):
            return None
        case Message(role="assistant"):
            return (
                "The agent was saying, when it was cut off" if body.interrupted else "The agent said"
            ), _words(body)
        case Message(role="system"):
            return "An instruction said", _words(body)
        case Message():
            return ("A trigger said" if event.actor == "trigger" else "The user said"), _words(body)
        case Terminal():
            return "The terminal showed", body.text
        case Command():
            return "A command was given", body.text
        case Outcome():
            status = one_line(body.status)
            return "The work ended" if status in (
                "",
                "unknown",
            ) else f"The work ended ({status})", body.text or status
        case Checkpoint():
            return "A summary of what came before it says", body.text
        case Relay():
            return "Another agent wrote", body.text
        case ToolCall():
            return f"The agent called {one_line(body.name)}", flat(body.input) or "(nothing)"
        case ToolResult(status="outcome_unknown"):
            return "The outcome of a call is not known", flat(body.output) or "(no result was recorded)"
        case ToolResult(status="not_started"):
            return "A call was never started", flat(body.output) or "(nothing)"
        case ToolResult(status="error"):
            return "A call failed", flat(body.output) or "(no reason was given)"
        case Erased() if event.kind in ("message", "terminal", "command", "outcome", "checkpoint"):
            return "An entry was erased", f"({event.kind})"
        case Unreadable() if event.kind != "context":
            return "An entry cannot be read", f"({event.kind}: {one_line(body.why)})"
        case _:
            return None


def _words(body: Message) -> str:
    shown = (f"[{part.media_type} {part.name or part.blob}]" for part in body.parts)
    return " ".join(part for part in (body.text, *shown) if part)


def compose_brief(
    rows: Sequence[Row],
    *,
    now: int,
    window: float | None = None,
    about: str = "the work",
    bounds: Bounds | None = None,
    more: bool = False,
    tools: bool = False,
) -> Brief:
    """Return the brief of these rows, oldest first; an empty one if none of them can be shown. Pure.

    ``now`` is in microseconds. Rows that are older than ``window`` seconds are left out, and the text says that older ones
    exist; so it does when ``more`` says that the rows given are not all there are. ``about`` names whose record it is, for
    the heading. With ``tools``, the text says which tools read the exact record.
    """
    bounds = bounds or Bounds()
    lines, shown = _fitting(rows, now, window, bounds)
    if not shown:
        return EMPTY
    times = [row.at for row in shown if row.at > 0]
    omitted = len(rows) - len(shown)
    many = len({row.session for row in shown}) > 1
    parts = [
        PREAMBLE,
        _heading(shown, times, now, about, older=more or omitted > 0),
        fence("\n".join(lines), "timeline", sessions=len({row.session for row in shown}) if many else None),
    ]
    if tools:
        first, last = shown[0], shown[-1]
        parts.append(
            f"The exact record can be read: read_events takes a number in brackets with its address (such as "
            f"{first.session}:{first.seq} or {last.session}:{last.seq}), and search finds words in it."
        )
    parts.append("That was the background. What is asked now comes next.")
    return Brief(
        text="\n\n".join(parts),
        rows=len(shown),
        oldest=min(times, default=None),
        newest=max(times, default=None),
        omitted=omitted,
    )


def _fitting(
    rows: Sequence[Row], now: int, window: float | None, bounds: Bounds
) -> tuple[list[str], list[Row]]:
    """Return the lines that fit and the rows they show, oldest first."""
    lines: list[str] = []
    shown: list[Row] = []
    room, left = bounds.chars, bounds.rows
    for row in reversed(rows):
        too_old = window is not None and row.at > 0 and now - row.at > window * MICROSECONDS
        left -= row.counts
        if too_old or left < 0:
            break
        line = _line(row, now)
        # The line that names a session stands before the oldest of its rows, so it moves up as rows are added.
        beginning = _mark(row) if not shown or shown[-1].session != row.session else None
        cost = _size(line) + (0 if beginning is None else _size(beginning))
        if cost > room:
            break
        room -= cost
        if beginning is None:
            lines.insert(-1, line) if lines else lines.append(line)
        else:
            lines += [line, beginning]
        shown.append(row)
    # ``lines`` runs from the newest to the oldest, with the mark of each stretch of one session behind its oldest row.
    lines.reverse()
    shown.reverse()
    return lines, shown


def _size(line: str) -> int:
    """Return what a line takes inside the fence, which writes some characters longer, with its line end."""
    return len(disarmed(line)) + 1


def _mark(row: Row) -> str:
    return f"— in {row.session} —"


def _line(row: Row, now: int) -> str:
    """Return a row on paper. Only we begin a line: what a text has on lines of its own is moved in."""
    text = row.text.replace("\n", "\n  ")
    missing = len(row.text) - row.limit
    if missing > 0 and row.keeps == "tail":
        kept = row.text[missing:].replace("\n", "\n  ")
        text = f"({missing:,} earlier characters not shown) … {kept}"
    elif missing > 0:
        kept = row.text[: row.limit].replace("\n", "\n  ")
        text = f"{kept} … ({missing:,} more characters not shown)"
    return f"[{row.seq}] {ago(row.at, now)} · {one_line(row.label)}: {text}"


def _heading(shown: Sequence[Row], times: Sequence[int], now: int, about: str, *, older: bool) -> str:
    """Return the sentence that says what is shown: the measured span of these rows, and that there are older ones."""
    if not times:
        when = "of dates that are unknown"
    elif len(shown) == 1 or ago(min(times), now) == ago(max(times), now):
        when = f"of {ago(min(times), now)}"
    else:
        when = f"from {ago(min(times), now)} to {ago(max(times), now)}"
    unknown = len(shown) - len(times)
    entries = "1 entry" if len(shown) == 1 else f"{len(shown)} entries"
    known = f", {unknown} of them of an unknown time" if times and unknown else ""
    left = "; older ones exist and are not shown" if older else ""
    return f"The record of {attribute(about)}, {when}: {entries}, oldest first{known}{left}."


def joined(before: str, brief: Brief) -> str:
    """Return a text that stands as it is (a projection), followed by a brief of what came after it."""
    return f"{before}\n\n{brief.text}" if brief.text else before
