"""The model engine over real HTTP: what it sends, what it makes of errors, and that it tells no secret."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any, Literal

import pytest

from onward.core.bodies import Usage
from onward.core.transcript import TranscriptMessage
from onward.engines.contract import (
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
from onward.engines.model import ModelEngine, Timeouts
from onward.errors import InvalidInput
from onward.testing.engine_contract import run_turn
from onward.testing.stub_models import Reply, Request, StubModels

Api = Literal["openai", "anthropic"]
SECRET = "sk-very-secret-0123456789"

both = pytest.mark.parametrize("api", ["openai", "anthropic"])


def engine_for(stub: StubModels, api: Api, **options: Any) -> ModelEngine:
    settings = {"base_url": stub.base_url(api), "api": api, "model": "stub-model"} | options
    return ModelEngine(**{"environment": {"ONWARD_MODEL_KEY": SECRET}} | settings)


def turn(
    text: str = "Hello.", *history: TranscriptMessage, tools: tuple[Tool, ...] = (), **more: Any
) -> Turn:
    return Turn(session_id="ses_1", run_id="run_1", input=text, history=history, tools=tools, **more)


def ask(
    api: Api,
    script: Iterable[Reply] | Callable[[Request], Reply] | None,
    asked: Turn | None = None,
    **options: Any,
) -> tuple[list[Signal], list[Request]]:
    with StubModels(script) as stub:
        signals = run_turn(engine_for(stub, api, **options), asked or turn())
    return signals, stub.requests


def failure(signals: list[Signal]) -> Finished:
    end = signals[-1]
    assert isinstance(end, Finished)
    assert end.status == "failed"
    assert not any(isinstance(signal, Said) for signal in signals), "a failed answer was never finished"
    return end


def lookup(found: Any = "42") -> Tool:
    async def call(id: str, given: dict[str, Any]) -> ToolOutcome:
        return ToolOutcome(output=found)

    schema = {"type": "object", "properties": {"of": {"type": "string"}}}
    return Tool(name="lookup", description="Looks up.", schema=schema, call=call)


@both
def test_an_answer_streams_and_is_measured(api: Api) -> None:
    usage = Usage(input_tokens=40, output_tokens=5, cache_read_tokens=30)
    signals, _ = ask(api, [Reply(text="All is well.", thought="hm", usage=usage)], window=1000)
    assert signals[0] == Started(model="stub-model")
    assert "".join(signal.text for signal in signals if isinstance(signal, TextDelta)) == "All is well."
    assert sum(isinstance(signal, TextDelta) for signal in signals) == 3
    (measured,) = [signal for signal in signals if isinstance(signal, Measured)]
    assert (measured.usage.input_tokens, measured.usage.output_tokens) == (40, 5)
    assert (measured.usage.cache_read_tokens, measured.usage.window) == (30, 1000)
    thought = Thought(text="hm", signature="signed" if api == "anthropic" else None)
    assert signals[-3:] == [
        thought,
        Said(text="All is well.", model="stub-model"),
        Finished(status="completed"),
    ]


@both
def test_calls_made_at_once_run_one_after_the_other_and_their_answers_reach_the_model(api: Api) -> None:
    script = [
        Reply(text="I look.", calls=(("lookup", {"of": "a"}), ("lookup", {"of": "b"}))),
        Reply(text="It is 42."),
    ]
    signals, requests = ask(api, script, turn(tools=(lookup(),)))
    kinds = [type(signal) for signal in signals if isinstance(signal, ToolCalled | ToolAnswered)]
    assert kinds == [ToolCalled, ToolAnswered, ToolCalled, ToolAnswered]
    calls = [signal for signal in signals if isinstance(signal, ToolCalled)]
    assert [call.call for call in calls] == ["run_1.1", "run_1.2"]
    assert all(call.provider_call for call in calls)
    assert json.dumps(requests[1].body).count("42") == 2
    totals = [signal.usage.input_tokens for signal in signals if isinstance(signal, Measured)]
    assert totals == [12, 24], "usage is what the turn has used so far"
    newest = [signal.usage.context_tokens for signal in signals if isinstance(signal, Measured)]
    assert newest == [12, 12], "what the context holds is the prompt of the newest request"


@pytest.mark.requirement("T2")
@both
def test_every_request_extends_the_one_before_within_a_turn_and_in_the_next_turn(api: Api) -> None:
    script = [
        Reply(text="I look.", calls=(("lookup", {"of": "a"}), ("lookup", '{"of": '))),
        Reply(calls=(("missing", {}),)),
        Reply(text="It is 42."),
        Reply(text="Still."),
    ]
    with StubModels(script) as stub:
        engine = engine_for(stub, api)
        first = turn("What is it?", tools=(lookup({"n": [42]}),), system="Be kind.")
        signals = run_turn(engine, first)
        history = [TranscriptMessage(role="user", content="What is it?")]
        for signal in signals:  # as it would come from the log
            if isinstance(signal, Said):
                history.append(TranscriptMessage(role="assistant", content=signal.text))
            if isinstance(signal, ToolCalled):
                called = {"tool_call_id": signal.call, "tool_name": signal.name, "tool_input": signal.input}
                history.append(TranscriptMessage(role="assistant", **called))
            if isinstance(signal, ToolAnswered):
                output = signal.output if isinstance(signal.output, str) else '{"n":[42]}'
                answered = {"tool_call_id": signal.call, "tool_output": output, "status": signal.status}
                history.append(TranscriptMessage(role="tool", **answered))
        run_turn(engine, turn("And now?", *history, tools=first.tools, system="Be kind."))
    bodies = [json.dumps(request.body["messages"]) for request in stub.requests]
    heads = [
        {name: value for name, value in request.body.items() if name != "messages"}
        for request in stub.requests
    ]
    assert len(bodies) == 4
    for before, after in itertools.pairwise(bodies):
        assert after.startswith(before.rstrip("]}"))
    assert all(head == heads[0] for head in heads)


@both
def test_arguments_that_are_no_json_are_answered_as_an_error_and_the_model_may_go_on(api: Api) -> None:
    script = [Reply(calls=(("lookup", '{"of": '),)), Reply(text="Sorry.")]
    signals, requests = ask(api, script, turn(tools=(lookup(),)))
    (called,) = [signal for signal in signals if isinstance(signal, ToolCalled)]
    (answered,) = [signal for signal in signals if isinstance(signal, ToolAnswered)]
    assert called.input == '{"of": '
    assert answered.status == "error"
    assert "not valid JSON" in answered.output
    assert "not valid JSON" in json.dumps(requests[1].body)
    assert signals[-1] == Finished(status="completed")


@both
@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (401, False), (404, False), (408, True), (409, True), (429, True), (529, True)],
)
def test_an_error_status_fails_with_the_providers_words_and_whether_to_retry(
    api: Api, status: int, retryable: bool
) -> None:
    reply = Reply(status=status, error="the model is on fire", headers=(("retry-after", "7"),))
    end = failure(ask(api, [reply])[0])
    assert f"HTTP {status}" in end.reason
    assert "the model is on fire" in end.reason
    assert "retry after 7 s" in end.reason
    assert end.retryable is retryable


@both
@pytest.mark.parametrize("pieces", [0, 2])
def test_a_stream_that_stops_without_its_end_has_failed(api: Api, pieces: int) -> None:
    signals, _ = ask(api, [Reply(text="one two three", drop=pieces)])
    assert sum(isinstance(signal, TextDelta) for signal in signals) == pieces
    end = failure(signals)
    assert "before the answer was complete" in end.reason
    assert end.retryable


@both
@pytest.mark.parametrize(
    "raw",
    [
        b"data: {not json}\n\n",
        b"data: [1, 2]\n\n",
        b'data: {"choices": 3, "type": "content_block_delta", "index": 9}\n\n',
        b'data: {"choices": [{"delta": "x"}], "type": "message_start", "message": 3}\n\n',
        b"\xff\xfe\x00",
        b"",
    ],
)
def test_a_stream_that_makes_no_sense_has_failed_without_an_exception(api: Api, raw: bytes) -> None:
    assert failure(ask(api, [Reply(raw=raw)])[0]).reason


@both
def test_an_answer_in_another_encoding_than_it_names_has_failed(api: Api) -> None:
    named = (("content-type", "text/event-stream; charset=utf-16"),)
    finished = failure(ask(api, [Reply(text="Hello.", headers=named)])[0])
    assert "encoding" in finished.reason
    assert not finished.retryable


@both
def test_an_error_in_the_middle_of_a_stream_fails_the_turn(api: Api) -> None:
    raw = (
        b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}\n\n'
    )
    assert "busy" in failure(ask(api, [Reply(raw=raw)])[0]).reason


@both
def test_a_server_that_is_not_there_fails_with_the_reason(api: Api) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connecting is refused
        base = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        engine = ModelEngine(base_url=base, api=api, model="m", environment={})
        end = failure(run_turn(engine, turn()))
    assert "no connection" in end.reason
    assert end.retryable


@both
@pytest.mark.parametrize(
    ("limits", "says"),
    [(Timeouts(idle=0.2), "0.2 seconds (idle)"), (Timeouts(total=0.2), "0.2 seconds (total)")],
)
def test_a_server_that_falls_silent_is_given_up_after_the_named_limit(
    api: Api, limits: Timeouts, says: str
) -> None:
    reply = Reply(text="one two three", gate=threading.Event(), silent=True)
    end = failure(ask(api, [reply], timeouts=limits)[0])
    assert says in end.reason
    assert end.retryable


@both
@pytest.mark.parametrize("status", [200, 401])
def test_the_key_is_sent_and_never_told(api: Api, status: int) -> None:
    reply = Reply(status=status, text="ok", error=f"the key {SECRET} is wrong")
    with StubModels([reply]) as stub:
        engine = engine_for(stub, api)
        signals = run_turn(engine, turn())
    assert SECRET in json.dumps(stub.requests[0].headers)
    for shown in (repr(signals), repr(engine), str(vars(engine).keys()), engine.unavailable()):
        assert SECRET not in str(shown)
    assert status == 200 or "***" in failure(signals).reason


def test_a_password_in_the_address_is_not_shown() -> None:
    engine = ModelEngine(base_url="https://me:hidden@models.invalid/v1", model="m", environment={})
    assert "hidden" not in repr(engine)
    assert "hidden" not in (engine.unavailable() or "")


def test_what_is_missing_is_named() -> None:
    assert "ONWARD_MODEL" in (ModelEngine(environment={}).unavailable() or "")
    why = ModelEngine(model="m", key_variable="MY_KEY", environment={}).unavailable() or ""
    assert "MY_KEY" in why
    assert ModelEngine(model="m", key_variable="MY_KEY", environment={"MY_KEY": "k"}).unavailable() is None
    end = failure(run_turn(ModelEngine(model="m", key_variable="MY_KEY", environment={}), turn()))
    assert end.reason == why


def test_a_server_on_this_machine_needs_no_key() -> None:
    assert ModelEngine(base_url="http://127.0.0.1:1/v1", model="m", environment={}).unavailable() is None


def test_settings_come_from_the_environment_when_they_are_not_given() -> None:
    with StubModels([Reply(text="ok")]) as stub:
        environment = {
            "ONWARD_MODEL_URL": stub.url + "/v1/",
            "ONWARD_MODEL_API": "anthropic",
            "ONWARD_MODEL": "from-env",
        }
        assert run_turn(ModelEngine(environment=environment), turn())[-1] == Finished(status="completed")
    (request,) = stub.requests
    assert request.path == "/v1/messages"
    assert request.body["model"] == "from-env"


def test_a_format_that_nobody_speaks_is_refused() -> None:
    with pytest.raises(InvalidInput, match="openai, anthropic"):
        ModelEngine(api="smoke-signals", environment={})  # type: ignore[arg-type]


@both
def test_options_of_a_turn_are_fields_of_the_request_but_cannot_replace_what_the_log_says(api: Api) -> None:
    signals, requests = ask(api, [Reply(text="ok")], turn(options={"temperature": 0.5}, model="other"))
    assert requests[0].body["temperature"] == 0.5
    assert requests[0].body["model"] == "other"
    signals, requests = ask(api, [Reply(text="ok")], turn(options={"messages": []}))
    assert "messages" in failure(signals).reason
    assert requests == []


@both
def test_a_model_that_only_ever_calls_tools_is_stopped_at_the_limit(api: Api) -> None:
    signals, requests = ask(
        api, lambda _: Reply(calls=(("lookup", {}),)), turn(tools=(lookup(),)), max_rounds=3
    )
    assert len(requests) == 3
    assert "3 requests" in failure(signals).reason


@pytest.mark.parametrize(
    ("api", "stop"),
    [("openai", "content_filter"), ("anthropic", "refusal"), ("anthropic", "model_context_window_exceeded")],
)
def test_an_answer_that_the_provider_withheld_is_a_failure(api: Api, stop: str) -> None:
    end = ask(api, [Reply(text="", stop=stop)])[0][-1]
    assert isinstance(end, Finished)
    assert end.status == "failed"


@pytest.mark.parametrize(("api", "stop"), [("openai", "length"), ("anthropic", "max_tokens")])
def test_an_answer_that_was_cut_off_says_so_and_calls_nothing(api: Api, stop: str) -> None:
    signals, requests = ask(api, [Reply(text="I was", stop=stop)], max_tokens=2)
    assert signals[-1] == Finished(status="completed", reason="the answer was cut off at max_tokens=2")
    assert 2 in requests[0].body.values()
    signals, _ = ask(api, [Reply(calls=(("lookup", '{"of": '),), stop=stop)], turn(tools=(lookup(),)))
    assert not any(isinstance(signal, ToolCalled) for signal in signals)
    assert "cut off inside a tool call" in failure(signals).reason


@both
def test_a_question_without_words_still_makes_a_valid_request(api: Api) -> None:
    signals, requests = ask(api, [Reply(text="Pardon?")], turn("  "))
    assert signals[-1] == Finished(status="completed")
    assert "(empty message)" in json.dumps(requests[0].body)


@both
def test_a_client_that_goes_away_is_noticed_by_the_server(api: Api) -> None:
    with StubModels(lambda _: Reply(text="one two three", gate=threading.Event())) as stub:

        async def leave() -> None:
            async with contextlib.aclosing(engine_for(stub, api).run(turn())) as stream:
                async for signal in stream:
                    if isinstance(signal, TextDelta):
                        return

        asyncio.run(leave())
        assert stub.broken_off.wait(10), "the connection was not closed"


@both
def test_an_exception_of_a_tool_belongs_to_whoever_offers_it(api: Api) -> None:
    async def call(id: str, given: dict[str, Any]) -> ToolOutcome:
        raise ConnectionError("the store is gone")

    tool = Tool(name="lookup", description="", schema={}, call=call)
    with pytest.raises(ConnectionError, match="store is gone"):
        ask(api, [Reply(calls=(("lookup", {}),))], turn(tools=(tool,)))


def test_only_anthropic_is_asked_to_cache_prompts() -> None:
    assert "cache_control" in ask("anthropic", [Reply(text="ok")])[1][0].body
    assert "cache_control" not in ask("anthropic", [Reply(text="ok")], cache=False)[1][0].body
    assert "cache_control" not in ask("openai", [Reply(text="ok")])[1][0].body


@both
def test_the_stub_answers_by_directives_too(api: Api) -> None:
    signals, _ = ask(
        api,
        None,
        turn('[[think hm]] [[call lookup {"of": "x"}]] [[say done]] [[usage 9]]', tools=(lookup(),)),
    )
    assert [signal.text for signal in signals if isinstance(signal, Said)] == ["done"]
    assert any(isinstance(signal, Thought) for signal in signals)
    assert any(isinstance(signal, ToolAnswered) and signal.output == "42" for signal in signals)
    failure(ask(api, None, turn("[[drop 1]]"))[0])
