"""The terminal: how wide it is. Apart from the screen, because help needs no more than this."""

from __future__ import annotations

import os
import sys
from typing import Final

OTHERWISE: Final = 100
"""Columns where there is no terminal and ``COLUMNS`` does not say."""


def width() -> int:
    """Return the columns to print for, at least 20: of ``COLUMNS``, else of the terminal, else 100."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and 0 < int(given) < 100_000:
        return max(int(given), 20)
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns or OTHERWISE, 20)
    except (OSError, ValueError, AttributeError):
        return OTHERWISE
