"""The version of Onward, where everything may read it: engines and servers introduce themselves with it."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
