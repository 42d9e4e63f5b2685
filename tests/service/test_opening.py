"""Opening a run: the modes, the limits, and a history that ends before the question and only ever grows (T2)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.service.conversations import COMMAND, World, bodies, queued, script

from onward.core.bodies import SessionChange
from onward.engines.contract import Capabilities, Turn
from onward.engines.script import Begin, Call, Say, ScriptEngine, echo
from onward.errors import InvalidInput, LimitExceeded
from onward.service import opening, running

MEMORY = Capabilities(memory=True, tools=True, streaming=True)


class Recording:
    """Plays steps and keeps every turn that an engine was given."""

    def __init__(self, *steps: Any, capabilities: Capabilities | None = None) -> None:
        self.turns: list[Turn] = []
        self._steps = steps

        def play(turn: Turn) -> Any:
            self.turns.append(turn)
            return self._steps or (Say(text=echo(turn)),)

        self.engine = ScriptEngine(script=play, capabilities=capabilities)


def openings(world: World, session_id: str) -> list[tuple[str | None, str | None]]:
    return [
        (b.opening, b.reason)
        for b in bodies(world.events(session_id), SessionChange)
        if b.change == "opening"
    ]


@pytest.mark.requirement("T2")
def test_the_history_of_a_later_turn_begins_with_that_of_the_earlier_one_and_what_came_of_it(
    world: World,
) -> None:
    session = world.log.start(engine="script")
    recording = Recording(Call(name="search", input={"query": "walrus"}), Say(text="I looked."))
    for number in range(6):
        world.log.run(session.id, f"Question {number}.", engine=recording.engine)
        world.reopen()
    turns = recording.turns
    for earlier, later in itertools.pairwise(turns):
        known = len(earlier.history)
        assert later.history[:known] == earlier.history
        roles = [m.role for m in later.history[known:]]
        assert roles == ["user", "assistant", "tool", "assistant"]
        assert later.history[known].content == earlier.input


@pytest.mark.requirement("T2", "T1")
def test_the_question_is_never_in_the_history_that_comes_with_it(world: World) -> None:
    session = world.log.start(engine="script")
    recording = Recording()
    for _ in range(3):
        world.log.run(session.id, "The same words each time.", engine=recording.engine)
    for number, turn in enumerate(recording.turns):
        assert turn.input == "The same words each time."
        assert sum(m.content == turn.input for m in turn.history) == number


@pytest.mark.requirement("T1")
def test_a_run_that_is_tried_again_is_given_what_was_said_before_its_message(world: World) -> None:
    session = world.log.start(engine="script")
    failing = Recording()
    world.log.run(session.id, "One.", engine=failing.engine)
    bad = world.log.run(session.id, "[[say half]] [[stop]]", engine="script")
    world.log.retry(bad.run)
    again = Recording()
    world.log.run(session.id, engine=again.engine)
    assert [m.role for m in again.turns[0].history] == ["user", "assistant"]


def test_auto_resumes_what_the_engine_holds_and_replays_where_it_holds_nothing(world: World) -> None:
    session = world.log.start(engine="script")
    first = Recording(Begin(native_id="n1"), Say(text="Hello."), capabilities=MEMORY)
    world.log.run(session.id, "One.", engine=first.engine)
    assert first.turns[0].native is None
    second = Recording(Begin(native_id="n1", resumed=True), Say(text="Again."), capabilities=MEMORY)
    result = world.log.run(session.id, "Two.", engine=second.engine)
    assert second.turns[0].native is not None
    assert (second.turns[0].native.id, second.turns[0].history) == ("n1", ())
    assert result.opening == "resumed"
    third = Recording()
    assert world.log.run(session.id, "Three.", engine=third.engine).opening == "seeded"
    assert len(third.turns[0].history) == 4


@pytest.mark.requirement("O3")
def test_an_engine_that_did_not_resume_is_not_reported_as_resumed(world: World) -> None:
    session = world.log.start(engine="script")
    world.log.run(
        session.id, "One.", engine=script(Begin(native_id="n1"), Say(text="."), capabilities=MEMORY)
    )
    forgetful = script(Begin(native_id="n2", resumed=False), Say(text="Who?"), capabilities=MEMORY)
    result = world.log.run(session.id, "Two.", engine=forgetful)
    assert result.opening == "fresh"
    assert "did not answer" in result.opening_told
    assert openings(world, session.id)[-1] == ("fresh", "Its own memory was asked for and did not answer.")


def test_replay_gives_the_transcript_even_to_an_engine_that_remembers(world: World) -> None:
    session = world.log.start(engine="script")
    world.log.run(
        session.id, "One.", engine=script(Begin(native_id="n1"), Say(text="."), capabilities=MEMORY)
    )
    recording = Recording(capabilities=MEMORY)
    result = world.log.run(session.id, "Two.", engine=recording.engine, continuation="replay")
    assert recording.turns[0].native is None
    assert len(recording.turns[0].history) == 2
    assert result.opening == "seeded"


@pytest.mark.parametrize("mode", ["none", None])
def test_none_gives_nothing_and_says_that_it_was_asked_for(world: World, mode: str | None) -> None:
    session_id = world.conversation()
    recording = Recording()
    result = world.log.run(session_id, "Forget it all.", engine=recording.engine, continuation=mode)
    assert recording.turns[0].history == ()
    assert result.opening == "fresh"
    assert "clean slate" in result.opening_told


@pytest.mark.parametrize("remembers", [False, True])
def test_native_fails_where_there_is_nothing_to_resume_and_the_run_is_settled(
    world: World, remembers: bool
) -> None:
    session_id = world.conversation()
    recording = Recording(capabilities=MEMORY if remembers else None)
    result = world.log.run(session_id, "Go on.", engine=recording.engine, continuation="native")
    assert recording.turns == []
    assert result.state == "failed"
    assert "keeps no conversation of its own" in result.reason
    assert running.get(world.platform, result.run).state == "failed"
    assert not world.store.unfinished(session_id)


def test_native_fails_closed_when_the_engine_began_anew_instead(world: World) -> None:
    session = world.log.start(engine="script")
    world.log.run(
        session.id, "One.", engine=script(Begin(native_id="n1"), Say(text="."), capabilities=MEMORY)
    )
    forgetful = script(Begin(native_id="n2", resumed=False), Say(text="Who are you?"), capabilities=MEMORY)
    result = world.log.run(session.id, "Two.", engine=forgetful, continuation="native")
    assert (result.state, result.reply) == ("failed", "")
    assert world.log.provider_sessions(session.id)["script"]["provider_session_id"] == "n1"


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"max_messages": 3}, 3),
        ({"max_messages": 100}, 9),
        ({"max_chars": 100}, 2),
        ({"max_tokens_approx": 25}, 2),
        ({"max_tokens_approx": 10_000, "max_chars": 100}, 2),
        ({"max_tokens_approx": 25, "max_chars": 10_000}, 2),
        ({"max_messages": 1, "max_chars": 10_000}, 1),
        ({"limit": 3}, 3),
    ],
)
def test_the_lower_limit_wins_and_the_most_recent_messages_are_kept(
    world: World, options: dict[str, int], kept: int
) -> None:
    session_id = world.conversation(4)
    recording = Recording()
    result = world.log.run(session_id, "Now?", engine=recording.engine, continuation_opts=options)
    history = recording.turns[0].history
    assert len(history) == kept
    assert history[-1].content == "Go on with the parser."
    assert result.transcript is not None
    assert result.transcript.messages == history
    if "limit" not in options:
        assert result.transcript.metadata["omitted"] == 9 - kept


def test_the_window_of_an_engine_is_a_limit_too(world: World) -> None:
    session_id = world.conversation(40)
    small = Recording(capabilities=Capabilities(window=200))
    world.log.run(session_id, "Now?", engine=small.engine)
    assert 0 < sum(m.chars() for m in small.turns[0].history) <= 200 * 0.6 * 4


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_messages": 0}, LimitExceeded),
        ({"limit": 0}, LimitExceeded),
        ({"max_messages": "many"}, InvalidInput),
        ({"colour": "red"}, InvalidInput),
        ({"policies": [{"max_tool_cals": 5}]}, InvalidInput),
        ({"policies": [{"rules": [{"effect": "deny", "tools": ["x"], "but": ["y"]}]}]}, InvalidInput),
    ],
)
def test_options_that_mean_nothing_are_refused_before_a_message_is_stored(
    world: World, options: dict[str, Any], error: type[Exception]
) -> None:
    session_id = world.conversation()
    before = world.everything()
    with pytest.raises(error):
        world.log.run(session_id, "Now?", engine="script", continuation_opts=options)
    with pytest.raises(InvalidInput, match="telepathy"):
        world.log.run(session_id, "Now?", engine="script", continuation="telepathy")
    assert world.everything() == before


@pytest.mark.parametrize(
    "given", [{"continuation": ["x"]}, {"continuation": {}}, {1: 2}, b"[]", b"null", b'"text"', b"7"]
)
def test_options_of_any_other_shape_are_refused_by_name(given: Any) -> None:
    with pytest.raises(InvalidInput):
        opening.parse_options(given)


@pytest.mark.requirement("P3")
@pytest.mark.parametrize("options", [{"max_messages": 2}, {"max_chars": 50}, {"limit": 4}])
def test_the_projection_stays_in_front_of_a_successors_history_whatever_is_cut(
    world: World, options: dict[str, int]
) -> None:
    made = world.log.continue_session(world.conversation(), COMMAND)
    world.log.run(made.successor, engine="script")
    world.talk(made.successor, 20)
    for session_id in (made.successor, world.log.fork(made.successor).id):
        recording = Recording()
        world.log.run(session_id, "Still there?", engine=recording.engine, continuation_opts=options)
        history = recording.turns[0].history
        assert history[0].content.startswith("You are continuing earlier work")
        assert 1 <= len(history) <= 4
        assert all(not m.content.startswith("You are continuing") for m in history[1:])


def test_what_an_adapter_is_told_arrives_as_it_was_given(world: World) -> None:
    session = world.log.start()
    recording = Recording()
    world.log.run(
        session.id,
        "Now?",
        engine=recording.engine,
        continuation_opts={"model": "m", "workdir": "/tmp"},
        adapter_opts={"effort": {"deep": [1, None]}},
    )
    turn = recording.turns[0]
    assert (turn.options, turn.model, turn.workdir) == ({"effort": {"deep": [1, None]}}, "m", "/tmp")


def test_a_run_whose_options_cannot_be_read_is_settled_as_failed(world: World) -> None:
    session = world.log.start(engine="script")
    world.log.submit(session.id, "Now?", engine="script", options={"colour": "red"})
    result = world.log.run(session.id)
    assert (result.state, result.opening) == ("failed", None)
    assert "colour" in result.reason


def test_one_call_opens_runs_and_forwards_everything(world: World) -> None:
    recording = Recording()
    result = world.log.run_once(
        "Once.", engine=recording.engine, continuation="none", adapter_opts={"a": 1}, workspace="/repo"
    )
    assert (result.state, result.opening) == ("completed", "fresh")
    assert recording.turns[0].options == {"a": 1}
    assert world.log.sessions(workspace="/repo")[0][0].id == result.session


def test_a_waiting_message_keeps_the_options_it_was_sent_with(world: World) -> None:
    session_id = world.conversation()
    world.log.submit(session_id, "One.", engine="script", options={"continuation": "none"})
    queued(world.log, session_id, "Two.")
    recording = Recording()
    world.log.run(session_id, engine=recording.engine)
    world.log.run(session_id, engine=recording.engine)
    assert [len(turn.history) for turn in recording.turns] == [0, 7]
