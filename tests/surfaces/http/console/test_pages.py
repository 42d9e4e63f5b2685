"""Pages: readable without script, for whoever is signed in and nobody else, whatever stands in the log."""

from __future__ import annotations

import hashlib
import itertools
import json
import re

import msgspec
import pytest
from tests.surfaces.http.console.hostile import HOSTILE
from tests.surfaces.http.console.markup import Markup, acting
from tests.surfaces.http.console.visiting import Visitor, anchors, call, result

from onward.core import bodies
from onward.core.records import Offer, Run
from onward.service import machines, running, sessions
from onward.store.contract import Batch
from onward.surfaces.http.console import answering, rendering
from onward.surfaces.http.console.pages import PAGES
from onward.surfaces.http.console.visiting import Page

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cf500f0003860180a5f0c9e50000000049454e44ae426082"
)
READING = [page for page in PAGES if page.method == "GET" and page.scope == "read"]
WRITING = [page for page in PAGES if page.method == "POST" and page.scope in ("read", "write")]


@pytest.fixture
def visitor() -> Visitor:
    return Visitor()


def filled(page: Page, session: str) -> str:
    """Return a page's path with its placeholders filled in."""
    known = {"session": session, "seq": "1", "part": "0"}
    return re.sub(r"\{(\w+)(:\w+)?\}", lambda found: known.get(found[1], f"{found[1]}_0"), page.path)


def names(pages: list[Page]) -> list[str]:
    return [f"{page.method} {page.path}" for page in pages]


@pytest.mark.parametrize("page", READING, ids=names(READING))
def test_whoever_is_not_signed_in_is_sent_to_the_door_and_back(page: Page) -> None:
    out = Visitor(signed=False)
    path = filled(page, out.session().id)
    answer = out.get(path)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login?next=%2F")
    part = out.get(path, hx_request="true")
    assert part.status_code == 401


@pytest.mark.requirement("A1")
@pytest.mark.parametrize("page", READING, ids=names(READING))
def test_a_session_of_another_account_is_not_there(page: Page, visitor: Visitor) -> None:
    theirs = msgspec.structs.replace(visitor.platform, account_id="acc_0000000000000000000000000Z")
    session = sessions.start(theirs, "A secret title")
    answer = visitor.get(filled(page, session.id))
    assert "A secret title" not in answer.text
    if "{session}" in page.path:
        assert answer.status_code in (400, 404)


@pytest.mark.parametrize("page", WRITING, ids=names(WRITING))
def test_a_form_without_our_mark_changes_nothing(page: Page, visitor: Visitor) -> None:
    session = visitor.session()
    before = visitor.platform.session(session.id)
    for mark in ("", "0" * 64, "é"):
        assert (
            visitor.post(filled(page, session.id), {"text": "x", "title": "x"}, csrf=mark).status_code == 403
        )
    assert visitor.platform.session(session.id) == before


@pytest.mark.parametrize("page", WRITING, ids=names(WRITING))
def test_a_form_of_nobody_is_refused(page: Page) -> None:
    out = Visitor(signed=False)
    assert out.post(filled(page, out.session().id), {"text": "x"}, csrf="").status_code == 401


def test_no_path_is_answered_by_two_pages_and_each_says_what_it_does() -> None:
    assert len({(page.method, page.path) for page in PAGES}) == len(PAGES)
    assert all(page.does.endswith(".") for page in PAGES)
    assert not [page for page in PAGES if page.path.startswith("/v1/")]


def hostile_session(visitor: Visitor, text: str) -> str:
    """Return a session in which a text stands wherever one can."""
    from onward.core.codec import encode
    from onward.store.contract import SessionPatch

    session = visitor.session("x", workspace="/w/" + text[:200].replace("\0", ""), engine="e" + text[:40])
    visitor.platform.store.commit(
        Batch(
            session_patches=(SessionPatch(session_id=session.id, title=text[:110], description=text[:900]),)
        )
    )
    part = bodies.Part(blob="sha256:00", media_type=text[:200], name=text[:200], bytes=1)
    picture = bodies.Part(blob="sha256:00", media_type="image/png", name=text[:200], bytes=1)
    visitor.log(
        session,
        ("message", bodies.Message(role="user", text=text, parts=(part, picture)), "user"),
        ("message", bodies.Message(role="assistant", text=text, model=text[:100]), "agent"),
        ("message", bodies.Message(role="user", text=text, aside=True), "user"),
        ("reasoning", bodies.Reasoning(text=text), "agent"),
        call(text[:100] or "t", "a", {"command": text, text[:50]: text}),
        result("a", text, status="error"),
        result(text[:60], {text[:50]: text}),
        ("terminal", bodies.Terminal(text=text), "system"),
        ("command", bodies.Command(text=text), "user"),
        ("outcome", bodies.Outcome(text=text), "system"),
        ("checkpoint", bodies.Checkpoint(text=text, trigger=text[:100]), "system"),
        (
            "plan",
            bodies.Plan(revision=1, steps=(bodies.PlanStep(id="1", text=text, resolution=text),)),
            "agent",
        ),
        ("pins", bodies.Pins(revision=1, pins=(bodies.Pin(kind="tool", name=text, version=text),)), "agent"),
        (
            "run",
            bodies.RunChange(run=f"run_{text[:50]}", state=text[:50], reason=text, engine=text[:50]),
            "system",
        ),
        (
            "approval",
            bodies.Approval(state="requested", subject=text, request={"x": text}, note=text),
            "agent",
        ),
        ("session", bodies.SessionChange(change="renamed", title=text, reason=text, note=text), "user"),
        ("session", bodies.SessionChange(change="imported", files=(text,), engine=text), "system"),
        ("recalled", bodies.Recalled(how="search", query=text, returned=(text, f"{text}:3")), "agent"),
        ("context", bodies.Notice(summary=text[:100].strip() or "n", text=text), "system"),
        (
            "context",
            bodies.Snapshot(sections=(bodies.Section(name=text[:100].strip() or "n", text=text),)),
            "system",
        ),
        ("context", bodies.Relay(sender=text[:60].strip() or "s", text=text), "agent"),
        ("context", bodies.Opaque(text=text), "system"),
        ("raw", encode({"x": text}), "system"),
        (text[:30].encode("ascii", "replace").decode() or "k", encode({"x": text}), "agent"),
    )
    return session.id


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_does_nothing_wherever_it_stands(text: str, visitor: Visitor) -> None:
    session = hostile_session(visitor, text)
    place = visitor.platform.session(session).workspace_id
    paths = [
        "/",
        f"/sessions/{session}",
        f"/workspaces/{place}",
        "/workspaces",
        f"/sessions/{session}/timeline?after=0",
    ]
    paths += [f"/sessions/{session}/events/{seq}" for seq in (2, 6, 16, 25)]
    for path in paths:
        page = visitor.page(path)
        markup = Markup(page)
        assert acting(markup) == [], path
        assert markup.faults == [], path
        assert markup.open == [], path
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]", page), (
            path
        )
        ids = markup.with_id()
        assert len(ids) == len(set(ids)), path


def test_hostile_words_in_an_address_are_text_too(visitor: Visitor) -> None:
    visitor.say(visitor.session(), "alert")
    for words in ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "\u202ealert"):
        for path in ("/search", "/", "/nothing"):
            answer = visitor.client.get(path, params={"q": words, "text": words, "next": words})
            assert acting(Markup(answer.text)) == []
        assert acting(Markup(visitor.get(f"/{words}").text)) == []


def test_every_page_forbids_what_it_does_not_need(visitor: Visitor) -> None:
    session = visitor.session()
    for path in (
        "/",
        f"/sessions/{session.id}",
        "/login",
        "/nothing",
        "/search?q=x",
        f"/sessions/{session.id}/events/99",
    ):
        answer = visitor.get(path)
        assert answer.headers["content-security-policy"] == answering.POLICY
        assert "unsafe" not in answering.POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert "no-cache" in answer.headers["cache-control"]


def test_pages_have_landmarks_a_skip_link_and_headings_in_order(visitor: Visitor) -> None:
    session = hostile_session(visitor, "# one\n\n### three\n\ntext")
    for path in (
        "/",
        f"/sessions/{session}",
        "/search?q=one",
        "/machines",
        "/workspaces",
        f"/sessions/{session}/events/3",
    ):
        markup = Markup(visitor.page(path))
        assert len(markup.named("main")) == 1
        assert markup.named("a")[0]["href"] == "#main"
        assert all(given.get("aria-label") for given in markup.named("nav"))
        levels = [int(tag[1]) for tag, _ in markup.elements if re.fullmatch("h[1-6]", tag)]
        assert levels.count(1) == 1, path
        assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels)), (
            path,
            levels,
        )
        labelled = {given["for"] for given in markup.named("label") if "for" in given}
        fields = [g for g in markup.named("input", "textarea") if g.get("type") not in ("hidden", "checkbox")]
        assert all(given.get("id") in labelled or given.get("aria-label") for given in fields), path
        assert all("alt" in given for given in markup.named("img"))


def test_times_are_in_utc_and_readable_by_programs(visitor: Visitor) -> None:
    session = visitor.session()
    visitor.say(session, "hello")
    times = Markup(visitor.page(f"/sessions/{session.id}")).named("time")
    assert times
    assert all(given["datetime"].endswith("Z") and given["title"].endswith("UTC") for given in times)


def test_what_a_person_says_waits_for_the_agent_and_the_page_is_shown_anew(visitor: Visitor) -> None:
    session = visitor.session(engine="script")
    answer = visitor.post(
        f"/sessions/{session.id}/messages", {"text": "line one\r\nline two", "engine": "script"}
    )
    assert (answer.status_code, answer.headers["location"]) == (303, f"/sessions/{session.id}#end")
    (run,) = visitor.platform.store.unfinished(session.id)
    assert json.loads(run.input or b"")["text"] == "line one\nline two"
    page = visitor.page(f"/sessions/{session.id}")
    assert "Waiting" in page
    assert f'action="/runs/{run.id}/cancel"' in page


def test_a_message_that_waits_is_on_the_page_before_it_is_in_the_log(visitor: Visitor) -> None:
    session = visitor.session(engine="script")
    visitor.post(f"/sessions/{session.id}/messages", {"text": "first <b>"})
    visitor.post(f"/sessions/{session.id}/messages", {"text": "second"})
    page = visitor.page(f"/sessions/{session.id}")
    assert page.index("first &lt;b&gt;") < page.index("second")
    assert "Another message is before it." in page


def test_a_form_that_is_sent_twice_is_one_message_and_a_changed_one_is_another(visitor: Visitor) -> None:
    session = visitor.session(engine="script")
    once = Markup(visitor.page(f"/sessions/{session.id}"))
    mark = next(given["value"] for given in once.named("input") if given.get("name") == "once")
    for text in ("go", "go", "go on"):
        answer = visitor.post(f"/sessions/{session.id}/messages", {"text": text, "once": mark})
        assert answer.status_code == 303
    assert len(visitor.platform.store.unfinished(session.id)) == 2


def test_a_run_is_cancelled_and_tried_again_from_its_page(visitor: Visitor) -> None:
    session = visitor.session(engine="script")
    run = running.submit(visitor.platform, session.id, "go")
    assert "What waits to be answered" in visitor.page(f"/runs/{run.id}")
    assert visitor.post(f"/runs/{run.id}/cancel").status_code == 303
    assert running.get(visitor.platform, run.id).state == "cancelled"
    assert "Try again" in visitor.page(f"/runs/{run.id}")
    assert visitor.post(f"/runs/{run.id}/retry").status_code == 303
    (again,) = visitor.platform.store.unfinished(session.id)
    assert again.retry_of == run.id
    assert "after <a" in visitor.page(f"/runs/{again.id}")


def test_what_was_refused_is_still_there_to_be_sent_elsewhere(visitor: Visitor) -> None:
    session = visitor.session()
    visitor.post(f"/sessions/{session.id}/archive")
    answer = visitor.post(f"/sessions/{session.id}/messages", {"text": "too late"})
    assert answer.status_code == 409
    empty = visitor.post(f"/sessions/{visitor.session().id}/messages", {"text": "   "})
    assert empty.status_code == 400
    assert "it is empty" in empty.text


def test_a_session_that_takes_no_messages_says_why(visitor: Visitor) -> None:
    session = visitor.session()
    visitor.post(f"/sessions/{session.id}/archive")
    page = visitor.page(f"/sessions/{session.id}")
    assert "<textarea" not in page
    assert "This session is archived. It can be read." in page


def test_a_visitor_who_may_only_read_is_offered_nothing_to_write(visitor: Visitor) -> None:
    from onward.service import tokens

    session = visitor.session()
    _, secret = tokens.create(visitor.platform, "reader", ("read",))
    reader = Visitor(visitor.platform, signed=False)
    assert reader.post("/login", {"token": secret}, csrf="").status_code == 303
    page = reader.page(f"/sessions/{session.id}")
    assert "<textarea" not in page
    assert "You can read here, and not write." in page
    assert reader.post(f"/sessions/{session.id}/messages", {"text": "x"}).status_code == 403


def test_one_event_is_shown_exactly_with_its_digest_and_its_raw_body(visitor: Visitor) -> None:
    session = visitor.session()
    (event,) = visitor.say(session, "exactly *this*\x07")
    page = visitor.page(f"/sessions/{session.id}/events/2")
    assert f"sha256:{event.digest.hex()}" in page
    assert "exactly *this*\\x07" in page
    raw = visitor.get(f"/sessions/{session.id}/events/2/raw")
    assert raw.content == event.body
    assert raw.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert raw.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize("seq", ["0", "3", "x", "-1", "9" * 30, "٣"])
def test_an_event_that_is_not_there_is_told_as_that(seq: str, visitor: Visitor) -> None:
    session = visitor.session()
    visitor.say(session, "one")
    assert visitor.get(f"/sessions/{session.id}/events/{seq}").status_code in (400, 404)


@pytest.mark.parametrize("query", ["before=x", "before=1&after=2", "at=-1", "after=" + "9" * 40])
def test_a_query_that_cannot_be_read_is_told_as_that(query: str, visitor: Visitor) -> None:
    assert visitor.get(f"/sessions/{visitor.session().id}?{query}").status_code == 400


def test_pictures_come_only_from_the_log_and_cannot_act(visitor: Visitor) -> None:
    session = visitor.session()
    digest = f"sha256:{hashlib.sha256(PNG).hexdigest()}"
    svg = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"
    other = f"sha256:{hashlib.sha256(svg).hexdigest()}"
    visitor.platform.store.commit(Batch(blobs=((digest, PNG), (other, svg))))
    parts = (
        bodies.Part(blob=digest, media_type="image/png", name="a.png"),
        bodies.Part(blob=other, media_type="image/svg+xml", name="b.svg"),
        bodies.Part(blob=other, media_type="text/html", name="c.html"),
        bodies.Part(blob="sha256:" + "0" * 64, media_type="image/png", name="gone.png"),
    )
    visitor.log(session, ("message", bodies.Message(role="user", text="", parts=parts), "user"))
    base = f"/sessions/{session.id}/events/2/parts"
    shown = visitor.get(f"{base}/0")
    assert (shown.content, shown.headers["content-type"]) == (PNG, "image/png")
    for number in (1, 2):
        kept = visitor.get(f"{base}/{number}")
        assert kept.headers["content-type"] == "application/octet-stream"
        assert kept.headers["content-disposition"].startswith("attachment")
    for answer in (shown, visitor.get(f"{base}/1")):
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert visitor.get(f"{base}/3").status_code == 404
    assert visitor.get(f"{base}/4").status_code == 404


def test_a_line_of_a_million_characters_is_cut_and_all_of_it_is_one_click_away(visitor: Visitor) -> None:
    session = visitor.session()
    visitor.say(session, "x" * 1_000_000)
    page = visitor.page(f"/sessions/{session.id}")
    assert len(page) < 60_000
    assert "997,000 characters not shown" in page
    assert f"/sessions/{session.id}/events/2" in page
    assert len(visitor.get(f"/sessions/{session.id}/events/2/raw").content) > 1_000_000


def test_search_marks_what_a_later_event_replaces(visitor: Visitor) -> None:
    session = visitor.session("The limit")
    visitor.say(
        session, "The limit is 100 requests.", "Noted.", "The limit is 250 requests, not 100.", "Noted."
    )
    page = visitor.page("/search?q=limit+requests")
    assert "hit replaced" in page
    assert f"/sessions/{session.id}?at=4#e4" in page


def test_a_search_for_no_words_is_told_as_that(visitor: Visitor) -> None:
    answer = visitor.get("/search?q=%3F%3F")
    assert answer.status_code == 400
    assert "no words" in answer.text


def test_machines_are_told_as_online_or_not(visitor: Visitor) -> None:
    offers = (Offer(name="script", version="1"), Offer(name="codex", unavailable="not installed"))
    machines.register(visitor.platform, "desk", offers)
    page = visitor.page("/machines")
    assert "desk" in page
    assert "online" in page
    assert "cannot run: not installed" in page


def test_the_page_of_a_session_tells_state_usage_and_how_full_the_context_is(visitor: Visitor) -> None:
    from onward.core.codec import encode

    session = visitor.session(engine="script")
    usage = bodies.Usage(
        input_tokens=90_000, output_tokens=10, cost_usd=0.5, window=100_000, context_tokens=90_000
    )
    run = Run(
        id=visitor.platform.ids.new("run"),
        session_id=session.id,
        created_at=1,
        engine="script",
        state="failed",
        usage=encode(usage),
        reason="no key",
    )
    visitor.platform.store.commit(Batch(runs=(run,)))
    page = visitor.page(f"/sessions/{session.id}")
    for told in (
        "The last run failed",
        "90% of 100k tokens",
        "Continue in a fresh session",
        "$0.50",
        "no key",
        "Try again",
    ):
        assert told in page
    (meter,) = Markup(page).named("meter")
    assert (meter["value"], meter["max"]) == ("90000", "100000")


def test_an_empty_session_says_what_to_do(visitor: Visitor) -> None:
    page = visitor.page(f"/sessions/{visitor.session().id}?before=1")
    assert "There are no events here." in page


def test_a_fault_is_told_without_its_inside(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret inside")

    monkeypatch.setattr("onward.surfaces.http.console.about.facts", broken)
    answer = visitor.get(f"/sessions/{visitor.session().id}")
    assert answer.status_code == 500
    assert "secret inside" not in answer.text
    assert answer.headers["x-request-id"] in answer.text
    assert answer.headers["content-type"].startswith("text/html")


def test_the_recall_report_is_told(visitor: Visitor) -> None:
    session = visitor.session()
    assert "Nothing was recalled here." in visitor.page(f"/sessions/{session.id}/recalls")
    recalled = bodies.Recalled(
        how="search", query="q", returned=(f"{session.id}:1",), had_omitted=(f"{session.id}:1",)
    )
    visitor.log(session, ("recalled", recalled, "agent"))
    page = visitor.page(f"/sessions/{session.id}/recalls")
    assert f"/sessions/{session.id}?at=1#e1" in page


def test_the_look_is_kept_and_only_goes_back_to_pages_of_ours(visitor: Visitor) -> None:
    answer = visitor.post("/theme", {"theme": "dark", "back": "/search?q=x"})
    assert answer.headers["location"] == "/search?q=x"
    assert '<html lang="en" data-theme="dark">' in visitor.page("/")
    for elsewhere in (
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/\r\nx: y",
    ):
        assert visitor.post("/theme", {"theme": "auto", "back": elsewhere}).headers["location"] == "/"
    assert visitor.post("/theme", {"theme": "pink"}).status_code == 400


def test_static_files_are_kept_under_addresses_that_change_with_them(visitor: Visitor) -> None:
    page = visitor.page("/")
    paths = [g["href"] for g in Markup(page).named("link")] + [g["src"] for g in Markup(page).named("script")]
    for path in paths:
        answer = visitor.get(path)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
    assert visitor.get("/static/console.css?v=0").headers["cache-control"] == "no-cache"
    for path in (
        "/static/../pages.py",
        "/static/%2e%2e/pages.py",
        "/static/vendor/MANIFEST.json",
        "/static/",
    ):
        assert visitor.get(path).status_code == 404


def test_vendored_files_are_those_that_the_manifest_names() -> None:
    folder = rendering.STATIC / "vendor"
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    scripts = {path.name for path in folder.iterdir() if path.suffix == ".js"}
    assert scripts == set(manifest)
    for name, record in manifest.items():
        content = (folder / name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (record["bytes"], record["sha256"])


def test_no_template_has_script_or_style_of_its_own() -> None:
    for path in (rendering.HERE / "templates").glob("*.html"):
        text = path.read_text()
        assert not re.search(
            r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|\|\s*safe|hx-on|javascript:", text
        ), path.name


def test_a_page_that_is_loaded_in_place_is_the_same_part_of_the_whole_page(visitor: Visitor) -> None:
    session = visitor.session()
    visitor.say(session, *map(str, range(150)))
    whole = visitor.page(f"/sessions/{session.id}?before=60")
    part = visitor.page(f"/sessions/{session.id}/timeline?before=60")
    assert anchors(part) == anchors(whole)
    assert "<html" not in part
