"""The MCP server, spoken to by the protocol's own client: over standard streams and over HTTP."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.service.conversations import COMMAND

import onward
from onward.core.fencing import TAG
from onward.library import Onward
from onward.service.asking import Here
from onward.surfaces import mcp as surface

TOOLS = {
    "continue_session",
    "read_events",
    "search",
    "lineage",
    "read_manifest",
    "list_sessions",
    "prepare_reference",
    "open_session",
}

Talk = Callable[[Any], Awaitable[None]]


def over_streams(store: str, talk: Talk, **environ: str) -> None:
    """Let a client talk to `onward mcp` as its child."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def go() -> None:
        params = StdioServerParameters(
            command=sys.executable,
            args=["-m", "onward", "--store", store, "mcp"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environ},
        )
        async with stdio_client(params) as (incoming, outgoing), ClientSession(incoming, outgoing) as client:
            await client.initialize()
            await talk(client)

    asyncio.run(asyncio.wait_for(go(), 60))


def over_http(log: Onward, talk: Talk) -> None:
    """Let a client talk to the server over streamable HTTP on a port of its own."""
    import uvicorn
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async def go() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            surface.http_app(log.platform), log_level="critical", lifespan="on", ws="none"
        )
        serving = uvicorn.Server(config)
        task = asyncio.create_task(serving.serve(sockets=[listening]))
        try:
            port = listening.getsockname()[1]
            address = f"http://127.0.0.1:{port}/mcp"
            async with (
                streamable_http_client(address) as streams,
                ClientSession(streams[0], streams[1]) as client,
            ):
                await client.initialize()
                await talk(client)
        finally:
            serving.should_exit = True
            await task

    asyncio.run(asyncio.wait_for(go(), 60))


def text(result: Any) -> str:
    """What a tool answered."""
    (content,) = result.content
    return str(content.text)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/onward.db"


def spoken(log: Onward) -> str:
    """A conversation in which something was said."""
    session = log.start("The parser", engine="script").id
    log.run(session, "Why does the parser fail? [[say It fails on leap days.]]", engine="script")
    return session


def test_an_agent_reads_searches_and_continues_over_standard_streams(store: str) -> None:
    with onward.open(store) as log:
        session = spoken(log)

    async def talk(client: Any) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        assert all(tool.input_schema["type"] == "object" for tool in tools)
        found = await client.call_tool("search", {"query": "leap days"})
        assert session in text(found)
        assert text(found).count(f"<{TAG} ") == 1
        made = await client.call_tool("continue_session", {"session": session, **COMMAND})
        assert "onward run ses_" in text(made)
        again = await client.call_tool("continue_session", {"session": session, **COMMAND})
        assert text(again) == text(made)
        wrong = await client.call_tool("read_events", {"session": "ses_nowhere"})
        assert wrong.is_error
        assert "session_not_found" in text(wrong)

    over_streams(store, talk)
    with onward.open(store) as log:
        assert len([ln for ln in log.lineage(session).links if ln.type == "continuation"]) == 1


def test_the_conversation_that_the_environment_names_is_this_one(store: str) -> None:
    with onward.open(store) as log:
        session = spoken(log)

    async def talk(client: Any) -> None:
        assert "leap days" in text(await client.call_tool("read_events", {}))

    over_streams(store, talk, ONWARD_SESSION=session)
    with onward.open(store) as log:
        assert log.recalls(session).recalls == 1


def test_a_tool_that_does_not_exist_is_an_answer_and_not_the_end(store: str) -> None:
    with onward.open(store) as log:
        spoken(log)

        async def talk(client: Any) -> None:
            wrong = await client.call_tool("delete_everything", {})
            assert wrong.is_error
            assert "there are continue_session" in text(wrong)
            assert not (await client.call_tool("list_sessions", {})).is_error

        over_http(log, talk)


def test_the_same_tools_answer_over_http(store: str) -> None:
    with onward.open(store) as log:
        session = spoken(log)

        async def talk(client: Any) -> None:
            assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
            assert session in text(await client.call_tool("list_sessions", {}))
            answers = await asyncio.gather(
                *(client.call_tool("read_events", {"session": session}) for _ in range(8))
            )
            assert len({text(answer) for answer in answers}) == 1

        over_http(log, talk)


def test_tools_that_only_read_say_so() -> None:
    assert TOOLS - {"continue_session"} == surface.READING


def test_what_serves_a_page_elsewhere_cannot_reach_it(store: str) -> None:
    from starlette.testclient import TestClient

    with onward.open(store) as log, TestClient(surface.http_app(log.platform)) as client:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {"accept": "application/json, text/event-stream"}
        strange = client.post("/mcp", json=body, headers={**headers, "host": "evil.example"})
        assert strange.status_code == 421
        foreign = client.post(
            "/mcp",
            json=body,
            headers={**headers, "host": "127.0.0.1:1", "origin": "https://evil.example"},
        )
        assert foreign.status_code == 403


def test_without_a_place_the_tools_want_a_session_named() -> None:
    assert Here() == Here(session=None)
