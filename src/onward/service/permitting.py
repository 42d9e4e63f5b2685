"""Permitting: an engine asks before it acts, or a run went beyond its policy, and somebody answers.

The request is an ``approval`` event of the run, and so is the answer; between the two the engine waits. A person answers
from any surface (``onward approve``), within the time that the run was given for it. When nobody does, the answer is no, and
the log says so. Answers are guarded by the session's head, so of two at the same time one holds.

A run that went beyond a policy whose action is ``ask`` has ended. Granting its request is one transaction: the answer, and
another attempt at the same message in which that policy only warns. Nobody has to be in time for that.

Continuations that wait for a person are requests of another kind: see ``parking``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any, Final

import msgspec

from onward.core.bodies import Approval
from onward.core.codec import body_of, encode, loads
from onward.core.events import ONWARD, PERSON, Event
from onward.core.records import Run
from onward.engines.contract import Permission, Permitted
from onward.errors import ApprovalNotFound, Conflict, InvalidTransition
from onward.service import parking, running
from onward.service.platform import Platform
from onward.store.contract import Append, Batch, HeadIs, SessionQuery

ATTEMPTS: Final = 20
LISTED: Final = 200
"""Sessions, newest activity first, that are looked through when none is named."""
UNHEARD: Final = "Nobody answered within {seconds:g} seconds."


class Requested(msgspec.Struct, frozen=True, kw_only=True):
    """A permission that was asked for."""

    id: str
    """The event of the request."""
    session: str
    run: str
    at: int
    subject: str
    tool: str = ""
    input: Any = None
    beyond: str | None = None
    """The policy that the run went beyond; None for a question of its engine."""
    state: str = "requested"
    """``requested``, ``granted`` or ``denied``; ``lapsed`` when its run ended before anybody answered."""
    note: str | None = None
    retried: str | None = None
    """The run that the grant of a policy request began."""


def request(asked: Permission) -> Approval:
    """Return the body of a request."""
    said = {"permission": {"tool": asked.tool, "input": asked.input, "edits": asked.edits}}
    return Approval(state="requested", subject=asked.subject, call=asked.call, request=said)


def requested(platform: Platform, approval: str) -> Requested:
    """Return a request with what became of it. Raises ApprovalNotFound for anything else."""
    event, body = _request_of(platform, approval)
    return _shown(platform, event, body)


def permissions(platform: Platform, session_id: str, *, answered: bool = False) -> list[Requested]:
    """Return the permissions of a session that wait for an answer, oldest first; with ``answered``, all of them."""
    platform.session(session_id)
    asked: list[tuple[Event, Approval]] = []
    answers: dict[str, Approval] = {}
    after = 0
    while True:
        page = platform.store.events(session_id, after=after, limit=200, kinds=("approval",))
        for event in page:
            body = body_of(event)
            if not isinstance(body, Approval):
                continue
            if body.answers is not None:
                answers.setdefault(body.answers, body)
            if _about(body) is not None:
                asked.append((event, body))
        if len(page) < 200:
            break
        after = page[-1].seq
    run = functools.cache(platform.store.run)  # many requests are of one run
    found = (_seen(event, body, answers.get(event.id), run) for event, body in asked)
    return [one for one in found if answered or one.state == "requested"]


def waiting(platform: Platform, session_id: str | None = None, *, answered: bool = False) -> list[Requested]:
    """Return what ``permissions`` does, of one session or of those with the newest activity (``LISTED`` of them)."""
    if session_id is not None:
        return permissions(platform, session_id, answered=answered)
    query = SessionQuery(account_id=platform.account_id, include_archived=True, limit=LISTED)
    found = [
        one
        for session in platform.store.sessions(query)[0]
        for one in permissions(platform, session.id, answered=answered)
    ]
    return sorted(found, key=lambda one: (one.at, one.id))


def answer(
    platform: Platform, approval: str, granted: bool, *, note: str = "", by_person: bool = True
) -> Requested:
    """Grant or deny a permission. The first answer holds; giving the same one again changes nothing.

    Raises ApprovalNotFound, and InvalidTransition for one that was answered otherwise or whose run has ended.
    """
    wanted = "granted" if granted else "denied"
    for _ in range(ATTEMPTS):
        event, body = _request_of(platform, approval)
        head = platform.session(event.session_id).head_seq
        now = _shown(platform, event, body)
        if now.state != "requested":
            if now.state == wanted:
                return now
            raise InvalidTransition(
                f"Request {approval} is {now.state}; it cannot become {wanted}.", found=now.state
            )
        said = Approval(
            state="granted" if granted else "denied",
            subject=body.subject,
            call=body.call,
            note=note or None,
            answers=approval,
        )
        new = platform.event(
            "approval",
            said,
            "user" if by_person else "system",
            run_id=event.run_id,
            source=PERSON if by_person else ONWARD,
        )
        append = Append(session_id=event.session_id, events=(new,))
        try:
            if granted and now.beyond is not None:
                again = running.retry(platform, now.run, options=_lenient(platform, now.run), beside=(new,))
                return msgspec.structs.replace(_shown(platform, event, body), retried=again.id)
            platform.store.commit(Batch(guards=(HeadIs(event.session_id, head),), appends=(append,)))
        except Conflict as conflict:
            if not conflict.retryable:
                raise
            continue
        return _shown(platform, event, body)
    raise Conflict(what=f"request {approval}")


def answered(platform: Platform, run: Run, approval: str) -> Permitted | None:
    """Return the answer to a request of a run, or None while there is none. Raises ApprovalNotFound for another run's."""
    found = requested(platform, approval)
    if found.run != run.id:
        raise ApprovalNotFound(approval=approval)
    if found.state == "requested":
        return None
    return Permitted(granted=found.state == "granted", note=found.note or "")


def lapse(platform: Platform, run: Run, approval: str, *, seconds: float) -> Permitted:
    """Answer a request with no, because nobody did within ``seconds``; return what holds: somebody may have been faster."""
    with contextlib.suppress(InvalidTransition):  # answered, or ended, in the last moment
        answer(platform, approval, False, note=UNHEARD.format(seconds=seconds), by_person=False)
    return answered(platform, run, approval) or Permitted(granted=False)


def _lenient(platform: Platform, run_id: str) -> bytes:
    """Return the options of another attempt in which the run's policies only warn."""
    options = loads(running.get(platform, run_id).options)
    policies = [{**policy, "action": "warn"} for policy in options.get("policies", ())]
    return encode({**options, "policies": policies})


def _about(body: Approval) -> tuple[str, dict[str, Any]] | None:
    """Return what a request is about, ``permission`` or ``policy``, with its facts; None for any other event."""
    said = body.request
    if body.state != "requested" or not isinstance(said, dict):
        return None
    for kind in ("permission", "policy"):
        if isinstance(found := said.get(kind), dict):
            return kind, found
    return None


def _request_of(platform: Platform, approval: str) -> tuple[Event, Approval]:
    event = platform.store.event(approval)
    if event is not None and event.run_id is not None and platform.may_read(event.session_id):
        body = body_of(event)
        if isinstance(body, Approval) and _about(body) is not None:
            return event, body
    raise ApprovalNotFound(approval=approval)


def _shown(platform: Platform, event: Event, body: Approval) -> Requested:
    return _seen(event, body, parking.answer_of(platform, event), platform.store.run)


def _seen(
    event: Event, body: Approval, given: Approval | None, run_of: Callable[[str], Run | None]
) -> Requested:
    kind, said = _about(body) or ("", {})
    # A question of an engine is over with its run; what a run went beyond can be granted at any time after it.
    lapsed = given is None and kind == "permission" and not _works(run_of(event.run_id or ""))
    return Requested(
        id=event.id,
        session=event.session_id,
        run=event.run_id or "",
        at=event.at,
        subject=body.subject,
        tool=str(said.get("tool") or ""),
        input=said.get("input"),
        beyond=str(said.get("name") or "") if kind == "policy" else None,
        state=given.state if given is not None else "lapsed" if lapsed else "requested",
        note=given.note if given is not None else None,
    )


def _works(run: Run | None) -> bool:
    return run is not None and run.state == "running"
