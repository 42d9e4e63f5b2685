"""Whether an ID token was signed by its provider.

Only signatures that the provider alone can make are taken: the algorithm must be on the list below and be one of the kind
of key that the provider published under this id. So ``none``, a key that the token brings along, and a public key used as
the secret of an HMAC are refused before anything is computed (RFC 8725, sections 3.1 and 3.2). The signature itself is
PyJWT's to check; times and names are ours (``oidc_claims``), because the clock is passed in.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onward.errors import MissingExtra
from onward.surfaces.http.oidc_claims import NotSignedIn

TOKEN_LIMIT: Final = 65_536
"""Characters of an ID token."""
LEAST_RSA_BITS: Final = 2048
ALGORITHMS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""By kind of key and curve, the algorithms that a token may be signed with."""


class UnknownKey(NotSignedIn):
    """A token names a key that the provider had not published when it was last asked."""


def require() -> None:
    """Raise MissingExtra where what checks signatures is not installed."""
    try:
        import cryptography  # noqa: F401 (only whether it is there)
        import jwt  # noqa: F401
    except ImportError as missing:
        raise MissingExtra(feature="Signing in with an OpenID provider", extra="oidc") from missing


def claims_of(token: str, keys: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a token says, once its signature holds. Raises UnknownKey, NotSignedIn."""
    import jwt

    if len(token) > TOKEN_LIMIT:
        raise _refused("it is too long")
    signatures = jwt.PyJWS()
    try:
        header = signatures.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError) as error:
        raise _refused("it is no signed token") from error
    if "crit" in header:  # older versions of PyJWT let it pass
        raise _refused("it demands an extension")
    algorithm = header.get("alg")
    if not any(algorithm in known for known in ALGORITHMS.values()):
        raise _refused("its algorithm is not one that only the provider can use")
    key = _key(header, keys)
    if algorithm not in _fitting(key) or key.get("alg", algorithm) != algorithm:
        raise _refused("its algorithm is not that of its key")
    if key["kty"] == "RSA" and _bits(key.get("n")) < LEAST_RSA_BITS:
        raise _refused(f"its key has fewer than {LEAST_RSA_BITS} bits")
    try:
        public = jwt.PyJWK.from_dict(dict(key), algorithm=algorithm)
        read = signatures.decode_complete(token, public, algorithms=[str(algorithm)])
        claims = json.loads(read["payload"])
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise _refused("its signature does not hold") from error
    if not isinstance(claims, dict):
        raise _refused("it says nothing")
    return claims


def usable(published: Any) -> tuple[Mapping[str, Any], ...]:
    """Return those keys of a published set (RFC 7517) that signatures can be checked with."""
    keys = published.get("keys") if isinstance(published, Mapping) else None
    return tuple(
        key
        for key in (keys if isinstance(keys, list) else ())
        if isinstance(key, Mapping) and key.get("use", "sig") == "sig" and _fitting(key)
    )


def _key(header: Mapping[str, Any], keys: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    named = header.get("kid")
    if named is None:
        fitting = [key for key in keys if header.get("alg") in _fitting(key)]
        if len(fitting) == 1:
            return fitting[0]
        raise UnknownKey(_TOLD, why=f"the ID token names no key, and {len(fitting)} would fit", status=502)
    found = next((key for key in keys if key.get("kid") == named), None)
    if found is None:
        raise UnknownKey(_TOLD, why="the ID token names a key that its provider does not publish", status=502)
    return found


def _fitting(key: Mapping[str, Any]) -> tuple[str, ...]:
    kind = key.get("kty")
    curve = key.get("crv", "") if kind != "RSA" else ""
    return ALGORITHMS.get((kind, curve), ()) if isinstance(kind, str) and isinstance(curve, str) else ()


def _bits(modulus: Any) -> int:
    """Return the size of an RSA key, from below, by the length of its modulus in base64url."""
    return math.floor(len(modulus.rstrip("=")) * 6 / 8) * 8 if isinstance(modulus, str) else 0


_TOLD: Final = (
    "The provider signed with a key that it does not publish. Wait a minute and try again; if it stays so, tell whoever "
    "runs this server."
)


def _refused(why: str) -> NotSignedIn:
    return NotSignedIn(
        "What the provider sent is not signed as it has to be. Try again; if it stays so, tell whoever runs this server.",
        why=f"the ID token is refused: {why}",
    )
