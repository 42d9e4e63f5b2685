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
    if call.json:
        screen.document(found)
        return 0
    for hit in found.hits:
        screen.say(f"{hit.session}:{hit.seq} · {hit.at[:16].replace('T', ' ')} · {hit.who}")
        screen.flow(hit.text, "    ")
        if hit.superseded_by:
            screen.say(f"    superseded by {hit.superseded_by}")
    if not call.quiet:
        if not found.hits:
            screen.note("Nothing found.")
        elif not found.complete:
            screen.note("There may be more: not every match was ranked.")
    return 0
