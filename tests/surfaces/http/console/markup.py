"""Reading markup as a browser would, as far as tests need: its elements, and what is wrong with it."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = frozenset(("br", "hr", "img", "input", "link", "meta", "wbr"))


class Markup(HTMLParser):
    """The elements of a document: their names, their attributes, their text; ``open`` must be empty in the end."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.faults: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if len(given) != len(attrs):
            self.faults.append(f"an attribute of {tag} stands twice: {attrs}")
        self.elements.append((tag, given))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID or not self.open:
            return
        if self.open[-1] != tag:
            self.faults.append(f"</{tag}> closes <{self.open[-1]}>")
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def named(self, *tags: str) -> list[dict[str, str]]:
        """Return the attributes of all elements of these names."""
        return [given for tag, given in self.elements if tag in tags]

    def with_id(self) -> list[str]:
        """Return all ids."""
        return [given["id"] for _, given in self.elements if "id" in given]


def acting(markup: Markup) -> list[str]:
    """Return everything in markup that could do something that a page of ours does not do."""
    found = []
    for tag, given in markup.elements:
        if tag in (
            "script",
            "style",
            "iframe",
            "object",
            "embed",
            "base",
            "frame",
            "portal",
            "audio",
            "video",
        ):
            own = tag == "script" and given.get("src", "").startswith("/static/")
            if not own:
                found.append(f"<{tag}> {given}")
        for name, value in given.items():
            if name.startswith(("on", "hx-on")) or name == "style":
                found.append(f"{tag} {name}={value[:60]}")
            if name in ("href", "src", "action", "formaction", "hx-get", "hx-post", "xlink:href"):
                low = value.strip().lower()
                fine = low.startswith(("/", "#", "http://", "https://", "mailto:")) and not low.startswith(
                    "//"
                )
                if not fine or (name != "href" and not low.startswith(("/", "#"))):
                    found.append(f"{tag} {name}={value[:60]}")
    return found
