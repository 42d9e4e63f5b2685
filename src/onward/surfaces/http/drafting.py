"""Drafting over HTTP: a handoff without a model, and weighing one that somebody edited. Nothing is written."""

from __future__ import annotations

from typing import Final

import msgspec

from onward.core.continuing_command import Reason
from onward.core.projection import DEFAULT_BUDGET
from onward.service import drafting
from onward.surfaces.http import bounds, continuing
from onward.surfaces.http.routing import Ask, Route


class Drafting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A handoff to draft."""

    purpose: bounds.Purpose
    title: bounds.Title = ""
    reason: Reason = "user_request"
    budget: bounds.Budget = DEFAULT_BUDGET


def draft(ask: Ask) -> drafting.Draft:
    """Draft a handoff."""
    given: Drafting = ask.body
    return drafting.draft_handoff(
        ask.platform,
        ask.path["session"],
        given.purpose,
        title=given.title,
        reason=given.reason,
        budget=given.budget,
    )


def review(ask: Ask) -> drafting.Draft:
    """Weigh a handoff."""
    given: continuing.Asked = ask.body
    command = given.command()
    budget = DEFAULT_BUDGET if given.budget is None else given.budget
    return drafting.review(ask.platform, ask.path["session"], command, budget=budget)


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/sessions/{session}/drafts",
        does="Draft a handoff for a purpose: facts, sources and what it would cost. It can be sent as a continuation.",
        scope="read",
        handler=draft,
        body=Drafting,
        answer=drafting.Draft,
        errors=continuing.REFUSED,
        example={"purpose": "Write the release notes", "budget": 4000},
    ),
    Route(
        method="POST",
        path="/v1/sessions/{session}/drafts/review",
        does="Weigh an edited handoff: what it would cost, and what to look at before it is sent.",
        scope="read",
        handler=review,
        body=continuing.Asked,
        answer=drafting.Draft,
        errors=continuing.REFUSED,
        example={name: value for name, value in continuing.EXAMPLE.items() if name != "text"},
    ),
)
