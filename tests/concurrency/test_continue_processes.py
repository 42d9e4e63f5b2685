"""Many processes continue one session at once: one key is one successor, and keys are never more than eight (C3, C8)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.concurrency.conversing import COMMAND
from tests.concurrency.processes import together
from tests.service.conversations import halves, texts

import onward
from onward.core.continuation import MAX_SUCCESSORS
from onward.library import Onward

PROCESSES = 8


def begun(url: str) -> str:
    """Make the store, and a session that can be continued."""
    with onward.open(url) as log:
        session = log.start("One")
        log.run(session.id, "Find something.", engine="script")
        return session.id


def sound(log: Onward) -> None:
    assert halves(log) == []
    assert log.verify().first_failure is None


@pytest.mark.requirement("C2", "C3")
def test_a_hundred_calls_with_one_key_from_eight_processes_make_one_successor(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'onward.db'}"
    session = begun(url)
    tasks = [("continue_often", url, session, "4", "the key", "13")] * PROCESSES
    with together(*tasks) as processes:
        answers = [fact for process in processes for fact in process.rest()]
    assert len(answers) == 13 * PROCESSES
    assert len({tuple(sorted(fact.items())) for fact in answers}) == 1
    with onward.open(url) as log:
        (link,) = log.platform.store.links(session)
        assert answers[0]["successor"] == link.to_session
        assert len(log.sessions()[0]) == 2
        assert log.continue_session(session, COMMAND, key="the key").run == answers[0]["run"]
        sound(log)


@pytest.mark.requirement("C1", "C3", "C4")
def test_what_eight_processes_say_with_one_key_is_said_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'onward.db'}"
    session = begun(url)
    tasks = [("continue_often", url, session, "4", "the key", "6", f"Said by {n}.") for n in range(PROCESSES)]
    with together(*tasks) as processes:
        answers = [fact for process in processes for fact in process.rest()]
    assert len({tuple(sorted(fact.items())) for fact in answers}) == 1
    with onward.open(url) as log:
        said = [text for text in texts(list(log.read(session).events)) if text.startswith("Said by")]
        assert len(said) == 1
        assert texts(list(log.read(answers[0]["successor"]).events)) == said
        assert log.compare(log.manifest(answers[0]["manifest"])).same
        sound(log)


@pytest.mark.requirement("C2", "C8")
def test_many_keys_from_eight_processes_make_eight_successors_and_no_more(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'onward.db'}"
    session = begun(url)
    tasks = [
        ("continue_often", url, session, "3", f"process {name} call {{number}}", "6")
        for name in range(PROCESSES)
    ]
    with together(*tasks) as processes:
        answers = [fact for process in processes for fact in process.rest()]
    made = [fact["successor"] for fact in answers if "successor" in fact]
    refused = [fact["refused"] for fact in answers if "refused" in fact]
    assert len(made) == len(set(made)) == MAX_SUCCESSORS
    assert set(refused) == {"too_many_successors"}
    with onward.open(url) as log:
        assert {link.to_session for link in log.platform.store.links(session)} == set(made)
        sound(log)


@pytest.mark.requirement("C3", "C6")
def test_continuing_while_others_send_messages_leaves_none_of_them_behind(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'onward.db'}"
    session = begun(url)
    senders = [("submit_often", url, session, "20", f"sender {n}") for n in range(3)]
    with together(*senders, ("continue_often", url, session, "2", "k{number}", "30")) as processes:
        *sending, continuing = processes
        outcomes = continuing.rest()
        sent = []
        for process in sending:
            while (fact := process.next()) is not None:
                sent.append(fact["run"])
    with onward.open(url) as log:
        waiting = {run.id for run in log.platform.store.unfinished(session)}
        continued = log.platform.store.links(session)
        assert not (waiting and continued), "queued input was left in a session that went on elsewhere"
        assert len(sent) + len(outcomes) > 30
        sound(log)
