"""Runs: one turn of an engine, from the message that waits to the state that is final.

A message to a session becomes a queued run; the message itself enters the log when the run starts, so what is said while
an agent works never lands in the middle of its turn. Claiming gives a lease and a fencing number; whoever lost the lease
cannot write (L6). A lease that expired turns the run into ``interrupted``: streamed text that was not finished becomes a
message marked so, open calls are closed as ``not_started`` or ``outcome_unknown``, and the run is queued again only if no
effect had begun.

Each verb is one store call, which is the transaction that makes it right. Nothing here drives an engine: see
``onward.runner``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from onward.core import ids as make
from onward.core import plans
from onward.core.bodies import Message, Plan, Recall, SessionChange, ToolResult, Usage
from onward.core.bodies import RunChange as RunChanged
from onward.core.codec import body_of, decode, encode
from onward.core.continuation import carried_message
from onward.core.continuing_command import MAX_KEY
from onward.core.events import PERSON, Event, NewEvent, Source
from onward.core.mentions import MARK
from onward.core.records import FINAL_STATES, Draft, EngineSession, Run, RunState, Session
from onward.core.transcript import UNANSWERED
from onward.errors import (
    Conflict,
    InvalidInput,
    InvalidTransition,
    LeaseLost,
    LimitExceeded,
    RunNotFound,
    SessionArchived,
    SessionContinued,
)
from onward.service import sessions
from onward.service.platform import Platform
from onward.store.contract import (
    Append,
    Batch,
    HeadIs,
    LinksAre,
    NoRuns,
    RunChange,
    RunIs,
    SessionPatch,
)

if TYPE_CHECKING:
    from onward.service.referencing import Named

LEASE_SECONDS: Final = 60
MAX_ATTEMPTS: Final = 3
"""How often a run that was cut off before any effect is queued again by itself."""
MAX_MESSAGE: Final = 4 * 1024 * 1024
"""UTF-8 bytes of one message."""
MAX_EXPIRED: Final = 10_000
"""Runs with an ended lease that are looked at in one go."""
INPUT_ACTORS: Final = ("user", "trigger")
"""Who may put a message before an agent."""
MODES: Final = ("auto", "replay", "native", "none")


def submit(
    platform: Platform,
    session_id: str,
    text: str,
    *,
    engine: str | None = None,
    actor: str = "user",
    options: dict[str, Any] | None = None,
    references: Sequence[Named] = (),
    key: str | None = None,
) -> Run:
    """Put a message before the session's agent. It waits in order behind what is being worked on.

    Sessions that a person's message mentions, and those in ``references``, are quoted as they stand now: their snapshots
    wait with the message and enter the log right before it (see ``referencing.prepare``, and what it raises).

    ``key`` makes it repeat-safe: under a key that was used before in this session, the run that was made then is returned as
    it stands now, whatever is said the second time.

    Raises SessionContinued with the two offers when the conversation went on elsewhere, SessionArchived when it was put
    away; then nothing is stored.
    """
    session = platform.session(session_id)
    if actor not in INPUT_ACTORS:
        raise InvalidInput(what=f"actor {actor!r}", why=f"a message comes from {' or '.join(INPUT_ACTORS)}")
    refuse_unsayable(text)
    named = platform.ids.new(make.RUN) if key is None else _keyed(session, key)
    if key is not None and (made := platform.store.run(named)) is not None:
        return made
    refuse_if_closed(platform, session)
    context = None
    if references or (actor == "user" and MARK in text):
        from onward.service import (
            referencing,
        )  # late: most messages refer to nothing, and it submits messages itself

        prepared = referencing.prepare(platform, session_id, text, references, mentions=actor == "user")
        text, context = prepared.text, prepared.context
    run = Run(
        id=named,
        session_id=session_id,
        created_at=platform.clock(),
        engine=engine or session.engine or "",
        input=encode(Message(role="user", text=text)),
        input_actor=actor,
        context=encode(context) if context else None,
        options=encode(options or {}),
    )
    try:
        platform.store.commit(Batch(guards=(LinksAre(session_id, "continuation", 0),), runs=(run,)))
    except Conflict:
        if key is not None and (made := platform.store.run(named)) is not None:
            return made
        refuse_if_closed(platform, platform.session(session_id))
        raise
    return run


def _keyed(session: Session, key: str) -> str:
    """Return the id of the run that a message with this key begins. Raises LimitExceeded."""
    if not 1 <= len(key) <= MAX_KEY:
        raise LimitExceeded(what="an idempotency key", limit=f"1 to {MAX_KEY} characters", found=len(key))
    return make.derived_id(make.RUN, session.created_at, "message", session.id, key)


def refuse_unsayable(text: str) -> None:
    """Raise if a text is no message: InvalidInput for an empty one, LimitExceeded above ``MAX_MESSAGE`` bytes."""
    if not text.strip():
        raise InvalidInput(what="the message", why="it is empty")
    if (size := len(text.encode("utf-8", "surrogatepass"))) > MAX_MESSAGE:
        raise LimitExceeded(what="a message", limit=f"{MAX_MESSAGE:,} bytes", found=f"{size:,} bytes")


def refuse_if_closed(platform: Platform, session: Session) -> None:
    """Raise if a session takes no new messages: it was continued, or archived."""
    ahead = sessions.continuations(platform, session.id)
    if ahead:
        current = platform.store.session(ahead[-1].to_session)
        raise SessionContinued(
            title=current.title if current else "",
            successor=ahead[-1].to_session,
            session=session.id,
            offers=[{"open": ahead[-1].to_session}, {"branch": session.id}],
        )
    if session.archived:
        raise SessionArchived(session=session.id)


def next_queued(platform: Platform, session_id: str) -> Run | None:
    """Return the run of a session whose turn it is, if none is running.

    First those whose message is in the log already (a successor's first run, one that is tried again), because everything
    that waits was said after it; then the others in the order in which they came.
    """
    return upcoming(platform.store.unfinished(session_id))


def upcoming(runs: Sequence[Run]) -> Run | None:
    """Return what ``next_queued`` does, of the unfinished runs of a session."""
    if any(r.state == "running" for r in runs):
        return None
    return min(runs, key=lambda r: (r.input is not None, r.created_at, r.id), default=None)


def claim(
    platform: Platform,
    run_id: str,
    owner: str,
    *,
    engine: str,
    lease: float = LEASE_SECONDS,
    claim: str | None = None,
) -> Run:
    """Start a queued run: take the lease and put its message into the log, in one transaction.

    It is executed on the machine that the platform names. ``claim`` is what its runner calls this claim, where it may have
    to ask again.

    A run that moved along after its message had been said gets a copy of it here, which names the original.
    Raises Conflict when somebody else was faster or another run of the session is working, InvalidTransition when the run
    has ended.
    """
    run = get(platform, run_id)
    if run.state == "running":
        raise Conflict(what=f"run {run_id}, which {run.owner or 'another runner'} is working on")
    if run.state != "queued":
        raise InvalidTransition(run=run_id, found=run.state, wanted="running")
    # A queued run may move to a successor at any moment, and it moves together with a new continuation: if none was made
    # since these were counted, it is still where it was read.
    ahead = len(sessions.continuations(platform, run.session_id))
    if get(platform, run_id).session_id != run.session_id:
        raise Conflict(what=f"run {run_id}, which moved to another session")
    now = platform.clock()
    events = _entering(platform, run, now)
    asked = events[-1].id if events else None
    started = RunChanged(run=run_id, state="running", engine=engine, attempt=run.attempt)
    events.append(platform.event("run", started, "system", run_id=run_id, at=now))
    change = RunChange(
        run_id=run_id,
        state="running",
        owner=owner,
        machine_id=platform.machine_id,
        claim=claim,
        lease_until=now + round(lease * 1_000_000),
        started_at=now,
        input_event=asked,
        clear_input=run.input is not None,
    )
    done = platform.store.commit(
        Batch(
            guards=(RunIs(run_id, "queued"), LinksAre(run.session_id, "continuation", ahead)),
            run_changes=(change,),
            appends=(Append(session_id=run.session_id, events=tuple(events)),),
            session_patches=(SessionPatch(session_id=run.session_id, engine=engine),),
        )
    )
    return done.runs[0]


def _entering(platform: Platform, run: Run, at: int) -> list[NewEvent]:
    """Return what enters the log with a run: the snapshots that its message brings along, then the message."""
    context: bytes | None
    if run.input is not None:
        context, body, actor, source = run.context, run.input, run.input_actor, PERSON
    elif (said := _said_elsewhere(platform, run)) is not None:
        brought = brought_by(platform, said)
        context = None if brought is None else brought.body
        body, actor, source = carried_message(said), said.actor, said.source
    else:
        return []
    before = [] if context is None else [platform.event("context", context, "system", run_id=run.id, at=at)]
    return [*before, platform.event("message", body, actor, run_id=run.id, source=source, at=at)]


def brought_by(platform: Platform, said: Event) -> Event | None:
    """Return the snapshots that a message brought along: the event right before it, of the same run."""
    if said.run_id is None or said.seq < 2:
        return None
    before = platform.store.events(said.session_id, after=said.seq - 2, upto=said.seq - 1, limit=1)
    if not before or before[0].kind != "context" or before[0].run_id != said.run_id:
        return None
    return before[0] if isinstance(body_of(before[0]), Recall) else None


def _said_elsewhere(platform: Platform, run: Run) -> Event | None:
    """Return the message of a run if it is in the log of another session, from which the run moved along."""
    said = platform.store.event(run.input_event) if run.input_event else None
    return said if said is not None and said.session_id != run.session_id and not said.erased else None


def get(platform: Platform, run_id: str) -> Run:
    """Return a run of a session that this account may read. Raises RunNotFound otherwise."""
    run = platform.store.run(run_id)
    if run is None or not platform.may_read(run.session_id):
        raise RunNotFound(run=run_id)
    return run


def heartbeat(platform: Platform, run: Run, *, lease: float = LEASE_SECONDS) -> None:
    """Extend a lease. Raises LeaseLost when it is no longer held."""
    until = platform.clock() + round(lease * 1_000_000)
    platform.store.commit(Batch(run_changes=(RunChange(run_id=run.id, fence=run.fence, lease_until=until),)))


def record(
    platform: Platform, run: Run, events: Iterable[NewEvent], *, drop_draft: bool = False
) -> tuple[Event, ...]:
    """Append what an engine said. Raises LeaseLost when the run is no longer held.

    An engine counts the revisions of its plan from one in every turn; here they go on from those of the session.
    """
    events = tuple(events)
    if any(event.kind == "plan" for event in events):
        events = _revised(platform, run, events)
    append = Append(session_id=run.session_id, events=events, run_id=run.id, fence=run.fence)
    drafts = (run.id,) if drop_draft else ()
    return platform.store.commit(Batch(appends=(append,), drop_drafts=drafts)).events


def _revised(platform: Platform, run: Run, events: Sequence[NewEvent]) -> tuple[NewEvent, ...]:
    """Return events whose plans are the next revisions of the session's."""
    plan = sessions.plan_of(sessions.state(platform, platform.session(run.session_id)))
    out = []
    for event in events:
        body = decode(event.kind, event.body) if event.kind == "plan" else None
        if isinstance(body, Plan):
            plan = plans.revised(plan, body.steps, closed=body.closed)
            event = msgspec.structs.replace(event, body=encode(plan))
        out.append(event)
    return tuple(out)


def keep_draft(platform: Platform, run: Run, text: str) -> None:
    """Keep streamed text that is not finished, so that a crash does not lose what was shown.

    Raises LeaseLost when the run is no longer held.
    """
    draft = Draft(run_id=run.id, session_id=run.session_id, text=text, updated_at=platform.clock())
    try:
        platform.store.commit(Batch(guards=(RunIs(run.id, "running", run.fence),), drafts=(draft,)))
    except Conflict as conflict:
        raise LeaseLost(run=run.id, why=f"it is {get(platform, run.id).state}") from conflict


def opened(
    platform: Platform, run: Run, events: Sequence[NewEvent], *, native: EngineSession | None = None
) -> None:
    """Record how a run got its context, as the runner confirmed it, and what the engine calls this session.

    Raises LeaseLost when the run is no longer held.
    """
    append = Append(session_id=run.session_id, events=tuple(events), run_id=run.id, fence=run.fence)
    platform.store.commit(Batch(appends=(append,), engine_sessions=(native,) if native else ()))


def settle(
    platform: Platform,
    run: Run,
    state: RunState,
    *,
    reason: str = "",
    usage: Usage | None = None,
    engine: str = "",
    beside: Sequence[NewEvent] = (),
) -> Run:
    """End a run: its state, its usage, and everything that it left open, in one transaction.

    ``beside`` are events that go with its end (a notice); they stand right before it.
    """
    return _end(platform, run, state, reason=reason, usage=usage, engine=engine, beside=beside)


def cancel(platform: Platform, run_id: str, *, reason: str = "cancelled by a person") -> Run:
    """Cancel a queued or running run. A final one is left as it is and returned."""
    run = get(platform, run_id)
    if run.state in FINAL_STATES:
        return run
    if run.state == "running":
        try:
            return _end(platform, run, "cancelled", reason=reason)
        except LeaseLost:
            return get(platform, run_id)  # it ended by itself in the meantime
    ahead = len(sessions.continuations(platform, run.session_id))
    if get(platform, run_id).session_id != run.session_id:
        raise Conflict(what=f"run {run_id}, which moved to another session")
    # What a person wrote is kept, although nobody answered it.
    events = _entering(platform, run, platform.clock()) if run.input is not None else []
    change = RunChange(
        run_id=run_id,
        state="cancelled",
        ended_at=platform.clock(),
        reason=reason,
        input_event=events[-1].id if events else None,
        clear_input=bool(events),
    )
    ended = RunChanged(run=run_id, state="cancelled", reason=reason, attempt=run.attempt)
    events.append(platform.event("run", ended, "system", run_id=run_id))
    done = platform.store.commit(
        Batch(
            guards=(RunIs(run_id, "queued"), LinksAre(run.session_id, "continuation", ahead)),
            run_changes=(change,),
            appends=(Append(session_id=run.session_id, events=tuple(events)),),
        )
    )
    return done.runs[0]


def retry(
    platform: Platform,
    run_id: str,
    *,
    engine: str | None = None,
    options: bytes | None = None,
    beside: Sequence[NewEvent] = (),
) -> Run:
    """Queue a run that failed, was cancelled or was cut off once more, answering the same message (C7).

    Asking again while that attempt waits or works returns it: one message is not answered twice at a time. ``engine`` lets
    another engine answer, ``options`` take the place of the run's own; ``beside`` are events that go with it.
    """
    run = get(platform, run_id)
    if run.state not in ("failed", "cancelled", "interrupted"):
        raise InvalidTransition(run=run_id, found=run.state, wanted="queued again")
    refuse_if_closed(platform, platform.session(run.session_id))
    unfinished = platform.store.unfinished(run.session_id)
    for other in unfinished:
        if run.input_event is not None and other.input_event == run.input_event:
            return other
    again = _again(platform, run)
    again = msgspec.structs.replace(
        again, engine=engine or again.engine, options=again.options if options is None else options
    )
    guards = (
        LinksAre(run.session_id, "continuation", 0),
        NoRuns(run.session_id, tuple(r.id for r in unfinished)),
    )
    try:
        appends = (Append(session_id=run.session_id, events=tuple(beside)),) if beside else ()
        platform.store.commit(Batch(guards=guards, runs=(again,), appends=appends))
    except Conflict:
        refuse_if_closed(platform, platform.session(run.session_id))
        raise
    return again


def expire(platform: Platform) -> list[Run]:
    """Turn every run of this account whose lease has ended into ``interrupted``. Return those runs, oldest first.

    Safe to call from anywhere at any time: each run is one guarded transaction, and a runner that comes back finds its
    fencing number refused.
    """
    out = []
    now = platform.clock()
    for run in platform.store.runs_in("running", lease_before=now, limit=MAX_EXPIRED):
        if not platform.may_read(run.session_id):
            continue  # its own account closes it
        try:
            out.append(
                _end(platform, run, "interrupted", reason="its runner stopped answering", lease_before=now)
            )
        except (Conflict, InvalidTransition):
            continue  # it answered after all, or somebody else was faster
    return out


def _end(
    platform: Platform,
    run: Run,
    state: RunState,
    *,
    reason: str = "",
    usage: Usage | None = None,
    engine: str = "",
    lease_before: int | None = None,
    beside: Sequence[NewEvent] = (),
) -> Run:
    """Write the end of a run. Retries while calls or drafts change under it; the fence decides who may."""
    fence = run.fence
    for _ in range(20):
        now, head = platform.clock(), platform.session(run.session_id).head_seq
        calls = [
            c for c in platform.store.open_calls(run.session_id) if _of_run(platform, c.event_id, run.id)
        ]
        draft = platform.store.draft(run.id)
        events: list[NewEvent] = []
        if draft is not None and draft.text:
            said = Message(role="assistant", text=draft.text, interrupted=True)
            source = Source(producer="engine", engine=run.engine or None)
            events.append(platform.event("message", said, "agent", run_id=run.id, source=source, at=now))
        for number, call in enumerate(calls):
            # Engines of ours run calls one at a time in order: those behind the first open one never began.
            status: Literal["outcome_unknown", "not_started"] = (
                "outcome_unknown" if number == 0 or not _in_order(run.engine) else "not_started"
            )
            closer = ToolResult(call=call.call, output=UNANSWERED[status], status=status, closer=True)
            events.append(platform.event("tool_result", closer, "system", run_id=run.id, at=now))
        events += beside
        ended = RunChanged(
            run=run.id,
            state=state,
            engine=engine or run.engine or None,
            reason=reason or None,
            usage=usage,
            attempt=run.attempt,
        )
        events.append(platform.event("run", ended, "system", run_id=run.id, at=now))
        again: tuple[Run, ...] = ()
        if state == "interrupted" and run.attempt < MAX_ATTEMPTS and not called_a_tool(platform, run):
            again = (_again(platform, run),)
        try:
            done = platform.store.commit(
                Batch(
                    guards=(RunIs(run.id, "running", fence, lease_before), HeadIs(run.session_id, head)),
                    runs=again,
                    appends=(
                        Append(session_id=run.session_id, events=tuple(events), run_id=run.id, fence=fence),
                    ),
                    run_changes=(
                        RunChange(
                            run_id=run.id,
                            state=state,
                            fence=fence,
                            ended_at=now,
                            reason=reason or None,
                            usage=encode(usage) if usage else None,
                        ),
                    ),
                    drop_drafts=(run.id,),
                )
            )
        except Conflict as conflict:
            found = get(platform, run.id)
            if found.state != "running" or found.fence != fence:
                raise LeaseLost(run=run.id, why=f"it is {found.state}") from conflict
            if not conflict.retryable:
                raise
            continue
        return done.runs[0]
    raise Conflict(what=f"run {run.id}")


def _of_run(platform: Platform, event_id: str, run_id: str) -> bool:
    event = platform.store.event(event_id)
    return event is not None and event.run_id == run_id


def _in_order(engine: str) -> bool:
    return engine in ("script", "model", "local")


def called_a_tool(platform: Platform, run: Run) -> bool:
    """Whether a run called a tool: then repeating it by itself could do something twice.

    It is one of the session's newest runs, so its calls are among the newest events; looking ends where it started.
    """
    upto: int | None = None
    while True:
        page = platform.store.events(
            run.session_id, upto=upto, limit=100, kinds=("tool_call", "run"), newest_first=True
        )
        for event in page:
            if event.run_id == run.id and event.kind == "tool_call":
                return True
            body = body_of(event)
            if event.run_id == run.id and isinstance(body, RunChanged) and body.state == "running":
                return False
        if len(page) < 100:
            return False
        upto = page[-1].seq - 1


def _again(platform: Platform, run: Run) -> Run:
    return msgspec.structs.replace(
        run,
        id=platform.ids.new(make.RUN),
        created_at=platform.clock(),
        state="queued",
        attempt=run.attempt + 1,
        retry_of=run.id,
        owner=None,
        lease_until=None,
        fence=0,
        started_at=None,
        ended_at=None,
        reason=None,
        usage=None,
        machine_id=None,
        claim=None,
        entries=0,
    )


def successor_of(platform: Platform, run: Run) -> str | None:
    """Return the session that a run continued in."""
    for event in platform.store.events(run.session_id, limit=50, kinds=("session",), newest_first=True):
        body = body_of(event)
        if event.run_id == run.id and isinstance(body, SessionChange) and body.change == "continued":
            return body.other
    return None
