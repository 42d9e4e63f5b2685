"""The tools that Onward offers to an engine: ``continue_session``, ``read_events`` and ``search``.

A tool answers; it does not raise for what the model got wrong, because the model should read why and try again. It does
raise when the run is no longer ours (a lost lease): then there is nobody to answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from onward.core.codec import encode, loads
from onward.core.continuing_command import REASONS
from onward.core.fencing import fence
from onward.core.projection import DEFAULT_BUDGET
from onward.core.records import Run
from onward.engines.contract import Tool, ToolOutcome
from onward.errors import ContinuationParked, LeaseLost, OnwardError
from onward.service import continuing, parking, recalling
from onward.service.continuing import Continuation
from onward.service.opening import WINDOW_SHARE
from onward.service.platform import Platform

_TEXTS = {"type": "array", "items": {"type": "string"}}

CONTINUE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["reason", "title", "handoff"],
    "properties": {
        "reason": {"type": "string", "enum": list(REASONS)},
        "title": {"type": "string", "description": "Title of the new session, at most 120 characters."},
        "description": {"type": "string"},
        "handoff": {
            "type": "object",
            "required": ["purpose", "current_request"],
            "properties": {
                "purpose": {"type": "string"},
                "current_request": {"type": "string"},
                "established_facts": _TEXTS,
                "decisions": _TEXTS,
                "open_questions": _TEXTS,
                "next_actions": _TEXTS,
                "cautions": _TEXTS,
            },
        },
        "sources": {
            "type": "array",
            "description": "Where facts and decisions come from: ranges of event numbers of this session.",
            "items": {
                "type": "object",
                "properties": {
                    "kind": {
                        "type": "string",
                        "enum": ["session_events", "session_event", "resource", "memory"],
                    },
                    "session": {"type": "string"},
                    "from_seq": {"type": "integer"},
                    "to_seq": {"type": "integer"},
                    "url": {"type": "string"},
                    "path": {"type": "string"},
                    "relevance": {"type": "string"},
                },
            },
        },
        "transfer": {
            "type": "object",
            "properties": {
                "plan": {"type": "string", "enum": ["carry", "close", "omit"]},
                "pending_runs": _TEXTS,
                "pinned_tools": _TEXTS,
                "pinned_resources": _TEXTS,
            },
        },
    },
}

READ_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "session": {"type": "string", "description": "The session to read; this one if left out."},
        "event": {"type": "string", "description": "One event by its id, evt_…, instead of a session."},
        "around": {
            "type": "integer",
            "minimum": 0,
            "maximum": 50,
            "description": "So many events to each side as well.",
        },
        "walk": {
            "type": "string",
            "enum": ["back", "forward"],
            "description": "Read across the session's link instead: where it came from, or where it went on.",
        },
        "from_seq": {"type": "integer", "minimum": 1},
        "to_seq": {"type": "integer", "minimum": 1},
        "limit": {"type": "integer", "minimum": 1, "maximum": 1000},
    },
}

SEARCH_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["query"],
    "properties": {
        "query": {"type": "string"},
        "scope": {"type": "string", "enum": list(recalling.SCOPES)},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100},
    },
}


CARRIED_OPTIONS = ("adapter_opts", "model", "workdir")
"""What a successor's first run keeps of how its predecessor was run. How much history was given is not among it: a
successor begins with its projection, whatever mode and limits the earlier conversation was replayed with."""


def offered_tools(platform: Platform, run: Run, *, window: int | None = None) -> tuple[Tool, ...]:
    """Return the tools for one run. ``window`` is the engine's context window in tokens, which bounds a projection."""
    budget = DEFAULT_BUDGET if window is None else min(DEFAULT_BUDGET, int(window * WINDOW_SHARE))

    def continue_session(call: str, given: dict[str, Any]) -> ToolOutcome:
        try:
            made = _continued(call, given)
        except ContinuationParked as parked:
            # Its result was written with the request. Nothing was continued: the turn ends, and a person decides.
            answer = parking.told(parked.details["approval"])
            return ToolOutcome(output=answer, ends_turn=True, recorded=True)
        answer = {"successor": made.successor, "manifest": made.manifest}
        return ToolOutcome(output=answer, ends_turn=True, recorded=True)

    def _continued(call: str, given: dict[str, Any]) -> Continuation:
        return continuing.continue_session(
            platform,
            run.session_id,
            given,
            key=f"call:{call}",
            actor="agent",
            run_id=run.id,
            fence=run.fence,
            call=call,
            budget=budget,
            options=encode({k: v for k, v in loads(run.options).items() if k in CARRIED_OPTIONS}),
        )

    def read_events(_call: str, given: dict[str, Any]) -> ToolOutcome:
        session = str(given.get("session") or run.session_id)
        limit = int(given.get("limit") or 200)
        first = int(given.get("from_seq") or 1)
        last = int(given["to_seq"]) if given.get("to_seq") else None
        around = int(given.get("around") or 0)
        if given.get("walk"):
            found = recalling.walk(platform, session, given["walk"], limit=limit, asked_by=run)
        elif given.get("event") or around:
            named = str(given.get("event") or f"{session}:{first}-{last or first}")
            found = recalling.read_at(platform, named, before=around, after=around, limit=limit, asked_by=run)
        else:
            found = recalling.read_lines(platform, session, first, last, limit=limit, asked_by=run)
        text = fence("\n".join(found.lines), "recalled events", session=found.session)
        return ToolOutcome(output=text + (f"\nRead on from {found.next}." if found.next else ""))

    def search(_call: str, given: dict[str, Any]) -> ToolOutcome:
        found = recalling.search(
            platform,
            str(given.get("query") or ""),
            session_id=run.session_id,
            scope=given.get("scope") or "lineage",
            limit=int(given.get("limit") or 10),
            asked_by=run,
        )
        lines = [
            f"{h.session} [{h.seq}] {h.who}: {h.text}"
            + (f" (superseded by {h.superseded_by})" if h.superseded_by else "")
            for h in found.hits
        ]
        text = fence("\n".join(lines) or "nothing found", "search results")
        told = () if found.complete else ("The search was not complete.", *found.notes)
        return ToolOutcome(output="\n".join((text, *told)))

    return (
        _tool(
            "continue_session",
            "Continue in a fresh session when this one is no longer the right context (the subject changed, a phase "
            "ended, the context is crowded). Call it instead of answering: your turn ends, and your successor answers "
            "the current message from the handoff and the sources you name. Cite the events that facts rest on.",
            CONTINUE_SCHEMA,
            continue_session,
        ),
        _tool(
            "read_events",
            "Read exact events of a session by number: this one, a predecessor, or any session you were told about.",
            READ_SCHEMA,
            read_events,
        ),
        _tool(
            "search",
            "Search earlier events of this conversation and its predecessors.",
            SEARCH_SCHEMA,
            search,
        ),
    )


def _tool(
    name: str, description: str, schema: dict[str, Any], act: Callable[[str, dict[str, Any]], ToolOutcome]
) -> Tool:
    """Wrap a synchronous verb: it runs in a worker thread, and what the model got wrong becomes its answer."""

    async def call(call_id: str, given: dict[str, Any]) -> ToolOutcome:
        try:
            return await asyncio.to_thread(act, call_id, given)
        except LeaseLost:
            raise
        except OnwardError as error:
            return ToolOutcome(output=f"{error.code}: {error.message}", status="error")
        except (TypeError, ValueError, msgspec.ValidationError) as error:
            return ToolOutcome(output=f"invalid_input: {error}", status="error")

    return Tool(name=name, description=description, schema=schema, call=call)
