"""Resolving: what stands behind a resource or a memory now, read through small plug-ins.

A handoff may cite a file, a memory, a page or a stored blob. When a session is continued, each is offered to the resolvers
in order; the first that knows its kind of address answers with the bytes or with the reason why there are none. The
bytes are pinned by digest in the manifest and kept once, as a blob: whatever is read later, the projection is compiled
from those (invariant P5). What no resolver knows stays an address.

Reading is narrow on purpose. Files: only below the workspace folder of the session, for the local account alone (on a
shared server a workspace is whatever somebody wrote there), never through a link that leads outside, at most 256 KiB.
What stands in this store: only sessions that this account may read. The web: not at all, unless a ``HttpResolver`` is
configured (``resolving_web.py``).

No resolver raises for what it finds: a source that cannot be read is told as that, it does not stop the work.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from onward.core.codec import body_of
from onward.core.digests import content_digest
from onward.core.ids import LOCAL_ACCOUNT
from onward.core.manifest import Cause, Content
from onward.core.projection import Offer
from onward.core.records import Session
from onward.core.references import Source
from onward.errors import InvalidInput
from onward.service.platform import Platform

MAX_CONTENT: Final = 256 * 1024
"""Bytes of a resource or memory that is read. A larger one stays an address."""

SOURCES_VARIABLE: Final = "ONWARD_SOURCES"
"""Names what reads resources and memories, instead of what does by itself."""

_STORED: Final = re.compile(r"blob:(?://)?(sha256:[0-9a-f]{64})")
_SHA256: Final = re.compile(r"sha256:[0-9a-f]{64}")


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """What a resolver found: the bytes, or why there are none."""

    content: bytes | None = None
    version: str = ""
    """What the place calls this version, where it says so."""
    cause: Cause | None = None
    note: str = ""


class Resolver(Protocol):
    """Reads one kind of address. It holds no state that a call depends on, and is safe to call from many threads."""

    @property
    def name(self) -> str:
        """What a manifest calls it."""
        ...

    def resolve(self, platform: Platform, session: Session, source: Source) -> Resolved | None:
        """Return what stands behind a source as cited in a session, or None when its address is not of this kind.

        Raises nothing for what is there or not there.
        """
        ...


class FileResolver:
    """Files and memories below allowed folders: those that are given, and the workspace folder of the session."""

    name: Final = "file"

    def __init__(
        self, roots: Sequence[str] = (), *, workspace: bool = True, limit: int = MAX_CONTENT
    ) -> None:
        self._roots, self._workspace, self._limit = tuple(roots), workspace, limit

    def resolve(self, platform: Platform, session: Session, source: Source) -> Resolved | None:
        """Read a ``file:`` address, or the path of a memory."""
        path = _path_of(source)
        if path is None:
            return None
        roots = [os.path.realpath(root) for root in self._allowed(platform, session)]
        if not roots:
            return None
        if "\0" in path:
            return Resolved(cause="missing", note="its path holds a NUL character")
        for root in roots:
            # The real path decides: neither .. nor a link that leads outside gets past it.
            found = os.path.realpath(os.path.join(root, path))
            if os.path.commonpath((root, found)) == root and found != root:
                return self._read(root, os.path.relpath(found, root))
        return Resolved(cause="revoked", note="it is outside the folders that may be read here")

    def _allowed(self, platform: Platform, session: Session) -> list[str]:
        out = list(self._roots)
        if self._workspace and session.workspace_id:
            place = platform.store.workspace_by_id(session.workspace_id)
            # A workspace at the root of the machine would allow everything; a relative one depends on where we run; one of
            # another machine is there, and a folder of the same name that happens to be here is something else.
            here = place is not None and place.machine_id is None
            if (
                place is not None
                and here
                and os.path.isabs(place.path)
                and os.path.dirname(place.path) != place.path
            ):
                out.append(place.path)
        return out

    def _read(self, root: str, inside: str) -> Resolved:
        try:
            descriptor = _opened_below(root, inside)
        except (FileNotFoundError, NotADirectoryError):
            return Resolved(cause="missing", note="there is no such file")
        except OSError as error:
            return Resolved(cause="revoked", note=f"it cannot be read: {error.strerror}")
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return Resolved(cause="external", note="it is not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(self._limit + 1)
        except OSError as error:
            return Resolved(cause="revoked", note=f"it cannot be read: {error.strerror}")
        finally:
            os.close(descriptor)
        if len(data) > self._limit:
            return Resolved(cause="external", note=f"it is larger than {self._limit:,} bytes")
        return Resolved(content=data)


def _path_of(source: Source) -> str | None:
    """Return the path that a source names, or None when it names something else."""
    if source.kind == "memory":
        return source.path
    if source.kind != "resource" or source.url is None or not source.url.lower().startswith("file:"):
        return None
    from urllib.parse import unquote, urlsplit  # late: few sources are files by URL

    try:
        parts = urlsplit(source.url)
    except ValueError:
        return None
    if parts.netloc not in ("", "localhost"):
        return None
    return unquote(parts.path)


def _opened_below(root: str, inside: str) -> int:
    """Open a file one folder at a time without following links, so that no link put in between leads outside."""
    # Not waiting for anybody at the other end of a pipe, and never a terminal of ours.
    flags = (
        os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)
    )
    no_link = getattr(os, "O_NOFOLLOW", 0)
    if os.open not in os.supports_dir_fd:
        return os.open(os.path.join(root, inside), flags | no_link | getattr(os, "O_BINARY", 0))
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | no_link)
    try:
        *folders, name = inside.split(os.sep)
        for step in folders:
            deeper = os.open(step, os.O_RDONLY | os.O_DIRECTORY | no_link, dir_fd=folder)
            os.close(folder)
            folder = deeper
        return os.open(name, flags | no_link, dir_fd=folder)
    finally:
        os.close(folder)


class StoreResolver:
    """What is in this store: a blob, if something of this account names it, and a session by its id."""

    name: Final = "store"

    def resolve(self, platform: Platform, session: Session, source: Source) -> Resolved | None:
        """Read ``blob:sha256:…``. Only a blob that a message in view of this session names is given away."""
        found = _STORED.fullmatch(source.url or "") if source.kind == "resource" else None
        if found is None:
            return None
        digest = found[1]
        data = platform.store.blob(digest)
        if data is None or not _names(platform, session, digest):
            # Whether somebody else has such a blob is nobody's business: both read the same.
            return Resolved(cause="missing", note="no message of this session's history names such a blob")
        if len(data) > MAX_CONTENT:
            return Resolved(cause="external", note=f"it is larger than {MAX_CONTENT:,} bytes")
        return Resolved(content=data, version=digest)


LOOKED_AT: Final = 5000
"""Messages of a history that are looked through for the name of a blob, newest first."""


def _names(platform: Platform, session: Session, digest: str) -> bool:
    """Whether a message in the history of a session carries a blob."""
    from onward.service import sessions

    left = LOOKED_AT
    for stretch in reversed(sessions.scope(platform, session)):
        upto = stretch.to_seq
        while upto > 0 and left > 0:
            page = platform.store.events(
                stretch.session, upto=upto, limit=200, kinds=("message", "tool_result"), newest_first=True
            )
            for event in page:
                parts = getattr(body_of(event), "parts", ()) if digest.encode() in event.body else ()
                if any(part.blob == digest for part in parts):
                    return True
            left -= len(page)
            upto = page[-1].seq - 1 if len(page) == 200 else 0
    return False


def resolvers(platform: Platform) -> tuple[Resolver, ...]:
    """Return what reads sources here: what the platform was given, else the store and, for the local account, files."""
    if platform.resolvers is not None:
        return platform.resolvers
    stored = StoreResolver()
    return (stored, FileResolver()) if platform.account_id == LOCAL_ACCOUNT else (stored,)


def without_files(platform: Platform) -> tuple[Resolver, ...]:
    """Return what reads sources here, less what reads files: for those who may not see the files of this machine."""
    return tuple(one for one in resolvers(platform) if not isinstance(one, FileResolver))


def from_environment(environment: Mapping[str, str] | None = None) -> tuple[Resolver, ...] | None:
    """Return what ``ONWARD_SOURCES`` names as reading sources; None when it is not set.

    It names ``store``, ``file``, ``http`` for every public host or ``https://HOST`` for one, and ``none`` for nothing.
    Raises InvalidInput for anything else.
    """
    given = (os.environ if environment is None else environment).get(SOURCES_VARIABLE, "")
    names = given.replace(",", " ").split()
    if not names:
        return None
    found: list[Resolver] = []
    hosts = [name.removeprefix("https://").strip("/") for name in names if name.startswith("https://")]
    for name in names:
        if name == "store":
            found.append(StoreResolver())
        elif name == "file":
            found.append(FileResolver())
        elif name not in ("http", "none") and not name.startswith("https://"):
            raise InvalidInput(
                what=f"{SOURCES_VARIABLE}={given}",
                why=f"{name} is none of store, file, http, https://HOST and none",
            )
    if hosts or "http" in names:
        from onward.service.resolving_web import HttpResolver

        found.append(HttpResolver(hosts=None if "http" in names else hosts))
    return tuple(found)


def look_up(platform: Platform, session: Session, source: Source) -> tuple[Resolved, str] | None:
    """Return what stands behind a resource or memory now, and the name of what read it; None if nothing here reads it."""
    for resolver in resolvers(platform):
        found = resolver.resolve(platform, session, source)
        if found is not None:
            return found, resolver.name
    return None


def offered(platform: Platform, session: Session, source: Source) -> Offer:
    """Return a resource or memory as it is offered to a projection: read and pinned, or an address with the reason.

    A source that names its version is that version or nothing: other content is not put in its place (P5).
    """
    found = look_up(platform, session, source)
    if found is None:
        return Offer(source=source)
    resolved, name = found
    if resolved.content is None:
        return Offer(source=source, cause=resolved.cause or "missing", note=resolved.note or None)
    digest = content_digest(resolved.content)
    asked = source.digest if source.kind == "memory" else source.version
    if asked and asked not in (digest, resolved.version):
        if _SHA256.fullmatch(asked) or resolved.version:
            return Offer(source=source, cause="changed", note=f"it is at {resolved.version or digest} now")
        return Offer(
            source=source, cause="external", note=f"whether it is still at {asked} cannot be told here"
        )
    text = readable_text(resolved.content)
    pinned = Content(
        source=0, digest=digest, size=len(resolved.content), resolver=name, version=resolved.version
    )
    if text is None:
        note = f"it is not text ({len(resolved.content):,} bytes)"
        return Offer(source=source, pinned=pinned, cause="external", note=note)
    return Offer(source=source, pinned=pinned, text=text)


def readable_text(content: bytes) -> str | None:
    """Return bytes as the text that they are, or None for anything else: no valid UTF-8, or a NUL in it."""
    if b"\0" in content:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None
