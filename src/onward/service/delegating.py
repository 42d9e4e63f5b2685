"""Delegating: work that a session gives to another one, which is expected to report back.

A child is a session of its own, linked ``child``, with its own queued run. It is pending from the moment it is given work
until it reports or is given up, whatever its runs do in between: one that failed has not reported. A session with pending
children can only be continued by naming them, and then they report to the successor (invariant C6), through as many
continuations as there are.

A report is a ``relay`` in the session that the child reports to at that moment, never in one that was left behind (C1). It
is made once: relay, mark on the link and note in the child are one transaction, and a second report returns the first.
The runner reports by itself when a child's last run is completed. If the process dies between the end of that run and its
report, ``collect`` makes up for it: whoever works next in the session that is waited in calls it first.

A child may be read by everyone who may read its parent, and may not continue elsewhere.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from onward.core import ids as make
from onward.core.bodies import Message, Relay, SessionChange
from onward.core.codec import body_of, encode
from onward.core.events import Event
from onward.core.lines import clip
from onward.core.records import Link, Run, Session
from onward.errors import Conflict, InvalidInput
from onward.service import running, sessions
from onward.service.platform import Platform
from onward.store.contract import Append, Batch, LinkPatch, LinksAre, Store

Status = Literal["completed", "failed", "cancelled"]
STATUSES: Final[tuple[Status, ...]] = ("completed", "failed", "cancelled")

MAX_REPORT: Final = 16_000
"""Characters of a report in the session that it is made to; the child's log has the whole."""
ATTEMPTS: Final = 20
"""How often a report is made anew when its session is continued at the same time."""


class Delegation(msgspec.Struct, frozen=True, kw_only=True):
    """What delegating made, the same for every repetition of its key."""

    parent: str
    child: str
    link: str
    run: str | None
    """The child's first run; None when the key was used before and that run is no longer among its newest."""
    repeated: bool = False


def delegate(
    platform: Platform,
    session_id: str,
    title: str,
    text: str,
    *,
    engine: str | None = None,
    key: str | None = None,
    call: str | None = None,
    options: dict[str, Any] | None = None,
) -> Delegation:
    """Give work to a new child of a session: child, link, its first run and the note in the parent, in one transaction.

    ``text`` is what the child is asked; it waits as the input of its first run. ``key`` makes this repeat-safe. ``call`` is
    the event of the tool call that asked. The child works in its parent's workspace. Raises SessionContinued or
    SessionArchived when the parent takes nothing new, InvalidInput when nothing is asked.
    """
    parent = platform.session(session_id)
    if key is not None and (done := platform.store.link_by_key(session_id, key)) is not None:
        return _repeated(platform, done)
    if not text.strip():
        raise InvalidInput(what="the work to delegate", why="it is empty")
    running.refuse_if_closed(platform, parent)
    now = platform.clock()
    child = Session(
        id=platform.ids.new(make.SESSION),
        account_id=parent.account_id,
        workspace_id=parent.workspace_id,
        created_at=now,
        title=sessions.checked_title(title),
        engine=engine or parent.engine,
    )
    link = Link(
        id=platform.ids.new(make.LINK),
        type="child",
        from_session=session_id,
        to_session=child.id,
        created_at=now,
        reason="delegated",
        key=key,
        event_id=call,
        report_to=session_id,
    )
    run = Run(
        id=platform.ids.new(make.RUN),
        session_id=child.id,
        created_at=now,
        engine=child.engine or "",
        input=encode(Message(role="user", text=text)),
        input_actor="trigger",
        options=encode(options or {}),
    )
    opened = SessionChange(
        change="opened", title=child.title or None, engine=child.engine, other=session_id, link=link.id
    )
    told = SessionChange(change="delegated", title=child.title or None, other=child.id, link=link.id)
    batch = Batch(
        guards=(LinksAre(session_id, "continuation", 0),),
        sessions=(child,),
        links=(link,),
        runs=(run,),
        appends=(
            Append(session_id=child.id, events=(platform.event("session", opened, "system", at=now),)),
            Append(session_id=session_id, events=(platform.event("session", told, "agent", at=now),)),
        ),
    )
    try:
        platform.store.commit(batch)
    except Conflict:
        if key is not None and (done := platform.store.link_by_key(session_id, key)) is not None:
            return _repeated(platform, done)
        running.refuse_if_closed(platform, platform.session(session_id))
        raise
    return Delegation(parent=session_id, child=child.id, link=link.id, run=run.id)


def _repeated(platform: Platform, link: Link) -> Delegation:
    if link.type != "child":
        raise InvalidInput(what="the key", why=f"it was used before, for a {link.type} ({link.id})")
    runs = platform.store.runs(link.to_session, limit=1000)
    first = runs[-1].id if runs and len(runs) < 1000 else None
    return Delegation(parent=link.from_session, child=link.to_session, link=link.id, run=first, repeated=True)


def report_back(platform: Platform, child_id: str, text: str, status: Status = "completed") -> Event:
    """Report what came of delegated work, to the session that the child reports to now. Return the relay.

    A child reports once: a second report changes nothing and returns the first. Raises InvalidInput for a session that was
    not delegated, or a status that is none.
    """
    if status not in STATUSES:
        raise InvalidInput(what=f"status {status!r}", why=f"a report is one of {', '.join(STATUSES)}")
    child = platform.session(child_id)
    for _ in range(ATTEMPTS):
        link = _link(platform, child_id)
        relay_id = make.derived_id(make.EVENT, child.created_at, link.id, "report")
        if link.reported_at is not None and (made := platform.store.event(relay_id)) is not None:
            return made
        target = _target(platform, link)
        now = platform.clock()
        relay = Relay(sender=child_id, text=_report(child, text, status))
        reported = SessionChange(change="reported", other=target, link=link.id, reason=status)
        note_id = make.derived_id(make.EVENT, child.created_at, link.id, "reported")
        batch = Batch(
            # A continuation that is made at this moment takes the child along, and the report goes after it.
            guards=(LinksAre(target, "continuation", 0),),
            appends=(
                Append(
                    session_id=target,
                    events=(platform.event("context", relay, "agent", id=relay_id, at=now),),
                ),
                Append(
                    session_id=child_id,
                    events=(platform.event("session", reported, "system", id=note_id, at=now),),
                ),
            ),
            link_patches=(LinkPatch(link_id=link.id, reported_at=now, outcome=status),),
        )
        try:
            return platform.store.commit(batch).events[0]
        except Conflict:
            continue
    raise Conflict(what=f"the session that {child_id} reports to")


def report_completed(platform: Platform, run: Run, reply: str) -> Event | None:
    """Report the reply of a completed run, if its session is a child with nothing left to do and has not reported yet."""
    link = _link_of(platform, run.session_id)
    if link is None or link.reported_at is not None or run.state != "completed":
        return None
    child = platform.session(run.session_id)
    if child.imported or platform.store.unfinished(child.id):
        return None
    return report_back(platform, child.id, reply or "(it ended without a word)", "completed")


def collect(platform: Platform, session_id: str) -> list[Event]:
    """Make the reports that are due in a session: of children whose last run is completed and that never got to report.

    Return the relays that were written. Safe to repeat, and to call from anywhere.
    """
    out = []
    for link in delegated(platform, session_id):
        if link.reported_at is not None or not platform.may_read(link.to_session):
            continue
        newest = platform.store.runs(link.to_session, limit=1)
        if newest and (made := report_completed(platform, newest[0], _last_words(platform, link.to_session))):
            out.append(made)
    return out


def _last_words(platform: Platform, session_id: str) -> str:
    """Return the newest finished message of a session's agent."""
    for event in platform.store.events(session_id, limit=50, kinds=("message",), newest_first=True):
        body = body_of(event)
        if isinstance(body, Message) and body.role == "assistant" and not body.aside and not body.interrupted:
            return body.text
    return ""


def give_up(platform: Platform, child_id: str, reason: str = "given up by a person") -> Event:
    """Give up delegated work: cancel what it still does, and report that. Return the relay.

    Of a child that has reported already, the first report is returned; work it was given since is cancelled all the same.
    """
    _link(platform, child_id)
    for run in platform.store.unfinished(child_id):
        running.cancel(platform, run.id, reason=reason)
    return report_back(platform, child_id, reason, "cancelled")


def delegated(platform: Platform, session_id: str) -> list[Link]:
    """Return the children that report to a session: its own, and those that came with it from a predecessor."""
    out: list[Link] = []
    current: str | None = session_id
    seen: set[str] = set()
    while current is not None and current not in seen:
        seen.add(current)
        above: str | None = None
        for link in platform.store.links(current):
            if link.type == "child" and link.from_session == current:
                if (link.report_to or link.from_session) == session_id:
                    out.append(link)
            elif link.type == "continuation" and link.to_session == current:
                above = link.from_session
        current = above
    return out


def pending(store: Store, link: Link) -> bool:
    """Whether a child is expected to report: it works, or it has worked and has neither reported nor been cancelled.

    A child that was never given anything to do has nothing to report; an imported one did its work elsewhere, and its
    parent's log has the result.
    """
    child = store.session(link.to_session)
    if child is None:
        return False
    if store.unfinished(child.id):
        return True
    if link.reported_at is not None or child.imported or child.archived:
        return False
    newest = store.runs(child.id, limit=1)
    return bool(newest) and newest[0].state != "cancelled"


def _link_of(platform: Platform, child_id: str) -> Link | None:
    links = platform.store.links(child_id)
    return next((link for link in links if link.type == "child" and link.to_session == child_id), None)


def _link(platform: Platform, child_id: str) -> Link:
    platform.session(child_id)
    link = _link_of(platform, child_id)
    if link is None:
        raise InvalidInput(what=f"session {child_id}", why="it was not delegated, so it reports to nobody")
    return link


def _target(platform: Platform, link: Link) -> str:
    """Return the session that a child reports to now.

    Pending children move along with a continuation. Work that began later in a child that had nothing to do then did not:
    its report goes to where the conversation is, not into a session that was left behind.
    """
    target = link.report_to or link.from_session
    seen: set[str] = set()
    while target not in seen and (ahead := sessions.continuations(platform, target)):
        seen.add(target)
        target = ahead[-1].to_session
    return target


def _report(child: Session, text: str, status: str) -> str:
    """Return the words of a relay: who reports, how it ended, and what there is to say."""
    shown, missing = clip(text, MAX_REPORT)
    more = f"\n(the whole is in {child.id})" if missing else ""
    return f"{child.id} “{child.title}”, {status}:\n{shown}{more}"
