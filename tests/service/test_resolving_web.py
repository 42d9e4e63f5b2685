"""Pages are read only where somebody configured it, and then as if each address were hostile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import msgspec
import pytest
from tests.service.conversations import COMMAND, World

from onward.core.references import Source
from onward.service import continuing, recompiling, resolving
from onward.service.resolving import Resolved
from onward.service.resolving_web import HttpResolver, is_public

PUBLIC = "93.184.215.14"
Handler = Callable[[httpx2.Request], httpx2.Response]


def reading(handler: Handler, **options: Any) -> HttpResolver:
    """A resolver whose network is this handler, and in which every name is public unless told otherwise."""
    options.setdefault("lookup", lambda host, port: [PUBLIC])
    return HttpResolver(transport=httpx2.MockTransport(handler), **options)


def read(world: World, resolver: HttpResolver, url: str) -> Resolved:
    """Read a page."""
    session = world.log.start("Work")
    found = resolver.resolve(world.platform, session, Source(kind="resource", url=url))
    assert found is not None
    return found


def never(request: httpx2.Request) -> httpx2.Response:
    """No request may get here."""
    raise AssertionError(f"asked for {request.url}")


def test_a_page_is_read_from_the_address_that_was_checked_under_its_own_name(world: World) -> None:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(200, text="The spec.", headers={"ETag": 'W/"v7"'})

    found = read(world, reading(answer), "https://example.org/spec?a=b#part")
    assert (found.content, found.version) == (b"The spec.", "v7")
    (request,) = asked
    assert request.url.host == PUBLIC
    assert request.headers["host"] == "example.org"
    assert request.extensions["sni_hostname"] == "example.org"
    assert request.url.query == b"a=b"
    assert "cookie" not in request.headers
    assert "authorization" not in request.headers


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
        "255.255.255.255", "::1", "::", "fe80::1%eth0", "fc00::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::",
        "ff02::1", "not an address",
    ],
)  # fmt: skip
def test_a_host_with_any_address_that_is_not_public_is_not_read(world: World, address: str) -> None:
    assert not is_public(address)
    resolver = reading(never, lookup=lambda host, port: [PUBLIC, address])
    found = read(world, resolver, "https://example.org/spec")
    assert found.content is None
    assert "not a public host" in found.note


@pytest.mark.parametrize("address", [PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c"])
def test_a_public_address_is_public(address: str) -> None:
    assert is_public(address)


def test_a_redirect_to_a_private_address_is_not_followed(world: World) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["host"] == "example.org"
        return httpx2.Response(302, headers={"Location": "https://metadata.internal/"})

    def lookup(host: str, port: int) -> list[str]:
        return [PUBLIC if host == "example.org" else "169.254.169.254"]

    found = read(world, reading(answer, lookup=lookup), "https://example.org/")
    assert (found.content, found.cause) == (None, "external")
    assert "metadata.internal is not a public host" in found.note


@pytest.mark.parametrize("location", ["http://example.org/", "file:///etc/passwd", "ftp://example.org/"])
def test_a_redirect_never_leaves_https(world: World, location: str) -> None:
    found = read(
        world, reading(lambda _: httpx2.Response(301, headers={"Location": location})), "https://example.org/"
    )
    assert found.content is None
    assert "from https" in found.note


def test_redirects_are_followed_a_few_times(world: World) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        left = int(request.url.path.strip("/"))
        if left == 0:
            return httpx2.Response(200, text="there")
        return httpx2.Response(307, headers={"Location": f"/{left - 1}"})

    assert read(world, reading(answer), "https://example.org/3").content == b"there"
    assert "more than 3 times" in read(world, reading(answer), "https://example.org/4").note


@pytest.mark.parametrize(
    "url",
    [
        "https://user:pw@example.org/",
        "https://example.org:8443/",
        "http://example.org:22/",
        "https://[::1",
        "https://:443/",
    ],
)
def test_an_address_of_an_odd_form_is_not_read(world: World, url: str) -> None:
    assert read(world, reading(never), url).content is None


def test_only_the_hosts_that_were_named_are_read(world: World) -> None:
    resolver = reading(lambda _: httpx2.Response(200, text="ok"), hosts=("Docs.example.org",))
    assert read(world, resolver, "https://docs.example.org/").content == b"ok"
    assert "not among the hosts" in read(world, resolver, "https://example.org/").note


@pytest.mark.parametrize(
    ("status", "cause"),
    [(404, "missing"), (410, "missing"), (401, "revoked"), (403, "revoked"), (500, "external")],
)
def test_what_a_host_answers_is_told(world: World, status: int, cause: str) -> None:
    found = read(world, reading(lambda _: httpx2.Response(status)), "https://example.org/")
    assert (found.content, found.cause) == (None, cause)
    assert str(status) in found.note


def test_an_answer_is_bounded_however_long_its_host_goes_on(world: World) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b"x" * 1000

    found = read(
        world, reading(lambda _: httpx2.Response(200, content=endless()), limit=5000), "https://example.org/"
    )
    assert "larger than 5,000 bytes" in found.note
    assert sent <= 10


def test_an_answer_that_takes_too_long_is_given_up(world: World) -> None:
    found = read(
        world,
        reading(lambda _: httpx2.Response(200, content=iter([b"a", b"b"])), timeout=0.0),
        "https://example.org/",
    )
    assert found.content is None
    assert "longer than 0 seconds" in found.note


def test_a_packed_answer_is_not_unpacked(world: World) -> None:
    packed = httpx2.Response(200, content=iter([b"\x1f\x8b..."]), headers={"Content-Encoding": "gzip"})
    assert "packed" in read(world, reading(lambda _: packed), "https://example.org/").note


def test_a_host_that_cannot_be_reached_does_not_stop_the_work(world: World) -> None:
    def broken(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("no route")

    assert read(world, reading(broken), "https://example.org/").cause == "external"

    def nowhere(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    assert "has no address" in read(world, reading(never, lookup=nowhere), "https://example.org/").note


@pytest.mark.requirement("P5")
def test_a_page_that_was_read_stays_as_it_was_when_its_host_says_something_else(world: World) -> None:
    said = "The first spec."
    platform = msgspec.structs.replace(
        world.platform, resolvers=(reading(lambda _: httpx2.Response(200, text=said)),)
    )
    session_id = world.conversation()
    made = continuing.continue_session(
        platform, session_id, {**COMMAND, "sources": [{"url": "https://example.org/spec"}]}
    )
    manifest = continuing.manifest(platform, made.manifest)
    said = "Another spec."
    assert recompiling.compare(platform, manifest).same
    (shown,) = [s for s in recompiling.manifest_view(platform, manifest).sources if s.source == 0]
    assert (shown.now, shown.kept) == ("changed", True)
    unlooked = [s for s in recompiling.manifest_view(platform, manifest, look=False).sources if s.source == 0]
    assert [s.now for s in unlooked] == ["available"]


def test_what_reads_sources_is_named_in_the_environment() -> None:
    assert resolving.from_environment({}) is None
    found = resolving.from_environment({"ONWARD_SOURCES": "store, file, https://docs.example.org"})
    assert found is not None
    assert [r.name for r in found] == ["store", "file", "http"]
    assert resolving.from_environment({"ONWARD_SOURCES": "none"}) == ()
    with pytest.raises(resolving.InvalidInput, match="ONWARD_SOURCES"):
        resolving.from_environment({"ONWARD_SOURCES": "everything"})
