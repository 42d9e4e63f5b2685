"""Dispatching: which machine executes which run, and what to say while none does.

A queued run is for the machine that its session's workspace is on; without a workspace, for the first that asks and has its
engine. Machines ask; nothing is pushed to them. Two that ask at once are told apart where the run is claimed, by the guards
of that one transaction, so no run is executed twice. What waits longest comes first.

A claim has a name that its runner drew. Its answer may be lost on the way, so asking again under that name gives the same
run for as long as it is running.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

import msgspec

from onward.core.records import Machine, Run
from onward.core.wording import offline
from onward.errors import Conflict, InvalidTransition
from onward.service import machines, running, workspaces
from onward.service.platform import Platform

REMOTE_LEASE: Final = 900.0
"""Seconds that a run of another machine stays its own without a word: as long as a lost network is waited for."""
BEAT_SECONDS: Final = 20.0
"""Seconds between two signs of life of a runner."""
MAX_RUNNING: Final = 10_000


def claim_next(
    platform: Platform,
    machine: Machine,
    engines: Sequence[str],
    *,
    claim: str,
    lease: float = REMOTE_LEASE,
) -> Run | None:
    """Claim the run that has waited longest for this machine and these engines; None when none waits."""
    if (known := _claimed(platform, machine, claim)) is not None:
        return known
    there = msgspec.structs.replace(platform, machine_id=machine.id)
    for run in platform.store.waiting_for(machine, engines):
        try:
            return running.claim(there, run.id, machine.name, engine=run.engine, lease=lease, claim=claim)
        except (Conflict, InvalidTransition):
            continue  # another machine was faster, or somebody cancelled it
    return None


def _claimed(platform: Platform, machine: Machine, claim: str) -> Run | None:
    running_now = platform.store.runs_in("running", limit=MAX_RUNNING)
    return next((run for run in running_now if run.claim == claim and run.machine_id == machine.id), None)


def give_back(platform: Platform, machine: Machine, claim: str) -> None:
    """Queue a run again that was claimed under this name and not begun. Where there is none, nothing happens."""
    run = _claimed(platform, machine, claim)
    if run is not None and run.entries == 0:
        with contextlib.suppress(Conflict, InvalidTransition):
            running.settle(platform, run, "interrupted", reason="its runner stopped before it began")


def machine_for(platform: Platform, session_id: str) -> Machine | None:
    """Return the machine that runs of a session wait for, if it is one in particular that is not this one."""
    workspace = workspaces.of_session(platform, platform.session(session_id))
    if workspace is None or workspaces.is_here(platform, workspace):
        return None
    return workspaces.machine_of(platform, workspace)


def why_waiting(platform: Platform, run: Run, unfinished: Sequence[Run] | None = None) -> str:
    """Return why a queued run is not running, in a sentence for a person; empty where it may start at any moment.

    ``unfinished`` are the unfinished runs of its session, where they were read already: whoever asks about many runs
    reads them once.
    """
    if run.state != "queued":
        return ""
    if unfinished is None:
        unfinished = platform.store.unfinished(run.session_id)
    upcoming = running.upcoming(unfinished)
    if upcoming is None:
        return "Another message is being answered."
    if upcoming.id != run.id:
        return "Another message is before it."
    if not run.engine:
        return "No engine was named for it."
    workspace = workspaces.of_session(platform, platform.session(run.session_id))
    if workspace is not None:
        machine = workspaces.machine_of(platform, workspace)
        return "" if machine is None else _why_not(platform, machine, run.engine)
    offering = [m for m in machines.listed(platform) if run.engine in machines.able(m)]
    if not offering or any(machines.online(platform, machine) for machine in offering):
        return ""
    return f"{offline(', '.join(machine.name for machine in offering))}."


def _why_not(platform: Platform, machine: Machine, engine: str) -> str:
    if machine.home and not machine.seen_at:
        return ""  # nobody ever served this store: whoever runs something here does so by hand
    if not machines.online(platform, machine):
        return f"{offline(machine.name)}."
    if engine in machines.able(machine):
        return ""
    why = next((offer.unavailable for offer in machines.offers(machine) if offer.name == engine), None)
    return f"{machine.name} cannot run {engine}{f': {why}' if why else ''}".rstrip(".") + "."
