"""``draft``: what the log recommends for a purpose, what it would cost, and what to look at before it is sent."""

from __future__ import annotations

from typing import Any

from onward.core.continuing_command import parse_command
from onward.core.projection import DEFAULT_BUDGET
from onward.errors import InvalidInput
from onward.service import drafting
from onward.service.drafting import Draft
from onward.surfaces.cli import addresses, screen
from onward.surfaces.cli.continuing import print_handoff, read_handoff
from onward.surfaces.cli.grammar import Call, UsageError
from onward.surfaces.cli.opened import again, opened


def draft(call: Call) -> int:
    """Draft a handoff and print it, or weigh one that was edited."""
    if (call["handoff"] is None) == (call["purpose"] is None):
        raise UsageError(
            "--purpose says what the successor is for; --handoff FILE weighs an edited draft instead"
        )
    given = None if call["handoff"] is None else read_handoff(call["handoff"])
    budget = DEFAULT_BUDGET if call["budget"] is None else call["budget"]
    with opened(call, counter=call["tokens"]) as platform:
        session = addresses.session(platform, call["ses"])
        if given is None:
            made = drafting.draft_handoff(
                platform,
                session.id,
                call["purpose"],
                title=call["title"] or "",
                reason=call["reason"] or "user_request",
                budget=budget,
            )
        else:
            command = parse_command(_edited(call, given, session.id))
            made = drafting.review(platform, session.id, command, budget=budget)
    if call.json:
        screen.document(made, pretty=True)
    else:
        _print(call, made)
    return 0


def _edited(call: Call, given: dict[str, Any], session: str) -> dict[str, Any]:
    """Return an edited draft with what the options say on top."""
    fields: dict[str, Any] = dict(given) if "handoff" in given else {"handoff": given}
    drafted = fields.get("session")
    if isinstance(drafted, str) and drafted != session:
        raise InvalidInput(what="the handoff", why=f"it was drafted for {drafted}, and this is {session}")
    for name, default in (("reason", "user_request"), ("title", "Untitled")):
        fields[name] = call[name] or fields.get(name) or default
    return fields


def _print(call: Call, made: Draft) -> None:
    screen.say(f"{made.title} ({made.reason})")
    print_handoff(made.handoff)
    for source, estimate in zip(made.sources, made.estimates, strict=True):
        why = f": {source.relevance}" if source.relevance else ""
        if not estimate.fits:
            cost = f" (would not fit: {estimate.tokens or 0:,} tokens)"
        elif estimate.tokens is not None:
            cost = f" ({estimate.tokens:,} tokens)"
        else:
            cost = f" (not loaded: {estimate.note})" if estimate.note else ""
        screen.flow(f"source {source.address()}{why}{cost}", "  ")
    for section, tokens in made.costs.items():
        screen.say(f"  {tokens:>7,} {section}")
    screen.say(f"It would cost {made.estimated_tokens} of {made.budget} tokens ({made.counter}).")
    for warning in made.warnings:
        screen.flow(f"! {warning}", "")
    if not call.quiet:
        screen.note(
            "To edit and send it: add --json, keep the output in a file, and give that to "
            f"`{again(call, f'continue {made.session} --handoff FILE')}`."
        )
