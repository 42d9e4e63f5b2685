"""Drafting a handoff without a model: a deterministic reading of the log that a person edits and sends.

It names what was asked lately, which steps are open, which files were touched and how the agent closed, each with the
numbers of the events it comes from, and recommends those events as sources. It does not guess: there is no sentence in it
that the log does not hold. What it would cost is counted by compiling the projection, without writing anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from onward.core.bodies import Checkpoint, Message, Plan, ToolCall, ToolResult
from onward.core.codec import body_of, encode, flat
from onward.core.continuation import Request, decide_continuation
from onward.core.continuing_command import MAX_TITLE, Command
from onward.core.events import Event
from onward.core.manifest import Handoff
from onward.core.plans import unfinished
from onward.core.projection import DEFAULT_BUDGET
from onward.core.references import Source
from onward.errors import NothingToContinue
from onward.service import continuing, sessions
from onward.service.platform import Platform

READ_BACK: Final = 400
"""How many of the newest events a draft looks at."""
MAX_ASKS: Final = 5
MAX_FILES: Final = 12
SHORT: Final = 300
"""Characters of a quotation in a draft; the source beside it has the whole."""

_PATH_KEYS: Final = ("file_path", "path", "notebook_path", "filename", "file", "target_file")
_PATCHED: Final = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_WRITERS: Final = re.compile(r"edit|write|create|patch|replace|insert|update|delete", re.IGNORECASE)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An editable handoff: the same fields that ``continue`` takes, and what it would cost."""

    session: str
    title: str
    reason: str
    handoff: Handoff
    sources: tuple[Source, ...]
    estimated_tokens: int
    """The whole projection and the initiating message, counted by ``counter``."""
    budget: int
    counter: str
    costs: dict[str, int]
    left_out: tuple[str, ...] = ()
    """Recommended sources that would not fit the budget."""


def draft_handoff(
    platform: Platform,
    session_id: str,
    purpose: str,
    *,
    title: str = "",
    reason: str = "user_request",
    budget: int = DEFAULT_BUDGET,
) -> Draft:
    """Draft a handoff for a purpose. Raises NothingToContinue when nobody has written in the session."""
    session = platform.session(session_id)
    initiating = continuing.initiating_event(platform, session)
    if initiating is None:
        raise NothingToContinue(session=session_id)
    events = sessions.newest(platform, sessions.scope(platform, session), READ_BACK)
    command = _command(platform, session_id, purpose, title or purpose, reason, initiating, events)
    snapshot = continuing.load_snapshot(platform, session_id, command)
    # Estimating asks what would be compiled, not whether it may happen now: that is checked when it is sent.
    settled = msgspec.structs.replace(
        snapshot,
        open_calls=(),
        children=(),
        queued=(),
        running=None,
        successors=0,
        recent_continuations=0,
        parent=None,
    )
    asked = Request(command=command, key="draft", actor="user", budget=budget)
    if isinstance(body := body_of(initiating), Message) and body.continued_from is not None:
        plain = msgspec.structs.replace(body, continued_from=None)
        settled = msgspec.structs.replace(
            settled, initiating=msgspec.structs.replace(initiating, body=encode(plain))
        )
    decision = decide_continuation(asked, settled, platform.clock(), platform.ids, platform.counter)
    return Draft(
        session=session_id,
        title=command.title,
        reason=reason,
        handoff=command.handoff,
        sources=command.sources,
        estimated_tokens=decision.projection.tokens,
        budget=budget,
        counter=platform.counter.name,
        costs={c.section: c.tokens for c in decision.projection.costs},
        left_out=tuple(
            o.address for o in decision.projection.omitted if o.source is not None and o.cause == "budget"
        ),
    )


def _command(
    platform: Platform,
    session_id: str,
    purpose: str,
    title: str,
    reason: str,
    initiating: Event,
    events: list[Event],
) -> Command:
    facts: list[str] = []
    sources: list[Source] = []

    def cite(first: Event, last: Event, why: str) -> None:
        kind = "session_event" if first.seq == last.seq else "session_events"
        sources.append(
            Source(
                kind=kind,  # type: ignore[arg-type]
                session=first.session_id,
                from_seq=first.seq,
                to_seq=last.seq,
                relevance=why,
            )
        )

    def at(event: Event) -> str:
        """Say where an event stands; those that a branch shares with its source have that one's numbers."""
        return f"[{event.seq}]" if event.session_id == session_id else f"[{event.session_id}:{event.seq}]"

    bodies = [(event, body_of(event)) for event in events]
    before = [
        (e, b)
        for e, b in bodies
        if isinstance(b, Message)
        and b.role == "user"
        and not b.aside
        and e.actor in ("user", "trigger")
        and e.id != initiating.id
    ]
    for event, body in before[-MAX_ASKS:]:
        facts.append(f"Asked before: {_short(body.text)} {at(event)}")
    closing = next(
        (
            (e, b)
            for e, b in reversed(bodies)
            if isinstance(b, Message) and b.role == "assistant" and not b.aside and b.text.strip()
        ),
        None,
    )
    if closing:
        facts.append(f"The agent's last words: {_short(closing[1].text)} {at(closing[0])}")
        cite(closing[0], closing[0], "the agent's closing note")
    touched = dict(_touched(bodies))
    if touched:
        shown = list(touched.items())[-MAX_FILES:]
        facts.append("Files written: " + ", ".join(f"{path} {at(event)}" for path, event in shown))
    failed = [(e, b) for e, b in bodies if isinstance(b, ToolResult) and b.status != "ok" and not b.closer]
    if failed:
        event, result = failed[-1]
        facts.append(
            f"The last tool failure ({result.status}): {_short(flat(result.output), 160)} {at(event)}"
        )
        cite(event, event, "the last tool failure")
    summary = next(((e, b) for e, b in reversed(bodies) if isinstance(b, Checkpoint)), None)
    if summary:
        cite(summary[0], summary[0], "a compaction summary that the engine wrote")
    if before:
        cite(before[-1][0], before[-1][0], "what was asked before the current request")
    for path, event in list(touched.items())[-3:]:
        cite(event, event, f"the last write to {path}"[:200])
    found = sessions.state(platform, platform.session(session_id))
    plan = body_of(found["plan"]) if "plan" in found else None
    steps = unfinished(plan) if isinstance(plan, Plan) else ()
    if not sources and facts:
        cite(initiating, initiating, "the current request")
    current = body_of(initiating)
    handoff = Handoff(
        purpose=purpose,
        current_request=_short(current.text if isinstance(current, Message) else "", 600),
        established_facts=tuple(facts),
        next_actions=tuple(f"{step.text} (plan step {step.id}, {step.status})" for step in steps),
        cautions=(
            "This handoff was drafted from the log without a model. Files may have changed since; read them again.",
        ),
    )
    name = " ".join(title.split())
    return Command(
        reason=reason,
        title=name if len(name) <= MAX_TITLE else name[: MAX_TITLE - 1] + "…",
        handoff=handoff,
        sources=tuple(sources),
    )


def _touched(bodies: list[tuple[Event, Any]]) -> Iterator[tuple[str, Event]]:
    """Yield the files that tool calls wrote, each with the call, in order."""
    for event, body in bodies:
        if not isinstance(body, ToolCall):
            continue
        given = body.input
        if isinstance(given, dict) and _WRITERS.search(body.name):
            for key in _PATH_KEYS:
                if isinstance(given.get(key), str):
                    yield given[key], event
        for path in _PATCHED.findall(given if isinstance(given, str) else _patch_text(given)):
            yield path.strip(), event


def _patch_text(given: Any) -> str:
    if not isinstance(given, dict):
        return ""
    return "\n".join(
        value if isinstance(value, str) else "\n".join(str(v) for v in value)
        for value in given.values()
        if isinstance(value, str | list)
    )


def _short(text: str, limit: int = SHORT) -> str:
    """Return the beginning of a text on one line, saying how much more there is."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[:limit]}… ({len(line) - limit:,} more characters)"
