"""Ids: a prefix that says what a thing is, and a ULID that says when it began.

``ses_01J…`` sorts by creation time within its prefix. An id is made from a time and ten bytes that the caller passes in;
nothing here reads a clock or draws a random number. ``derived_id`` makes the same id from the same parts, so that
importing a record twice, or replaying a command, names the same event (invariants L3 and C3).

Source of the format: the ULID specification (48-bit milliseconds, 80 bits of entropy, Crockford base 32).
"""

from __future__ import annotations

from typing import Final, Protocol

from onward.core import digests
from onward.errors import InvalidId

SESSION: Final = "ses"
EVENT: Final = "evt"
RUN: Final = "run"
LINK: Final = "lnk"
MANIFEST: Final = "man"
MACHINE: Final = "mac"
ACCOUNT: Final = "acc"
TOKEN: Final = "tok"
WORKSPACE: Final = "wsp"
FILE: Final = "fil"

LOCAL_ACCOUNT: Final = "acc_00000000000000000000000000"
"""The account that owns everything in a store with one user."""

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
# Our digits as those that ``int`` reads in base 32; any other byte as one that it refuses.
_DIGITS: Final = bytes(
    ord("0123456789abcdefghijklmnopqrstuv"[_ALPHABET.index(chr(c))]) if chr(c) in _ALPHABET else ord("!")
    for c in range(256)
)
_PAIRS: Final = tuple(a + b for a in _ALPHABET for b in _ALPHABET)
_MAX_MS: Final = (1 << 48) - 1


class Ids(Protocol):
    """Where new ids come from. Production draws random ones; tests count."""

    def new(self, prefix: str) -> str:
        """Return an id that was never returned before."""
        ...

    def salt(self) -> bytes:
        """Return 16 unpredictable bytes for one event (design, answer 12)."""
        ...


def make_id(prefix: str, at_us: int, entropy: bytes) -> str:
    """Build an id from a time in microseconds since 1970 (UTC) and ten bytes of entropy."""
    if len(entropy) != 10:
        raise ValueError("entropy must be 10 bytes")
    return f"{prefix}_{time_digits(at_us // 1000)}{entropy_digits(entropy)}"


def time_digits(ms: int) -> str:
    """Return the first ten characters of a ULID: those of its time, in milliseconds since 1970."""
    n, pairs = min(max(ms, 0), _MAX_MS), _PAIRS
    return f"{pairs[n >> 40]}{pairs[n >> 30 & 1023]}{pairs[n >> 20 & 1023]}{pairs[n >> 10 & 1023]}{pairs[n & 1023]}"


def entropy_digits(entropy: bytes) -> str:
    """Return the other sixteen characters of a ULID, for the first ten of these bytes."""
    n, pairs = int.from_bytes(entropy[:10], "big"), _PAIRS
    return (
        f"{pairs[n >> 70]}{pairs[n >> 60 & 1023]}{pairs[n >> 50 & 1023]}{pairs[n >> 40 & 1023]}"
        f"{pairs[n >> 30 & 1023]}{pairs[n >> 20 & 1023]}{pairs[n >> 10 & 1023]}{pairs[n & 1023]}"
    )


def derived_id(prefix: str, at_us: int, *parts: str | bytes | int) -> str:
    """Build the id that these parts always give. ``at_us`` only places it in time order."""
    told = bytearray()
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        told += len(raw).to_bytes(8, "big")
        told += raw
    return make_id(prefix, at_us, digests.sha256(told).digest()[:10])


def pack_id(value: str) -> bytes:
    """Return the 16 bytes behind an id. Raises InvalidId if it is not one."""
    prefix, _, ulid = value.partition("_")
    if not prefix or len(ulid) != 26:
        raise InvalidId(value=value, prefix=prefix or "???")
    return _packed(value, ulid, prefix)


def pack_checked(value: str, prefix: str) -> bytes:
    """Return the 16 bytes behind an id with this prefix. Raises InvalidId for anything else."""
    ulid = value[-26:]
    if len(value) != len(prefix) + 27 or not value.startswith(prefix) or value[len(prefix)] != "_":
        raise InvalidId(value=value, prefix=prefix)
    return _packed(value, ulid, prefix)


def _packed(value: str, ulid: str, prefix: str) -> bytes:
    try:
        return int(ulid.encode("ascii").translate(_DIGITS), 32).to_bytes(16, "big")
    except (ValueError, OverflowError):  # a character that is no digit of ours; more than 128 bits
        raise InvalidId(value=value, prefix=prefix) from None


def unpack_id(prefix: str, raw: bytes) -> str:
    """Return the id that ``pack_id`` packed."""
    # 130 bits in 26 characters; the first character carries only the top three bits.
    return f"{prefix}_{time_digits(int.from_bytes(raw[:6], 'big'))}{entropy_digits(raw[6:])}"


def check_id(value: str, prefix: str) -> str:
    """Return ``value`` if it is a well-formed id with this prefix; raise InvalidId otherwise."""
    pack_checked(value, prefix)
    return value


def time_of(value: str) -> int:
    """Return the creation time inside an id, in microseconds since 1970 (millisecond precision)."""
    return int.from_bytes(pack_id(value)[:6], "big") * 1000
