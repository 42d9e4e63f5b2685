"""Tools for an agent that a person runs: it finds its own conversation, continues it, and asks for what it does not know."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.importers.natives import Claude
from tests.service.conversations import COMMAND, World

from onward.engines.contract import ToolOutcome
from onward.errors import InvalidInput
from onward.service import asking
from onward.service.asking import Here, here, standing_tools

NATIVE = "0b8f1e0e-2a51-4b5e-9c1e-5d7f3a2b1c0d"


def ask(world: World, where: Here, name: str, **given: Any) -> ToolOutcome:
    tools = {t.name: t for t in standing_tools(world.platform, where)}
    return asyncio.run(tools[name].call("call.1", given))


@pytest.fixture
def claude(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Claude:
    """A conversation in Claude Code whose last row calls continue_session, as it stands while we answer."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    talk = Claude(session=NATIVE)
    talk.user("u1", "Find out why the parser fails.").says("a1", "It fails on leap days.")
    talk.user("u2", "Now write the release notes.")
    talk.calls("a2", "toolu_9", name="mcp__onward__continue_session", args={})
    folder = tmp_path / "projects" / "-work-parser"
    folder.mkdir(parents=True)
    talk.write(folder / f"{NATIVE}.jsonl")
    return talk


def test_what_the_engine_says_about_itself_is_read_from_its_environment() -> None:
    found = here({"CLAUDE_CODE_SESSION_ID": NATIVE, "CLAUDE_PROJECT_DIR": "/srv/parser"})
    assert (found.engine, found.native_id, found.folder) == ("claude-code", NATIVE, "/srv/parser")
    assert here({}) == Here()
    assert here({"ONWARD_SESSION": "ses_x"}).session == "ses_x"


def test_an_agent_finds_its_own_conversation_read_up_to_this_moment(
    world: World, claude: Claude, tmp_path: Path
) -> None:
    where = Here(engine="claude-code", native_id=NATIVE)
    session = asking.this_session(world.platform, where)
    assert session is not None
    assert "It fails on leap days." in ask(world, where, "read_events").output
    claude.user("u3", "And the date?")
    claude.write(tmp_path / "projects" / "-work-parser" / f"{NATIVE}.jsonl")
    assert "And the date?" in ask(world, where, "read_events").output
    assert asking.this_session(world.platform, where) == session


def test_an_agent_continues_the_conversation_that_it_is_in(world: World, claude: Claude) -> None:
    where = Here(engine="claude-code", native_id=NATIVE)
    answer = ask(world, where, "continue_session", **COMMAND)
    assert answer.status == "ok", answer.output
    session = asking.this_session(world.platform, where)
    assert session is not None
    (link,) = [ln for ln in world.store.links(session) if ln.type == "continuation"]
    assert link.to_session in answer.output
    assert f"onward run {link.to_session}" in answer.output
    assert not answer.ends_turn
    again = ask(world, where, "continue_session", **COMMAND)
    assert link.to_session in again.output


def test_a_conversation_that_is_not_known_has_to_be_named(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    session = world.conversation()
    for where in (Here(), Here(engine="claude-code", native_id=NATIVE)):
        assert "invalid_input" in ask(world, where, "continue_session", **COMMAND).output
        assert ask(world, where, "read_events", session=session).status == "ok"
    answer = ask(world, Here(), "continue_session", session=session, **COMMAND)
    assert answer.status == "ok"


def test_a_native_id_never_leads_out_of_the_engines_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    (tmp_path / "projects" / "x").mkdir(parents=True)
    (tmp_path / "secret.jsonl").write_text("{}")
    assert asking.native_files(Here(engine="claude-code", native_id="../../secret")) == []


def test_a_file_that_cannot_be_read_is_told(world: World, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"\x00\x01 not a conversation\n")
    with pytest.raises(InvalidInput, match="conversation"):
        asking.this_session(world.platform, Here(engine="claude-code", native_id="x"), lambda _w: [broken])


def test_opening_tells_which_conversation_goes_on_in_the_folder_and_what_was_said(
    world: World, tmp_path: Path
) -> None:
    place = str(tmp_path)
    session = world.log.start("Fix the parser", workspace=place).id
    world.talk(session, 2)
    world.say(session, "Go on.")
    made = world.log.continue_session(session, COMMAND)
    answer = ask(world, Here(folder=place), "open_session")
    assert f"The conversation is {made.successor}," in answer.output
    assert "Go on." in answer.output
    named = ask(world, Here(), "open_session", session=session)
    assert f"The conversation is {made.successor}," in named.output


def test_opening_a_folder_where_nothing_was_said_says_so(world: World, tmp_path: Path) -> None:
    answer = ask(world, Here(folder=str(tmp_path)), "open_session")
    assert answer.status == "ok"
    assert "No conversation goes on" in answer.output
    assert ask(world, Here(), "open_session").status == "error"


def test_opening_shows_nothing_of_another_account(world: World, tmp_path: Path) -> None:
    session = world.log.start("Fix the parser", workspace=str(tmp_path)).id
    world.talk(session)
    other = {t.name: t for t in standing_tools(world.acting("acc_other").platform, Here())}
    answer = asyncio.run(other["open_session"].call("call.1", {"session": session}))
    assert (answer.status, "session_not_found" in answer.output) == ("error", True)
    empty = asyncio.run(other["open_session"].call("call.2", {"folder": str(tmp_path)}))
    assert "No conversation goes on" in empty.output


def test_what_an_agent_opened_is_this_conversation_from_then_on(world: World) -> None:
    session = world.conversation()
    tools = {t.name: t for t in standing_tools(world.platform, Here())}

    def use(name: str, **given: Any) -> ToolOutcome:
        return asyncio.run(tools[name].call("call.1", given))

    assert use("lineage").status == "error"
    use("open_session", session=session)
    assert session in use("lineage").output
    assert "the parser" in use("read_events").output
    assert world.log.recalls(session).recalls == 0
    shared = {t.name: t for t in standing_tools(world.platform, Here(), one_agent=False)}
    asyncio.run(shared["open_session"].call("call.2", {"session": session}))
    assert asyncio.run(shared["lineage"].call("call.3", {})).status == "error"
