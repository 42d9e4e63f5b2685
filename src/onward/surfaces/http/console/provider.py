"""Signing in with an OpenID provider: the two pages that a browser passes through (``onward.surfaces.http.oidc``).

The way back ends on a page of our own that moves on by itself, and not in a redirect: what begins on the provider's page is
cross-site all along its redirects, so the Strict cookie that is set here would not be sent with the next request.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from onward.runner.desk import in_thread
from onward.surfaces.http import oidc, oidc_flow, signing_in
from onward.surfaces.http.console import door, rendering
from onward.surfaces.http.console.visiting import Page, Shown, Visit
from onward.surfaces.http.oidc_claims import NotSignedIn

if TYPE_CHECKING:
    from onward.surfaces.http.oidc import SignIn

LOG: Final = logging.getLogger("onward.signing_in")
"""Who came in, to which account, and who did not and why: for whoever runs the server."""


async def begin(visit: Visit) -> Any:
    """Send a browser to the provider."""
    sign_in, request = visit.house.oidc, visit.request
    if sign_in is None:
        return _none()
    back = door.own_path(visit.query.get("next", "/"))
    choose = visit.query.get("choose") == "1"
    if door.looks_ahead(request) or request.headers.get("sec-fetch-site") == "cross-site":
        # A sign-in is begun by a person, on a page of this server.
        return door.form(visit, back)
    own = urlsplit(sign_in.address).netloc
    if request.headers.get("host", "").lower() != own and not visit.query.get("here"):
        # Cookies belong to a name, and the provider knows one name of this server.
        asked = {"next": back, "here": "1", **({"choose": "1"} if choose else {})}
        return RedirectResponse(f"{sign_in.address}{oidc.BEGIN}?{urlencode(asked)}", 303)
    try:
        flow, address = await sign_in.begin(back, choose=choose)
    except NotSignedIn as refused:
        return _refused(visit, sign_in, refused, back)
    response = RedirectResponse(address, 303, headers={"cache-control": "no-store"})
    response.set_cookie(
        _cookie(visit),
        flow.cookie(),
        max_age=oidc_flow.SECONDS,
        path="/",
        secure=signing_in.is_secure(visit.house, request),
        httponly=True,
        samesite="lax",
    )
    return response


async def finish(visit: Visit) -> Any:
    """Let a browser in that comes back from the provider."""
    sign_in, request = visit.house.oidc, visit.request
    if sign_in is None:
        return _none()
    if door.looks_ahead(request):
        return door.form(visit, "/")
    try:
        flow = sign_in.matched(request.cookies.get(_cookie(visit), ""), visit.query)
    except NotSignedIn as refused:
        return _refused(visit, sign_in, refused, "/")
    try:
        found = await sign_in.person(flow, visit.query)
    except NotSignedIn as refused:
        return _drop(visit, _refused(visit, sign_in, refused, flow.back))
    account = sign_in.account_of(found, visit.house.platform.account_id)
    secret = await in_thread(
        signing_in.by_provider, visit.house, account, found.shown, seconds=float(oidc.LASTS)
    )
    LOG.info("sign-in with %s: %a as %s (%s)", sign_in.name, found.shown, account, _id(request))
    back = door.own_path(flow.back)
    text = _drawn(
        visit,
        Shown(template="signed_in.html", values={"title": "Signed in", "who": found.shown, "back": back}),
    )
    response = HTMLResponse(text, headers={"cache-control": "no-store"})
    signing_in.keep(visit.house, request, response, secret, seconds=oidc.LASTS)
    return _drop(visit, response)


def _refused(visit: Visit, sign_in: SignIn, refused: NotSignedIn, back: str) -> Response:
    """Return the page that says why, and what to do; the log has the reason, and neither code nor token."""
    LOG.warning("sign-in with %s: %s (%s)", sign_in.name, refused.why, _id(visit.request))
    shown = door.form(visit, door.own_path(back), refused.told, refused.status)
    text = _drawn(visit, shown, choose=isinstance(refused, oidc.NotOnTheList))
    return HTMLResponse(text, refused.status, headers={"cache-control": "no-store"})


def _drawn(visit: Visit, shown: Shown, **more: Any) -> str:
    # The address of this page holds what came from the provider, so no form leads back to it.
    surroundings = {**rendering.surroundings(visit.request, None), "here_query": "/login"}
    return rendering.draw(shown.template, {**surroundings, **shown.values, **more})


def _drop(visit: Visit, response: Response) -> Response:
    response.delete_cookie(
        _cookie(visit),
        path="/",
        secure=signing_in.is_secure(visit.house, visit.request),
        httponly=True,
        samesite="lax",
    )
    return response


def _cookie(visit: Visit) -> str:
    return f"{signing_in.cookie_name(visit.house, visit.request)}_oidc"


def _id(request: Request) -> str:
    return str(request.scope.get("state", {}).get("request_id", ""))


def _none() -> Shown:
    told = "This server has no provider to sign in with. Use a link or a token."
    return Shown(template="error.html", values={"title": "Nothing here", "told": told}, status=404)


PAGES: Final = (
    Page(method="GET", path=oidc.BEGIN, does="Begin to sign in with a provider.", scope=None, handler=begin),
    Page(method="GET", path=oidc.RETURN, does="Come back from the provider.", scope=None, handler=finish),
)
