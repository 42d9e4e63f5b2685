"""Onward: agent conversations that outlive their context window, their engine and their machine.

``onward.open(url)`` opens a store and returns an ``Onward`` with every verb. Errors are in ``onward.errors``, all under
``OnwardError``. Importing this package pulls in nothing third-party but msgspec, and even that only when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onward.core.version import VERSION
from onward.errors import OnwardError

if TYPE_CHECKING:
    from onward.library import Onward

__all__ = ["Onward", "OnwardError", "__version__", "open"]

__version__ = VERSION


def open(url: str | None = None) -> Onward:  # noqa: A001 (onward.open is the name people expect)
    """Open a store: ``sqlite:///path`` or ``memory://``. Without a URL, the user's own (see ``onward doctor``)."""
    from onward.library import open_log

    return open_log(url)


def __getattr__(name: str) -> Any:
    """Load the class only when somebody asks for it: the command line starts without it."""
    if name == "Onward":
        from onward.library import Onward

        return Onward
    raise AttributeError(f"module 'onward' has no attribute {name!r}")
