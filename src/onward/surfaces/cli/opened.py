"""Opening: which store a command works on, and what it needs of it.

The store is the one of ``--store``, else of ``ONWARD_STORE``, else a file in the user's data folder, whose folder is made
for its owner alone. Only a command that begins something makes a store. To the others, the user's own store is empty as
long as it does not exist; a named one that does not exist is an error.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from onward.errors import InvalidInput, NotFound, StoreError
from onward.service.platform import Platform, approval_policy, opening_policy
from onward.store import open_store
from onward.store.contract import Store
from onward.surfaces.cli.grammar import Call

if TYPE_CHECKING:
    from onward.service.resolving import Resolver
    from onward.service.signing import Signer


def chosen_store(call: Call) -> tuple[str, bool]:
    """Return the URL of the store and whether somebody named it. Raises InvalidInput for one that cannot be meant."""
    named = call.store or os.environ.get("ONWARD_STORE")
    if not named:
        base = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
        return file_url(os.path.join(base, "onward", "onward.db")), False
    if "://" in named:
        return named, True
    return file_url(os.path.expanduser(named)), True


def again(call: Call, words: str) -> str:
    """Return a command line that works on the same store, to be typed as it is."""
    import shlex

    return f"onward --store {shlex.quote(call.store)} {words}" if call.store else f"onward {words}"


def file_url(path: str) -> str:
    """Return the URL of a store in a file."""
    from urllib.parse import quote

    try:
        return f"sqlite:///{quote(os.path.abspath(path))}"
    except UnicodeEncodeError:
        raise InvalidInput(what=f"the store {path!r}", why="its name is not UTF-8") from None


def file_of(url: str) -> str | None:
    """Return the file behind a store's URL, or None where there is no file."""
    from urllib.parse import unquote

    place = url.removeprefix("sqlite:///")
    return os.path.abspath(unquote(place)) if place != url and place else None


def store_of(call: Call, *, makes: bool) -> Store:
    """Open the store of a call; with ``makes``, one that does not exist is made. Raises NotFound for a named one else."""
    url, named = chosen_store(call)
    path = file_of(url)
    if path is not None and not os.path.exists(path):
        if not makes and named:
            raise NotFound(
                f"There is no store at {path}. `onward import` and `onward run --new` make one.",
                what="the store",
                value=path,
            )
        if not makes:
            return open_store("memory://")
        if not named:
            try:
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            except OSError as error:
                raise StoreError(why=f"{os.path.dirname(path)} cannot be made: {error.strerror}") from None
    return open_store(url)


@contextlib.contextmanager
def opened(call: Call, *, makes: bool = False, counter: str | None = None) -> Iterator[Platform]:
    """Open the store for a command and close it in the end. ``counter`` names what counts tokens."""
    store = store_of(call, makes=makes)
    try:
        host = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
        platform = Platform(
            store=store,
            host=host,
            signer=_signer(),
            resolvers=_resolvers(),
            approval=approval_policy(),
            opening=opening_policy(),
        )
        if counter is not None:
            from onward.service.counting import counter_by_name

            platform = msgspec.structs.replace(platform, counter=counter_by_name(counter))
        yield platform
    finally:
        store.close()


def _resolvers() -> tuple[Resolver, ...] | None:
    """Return what reads the sources of handoffs, as ``ONWARD_SOURCES`` says; None when it is not set."""
    if not os.environ.get("ONWARD_SOURCES"):
        return None
    from onward.service import resolving

    return resolving.from_environment()


def _signer() -> Signer | None:
    """Return who signs manifests, as ``ONWARD_SIGNING_KEY`` says."""
    if not os.environ.get("ONWARD_SIGNING_KEY"):
        return None
    from onward.service import signing

    return signing.from_environment()
