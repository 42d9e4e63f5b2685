"""Machines, tokens and moving on the command line, and what `run` and `show` say about another machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.behaviour.cli import Program

from onward.core.records import Offer
from onward.service import machines, tokens
from onward.service.platform import Platform
from onward.store.sqlite import SqliteStore


@contextlib.contextmanager
def opened(onward: Program) -> Iterator[Platform]:
    """The store of a program, from within."""
    with contextlib.closing(SqliteStore(onward.store)) as store:
        yield Platform(store=store)


@pytest.fixture
def placed(onward: Program, tmp_path: Path) -> str:
    """A session about a folder, in a store that knows another machine, on which nobody has been for a minute."""
    folder = tmp_path / "work"
    folder.mkdir()
    words = ("run", "--new", "Placed", "Hello", "--engine", "script", "--workspace", str(folder), "--json")
    session: str = onward(*words).document["session"]
    with opened(onward) as platform:
        before = replace(platform, clock=lambda: platform.clock() - 61_000_000)
        machines.register(before, "tower", [Offer(name="script")])
    return session


def test_a_workspace_moves_and_what_is_said_waits_there_by_name(
    onward: Program, placed: str, tmp_path: Path
) -> None:
    moved = onward("move", str(tmp_path / "work"), "tower", "/srv/work", "--json").document
    assert (moved["machine"], moved["path"]) == ("tower", "/srv/work")
    left = onward("run", placed, "Are you there?", "--json").document
    assert (left["session"], left["reply"]) == (placed, None)
    told = onward("run", placed, "And now?")
    assert told.status == 0
    assert "waits in" in told.told
    shown = onward("show", placed, "--json").document["runs"]
    waiting = [run for run in shown if run["state"] == "queued"]
    assert [run["reason"] for run in waiting] == ["Another message is before it.", "tower is offline."]
    assert "tower is offline." in onward("show", placed).text
    assert "tower is offline." in onward("run", placed).told


def test_machines_are_listed_with_their_workspaces(onward: Program, placed: str, tmp_path: Path) -> None:
    onward("move", str(tmp_path / "work"), "tower", "/srv/work")
    listed = onward("machines", "--json").document
    assert [(m["name"], m["online"]) for m in listed["machines"]] == [("tower", False)]
    assert [(w["path"], w["machine"]) for w in listed["workspaces"]] == [("/srv/work", "tower")]
    shown = onward("machines").text
    assert "offline" in shown
    assert "/srv/work" in shown


def test_a_run_here_registers_this_machine_once_another_is_known(onward: Program, placed: str) -> None:
    onward("run", "--new", "Here", "Hello", "--engine", "script")
    home = next(m for m in onward("machines", "--json").document["machines"] if m["home"])
    assert home["name"] == os.uname().nodename
    assert [engine["name"] for engine in home["engines"]] == ["script"]
    assert home["seen_at"] is None


def test_tokens_are_made_listed_and_revoked(onward: Program) -> None:
    made = onward("tokens", "create", "laptop", "--scope", "runner", "--days", "3", "--json").document
    with opened(onward) as platform:
        assert tokens.authenticate(platform.store, made["secret"], platform.clock()).name == "laptop"
    assert made["secret"] not in onward("tokens", "list").text
    assert onward("tokens", "create", "other", "--scope", "read").text.startswith("onw_")
    onward("tokens", "revoke", made["token"]["id"])
    listed = {t["name"]: t for t in onward("tokens", "list", "--json").document["tokens"]}
    assert listed["laptop"]["revoked_at"] is not None
    assert listed["other"]["revoked_at"] is None
    assert "revoked" in onward("tokens", "list").text


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("tokens", "create", "x"), 1, "invalid_input"),
        (("tokens", "create", "x", "--scope", "everything"), 1, "invalid_input"),
        (("tokens", "create"), 2, "usage"),
        (("tokens", "forget", "x"), 2, "usage"),
        (("serve", "--host", "0.0.0.0", "--no-runner"), 1, "invalid_input"),
        (("serve", "--engine", "nothing"), 1, "invalid_input"),
        (("serve", "--engine", "script", "--engine-option", "x=1"), 2, "usage"),
        (("runner",), 2, "usage"),
        (("runner", "--server", "http://127.0.0.1:1", "--workspace", "/nowhere/at/all"), 1, "invalid_input"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    onward: Program, words: tuple[str, ...], code: int, said: str
) -> None:
    refused = onward(*words)
    assert (refused.status, refused.code) == (code, said)


def test_what_is_not_there_is_named(onward: Program, placed: str, tmp_path: Path) -> None:
    assert onward("move", str(tmp_path / "work"), "nowhere", "/q").code == "machine_not_found"
    assert onward("move", "/p", "tower", "/q").code == "workspace_not_found"
    assert onward("tokens", "revoke", "tok_none").code == "token_not_found"
