"""What a person says with a continuation: in the log if and only if it was made, and what the successor answers."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from tests.service.conversations import CITING, COMMAND, World, bodies, halves, queued, script, texts
from tests.service.test_continuing_faults import Breaking, Cut, prepared

from onward.core import digests
from onward.core.bodies import Message
from onward.core.codec import body_of
from onward.core.events import PERSON
from onward.engines.script import Fail
from onward.errors import ContinuationParked, InvalidInput, LimitExceeded, OnwardError, UnresolvedWork
from onward.service import approving, continuing

SAID = "Now write the release notes."


@pytest.mark.requirement("C1", "C4", "L1")
def test_what_a_person_says_is_the_newest_message_and_reaches_the_successor_byte_for_byte(
    world: World,
) -> None:
    session_id = world.conversation(3)
    before = world.events(session_id)
    made = world.log.continue_session(session_id, CITING, SAID)
    after = world.events(session_id)
    assert after[: len(before)] == before
    said, fact = after[len(before) :]
    assert (said.kind, said.actor, said.source, said.seq) == ("message", "user", PERSON, len(before) + 1)
    assert fact.kind == "session"
    (copy,) = bodies(world.events(made.successor), Message)
    assert copy.text == SAID
    assert copy.continued_from is not None
    assert (copy.continued_from.event, copy.continued_from.seq) == (said.id, said.seq)
    assert copy.continued_from.digest == digests.spell(said.digest)
    carried = next(e for e in world.events(made.successor) if e.kind == "message")
    assert carried.body.startswith(said.body.removesuffix(b"}"))
    link = world.store.links(session_id)[0]
    assert (link.event_id, link.seq) == (said.id, said.seq)
    assert halves(world.log) == []
    assert world.log.verify().ok


@pytest.mark.requirement("P1", "P2")
def test_its_manifest_is_that_of_the_same_message_said_beforehand(world: World) -> None:
    one, two = world.conversation(3), world.conversation(3)
    world.say(two, SAID)
    given = {**CITING, "handoff": {**CITING["handoff"], "current_request": SAID}}
    with_it = world.log.manifest(world.log.continue_session(one, CITING, SAID).successor)
    after_it = world.log.manifest(world.log.continue_session(two, given).successor)

    def shape(record: Any, name: str) -> list[Any]:
        return [
            [(i.from_seq, i.to_seq, i.section) for i in record.included],
            [(o.address.replace(name, ""), o.cause) for o in record.omitted],
            [(s.from_seq, s.to_seq) for s in record.scope],
            [(s.from_seq, s.to_seq) for s in record.recent],
            record.initiating.seq,
        ]

    assert shape(with_it, one) == shape(after_it, two)
    assert world.log.compare(with_it).same
    assert world.log.recompile(with_it) == with_it.digest
    assert with_it.handoff.current_request == SAID
    assert any("current_request" in note for note in with_it.adjusted)
    assert world.log.manifest_view(with_it).lost == ()


@pytest.mark.requirement("C3")
def test_a_repeated_key_says_nothing_a_second_time(world: World) -> None:
    session_id = world.conversation()
    made = world.log.continue_session(session_id, CITING, SAID, key="k")
    before = world.everything()
    for text in (SAID, "Something else.", None, ""):
        again = world.log.continue_session(session_id, CITING, text, key="k")
        assert again == msgspec.structs.replace(made, repeated=True)
    assert world.everything() == before
    assert texts(world.events(session_id)).count(SAID) == 1


@pytest.mark.requirement("C2", "C3")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_cut_off_at_any_call_the_message_is_there_with_its_continuation_or_not_at_all(
    world: World, after: bool
) -> None:
    at = 0
    while True:
        at += 1
        session_id = prepared(world)
        before = world.everything()
        store = Breaking(world.store, at, after=after)
        with contextlib.suppress(Cut):
            world.acting(store=store).continue_session(session_id, CITING, SAID, key="k")  # type: ignore[arg-type]
        if len(store.calls) < at:
            break
        if "commit" not in store.calls[: at if after else at - 1]:
            assert world.everything() == before
        world.log.continue_session(session_id, CITING, SAID, key="k")
        assert texts(world.events(session_id)).count(SAID) == 1
        assert halves(world.log, session_id) == []
    assert store.calls.count("commit") == 1, "one transaction"
    assert at > 10
    assert world.log.verify().ok


@pytest.mark.requirement("C2")
def test_somebody_who_writes_in_between_only_moves_its_number(world: World) -> None:
    session_id = world.conversation()
    real, interrupted = world.store, []

    class Interrupting:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def commit(self, batch: Any) -> Any:
            if not interrupted:
                interrupted.append(world.say(session_id, "Meanwhile."))
            return real.commit(batch)

    made = world.acting(store=Interrupting()).continue_session(session_id, CITING, SAID)  # type: ignore[arg-type]
    assert texts(world.events(session_id))[-2:] == ["Meanwhile.", SAID]
    record = world.log.manifest(made.successor)
    assert record.initiating.seq == interrupted[0].seq + 1
    assert world.log.compare(record).same
    assert world.log.verify().ok


@pytest.mark.requirement("C2", "C6")
@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        ("", {}, InvalidInput),
        (" \n", {}, InvalidInput),
        (SAID, {"actor": "agent"}, InvalidInput),
        (SAID, {"actor": "trigger"}, InvalidInput),
        ("As in @[that](onward-session:ses_1)?", {}, InvalidInput),
        ("x" * (4 * 1024 * 1024 + 1), {}, LimitExceeded),
        (SAID * 20, {"budget": 200}, OnwardError),
    ],
    ids=["empty", "blank", "agent", "trigger", "mention", "too long", "over budget"],
)
def test_a_refused_text_says_nothing(
    world: World, text: str, options: dict[str, Any], error: type[OnwardError]
) -> None:
    session_id = world.conversation()
    before = world.everything()
    with pytest.raises(error):
        world.log.continue_session(session_id, CITING, text, **options)
    assert world.everything() == before


@pytest.mark.requirement("C6")
def test_input_that_waits_is_still_named_before_a_person_goes_on(world: World) -> None:
    session_id = world.conversation()
    waiting = queued(world.log, session_id)
    with pytest.raises(UnresolvedWork, match=waiting.id):
        world.log.continue_session(session_id, COMMAND, SAID)
    given = {**COMMAND, "transfer": {"pending_runs": [waiting.id]}}
    made = world.log.continue_session(session_id, given, SAID)
    assert world.store.run(waiting.id).session_id == made.successor


@pytest.mark.requirement("C8")
def test_a_person_who_speaks_may_continue_a_successor_in_which_nobody_has_spoken(world: World) -> None:
    session_id = world.conversation()
    one = world.log.continue_session(session_id, COMMAND)
    world.log.run(one.successor, engine="script")
    two = world.log.continue_session(one.successor, COMMAND, SAID)
    assert texts(world.events(two.successor)) == [SAID]
    assert world.log.lineage(two.successor).path == (session_id, one.successor, two.successor)


@pytest.mark.requirement("C4")
def test_a_session_in_which_nobody_spoke_and_a_branch_can_be_continued_with_words(world: World) -> None:
    empty = world.log.start("Empty")
    made = world.log.continue_session(empty.id, COMMAND, SAID)
    assert texts(world.events(made.successor)) == [SAID]
    branch = world.log.fork(world.conversation(3), 4)
    made = world.log.continue_session(branch.id, CITING | {"sources": [{"from_seq": 1}]}, SAID)
    record = world.log.manifest(made.successor)
    assert record.initiating.session == branch.id
    assert world.log.compare(record).same
    assert world.log.verify().ok


@pytest.mark.requirement("C2", "C4")
def test_where_a_person_has_to_agree_the_words_wait_with_the_request(world: World) -> None:
    session_id = world.conversation()
    careful = msgspec.structs.replace(world.platform, approval="always")
    with pytest.raises(ContinuationParked) as parked:
        continuing.continue_session(careful, session_id, CITING, text=SAID, key="k")
    assert SAID not in texts(world.events(session_id))
    (waiting,) = approving.approvals(careful, session_id)
    assert waiting.text == SAID
    world.say(session_id, "Meanwhile.")
    made = approving.accept(careful, parked.value.details["approval"])
    kinds = [e.kind for e in world.events(session_id)][-3:]
    assert kinds == ["message", "approval", "session"]
    assert texts(world.events(made.successor)) == [SAID]
    assert approving.accept(careful, parked.value.details["approval"]).successor == made.successor
    assert texts(world.events(session_id)).count(SAID) == 1
    assert world.log.compare(world.log.manifest(made.successor)).same
    assert world.log.verify().ok


def test_an_ask_is_answered_once_the_agent_has_finished_and_nothing_failed(world: World) -> None:
    session_id = world.log.start("Asking", engine="script").id

    def answered() -> int | None:
        session = world.log.session(session_id)
        asked = continuing.initiating_event(world.platform, session)
        assert asked is not None
        found = continuing.answered_by(world.platform, session, asked)
        return None if found is None else found.seq

    world.log.run(session_id, "One?", engine="script")
    done = answered()
    assert done is not None
    assert body_of(world.events(session_id)[done - 1]).role == "assistant"
    world.say(session_id, "Two?")
    assert answered() is None
    world.say(session_id, "Looking.", actor="agent")
    world.call(session_id)
    assert answered() is None
    world.answer(session_id)
    assert answered() is None
    world.say(session_id, "Done.", actor="agent")
    assert answered() is not None
    branch = world.log.fork(session_id)
    asked = continuing.initiating_event(world.platform, branch)
    assert asked is not None
    assert continuing.answered_by(world.platform, branch, asked) is not None
    world.log.run(session_id, "Three?", engine=script(Fail(reason="no")))
    assert answered() is None


def test_a_draft_says_when_the_newest_ask_was_answered_already(world: World) -> None:
    session_id = world.conversation(2)
    assert "answered already" not in world.log.draft(session_id, "Go on").handoff.current_request
    reply = world.say(session_id, "I went on.", actor="agent")
    drafted = world.log.draft(session_id, "Go on").handoff.current_request
    assert drafted == f"(answered already, in [{reply.seq}]) Go on with the parser."
