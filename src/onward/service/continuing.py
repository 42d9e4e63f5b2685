"""Continuing a session: load a snapshot, decide, write once.

The order is the design's. First the key: a command that was carried out before has the same answer now (C3). Then the
shape, then everything ``decide_continuation`` checks on a snapshot. The one store call at the end is the transaction of
invariant C2: it states that the snapshot still holds (head, successors, runs) and writes successor, link, manifest,
projection, transferred state, initiating message and first run together. If the process dies before it, nothing happened;
after it, everything did. A guard that fails means that somebody wrote in between: the decision is made again.

What a person says with the command (``text``) is part of that transaction: the log has it if and only if the continuation
was made, so a command that is repeated or refused says nothing twice and nothing in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from onward.core.bodies import Message
from onward.core.bodies import RunChange as RunChanged
from onward.core.budget import Counter
from onward.core.codec import body_of
from onward.core.continuation import (
    RATE_WINDOW,
    Child,
    Decision,
    Request,
    Snapshot,
    decide_continuation,
    with_spoken,
)
from onward.core.continuing_command import MAX_KEY, Command, parse_command
from onward.core.events import PERSON, Event, NewEvent
from onward.core.manifest import Manifest, decode_manifest
from onward.core.mentions import MARK
from onward.core.projection import DEFAULT_BUDGET, Offer
from onward.core.records import Link, Run, Session
from onward.core.references import Source
from onward.errors import Conflict, InvalidInput, LimitExceeded, ManifestNotFound
from onward.service import delegating, parking, recommending, resolving, running, sessions
from onward.service.platform import Platform
from onward.store.contract import (
    Append,
    Batch,
    Guard,
    HeadIs,
    LinkPatch,
    LinksAre,
    NoRuns,
    RunChange,
    RunIs,
)

RECENT_EVENTS: Final = 400
"""How many of the newest events are offered as recent exchanges."""
MAX_CITED: Final = 1000
"""Events that one cited range may hold."""
ATTEMPTS: Final = 20
"""How often a decision is made anew when others write at the same time."""
SMALLEST_BUDGET: Final = 64
REQUEST_SHOWN: Final = 600
"""Characters of the current request in a handoff; the message itself goes along whole."""


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """What a continuation made, the same for every repetition of its key."""

    successor: str
    predecessor: str
    origin: str
    link: str
    manifest: str
    run: str | None
    repeated: bool = False
    """The key was used before: this is what it made then."""


def continue_session(
    platform: Platform,
    session_id: str,
    command: Command | dict[str, Any],
    *,
    text: str | None = None,
    key: str | None = None,
    actor: str = "user",
    run_id: str | None = None,
    fence: int | None = None,
    call: str | None = None,
    engine: str | None = None,
    budget: int | None = None,
    counter: Counter | None = None,
    options: bytes = b"{}",
    approved: str | None = None,
    approved_note: str | None = None,
) -> Continuation:
    """Continue a session in a fresh, linked one.

    ``key`` makes the command repeat-safe; without one it is derived from nothing and every call is new. With ``run_id``,
    ``fence`` and ``call`` the asking agent's turn ends in the same transaction. Raises a ``ContinuationRefused`` that
    names the first check that failed; then nothing was written.

    ``text`` is what a person says now: it becomes the newest message of the predecessor in the same transaction, the
    current request of the handoff and the message that the successor answers. Without it, that is the newest one which a
    person or a trigger wrote, answered or not (see ``answered_by``). Raises InvalidInput for a text that is empty, refers to
    other sessions, or comes with an actor that is not a person.

    Where the platform's policy says so, a continuation that passed every check waits for a person: ContinuationParked.
    ``approved`` is the request that a person accepted, see ``approving.accept``.
    """
    predecessor = platform.session(session_id)
    if key is not None:
        if not 1 <= len(key) <= MAX_KEY:
            raise LimitExceeded(what="an idempotency key", limit=f"1 to {MAX_KEY} characters", found=len(key))
        if (done := platform.store.link_by_key(session_id, key)) is not None:
            return _made(platform, predecessor, done, repeated=True)
    waits = approved is None and parking.waits(platform.approval, actor)
    if waits and key is not None:
        parking.refuse_if_parked(platform, predecessor, key)
    parsed = checked(command)
    spoken = None
    if text is not None:
        parsed, spoken = _said_with(platform, parsed, text, actor)
    size = DEFAULT_BUDGET if budget is None else budget
    if size < SMALLEST_BUDGET:
        raise LimitExceeded(what="the budget", limit=f"{SMALLEST_BUDGET} tokens or more", found=size)
    request = Request(
        command=parsed,
        key=key or platform.ids.new("key"),
        actor=actor,
        run_id=run_id,
        call=call,
        engine=engine,
        budget=size,
        options=options,
        text=text,
    )
    for _ in range(ATTEMPTS):
        still = _delegated_still(platform, session_id)
        snapshot = load_snapshot(platform, session_id, parsed, engine=engine, spoken=spoken)
        # After the snapshot, whose head the write depends on: an answer that came in between is seen here or refused there.
        grants = parking.granted(platform, approved, approved_note) if approved else ()
        decision = decide_continuation(
            request, snapshot, platform.clock(), platform.ids, counter or platform.counter
        )
        try:
            if waits:
                raise parking.park(platform, request, snapshot, fence)
            superseded = tuple(
                r.id for r in platform.store.unfinished(session_id) if _superseded(r, snapshot.initiating)
            )
            signed = _signatures(platform, decision)
            # What is said comes first: its number was settled in the decision.
            said = 0 if spoken is None else 1
            events = decision.predecessor_events
            decision = msgspec.structs.replace(
                decision, predecessor_events=(*events[:said], *grants, *events[said:])
            )
            batch = _batch(request, snapshot, decision, fence, still(snapshot), superseded, signed)
            platform.store.commit(batch)
        except Conflict as conflict:
            if key is not None and (done := platform.store.link_by_key(session_id, key)) is not None:
                return _made(platform, snapshot.session, done, repeated=True)
            if waits and key is not None:
                parking.refuse_if_parked(platform, predecessor, key)
            if not conflict.retryable:
                raise
            continue
        return _made(platform, snapshot.session, decision.link, repeated=False, run=decision.run.id)
    raise Conflict(what=f"session {session_id}")


def checked(command: Command | dict[str, Any]) -> Command:
    """Return a command whose shape holds (check 2), whether it was read from somewhere or built in Python.

    Raises InvalidContinuation.
    """
    if isinstance(command, dict):
        return parse_command(command)
    fields = msgspec.to_builtins(msgspec.structs.replace(command, adjusted=()))
    parsed = parse_command({name: value for name, value in fields.items() if name != "adjusted"})
    return msgspec.structs.replace(parsed, adjusted=(*command.adjusted, *parsed.adjusted))


def _said_with(platform: Platform, command: Command, text: str, actor: str) -> tuple[Command, NewEvent]:
    """Return a command whose current request is what a person says with it, and that message, ready to be stored."""
    if actor != "user":
        raise InvalidInput(
            what="text",
            why=f"it is what a person says; {actor} continues with the newest message that is there",
        )
    running.refuse_unsayable(text)
    if MARK in text:
        raise InvalidInput(
            what="text",
            why="it mentions another session, and a snapshot of that is not part of a continuation; "
            "continue without it and say this in the successor (`onward run`), where it is quoted",
        )
    shown = shortened(text, REQUEST_SHOWN)
    adjusted = command.adjusted
    if command.handoff.current_request not in ("", shown):
        adjusted = (*adjusted, "handoff.current_request: replaced by what is said with the command")
    handoff = msgspec.structs.replace(command.handoff, current_request=shown)
    message = platform.event("message", Message(role="user", text=text), "user", source=PERSON)
    return msgspec.structs.replace(command, handoff=handoff, adjusted=adjusted), message


def shortened(text: str, limit: int) -> str:
    """Return the beginning of a text on one line, saying how much more there is."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[:limit]}… ({len(line) - limit:,} more characters)"


def load_snapshot(
    platform: Platform,
    session_id: str,
    command: Command,
    *,
    engine: str | None = None,
    spoken: NewEvent | None = None,
) -> Snapshot:
    """Read everything that a decision is made on. What it costs does not grow with the length of the session.

    With ``spoken`` it is as if that had just been said.
    """
    session = platform.session(session_id)
    store = platform.store
    links = store.links(session_id)
    history = sessions.scope(platform, session)
    found = sessions.state(platform, session)
    initiating = initiating_event(platform, session) if spoken is None else None
    runs = store.unfinished(session_id)
    children = [
        Child(link=link, session=platform.session(link.to_session))
        for link in delegating.delegated(platform, session_id)
        if platform.may_read(link.to_session) and delegating.pending(store, link)
    ]
    snapshot = Snapshot(
        session=session,
        successors=sum(1 for ln in links if ln.type == "continuation" and ln.from_session == session_id),
        recent_continuations=_recent_continuations(platform, session_id),
        parent=next((ln for ln in links if ln.type == "child" and ln.to_session == session_id), None)
        if not session.imported
        else None,
        initiating=initiating,
        offers=tuple(offer(platform, session, source) for source in command.sources),
        plan=found.get("plan"),
        pins=found.get("pins"),
        open_calls=tuple(store.open_calls(session_id)),
        children=tuple(children),
        queued=tuple(r for r in runs if r.state == "queued" and not _superseded(r, initiating)),
        running=next((r for r in runs if r.state == "running"), None),
        scope=history,
        recent=tuple(sessions.newest(platform, history, RECENT_EVENTS)),
        relevant=recommending.relevant(
            platform, history, f"{command.handoff.purpose}\n{command.handoff.current_request}"
        ),
        identity=_identity(platform, session, engine),
    )
    return snapshot if spoken is None else with_spoken(snapshot, spoken)


def _superseded(run: Run, initiating: Event | None) -> bool:
    """Whether a queued run would answer the very message that the successor begins with, and so answers instead."""
    return (
        run.state == "queued"
        and run.input is None
        and initiating is not None
        and run.input_event == initiating.id
    )


def _delegated_still(platform: Platform, session_id: str) -> Callable[[Snapshot], list[Guard]]:
    """Return what gives the guards on delegated work: no new child, and none at work that was not when we looked (C6).

    It is counted before the snapshot is read. What changes in between then fails the guard, and the decision is made again.
    """
    reporting = delegating.delegated(platform, session_id)
    own = sum(
        1 for ln in platform.store.links(session_id) if ln.type == "child" and ln.from_session == session_id
    )

    def guards(snapshot: Snapshot) -> list[Guard]:
        pending = {child.session.id for child in snapshot.children}
        idle = [link.to_session for link in reporting if link.to_session not in pending]
        return [LinksAre(session_id, "child", own), *(NoRuns(child) for child in idle)]

    return guards


def initiating_event(platform: Platform, session: Session) -> Event | None:
    """Return the newest message that a person or a trigger wrote, in a session or the history it branched from.

    Harness text that an engine filed under the user (``aside``) never qualifies.
    """
    for stretch in reversed(sessions.scope(platform, session)):
        owner = session if stretch.session == session.id else platform.session(stretch.session)
        upto = min(stretch.to_seq, owner.input_seq)  # nobody spoke after that
        while upto > 0:
            page = platform.store.events(
                stretch.session, upto=upto, limit=50, kinds=("message",), newest_first=True
            )
            for event in page:
                body = body_of(event)
                if event.actor in ("user", "trigger") and isinstance(body, Message) and not body.aside:
                    return event
            upto = page[-1].seq - 1 if len(page) == 50 else 0
    return None


def answered_by(platform: Platform, session: Session, asked: Event) -> Event | None:
    """Return the agent's message that answers an ask for good, or None.

    It is the last thing that anyone said or did since: no tool was used after it, and no run since then failed, was cut off
    or still works.
    """
    for stretch in reversed(sessions.scope(platform, session)):
        own = stretch.session == asked.session_id
        kinds = ("message", "tool_call", "tool_result", "run")
        upto = stretch.to_seq
        while upto > (asked.seq if own else 0):
            page = platform.store.events(
                stretch.session,
                after=asked.seq if own else 0,
                upto=upto,
                limit=50,
                kinds=kinds,
                newest_first=True,
            )
            for event in page:
                body = body_of(event)
                if isinstance(body, RunChanged) and body.state == "completed":
                    continue
                if isinstance(body, Message) and body.aside:
                    continue
                spoke = isinstance(body, Message) and body.role == "assistant" and not body.interrupted
                return event if spoke else None
            upto = page[-1].seq - 1 if len(page) == 50 else 0
        if own:
            return None
    return None


def offer(platform: Platform, session: Session, source: Source) -> Offer:
    """Look up a source: fill in ids and numbers, and load the events if they are the predecessor's own (check 6)."""
    if not source.is_events:
        return resolving.offered(platform, session, source)
    store = platform.store
    target = source.session or session.id
    first_seq, last_seq = source.from_seq, source.to_seq
    for name, end in (("from_event", source.from_event), ("to_event", source.to_event)):
        if end is None:
            continue
        event = store.event(end)
        if event is None or not platform.may_read(event.session_id):
            return Offer(
                source=source, cause="missing", note=f"there is no event {end} that may be read here"
            )
        if source.session and event.session_id != source.session:
            return Offer(source=source, cause="missing", note=f"event {end} is in {event.session_id}")
        target = event.session_id
        if name == "from_event":
            first_seq = event.seq
        else:
            last_seq = event.seq
    if target != session.id and not platform.may_read(target):
        return Offer(
            source=source, cause="missing", note=f"there is no session {target} that may be read here"
        )
    owner = session if target == session.id else platform.session(target)
    assert first_seq is not None
    last_seq = first_seq if last_seq is None else last_seq
    if not 1 <= first_seq <= last_seq <= owner.head_seq:
        return Offer(
            source=source,
            cause="missing",
            note=f"{target} has events 1 to {owner.head_seq}; {first_seq}-{last_seq} is outside or runs backwards",
        )
    if last_seq - first_seq >= MAX_CITED:
        return Offer(
            source=source,
            cause="missing",
            note=f"a range may hold {MAX_CITED} events; {first_seq}-{last_seq} holds {last_seq - first_seq + 1}",
        )
    ends = [store.events(target, after=s - 1, upto=s, limit=1)[0] for s in (first_seq, last_seq)]
    full = msgspec.structs.replace(
        source,
        session=target,
        from_seq=first_seq,
        to_seq=last_seq,
        from_event=ends[0].id,
        to_event=ends[1].id,
    )
    own = {stretch.session: stretch.to_seq for stretch in sessions.scope(platform, session)}
    if target not in own or last_seq > own[target]:
        return Offer(source=full, cause="other_session")
    return Offer(
        source=full, events=tuple(store.events(target, after=first_seq - 1, upto=last_seq, limit=MAX_CITED))
    )


def _recent_continuations(platform: Platform, session_id: str) -> int:
    since = platform.clock() - RATE_WINDOW * 1_000_000
    return sum(
        1 for ln in platform.store.lineage(session_id) if ln.type == "continuation" and ln.created_at >= since
    )


def _identity(platform: Platform, session: Session, engine: str | None) -> tuple[tuple[str, str], ...]:
    """Return the facts about a successor that are recomputed from today's policy, never copied."""
    facts = [("account", platform.account_id)]
    if session.workspace_id and (place := platform.store.workspace_by_id(session.workspace_id)):
        facts.append(("workspace", place.path))
    if engine or session.engine:
        facts.append(("engine", engine or session.engine or ""))
    facts.append(("may read", "every session of this account"))
    return tuple(facts)


def _signatures(platform: Platform, decision: Decision) -> tuple[NewEvent, ...]:
    """Return the event that signs the manifest, where this platform signs."""
    if platform.signer is None:
        return ()
    from onward.service import signing  # late: few sign

    return (signing.signed(platform, decision.manifest, platform.signer),)


def _batch(
    request: Request,
    snapshot: Snapshot,
    decision: Decision,
    fence: int | None,
    watched: Sequence[Guard],
    superseded: Sequence[str],
    signatures: tuple[NewEvent, ...],
) -> Batch:
    """Return the one transaction of a continuation (C2)."""
    before = snapshot.session
    guards: list[Guard] = [
        HeadIs(before.id, before.head_seq),
        LinksAre(before.id, "continuation", snapshot.successors),
        # Input that was submitted since the snapshot would be left behind unseen (C6).
        NoRuns(
            before.id,
            (*(r.id for r in (*snapshot.queued, snapshot.running) if r is not None), *superseded),
        ),
        *watched,
    ]
    guards += [RunIs(run_id, "queued") for run_id in (*decision.moved_runs, *superseded)]
    changes = [RunChange(run_id=r, session_id=decision.successor.id) for r in decision.moved_runs]
    reason = f"its message is answered in {decision.successor.id}"
    changes += [
        RunChange(run_id=r, state="cancelled", ended_at=decision.link.created_at, reason=reason)
        for r in superseded
    ]
    if request.run_id is not None:
        changes.append(
            RunChange(
                run_id=request.run_id, state="continued", fence=fence, ended_at=decision.link.created_at
            )
        )
    return Batch(
        guards=tuple(guards),
        sessions=(decision.successor,),
        links=(decision.link,),
        manifests=(decision.manifest,),
        blobs=decision.blobs,
        runs=(decision.run,),
        appends=(
            Append(
                session_id=before.id, events=decision.predecessor_events, run_id=request.run_id, fence=fence
            ),
            Append(session_id=decision.successor.id, events=(*decision.successor_events, *signatures)),
        ),
        run_changes=tuple(changes),
        link_patches=tuple(
            LinkPatch(link_id=c, report_to=decision.successor.id) for c in decision.moved_children
        ),
        drop_drafts=(request.run_id,) if request.run_id else (),
    )


def _made(
    platform: Platform, predecessor: Session, link: Link, *, repeated: bool, run: str | None = None
) -> Continuation:
    if run is None:
        run = _first_run(platform, link.to_session)
    return Continuation(
        successor=link.to_session,
        predecessor=predecessor.id,
        origin=predecessor.origin_id or predecessor.id,
        link=link.id,
        manifest=link.manifest_id or "",
        run=run,
        repeated=repeated,
    )


def _first_run(platform: Platform, successor: str) -> str | None:
    """Return the run that a continuation made: it answers the message the successor begins with.

    Input that moved along is older, and attempts that followed are newer; neither answers that message for the first time.
    """
    begun = platform.store.events(successor, limit=1, kinds=("message",))
    runs = platform.store.runs(successor, limit=10_000) if begun else []
    return next((r.id for r in reversed(runs) if r.input_event == begun[0].id and r.retry_of is None), None)


def manifest(platform: Platform, name: str) -> Manifest:
    """Return a manifest by its id, or that of the session which it began."""
    manifest_id = name
    if name.startswith("ses_"):
        platform.session(name)
        link = sessions.predecessor(platform, name)
        if link is None or link.manifest_id is None:
            after = [
                ln
                for ln in platform.store.links(name)
                if ln.type == "continuation" and ln.from_session == name
            ]
            hint = f" It was continued in {after[-1].to_session}, which has one." if after else ""
            raise ManifestNotFound(
                f"Session {name} was not continued from another one, so it has no manifest.{hint}",
                manifest=name,
            )
        manifest_id = link.manifest_id
    elif not name.startswith("man_"):
        raise InvalidInput(what=f"{name!r}", why="expected a session (ses_…) or a manifest (man_…)")
    stored = platform.store.manifest(manifest_id)
    if stored is None or not platform.may_read(stored.from_session):
        raise ManifestNotFound(manifest=name)
    return decode_manifest(stored.body)
