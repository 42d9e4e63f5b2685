"""Watching pages: whatever a page does that pages of ours do not do fails the test that saw it.

No script of ours writes to the browser's console, opens a dialog, asks another server for anything or does what the content
security policy forbids. So any of these is a fault, whatever the test was about.
"""

from __future__ import annotations

from typing import Final

from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Page, Request

REPORT: Final = """
addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`);
});
"""
_EXPECTED: Final = (
    # What a browser itself says about an answer that is no success; the tests look at those answers.
    "Failed to load resource: the server responded with a status of",
    # A page that is left takes what it was fetching along.
    "htmx: htmx:error: Failed to fetch",
)
_AWAY: Final = (
    "net::ERR_CONNECTION_REFUSED",
    "net::ERR_CONNECTION_RESET",
    "net::ERR_INCOMPLETE_CHUNKED",
    "net::ERR_EMPTY_RESPONSE",
    "net::ERR_INTERNET_DISCONNECTED",
    "net::ERR_NETWORK_CHANGED",
    "net::ERR_SOCKET_NOT_CONNECTED",
    "net::ERR_CONNECTION_CLOSED",
    "net::ERR_ABORTED",
)


class Watch:
    """What the pages of a browser context did."""

    def __init__(self, context: BrowserContext, *origins: str) -> None:
        self.origins = origins
        """Where requests may go."""
        self.faults: list[str] = []
        self.expected: list[str] = []
        """Beginnings of what may be said here, beyond what may always be."""
        context.add_init_script(REPORT)
        context.on("console", self._said)
        context.on("weberror", lambda error: self.faults.append(f"error: {error.error}"))
        context.on("dialog", self._dialog)
        context.on("request", self._requested)
        context.on("page", self._opened)

    def lose_the_server(self) -> None:
        """From now on the server may be away: a browser says so, and is right."""
        self.expected += [f"Failed to load resource: {why}" for why in _AWAY]
        # Of a stream that breaks, the browser says where it was.
        self.expected.append("Failed to load resource")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning", "assert"):
            return
        if not message.text.startswith((*_EXPECTED, *self.expected)):
            self.faults.append(f"{message.type}: {message.text}")

    def _dialog(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request: Request) -> None:
        if not request.url.startswith(tuple(f"{origin}/" for origin in self.origins)):
            self.faults.append(f"request: {request.method} {request.url[:200]}")

    def _opened(self, page: Page) -> None:
        page.on("crash", lambda: self.faults.append("the page crashed"))
