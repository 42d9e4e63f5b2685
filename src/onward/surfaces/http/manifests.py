"""Manifests over HTTP: what a successor began with, what can still be shown of it, and whether it can be compiled again."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.responses import Response

from onward.core.manifest import Manifest, Shown
from onward.errors import ManifestNotFound, MissingExtra, NotFound, SessionNotFound
from onward.service import attaching, continuing, recompiling, signing
from onward.surfaces.http import replying, shapes
from onward.surfaces.http.routing import JSON, Ask, Route


class Looking(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How closely to look."""

    look: bool = False
    """Look at resources and memories where they stand now. Nothing that is found there is shown, only whether it changed."""


class ViewShape(shapes.Shape, frozen=True, kw_only=True):
    """What can still be shown of the sources of a projection."""

    manifest: str
    sources: tuple[Shown, ...]
    lost: tuple[Shown, ...]
    """Those that were in the projection and can no longer be shown."""


class ComparisonShape(shapes.Shape, frozen=True, kw_only=True):
    """A projection compiled again, beside what its manifest says."""

    manifest: str
    digest: str
    recompiled: str | None
    """Null when it could not be compiled at all."""
    same: bool
    differences: tuple[recompiling.Difference, ...]


def show(ask: Ask) -> Manifest:
    """Return a manifest."""
    return continuing.manifest(ask.platform, ask.path["manifest"])


def raw(ask: Ask) -> Response:
    """Return the bytes of a manifest."""
    named = continuing.manifest(ask.platform, ask.path["manifest"]).id
    stored = ask.platform.store.manifest(named)
    if stored is None:
        raise ManifestNotFound(manifest=named)
    return replying.exact(stored.body, JSON, stored.digest)


def view(ask: Ask) -> ViewShape:
    """Return what can still be shown."""
    given: Looking = ask.query
    record = continuing.manifest(ask.platform, ask.path["manifest"])
    found = recompiling.manifest_view(ask.platform, record, look=given.look)
    return ViewShape(manifest=record.id, sources=found.sources, lost=found.lost)


def verify(ask: Ask) -> ComparisonShape:
    """Compile a projection again."""
    record = continuing.manifest(ask.platform, ask.path["manifest"])
    found = recompiling.compare(ask.platform, record)
    return ComparisonShape(
        manifest=found.manifest,
        digest=found.digest,
        recompiled=found.recompiled,
        same=found.same and not found.differences,
        differences=found.differences,
    )


def signatures(ask: Ask) -> signing.Checked:
    """Check the signatures of a manifest."""
    record = continuing.manifest(ask.platform, ask.path["manifest"])
    return signing.check(ask.platform, signing.stored_manifest(ask.platform, record.id))


def blob(ask: Ask) -> Response:
    """Return what was read of a source."""
    digest = ask.path["digest"]
    media, data = attaching.of_manifest(ask.platform, ask.path["manifest"], digest)
    return replying.exact(data, media, digest)


_NONE: Final = (NotFound, SessionNotFound)
ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/manifests/{manifest}",
        does="Return the manifest of a continuation, by its id or that of the session it began.",
        scope="read",
        handler=show,
        answer=Manifest,
        errors=_NONE,
        tag="strong",
    ),
    Route(
        method="GET",
        path="/v1/manifests/{manifest}/raw",
        does="Return the bytes of a manifest as they were stored: its digest is that of these bytes, and so is the tag.",
        scope="read",
        handler=raw,
        answer=Manifest,
        errors=_NONE,
        tag="strong",
    ),
    Route(
        method="GET",
        path="/v1/manifests/{manifest}/view",
        does="Say of each source of a projection what became of it, and which parts can no longer be shown.",
        scope="read",
        handler=view,
        query=Looking,
        answer=ViewShape,
        errors=_NONE,
    ),
    Route(
        method="GET",
        path="/v1/manifests/{manifest}/verify",
        does="Compile a projection again from the log, and name every part that does not come out as it was.",
        scope="read",
        handler=verify,
        answer=ComparisonShape,
        errors=_NONE,
    ),
    Route(
        method="GET",
        path="/v1/manifests/{manifest}/signatures",
        does="Check the signatures of a manifest against its stored bytes.",
        scope="read",
        handler=signatures,
        answer=signing.Checked,
        errors=(*_NONE, MissingExtra),
    ),
    Route(
        method="GET",
        path="/v1/manifests/{manifest}/blobs/{digest}",
        does="Return what was read of a resource or memory when the session was continued.",
        scope="read",
        handler=blob,
        answer=bytes,
        media="text/plain",
        errors=_NONE,
        tag="strong",
    ),
)
