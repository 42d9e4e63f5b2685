"""The command to continue: lenient where models err, strict where meaning is at stake, and nothing it was given vanishes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.continuing_command import (
    MAX_DESCRIPTION,
    MAX_ENTRY,
    MAX_HEADING,
    MAX_TITLE,
    REASONS,
    Command,
    Transfer,
    parse_command,
)
from onward.core.manifest import Handoff
from onward.core.references import MAX_SOURCES, Source
from onward.errors import ContinuationRefused, InvalidContinuation, InvalidInput, LimitExceeded, OnwardError

SOURCE = Source(kind="session_events", from_seq=3, to_seq=9, relevance="the run")


def asked(handoff: Any = None, **more: Any) -> dict[str, Any]:
    """A well-formed command, changed."""
    given: dict[str, Any] = {
        "reason": "topic_change",
        "title": "Fix the test",
        "handoff": {"purpose": "make it green"} if handoff is None else handoff,
    }
    return given | more


def test_a_command_in_our_spelling_is_taken_as_it_is() -> None:
    command = parse_command(
        asked(
            {
                "purpose": "make it green",
                "current_request": "fix the test",
                "established_facts": ["it fails on CI"],
                "decisions": ["keep the fixture"],
                "open_questions": ["why only there?"],
                "next_actions": ["read the log"],
                "cautions": ["do not push"],
                "extra": {"people": ["Ada"]},
            },
            description="about the flaky one",
            sources=["3-9=the run"],
            transfer={
                "plan": "carry",
                "pending_runs": ["run_1"],
                "pinned_tools": ["ls"],
                "pinned_resources": ["r"],
            },
        )
    )
    assert command == Command(
        reason="topic_change",
        title="Fix the test",
        description="about the flaky one",
        handoff=Handoff(
            purpose="make it green",
            current_request="fix the test",
            established_facts=("it fails on CI",),
            decisions=("keep the fixture",),
            open_questions=("why only there?",),
            next_actions=("read the log",),
            cautions=("do not push",),
            extra={"people": ("Ada",)},
        ),
        sources=(SOURCE,),
        transfer=Transfer(
            plan="carry", pending_runs=("run_1",), pinned_tools=("ls",), pinned_resources=("r",)
        ),
        adjusted=(),
    )


FULL = parse_command(
    asked(
        {"purpose": "p", "established_facts": ["f"], "next_actions": ["n"]},
        description="d",
        sources=["3-9=the run"],
        transfer={"plan": "omit", "pending_runs": ["run_1"]},
    )
)


@pytest.mark.parametrize(
    "given",
    [
        asked(
            {"Purpose": "p", "establishedFacts": ["f"], "nextActions": ["n"]},
            Description="d",
            Sources=[{"fromSeq": 3, "toSeq": 9, "relevance": "the run"}],
            transfer={"plan": "omit", "pendingRuns": ["run_1"]},
        ),
        asked(
            {
                "purpose": "p",
                "established-facts": "f",
                "next actions": ["n"],
                "sources": ["3-9=the run"],
                "transfer": {"plan": "omit", "pending_runs": "run_1"},
                "description": "d",
            }
        ),
        {
            "handoff": {
                "reason": "Topic Change",
                "title": " Fix \n the test ",
                "purpose": "p",
                "established_facts": [{"fact": "f"}],
                "next_actions": ["n", "", None, " "],
            },
            "description": "d",
            "sources": "3-9=the run",
            "transfer": {"plan": "OMIT", "pending_runs": ["run_1"]},
        },
        {
            "reason": "topicChange",
            "title": "Fix the test",
            "purpose": "p",
            "establishedFacts": ["f"],
            "next_actions": '["n"]',
            "description": "d",
            "sources": '["3-9=the run"]',
            "transfer": '{"plan": "omit", "pending_runs": ["run_1"]}',
        },
        asked(
            json.dumps({"purpose": "p", "established_facts": ["f"], "next_actions": ["n"]}),
            description="d",
            sources={"from": 3, "to": "9", "why": "the run"},
            transfer={"plan": "omit", "pending_runs": [{"id": "run_1"}]},
        ),
        asked(None, handOff={"purpose": "p", "established_facts": ["f"], "next_actions": ["n"]}, description="d",
              sources=["3-9=the run"], transfer={"plan": "omit", "pending_runs": ["run_1"]}) | {"handoff": None},
    ],
    ids=["camelCase", "nested", "everything inside", "everything beside", "JSON as text", "hand off"],
)  # fmt: skip
def test_the_same_command_is_understood_in_every_spelling_and_says_what_was_adjusted(
    given: dict[str, Any],
) -> None:
    command = parse_command(given)
    assert command == Command(
        reason=FULL.reason,
        title=FULL.title,
        description=FULL.description,
        handoff=FULL.handoff,
        sources=FULL.sources,
        transfer=FULL.transfer,
        adjusted=command.adjusted,
    )
    assert command.adjusted


@pytest.mark.parametrize(
    ("given", "note"),
    [
        (asked({"purpose": "p", "sources": ["3"]}), "handoff.sources: taken out of the handoff"),
        (asked({"purpose": "p", "sources": ["3"]}, sources=["4"]), "handoff.sources: ignored, it is given beside"),
        (asked({"purpose": "p", "nextActions": []}), "handoff.nextActions: read as next_actions"),
        (asked({"purpose": "p", "risks": ["r"]}), "handoff.risks: kept under extra"),
        (asked({"purpose": "p", "cautions": "c"}), "handoff.cautions: one entry taken as a list of one"),
        (asked({"purpose": "p", "cautions": [{"a": "c", "b": "w"}]}), "handoff.cautions: an object was written out as text"),
        (asked({"purpose": ["p", "q"]}), "handoff.purpose: put together as one text"),
        (asked({"purpose": "p", "extra": ["loose"]}), "handoff.extra: kept as notes"),
        (asked("go on"), "handoff: text taken as its purpose"),
        (asked(cautions=["c"]), "cautions: taken into the handoff"),
        (asked(temperature=0.3), "temperature: not part of a continuation, ignored"),
        (asked(reason="User Request"), "reason: User Request read as user_request"),
        (asked(transfer="close"), "transfer: text taken as what becomes of the plan"),
        (asked({"purpose": "p", "cautions": ["a"], "Cautions": ["b"]}), "handoff.cautions: given twice, put together"),
    ],
)  # fmt: skip
def test_every_adjustment_is_recorded(given: dict[str, Any], note: str) -> None:
    assert any(found.startswith(note) for found in parse_command(given).adjusted)


def test_of_a_name_given_twice_both_are_kept() -> None:
    given = asked({"purpose": "p", "cautions": ["a"], "Cautions": ["b"]}, cautions=["c"])
    assert parse_command(given).handoff.cautions == ("a", "b", "c")


def test_headings_that_are_not_known_are_kept_with_all_they_hold() -> None:
    handoff = {
        "purpose": "p",
        "risks": ["r"],
        "extra": {"risks": "q", "people": [1, None, {"name": "Ada", "role": ["x"]}]},
    }
    assert parse_command(asked(handoff)).handoff.extra == {
        "risks": ("q", "r"),
        "people": ("1", 'name: Ada; role: ["x"]'),
    }


facts = st.text(min_size=1, max_size=20).filter(lambda t: bool(t.strip()) and t.strip()[0] != "[")


@given(
    st.dictionaries(
        st.sampled_from(
            ("establishedFacts", "decisions", "open_questions", "NextActions", "cautions", "Risks", "notes")
        ),
        st.one_of(
            facts,
            st.lists(facts, max_size=3),
            st.lists(st.dictionaries(facts, facts, max_size=2), max_size=2),
        ),
        max_size=5,
    )
)
def test_every_word_of_a_handoff_is_kept(handoff: dict[str, Any]) -> None:
    def words(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [w for v in value.values() for w in words(v)]
        return [w for v in value for w in words(v)] if isinstance(value, list) else [value]

    command = parse_command(asked({"purpose": "p", **handoff}, sources=["1"]))
    note = command.handoff
    kept = "\n".join(
        [*note.established_facts, *note.decisions, *note.open_questions, *note.next_actions, *note.cautions]
        + [entry for entries in note.extra.values() for entry in entries]
    )
    for word in words(handoff):
        assert word in kept


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=10),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ("reason", "title", "handoff", "purpose", "sources", "transfer", "plan", "extra", "x")
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_whatever_is_given_is_a_command_or_refused_in_words(given: Any) -> None:
    refused: OnwardError | None = None
    try:
        assert parse_command(given).title
    except (ContinuationRefused, InvalidInput) as error:
        refused = error
    assert refused is None or 0 < len(refused.message) < 1000


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_is_accepted(reason: str) -> None:
    assert parse_command(asked(reason=reason)).reason == reason


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (None, "expected an object, found NoneType"),
        ("continue", "expected an object, found str"),
        (asked(reason="boredom"), "reason must be one of topic_change, phase_change, refocus, context_pressure, "),
        (asked(reason="boredom"), "user_request, other; found 'boredom'"),
        (asked(reason=None), "reason must be one of"),
        (asked(reason=["other"]), "reason must be one of"),
        (asked(reason="b" * 10_000), "reason must be one of"),
        (asked(title=""), "it needs a title"),
        (asked(title=" \n "), "it needs a title"),
        (asked(title=None), "it needs a title"),
        (asked(title=5), "title must be text, found int"),
        (asked(description=["d"]), "description must be text, found list"),
        ({"reason": "other", "title": "t"}, "the handoff needs a purpose"),
        (asked({}), "the handoff needs a purpose"),
        (asked({"purpose": "  "}), "the handoff needs a purpose"),
        (asked(["p"]), "handoff must be an object, found list"),
        (asked({"purpose": "p", "established_facts": ["f"]}), "states facts or decisions but cites no source"),
        (asked({"purpose": "p", "decisions": "d"}), "states facts or decisions but cites no source"),
        (asked({"purpose": "p", "decisions": "d", "sources": []}), "states facts or decisions but cites no source"),
        (asked(sources=["3", "nine"]), "source 2: source 'nine' is not valid: expected 12, 12-18"),
        (asked(sources=5.5), "source 1: a source is not valid: expected an object or a string, found float"),
        (asked(transfer=["plan"]), "transfer must be an object, found list"),
        (asked(transfer={"plan": "keep"}), "transfer.plan must be carry, close or omit; found 'keep'"),
        (asked(transfer={"plan": True}), "transfer.plan must be carry, close or omit; found True"),
        (asked(transfer={"plan": "carry", "memory": "all"}), "pinned_tools, pinned_resources; found memory"),
    ],
)  # fmt: skip
def test_a_command_whose_meaning_is_unclear_is_refused_with_the_reason(given: Any, why: str) -> None:
    with pytest.raises(InvalidContinuation) as refused:
        parse_command(given)
    assert why in refused.value.message
    assert len(refused.value.message) < 600


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (asked(title="t" * 10_000), "a title may be at most 120 characters; this one is 10,000 characters"),
        (
            asked(title="t" * (MAX_TITLE + 1)),
            "a title may be at most 120 characters; this one is 121 characters",
        ),
        (
            asked(description="d" * (MAX_DESCRIPTION + 1)),
            "a description may be at most 1,024 bytes; this one is 1,025 bytes",
        ),
        (asked(description="ü" * 513), "a description may be at most 1,024 bytes; this one is 1,026 bytes"),
        (
            asked(sources=["1"] * (MAX_SOURCES + 1)),
            "the list of sources may be at most 64 sources; this one is 65 sources",
        ),
        (
            asked({"purpose": "p", "next_actions": ["n" * (MAX_ENTRY + 1)]}),
            "an entry of handoff.next_actions may be at most 65,536 bytes; this one is 65,537 bytes",
        ),
        (
            asked({"purpose": "p", "x" * (MAX_HEADING + 1): ["y"]}),
            "a heading of the handoff may be at most 120 characters; this one is 121 characters",
        ),
    ],
)
def test_what_is_too_long_is_refused_with_the_limit_and_the_size_found(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(LimitExceeded) as refused:
        parse_command(given)
    assert message in refused.value.message


def test_what_is_just_short_enough_is_accepted() -> None:
    command = parse_command(
        asked(title="t" * MAX_TITLE, description="ü" * 512, sources=["1"] * MAX_SOURCES)
        | {"handoff": {"purpose": "n" * MAX_ENTRY, "x" * MAX_HEADING: ["y"]}}
    )
    assert len(command.sources) == 64


def test_a_long_title_of_spaces_is_measured_as_it_will_read() -> None:
    assert parse_command(asked(title="a" + " " * 500 + "b")).title == "a b"


def test_a_command_can_be_given_its_parts_ready_made() -> None:
    command = parse_command(asked(sources=(SOURCE,), transfer=Transfer(plan="close")))
    assert (command.sources, command.transfer.plan) == ((SOURCE,), "close")
