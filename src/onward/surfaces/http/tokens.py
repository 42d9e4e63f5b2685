"""Tokens over HTTP: who may come in. A secret is answered once, to whoever made it."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from onward.service import tokens
from onward.surfaces.http import bounds, paging, shapes
from onward.surfaces.http.routing import Ask, Route


class Creating(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to make."""

    name: bounds.Name
    scopes: Annotated[
        tuple[Literal["read", "write", "runner", "admin"], ...], Meta(min_length=1, max_length=4)
    ]
    lifetime: Annotated[float, Meta(gt=0, le=100 * 365 * 86_400)] | None = None
    """Seconds; without it, until it is revoked."""


class CreatedShape(shapes.Shape, frozen=True, kw_only=True):
    """A new token and its secret, which cannot be shown again."""

    token: shapes.TokenShape
    secret: str


class TokensShape(shapes.Shape, frozen=True, kw_only=True):
    """The tokens of an account."""

    tokens: tuple[shapes.TokenShape, ...]
    next: str | None


def create(ask: Ask) -> CreatedShape:
    """Make a token."""
    given: Creating = ask.body
    made, secret = tokens.create(ask.platform, given.name, given.scopes, lifetime=given.lifetime)
    return CreatedShape(token=shapes.token(made), secret=secret)


def listed(ask: Ask) -> TokensShape:
    """List tokens."""
    found, cursor = paging.page(tokens.listed(ask.platform), ask.query)
    return TokensShape(tokens=tuple(shapes.token(token) for token in found), next=cursor)


def revoke(ask: Ask) -> shapes.TokenShape:
    """Revoke a token."""
    return shapes.token(tokens.revoke(ask.platform, ask.path["token"]))


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/tokens",
        does="Make a token; its secret is answered once.",
        scope="admin",
        handler=create,
        body=Creating,
        answer=CreatedShape,
        status=201,
        example={"name": "laptop", "scopes": ["read", "write"], "lifetime": 2592000},
    ),
    Route(
        method="GET",
        path="/v1/tokens",
        does="List the tokens, revoked and expired ones included.",
        scope="admin",
        handler=listed,
        query=paging.Paged,
        answer=TokensShape,
    ),
    Route(
        method="DELETE",
        path="/v1/tokens/{token}",
        does="Revoke a token; revoking again changes nothing.",
        scope="admin",
        handler=revoke,
        answer=shapes.TokenShape,
    ),
)
