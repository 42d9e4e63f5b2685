"""Lineage on pages: the path to a session, and the tree around it as a list and as a picture.

The path stands at the top of every session and folds in the middle when it is long. The page of a lineage shows
continuations, forks, delegated work and references: first the picture, for those who see it, and the same as a list with
every relation in words. A tree may have hundreds of sessions; the page shows those nearest to the one that is looked at and
says how many it leaves out. Sessions that this account may not read are breadcrumbs in both.
"""

from __future__ import annotations

from typing import Final

from onward.core.bodies import Recall
from onward.core.codec import body_of
from onward.core.records import Link, Session
from onward.service import sessions
from onward.service.platform import Platform
from onward.surfaces.http.console import lineage_map, words
from onward.surfaces.http.console.lineage_map import Edge, Node
from onward.surfaces.http.console.transitions import other_of, reason_words
from onward.surfaces.http.console.views import Other, View
from onward.surfaces.http.console.visiting import Page, Shown, Visit
from onward.surfaces.http.console.words import When

LONGEST_PATH: Final = 200
"""Predecessors that are walked up for the path of a page."""
SHOWN_PATH: Final = 4
"""Crumbs of a path that stand without being unfolded: the origin and the newest."""
NODES: Final = 120
"""Sessions that the page of a lineage shows."""
LOOKED_INTO: Final = 40
"""Sessions in which references to others are looked for, the nearest first."""
REFERENCES: Final = 16
"""Sessions outside of the tree that are shown because they were quoted."""


class Path(View, frozen=True, kw_only=True):
    """The way from the origin to a session, over continuations."""

    first: tuple[Other, ...]
    folded: tuple[Other, ...]
    """The middle, where it is long."""
    last: tuple[Other, ...]
    """The newest before the session itself."""
    longer: bool = False
    """There are more before the first."""


class Row(View, frozen=True, kw_only=True):
    """One session of a lineage, with how it belongs."""

    session: Other
    here: bool
    depth: int
    relation: str
    """How it came of another one, in words."""
    source: Other | None
    note: str
    """Why, or where."""
    when: When | None
    events: int
    quotes: tuple[Other, ...]
    """Sessions that were quoted in it."""


def path(platform: Platform, session: Session) -> Path | None:
    """Return the path to a session; None for one that continues nothing."""
    crumbs: list[Other] = []
    seen = {session.id}
    current = session.id
    longer = False
    while (link := sessions.predecessor(platform, current)) is not None and link.from_session not in seen:
        if len(crumbs) >= LONGEST_PATH:
            longer = True
            break
        current = link.from_session
        seen.add(current)
        crumbs.append(other_of(platform, current))
        if crumbs[-1].href is None:
            break  # what lies behind is not this account's to know
    if not crumbs:
        return None
    crumbs.reverse()
    if len(crumbs) <= SHOWN_PATH:
        return Path(first=(), folded=(), last=tuple(crumbs), longer=longer)
    keep = SHOWN_PATH - 2
    return Path(first=(crumbs[0],), folded=tuple(crumbs[1:-keep]), last=tuple(crumbs[-keep:]), longer=longer)


def show(visit: Visit) -> Shown:
    """Show the lineage of a session."""
    platform = visit.platform
    session = platform.session(visit.path["session"])
    found = sessions.lineage(platform, session.id)
    links = [link for link in found.links if _seen(found.sessions, link)]
    order = _ordered(session.id, links)
    shown = _nearest(session.id, links, order)
    quotes = _quotes(platform, found.sessions, shown)
    rows = _rows(
        platform, found.sessions, session.id, links, [name for name in order if name in shown], quotes
    )
    values = {
        "title": "Lineage",
        "session": session,
        "rows": rows,
        "left_out": len(order) - len(shown),
        "cut": len(found.links) >= 1000,
        "picture": _picture(rows, links, shown, quotes),
        "path": path(platform, session),
        "quoted": any(quotes.values()),
    }
    return Shown(template="lineage.html", values=values)


def _seen(known: dict[str, Session | None], link: Link) -> bool:
    """Whether this account sees a link: at least one of its ends may be read."""
    return known.get(link.from_session) is not None or known.get(link.to_session) is not None


def _ordered(session_id: str, links: list[Link]) -> list[str]:
    """Return the sessions of a tree as it is read: each before what came of it, the oldest first."""
    below: dict[str, list[Link]] = {}
    for link in sorted(links, key=lambda one: (one.created_at, one.id)):
        below.setdefault(link.from_session, []).append(link)
    children = {link.to_session for link in links}
    roots = [name for name in below if name not in children] or [session_id]
    out: list[str] = []
    waiting = list(reversed(roots))
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        out.append(name)
        # Delegated work and branches before what it went on in, so that the main line stands last and unbroken.
        ahead = sorted(below.get(name, ()), key=lambda one: one.type == "continuation")
        waiting += [link.to_session for link in reversed(ahead)]
    return out


def _nearest(session_id: str, links: list[Link], order: list[str]) -> set[str]:
    """Return the sessions that are shown: those with the fewest links to the one that is looked at."""
    if len(order) <= NODES:
        return set(order)
    around: dict[str, list[str]] = {}
    for link in links:
        around.setdefault(link.from_session, []).append(link.to_session)
        around.setdefault(link.to_session, []).append(link.from_session)
    shown = [session_id]
    seen = {session_id}
    for name in shown:  # grows while it is walked: breadth first
        for neighbour in around.get(name, ()):
            if neighbour not in seen and len(shown) < NODES:
                seen.add(neighbour)
                shown.append(neighbour)
    return seen


def _quotes(
    platform: Platform, known: dict[str, Session | None], shown: set[str]
) -> dict[str, tuple[Other, ...]]:
    """Return the sessions that were quoted in those that are shown."""
    out: dict[str, tuple[Other, ...]] = {}
    outside: set[str] = set()
    for name in sorted(shown, reverse=True)[:LOOKED_INTO]:
        if known.get(name) is None:
            continue
        sources: dict[str, None] = {}
        for event in platform.store.events(name, kinds=("context",), limit=20, newest_first=True):
            body = body_of(event)
            if isinstance(body, Recall):
                sources.update((reference.source, None) for reference in body.references)
        kept = []
        for source in sources:
            if source not in shown and source not in outside:
                if len(outside) >= REFERENCES:
                    continue
                outside.add(source)
            kept.append(other_of(platform, source))
        out[name] = tuple(kept)
    return out


def _rows(
    platform: Platform,
    known: dict[str, Session | None],
    here: str,
    links: list[Link],
    order: list[str],
    quotes: dict[str, tuple[Other, ...]],
) -> list[Row]:
    now = platform.clock()
    above = {link.to_session: link for link in links}
    newest: dict[str, str] = {}
    for link in sorted(links, key=lambda one: (one.created_at, one.id)):
        if link.type == "continuation":
            newest[link.from_session] = link.id
    depths: dict[str, int] = {}
    others = {name: _other(known, name) for name in {*order, *(one.from_session for one in links)}}
    out = []
    for name in order:
        came = above.get(name)
        # The main line goes straight down; what leaves it stands further in.
        main = came is not None and newest.get(came.from_session) == came.id
        depth = 0 if came is None else depths.get(came.from_session, 0) + (0 if main else 1)
        depths[name] = depth
        session = known.get(name)
        relation, note = _relation(came, newest)
        out.append(
            Row(
                session=others[name],
                here=name == here,
                depth=depth,
                relation=relation,
                source=others[came.from_session] if came is not None else None,
                note=note,
                when=words.when(session.created_at, now) if session is not None else None,
                events=session.head_seq if session is not None else 0,
                quotes=quotes.get(name, ()),
            )
        )
    return out


def _other(known: dict[str, Session | None], name: str) -> Other:
    found = known.get(name)
    if found is None:
        return Other(id=name, title="a session that is not available", href=None)
    return Other(id=name, title=found.title or "Untitled", href=f"/sessions/{name}")


def _relation(link: Link | None, newest: dict[str, str]) -> tuple[str, str]:
    """Return how a session came of another one, and why or where."""
    if link is None:
        return "", ""
    if link.type == "continuation":
        current = newest.get(link.from_session) == link.id
        told = "continues" if current else "continues, as an older branch of,"
        return told, reason_words(link.reason)
    if link.type == "fork":
        return "branches from", f"at event {link.seq:,}" if link.seq else ""
    how = (
        f"it reported: {link.outcome or 'done'}"
        if link.reported_at is not None
        else "it has not reported yet"
    )
    return "was delegated by", how


def _picture(
    rows: list[Row], links: list[Link], shown: set[str], quotes: dict[str, tuple[Other, ...]]
) -> lineage_map.Map:
    """Return the same as a picture."""
    nodes = [
        Node(
            id=row.session.id,
            title=row.session.title,
            href=row.session.href,
            depth=row.depth,
            here=row.here,
            about=" ".join(filter(None, (row.relation, f"“{row.source.title}”" if row.source else "")))
            or "the beginning",
        )
        for row in rows
    ]
    drawn = {node.id for node in nodes}
    edges = [
        Edge(start=link.from_session, end=link.to_session, type=link.type)
        for link in links
        if link.from_session in shown and link.to_session in shown
    ]
    for name, sources in quotes.items():
        for source in sources:
            if source.id not in drawn:
                drawn.add(source.id)
                nodes.append(
                    Node(
                        id=source.id,
                        title=source.title,
                        href=source.href,
                        depth=0,
                        here=False,
                        about="quoted here",
                    )
                )
            edges.append(Edge(start=source.id, end=name, type="reference"))
    return lineage_map.drawn(nodes, edges)


PAGES: Final = (
    Page(
        method="GET",
        path="/sessions/{session}/lineage",
        does="Show where a session comes from and what came of it.",
        scope="read",
        handler=show,
    ),
)
