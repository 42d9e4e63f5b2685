"""Elsewhere: sessions whose workspace is on another machine, which executes their runs; and this machine, registered."""

from __future__ import annotations

import msgspec

from onward.core.mentions import MARK
from onward.core.records import Machine, Offer, Session
from onward.engines.contract import Engine
from onward.errors import InvalidInput
from onward.runner import RunResult
from onward.service import dispatching, machines, referencing, running
from onward.service.platform import Platform
from onward.surfaces.cli import choosing
from onward.surfaces.cli.grammar import Call


def machine_for(platform: Platform, session: Session | None) -> Machine | None:
    """Return the machine that executes a session's runs, if that is another one."""
    return None if session is None else dispatching.machine_for(platform, session.id)


def leave(
    call: Call,
    platform: Platform,
    session: Session,
    text: str | None,
    machine: Machine,
    options: dict[str, object],
) -> RunResult:
    """Put a message before the agent on another machine; without one, look after what waits. Nothing is executed here."""
    if text is None:
        waiting = running.next_queued(platform, session.id)
        if waiting is None:
            raise InvalidInput(what="the message", why="no text was given and nothing waits in this session")
    else:
        name = choosing.engine_name(call["engine"], session.engine)
        if name is None:
            offered = ", ".join(machines.able(machine)) or "none"
            raise InvalidInput(what="the engine", why=f"none is named; {machine.name} has {offered}")
        if MARK in text:
            referencing.prepare(platform, session.id, text)
        waiting = running.submit(platform, session.id, text, engine=name, options=options)
    why = dispatching.why_waiting(platform, waiting)
    return RunResult(
        session=session.id,
        run=waiting.id,
        state=waiting.state,
        opening=None,
        opening_told="",
        reply="",
        usage=None,
        reason=why or f"{machine.name} executes it.",
    )


def here(platform: Platform, engine: Engine | None) -> Platform:
    """Return the platform as that of this machine, which is registered with its engine if it was not.

    In a store that never heard of a machine nothing is written for a run: there is nobody to tell apart.
    """
    if not machines.listed(platform):
        return platform
    machine = machines.register_here(platform, None if engine is None else Offer(name=engine.name))
    return msgspec.structs.replace(platform, machine_id=machine.id)
