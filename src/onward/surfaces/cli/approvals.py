"""``approvals``, ``approve``, ``decline`` and ``policy``: what waits for a person.

Continuations that were parked, questions of an engine that is waiting right now, and runs that went beyond a policy.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from onward.core.events import iso
from onward.errors import ApprovalNotFound
from onward.service import approving, permitting
from onward.service.approving import Parked
from onward.service.permitting import Requested
from onward.service.platform import approval_policy
from onward.surfaces.cli import addresses, choosing, continuing, screen
from onward.surfaces.cli.grammar import Call
from onward.surfaces.cli.opened import again, opened


def approvals(call: Call) -> int:
    """List what waits."""
    with opened(call) as platform:
        session = None if call["ses"] is None else addresses.session(platform, call["ses"]).id
        found = approving.approvals(platform, session, answered=call["all"])
        questions = permitting.waiting(platform, session, answered=call["all"])
    if call.json:
        document = {
            "approvals": [shape(parked) for parked in found],
            "permissions": [question_shape(asked) for asked in questions],
        }
        screen.document(document)
        return 0
    for asked in questions:
        screen.say(f"{asked.id} {asked.state}")
        screen.flow(f"{screen.one_line(asked.subject, 400)}", "  ")
        beyond = "went beyond its policy" if asked.beyond else "asks before it acts"
        screen.flow(f"{asked.run} in {asked.session} {beyond}, at {screen.moment(iso(asked.at))}", "  ")
        if asked.state == "requested":
            screen.flow(
                f"to allow it: {again(call, f'approve {asked.id}')}; else: {again(call, f'decline {asked.id}')}",
                "  ",
            )
    for parked in found:
        screen.say(f"{parked.id} {parked.state}")
        screen.flow(f"“{screen.one_line(parked.command.title, 120)}” ({parked.command.reason})", "  ")
        screen.flow(
            f"from {parked.session}, asked by the {parked.actor} at {screen.moment(iso(parked.at))}",
            "  ",
        )
        if parked.successor or parked.note:
            screen.flow(parked.note or f"went on in {parked.successor}", "  ")
        else:
            screen.flow(f"purpose: {parked.command.handoff.purpose}", "  ")
            if parked.text is not None:
                screen.flow(f"says: “{screen.one_line(parked.text, 400)}”", "  ")
            screen.flow(f"to accept it: {again(call, f'approve {parked.id}')}", "  ")
    if not found and not questions and not call.quiet:
        screen.note("Nothing waits here.")
    return 0


def approve(call: Call) -> int:
    """Carry out a continuation that waits and, where an engine is known, let the successor answer; or allow a question."""
    if answered(call, granted=True):
        return 0
    given = None if call["handoff"] is None else continuing.read_handoff(call["handoff"])
    with opened(call, counter=call["tokens"]) as platform:
        asked = approving.parked(platform, call["id"])
        session = platform.session(asked.session)
        named = asked.engine or session.engine
        engine = None
        if (
            not call["no_run"]
            and choosing.engine_name(
                call["engine"], named, options=call["engine_option"], model=call["model"]
            )
            is not None
        ):
            engine = choosing.engine(call["engine"], call["engine_option"], named, model=call["model"])
        made = approving.accept(
            platform,
            asked.id,
            None if given is None else changed(asked, given),
            engine=engine.name if engine else call["engine"],
        )
        continuing.finish(call, platform, made, engine, spoken=asked.text is not None)
    return 0


def decline(call: Call) -> int:
    """Decline a continuation that waits, or refuse a question."""
    if answered(call, granted=False):
        return 0
    with opened(call) as platform:
        parked = approving.decline(platform, call["id"], note=call["note"] or "")
    if call.json:
        screen.document(shape(parked))
    elif not call.quiet:
        screen.note(f"{parked.id} is declined; {parked.session} goes on where it is.")
    return 0


def answered(call: Call, *, granted: bool) -> bool:
    """Answer a question of an engine or a run beyond its policy, if the id is that of one."""
    with opened(call) as platform:
        try:
            permitting.requested(platform, call["id"])
        except ApprovalNotFound:
            return False  # a continuation, or nothing at all
        given = permitting.answer(platform, call["id"], granted, note=call.values.get("note") or "")
    if call.json:
        screen.document(question_shape(given))
    elif not call.quiet:
        then = f" Another attempt waits: {again(call, f'run {given.session}')}" if given.retried else ""
        screen.note(f"{given.id} is {given.state}.{then}")
    return True


def question_shape(asked: Requested) -> dict[str, Any]:
    """Return a permission as JSON shows it."""
    return {**msgspec.to_builtins(asked), "at": iso(asked.at)}


def policy(call: Call) -> int:
    """Show whose continuations wait, and where that is said."""
    named = os.environ.get("ONWARD_APPROVAL", "").strip()
    source = "ONWARD_APPROVAL" if named else "default"
    if call.json:
        screen.document({"continuation.approval": approval_policy(), "source": source})
    else:
        screen.say(f"continuation.approval = {approval_policy()} ({source})")
    return 0


def changed(asked: Parked, given: dict[str, Any]) -> dict[str, Any]:
    """Return the command in a file: a whole one, or a handoff alone, with the rest as it was asked for."""
    fields = dict(given.get("command") or given)
    if "handoff" not in fields:
        fields = {"handoff": fields}
    before = msgspec.to_builtins(asked.command)
    for name in ("reason", "title", "description", "sources", "transfer"):
        fields.setdefault(name, before[name])
    fields.pop("adjusted", None)
    return fields


def shape(parked: Parked) -> dict[str, Any]:
    """Return a continuation that waits as JSON shows it. Its ``command`` can be edited and given to ``approve``."""
    command = msgspec.to_builtins(parked.command)
    return {
        "id": parked.id,
        "session": parked.session,
        "state": parked.state,
        "at": iso(parked.at),
        "actor": parked.actor,
        "command": {
            name: value for name, value in command.items() if name not in ("adjusted", "recommended")
        },
        "engine": parked.engine,
        "budget": parked.budget,
        "text": parked.text,
        "note": parked.note,
        "successor": parked.successor,
    }
