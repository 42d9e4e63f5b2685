"""`watch` prints every event once as it is added; `usage` adds up what runs said they used."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests.behaviour.cli import COMMAND, Program


def test_watching_from_the_start_gives_what_reading_gives(onward: Program) -> None:
    session = onward.new()
    read = onward("read", session, "--json").document["events"]
    watched = onward("watch", session, "--after", "0", "--for", "0", "--json").document
    assert watched["events"] == read
    assert watched["next"] == read[-1]["seq"]


def test_watching_goes_on_behind_the_number_that_was_passed_on(onward: Program) -> None:
    session = onward.new()
    first = onward("watch", session, "--after", "0", "--for", "0", "--json").document
    onward("run", session, "And now?", "--engine", "script")
    rest = onward("watch", session, "--after", str(first["next"]), "--for", "0", "--json").document
    seqs = [event["seq"] for event in (*first["events"], *rest["events"])]
    assert seqs == list(range(1, len(seqs) + 1))


def test_kinds_and_runs_can_be_chosen(onward: Program) -> None:
    session = onward.new()
    run = onward("run", session, "And now?", "--engine", "script", "--json").document["run"]
    found = onward(
        "watch", session, "--after", "0", "--kind", "message", "--run", run, "--for", "0", "--json"
    ).document["events"]
    assert [(event["kind"], event["run"]) for event in found] == [("message", run)] * 2


def test_an_event_is_printed_while_the_watch_goes_on(onward: Program) -> None:
    session = onward.new()
    environment = {**onward.environment(), "PYTHONUNBUFFERED": "1"}
    watching = subprocess.Popen(
        [*COMMAND, "watch", session, "--lines", "--after", "0", "--for", "60"],
        stdout=subprocess.PIPE,
        env=environment,
        cwd=os.getcwd(),
    )
    try:
        assert watching.stdout is not None
        before = len(onward("read", session, "--json").document["events"])
        seen = [json.loads(watching.stdout.readline())["seq"] for _ in range(before)]
        onward("run", session, "And now?", "--engine", "script")
        seen.append(json.loads(watching.stdout.readline())["seq"])
        assert seen == list(range(1, before + 2))
    finally:
        watching.kill()
        watching.communicate()


def test_json_wants_to_know_when_it_is_complete(onward: Program) -> None:
    session = onward.new()
    answer = onward("watch", session, "--json")
    assert answer.status == 2
    assert "--for" in answer.told


def test_usage_is_added_up_and_what_has_no_price_is_said(onward: Program, tmp_path: Path) -> None:
    session = onward.new()
    onward("run", session, "one [[usage 1000000]] [[say done]]", "--engine", "script")
    answer = onward("usage", session)
    assert "1,000,000 tokens in" in answer.text
    assert "--rates FILE" in answer.told
    rates = tmp_path / "rates.json"
    rates.write_text(json.dumps({"script": {"input": 3.0, "output": 15.0}}))
    found = onward("usage", session, "--rates", str(rates), "--json").document
    assert found["total"]["cost_usd"] == 3.0
    assert found["engines"]["script"]["measured"] == 1
    rates.write_text('{"script": {"input": "dear"}}')
    assert onward("usage", session, "--rates", str(rates)).code == "invalid_input"
