"""Places: the list of sessions, search, workspaces and machines."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from onward.core.events import EPOCH
from onward.core.records import Workspace
from onward.errors import InvalidInput
from onward.service import briefing, machines, recalling, sessions, workspaces
from onward.service.platform import Platform
from onward.surfaces.http.console import kinds, listing, words
from onward.surfaces.http.console.listing import Filters
from onward.surfaces.http.console.visiting import Moved, Page, Shown, Visit
from onward.surfaces.http.console.window import names_of

HITS: Final = 50
"""Hits of a search on its page."""
ROWS: Final = 60
"""Rows of a workspace's timeline on its page."""
ENGINES: Final = 200
"""Sessions among which engines to filter by are looked for."""


def home(visit: Visit) -> Shown:
    """List the conversations, each once, where it goes on."""
    platform, query = visit.platform, visit.query
    filters = Filters(
        text=query.get("text", "").strip()[:200],
        workspace=query.get("workspace", ""),
        engine=query.get("engine", ""),
        archived=query.get("archived") == "1",
        imported=query.get("imported", "") if query.get("imported") in ("only", "none") else "",
        children=query.get("children") == "1",
    )
    now = platform.clock()
    found = listing.listed(platform, filters, query.get("cursor") or None)
    places = {place.id: place for place in workspaces.listed(platform)}
    shown = [_conversation(one, places, now) for one in found.conversations]
    kept = {name: value for name, value in _as_query(filters).items() if value}
    following = f"/?{urlencode({**kept, 'cursor': found.next})}" if found.next else None
    values = {
        "title": "Sessions",
        "filters": filters,
        "filtered": bool(kept),
        "conversations": shown,
        "workspaces": [(place.id, place.path) for place in places.values()],
        "engines": _engines(platform),
        "next": following,
        "looked_through": found.looked_through,
        "first": not query.get("cursor"),
    }
    return Shown(
        template="conversations.html" if visit.request.headers.get("hx-request") else "home.html",
        values=values,
    )


def start(visit: Visit) -> Moved:
    """Open a session."""
    made = sessions.start(
        visit.platform,
        visit.form.get("title", ""),
        workspace=visit.form.get("workspace", "").strip() or None,
        engine=visit.form.get("engine") or None,
    )
    return Moved(to=f"/sessions/{made.id}")


def search(visit: Visit) -> Shown:
    """Search the log; what a later event replaces says so."""
    platform, query = visit.platform, visit.query.get("q", "").strip()[:500]
    session_id = visit.query.get("session") or None
    scope = visit.query.get("scope") or ("lineage" if session_id else "account")
    values: dict[str, Any] = {
        "title": f"Search: {words.cut(query, 60)}" if query else "Search",
        "query": query,
        "scope": scope,
        "session": platform.session(session_id) if session_id else None,
        "hits": [],
        "complete": True,
        "notes": (),
        "refused": "",
    }
    if not query:
        return Shown(template="search.html", values=values)
    try:
        found = recalling.search(platform, query, session_id=session_id, scope=scope, limit=HITS)
    except InvalidInput as error:
        return Shown(template="search.html", values={**values, "refused": str(error)}, status=400)
    names = names_of(platform, {hit.session for hit in found.hits})
    now = platform.clock()
    hits = [_hit(platform, hit, names.get(hit.session) or "Untitled", now) for hit in found.hits]
    return Shown(
        template="search.html",
        values={**values, "hits": hits, "complete": found.complete, "notes": found.notes},
    )


def all_workspaces(visit: Visit) -> Shown:
    """List the workspaces."""
    platform = visit.platform
    rows: list[dict[str, Any]] = []
    for place in workspaces.listed(platform):
        on = workspaces.machine_of(platform, place)
        page, more = sessions.listed_in(platform, place.id)
        rows.append(
            {
                "id": place.id,
                "path": place.path,
                "machine": on.name if on else "this machine",
                "online": None if on is None or not on.seen_at else machines.online(platform, on),
                "sessions": f"{len(page):,}{'+' if more else ''}",
                "updated": words.when(page[0].updated_at if page else None, platform.clock()),
            }
        )
    rows.sort(key=lambda row: row["updated"].iso if row["updated"] else "", reverse=True)
    return Shown(template="workspaces.html", values={"title": "Workspaces", "workspaces": rows})


def workspace(visit: Visit) -> Shown:
    """Show the timeline of a workspace, over all its sessions, newest last."""
    platform = visit.platform
    place = workspaces.get(platform, visit.path["workspace"])
    before = visit.number("before")
    found = briefing.timeline(platform, place.id, before=before, limit=ROWS)
    names = names_of(platform, {row.session for row in found.rows})
    now = platform.clock()
    rows = [
        {
            "session": row.session,
            "title": names.get(row.session) or "Untitled",
            "seq": row.seq,
            "who": row.label,
            "text": kinds.cut(row.text, 1_200),
            "when": words.when(row.at, now),
            "href": f"/sessions/{row.session}?at={row.seq}#e{row.seq}",
        }
        for row in found.rows
    ]
    on = workspaces.machine_of(platform, place)
    values = {
        "title": place.path,
        "workspace": place,
        "machine": on.name if on else "this machine",
        "rows": rows,
        "earlier": found.rows[0].at if found.more and found.rows else None,
        "newest": before is None,
    }
    return Shown(template="workspace.html", values=values)


def all_machines(visit: Visit) -> Shown:
    """List the machines with what they offer and whether anybody is there."""
    platform = visit.platform
    now = platform.clock()
    rows = [
        {
            "name": machine.name,
            "home": machine.home,
            "online": machines.online(platform, machine) if machine.seen_at else None,
            "seen": words.when(machine.seen_at, now),
            "offers": machines.offers(machine),
        }
        for machine in machines.listed(platform)
    ]
    return Shown(template="machines.html", values={"title": "Machines", "machines": rows})


def _conversation(one: listing.Conversation, places: dict[str, Workspace], now: int) -> dict[str, Any]:
    session = one.session
    place = places.get(session.workspace_id or "")
    return {
        "id": session.id,
        "title": session.title or "Untitled",
        "description": words.cut(session.description, 200),
        "engine": session.engine,
        "workspace": place.path if place else None,
        "imported": session.imported,
        "archived": session.archived,
        "events": session.head_seq,
        "updated": words.when(session.updated_at or session.created_at, now),
        "earlier": [
            {
                "id": before.id,
                "title": before.title or "Untitled",
                "events": before.head_seq,
                "updated": words.when(before.updated_at or before.created_at, now),
            }
            for before in one.earlier
        ],
        "more": one.more,
    }


def _as_query(filters: Filters) -> dict[str, str]:
    return {
        "text": filters.text,
        "workspace": filters.workspace,
        "engine": filters.engine,
        "archived": "1" if filters.archived else "",
        "imported": filters.imported,
        "children": "1" if filters.children else "",
    }


def _engines(platform: Platform) -> list[str]:
    """Return the engines that recent sessions have and machines offer."""
    page, _ = sessions.listed(platform, limit=ENGINES)
    offered = [offer.name for machine in machines.listed(platform) for offer in machines.offers(machine)]
    return sorted({*offered, *(session.engine for session in page if session.engine)})


def _hit(platform: Platform, hit: recalling.Hit, title: str, now: int) -> dict[str, Any]:
    later = platform.store.event(hit.superseded_by) if hit.superseded_by else None
    replaced = None
    if later is not None and platform.may_read(later.session_id):
        replaced = {"seq": later.seq, "href": f"/sessions/{later.session_id}?at={later.seq}#e{later.seq}"}
    return {
        "session": hit.session,
        "title": title,
        "seq": hit.seq,
        "who": hit.who,
        "text": hit.text,
        "when": words.when(_micros(hit.at), now),
        "href": f"/sessions/{hit.session}?at={hit.seq}#e{hit.seq}",
        "replaced": replaced,
    }


def _micros(at: str) -> int:
    """Return a time that was written as ISO 8601 as microseconds again; 0 for one beyond what a datetime holds."""
    from datetime import datetime

    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return 0
    return round((moment - EPOCH).total_seconds() * 1_000_000)


PAGES: Final = (
    Page(method="GET", path="/", does="List the sessions.", scope="read", handler=home),
    Page(method="POST", path="/sessions", does="Open a session.", scope="write", handler=start),
    Page(method="GET", path="/search", does="Search the log.", scope="read", handler=search),
    Page(method="GET", path="/workspaces", does="List the workspaces.", scope="read", handler=all_workspaces),
    Page(
        method="GET",
        path="/workspaces/{workspace}",
        does="Show the timeline of a workspace.",
        scope="read",
        handler=workspace,
    ),
    Page(method="GET", path="/machines", does="List the machines.", scope="read", handler=all_machines),
)
