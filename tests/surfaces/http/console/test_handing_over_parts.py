"""The parts that pages of handing over are made of: pictures, charts, words on their way, addresses, signatures."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.surfaces.http.console.handing import continued, parts, told
from tests.surfaces.http.console.visiting import Visitor

from onward.core.continuing_command import Command, Transfer
from onward.core.manifest import Handoff
from onward.core.references import Source
from onward.service import signing
from onward.surfaces.http.carried import KEPT_SECONDS, MOST_TEXTS, Carried
from onward.surfaces.http.console import editing, ranges
from onward.surfaces.http.console.chart import LENGTH, stacked
from onward.surfaces.http.console.lineage_map import HEIGHT, Edge, Node, drawn

COSTS = st.lists(st.tuples(st.text(max_size=9), st.integers(0, 10**7)), max_size=12)


@given(COSTS, st.integers(0, 10**7))
def test_a_chart_has_every_section_side_by_side_within_its_length(
    costs: list[tuple[str, int]], budget: int
) -> None:
    found = stacked(costs, budget, sum(cost for _, cost in costs))
    assert [(part.name, part.tokens) for part in found.parts] == costs
    at = 0.0
    for part in found.parts:
        assert part.x == pytest.approx(at, abs=0.05)
        at = part.x + part.width
        assert part.width > 0 or not part.tokens or at >= LENGTH - 0.05
    assert at <= LENGTH + 0.05
    assert 0 <= found.limit <= LENGTH
    assert found.free == budget - sum(cost for _, cost in costs)


KINDS = st.sampled_from(("continuation", "fork", "child", "reference"))


@given(
    st.lists(st.integers(0, 40), max_size=30),
    st.lists(st.tuples(st.integers(0, 33), st.integers(0, 33), KINDS)),
)
def test_no_two_boxes_of_a_map_overlap_and_all_of_it_is_inside(
    depths: list[int], links: list[tuple[int, int, Any]]
) -> None:
    nodes = [
        Node(id=str(n), title="t" * n, href=None, depth=depth, here=n == 0, about="")
        for n, depth in enumerate(depths)
    ]
    edges = [Edge(start=str(a), end=str(b), type=kind) for a, b, kind in links]
    found = drawn(nodes, edges)
    rows = [box.y for box in found.boxes]
    assert all(later - earlier > HEIGHT for earlier, later in itertools.pairwise(rows))
    assert all(box.x >= 0 and box.x + found.box <= found.width for box in found.boxes)
    assert all(box.y + HEIGHT <= found.height for box in found.boxes)
    inside = [e for e in edges if e.start != e.end and int(e.start) < len(nodes) and int(e.end) < len(nodes)]
    assert [line.type for line in found.lines] == [edge.type for edge in inside]
    assert drawn(nodes, edges) == found


ADDRESSES = st.sampled_from(
    (
        Source(kind="session_event", from_seq=3, to_seq=3),
        Source(kind="session_events", from_seq=3, to_seq=9),
        Source(kind="resource", url="https://example.com/a?b=c", version='W/"1"', block_id="x"),
        Source(kind="memory", path="notes/\x7f = \u202e.md", digest="sha256:" + "0" * 64),
    )
)
LINE = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp", "Zs")), min_size=1, max_size=20)


@given(
    st.lists(ADDRESSES, max_size=4),
    st.lists(LINE, min_size=1, max_size=4),
    st.sampled_from(("carry", "close", "omit", None)),
)
def test_what_a_form_carries_is_the_command_that_it_was_made_from(
    sources: list[Source], lines: list[str], plan: Any
) -> None:
    command = Command(
        reason="phase_change",
        title="A title",
        description="d",
        handoff=Handoff(
            purpose="p",
            current_request="r",
            established_facts=tuple(lines) if sources else (),
            open_questions=tuple(lines),
            extra={"Heading": tuple(lines)},
        ),
        sources=tuple(msgspec.structs.replace(source, relevance="why") for source in sources),
        transfer=Transfer(plan=plan, pending_runs=("run_1",), pinned_tools=("Read",)),
        recommended=tuple(source.address() for source in sources),
    )
    made = editing.from_command(command, key="k", moving=["run_1", "tool:Read"], budget=900)
    sent: dict[str, str] = {
        name: value for name in made.__struct_fields__ if isinstance(value := getattr(made, name), str)
    }
    for row in made.rows:
        sent |= {f"spec-{row.number}": row.spec, f"why-{row.number}": row.why, f"rec-{row.number}": "1"}
        if row.on:
            sent[f"source-{row.number}"] = "1"
    sent |= {f"move-{number}": value for number, value in enumerate(made.moving)}
    assert msgspec.structs.replace(editing.command_of(editing.from_form(sent)), adjusted=()) == command


def test_words_on_their_way_are_kept_for_an_hour_for_one_account_and_not_without_bound() -> None:
    now = 0
    carried = Carried(lambda: now)
    key = carried.put("acc_a", "words")
    assert carried.get("acc_a", key) == carried.get("acc_a", key) == "words"
    assert carried.get("acc_b", key) == ""
    now = KEPT_SECONDS * 1_000_000
    assert carried.get("acc_a", key) == ""
    keys = [carried.put("acc_a", f"text {n}") for n in range(MOST_TEXTS + 1)]
    assert carried.get("acc_a", keys[0]) == ""
    assert carried.get("acc_a", keys[1]) == "text 1"
    long = [carried.put("acc_a", "x" * 9_000_000) for _ in range(2)]
    assert [len(carried.get("acc_a", key)) for key in long] == [0, 9_000_000]


@pytest.mark.parametrize(
    ("address", "href", "label"),
    [
        ("ses_A:3", "/sessions/ses_A/range/3", "Event 3"),
        ("ses_A:3-9", "/sessions/ses_A/range/3-9", "Events 3 to 9"),
        ("ses_B:3-9", "/sessions/ses_B/range/3-9", "Events 3 to 9 of “Other”"),
        ("ses_C:3", "/sessions/ses_C/range/3", "ses_C:3"),
        ("https://example.com/", None, "https://example.com/"),
        ("memory:a:3", None, "memory:a:3"),
    ],
)
def test_an_address_is_said_and_leads_to_its_events(address: str, href: str | None, label: str) -> None:
    assert ranges.href_of(address) == href
    assert ranges.label_of(address, "ses_A", {"ses_B": "Other"}) == label


def test_a_signed_handoff_says_that_its_signature_holds(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    key = tmp_path / "key.pem"
    signing.new_key(str(key))
    visitor = Visitor()
    visitor.platform = msgspec.structs.replace(visitor.platform, signer=signing.KeyFile(str(key)))
    made = continued(visitor, told(visitor))
    words = parts(visitor.page(f"/manifests/{made.manifest}?verify=1"))
    assert "1 signature" in words
    assert "A signature holds: " in words
