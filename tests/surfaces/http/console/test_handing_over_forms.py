"""What people do: continue, approve, branch, take words along, mention. Every form without script."""

from __future__ import annotations

import re
import threading
from typing import Any

import msgspec
import pytest
from tests.surfaces.http.console.handing import continued, ended, fields, parts, told
from tests.surfaces.http.console.markup import Markup, acting
from tests.surfaces.http.console.visiting import Visitor

from onward.core.bodies import Approval, Message
from onward.core.codec import body_of
from onward.core.records import Session
from onward.errors import ContinuationParked
from onward.service import continuing, delegating, drafting, permitting, running, sessions

ELSEWHERE = "acc_0000000000000000000000000Z"


@pytest.fixture
def visitor() -> Visitor:
    return Visitor()


def form(visitor: Visitor, session: Session, purpose: str = "Write the docs", **more: str) -> dict[str, str]:
    """Return the form to continue a session, as the page has it."""
    query = "&".join(f"{name}={value}" for name, value in more.items())
    return fields(
        visitor.page(f"/sessions/{session.id}/continue?purpose={purpose.replace(' ', '+')}&{query}")
    )


def successors(visitor: Visitor, session: Session) -> list[str]:
    return [link.to_session for link in sessions.continuations(visitor.platform, session.id)]


def newest(visitor: Visitor, session_id: str) -> str:
    """Return the text of the newest message."""
    event = visitor.platform.store.events(session_id, kinds=("message",), limit=1, newest_first=True)[0]
    body = body_of(event)
    assert isinstance(body, Message)
    return body.text


def test_a_purpose_gives_a_draft_in_a_form_and_sending_it_the_successor(visitor: Visitor) -> None:
    session = told(visitor)
    first = visitor.page(f"/sessions/{session.id}/continue")
    assert "Draft it" in first
    given = form(visitor, session, title="Docs")
    assert given["purpose"] == "Write the docs"
    assert "[2]" in given["established_facts"]
    assert given["decisions"] == "“We decided: no rolling summaries.” [4]"
    given |= {
        "text": "Write them now, please.",
        "decisions": given["decisions"] + "\nThe port stays 8421. [2]",
        "open_questions": "Which format?\n\n  In which language?  ",
        "reason": "phase_change",
        "engine": "script",
    }
    del given["source-1"]
    answer = visitor.post(f"/sessions/{session.id}/continue", given)
    assert answer.status_code == 303
    (successor,) = successors(visitor, session)
    assert answer.headers["location"] == f"/sessions/{successor}"
    record = continuing.manifest(visitor.platform, successor)
    assert record.title == "Docs"
    assert record.reason == "phase_change"
    assert record.actor == "user"
    assert record.handoff.decisions[-1] == "The port stays 8421. [2]"
    assert record.handoff.open_questions == ("Which format?", "In which language?")
    assert len(record.sources) == len([name for name in given if name.startswith("source-")])
    assert len(record.recommended_unused) == 1
    assert record.state.plan.transfer == "carry"
    assert newest(visitor, successor) == "Write them now, please."


@pytest.mark.requirement("C3")
def test_a_form_that_is_sent_twice_makes_one_successor(visitor: Visitor) -> None:
    session = told(visitor)
    given = form(visitor, session) | {"text": "Go on there."}
    answers = [visitor.post(f"/sessions/{session.id}/continue", given) for _ in range(2)]
    assert {answer.headers["location"] for answer in answers} == {
        f"/sessions/{successors(visitor, session)[0]}"
    }
    assert len(successors(visitor, session)) == 1


@pytest.mark.requirement("C3")
def test_a_form_that_is_sent_twice_at_once_makes_one_successor(visitor: Visitor) -> None:
    session = told(visitor)
    given = form(visitor, session) | {"text": "Go on there."}
    ready, found = threading.Barrier(2), []

    def press() -> None:
        own = Visitor.__new__(Visitor)
        own.__dict__ |= visitor.__dict__
        ready.wait(timeout=10)
        found.append(own.post(f"/sessions/{session.id}/continue", given).headers["location"])

    threads = [threading.Thread(target=press) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(set(found)) == 1
    assert len(found) == 2
    assert len(successors(visitor, session)) == 1


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"title": ""}, "The shape of the handoff: The continuation is not well formed: it needs a title."),
        ({"title": "t" * 121}, "121 characters"),
        ({"reason": "whim"}, "reason must be one of"),
        ({"purpose": "  "}, "needs a purpose"),
        ({"budget": "70"}, "The budget: The parts that are never left out need"),
        ({"budget": "many"}, "it is a number of tokens up to 2,000,000"),
        ({"more": "999 not there"}, "The sources:"),
        ({"more": "what is this"}, "expected 12, 12-18"),
        ({"spec-0": "nonsense"}, "it is not as it was when the form was made"),
        ({"description": "d" * 1025}, "1,024 bytes"),
    ],
)
def test_what_is_refused_is_told_with_its_check_and_everything_typed_stays(
    changed: dict[str, str], words: str, visitor: Visitor
) -> None:
    session = told(visitor)
    given = form(visitor, session) | {"text": "My words", "cautions": "Mind the gap <b>"} | changed
    answer = visitor.post(f"/sessions/{session.id}/continue", given)
    assert answer.status_code >= 400
    assert words in parts(answer.text)
    assert successors(visitor, session) == []
    assert newest(visitor, session.id) == "Now write the proposal."
    if "spec-0" in changed:
        return
    kept = fields(answer.text)
    for name in ("text", "cautions", "established_facts", "purpose", "budget", "key"):
        assert kept[name] == given[name], name
    assert 'role="alert"' in answer.text
    assert acting(Markup(answer.text)) == []


@pytest.mark.requirement("C6")
def test_unfinished_work_is_listed_and_moves_when_it_is_checked(visitor: Visitor) -> None:
    session = told(visitor)
    child = delegating.delegate(visitor.platform, session.id, "Count", "Count them", engine="script")
    waiting = running.submit(visitor.platform, session.id, "and this too")
    given = form(visitor, session)
    moving = [name for name in given if name.startswith("move-")]
    assert {given[name] for name in moving} == {child.child, waiting.id}
    without = {name: value for name, value in given.items() if name not in moving}
    refused = visitor.post(f"/sessions/{session.id}/continue", without)
    assert "Unfinished work:" in parts(refused.text)
    assert child.child in refused.text
    made = visitor.post(f"/sessions/{session.id}/continue", given).headers["location"].rpartition("/")[2]
    state = continuing.manifest(visitor.platform, made).state
    assert (state.children, state.runs) == ((child.child,), (waiting.id,))


def test_weighing_changes_nothing_and_says_what_it_would_cost(visitor: Visitor) -> None:
    session = told(visitor)
    given = form(visitor, session) | {"decisions": "We use tabs.", "text": "x" * 400}
    before = visitor.platform.session(session.id).head_seq
    page = visitor.post(f"/sessions/{session.id}/continue/review", given)
    assert page.status_code == 200
    words = parts(page.text)
    assert "Decision cites nothing: We use tabs." in words
    assert "about 100 tokens more" in words
    assert fields(page.text)["decisions"] == "We use tabs."
    part = visitor.client.post(
        f"/sessions/{session.id}/continue/review",
        data={"csrf": fields(page.text)["csrf"], **given},
        headers={"hx-request": "true", "origin": "http://127.0.0.1:8421"},
    )
    assert "<main" not in part.text
    assert "Decision cites nothing" in part.text
    assert 'id="cost-0"' in part.text
    tight = visitor.post(f"/sessions/{session.id}/continue/review", given | {"budget": "60"})
    assert "too many" in parts(tight.text)
    assert visitor.platform.session(session.id).head_seq == before


def test_a_source_that_does_not_fit_says_so_beside_its_box(visitor: Visitor) -> None:
    session = told(visitor)
    visitor.say(session, "We decided: " + "many words " * 600, "Yes.", "Go on.")
    given = form(visitor, session, budget="1000")
    page = visitor.post(f"/sessions/{session.id}/continue/review", given | {"more": "8 all of it"})
    assert re.search(r"would not fit: [\d,]+ tokens", page.text)


def test_nothing_said_is_nothing_to_continue(visitor: Visitor) -> None:
    empty = visitor.session()
    answer = visitor.get(f"/sessions/{empty.id}/continue?purpose=x")
    assert answer.status_code >= 400
    assert "No person or trigger has written" in answer.text


def test_writing_in_a_continued_session_offers_to_go_there_or_to_branch_and_the_words_go_along(
    visitor: Visitor,
) -> None:
    session = told(visitor)
    made = continued(visitor, session)
    refused = visitor.post(f"/sessions/{session.id}/messages", {"text": "One more thing <i>"})
    assert refused.status_code == 409
    assert "This conversation went on in" in parts(refused.text)
    given = fields(refused.text)
    assert given["text"] == "One more thing <i>"
    head = visitor.platform.session(made.successor).head_seq
    opened = visitor.post(f"/sessions/{session.id}/instead", given | {"how": "open"}).headers["location"]
    assert opened.startswith(f"/sessions/{made.successor}?carried=")
    page = visitor.page(opened.partition("#")[0])
    assert fields(page)["text"] == "One more thing <i>"
    assert "It is not sent yet." in page
    assert visitor.platform.session(made.successor).head_seq == head
    assert len(visitor.platform.store.unfinished(made.successor)) == 1  # the first run, and no message
    visitor.post(f"/sessions/{session.id}/instead", given | {"how": "branch"})
    branched = visitor.post(f"/sessions/{session.id}/instead", given | {"how": "branch"})
    name = branched.headers["location"].partition("?")[0].rpartition("/")[2]
    branches = [link for link in visitor.platform.store.links(session.id) if link.type == "fork"]
    assert [link.to_session for link in branches] == [name]
    page = visitor.page(branched.headers["location"].partition("#")[0])
    assert fields(page)["text"] == "One more thing <i>"
    assert "Branched from “Rethink compaction”" in parts(page)
    assert visitor.post(f"/sessions/{name}/messages", {"text": "different"}).status_code == 303


@pytest.mark.requirement("A1")
def test_words_on_their_way_are_nobody_elses(visitor: Visitor) -> None:
    session = told(visitor)
    key = visitor.house.carried.put(ELSEWHERE, "their words")
    assert "their words" not in visitor.page(f"/sessions/{session.id}?carried={key}")
    assert "their words" not in visitor.page(f"/sessions/{session.id}?carried=nothing")


def test_branching_from_an_event_shares_what_came_before_once(visitor: Visitor) -> None:
    session = told(visitor)
    page = visitor.page(f"/sessions/{session.id}")
    assert f'href="/sessions/{session.id}/branch?at=3">Branch from here</a>' in page
    asked = visitor.page(f"/sessions/{session.id}/branch?at=3")
    given = fields(asked) | {"title": "Another way", "how": "here"}
    places = {visitor.post(f"/sessions/{session.id}/branch", given).headers["location"] for _ in range(2)}
    (place,) = places
    name = place.rpartition("/")[2].removesuffix("#end")
    link = visitor.platform.store.links(name)[0]
    assert (link.type, link.from_session, link.seq) == ("fork", session.id, 3)
    assert visitor.platform.session(name).title == "Another way"
    assert "Say this differently" not in asked


def test_a_message_can_be_said_differently_from_before_it(visitor: Visitor) -> None:
    session = told(visitor)
    given = fields(visitor.page(f"/sessions/{session.id}/branch?at=4")) | {"how": "again"}
    place = visitor.post(f"/sessions/{session.id}/branch", given).headers["location"]
    name = place.partition("?")[0].rpartition("/")[2]
    assert visitor.platform.store.links(name)[0].seq == 3
    assert fields(visitor.page(place.partition("#")[0]))["text"].startswith(
        "We decided: no rolling summaries."
    )


@pytest.mark.parametrize(("at", "status"), [("99", 404), ("x", 400), ("0", 404), ("", 400)])
def test_branching_from_what_is_no_event_is_refused(at: str, status: int, visitor: Visitor) -> None:
    session = told(visitor)
    assert visitor.post(f"/sessions/{session.id}/branch", {"at": at, "how": "here"}).status_code == status


def test_a_title_that_is_too_long_keeps_the_branch_form(visitor: Visitor) -> None:
    session = told(visitor)
    answer = visitor.post(f"/sessions/{session.id}/branch", {"at": "3", "title": "t" * 121, "key": "k"})
    assert answer.status_code == 400
    assert "121 characters" in answer.text
    assert "t" * 121 in answer.text


def parked(visitor: Visitor) -> tuple[Session, str]:
    """Return a session with a continuation that waits, and its request."""
    session = told(visitor)
    asking = msgspec.structs.replace(visitor.platform, approval="agent")
    draft = drafting.draft_handoff(asking, session.id, "The docs", title="Docs & <b>more")
    with pytest.raises(ContinuationParked) as waits:
        continuing.continue_session(asking, session.id, draft.command(), actor="agent", key="k")
    return session, str(waits.value.details["approval"])


def test_a_continuation_that_waits_is_on_the_page_of_its_session_and_among_the_approvals(
    visitor: Visitor,
) -> None:
    session, request = parked(visitor)
    for path in ("/approvals", f"/sessions/{session.id}"):
        page = visitor.page(path)
        assert "“Docs & <b>more”" in parts(page).replace("&lt;", "<")
        assert f'action="/approvals/{request}/accept"' in page
    assert ">1<" in visitor.page("/approvals/count")
    assert visitor.post(f"/approvals/{request}/accept").headers["location"] == (
        f"/sessions/{successors(visitor, session)[0]}"
    )
    assert visitor.page("/approvals/count").strip() == ""
    assert "accepted" in parts(visitor.page("/approvals?answered=1"))
    again = visitor.post(f"/approvals/{request}/accept").headers["location"]
    assert again == f"/sessions/{successors(visitor, session)[0]}"


def test_a_continuation_that_waits_can_be_changed_and_then_accepted(visitor: Visitor) -> None:
    session, request = parked(visitor)
    given = fields(visitor.page(f"/approvals/{request}"))
    assert given["title"] == "Docs & <b>more"
    refused = visitor.post(f"/approvals/{request}/accept", given | {"title": ""})
    assert refused.status_code >= 400
    assert "it needs a title" in refused.text
    assert fields(refused.text)["established_facts"] == given["established_facts"]
    assert successors(visitor, session) == []
    visitor.post(f"/approvals/{request}/accept", given | {"title": "Better", "next_actions": "One"})
    record = continuing.manifest(visitor.platform, successors(visitor, session)[0])
    assert record.title == "Better"
    assert record.handoff.next_actions == ("One",)
    assert record.actor == "user"


def test_a_continuation_that_waits_can_be_declined_with_a_note(visitor: Visitor) -> None:
    session, request = parked(visitor)
    assert (
        visitor.post(f"/approvals/{request}/decline", {"note": "not yet"}).headers["location"] == "/approvals"
    )
    words = parts(visitor.page("/approvals?answered=1"))
    assert "declined" in words
    assert "not yet" in words
    late = visitor.post(f"/approvals/{request}/accept")
    assert late.status_code >= 400
    assert "not yet" in late.text
    assert successors(visitor, session) == []


def asked(visitor: Visitor) -> tuple[Session, str]:
    """Return a session whose engine asks for permission, and the request."""
    session = told(visitor)
    run = running.submit(visitor.platform, session.id, "clean up", engine="script")
    held = running.claim(visitor.platform, run.id, "w", engine="script")
    body = Approval(
        state="requested",
        subject="Run a command",
        request={"permission": {"tool": "Bash", "input": {"command": "rm -rf <b>"}, "edits": False}},
    )
    event = visitor.platform.event("approval", body, "agent", run_id=run.id)
    return session, running.record(visitor.platform, held, [event])[0].id


@pytest.mark.parametrize(("answer", "state"), [("allow", "granted"), ("deny", "denied")])
def test_a_permission_is_allowed_or_denied_where_it_is_seen(
    answer: str, state: str, visitor: Visitor
) -> None:
    session, request = asked(visitor)
    page = visitor.page(f"/sessions/{session.id}")
    assert "rm -rf &lt;b&gt;" in page
    given: dict[str, Any] = {"answer": answer, "note": "a note", "back": "session"}
    assert (
        visitor.post(f"/approvals/{request}/answer", given).headers["location"]
        == f"/sessions/{session.id}#end"
    )
    found = permitting.requested(visitor.platform, request)
    assert (found.state, found.note) == (state, "a note")
    assert visitor.post(f"/approvals/{request}/answer", given).status_code == 303
    other = "deny" if answer == "allow" else "allow"
    late = visitor.post(f"/approvals/{request}/answer", {"answer": other})
    assert late.status_code == 409
    assert f"is {state}" in late.text


@pytest.mark.requirement("A1")
def test_what_waits_for_another_account_is_not_there(visitor: Visitor) -> None:
    _, request = parked(visitor)
    theirs = Visitor(msgspec.structs.replace(visitor.platform, account_id=ELSEWHERE))
    assert request not in theirs.page("/approvals?answered=1")
    assert theirs.get(f"/approvals/{request}").status_code == 404
    for verb in ("accept", "decline"):
        assert theirs.post(f"/approvals/{request}/{verb}").status_code == 404
    assert theirs.post(f"/approvals/{request}/answer", {"answer": "allow"}).status_code == 404


def test_sessions_to_mention_are_options_and_choosing_one_keeps_what_was_written(visitor: Visitor) -> None:
    session, other = told(visitor), visitor.session("Release ] notes")
    visitor.say(other, "hello", "there")
    options = visitor.page(f"/sessions/{session.id}/mentions?q=release")
    assert options.count('role="option"') == 1
    assert "data-mention=" in options
    page = visitor.post(f"/sessions/{session.id}/mention", {"text": "Compare with", "q": "release"}).text
    assert fields(page)["text"] == "Compare with"
    found = re.search(r'name="add" value="([^"]+)"', page)
    assert found is not None
    chosen = {"text": "Compare with", "add": found[1]}
    place = visitor.post(f"/sessions/{session.id}/mention", chosen).headers["location"]
    text = fields(visitor.page(place.partition("#")[0]))["text"]
    assert text.startswith("Compare with @[Release \\] notes](onward-session:")
    assert visitor.post(f"/sessions/{session.id}/messages", {"text": text}).status_code == 303
    run = visitor.platform.store.unfinished(session.id)[0]
    assert run.context is not None


def test_a_mention_of_nothing_is_told_on_the_page(visitor: Visitor) -> None:
    session = told(visitor)
    wrong = "@[x](onward-session:bm90aGluZw)"
    answer = visitor.post(f"/sessions/{session.id}/mention", {"text": "keep me", "add": wrong})
    assert answer.status_code >= 400
    assert fields(answer.text)["text"] == "keep me"
    assert 'role="alert"' in answer.text


def test_a_branch_with_a_key_is_made_once(visitor: Visitor) -> None:
    session = told(visitor)
    first = sessions.fork(visitor.platform, session.id, 2, key="k")
    assert sessions.fork(visitor.platform, session.id, 3, key="k").id == first.id
    assert visitor.platform.session(session.id).head_seq == session.head_seq + 1


def test_those_who_may_only_read_are_offered_no_form(visitor: Visitor) -> None:
    from onward.service import tokens

    session, request = parked(visitor)
    made = continued(visitor, session)
    ended(visitor, made.successor, "failed", "no credit")
    _, secret = tokens.create(visitor.platform, "reader", ("read",))
    reader = Visitor.__new__(Visitor)
    reader.__dict__ |= visitor.__dict__
    from starlette.testclient import TestClient

    reader.client = TestClient(visitor.app, base_url="http://127.0.0.1:8421", follow_redirects=False)
    reader.client.cookies.set("onward_8421", secret)
    for path in (
        f"/sessions/{session.id}",
        f"/sessions/{made.successor}",
        "/approvals",
        f"/manifests/{made.manifest}",
        f"/sessions/{session.id}/branch",
    ):
        page = reader.page(path)
        assert re.findall(r'action="(/(?:sessions|approvals|runs)/[^"]*)"', page) == [], path
    assert reader.post(f"/approvals/{request}/accept").status_code == 403


def test_how_much_waits_is_told_without_reading_logs_that_were_looked_through(visitor: Visitor) -> None:
    session = told(visitor)
    assert visitor.page("/approvals/count").strip() == ""
    read: list[str] = []
    store = visitor.platform.store
    genuine = store.events

    def watched(name: str, **more: Any) -> Any:
        read.append(name)
        return genuine(name, **more)

    store.events = watched  # type: ignore[assignment, method-assign]
    try:
        assert visitor.page("/approvals/count").strip() == ""
        assert read == []
        visitor.say(session, "more")
        assert visitor.page("/approvals/count").strip() == ""
        assert read == [session.id]
    finally:
        store.events = genuine  # type: ignore[method-assign]


def test_a_wrong_handoff_is_corrected_in_another_successor_and_stays_as_it_was(visitor: Visitor) -> None:
    session = told(visitor)
    wrong = continued(visitor, session, "The wrong way")
    page = visitor.page(f"/manifests/{wrong.manifest}")
    path = f"/sessions/{session.id}/continue?from={wrong.manifest}"
    assert f'href="{path}"' in page
    given = fields(visitor.page(path))
    assert given["title"] == "The wrong way"
    assert "[4]" in given["decisions"]
    assert (
        visitor.post(f"/sessions/{session.id}/continue", given | {"title": "The right way"}).status_code
        == 303
    )
    titles = [visitor.platform.session(name).title for name in successors(visitor, session)]
    assert titles == ["The wrong way", "The right way"]
    assert visitor.page(f"/manifests/{wrong.manifest}") == page
    other = told(visitor, "Another")
    assert visitor.get(f"/sessions/{other.id}/continue?from={wrong.manifest}").status_code == 400
