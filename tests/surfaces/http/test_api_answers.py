"""How the server answers, whatever it is asked: tags, heads, odd texts, bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.http.asking import Asked, code
from tests.surfaces.http.seeded import PICTURE, Seeded

from onward.core.bodies import Message
from onward.service import machines, running, sessions, workspaces
from onward.service.platform import Platform
from onward.store import open_store
from onward.store.contract import Append, Batch
from onward.surfaces.http import sessions as over_http
from onward.surfaces.http.live_streaming import MEDIA as STREAM
from onward.surfaces.http.table import ROUTES


@pytest.fixture(params=["memory", "sqlite"])
def ask(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'o.db'}"
    made = Asked(Platform(store=open_store(url), host="home"))
    yield made
    made.platform.store.close()


def test_a_session_that_is_known_is_not_sent_again_until_anything_about_it_changes(ask: Asked) -> None:
    session = ask("POST", "/v1/sessions", {"title": "one"}).json()["id"]
    path = f"/v1/sessions/{session}"
    first = ask("GET", path)
    tag = first.headers["etag"]
    assert tag.startswith('W/"')
    for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        again = ask("GET", path, headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert ask("GET", path, headers={"if-none-match": '"other"'}).status_code == 200
    assert ask("POST", f"{path}/rename", {"title": "two"}).json()["title"] == "two"
    changed = ask("GET", path, headers={"if-none-match": tag})
    assert (changed.status_code, changed.json()["title"]) == (200, "two")
    assert changed.headers["cache-control"] == "private, no-cache"
    assert changed.headers["vary"] == "Authorization"


@pytest.mark.requirement("L5")
def test_an_event_keeps_its_tag_until_it_is_erased(ask: Asked) -> None:
    seeded = Seeded(ask.platform)
    path = f"/v1/events/{seeded.shown}"
    tag = ask("GET", path).headers["etag"]
    assert tag.startswith('"')
    assert ask("GET", path, headers={"if-none-match": tag}).status_code == 304
    noted = ask("POST", f"{path}/erase", {"reason": "a key"}).json()
    assert (noted["body"]["change"], noted["body"]["event"]) == ("erased", seeded.shown)
    gone = ask("GET", path, headers={"if-none-match": tag})
    assert (gone.status_code, gone.json()["body"]) == (200, {"erased": True, "reason": "a key"})
    assert ask("GET", f"/v1/sessions/{seeded.first}/verify").json()["ok"] is True
    assert code(ask("GET", f"{path}/blobs/{seeded.picture}")) == (404, "not_found")


def test_a_manifest_is_answered_byte_for_byte_under_its_digest(ask: Asked) -> None:
    seeded = Seeded(ask.platform)
    stored = ask.platform.store.manifest(seeded.manifest)
    assert stored is not None
    raw = ask("GET", f"/v1/manifests/{seeded.manifest}/raw")
    assert (raw.content, raw.headers["etag"]) == (stored.body, f'"{stored.digest}"')
    again = ask("GET", f"/v1/manifests/{seeded.second}/raw", headers={"if-none-match": raw.headers["etag"]})
    assert again.status_code == 304
    compared = ask("GET", f"/v1/manifests/{seeded.manifest}/verify").json()
    assert (compared["same"], compared["differences"]) == (True, [])
    view = ask("GET", f"/v1/manifests/{seeded.manifest}/view").json()
    assert view["lost"] == []
    assert view["sources"][0]["section"] == "initiating message"


def test_a_file_that_somebody_sent_does_nothing_where_it_is_shown(ask: Asked) -> None:
    seeded = Seeded(ask.platform)
    found = ask("GET", f"/v1/events/{seeded.shown}/blobs/{seeded.picture}")
    assert (found.content, found.headers["content-type"]) == (PICTURE, "image/png")
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["content-security-policy"] == "default-src 'none'; sandbox"
    other = ask.platform.store.events(seeded.first)[0].id
    assert code(ask("GET", f"/v1/events/{other}/blobs/{seeded.picture}")) == (404, "not_found")
    assert code(ask("GET", f"/v1/events/{seeded.shown}/blobs/sha256:0")) == (404, "not_found")


def test_head_says_what_get_would_and_sends_nothing(ask: Asked) -> None:
    session = ask("POST", "/v1/sessions", {"title": "one"}).json()["id"]
    for path in ("/v1/health", "/v1/sessions", f"/v1/sessions/{session}", "/v1/sessions/ses_none"):
        get, head = ask("GET", path), ask("HEAD", path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        for name in ("content-length", "content-type"):
            assert head.headers[name] == get.headers[name]
    stream = ask("HEAD", f"/v1/sessions/{session}/events/stream")
    assert (stream.status_code, stream.headers["content-type"].partition(";")[0]) == (200, STREAM)
    assert ask("HEAD", "/v1/sessions/ses_00000000000000000000000007/events/stream").status_code == 404
    assert code(ask("GET", "/v1/sessions", secret="")) == (401, "unauthorized")
    assert ask("HEAD", "/v1/sessions", secret="").status_code == 401


def test_options_says_what_a_path_can_do_and_so_does_a_refusal(ask: Asked) -> None:
    by_path: dict[str, set[str]] = {}
    for route in ROUTES:
        by_path.setdefault(route.path, {"OPTIONS"}).add(route.method)
    for path, methods in by_path.items():
        allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
        asked = ask("OPTIONS", path.replace("{", "").replace("}", ""), secret="")
        assert (asked.status_code, asked.headers["allow"], asked.content) == (204, allowed, b"")
        assert "access-control-allow-origin" not in asked.headers
        refused = ask("PATCH", path.replace("{", "").replace("}", ""))
        assert (code(refused), refused.headers["allow"]) == ((405, "method_not_allowed"), allowed)


def test_what_is_secret_is_kept_by_nobody(ask: Asked) -> None:
    made = ask("POST", "/v1/tokens", {"name": "t", "scopes": ["read"]})
    assert made.headers["cache-control"] == "no-store"
    assert ask("GET", "/v1/sessions", secret="").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("text", ["a\\u0000b", "a\\ud800b", "\\udfff", "\\u202ea\\u2066b", "a\\u0007b"])
def test_odd_texts_go_in_and_come_out_as_they_were(ask: Asked, text: str) -> None:
    raw = f'{{"title": "{text}"}}'.encode()
    made = ask("POST", "/v1/sessions", raw=raw)
    assert made.status_code == 201, made.text
    session = made.json()["id"]
    assert ask("GET", f"/v1/sessions/{session}").content == made.content
    said = ask("POST", f"/v1/sessions/{session}/messages", raw=f'{{"text": "{text}"}}'.encode())
    assert said.status_code == 202, said.text
    ask("POST", f"/v1/runs/{said.json()['id']}/cancel")
    (message,) = ask("GET", f"/v1/sessions/{session}/events", kinds="message").json()["events"]
    assert message["body"]["text"] == said.request.content.decode().encode().decode("unicode_escape")[10:-2]
    for path in (f"/v1/sessions/{session}/lineage", "/v1/sessions", f"/v1/sessions/{session}/references"):
        assert ask("GET", path).status_code == 200
    drafted = ask("POST", f"/v1/sessions/{session}/drafts", raw=f'{{"purpose": "x{text}"}}'.encode())
    assert drafted.status_code == 200, drafted.text


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ('{"titel": "x"}', "titel"),
        ('{"title": 1}', "$.title"),
        ('{"title": "%s"}' % ("x" * 121), "$.title"),
        ('{"engine": ""}', "$.engine"),
    ],
)
def test_what_is_wrong_with_a_body_is_named(ask: Asked, body: str, named: str) -> None:
    response = ask("POST", "/v1/sessions", raw=body.encode())
    assert code(response)[0] == 400
    assert named in response.json()["error"]["message"]


@pytest.mark.parametrize("levels", [100, 900, 1100, 100_000])
def test_a_body_that_is_nested_deeply_is_taken_or_refused_and_breaks_nothing(ask: Asked, levels: int) -> None:
    session = ask("POST", "/v1/sessions", {"engine": "script"}).json()["id"]
    deep = "[" * levels + "]" * levels
    raw = f'{{"text": "x", "options": {{"adapter_opts": {{"a": {deep}}}}}}}'.encode()
    response = ask("POST", f"/v1/sessions/{session}/messages", raw=raw)
    assert response.status_code == (202 if levels < 1000 else 400)
    for path in ("runs", "events", "state"):
        assert ask("GET", f"/v1/sessions/{session}/{path}").status_code == 200


def test_a_body_where_none_is_taken_is_refused_unless_it_says_nothing(ask: Asked) -> None:
    session = ask("POST", "/v1/sessions", {}).json()["id"]
    path = f"/v1/sessions/{session}/archive"
    for raw in (b'{"a": 1}', b"x" * 100, b"[]"):
        assert code(ask("POST", path, raw=raw)) == (400, "invalid_input")
    assert code(ask("GET", f"/v1/sessions/{session}", raw=b'{"a": 1}')) == (400, "invalid_input")
    assert ask("POST", path, raw=b"{}").json()["archived"] is True
    assert [s["id"] for s in ask("GET", "/v1/sessions").json()["sessions"]] == []
    assert [s["id"] for s in ask("GET", "/v1/sessions", archived=True).json()["sessions"]] == [session]


def test_a_page_of_events_is_bounded_in_bytes_and_goes_on_where_it_ended(
    ask: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(over_http, "PAGE_BYTES", 5000)
    session = sessions.start(ask.platform, "long").id
    said = [
        ask.platform.event("message", Message(role="user", text=letter * 2000), "user")
        for letter in "abcdefg"
    ]
    huge = ask.platform.event("message", Message(role="user", text="h" * 20_000), "user")
    appends = (Append(session_id=session, events=(*said, huge)),)
    ask.platform.store.commit(Batch(appends=appends))
    after, seen, pages = 0, [], 0
    while True:
        page = ask("GET", f"/v1/sessions/{session}/events", after=after).json()
        if not page["events"]:
            break
        seen += [event["seq"] for event in page["events"]]
        after, pages = page["after"], pages + 1
    assert seen == list(range(1, 10))
    assert pages == 5


def test_no_answer_has_more_than_its_limit(ask: Asked) -> None:
    for number in range(5):
        sessions.start(ask.platform, str(number), workspace="/p")
    first = ask("GET", "/v1/sessions", limit=2).json()
    rest = ask("GET", "/v1/sessions", limit=200, cursor=first["next"]).json()
    titles = [s["title"] for s in (*first["sessions"], *rest["sessions"])]
    assert (sorted(titles), len(first["sessions"]), rest["next"]) == (list("01234"), 2, None)
    assert code(ask("GET", "/v1/sessions", limit=201)) == (400, "limit_exceeded")
    assert code(ask("GET", "/v1/sessions", cursor="made up")) == (400, "invalid_input")
    place = ask("GET", "/v1/workspaces").json()["workspaces"][0]["id"]
    assert len(ask("GET", "/v1/sessions", workspace=place).json()["sessions"]) == 5
    assert ask("GET", "/v1/sessions", workspace="/nowhere").json()["sessions"] == []


@pytest.mark.parametrize("what", ["workspaces", "machines", "tokens"])
def test_lists_are_answered_in_pages_that_make_the_whole(ask: Asked, what: str) -> None:
    for number in range(5):
        workspaces.ensure(ask.platform, f"/p{number}")
        machines.register(ask.platform, f"m{number}", [])
        ask.token("read")
    every = [one["id"] for one in ask("GET", f"/v1/{what}").json()[what]]
    assert len(every) >= 5
    found, cursor = [], {}
    while True:
        page = ask("GET", f"/v1/{what}", limit=2, **cursor).json()
        found += [one["id"] for one in page[what]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert found == every
    assert code(ask("GET", f"/v1/{what}", cursor="made up")) == (400, "invalid_input")


def test_metrics_are_those_of_the_account(ask: Asked) -> None:
    seeded = Seeded(ask.platform)
    ask("GET", f"/v1/sessions/{seeded.first}")
    told = ask("GET", "/v1/metrics")
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = told.text.splitlines()
    assert f"onward_sessions {ask.platform.store.tally(ask.platform.account_id).sessions}" in lines
    assert 'onward_runs{state="failed"} 1' in lines
    assert 'onward_machines{online="true"} 1' in lines
    assert 'onward_request_seconds_count{route="sessions.show",status="200"} 1' in lines
    from msgspec.structs import replace
    from tests.surfaces.http.seeded import OTHERS

    theirs = ask(
        "GET", "/v1/metrics", secret=ask.token("read", platform=replace(ask.platform, account_id=OTHERS))
    )
    assert "onward_sessions 0" in theirs.text.splitlines()
    assert "onward_request_seconds" not in theirs.text


@pytest.mark.requirement("C3")
def test_a_message_that_is_sent_again_under_its_key_is_one_message(ask: Asked) -> None:
    session = ask("POST", "/v1/sessions", {"engine": "script"}).json()["id"]
    path, key = f"/v1/sessions/{session}/messages", {"idempotency-key": "one"}
    first = ask("POST", path, {"text": "Hello"}, headers=key)
    again = ask("POST", path, {"text": "Hello"}, headers=key)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"]
    assert (
        ask("POST", path, {"text": "Hello"}, headers={"idempotency-key": "two"}).json()["id"]
        != first.json()["id"]
    )
    together = ask.all_at_once(*[("POST", path, {"text": "At once"})] * 1)
    assert together[0].status_code == 202
    assert len(ask("GET", f"/v1/sessions/{session}/runs").json()["runs"]) == 3
    assert code(ask("POST", path, {"text": "x"}, headers={"idempotency-key": "k" * 201})) == (
        400,
        "limit_exceeded",
    )
    running.cancel(ask.platform, first.json()["id"])
    assert ask("POST", path, {"text": "Hello"}, headers=key).json()["state"] == "cancelled"
