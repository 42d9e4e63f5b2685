"""Runners over HTTP: the other end of ``runner.remote``. Each question is answered with a call of a ``LocalDesk``.

What changes a run is numbered and acknowledged in the transaction that makes it (``service.entries``); what an answer to an
entry that was acknowledged before needs to say is read again.
"""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from onward import errors
from onward.core.ids import RUN, check_id
from onward.core.records import Machine, Run
from onward.core.wording import asleep
from onward.engines.contract import ToolOutcome
from onward.errors import (
    Conflict,
    InvalidInput,
    InvalidTransition,
    LeaseLost,
    LimitExceeded,
    Unauthorized,
)
from onward.runner import wire
from onward.runner.connection import Nothing
from onward.runner.desk import Ended, LocalDesk, in_thread
from onward.runner.serving import either, listening
from onward.service import dispatching, entries, machines, pressure, running, workspaces
from onward.service.opening import EngineFacts
from onward.service.platform import Platform
from onward.surfaces.http.routing import Ask, Route

LONGEST_WAIT: Final = 25.0
LOOK_SECONDS: Final = 1.0
ENTRY_LIMIT: Final = 96 * 1024 * 1024
"""Bytes of one entry: the largest line that an engine may write, in base64."""
CLAIM_LIMIT: Final = 64
"""Characters of what a runner calls its claim."""


def register(ask: Ask) -> wire.Registered:
    """Make a machine known."""
    given: wire.Registering = ask.body
    machine = machines.register(ask.platform, given.name, given.engines)
    return wire.Registered(machine=machine.id, name=machine.name, lease=ask.house.lease, beat=ask.house.beat)


async def claim(ask: Ask) -> wire.Claimed:
    """Wait for a run that this machine may execute, and claim it."""
    given: wire.Claiming = ask.body
    if not 0 <= given.wait <= LONGEST_WAIT:
        raise LimitExceeded(what="the wait in seconds", limit=f"0 to {LONGEST_WAIT:g}", found=given.wait)
    if not 1 <= len(given.claim) <= CLAIM_LIMIT:
        raise InvalidInput(what="the claim's name", why=f"it has 1 to {CLAIM_LIMIT} characters")
    platform, until = ask.platform, time.monotonic() + given.wait
    machine = await in_thread(machines.get, platform, given.machine)
    await in_thread(machines.heard_of, platform, machine)
    await in_thread(running.expire, platform)
    with listening(ask.house.hints, lambda hint: hint.runs) as told:
        # Nobody would hear the answer: then nothing is claimed for them.
        while not await ask.request.is_disconnected() and not ask.house.closing.is_set():
            told.clear()
            if ask.token is not None and not await in_thread(ask.house.holds, ask.token, "runner"):
                raise Unauthorized(why="its token was revoked, or is over, while it waited")
            run = await in_thread(
                dispatching.claim_next,
                platform,
                machine,
                given.engines,
                claim=given.claim,
                lease=ask.house.lease,
            )
            left = until - time.monotonic()
            if run is not None or left <= 0:
                return wire.Claimed(run=run)
            await either(told, ask.house.closing, seconds=min(left, LOOK_SECONDS))
    return wire.Claimed()


def unclaim(ask: Ask) -> Nothing:
    """Take back what was claimed and not begun."""
    given: wire.GivingBack = ask.body
    machine = machines.get(ask.platform, given.machine)
    dispatching.give_back(ask.platform, machine, given.claim)
    return Nothing()


async def prepare(ask: Ask) -> wire.Given:
    """Return what the engine is given, and the tools that are carried out here."""
    given: wire.Preparing = ask.body
    platform, run = await _held(ask, given.fence)
    desk = LocalDesk(platform)
    prepared = await desk.prepare(run, given.facts)
    tools = tuple(
        wire.OfferedTool(name=t.name, description=t.description, schema=t.schema)
        for t in desk.tools(run, given.facts)
    )
    return wire.Given(prepared=prepared, tools=tools)


async def enter(ask: Ask) -> wire.Entered:
    """Make one entry, or say again that it was made."""
    given: wire.Entering = ask.body
    platform, run = await _held(ask, given.fence)
    if entries.was_acknowledged(run, given.number):
        return await _acknowledged(platform, run, given)
    through, store = entries.numbered(platform, run, given.number)
    try:
        ended = await _make(LocalDesk(through), run, given.entry)
        await in_thread(store.finish)
    except (Conflict, InvalidTransition):
        # The same entry on another connection was faster, or somebody ended the run: look which.
        now = await in_thread(running.get, platform, run.id)
        if now.fence == given.fence and now.entries >= given.number:
            return await _acknowledged(platform, now, given)
        raise
    return wire.Entered(number=given.number, ended=ended)


async def _make(desk: LocalDesk, run: Run, entry: wire.AnyEntry) -> Ended | None:
    match entry:
        case wire.RecordEntry():
            await desk.record(run, entry.events, drop_draft=entry.drop_draft)
        case wire.DraftEntry():
            await desk.keep_draft(run, entry.text)
        case wire.OpenedEntry():
            await desk.opened(run, entry.opened)
        case wire.MirrorEntry():
            await desk.mirror(run, entry.engine, entry.rows)
        case wire.SettleEntry():
            return await desk.settle(
                run,
                entry.state,
                reason=entry.reason,
                usage=entry.usage,
                engine=entry.engine,
                reply=entry.reply,
            )
    return None


async def _acknowledged(platform: Platform, run: Run, given: wire.Entering) -> wire.Entered:
    """Answer an entry that was made before."""
    ended = None
    if isinstance(given.entry, wire.SettleEntry):
        full = await in_thread(pressure.measured, platform, run, given.entry.usage)
        ended = Ended(run=run, pressure=full)
    return wire.Entered(number=given.number, ended=ended)


async def call(ask: Ask) -> ToolOutcome:
    """Carry out a tool for the agent. Called again under the same id, it does the same thing once."""
    given: wire.Calling = ask.body
    platform, run = await _held(ask, given.fence)
    call_id = ask.path["call"]
    desk = LocalDesk(entries.calling(platform, run, call_id))
    facts: EngineFacts = given.facts
    tool = next((tool for tool in desk.tools(run, facts) if tool.name == given.name), None)
    if tool is None:
        return ToolOutcome(output=f"invalid_input: there is no tool {given.name!r}", status="error")
    return await tool.call(call_id, given.input)


async def heartbeat(ask: Ask) -> Nothing:
    """Extend the lease of a run."""
    given: wire.Beating = ask.body
    platform, run = await _held(ask, given.fence)
    await LocalDesk(platform).heartbeat(run, lease=min(given.lease, ask.house.lease))
    return Nothing()


async def permit(ask: Ask) -> wire.Answered:
    """Wait for the answer to a permission that the engine asked for."""
    given: wire.Asking = ask.body
    platform, run = await _held(ask, given.fence)
    seconds = min(max(given.seconds, 0.0), wire.LONGEST_ASKING)
    answer = await LocalDesk(platform).answered(run, given.request, seconds=seconds, lapses=given.last)
    return wire.Answered(answer=answer)


async def ended(ask: Ask) -> Ended:
    """Return how a run stands."""
    run = await in_thread(running.get, ask.platform, ask.path["run"])
    return await LocalDesk(ask.platform).ended(run)


def slept(ask: Ask) -> Nothing:
    """Write down that engines' processes were put to sleep, and remember it as one notification."""
    given: wire.Sleeping = ask.body
    machine = machines.get(ask.platform, given.machine)
    machines.slept(ask.platform, machine, given.ended)
    if given.ended:
        told = asleep(machine.name, len(given.ended))
        ask.house.notify(ask.platform.account_id, told, [one.session_id for one in given.ended])
    return Nothing()


def place(ask: Ask) -> Nothing:
    """Say that a folder of a machine is a workspace, or that a workspace is there now."""
    given: wire.Placing = ask.body
    machine = machines.get(ask.platform, given.machine)
    if given.workspace is None:
        workspaces.ensure(ask.platform, given.path, machine)
    else:
        workspaces.move(ask.platform, given.workspace, machine, given.path)
    return Nothing()


async def _held(ask: Ask, fence: int) -> tuple[Platform, Run]:
    """Return the run that a runner speaks about, on a platform that is on its machine."""
    run = await in_thread(entries.held, ask.platform, check_id(ask.path["run"], RUN), fence)
    if run.machine_id is None:
        raise LeaseLost(run=run.id, why="it is executed where the store is")
    machine: Machine = await in_thread(machines.get, ask.platform, run.machine_id)
    await in_thread(machines.heard_of, ask.platform, machine)
    return msgspec.structs.replace(ask.platform, machine_id=machine.id), run


def _runner(
    path: str, does: str, handler: Any, body: type[Any] | None, answer: type[Any], **more: Any
) -> Route:
    method: Any = "GET" if body is None else "POST"
    return Route(
        method=method,
        path=f"/v1/runner/{path}",
        does=does,
        scope="runner",
        handler=handler,
        body=body,
        answer=answer,
        errors=REFUSED,
        **more,
    )


REFUSED: Final = (
    errors.InvalidId,
    errors.MachineNotFound,
    errors.SessionNotFound,
    errors.EventNotFound,
    errors.ApprovalNotFound,
    errors.WorkspaceNotFound,
    errors.RunNotFound,
    errors.Conflict,
    errors.LeaseLost,
    errors.InvalidTransition,
    errors.EngineError,
    errors.MissingCapability,
    errors.ContinuationModeUnavailable,
)
"""What a runner may be told. One that was written for this server knows what to do about each."""
_RUN = "runs/{run}"
_FACTS: Final = {"name": "script", "capabilities": {}}
_CALLED: Final = {"fence": 1, "facts": _FACTS, "name": "search", "input": {"query": "parser"}}
ROUTES: Final = (
    _runner(
        "register",
        "Make a machine known.",
        register,
        wire.Registering,
        wire.Registered,
        example={"name": "tower", "engines": [{"name": "script"}]},
    ),
    _runner(
        "claim",
        "Wait for a run and claim it.",
        claim,
        wire.Claiming,
        wire.Claimed,
        example={"machine": "tower", "engines": ["script"], "claim": "1", "wait": 0},
    ),
    _runner(
        "unclaim",
        "Give a run back that was not begun.",
        unclaim,
        wire.GivingBack,
        Nothing,
        example={"machine": "tower", "claim": "1"},
    ),
    _runner(
        "slept",
        "Tell that engines sleep.",
        slept,
        wire.Sleeping,
        Nothing,
        example={"machine": "tower", "ended": []},
    ),
    _runner(
        "workspaces",
        "Make a folder a workspace.",
        place,
        wire.Placing,
        Nothing,
        example={"machine": "tower", "path": "/home/me/parser"},
    ),
    _runner(_RUN, "Return how a run stands.", ended, None, Ended),
    _runner(
        f"{_RUN}/prepare",
        "Ask what the engine is given.",
        prepare,
        wire.Preparing,
        wire.Given,
        example={"fence": 1, "facts": _FACTS},
    ),
    _runner(
        f"{_RUN}/entries",
        "Make a numbered entry.",
        enter,
        wire.Entering,
        wire.Entered,
        limit=ENTRY_LIMIT,
        example={"fence": 1, "number": 1, "entry": {"entry": "draft", "text": "The tab"}},
    ),
    _runner(
        f"{_RUN}/tools/{{call}}",
        "Call a tool.",
        call,
        wire.Calling,
        ToolOutcome,
        limit=ENTRY_LIMIT,
        example=_CALLED,
    ),
    _runner(
        f"{_RUN}/heartbeat",
        "Extend the lease.",
        heartbeat,
        wire.Beating,
        Nothing,
        example={"fence": 1, "lease": 60},
    ),
    _runner(
        f"{_RUN}/permit",
        "Ask for permission.",
        permit,
        wire.Asking,
        wire.Answered,
        example={"fence": 1, "request": "evt_01ARZ3NDEKTSV4RRFFQ69G5FAV", "seconds": 0},
    ),
)
