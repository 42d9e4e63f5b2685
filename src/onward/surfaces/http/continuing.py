"""Continuing over HTTP: going on in a fresh, linked session, and which ones came of a session.

The body is what ``onward continue`` takes, spelled one way: an unknown field is refused with its name, since a source whose
end was misspelled would silently be another one. A draft, edited or not, can be sent as it is: what it says about itself is
not read.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from onward import errors
from onward.core.codec import encode
from onward.core.continuing_command import MAX_RECOMMENDED, Command, Reason, Transfer
from onward.core.manifest import Handoff
from onward.core.references import MAX_SOURCES, Source
from onward.errors import ContinuationParked, InvalidInput
from onward.service import continuing, opening, sessions
from onward.surfaces.http import bounds, shapes
from onward.surfaces.http.routing import Ask, Reply, Route


class HandoffGiven(Handoff, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The orientation for the successor."""


class SourceGiven(Source, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One source of a handoff. Which fields are set depends on ``kind``."""


class TransferGiven(Transfer, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What moves along with the work, by name."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A handoff as it is drafted, reviewed, approved and sent."""

    title: bounds.Title
    reason: Reason
    handoff: HandoffGiven
    description: bounds.Description = ""
    sources: Annotated[tuple[SourceGiven, ...], Meta(max_length=MAX_SOURCES)] = ()
    transfer: TransferGiven = TransferGiven()
    recommended: Annotated[tuple[bounds.Address, ...], Meta(max_length=MAX_RECOMMENDED)] = ()
    """Addresses of the sources that a draft recommended."""
    budget: bounds.Budget | None = None
    """Tokens that the successor's first context may have."""
    session: str | None = None
    """From here on: what a draft says about itself. It is not read."""
    estimated_tokens: Any = None
    counter: Any = None
    costs: Any = None
    estimates: Any = None
    left_out: Any = None
    claims: Any = None
    warnings: Any = None

    def command(self) -> Command:
        """Return the command that is asked for. Raises InvalidContinuation."""
        asked = Command(
            reason=self.reason,
            title=self.title,
            description=self.description,
            handoff=self.handoff,
            sources=self.sources,
            transfer=self.transfer,
            recommended=self.recommended,
        )
        return continuing.checked(asked)


class Continuing(Asked, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A continuation to make."""

    text: bounds.Text | None = None
    """What is said now, and what the successor answers; without it, that is the newest message."""
    engine: bounds.Name | None = None
    options: bounds.Options = {}
    """Dials of the successor's first run."""
    key: bounds.Key | None = None
    """The same as the header ``Idempotency-Key``."""


class ContinuationShape(shapes.Shape, frozen=True, kw_only=True):
    """What a continuation made; nothing yet while it waits for a person."""

    predecessor: str
    successor: str | None
    origin: str | None
    link: str | None
    manifest: str | None
    run: str | None
    repeated: bool
    """It had been made before, under the same key."""
    approval: str | None = None
    """The request that a person has to accept first."""


class SuccessorShape(shapes.Shape, frozen=True, kw_only=True):
    """One continuation of a session."""

    link: shapes.LinkShape
    session: shapes.SessionShape | None
    """Null where it may not be read."""
    run: shapes.RunShape | None
    """The newest run of the successor: where it failed, it can be tried again."""


class SuccessorsShape(shapes.Shape, frozen=True, kw_only=True):
    """The continuations of a session, oldest first; the last is the current one."""

    continuations: tuple[SuccessorShape, ...]


def make(ask: Ask) -> Reply:
    """Continue a session."""
    given: Continuing = ask.body
    if None not in (ask.key, given.key) and ask.key != given.key:
        raise InvalidInput(what="key", why="the header Idempotency-Key has another one")
    name = ask.path["session"]
    opening.parse_options(given.options)
    try:
        made = continuing.continue_session(
            ask.platform,
            name,
            given.command(),
            text=given.text,
            key=ask.key or given.key,
            engine=given.engine,
            budget=given.budget,
            options=encode(given.options),
        )
    except ContinuationParked as parked:
        waits = ContinuationShape(
            predecessor=name,
            successor=None,
            origin=None,
            link=None,
            manifest=None,
            run=None,
            repeated=False,
            approval=parked.details["approval"],
        )
        return Reply(answer=waits, status=202)
    return Reply(answer=continuation(made), status=200 if made.repeated else 201)


def continuation(made: continuing.Continuation) -> ContinuationShape:
    """Return what a continuation made."""
    return ContinuationShape(
        predecessor=made.predecessor,
        successor=made.successor,
        origin=made.origin,
        link=made.link,
        manifest=made.manifest,
        run=made.run,
        repeated=made.repeated,
    )


def listed(ask: Ask) -> SuccessorsShape:
    """List the continuations of a session."""
    platform, name = ask.platform, ask.path["session"]
    platform.session(name)
    found = []
    for link in sessions.continuations(platform, name):
        readable = platform.may_read(link.to_session)
        run = next(iter(platform.store.runs(link.to_session, limit=1)), None) if readable else None
        found.append(
            SuccessorShape(
                link=shapes.link(link),
                session=shapes.session(platform.session(link.to_session), platform) if readable else None,
                run=shapes.run(run, platform) if run is not None else None,
            )
        )
    return SuccessorsShape(continuations=tuple(found))


REFUSED: Final = (
    errors.InvalidContinuation,
    errors.DelegatedChild,
    errors.ContinuationLoop,
    errors.TooManySuccessors,
    errors.RateLimited,
    errors.NothingToContinue,
    errors.UnresolvedWork,
    errors.BudgetTooSmall,
    errors.SourceNotFound,
    errors.SessionArchived,
    errors.Conflict,
)
"""Why a session is not continued."""
EXAMPLE: Final = {
    "title": "Write the release notes",
    "reason": "phase_change",
    "handoff": {
        "purpose": "Write the release notes of 2.0",
        "established_facts": ["The parser handles tabs now [1]."],
        "next_actions": ["List what changed since 1.9."],
    },
    "sources": [{"kind": "session_events", "from_seq": 1, "to_seq": 1, "relevance": "what was done"}],
    "transfer": {"plan": "carry"},
    "text": "Write the release notes, please.",
}

ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/sessions/{session}/continuations",
        does="Continue a session in a fresh, linked one, which takes up the newest message or the text that is given.",
        scope="write",
        handler=make,
        body=Continuing,
        answer=ContinuationShape,
        status=201,
        also={200: "It was made before, under this key.", 202: "It waits for a person to accept it."},
        errors=(*REFUSED, errors.ContinuationDeclined, errors.MissingExtra),
        keyed=True,
        leads={"sessions.show": "/successor", "manifests.show": "/manifest", "runs.cancel": "/run"},
        example=EXAMPLE,
    ),
    Route(
        method="GET",
        path="/v1/sessions/{session}/continuations",
        does="List what a session was continued in, oldest first.",
        scope="read",
        handler=listed,
        answer=SuccessorsShape,
    ),
)
