"""Approvals on pages: what waits for a person, and what they answered.

Two kinds of things wait. A continuation that somebody asked for and that the policy lets wait: it can be looked at, changed,
accepted and declined. And a permission: an engine asks before it acts, or a run went beyond its policy. The first answer
holds, and a second press of the same one changes nothing.
"""

from __future__ import annotations

from typing import Any, Final

from onward.core.records import Session
from onward.errors import InvalidInput, OnwardError
from onward.service import approving, permitting
from onward.service.approving import MAX_NOTE, Parked
from onward.service.permitting import Requested
from onward.store.contract import SessionQuery
from onward.surfaces.http import failing
from onward.surfaces.http.console import continuing, editing, kinds, words
from onward.surfaces.http.console.transitions import ACTORS, other_of, reason_words
from onward.surfaces.http.console.views import Other, Text, View
from onward.surfaces.http.console.visiting import Moved, Page, Shown, Visit
from onward.surfaces.http.console.words import When

ANSWERED: Final = 50
"""Answers of each kind that are shown, the newest."""
WORDS: Final = 6_000
"""Characters of what an engine asks to do that are shown."""
STATES: Final = {
    "requested": "waits",
    "granted": "accepted",
    "denied": "declined",
    "lapsed": "came to nothing",
}
TONES: Final = {"requested": "busy", "granted": "good", "denied": "bad", "lapsed": "quiet"}


class Waiting(View, frozen=True, kw_only=True):
    """A continuation that waits, or waited."""

    id: str
    session: Other
    when: When | None
    by: str
    state: str
    told: str
    tone: str
    title: str
    reason: str
    purpose: str
    request: str
    sources: int
    text: str
    note: str
    successor: Other | None


class Asking(View, frozen=True, kw_only=True):
    """A permission that somebody asks for, or asked for."""

    id: str
    session: Other
    run: str
    when: When | None
    state: str
    told: str
    tone: str
    subject: str
    tool: str
    input: Text | None
    beyond: str
    note: str


def show(visit: Visit) -> Shown:
    """Show what waits for a person, and if asked for, what was answered."""
    return _page(visit)


def count(visit: Visit) -> Shown:
    """Show how much waits, as a part of a page."""
    parked, asked = _asked(visit, _newest(visit))
    return Shown(template="approvals_count.html", values={"waiting": len(parked) + len(asked)})


def edit(visit: Visit) -> Shown:
    """Show a continuation that waits as a form."""
    platform = visit.platform
    asked = approving.parked(platform, visit.path["approval"])
    stands = continuing.standing(platform, platform.session(asked.session))
    transfer = asked.command.transfer
    moving = [
        *transfer.pending_runs,
        *(f"tool:{name}" for name in transfer.pinned_tools),
        *(f"resource:{name}" for name in transfer.pinned_resources),
    ]
    fields = editing.from_command(
        asked.command, key=asked.key, moving=moving, budget=asked.budget, engine=asked.engine or ""
    )
    return _editor(visit, asked, fields, stands=stands)


def accept(visit: Visit) -> Any:
    """Carry a continuation out, as it was asked for or as the form has it, and go to the successor."""
    platform = visit.platform
    asked = approving.parked(platform, visit.path["approval"])
    edited = "edited" in visit.form
    fields = editing.from_form(visit.form) if edited else None
    try:
        made = approving.accept(
            platform,
            asked.id,
            editing.command_of(fields) if fields is not None else None,
            engine=(fields.engine if fields is not None else "") or None,
        )
    except OnwardError as error:
        if fields is not None:
            return _editor(visit, asked, fields, refused=error)
        return _page(visit, error)
    return Moved(to=f"/sessions/{made.successor}")


def decline(visit: Visit) -> Any:
    """Decline a continuation."""
    try:
        approving.decline(visit.platform, visit.path["approval"], note=visit.form.get("note", "").strip())
    except OnwardError as error:
        return _page(visit, error)
    return Moved(to="/approvals")


def answer(visit: Visit) -> Any:
    """Allow or deny a permission."""
    given = visit.form.get("answer", "")
    if given not in ("allow", "deny"):
        raise InvalidInput(what="the answer", why="it is allow or deny")
    note = visit.form.get("note", "").strip()
    if len(note) > MAX_NOTE:
        raise InvalidInput(what="the note", why=f"it has at most {MAX_NOTE:,} characters")
    try:
        found = permitting.answer(visit.platform, visit.path["approval"], given == "allow", note=note)
    except OnwardError as error:
        return _page(visit, error)
    back = visit.form.get("back", "")
    return Moved(to=f"/sessions/{found.session}#end" if back == "session" else "/approvals")


def of_session(visit: Visit, session: Session) -> tuple[list[Waiting], list[Asking]]:
    """Return what waits for a person in one session: continuations, and permissions."""
    parked, asked = _asked(visit, [session])
    return [waiting(visit, one) for one in parked], [asking(visit, one) for one in asked]


def _newest(visit: Visit) -> list[Session]:
    """Return the sessions with the newest activity, those that were put away too."""
    query = SessionQuery(account_id=visit.platform.account_id, include_archived=True, limit=approving.LISTED)
    return visit.platform.store.sessions(query)[0]


def _asked(
    visit: Visit, among: list[Session], *, answered: bool = False
) -> tuple[list[Parked], list[Requested]]:
    """Return the continuations that wait in these sessions, and the permissions, each oldest first."""
    platform = visit.platform
    parked: list[Parked] = []
    asked: list[Requested] = []
    for session in visit.house.awaited.among(platform, among):
        parked += approving.approvals(platform, session.id, answered=answered)
        asked += permitting.permissions(platform, session.id, answered=answered)
    parked.sort(key=lambda one: (one.at, one.id))
    asked.sort(key=lambda one: (one.at, one.id))
    return parked, asked


def _page(visit: Visit, refused: OnwardError | None = None) -> Shown:
    answered = visit.query.get("answered") == "1"
    parked, asked = _asked(visit, _newest(visit), answered=answered)
    values = {
        "title": "Approvals",
        "parked": [waiting(visit, one) for one in parked if one.state == "requested"],
        "permissions": [asking(visit, one) for one in asked if one.state == "requested"],
        "answered": answered,
        "done": [waiting(visit, one) for one in reversed(parked) if one.state != "requested"][:ANSWERED],
        "done_permissions": [asking(visit, one) for one in reversed(asked) if one.state != "requested"][
            :ANSWERED
        ],
        "refused": str(refused) if refused else "",
        "looked_at": approving.LISTED,
        "limits": {"note": MAX_NOTE},
    }
    return Shown(
        template="approvals.html", values=values, status=failing.status_of(refused) if refused else 200
    )


def waiting(visit: Visit, found: Parked) -> Waiting:
    """Return a continuation that waits as it is shown."""
    platform = visit.platform
    return Waiting(
        id=found.id,
        session=other_of(platform, found.session),
        when=words.when(found.at, platform.clock()),
        by=ACTORS.get(found.actor, found.actor),
        state=found.state,
        told=STATES.get(found.state, found.state),
        tone=TONES.get(found.state, "quiet"),
        title=found.command.title,
        reason=reason_words(found.command.reason),
        purpose=found.command.handoff.purpose,
        request=found.command.handoff.current_request,
        sources=len(found.command.sources),
        text=found.text or "",
        note=found.note or "",
        successor=other_of(platform, found.successor) if found.successor else None,
    )


def asking(visit: Visit, found: Requested) -> Asking:
    """Return a permission that is asked for as it is shown."""
    platform = visit.platform
    return Asking(
        id=found.id,
        session=other_of(platform, found.session),
        run=found.run,
        when=words.when(found.at, platform.clock()),
        state=found.state,
        told=STATES.get(found.state, found.state),
        tone=TONES.get(found.state, "quiet"),
        subject=found.subject,
        tool=found.tool,
        input=kinds.cut(kinds.pretty(found.input), WORDS) if found.input is not None else None,
        beyond=found.beyond or "",
        note=found.note or "",
    )


def _editor(
    visit: Visit,
    asked: Parked,
    fields: editing.Fields,
    *,
    stands: continuing.Standing | None = None,
    refused: OnwardError | None = None,
) -> Shown:
    values = {
        "title": "Change it and accept",
        "action": f"/approvals/{asked.id}/accept",
        "may_speak": False,
        "send": "Accept as it stands here",
    }
    session = visit.platform.session(asked.session)
    return continuing.editor(visit, session, fields, stands=stands, refused=refused, values=values)


PAGES: Final = (
    Page(method="GET", path="/approvals", does="Show what waits for a person.", scope="read", handler=show),
    Page(
        method="GET",
        path="/approvals/count",
        does="Show how much waits, as a part of a page.",
        scope="read",
        handler=count,
    ),
    Page(
        method="GET",
        path="/approvals/{approval}",
        does="Show a continuation that waits as a form.",
        scope="read",
        handler=edit,
    ),
    Page(
        method="POST",
        path="/approvals/{approval}/accept",
        does="Carry out a continuation that waits.",
        scope="write",
        handler=accept,
    ),
    Page(
        method="POST",
        path="/approvals/{approval}/decline",
        does="Decline a continuation that waits.",
        scope="write",
        handler=decline,
    ),
    Page(
        method="POST",
        path="/approvals/{approval}/answer",
        does="Allow or deny a permission.",
        scope="write",
        handler=answer,
    ),
)
