"""The bridge: an engine's MCP server whose tools run in the turn, in an order that the log can rely on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.engines import bridge as bridging
from onward.engines.bridge import STOPPED, Bridge
from onward.engines.bridge_client import ADDRESS, SECRET
from onward.engines.calling import Numbers
from onward.engines.contract import Tool, ToolAnswered, ToolCalled, ToolOutcome, Turn
from onward.engines.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    Notification,
    Peer,
    PeerError,
    Stray,
)
from onward.engines.mcp_words import REVISIONS, outcome_words, provider_call, revision, said, tool_words
from onward.engines.processes import Child
from onward.errors import LeaseLost

T = TypeVar("T")
Call = Callable[[str, dict[str, Any]], Coroutine[Any, Any, ToolOutcome]]


def run(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(bounded())


async def echo(call: str, said: dict[str, Any]) -> ToolOutcome:
    return ToolOutcome(output=said)


async def leave(call: str, said: dict[str, Any]) -> ToolOutcome:
    return ToolOutcome(output="gone on elsewhere", ends_turn=True, recorded=True)


def turn(run_id: str = "run_1", **calls: Call) -> Turn:
    tools = tuple(
        Tool(name=name, description=f"Does {name}.", schema={"type": "object", "properties": {}}, call=call)
        for name, call in (calls or {"echo": echo, "leave": leave}).items()
    )
    return Turn(session_id="ses_1", run_id=run_id, input="", tools=tools)


@contextlib.asynccontextmanager
async def engine(bridge: Bridge, **options: Any) -> AsyncIterator[Peer]:
    """An engine that has started its server and greeted it."""
    async with await Child.start(bridge.command, env=bridge.env, **options) as child:
        peer = Peer(child)
        await peer.request("initialize", {"protocolVersion": REVISIONS[-1]})
        await peer.notify("notifications/initialized")
        yield peer


@contextlib.asynccontextmanager
async def bridged(taken: Turn | None = None, **options: Any) -> AsyncIterator[tuple[Bridge, Peer]]:
    async with Bridge(taken or turn(), **options) as bridge, engine(bridge) as peer:
        yield bridge, peer


def calling(peer: Peer, name: str, arguments: Any = None, **meta: Any) -> asyncio.Future[Any]:
    params = {"name": name, "arguments": arguments, "_meta": meta}
    return asyncio.ensure_future(peer.request("tools/call", params))


async def allow(bridge: Bridge) -> list[ToolCalled | ToolAnswered]:
    """What an adapter does: log each signal, then ask for the next, until a tool ends the turn."""
    return [signal async for signal in bridge.along(silence())]


async def silence() -> AsyncIterator[ToolCalled]:
    await asyncio.Event().wait()
    yield ToolCalled(call="", name="")


@contextlib.asynccontextmanager
async def allowing(bridge: Bridge) -> AsyncIterator[list[ToolCalled | ToolAnswered]]:
    signals: list[ToolCalled | ToolAnswered] = []

    async def log() -> None:
        async for signal in bridge.along(silence()):
            signals.append(signal)

    logging = asyncio.ensure_future(log())
    try:
        yield signals
    finally:
        logging.cancel()
        await asyncio.gather(logging, return_exceptions=True)


@pytest.fixture(autouse=True)
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that no stream announces would each wait for it."""
    monkeypatch.setattr(bridging, "SAW_SECONDS", 0.02)


# The order


def test_a_tool_runs_only_once_its_call_is_logged_and_the_engine_hears_only_after_the_answer_is_signalled() -> (
    None
):
    ran: list[str] = []

    async def touch(call: str, said: dict[str, Any]) -> ToolOutcome:
        ran.append(call)
        return ToolOutcome(output="done")

    async def work() -> None:
        async with bridged(turn(touch=touch)) as (bridge, peer):
            answer = calling(peer, "touch", {"a": 1}, callId="call_7")
            called = await bridge.signals.get()
            assert called == ToolCalled(
                call="run_1.1", name="touch", input={"a": 1}, provider_call="call_7", ours=True
            )
            await peer.request("ping")
            assert (ran, answer.done(), bridge.signals.empty()) == ([], False, True)
            await bridge.logged(called)
            assert await bridge.signals.get() == ToolAnswered(call="run_1.1", name="touch", output="done")
            assert await answer == {"content": [{"type": "text", "text": "done"}], "isError": False}
            assert ran == ["run_1.1"]

    run(work())


def test_a_call_waits_until_the_stream_has_shown_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridging, "SAW_SECONDS", 60)

    async def work() -> None:
        async with bridged() as (bridge, peer):
            calling(peer, "echo", {"n": 1})
            await peer.request("ping")
            bridge.saw("leave")  # another tool does not let this one through
            await peer.request("ping")
            assert bridge.signals.empty()
            bridge.saw("echo")
            first = await bridge.signals.get()
            assert isinstance(first, ToolCalled)
            assert first.input == {"n": 1}
            bridge.saw("echo")  # shown before it comes by the bridge: then it need not wait
            calling(peer, "echo", {"n": 2})
            assert (await bridge.signals.get()).call == "run_1.2"

    run(work())


def test_a_call_that_the_stream_never_shows_goes_on_all_the_same() -> None:
    async def work() -> None:
        async with bridged() as (bridge, peer):
            calling(peer, "echo", {"n": 1})
            called = await bridge.signals.get()
            bridge.saw("echo")  # late: it counts for the call that has gone on, not for the next
            await bridge.logged(called)
            await bridge.signals.get()
            calling(peer, "echo", {"n": 2})
            assert (await bridge.signals.get()).call == "run_1.2"

    run(work())


def test_the_turn_ends_only_after_the_engine_has_its_answer() -> None:
    async def work() -> None:
        async with bridged() as (bridge, peer):
            answer = calling(peer, "leave")
            signals = await allow(bridge)
            assert bridge.ended.is_set()
            assert [type(signal) for signal in signals] == [ToolCalled, ToolAnswered]
            assert signals[1] == ToolAnswered(
                call="run_1.1", name="leave", output="gone on elsewhere", recorded=True
            )
            assert (await answer)["isError"] is False
            late = await peer.request("tools/call", {"name": "echo"})
            assert late["isError"] is True
            assert late["content"][0]["text"] == "The turn is over: echo was not called."
            assert bridge.signals.empty()

    run(work())


def test_the_turn_ends_although_the_engine_is_gone_before_its_answer() -> None:
    async def work() -> None:
        async with Bridge(turn()) as bridge:
            async with engine(bridge) as peer:
                answer = calling(peer, "leave")
                called = await bridge.signals.get()
            await bridge.logged(called)
            await bridge.ended.wait()
            with pytest.raises(Exception, match="ended before it answered"):
                await answer

    run(work())


def test_signals_come_before_what_the_stream_says_after_them() -> None:
    async def stream(peer: Peer) -> AsyncIterator[str]:
        yield "I will call it."
        await calling(peer, "echo", {})
        yield "It answered."

    async def work() -> list[Any]:
        async with bridged() as (bridge, peer):
            return [item async for item in bridge.along(stream(peer))]

    before, called, answered, after = run(work())
    assert (before, after) == ("I will call it.", "It answered.")
    assert isinstance(called, ToolCalled)
    assert isinstance(answered, ToolAnswered)


def test_what_the_stream_raises_is_raised() -> None:
    async def breaks() -> AsyncIterator[int]:
        yield 1
        raise OSError("torn")

    async def work() -> None:
        async with bridged() as (bridge, _):
            items = bridge.along(breaks())
            assert await anext(items) == 1
            with pytest.raises(OSError, match="torn"):
                await anext(items)

    run(work())


def test_a_stream_that_is_left_at_the_end_of_the_turn_can_be_read_on_without_a_gap() -> None:
    """The program counts as fast as it can, so that its lines and the end of the turn come at the same time."""
    code = "for n in range(30_000): print(n)"

    async def work() -> list[int]:
        counted: list[int] = []
        async with bridged() as (bridge, peer), await Child.start([sys.executable, "-c", code]) as child:
            answer = calling(peer, "leave")
            async for item in bridge.along(child.lines()):
                if isinstance(item, bytes):
                    counted.append(int(item))
            await answer
            assert bridge.ended.is_set() or len(counted) == 30_000
            return [*counted, *[int(line) async for line in child.lines()]]

    assert run(work()) == list(range(30_000))


# Several at once, and calls that come to nothing


def test_several_calls_at_once_are_each_answered_as_they_end() -> None:
    doors = {"first": asyncio.Event(), "second": asyncio.Event()}

    async def door(call: str, said: dict[str, Any]) -> ToolOutcome:
        await doors[said["name"]].wait()
        return ToolOutcome(output=said["name"])

    async def work() -> None:
        async with bridged(turn(door=door)) as (bridge, peer), allowing(bridge) as signals:
            first, second = (
                calling(peer, "door", {"name": "first"}),
                calling(peer, "door", {"name": "second"}),
            )
            doors["second"].set()
            assert said_by(await second) == "second"
            assert not first.done()
            doors["first"].set()
            assert said_by(await first) == "first"
            assert [signal.call for signal in signals] == ["run_1.1", "run_1.2", "run_1.2", "run_1.1"]

    run(work())


def test_a_call_that_is_at_work_when_the_turn_ends_is_answered_with_an_error_and_the_program_ends() -> None:
    stopped = []

    async def endless(call: str, said: dict[str, Any]) -> ToolOutcome:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(call)
        raise AssertionError

    async def work() -> None:
        async with contextlib.AsyncExitStack() as stack:
            bridge = await stack.enter_async_context(Bridge(turn(endless=endless)))
            async with engine(bridge) as peer:
                running = calling(peer, "endless")
                called = await bridge.signals.get()
                await bridge.logged(called)
                waiting = calling(peer, "endless")
                await bridge.signals.get()
                await stack.aclose()
                assert said_by(await running) == STOPPED.format(name="endless")
                assert said_by(await waiting) == "The turn is over: endless was not called."
                assert await peer.child.wait() == 0
        assert stopped == ["run_1.1"]

    run(work())


def test_what_a_tool_raises_reaches_the_adapter_and_the_engine_does_not_go_on_before_the_end() -> None:
    async def lost(call: str, said: dict[str, Any]) -> ToolOutcome:
        raise LeaseLost(run="run_1", why="it expired")

    async def work() -> None:
        async with contextlib.AsyncExitStack() as stack:
            bridge = await stack.enter_async_context(Bridge(turn(lost=lost, echo=echo)))
            async with engine(bridge) as peer:
                answer = calling(peer, "lost")
                with pytest.raises(LeaseLost):
                    await allow(bridge)
                assert isinstance(bridge.failed.result(), LeaseLost)
                assert "not called" in said_by(await calling(peer, "echo"))
                assert not answer.done()
                await stack.aclose()
                assert (await answer)["isError"] is True

    run(work())


def test_a_tool_that_is_not_offered_and_an_input_that_is_no_object_are_answers_to_the_model() -> None:
    async def work() -> None:
        async with bridged() as (bridge, peer), allowing(bridge) as signals:
            unknown, wrong = await calling(peer, "fly", {}), await calling(peer, "echo", [1])
            assert unknown["isError"] is wrong["isError"] is True
            assert "There are: echo, leave." in said_by(unknown)
            assert "must be a JSON object" in said_by(wrong)
            assert [signal.status for signal in signals if isinstance(signal, ToolAnswered)] == ["error"] * 2

    run(work())


def test_a_call_goes_on_after_the_engine_takes_it_back_or_dies() -> None:
    """What a tool does cannot be taken back; opencode also takes back calls that have ended."""

    async def work() -> None:
        async with Bridge(turn()) as bridge:
            async with engine(bridge) as peer:
                calling(peer, "echo", {"n": 1})
                await peer.notify("notifications/cancelled", {"requestId": 2, "reason": "AbortError"})
                called = await bridge.signals.get()
                await bridge.logged(called)
                assert (await bridge.signals.get()).call == called.call
                calling(peer, "echo", {"n": 2})
                called = await bridge.signals.get()
            await bridge.logged(called)
            answered = await bridge.signals.get()
            assert isinstance(answered, ToolAnswered)
            assert answered.output == {"n": 2}

    run(work())


# The next turn of an engine that was kept running


def test_an_engine_that_was_kept_running_gets_the_tools_of_its_next_turn() -> None:
    async def work() -> None:
        async with bridged() as (bridge, peer):
            await bridge.rest()
            assert "The turn is over" in said_by(await calling(peer, "echo"))
            bridge.renew(turn("run_2"), numbers=Numbers("run_2"))
            async with allowing(bridge) as signals:
                assert said_by(await calling(peer, "echo", {"n": 1})) == '{"n":1}'
            assert [signal.call for signal in signals] == ["run_2.1", "run_2.1"]
            await bridge.rest()
            bridge.renew(turn("run_3", other=echo))
            assert bridge.names == ("other",)
            changed = await anext(peer.incoming())
            assert isinstance(changed, Notification)
            assert changed.method == "notifications/tools/list_changed"
            listed = await peer.request("tools/list")
            assert [tool["name"] for tool in listed["tools"]] == ["other"]

    run(work())


# The protocol


def test_every_client_that_was_recorded_gets_an_answer_to_everything_it_asked(need: Any) -> None:
    files = sorted((need("samples") / "mcp").glob("*-client-messages.jsonl"))
    conversations = [messages for file in files for messages in recorded(file)]
    assert len(conversations) >= 12

    async def work(messages: list[dict[str, Any]]) -> None:
        async with (
            Bridge(turn(continue_session=echo)) as bridge,
            allowing(bridge),
            await Child.start(bridge.command, env=bridge.env) as child,
        ):
            for message in messages:
                await child.send(json.dumps(message).encode())
            await child.close_stdin()
            answers = [json.loads(line) async for line in child.lines()]
            assert await child.wait() == 0
        asked = {json.dumps(message["id"]): message for message in messages if "id" in message}
        assert sorted(json.dumps(answer["id"]) for answer in answers) == sorted(asked)
        for answer in answers:
            question = asked[json.dumps(answer["id"])]
            if question["method"] == "initialize":
                assert answer["result"]["protocolVersion"] == question["params"]["protocolVersion"]
            elif question["method"] == "tools/list":
                assert [tool["name"] for tool in answer["result"]["tools"]] == ["continue_session"]
            elif question["method"] == "tools/call":
                assert json.loads(said_by(answer["result"])) == question["params"]["arguments"]
            else:
                assert answer["error"]["code"] == METHOD_NOT_FOUND

    async def all_of_them() -> None:
        for messages in conversations:
            await work(messages)

    run(all_of_them())


def recorded(file: Path) -> Iterator[list[dict[str, Any]]]:
    """What one client sent, one list each time it started its server."""
    messages: list[dict[str, Any]] = []
    for line in file.read_text("utf-8").splitlines():
        row = json.loads(line)
        if "start" in row and messages:
            yield messages
            messages = []
        elif "in" in row:
            messages.append(row["in"])
    if messages:
        yield messages


def test_the_reference_client_of_the_protocol_understands_it() -> None:
    mcp = pytest.importorskip("mcp", reason="the mcp library is a development dependency")

    async def work() -> None:
        async with Bridge(turn(), server="ours") as bridge, allowing(bridge):
            command, *arguments = bridge.command
            parameters = mcp.StdioServerParameters(command=command, args=arguments, env=bridge.env)
            async with mcp.Client(parameters) as client:
                assert client.server_info.name == "ours"
                tools = (await client.list_tools()).tools
                assert [(tool.name, tool.description) for tool in tools] == [
                    ("echo", "Does echo."),
                    ("leave", "Does leave."),
                ]
                result = await client.call_tool("echo", {"text": "zażółć 🎈"})
                assert not result.is_error
                assert json.loads(result.content[0].text) == {"text": "zażółć 🎈"}
                assert (await client.call_tool("fly", {})).is_error

    run(work())


def test_what_is_no_request_is_refused_by_name_and_the_conversation_goes_on() -> None:
    async def work() -> None:
        async with bridged() as (_, peer):
            await peer.child.send(b"{not json")
            await peer.child.send(b"[]")
            await peer.child.send(b"+7")
            await peer.child.send(b'{"jsonrpc":"2.0","id":9}')
            for method, params, code in (
                ("server/discover", {}, METHOD_NOT_FOUND),
                ("resources/list", None, METHOD_NOT_FOUND),
                ("tools/call", {}, INVALID_PARAMS),
                ("tools/call", [], INVALID_PARAMS),
            ):
                with pytest.raises(PeerError) as refused:
                    await peer.request(method, params)
                assert refused.value.code == code
            assert await peer.request("ping") == {}
            incoming = peer.incoming()
            strays = [await anext(incoming) for _ in range(2)]
            codes = [json.loads(stray.line)["error"]["code"] for stray in strays if isinstance(stray, Stray)]
            assert codes == [PARSE_ERROR, INVALID_REQUEST]

    run(work())


def test_large_inputs_and_answers_pass_in_both_directions_at_once() -> None:
    text = "€" * 2**20

    async def work() -> None:
        async with bridged() as (bridge, peer), allowing(bridge):
            answers = await asyncio.gather(*(calling(peer, "echo", {"text": text}) for _ in range(3)))
            assert all(json.loads(said_by(answer)) == {"text": text} for answer in answers)

    run(work())


@given(asked=st.one_of(st.sampled_from(REVISIONS), st.text(max_size=12), st.none(), st.integers()))
def test_the_revision_is_the_one_asked_for_or_our_newest(asked: object) -> None:
    assert revision(asked) == (asked if asked in REVISIONS else REVISIONS[-1])


def test_tools_and_outcomes_are_said_in_the_words_of_the_protocol() -> None:
    tool = Tool(name="n", description="d", schema={"properties": {"a": {"type": "string"}}}, call=echo)
    assert tool_words(tool) == {
        "name": "n",
        "description": "d",
        "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}},
    }
    assert outcome_words(ToolOutcome(output="no such session", status="error")) == {
        "content": [{"type": "text", "text": "no such session"}],
        "isError": True,
    }
    assert (said(None), said({"a": "ü"}), said([1])) == ("", '{"a":"ü"}', "[1]")
    assert provider_call({"claudecode/toolUseId": "toolu_1"}) == "toolu_1"
    assert provider_call({"callId": "call_1", "progressToken": 3}) == "call_1"
    assert provider_call({"progressToken": 3}) is provider_call(None) is provider_call({"callId": 7}) is None


# The program, and who may connect


def test_only_who_knows_the_secret_is_answered() -> None:
    async def work() -> None:
        async with Bridge(turn()) as bridge:
            host, _, port = bridge.env[ADDRESS].partition(":")
            assert host == "127.0.0.1"
            request = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n'
            secret = bridge.env[SECRET].encode()
            assert len(secret) >= 32
            for wrong in (b"x" * len(secret), b"", secret[:-1], secret.upper() + b"0"):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(wrong + b"\n" + request)
                writer.write_eof()
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()
            async with engine(bridge) as peer:
                assert len((await peer.request("tools/list"))["tools"]) == 2
            assert bridge.greeted.is_set()

    run(work())


def test_a_bridge_that_is_over_is_said_so_by_the_program() -> None:
    async def work() -> tuple[int, str]:
        async with Bridge(turn()) as bridge:
            command, env = bridge.command, dict(bridge.env)
        child = await Child.start(command, env=env)
        async with child:
            return await child.wait(), child.stderr_tail()

    code, told = run(work())
    assert code == 2
    assert "the turn that offered these tools is over" in told
    without = subprocess.run(Bridge(turn()).command, check=False, capture_output=True, text=True, timeout=30)
    assert without.returncode == 2
    assert f"{ADDRESS} and {SECRET} must say where to" in without.stderr


def test_the_workspace_cannot_take_the_place_of_a_module_that_the_program_needs(tmp_path: Path) -> None:
    for name in ("socket", "os", "_thread", "onward", "encodings", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken over')")

    async def work() -> None:
        async with Bridge(turn()) as bridge:
            bridge.env["PYTHONPATH"] = str(tmp_path)
            async with engine(bridge, cwd=str(tmp_path)) as peer:
                assert await peer.request("ping") == {}

    run(work())


def test_the_program_imports_little_because_engines_wait_for_it() -> None:
    command = [*Bridge(turn()).command]
    command[1:1] = ["-X", "importtime"]
    env = {ADDRESS: "127.0.0.1:1", SECRET: "x"}
    said = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30, env=env).stderr
    imported = {
        line.rpartition("|")[2].strip() for line in said.splitlines() if line.startswith("import time")
    }
    assert "socket" in imported
    assert not imported & {
        "typing",
        "json",
        "asyncio",
        "threading",
        "subprocess",
        "msgspec",
        "onward",
        "site",
    }


def said_by(result: dict[str, Any]) -> str:
    """The text of a result of ``tools/call``."""
    (content,) = result["content"]
    text: str = content["text"]
    return text


def test_half_a_character_in_a_call_or_an_answer_costs_no_more_than_that_character() -> None:
    async def quote(_call: str, given: dict[str, Any]) -> ToolOutcome:
        assert given["text"] == "\ud83d"
        return ToolOutcome(output=f"no session {given['text']}", status="error")

    async def work() -> Any:
        async with bridged(turn(quote=quote)) as (bridge, peer), allowing(bridge):
            line = rb'{"id": 7, "method": "tools/call", "params": {"name": "quote", "arguments": {"text": "\ud83d"}}}'
            await peer.child.send(line)
            message = await anext(peer.incoming())
            assert isinstance(message, Stray)
            return json.loads(message.line)

    answer = run(work())
    assert answer["id"] == 7
    assert answer["result"]["content"][0]["text"] == "no session �"
