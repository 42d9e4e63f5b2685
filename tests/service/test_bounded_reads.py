"""What a verb reads does not grow with the length of the session: counted through the store, not timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.service.conversations import CITING, COMMAND, World, queued

from onward.core.bodies import Message, Plan, PlanStep
from onward.core.codec import encode
from onward.core.continuing_command import parse_command
from onward.core.events import NewEvent
from onward.library import Onward
from onward.service import continuing, running
from onward.store.contract import Append, Batch
from onward.store.memory import MemoryStore

LONG = 50_000
BOUND = 2_000


class Counting:
    """A store that counts the events that are read from it."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("events", "event", "scan", "state"):
            return found

        def counted(*args: Any, **named: Any) -> Any:
            result = found(*args, **named)
            if name == "scan":
                return self._each(result)
            self.read += len(result) if isinstance(result, list | dict) else int(result is not None)
            return result

        return counted

    def _each(self, events: Any) -> Any:
        for event in events:
            self.read += 1
            yield event


@pytest.fixture(scope="module")
def long() -> tuple[World, str]:
    """A session of very many events, in which a person spoke at the beginning and again at the end."""
    world = World(opened=MemoryStore)
    session_id = world.log.start("Long", engine="script").id
    world.say(session_id, "Do very much.")
    world.log.set_state(session_id, Plan(revision=1, steps=(PlanStep(id="s1", text="much"),)))
    body = encode(Message(role="assistant", text="I did a little."))
    for start in range(0, LONG, 5000):
        events = tuple(
            NewEvent(
                id=world.ids.new("evt"),
                at=world.clock(),
                kind="message",
                actor="agent",
                body=body,
                salt=b"s" * 16,
            )
            for _ in range(start, start + 5000)
        )
        world.store.commit(Batch(appends=(Append(session_id=session_id, events=events),)))
    return world, session_id


def spoken(world: World, session_id: str) -> str:
    """A branch of it in which the last thing was said by a person."""
    branch = world.log.fork(session_id).id
    world.say(branch, "And now?")
    return branch


VERBS: dict[str, Callable[[Onward, str], Any]] = {
    "snapshot": lambda log, s: continuing.load_snapshot(log.platform, s, parse_command(CITING)),
    "draft": lambda log, s: log.draft(s, "Go on"),
    "continue": lambda log, s: log.continue_session(s, COMMAND),
    "transcript": lambda log, s: log.transcript(s),
    "run": lambda log, s: log.run(s, "And now?", engine="script"),
    "fork": lambda log, s: log.fork(s),
    "lineage": lambda log, s: log.lineage(s),
    "read": lambda log, s: log.read(s),
    "search": lambda log, s: log.search("little", session_id=s),
    "submit": lambda log, s: queued(log, s),
}


WRITING = {"run", "continue", "submit"}
"""Verbs that would change the session which the others read, so they are tried on its branches only."""

PLACES = ("itself", "a branch", "a branch in which nobody spoke")


@pytest.mark.parametrize(
    ("verb", "where"),
    [(verb, where) for verb in VERBS for where in PLACES if verb not in WRITING or where != "itself"],
)
def test_a_verb_reads_a_bounded_number_of_events_however_long_the_session_is(
    long: tuple[World, str], verb: str, where: str
) -> None:
    world, session_id = long
    world.clock.tick(3600)
    if where == "itself":
        target = session_id
    else:
        target = spoken(world, session_id) if where == "a branch" else world.log.fork(session_id).id
    store = Counting(world.store)  # type: ignore[arg-type]
    VERBS[verb](world.acting(store=store), target)  # type: ignore[arg-type]
    assert store.read <= BOUND


def test_closing_a_run_reads_a_bounded_number_of_events(long: tuple[World, str]) -> None:
    world, session_id = long
    branch = world.log.fork(session_id).id
    run = running.claim(world.platform, queued(world.log, branch).id, "r", engine="script")
    store = Counting(world.store)  # type: ignore[arg-type]
    running.settle(world.acting(store=store).platform, run, "interrupted")  # type: ignore[arg-type]
    assert store.read <= BOUND


def test_the_counting_store_counts(long: tuple[World, str]) -> None:
    world, session_id = long
    store = Counting(world.store)  # type: ignore[arg-type]
    world.acting(store=store).verify(session_id)  # type: ignore[arg-type]
    assert store.read >= LONG
