"""The script engine does what it is told, and says so when it cannot read what that is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.core.bodies import Usage
from onward.core.transcript import TranscriptMessage
from onward.engines.contract import (
    Capabilities,
    Finished,
    Measured,
    Said,
    Signal,
    Started,
    TextDelta,
    Thought,
    Tool,
    ToolAnswered,
    ToolCalled,
    ToolOutcome,
    Turn,
)
from onward.engines.script import (
    Begin,
    Call,
    Fail,
    Measure,
    Mutter,
    Say,
    ScriptEngine,
    Step,
    Stop,
    Think,
    directives,
)
from onward.errors import InvalidInput
from onward.testing.engine_contract import run_turn


def play(text: str = "", *steps: Step, tools: tuple[Tool, ...] = ()) -> list[Signal]:
    engine = ScriptEngine(script=steps) if steps else ScriptEngine()
    return run_turn(engine, Turn(session_id="ses_1", run_id="run_1", input=text, tools=tools))


def test_a_text_without_directives_is_echoed_with_how_much_was_known() -> None:
    history = (TranscriptMessage(role="user", content="a"), TranscriptMessage(role="assistant", content="b"))
    turn = Turn(session_id="ses_1", run_id="run_1", input="What  now?", history=history)
    said = [signal.text for signal in run_turn(ScriptEngine(), turn) if isinstance(signal, Said)]
    assert said == ["You said “What now?”. I was given 2 earlier messages."]


def test_directives_are_played_in_the_order_in_which_they_stand() -> None:
    signals = play("[[think hm]] [[usage 7]] and [[say one]] [[say two]]")
    assert [signal for signal in signals if not isinstance(signal, TextDelta)] == [
        Started(model="script"),
        Thought(text="hm"),
        Measured(usage=Usage(input_tokens=7, context_tokens=7)),
        Said(text="one", model="script"),
        Said(text="two", model="script"),
        Finished(status="completed"),
    ]


def test_json_in_a_call_may_hold_brackets() -> None:
    (call, say) = directives('[[call read {"at": [[1, 2], "]]"]}]][[say ok]]')
    assert call == Call(name="read", input={"at": [[1, 2], "]]"]})
    assert say == Say(text="ok")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[say never closed", "no closing"),
        ("[[call read {nonsense}]]", "JSON cannot be read"),
        ('[[call read {"a": 1} and more]]', "must be"),
        ("[[call ]]", "written"),
        ("[[usage many]]", "whole number"),
    ],
)
def test_a_directive_that_cannot_be_read_fails_the_turn_with_what_is_wrong(text: str, why: str) -> None:
    end = play(text)[-1]
    assert isinstance(end, Finished)
    assert end.status == "failed"
    assert why in end.reason


@given(st.text())
def test_any_text_is_either_played_or_refused_as_invalid_input(text: str) -> None:
    try:
        list(directives("[[call " + text))
        list(directives(text))
    except InvalidInput:
        pass


def test_double_brackets_that_are_no_directive_are_ordinary_text() -> None:
    assert list(directives("a[[0]] [[saying]] [[[x]]]")) == []


def test_a_script_ends_where_it_fails() -> None:
    signals = play("", Fail(reason="no more paper", retryable=True), Say(text="never"))
    assert signals[1:] == [Finished(status="failed", reason="no more paper", retryable=True)]


def test_a_script_can_stop_without_an_end_as_a_crashed_engine_does() -> None:
    signals = play("", Mutter(text="I was just"), Stop())
    assert signals == [Started(model="script"), TextDelta(text="I was just")]


def test_a_function_gives_the_script_of_each_turn() -> None:
    engine = ScriptEngine(script=lambda turn: [Say(text=turn.input.upper())])
    signals = run_turn(engine, Turn(session_id="ses_1", run_id="run_1", input="loud"))
    assert Said(text="LOUD", model="script") in signals


def test_it_can_pass_for_an_engine_that_keeps_conversations() -> None:
    engine = ScriptEngine(
        script=[Begin(native_id="native-7", resumed=True, model="other"), Think(text="x", signature="s")],
        capabilities=Capabilities(memory=True),
    )
    signals = run_turn(engine, Turn(session_id="ses_1", run_id="run_1", input=""))
    assert engine.capabilities.memory
    assert signals[0] == Started(model="other", native_id="native-7", resumed=True)


def test_what_was_measured_and_called_carries_what_the_script_says() -> None:
    async def call(id: str, given: dict[str, object]) -> ToolOutcome:
        return ToolOutcome(output={"id": id, "given": given})

    tool = Tool(name="read", description="", schema={}, call=call)
    usage = Usage(input_tokens=1, output_tokens=2)
    signals = play(
        "", Measure(usage=usage), Call(name="read", input={"a": 1}, provider_call="p1"), tools=(tool,)
    )
    assert signals[1:-1] == [
        Measured(usage=usage),
        ToolCalled(call="run_1.1", name="read", input={"a": 1}, provider_call="p1", ours=True),
        ToolAnswered(call="run_1.1", output={"id": "run_1.1", "given": {"a": 1}}, name="read"),
    ]


def test_an_input_that_is_no_object_is_answered_as_an_error_and_the_tool_does_not_run() -> None:
    async def call(id: str, given: dict[str, object]) -> ToolOutcome:
        raise AssertionError("it ran")

    tool = Tool(name="read", description="", schema={}, call=call)
    answered = play("", Call(name="read", input=[1]), tools=(tool,))[2]
    assert isinstance(answered, ToolAnswered)
    assert answered.status == "error"
    assert "list" in str(answered.output)


def test_an_exception_of_a_tool_belongs_to_whoever_offers_it() -> None:
    async def call(id: str, given: dict[str, object]) -> ToolOutcome:
        raise ConnectionError("the store is gone")

    tool = Tool(name="read", description="", schema={}, call=call)
    with pytest.raises(ConnectionError, match="store is gone"):
        play("", Call(name="read"), tools=(tool,))
