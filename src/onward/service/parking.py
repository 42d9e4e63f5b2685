"""Parking: letting a continuation wait for a person, and reading what waits.

The policy ``continuation.approval`` says whose continuations wait: nobody's (``never``, the default: a continuation is
visible and reversible), those that an agent asks for (``agent``), or everybody's (``always``). It belongs to the
process, not to the store: whoever starts a runner decides, and what an agent can write there cannot change it.

Parking is one transaction: an ``approval`` event with the whole command, and the result of the call where a tool asked, so
that nobody waits with an open call. Everything was checked before, so what is refused is refused at once. The id of the
request is derived from the session and the key, so a command that is repeated is parked once.

How a person answers is in ``approving.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from onward.core import ids as make
from onward.core.bodies import Approval, ToolResult
from onward.core.codec import body_of, encode, loads
from onward.core.continuation import Request, Snapshot
from onward.core.continuing_command import Command
from onward.core.events import PERSON, Event, NewEvent
from onward.core.records import Run, Session
from onward.errors import ApprovalNotFound, ContinuationDeclined, ContinuationParked, LimitExceeded
from onward.service.platform import Platform
from onward.store.contract import Append, Batch, HeadIs

MAX_PENDING: Final = 8
"""Requests of one session that may wait at a time."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The request inside an approval event."""

    command: Command
    key: str
    actor: str
    budget: int
    engine: str | None = None
    options: dict[str, Any] = {}
    text: str | None = None
    """What a person said with it. It enters the log when the continuation is carried out."""


def waits(policy: str, actor: str) -> bool:
    """Whether a continuation that this actor asks for waits for a person."""
    return policy == "always" or (policy == "agent" and actor == "agent")


def request_id(session: Session, key: str) -> str:
    """Return the id of the request that a command with this key makes in a session."""
    return make.derived_id(make.EVENT, session.created_at, "approval", session.id, key)


def refuse_if_parked(platform: Platform, session: Session, key: str) -> None:
    """Raise if a command with this key was parked before: ContinuationParked, or ContinuationDeclined with the note."""
    found = platform.store.event(request_id(session, key))
    if found is None:
        return
    answer = answer_of(platform, found)
    if answer is not None and answer.state == "denied":
        raise ContinuationDeclined(why=answer.note or "no reason was given", approval=found.id)
    raise ContinuationParked(approval=found.id, session=session.id)


def park(platform: Platform, request: Request, snapshot: Snapshot, fence: int | None) -> ContinuationParked:
    """Let a continuation wait, in one transaction, and return what says so.

    Raises Conflict when somebody wrote in the session since the snapshot, LimitExceeded when too many wait already.
    """
    session = snapshot.session
    given = answers(platform, session.id)
    waiting = sum(event.id not in given for event, _ in requests(platform, session.id))
    if waiting >= MAX_PENDING:
        raise LimitExceeded(
            what="the continuations that wait for a person in one session", limit=MAX_PENDING, found=waiting
        )
    asked = {
        "command": msgspec.to_builtins(request.command),
        "key": request.key,
        "actor": request.actor,
        "engine": request.engine,
        "budget": request.budget,
        "options": loads(request.options),
    }
    if request.text is not None:
        asked["text"] = request.text
    body = Approval(state="requested", subject=request.command.title, call=request.call, request=asked)
    name = request_id(session, request.key)
    events = [platform.event("approval", encode(body), request.actor, run_id=request.run_id, id=name)]
    if request.call is not None:
        result = ToolResult(call=request.call, name="continue_session", output=told(name))
        events.append(platform.event("tool_result", result, "tool", run_id=request.run_id))
    append = Append(session_id=session.id, events=tuple(events), run_id=request.run_id, fence=fence)
    platform.store.commit(Batch(guards=(HeadIs(session.id, session.head_seq),), appends=(append,)))
    return ContinuationParked(approval=name, session=session.id)


def told(approval: str) -> dict[str, str]:
    """Return what the asking agent's call answers."""
    return {
        "parked": approval,
        "note": "The continuation waits for a person to accept, change or decline it. Your turn ends here.",
    }


def parked_by(platform: Platform, run: Run) -> str | None:
    """Return the request that a run made, if it made one: among the newest, since the run is the newest."""
    newest = platform.store.events(run.session_id, limit=MAX_PENDING, kinds=("approval",), newest_first=True)
    for event in newest:
        body = body_of(event)
        if event.run_id == run.id and isinstance(body, Approval) and body.request is not None:
            return event.id
    return None


def granted(platform: Platform, approval: str, note: str | None) -> tuple[NewEvent, ...]:
    """Return the event that grants a request. Raises ContinuationDeclined when it was declined meanwhile."""
    event, body = request_of(platform, approval)
    answer = answer_of(platform, event)
    if answer is not None and answer.state == "denied":
        raise ContinuationDeclined(why=answer.note or "no reason was given", approval=approval)
    if answer is not None:
        return ()  # granted before; then the key decides
    grant = Approval(state="granted", subject=body.subject, call=body.call, note=note, answers=approval)
    return (platform.event("approval", grant, "user", source=PERSON),)


def requests(platform: Platform, session_id: str) -> Iterator[tuple[Event, Approval]]:
    """Yield the requests to continue a session, oldest first. Permissions that engines asked for are none."""
    after = 0
    while True:
        page = platform.store.events(session_id, after=after, limit=200, kinds=("approval",))
        for event in page:
            body = body_of(event)
            if isinstance(body, Approval) and body.state == "requested" and asked_in(body) is not None:
                yield event, body
        if len(page) < 200:
            return
        after = page[-1].seq


def asked_in(body: Approval) -> Asked | None:
    """Return the continuation that an approval asks for, if it is one."""
    try:
        return msgspec.convert(body.request, Asked)
    except msgspec.ValidationError:
        return None


def request_of(platform: Platform, approval: str) -> tuple[Event, Approval]:
    """Return a request to continue. Raises ApprovalNotFound for anything else, and for what may not be read."""
    event = platform.store.event(approval)
    if event is not None and platform.may_read(event.session_id):
        body = body_of(event)
        if isinstance(body, Approval) and body.state == "requested" and asked_in(body) is not None:
            return event, body
    raise ApprovalNotFound(approval=approval)


def answers(platform: Platform, session_id: str) -> dict[str, Approval]:
    """Return what ``answer_of`` does for every request of a session that has an answer, in one reading."""
    found: dict[str, Approval] = {}
    after = 0
    while True:
        page = platform.store.events(session_id, after=after, limit=200, kinds=("approval",))
        for event in page:
            body = body_of(event)
            if isinstance(body, Approval) and body.answers is not None:
                found.setdefault(body.answers, body)
        if len(page) < 200:
            return found
        after = page[-1].seq


def answer_of(platform: Platform, request: Event) -> Approval | None:
    """Return what answers a request, or None while it waits."""
    after = request.seq
    while True:
        page = platform.store.events(request.session_id, after=after, limit=200, kinds=("approval",))
        for event in page:
            body = body_of(event)
            if isinstance(body, Approval) and body.answers == request.id:
                return body
        if len(page) < 200:
            return None
        after = page[-1].seq
