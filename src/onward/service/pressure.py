"""The meter of a session, read from the usage of its newest runs, and the notices that are due when a run ends.

A reading belongs to the runs of the session itself: a successor and a branch begin without one (C8). A notice is appended
with the end of the run that reached its threshold, in the same transaction, and never a second time: its id is derived from
the session and the threshold.
"""

from __future__ import annotations

from typing import Final

import msgspec

from onward.core import pressure
from onward.core.bodies import Usage
from onward.core.events import NewEvent
from onward.core.pressure import Pressure
from onward.core.records import Run
from onward.service.platform import Platform

LOOKED_AT: Final = 20
"""Newest runs among which one with a measurement is looked for: those that fail early measure nothing."""


def meter(platform: Platform, session_id: str) -> Pressure | None:
    """Return how full the window was at the newest measured request of a session, or None before a first one."""
    platform.session(session_id)
    for run in platform.store.runs(session_id, limit=LOOKED_AT):
        if run.usage is None:
            continue
        found = measured(platform, run, msgspec.json.decode(run.usage, type=Usage))
        if found is not None:
            return found
    return None


def measured(
    platform: Platform, run: Run, usage: Usage | None, *, window: int | None = None
) -> Pressure | None:
    """Return what the usage of one run says, or None where it says nothing.

    An engine that reports only sums is believed for a turn without tool calls: that is one request.
    """
    if usage is None:
        return None
    one = False
    if usage.context_tokens is None:
        from onward.service import running  # late: showing a reading has no use for what executes runs

        one = not running.called_a_tool(platform, run)
    return pressure.reading(usage, window=window, one_request=one)


def notices(platform: Platform, run: Run, usage: Usage | None) -> tuple[NewEvent, ...]:
    """Return the notice that this usage makes due, if the session has neither that one nor a more urgent one."""
    found = measured(platform, run, usage)
    threshold = pressure.reached(found) if found is not None else None
    if found is None or threshold is None:
        return ()
    session = platform.session(run.session_id)
    for other in pressure.THRESHOLDS:
        name = pressure.notice_id(session.id, session.created_at, other)
        if other >= threshold and platform.store.event(name) is not None:
            return ()
    name = pressure.notice_id(session.id, session.created_at, threshold)
    said = pressure.notice(found, threshold)
    return (platform.event("context", said, "system", run_id=run.id, id=name),)
