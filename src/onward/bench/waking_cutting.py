"""A conversation that an engine has in life, and loses: played through the platform, cut off, its memory destroyed.

The words are those of a scene, as ``quality_talk`` tells it. What differs is how they get into the log: not appended, but as
the runner writes down what an engine does. That engine is a process (``waking_agent``) which is driven over the Agent Client
Protocol, keeps its own memory in files and goes on in it turn after turn. In the last turn, in the middle of a call and of
a sentence, it is killed (SIGKILL), and its files are deleted. The log is all that is left, closed and opened again.

The clock stands still except between turns, and ids count, so that what is told from the log is the same in every run.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from onward.bench import waking_agent
from onward.bench.quality_scenes import Scene
from onward.bench.quality_scoring import states
from onward.bench.quality_talk import START, opened
from onward.core import ids as make
from onward.core.bodies import Message, ToolCall, ToolResult
from onward.core.brief import PREAMBLE
from onward.core.budget import Counter
from onward.core.codec import body_of, flat
from onward.core.events import Event
from onward.core.lines import said
from onward.core.records import Run
from onward.engines.acp import AcpEngine
from onward.engines.contract import Signal, TextDelta
from onward.engines.script import Say, ScriptEngine
from onward.errors import EngineError
from onward.library import Onward
from onward.runner import RunResult
from onward.service.platform import Platform
from onward.store import open_store

BETWEEN: Final = 300
"""Seconds from one turn to the next."""
LATER: Final = 3600
"""Seconds after which somebody comes back to the work."""
MOST_EVENTS: Final = 10_000

LAST_ASK: Final = "Please run all the tests once more."
LAST_COMMAND: Final = "make check"
LAST_WORDS: Final = "They are running. While they do, I look at what is left"
AGAIN: Final = "Where were we?"
"""What the first engine is asked once its memory is gone."""

Step = dict[str, Any]
Way = Literal["cut off", "orderly end", "another's turn", "own memory only"]
"""What came before the first engine is opened again, its files being gone: the kill; a turn of its own that ended well; a
turn that another engine took; a turn of its own, and it is asked to go on in its own memory or not at all."""
WAYS: Final[tuple[Way, ...]] = ("cut off", "orderly end", "another's turn", "own memory only")


class Moments:
    """A clock that stands still until it is told how much time went by, and ids that count."""

    def __init__(self) -> None:
        self._now = START
        self._number = count(1)

    def __call__(self) -> int:
        """Return now, in microseconds."""
        return self._now

    def later(self, seconds: int) -> None:
        """Let time go by."""
        self._now += seconds * 1_000_000

    def new(self, prefix: str) -> str:
        """Return the next id."""
        return make.make_id(prefix, self._now, next(self._number).to_bytes(10, "big"))

    def salt(self) -> bytes:
        """Return the next salt; nothing here is secret."""
        return next(self._number).to_bytes(16, "big")


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that was cut off."""

    folder: Path
    moments: Moments
    counter: Counter
    session: str
    head: int
    """The number of its last event."""
    evidence: dict[str, int]
    """The number of the event that answers, by question."""
    turns: int
    resumed: int
    """Turns before the last in which the engine confirmed that it went on in its own memory."""
    state: str
    """How the last run ended."""
    reason: str
    forgotten: int
    """Files of the engine's memory that were deleted."""

    def open(self) -> Onward:
        """Open the log."""
        return _log(self.folder, self.moments, self.counter)

    @property
    def workspace(self) -> str:
        """The folder that the work is about."""
        return str(self.folder / "workspace")


class Again(msgspec.Struct, frozen=True, kw_only=True):
    """The first engine, opened again in its own conversation after its memory was destroyed."""

    scene: str
    way: Way
    state: str
    opening: str | None
    branch: str
    reason: str
    told_once: bool
    """Whether its new memory holds one brief, in front of what was asked, in the same prompt."""


def cut_off(scene: Scene, folder: Path, counter: Counter) -> Work:
    """Play a scene with an engine that keeps its own memory; kill it in the middle of a turn and delete that memory.

    ``folder`` is an empty one, for the log, the workspace and the memory. Raises EngineError when the engine does otherwise
    than it was told, for then nothing that follows means anything.
    """
    moments = Moments()
    memory = folder / "memory"
    for path in (memory, folder / "workspace"):
        path.mkdir()
    turns = turns_of(scene)
    script = [steps for _, steps in turns]
    (folder / "turns.json").write_text(json.dumps(script), encoding="utf-8")
    with _log(folder, moments, counter) as log:
        session = log.start(scene.title, workspace=str(folder / "workspace"))
        asked = [text for text, _ in turns]
        resumed, last = asyncio.run(_play(log, session.id, asked, _agent(folder, "turns.json", warm=True)))
        events = log.platform.store.events(session.id, limit=MOST_EVENTS)
    files = len(list(memory.iterdir()))
    forget(folder)
    moments.later(LATER)
    return Work(
        folder=folder,
        moments=moments,
        counter=counter,
        session=session.id,
        head=events[-1].seq,
        evidence={fact.asks: _where(events, fact) for fact in scene.facts},
        turns=len(turns),
        resumed=resumed,
        state=last.state,
        reason=last.reason,
        forgotten=files,
    )


def forget(folder: Path) -> None:
    """Delete the first engine's memory."""
    shutil.rmtree(folder / "memory")
    (folder / "memory").mkdir()


def turns_of(scene: Scene) -> list[tuple[str, list[Step]]]:
    """Return what is asked in each turn of a scene and what the agent does then; the last turn never ends."""
    from onward.core.budget import CharsCounter

    log, written = opened(scene, CharsCounter())
    with log:
        events = log.platform.store.events(written.session, limit=MOST_EVENTS)
    turns: list[tuple[str, list[Step]]] = []
    calls: dict[str, ToolCall] = {}
    for event in events:
        body = body_of(event)
        match body:
            case Message(role="user"):
                turns.append((body.text, []))
            case Message():
                turns[-1][1].append({"say": body.text})
            case ToolCall():
                calls[body.call] = body
            case ToolResult():
                call = calls[body.call]
                step = {"call": call.name, "input": call.input, "output": flat(body.output)}
                turns[-1][1].append(step)
    told = [(text, steps or [{"say": "Noted."}]) for text, steps in turns]
    last: list[Step] = [
        {"begin": "shell", "input": {"command": LAST_COMMAND}},
        {"mutter": LAST_WORDS},
        {"hang": True},
    ]
    return [*told, (LAST_ASK, last)]


def again(scene: Scene, work: Work) -> Iterable[Again]:
    """Open the first engine again in its own conversation, in every way, its memory being gone each time."""
    with work.open() as log:
        for way in WAYS:
            if way == "another's turn":
                work.moments.later(BETWEEN)
                log.run(
                    work.session, AGAIN, engine=ScriptEngine(script=[Say(text="I have only read along.")])
                )
            forget(work.folder)
            work.moments.later(BETWEEN)
            result = log.run(
                work.session,
                AGAIN,
                engine=_agent(work.folder),
                continuation="native" if way == "own memory only" else "auto",
            )
            facts = result.opening_facts
            yield Again(
                scene=scene.name,
                way=way,
                state=result.state,
                opening=result.opening,
                branch=facts.branch if facts else "",
                reason=facts.reason if facts else result.reason,
                told_once=_told_once(work.folder),
            )


async def _play(log: Onward, session: str, asked: Sequence[str], engine: AcpEngine) -> tuple[int, RunResult]:
    """Play all turns; return how many were confirmed as resumed, and how the last one ended, in which it was killed."""
    moments = log.platform.clock
    assert isinstance(moments, Moments)
    resumed = 0
    try:
        for text in asked[:-1]:
            moments.later(BETWEEN)
            result = await log.arun(session, text, engine=engine)
            if result.state != "completed":
                raise EngineError(engine=engine.name, why=result.reason)
            resumed += result.opening == "resumed"
        killed: list[int] = []
        pids = [process.pid for process in engine.awake() if process.pid is not None]

        def kill(run: Run, signalled: Signal) -> None:
            del run
            if isinstance(signalled, TextDelta) and not killed:
                killed.extend(pids)
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)

        moments.later(BETWEEN)
        last = await log.arun(session, asked[-1], engine=engine, listener=kill)
    finally:
        await engine.aclose()
    if not killed or last.state == "completed":
        raise EngineError(engine=engine.name, why="it was not cut off in its last turn")
    return resumed, last


def _where(events: Sequence[Event], fact: Any) -> int:
    """Return the number of the event that answers. Raises EngineError unless there is exactly one."""
    found = [event.seq for event in events if states(said(event), fact)]
    if len(found) != 1:
        raise EngineError(engine="acp", why=f"{len(found)} events answer the question {fact.asks!r}")
    return found[0]


def _told_once(folder: Path) -> bool:
    prompts = [
        json.loads(line)["prompt"]
        for file in (folder / "memory").iterdir()
        for line in file.read_text("utf-8").splitlines()
    ]
    return len(prompts) == 1 and prompts[0].count(PREAMBLE) == 1 and prompts[0].endswith(f"\n\n{AGAIN}")


def _agent(folder: Path, turns: str = "", *, warm: bool = False) -> AcpEngine:
    given = ["--turns", str(folder / turns)] if turns else []
    command = [sys.executable, waking_agent.__file__, "--memory", str(folder / "memory"), *given]
    return AcpEngine(command=command, warm=warm)


def _log(folder: Path, moments: Moments, counter: Counter) -> Onward:
    store = open_store(f"sqlite:///{folder / 'work.db'}")
    return Onward(Platform(store=store, clock=moments, ids=moments, counter=counter, host="bench"))
