"""``search``: where something was said."""

from __future__ import annotations

from onward.service import recalling
from onward.surfaces.cli import addresses, screen
from onward.surfaces.cli.grammar import Call
from onward.surfaces.cli.opened import opened


def search(call: Call) -> int:
    """Search the log."""
    with opened(call) as platform:
        start = addresses.session(platform, call["session"]).id if call["session"] else None
        found = recalling.search(
            platform,
            " ".join(call["query"]),
            session_id=start,
            scope=call["scope"],
            limit=20 if call["limit"] is None else call["limit"],
        )
        headlines = (
            {}
            if call.json
            else {
                name: screen.headline(platform.session(name).title)
                for name in {hit.session for hit in found.hits}
            }
        )
    if call.json:
        screen.document({"hits": found.hits, "complete": found.complete})
        return 0
    shown = None
    for hit in found.hits:
        if hit.session != shown:  # neighbours of one session stand under one title
            shown = hit.session
            screen.say(headlines[shown])
        screen.flow(f"{hit.session}:{hit.seq} · {screen.moment(hit.at)} · {hit.who}", "  ")
        screen.flow(hit.text, "    ")
        if hit.superseded_by:
            screen.say(f"    superseded by {hit.superseded_by}")
    if not call.quiet:
        if not found.hits:
            where = " in this session and its lineage" if start and not call["scope"] else ""
            wider = "; --scope account looks everywhere" if where else ""
            screen.note(f"Nothing found{where}{wider}.")
        for note in found.notes:
            screen.note(note)
    return 0
