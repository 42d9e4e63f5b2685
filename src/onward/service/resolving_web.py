"""Pages of the web as sources, where somebody configured that they are read. Nothing here is on by itself.

A handoff is written by an agent, and what an agent cites may have been put before it by somebody else. So an address is
read as if it were hostile: http and https on their usual ports, no user names, only hosts whose every address is public,
and the connection goes to the address that was checked (a name that changes its mind in between gains nothing). Redirects
are followed a few times, each checked in the same way and never from https to http. The answer is bounded in size and time,
asked for unpacked, and never run or rendered: it is text or it stays an address.

No proxy, cookie, credential or other setting of this machine is used.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

import msgspec

from onward.core.records import Session
from onward.core.references import Source
from onward.service.platform import Platform
from onward.service.resolving import MAX_CONTENT, Resolved

if TYPE_CHECKING:
    import httpx2

TIMEOUT: Final = 10.0
"""Seconds for all of it, redirects included. Each wait for the network ends within that as well."""
REDIRECTS: Final = 3
PORTS: Final = {"http": 80, "https": 443}

# Public by their form, and yet a way to addresses that may be private: IPv4 inside IPv6.
_TRANSLATED: Final = tuple(
    map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"))
)

Lookup = Callable[[str, int], Collection[str]]
"""Returns every address of a host. Raises OSError when there is none."""


class _Refused(Exception):
    """An address that is not read; the message says why."""


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where to connect for a URL, and as what."""

    url: str
    host: str
    address: str
    scheme: str
    target: str


def addresses(host: str, port: int) -> Collection[str]:
    """Return every address of a host, as the system resolves it."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet, however it is written."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return is_public(str(found.ipv4_mapped))
        if any(found in network for network in _TRANSLATED):
            return False
    return found.is_global and not found.is_multicast


class HttpResolver:
    """Reads http and https addresses. ``hosts`` limits it to these names; without it every public host may be read."""

    name: Final = "http"

    def __init__(
        self,
        *,
        hosts: Collection[str] | None = None,
        timeout: float = TIMEOUT,
        limit: int = MAX_CONTENT,
        lookup: Lookup = addresses,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._timeout, self._limit, self._lookup, self._transport = timeout, limit, lookup, transport

    def resolve(self, platform: Platform, session: Session, source: Source) -> Resolved | None:  # noqa: ARG002
        """Read a page, or say why it was not read."""
        if source.kind != "resource" or (source.url or "").partition(":")[0].lower() not in PORTS:
            return None
        import httpx2  # late: it costs more than everything else that a continuation imports

        try:
            with httpx2.Client(
                transport=self._transport, follow_redirects=False, timeout=self._timeout, trust_env=False
            ) as client:
                return self._read(client, source.url or "", time.monotonic() + self._timeout)
        except _Refused as refused:
            return Resolved(cause="external", note=str(refused))
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            return Resolved(cause="external", note=f"it was not reached: {type(error).__name__}")

    def _read(self, client: httpx2.Client, url: str, until: float) -> Resolved:
        for _ in range(REDIRECTS + 1):
            place = self._checked(url)
            request = client.build_request(
                "GET",
                place.target,
                headers={"Host": place.host, "Accept-Encoding": "identity", "Accept": "text/*, */*;q=0.5"},
                extensions={"sni_hostname": place.host},
            )
            response = client.send(request, stream=True)
            try:
                if response.status_code not in (301, 302, 303, 307, 308):
                    return self._answer(response, until)
                location = response.headers.get("location", "")
            finally:
                response.close()
            try:
                following = urljoin(place.url, location)
            except ValueError:
                raise _Refused("it redirects to a malformed address") from None
            if place.scheme == "https" and not following.lower().startswith("https:"):
                raise _Refused("it redirects from https to something else")
            url = following
        raise _Refused(f"it redirects more than {REDIRECTS} times")

    def _checked(self, url: str) -> _Place:
        """Return where to connect for a URL. Raises _Refused for one that is not read."""
        try:
            parts = urlsplit(url)
            scheme, host, port = parts.scheme.lower(), (parts.hostname or "").lower(), parts.port
        except ValueError:
            raise _Refused("its address is malformed") from None
        if scheme not in PORTS or not host:
            raise _Refused("only http and https addresses are read")
        if parts.username is not None or parts.password is not None:
            raise _Refused("an address with a user name is not read")
        if port not in (None, PORTS[scheme]):
            raise _Refused(f"port {port} is not read")
        if self._hosts is not None and host not in self._hosts:
            raise _Refused(f"{host} is not among the hosts that are read here")
        try:
            found = list(self._lookup(host, PORTS[scheme]))
        except OSError:
            raise _Refused(f"{host} has no address") from None
        if not found or not all(map(is_public, found)):
            raise _Refused(f"{host} is not a public host")
        literal = f"[{found[0]}]" if ":" in found[0] else found[0]
        target = f"{scheme}://{literal}{parts.path or '/'}" + (f"?{parts.query}" if parts.query else "")
        return _Place(url=url, host=host, address=found[0], scheme=scheme, target=target)

    def _answer(self, response: httpx2.Response, until: float) -> Resolved:
        status = response.status_code
        if status in (404, 410):
            return Resolved(cause="missing", note=f"its host answered {status}")
        if status in (401, 403):
            return Resolved(cause="revoked", note=f"its host answered {status}")
        if status != 200:
            return Resolved(cause="external", note=f"its host answered {status}")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            return Resolved(cause="external", note="its host sent it packed although that was not asked for")
        data = bytearray()
        for piece in response.iter_bytes():
            data += piece
            if len(data) > self._limit:
                return Resolved(cause="external", note=f"it is larger than {self._limit:,} bytes")
            if time.monotonic() > until:
                return Resolved(cause="external", note=f"it took longer than {self._timeout:g} seconds")
        return Resolved(content=bytes(data), version=_version(response.headers))


def _version(headers: Any) -> str:
    """Return the entity tag, without what marks it as weak."""
    return str(headers.get("etag", "")).removeprefix("W/").strip('"')
