"""Which memory an engine wakes up with: every branch once, their order, and what a person is told."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.ages import MICROSECONDS, ago, span
from onward.core.opening import (
    RESUME_WINDOW,
    Able,
    Branch,
    Decision,
    Held,
    Policy,
    Previous,
    decide_opening,
    parse_window,
    told_window,
)
from onward.errors import InvalidInput

NOW = 1_900_000_000 * MICROSECONDS
HOUR = 3600 * MICROSECONDS
WINDOW = round(RESUME_WINDOW * MICROSECONDS)

GOOD: dict[str, Any] = {
    "engine": Able(name="claude-code", memory=True),
    "held": Held(native_id="n1", machine="laptop"),
    "previous": Previous(engine="claude-code", state="completed", active_at=NOW - 11 * HOUR),
    "machine": "laptop",
    "policy": Policy(),
    "now": NOW,
}
"""What all is well with: it resumes."""
RESTORABLE = Able(name="claude-code", memory=True, restorable=True)
THERE = Held(native_id="n1", machine="tower")


def previous(**changes: Any) -> Previous:
    return Previous(
        **{"engine": "claude-code", "state": "completed", "active_at": NOW - 11 * HOUR, **changes}
    )


CASES: dict[str, dict[str, Any]] = {
    "clean_slate": {"asked": "none"},
    "replay": {"asked": "replay"},
    "cannot_resume": {"engine": Able(name="model")},
    "nothing_to_resume": {"held": None, "previous": None},
    "native": {"asked": "native"},
    "other_engine": {"previous": previous(engine="codex")},
    "ended_in_error": {"previous": previous(state="failed")},
    "activity_unknown": {"previous": previous(active_at=None)},
    "other_machine": {"held": THERE},
    "past_window": {"previous": previous(active_at=NOW - WINDOW - 1)},
    "platform_first": {"policy": Policy(memory="platform")},
    "platform_restore": {"policy": Policy(memory="platform"), "engine": RESTORABLE},
    "restore": {"held": THERE, "engine": RESTORABLE},
    "resume": {},
}
"""Every branch, by what leads to it."""


def decided(**changes: Any) -> Decision:
    return decide_opening(**{**GOOD, **changes})


ALL = {branch: decided(**changes) for branch, changes in CASES.items()}


def test_every_branch_is_reached_by_its_case() -> None:
    assert set(CASES) == set(get_args(Branch))
    assert {name: decision.branch for name, decision in ALL.items()} == {name: name for name in CASES}


@pytest.mark.requirement("O1")
def test_every_answer_declares_its_seed_and_only_a_clean_slate_has_none() -> None:
    assert [name for name, decision in ALL.items() if decision.seed is None] == ["clean_slate"]


def test_every_reason_is_its_own_and_never_says_session() -> None:
    reasons = [decision.reason for decision in ALL.values()]
    assert len(set(reasons)) == len(reasons)
    for reason in reasons:
        assert reason[0].isupper()
        assert reason.endswith(".")
        assert "session" not in reason.lower()
        for claim in ("restor", "remember"):
            assert claim not in reason.lower()


def test_only_resuming_and_restoring_name_a_conversation_and_both_say_what_takes_its_place() -> None:
    for decision in ALL.values():
        if decision.mode == "fresh":
            assert (decision.native_id, decision.instead) == (None, None)
        else:
            assert decision.native_id == "n1"
            assert decision.instead in ("restore", "seed", "fail")


def test_what_takes_the_place_of_a_memory_is_the_exact_record_where_there_is_one() -> None:
    assert ALL["resume"].instead == "seed"
    assert decided(engine=RESTORABLE).instead == "restore"
    assert ALL["restore"].instead == "seed"
    assert ALL["native"].instead == "fail"


ORDER = (
    "clean_slate",
    "cannot_resume",
    "nothing_to_resume",
    "other_engine",
    "ended_in_error",
    "activity_unknown",
    "other_machine",
    "past_window",
    "platform_first",
)


def test_the_first_question_that_applies_is_the_answer() -> None:
    everything: dict[str, Any] = {
        "asked": "none",
        "engine": Able(name="claude-code"),
        "held": None,
        "previous": previous(engine="codex", state="failed", active_at=None),
        "policy": Policy(memory="platform"),
    }
    found = [decided(**everything).branch]
    for repaired in (
        {"asked": "auto"},
        {"engine": Able(name="claude-code", memory=True)},
        {"held": THERE},
        {"previous": previous(state="failed", active_at=None)},
        {"previous": previous(active_at=None)},
        {"previous": previous(active_at=NOW - 2 * WINDOW)},
        {"held": Held(native_id="n1", machine="laptop")},
        {"previous": previous()},
    ):
        everything |= repaired
        found.append(decided(**everything).branch)
    assert tuple(found) == ORDER


@pytest.mark.requirement("O5")
@pytest.mark.parametrize("asked", ["auto", "native", "replay", "none"])
def test_an_engine_that_cannot_resume_is_never_asked_to(asked: str) -> None:
    assert decided(engine=Able(name="model", restorable=True), asked=asked).mode == "fresh"


@pytest.mark.parametrize("state", ["failed", "interrupted"])
def test_a_turn_that_failed_or_was_cut_off_leaves_a_memory_in_doubt(state: str) -> None:
    assert decided(previous=previous(state=state)).branch == "ended_in_error"


@pytest.mark.parametrize("state", ["completed", "cancelled", "continued"])
def test_a_turn_that_was_ended_properly_does_not(state: str) -> None:
    assert decided(previous=previous(state=state)).branch == "resume"


@pytest.mark.parametrize(
    ("age", "window", "branch"),
    [
        (WINDOW, RESUME_WINDOW, "resume"),
        (WINDOW + 1, RESUME_WINDOW, "past_window"),
        (WINDOW * 1000, None, "resume"),
        (1, 0.0, "past_window"),
        (0, 0.0, "resume"),
        (-WINDOW, 0.0, "resume"),
    ],
)
def test_the_window_is_a_dial_its_edge_is_inside_and_a_negative_age_counts_as_none(
    age: int, window: float | None, branch: str
) -> None:
    assert decided(previous=previous(active_at=NOW - age), policy=Policy(window=window)).branch == branch


def test_a_memory_whose_machine_was_not_written_down_counts_as_here() -> None:
    assert decided(held=Held(native_id="n1")).branch == "resume"


def test_a_memory_without_a_turn_before_it_is_not_relied_on() -> None:
    assert decided(previous=None).branch == "activity_unknown"


def test_the_reason_says_where_and_how_long_ago() -> None:
    assert "11 h ago" in ALL["resume"].reason
    assert "tower" in ALL["other_machine"].reason
    assert "codex" in ALL["other_engine"].reason
    assert "4 d" in ALL["past_window"].reason


@given(
    engine=st.builds(Able, name=st.sampled_from(["a", "b"]), memory=st.booleans(), restorable=st.booleans()),
    held=st.none() | st.builds(Held, native_id=st.just("n"), machine=st.sampled_from([None, "m", "x"])),
    previous=st.none()
    | st.builds(
        Previous,
        engine=st.sampled_from(["a", "b"]),
        state=st.sampled_from(["completed", "failed", "interrupted", "cancelled"]),
        active_at=st.none() | st.integers(-10, 2 * NOW),
    ),
    policy=st.builds(
        Policy, memory=st.sampled_from(["engine", "platform"]), window=st.none() | st.floats(0, 1e9)
    ),
    asked=st.sampled_from(["auto", "replay", "native", "none"]),
)
def test_any_question_has_one_answer_that_keeps_the_rules(
    engine: Able, held: Held | None, previous: Previous | None, policy: Policy, asked: str
) -> None:
    decision = decide_opening(engine, held, previous, "m", policy, NOW, asked=asked)  # type: ignore[arg-type]
    assert decision == decide_opening(engine, held, previous, "m", policy, NOW, asked=asked)  # type: ignore[arg-type]
    assert (decision.seed is None) == (asked == "none")
    assert decision.reason
    assert "session" not in decision.reason
    if decision.mode != "fresh":
        assert engine.memory
        assert held is not None
        assert decision.native_id == held.native_id
    if decision.mode == "restore":
        assert engine.restorable
    if policy.memory == "platform" and asked == "auto":
        assert decision.mode != "resume"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("4d", 345_600.0),
        ("36h", 129_600.0),
        ("90m", 5_400.0),
        ("90min", 5_400.0),
        ("30s", 30.0),
        ("15", 15.0),
        ("1.5h", 5_400.0),
        ("2w", 1_209_600.0),
        (" 4D ", 345_600.0),
        ("unlimited", None),
    ],
)
def test_a_window_is_read_as_people_write_it(text: str, seconds: float | None) -> None:
    assert parse_window(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "four days", "-1d", "4y", "1e400d", "nan", "inf", "4 d 3 h"])
def test_a_window_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="such as 4d"):
        parse_window(text)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (172_799, "47 h"),
        (172_800, "2 d"),
    ],
)
def test_a_length_of_time_is_told_in_one_unit(seconds: int, told: str) -> None:
    assert span(seconds * MICROSECONDS) == told


def test_a_time_to_come_was_just_now_and_one_that_is_not_known_says_so() -> None:
    assert ago(NOW + HOUR, NOW) == "0 s ago"
    assert ago(0, NOW) == "at an unknown time"
    assert told_window(None) == "any time"
