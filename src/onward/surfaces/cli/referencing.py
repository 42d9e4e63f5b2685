"""``reference`` and ``candidates``: what was said elsewhere, brought along with a message."""

from __future__ import annotations

from typing import Any

import msgspec

from onward.core.bodies import Message, RecalledReference
from onward.core.codec import decode
from onward.core.events import iso
from onward.core.records import Session
from onward.engines import engine_by_name
from onward.engines.contract import Engine
from onward.errors import InvalidInput
from onward.service import referencing
from onward.surfaces.cli import addresses, choosing, screen
from onward.surfaces.cli.grammar import Call, UsageError
from onward.surfaces.cli.opened import opened
from onward.surfaces.cli.running import answer, folder_of, shape, stdin, tell


def reference(call: Call) -> int:
    """Quote a session in another, say something about it, and let an engine answer where one is known."""
    if call["to"] is None:
        raise UsageError("--to is missing: name the session to say it in")
    text = stdin() if call["text"] == "-" else call["text"]
    if not text.strip():
        raise InvalidInput(what="the message", why="it is empty")
    with opened(call) as platform:
        source = addresses.session(platform, call["ses"])
        target = addresses.session(platform, call["to"])
        engine = _engine(call, target)
        run = referencing.reference(
            platform, source.id, target.id, text, engine=engine.name if engine else call["engine"]
        )
        references = referencing.references_of(platform, run)
        said = decode("message", run.input or b"")
        made: dict[str, Any] = {
            "session": target.id,
            "run": run.id,
            "text": said.text if isinstance(said, Message) else text,
            "references": [msgspec.to_builtins(one) for one in references],
        }
        if not call.quiet and not call.json:
            for one in references:
                screen.note(quoted(one))
        if engine is None:
            if call.json:
                screen.document({**made, "opening": None, "reply": None, "usage": None})
            else:
                _waits(call, run.id, target.id)
            return 0
        result = answer(
            call, platform, target.id, None, engine, folder=folder_of(platform, target), waiting=run.id
        )
        if call.json:
            answered = shape(result)
            screen.document({**made, **{name: answered[name] for name in ("opening", "reply", "usage")}})
        elif not call.quiet:
            tell(result, target.id)
    return 0


def _engine(call: Call, target: Session) -> Engine | None:
    """Return the engine that answers, or None when the message should wait or nobody names one."""
    if call["no_run"]:
        if call["engine"]:
            engine_by_name(call["engine"])
        return None
    if (
        choosing.engine_name(
            call["engine"], target.engine, options=call["engine_option"], model=call["model"]
        )
        is None
    ):
        return None
    return choosing.engine(call["engine"], call["engine_option"], target.engine, model=call["model"])


def quoted(one: RecalledReference) -> str:
    """Return one line about a snapshot: what was quoted, and what is missing."""
    told = f"Quotes {one.source} “{one.label}” up to event {one.captured_seq}"
    if not one.truncated:
        return f"{told}: {one.retained} messages, all of it."
    return f"{told}: {one.retained} of {one.original} messages; {one.omitted_bytes:,} bytes are left out."


def _waits(call: Call, run: str, session: str) -> None:
    screen.say(run)
    if not call.quiet:
        why = "--no-run" if call["no_run"] else "no engine is named by --engine, the session or ONWARD_ENGINE"
        screen.note(f"Nothing was run: {why}. When you are ready: onward run {session}")


def candidates(call: Call) -> int:
    """List the sessions that a message could mention."""
    limit = referencing.CANDIDATES if call["limit"] is None else call["limit"]
    with opened(call) as platform:
        session = addresses.session(platform, call["ses"])
        found = referencing.list_candidates(platform, session.id, call["query"] or "", limit)
    if call.json:
        listed = [{**msgspec.to_builtins(one), "created_at": iso(one.created_at)} for one in found]
        screen.document({"session": session.id, "candidates": listed})
        return 0
    for one in found:
        screen.say(screen.one_line(one.mention))
        if not call.quiet:
            put_away = " · archived" if one.archived else ""
            screen.flow(f"{iso(one.created_at)[:10]} · {one.folder or 'no folder'}{put_away}", "  ")
    if not found and not call.quiet:
        screen.note(
            "There is no other session that matches." if call["query"] else "There is no other session."
        )
    return 0
