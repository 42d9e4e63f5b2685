"""A scene as a conversation in a store: its beats in their order, and the work of an agent between them.

The work is drawn from a fixed seed, one a scene, so the same scene gives the same events with the same ids and times in
every store. Its texts are about the modules of the scene and hold numbers of three digits above 400, which no fact has; who
looks for a fact by what the modules are called finds much else.
"""

from __future__ import annotations

import random
from itertools import count
from typing import Any, Final

import msgspec

from onward.bench.quality_scenes import Beat, Fact, Scene
from onward.core import ids as make
from onward.core.bodies import Message, ToolCall, ToolResult
from onward.core.budget import Counter
from onward.core.events import Event, NewEvent
from onward.library import Onward
from onward.service.platform import Platform
from onward.store import open_store
from onward.store.contract import Append, Batch

START: Final = 1_767_225_600_000_000
"""Midnight at the beginning of 2026 (UTC), in microseconds."""
STEP: Final = 60_000_000

_ASKS: Final = (
    "Please look at {part} next.",
    "What does {part} do when the input is empty?",
    "Can you tidy up {part} a little?",
    "Does {part} have tests for that?",
    "Show me how {part} begins.",
)
_REMARKS: Final = (
    "I read {part}. It is shorter than I thought, and nothing in it depends on {other}.",
    "Done: {part} now says what went wrong instead of going on. {other} stays as it is.",
    "There are tests for {part}, and they pass. I would leave {other} for later.",
    "The loop in {part} was written twice; I kept the second one.",
    "It starts with the imports and a table, then come the functions. I changed nothing in {part}.",
)
_LINES: Final = (
    "def load_{part}(path):",
    "    rows = read_rows(path)",
    "    if not rows:",
    "        return []",
    "    log.debug('{part} has %d rows', {number})",
    "    return [clean(row) for row in rows]",
    "{part}.py: {number} lines",
    "class {part}Error(Exception):",
    "    # see {other}.py, line {number}",
)


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A scene in a store."""

    session: str
    evidence: dict[str, int]
    """The number of the event that answers, by question."""


class Ticks:
    """A clock that moves by itself and ids that follow it: the same ones in every store."""

    def __init__(self) -> None:
        self._now = START
        self._number = count(1)

    def __call__(self) -> int:
        """Return the next moment, in microseconds."""
        self._now += STEP
        return self._now

    def new(self, prefix: str) -> str:
        """Return the next id."""
        return make.make_id(prefix, self._now, next(self._number).to_bytes(10, "big"))

    def salt(self) -> bytes:
        """Return the next salt; nothing here is secret."""
        return next(self._number).to_bytes(16, "big")


def opened(scene: Scene, counter: Counter) -> tuple[Onward, Written]:
    """Return a store in memory that holds one scene and nothing else, and where its facts are."""
    ticks = Ticks()
    log = Onward(Platform(store=open_store("memory://"), clock=ticks, ids=ticks, counter=counter))
    session = log.start(scene.title)
    events, evidence = _events(log.platform, scene)
    stored = say(log, session.id, events)
    seqs = {event.id: event.seq for event in stored}
    return log, Written(
        session=session.id, evidence={asks: seqs[event_id] for asks, event_id in evidence.items()}
    )


def say(log: Onward, session_id: str, events: list[NewEvent]) -> list[Event]:
    """Append events to a session and return them as they are stored."""
    before = log.session(session_id).head_seq
    log.platform.store.commit(Batch(appends=(Append(session_id=session_id, events=tuple(events)),)))
    return log.platform.store.events(session_id, after=before, limit=len(events))


def asked(log: Onward, session_id: str, text: str) -> Event:
    """Let somebody ask a question in a session, and return the event."""
    body = Message(role="user", text=text)
    return say(log, session_id, [log.platform.event("message", body, "user")])[0]


def _events(platform: Platform, scene: Scene) -> tuple[list[NewEvent], dict[str, str]]:
    rng = random.Random(scene.name)
    calls = count(1)
    out: list[NewEvent] = []
    evidence: dict[str, str] = {}
    # After which exchange of work each beat is told; the first comes first, and behind the last there is work as well.
    due = [round(n * scene.exchanges / len(scene.beats)) for n in range(len(scene.beats))]
    waiting = list(zip(due, scene.beats, strict=True))
    for number in range(scene.exchanges + 1):
        while waiting and waiting[0][0] <= number:
            beat = waiting.pop(0)[1]
            told = _told(platform, beat, calls)
            out += told
            if isinstance(beat, Fact):
                evidence[beat.asks] = told[-1].id
        if number < scene.exchanges:
            out += _work(platform, scene, rng, calls)
    return out, evidence


def _told(platform: Platform, beat: Beat, calls: Any) -> list[NewEvent]:
    match beat.who:
        case "user":
            return [platform.event("message", Message(role="user", text=beat.text), "user")]
        case "agent":
            return [platform.event("message", Message(role="assistant", text=beat.text), "agent")]
        case _:
            return _tool(platform, calls, "shell", {"command": beat.command}, beat.text)


def _work(platform: Platform, scene: Scene, rng: random.Random, calls: Any) -> list[NewEvent]:
    """Return somebody's request, what the agent ran for it, and what it said then."""
    part, other = rng.sample(scene.parts, 2)
    listing = "\n".join(
        rng.choice(_LINES).format(part=part, other=other, number=rng.randrange(401, 999))
        for _ in range(rng.randrange(4, 9))
    )
    path = f"src/{part}.py"
    ask, remark = (rng.choice(table).format(part=part, other=other) for table in (_ASKS, _REMARKS))
    return [
        platform.event("message", Message(role="user", text=ask), "user"),
        *_tool(platform, calls, "read_file", {"path": path}, listing),
        platform.event("message", Message(role="assistant", text=remark), "agent"),
    ]


def _tool(platform: Platform, calls: Any, name: str, given: dict[str, Any], output: str) -> list[NewEvent]:
    call = f"c{next(calls)}"
    return [
        platform.event("tool_call", ToolCall(call=call, name=name, input=given), "agent"),
        platform.event("tool_result", ToolResult(call=call, output=output), "tool"),
    ]
