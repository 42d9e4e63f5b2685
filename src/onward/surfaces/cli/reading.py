"""``list``, ``show`` and ``read``: what there is, how it stands, and exactly what was said."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from onward.core.events import Event, iso
from onward.core.records import Session
from onward.service import sessions
from onward.service.platform import Platform
from onward.surfaces.cli import addresses, screen, shapes
from onward.surfaces.cli.grammar import Call, UsageError
from onward.surfaces.cli.opened import again, opened

_ARROWS = {"continuation": ("continued as", "continued from"), "child": ("delegated to", "delegated by")}
_ARROWS["fork"] = ("branched as", "branched from")
_MARKS: Final = {"continuation": "continuation", "child": "delegated", "fork": "branch"}
_TRAFFIC: Final = ("tool_call", "tool_result", "terminal", "context")
"""Kinds that are shortened on a page of several events."""
SHORTENED: Final = 800
"""Characters that are left of them."""


def list_(call: Call) -> int:
    """List sessions, newest activity first."""
    with opened(call) as platform:
        which: dict[str, Any] = {
            "text": call["query"],
            "workspace": os.path.abspath(call["workspace"]) if call["workspace"] else None,
        }
        found, cursor = sessions.listed(
            platform,
            **which,
            children=call["children"],
            limit=50 if call["limit"] is None else call["limit"],
            cursor=call["cursor"],
        )
        if call.json:
            screen.document({"sessions": [shapes.session(s, platform) for s in found], "next": cursor})
            return 0
        for session in found:
            screen.say(screen.headline(session.title))
            screen.flow(facts(session, platform, marked=True), "  ")
        if not call.quiet:
            hidden = "" if call["children"] or call["cursor"] else _hidden(platform, which)
            if not found and hidden:
                pass
            elif not found and (call["query"] or call["workspace"] or call["cursor"]):
                screen.note("No session fits. Without --query, --workspace and --cursor, all are listed.")
            elif not found:
                screen.note(
                    "No sessions here. `onward import` reads those of your agents; `onward run --new` begins one."
                )
            if hidden:
                screen.note(f"{hidden} not listed: {again(call, _listing(call, None))}")
            if cursor:
                screen.note(f"There are more: {again(call, _listing(call, cursor))}")
    return 0


def _hidden(platform: Platform, which: dict[str, Any]) -> str:
    """Say how many delegated sessions a list leaves out; nothing where it leaves out none."""
    listed, more = sessions.listed(platform, **which, limit=sessions.READ_MAX)
    own, _ = sessions.listed(platform, **which, children=False, limit=sessions.READ_MAX)
    if more:
        return "Delegated sessions are"
    count = len(listed) - len(own)
    return f"{screen.counted(count, 'delegated session')} {'is' if count == 1 else 'are'}" if count else ""


def _listing(call: Call, cursor: str | None) -> str:
    """Return the words that show the next page of the same list or, without a cursor, that list with children."""
    import shlex

    asked = [
        f"--{name} {shlex.quote(str(call[name]))}"
        for name in ("query", "workspace", "limit")
        if call[name] is not None
    ]
    if call["children"] or cursor is None:
        asked.append("--children")
    return " ".join(("list", *asked, *(() if cursor is None else (f"--cursor {cursor}",))))


def facts(session: Session, platform: Platform, *, marked: bool = False) -> str:
    """Return the facts about a session, its id first; ``marked`` says how it came to be, where its links are not shown."""
    above = None
    if marked:
        above = next((ln for ln in platform.store.links(session.id) if ln.to_session == session.id), None)
    place = platform.store.workspace_by_id(session.workspace_id) if session.workspace_id else None
    parts = [
        session.id,
        f"{session.head_seq} event{'' if session.head_seq == 1 else 's'}",
        session.engine or "",
        _MARKS[above.type] if above is not None else "",
        "imported" if session.imported else "",
        screen.moment(iso(session.updated_at or session.created_at)),
        "archived" if session.archived else "",
        place.path if place else "",
    ]
    return " · ".join(part for part in parts if part)


def show(call: Call) -> int:
    """Show how a session stands."""
    with opened(call) as platform:
        session = addresses.session(platform, call["ses"])
        links = platform.store.links(session.id)
        state = sessions.state(platform, session)
        runs = platform.store.runs(session.id)
        from onward.service import pressure  # late: of reading, only this asks for it

        full = pressure.meter(platform, session.id) if runs else None
        if call.json:
            screen.document(
                {
                    "session": shapes.session(session, platform),
                    "links": [shapes.link(link) for link in links],
                    "state": {
                        kind: shapes.event(state[kind]) if kind in state else None
                        for kind in ("plan", "pins")
                    },
                    "runs": [shapes.run(run, platform) for run in runs],
                    "pressure": None
                    if full is None
                    else {"tokens": full.tokens, "window": full.window, "share": full.share},
                }
            )
            return 0
        screen.say(screen.headline(session.title))
        screen.flow(facts(session, platform), "  ")
        if session.description:
            screen.flow(session.description, "  ")
        from onward.core.lines import said

        for link in links:
            ahead = link.from_session == session.id
            words = _ARROWS[link.type][0 if ahead else 1]
            reason = f" ({link.reason})" if link.reason else ""
            other = link.to_session if ahead else link.from_session
            there = platform.store.session(other) if platform.may_read(other) else None
            title = f" “{screen.one_line(there.title, 80)}”" if there is not None and there.title else ""
            screen.flow(f"{words} {other}{title}{reason}", "  ")
        for kind, event in state.items():
            screen.flow(f"{kind}: {said(event)}", "  ")
        if full is not None:
            screen.say(
                f"  context: {full.tokens:,} of {full.window:,} tokens at the newest request ({full.share:.0%})"
            )
        for run in runs:
            why = shapes.reason(run, platform)
            screen.flow(f"{run.id} {run.state} {run.engine}{': ' + why if why else ''}", "  ")
    return 0


def read(call: Call) -> int:
    """Read exact events of a session."""
    with opened(call) as platform:
        session, first, last = addresses.stretch(platform, call["ses"])
        limit = sessions.READ_DEFAULT if call["limit"] is None else call["limit"]
        if (tail := call["tail"]) is not None:
            if call["limit"] is not None or ":" in call["ses"]:
                raise UsageError("--tail reads the newest events; give no range and no --limit beside it")
            first, limit = max(session.head_seq - tail + 1, 1), tail
        page = sessions.read(platform, session.id, first, last, limit=limit)
        if call.json:
            screen.document(
                {
                    "session": shapes.session(page.session, platform),
                    "events": [shapes.event(event) for event in page.events],
                    "next": page.next,
                }
            )
            return 0
        named = first == last or call["full"]
        print_events(page.events, full=named)
        if page.next is not None and not call.quiet:
            upto = "" if last is None else str(last)
            full = " --full" if call["full"] else ""
            screen.note(f"Read on: {again(call, f'read {session.id}:{page.next}-{upto}{full}')}")
    return 0


def print_events(events: Sequence[Event], *, full: bool) -> None:
    """Print events as their lines, what follows a first line set in.

    Unless they are shown in full, records without a counterpart are counted instead (a session of two thousand events can
    hold seventeen hundred of them), and traffic of tools and contexts is shortened, saying by how much. What people and
    agents said is always whole.
    """
    from onward.core.codec import Raw, body_of
    from onward.core.lines import who, whole

    waiting: list[Event] = []

    def told() -> None:
        if waiting:
            first, last = waiting[0], waiting[-1]
            name = who(first)
            if first is last:
                screen.say(f"[{first.seq}] {name}: {len(first.body):,} bytes, not shown")
            else:
                screen.say(f"[{first.seq}-{last.seq}] {len(waiting)} {name}s, not shown")
            waiting.clear()

    for event in events:
        body = body_of(event)
        if not full and isinstance(body, Raw):
            if waiting and who(waiting[0]) != who(event, body):
                told()
            waiting.append(event)
            continue
        told()
        limit = None if full or event.kind not in _TRAFFIC else SHORTENED
        screen.say(whole(event, body, limit=limit).rstrip(), indent="    ")
    told()
