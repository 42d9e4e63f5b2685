"""Markdown: the one place where text from a log becomes markup.

Two layers, neither of which trusts the other: ``markdown-it-py`` reads Markdown and takes HTML in it as text, then ``nh3``
lets through a short list of tags and almost no attributes. What is left of a link leads to http, https or mail, says that it
comes from nowhere and vouches for nothing. There are no pictures: what stands for one is shown as a link to it, so that
reading a conversation fetches nothing from anywhere.

Control characters are made visible before anything is read, so none can hide what a link or a name is.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

from onward.core.harmless import harmless

LIMIT: Final = 20_000
"""Characters of a text that are read as Markdown; one that is longer is shown as it is."""
MARKS: Final = (("\n", 800), ("[", 400), ("*_~", 1_500), ("<&", 1_500), ("`", 1_000), ("|", 2_000))
"""How often marks and line ends may stand in a text that is read: each costs, and looking for the other half of a mark
takes the square of their number."""
KEPT: Final = 1_000
"""Texts whose markup is remembered: a log does not change, so the pages of a session show the same ones again."""
# fmt: off
TAGS: Final = frozenset((
    "a", "blockquote", "br", "code", "del", "em", "h4", "hr", "li", "ol", "p", "pre", "s", "strong",
    "table", "tbody", "td", "th", "thead", "tr", "ul",
))
# fmt: on
ATTRIBUTES: Final[dict[str, set[str]]] = {"a": {"href", "title"}, "ol": {"start"}}
SCHEMES: Final = frozenset(("http", "https", "mailto"))


def rendered(text: str) -> Markup:
    """Return a text as markup that does nothing but show it. Never raises; a hostile text costs milliseconds."""
    if len(text) > LIMIT or any(sum(map(text.count, marks)) > most for marks, most in MARKS):
        return plain(text)
    return _rendered(text)


@functools.lru_cache(KEPT)
def _rendered(text: str) -> Markup:
    try:
        made = _reader().render(harmless(text))
    except (RecursionError, ValueError):
        return plain(text)
    return Markup(_cleaner().clean(made))  # it went through the sanitizer


def plain(text: str) -> Markup:
    """Return a text as it is, each line where it stood."""
    return Markup('<pre class="plain">{}</pre>').format(escape(harmless(text)))


@functools.cache
def _reader() -> MarkdownIt:
    reader = MarkdownIt("commonmark", {"html": False, "linkify": False, "maxNesting": 20})
    reader.enable(["table", "strikethrough"])
    reader.validateLink = _may_lead  # type: ignore[method-assign]  # what it has it for
    reader.add_render_rule("image", _image)
    # The page has its own headings, of three levels. Those of a text come under them, all of one level, so that whoever
    # goes from heading to heading finds none missing in between.
    for rule in ("heading_open", "heading_close"):
        reader.add_render_rule(rule, _heading)
    return reader


def _may_lead(url: str) -> bool:
    """Whether a link may stand: anything else, our own pages included, stays the text that it is."""
    return url.lower().startswith(tuple(f"{scheme}:" for scheme in SCHEMES))


def _image(renderer: RendererHTML, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
    """Show a picture as a link to it."""
    token = tokens[place]
    name = renderer.renderInlineAsText(token.children, options, env) or "picture"
    source = str(token.attrs.get("src", ""))
    return str(Markup('<a href="{}">[picture: {}]</a>').format(source, name))


def _heading(renderer: RendererHTML, tokens: Sequence[Token], place: int, options: Any, env: Any) -> str:
    """Put a heading of a text under those of the page."""
    del renderer, options, env
    return "</h4>" if tokens[place].nesting < 0 else "<h4>"


@functools.cache
def _cleaner() -> nh3.Cleaner:
    return nh3.Cleaner(
        tags=set(TAGS),
        attributes=ATTRIBUTES,
        url_schemes=set(SCHEMES),
        link_rel="noopener noreferrer nofollow",
        strip_comments=True,
    )
