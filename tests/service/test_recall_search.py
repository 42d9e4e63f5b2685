"""Search: older evidence stays findable, replies are found by their questions, code and CJK by part, and what is not
complete says what to do about it."""

from __future__ import annotations

import itertools

import pytest
from tests.service.conversations import World

from onward.core import ids as make
from onward.core.bodies import Message, ToolCall, ToolResult
from onward.core.events import NewEvent
from onward.core.records import Link
from onward.service import searching
from onward.store.contract import Append, Batch


def message(world: World, text: str, actor: str = "user") -> NewEvent:
    world.clock.tick()
    role = "assistant" if actor == "agent" else "user"
    return world.platform.event("message", Message(role=role, text=text), actor)


def said(world: World, *texts: str, session: str | None = None) -> str:
    """A session in which this was said, user and agent in turn."""
    session = session or world.log.start("Talk").id
    events = tuple(message(world, text, ("user", "agent")[n % 2]) for n, text in enumerate(texts))
    world.store.commit(Batch(appends=(Append(session_id=session, events=events),)))
    return session


def continued(world: World, before: str, after: str) -> None:
    link = Link(
        id=world.ids.new(make.LINK),
        type="continuation",
        from_session=before,
        to_session=after,
        created_at=world.clock(),
        reason="other",
    )
    world.store.commit(Batch(links=(link,)))


def hits(world: World, query: str, **options: object) -> list[str]:
    return [hit.text for hit in world.log.search(query, **options).hits]


def test_old_evidence_is_found_although_each_of_its_words_stands_in_more_newer_events(world: World) -> None:
    evidence = "The gateway drops its lease when the bank is slow."
    session = said(world, evidence)
    many = searching.CANDIDATES + 20
    said(
        world, *(f"{word} {n}" for n in range(many) for word in ("gateway", "lease", "bank")), session=session
    )
    assert (
        hits(world, "which lease does the gateway lose at a bank that answers nothing", session_id=session)[0]
        == evidence
    )


def test_a_rare_word_finds_its_event_among_a_thousand_newer_ones_with_the_other_word(world: World) -> None:
    evidence = "The gateway met a zebra."
    session = said(world, evidence, *(f"the gateway again {n}" for n in range(searching.CANDIDATES * 2)))
    assert hits(world, "gateway zebra crossing", session_id=session)[0] == evidence


def test_the_reply_to_a_question_is_found_by_the_words_of_the_question(world: World) -> None:
    session = said(
        world,
        "Small talk.",
        "Nothing.",
        "Which timeout do we want for the gateway?",
        "45 seconds.",
        "Fine.",
        "Good.",
    )
    assert hits(world, "gateway timeout", session_id=session)[:2] == [
        "45 seconds.",
        "Which timeout do we want for the gateway?",
    ]


def test_what_stands_beside_a_question_in_a_branch_after_the_point_is_not_found(world: World) -> None:
    source = said(world, "Which timeout do we want for the gateway?")
    branch = world.log.fork(source)
    said(world, "unused", "45 seconds.", session=source)
    assert hits(world, "gateway timeout", session_id=branch.id) == [
        "Which timeout do we want for the gateway?"
    ]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("calls parseHttpRequest here", "http request"),
        ("calls parseHttpRequest here", "parsehttprequest"),
        ("edits src/onward/core/ids.py", "ids"),
        ("edits src/onward/core/ids.py", "onward core"),
        ("the test_parse_dates case", "parse dates"),
        ("the test_parse_dates case", "test_parse_dates"),
        ("版本需求必须满足", "版本需求"),
        ("版本需求必须满足", "需求"),
        ("版本需求必须满足", "足"),
        ("版本需求必须满足", "版"),
        ("カタカナとひらがな", "ひらがな"),
        ("한국어 검색입니다", "검색"),
        ("한국어 검색입니다", "검"),
    ],
)
def test_code_and_unspaced_scripts_are_found_by_part_and_scored(world: World, text: str, query: str) -> None:
    session = said(world, "something else 别的", text)
    found = world.log.search(query, session_id=session).hits
    assert [hit.text for hit in found] == [text]
    assert found[0].score > 0


def test_a_tool_call_is_found_by_its_name_and_by_what_it_was_given(world: World) -> None:
    session = world.log.start("Tools").id
    call = ToolCall(call="c1", name="write_file", input={"path": "src/ledger/tariff_bands.py"})
    world.tell(session, world.platform.event("tool_call", call, "agent"))
    world.tell(session, world.platform.event("tool_result", ToolResult(call="c1", output="done"), "tool"))
    assert "tariff_bands" in hits(world, "write tariff bands", session_id=session)[0]


def test_scopes_widen_from_the_lineage_over_the_workspace_to_the_account(world: World) -> None:
    here = world.log.start("Here", workspace="/home/you/x").id
    beside = world.log.start("Beside", workspace="/home/you/x").id
    elsewhere = world.log.start("Elsewhere").id
    for session, text in ((here, "pelican one"), (beside, "pelican two"), (elsewhere, "pelican three")):
        said(world, text, session=session)
    assert hits(world, "pelican", session_id=here) == ["pelican one"]
    assert hits(world, "pelican", session_id=here, scope="workspace") == ["pelican one", "pelican two"]
    assert sorted(hits(world, "pelican", session_id=here, scope="account")) == [
        "pelican one",
        "pelican three",
        "pelican two",
    ]
    assert len(hits(world, "pelican")) == 3


def test_a_nearer_session_of_the_lineage_comes_first_among_equals(world: World) -> None:
    sessions = [said(world, "the pelican", f"number {n}") for n in range(6)]
    for before, after in itertools.pairwise(sessions):
        continued(world, before, after)
    found = world.log.search("pelican", session_id=sessions[-1]).hits
    assert [hit.session for hit in found] == sessions[::-1]


def test_an_answer_that_ranked_everything_says_that_it_is_complete(world: World) -> None:
    session = said(world, "alpha beta", "alpha", "beta")
    found = world.log.search("alpha beta", session_id=session)
    assert (found.complete, found.notes) == (True, ())
    assert len(found.hits) == 3


@pytest.mark.parametrize("query", ["common", "common words", "common 1"])
def test_an_answer_that_left_matches_out_names_the_word_and_a_way_out(world: World, query: str) -> None:
    session = said(world, *(f"common words {n}" for n in range(searching.CANDIDATES + 1)))
    found = world.log.search(query, session_id=session)
    assert not found.complete
    assert len(found.notes) == 1
    assert "'common'" in found.notes[0]
    assert "add a rarer word" in found.notes[0]


def test_an_index_that_lags_is_told_with_how_far(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = said(world, "alpha")
    search = world.store.search

    def lagging(*given: object, **options: object) -> object:
        import msgspec

        return msgspec.structs.replace(search(*given, **options), complete=False)  # type: ignore[arg-type]

    monkeypatch.setattr(world.store, "search", lagging)
    monkeypatch.setattr(world.store, "index_lag", lambda: 1234)
    found = world.log.search("alpha", session_id=session)
    assert not found.complete
    assert found.notes == ("The index is 1,234 events behind the log: search again in a moment.",)


def test_an_erased_event_is_neither_a_hit_nor_a_neighbour(world: World) -> None:
    session = said(world, "Which timeout for the gateway?", "45 seconds, erased by nobody.")
    world.log.erase(world.events(session)[-1].id, reason="gateway timeout")
    assert hits(world, "gateway timeout", session_id=session) == ["Which timeout for the gateway?"]


def test_the_same_search_gives_the_same_answer(world: World) -> None:
    session = said(world, *(f"the gateway and the bank {n % 7}" for n in range(60)))
    assert world.log.search("bank gateway", session_id=session) == world.log.search(
        "bank gateway", session_id=session
    )


def test_a_search_puts_a_bounded_number_of_questions_to_the_store(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [f"word{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(40)]
    session = said(world, *(" ".join(words) for _ in range(3)), "other")
    asked = []
    search = world.store.search
    monkeypatch.setattr(world.store, "search", lambda *a, **o: asked.append(a) or search(*a, **o))
    world.log.search(" ".join([*words, "missing"]), session_id=session)
    assert len(asked) <= 1 + 24
