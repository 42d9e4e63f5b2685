"""One set of facts, told on every surface: every branch with every outcome, and what no sentence may claim (O3)."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import msgspec
import pytest
from tests.core.test_opening import ALL

from onward.core.bodies import OpeningFacts, SessionChange
from onward.core.wording import (
    NEVER_HELD,
    OPENINGS,
    SURFACES,
    Surface,
    document,
    facts_of,
    offline,
    sentence,
    tell,
)

OUTCOMES = (*OPENINGS, None)


def facts(branch: str, outcome: Any) -> OpeningFacts:
    """The facts of an opening that was decided by a branch and came out so."""
    decision = ALL[branch]
    seeded = outcome == "seeded"
    return OpeningFacts(
        outcome=outcome,
        reason=decision.reason,
        engine="claude-code",
        branch=branch,
        asked=decision.mode,
        given="brief" if seeded else None,
        scope="workspace" if seeded else None,
        rows=12 if seeded else 0,
    )


EVERYTHING = [
    pytest.param(facts(branch, outcome), surface, id=f"{branch}-{outcome}-{surface}")
    for branch, outcome, surface in itertools.product(ALL, OUTCOMES, SURFACES)
]


@pytest.mark.requirement("O3")
@pytest.mark.parametrize(("known", "surface"), EVERYTHING)
def test_every_opening_is_told_on_every_surface_without_a_claim_that_is_not_true(
    known: OpeningFacts, surface: Surface
) -> None:
    told = tell(known, surface)
    says = told.text.lower()
    assert "session" not in says
    assert "as if it never" not in says
    assert "remember" not in says
    assert "restor" not in says  # not even of what was: to people it is handed back
    own = told.text.replace(known.reason, "").lower()
    assert ("handed back" in own) == (known.outcome == "restored")
    assert ("reconstruction" in own) == (known.outcome == "seeded")
    assert ("own memory" in own or "still holds" in own) == (known.outcome == "resumed")
    assert ("not known" in own) == (known.outcome is None)
    assert known.reason in told.text
    begins = known.outcome == "fresh" and known.branch in NEVER_HELD
    assert told.tone == ("quiet" if known.outcome == "resumed" or begins else "warning")


@pytest.mark.requirement("O3")
@pytest.mark.parametrize("surface", SURFACES)
def test_a_reconstruction_begins_with_what_is_gone(surface: Surface) -> None:
    says = tell(facts("past_window", "seeded"), surface).text
    assert 0 < says.index("gone") < says.index("reconstruction")


@pytest.mark.requirement("O3")
@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("branch", sorted(NEVER_HELD))
def test_a_beginning_is_no_loss_unless_something_could_not_be_told(branch: str, surface: Surface) -> None:
    begins = tell(facts(branch, "fresh"), surface)
    assert "nothing came before" in begins.text
    lost = msgspec.structs.replace(facts(branch, "fresh"), fault="the disk is gone")
    assert "nothing came before it" not in tell(lost, surface).text
    assert tell(lost, surface).tone == "warning"


@pytest.mark.requirement("O3")
@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("branch", sorted(NEVER_HELD))
def test_where_there_was_nothing_nothing_is_said_to_be_gone(branch: str, surface: Surface) -> None:
    says = tell(facts(branch, "seeded"), surface).text
    assert "gone" not in says.replace(facts(branch, "seeded").reason, "")
    assert 0 < says.index("nothing of its own") < says.index("reconstruction")
    assert "(12 entries)" in says


@pytest.mark.parametrize("surface", SURFACES)
def test_going_on_that_was_asked_for_and_not_confirmed_is_told_as_that(surface: Surface) -> None:
    says = tell(facts("resume", "fresh"), surface).text.lower()
    assert "ask" in says
    assert "not confirm" in says
    assert "confirm" not in tell(facts("past_window", "fresh"), surface).text.lower()


@pytest.mark.parametrize("surface", SURFACES)
def test_a_brief_that_could_not_be_written_is_told_where_it_is_missing(surface: Surface) -> None:
    broken = msgspec.structs.replace(facts("past_window", "fresh"), fault="the disk is gone")
    assert "could not be written: the disk is gone." in tell(broken, surface).text
    fine = msgspec.structs.replace(facts("resume", "resumed"), fault="the disk is gone")
    assert "could not" not in tell(fine, surface).text


@pytest.mark.parametrize("surface", SURFACES)
def test_an_opening_that_nobody_recorded_is_unknown_and_no_more_is_said(surface: Surface) -> None:
    told = tell(None, surface)
    assert told.text.endswith("not known.")
    assert told.tone == "warning"
    assert sentence(None) == ""


def test_a_program_gets_the_facts_and_the_sentence_of_the_same_facts() -> None:
    known = facts("past_window", "seeded")
    found = document(known)
    assert (found["opening"], found["reason"], found["asked"]) == ("seeded", known.reason, "fresh")
    assert found["seed"] == {
        "given": "brief",
        "scope": "workspace",
        "rows": 12,
        "oldest": None,
        "newest": None,
    }
    assert found["told"] == sentence(known) == tell(known, "cli").text
    assert document(facts("resume", "resumed"))["seed"] is None
    assert document(None)["opening"] is None


def test_messages_are_counted_as_messages() -> None:
    given = OpeningFacts(outcome="seeded", given="messages", rows=1)
    assert "(1 message)" in sentence(given)
    assert "(3 messages)" in sentence(msgspec.structs.replace(given, rows=3))


def test_openings_of_before_the_facts_were_kept_are_told_too() -> None:
    old = SessionChange(change="opening", opening="seeded", reason="Because.", engine="model")
    assert sentence(facts_of(old)).endswith("Because.")
    assert facts_of(SessionChange(change="opening", opening="levitated")) == OpeningFacts()
    assert facts_of(SessionChange(change="renamed", title="x")) is None
    kept = facts("resume", "resumed")
    assert facts_of(SessionChange(change="opening", opening="resumed", facts=kept)) is kept


def test_a_machine_where_nobody_answers_is_offline_by_its_name() -> None:
    assert offline("Mac mini") == "Mac mini is offline"


def test_the_surfaces_are_those_that_are_typed() -> None:
    assert get_args(Surface) == SURFACES
