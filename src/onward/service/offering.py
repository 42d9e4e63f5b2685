"""The tools that Onward offers to an engine: ``continue_session`` and those that read (``telling``).

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
from onward.core.projection import DEFAULT_BUDGET
from onward.core.records import Run
from onward.engines.contract import Tool, ToolOutcome
from onward.errors import ContinuationParked, LeaseLost, OnwardError
from onward.service import continuing, parking, telling
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

CONTINUE_TELLS = (
    "Continue in a fresh session when this one is no longer the right context (the subject changed, a phase "
    "ended, the context is crowded). Call it instead of answering: your turn ends, and your successor answers "
    "the current message from the handoff and the sources you name. Cite the events that facts rest on."
)


CARRIED_OPTIONS = (
    "adapter_opts",
    "model",
    "workdir",
    "permission_mode",
    "ask",
    "policies",
    "allowed_tools",
    "denied_tools",
    "memory",
    "window",
)
"""What a successor's first run keeps of how its predecessor was run. How much history was given is not among it: a
successor begins with its projection, whatever mode and limits the earlier conversation was replayed with. What it may do and
use is: an agent does not get rid of a rule by continuing elsewhere."""


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

    asking = telling.Asking(session=run.session_id, by=run)

    return (
        tool(
            "continue_session",
            CONTINUE_TELLS,
            CONTINUE_SCHEMA,
            continue_session,
        ),
        *reading_tools(platform, lambda: asking),
    )


def reading_tools(
    platform: Platform, asking: Callable[[], telling.Asking], *, all_of_them: bool = False
) -> tuple[Tool, ...]:
    """Return the tools that read: two for recall and two for what is behind a handoff, or all that there are.

    ``asking`` is called for each use, in a worker thread: who asks may become known late.
    """
    told = [
        ("read_events", telling.READ_TELLS, telling.READ_SCHEMA, telling.read_events),
        ("search", telling.SEARCH_TELLS, telling.SEARCH_SCHEMA, telling.search),
        ("lineage", telling.LINEAGE_TELLS, telling.LINEAGE_SCHEMA, telling.lineage),
        ("read_manifest", telling.MANIFEST_TELLS, telling.MANIFEST_SCHEMA, telling.read_manifest),
    ]
    if all_of_them:
        told += [
            ("list_sessions", telling.LIST_TELLS, telling.LIST_SCHEMA, telling.list_sessions),
            (
                "prepare_reference",
                telling.REFERENCE_TELLS,
                telling.REFERENCE_SCHEMA,
                telling.prepare_reference,
            ),
        ]

    def act(
        tell: Callable[[Platform, telling.Asking, dict[str, Any]], str],
    ) -> Callable[[str, dict[str, Any]], ToolOutcome]:
        return lambda _call, given: ToolOutcome(output=tell(platform, asking(), given))

    return tuple(tool(name, about, schema, act(tell)) for name, about, schema, tell in told)


def tool(
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
        except (TypeError, ValueError, OverflowError, msgspec.ValidationError) as error:
            return ToolOutcome(output=f"invalid_input: {error}", status="error")

    return Tool(name=name, description=description, schema=schema, call=call)
