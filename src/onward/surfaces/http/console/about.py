"""About a session: everything its page says beside the timeline, as it stands now.

Nothing here is inferred that the log or the store does not say: a machine of which nothing is known is not called online, a
reading of the context that nobody measured is absent, and how the engine got its context is told by ``core.wording`` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onward.core import bodies
from onward.core.codec import body_of, decode
from onward.core.events import Event
from onward.core.records import FINAL_STATES, Machine, Run, Session
from onward.core.wording import Telling, facts_of, offline, tell
from onward.errors import OnwardError
from onward.service import dispatching, machines, pressure, running, sessions, usage, workspaces
from onward.service.platform import Platform
from onward.surfaces.http import failing
from onward.surfaces.http.console import kinds, words
from onward.surfaces.http.console.views import Steps, View
from onward.surfaces.http.console.words import When

RUNS: Final = 8
"""Runs that the page of a session lists; the newest are what somebody looks for."""
QUEUED: Final = 10
"""Messages that wait of which the words are shown."""
CHANGES: Final = 30
"""Newest changes of a session among which its last opening is looked for."""

LOOKED_BACK: Final = 20_000
"""Newest events that are looked through for them: a page costs the same however long its session is."""


class RunView(View, frozen=True, kw_only=True):
    """A run as it stands."""

    id: str
    session: str
    state: str
    """As the record has it."""
    told: str
    """The same for a person."""
    tone: str
    engine: str
    machine: str
    attempt: int
    created: When | None
    ended: When | None
    reason: str
    """Why it ended so; of one that waits, what for."""
    usage: tuple[str, ...]
    may_cancel: bool
    may_retry: bool
    retry_of: str | None


class EngineView(View, frozen=True, kw_only=True):
    """An engine that a message could be put before."""

    name: str
    unavailable: str
    chosen: bool


class Writing(View, frozen=True, kw_only=True):
    """Whether a message would be taken here, and by whom."""

    open: bool
    why: str
    """Why not."""
    successor: str | None
    """Where the conversation went on, if it did."""
    successor_title: str
    engines: tuple[EngineView, ...]


class Queued(View, frozen=True, kw_only=True):
    """A message that waits for its turn: it is not in the log before its run begins."""

    run: str
    text: str
    who: str
    why: str
    since: When | None


class Gauge(View, frozen=True, kw_only=True):
    """How full the model's window was when it was last asked."""

    tokens: int
    window: int
    told: str
    advice: str


class About(View, frozen=True, kw_only=True):
    """What is known about a session."""

    state: str
    tone: str
    busy: bool
    engine: str
    workspace: str | None
    workspace_href: str | None
    machine: str
    online: bool | None
    """None where nothing is known of it."""
    opening: Telling | None
    gauge: Gauge | None
    spent: tuple[tuple[str, str], ...]
    spent_note: str
    queued: tuple[Queued, ...]
    more_queued: int
    runs: tuple[RunView, ...]
    more_runs: bool
    plan: Steps | None
    pins: Steps | None
    writing: Writing
    created: When | None
    updated: When | None
    events: int


def facts(platform: Platform, session: Session) -> About:
    """Return everything that a session's page says beside the timeline."""
    now = platform.clock()
    runs = platform.store.runs(session.id, limit=RUNS + 1)
    unfinished = platform.store.unfinished(session.id)
    shown = tuple(run_view(platform, run, now, unfinished) for run in runs[:RUNS])
    state = sessions.state(platform, session)
    place = workspaces.of_session(platform, session)
    on = workspaces.machine_of(platform, place) if place else None
    writing = _writing(platform, session, on)
    told, tone, busy = _state(session, shown, writing)
    machine, online = _machine(platform, on)
    waiting = [run for run in unfinished if run.input is not None]
    spent, note = _spent(platform, session)
    plan, pins = (_steps(state, kind) for kind in ("plan", "pins"))
    return About(
        state=told,
        tone=tone,
        busy=busy,
        engine=session.engine or "none yet",
        workspace=place.path if place else None,
        workspace_href=f"/workspaces/{place.id}" if place else None,
        machine=machine,
        online=online,
        opening=_opening(platform, session),
        gauge=_gauge(platform, session),
        spent=spent,
        spent_note=note,
        queued=_queued(platform, waiting[:QUEUED], unfinished, now),
        more_queued=max(0, len(waiting) - QUEUED),
        runs=shown,
        more_runs=len(runs) > RUNS,
        plan=plan,
        pins=pins,
        writing=writing,
        created=words.when(session.created_at, now),
        updated=words.when(session.updated_at or session.created_at, now),
        events=session.head_seq,
    )


def run_view(platform: Platform, run: Run, now: int, unfinished: Sequence[Run] | None = None) -> RunView:
    """Return a run as it is shown. ``unfinished`` are those of its session, where they were read already."""
    on = platform.store.machine(run.machine_id) if run.machine_id else None
    used = usage.of_run(run)
    told = kinds.usage_words(used.usage)
    waits = dispatching.why_waiting(platform, run, unfinished)
    tones = {"failed": "bad", "interrupted": "bad", "completed": "good", "running": "busy", "queued": "busy"}
    return RunView(
        id=run.id,
        session=run.session_id,
        state=run.state,
        told=words.STATES[run.state],
        tone=tones.get(run.state, "quiet"),
        engine=run.engine or "no engine named",
        machine=on.name if on else "",
        attempt=run.attempt,
        created=words.when(run.created_at, now),
        ended=words.when(run.ended_at, now),
        reason=(run.reason or "") if run.state in FINAL_STATES else waits,
        usage=told,
        may_cancel=run.state in ("queued", "running"),
        may_retry=run.state in ("failed", "cancelled", "interrupted"),
        retry_of=run.retry_of,
    )


def _queued(
    platform: Platform, waiting: Sequence[Run], unfinished: Sequence[Run], now: int
) -> tuple[Queued, ...]:
    """Return messages that wait, in the order in which they will be answered."""
    out = []
    for run in waiting:
        body = decode("message", run.input) if run.input is not None else None
        if isinstance(body, bodies.Message):
            why = dispatching.why_waiting(platform, run, unfinished)
            who = "Trigger" if run.input_actor == "trigger" else "You"
            since = words.when(run.created_at, now)
            out.append(Queued(run=run.id, text=words.cut(body.text, 600), who=who, why=why, since=since))
    return tuple(out)


def status_of(error: OnwardError) -> int:
    """Return the status of a page that shows an error beside what was written."""
    return failing.status_of(error)


def _state(session: Session, runs: tuple[RunView, ...], writing: Writing) -> tuple[str, str, bool]:
    """Return how a session stands, in words, how that looks, and whether something is going on."""
    working = next((run for run in runs if run.state == "running"), None)
    if working is not None:
        return f"{working.engine} is working", "busy", True
    waiting = next((run for run in reversed(runs) if run.state == "queued"), None)
    if waiting is not None:
        return (
            f"Waiting{f': {waiting.reason}' if waiting.reason else ' for a machine to take it up'}",
            "busy",
            True,
        )
    if writing.successor is not None:
        return f"Continued in “{writing.successor_title}”", "quiet", False
    if session.archived:
        return "Archived", "quiet", False
    if runs and runs[0].state in ("failed", "interrupted"):
        return f"The last run {'failed' if runs[0].state == 'failed' else 'was cut off'}", "bad", False
    return "Ready" if session.head_seq else "Empty", "quiet", False


def _writing(platform: Platform, session: Session, on: Machine | None) -> Writing:
    ahead = sessions.continuations(platform, session.id)
    successor = platform.store.session(ahead[-1].to_session) if ahead else None
    title = (successor.title or "Untitled") if successor is not None else "another session"
    why = ""
    try:
        running.refuse_if_closed(platform, session)
    except OnwardError:
        why = "This conversation went on elsewhere." if ahead else "This session is archived. It can be read."
    return Writing(
        open=not why,
        why=why,
        successor=ahead[-1].to_session if ahead else None,
        successor_title=title,
        engines=engines(platform, session, on),
    )


def engines(platform: Platform, session: Session, on: Machine | None) -> tuple[EngineView, ...]:
    """Return the engines that a message of a session could be put before: its own first, then those of its machine."""
    known: dict[str, str] = {}
    for machine in [on] if on is not None else machines.listed(platform):
        for offer in machines.offers(machine):
            if offer.unavailable is None or offer.name not in known:
                known[offer.name] = offer.unavailable or ""
    names = list(dict.fromkeys([*filter(None, [session.engine]), *sorted(known)]))
    return tuple(
        EngineView(name=name, unavailable=known.get(name, ""), chosen=name == session.engine)
        for name in names
    )


def _machine(platform: Platform, on: Machine | None) -> tuple[str, bool | None]:
    if on is None:
        return "", None
    if on.home and not on.seen_at:
        return on.name, None
    here = machines.online(platform, on)
    return (on.name if here else offline(on.name)), here


def _opening(platform: Platform, session: Session) -> Telling | None:
    changes = platform.store.events(
        session.id,
        after=max(0, session.head_seq - LOOKED_BACK),
        kinds=("session",),
        limit=CHANGES,
        newest_first=True,
    )
    for event in changes:
        body = body_of(event)
        if isinstance(body, bodies.SessionChange) and body.change == "opening":
            return tell(facts_of(body), "banner")
    return None


def _gauge(platform: Platform, session: Session) -> Gauge | None:
    found = pressure.meter(platform, session.id)
    if found is None:
        return None
    advice = ""
    if found.share >= 0.85:
        advice = "Continue in a fresh session before going on."
    elif found.share >= 0.70:
        advice = "Look for a good place to continue."
    told = f"{found.share:.0%} of {words.tokens(found.window)} tokens"
    return Gauge(tokens=min(found.tokens, found.window), window=found.window, told=told, advice=advice)


def _spent(platform: Platform, session: Session) -> tuple[tuple[tuple[str, str], ...], str]:
    found = usage.of_session(platform, session.id)
    total = found.total
    if not total.measured:
        return (), ""
    rows = [
        ("Runs", words.number(total.runs)),
        ("Tokens in", words.tokens(total.input_tokens)),
        ("Tokens out", words.tokens(total.output_tokens)),
    ]
    if total.cache_read_tokens:
        rows.append(("From cache", words.tokens(total.cache_read_tokens)))
    if total.measured > total.unpriced:
        rows.append(("Cost", words.money(total.cost_usd)))
    notes = []
    if total.measured < total.runs:
        notes.append(f"{words.counted(total.runs - total.measured, 'run')} did not say")
    if total.unpriced:
        notes.append(f"the cost of {words.counted(total.unpriced, 'run')} is not known")
    if not found.complete:
        notes.append(f"of the newest {total.runs:,} runs")
    return tuple(rows), "; ".join(notes)


def _steps(state: dict[str, Event], kind: str) -> Steps | None:
    body = body_of(state[kind]) if kind in state else None
    return kinds.steps_of(body) if isinstance(body, bodies.Plan | bodies.Pins) else None
