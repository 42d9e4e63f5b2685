"""Approving: what a person does with a continuation that waits: look at it, accept it, change it, decline it.

Accepting is the normal ``continue_session`` with the same key, with all checks again as things stand then, and the
``granted`` event in its transaction; declining is the ``denied`` event. Both state the head of the session that they were
decided on, so of two answers at the same time one wins, and the other is told.

How a continuation comes to wait is in ``parking.py``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from onward.core.bodies import Approval
from onward.core.codec import encode
from onward.core.continuing_command import Command, parse_command
from onward.core.events import PERSON, Event
from onward.errors import ApprovalAnswered, Conflict, LimitExceeded
from onward.service import continuing, parking
from onward.service.continuing import Continuation
from onward.service.platform import Platform
from onward.store.contract import Append, Batch, HeadIs, SessionQuery

MAX_NOTE: Final = 1000
"""Characters of the note of a refusal."""
LISTED: Final = 200
"""Sessions, newest activity first, that are looked through for requests when none is named."""
ATTEMPTS: Final = 20
"""How often an answer is given anew when others write at the same time."""


class Parked(msgspec.Struct, frozen=True, kw_only=True):
    """A continuation that was asked for, and what became of it."""

    id: str
    """The event of the request."""
    session: str
    at: int
    actor: str
    """Who asked: ``agent``, ``user`` or ``trigger``."""
    state: str
    """``requested``, ``granted`` or ``denied``."""
    command: Command
    """What was asked for."""
    key: str
    engine: str | None = None
    budget: int
    options: bytes = b"{}"
    """Of the successor's first run, as JSON."""
    text: str | None = None
    """What a person said with it."""
    note: str | None = None
    successor: str | None = None
    """The session that came of it."""


def parked(platform: Platform, approval: str) -> Parked:
    """Return a continuation that waits, or waited. Raises ApprovalNotFound."""
    return _parked(platform, *parking.request_of(platform, approval))


def accept(
    platform: Platform,
    approval: str,
    changed: Command | dict[str, Any] | None = None,
    *,
    engine: str | None = None,
    options: bytes | None = None,
) -> Continuation:
    """Carry out a continuation that waits, as it was asked for or as a person changed it.

    All checks are made again. Accepting again returns the same successor, whatever was changed the second time. Raises
    ApprovalNotFound, ContinuationDeclined, and whatever ``continue_session`` raises; then it still waits.
    """
    asked = _parked(platform, *parking.request_of(platform, approval))
    command = parse_command(changed) if isinstance(changed, dict) else changed
    return continuing.continue_session(
        platform,
        asked.session,
        command or asked.command,
        text=asked.text,
        key=asked.key,
        actor=asked.actor if command is None else "user",
        engine=engine or asked.engine,
        budget=asked.budget,
        options=asked.options if options is None else options,
        approved=approval,
        approved_note=None if command is None else "with changes",
    )


def decline(platform: Platform, approval: str, *, note: str = "") -> Parked:
    """Decline a continuation that waits. Declining again changes nothing.

    Raises ApprovalNotFound, and ApprovalAnswered when it was accepted.
    """
    if len(note) > MAX_NOTE:
        raise LimitExceeded(
            what="a note", limit=f"{MAX_NOTE:,} characters", found=f"{len(note):,} characters"
        )
    for _ in range(ATTEMPTS):
        event, body = parking.request_of(platform, approval)
        head = platform.session(event.session_id).head_seq
        asked = _parked(platform, event, body)
        if asked.state == "granted":
            raise ApprovalAnswered(approval=approval, successor=asked.successor or "")
        if asked.state == "denied":
            return asked
        denied = Approval(
            state="denied", subject=body.subject, call=body.call, note=note or None, answers=approval
        )
        append = Append(
            session_id=event.session_id, events=(platform.event("approval", denied, "user", source=PERSON),)
        )
        try:
            platform.store.commit(Batch(guards=(HeadIs(event.session_id, head),), appends=(append,)))
        except Conflict as conflict:
            if not conflict.retryable:
                raise
            continue
        return _parked(platform, event, body)
    raise Conflict(what=f"request {approval}")


def approvals(platform: Platform, session_id: str | None = None, *, answered: bool = False) -> list[Parked]:
    """Return the continuations that wait, oldest first; with ``answered`` those that were answered too.

    Without a session, those of the sessions with the newest activity (``LISTED`` of them).
    """
    if session_id is not None:
        platform.session(session_id)
        names = [session_id]
    else:
        query = SessionQuery(account_id=platform.account_id, include_archived=True, limit=LISTED)
        names = [session.id for session in platform.store.sessions(query)[0]]
    found = []
    for name in names:
        if asked := list(parking.requests(platform, name)):
            given = parking.answers(platform, name)
            found += [_seen(platform, event, body, given.get(event.id)) for event, body in asked]
    found.sort(key=lambda parked: (parked.at, parked.id))
    return [parked for parked in found if answered or parked.state == "requested"]


def _parked(platform: Platform, event: Event, body: Approval) -> Parked:
    return _seen(platform, event, body, parking.answer_of(platform, event))


def _seen(platform: Platform, event: Event, body: Approval, answer: Approval | None) -> Parked:
    asked = parking.asked_in(body)
    assert asked is not None
    made = platform.store.link_by_key(event.session_id, asked.key)
    return Parked(
        id=event.id,
        session=event.session_id,
        at=event.at,
        actor=asked.actor,
        # A command that was sent again where no approval is needed was carried out without an answer.
        state=answer.state if answer is not None else "granted" if made is not None else "requested",
        command=asked.command,
        key=asked.key,
        engine=asked.engine,
        budget=asked.budget,
        options=encode(asked.options),
        text=asked.text,
        note=answer.note if answer is not None else None,
        successor=made.to_session if made is not None else None,
    )
