"""An OpenID provider on this machine, for tests of whatever signs people in: real HTTP, real signatures, nobody's password.

``StubProvider`` has discovery, an authorization endpoint that agrees at once for ``person``, a token endpoint with PKCE and
codes that work once, user information, and a key made at its start. It is strict where a provider has to be (client, exact
redirect address, challenge), so a client that passes here did its part; ``forge`` makes it lie, so that a client can be
shown to notice. What it was asked is in ``asked``.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, rsa

__all__ = ["Key", "Person", "StubProvider", "make_key"]

LIFETIME: Final = 300
"""Seconds that an ID token is good for."""


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """Who is sitting in front of the browser."""

    sub: str
    email: str | None = None
    email_verified: Any = True


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key to sign with, and what is published of it."""

    kid: str
    algorithm: str
    private: Any
    public: dict[str, Any]


def make_key(algorithm: str = "RS256", *, bits: int = 2048) -> Key:
    """Make a key for ``RS256`` (and its kin), ``ES256`` or ``ES384``."""
    private: Any
    if algorithm.startswith("ES"):
        private = ec.generate_private_key(ec.SECP256R1() if algorithm == "ES256" else ec.SECP384R1())
        public: dict[str, Any] = jwt.algorithms.ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
    else:
        private = rsa.generate_private_key(public_exponent=65537, key_size=bits)
        public = jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
    public.pop("key_ops", None)
    kid = secrets.token_hex(4)
    return Key(
        kid=kid,
        algorithm=algorithm,
        private=private,
        public={**public, "kid": kid, "use": "sig", "alg": algorithm},
    )


class StubProvider:
    """The provider. Use it as a context manager; ``issuer`` is its address.

    ``clock`` gives seconds since 1970. ``person`` is who agrees, None for somebody who declines.
    """

    def __init__(
        self,
        *,
        client: str = "onward",
        secret: str = "",
        redirects: Sequence[str] = (),
        person: Person | None = None,
        key: Key | None = None,
        clock: Callable[[], float] = time.time,
        host: str = "127.0.0.1",
        asks: bool = False,
    ) -> None:
        self.client, self.secret, self.person, self.clock = client, secret, person, clock
        self.redirects = list(redirects)
        """The addresses that codes may be sent to."""
        self.key = key or make_key()
        self.keys = [self.key]
        """What is published; ``key`` is what is signed with."""
        self.forge: Callable[[dict[str, Any]], str] | None = None
        """Makes the ID token of the given claims in place of ``sign``."""
        self.discovery: dict[str, Any] = {}
        """What the discovery document says differently."""
        self.asks = asks
        """Shows a page with a link to agree with, instead of agreeing at once."""
        self.email_in_token = True
        self.codes_work_again = False
        """Whether this is one of the providers that do not care."""
        self.asked: list[tuple[str, str]] = []
        """Methods and paths, in order."""
        self._codes: dict[str, dict[str, str]] = {}
        self._access: dict[str, Person] = {}
        self._server = ThreadingHTTPServer((host, 0), _Handler, bind_and_activate=False)
        self._server.stub = self  # type: ignore[attr-defined]
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="stub-provider")

    def __enter__(self) -> Self:
        self._server.server_bind()
        self._server.server_activate()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, found: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def issuer(self) -> str:
        """Return ``http://127.0.0.1:PORT``, or what it was told to listen at."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def rotate(self, key: Key | None = None) -> Key:
        """Sign with another key from now on, and publish only that."""
        self.key = key or make_key(self.key.algorithm)
        self.keys = [self.key]
        return self.key

    def sign(self, claims: dict[str, Any], *, key: Key | None = None, **header: Any) -> str:
        """Return claims as a signed token. ``header`` replaces what its header says."""
        by = key or self.key
        return jwt.encode(claims, by.private, algorithm=by.algorithm, headers={"kid": by.kid, **header})

    def times(self, path: str) -> int:
        """Return how often a path was asked for."""
        return sum(1 for _, asked in self.asked if asked == path)

    def document(self) -> dict[str, Any]:
        """Return the discovery document."""
        at = self.issuer
        return {
            "issuer": at,
            "authorization_endpoint": f"{at}/authorize",
            "token_endpoint": f"{at}/token",
            "jwks_uri": f"{at}/keys",
            "userinfo_endpoint": f"{at}/userinfo",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [self.key.algorithm],
            "code_challenge_methods_supported": ["S256"],
            **self.discovery,
        }

    def authorize(self, query: dict[str, str]) -> str | None:
        """Return where to send the browser; None for a request that may be answered to nobody."""
        redirect = query.get("redirect_uri", "")
        if query.get("client_id") != self.client or redirect not in self.redirects:
            return None
        answer = {"state": query.get("state", "")}
        wanted = (
            query.get("response_type") == "code"
            and "openid" in query.get("scope", "").split()
            and query.get("code_challenge_method") == "S256"
            and len(query.get("code_challenge", "")) == 43
        )
        if not wanted:
            return f"{redirect}?{urlencode({**answer, 'error': 'invalid_request'})}"
        if self.person is None:
            return f"{redirect}?{urlencode({**answer, 'error': 'access_denied'})}"
        code = secrets.token_urlsafe(16)
        self._codes[code] = {
            "redirect": redirect,
            "challenge": query["code_challenge"],
            "nonce": query.get("nonce", ""),
            "sub": self.person.sub,
        }
        if self.discovery.get("authorization_response_iss_parameter_supported"):
            answer["iss"] = self.issuer
        return f"{redirect}?{urlencode({**answer, 'code': code})}"

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the answer of the token endpoint."""
        if not self._is_client(form, authorization):
            return 401, {"error": "invalid_client"}
        code = form.get("code", "")
        kept = self._codes.get(code) if self.codes_work_again else self._codes.pop(code, None)
        verifier = form.get("code_verifier", "").encode()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier).digest()).rstrip(b"=").decode()
        if (
            form.get("grant_type") != "authorization_code"
            or kept is None
            or kept["redirect"] != form.get("redirect_uri")
            or kept["challenge"] != challenge
            or self.person is None
        ):
            return 400, {"error": "invalid_grant"}
        now = int(self.clock())
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "aud": self.client,
            "sub": kept["sub"],
            "iat": now,
            "exp": now + LIFETIME,
            "nonce": kept["nonce"],
        }
        if self.email_in_token and self.person.email is not None:
            claims |= {"email": self.person.email, "email_verified": self.person.email_verified}
        access = secrets.token_urlsafe(16)
        self._access[access] = self.person
        made = self.forge(claims) if self.forge else self.sign(claims)
        return 200, {
            "token_type": "Bearer",
            "access_token": access,
            "id_token": made,
            "expires_in": LIFETIME,
        }

    def about(self, authorization: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the answer of the user information endpoint."""
        found = self._access.get(authorization.removeprefix("Bearer "))
        if found is None:
            return 401, {"error": "invalid_token"}
        email = {} if found.email is None else {"email": found.email, "email_verified": found.email_verified}
        return 200, {"sub": found.sub, **email}

    def _is_client(self, form: dict[str, str], authorization: str) -> bool:
        if not self.secret:
            return form.get("client_id") == self.client and not authorization
        if "client_secret_post" in self.document().get("token_endpoint_auth_methods_supported", ()):
            return (form.get("client_id"), form.get("client_secret")) == (self.client, self.secret)
        try:
            given = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        except ValueError:
            return False
        name, _, secret = given.partition(":")
        return (unquote_plus(name), unquote_plus(secret)) == (self.client, self.secret)


class _Handler(BaseHTTPRequestHandler):
    timeout = 10

    @property
    def stub(self) -> StubProvider:
        return self.server.stub  # type: ignore[attr-defined, no-any-return]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name is the base class's)
        pass

    def do_GET(self) -> None:
        stub, parts = self.stub, urlsplit(self.path)
        stub.asked.append(("GET", parts.path))
        match parts.path:
            case "/.well-known/openid-configuration":
                self._send(200, stub.document())
            case "/keys":
                self._send(200, {"keys": [key.public for key in stub.keys]})
            case "/userinfo":
                self._send(*stub.about(self.headers.get("authorization", "")))
            case "/authorize":
                to = stub.authorize(_fields(parts.query))
                if to is None:
                    self._send(400, {"error": "this client, or this redirect address, is not known"})
                    return
                if stub.asks:
                    self._ask(to)
                    return
                self.send_response(303)
                self.send_header("location", to)
                self.send_header("content-length", "0")
                self.end_headers()
            case _:
                self._send(404, {"error": "not_found"})

    def do_POST(self) -> None:
        path = urlsplit(self.path).path
        self.stub.asked.append(("POST", path))
        sent = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        if path != "/token":
            self._send(404, {"error": "not_found"})
            return
        self._send(*self.stub.token(_fields(sent), self.headers.get("authorization", "")))

    def _ask(self, to: str) -> None:
        raw = f'<!doctype html><title>Provider</title><a href="{html.escape(to)}">Agree</a>'.encode()
        self.send_response(200)
        self.send_header("content-type", "text/html; charset=utf-8")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _send(self, status: int, told: dict[str, Any]) -> None:
        raw = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.send_header("cache-control", "no-store")
        self.end_headers()
        self.wfile.write(raw)


def _fields(text: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(text, keep_blank_values=True).items()}
