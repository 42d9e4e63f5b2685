"""What people see of continuing: the card, the banner, the path, the map, the handoff, ranges."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from tests.surfaces.http.console.handing import continued, ended, parts, told
from tests.surfaces.http.console.hostile import HOSTILE
from tests.surfaces.http.console.markup import Markup, acting
from tests.surfaces.http.console.visiting import Visitor

from onward.core import bodies
from onward.core.manifest import Handoff
from onward.core.records import Link
from onward.service import continuing, delegating, drafting, recalling, referencing, running, sessions
from onward.store.contract import Batch

ELSEWHERE = "acc_0000000000000000000000000Z"


@pytest.fixture
def visitor() -> Visitor:
    return Visitor()


@pytest.mark.requirement("C1")
def test_the_predecessor_has_a_card_where_it_went_on(visitor: Visitor) -> None:
    before = told(visitor)
    made = continued(visitor, before)
    page = visitor.page(f"/sessions/{before.id}")
    card = page.partition('class="card transition-card"')[2].partition("</article>")[0]
    words = " ".join(re.sub(r"<[^>]*>", " ", card).split())
    assert "Continued in “The proposal”" in words
    assert "Topic changed" in words
    assert "by the agent" in words
    assert "Carried the current request, " in words
    assert "1 step of the plan" in words
    assert re.search(r"and \d sources?\.", words)
    assert f'href="/sessions/{made.successor}">Open continuation</a>' in card
    assert f'href="/manifests/{made.manifest}">Inspect handoff</a>' in card
    assert "<time datetime=" in card
    # It is part of the timeline, so it comes with a part of it as well.
    seq = visitor.platform.session(before.id).head_seq
    assert "transition-card" in visitor.page(f"/sessions/{before.id}/timeline?after={seq - 1}")


def test_of_several_successors_the_newest_is_current_and_the_others_are_told_to_be_branches(
    visitor: Visitor,
) -> None:
    before = told(visitor)
    old = continued(visitor, before, "First try")
    new = continued(visitor, before, "Second try")
    page = visitor.page(f"/sessions/{before.id}")
    assert page.count("a branch by now") == 1
    assert f'href="/sessions/{old.successor}">Open this branch</a>' in page
    assert f'href="/sessions/{new.successor}">Open continuation</a>' in page
    assert "“Second try”</a> is where it goes on now" in page
    assert "Open “Second try”" in page
    assert "continued again later, in “Second try” : this is a branch by now." in parts(
        visitor.page(f"/sessions/{old.successor}")
    )
    assert "continued again later" not in visitor.page(f"/sessions/{new.successor}")


def test_the_card_says_which_sources_stayed_links(visitor: Visitor) -> None:
    before = told(visitor)
    visitor.log(
        before, ("message", bodies.Message(role="user", text="We decided: " + "long words " * 900), "user")
    )
    visitor.say(before, "And now the rest.")
    continued(visitor, before, budget=1200)
    words = parts(visitor.page(f"/sessions/{before.id}"))
    assert re.search(r"of the sources (is|are) loaded, \d stayed a link", words) or "none is loaded" in words


def test_the_successor_leads_back_to_the_place_it_left(visitor: Visitor) -> None:
    before = told(visitor)
    made = continued(visitor, before)
    page = visitor.page(f"/sessions/{made.successor}")
    left = visitor.platform.session(before.id).head_seq
    assert f'href="/sessions/{before.id}?at={left}#e{left}"' in page
    words = parts(page)
    assert "Continued from “Rethink compaction”" in words
    assert "Back to previous" in words
    assert f'href="/manifests/{made.manifest}">View handoff</a>' in page


@pytest.mark.requirement("C7")
@pytest.mark.parametrize(
    ("state", "words"), [("failed", "failed: no credit"), ("interrupted", "was cut off: no credit")]
)
def test_a_first_turn_that_failed_is_told_with_a_retry_and_the_way_back(
    state: str, words: str, visitor: Visitor
) -> None:
    before = told(visitor)
    made = continued(visitor, before)
    run = ended(visitor, made.successor, state, "no credit")
    while visitor.platform.store.unfinished(
        made.successor
    ):  # cut off before any effect, it waits again by itself
        assert "The first turn here" not in visitor.page(f"/sessions/{made.successor}")
        run = ended(visitor, made.successor, state, "no credit")
    page = visitor.page(f"/sessions/{made.successor}")
    assert f"The first turn here {words}" in parts(page)
    assert "Back to previous" in page
    assert f'action="/runs/{run}/retry"' in page
    assert visitor.post(f"/runs/{run}/retry").headers["location"] == f"/sessions/{made.successor}#end"
    assert "The first turn here" not in visitor.page(f"/sessions/{made.successor}")
    ended(visitor, made.successor)
    assert "The first turn here" not in visitor.page(f"/sessions/{made.successor}")


def test_a_failed_run_can_be_retried_with_another_engine(visitor: Visitor) -> None:
    made = continued(visitor, told(visitor))
    run = ended(visitor, made.successor, "failed", "no credit")
    visitor.post(f"/runs/{run}/retry", {"engine": "local"})
    assert [r.engine for r in visitor.platform.store.unfinished(made.successor)] == ["local"]


@pytest.mark.requirement("A1")
def test_an_end_that_may_not_be_read_is_a_breadcrumb_with_its_id(visitor: Visitor) -> None:
    theirs = Visitor(msgspec.structs.replace(visitor.platform, account_id=ELSEWHERE))
    before = told(theirs, "Their secret title")
    made = continued(theirs, before, "Their other title")
    mine = visitor.session("Mine")
    for number, (start, end) in enumerate(((before.id, mine.id), (mine.id, made.successor))):
        link = Link(
            id=f"lnk_0000000000000000000000000{number}",
            type="fork" if number else "continuation",
            from_session=start,
            to_session=end if not number else visitor.session("x").id,
            created_at=1,
            reason="topic_change",
            manifest_id=made.manifest if not number else None,
            seq=None,
        )
        visitor.platform.store.commit(Batch(links=(link,)))
    page = visitor.page(f"/sessions/{mine.id}")
    assert before.id in page
    assert "may not be read by you, or is gone" in page
    assert "secret title" not in page
    assert "View handoff" not in page
    lineage = visitor.page(f"/sessions/{mine.id}/lineage")
    assert before.id in lineage
    assert "secret title" not in lineage
    assert "Their other title" not in lineage
    assert visitor.get(f"/manifests/{made.manifest}").status_code == 404


def test_the_path_folds_in_the_middle_when_it_is_long(visitor: Visitor) -> None:
    session = told(visitor, "Part 1")
    for number in range(2, 9):
        made = continued(visitor, session, f"Part {number}")
        ended(visitor, made.successor)
        session = visitor.platform.session(made.successor)
        visitor.say(session, "go on")
    page = visitor.page(f"/sessions/{session.id}")
    path = page.partition('aria-label="Where this is"')[2].partition("</nav>")[0]
    assert [f"Part {n}" in path for n in range(1, 9)] == [True] * 8
    assert "<summary>4 more</summary>" in path
    assert '<span aria-current="page">Part 8</span>' in path


def test_a_lineage_is_a_list_in_words_and_a_picture_of_links(visitor: Visitor) -> None:
    before = told(visitor)
    made = continued(visitor, before)
    branch = sessions.fork(visitor.platform, before.id, 3, title="Another way")
    child = delegating.delegate(visitor.platform, branch.id, "Count them", "Count", engine="script")
    quoted = visitor.session("Quoted one")
    visitor.say(quoted, "hello", "there")
    mention = referencing.list_candidates(visitor.platform, branch.id, "Quoted")[0].mention
    run = running.submit(visitor.platform, branch.id, f"see {mention}")
    running.claim(visitor.platform, run.id, "w", engine="script")
    page = visitor.page(f"/sessions/{made.successor}/lineage")
    words = parts(page)
    assert "The proposal you are here continues “Rethink compaction” Topic changed" in words
    assert "Another way branches from “Rethink compaction” at event 3" in words
    assert "Count them was delegated by “Another way” it has not reported yet" in words
    assert "quotes “Quoted one”" in words
    picture = page.partition('<svg class="lineage-map"')[2].partition("</svg>")[0]
    for name in (before.id, made.successor, branch.id, child.child, quoted.id):
        assert f'href="/sessions/{name}"' in picture
    for kind in ("continuation", "fork", "child", "reference"):
        assert f'class="edge {kind}"' in picture
    assert picture.count('aria-current="page"') == 1
    assert Markup(page).faults == []
    assert acting(Markup(page)) == []


def test_a_session_that_stands_by_itself_says_so(visitor: Visitor) -> None:
    assert "This session stands by itself" in visitor.page(f"/sessions/{visitor.session().id}/lineage")


def test_a_lineage_of_hundreds_shows_the_nearest_and_tells_how_many_it_leaves_out(visitor: Visitor) -> None:
    root = told(visitor, "Root")
    for number in range(150):
        sessions.fork(visitor.platform, root.id, 2, title=f"Branch {number}")
    page = visitor.page(f"/sessions/{root.id}/lineage")
    assert "31 sessions of this lineage are not shown" in parts(page)
    assert page.count('<li class="depth-') == 120
    assert len(page) < 200_000


@pytest.mark.requirement("P2")
def test_a_handoff_stands_beside_exactly_what_was_given(visitor: Visitor) -> None:
    before = told(visitor)
    made = continued(visitor, before, budget=900)
    page = visitor.page(f"/manifests/{made.manifest}")
    words = parts(page)
    assert (
        visitor.get(f"/sessions/{made.successor}/handoff").headers["location"]
        == f"/manifests/{made.manifest}"
    )
    assert "Purpose The proposal" in words
    assert "The message that goes along, exactly Now write the proposal." in words
    asked = before.head_seq
    assert f'href="/sessions/{before.id}/range/{asked}">The original, event {asked}</a>' in page
    assert f'<a href="/sessions/{before.id}/range/2">[2]</a>' in page
    assert "Write the proposal s1, open" in words
    assert "Revision 1 of the plan was carried on." in words
    assert re.search(r"\d+ of 900 tokens", words)
    assert "Counted by chars/4." in words
    record = json.loads(visitor.get(f"/manifests/{made.manifest}/raw").content)
    for part in record["included"]:
        assert part["digest"] in page
        span = str(part["from_seq"]) + (f"-{part['to_seq']}" if part["to_seq"] != part["from_seq"] else "")
        assert f'href="/sessions/{part["session"]}/range/{span}"' in page
    for cost in record["costs"]:
        assert f"{cost['section']} {cost['tokens']:,}" in words
    for left in record["omitted"]:
        span = left["address"].partition(":")[2]
        assert f'href="/sessions/{before.id}/range/{span}"' in page
    assert Markup(page).faults == []


@pytest.mark.requirement("P1")
def test_verifying_says_that_the_same_bytes_came_out_or_what_differs(visitor: Visitor) -> None:
    before = told(visitor)
    made = continued(visitor, before)
    page = visitor.page(f"/manifests/{made.manifest}?verify=1")
    assert "the same bytes came out" in page
    assert "it is not signed" in page
    event = visitor.platform.store.events(before.id, after=3, upto=4, limit=1)[0]
    sessions.erase(visitor.platform, event.id, reason="a slip")
    page = visitor.page(f"/manifests/{made.manifest}?verify=1")
    assert "it does not come out as it was" in page
    assert "erased since: event 4" in page
    assert "no longer be shown" in parts(page)
    assert "erased since: events 4" in parts(page)


def test_a_handoff_says_what_was_asked_for_again_and_what_was_recommended_in_vain(visitor: Visitor) -> None:
    before = told(visitor)
    draft = drafting.draft_handoff(visitor.platform, before.id, "The proposal")
    command = msgspec.structs.replace(draft.command(), sources=draft.sources[:1])
    made = continuing.continue_session(visitor.platform, before.id, command, budget=500)
    record = continuing.manifest(visitor.platform, made.manifest)
    left = next(o.address for o in record.omitted if o.cause == "budget")
    recalling.read_at(visitor.platform, left, asked_by=made.successor)
    words = parts(visitor.page(f"/manifests/{made.manifest}"))
    assert "Recommended and not used" in words
    assert "Asked for again" in words
    assert "1 time" in words


def test_a_range_is_marked_and_has_its_surroundings(visitor: Visitor) -> None:
    session = told(visitor)
    page = visitor.page(f"/sessions/{session.id}/range/3-4")
    cited = page.partition("cited-range")[2].partition("</section>")[0]
    assert re.findall(r'<article id="e(\d+)"', cited) == ["3", "4"]
    assert re.findall(r'<article id="e(\d+)"', page) == ["1", "2", "3", "4", "5", "6", "7"]
    for span, status in (("0", 400), ("4-3", 400), ("x", 400), ("1-999", 404), ("7-8", 404)):
        assert visitor.get(f"/sessions/{session.id}/range/{span}").status_code == status


def test_a_long_range_comes_in_pages_and_none_of_it_is_missing(visitor: Visitor) -> None:
    session = visitor.session()
    visitor.say(session, *[f"m{n}" for n in range(250)])
    seen: list[str] = []
    path: str | None = f"/sessions/{session.id}/range/2-251"
    while path:
        page = visitor.page(path)
        cited = page.partition("cited-range")[2].partition("</section>")[0]
        seen += re.findall(r'<article id="e(\d+)"', cited)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        path = following[1] if following else None
    assert seen == [str(n) for n in range(2, 252)]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_does_nothing_in_titles_handoffs_and_sources(text: str, visitor: Visitor) -> None:
    before = visitor.session(" ".join(text.split())[:120])
    visitor.say(before, f"begin {text}", "ok", f"We decided: {text[:900]}")
    note = Handoff(
        purpose=f"p {text[:2000]}",
        current_request=text[:2000],
        established_facts=(f"{text[:2000]} [2]",),
        cautions=(text[:2000],),
        extra={" ".join(text.split())[:100] or "x": (text[:2000],)},
    )
    made = continued(visitor, before, " ".join(text.split())[:110] or "x", handoff=note)
    ended(visitor, made.successor, "failed", text[:2000])
    quoted = f"/sessions/{made.successor}/continue?purpose=x"
    visitor.say(visitor.platform.session(made.successor), "go on")
    for path in (
        f"/sessions/{before.id}",
        f"/sessions/{made.successor}",
        f"/sessions/{made.successor}/lineage",
        f"/manifests/{made.manifest}?verify=1",
        f"/sessions/{before.id}/range/2-3",
        f"/sessions/{before.id}/branch?at=2",
        f"/sessions/{before.id}/mention",
        f"/sessions/{before.id}/mentions",
        quoted,
    ):
        page = visitor.page(path)
        markup = Markup(page)
        assert acting(markup) == [], path
        assert markup.faults == [], path
        assert markup.open == [], path
        ids = markup.with_id()
        assert len(ids) == len(set(ids)), path
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]", page), (
            path
        )
