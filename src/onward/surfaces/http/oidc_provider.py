"""The provider, asked: what it is, which keys it signs with, what a code is worth.

What it published about itself is kept for an hour. A token that names a key which is not among those kept makes us look
again, at most once a minute, so a provider may change its keys at any time and nobody can make us ask it all day.

Everything goes over https, except to a provider on this machine. No redirect is followed and no answer over 1 MiB is read.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlsplit

import httpx2
import msgspec

from onward.errors import InvalidInput
from onward.runner.desk import in_thread
from onward.surfaces.http import oidc_keys
from onward.surfaces.http.oidc_claims import NotSignedIn
from onward.surfaces.http.oidc_keys import UnknownKey

if TYPE_CHECKING:
    import ssl

DISCOVERY: Final = "/.well-known/openid-configuration"
KEPT_SECONDS: Final = 3600
LOOK_SECONDS: Final = 60
"""At least so long between two looks for a key that is not known."""
ANSWER_LIMIT: Final = 1024 * 1024
TIMEOUT: Final = 10.0
"""Seconds for an answer, all of it."""


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider says about itself (OpenID Connect Discovery 1.0, section 3): what is used of it."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class Redeemed(msgspec.Struct, frozen=True, kw_only=True):
    """What a code was worth. Neither is kept."""

    id_token: str
    access_token: str = ""

    def __repr__(self) -> str:
        return "Redeemed(…)"


class Provider:
    """One OpenID provider. Its methods are coroutines for the event loop of the server; ``clock`` gives microseconds."""

    def __init__(self, issuer: str, client: str, secret: str, *, clock: Callable[[], int]) -> None:
        self.issuer, self.client = issuer, client
        self._secret, self._clock = secret, clock
        self._local = is_local(issuer)
        self._published: tuple[int, Published] | None = None
        self._keys: tuple[int, tuple[Mapping[str, Any], ...]] | None = None
        self._looked_at: int | None = None
        self._looking = asyncio.Lock()
        self._trust: ssl.SSLContext | None = None

    async def published(self) -> Published:
        """Return what the provider says about itself. Raises NotSignedIn."""
        if self._published is None or self._old(self._published[0]):
            told = await self._json("GET", self.issuer.rstrip("/") + DISCOVERY)
            try:
                found = msgspec.convert(told, Published)
            except msgspec.ValidationError as error:
                raise self._unusable(f"its discovery document does not fit: {error}") from error
            if found.issuer != self.issuer:
                raise self._unusable(
                    f"it calls itself {found.issuer!r}: serve with --oidc-issuer set to that"
                )
            for address in (
                found.authorization_endpoint,
                found.token_endpoint,
                found.jwks_uri,
                found.userinfo_endpoint,
            ):
                if address is not None and not (is_secure(address) or (self._local and is_local(address))):
                    raise self._unusable(f"its address {address!r} is not https")
            self._published = self._clock(), found
        return self._published[1]

    async def redeem(self, code: str, verifier: str, redirect: str) -> Redeemed:
        """Return what a code is worth. Raises NotSignedIn."""
        published = await self.published()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect,
            "code_verifier": verifier,
        }
        headers: dict[str, str] = {}
        methods = published.token_endpoint_auth_methods_supported
        if not self._secret:
            form["client_id"] = self.client
        elif "client_secret_basic" in methods or "client_secret_post" not in methods:
            # Both are form-encoded first (RFC 6749, section 2.3.1).
            pair = f"{quote_plus(self.client)}:{quote_plus(self._secret)}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form |= {"client_id": self.client, "client_secret": self._secret}
        told = await self._json("POST", published.token_endpoint, form=form, headers=headers)
        try:
            return msgspec.convert(told, Redeemed)
        except msgspec.ValidationError as error:
            raise self._unusable("it gave no ID token for a code") from error

    async def claims(self, token: str) -> dict[str, Any]:
        """Return what an ID token says, once its signature holds. Raises NotSignedIn."""
        keys = await self._known(again=False)
        try:
            return await in_thread(oidc_keys.claims_of, token, keys)
        except UnknownKey:
            fresh = await self._known(again=True, unless=keys)
            if fresh is keys:
                raise
        return await in_thread(oidc_keys.claims_of, token, fresh)

    async def about(self, access_token: str, subject: str) -> dict[str, Any]:
        """Return what the provider tells about somebody beside the ID token: nothing where it tells nothing."""
        published = await self.published()
        if published.userinfo_endpoint is None or not access_token:
            return {}
        told = await self._json(
            "GET", published.userinfo_endpoint, headers={"authorization": f"Bearer {access_token}"}
        )
        if not isinstance(told, dict) or told.get("sub") != subject:
            raise self._unusable("its user information is about somebody else")
        return told

    async def _known(
        self, *, again: bool, unless: tuple[Mapping[str, Any], ...] = ()
    ) -> tuple[Mapping[str, Any], ...]:
        async with self._looking:
            kept = self._keys
            if kept is not None and not self._old(kept[0]):
                if not again or kept[1] is not unless:
                    return kept[1]
                if self._looked_at is not None and self._clock() - self._looked_at < LOOK_SECONDS * 1_000_000:
                    return kept[1]
                self._looked_at = self._clock()
            published = await self.published()
            keys = oidc_keys.usable(await self._json("GET", published.jwks_uri))
            if not keys:
                raise self._unusable("it publishes no key that a signature could be checked with")
            self._keys = self._clock(), keys
            return keys

    def _old(self, at: int) -> bool:
        return not 0 <= self._clock() - at < KEPT_SECONDS * 1_000_000

    async def _json(
        self,
        method: str,
        url: str,
        *,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        if self._trust is None:  # reading the system's certificates takes longer than the loop may be held up
            self._trust = await in_thread(httpx2.create_ssl_context)
        body = bytearray()
        try:
            async with (
                asyncio.timeout(TIMEOUT),
                httpx2.AsyncClient(
                    verify=self._trust, timeout=TIMEOUT, follow_redirects=False, trust_env=not self._local
                ) as client,
                client.stream(
                    method, url, data=form, headers={"accept": "application/json", **(headers or {})}
                ) as answer,
            ):
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > ANSWER_LIMIT:
                        raise self._unusable(f"it answered with more than {ANSWER_LIMIT:,} bytes")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise NotSignedIn(
                f"{self.name} could not be reached from this server. Try again in a moment.",
                why=f"{url} could not be asked: {type(error).__name__}",
                status=502,
            ) from error
        try:
            told = msgspec.json.decode(bytes(body))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            told = None
        if answer.status_code == 200 and told is not None:
            return told
        code = error_code(told.get("error") if isinstance(told, dict) else None)
        if code == "invalid_grant":
            raise NotSignedIn(
                "This sign-in was finished before, or took too long. Begin it again.",
                why="the provider does not take the code: invalid_grant",
            )
        if code in ("invalid_client", "unauthorized_client"):
            raise self._unusable(f"it does not know this client, or its secret is another: {code}")
        raise self._unusable(f"{urlsplit(url).path} answered {answer.status_code} {code}".strip())

    @property
    def name(self) -> str:
        """What people see of it: the host."""
        return urlsplit(self.issuer).netloc

    def _unusable(self, why: str) -> NotSignedIn:
        told = f"Signing in with {self.name} is not set up right. Tell whoever runs this server: its log says why."
        return NotSignedIn(told, why=f"the provider cannot be used: {why}", status=502)


def error_code(given: Any) -> str:
    """Return an error code as RFC 6749 has them, ``another error`` for what is none."""
    if given is None:
        return ""
    plain = isinstance(given, str) and 0 < len(given) <= 64 and given.replace("_", "").isalnum()
    return given if plain and given.isascii() else "another error"


def is_secure(address: str) -> bool:
    """Whether an address is https, of a host, and brings no credentials along."""
    return _split(address) == "https"


def is_local(address: str) -> bool:
    """Whether an address is of this machine, where nobody listens in on plain http."""
    if _split(address) not in ("http", "https"):
        return False
    host = urlsplit(address).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _split(address: str) -> str:
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return ""
    plain = parts.hostname and parts.username is None and not parts.fragment and address.isprintable()
    return parts.scheme if plain and address.isascii() else ""


def checked_issuer(address: str) -> str:
    """Return the address of a provider. Raises InvalidInput for one that anybody in between could answer for."""
    if not (is_secure(address) or is_local(address)) or urlsplit(address).query:
        raise InvalidInput(
            what=f"--oidc-issuer {address!r}",
            why="it is an https:// address without query (http:// only on this machine)",
        )
    return address
