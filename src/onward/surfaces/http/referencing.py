"""Referring over HTTP: which sessions a message could mention, and what a message would bring along.

Sending one is an ordinary message (``POST …/messages``) that mentions the session, or names it in ``references``.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from onward import errors
from onward.core.bodies import RecalledReference
from onward.core.events import iso
from onward.service import referencing
from onward.surfaces.http import bounds, shapes
from onward.surfaces.http.routing import Ask, Route

Named = Annotated[tuple[bounds.Address, ...], Meta(max_length=64)]
"""Other sessions, by id or address."""


class Looking(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which candidates to list."""

    query: bounds.Words = ""
    limit: bounds.To200 = 50


class CandidateShape(shapes.Shape, frozen=True, kw_only=True):
    """A session that a message could refer to."""

    session: str
    label: str
    folder: str | None
    created_at: str
    archived: bool
    mention: str
    """What to write in a message."""


class CandidatesShape(shapes.Shape, frozen=True, kw_only=True):
    """The sessions that a message could refer to: those about the same folder first, newest first."""

    candidates: tuple[CandidateShape, ...]


class Preparing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message that is being written."""

    text: bounds.Text
    references: Named = ()


class PreparedShape(shapes.Shape, frozen=True, kw_only=True):
    """A message as it would read, and what it would bring along."""

    text: str
    context: str | None
    """The snapshots, as the model would read them."""
    references: tuple[RecalledReference, ...]


def candidates(ask: Ask) -> CandidatesShape:
    """List candidates."""
    given: Looking = ask.query
    found = referencing.list_candidates(ask.platform, ask.path["session"], given.query, given.limit)
    return CandidatesShape(
        candidates=tuple(
            CandidateShape(
                session=one.session,
                label=one.label,
                folder=one.folder,
                created_at=iso(one.created_at),
                archived=one.archived,
                mention=one.mention,
            )
            for one in found
        )
    )


def prepare(ask: Ask) -> PreparedShape:
    """Say what a message would bring along."""
    given: Preparing = ask.body
    made = referencing.prepare(ask.platform, ask.path["session"], given.text, given.references)
    context = made.context.text if made.context is not None else None
    return PreparedShape(text=made.text, context=context, references=made.references)


REFUSED: Final = (
    errors.ReferenceInvalid,
    errors.ReferenceSelf,
    errors.ReferenceTooMany,
    errors.ReferenceReadFailed,
    errors.ReferenceBudgetExceeded,
)
"""Why a message that refers to other sessions is not sent."""

ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/sessions/{session}/references",
        does="List the sessions that a message in this one could refer to.",
        scope="read",
        handler=candidates,
        query=Looking,
        answer=CandidatesShape,
    ),
    Route(
        method="POST",
        path="/v1/sessions/{session}/references",
        does="Say how a message would read and which snapshots it would bring along; nothing is stored.",
        scope="read",
        handler=prepare,
        body=Preparing,
        answer=PreparedShape,
        errors=REFUSED,
        example={"text": "As we said in the other one."},
    ),
)
