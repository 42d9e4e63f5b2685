"""Drafts that are weighed, continuations that wait, and what was asked for again, by the real program."""

from __future__ import annotations

import json

from tests.behaviour.cli import Program

CITING = (
    '{"reason": "topic_change", "title": "The notes", "handoff": {"purpose": "Write the notes", "current_request": '
    '"Write them", "established_facts": ["The parser fails."]}, "sources": [{"from_seq": 1, "to_seq": 2}]}'
)
ASKING = {"ONWARD_APPROVAL": "agent"}
EVERYBODY = {"ONWARD_APPROVAL": "always"}


def waiting(onward: Program) -> tuple[str, str]:
    """A session whose agent asked to continue, and the request that waits."""
    session = onward.new()
    ran = onward(
        "run", session, f"Go on. [[call continue_session {CITING}]] [[say Done.]]", "--json", env=ASKING
    )
    assert ran.status == 0, ran.told
    assert ran.document["session"] == session
    return session, ran.document["approval"]


def test_an_agents_request_is_listed_accepted_and_answered(onward: Program) -> None:
    session, name = waiting(onward)
    (listed,) = onward("approvals", "--json").document["approvals"]
    assert listed.keys() == {
        "id", "session", "state", "at", "actor", "command", "engine", "budget", "text", "note", "successor",
    }  # fmt: skip
    assert (listed["id"], listed["session"], listed["state"]) == (name, session, "requested")
    shown = onward("approvals", session)
    assert name in shown.text
    assert "Write the notes" in shown.text
    made = onward("approve", name, "--json")
    assert made.status == 0, made.told
    assert made.document.keys() == {"successor", "predecessor", "origin", "link", "manifest", "run", "reply"}
    assert made.document["predecessor"] == session
    assert made.document["reply"] == "Done."
    again = onward("approve", name, "--json", "--no-run")
    assert again.document["successor"] == made.document["successor"]
    assert onward("approvals", "--json").document == {"approvals": [], "permissions": []}
    (answered,) = onward("approvals", "--all", "--json").document["approvals"]
    assert (answered["state"], answered["successor"]) == ("granted", made.document["successor"])


def test_the_person_at_the_terminal_is_told_that_it_waits(onward: Program) -> None:
    session = onward.new()
    ran = onward("run", session, f"Go on. [[call continue_session {CITING}]]", env=ASKING)
    assert "waits for a person: onward approve evt_" in ran.told


def test_what_a_person_changed_is_what_is_carried_out(onward: Program) -> None:
    _, name = waiting(onward)
    (listed,) = onward("approvals", "--json").document["approvals"]
    listed["command"]["handoff"]["cautions"] = ["Ask first."]
    edited = json.dumps(listed).encode()
    made = onward("approve", name, "--handoff", "-", "--no-run", "--json", stdin=edited)
    assert made.status == 0, made.told
    manifest = onward("manifest", made.document["successor"], "--json").document
    assert manifest["handoff"]["cautions"] == ["Ask first."]
    assert manifest["title"] == "The notes"
    assert manifest["handoff"]["established_facts"] == ["The parser fails."]


def test_a_declined_request_stays_declined(onward: Program) -> None:
    session, name = waiting(onward)
    declined = onward("decline", name, "--note", "not yet", "--json")
    assert (declined.document["state"], declined.document["note"]) == ("denied", "not yet")
    refused = onward("approve", name)
    assert (refused.status, refused.code) == (1, "continuation_declined")
    assert "not yet" in refused.told
    assert onward("show", session, "--json").document["links"] == []


def test_under_always_a_persons_own_continuation_waits_too_and_nobody_elses_word_is_a_policy(
    onward: Program,
) -> None:
    session = onward.new()
    asked = ("continue", session, "--reason", "other", "--title", "Next", "--purpose", "p", "--key", "k")
    parked = onward(*asked, "--json", env=EVERYBODY)
    assert (parked.status, parked.document["error"]["code"]) == (1, "continuation_parked")
    name = parked.document["error"]["details"]["approval"]
    assert onward(*asked, "--json", env=EVERYBODY).document["error"]["details"]["approval"] == name
    assert onward("approve", name, "--no-run", env=EVERYBODY).status == 0
    assert onward(*asked, "--no-run", "--json", env=EVERYBODY).document["predecessor"] == session
    wrong = onward("list", env={"ONWARD_APPROVAL": "perhaps"})
    assert (wrong.status, wrong.code) == (1, "invalid_input")


def test_policy_says_what_is_in_force_and_where_that_is_said(onward: Program) -> None:
    assert onward("policy", "--json").document == {"continuation.approval": "never", "source": "default"}
    assert onward("policy", env=EVERYBODY).text.split() == [
        "continuation.approval", "=", "always", "(ONWARD_APPROVAL)",
    ]  # fmt: skip


def test_an_edited_draft_is_weighed_again(onward: Program) -> None:
    session = onward.new()
    draft = onward("draft", session, "--purpose", "Release notes", "--json").document
    draft["handoff"]["decisions"] = ["Ship it on Friday."]
    weighed = onward("draft", session, "--handoff", "-", "--json", stdin=json.dumps(draft).encode())
    assert weighed.status == 0, weighed.told
    assert weighed.document.keys() == draft.keys()
    assert any("cites nothing" in warning for warning in weighed.document["warnings"])
    assert weighed.document["estimated_tokens"] > draft["estimated_tokens"]
    shown = onward("draft", session, "--handoff", "-", stdin=json.dumps(draft).encode())
    assert "Ship it on Friday." in shown.text
    other = onward.new()
    refused = onward("draft", other, "--handoff", "-", stdin=json.dumps(draft).encode())
    assert (refused.status, refused.code) == (1, "invalid_input")


def test_recalls_without_a_session_are_rates(onward: Program) -> None:
    session = onward.new()
    assert onward("recalls", "--json").document == {"rates": []}
    onward("continue", session, "--reason", "other", "--title", "Next", "--purpose", "p", "--no-run")
    (rate,) = onward("recalls", "--json").document["rates"]
    assert rate.keys() == {"compiler", "reason", "continuations", "recalls", "of_omitted", "rate"}
    assert (rate["reason"], rate["continuations"], rate["rate"]) == ("other", 1, 0)
    assert "other" in onward("recalls").text


def test_how_full_the_context_is_shows_where_it_was_measured(onward: Program) -> None:
    session = onward.new()
    assert onward("show", session, "--json").document["pressure"] is None
    ran = onward("run", session, "[[usage 900]]", "--json")
    assert ran.status == 0, ran.told
    assert ran.document["pressure"] is None, "nobody knows the window of a script"
