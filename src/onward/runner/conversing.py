"""Conversing: a person says something, and what waits in the session is worked off until that message is answered."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import msgspec

from onward.core.capabilities import Resolution, need, resolve
from onward.core.records import Machine, Run
from onward.core.routing import Router
from onward.engines import ENGINES, engine_by_name
from onward.engines.contract import Engine
from onward.engines.offers import offered
from onward.engines.orphans import end_orphans
from onward.errors import (
    Conflict,
    EngineUnavailable,
    InvalidInput,
    InvalidTransition,
    MissingCapability,
    OnwardError,
)
from onward.runner.desk import in_thread
from onward.runner.driving import Listener, RunResult
from onward.runner.executing import execute, execute_and_follow
from onward.service import delegating, dispatching, opening, running
from onward.service.opening import RunOptions
from onward.service.platform import Platform


def run_blocking(coroutine: Any) -> Any:
    """Run a coroutine from synchronous code. Refuses inside a running event loop, where it should be awaited."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    coroutine.close()
    raise RuntimeError("inside an event loop, await onward.runner.execute instead of calling run()")


async def run_session(
    platform: Platform,
    session_id: str,
    text: str | None,
    *,
    engine: str | Engine | Router | None = None,
    options: dict[str, Any] | None = None,
    engine_opts: dict[str, Any] | None = None,
    owner: str | None = None,
    listener: Listener | None = None,
    follow: bool = True,
    waiting: str | None = None,
) -> RunResult:
    """Say something in a session and execute what waits there, in order, until this message is answered.

    Without ``text`` the run that waits is executed, or everything up to the one that ``waiting`` names. While somebody else
    works in the session, the message stays queued and the result says so (state ``queued``); so it does when the session's
    workspace is on another machine, whose runner executes it.

    With a ``Router`` several engines may answer: one that fails for a cause that will pass, before it did anything, is
    followed by the next, each in a run of its own (see ``core.routing``).

    Raises MissingCapability, before anything is stored, when the engine lacks what the options require.
    """
    if isinstance(engine, Router):
        return await _routed(
            platform,
            session_id,
            text,
            engine,
            waiting=waiting,
            options=options,
            engine_opts=engine_opts,
            owner=owner,
            listener=listener,
            follow=follow,
        )
    asked = opening.parse_options(options or {})
    await in_thread(end_orphans)
    await in_thread(running.expire, platform)
    await in_thread(delegating.collect, platform, session_id)
    session = await in_thread(platform.session, session_id)
    if text is not None:
        name = engine if isinstance(engine, str) else engine.name if engine else None
        chosen = _engine(engine, name or session.engine, engine_opts or {})
        if (there := await in_thread(dispatching.machine_for, platform, session_id)) is not None:
            left = await in_thread(
                running.submit, platform, session_id, text, engine=chosen.name, options=options
            )
            return waiting_there(platform, left, there)
        if (why := chosen.unavailable()) is not None:
            raise EngineUnavailable(engine=chosen.name, why=why)
        fit = fitting(chosen, asked)
        mine = await in_thread(
            running.submit, platform, session_id, text, engine=chosen.name, options=options
        )
    else:
        if waiting is not None:
            queued: Run | None = await in_thread(running.get, platform, waiting)
        else:
            queued = await in_thread(running.next_queued, platform, session_id)
        if queued is None:
            raise InvalidInput(what="the message", why=f"no text was given and nothing waits in {session_id}")
        mine = queued
        if (there := await in_thread(dispatching.machine_for, platform, mine.session_id)) is not None:
            return waiting_there(platform, mine, there)
        chosen = _engine(engine, mine.engine or session.engine, engine_opts or {})
        with contextlib.suppress(
            InvalidInput
        ):  # options that cannot be read fail the run, when it is executed
            asked = opening.parse_options(mine.options)
        fit = fitting(chosen, asked)
    drive = execute_and_follow if follow else execute
    while True:
        current = await in_thread(running.get, platform, mine.id)
        upcoming = await in_thread(running.next_queued, platform, current.session_id)
        if current.state != "queued" or upcoming is None:
            return _waiting(current, "another runner is working in this session")
        if upcoming.id != mine.id and upcoming.engine not in ("", chosen.name):
            return _waiting(current, f"a message for the engine {upcoming.engine} is before it")
        try:
            result = await drive(
                platform, upcoming.id, chosen, owner=owner or platform.host or "onward", listener=listener
            )
        except (Conflict, InvalidTransition):
            continue  # another runner was faster, or somebody ended it; see what there is now
        if upcoming.id == mine.id:
            return msgspec.structs.replace(result, warnings=fit.warnings) if fit.warnings else result


def fitting(engine: Engine, options: RunOptions) -> Resolution:
    """Return how an engine fits what a run requires and wishes for. Raises MissingCapability."""
    return resolve(
        offered(engine.capabilities),
        [need(text) for text in options.requires],
        [need(text) for text in options.wishes],
        engine=engine.name,
    )


async def _routed(
    platform: Platform,
    session_id: str,
    text: str | None,
    router: Router,
    *,
    waiting: str | None,
    engine_opts: dict[str, Any] | None,
    **given: Any,
) -> RunResult:
    """Let engines try in turn until one answers or fails for good."""
    result: RunResult | None = None
    refused: OnwardError | None = None
    for name in router.order(session_id, time.monotonic()):
        router.trying(name, time.monotonic())
        if result is not None:
            again = await in_thread(running.retry, platform, result.run, engine=name)
            text, waiting, session_id = None, again.id, again.session_id
        options = (engine_opts or {}).get(name) if engine_opts else None
        try:
            result = await run_session(
                platform,
                session_id,
                text,
                engine=engine_by_name(name, **(options or {})),
                waiting=waiting,
                engine_opts=None,
                **given,
            )
        except (EngineUnavailable, MissingCapability) as error:
            refused = error  # before anything was said: the message is not in the log twice
            router.failed(name, time.monotonic())
            continue
        if result.state != "failed" or not result.retryable:
            if result.state in ("completed", "continued"):
                router.succeeded(name, session_id, time.monotonic())
            return result
        router.failed(name, time.monotonic())
    if result is None:
        raise refused or InvalidInput(what="the engines to choose from", why="there is none to try")
    return result


def waiting_there(platform: Platform, run: Run, machine: Machine) -> RunResult:
    """Return the result of a run that another machine executes: that one has the session's workspace."""
    why = dispatching.why_waiting(platform, run).rstrip(".")
    return _waiting(run, why or f"{machine.name} executes it")


def _waiting(run: Run, why: str) -> RunResult:
    return RunResult(
        session=run.session_id,
        run=run.id,
        state=run.state,
        opening=None,
        opening_told="",
        reply="",
        usage=None,
        reason=f"It waits: {why}." if run.state == "queued" else run.reason or "",
    )


def _engine(given: str | Engine | None, name: str | None, options: dict[str, Any]) -> Engine:
    """Return an engine by name, or the one that was passed in."""
    if given is not None and not isinstance(given, str):
        return given
    name = given or name
    if not name:
        raise InvalidInput(what="the engine", why=f"none was named; there are {', '.join(ENGINES)}")
    return engine_by_name(name, **options)
