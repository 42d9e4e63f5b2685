"""Runs on pages: how one stands, ending it, and trying again."""

from __future__ import annotations

from typing import Any, Final

from onward.core.bodies import Message
from onward.core.codec import decode
from onward.core.records import Run
from onward.service import running, workspaces
from onward.surfaces.http.console import about, kinds
from onward.surfaces.http.console.visiting import Moved, Page, Shown, Visit
from onward.surfaces.http.console.window import names_of


def show(visit: Visit) -> Shown:
    """Show a run."""
    platform = visit.platform
    run = running.get(platform, visit.path["run"])
    view = about.run_view(platform, run, platform.clock())
    session = platform.session(run.session_id)
    place = workspaces.of_session(platform, session)
    on = workspaces.machine_of(platform, place) if place else None
    values: dict[str, Any] = {
        "title": f"Run: {view.told}",
        "run": view,
        "session": session,
        "engines": about.engines(platform, session, on),
        "input": _waiting_input(run),
        "input_seq": None,
        "successor": None,
    }
    if run.input_event is not None:
        asked = platform.store.event(run.input_event)
        if asked is not None and asked.session_id == run.session_id:
            values["input_seq"] = asked.seq
    if run.state == "continued":
        successor = running.successor_of(platform, run)
        if successor is not None:
            values["successor"] = kinds.other(successor, names_of(platform, {successor}))
    return Shown(template="run.html", values=values)


def cancel(visit: Visit) -> Moved:
    """Cancel a run; one that has ended is left as it is."""
    run = running.cancel(visit.platform, visit.path["run"])
    return Moved(to=f"/sessions/{run.session_id}")


def retry(visit: Visit) -> Moved:
    """Queue a run again."""
    run = running.retry(visit.platform, visit.path["run"], engine=visit.form.get("engine") or None)
    return Moved(to=f"/sessions/{run.session_id}#end")


def _waiting_input(run: Run) -> str:
    """Return what a run will answer, while that waits and is not in the log yet."""
    if run.input is None:
        return ""
    body = decode("message", run.input)
    return body.text if isinstance(body, Message) else ""


PAGES: Final = (
    Page(method="GET", path="/runs/{run}", does="Show a run.", scope="read", handler=show),
    Page(method="POST", path="/runs/{run}/cancel", does="Cancel a run.", scope="write", handler=cancel),
    Page(method="POST", path="/runs/{run}/retry", does="Queue a run again.", scope="write", handler=retry),
)
