"""Harmless: text from a log that is about to be shown, with what could act on the reader made visible.

Control characters (terminal escapes among them), marks that reorder text, characters that are there and cannot be seen, and
lone surrogates become visible escapes. Line ends and tabs stay, and so does everything that languages are written with: a
text in Arabic reads as it should, only an order that somebody forced upon it is shown instead of obeyed.

One rule for the terminal and for pages; it knows neither, and what is markup there is the caller's to escape.
"""

from __future__ import annotations

import re
from typing import Final

_HARMFUL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def harmless(text: str) -> str:
    """Return a text in which nothing acts or hides: only line ends and tabs are left of all control characters."""
    if text.isascii() and text.isprintable():
        return text
    return _HARMFUL.sub(_escaped, text.replace("\r\n", "\n"))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
