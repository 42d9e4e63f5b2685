"""Work over the server from end to end: continuing, drafting, branching, approving, recalling, referring, timelines."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from tests.surfaces.http.asking import Asked, code
from tests.surfaces.http.seeded import HANDOFF, OTHERS, Seeded

from onward.core.codec import encode
from onward.service import sessions
from onward.service.platform import Platform
from onward.store.memory import MemoryStore


@pytest.fixture
def ask() -> Asked:
    return Asked()


@pytest.fixture
def seeded(ask: Asked) -> Seeded:
    return Seeded(ask.platform)


def spoken(ask: Asked, title: str = "Fix it") -> str:
    """Open a session in which somebody has spoken and nobody answers any more."""
    session: str = ask("POST", "/v1/sessions", {"title": title, "engine": "script"}).json()["id"]
    run = ask("POST", f"/v1/sessions/{session}/messages", {"text": "What fails in the parser?"}).json()["id"]
    assert ask("POST", f"/v1/runs/{run}/cancel").json()["state"] == "cancelled"
    return session


# -- continuing ---------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C3")
def test_a_continuation_is_made_once_a_key_whether_the_key_is_a_header_or_in_the_body(ask: Asked) -> None:
    session = spoken(ask)
    path = f"/v1/sessions/{session}/continuations"
    made = ask("POST", path, HANDOFF, headers={"idempotency-key": "one"})
    assert made.status_code == 201, made.text
    first = made.json()
    assert (first["predecessor"], first["repeated"], first["approval"]) == (session, False, None)
    again = ask("POST", path, {**HANDOFF, "key": "one"})
    assert again.status_code == 200
    assert again.json() == {**first, "run": again.json()["run"], "repeated": True}
    both = ask("POST", path, {**HANDOFF, "key": "one"}, headers={"idempotency-key": "two"})
    assert code(both) == (400, "invalid_input")
    (listed,) = ask("GET", path).json()["continuations"]
    assert listed["link"]["to"] == listed["session"]["id"] == first["successor"]
    assert (listed["link"]["key"], listed["run"]["state"]) == ("one", "queued")


@pytest.mark.requirement("C3")
def test_commands_with_one_key_at_the_same_time_make_one_successor(ask: Asked) -> None:
    session = spoken(ask)
    path = f"/v1/sessions/{session}/continuations"
    answers = ask.all_at_once(*[("POST", path, {**HANDOFF, "key": "one"})] * 6)
    assert sorted(answer.status_code for answer in answers) == [200] * 5 + [201]
    assert len({answer.json()["successor"] for answer in answers}) == 1
    assert len(ask("GET", path).json()["continuations"]) == 1


def test_what_is_said_to_a_continued_session_is_refused_with_two_offers(ask: Asked, seeded: Seeded) -> None:
    response = ask("POST", f"/v1/sessions/{seeded.first}/messages", {"text": "And now?"})
    assert code(response) == (409, "session_continued")
    offers = response.json()["error"]["details"]["offers"]
    assert len(offers) == 2
    branch = ask("POST", f"/v1/sessions/{seeded.first}/forks", {"seq": 2, "title": "Another way"})
    assert (branch.status_code, branch.json()["title"]) == (201, "Another way")
    said = ask("POST", f"/v1/sessions/{branch.json()['id']}/messages", {"text": "And now?"})
    assert said.status_code == 202


@pytest.mark.parametrize(
    ("change", "status", "expected"),
    [
        ({"reason": "bored"}, 400, "invalid_input"),
        ({"title": " "}, 400, "invalid_continuation"),
        ({"budget": 63}, 400, "limit_exceeded"),
        ({"budget": 64}, 409, "budget_too_small"),
        ({"sources": [{"kind": "session_events", "from_seq": 2, "to": 3}]}, 400, "invalid_input"),
        ({"sources": [{"kind": "session_event", "from_seq": 200}]}, 404, "source_not_found"),
        ({"handoff": {"purpose": "x", "fact": ["y"]}}, 400, "invalid_input"),
        ({"options": {"modle": "x"}}, 400, "invalid_input"),
        ({"text": "@[x](onward-session:IngiCg)"}, 400, "invalid_input"),
    ],
)
def test_a_continuation_that_is_refused_says_why_and_writes_nothing(
    ask: Asked, change: dict[str, Any], status: int, expected: str
) -> None:
    session = spoken(ask)
    before = ask("GET", f"/v1/sessions/{session}").json()
    response = ask("POST", f"/v1/sessions/{session}/continuations", {**HANDOFF, **change})
    assert code(response) == (status, expected), response.text
    assert ask("GET", f"/v1/sessions/{session}").json() == before


def test_a_draft_can_be_edited_weighed_and_sent_as_it_is(ask: Asked) -> None:
    session = spoken(ask)
    draft = ask("POST", f"/v1/sessions/{session}/drafts", {"purpose": "Write the notes"}).json()
    assert draft["estimated_tokens"] > 0
    draft["handoff"]["next_actions"] = ["List what changed."]
    draft["title"] = "The notes"
    weighed = ask("POST", f"/v1/sessions/{session}/drafts/review", draft).json()
    assert weighed["handoff"] == draft["handoff"]
    assert weighed["estimated_tokens"] != draft["estimated_tokens"]
    assert ask("GET", f"/v1/sessions/{session}").json()["title"] == "Fix it"
    made = ask("POST", f"/v1/sessions/{session}/continuations", {**weighed, "text": "Write them."})
    assert made.status_code == 201, made.text
    manifest = ask("GET", f"/v1/manifests/{made.json()['successor']}").json()
    assert (manifest["title"], manifest["handoff"]["next_actions"]) == ("The notes", ["List what changed."])


def test_a_lineage_has_the_path_the_links_and_every_session(ask: Asked, seeded: Seeded) -> None:
    found = ask("GET", f"/v1/sessions/{seeded.second}/lineage").json()
    assert found["path"] == [seeded.first, seeded.second]
    assert {link["type"] for link in found["links"]} == {"continuation", "fork", "child"}
    assert found["sessions"][seeded.branch]["origin"] == seeded.branch
    assert found["complete"] is True


# -- approving ----------------------------------------------------------------------------------------------------------


def test_a_continuation_that_waits_is_accepted_as_it_is_changed_or_declined() -> None:
    ask = Asked(Platform(store=MemoryStore(), host="home", approval="always"))
    session = spoken(ask)
    path = f"/v1/sessions/{session}/continuations"
    parked = ask("POST", path, HANDOFF, headers={"idempotency-key": "one"})
    assert (parked.status_code, parked.json()["successor"]) == (202, None)
    approval = parked.json()["approval"]
    again = ask("POST", path, HANDOFF, headers={"idempotency-key": "one"})
    assert (again.status_code, again.json()["approval"]) == (202, approval)
    (listed,) = ask("GET", "/v1/approvals", session=session).json()["approvals"]
    assert (listed["id"], listed["state"], listed["command"]["title"]) == (
        approval,
        "requested",
        HANDOFF["title"],
    )
    other = ask("POST", path, {**HANDOFF, "title": "Not this"}, headers={"idempotency-key": "two"}).json()
    declined = ask("POST", f"/v1/approvals/{other['approval']}/decline", {"note": "No."}).json()
    assert (declined["state"], declined["note"]) == ("denied", "No.")
    refused = ask("POST", path, HANDOFF, headers={"idempotency-key": "two"})
    assert code(refused) == (409, "continuation_declined")
    accept = f"/v1/approvals/{approval}/accept"
    made = ask("POST", accept, {"changed": {**HANDOFF, "title": "Better"}}).json()
    assert ask("GET", f"/v1/sessions/{made['successor']}").json()["title"] == "Better"
    assert ask("POST", accept, {}).json()["successor"] == made["successor"]
    assert code(ask("POST", f"/v1/approvals/{approval}/decline", {})) == (409, "approval_answered")
    assert ask("GET", "/v1/approvals").json()["approvals"] == []
    assert len(ask("GET", "/v1/approvals", answered=True).json()["approvals"]) == 2


def test_the_first_answer_to_a_permission_holds(ask: Asked, seeded: Seeded) -> None:
    (one,) = ask("GET", "/v1/permissions").json()["permissions"]
    assert (one["id"], one["tool"], one["input"]) == (seeded.permission, "rm", {"path": "/"})
    path = f"/v1/permissions/{seeded.permission}/answer"
    assert ask("POST", path, {"granted": False, "note": "Never."}).json()["state"] == "denied"
    assert ask("POST", path, {"granted": False}).json()["note"] == "Never."
    assert code(ask("POST", path, {"granted": True})) == (409, "invalid_transition")
    assert ask("GET", "/v1/permissions").json()["permissions"] == []


# -- runs and state -----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("C7")
def test_a_run_that_failed_is_tried_again_by_another_engine_once(ask: Asked, seeded: Seeded) -> None:
    path = f"/v1/runs/{seeded.failed}/retry"
    again = ask("POST", path, {"engine": "codex"})
    assert (again.status_code, again.json()["engine"], again.json()["retry_of"]) == (
        202,
        "codex",
        seeded.failed,
    )
    assert ask("POST", path).json()["id"] == again.json()["id"]
    runs = ask("GET", f"/v1/sessions/{seeded.open}/runs").json()["runs"]
    assert [run["state"] for run in runs] == ["queued", "failed"]
    assert code(ask("POST", f"/v1/runs/{seeded.done}/retry")) == (409, "invalid_transition")


def test_a_plan_that_was_made_from_an_older_one_is_a_conflict(ask: Asked) -> None:
    session = spoken(ask)
    path = f"/v1/sessions/{session}/plan"
    steps = [{"id": "1", "text": "Fix it"}]
    assert ask("PUT", path, {"steps": steps}).json()["plan"]["body"]["revision"] == 1
    done = [{**steps[0], "status": "done"}]
    second = ask("PUT", path, {"steps": done, "revision": 1}).json()["plan"]["body"]
    assert (second["revision"], second["steps"][0]["status"]) == (2, "done")
    assert code(ask("PUT", path, {"steps": steps, "revision": 1})) == (409, "conflict")
    pins = ask("PUT", f"/v1/sessions/{session}/pins", {"pins": [{"kind": "tool", "name": "rg"}]}).json()
    assert (pins["pins"]["body"]["revision"], pins["plan"]["body"]["revision"]) == (1, 2)
    assert ask("GET", f"/v1/sessions/{session}/state").json() == pins


def test_how_runs_opened_how_full_it_is_and_what_it_cost(ask: Asked, seeded: Seeded) -> None:
    path = f"/v1/sessions/{seeded.first}"
    (opening,) = ask("GET", f"{path}/openings").json()["openings"]
    assert (opening["run"], opening["opening"]) == (seeded.done, "fresh")
    assert opening["told"]
    assert ask("GET", f"{path}/pressure").json()["pressure"] == {"tokens": 900, "window": 1000, "share": 0.9}
    assert ask("GET", f"/v1/sessions/{seeded.second}/pressure").json() == {"pressure": None}
    total = ask("GET", f"{path}/usage").json()["total"]
    assert (total["input_tokens"], total["unpriced"], total["cost_usd"]) == (900, 1, 0.0)
    rates = {"rates": {"script": {"input": 1000.0, "output": 0.0}}}
    assert ask("POST", f"{path}/usage", rates).json()["total"]["cost_usd"] == pytest.approx(0.9)


# -- recalling and referring --------------------------------------------------------------------------------------------


def test_reading_leaves_no_trace_and_a_recall_for_a_session_does(ask: Asked, seeded: Seeded) -> None:
    before = ask("GET", f"/v1/sessions/{seeded.second}").json()["events"]
    read = ask("GET", "/v1/recall", address=f"{seeded.first}:2-3").json()
    assert len(read["lines"]) == 2
    assert ask("GET", f"/v1/sessions/{seeded.second}/walk").json()["session"] == seeded.first
    hits = ask("GET", "/v1/search", query="parser", session=seeded.second, scope="lineage").json()["hits"]
    assert {hit["session"] for hit in hits} == {seeded.first}
    assert ask("GET", f"/v1/sessions/{seeded.second}").json()["events"] == before
    path = f"/v1/sessions/{seeded.second}/recalls"
    kept = ask("POST", path, {"read": {"address": f"{seeded.first}:2"}}).json()
    assert (kept["found"], len(kept["lines"]["lines"])) == (None, 1)
    assert ask("POST", path, {"search": {"query": "parser"}}).json()["found"]["hits"]
    assert ask("POST", path, {"walk": {}}).json()["lines"]["session"] == seeded.first
    assert code(ask("POST", path, {})) == (400, "invalid_input")
    report = ask("GET", path).json()
    assert (report["recalls"], report["reason"]) == (4, "phase_change")
    (rate,) = ask("GET", "/v1/recalls/rates").json()["rates"]
    assert (rate["continuations"], rate["recalls"]) == (1, 4)


def test_a_message_brings_along_what_it_mentions(ask: Asked, seeded: Seeded) -> None:
    path = f"/v1/sessions/{seeded.open}/references"
    found = ask("GET", path, query="parser").json()["candidates"]
    (candidate,) = [one for one in found if one["session"] == seeded.first]
    text = f"As in {candidate['mention']}"
    prepared = ask("POST", path, {"text": text}).json()
    assert prepared["text"] == "As in @Fix the parser"
    assert prepared["references"][0]["source"] == seeded.first
    assert "tab test" in prepared["context"]
    run = ask("POST", f"/v1/sessions/{seeded.open}/messages", {"text": "So?", "references": [seeded.first]})
    assert run.status_code == 202
    many = [seeded.first, seeded.second, seeded.branch, seeded.child]
    refused = ask("POST", path, {"text": "So?", "references": many})
    assert code(refused) == (409, "reference_too_many")


@pytest.mark.requirement("A1")
def test_a_file_of_another_account_is_not_read_by_its_digest(ask: Asked, seeded: Seeded) -> None:
    theirs = replace(ask.platform, account_id=OTHERS)
    secret = ask.token("read", platform=theirs)
    mine = sessions.start(theirs, "mine")
    event = theirs.store.events(mine.id)[0].id
    for path in (f"/v1/events/{event}", f"/v1/events/{seeded.shown}"):
        assert ask("GET", f"{path}/blobs/{seeded.picture}", secret=secret).status_code == 404


def test_a_timeline_is_read_in_pages_in_both_directions(ask: Asked, seeded: Seeded) -> None:
    (place,) = ask("GET", "/v1/workspaces").json()["workspaces"]
    path = f"/v1/workspaces/{place['id']}/timeline"
    every = ask("GET", path, limit=200).json()["rows"]
    assert len(every) > 3
    first = ask("GET", path, since=0, limit=2).json()
    assert (first["rows"], first["more"]) == (every[: len(first["rows"])], True)
    rest = ask("GET", path, since=first["rows"][-1]["moment"], limit=200).json()
    assert [*first["rows"], *rest["rows"]] == every
    before = ask("GET", path, before=every[-1]["moment"], limit=200).json()["rows"]
    assert before == [row for row in every if row["moment"] < every[-1]["moment"]]
    assert code(ask("GET", path, since=1, before=2)) == (400, "invalid_input")


def test_what_a_key_made_is_not_what_the_same_key_makes_in_another_session(ask: Asked) -> None:
    key = {"idempotency-key": "one"}
    made = [ask("POST", f"/v1/sessions/{spoken(ask)}/continuations", HANDOFF, headers=key) for _ in range(2)]
    assert [answer.status_code for answer in made] == [201, 201]
    assert len({answer.json()["successor"] for answer in made}) == 2
    assert encode(made[0].json()) != encode(made[1].json())


def test_a_branch_is_made_once_under_its_key(ask: Asked) -> None:
    session = ask("POST", "/v1/sessions", {"title": "Here"}).json()["id"]
    path, key = f"/v1/sessions/{session}/forks", {"idempotency-key": "once"}
    made = ask("POST", path, {"seq": 1}, headers=key)
    again = ask("POST", path, {"seq": 1, "title": "Other"}, headers=key)
    assert (made.status_code, again.status_code) == (201, 201)
    assert made.json()["id"] == again.json()["id"]
    assert ask("POST", path, {"seq": 1}).json()["id"] != made.json()["id"]
