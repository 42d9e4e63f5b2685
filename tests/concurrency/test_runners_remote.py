"""Runners on other machines, as processes: a broken network, a killed server and a second runner leave no trace in a log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.concurrency.servers import INT, KILL, TERM, Running, Site, bad_network, comparable

import onward

LONG = " ".join(
    f'[[say Step {n}, which is told in several pieces.]] [[think About {n}.]] [[call read_events {{"to_seq": 1}}]]'
    for n in range(24)
)
"""What takes hundreds of requests to be written down."""

CONTINUE = (
    '[[call continue_session {"reason": "phase_change", "title": "The next phase", "handoff": {"purpose": "Go on", '
    '"current_request": "Go on", "established_facts": ["Something."]}, "sources": [{"from_seq": 2, "to_seq": 2}]}]]'
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


def sound(site: Site) -> None:
    """Every chain verifies, and no run has an entry that was never acknowledged."""
    with onward.open(site.store) as log:
        assert log.verify().ok


def undisturbed(site: Site, text: str) -> list[tuple[Any, ...]]:
    """What the log of a conversation is that nothing disturbs."""
    session = site.session()
    return comparable(site.ended(session, site.say(session, text)))


@pytest.mark.requirement("L3", "L6")
def test_a_server_that_is_killed_and_started_again_in_the_middle_of_a_run_leaves_the_same_log(
    site: Site,
) -> None:
    site.serve()
    site.runner("tower")
    expected = undisturbed(site, LONG)
    session = site.session()
    run = site.say(session, LONG)
    for reached in (20, 60):
        seen = site.follow(session, lambda seen, reached=reached: len(seen) >= reached)
        assert len(seen) < len(expected), "it was over before the server was killed"
        assert site.server is not None
        site.server.tell(KILL)
        site.server.wait()
        site.serve()
    assert comparable(site.ended(session, run)) == expected
    sound(site)


@pytest.mark.requirement("L3", "L6")
@pytest.mark.parametrize("seed", [1, 2])
def test_connections_that_break_in_the_middle_of_answers_leave_the_same_log(site: Site, seed: int) -> None:
    site.serve()
    tower = site.runner("tower")
    expected = undisturbed(site, LONG)
    tower.end()
    with bad_network(site.port, seed=seed) as network:
        site.runner("tower", url=f"http://127.0.0.1:{network.port}")
        session = site.session()
        assert comparable(site.ended(session, site.say(session, LONG))) == expected
        assert network.cuts > 5
    sound(site)


@pytest.mark.requirement("C3")
def test_an_agent_behind_a_bad_network_continues_once(site: Site) -> None:
    site.serve()
    with bad_network(site.port, seed=3) as network:
        site.runner("tower", url=f"http://127.0.0.1:{network.port}")
        for _ in range(5):
            session = site.session()
            events = site.ended(session, site.say(session, CONTINUE))
            assert [e["body"]["change"] for e in events if e["kind"] == "session"] == [
                "opened",
                "opening",
                "continued",
            ]
    with onward.open(site.store) as log:
        links = [link for s in log.sessions(limit=100)[0] for link in log.platform.store.links(s.id)]
        assert Counter(link.type for link in set(links)) == {"continuation": 5}
    sound(site)


@pytest.mark.requirement("L6")
@pytest.mark.parametrize("names", [("tower", "laptop"), ("tower", "tower")])
def test_two_runners_share_what_waits_and_no_run_is_executed_twice(
    site: Site, names: tuple[str, str]
) -> None:
    site.serve()
    for name in names:  # both are there before there is anything to share
        site.runner(name, "--at-once", "2")
    runs = {}
    for number in range(24):
        session = site.session()
        runs[site.say(session, f"[[say Answer {number}.]]")] = session
    machines = Counter[str]()
    for run, session in runs.items():
        events = site.ended(session, run)
        assert [e["body"]["text"] for e in events if e["actor"] == "agent"][-1:] != []
        assert sum(e["kind"] == "message" and e["actor"] == "agent" for e in events) == 1
        shown = site.ask("GET", f"runs/{run}")
        assert (shown["state"], shown["attempt"]) == ("completed", 1)
        machines[shown["machine"]] += 1
    assert set(machines) == set(names)
    sound(site)


@pytest.mark.requirement("O1")
def test_a_conversation_follows_its_workspace_to_another_machine_and_is_not_cold_there(
    site: Site, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    site.serve()
    site.runner("tower", "--workspace", str(here))
    site.runner("laptop")
    session = site.session(workspace=str(here), machine="tower")
    first = site.say(session, "The word is pelican.")
    site.ended(session, first)
    (workspace,) = site.ask("GET", "workspaces")["workspaces"]
    moved = site.ask("POST", f"workspaces/{workspace['id']}/move", {"machine": "laptop", "path": str(there)})
    assert (moved["machine"], moved["path"]) == ("laptop", str(there))
    second = site.say(session, "Which word was it?")
    events = site.ended(session, second)
    took = [site.ask("GET", f"runs/{run}")["machine"] for run in (first, second)]
    assert took == ["tower", "laptop"]
    openings = [e["body"]["opening"] for e in events if e["body"].get("change") == "opening"]
    assert openings == ["fresh", "seeded"]
    assert "I was given 2 earlier messages" in events[-2]["body"]["text"]


def test_what_waits_for_a_machine_that_is_gone_says_so_and_runs_when_it_is_back(
    site: Site, tmp_path: Path
) -> None:
    site.serve("--no-runner", "--online", "0")
    tower = site.runner("tower", "--workspace", str(tmp_path))
    session = site.session(workspace=str(tmp_path), machine="tower")
    tower.tell(TERM)
    assert tower.wait() == 0
    run = site.say(session, "Are you there?")
    shown = site.ask("GET", f"runs/{run}")
    assert (shown["state"], shown["reason"]) == ("queued", "tower is offline.")
    site.runner("tower")
    site.ended(session, run)
    assert site.ask("GET", f"runs/{run}")["machine"] == "tower"


def hanging(site: Site, *arguments: str) -> tuple[str, str, Running]:
    """A session whose run hangs on a runner, after a word was said."""
    runner = site.runner("tower", *arguments)
    session = site.session()
    run = site.say(session, "[[say Begun.]] [[hang]]")
    site.follow(session, lambda seen: any(e["actor"] == "agent" for e in seen))
    return session, run, runner


def test_a_runner_that_is_told_twice_to_stop_ends_its_run_and_is_gone(site: Site) -> None:
    site.serve()
    session, run, runner = hanging(site)
    runner.tell(TERM)
    later = site.say(site.session(), "Nobody takes this.")
    assert site.ask("GET", f"runs/{run}")["state"] == "running"
    runner.tell(TERM)
    assert runner.wait() == 0
    events = site.ended(session, run)
    assert events[-1]["body"]["state"] == "cancelled"
    assert site.ask("GET", f"runs/{later}")["state"] == "queued"


def test_a_runner_that_is_told_once_finishes_within_its_grace(site: Site) -> None:
    site.serve()
    session, run, runner = hanging(site, "--grace", "0")
    runner.tell(TERM)
    assert runner.wait() == 0
    assert site.ended(session, run)[-1]["body"]["state"] == "cancelled"


def test_a_runner_whose_server_is_gone_does_not_wait_for_it_once_it_was_told_to_stop(site: Site) -> None:
    site.serve()
    _, _, runner = hanging(site, "--grace", "0")
    assert site.server is not None
    site.server.tell(KILL)
    site.server.wait()
    runner.tell(TERM)
    assert runner.wait() == 0


def test_a_run_that_is_cancelled_at_the_server_stops_on_its_machine(site: Site) -> None:
    site.serve()
    session, run, _ = hanging(site)
    site.ask("POST", f"runs/{run}/cancel", {})
    again = site.say(session, "[[say Next.]]")
    events = site.ended(session, again)
    assert [e["body"]["state"] for e in events if e["kind"] == "run"] == [
        "running",
        "cancelled",
        "running",
        "completed",
    ]


def test_the_server_executes_runs_itself_and_tells_nobody_a_secret(site: Site) -> None:
    served = site.serve("--engine", "script")
    session = site.session()
    site.ended(session, site.say(session, "[[say Hello.]]"))
    assert served.told["token"] is None
    served.tell(TERM)
    assert served.wait() == 0
    assert site.secret not in "".join(served.errors)


# Two signals of one kind that come at once are one; two kinds are two.
@pytest.mark.parametrize(("grace", "signals"), [("0", (TERM,)), ("300", (TERM, INT))])
def test_a_server_that_is_told_to_stop_ends_what_it_executes_and_is_gone(
    site: Site, grace: str, signals: tuple[int, ...]
) -> None:
    served = site.serve("--engine", "script", "--grace", grace)
    session = site.session()
    run = site.say(session, "[[say Begun.]] [[hang]]")
    site.follow(session, lambda seen: any(e["actor"] == "agent" for e in seen))
    for number in signals:
        served.tell(number)
    assert served.wait() == 0
    with onward.open(site.store) as log:
        ended = log.platform.store.run(run)
        assert ended is not None
        assert ended.state == "cancelled"
