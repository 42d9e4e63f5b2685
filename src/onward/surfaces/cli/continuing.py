"""``continue``: from a handoff, or from a draft that is sent as it is, to the answer of the successor."""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec

from onward.core.bodies import Message
from onward.core.codec import body_of
from onward.core.continuing_command import parse_command
from onward.core.lines import said
from onward.core.projection import DEFAULT_BUDGET
from onward.core.records import Session
from onward.engines import engine_by_name
from onward.engines.contract import Engine
from onward.errors import Conflict, InvalidInput, LimitExceeded, OnwardError
from onward.service import continuing, drafting, opening, sessions
from onward.service.continuing import Continuation
from onward.service.platform import Platform
from onward.surfaces.cli import addresses, choosing, screen
from onward.surfaces.cli.grammar import Call, UsageError
from onward.surfaces.cli.opened import again, opened

MAX_HANDOFF: Final = 8 * 1024 * 1024
"""Bytes of a handoff file."""
_CODED: Final = ("purpose", "current_request")
_LISTS: Final = ("established_facts", "decisions", "open_questions", "next_actions", "cautions")


def print_handoff(handoff: Any) -> None:
    """Print a handoff, heading by heading; empty ones are left out."""
    for name in _CODED:
        if text := getattr(handoff, name):
            screen.flow(f"{name.replace('_', ' ')}: {text}", "  ")
    for name in _LISTS:
        entries = getattr(handoff, name)
        if entries:
            screen.say(f"  {name.replace('_', ' ')}:")
            for entry in entries:
                screen.flow(f"- {entry}", "    ")
    for name, entries in handoff.extra.items():
        screen.flow(f"{name}:", "  ")
        for entry in entries:
            screen.flow(f"- {entry}", "    ")


def continue_(call: Call) -> int:
    """Continue a session and, where an engine is known, let the successor answer."""
    if (call["handoff"] is None) == (call["purpose"] is None):
        raise UsageError("give either --handoff FILE or --purpose TEXT")
    text = call["text"]
    if text == "-":
        if call["handoff"] == "-":
            raise UsageError("only one of TEXT and --handoff can read standard input")
        from onward.surfaces.cli.running import stdin

        text = stdin()
    given = None if call["handoff"] is None else read_handoff(call["handoff"])
    with opened(call, counter=call["tokens"]) as platform:
        session = addresses.session(platform, call["ses"])
        engine = _engine(call, session)
        made = continuing.continue_session(
            platform,
            session.id,
            parse_command(_command(call, platform, session, given)),
            text=text,
            key=call["key"],
            engine=engine.name if engine else call["engine"],
            budget=call["budget"],
            options=_options(call),
        )
        finish(call, platform, made, engine, spoken=text is not None)
    return 0


def finish(
    call: Call, platform: Platform, made: Continuation, engine: Engine | None, *, spoken: bool = False
) -> None:
    """Let the successor answer, if its first run still waits and an engine is known, and say what was made.

    With ``spoken`` a person said something with it, and nobody has to be told what the successor answers.
    """
    reply = _answered(call, platform, made, engine)
    if call.json:
        screen.document(_shape(made, reply))
    else:
        _tell(call, platform, made, engine, reply, spoken)


def read_handoff(place: str) -> dict[str, Any]:
    """Return what a handoff file holds. Raises InvalidInput with line and column where it is not JSON."""
    name = "standard input" if place == "-" else place
    try:
        if place == "-":
            data = sys.stdin.buffer.read(MAX_HANDOFF + 1)
        else:
            with open(place, "rb") as file:
                data = file.read(MAX_HANDOFF + 1)
    except OSError as error:
        raise InvalidInput(what=f"the handoff {name}", why=error.strerror or str(error)) from None
    if len(data) > MAX_HANDOFF:
        raise LimitExceeded(what="a handoff file", limit=f"{MAX_HANDOFF:,} bytes", found="more")
    import json

    try:
        found = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InvalidInput(what=f"the handoff {name}", why=f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise InvalidInput(
            what=f"the handoff {name}",
            why=f"it is not JSON: line {error.lineno}, column {error.colno}: {error.msg} "
            "(`onward draft --json` writes one)",
        ) from None
    except (RecursionError, ValueError) as error:
        raise InvalidInput(what=f"the handoff {name}", why=str(error)) from None
    if not isinstance(found, dict):
        raise InvalidInput(
            what=f"the handoff {name}", why=f"expected an object, found {type(found).__name__}"
        )
    return found


def _command(
    call: Call, platform: Platform, session: Session, given: dict[str, Any] | None
) -> dict[str, Any]:
    """Return the command as ``parse_command`` reads it: from the file or a draft, with what the options say on top."""
    fields: dict[str, Any]
    if given is None:
        if call["reason"] is None or call["title"] is None:
            raise UsageError("--purpose needs --reason and --title beside it")
        made = drafting.draft_handoff(
            platform,
            session.id,
            call["purpose"],
            title=call["title"][:100],
            reason=call["reason"],
            budget=DEFAULT_BUDGET if call["budget"] is None else call["budget"],
        )
        handoff = made.handoff
        if call["text"] is not None:  # what is said now is the current request
            handoff = msgspec.structs.replace(handoff, current_request="")
        fields = {
            "handoff": msgspec.to_builtins(handoff),
            "sources": list(made.sources),
            "recommended": list(made.recommended),
        }
    else:
        # A whole command or draft has its handoff inside; anything else is the handoff itself.
        fields = dict(given) if "handoff" in given else {"handoff": given}
        drafted = fields.pop("session", None)
        if isinstance(drafted, str) and drafted != session.id:
            raise InvalidInput(
                what="the handoff", why=f"it was drafted for {drafted}, and this is {session.id}"
            )
    for name in ("reason", "title"):
        if call[name] is not None:
            fields[name] = call[name]
    if call["source"]:
        cited = fields.get("sources") or _nested(fields, "sources") or []
        if not isinstance(cited, list):
            raise InvalidInput(what="sources", why=f"expected a list, found {type(cited).__name__}")
        fields["sources"] = [*cited, *call["source"]]
    if call["plan"] is not None:
        transfer = fields.get("transfer") or _nested(fields, "transfer") or {}
        if not isinstance(transfer, dict):
            raise InvalidInput(what="transfer", why=f"expected an object, found {type(transfer).__name__}")
        fields["transfer"] = {**transfer, "plan": call["plan"]}
    return fields


def _nested(fields: dict[str, Any], name: str) -> Any:
    """Return what stands inside the handoff although it belongs beside it (it is read leniently there)."""
    handoff = fields.get("handoff")
    return handoff.get(name) if isinstance(handoff, dict) else None


def _engine(call: Call, session: Session) -> Engine | None:
    """Return the engine that answers in the successor, or None when it should wait or nobody names one.

    It is looked for before anything is written: an engine that was named and cannot run refuses the whole command.
    """
    if call["no_run"]:
        if call["engine"]:
            engine_by_name(call["engine"])
        return None
    if (
        choosing.engine_name(
            call["engine"], session.engine, options=call["engine_option"], model=call["model"]
        )
        is None
    ):
        return None
    return choosing.engine(call["engine"], call["engine_option"], session.engine, model=call["model"])


def _options(call: Call) -> bytes:
    """Return the options of the successor's first run, checked."""
    options = {"model": call["model"]} if call["model"] else {}
    opening.parse_options(options)
    return msgspec.json.encode(options)


def _answered(call: Call, platform: Platform, made: Continuation, engine: Engine | None) -> str | None:
    """Return what the successor's first run answered, running it if it still waits. None when nothing was run."""
    run = platform.store.run(made.run) if made.run else None
    if run is None:
        return None
    if run.state == "queued" and engine is not None:
        from onward.surfaces.cli.running import answer

        try:
            return answer(call, platform, made.successor, None, engine, folder=None).reply or None
        except OnwardError as error:
            now = platform.store.run(run.id)
            if isinstance(error, InvalidInput | Conflict) and now is not None and now.state != "queued":
                return None  # another process with the same key was faster; its answer is in the log
            # The successor stays, and so does the way to try again (invariant C7).
            error.details.update(_shape(made, None))
            retry = again(call, f"run {made.successor}")
            error.message = (
                f"{error.message.rstrip('.')}. The successor is {made.successor}; to try again: {retry}"
            )
            raise
    said = [
        body.text
        for event in platform.store.events(made.successor, limit=1000, kinds=("message",))
        if event.run_id == run.id and isinstance(body := body_of(event), Message) and body.role == "assistant"
    ]
    return "\n\n".join(said) or None


def _shape(made: Continuation, reply: str | None) -> dict[str, Any]:
    return {
        "successor": made.successor,
        "predecessor": made.predecessor,
        "origin": made.origin,
        "link": made.link,
        "manifest": made.manifest,
        "run": made.run,
        "reply": reply,
    }


def _tell(
    call: Call,
    platform: Platform,
    made: Continuation,
    engine: Engine | None,
    reply: str | None,
    spoken: bool,
) -> None:
    """Say what a continuation made. The answer itself was printed while it was produced, unless it is an old one."""
    if call.quiet:
        if engine is None:
            screen.say(made.successor)
        return
    if made.repeated:
        screen.note("This key was used before; this is what it made then.")
    screen.note(f"{made.predecessor} continues in {made.successor} ({made.manifest}).")
    if not spoken:
        screen.note(_carried(platform, made, answered=reply is not None))
    if reply is not None:
        if not spoken:
            screen.note(f"To ask for something else: {again(call, f'run {made.successor} TEXT')}")
        return
    screen.say(made.successor)
    why = "--no-run" if call["no_run"] else "no engine is named by --engine, the session or ONWARD_ENGINE"
    screen.note(f"Nothing was run: {why}. When you are ready: {again(call, f'run {made.successor}')}")


def _carried(platform: Platform, made: Continuation, *, answered: bool) -> str:
    """Say which message went along where nobody said anything new: it may be an old one that was dealt with long ago."""
    link = sessions.predecessor(platform, made.successor)
    asked = platform.store.event(link.event_id) if link is not None and link.event_id else None
    if asked is None:
        return "It goes on from the newest message there."
    told = "It answered" if answered else "It will answer"
    told += f" the newest message there, [{asked.seq}] “{screen.one_line(said(asked), 60)}”"
    before = continuing.answered_by(platform, platform.session(made.predecessor), asked)
    if before is None:
        return f"{told}."
    return f"{told}, which [{before.seq}] had answered already. With TEXT, a continuation answers what you say now."
