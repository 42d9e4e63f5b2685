"""Approving over HTTP: what waits for a person, continuations and permissions, and the answer."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from onward import errors
from onward.core.codec import encode, loads
from onward.core.continuing_command import Command
from onward.core.events import iso
from onward.service import approving, opening, permitting
from onward.surfaces.http import bounds, continuing, shapes
from onward.surfaces.http.routing import Ask, Route


class Waiting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which requests to list."""

    session: bounds.Id | None = None
    """Without one: of the 200 sessions with the newest activity."""
    answered: bool = False
    """Those that were answered too."""
    limit: bounds.To200 = 100
    """The newest so many."""


class ApprovalShape(shapes.Shape, frozen=True, kw_only=True):
    """A continuation that was asked for, and what became of it."""

    id: str
    session: str
    at: str
    actor: str
    """Who asked: ``agent``, ``user`` or ``trigger``."""
    state: str
    """``requested``, ``granted`` or ``denied``."""
    command: Command
    key: str
    engine: str | None
    budget: int
    options: Any
    text: str | None
    note: str | None
    successor: str | None


class ApprovalsShape(shapes.Shape, frozen=True, kw_only=True):
    """Continuations that wait, oldest first."""

    approvals: tuple[ApprovalShape, ...]
    complete: bool
    """Whether these are all of them."""


class PermissionShape(shapes.Shape, frozen=True, kw_only=True):
    """A permission that was asked for, and what became of it."""

    id: str
    session: str
    run: str
    at: str
    subject: str
    tool: str
    input: Any
    beyond: str | None
    """The policy that the run went beyond; null for a question of its engine."""
    state: str
    """``requested``, ``granted``, ``denied`` or ``lapsed``."""
    note: str | None
    retried: str | None
    """The run that a grant began."""


class PermissionsShape(shapes.Shape, frozen=True, kw_only=True):
    """Permissions that wait, oldest first."""

    permissions: tuple[PermissionShape, ...]
    complete: bool
    """Whether these are all of them."""


class Accepting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a continuation is carried out; nothing to carry it out as it was asked for."""

    changed: continuing.Asked | None = None
    """A handoff to take its place."""
    engine: bounds.Name | None = None
    options: bounds.Options | None = None


class Declining(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why not."""

    note: bounds.Note = ""


class Answering(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer to a permission."""

    granted: bool
    note: bounds.Note = ""


def listed(ask: Ask) -> ApprovalsShape:
    """List continuations that wait."""
    given: Waiting = ask.query
    found = approving.approvals(ask.platform, given.session, answered=given.answered)
    shown = tuple(_approval(one) for one in found[-given.limit :])
    return ApprovalsShape(approvals=shown, complete=len(shown) == len(found))


def show(ask: Ask) -> ApprovalShape:
    """Return a continuation that waits, or waited."""
    return _approval(approving.parked(ask.platform, ask.path["approval"]))


def accept(ask: Ask) -> continuing.ContinuationShape:
    """Carry out a continuation that waits."""
    given: Accepting = ask.body
    if given.options is not None:
        opening.parse_options(given.options)
    made = approving.accept(
        ask.platform,
        ask.path["approval"],
        None if given.changed is None else given.changed.command(),
        engine=given.engine,
        options=None if given.options is None else encode(given.options),
    )
    return continuing.continuation(made)


def decline(ask: Ask) -> ApprovalShape:
    """Decline a continuation that waits."""
    given: Declining = ask.body
    return _approval(approving.decline(ask.platform, ask.path["approval"], note=given.note))


def permissions(ask: Ask) -> PermissionsShape:
    """List permissions that wait."""
    given: Waiting = ask.query
    found = permitting.waiting(ask.platform, given.session, answered=given.answered)
    shown = tuple(_permission(one) for one in found[-given.limit :])
    return PermissionsShape(permissions=shown, complete=len(shown) == len(found))


def answer(ask: Ask) -> PermissionShape:
    """Grant or deny a permission."""
    given: Answering = ask.body
    done = permitting.answer(ask.platform, ask.path["approval"], given.granted, note=given.note)
    return _permission(done)


def _approval(one: approving.Parked) -> ApprovalShape:
    return ApprovalShape(
        id=one.id,
        session=one.session,
        at=iso(one.at),
        actor=one.actor,
        state=one.state,
        command=one.command,
        key=one.key,
        engine=one.engine,
        budget=one.budget,
        options=loads(one.options),
        text=one.text,
        note=one.note,
        successor=one.successor,
    )


def _permission(one: permitting.Requested) -> PermissionShape:
    return PermissionShape(
        id=one.id,
        session=one.session,
        run=one.run,
        at=iso(one.at),
        subject=one.subject,
        tool=one.tool,
        input=one.input,
        beyond=one.beyond,
        state=one.state,
        note=one.note,
        retried=one.retried,
    )


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/approvals",
        does="List the continuations that wait for a person.",
        scope="read",
        handler=listed,
        query=Waiting,
        answer=ApprovalsShape,
        errors=(errors.SessionNotFound,),
    ),
    Route(
        method="GET",
        path="/v1/approvals/{approval}",
        does="Return a continuation that was asked for, and what became of it.",
        scope="read",
        handler=show,
        answer=ApprovalShape,
    ),
    Route(
        method="POST",
        path="/v1/approvals/{approval}/accept",
        does="Carry out a continuation that waits, as it was asked for or changed; again, it returns the same successor.",
        scope="write",
        handler=accept,
        body=Accepting,
        answer=continuing.ContinuationShape,
        errors=(*continuing.REFUSED, errors.ContinuationDeclined, errors.MissingExtra),
        example={},
    ),
    Route(
        method="POST",
        path="/v1/approvals/{approval}/decline",
        does="Decline a continuation that waits; again, it changes nothing.",
        scope="write",
        handler=decline,
        body=Declining,
        answer=ApprovalShape,
        errors=(errors.ApprovalAnswered, errors.Conflict),
        example={"note": "Not before the tests pass."},
    ),
    Route(
        method="GET",
        path="/v1/permissions",
        does="List the permissions that engines and policies wait for.",
        scope="read",
        handler=permissions,
        query=Waiting,
        answer=PermissionsShape,
        errors=(errors.SessionNotFound,),
    ),
    Route(
        method="POST",
        path="/v1/permissions/{approval}/answer",
        does="Grant or deny a permission; the first answer holds.",
        scope="write",
        handler=answer,
        body=Answering,
        answer=PermissionShape,
        errors=(
            errors.InvalidTransition,
            errors.Conflict,
            errors.SessionContinued,
            errors.SessionArchived,
        ),
        example={"granted": True},
    ),
)
