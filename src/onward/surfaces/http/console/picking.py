"""Picking another session to mention: the list behind ``@`` in a composer, and the page that does it without script."""

from __future__ import annotations

from typing import Any, Final

from onward.errors import OnwardError
from onward.service import referencing
from onward.service.referencing import Candidate
from onward.surfaces.http import failing
from onward.surfaces.http.console import branching, words
from onward.surfaces.http.console.views import View
from onward.surfaces.http.console.visiting import Moved, Page, Shown, Visit
from onward.surfaces.http.console.words import When

OFFERED: Final = 8
"""Candidates in the list that stands over a composer."""
LISTED: Final = 50
"""Candidates on the page."""
LONGEST_QUERY: Final = 200


class Choice(View, frozen=True, kw_only=True):
    """A session that could be mentioned."""

    label: str
    folder: str
    when: When | None
    archived: bool
    mention: str
    """What it is in a message."""


def options(visit: Visit) -> Shown:
    """Show the sessions that a message could mention, as options of a list box."""
    query = visit.query.get("q", "")[:LONGEST_QUERY]
    found = referencing.list_candidates(visit.platform, visit.path["session"], query, OFFERED)
    return Shown(template="mentions.html", values={"choices": [_choice(visit, one) for one in found]})


def page(visit: Visit) -> Any:
    """Show the same as a page, with what was written so far; or add the mention that was chosen to it."""
    platform = visit.platform
    session = platform.session(visit.path["session"])
    text, chosen = visit.form.get("text", ""), visit.form.get("add", "")
    told, status = "", 200
    if chosen:
        try:
            referencing.prepare(platform, session.id, chosen)  # what cannot be quoted is better told now
            gap = "" if not text or text[-1].isspace() else " "
            return Moved(to=branching.arrival(visit, session.id, f"{text}{gap}{chosen} "))
        except OnwardError as error:
            told, status = str(error), failing.status_of(error)
    query = visit.form.get("q", visit.query.get("q", ""))[:LONGEST_QUERY]
    found = referencing.list_candidates(platform, session.id, query, LISTED)
    values = {
        "title": "Mention another session",
        "session": session,
        "text": text,
        "query": query,
        "choices": [_choice(visit, one) for one in found],
        "full": len(found) == LISTED,
        "refused": told,
    }
    return Shown(template="mention.html", values=values, status=status)


def _choice(visit: Visit, found: Candidate) -> Choice:
    return Choice(
        label=found.label,
        folder=found.folder or "",
        when=words.when(found.created_at, visit.platform.clock()),
        archived=found.archived,
        mention=found.mention,
    )


PAGES: Final = (
    Page(
        method="GET",
        path="/sessions/{session}/mentions",
        does="Show the sessions that a message could mention, as a part of a page.",
        scope="read",
        handler=options,
    ),
    Page(
        method="GET",
        path="/sessions/{session}/mention",
        does="Show the sessions that a message could mention.",
        scope="read",
        handler=page,
    ),
    Page(
        method="POST",
        path="/sessions/{session}/mention",
        does="Show the sessions that a message could mention, or add one to what was written.",
        scope="write",
        handler=page,
    ),
)
