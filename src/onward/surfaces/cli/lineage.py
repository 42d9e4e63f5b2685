"""``fork``, ``lineage`` and ``recalls``: where sessions come from, and what they asked for again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from onward.core.records import Link, Session
from onward.service import sessions
from onward.service.sessions import Lineage
from onward.surfaces.cli import addresses, screen, shapes, terminal
from onward.surfaces.cli.grammar import Call
from onward.surfaces.cli.opened import opened

if TYPE_CHECKING:
    from onward.service.recounting import RecallRate

_SHORTEST: Final = 8
"""Columns of a title that are shown however deep it stands."""
_STEPS = {"continuation": "continued", "child": "delegated", "fork": "branched"}


def fork(call: Call) -> int:
    """Branch from an earlier point."""
    with opened(call) as platform:
        source, seq = addresses.point(platform, call["ses"])
        branch = sessions.fork(platform, source.id, seq, title=call["title"] or "")
        link = next(ln for ln in platform.store.links(branch.id) if ln.to_session == branch.id)
        if call.json:
            screen.document({"session": shapes.session(branch, platform), "link": shapes.link(link)})
            return 0
        screen.say(branch.id)
        if not call.quiet:
            screen.note(f"It shares events 1 to {link.seq} of {source.id}.")
    return 0


def lineage(call: Call) -> int:
    """Show the path from the origin and the tree around a session."""
    with opened(call) as platform:
        session = addresses.session(platform, call["ses"])
        found = sessions.lineage(platform, session.id)
        if call.json:
            screen.document(
                {
                    "session": found.session,
                    "path": found.path,
                    "links": [shapes.link(link) for link in found.links],
                    "sessions": {
                        name: None if known is None else shapes.session(known, platform)
                        for name, known in found.sessions.items()
                    },
                }
            )
            return 0
    for line in tree(found):
        screen.say(line)
    return 0


def tree(found: Lineage) -> list[str]:
    """Return the tree as lines, each session under the one it came from; the one that was asked for is marked."""
    children: dict[str, list[Link]] = {}
    for link in found.links:
        children.setdefault(link.from_session, []).append(link)
    below = {link.to_session for link in found.links}
    waiting = [(name, "", 0) for name in sorted(set(found.sessions) - below, reverse=True)]
    lines: list[str] = []
    shown: set[str] = set()
    while waiting:
        name, how, depth = waiting.pop()
        if name in shown:
            continue
        shown.add(name)
        indent = "  " * min(depth, 12) + how
        lines.append(indent + _named(name, found.sessions.get(name), name == found.session, len(indent)))
        for link in reversed(children.get(name, [])):
            at = f" at {link.seq}" if link.type == "fork" and link.seq else ""
            reason = f" ({link.reason})" if link.type == "continuation" and link.reason else ""
            waiting.append((link.to_session, f"{_STEPS[link.type]}{at}{reason}: ", depth + 1))
    return lines


def _named(name: str, session: Session | None, here: bool, indent: int) -> str:
    mark = " <- here" if here else ""
    room = max(terminal.width() - indent - len(name) - 1 - len(mark), _SHORTEST)
    title = "(may not be read)" if session is None else screen.one_line(session.title, room) or "(no title)"
    return f"{name} {title}{mark}"


def recalls(call: Call) -> int:
    """Show what a session read again, or the rates of all continuations."""
    from onward.service import recounting

    with opened(call) as platform:
        if call["ses"] is None:
            return _rates(call, recounting.recall_rates(platform))
        report = recounting.recall_report(platform, addresses.session(platform, call["ses"]).id)
    if call.json:
        screen.document(report)
        return 0
    if not report.recalls:
        screen.say("Nothing was read again in this session: it has searched and read nothing back so far.")
        return 0
    screen.say(
        f"{screen.counted(report.recalls, 'recall')}, {report.of_omitted} of something that the projection had left out"
    )
    for address, times in report.asked_again.items():
        screen.say(f"  {times}x {address}")
    return 0


def _rates(call: Call, rates: Sequence[RecallRate]) -> int:
    """Show how often what a projection had left out was asked for, per version of the compiler and reason."""
    if call.json:
        screen.document({"rates": list(rates)})
        return 0
    for rate in rates:
        screen.say(
            f"{rate.rate:6.2f}  {rate.of_omitted} of {rate.recalls} recalls in {rate.continuations} continuations · "
            f"{rate.reason} · {rate.compiler}"
        )
    if not rates and not call.quiet:
        screen.note("No session here was continued from another one yet.")
    elif not call.quiet:
        screen.note("The first figure: recalls of something left out, a continuation. Less is better.")
    return 0
