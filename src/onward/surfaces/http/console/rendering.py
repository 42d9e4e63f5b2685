"""Rendering: templates, and the rules that hold for whatever is put into one.

Escaping is on for every template, always. Every text that is put out goes through ``harmless`` as well, so that a control
character or a mark that reorders text is visible wherever it may stand; only markup that ``markdown`` made goes through as
it is. A name that a template misspells is an error, not an empty place.
"""

from __future__ import annotations

import functools
import hashlib
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jinja2
import msgspec
from markupsafe import Markup

import onward
from onward.core.harmless import harmless
from onward.surfaces.http import signing_in
from onward.surfaces.http.console import markdown, words

if TYPE_CHECKING:
    from starlette.requests import Request

    from onward.surfaces.http.signing_in import Signed

HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"
THEME: Final = "onward_theme"
_FOLDERS: Final = re.compile(r"[^/\\]+[/\\]*|[/\\]+")
THEMES: Final = ("auto", "light", "dark")


def _put(value: Any) -> Any:
    """Return what a template puts out: markup as it is, nothing for None, text without anything that acts or hides."""
    if value is None:
        return ""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return harmless(value)


def _path(text: str) -> Markup:
    """Return a path that breaks between its folders where it has to."""
    return Markup("<wbr>").join(Markup("{}").format(harmless(part)) for part in _FOLDERS.findall(text))


@functools.cache
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_put,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters["markdown"] = markdown.rendered
    made.filters["path"] = _path
    made.filters["counted"] = words.counted
    made.filters["number"] = words.number
    made.filters["cut"] = words.cut
    made.globals["asset"] = asset
    return made


def draw(template: str, values: Mapping[str, Any]) -> str:
    """Return a page made from a template."""
    return _templates().get_template(template).render(values)


def surroundings(request: Request, signed: Signed | None) -> dict[str, Any]:
    """Return what every page needs besides its own: who looks, how they like it, and where they are.

    ``once`` is for forms that must not be taken twice: it is another one on every page.
    """
    theme = request.cookies.get(THEME, "auto")
    return {
        "signed": signed is not None,
        "csrf": signed.csrf if signed is not None else "",
        "who": signing_in.person_of(signed.token) if signed is not None else "",
        "may_everything": signed is not None and "admin" in signed.token.scopes,
        "may_write": signed is not None and bool({"write", "admin"} & set(signed.token.scopes)),
        "theme": theme if theme in THEMES else "auto",
        "here": request.url.path,
        "here_query": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "once": secrets.token_urlsafe(12),
        "version": onward.__version__,
        "code": None,
        "partial": bool(request.headers.get("hx-request")),
    }


@functools.cache
def asset(name: str) -> str:
    """Return the address of a static file, which changes whenever the file does, so that it may be kept for ever."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:16]
    return f"/static/{name}?v={digest}"


class Asset(msgspec.Struct, frozen=True, kw_only=True):
    """A static file."""

    body: bytes
    media_type: str


_MEDIA: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@functools.cache
def _assets() -> dict[str, Asset]:
    """Return every static file by its name; nothing else is served, whatever a path says."""
    return {
        path.relative_to(STATIC).as_posix(): Asset(body=path.read_bytes(), media_type=_MEDIA[path.suffix])
        for path in sorted(STATIC.rglob("*"))
        if path.suffix in _MEDIA
    }


def static(name: str) -> Asset | None:
    """Return a static file, None where there is none of this name."""
    return _assets().get(name)
