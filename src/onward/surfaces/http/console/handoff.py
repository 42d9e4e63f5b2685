"""The handoff, opened: what was handed over beside the exact record of it.

On the left what the successor was told, on the right what it was given: every range with its cost and its digest, everything
that was left out with the cause, the cost of each section against the budget. Each source leads to its exact events. Below
stand what moved as state, what can no longer be shown today, and what was asked for again.

Nothing here is a summary: long lists are cut with an exact count, and the whole record is one click away, byte for byte.
Compiling again, checking signatures and looking at what stands elsewhere today are done when somebody asks: they take time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

from onward.core import claims
from onward.core.bodies import Message
from onward.core.codec import body_of
from onward.core.manifest import Included, Manifest, Omitted
from onward.core.manifest import Shown as Source
from onward.core.manifest_text import spelled
from onward.errors import OnwardError
from onward.service import continuing, recalling, recompiling, signing
from onward.service.platform import Platform
from onward.surfaces.http.console import kinds, ranges, words
from onward.surfaces.http.console.chart import Chart, stacked
from onward.surfaces.http.console.transitions import ACTORS, other_of, reason_words
from onward.surfaces.http.console.views import Other, Step, Steps, Text, View
from onward.surfaces.http.console.visiting import Moved, Page, Shown, Visit

LISTED: Final = 100
"""Entries of one list that are shown; how many more there are is told."""
WORDS: Final = 20_000
"""Characters of the initiating message that are shown."""

CAUSES: Final = {
    "budget": ("Did not fit the budget", "It stays linked and can be recalled."),
    "other_session": ("In another session", "Cited ranges of other sessions stay links."),
    "external": ("Stands elsewhere", "It was not read here and stays an address."),
    "duplicate": ("In already", "Another source holds the same events."),
    "revoked": ("May not be read", "Access was taken away."),
    "changed": ("Another version", "What is there is not the version that was asked for."),
    "missing": ("Not found", "There was nothing at this address."),
    "not_dialogue": (
        "Not dialogue",
        "State, bookkeeping and imported records among the exchanges that are shown.",
    ),
}
NOW: Final = {
    "available": "available",
    "erased": "erased since",
    "revoked": "may not be read any more",
    "changed": "something else stands there now",
    "missing": "not there any more",
    "external": "never read here",
}
HEADINGS: Final = (
    ("established_facts", "Established facts"),
    ("decisions", "Decisions"),
    ("open_questions", "Open questions"),
    ("next_actions", "Next actions"),
    ("cautions", "Cautions"),
)
_PLANS: Final = {"carry": "carried on", "close": "closed", "omit": "left behind"}


class Piece(View, frozen=True, kw_only=True):
    """A stretch of text, which leads to the events that it names or nowhere."""

    text: str
    href: str | None = None


class Cited(View, frozen=True, kw_only=True):
    """Something that is in the projection."""

    address: str
    label: str
    """The same as it is said."""
    href: str | None
    section: str
    tokens: int | None
    """None where it belongs to a quotation that is counted with its first range."""
    share: int
    """Of the largest, in percent: how long its bar is."""
    digest: str
    about: str
    why: str
    """Why it was cited."""
    now: str
    """What became of it, where that is worth a word."""


class Left(View, frozen=True, kw_only=True):
    """Something that is not in the projection."""

    address: str
    label: str
    href: str | None
    tokens: int | None
    note: str
    why: str


class Group(View, frozen=True, kw_only=True):
    """What was left out for one cause."""

    cause: str
    told: str
    count: int
    tokens: int
    entries: tuple[Left, ...]


class Section(View, frozen=True, kw_only=True):
    """One heading of the handoff."""

    name: str
    entries: tuple[tuple[Piece, ...], ...]


class Gone(View, frozen=True, kw_only=True):
    """A part whose words are not here any more, or whose place holds something else."""

    address: str
    href: str | None
    told: str
    note: str


def of_session(visit: Visit) -> Moved:
    """Lead to the handoff that a session began with."""
    return Moved(to=f"/manifests/{continuing.manifest(visit.platform, visit.path['session']).id}")


def show(visit: Visit) -> Shown:
    """Show a handoff with its manifest."""
    platform = visit.platform
    record = continuing.manifest(platform, visit.path["manifest"])
    look = visit.query.get("look") == "1"
    view = recompiling.manifest_view(platform, record, look=look)
    stored = signing.stored_manifest(platform, record.id)
    addresses = [*(spelled(part) for part in record.included), *(left.address for left in record.omitted)]
    names = ranges.names_in(platform, [*addresses, *record.recommended_unused])
    values: dict[str, Any] = {
        "title": f"Handoff: {record.title}",
        "record": record,
        "predecessor": other_of(platform, record.predecessor),
        "successor": other_of(platform, record.successor),
        "origin": other_of(platform, record.origin) if record.origin != record.predecessor else None,
        "reason": reason_words(record.reason),
        "by": ACTORS.get(record.actor, record.actor),
        "when": words.when(record.created_at, platform.clock()),
        "sections": _sections(record),
        "request": pieces(record.handoff.current_request, record.predecessor),
        "included": _included(record, view.sources, names)[:LISTED],
        "included_more": max(0, len(record.included) + sum(c.included for c in record.contents) - LISTED),
        "groups": groups(record, names),
        "left_out": len(record.omitted),
        "chart": chart(record),
        "plan": _plan(record),
        "plan_told": _plan_told(record),
        "state": _state(platform, record),
        "asked": _asked(platform, record),
        "gone": _gone(view.lost),
        "elsewhere": _elsewhere(view.sources) if look else (),
        "looked": look,
        "outside": any(not source.is_events for source in record.sources),
        "unused": [
            (ranges.label_of(address, record.predecessor, names), ranges.href_of(address))
            for address in record.recommended_unused
        ],
        "again": _asked_again(platform, record),
        "signatures": len(signing.listed(platform, stored)) if platform.may_read(record.successor) else 0,
        "stored_digest": stored.digest,
        "verified": _verified(platform, record, stored) if visit.query.get("verify") == "1" else None,
        "coverage": ", ".join(
            (
                words.counted(record.coverage.facts, "fact"),
                words.counted(record.coverage.decisions, "decision"),
                words.counted(record.coverage.sources, "source"),
            )
        ),
    }
    return Shown(template="handoff.html", values=values)


def raw(visit: Visit) -> Response:
    """Return a manifest byte for byte, as a file: what its digest and its signatures are about."""
    platform = visit.platform
    record = continuing.manifest(platform, visit.path["manifest"])
    stored = signing.stored_manifest(platform, record.id)
    return Response(
        stored.body,
        media_type="application/json",
        headers={
            "content-disposition": f'attachment; filename="{record.id}.json"',
            "x-content-type-options": "nosniff",
        },
    )


def pieces(text: str, session: str) -> tuple[Piece, ...]:
    """Return a text in which the events that it names, ``[12]`` or ``[12-18]``, lead to them."""
    out: list[Piece] = []
    done = 0
    for start, end, (name, first, last) in claims.places(text, session):
        if start > done:
            out.append(Piece(text=text[done:start]))
        out.append(
            Piece(text=text[start:end], href=ranges.href(name, first, last) if first <= last else None)
        )
        done = end
    if done < len(text):
        out.append(Piece(text=text[done:]))
    return tuple(out)


def _sections(record: Manifest) -> list[Section]:
    named = [(told, getattr(record.handoff, name)) for name, told in HEADINGS]
    named += [(name, entries) for name, entries in record.handoff.extra.items()]
    return [
        Section(name=name, entries=tuple(pieces(entry, record.predecessor) for entry in entries))
        for name, entries in named
        if entries
    ]


def _included(record: Manifest, sources: Sequence[Source], names: Mapping[str, str]) -> list[Cited]:
    most = max([*(p.tokens for p in record.included), *(c.tokens for c in record.contents), 1])
    now = {(s.address, s.section): s for s in sources}
    out = []
    for part in record.included:
        address = spelled(part)
        stands = now.get((address, part.section))
        out.append(
            Cited(
                address=address,
                label=ranges.label_of(address, record.predecessor, names),
                href=ranges.href(part.session, part.from_seq, part.to_seq),
                section=part.section,
                tokens=part.tokens if part.text else None,
                share=round(part.tokens * 100 / most) if part.text else 0,
                digest=part.digest,
                about=_about(part),
                why=_relevance(record, part.source),
                now=NOW[stands.now] if stands is not None and stands.now != "available" else "",
            )
        )
    for content in record.contents:
        if not content.included:
            continue
        known = 0 <= content.source < len(record.sources)
        address = record.sources[content.source].address() if known else f"source {content.source + 1}"
        out.append(
            Cited(
                address=address,
                label=address,
                href=None,
                section="cited",
                tokens=content.tokens,
                share=round(content.tokens * 100 / most),
                digest=content.digest,
                about=f"{words.size(content.size)} read by {content.resolver}",
                why=_relevance(record, content.source),
                now="",
            )
        )
    return out


def _about(part: Included) -> str:
    told = words.counted(part.to_seq - part.from_seq + 1, "event")
    return f"{told}, {part.pointers} as pointers" if part.pointers else told


def _relevance(record: Manifest, source: int | None) -> str:
    if source is None or not 0 <= source < len(record.sources):
        return ""
    return record.sources[source].relevance


def groups(record: Manifest, names: Mapping[str, str]) -> list[Group]:
    """Return what was left out, by cause: what a person asked for first, bookkeeping last."""
    by_cause: dict[str, list[Omitted]] = {}
    for left in record.omitted:
        by_cause.setdefault(left.cause, []).append(left)
    order = [cause for cause in CAUSES if cause in by_cause]
    order += [cause for cause in by_cause if cause not in CAUSES]
    out = []
    for cause in order:
        found = sorted(by_cause[cause], key=lambda left: left.source is None)
        name, told = CAUSES.get(cause, (cause.replace("_", " "), ""))
        out.append(
            Group(
                cause=name,
                told=told,
                count=len(found),
                tokens=sum(left.tokens or 0 for left in found),
                entries=tuple(
                    Left(
                        address=left.address,
                        label=ranges.label_of(left.address, record.predecessor, names),
                        href=ranges.href_of(left.address),
                        tokens=left.tokens,
                        note=left.note or "",
                        why=_relevance(record, left.source),
                    )
                    for left in found[:LISTED]
                ),
            )
        )
    return out


def chart(record: Manifest) -> Chart:
    """Return the cost of each section against the budget."""
    return stacked([(cost.section, cost.tokens) for cost in record.costs], record.budget, record.tokens)


def _plan(record: Manifest) -> Steps | None:
    found = record.state.plan
    if not found.steps:
        return None
    steps = tuple(
        Step(
            mark=kinds.STEP_MARKS[step.status],
            text=step.text,
            about=", ".join(filter(None, (step.id, step.status, step.resolution))),
            tone=step.status,
        )
        for step in found.steps
    )
    return Steps(title="Plan", steps=steps)


def _plan_told(record: Manifest) -> str:
    found = record.state.plan
    if found.revision is None:
        return "There was no plan."
    return f"Revision {found.revision} of the plan was {_PLANS[found.transfer]}."


def _state(platform: Platform, record: Manifest) -> list[tuple[str, list[Other]]]:
    """Return what moved by id, each kind with its members."""
    state = record.state
    out: list[tuple[str, list[Other]]] = []
    if state.children:
        out.append(
            ("Delegated sessions that report here now", [other_of(platform, one) for one in state.children])
        )
    for name, ids, page in (
        ("Pins", state.pins, ""),
        ("Messages that waited and wait here now", state.runs, "/runs/"),
        ("Open calls, given up with unknown outcome", state.calls, ""),
    ):
        if ids:
            out.append(
                (name, [Other(id=one, title=one, href=f"{page}{one}" if page else None) for one in ids])
            )
    return out


def _asked(platform: Platform, record: Manifest) -> dict[str, Any]:
    """Return the initiating message as it stands in the log: exactly, or that it is not there any more."""
    asked = record.initiating
    session = asked.session or record.predecessor
    href = ranges.href(session, asked.seq, asked.seq) if platform.may_read(session) else None
    found = platform.store.event(asked.event) if href else None
    text: Text | None = None
    told = "It may not be read any more." if href is None else "It is not in the log any more."
    if found is not None:
        body = body_of(found)
        if isinstance(body, Message):
            text, told = kinds.cut(body.text, WORDS), ""
        else:
            told = "Its words were erased. What went along to the successor is a copy of its own."
    return {"seq": asked.seq, "href": href, "digest": asked.digest, "text": text, "told": told}


def _gone(lost: Sequence[Source]) -> list[Gone]:
    return [
        Gone(
            address=source.address,
            href=ranges.href_of(source.address) if source.now in ("erased", "changed") else None,
            told=NOW[source.now]
            + (f": events {', '.join(map(str, source.erased[:20]))}" if source.erased else "")
            + (", …" if len(source.erased) > 20 else ""),
            note=source.note,
        )
        for source in lost[:LISTED]
    ]


def _elsewhere(sources: Sequence[Source]) -> list[Gone]:
    return [
        Gone(address=source.address, href=None, told=NOW[source.now], note=source.note)
        for source in sources
        if source.source is not None and ranges.href_of(source.address) is None
    ]


def _asked_again(platform: Platform, record: Manifest) -> list[tuple[str, str | None, int]]:
    """Return what the projection had left out and the successor asked for, with how often."""
    if not platform.may_read(record.successor):
        return []
    report = recalling.recall_report(platform, record.successor)
    return [(address, ranges.href_of(address), count) for address, count in report.asked_again.items()][
        :LISTED
    ]


def _verified(platform: Platform, record: Manifest, stored: Any) -> dict[str, Any]:
    """Compile again and check the signatures, and say what came of it."""
    found = recompiling.compare(platform, record)
    out: dict[str, Any] = {"same": found.same, "found": found, "signatures": (), "told": ""}
    try:
        checked = signing.check(platform, stored)
        out["signatures"] = checked.signatures
        out["told"] = checked.why
    except OnwardError as error:
        out["told"] = str(error)
    return out


PAGES: Final = (
    Page(
        method="GET",
        path="/sessions/{session}/handoff",
        does="Lead to the handoff that a session began with.",
        scope="read",
        handler=of_session,
    ),
    Page(
        method="GET",
        path="/manifests/{manifest}",
        does="Show a handoff with its manifest.",
        scope="read",
        handler=show,
    ),
    Page(
        method="GET",
        path="/manifests/{manifest}/raw",
        does="Return a manifest byte for byte.",
        scope="read",
        handler=raw,
    ),
)
