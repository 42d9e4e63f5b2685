"""Referring to other sessions through the verbs: what is captured, when it enters the log, and what never changes it."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from tests.needs import ROOT
from tests.service.conversations import COMMAND, World, bodies, new_account, texts
from tests.service.test_opening import MEMORY, Recording

from onward.core.bodies import Checkpoint, Message, Recall, SessionChange
from onward.core.codec import body_of
from onward.core.events import Event
from onward.core.mentions import SessionReference, mention, session_uri
from onward.core.session_references import MAX_BYTES
from onward.core.transcript import from_events
from onward.engines.script import Begin, Say
from onward.errors import (
    InvalidInput,
    OnwardError,
    ReferenceBudgetExceeded,
    ReferenceCancelled,
    ReferenceInvalid,
    ReferenceReadFailed,
    ReferenceRefused,
    ReferenceSelf,
    ReferenceTooMany,
    SessionContinued,
    SessionNotFound,
    StoreError,
)
from onward.service import referencing, running


def mentioned(session_id: str, label: str = "the parser") -> str:
    return mention(SessionReference(session=session_id, label=label))


def snapshots(event: Event) -> list[dict[str, Any]]:
    """The snapshots of a recall context."""
    body = body_of(event)
    assert isinstance(body, Recall)
    found: list[dict[str, Any]] = json.loads(body.text.split("\n", 3)[3].rsplit("\n", 1)[0])
    return found


def said(snapshot: dict[str, Any]) -> list[str]:
    return [entry["text"] for entry in snapshot["conversation"]]


def pair(world: World) -> tuple[str, str]:
    """A session in which something was said, and one to refer to it from."""
    return world.conversation(1), world.log.start("On the release", engine="script").id


def contexts(world: World, session_id: str) -> list[Event]:
    return [event for event in world.events(session_id) if event.kind == "context"]


# -- candidates ---------------------------------------------------------------------------------------------------------


def test_candidates_are_near_ones_first_and_newest_first_among_them(world: World) -> None:
    made = {}
    for name, folder in (
        ("far old", "/far"), ("none old", None), ("near old", "/here"), ("far new", "/far"), ("none new", None),
        ("near new", "/here"),
    ):  # fmt: skip
        made[name] = world.log.start(name, workspace=folder).id
    here = world.log.start("here", workspace="/here").id
    world.say(made["near old"], "Activity does not make a session newer.")
    found = world.log.candidates(here)
    assert [c.label for c in found] == ["near new", "near old", "none new", "none old", "far new", "far old"]
    assert [c.session for c in found] == [made[c.label] for c in found]
    assert [c.folder for c in found] == ["/here", "/here", None, None, "/far", "/far"]
    assert [c.label for c in world.log.candidates(here, limit=2)] == ["near new", "near old"]
    nowhere = world.log.start("nowhere").id
    assert [c.label for c in world.log.candidates(nowhere)][:2] == ["none new", "none old"]


def test_candidates_are_found_by_id_folder_and_title_whatever_the_case(world: World) -> None:
    a = world.log.start("Fix the PARSER", workspace="/Work/App").id
    b = world.log.start("Straße").id
    here = world.log.start("parser too").id

    def found(query: str) -> list[str]:
        return [c.session for c in world.log.candidates(here, query)]

    assert found("parser") == [a]
    assert found("/WORK") == [a]
    assert found(b.lower()[4:]) == [b]
    assert found("STRASSE") == [b]
    assert found("no such thing") == []


@pytest.mark.parametrize("title", ["", "  ", "\n\t"])
def test_a_session_without_a_title_is_called_by_its_id(world: World, title: str) -> None:
    a = world.log.start(title).id
    [found] = world.log.candidates(world.log.start("here").id)
    assert (found.session, found.label) == (a, a)
    prepared = world.log.prepare_references(world.log.start("there").id, f"See {found.mention}.")
    assert prepared.text == f"See @{a}."


def test_archived_sessions_can_be_referred_to_and_say_so(world: World) -> None:
    a, b = pair(world)
    world.log.archive(a)
    assert [(c.session, c.archived) for c in world.log.candidates(b)] == [(a, True)]
    assert world.log.prepare_references(b, mentioned(a)).references[0].source == a


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_candidates_is_positive(world: World, limit: int) -> None:
    with pytest.raises(InvalidInput, match=str(limit)):
        world.log.candidates(world.log.start().id, limit=limit)


def test_a_mention_that_a_candidate_offers_refers_to_it(world: World) -> None:
    a = world.log.start(r"Odd ]title\ @[x](onward-session:zz)").id
    b = world.log.start("here").id
    [found] = world.log.candidates(b)
    prepared = world.log.prepare_references(b, found.mention)
    assert (prepared.text, prepared.references[0].source) == (f"@{found.label}", a)


# -- what enters the log ------------------------------------------------------------------------------------------------


def test_the_snapshot_enters_the_log_first_and_the_readable_message_second(world: World) -> None:
    a, b = pair(world)
    head = world.log.session(a).head_seq
    result = world.log.run(b, f"As in {mentioned(a)}, please.", engine="script")
    recalled, message = world.events(b)[1:3]
    assert (recalled.kind, recalled.actor, recalled.run_id) == ("context", "system", result.run)
    assert (message.kind, message.actor, message.run_id) == ("message", "user", result.run)
    assert texts([message]) == ["As in @the parser, please."]
    [facts] = body_of(recalled).references
    assert msgspec.to_builtins(facts) == {
        "source": a, "label": "the parser", "captured_seq": head, "checkpoint": False, "original": 3, "retained": 3,
        "omitted": 0, "omitted_bytes": 0, "truncated": False,
    }  # fmt: skip
    [snapshot] = snapshots(recalled)
    assert snapshot["session"] == a
    assert said(snapshot) == [
        "Question 1 about the parser?", "Answer 1 about the parser.", "Go on with the parser.",
    ]  # fmt: skip
    assert world.log.session(b).input_seq == message.seq
    assert world.log.verify().ok


def test_a_message_that_waits_keeps_its_snapshot_and_both_enter_when_it_starts(world: World) -> None:
    a, b = pair(world)
    run = world.log.submit(b, f"Later: {mentioned(a)}", engine="script")
    assert contexts(world, b) == []
    assert [r.source for r in referencing.references_of(world.platform, run)] == [a]
    world.say(a, "Said after it was captured.", actor="agent")
    world.reopen()
    assert world.store.run(run.id) == run
    claimed = running.claim(world.platform, run.id, "here", engine="script")
    assert (claimed.input, claimed.context) == (None, None)
    [recalled] = contexts(world, b)
    assert "Said after it was captured." not in said(snapshots(recalled)[0])
    assert referencing.references_of(world.platform, claimed) == body_of(recalled).references
    assert claimed.input_event == world.events(b)[recalled.seq].id


def test_cancelling_a_message_that_waits_keeps_what_it_brought(world: World) -> None:
    a, b = pair(world)
    run = world.log.submit(b, mentioned(a))
    world.log.cancel(run.id)
    assert [event.kind for event in world.events(b)][1:] == ["context", "message", "run"]
    assert world.store.run(run.id).context is None


def test_sessions_are_quoted_in_order_of_mention_each_once(world: World) -> None:
    ids = [world.conversation(1, f"subject {n}") for n in range(3)]
    b = world.log.start().id
    text = " ".join(mentioned(ids[n], f"m{n}") for n in (2, 0, 2, 1, 0, 2))
    world.log.run(b, text, engine="script")
    [recalled] = contexts(world, b)
    assert [s["session"] for s in snapshots(recalled)] == [ids[2], ids[0], ids[1]]
    assert [r.label for r in body_of(recalled).references] == ["m2", "m0", "m1"]
    assert texts(world.events(b))[0] == "@m2 @m0 @m2 @m1 @m0 @m2"


def test_references_can_be_given_beside_the_text(world: World) -> None:
    a, b = pair(world)
    c = world.conversation(1, "another")
    run = world.log.submit(
        b,
        f"And {mentioned(c, 'C')}",
        references=(a, session_uri(a), SessionReference(session=c, label="again")),
    )
    found = referencing.references_of(world.platform, run)
    assert [(r.source, r.label) for r in found] == [(a, "On the parser"), (c, "again")]


def test_the_verb_puts_the_label_before_the_text_unless_the_text_mentions_the_session(world: World) -> None:
    a, b = pair(world)
    asked = [world.log.reference(a, b, "What now?"), world.log.reference(a, b, f"And {mentioned(a)}?")]
    world.log.run(b, waiting=asked[1].id, engine="script")
    assert texts(world.events(b))[::2] == ["@On the parser\nWhat now?", "And @the parser?"]
    assert len(contexts(world, b)) == 2
    assert [world.store.run(run.id).state for run in asked] == ["completed", "completed"]


def test_the_address_of_another_harness_is_read(world: World) -> None:
    a, b = pair(world)
    uri = session_uri(a).replace("onward-session:", "dsh-session:")
    assert world.log.prepare_references(b, f"See {uri}.").references[0].source == a


def test_only_what_a_person_writes_is_searched_for_mentions(world: World) -> None:
    a, b = pair(world)
    run = world.log.submit(b, f"{mentioned(a)} @[x](onward-session:zz)", actor="trigger")
    assert run.context is None
    assert json.loads(run.input)["text"] == f"{mentioned(a)} @[x](onward-session:zz)"


# -- what a snapshot holds ----------------------------------------------------------------------------------------------


def test_an_earlier_snapshot_does_not_spread(world: World) -> None:
    a, b = pair(world)
    world.log.run(b, f"As in {mentioned(a)}.", engine="script")
    c = world.log.start("third").id
    world.log.run(c, f"As in {mentioned(b, 'B')}.", engine="script")
    [recalled] = contexts(world, c)
    assert "about the parser" not in json.dumps(snapshots(recalled))
    assert said(snapshots(recalled)[0])[0] == "As in @the parser."


def test_a_successor_is_quoted_with_the_message_it_was_continued_with_and_without_its_projection(
    world: World,
) -> None:
    a = world.conversation(1)
    successor = world.log.continue_session(a, COMMAND).successor
    world.log.run(successor, engine="script")
    b = world.log.start("here").id
    run = world.log.submit(b, mentioned(successor))
    [snapshot] = snapshots_of(run.context)
    assert said(snapshot)[0] == "Go on with the parser."
    assert len(snapshot["conversation"]) == 2


def snapshots_of(context: bytes | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        json.loads(context or b"")["text"].split("\n", 3)[3].rsplit("\n", 1)[0]
    )
    return found


def test_a_branch_is_quoted_with_what_it_shares_and_without_what_its_source_said_later(world: World) -> None:
    a = world.log.start("source").id
    world.talk(a, 1)
    branch = world.log.fork(a).id
    world.say(a, "Said in the source later.")
    world.say(branch, "Said in the branch.")
    prepared = world.log.prepare_references(world.log.start("here").id, mentioned(branch))
    assert prepared.context is not None
    assert said(json.loads(prepared.context.text.split("\n", 3)[3].rsplit("\n", 1)[0])[0]) == [
        "Question 1 about the parser?", "Answer 1 about the parser.", "Said in the branch.",
    ]  # fmt: skip


def test_a_compacted_source_is_quoted_by_its_checkpoint_and_what_followed(world: World) -> None:
    a, b = pair(world)
    head = world.log.session(a).head_seq
    point = Checkpoint(text="They spoke about the parser.", first_seq=1, last_seq=head)
    world.tell(a, world.platform.event("checkpoint", point, "system"))
    world.say(a, "And now?")
    prepared = world.log.prepare_references(b, mentioned(a))
    [facts] = prepared.references
    assert (facts.checkpoint, facts.original, facts.retained) == (True, 2, 2)
    assert "Question 1" not in (prepared.context or Recall(references=())).text


@pytest.mark.requirement("L5")
def test_what_was_erased_before_is_shown_as_erased(world: World) -> None:
    a, b = pair(world)
    secret = world.say(a, "The key is hunter2.")
    world.log.erase(secret.id)
    run = world.log.submit(b, mentioned(a))
    [snapshot] = snapshots_of(run.context)
    assert snapshot["conversation"][-1] == {"role": "user", "text": "", "erased": True}
    assert b"hunter2" not in (run.context or b"")


def test_a_long_source_is_read_in_pages_and_quoted_from_its_end(world: World) -> None:
    a, b = pair(world)
    new = world.platform.event
    for _ in range(3):
        world.tell(
            a, *(new("message", Message(role="user", text=f"{n} " + "日本" * 30), "user") for n in range(800))
        )
    [facts] = world.log.prepare_references(b, mentioned(a)).references
    assert facts.original == 2403
    assert facts.retained + facts.omitted == facts.original
    assert facts.retained > 200
    run = world.log.submit(b, mentioned(a))
    [snapshot] = snapshots_of(run.context)
    assert said(snapshot)[-1].startswith("799 ")
    assert all(text.endswith("日本") for text in said(snapshot))
    written = msgspec.json.encode(snapshot)
    assert MAX_BYTES - 400 < len(written) <= MAX_BYTES


# -- all or nothing -----------------------------------------------------------------------------------------------------


def test_one_bad_reference_refuses_the_whole_message(world: World) -> None:
    a, b = pair(world)
    nobody = "ses_00000000000000000000000000"
    others = [world.conversation(1, f"subject {n}") for n in range(3)]
    before = world.everything()
    for text, error in (
        (f"{mentioned(a)} @[x](onward-session:zz)", ReferenceInvalid),
        (f"{mentioned(a)} onward-session:zz", ReferenceInvalid),
        (f"{mentioned(a)} {mentioned(b)}", ReferenceSelf),
        (f"{mentioned(a)} {mentioned(nobody)}", ReferenceReadFailed),
        (f"{mentioned(a)} {mentioned('no id of ours', 'x')}", ReferenceReadFailed),
        (" ".join(mentioned(id) for id in (a, *others)), ReferenceTooMany),
        (f"{mentioned(a)} {mentioned(others[0], 'x' * MAX_BYTES)}", ReferenceBudgetExceeded),
    ):
        with pytest.raises(error):
            world.log.submit(b, text, engine="script")
        with pytest.raises(error):
            world.log.run(b, text, engine="script")
        with pytest.raises(error):
            world.log.prepare_references(b, text)
    assert world.everything() == before


def test_a_source_that_cannot_be_read_now_refuses_the_message(world: World, monkeypatch: Any) -> None:
    a, b = pair(world)
    events = world.store.events

    def broken(session_id: str, **asked: Any) -> list[Event]:
        if session_id == a:
            raise StoreError(why="the disk is gone")
        return events(session_id, **asked)

    monkeypatch.setattr(world.store, "events", broken, raising=False)
    with pytest.raises(ReferenceReadFailed, match="the disk is gone") as refused:
        world.log.prepare_references(b, mentioned(a))
    assert refused.value.code == "reference_read_failed"
    assert isinstance(refused.value.__cause__, StoreError)

    # Whoever cancelled hears that it was cancelled, whatever else went wrong meanwhile.
    answers = iter([False, False, True])
    with pytest.raises(ReferenceCancelled):
        referencing.prepare(world.platform, b, mentioned(a), stop=lambda: next(answers))


def test_capturing_and_listing_can_be_cancelled(world: World) -> None:
    a, b = pair(world)
    for before in range(3):
        asked = iter([False] * before + [True])
        with pytest.raises(ReferenceCancelled) as refused:
            referencing.prepare(world.platform, b, mentioned(a), stop=lambda: next(asked))  # noqa: B023
        assert refused.value.code == "reference_cancelled"
    with pytest.raises(ReferenceCancelled):
        referencing.list_candidates(world.platform, b, stop=lambda: True)


def test_a_closed_session_is_refused_before_anything_is_captured(world: World) -> None:
    a = world.conversation(1)
    b = world.conversation(1)
    world.log.continue_session(b, COMMAND)
    with pytest.raises(SessionContinued):
        world.log.submit(b, f"{mentioned(a)} @[x](onward-session:zz)")


def test_another_accounts_session_looks_like_one_that_does_not_exist(world: World) -> None:
    a, _ = pair(world)
    other = world.acting(new_account())
    mine = other.start("mine").id
    with pytest.raises(SessionNotFound):
        other.candidates(a)
    assert other.candidates(mine) == []
    messages = []
    for id in (a, "ses_00000000000000000000000000"):
        with pytest.raises(ReferenceReadFailed) as refused:
            other.submit(mine, mentioned(id))
        messages.append(refused.value.message.replace(id, "…"))
        with pytest.raises(ReferenceReadFailed):
            other.reference(id, mine, "text")
    assert messages[0] == messages[1]
    with pytest.raises(OnwardError):
        other.reference(mine, a, "text")


# -- what never changes it ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("T2")
def test_nothing_that_happens_to_the_source_changes_what_was_captured(world: World) -> None:
    a, b = pair(world)
    secret = world.say(a, "The key is hunter2.", actor="agent")
    world.log.run(b, f"As in {mentioned(a)}.", engine="script")
    waiting = world.log.submit(b, f"Again {mentioned(a)}.", engine="script")
    before = world.events(b)
    replay = world.log.transcript(b)
    world.log.erase(secret.id)
    world.say(a, "One more.")
    world.log.continue_session(a, COMMAND)
    world.log.archive(a)
    world.reopen()
    assert world.events(b) == before
    assert world.log.transcript(b) == replay
    assert world.store.run(waiting.id) == waiting


@pytest.mark.requirement("T2", "T3")
def test_the_model_reads_the_snapshot_right_before_the_question_and_again_in_the_same_place(
    world: World,
) -> None:
    a, b = pair(world)
    recording = Recording()
    world.log.run(b, "First.", engine=recording.engine)
    world.log.run(b, f"As in {mentioned(a)}.", engine=recording.engine)
    world.log.run(b, "Third.", engine=recording.engine)
    first, second, third = recording.turns
    [recalled] = contexts(world, b)
    stored = body_of(recalled)
    assert isinstance(stored, Recall)
    assert second.history[-1].content == stored.text
    assert second.input == "As in @the parser."
    assert second.history[: len(first.history)] == first.history
    assert third.history[: len(second.history)] == second.history
    assert third.history[len(second.history)].content == second.input
    assert sum("<quoted" in m.content for m in third.history) == 1


def test_limits_leave_the_snapshot_of_the_question_and_take_from_the_history(world: World) -> None:
    a, b = pair(world)
    world.talk(b, 10, "a long story " * 20)
    recording = Recording()
    options = {"max_chars": 1000}
    world.log.run(b, mentioned(a), engine=recording.engine, continuation_opts=options)
    world.log.run(b, "And?", engine=recording.engine, continuation_opts=options)
    first, second = recording.turns
    assert first.history[-1].content.endswith("</quoted>")
    assert sum(m.chars() for m in first.history[:-1]) <= 1000
    assert sum(m.chars() for m in second.history) <= 1000


def test_a_clean_slate_is_given_the_snapshot_and_is_still_called_fresh(world: World) -> None:
    a, b = pair(world)
    world.talk(b, 2)
    recording = Recording()
    result = world.log.run(b, mentioned(a), engine=recording.engine, continuation="none")
    [turn] = recording.turns
    assert [m.content.endswith("</quoted>") for m in turn.history] == [True]
    assert result.opening == "fresh"


def test_an_engine_with_its_own_memory_is_given_the_snapshot_with_the_question(world: World) -> None:
    a, b = pair(world)
    recording = Recording(Begin(native_id="n1", resumed=True), Say(text="Yes."), capabilities=MEMORY)
    world.log.run(b, "First.", engine=recording.engine)
    result = world.log.run(b, f"As in {mentioned(a)}.", engine=recording.engine)
    turn = recording.turns[1]
    assert turn.native is not None
    assert (turn.history, result.opening) == ((), "resumed")
    [recalled] = contexts(world, b)
    [shown] = from_events([recalled], b).messages
    assert turn.input == f"{shown.content}\n\nAs in @the parser."


def test_a_run_that_is_tried_again_is_given_the_same_snapshot(world: World) -> None:
    a, b = pair(world)
    failed = world.log.run(b, f"{mentioned(a)} [[say half]] [[stop]]", engine="script")
    assert failed.state == "failed"
    world.say(a, "Said since.")
    world.log.retry(failed.run)
    again = Recording()
    world.log.run(b, engine=again.engine)
    [recalled] = contexts(world, b)
    assert [m.content for m in again.turns[0].history] == [body_of(recalled).text]


@pytest.mark.requirement("C6")
def test_a_message_that_moves_to_a_successor_takes_its_snapshot_along(world: World) -> None:
    a = world.conversation(1)
    b = world.conversation(1, "the release")
    run = world.log.submit(b, f"Later, as in {mentioned(a)}.", engine="script")
    command = {**COMMAND, "transfer": {"pending_runs": [run.id]}}
    successor = world.log.continue_session(b, command).successor
    recording = Recording()
    world.log.run(successor, engine=recording.engine)
    world.log.run(successor, engine=recording.engine)
    moved = recording.turns[-1]
    assert moved.input == "Later, as in @the parser."
    assert moved.history[-1].content.endswith("</quoted>")
    assert [b.references[0].source for b in bodies(world.events(successor), Recall)] == [a]


def test_a_message_said_before_it_moves_is_copied_with_its_snapshot(world: World) -> None:
    a = world.conversation(1)
    b = world.conversation(1, "the release")
    failed = world.log.run(b, f"As in {mentioned(a)}. [[stop]]", engine="script")
    world.say(b, "Something else, then.")
    again = world.log.retry(failed.run)
    command = {**COMMAND, "transfer": {"pending_runs": [again.id]}}
    successor = world.log.continue_session(b, command).successor
    recording = Recording()
    for _ in range(2):
        world.log.run(successor, engine=recording.engine)
    [moved] = [turn for turn in recording.turns if turn.input.startswith("As in @the parser.")]
    assert moved.history[-1].content == body_of(contexts(world, b)[0]).text


def test_opening_is_told_as_it_is(world: World) -> None:
    a, b = pair(world)
    result = world.log.run(b, mentioned(a), engine="script")
    changes = [c for c in bodies(world.events(b), SessionChange) if c.change == "opening"]
    assert (result.opening, changes[0].opening) == ("fresh", "fresh")


def test_the_example_in_the_docs_runs() -> None:
    [example] = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "references.md").read_text("utf-8"), re.DOTALL
    )
    exec(compile(example, "docs/references.md", "exec"), {})  # noqa: S102 (it is ours, and the docs promise that it runs)


def test_the_docs_name_every_way_in_which_a_reference_is_refused() -> None:
    told = (ROOT / "docs" / "references.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| `(reference_\w+)` \|", told, re.MULTILINE)) == sorted(
        error.code for error in ReferenceRefused.__subclasses__()
    )
