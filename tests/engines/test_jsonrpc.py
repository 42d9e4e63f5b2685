"""JSON-RPC by lines: answers find who asked, everything else is passed on in order, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onward.engines.jsonrpc import (
    METHOD_NOT_FOUND,
    READ_AHEAD,
    Incoming,
    Notification,
    Peer,
    PeerError,
    Request,
    Stray,
)
from onward.engines.processes import Child
from onward.errors import EngineError, EngineTimeout

T = TypeVar("T")

# Answers each request by its method: with its params, an error, lines of its own choice, or not at all.
OTHER = r"""
import json, sys
def write(line): sys.stdout.write(line + "\n"); sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params")
    if method == "echo": write(json.dumps({"id": id, "result": params}))
    elif method == "late":
        held = id
    elif method == "release": write(json.dumps({"jsonrpc": "2.0", "id": held, "result": "late"}))
    elif method == "refuse": write(json.dumps({"id": id, "error": params}))
    elif method == "write":
        for each in params: write(each)
        if id is not None: write(json.dumps({"id": id, "result": len(params)}))
    elif method == "reversed":
        held = [id] if params == 1 else [id, *held]
        if len(held) == 3:
            for each in held: write(json.dumps({"id": each, "result": each}))
    elif method == "die":
        sys.stderr.write("out of memory\n"); sys.exit(1)
    elif method is None: write(json.dumps({"method": "answered", "params": message}))
"""


def talk(work: Callable[[Peer], Awaitable[T]], **options: Any) -> T:
    async def bounded() -> T:
        async with (
            asyncio.timeout(60),
            await Child.start([sys.executable, "-I", "-S", "-c", OTHER], **options) as child,
        ):
            return await work(Peer(child))

    return asyncio.run(bounded())


async def rest(peer: Peer) -> list[Incoming]:
    await peer.child.close_stdin()
    return [message async for message in peer.incoming()]


def test_an_answer_goes_to_whoever_asked_in_whatever_order_answers_come() -> None:
    async def work(peer: Peer) -> list[Any]:
        return await asyncio.gather(*(peer.request("reversed", n) for n in (1, 2, 3)))

    assert talk(work) == [1, 2, 3]


@given(
    params=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    )
)
@settings(max_examples=12)
def test_what_is_asked_arrives_as_it_was_meant(params: Any) -> None:
    assert talk(lambda peer: peer.request("echo", params)) == params


def test_an_error_says_what_the_other_side_said() -> None:
    async def work(peer: Peer, error: Any) -> PeerError:
        with pytest.raises(PeerError) as raised:
            await peer.request("refuse", error)
        return raised.value

    error = talk(lambda peer: work(peer, {"code": -32002, "message": "no such thread", "data": {"id": 1}}))
    assert (error.code, error.message, error.data) == (-32002, "no such thread", {"id": 1})
    assert str(error) == "no such thread (-32002)"
    assert talk(lambda peer: work(peer, "a bare text")).message == "a bare text"
    assert talk(lambda peer: work(peer, {"code": "x"})).message == "an error without a message"


def test_what_the_other_side_tells_and_asks_comes_in_order_and_nothing_is_dropped() -> None:
    lines = [
        '{"method": "told", "params": {"n": 1}}',
        "Loading extensions...",
        '{"jsonrpc": "2.0", "id": "a", "method": "ask", "params": {}}',
        "[1, 2]",
        '{"jsonrpc": "2.0", "id": 99, "result": null}',
        '{"jsonrpc": "2.0", "unknown": true}',
        "",
        '{"method": "told", "params": {"n": 2}}',
    ]

    async def work(peer: Peer) -> list[Incoming]:
        assert await peer.request("write", lines) == len(lines)
        return await rest(peer)

    messages = talk(work)
    assert [type(message) for message in messages] == [
        Notification, Stray, Request, Stray, Stray, Stray, Notification,
    ]  # fmt: skip
    assert [message.line.decode() for message in messages] == [line for line in lines if line]
    why = [message.why for message in messages if isinstance(message, Stray)]
    assert why[0].startswith("it is not JSON")
    assert why[1:] == [
        "it is not a JSON object",
        "it answers nothing that was asked, or too late",
        "it is neither a request nor an answer",
    ]


def test_a_request_of_the_other_side_is_answered_once_with_its_own_id() -> None:
    async def work(peer: Peer) -> list[Any]:
        asked = [json.dumps({"id": id, "method": "ask", "params": {}}) for id in ("a", 7)]
        await peer.notify("write", asked)
        incoming = peer.incoming()
        first, second = await anext(incoming), await anext(incoming)
        assert isinstance(first, Request)
        assert isinstance(second, Request)
        await first.reply({"fine": True})
        await first.refuse(1, "too late to refuse")
        await second.refuse(METHOD_NOT_FOUND, "unknown", data=[1])
        return [message.params for message in await rest(peer) if isinstance(message, Notification)]

    assert talk(work) == [
        {"jsonrpc": "2.0", "id": "a", "result": {"fine": True}},
        {"jsonrpc": "2.0", "id": 7, "error": {"code": METHOD_NOT_FOUND, "message": "unknown", "data": [1]}},
    ]


def test_an_answer_that_is_too_late_is_passed_on_as_stray() -> None:
    async def work(peer: Peer) -> list[Incoming]:
        with pytest.raises(EngineTimeout, match=r"did not answer 'late' within 0.05 seconds"):
            await peer.request("late", timeout=0.05)
        await peer.notify("release")
        return await rest(peer)

    (stray,) = talk(work)
    assert isinstance(stray, Stray)
    assert json.loads(stray.line)["result"] == "late"


def test_whoever_waits_when_the_other_side_ends_is_told_why() -> None:
    async def work(peer: Peer) -> None:
        late = asyncio.ensure_future(peer.request("late"))
        for question in (peer.request("die"), late, peer.request("echo")):
            with pytest.raises(EngineError, match=r"ended before it answered .*out of memory"):
                await question
        assert await rest(peer) == []
        assert await rest(peer) == []

    talk(work)


def test_a_message_that_is_too_long_ends_the_conversation_with_the_limit() -> None:
    async def work(peer: Peer) -> None:
        with pytest.raises(EngineError, match=r"more than 1000 bytes \(max_line\)"):
            await peer.request("echo", "x" * 100_000)
        with pytest.raises(EngineError, match="more than 1000 bytes"):
            await rest(peer)

    talk(work, max_line=1000)


def test_half_a_character_is_read_as_it_is_and_said_as_a_replacement() -> None:
    """JavaScript cuts texts in the middle of an emoji; Rust refuses a whole message for that."""

    async def work(peer: Peer) -> tuple[Any, list[Incoming]]:
        await peer.request("write", [r'{"method": "said", "params": "\ud83d"}'])
        return await peer.request("echo", {"a\ud83d": ["\ude00 b"]}), await rest(peer)

    echoed, (told,) = talk(work)
    assert echoed == {"a�": ["� b"]}
    assert isinstance(told, Notification)
    assert told.params == "\ud83d"


def test_one_that_never_stops_talking_waits_for_its_reader_and_still_answers() -> None:
    flood = [json.dumps({"method": "more", "params": "x" * 1_000})] * 8_000

    async def work(peer: Peer) -> tuple[int, Any, int]:
        await peer.notify("write", flood)
        while peer._held <= READ_AHEAD:  # noqa: ASYNC110 - nobody tells when a reader has stopped reading
            await asyncio.sleep(0)
        for _ in range(1_000):  # whatever else there is to do, nothing more is read
            await asyncio.sleep(0)
        held = peer._held
        answer = await peer.request("echo", "heard")
        return held, answer, len(await rest(peer))

    held, answer, count = talk(work)
    assert held < READ_AHEAD + 2_000
    assert (answer, count) == ("heard", 8_000)
