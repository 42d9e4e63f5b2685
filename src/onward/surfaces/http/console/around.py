"""Around a session: what its page says about where it comes from, where it went on, and what waits for a person.

The page of a session takes these values as they are; the templates beside it (``path``, ``banner``, ``offers``,
``waiting``) show them.
"""

from __future__ import annotations

import secrets
from typing import Any

from onward.core.records import Session
from onward.errors import OnwardError
from onward.service import sessions
from onward.service.platform import Platform
from onward.surfaces.http.console import approving, lineage, transitions
from onward.surfaces.http.console.views import Other, View
from onward.surfaces.http.console.visiting import Visit


class Offers(View, frozen=True, kw_only=True):
    """What a person can do who wants to say something in a session that went on elsewhere."""

    current: Other
    """Where the conversation goes on now, which may be further than the next session."""
    key: str
    """Makes one branch of a form that is sent twice."""


def values(visit: Visit, session: Session) -> dict[str, Any]:
    """Return what the page of a session needs of its surroundings."""
    platform = visit.platform
    parked, permissions = approving.of_session(visit, session)
    out: dict[str, Any] = {
        "path": lineage.path(platform, session),
        "banner": transitions.banner(platform, session),
        "offers": _offers(platform, session),
        "parked": parked,
        "permissions": permissions,
        "carried": False,
    }
    if key := visit.query.get("carried", ""):
        out["written"] = visit.house.carried.get(platform.account_id, key)
        out["carried"] = bool(out["written"])
    return out


def _offers(platform: Platform, session: Session) -> Offers | None:
    if not sessions.continuations(platform, session.id):
        return None
    try:
        end = sessions.latest(platform, session.id)
    except OnwardError:  # it went on where this account may not look
        return None
    return Offers(
        current=Other(id=end.id, title=end.title or "Untitled", href=f"/sessions/{end.id}"),
        key=secrets.token_urlsafe(16),
    )
