"""Recommending: what a draft takes from the log for a purpose, what it costs, and what it warns of."""

from __future__ import annotations

import itertools
import re
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.service.conversations import CITING, COMMAND, World

from onward.core.bodies import ToolCall, ToolResult
from onward.core.codec import call_of
from onward.core.continuing_command import parse_command
from onward.core.digests import content_digest
from onward.core.references import Source
from onward.service import recalling
from onward.service.drafting import Draft
from onward.store.memory import MemoryStore


def work(
    world: World, session_id: str, call: str, name: str, given: Any, output: str, status: str = "ok"
) -> int:
    """Let the agent use a tool; return the number of the call."""
    new = world.platform.event
    asked, _ = world.tell(
        session_id,
        new("tool_call", ToolCall(call=call, name=name, input=given), "agent"),
        new("tool_result", ToolResult(call=call, output=output, status=status), "tool"),  # type: ignore[arg-type]
    )
    return asked.seq


def two_subjects(world: World, chatter: int = 30) -> str:
    """A session about a parser and, long before that, about billing, with much said in between."""
    session = world.log.start("Two subjects", engine="script")
    world.say(session.id, "The billing export rounds invoices to cents.")
    world.say(session.id, "We decided that billing invoices are rounded half up.", actor="agent")
    work(world, session.id, "b1", "Bash", {"command": "billing --check"}, "billing: 3 invoices differ")
    world.talk(session.id, chatter, "the weather")
    world.say(session.id, "The parser must never accept two leap days.")
    work(world, session.id, "p1", "Bash", {"command": "pytest parser"}, "parser: 1 failed", "error")
    world.say(session.id, "The parser fails on leap days.", actor="agent")
    world.talk(session.id, chatter, "the garden")
    world.say(session.id, "Go on, please.")
    return session.id


def covered(draft: Draft) -> set[int]:
    """The numbers that the sources of a draft cite."""
    return {
        seq
        for source in draft.sources
        if source.is_events
        for seq in range(source.from_seq or 0, (source.to_seq or 0) + 1)
    }


def told(draft: Draft) -> str:
    return "\n".join((*draft.handoff.established_facts, *draft.handoff.decisions, *draft.handoff.cautions))


def test_two_purposes_over_one_history_recommend_and_project_different_things(world: World) -> None:
    session_id = two_subjects(world)
    billing = world.log.draft(session_id, "Finish the billing export of invoices")
    parser = world.log.draft(session_id, "Mend the parser on leap days")
    assert {s.address() for s in billing.sources} != {s.address() for s in parser.sources}
    assert covered(billing) != covered(parser)
    assert "rounds invoices to cents" in told(billing)
    assert "rounds invoices to cents" not in told(parser)
    texts = []
    for draft in (billing, parser):
        made = world.log.continue_session(session_id, draft)
        (projected,) = [e for e in world.events(made.successor) if e.kind == "context"]
        texts.append(projected.body.decode())
    assert "3 invoices differ" in texts[0]
    assert "1 failed" in texts[1]
    assert texts[0] != texts[1]


def test_how_the_work_stood_is_recommended_before_older_excerpts_and_large_ones_are_left_out(
    world: World,
) -> None:
    session_id = world.log.start("Long").id
    world.say(session_id, "Where do invoices go?")
    world.call(session_id, "big", name="cat")
    world.answer(session_id, "big", "invoices " * 2000)
    for n in range(12):
        world.say(session_id, f"Invoices again, part {n}: look at the invoices.")
        world.say(session_id, f"Invoices of part {n} are fine.", actor="agent")
    world.say(session_id, "And the last one?")
    closing = world.say(session_id, "All of it is done.", actor="agent")
    world.say(session_id, "Then write about invoices.")
    draft = world.log.draft(session_id, "Write about the invoices")
    assert (draft.sources[0].from_seq, draft.sources[0].relevance) == (
        closing.seq,
        "the agent's closing note",
    )
    assert draft.sources[1].relevance == "what was asked before the current request"
    assert 4 not in covered(draft)  # eighteen thousand characters that a search ranks high
    assert draft.left_out == ()


def test_what_matters_is_found_however_much_was_said_since(world: World) -> None:
    session_id = two_subjects(world, chatter=260)
    assert world.platform.session(session_id).head_seq > 1000
    draft = world.log.draft(session_id, "Finish the billing export of invoices")
    assert {2, 3, 4, 5} <= covered(draft)
    assert any("rounded half up" in decision for decision in draft.handoff.decisions)
    assert any("never accept two leap days" in caution for caution in draft.handoff.cautions)


def test_no_recommended_range_cuts_a_call_from_its_result(world: World) -> None:
    session_id = two_subjects(world)
    draft = world.log.draft(session_id, "billing parser invoices failed")
    events = {event.seq: event for event in world.events(session_id)}
    assert any(events[seq].kind == "tool_result" for seq in covered(draft))
    for source in draft.sources:
        if source.is_events:
            span = [events[n] for n in range(source.from_seq or 0, (source.to_seq or 0) + 1)]
            calls = [call_of(e.kind, e.body)[0] for e in span if e.kind == "tool_call"]
            assert calls == [call_of(e.kind, e.body)[0] for e in span if e.kind == "tool_result"]


@given(
    order=st.permutations(["c1", "r1", "c2", "r2", "c3", "r3", "m"]),
    purpose=st.sampled_from(["alpha", "beta"]),
)
def test_however_calls_overlap_a_range_holds_both_ends_of_each(order: list[str], purpose: str) -> None:
    seen: set[str] = set()
    world = World(opened=MemoryStore)
    session_id = world.conversation(1)
    for step in order:
        if step == "m":
            world.say(session_id, "alpha and beta", actor="agent")
        elif step[0] == "c" and step not in seen:
            seen.add(step)
            body = ToolCall(call=step[1], name="Write", input={"path": f"src/{step}.py", "content": "alpha"})
            world.tell(session_id, world.platform.event("tool_call", body, "agent"))
        elif f"c{step[1]}" in seen:
            world.answer(session_id, step[1], "beta")
    world.say(session_id, "Go on.")
    draft = world.log.draft(session_id, purpose)
    events = {event.seq: event for event in world.events(session_id)}
    for source in draft.sources:
        if source.is_events:
            span = [events[n] for n in range(source.from_seq or 0, (source.to_seq or 0) + 1)]
            calls = {call_of(e.kind, e.body)[0] for e in span if e.kind == "tool_call"}
            assert calls == {call_of(e.kind, e.body)[0] for e in span if e.kind == "tool_result"}


def test_constraints_are_those_of_people_and_decisions_those_of_both(world: World) -> None:
    session_id = world.conversation(1)
    world.say(session_id, "Never push to main. What do you think?")
    world.say(session_id, "I must say that I never liked it.", actor="agent")
    world.say(session_id, "No, use the staging branch instead.")
    world.say(session_id, "Let's use the staging branch then.", actor="agent")
    world.say(session_id, "Shall we use another? Let's use tabs?")
    world.say(session_id, "Go on.")
    draft = world.log.draft(session_id, "Release")
    assert any("Never push to main." in caution for caution in draft.handoff.cautions)
    assert not any("I must say" in caution for caution in draft.handoff.cautions)
    decisions = " ".join(draft.handoff.decisions)
    assert "No, use the staging branch instead." in decisions
    assert "Let's use the staging branch then." in decisions
    assert "tabs" not in decisions


def test_a_failure_that_was_mended_is_not_a_failure(world: World) -> None:
    session_id = world.conversation(1)
    work(world, session_id, "t1", "Bash", {"command": "make test"}, "2 failed", "error")
    work(world, session_id, "t2", "Bash", {"command": "make lint"}, "lint is unhappy", "error")
    work(world, session_id, "t3", "Bash", {"command": "make test"}, "all passed")
    world.say(session_id, "Go on.")
    facts = "\n".join(world.log.draft(session_id, "Release").handoff.established_facts)
    assert "lint is unhappy" in facts
    assert "2 failed" not in facts


def test_resources_are_recommended_with_what_is_known_of_their_version(world: World) -> None:
    session_id = world.conversation(1)
    commit = "0123456789abcdef0123456789abcdef01234567"
    world.say(session_id, f"See https://example.com/o/r/blob/{commit}/a.py, and https://example.com/spec.")
    world.say(session_id, "The plan is in docs/plan.md and 1/2.5 is no file.")
    work(world, session_id, "w1", "Write", {"file_path": "src/a.py", "content": "x = 1\n"}, "ok")
    work(world, session_id, "w2", "Edit", {"file_path": "src/b.py", "old": "a", "new": "b"}, "ok")
    world.say(session_id, "Go on.")
    found = {s.url or s.path: s for s in world.log.draft(session_id, "Go on").sources if not s.is_events}
    assert found.keys() == {
        f"https://example.com/o/r/blob/{commit}/a.py",
        "https://example.com/spec",
        "docs/plan.md",
        "src/a.py",
        "src/b.py",
    }
    assert found[f"https://example.com/o/r/blob/{commit}/a.py"].version == commit
    assert found["https://example.com/spec"].version is None
    assert found["src/a.py"].digest == content_digest(b"x = 1\n")
    assert found["src/b.py"].digest is None
    assert all(source.relevance for source in found.values())


def test_a_file_that_is_not_what_it_was_is_told_and_not_recommended(world: World, tmp_path: Any) -> None:
    session = world.log.start("Files", workspace=str(tmp_path), engine="script")
    for name, now in (("same.py", "x = 1\n"), ("changed.py", "x = 2\n")):
        (tmp_path / name).write_text(now)
        work(world, session.id, name, "Write", {"file_path": name, "content": "x = 1\n"}, "ok")
    work(world, session.id, "gone", "Write", {"file_path": "gone.py", "content": "x"}, "ok")
    world.say(session.id, "Go on.")
    draft = world.log.draft(session.id, "Go on")
    assert [source.path for source in draft.sources if not source.is_events] == ["same.py"]
    for name in ("changed.py", "gone.py"):
        assert any(name in warning for warning in draft.warnings)
    world.log.continue_session(session.id, draft)


def test_every_source_and_section_has_its_cost_before_anything_is_written(world: World) -> None:
    session_id = two_subjects(world)
    draft = world.log.draft(session_id, "Finish the billing export of invoices")
    assert [e.source for e in draft.estimates] == [s.address() for s in draft.sources]
    assert sum(e.tokens or 0 for e in draft.estimates if e.fits) == draft.costs["cited"]
    made = world.log.continue_session(session_id, draft)
    manifest = world.log.manifest(made.successor)
    assert {c.section: c.tokens for c in manifest.costs} == draft.costs
    assert manifest.tokens == draft.estimated_tokens


def test_what_would_not_fit_is_warned_of_with_its_cost(world: World) -> None:
    session_id = world.conversation(1)
    world.say(session_id, "billing " * 3000, actor="agent")
    world.say(session_id, "Go on.")
    draft = world.log.draft(session_id, "billing", budget=2000)
    (left,) = draft.left_out
    (estimate,) = [e for e in draft.estimates if not e.fits]
    assert estimate.source == left
    assert (estimate.tokens or 0) > 2000
    assert any(left in warning and f"{estimate.tokens:,}" in warning for warning in draft.warnings)


def test_a_claim_is_verified_when_an_event_that_is_not_the_agents_own_holds_its_words(world: World) -> None:
    session_id = world.conversation(1)
    said = world.say(session_id, "The database listens on port 8417.")
    guess = world.say(session_id, "Backups run every night, I believe.", actor="agent")
    work(world, session_id, "t", "Bash", {"command": "ls"}, "total 12 files in the cellar")
    result = world.events(session_id)[-1]
    world.say(session_id, "Go on.")
    facts = {
        f"The database listens on port 8417 [{said.seq}]": True,
        f"Backups run every night [{guess.seq}]": False,
        f"There are “12 files in the cellar” [{result.seq}]": True,
        f"There are “13 files in the cellar” [{result.seq}]": False,
        f"The database listens on port 9000 [{said.seq}]": False,
        "Total 12 files in the cellar": True,
    }
    command = parse_command(
        {
            **COMMAND,
            "handoff": {**COMMAND["handoff"], "established_facts": list(facts)},
            "sources": [{"from_seq": result.seq - 1, "to_seq": result.seq}],
        }
    )
    draft = world.log.review(session_id, command)
    assert {claim.text: claim.verified for claim in draft.claims} == facts
    assert draft.claims[-1].cites == (f"{session_id}:{result.seq}",)
    assert any("unverified" in warning for warning in draft.warnings)


def test_a_fact_or_decision_that_cites_nothing_is_warned_of(world: World) -> None:
    session_id = world.conversation(1)
    command = {
        **CITING,
        "handoff": {
            **COMMAND["handoff"],
            "established_facts": ["Elephants never forget."],
            "decisions": ["Ship it on Friday."],
        },
    }
    draft = world.log.review(session_id, command)
    cited_nothing = [warning for warning in draft.warnings if "cites nothing" in warning]
    assert len(cited_nothing) == 2
    assert "Elephants never forget." in cited_nothing[0]
    assert "Ship it on Friday." in cited_nothing[1]


def test_what_a_later_event_replaces_is_marked_with_that_event(world: World) -> None:
    session_id = world.conversation(1)
    old = world.say(session_id, "We decided that the billing port is 8417.")
    world.talk(session_id, 3, "the weather")
    new = world.say(session_id, "The billing port is now 9000.")
    world.say(session_id, "Go on.")
    draft = world.log.draft(session_id, "billing port")
    (marked,) = [d for d in draft.handoff.decisions if "8417" in d]
    assert marked.endswith(f"(superseded by [{new.seq}])")
    (claim,) = [c for c in draft.claims if "8417" in c.text and c.heading == "decisions"]
    assert claim.superseded_by == f"{session_id}:{new.seq}"
    assert f"{session_id}:{old.seq}" in claim.cites
    assert any("superseded" in warning and "8417" in warning for warning in draft.warnings)
    current = [c for c in draft.claims if "9000" in c.text]
    assert current
    assert all(c.superseded_by is None for c in current)


def test_the_whole_draft_is_the_file_that_continue_takes(world: World) -> None:
    session_id = two_subjects(world)
    draft = world.log.draft(session_id, "Finish the billing export of invoices")
    as_json = msgspec.json.decode(msgspec.json.encode(draft))
    assert {"warnings", "estimates", "claims", "recommended", "costs"} <= as_json.keys()
    made = world.log.continue_session(session_id, as_json)
    manifest = world.log.manifest(made.successor)
    assert manifest.handoff == draft.handoff
    assert manifest.adjusted == ()
    assert manifest.recommended_unused == ()


def test_what_a_person_took_out_of_a_draft_is_remembered(world: World) -> None:
    session_id = two_subjects(world)
    draft: dict[str, Any] = msgspec.to_builtins(world.log.draft(session_id, "Finish the billing export"))
    first, second, *rest = draft["sources"]
    draft["sources"] = [{**second, "to_seq": second["from_seq"]}, *rest]
    made = world.log.continue_session(session_id, draft)
    unused = world.log.manifest(made.successor).recommended_unused
    assert unused == (msgspec.convert(first, Source).address(),), "a range that was narrowed is still used"


def test_what_an_earlier_successor_asked_for_again_is_recommended_first(world: World) -> None:
    session_id = two_subjects(world)
    plain = world.log.draft(session_id, "Mend the parser on leap days")
    made = world.log.continue_session(session_id, COMMAND, budget=600)
    assert 9 not in covered(plain)
    for _ in range(2):
        recalling.read_lines(world.platform, session_id, 9, 10, asked_by=made.successor)
    draft = world.log.draft(session_id, "Mend the parser on leap days")
    assert (draft.sources[0].from_seq, draft.sources[0].to_seq) == (9, 10)
    assert "asked for again (2 times)" in draft.sources[0].relevance


def test_a_projection_goes_on_with_what_ranks_high_for_the_handoff(world: World) -> None:
    session_id = two_subjects(world)
    world.say(session_id, "word " * 12_000, actor="agent")  # recent exchanges end here, and leave room
    world.say(session_id, "Go on here, please.")
    command = {**COMMAND, "handoff": {"purpose": "billing invoices", "current_request": "export"}}
    made = world.log.continue_session(session_id, command)
    manifest = world.log.manifest(made.successor)
    related = [part for part in manifest.included if part.section == "relevant"]
    assert {2, 3, 4, 5} <= {seq for part in related for seq in range(part.from_seq, part.to_seq + 1)}
    assert manifest.relevant
    other = {**COMMAND, "handoff": {"purpose": "leap days", "current_request": "parser"}}
    again = world.log.manifest(world.log.continue_session(session_id, other).successor)
    assert again.relevant != manifest.relevant
    for record in (manifest, again):
        assert world.log.recompile(record) == record.digest


def test_what_is_related_comes_from_the_own_history_and_that_of_a_branch(world: World) -> None:
    session_id = two_subjects(world, chatter=220)
    branch = world.log.fork(session_id).id
    world.say(session_id, "Billing invoices: said after the branch was taken.")
    other = world.conversation(1, about="billing invoices")
    world.say(branch, "Go on here.")
    command = {**COMMAND, "handoff": {"purpose": "billing invoices", "current_request": "export"}}
    manifest = world.log.manifest(world.log.continue_session(branch, command).successor)
    events = [world.store.event(name) for name in manifest.relevant]
    assert {event.session_id for event in events if event} == {session_id}
    assert other not in {event.session_id for event in events if event}
    head = world.platform.session(branch)
    upto = world.store.links(head.id)[0].seq
    assert all(event is not None and event.seq <= (upto or 0) for event in events)


def test_each_recommendation_says_which_words_of_the_purpose_it_has(world: World) -> None:
    session_id = two_subjects(world)
    draft = world.log.draft(session_id, "Finish the billing export of invoices")
    reasons = {source.from_seq: source.relevance for source in draft.sources if source.is_events}
    assert reasons[2].startswith("on the purpose: billing, export, invoices")
    said = [fact for fact in draft.handoff.established_facts if "The agent's last words" in fact]
    assert not any(
        fact.split("“")[1] in other
        for fact in said
        for other in draft.handoff.established_facts
        if other not in said
    )


def test_every_mark_in_a_draft_is_an_event_that_is_there(world: World) -> None:
    session_id = two_subjects(world)
    head = world.platform.session(session_id).head_seq
    draft = world.log.draft(session_id, "billing parser")
    marks = list(itertools.chain(*(re.findall(r"\[(\d+)\]", text) for text in told(draft).splitlines())))
    assert marks
    assert all(1 <= int(seq) <= head for seq in marks)
