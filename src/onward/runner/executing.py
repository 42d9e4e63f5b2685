"""Executing a run: claiming it, letting the engine play, and keeping watch beside it.

The watch keeps the lease and the draft. When either finds that the run is no longer ours (cancelled by somebody, or taken
for dead), the engine is stopped and ``LeaseLost`` says so: a runner never goes on without its lease.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Final

from onward.core.records import Run
from onward.engines.contract import Engine
from onward.errors import (
    Conflict,
    EngineUnavailable,
    InvalidTransition,
    LeaseLost,
    OnwardError,
    StoreBusy,
)
from onward.runner.desk import Desk, LocalDesk, uninterrupted
from onward.runner.driving import Drive, Listener, RunResult
from onward.service import running
from onward.service.platform import Platform

BEATS: Final = 3
"""How often a lease is renewed before it would end."""
MAX_FOLLOWED: Final = 8
"""How many continuations one call follows."""


async def execute(
    platform: Platform,
    run_id: str,
    engine: Engine,
    *,
    owner: str = "onward",
    listener: Listener | None = None,
    lease: float = running.LEASE_SECONDS,
) -> RunResult:
    """Execute one queued run in the process that has the store, see ``execute_at``."""
    return await execute_at(LocalDesk(platform), run_id, engine, owner=owner, listener=listener, lease=lease)


async def execute_at(
    desk: Desk,
    run_id: str,
    engine: Engine,
    *,
    owner: str = "onward",
    listener: Listener | None = None,
    lease: float = running.LEASE_SECONDS,
) -> RunResult:
    """Execute one queued run. ``lease`` is in seconds.

    Raises EngineUnavailable before claiming; Conflict or InvalidTransition when the run could not be claimed; LeaseLost when
    it was cancelled or taken over while the engine worked, which is stopped then. An engine that fails settles the run as
    ``failed``: that is an answer, not an exception. One that raises what it should not settles it too, and its exception
    goes on. Cancelling the task settles the run as ``cancelled``, with what had been said by then.
    """
    why = engine.unavailable()
    if why is not None:
        raise EngineUnavailable(engine=engine.name, why=why)
    claiming = asyncio.ensure_future(desk.claim(run_id, owner, engine=engine.name, lease=lease))
    try:
        run = await uninterrupted(claiming)
    except asyncio.CancelledError:
        if claiming.done() and not claiming.cancelled() and claiming.exception() is None:
            await Drive(desk, claiming.result(), engine, listener).stopped("it was cancelled")
        raise
    return await execute_claimed(desk, run, engine, listener=listener, lease=lease)


async def execute_claimed(
    desk: Desk,
    run: Run,
    engine: Engine,
    *,
    listener: Listener | None = None,
    lease: float = running.LEASE_SECONDS,
    beat: float | None = None,
) -> RunResult:
    """Execute a run that was claimed, as ``execute_at`` does. Its lease is renewed every ``beat`` seconds."""
    turn = Drive(desk, run, engine, listener)
    try:
        return await _watched(turn, lease, beat or lease / BEATS)
    except (asyncio.CancelledError, KeyboardInterrupt):
        await turn.stopped("it was cancelled")
        raise
    except LeaseLost:
        return await turn.lost()
    except OnwardError as error:
        return await turn.end("failed", error.message)
    except Exception as error:
        await turn.end("failed", f"the engine broke: {type(error).__name__}: {error}")
        raise


async def _watched(turn: Drive, lease: float, beat: float) -> RunResult:
    """Let the engine play while its lease and its draft are kept; stop it as soon as one of them cannot be."""
    play = asyncio.create_task(turn.play())
    watch = (asyncio.create_task(_keep_alive(turn, lease, beat)), asyncio.create_task(turn.keep_drafts()))
    try:
        await asyncio.wait((play, *watch), return_when=asyncio.FIRST_COMPLETED)
        if not play.done():
            play.cancel()
            await asyncio.wait((play,))
            for task in watch:
                if task.done():
                    task.result()  # raises what it found
        return play.result()
    finally:
        await _gone(play, *watch)


async def _gone(*tasks: asyncio.Task[Any]) -> None:
    """Cancel these tasks and wait until they have ended, however often we are cancelled ourselves.

    What they raise was looked at before.
    """
    for task in tasks:
        task.cancel()
    while unfinished := [task for task in tasks if not task.done()]:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait(unfinished)
    for task in tasks:
        if not task.cancelled():
            task.exception()


async def _keep_alive(turn: Drive, lease: float, beat: float) -> None:
    """Renew the lease for as long as it is ours. Ends by raising LeaseLost."""
    while True:
        await asyncio.sleep(beat)
        with contextlib.suppress(StoreBusy):  # there are more beats before the lease ends
            await turn.desk.heartbeat(turn.run, lease=lease)


async def execute_and_follow(
    platform: Platform,
    run_id: str,
    engine: Engine,
    *,
    owner: str = "onward",
    listener: Listener | None = None,
) -> RunResult:
    """Execute a run and, when the agent continued elsewhere, the successor's run too: it gives the answer."""
    desk = LocalDesk(platform)
    result = await execute_at(desk, run_id, engine, owner=owner, listener=listener)
    for _ in range(MAX_FOLLOWED):
        if result.continued_to is None:
            break
        waiting = await desk.next_queued(result.continued_to)
        if waiting is None:
            break
        try:
            result = await execute_at(desk, waiting.id, engine, owner=owner, listener=listener)
        except (Conflict, InvalidTransition):
            break  # another runner answers there: this turn ended as it says
    return result
