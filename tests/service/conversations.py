"""Conversations to test with: a world of one store, its clock and its ids, and the few things that are said in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from onward.core import ids as make
from onward.core.bodies import Message, ProjectionContext, SessionChange, ToolCall, ToolResult
from onward.core.codec import body_of
from onward.core.events import Event, NewEvent
from onward.core.ids import LOCAL_ACCOUNT
from onward.core.records import Link, Run
from onward.engines.script import ScriptEngine
from onward.library import Onward
from onward.service.platform import Platform
from onward.store.contract import Append, Batch, Store
from onward.testing.clock import FakeClock, FakeIds

COMMAND: dict[str, Any] = {
    "reason": "topic_change",
    "title": "Write the release notes",
    "handoff": {"purpose": "Write the release notes", "current_request": "Write them"},
}
"""The smallest command that is well formed."""

CITING: dict[str, Any] = {
    **COMMAND,
    "handoff": {**COMMAND["handoff"], "established_facts": ["The parser fails on leap days."]},
    "sources": [{"from_seq": 2, "to_seq": 3, "relevance": "where it was found"}],
}
"""One with a fact and the events that it rests on."""


@dataclass(kw_only=True)
class World:
    """One store and everything around it."""

    opened: Callable[[], Store]
    """Opens the store again, as another process would."""
    clock: FakeClock = field(default_factory=FakeClock)
    ids: FakeIds = field(init=False)
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.ids = FakeIds(self.clock)
        self.store = self.opened()

    @property
    def log(self) -> Onward:
        """Everything Onward does here, for the account that owns the store."""
        return self.acting()

    @property
    def platform(self) -> Platform:
        """What the verbs act on."""
        return self.log.platform

    def acting(self, account_id: str = LOCAL_ACCOUNT, store: Store | None = None) -> Onward:
        """Everything Onward does here, for another account or through another store object."""
        return Onward(
            Platform(
                store=store or self.store,
                account_id=account_id,
                clock=self.clock,
                ids=self.ids,
                host="test",
            )
        )

    def reopen(self) -> None:
        """Close the store and open it again: what was only in memory is gone."""
        self.store.close()
        self.store = self.opened()

    def events(self, session_id: str) -> list[Event]:
        """Every event of a session."""
        return list(self.store.scan(session_id))

    def tell(self, session_id: str, *events: NewEvent) -> tuple[Event, ...]:
        """Append events as they are."""
        return self.store.commit(Batch(appends=(Append(session_id=session_id, events=events),))).events

    def say(self, session_id: str, text: str, *, actor: str = "user", **fields: Any) -> Event:
        """Append a message without running anything."""
        role = "assistant" if actor == "agent" else "user"
        body = Message(role=role, text=text, **fields)
        return self.tell(session_id, self.platform.event("message", body, actor))[0]

    def call(self, session_id: str, call: str = "c1", name: str = "make", run_id: str | None = None) -> Event:
        """Append a tool call without a result."""
        body = ToolCall(call=call, name=name, input={"target": "all"})
        return self.tell(session_id, self.platform.event("tool_call", body, "agent", run_id=run_id))[0]

    def answer(self, session_id: str, call: str = "c1", output: str = "done") -> Event:
        """Append the result of a tool call."""
        body = ToolResult(call=call, output=output)
        return self.tell(session_id, self.platform.event("tool_result", body, "tool"))[0]

    def talk(self, session_id: str, exchanges: int = 1, about: str = "the parser") -> None:
        """Let a person and an agent talk."""
        for number in range(1, exchanges + 1):
            self.say(session_id, f"Question {number} about {about}?")
            self.say(session_id, f"Answer {number} about {about}.", actor="agent")

    def conversation(self, exchanges: int = 2, about: str = "the parser") -> str:
        """Start a session in which something was said, and a last question waits for its answer."""
        session = self.log.start(f"On {about}", engine="script")
        self.talk(session.id, exchanges, about)
        self.say(session.id, f"Go on with {about}.")
        return session.id

    def everything(self) -> dict[str, Any]:
        """Everything that is stored and that a verb can see, for telling whether anything changed."""
        store, out = self.store, {}
        page, _ = self.log.sessions(limit=1000)
        for session in page:
            out[session.id] = (
                session,
                self.events(session.id),
                store.links(session.id),
                store.runs(session.id),
                store.open_calls(session.id),
                store.engine_sessions(session.id),
                [store.draft(run.id) for run in store.runs(session.id)],
            )
        return out


def texts(events: list[Event] | tuple[Event, ...]) -> list[str]:
    """The words of the messages among events."""
    return [body.text for event in events if isinstance(body := body_of(event), Message)]


def bodies(events: list[Event] | tuple[Event, ...], kind: type) -> list[Any]:
    """The bodies of one kind among events."""
    return [body for event in events if isinstance(body := body_of(event), kind)]


def script(*steps: Any, **options: Any) -> ScriptEngine:
    """An engine that takes these steps on every turn."""
    return ScriptEngine(script=steps, **options)


def call_directive(command: dict[str, Any]) -> str:
    """The text that makes the script engine call ``continue_session``."""
    return f"[[call continue_session {msgspec.json.encode(command).decode()}]]"


def new_account() -> str:
    """The id of an account that is not the local one."""
    return make.derived_id(make.ACCOUNT, 0, "another")


def queued(log: Onward, session_id: str, text: str = "Later.") -> Run:
    """Put a message before the agent without waiting."""
    return log.submit(session_id, text, engine="script")


def halves(log: Onward, of: str | None = None) -> list[str]:
    """What any continuation of a store, or of one lineage, lacks of what appears together (C2)."""
    store, out = log.platform.store, []
    sessions: dict[str, list[Event]] = {}
    cursor: str | None = None
    if of is not None:
        sessions = {name: list(store.scan(name)) for name in log.lineage(of).sessions}
    while of is None:
        page, cursor = log.sessions(limit=1000, cursor=cursor)
        sessions |= {session.id: list(store.scan(session.id)) for session in page}
        if cursor is None:
            break
    for session_id, events in sessions.items():
        told = [b.other for b in bodies(events, SessionChange) if b.change == "continued"]
        links = {
            link.to_session: link
            for link in store.links(session_id)
            if link.type == "continuation" and link.from_session == session_id
        }
        if sorted(told, key=str) != sorted(links):
            out.append(f"{session_id} says that it continued in {told}; its links lead to {sorted(links)}")
        for successor, link in links.items():
            out += [f"{successor} {what}" for what in _lacking(store, link, sessions.get(successor))]
    for session_id, events in sessions.items():
        if bodies(events, ProjectionContext) and log.lineage(session_id).path[-2:-1] == ():
            out.append(f"{session_id} has a projection and no link")
    return out


def _lacking(store: Store, link: Link, events: list[Event] | None) -> list[str]:
    if not events:
        return ["has a link and no events"]
    out = []
    manifest = store.manifest(link.manifest_id or "")
    if manifest is None:
        out.append("has no manifest")
    elif [b.manifest for b in bodies(events, ProjectionContext)] != [manifest.id]:
        out.append("has no projection of its manifest")
    original = store.event(link.event_id or "")
    messages = [event for event in events if event.kind == "message"]
    copy = body_of(messages[0]) if messages else None
    if original is None or not isinstance(copy, Message) or copy.continued_from is None:
        out.append("has no copy of the initiating message")
    elif copy.continued_from.event != original.id or copy.text != body_of(original).text:
        out.append("has a copy of another message")
    if not any(r.input_event == messages[0].id for r in store.runs(link.to_session)):
        out.append("has no first run")
    return out
