"""Columns: how wide a text stands on a terminal, and texts cut and broken to a width.

Wide characters (Chinese, Japanese, Korean, most emoji) take two columns, marks that sit on others none; everything that
people read in columns is measured here. It deliberately knows no terminal: a width is given, control characters are the
caller's to replace, and a sequence that a terminal draws as one picture is counted by its parts.
"""

from __future__ import annotations


def columns(text: str) -> int:
    """Return how many terminal columns a line takes."""
    if text.isascii():
        return len(text)
    return sum(map(_column, text))


def _column(char: str) -> int:
    import unicodedata  # late: most of what is printed is ASCII, and commands start more often than they meet anything else

    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def fitted(text: str, width: int) -> str:
    """Return a line that takes at most ``width`` columns, cut with an ellipsis where it would take more."""
    if len(text) * 2 <= width or columns(text) <= width:
        return text
    return _head(text, width - 1) + "…" if width > 0 else ""


def wrapped(text: str, width: int) -> list[str]:
    """Return a text as lines of at most ``width`` columns, its white space folded.

    A longer word has a line of its own where it is ASCII (an address that is to be copied whole), and is broken otherwise:
    languages that are written without spaces are one word to us.
    """
    lines: list[str] = []
    for word in text.split():
        for piece in _pieces(word, width):
            if lines and columns(lines[-1]) + 1 + columns(piece) <= width:
                lines[-1] += f" {piece}"
            else:
                lines.append(piece)
    return lines or [""]


def _pieces(word: str, width: int) -> list[str]:
    if word.isascii() or columns(word) <= width:
        return [word]
    out = []
    while columns(word) > width:
        piece = _head(word, width) or word[0]
        out.append(piece)
        word = word[len(piece) :]
    return [*out, word] if word else out


def _head(text: str, width: int) -> str:
    """Return as much of the beginning of a text as fits a width."""
    used = 0
    for place, char in enumerate(text):
        used += _column(char)
        if used > width:
            return text[:place]
    return text
