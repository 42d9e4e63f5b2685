"""Engines that keep a conversation of their own: resumed, lost, moved, too old, told by another engine (O1, O2, O5)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from tests.service.conversations import COMMAND, World, bodies
from tests.service.guests import ONE_SHOT, RESTORING, TEXT, Dead, Guest

from onward.core.ages import MICROSECONDS
from onward.core.bodies import BriefContext, Notice, OpeningFacts, Relay, SessionChange
from onward.engines.contract import Capabilities, NativeFile
from onward.engines.script import Begin, Fail, Say, ScriptEngine, Stop
from onward.runner.desk import LocalDesk
from onward.service import briefing, opening, running
from onward.service.opening import EngineFacts, Prepared, RunOptions, confirmed

DAY = 24 * 3600 * MICROSECONDS


def facts(world: World, session_id: str) -> list[OpeningFacts]:
    """The facts of every opening of a session, as the log has them."""
    return [b.facts for b in bodies(world.events(session_id), SessionChange) if b.change == "opening"]


def told(guest: Guest, turn: int = -1) -> str:
    """The message that the model was sent."""
    return guest.prompts[turn]


@pytest.mark.requirement("O2")
def test_a_memory_that_is_there_is_gone_on_in_and_the_brief_that_was_sent_along_is_dropped(
    world: World,
) -> None:
    session = world.log.start(engine="script")
    guest = Guest()
    world.log.run(session.id, "One.", engine=guest.engine)
    result = world.log.run(session.id, "Two.", engine=guest.engine)
    assert result.opening == "resumed"
    assert "One." in guest.turns[1].brief
    assert told(guest) == "Two."
    assert not bodies(world.events(session.id), BriefContext)
    assert facts(world, session.id)[1].given is None


@pytest.mark.requirement("O2", "O3")
def test_a_memory_that_is_gone_is_made_up_for_by_the_brief_once_before_what_is_asked(world: World) -> None:
    session = world.log.start("Parsing", engine="script")
    guest = Guest()
    world.log.run(session.id, "The codeword is walrus.", engine=guest.engine)
    guest.held.clear()
    result = world.log.run(session.id, "What is the codeword?", engine=guest.engine)
    prompt = told(guest)
    assert result.opening == "seeded"
    assert prompt.startswith("This is not the previous conversation")
    assert prompt.endswith("\n\nWhat is the codeword?")
    assert prompt.count("This is not the previous conversation") == 1
    assert prompt.count("What is the codeword?") == 1
    assert "The user said: The codeword is walrus." in prompt
    known = facts(world, session.id)[-1]
    assert (known.asked, known.outcome, known.scope, known.given) == ("resume", "seeded", "session", "brief")
    assert known.reason == "It was not found where the engine keeps it."
    assert known.reason in result.opening_told
    [kept] = bodies(world.events(session.id), BriefContext)
    assert (kept.text, kept.rows, kept.scope) == (guest.turns[-1].brief, 2, "session")
    # The conversation that it began is the one it goes on in.
    assert world.log.run(session.id, "And now?", engine=guest.engine).opening == "resumed"
    assert told(guest) == "And now?"


@pytest.mark.requirement("O1")
def test_a_turn_by_another_engine_in_between_makes_the_first_ones_memory_stale(world: World) -> None:
    session = world.log.start(engine="script")
    claude, codex = Guest(name="claude-code"), Guest(name="codex")
    world.log.run(session.id, "Said to Claude.", engine=claude.engine)
    world.log.run(session.id, "Said to Codex.", engine=codex.engine)
    native = world.log.provider_sessions(session.id)
    assert set(native) == {"claude-code", "codex"}
    result = world.log.run(session.id, "And?", engine=claude.engine)
    assert result.opening == "seeded"
    assert "codex" in result.opening_told
    assert "Said to Codex." in told(claude)
    after = world.log.provider_sessions(session.id)
    assert after["codex"] == native["codex"]
    assert after["claude-code"] != native["claude-code"]
    assert claude.turns[-1].native is None


@pytest.mark.requirement("O1")
@pytest.mark.parametrize("remembers", [True, False])
def test_each_way_to_open_gives_a_brief_save_the_clean_slate(world: World, remembers: bool) -> None:
    session = world.log.start(engine="script")
    guest = Guest(TEXT if remembers else ONE_SHOT)
    world.log.run(session.id, "One.", engine=guest.engine)
    for mode in ("auto", "replay"):
        world.log.run(session.id, "More.", engine=guest.engine, continuation=mode)
        assert "The user said: One." in guest.turns[-1].brief
    world.log.run(session.id, "Anew.", engine=guest.engine, continuation="none")
    assert (guest.turns[-1].brief, guest.turns[-1].native, told(guest)) == ("", None, "Anew.")


@pytest.mark.requirement("O1")
def test_a_clean_slate_reads_nothing_of_what_came_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = world.log.start(engine="script", workspace="/repo")
    guest = Guest(RESTORING)
    world.log.run(session.id, "One.", engine=guest.engine)
    run = world.log.submit(session.id, "Anew.", engine="script", options={"continuation": "none"})
    held = running.claim(world.platform, run.id, "test", engine="script")
    reads: list[tuple[str, Any]] = []
    store = world.platform.store
    for name in ("events", "engine_sessions", "scan", "events_at", "sessions", "search"):
        real = getattr(store, name)
        monkeypatch.setattr(
            store,
            name,
            lambda *args, _n=name, _r=real, **named: (reads.append((_n, named)), _r(*args, **named))[1],
        )
    prepared = opening.prepare(world.platform, held, EngineFacts(name="script", capabilities=RESTORING))
    # What its own message brought along is looked for right before it, and that is all.
    assert [(name, named.get("limit")) for name, named in reads] == [("events", 1)]
    assert (prepared.brief, prepared.messages, prepared.native, prepared.recorded) == ("", (), None, ())


@pytest.mark.requirement("O4")
@pytest.mark.parametrize(
    ("engine", "where"),
    [
        (engine, where)
        for engine in ("text", "messages", "one-shot")
        for where in ("row_of", "compose_brief", "begun_with")
        if (engine, where) != ("messages", "begun_with")  # there it belongs to the history, which is no brief
    ],
)
def test_a_brief_that_cannot_be_composed_opens_the_conversation_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch, engine: str, where: str
) -> None:
    first = world.log.start(engine="script", workspace="/repo")
    world.talk(first.id)
    session = world.log.start(engine="script", workspace="/repo")
    capabilities = {"text": TEXT, "messages": Capabilities(), "one-shot": ONE_SHOT}[engine]

    def broken(*args: Any, **named: Any) -> Any:
        raise TypeError("a malformed row")

    monkeypatch.setattr(briefing, where, broken)
    guest = Guest(capabilities)
    result = world.log.run(session.id, "Hello?", engine=guest.engine)
    assert (result.state, result.reply, result.opening) == ("completed", "Done.", "fresh")
    assert "a malformed row" in result.opening_told
    assert "a malformed row" in facts(world, session.id)[-1].fault


@pytest.mark.requirement("O5")
def test_native_goes_on_or_fails_and_nothing_takes_its_place(world: World) -> None:
    session = world.log.start(engine="script")
    guest = Guest()
    world.log.run(session.id, "One.", engine=guest.engine)
    result = world.log.run(session.id, "Two.", engine=guest.engine, continuation="native")
    assert (result.opening, guest.turns[-1].native_only, guest.turns[-1].brief) == ("resumed", True, "")
    guest.held.clear()
    failed = world.log.run(session.id, "Three.", engine=guest.engine, continuation="native")
    assert (failed.state, failed.reply) == ("failed", "")
    assert failed.opening != "resumed"
    assert len(guest.prompts) == 2


@pytest.mark.requirement("O5")
@pytest.mark.parametrize(
    "begin",
    [
        Begin(native_id="another", resumed=True),
        Begin(native_id="another", restored=True),
        Begin(native_id="n1", restored=True),
        Begin(native_id="n1", resumed=True, restored=True, briefed=True),
    ],
)
def test_a_claim_that_cannot_be_true_is_not_reported(world: World, begin: Begin) -> None:
    session = world.log.start(engine="script")
    first = ScriptEngine(script=(Begin(native_id="n1"), Say(text=".")), capabilities=TEXT)
    world.log.run(session.id, "One.", engine=first)
    result = world.log.run(
        session.id, "Two.", engine=ScriptEngine(script=(begin, Say(text=".")), capabilities=TEXT)
    )
    assert result.opening in ("fresh", "seeded")
    assert (result.opening == "seeded") == begin.briefed


@pytest.mark.requirement("O5")
def test_an_engine_without_a_memory_is_never_reported_as_resumed(world: World) -> None:
    session = world.log.start(engine="script")
    boasting = ScriptEngine(
        script=(Begin(native_id="n1", resumed=True), Say(text=".")), capabilities=ONE_SHOT
    )
    for _ in range(2):
        assert world.log.run(session.id, "One.", engine=boasting).opening == "fresh"


@pytest.mark.parametrize(("state", "steps"), [("failed", (Fail(reason="no"),)), ("failed", (Stop(),))])
def test_after_a_turn_that_failed_the_engine_is_not_trusted_with_its_memory(
    world: World, state: str, steps: tuple[Any, ...]
) -> None:
    session = world.log.start(engine="script")
    guest = Guest(steps=steps)
    assert world.log.run(session.id, "One.", engine=guest.engine).state == state
    again = Guest()
    again.held = guest.held
    result = world.log.run(session.id, "Two.", engine=again.engine)
    assert (result.opening, facts(world, session.id)[-1].branch) == ("seeded", "ended_in_error")


def test_a_run_that_ended_before_its_engine_began_leaves_the_memory_alone(world: World) -> None:
    session = world.log.start(engine="script")
    guest = Guest()
    world.log.run(session.id, "One.", engine=guest.engine)
    id_before = world.log.provider_sessions(session.id)
    failed = world.log.run(session.id, "Never.", engine=Dead())
    assert (failed.state, failed.opening, failed.opening_told) == ("failed", None, "")
    assert world.log.provider_sessions(session.id) == id_before
    assert world.log.run(session.id, "Two.", engine=guest.engine).opening == "resumed"


@pytest.mark.parametrize(
    ("window", "opening_"), [(None, "resumed"), (86_400, "seeded"), (10 * 86_400.0, "resumed")]
)
def test_the_window_is_a_dial_of_the_run(world: World, window: float | None, opening_: str) -> None:
    session = world.log.start(engine="script")
    guest = Guest()
    world.log.run(session.id, "One.", engine=guest.engine)
    world.clock.tick(5 * 86_400)
    result = world.log.run(session.id, "Two.", engine=guest.engine, continuation_opts={"window": window})
    assert result.opening == opening_


def test_past_the_window_a_conversation_is_still_briefed_from_all_of_its_own_rows(world: World) -> None:
    session = world.log.start(engine="script")
    guest = Guest()
    world.log.run(session.id, "Long ago.", engine=guest.engine)
    world.clock.tick(30 * 86_400)
    result = world.log.run(session.id, "Still there?", engine=guest.engine)
    assert (result.opening, facts(world, session.id)[-1].branch) == ("seeded", "past_window")
    assert "30 d ago · The user said: Long ago." in told(guest)


def test_the_platform_can_come_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    session = world.log.start(engine="script")
    guest = Guest(RESTORING)
    world.log.run(session.id, "One.", engine=guest.engine)
    platform = {"memory": "platform"}
    seeded = world.log.run(session.id, "Two.", engine=guest.engine, continuation_opts=platform)
    assert (seeded.opening, facts(world, session.id)[-1].branch) == ("seeded", "platform_first")
    record = (NativeFile(native_id="x", rows=(b"{}",)),)
    monkeypatch.setattr(opening, "_recorded", lambda *_: record)
    restored = world.log.run(session.id, "Three.", engine=guest.engine, continuation_opts=platform)
    assert guest.turns[-1].prefer_recorded
    assert (restored.opening, told(guest)) == ("restored", "Three.")


def test_on_another_machine_the_record_is_given_back_where_there_is_one_and_else_the_brief(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = world.log.start(engine="script")
    guest = Guest(RESTORING)
    world.log.run(session.id, "One.", engine=guest.engine)
    [row] = world.store.engine_sessions(session.id)
    assert row.machine_id == "test"
    monkeypatch.setattr(LocalDesk, "machine", property(lambda _: "tower"))
    elsewhere = Guest(RESTORING)
    seeded = world.log.run(session.id, "Two.", engine=elsewhere.engine)
    assert (seeded.opening, facts(world, session.id)[-1].branch) == ("seeded", "other_machine")
    assert "on another machine, test" in seeded.opening_told
    monkeypatch.setattr(LocalDesk, "machine", property(lambda _: "laptop"))
    monkeypatch.setattr(opening, "_recorded", lambda *_: (NativeFile(native_id="x", rows=(b"{}",)),))
    restored = world.log.run(session.id, "Three.", engine=Guest(RESTORING).engine)
    assert (restored.opening, facts(world, session.id)[-1].branch) == ("restored", "restore")
    assert [r.machine_id for r in world.store.engine_sessions(session.id)] == ["laptop"]


def test_a_memory_that_is_gone_is_restored_before_it_is_reconstructed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = world.log.start(engine="script")
    guest = Guest(RESTORING)
    world.log.run(session.id, "One.", engine=guest.engine)
    guest.held.clear()
    monkeypatch.setattr(opening, "_recorded", lambda *_: (NativeFile(native_id="x", rows=(b"{}",)),))
    result = world.log.run(session.id, "Two.", engine=guest.engine)
    assert result.opening == "restored"
    assert "handed back" in result.opening_told
    assert not bodies(world.events(session.id), BriefContext)


def test_the_id_of_a_new_conversation_is_in_the_log_before_its_engine_is_asked_anything(world: World) -> None:
    session = world.log.start(engine="script")
    seen: list[tuple[str | None, list[str]]] = []

    def play(turn: Any) -> Any:
        seen.append((turn.new_id, [row.native_id for row in world.store.engine_sessions(session.id)]))
        return (Stop(),)  # and then it dies

    world.log.run(session.id, "One.", engine=ScriptEngine(script=play, capabilities=TEXT))
    [(new, known)] = seen
    assert new is not None
    assert uuid.UUID(new).version == 4
    assert known == [new]


def test_an_engine_that_chooses_its_own_ids_is_given_none(world: World) -> None:
    session = world.log.start(engine="script")
    guest = Guest(Capabilities(memory=True, reads="text"))
    world.log.run(session.id, "One.", engine=guest.engine)
    assert guest.turns[0].new_id is None
    assert world.log.provider_sessions(session.id)["script"]["provider_session_id"] == "native-1"


def test_a_program_without_any_memory_is_told_at_every_turn_and_the_log_grows_by_no_copy(
    world: World,
) -> None:
    session = world.log.start(engine="script")
    guest = Guest(ONE_SHOT)
    for number in range(5):
        result = world.log.run(session.id, f"Number {number}.", engine=guest.engine)
    assert result.opening == "seeded"
    assert all(f"The user said: Number {n}." in told(guest) for n in range(4))
    assert told(guest).endswith("\n\nNumber 4.")
    assert told(guest).count("Number 4.") == 1
    assert not bodies(world.events(session.id), BriefContext)
    assert [f.rows for f in facts(world, session.id)] == [0, 2, 4, 6, 8]


def test_what_a_message_brings_along_goes_with_it_to_an_engine_that_reads_text(world: World) -> None:
    other = world.conversation(about="the walrus")
    session = world.log.start(engine="script")
    guest = Guest()
    for _ in range(2):
        world.log.reference(other, session.id, "Look at that.")
        world.log.run(session.id, engine=guest.engine)
        assert "walrus" in guest.turns[-1].input
        assert guest.turns[-1].input.endswith("Look at that.") or "Look at that." in guest.turns[-1].input
        assert guest.turns[-1].history == ()


@pytest.mark.requirement("O2", "C4")
def test_a_successors_brief_is_its_projection_word_for_word_and_then_what_came_after_it(world: World) -> None:
    made = world.log.continue_session(world.conversation(), COMMAND)
    projection = world.events(made.successor)
    guest = Guest()
    first = world.log.run(made.successor, engine=guest.engine)
    exact = next(
        b.text for b in [*map(briefing.body_of, projection)] if isinstance(b, briefing.ProjectionContext)
    )
    assert guest.turns[0].brief == exact
    assert told(guest, 0) == f"{exact}\n\n{guest.turns[0].input}"
    assert (first.opening, facts(world, made.successor)[0].scope) == ("seeded", "projection")
    guest.held.clear()
    world.log.run(made.successor, "And then?", engine=guest.engine)
    assert guest.turns[1].brief.startswith(f"{exact}\n\nThis is not the previous conversation")
    after = guest.turns[1].brief.removeprefix(exact)
    assert "The agent said: Done." in after
    assert "You are continuing" not in after
    assert after.count("And then?") == 0
    # The projection stands in the log once; what was added to it is kept beside the opening.
    [kept] = bodies(world.events(made.successor), BriefContext)
    assert (kept.scope, kept.text) == ("projection", after.strip())


@pytest.mark.requirement("O2")
def test_what_came_in_between_turns_reaches_an_engine_that_goes_on_in_its_own_memory(world: World) -> None:
    session = world.log.start(engine="script")
    guest = Guest()
    world.log.run(session.id, "One.", engine=guest.engine)
    child = world.log.start(engine="script", parent=session.id)
    world.tell(
        session.id,
        world.platform.event("context", Relay(sender=child.id, text="The child found it."), "agent"),
        world.platform.event(
            "context", Notice(summary="Nearly full.", text="The window is nearly full."), "system"
        ),
    )
    withdrawn = world.log.submit(session.id, "Never mind.", engine="script")
    world.log.cancel(withdrawn.id)
    assert world.log.run(session.id, "Two.", engine=guest.engine).opening == "resumed"
    prompt = told(guest)
    assert prompt.endswith("\n\nTwo.")
    places = [prompt.index(t) for t in ("The child found it.", "nearly full", "Never mind.", "Two.")]
    assert places == sorted(places)
    world.log.run(session.id, "Three.", engine=guest.engine)
    assert told(guest) == "Three."


def test_a_fork_has_no_memory_of_its_own_and_is_briefed_from_what_it_shares(world: World) -> None:
    session = world.log.start(engine="script")
    guest = Guest()
    world.log.run(session.id, "Shared.", engine=guest.engine)
    fork = world.log.fork(session.id)
    world.log.run(session.id, "Only in the source.", engine=guest.engine)
    result = world.log.run(fork.id, "Go on.", engine=guest.engine)
    assert (result.opening, facts(world, fork.id)[0].branch) == ("seeded", "nothing_to_resume")
    assert "Shared." in told(guest)
    assert "Only in the source." not in told(guest)


def test_a_turn_that_is_tried_again_is_told_what_the_first_attempt_did(world: World) -> None:
    session = world.log.start(engine="script")
    from onward.engines.script import Call

    guest = Guest(steps=(Call(name="deploy", input={"to": "production"}), Stop()))
    bad = world.log.run(session.id, "Deploy it.", engine=guest.engine)
    world.log.retry(bad.run)
    again = Guest()
    world.log.run(session.id, engine=again.engine)
    assert "The agent called deploy" in told(again)
    assert told(again).endswith("\n\nDeploy it.")
    assert told(again).count("Deploy it.") == 1


@pytest.mark.requirement("O2")
def test_what_is_confirmed_is_recorded_once_and_with_where_it_is_held(world: World) -> None:
    session = world.log.start(engine="script")
    guest = Guest()
    result = world.log.run(session.id, "One.", engine=guest.engine)
    [known] = facts(world, session.id)
    assert known == result.opening_facts
    assert known.native == guest.turns[0].new_id
    assert (known.asked, known.outcome, known.branch) == ("fresh", "fresh", "nothing_to_resume")
    [row] = world.store.engine_sessions(session.id)
    assert (row.native_id, row.machine_id) == (known.native, "test")
    assert row.updated_at > 0


def test_confirming_never_makes_two_claims() -> None:
    from itertools import product

    from onward.core.opening import Able, Held, Policy, Previous, decide_opening
    from onward.core.transcript import Transcript
    from onward.engines.contract import NativeSession, Started

    engine = EngineFacts(name="e", capabilities=RESTORING, machine="m")
    decision = decide_opening(
        Able(name="e", memory=True, restorable=True),
        Held(native_id="n", machine="m"),
        Previous(engine="e", state="completed", active_at=1),
        "m",
        Policy(window=None),
        2,
    )
    for resumed, restored, briefed, brief, recorded, native in product((False, True), repeat=6):
        prepared = Prepared(
            options=RunOptions(),
            decision=decision,
            input="x",
            transcript=Transcript(session_id="s"),
            facts=OpeningFacts(reason="R", asked="resume", given="brief", scope="session", rows=1),
            native=NativeSession(id="n") if native else None,
            brief="B" if brief else "",
            recorded=(NativeFile(native_id="n"),) if recorded else (),
        )
        said = Started(native_id="n", resumed=resumed, restored=restored, briefed=briefed, why="W")
        found = confirmed(prepared, engine, said)
        assert found.outcome is not None
        true = {
            "resumed": resumed and native and not (briefed and brief) and not (restored and recorded),
            "restored": restored and native and recorded and not (briefed and brief),
            "seeded": briefed and brief,
        }
        assert [name for name, holds in true.items() if holds] == (
            [found.outcome] if found.outcome != "fresh" else []
        )
        assert found.reason == ("R" if found.outcome == "resumed" else "W")
        assert (found.rows > 0) == (found.outcome == "seeded")
