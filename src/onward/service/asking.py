"""Tools for an agent that a person runs themselves: Onward beside an engine, not in front of it.

Such an agent belongs to no run of ours. Which conversation it is in is told to us (``Here.session``), or found out from the
engine's own id: its native file is read again, up to this moment, so that "this conversation" means what was said a second
ago. Where neither is known, the tools that need a conversation want it named.

``continue_session`` from such an agent makes the successor and says where it waits; the engine's own conversation is not
touched, because it is the person's.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from onward.core.fencing import fence
from onward.engines.contract import Tool, ToolOutcome
from onward.errors import ContinuationParked, InvalidInput
from onward.service import briefing, continuing, parking, sessions
from onward.service.offering import CONTINUE_SCHEMA, CONTINUE_TELLS, reading_tools, tool
from onward.service.platform import Platform
from onward.service.telling import Asking

SESSION_VARIABLE: Final = "ONWARD_SESSION"
CLAUDE_VARIABLE: Final = "CLAUDE_CODE_SESSION_ID"
"""What Claude Code tells the MCP servers that it starts."""

STANDING_CONTINUE_SCHEMA: Final[dict[str, Any]] = {
    **CONTINUE_SCHEMA,
    "properties": {
        "session": {"type": "string", "description": "The session to continue; this one if left out."},
        **CONTINUE_SCHEMA["properties"],
    },
}


OPEN_TELLS: Final = (
    "Begin where earlier work ended: names the conversation that goes on in this folder (or the session you name), and "
    "tells what was said and done there, from the log. Call it first when a person refers to earlier work."
)
OPEN_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "session": {"type": "string", "description": "A session; the current one of the folder if left out."},
        "folder": {"type": "string", "description": "The folder that the work is about; yours if left out."},
    },
}


class Here(msgspec.Struct, frozen=True, kw_only=True):
    """Where the agent is, as far as its engine says."""

    session: str | None = None
    engine: str | None = None
    native_id: str | None = None
    folder: str | None = None


def here(environ: Mapping[str, str], folder: str | None = None) -> Here:
    """Return where an agent is, from the environment that its engine gave us."""
    native = environ.get(CLAUDE_VARIABLE) or None
    return Here(
        session=environ.get(SESSION_VARIABLE) or None,
        engine="claude-code" if native else None,
        native_id=native,
        folder=folder or environ.get("CLAUDE_PROJECT_DIR") or None,
    )


def standing_tools(platform: Platform, where: Here, *, one_agent: bool = True) -> tuple[Tool, ...]:
    """Return the tools for an agent that is not run by us.

    With ``one_agent``, the conversation that it opened is what it means by "this one" from then on, where its engine does
    not say which it is in. Many agents that share a server mean different ones, and name them.
    """
    known: list[str] = []

    def asking() -> Asking:
        session = this_session(platform, where)
        if session is None and known:
            return Asking(session=known[-1])
        return Asking(session=session, by=session)

    def continue_session(_call: str, given: dict[str, Any]) -> ToolOutcome:
        session = asking().named(given.get("session"))
        command = {name: value for name, value in given.items() if name != "session"}
        try:
            made = continuing.continue_session(platform, session, command, key=key_of(command), actor="agent")
        except ContinuationParked as parked:
            return ToolOutcome(output=parking.told(parked.details["approval"]))
        return ToolOutcome(
            output=f"The conversation goes on in {made.successor} (manifest {made.manifest}), linked to this one, "
            f"which stays complete. Tell the person so, and that it answers with: onward run {made.successor}"
        )

    def open_session(_call: str, given: dict[str, Any]) -> ToolOutcome:
        found, told = opened(platform, where, given.get("session"), given.get("folder"))
        if found is not None and one_agent:
            known[:] = [found]
        return ToolOutcome(output=told)

    return (
        tool("continue_session", CONTINUE_TELLS, STANDING_CONTINUE_SCHEMA, continue_session),
        tool("open_session", OPEN_TELLS, OPEN_SCHEMA, open_session),
        *reading_tools(platform, asking, all_of_them=True),
    )


def opened(
    platform: Platform, where: Here, session: str | None, folder: str | None
) -> tuple[str | None, str]:
    """Return which conversation goes on in a folder, or the one that is named, and what was said and done there.

    A continued one leads to where it goes on now. Raises SessionNotFound for a session that is not there.
    """
    if session:
        found = sessions.latest(platform, str(session))
    else:
        place = str(folder or where.folder or "")
        if not place:
            raise InvalidInput(
                what="the folder", why="none was named and your engine did not say where you are"
            )
        current = sessions.current(platform, place)
        if current is None:
            return (
                None,
                f"No conversation goes on in {place} yet. list_sessions shows what there is elsewhere.",
            )
        found = current
    told = briefing.brief_for(platform, found.id, None, window=None, tools=True)
    title = " ".join(found.title.split()) or "no title"
    head = f"The conversation is {found.id}, {found.head_seq} events; read_events and search reach all of it."
    named = fence(title, "title", session=found.id)
    if told.fault:
        return found.id, f"{head}\n{named}\nIts record could not be summed up: {told.fault}"
    return found.id, "\n".join((head, named, told.text or "Nothing has been said in it yet."))


def key_of(command: dict[str, Any]) -> str:
    """Return the idempotency key of a command that came without one: the same words give the same successor (C3)."""
    written = msgspec.json.encode(command, order="deterministic")
    return f"mcp:{hashlib.sha256(written).hexdigest()[:32]}"


def this_session(
    platform: Platform, where: Here, files: Callable[[Here], list[Path]] | None = None
) -> str | None:
    """Return the session that the agent is in, read up to this moment; None where that is not known.

    Raises InvalidInput when the engine named a conversation whose file could not be read.
    """
    if where.session is not None:
        return platform.session(where.session).id
    if where.native_id is None:
        return None
    found = (files or native_files)(where)
    if not found:
        return None  # it has said nothing yet, or keeps its files elsewhere: then nothing is known of it
    from onward.service import importing

    report = importing.import_paths(
        platform.store,
        platform.account_id,
        found[:1],
        where.engine,
        now=platform.clock,
        ids=platform.ids,
    )
    read = report.files[0]
    if not read.sessions:
        raise InvalidInput(what=f"the conversation {where.native_id}", why=read.reason or "nothing was read")
    return read.sessions[0]


def native_files(where: Here) -> list[Path]:
    """Return the native files of the conversation, newest first."""
    if where.engine != "claude-code" or not where.native_id or os.sep in where.native_id:
        return []
    base = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude") / "projects"
    name = f"{where.native_id}.jsonl"
    found = [folder / name for folder in base.iterdir() if folder.is_dir()] if base.is_dir() else []
    return sorted((p for p in found if p.is_file()), key=lambda p: p.stat().st_mtime_ns, reverse=True)
