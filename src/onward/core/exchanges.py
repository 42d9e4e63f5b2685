"""Exchanges: recent history cut where somebody spoke, and shown in as much room as there is.

An exchange begins with what a person or trigger said and holds everything up to the next time. It is never cut between a
call and its result: when someone speaks while a tool works, the exchange goes on until the result is there.

It is shown in the fullest of three forms that fits:

- ``in_full``: every event a line of its own, long tool traffic as a pointer;
- ``folded``: what was said whole, each stretch of traffic between as one line with its numbers, tools and size. An agent
  that worked alone for an hour leaves a thousand calls between two sentences, and the sentences are what matters;
- ``newest_lines``: the last lines of the folded form, for when not even that fits. They stop at the first that does not
  fit, so there is no hole.

Nothing here decides which exchanges are shown: that is ``projection.py``.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from onward.core.bodies import Body, Message, ToolCall
from onward.core.codec import body_of, call_of
from onward.core.events import Event
from onward.core.lines import brief_line, is_dialogue, one_line, said

NAMED_TOOLS: Final = 5
"""Tools that a folded line names, the most used first."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an exchange and the events that it stands for."""

    text: str
    events: tuple[Event, ...]
    pointers: int
    """How many of the events are not whole in it."""
    dialogue: bool = False
    """Whether it is what somebody said."""


def exchanges(events: Sequence[Event]) -> list[tuple[Event, ...]]:
    """Cut a history, oldest first, into exchanges. Sessions are never mixed in one."""
    out: list[list[Event]] = []
    ends = _ends_of_calls(events)
    until = -1
    for n, event in enumerate(events):
        other = not out or out[-1][0].session_id != event.session_id
        if other or (n > until and _opens(event)):
            out.append([])
        out[-1].append(event)
        until = max(until, ends.get(n, -1))
    return [tuple(group) for group in out]


def _opens(event: Event) -> bool:
    """Whether somebody begins to speak here. Harness text that an engine filed under the user does not count."""
    if event.kind != "message" or event.actor not in ("user", "trigger"):
        return False
    body = body_of(event)
    return not (isinstance(body, Message) and body.aside)


def _ends_of_calls(events: Sequence[Event]) -> dict[int, int]:
    """Return where each call finds its result: the first one of its id behind it and before the id is used again."""
    open_calls: dict[tuple[str, str], int] = {}
    ends: dict[int, int] = {}
    for n, event in enumerate(events):
        call, _ = call_of(event.kind, event.body)
        if not call:
            continue
        if event.kind == "tool_call":
            open_calls[event.session_id, call] = n
        elif (begun := open_calls.pop((event.session_id, call), None)) is not None:
            ends[begun] = n
    return ends


def in_full(events: Sequence[Event]) -> list[Line]:
    """Return an exchange with a line for every event."""
    out = []
    for event in events:
        text, whole = brief_line(event)
        out.append(
            Line(text=text, events=(event,), pointers=0 if whole else 1, dialogue=is_dialogue(body_of(event)))
        )
    return out


def folded(events: Sequence[Event]) -> list[Line]:
    """Return an exchange with what was said, and one line for each stretch of two or more events between."""
    out: list[Line] = []
    stretch: list[tuple[Event, Body]] = []

    def close() -> None:
        if len(stretch) == 1:
            out.extend(in_full([stretch[0][0]]))
        elif stretch:
            out.append(_folded_line(stretch))
        stretch.clear()

    for event in events:
        body = body_of(event)
        if is_dialogue(body):
            close()
            out.extend(in_full([event]))
        else:
            stretch.append((event, body))
    close()
    return out


def _folded_line(stretch: Sequence[tuple[Event, Body]]) -> Line:
    """Return ``[13-312] 150 calls (Read 100, Bash 50), 150 other events: 81,204 characters, not shown``."""
    first, last = stretch[0][0].seq, stretch[-1][0].seq
    tools = Tally(one_line(body.name) for _, body in stretch if isinstance(body, ToolCall))
    ranked = sorted(tools.items(), key=lambda item: (-item[1], item[0]))
    names = [f"{name} {count}" for name, count in ranked[:NAMED_TOOLS]]
    if len(ranked) > NAMED_TOOLS:
        names.append(f"{len(ranked) - NAMED_TOOLS} other tools")
    calls = tools.total()
    told = [f"{calls} calls ({', '.join(names)})"] if calls else []
    if len(stretch) > calls:
        told.append(f"{len(stretch) - calls} {'other ' if calls else ''}events")
    size = sum(len(said(event, body)) for event, body in stretch)
    text = f"[{first}-{last}] {', '.join(told)}: {size:,} characters, not shown"
    return Line(text=text, events=tuple(event for event, _ in stretch), pointers=len(stretch))


def newest_lines(
    lines: Sequence[Line], room: int, cost: Callable[[str], int], whole_cost: Callable[[Sequence[Line]], int]
) -> list[Line]:
    """Return as many of the last lines as fit, stopping at the first that does not.

    ``cost`` prices a line, ``whole_cost`` the lines with all that goes around them: the second has the last word.
    """
    kept: list[Line] = []
    left = room
    for line in reversed(lines):
        left -= cost(line.text + "\n")
        if left < 0:
            break
        kept.insert(0, line)
    while kept and whole_cost(kept) > room:
        kept.pop(0)
    return kept
