"""Continuing on pages: a purpose, a draft, a form to edit it in, what it would cost, and then the successor.

The draft is made from the log without a model and written nowhere; it is in the form. What the form costs is counted by
compiling, as often as it changes. Sending carries a key, so that a second press finds the successor of the first. What is
refused is told in the words of the check that failed, above the form and everything in it as it was.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

import msgspec

from onward.core.bodies import Message, Pins
from onward.core.codec import body_of, encode
from onward.core.continuing_command import MAX_DESCRIPTION, MAX_TITLE, REASONS, Command
from onward.core.projection import DEFAULT_BUDGET
from onward.core.records import Session
from onward.errors import ContinuationParked, InvalidInput, OnwardError
from onward.service import continuing, delegating, drafting, sessions, workspaces
from onward.service.drafting import Draft
from onward.service.platform import Platform
from onward.surfaces.http import failing
from onward.surfaces.http.console import about, editing, kinds, ranges, words
from onward.surfaces.http.console.chart import Chart, stacked
from onward.surfaces.http.console.editing import Box, Fields
from onward.surfaces.http.console.views import Text, View
from onward.surfaces.http.console.visiting import ASK_SECONDS, Moved, Page, Shown, Visit

CHECKS: Final = {
    "invalid_continuation": "The shape of the handoff",
    "limit_exceeded": "A limit",
    "invalid_input": "What was filled in",
    "session_archived": "Whether the session is open",
    "delegated_child": "Whether it is delegated work",
    "continuation_loop": "The guard against loops",
    "too_many_successors": "How many successors there may be",
    "rate_limited": "How often a conversation may be continued",
    "nothing_to_continue": "Whether anybody has said anything",
    "source_not_found": "The sources",
    "unresolved_work": "Unfinished work",
    "budget_too_small": "The budget",
}
"""Which check an error came from, in words."""
MOST_BUDGET: Final = 2_000_000
MOVED: Final = 100
"""Things that could move along that a form lists."""


class Weighed(View, frozen=True, kw_only=True):
    """What a handoff would cost, and what to look at before it is sent."""

    chart: Chart | None
    warnings: tuple[str, ...]
    refused: str
    """Why it could not be weighed, in words."""
    check: str
    spoken: int
    """Tokens of what is said with it; they come on top."""


class Standing(View, frozen=True, kw_only=True):
    """How the session stands that is to be continued."""

    asked: Text | None
    """The newest message, which goes along where nothing is said with the continuation."""
    asked_seq: int
    answered: bool
    boxes: tuple[Box, ...]
    """Pending work and pins."""
    working: str
    """The run that is executing, which cannot move."""
    plan: str
    """What the plan is about, where there is one."""


def ask(visit: Visit) -> Shown:
    """Show the first step, a purpose; with one, the draft for it."""
    platform = visit.platform
    session = platform.session(visit.path["session"])
    if earlier := visit.query.get("from"):
        return _corrected(visit, session, earlier)
    purpose = " ".join(visit.query.get("purpose", "").split())
    if not purpose:
        return _first(visit, session)
    reason = visit.query.get("reason", "user_request")
    try:
        budget = _budget(visit.query.get("budget", ""))
        if reason not in REASONS:
            raise InvalidInput(what=f"the reason {reason!r}", why=f"there are {', '.join(REASONS)}")
        draft = drafting.draft_handoff(
            platform, session.id, purpose, title=visit.query.get("title", ""), reason=reason, budget=budget
        )
    except OnwardError as error:
        return _first(visit, session, purpose, error)
    stands = standing(platform, session)
    fields = editing.from_command(
        draft.command(),
        key=secrets.token_urlsafe(16),
        moving=[box.value for box in stands.boxes if box.on],
        budget=budget,
        engine=session.engine or "",
    )
    return editor(visit, session, fields, draft=draft, stands=stands)


def send(visit: Visit) -> Any:
    """Continue the session as the form says, and go to the successor."""
    platform = visit.platform
    session = platform.session(visit.path["session"])
    fields = editing.from_form(visit.form)
    try:
        made = continuing.continue_session(
            platform,
            session.id,
            editing.command_of(fields),
            text=fields.text if fields.text.strip() else None,
            key=fields.key or None,
            engine=fields.engine or None,
            budget=_budget(fields.budget),
            options=encode({"ask": ASK_SECONDS}),
        )
    except ContinuationParked as parked:
        return Moved(to=f"/approvals#{parked.details['approval']}")
    except OnwardError as error:
        return editor(visit, session, fields, refused=error)
    return Moved(to=f"/sessions/{made.successor}")


def review(visit: Visit) -> Shown:
    """Weigh the form as it stands, and show what came of it: the part of the page, or all of it."""
    session = visit.platform.session(visit.path["session"])
    fields = editing.from_form(visit.form)
    if visit.request.headers.get("hx-request"):
        fields, weighed = weigh(visit.platform, session, fields)
        return Shown(template="weighed.html", values={"weighed": weighed, "fields": fields, "swapped": True})
    return editor(visit, session, fields)


def editor(
    visit: Visit,
    session: Session,
    fields: Fields,
    *,
    draft: Draft | None = None,
    stands: Standing | None = None,
    refused: OnwardError | None = None,
    values: dict[str, Any] | None = None,
) -> Shown:
    """Return the form, filled in and weighed. ``values`` take the place of what it says for a plain continuation."""
    platform = visit.platform
    try:
        fields = editing.with_added(fields)
    except InvalidInput as error:
        refused = refused or error
    if draft is None:
        fields, weighed = weigh(platform, session, fields)
    else:
        fields, weighed = _with_estimates(fields, draft), _weighed(draft, 0)
    place = workspaces.of_session(platform, session)
    on = workspaces.machine_of(platform, place) if place else None
    names = ranges.names_in(platform, [row.address for row in fields.rows])
    rows = tuple(
        msgspec.structs.replace(row, label=ranges.label_of(row.address, session.id, names))
        for row in fields.rows
    )
    fields = msgspec.structs.replace(fields, rows=rows)
    told: dict[str, Any] = {
        "title": "Continue in a fresh session",
        "session": session,
        "fields": fields,
        "weighed": weighed,
        "stands": stands or standing(platform, session),
        "reasons": [(name, words.REASONS[name]) for name in REASONS],
        "engines": about.engines(platform, session, on),
        "refused": str(refused) if refused else "",
        "check": CHECKS.get(refused.code, "") if refused else "",
        "action": f"/sessions/{session.id}/continue",
        "review": f"/sessions/{session.id}/continue/review",
        "may_speak": True,
        "send": "Continue there",
        "limits": {"title": MAX_TITLE, "description": MAX_DESCRIPTION},
        "swapped": False,
        **(values or {}),
    }
    return Shown(template="continue.html", values=told, status=failing.status_of(refused) if refused else 200)


def weigh(platform: Platform, session: Session, fields: Fields) -> tuple[Fields, Weighed]:
    """Return a form with what each of its sources costs, and what the whole does. Nothing is written."""
    try:
        draft = drafting.review(
            platform, session.id, editing.command_of(fields), budget=_budget(fields.budget)
        )
    except OnwardError as error:
        sections = error.details.get("sections")
        bar = None
        if isinstance(sections, dict):
            costs = [(str(name), int(cost)) for name, cost in sections.items()]
            bar = stacked(costs, int(error.details.get("budget", 0)), int(error.details.get("needed", 0)))
        return fields, Weighed(
            chart=bar, warnings=(), refused=str(error), check=CHECKS.get(error.code, ""), spoken=0
        )
    spoken = platform.counter.count(fields.text) if fields.text.strip() else 0
    return _with_estimates(fields, draft), _weighed(draft, spoken)


def standing(platform: Platform, session: Session) -> Standing:
    """Return how a session stands for continuing it."""
    asked = continuing.initiating_event(platform, session)
    body = body_of(asked) if asked is not None else None
    unfinished = platform.store.unfinished(session.id)
    boxes = []
    for link in delegating.delegated(platform, session.id):
        if platform.may_read(link.to_session) and delegating.pending(platform.store, link):
            title = platform.session(link.to_session).title or link.to_session
            boxes.append(
                (link.to_session, f"Delegated: “{words.cut(title, 80)}” reports to the successor", True)
            )
    boxes += [
        (run.id, "A message that waits is answered in the successor", True)
        for run in unfinished
        if run.state == "queued" and (run.input is not None or asked is None or run.input_event != asked.id)
    ]
    boxes += [
        (call.call, f"Give up the open call of event {call.seq}; its outcome stays unknown", False)
        for call in platform.store.open_calls(session.id)
    ]
    state = sessions.state(platform, session)
    pins = body_of(state["pins"]) if "pins" in state else None
    if isinstance(pins, Pins):
        boxes += [
            (f"{pin.kind}:{pin.name}", f"Keep the {pin.kind} {words.cut(pin.name, 80)} pinned", True)
            for pin in pins.pins
        ]
    plan = sessions.plan_of(state)
    running = next((run for run in unfinished if run.state == "running"), None)
    return Standing(
        asked=kinds.cut(body.text, 1200) if isinstance(body, Message) else None,
        asked_seq=asked.seq if asked is not None else 0,
        answered=asked is not None and continuing.answered_by(platform, session, asked) is not None,
        boxes=tuple(
            Box(name=f"move-{number}", value=value, told=told, on=on)
            for number, (value, told, on) in enumerate(boxes[:MOVED])
        ),
        working=running.id if running is not None else "",
        plan=words.counted(len(plan.steps), "step") if plan is not None and plan.steps else "",
    )


def _corrected(visit: Visit, session: Session, manifest: str) -> Shown:
    """Return the form filled in with a handoff of this session that was sent before, to send it otherwise.

    What was sent stays as it is: a corrected handoff makes another successor.
    """
    record = continuing.manifest(visit.platform, manifest)
    if record.predecessor != session.id:
        raise InvalidInput(what=f"manifest {record.id}", why=f"it is not a handoff of session {session.id}")
    stands = standing(visit.platform, session)
    command = Command(
        reason=record.reason,
        title=record.title,
        description=record.description,
        handoff=record.handoff,
        sources=record.sources,
        recommended=(*(source.address() for source in record.sources), *record.recommended_unused),
    )
    fields = editing.from_command(
        command,
        key=secrets.token_urlsafe(16),
        moving=[box.value for box in stands.boxes if box.on],
        budget=record.budget,
        engine=record.engine or "",
    )
    return editor(visit, session, fields, stands=stands)


def _first(visit: Visit, session: Session, purpose: str = "", refused: OnwardError | None = None) -> Shown:
    values = {
        "title": "Continue in a fresh session",
        "session": session,
        "purpose": purpose,
        "name": visit.query.get("title", ""),
        "reason": visit.query.get("reason", "user_request"),
        "budget": visit.query.get("budget", ""),
        "default_budget": DEFAULT_BUDGET,
        "reasons": [(name, words.REASONS[name]) for name in REASONS],
        "refused": str(refused) if refused else "",
        "check": CHECKS.get(refused.code, "") if refused else "",
        "limits": {"title": MAX_TITLE},
    }
    return Shown(
        template="continue_purpose.html",
        values=values,
        status=failing.status_of(refused) if refused else 200,
    )


def _budget(given: str) -> int:
    """Return the budget that was filled in. Raises InvalidInput; what is too small is told by the check itself."""
    plain = given.strip().replace(",", "").replace(" ", "")
    if not plain:
        return DEFAULT_BUDGET
    if not (plain.isascii() and plain.isdecimal()) or len(plain) > 9 or int(plain) > MOST_BUDGET:
        raise InvalidInput(
            what=f"the budget {given[:40]!r}", why=f"it is a number of tokens up to {MOST_BUDGET:,}"
        )
    return int(plain)


def _with_estimates(fields: Fields, draft: Draft) -> Fields:
    """Return a form whose rows say what they cost. Estimates stand in the order of the sources that are chosen."""
    estimates = iter(draft.estimates)
    rows = []
    for row in fields.rows:
        if row.on and (found := next(estimates, None)) is not None:
            note = "" if found.note.startswith("budget") else found.note
            row = msgspec.structs.replace(row, tokens=found.tokens, fits=found.fits, note=note)
        rows.append(row)
    return msgspec.structs.replace(fields, rows=tuple(rows))


def _weighed(draft: Draft, spoken: int) -> Weighed:
    return Weighed(
        chart=stacked(list(draft.costs.items()), draft.budget, draft.estimated_tokens),
        warnings=draft.warnings,
        refused="",
        check="",
        spoken=spoken,
    )


PAGES: Final = (
    Page(
        method="GET",
        path="/sessions/{session}/continue",
        does="Draft a handoff, and show the form to edit it.",
        scope="read",
        handler=ask,
    ),
    Page(
        method="POST",
        path="/sessions/{session}/continue",
        does="Continue a session in a fresh one.",
        scope="write",
        handler=send,
    ),
    Page(
        method="POST",
        path="/sessions/{session}/continue/review",
        does="Weigh a handoff.",
        scope="read",
        handler=review,
    ),
)
