"""The addresses of all pages that a person reads, from the list of pages itself: a new page is tested without more ado."""

from __future__ import annotations

import re
from typing import Final

from tests.browser.furnishing import Furnished
from tests.browser.housing import House

from onward.surfaces.http.console.pages import PAGES

PARTS: Final = frozenset(
    (
        "/static/{name:path}",
        "/sessions/{session}/timeline",
        "/sessions/{session}/facts",
        "/sessions/{session}/live",
        "/sessions/{session}/mentions",
        "/sessions/{session}/events/{seq}/raw",
        "/sessions/{session}/events/{seq}/parts/{part}",
        "/manifests/{manifest}/raw",
        "/approvals/count",
        "/login/oidc",
        "/login/oidc/back",
    )
)
"""What is no page but a part of one, a file, or a way to another site."""


def addresses(home: House, there: Furnished) -> list[str]:
    """Return where every page of a furnished store is, some of them more than once because they differ."""
    log = home.log
    origin = log.session(there.origin)
    run = log.platform.store.runs(there.failed, limit=1)[0]
    waiting = log.approvals(there.asking)[0].id
    values = {
        "session": there.origin,
        "seq": "3",
        "span": "4-6",
        "run": run.id,
        "manifest": there.manifest,
        "workspace": origin.workspace_id or "",
        "approval": waiting,
    }
    only = {"/sessions/{session}/handoff": there.successor, "/sessions/{session}/mention": there.empty}
    found = []
    for page in PAGES:
        if page.method == "GET" and page.path not in PARTS:
            values["session"] = only.get(page.path, there.origin)
            found.append(re.sub(r"\{(\w+)\}", lambda name: values[name[1]], page.path))
    return [
        *found,
        f"/sessions/{there.every}",
        f"/sessions/{there.every}/events/2",
        f"/sessions/{there.successor}",
        f"/sessions/{there.successor}/lineage",
        f"/sessions/{there.failed}",
        f"/sessions/{there.asking}",
        f"/sessions/{there.child}",
        f"/sessions/{there.empty}",
        f"/sessions/{there.asking}/continue?purpose=Move+it",
        f"/sessions/{there.origin}/branch?at=2",
        f"/manifests/{there.manifest}?verify=1",
        "/search?q=offset",
        "/search?q=nothingofthekind",
        "/approvals?answered=1",
        "/nowhere",
    ]
