"""Branching on pages: another way on from an earlier event, with or without saying the same again.

A branch shares what came before it by reference; nothing is copied, and the session it leaves gains one event that says so.
The form carries a key, so that sending it twice makes one branch. What a person had written goes along into the composer of
the branch and is not sent.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from onward.core.bodies import Message
from onward.core.codec import body_of
from onward.core.records import Session
from onward.errors import EventNotFound, InvalidInput, OnwardError
from onward.service import sessions
from onward.surfaces.http import failing
from onward.surfaces.http.console import reading, words
from onward.surfaces.http.console.visiting import Moved, Page, Shown, Visit
from onward.surfaces.http.console.window import names_of


def ask(visit: Visit) -> Shown:
    """Show the form to branch from an event, which is the newest where none is named."""
    return _form(visit, visit.number("at", least=1))


def branch(visit: Visit) -> Any:
    """Make a branch and go there."""
    given = visit.form.get("at", "")
    if not (given.isascii() and given.isdecimal() and len(given) < 16):
        raise InvalidInput(what=f"event {given!r}", why="events have numbers, from 1")
    at, again = int(given), visit.form.get("how") == "again"
    session = visit.platform.session(visit.path["session"])
    try:
        text = _said(visit, session, at) if again else ""
        made = sessions.fork(
            visit.platform,
            session.id,
            at - 1 if again else at,
            title=visit.form.get("title", "").strip(),
            key=visit.form.get("key") or None,
        )
    except OnwardError as error:
        return _form(visit, at, refused=error)
    return Moved(to=arrival(visit, made.id, text))


def instead(visit: Visit) -> Moved:
    """Answer a message to a session that went on elsewhere: open where it goes on, or branch. The text goes along."""
    session = visit.platform.session(visit.path["session"])
    text = visit.form.get("text", "")
    if visit.form.get("how") == "branch":
        made = sessions.fork(visit.platform, session.id, key=visit.form.get("key") or None)
        return Moved(to=arrival(visit, made.id, text))
    return Moved(to=arrival(visit, sessions.latest(visit.platform, session.id).id, text))


def arrival(visit: Visit, session_id: str, text: str) -> str:
    """Return the address of a session's composer, with a text in it that is not sent."""
    if not text.strip():
        return f"/sessions/{session_id}#end"
    key = visit.house.carried.put(visit.platform.account_id, text)
    return f"/sessions/{session_id}?carried={key}#composer"


def _form(visit: Visit, at: int | None, refused: OnwardError | None = None) -> Shown:
    platform = visit.platform
    session = platform.session(visit.path["session"])
    point = session.head_seq if at is None else at
    found = platform.store.events(session.id, after=point - 1, upto=point, limit=1) if point else []
    if not found:
        raise EventNotFound(
            f"This session has events 1 to {session.head_seq:,}; {point} does not exist.",
            event=f"{session.id}:{point}",
        )
    read = reading.read(found)
    entry = reading.entries(read, platform.clock(), names=names_of(platform, reading.mentioned(read)))[0]
    body = read[0][1]
    values = {
        "title": f"Branch from event {point:,}",
        "session": session,
        "at": point,
        "head": session.head_seq,
        "entry": entry,
        "again": isinstance(body, Message) and body.role == "user" and not body.aside and point > 1,
        "key": visit.form.get("key") or secrets.token_urlsafe(16),
        "name": visit.form.get("title", session.title),
        "refused": str(refused) if refused else "",
        "left_of": words.counted(session.head_seq - point, "event"),
    }
    return Shown(template="branch.html", values=values, status=failing.status_of(refused) if refused else 200)


def _said(visit: Visit, session: Session, at: int) -> str:
    """Return what a person said at an event. Raises InvalidInput where nobody did, or nothing came before it."""
    found = visit.platform.store.events(session.id, after=at - 1, upto=at, limit=1) if at > 1 else []
    body = body_of(found[0]) if found else None
    if not isinstance(body, Message) or body.role != "user":
        raise InvalidInput(what=f"event {at}", why="it is no message that could be said differently here")
    return body.text


PAGES: Final = (
    Page(
        method="GET",
        path="/sessions/{session}/branch",
        does="Show the form to branch from an event.",
        scope="read",
        handler=ask,
    ),
    Page(
        method="POST",
        path="/sessions/{session}/branch",
        does="Branch from an event.",
        scope="write",
        handler=branch,
    ),
    Page(
        method="POST",
        path="/sessions/{session}/instead",
        does="Take a text from a session that went on elsewhere to where it can be said.",
        scope="write",
        handler=instead,
    ),
)
