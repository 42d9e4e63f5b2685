"""Drafting a handoff without a model: the same log gives the same draft, and every fact in it names its events."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.conversations import COMMAND, World, halves

from onward.core.bodies import Checkpoint, Plan, PlanStep, ToolCall, ToolResult
from onward.core.codec import body_of
from onward.errors import BudgetTooSmall, NothingToContinue
from onward.service.drafting import Draft
from onward.store.memory import MemoryStore

CITED = re.compile(r"\[(?:(ses_\w+):)?(\d+)\]")


def busy(world: World) -> str:
    """A session in which much was done."""
    session_id = world.conversation(3)
    new = world.platform.event
    world.tell(
        session_id,
        new("tool_call", ToolCall(call="w1", name="Edit", input={"file_path": "src/dates.py"}), "agent"),
        new("tool_result", ToolResult(call="w1", output="ok"), "tool"),
        new("tool_call", ToolCall(call="w2", name="shell", input="*** Update File: README.md\n+x"), "agent"),
        new("tool_result", ToolResult(call="w2", output="exit 1: no such file", status="error"), "tool"),
        new("checkpoint", Checkpoint(text="What happened so far.", first_seq=2, last_seq=4), "system"),
    )
    steps = (
        PlanStep(id="s1", text="fix dates", status="active"),
        PlanStep(id="s2", text="ship", status="done"),
    )
    world.log.set_state(session_id, Plan(revision=1, steps=steps))
    world.say(session_id, "I fixed the dates.", actor="agent")
    world.say(session_id, "<system-reminder>be nice</system-reminder>", aside=True)
    world.say(session_id, "Now write the notes.")
    return session_id


def test_the_same_log_gives_the_same_draft_today_and_tomorrow(world: World) -> None:
    session_id = busy(world)
    first = world.log.draft(session_id, "Write the notes")
    world.clock.tick(86_400)
    world.reopen()
    assert world.log.draft(session_id, "Write the notes") == first
    assert world.log.draft(session_id, "Something else").handoff != first.handoff


def test_a_draft_names_what_was_asked_done_touched_and_left_open(world: World) -> None:
    session_id = busy(world)
    draft = world.log.draft(session_id, "Write the notes")
    facts = "\n".join(draft.handoff.established_facts)
    for told in (
        "Question 3 about the parser?",
        "I fixed the dates.",
        "src/dates.py",
        "README.md",
        "no such file",
    ):
        assert told in facts
    assert "be nice" not in facts
    assert draft.handoff.current_request == "Now write the notes."
    assert draft.handoff.next_actions == ("fix dates (plan step s1, active)",)
    assert draft.title == "Write the notes"


def test_every_fact_names_events_that_are_there_and_say_it(world: World) -> None:
    session_id = busy(world)
    draft = world.log.draft(session_id, "Write the notes")
    events = {e.seq: e for e in world.events(session_id)}
    for fact in draft.handoff.established_facts:
        cited = CITED.findall(fact)
        assert cited, fact
        for _, seq in cited:
            body = body_of(events[int(seq)])
            text = (
                getattr(body, "text", None)
                or str(getattr(body, "input", ""))
                or str(getattr(body, "output", ""))
            )
            word = re.sub(r"[^\w ]", " ", fact.rsplit("[", 1)[0]).split()[-1]
            assert word in re.sub(r"[^\w ]", " ", text) or "Files written" in fact
    assert all(source.relevance for source in draft.sources)


def test_harness_text_is_never_what_somebody_asked(world: World) -> None:
    session_id = world.conversation(1)
    world.say(session_id, "<command-name>/compact</command-name>", aside=True)
    draft = world.log.draft(session_id, "Go on")
    assert draft.handoff.current_request == "Go on with the parser."
    assert "compact" not in str(draft.handoff)


def test_a_draft_can_be_sent_as_it_is(world: World) -> None:
    session_id = busy(world)
    draft = world.log.draft(session_id, "Write the notes")
    made = world.log.continue_session(session_id, draft)
    manifest = world.log.manifest(made.successor)
    assert manifest.handoff == draft.handoff
    assert manifest.tokens == draft.estimated_tokens, "the estimate is what it cost"
    assert manifest.title == draft.title
    assert halves(world.log) == []


def test_a_draft_that_was_edited_can_be_sent_as_json(world: World) -> None:
    import msgspec

    session_id = busy(world)
    edited: dict[str, Any] = msgspec.to_builtins(world.log.draft(session_id, "Write the notes"))
    edited["handoff"]["open_questions"] = ["Which release?"]
    command = {key: edited[key] for key in ("reason", "title", "handoff", "sources")}
    made = world.log.continue_session(session_id, msgspec.json.decode(msgspec.json.encode(command)))
    assert world.log.manifest(made.successor).handoff.open_questions == ("Which release?",)
    assert world.log.manifest(made.successor).adjusted == ()


def test_drafting_writes_nothing(world: World) -> None:
    session_id = busy(world)
    before = world.everything()
    world.log.draft(session_id, "Write the notes")
    assert world.everything() == before


def test_a_draft_can_be_made_while_work_is_unfinished_and_right_after_a_continuation(world: World) -> None:
    session_id = busy(world)
    world.call(session_id, "open")
    world.log.submit(session_id, "And this.", engine="script")
    assert world.log.draft(session_id, "Go on").estimated_tokens > 0
    other = world.conversation()
    made = world.log.continue_session(other, COMMAND)
    draft = world.log.draft(made.successor, "Go on")
    assert draft.handoff.current_request == "Go on with the parser."


def test_a_draft_of_a_successor_whose_message_no_encoding_takes(world: World) -> None:
    session_id = world.conversation()
    world.say(session_id, "half a pair \ud83d")
    made = world.log.continue_session(session_id, COMMAND)
    assert world.log.draft(made.successor, "Go on").handoff.current_request.startswith("half a pair")


def test_a_session_in_which_nobody_spoke_has_no_draft(world: World) -> None:
    session = world.log.start()
    with pytest.raises(NothingToContinue):
        world.log.draft(session.id, "Go on")


def test_a_purpose_that_is_longer_than_a_title_is_cut_in_the_title_alone(world: World) -> None:
    session_id = world.conversation()
    draft = world.log.draft(session_id, "on and " * 40)
    assert len(draft.title) == 120
    assert draft.title.endswith("…")
    assert draft.handoff.purpose == "on and " * 40
    world.log.continue_session(session_id, draft)


def test_what_would_not_fit_is_told_before_it_is_sent(world: World) -> None:
    session_id = world.conversation(1)
    world.say(session_id, "long " * 4000, actor="agent")
    world.say(session_id, "Go on.")
    draft = world.log.draft(session_id, "Go on", budget=2000)
    assert draft.left_out
    assert draft.estimated_tokens <= draft.budget
    with pytest.raises(BudgetTooSmall):
        world.log.draft(session_id, "Go on", budget=100)


def test_the_facts_of_a_branch_say_which_session_their_numbers_are_of(world: World) -> None:
    session_id = world.conversation(2)
    branch = world.log.fork(session_id, 4).id
    world.say(branch, "Another way, please.")
    draft = world.log.draft(branch, "Go on")
    cited = {
        session or branch for fact in draft.handoff.established_facts for session, _ in CITED.findall(fact)
    }
    assert cited == {session_id}
    assert {source.session for source in draft.sources} == {session_id}


@given(
    said=st.lists(
        st.tuples(st.sampled_from(["user", "agent", "aside", "call", "result"]), st.text(max_size=40)),
        max_size=12,
    )
)
def test_whatever_was_said_a_draft_is_made_and_can_be_sent_as_it_is(said: list[tuple[str, str]]) -> None:
    world = World(opened=MemoryStore)
    session_id = world.conversation(0)
    for number, (who, text) in enumerate(said):
        if who == "call":
            body = ToolCall(call=f"c{number}", name="Write", input={"path": text, "content": text})
            world.tell(session_id, world.platform.event("tool_call", body, "agent"))
            world.answer(session_id, f"c{number}", text)
        elif who == "result":
            world.tell(
                session_id,
                world.platform.event(
                    "tool_result", ToolResult(call="x", output=text, status="error"), "tool"
                ),
            )
        else:
            world.say(session_id, text, actor="agent" if who == "agent" else "user", aside=who == "aside")
    draft = world.log.draft(session_id, "Go on")
    assert isinstance(draft, Draft)
    assert world.log.continue_session(session_id, draft).successor
