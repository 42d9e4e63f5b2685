"""Machines with the real programs: a workspace that moves, two runners that share, processes that wait and sleep."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.concurrency.servers import KILL, ROOT, TERM, Running, Site
from tests.engines.real.through import FREE, PATIENCE, Place, began, marked, place
from tests.service.conversations import COMMAND

import onward
from onward.library import Onward
from onward.service import machines
from onward.store.contract import Batch
from onward.testing.stub_models import Reply, Request, StubModels, heard

SECRET = "The codeword is walrus."


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


@pytest.fixture
def log(site: Site) -> Iterator[Onward]:
    """The store that the server serves, opened beside it."""
    with onward.open(site.store) as opened:
        yield opened


def runner(site: Site, there: Place, name: str, *arguments: str) -> Running:
    """Start a runner with a program on a machine of that name, whose home is the program's."""
    words = there.settings(prefix=f"{there.name}.")
    state = there.home.env["XDG_STATE_HOME"]
    return site.runner(name, *words, *arguments, engine=there.name, XDG_STATE_HOME=state)


def command(site: Site, *words: str) -> Any:
    """Carry out a command at the store; return its answer, or what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "onward", "--store", site.store, *words],
        cwd=ROOT,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    return json.loads(done.stdout) if "--json" in words else done.stdout + done.stderr


def outcomes(events: list[dict[str, Any]]) -> list[str]:
    """How each turn got its context."""
    return [event["body"]["opening"] for event in events if event["body"].get("change") == "opening"]


@pytest.mark.requirement("O1", "O2")
@pytest.mark.parametrize(("name", "outcome"), [("claude-code", "restored"), ("codex", "seeded")])
def test_a_conversation_follows_its_workspace_and_waits_for_a_machine_that_is_gone(
    name: str, outcome: str, tmp_path: Path, site: Site, log: Onward
) -> None:
    with StubModels() as stub:
        store = log.platform.store
        here, there = (place(name, tmp_path / machine, stub, store) for machine in ("a", "b"))
        site.serve()
        first = runner(site, here, "tower", "--workspace", str(here.home.workdir))
        second = runner(site, there, "laptop")
        session = site.session(workspace=str(here.home.workdir), machine="tower", engine=name)
        run = site.say(session, f"{SECRET} {here.call('echo heard')} [[say Noted.]]", **FREE)
        site.ended(session, run)
        (workspace,) = site.ask("GET", "workspaces")["workspaces"]
        command(site, "move", workspace["id"], "laptop", str(there.home.workdir), "--json")
        moved = site.say(session, "[[say Here too.]]", **FREE)
        events = site.ended(session, moved)
        assert outcomes(events) == ["fresh", outcome]
        assert [site.ask("GET", f"runs/{one}")["machine"] for one in (run, moved)] == ["tower", "laptop"]
        assert len(there.briefed()) == (outcome == "seeded")
        assert any(SECRET in text for text in stub.asked())
        assert any("tower" in str(e["body"].get("facts")) for e in events if e["kind"] == "session")

        for started in (first, second):
            started.tell(TERM)
            assert started.wait() == 0
        laptop = machines.get(log.platform, "laptop")
        store.commit(Batch(machines=(replace(laptop, seen_at=laptop.seen_at - 3600 * 1_000_000),)))
        waits = site.say(session, "[[say Back.]]", **FREE)
        said = "laptop is offline."
        assert site.ask("GET", f"runs/{waits}")["reason"] == said
        assert said in command(site, "show", session)
        assert said in command(site, "run", session)
        assert "offline" in command(site, "machines").partition("laptop")[2]
        known = command(site, "show", session, "--json")["runs"]
        assert [one for one in known if one["id"] == waits and said in str(one)], known

        runner(site, there, "laptop")
        assert outcomes(site.ended(session, waits))[2:] == ["resumed"]
        assert log.verify().ok


@pytest.mark.requirement("L6")
def test_two_runners_share_ten_conversations_and_each_message_is_answered_once(
    tmp_path: Path, site: Site, log: Onward
) -> None:
    with StubModels() as stub:
        places = [place("codex", tmp_path / one, stub, log.platform.store) for one in ("a", "b")]
        site.serve()
        runs = {}
        for number in range(10):
            session = site.session(engine="codex")
            runs[site.say(session, f"[[say Answer {number}.]]", **FREE)] = session
        for there, name in zip(places, ("tower", "laptop"), strict=True):
            runner(site, there, name, "--at-once", "2")
        took = Counter[str]()
        for number, (run, session) in enumerate(runs.items()):
            events = site.ended(session, run)
            assert [e["body"]["text"] for e in events if e["actor"] == "agent"] == [f"Answer {number}."]
            shown = site.ask("GET", f"runs/{run}")
            assert (shown["state"], shown["attempt"]) == ("completed", 1)
            took[shown["machine"]] += 1
        assert set(took) == {"tower", "laptop"}
        asked = Counter(text for one in range(len(stub.requests)) for text in stub.asked(one))
        assert asked == {f"[[say Answer {number}.]]": 1 for number in range(10)}
        assert log.verify().ok


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_a_process_waits_for_the_next_turn_and_ends_with_its_runner(
    name: str, tmp_path: Path, site: Site, log: Onward
) -> None:
    with StubModels() as stub:
        here = place(name, tmp_path / "a", stub, log.platform.store)
        site.serve()
        started = runner(site, here, "tower", "--workspace", str(here.home.workdir))
        session = site.session(workspace=str(here.home.workdir), machine="tower", engine=name)
        site.ended(session, site.say(session, f"{SECRET} [[say Noted.]]", **FREE))
        waiting = {process.pid for process in marked(here.home)}
        assert waiting
        events = site.ended(session, site.say(session, "[[say I know.]]", **FREE))
        assert outcomes(events) == ["fresh", "resumed"]
        assert waiting <= {process.pid for process in marked(here.home)}, "the same process took it"
        assert any(SECRET in text for text in stub.asked())
        started.tell(TERM)
        assert started.wait() == 0
        assert here.left() == []


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_a_process_that_nobody_talks_to_sleeps_says_so_once_and_wakes_with_the_next_message(
    name: str, tmp_path: Path, site: Site, log: Onward
) -> None:
    def slept(events: list[dict[str, Any]]) -> list[str]:
        return [e["body"]["text"] for e in events if e["kind"] == "context" and "to sleep" in str(e["body"])]

    with StubModels() as stub:
        here = place(name, tmp_path / "a", stub, log.platform.store)
        site.serve()
        runner(site, here, "tower", "--workspace", str(here.home.workdir), "--idle", "0")
        session = site.session(workspace=str(here.home.workdir), machine="tower", engine=name)
        site.say(session, f"{SECRET} [[say Noted.]]", **FREE)
        (told,) = slept(site.follow(session, slept))
        assert told.startswith(f"tower put its {name} process to sleep after ")
        assert here.left() == []
        again = site.say(session, "[[say I know.]]", **FREE)
        events = site.ended(session, again)
        assert outcomes(events) == ["fresh", "resumed"]
        assert any(SECRET in text for text in stub.asked())
        assert len(slept(site.follow(session, lambda seen: len(slept(seen)) == 2))) == 2
        assert here.left() == []


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_a_person_at_the_store_allows_what_an_engine_asks_on_another_machine(
    name: str, tmp_path: Path, site: Site, log: Onward
) -> None:
    with StubModels() as stub:
        here = place(name, tmp_path / "a", stub, log.platform.store)
        site.serve()
        runner(site, here, "tower", "--workspace", str(here.home.workdir))
        session = site.session(workspace=str(here.home.workdir), machine="tower", engine=name)
        touched = tmp_path / "touched"
        call = here.call(f"touch {touched}", outside=True)
        run = site.say(session, f"{call} [[say Done.]]", ask=PATIENCE)
        site.follow(session, lambda seen: any(event["kind"] == "approval" for event in seen))
        (asked,) = command(site, "approvals", "--json")["permissions"]
        assert (asked["run"], asked["state"]) == (run, "requested")
        assert not touched.exists()
        command(site, "approve", asked["id"])
        events = site.ended(session, run)
        assert [e["body"]["state"] for e in events if e["kind"] == "approval"] == ["requested", "granted"]
        assert [e["body"].get("status", "ok") for e in events if e["kind"] == "tool_result"] == ["ok"]
        assert [e["body"]["text"] for e in events if e["actor"] == "agent" and e["kind"] == "message"] == [
            "Done."
        ]
        assert touched.exists()


@pytest.mark.requirement("C1", "C2", "O2")
@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_an_agent_on_another_machine_continues_and_its_successor_answers_there(
    name: str, tmp_path: Path, site: Site, log: Onward
) -> None:
    asked = "Please write the release notes."

    def answer(request: Request) -> Reply:
        told = heard(request)
        if any("<session_continuation>" in one.text for one in told):
            return Reply(text="Answered elsewhere.")
        if any(one.who == "tool" for one in told):
            return Reply(text="must not be said")
        return Reply(calls=((here.kind.ours.format("continue_session"), COMMAND),))

    with StubModels(answer) as stub:
        here = place(name, tmp_path / "a", stub, log.platform.store)
        site.serve()
        runner(site, here, "tower", "--workspace", str(here.home.workdir))
        session = site.session(workspace=str(here.home.workdir), machine="tower", engine=name)
        run = site.say(session, asked, **FREE)
        events = site.ended(session, run)
        (successor,) = [e["body"]["other"] for e in events if e["body"].get("change") == "continued"]
        (answering,) = log.platform.store.runs(successor)
        there = site.ended(successor, answering.id)
        assert outcomes(there) == ["seeded"]
        assert [e["body"]["text"] for e in there if e["actor"] == "agent"] == ["Answered elsewhere."]
        assert site.ask("GET", f"runs/{answering.id}")["machine"] == "tower"
        (told,) = [one.text for one in stub.heard() if asked in one.text]
        assert told.count("<session_continuation>") == 1
        assert told.index("<session_continuation>") < told.rindex(asked)
        assert "must not be said" not in str([*events, *there]), "the turn that continued was over"
        assert log.verify().ok


@pytest.mark.requirement("L6")
def test_a_server_that_was_killed_in_the_middle_of_a_tool_ends_what_it_left_when_it_starts_again(
    tmp_path: Path, site: Site, log: Onward
) -> None:
    pipe = tmp_path / "began"
    with StubModels() as stub, began(pipe) as begun:
        here = place("claude-code", tmp_path / "a", stub, log.platform.store)
        words = ("--engine", "claude-code", *here.settings(prefix="claude-code."))
        served = site.serve(*words)
        cut = site.session(engine="claude-code", workspace=str(here.home.workdir))
        site.say(cut, here.call(f"echo begun > {pipe}; sleep 62"), **FREE)
        site.follow(cut, lambda seen: any(event["kind"] == "tool_call" for event in seen))
        assert begun.wait(PATIENCE)
        served.tell(KILL)
        served.wait()
        assert any("sleep 62" in line for line in here.left())
        site.serve(*words)
        other = site.session(engine="claude-code", workspace=str(here.home.workdir))
        site.ended(other, site.say(other, "[[say Here.]]", **FREE))
        assert not any("sleep 62" in line for line in here.left())
