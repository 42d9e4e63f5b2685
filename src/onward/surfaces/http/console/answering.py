"""Answering: the table of pages, made into something that a browser can be pointed at.

For each request: who is signed in, whether they may, whether a form is one of ours, one handler, and what it answered with
the headers that every page has. Who is not signed in is sent to sign in and comes back; what went wrong is told on a page,
in words, with the status that the API would answer.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send

from onward.errors import Forbidden, InvalidInput, OnwardError
from onward.runner.desk import in_thread
from onward.service import tokens
from onward.surfaces.http import failing, signing_in
from onward.surfaces.http.console import rendering
from onward.surfaces.http.console.pages import PAGES
from onward.surfaces.http.console.visiting import DOOR_LIMIT, FORM_LIMIT, Moved, Page, Shown, Visit

if TYPE_CHECKING:
    from onward.surfaces.http.house import House

LOG: Final = logging.getLogger("onward.http")
"""The log of requests, see ``guarding``."""
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""What a page may load and do: only what comes from here, nothing that stands in the page itself."""
HEADERS: Final = {
    "content-security-policy": POLICY,
    # A form's Origin is checked; with no-referrer, a browser would send none that says anything.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "private, no-cache",
    "vary": "Cookie, HX-Request",
}


def routes(house: House, pages: tuple[Page, ...] = PAGES) -> list[StarletteRoute]:
    """Return the routes of the console."""
    by_path: dict[str, dict[str, Page]] = {}
    for page in pages:
        by_path.setdefault(page.path, {})[page.method] = page
    return [StarletteRoute(path, _Endpoint(house, methods)) for path, methods in by_path.items()]


def or_else(api: App) -> App:
    """Return what answers a path that leads nowhere: that of the API below ``/v1``, a page for people elsewhere."""

    async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"].startswith("/v1/") or scope["path"] == "/v1":
            await api(scope, receive, send)
            return
        values = {"title": "Nothing here", "told": f"There is nothing at {scope['path']}."}
        shown = Shown(template="error.html", values=values, status=404)
        await _drawn(Request(scope, receive), None, shown)(scope, receive, send)

    return nowhere


class _Endpoint:
    """The pages of one path."""

    def __init__(self, house: House, methods: dict[str, Page]) -> None:
        self._house, self._methods = house, methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except Exception:
            # What it was stands in the log, under the id that the page shows.
            named = str(scope.get("state", {}).get("request_id", ""))
            LOG.exception("%s %s failed (%s)", scope["method"], scope["path"], named)
            response = _drawn(request, None, _fault(named))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        signed = await self._house.reading(signing_in.signed, self._house, request)
        page = self._methods.get("GET" if request.method == "HEAD" else request.method)
        try:
            if page is None:
                told = f"{request.method} is not possible here."
                shown = Shown(
                    template="error.html", values={"title": "Not possible", "told": told}, status=405
                )
                response = _drawn(request, signed, shown)
                response.headers["allow"] = ", ".join(sorted(self._methods))
                return response
            if signed is None and page.scope is not None:
                return _sign_in_first(request, page)
            if signed is not None and page.scope is not None and not tokens.allows(signed.token, page.scope):
                raise Forbidden(why=f"whoever is signed in here may not {page.scope}")
            most = DOOR_LIMIT if signed is None else FORM_LIMIT
            form = await _form(request, most) if page.method == "POST" else {}
            if page.method == "POST" and signed is not None:
                signing_in.check_form(signed, form.get("csrf", ""))
            visit = Visit(
                house=self._house,
                request=request,
                signed=signed,
                path=dict(request.path_params),
                query=_query(request),
                form=form,
            )
            if inspect.iscoroutinefunction(page.handler):
                answer: Any = await page.handler(visit)
                return _finished(request, signed, answer)
            if page.method == "GET":
                return await self._house.reading(_called, page, visit)
            return await in_thread(_called, page, visit)
        except OnwardError as error:
            return _drawn(request, signed, telling(error))


def _called(page: Page, visit: Visit) -> Response:
    """Answer a request in a worker thread: making markup of a hundred events is work too."""
    return _finished(visit.request, visit.signed, page.handler(visit))


def _finished(request: Request, signed: signing_in.Signed | None, answer: Any) -> Response:
    match answer:
        case Shown():
            return _drawn(request, signed, answer)
        case Moved():
            return RedirectResponse(answer.to, 303, headers=HEADERS)
        case _:
            response: Response = answer
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            return response


def _drawn(request: Request, signed: signing_in.Signed | None, shown: Shown) -> Response:
    text = rendering.draw(shown.template, {**rendering.surroundings(request, signed), **shown.values})
    headers = HEADERS if shown.kept else {**HEADERS, "cache-control": "no-store"}
    return HTMLResponse(text, shown.status, headers=headers)


def _fault(named: str) -> Shown:
    told = f"This is a fault in Onward. The server's log has it as {named}."
    values = {"title": "That did not work", "told": told, "signed": True}
    return Shown(template="error.html", values=values, status=500)


def telling(error: OnwardError) -> Shown:
    """Return the page that tells an error, in its own words."""
    status = failing.status_of(error)
    title = {400: "That cannot be read", 403: "Not allowed", 404: "Nothing here", 429: "Too fast"}.get(
        status, "That did not work"
    )
    values = {"title": title, "told": str(error), "code": error.code, "details": error.details}
    return Shown(template="error.html", values=values, status=status)


def _sign_in_first(request: Request, page: Page) -> Response:
    """Send whoever is not signed in to the door, and back; a part of a page, or a form, is only refused."""
    back = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    part = (
        request.headers.get("hx-request") or request.headers.get("sec-fetch-mode", "navigate") != "navigate"
    )
    if page.method == "GET" and not part and request.headers.get("sec-fetch-site") == "cross-site":
        # The cookie does not travel with a link from elsewhere; with one from here it does.
        return _drawn(
            request, None, Shown(template="from_elsewhere.html", values={"title": "Onward", "back": back})
        )
    if page.method == "GET" and not part:
        return RedirectResponse(f"/login?next={quote(back, safe='')}", 303, headers=HEADERS)
    values = {
        "title": "Sign in",
        "told": "You are not signed in here, or not any more. Sign in, then try again.",
    }
    return _drawn(request, None, Shown(template="error.html", values=values, status=401))


def _query(request: Request) -> Mapping[str, str]:
    """Return the query; of a name that stands there twice, the last."""
    return dict(request.query_params)


async def _form(request: Request, most: int) -> Mapping[str, str]:
    """Return what a form sent. Raises InvalidInput, also for one that is too large."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > most:
            raise InvalidInput(what="the form", why=f"it may have at most {most:,} bytes")
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise InvalidInput(what="the form", why="it must be application/x-www-form-urlencoded")
    try:
        pairs = parse_qsl(data.decode("ascii"), keep_blank_values=True, max_num_fields=1000, errors="strict")
    except ValueError as error:
        raise InvalidInput(what="the form", why=str(error)) from None
    # Browsers send every line end of a text as two characters.
    return {name: value.replace("\r\n", "\n") for name, value in pairs}
