"""Superseded: for events that were found, the later event of the same lineage that replaces what they say.

``core.superseding`` judges pairs; here the pairs are found. Later events that could replace one are those that share the
words of its subject, its value or its file, so the full text names them, the newest few. Only what lies on one line is
compared: the session of the event, what it was continued from and in (the newest successor each time), and the source of
a branch up to the point. What a delegated child or another branch says later replaces nothing here.

Order is by that line and then by number, never by a clock, so an earlier event is never named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from onward.core import stating, superseding, words
from onward.core.bodies import Body, Pins, Plan, ToolCall, ToolResult
from onward.core.codec import body_of, call_of
from onward.core.events import Event
from onward.core.stating import Statement
from onward.core.superseding import Rule
from onward.service.platform import Platform

LATER: Final = 60
"""Of the events that share the words, how many of the newest are looked at."""
STATEMENTS: Final = 3
"""Statements of one event that are followed."""
RESULT_WITHIN: Final = 20
"""Events between a call and its result that are looked through."""
LONGEST_LINE: Final = 100
"""Sessions of a line, in both directions."""
PATH_PARTS: Final = 2
"""Of a path, how many of its last parts are looked for; which file it is, is compared whole."""

_Where = tuple[int, int]
_Files = tuple[list[tuple[Event, ToolCall, Event]], Iterator[tuple[Event, ToolCall, Event]]]


class Superseded(msgspec.Struct, frozen=True, kw_only=True):
    """The later event that replaces an event, and why."""

    by: str
    """Its id."""
    session: str
    seq: int
    rule: Rule


def superseded(
    platform: Platform, events: Sequence[tuple[Event, Body]], *, seen_from: str | None = None
) -> dict[str, Superseded]:
    """Return what replaces each of these events, by id; those that nothing replaces are absent.

    ``seen_from`` is the session whose line counts for the events on it; any other event is seen from its own session.
    """
    search = _Lines(platform, seen_from)
    found = {}
    for event, body in events:
        if event.erased:
            continue
        if replacing := search.judge(event, body):
            found[event.id] = replacing
    return found


class _Lines:
    """Lines of sessions and what was looked up on them, for one call."""

    def __init__(self, platform: Platform, seen_from: str | None) -> None:
        self._platform = platform
        self._lines: dict[str, dict[str, tuple[int, int | None]]] = {}
        self._asked: dict[tuple[str, tuple[str, ...]], list[tuple[Event, Body]]] = {}
        self._stated: dict[str, tuple[Statement, ...]] = {}
        self._files: dict[tuple[str, str], _Files] = {}
        self._seen_from = seen_from

    def judge(self, event: Event, body: Body) -> Superseded | None:
        match body:
            case Plan() | Pins():
                return self._newer_revision(event, body)
            case ToolCall() | ToolResult():
                return self._touched_again(event, body)
        stated = [s for s in self._statements(event, body) if superseding.can_be_replaced(s)][:STATEMENTS]
        for one in stated:
            later = {e.id: (e, b) for terms in _asked_for(one) for e, b in self._later(event, terms)}
            ordered = sorted(later.values(), key=lambda pair: self._where(event, pair[0]))
            verdict = superseding.newest([one], [(e.id, self._statements(e, b)) for e, b in ordered])
            if verdict is not None:
                by, rule = verdict
                return _made(later[by][0], rule)
        return None

    def _statements(self, event: Event, body: Body) -> tuple[Statement, ...]:
        if event.id not in self._stated:
            self._stated[event.id] = stating.statements(body)
        return self._stated[event.id]

    def _newer_revision(self, event: Event, body: Body) -> Superseded | None:
        for session in reversed(self._line(event)):
            newest = self._platform.store.state(session).get(event.kind)
            if newest is None:
                continue
            if self._is_later(event, newest) and superseding.newer_revision(body, body_of(newest)):
                return _made(newest, "revision")
            return None
        return None

    def _touched_again(self, event: Event, body: ToolCall | ToolResult) -> Superseded | None:
        mine = body if isinstance(body, ToolCall) else self._call_of(event, body)
        for touch in superseding.touches(mine):
            # The newest that counts decides, so nothing behind it is read.
            for later, call, result in self._touching(event, touch.path):
                if not self._is_later(event, later):
                    break
                if call.call == body.call:
                    continue
                answer = body_of(result)
                again = superseding.touches(call)
                if isinstance(answer, ToolResult) and superseding.touched_again([touch], again, answer):
                    wrote = any(t.writes for t in again if t.path == touch.path)
                    return _made(later if wrote else result, "file")
        return None

    def _touching(self, event: Event, path: str) -> Iterator[tuple[Event, ToolCall, Event]]:
        """Yield the calls on a file that were answered, newest first, each with its result. What was read once is kept."""
        key = (next(iter(self._line(event))), path)
        known, more = self._files.setdefault(key, ([], self._calls_on(event, path)))
        yield from known
        for found in more:
            known.append(found)
            yield found

    def _calls_on(self, event: Event, path: str) -> Iterator[tuple[Event, ToolCall, Event]]:
        parts = [part for part in path.replace("\\", "/").split("/") if part][-PATH_PARTS:]
        for place in self._named(event, tuple(words.cut(" ".join(parts)))):
            for later in self._platform.store.events_at([place]):
                call = body_of(later)
                if not isinstance(call, ToolCall) or path not in (t.path for t in superseding.touches(call)):
                    continue
                if (result := self._result_of(later, call)) is not None:
                    yield later, call, result

    def _call_of(self, event: Event, body: ToolResult) -> Body:
        """Return the call that a result answers, or the result itself when it is not close by."""
        before = self._platform.store.events(
            event.session_id, upto=event.seq - 1, limit=RESULT_WITHIN, kinds=("tool_call",), newest_first=True
        )
        return next((body_of(e) for e in before if call_of(e.kind, e.body)[0] == body.call), body)

    def _result_of(self, event: Event, call: ToolCall) -> Event | None:
        after = self._platform.store.events(
            event.session_id, after=event.seq, limit=RESULT_WITHIN, kinds=("tool_result",)
        )
        return next((e for e in after if call_of(e.kind, e.body)[0] == call.call), None)

    def _later(self, event: Event, terms: tuple[str, ...]) -> list[tuple[Event, Body]]:
        """Return the newest messages on the line that have all these words and are later than an event."""
        key = (next(iter(self._line(event))), tuple(sorted(terms)))
        if key not in self._asked:
            found = self._platform.store.events_at(self._named(event, terms))
            self._asked[key] = [(e, body_of(e)) for e in found if e.kind == "message" and not e.erased]
        return [(later, body) for later, body in self._asked[key] if self._is_later(event, later)]

    def _named(self, event: Event, terms: tuple[str, ...]) -> list[tuple[str, int]]:
        """Return where the newest events on the line are that have all these words, newest first."""
        if not terms:
            return []
        line = self._line(event)
        matches = self._platform.store.search(
            terms, account_id=self._platform.account_id, sessions=list(line), limit=LATER
        )
        places = [(match.session_id, match.seq) for match in matches.found]
        return sorted(places, key=lambda place: (line[place[0]][0], place[1]), reverse=True)

    def _is_later(self, event: Event, other: Event) -> bool:
        line = self._line(event)
        index, upto = line.get(other.session_id, (-1, None))
        if index < 0 or (upto is not None and other.seq > upto):
            return False
        return self._where(event, other) > self._where(event, event)

    def _where(self, event: Event, other: Event) -> _Where:
        return self._line(event)[other.session_id][0], other.seq

    def _line(self, event: Event) -> dict[str, tuple[int, int | None]]:
        """Return the sessions of the line that an event is judged on, oldest first, each with its place and its end."""
        if self._seen_from is not None:
            line = self._lines.get(self._seen_from) or self._walked(self._seen_from)
            index, upto = line.get(event.session_id, (-1, None))
            if index >= 0 and (upto is None or event.seq <= upto):
                return line
        return self._lines.get(event.session_id) or self._walked(event.session_id)

    def _walked(self, session_id: str) -> dict[str, tuple[int, int | None]]:
        store = self._platform.store
        ends: list[tuple[str, int | None]] = [(session_id, None)]
        seen = {session_id}
        while len(ends) < LONGEST_LINE:
            above = next((ln for ln in store.links(ends[0][0]) if ln.to_session == ends[0][0]), None)
            if above is None or above.type == "child" or above.from_session in seen:
                break
            if not self._platform.may_read(above.from_session):
                break
            seen.add(above.from_session)
            ends.insert(0, (above.from_session, above.seq if above.type == "fork" else None))
        while len(ends) < LONGEST_LINE:
            here = ends[-1][0]
            below = [ln for ln in store.links(here) if ln.from_session == here and ln.type == "continuation"]
            if not below or below[-1].to_session in seen or not self._platform.may_read(below[-1].to_session):
                break
            seen.add(below[-1].to_session)
            ends.append((below[-1].to_session, None))
        line = {name: (place, upto) for place, (name, upto) in enumerate(ends)}
        self._lines[session_id] = line
        return line


def _asked_for(stated: Statement) -> list[tuple[str, ...]]:
    """Return the words whose later events may replace a statement: those of its subject, and those of its value."""
    asked = [stated.terms]
    if stated.value is not None and stating.is_telling(stated.value):
        asked.append(tuple(words.cut(stated.value)))
    return asked


def _made(event: Event, rule: Rule) -> Superseded:
    return Superseded(by=event.id, session=event.session_id, seq=event.seq, rule=rule)
