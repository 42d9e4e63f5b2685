"""The door: signing in and out, how the console looks, and the files that pages load."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from onward.errors import InvalidInput, OnwardError, Unauthorized
from onward.surfaces.http import failing, oidc, signing_in
from onward.surfaces.http.console import rendering
from onward.surfaces.http.console.visiting import Page, Shown, Visit

YEAR: Final = 365 * 86_400
"""Seconds that a browser keeps how the console looks, and files whose address changes with them."""


def own_path(given: str) -> str:
    """Return where to go on after a form: a path of this server, else the first page."""
    plain = given.startswith("/") and not given.startswith("//") and given.isprintable()
    return given if plain and "\\" not in given else "/"


def looks_ahead(request: Request) -> bool:
    """Whether a page is fetched before anybody wants it, so that nothing may be used up."""
    purpose = f"{request.headers.get('sec-purpose', '')} {request.headers.get('purpose', '')}"
    return request.method == "HEAD" or "prefetch" in purpose or "prerender" in purpose


def login(visit: Visit) -> Any:
    """Let a browser in by its link; without one, show where a token can be given."""
    code = visit.query.get("code", "")
    onward_to = own_path(visit.query.get("next", "/"))
    if not code:
        return form(visit, onward_to)
    if looks_ahead(visit.request):
        # Looked at ahead of time, by something that is not the person: the link stays good.
        return form(visit, onward_to, "Open this link to sign in.")
    try:
        secret = signing_in.by_link(visit.house, code)
    except Unauthorized:
        return form(
            visit,
            onward_to,
            "This link was used before, or is too old. Start `onward serve` again for a new one.",
            401,
        )
    return _let_in(visit, secret, onward_to)


def login_by_token(visit: Visit) -> Any:
    """Let a browser in by a token."""
    onward_to = own_path(visit.form.get("next", "/"))
    try:
        secret = signing_in.by_token(visit.house, visit.form.get("token", ""))
    except OnwardError as error:
        told = "This token lets nobody in: it is not known, was revoked or has expired."
        if not isinstance(error, Unauthorized):
            told = str(error)
        return form(visit, onward_to, told, failing.status_of(error))
    return _let_in(visit, secret, onward_to)


def logout(visit: Visit) -> Response:
    """Sign the browser out."""
    if visit.signed is not None:
        signing_in.sign_out(visit.house, visit.signed)
    # What Back would still show is gone too.
    response = RedirectResponse("/login", 303, headers={"clear-site-data": '"cache"'})
    signing_in.drop(visit.house, visit.request, response)
    return response


def theme(visit: Visit) -> Response:
    """Keep how the console looks."""
    wanted = visit.form.get("theme", "auto")
    if wanted not in rendering.THEMES:
        raise InvalidInput(what=f"the look {wanted!r}", why=f"there are {', '.join(rendering.THEMES)}")
    response = RedirectResponse(own_path(visit.form.get("back", "/")), 303)
    response.set_cookie(rendering.THEME, wanted, max_age=YEAR, path="/", httponly=True, samesite="strict")
    return response


def static(visit: Visit) -> Any:
    """Return a file that pages load."""
    name = visit.path["name"]
    found = rendering.static(name)
    if found is None:
        return Shown(
            template="error.html",
            values={"title": "Nothing here", "told": f"There is no file {name}."},
            status=404,
        )
    dated = rendering.asset(name).partition("?v=")[2]
    kept = f"public, max-age={YEAR}, immutable" if visit.query.get("v") == dated else "no-cache"
    return Response(found.body, media_type=found.media_type, headers={"cache-control": kept})


def form(visit: Visit, onward_to: str, told: str = "", status: int = 200) -> Shown:
    """Return the page to sign in on, with what went wrong before."""
    sign_in = visit.house.oidc
    values = {
        "title": "Sign in",
        "told": told,
        "next": onward_to,
        "provider": sign_in.name if sign_in is not None else None,
        "begin": f"{oidc.BEGIN}?{urlencode({'next': onward_to})}",
        "choose": False,
    }
    return Shown(template="login.html", values=values, status=status)


def _let_in(visit: Visit, secret: str, onward_to: str) -> Response:
    response = RedirectResponse(onward_to, 303)
    signing_in.keep(visit.house, visit.request, response, secret)
    return response


PAGES: Final = (
    Page(method="GET", path="/login", does="Sign in by a link, or with a token.", scope=None, handler=login),
    Page(method="POST", path="/login", does="Sign in with a token.", scope=None, handler=login_by_token),
    Page(method="POST", path="/logout", does="Sign out.", scope="read", handler=logout),
    Page(method="POST", path="/theme", does="Keep light, dark, or neither.", scope=None, handler=theme),
    Page(method="GET", path="/static/{name:path}", does="Return a file.", scope=None, handler=static),
)
