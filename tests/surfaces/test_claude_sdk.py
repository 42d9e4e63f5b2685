"""Conversations of people who use Claude's own SDK, kept by Onward: the interface that it publishes, and a real turn."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import needs
from tests.engines.real.cli_homes import claude_home

from onward.service.platform import Platform
from onward.store.memory import MemoryStore
from onward.store.sqlite import SqliteStore
from onward.surfaces.claude_sdk import OnwardSessionStore
from onward.testing.stub_models import StubModels

KEY = {"project_key": "p", "session_id": "s"}


@pytest.fixture
def store() -> OnwardSessionStore:
    return OnwardSessionStore(Platform(store=MemoryStore()))


@pytest.fixture
def files(tmp_path: Path) -> Iterator[list[SqliteStore]]:
    opened: list[SqliteStore] = []
    yield opened
    for one in opened:
        one.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_it_passes_the_conformance_run_that_the_sdk_publishes(
    kind: str, tmp_path: Path, files: list[SqliteStore]
) -> None:
    needs.need("claude_sdk")
    from claude_agent_sdk.testing import run_session_store_conformance

    def fresh() -> Any:
        if kind == "memory":
            return OnwardSessionStore(Platform(store=MemoryStore()))
        files.append(SqliteStore(tmp_path / f"{len(files)}.db", synchronous="OFF"))
        return OnwardSessionStore(Platform(store=files[-1]))

    asyncio.run(run_session_store_conformance(fresh))


def test_every_method_that_it_has_is_one_of_the_interface() -> None:
    needs.need("claude_sdk")
    from claude_agent_sdk import SessionStore

    ours = {name for name, _ in inspect.getmembers(OnwardSessionStore, inspect.isfunction) if name[0] != "_"}
    theirs = {name for name, _ in inspect.getmembers(SessionStore, inspect.isfunction) if name[0] != "_"}
    assert theirs - ours == {"list_session_summaries"}, "the SDK makes summaries from the rows"
    assert ours <= theirs
    for name in ours:
        given = list(inspect.signature(getattr(OnwardSessionStore, name)).parameters)
        assert given == list(inspect.signature(getattr(SessionStore, name)).parameters)


def test_entries_come_back_as_they_were_whatever_they_hold(store: OnwardSessionStore) -> None:
    entries = [
        {
            "type": "user",
            "uuid": "a",
            "text": "\ud800 lone, \n and \x00",
            "n": 1.5,
            "deep": {"x": [None, True]},
        },
        {"type": "mode"},
        {"type": "mode"},
    ]

    async def there_and_back() -> Any:
        await store.append(KEY, entries)
        return await store.load(KEY)

    assert asyncio.run(there_and_back()) == entries


def test_a_batch_that_is_sent_again_is_told_once(store: OnwardSessionStore) -> None:
    async def twice() -> Any:
        await store.append(KEY, [{"type": "user", "uuid": "a"}])
        await store.append(KEY, [{"type": "user", "uuid": "a"}, {"type": "user", "uuid": "b"}])
        return await store.load(KEY)

    assert [entry["uuid"] for entry in asyncio.run(twice())] == ["a", "b"]


def test_the_sdk_resumes_from_it_on_an_empty_configuration(tmp_path: Path, store: OnwardSessionStore) -> None:
    needs.need("claude_sdk")
    program = needs.need("claude")
    from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, query

    async def ask(text: str, home: Any, **more: Any) -> ResultMessage:
        options = ClaudeAgentOptions(
            cli_path=program, env=home.env, cwd=tmp_path / "work", session_store=store, **more
        )
        found = [one async for one in query(prompt=text, options=options) if isinstance(one, ResultMessage)]
        return found[-1]

    (tmp_path / "work").mkdir()
    with StubModels() as stub:
        first = asyncio.run(ask("[[say One.]]", claude_home(tmp_path / "here", stub)))
        elsewhere = claude_home(tmp_path / "there", stub)
        second = asyncio.run(ask("[[say Two.]]", elsewhere, resume=first.session_id))
        assert (second.result, second.session_id) == ("Two.", first.session_id)
        assert [text for text in stub.asked() if text.strip()] == ["[[say One.]]", "[[say Two.]]"]
