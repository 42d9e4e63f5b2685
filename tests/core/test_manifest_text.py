"""A manifest to read leaves nothing out, and keeps to the width that it is given."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.bodies import PlanStep
from onward.core.manifest import (
    CarriedPlan,
    CarriedState,
    Content,
    Cost,
    Coverage,
    Handoff,
    Included,
    Initiating,
    Manifest,
    Omitted,
    Shown,
)
from onward.core.manifest_text import BESIDE_FROM, columns, manifest_text
from onward.core.references import Source

SESSION = f"ses_{1:026d}"


def manifest(**fields: Any) -> Manifest:
    """A manifest in which everything has a value."""
    facts: dict[str, Any] = {
        "id": f"man_{1:026d}",
        "link": f"lnk_{1:026d}",
        "predecessor": SESSION,
        "predecessor_title": "Fix the parser",
        "successor": f"ses_{2:026d}",
        "origin": SESSION,
        "initiating": Initiating(event=f"evt_{5:026d}", seq=5, digest="sha256:aa", session=SESSION),
        "created_at": 1_767_225_600_000_000,
        "actor": "agent",
        "reason": "topic_change",
        "title": "Release notes",
        "budget": 1000,
        "tokenizer": "chars/4",
        "costs": (Cost(section="control", tokens=100), Cost(section="cited", tokens=400)),
        "tokens": 500,
        "handoff": Handoff(purpose="Write them", established_facts=("It fails on leap days.",)),
        "sources": (Source(kind="memory", path="notes/plan.md"),),
        "included": (
            Included(
                session=SESSION,
                from_seq=2,
                to_seq=3,
                section="cited",
                tokens=400,
                digest="sha256:bb",
                text="sha256:bc",
            ),
        ),
        "contents": (
            Content(
                source=0,
                digest="sha256:cc",
                size=9,
                resolver="file",
                included=True,
                tokens=40,
                text="sha256:dd",
            ),
        ),
        "omitted": (Omitted(address=f"{SESSION}:4", cause="not_dialogue"),),
        "coverage": Coverage(facts=1, decisions=0, sources=1),
        "digest": "sha256:ee",
    }
    return Manifest(**{**facts, **fields})


def shown(record: Manifest, *sources: Shown, width: int = 100) -> str:
    """The text of a manifest with its line ends and indents folded."""
    return " ".join("\n".join(manifest_text(record, sources, width=width)).split())


def test_the_handoff_stands_beside_what_is_loaded_where_there_is_room() -> None:
    lines = manifest_text(manifest(), width=BESIDE_FROM)
    (row,) = [line for line in lines if line.startswith("Handoff")]
    assert row.endswith("│ Included")
    narrow = manifest_text(manifest(), width=BESIDE_FROM - 1)
    assert "Handoff" in narrow
    assert "Included" in narrow
    assert narrow.index("Handoff") < narrow.index("Included") < narrow.index("Left out")


def test_costs_stand_in_columns_with_bars_of_their_size() -> None:
    lines = manifest_text(manifest())
    first, second = (next(ln for ln in lines if ln.strip().startswith(name)) for name in ("control", "cited"))
    assert first.split() == ["control", "100", "10.0%", "█" * 6]
    assert second.split() == ["cited", "400", "40.0%", "█" * 24]
    assert first.index("%") == second.index("%")


@pytest.mark.requirement("P2")
def test_everything_that_was_left_out_is_there_with_its_cause_and_note() -> None:
    omitted = tuple(
        Omitted(address=f"{SESSION}:{n}", cause="budget", tokens=n * 1000, note=f"note {n}")
        for n in range(1, 40)
    )
    text = shown(manifest(omitted=omitted), width=200)
    for n in range(1, 40):
        assert f"{SESSION}:{n} · budget, {n * 1000:,} tokens (note {n})" in text


@pytest.mark.requirement("P6")
@pytest.mark.parametrize(
    ("how", "told"), [("carry", "carried"), ("close", "closed"), ("omit", "left behind")]
)
def test_state_is_told_with_its_ids_and_how_it_ended(how: Any, told: str) -> None:
    steps = (PlanStep(id="s1", text="find it", status="done", resolution="the clock"),)
    state = CarriedState(
        plan=CarriedPlan(transfer=how, event="evt_9", revision=3, steps=steps),
        pins=("tool shell@2",),
        children=("ses_child",),
        runs=("run_1",),
        calls=("c1",),
    )
    text = shown(manifest(state=state))
    assert f"plan: revision 3 of evt_9, {told}" in text
    for part in ("s1 [done] find it (the clock)", "tool shell@2", "ses_child", "run_1", "c1"):
        assert part in text


@pytest.mark.requirement("L5")
def test_what_can_no_longer_be_shown_is_named() -> None:
    gone = Shown(address=f"{SESSION}:2-3", section="cited", now="erased", included=True, erased=(3,))
    text = shown(manifest(), gone)
    assert f"What can no longer be shown {SESSION}:2-3 · cited · erased: events 3" in text
    there = Shown(address=f"{SESSION}:2-3", section="cited", now="available", included=True)
    assert "no longer" not in shown(manifest(), there)


@pytest.mark.requirement("P5")
def test_a_source_that_changed_is_told_apart_from_one_that_is_lost() -> None:
    changed = Shown(
        address="memory:notes/plan.md",
        section="cited",
        now="changed",
        included=True,
        kept=True,
        pinned="sha256:cc",
    )
    text = shown(manifest(), changed)
    assert "no longer" not in text
    assert "What stands elsewhere by now memory:notes/plan.md · changed" in text


words = st.text(st.characters(codec=None, exclude_categories=["Cc"]), max_size=60)


@given(words, st.lists(words, max_size=3), st.integers(20, 240))
def test_no_line_is_wider_than_the_terminal(text: str, entries: list[str], width: int) -> None:
    record = manifest(
        title=text,
        predecessor_title=text,
        description=text,
        handoff=Handoff(purpose=text, decisions=tuple(entries), extra={text: tuple(entries)}),
        omitted=tuple(Omitted(address=e, cause="missing", note=e) for e in entries),
        costs=(Cost(section=text[:10], tokens=123_456), Cost(section="x", tokens=0)),
    )
    for line in manifest_text(record, width=width):
        assert columns(line) <= width
        assert "\n" not in line


@given(st.lists(st.text("ab漢\u0301 ", max_size=30), min_size=1, max_size=3), st.integers(40, 120))
def test_breaking_lines_loses_no_character(entries: list[str], width: int) -> None:
    text = "".join(
        manifest_text(manifest(handoff=Handoff(purpose="p", cautions=tuple(entries))), width=min(width, 87))
    )
    squeezed = "".join(text.split())
    for entry in entries:
        assert "".join(entry.split()) in squeezed
