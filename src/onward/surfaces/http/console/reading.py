"""Reading: from events to the entries of a timeline, in order, every event once. Pure: the time is passed in.

A tool call and what came of it are one entry. Which result belongs to which call does not depend on what else is looked at,
so a page that grows piece by piece is the same as one that is read at once. How a kind looks is said in ``kinds``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onward.core import bodies
from onward.core.codec import body_of
from onward.core.events import Event
from onward.surfaces.http.console import kinds, words
from onward.surfaces.http.console.views import Answered, Call, Entry, Names, Read, Result


def read(events: Sequence[Event]) -> list[Read]:
    """Return events with their bodies; one that cannot be read has a body that says so."""
    return [(event, body_of(event)) for event in events]


def mentioned(found: Sequence[Read]) -> set[str]:
    """Return the sessions that these events name: whoever shows them looks up what they are called."""
    out: set[str] = set()
    for _, body in found:
        match body:
            case bodies.Message(continued_from=origin) if origin is not None:
                out.add(origin.session)
            case bodies.Relay(sender=sender):
                out.add(sender)
            case bodies.Recall(references=references):
                out.update(ref.source for ref in references)
            case bodies.SessionChange(other=other) if other:
                out.add(other)
    return out


def paired(found: Sequence[Read]) -> dict[int, int]:
    """Return the results among these events by their numbers, each with the number of the call that it answers.

    That is the nearest call of its id before it, so which other events are looked at makes no difference.
    """
    newest: dict[str, int] = {}
    pairs: dict[int, int] = {}
    for event, body in found:
        if isinstance(body, bodies.ToolCall):
            newest[body.call] = event.seq
        elif isinstance(body, bodies.ToolResult) and body.call in newest:
            pairs[event.seq] = newest[body.call]
    return pairs


def outside(found: Sequence[Read]) -> tuple[set[str], set[str]]:
    """Return the calls whose results are not among these events, and those of results whose calls are not."""
    pairs = paired(found)
    answered = set(pairs.values())
    calls = {b.call for e, b in found if isinstance(b, bodies.ToolCall) and e.seq not in answered}
    results = {b.call for e, b in found if isinstance(b, bodies.ToolResult) and e.seq not in pairs}
    return calls, results


def entries(
    found: Sequence[Read],
    now: int,
    *,
    names: Names | None = None,
    before: Mapping[str, Read] | None = None,
    behind: Mapping[str, Read] | None = None,
    waiting: frozenset[str] = frozenset(),
) -> list[Entry]:
    """Return events as entries, in order. A result is folded into its call where both are among them.

    ``before`` are calls further up by their id, ``behind`` results further down, ``waiting`` calls that have no result yet.
    """
    pairs = paired(found)
    results: dict[int, list[tuple[Event, bodies.ToolResult]]] = {}
    newest: dict[str, int] = {}
    for event, body in found:
        if isinstance(body, bodies.ToolResult) and event.seq in pairs:
            results.setdefault(pairs[event.seq], []).append((event, body))
        elif isinstance(body, bodies.ToolCall):
            newest[body.call] = event.seq
    out = []
    for event, body in found:
        if isinstance(body, bodies.ToolCall):
            own = results.get(event.seq, [])
            last = newest[body.call] == event.seq
            further = (behind or {}).get(body.call) if last else None
            call = _call(body, own, further, last and body.call in waiting)
            out.append(_entry(event, "call", call, "Agent", "tool", now, upto=own[-1][0].seq if own else 0))
        elif isinstance(body, bodies.ToolResult):
            if event.seq not in pairs:
                answered = _answered(event, body, (before or {}).get(body.call))
                out.append(_entry(event, "result", answered, "Tool", "tool", now))
        else:
            view, shown, who, tone = kinds.view_of(event, body, names or {})
            out.append(_entry(event, view, shown, who, tone, now))
    return out


def _entry(event: Event, view: str, body: Any, who: str, tone: str, now: int, *, upto: int = 0) -> Entry:
    return Entry(
        session=event.session_id,
        seq=event.seq,
        upto=upto or event.seq,
        id=event.id,
        kind=event.kind,
        view=view,
        who=who,
        tone=tone,
        when=words.when(event.at, now),
        run=event.run_id,
        body=body,
    )


def _call(
    body: bodies.ToolCall,
    own: Sequence[tuple[Event, bodies.ToolResult]],
    behind: Read | None,
    waits: bool,
) -> Call:
    results = [_result(one, result, late=number > 0) for number, (one, result) in enumerate(own)]
    if not results and behind is not None and isinstance(behind[1], bodies.ToolResult):
        results = [_result(behind[0], behind[1], whole=False)]
    status, tone = "no result here", "quiet"
    if results:
        status, tone = results[0].status, results[0].tone
    elif waits:
        status = "no result yet"
    return Call(
        name=body.name,
        summary=kinds.summary_of(body),
        input=kinds.cut(kinds.pretty(body.input), kinds.TRAFFIC),
        results=tuple(results),
        status=status,
        tone=tone,
    )


def _result(event: Event, body: bodies.ToolResult, *, whole: bool = True, late: bool = False) -> Result:
    return Result(
        seq=event.seq,
        status=words.RESULTS[body.status],
        tone={"ok": "good", "error": "bad"}.get(body.status, "quiet"),
        text=kinds.cut(kinds.pretty(body.output), kinds.TRAFFIC) if whole else None,
        parts=kinds.parts_of(event, body.parts) if whole else (),
        closer=body.closer,
        late=late,
    )


def _answered(event: Event, body: bodies.ToolResult, call: Read | None) -> Answered:
    name = body.name or ""
    if call is not None and isinstance(call[1], bodies.ToolCall):
        name = call[1].name
    return Answered(
        name=name or "a tool", call_seq=call[0].seq if call else None, result=_result(event, body)
    )
