"""Context forms: each constructs with the facts it promises and not without, and what is unknown is shown as that."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.bodies import (
    FORMS,
    NOTICE_LIMIT,
    BriefContext,
    Context,
    Instructions,
    Notice,
    Opaque,
    ProjectionContext,
    Recall,
    RecalledReference,
    Relay,
    Section,
    Snapshot,
    notice_summary,
)
from onward.core.codec import Unreadable, decode, encode, text_of

REFERENCE = RecalledReference(source="ses_1", label="x", captured_seq=1)
PROMISED: list[tuple[type[Context], dict[str, Any]]] = [
    (Snapshot, {"sections": (Section(name="git", text="clean"),)}),
    (Notice, {"summary": "it rained"}),
    (Relay, {"sender": "ses_1"}),
    (Recall, {"references": (REFERENCE,)}),
    (ProjectionContext, {"manifest": "man_1"}),
    (BriefContext, {"rows": 1}),
    (Instructions, {}),
    (Opaque, {}),
]
EMPTY: dict[type, tuple[Any, ...]] = {str: ("", " "), tuple: ((),), int: (0, -1)}


def test_every_form_is_listed_here() -> None:
    assert {form for form, _ in PROMISED} == set(FORMS)


@pytest.mark.parametrize(("form", "facts"), PROMISED)
def test_a_form_constructs_with_its_facts_and_comes_back_as_itself(
    form: type[Context], facts: dict[str, Any]
) -> None:
    made = form(text="words", **facts)
    assert decode("context", encode(made)) == made
    assert text_of(made) == "words"


@pytest.mark.parametrize(("form", "facts"), [(form, facts) for form, facts in PROMISED if facts])
def test_a_form_without_its_facts_does_not_construct(form: type[Context], facts: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        form(text="words")
    for name, value in facts.items():
        for empty in EMPTY[type(value)]:
            with pytest.raises(ValueError, match=r"needs|at least one"):
                form(text="words", **{name: empty})


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": ""},
        {"captured_seq": -1},
        {"original": 1},
        {"retained": 1},
        {"original": 2, "retained": 3, "omitted": -1},
        {"omitted_bytes": -1},
    ],
)
def test_a_reference_whose_counts_do_not_add_up_does_not_construct(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"add up|source"):
        RecalledReference(**({"source": "ses_1", "label": "x", "captured_seq": 1} | wrong))


def test_a_reference_writes_out_all_it_records() -> None:
    assert encode(REFERENCE) == (
        b'{"source":"ses_1","label":"x","captured_seq":1,"checkpoint":false,"original":0,"retained":0,"omitted":0,'
        b'"omitted_bytes":0,"truncated":false}'
    )


def test_a_section_says_what_it_is() -> None:
    with pytest.raises(ValueError, match="name"):
        Section(name=" ", text="x")


@pytest.mark.requirement("L4")
@pytest.mark.parametrize(
    "body",
    [
        b'{"form":"hologram","text":"words"}',
        b'{"text":"words"}',
        b'{"form":"recall","text":"words"}',
        b'{"form":"notice","summary":"","text":"words"}',
        b'{"form":"notice","summary":"' + b"x" * (NOTICE_LIMIT + 1) + b'","text":"words"}',
        b'{"form":"snapshot","sections":[],"text":"words"}',
        b'{"form":"relay","sender":" ","text":"words"}',
        b'{"form":null,"text":"words"}',
    ],
)
def test_an_unknown_form_and_one_without_its_facts_are_shown_as_unreadable_with_their_text(
    body: bytes,
) -> None:
    found = decode("context", body)
    assert isinstance(found, Unreadable)
    assert found.raw == body.decode()
    assert found.why


def test_the_summary_of_a_notice_has_at_most_its_limit() -> None:
    Notice(summary="x" * NOTICE_LIMIT)
    with pytest.raises(ValueError, match=f"at most {NOTICE_LIMIT} .* {NOTICE_LIMIT + 1}"):
        Notice(summary="x" * (NOTICE_LIMIT + 1))


@given(st.text(st.characters(exclude_categories=()), max_size=400))
def test_any_words_can_be_made_the_summary_of_a_notice(text: str) -> None:
    summary = notice_summary(text)
    assert len(summary) <= NOTICE_LIMIT
    assert len(summary.splitlines()) <= 1
    assert notice_summary(summary) == summary
    if summary:
        Notice(summary=summary)
    folded = " ".join(text.split())
    assert summary == folded or (summary.endswith("…") and folded.startswith(summary[:-1]))


def test_a_summary_is_cut_only_beyond_the_limit() -> None:
    assert notice_summary("x" * NOTICE_LIMIT) == "x" * NOTICE_LIMIT
    assert notice_summary("x" * (NOTICE_LIMIT + 1)) == "x" * (NOTICE_LIMIT - 1) + "…"
