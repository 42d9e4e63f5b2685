"""Recounting: what sessions asked for after they began, and what of that their projection had left out.

Every recall is an event of the session that asked. Counted, these events say where the compiler left out too much: per
session (``recall_report``), per version of the compiler and reason (``recall_rates``), and per address, so that the next
recommendation can cite what its forerunners had to go back for (``often_recalled``).

It is deliberately a count and no judgement: a recall may be idle curiosity, and what nobody asked for may have been missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from onward.core.bodies import Recalled
from onward.core.codec import body_of
from onward.core.records import Run
from onward.errors import ManifestNotFound
from onward.service.platform import Platform
from onward.store.contract import Append, Batch, SessionQuery

if TYPE_CHECKING:
    from onward.core.manifest import Manifest


PAGE: Final = 1000
READ_WEIGHT: Final = 2
"""What an exact read of an address counts beside a search that returned it: it was wanted, not only found."""
OFTEN: Final = 2
"""From which count on an address was recalled often: one exact read, or two searches."""
MOST_ADDRESSES: Final = 32
LONGEST_LINE: Final = 100
"""Sessions that are looked back over."""

_NOT_MISSED: Final = ("duplicate", "not_dialogue")
"""Causes for which nothing was missing: it was in the projection anyway, or belongs to no exchange."""


class RecallReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a session asked for after it began, and what of that its projection had left out."""

    session: str
    recalls: int
    of_omitted: int
    asked_again: dict[str, int]
    """Addresses that the projection had omitted, each with how often it was asked for."""
    compiler: str | None = None
    reason: str | None = None


class RecallRate(msgspec.Struct, frozen=True, kw_only=True):
    """How the continuations of one compiler version for one reason were recalled from."""

    compiler: str
    reason: str
    continuations: int
    recalls: int
    of_omitted: int
    """Recalls that returned something the projection had left out."""
    rate: float
    """``of_omitted`` a continuation; less is better."""


def remember(
    platform: Platform,
    asked_by: str | Run,
    how: Literal["read", "search", "lineage", "manifest"],
    query: str,
    returned: list[str],
) -> None:
    """Write a recall into the session that asked. Raises LeaseLost when it was a run that is no longer held."""
    run = asked_by if isinstance(asked_by, Run) else None
    session_id = run.session_id if run is not None else str(asked_by)
    omitted: dict[str, None] = {}
    if (record := _manifest(platform, session_id)) is not None:
        for left_out in record.omitted:
            if left_out.cause not in _NOT_MISSED:
                omitted.update((both, None) for a in returned if (both := _shared(a, left_out.address)))
    recalled = Recalled(how=how, query=query, returned=tuple(returned), had_omitted=tuple(omitted))
    run_id, fence = (run.id, run.fence) if run is not None else (None, None)
    event = platform.event("recalled", recalled, "agent", run_id=run_id)
    append = Append(session_id=session_id, events=(event,), run_id=run_id, fence=fence)
    platform.store.commit(Batch(appends=(append,)))


def recall_report(platform: Platform, session_id: str) -> RecallReport:
    """Return the recall report of a session."""
    platform.session(session_id)
    asked: dict[str, int] = {}
    recalls = of_omitted = 0
    for body in _recalls(platform, session_id):
        recalls += 1
        of_omitted += bool(body.had_omitted)
        for address in body.had_omitted:
            asked[address] = asked.get(address, 0) + 1
    record = _manifest(platform, session_id)
    return RecallReport(
        session=session_id,
        recalls=recalls,
        of_omitted=of_omitted,
        asked_again=dict(sorted(asked.items(), key=lambda kv: (-kv[1], kv[0]))),
        compiler=record.compiler if record else None,
        reason=record.reason if record else None,
    )


def recall_rates(platform: Platform) -> tuple[RecallRate, ...]:
    """Return the rates of the whole account, by compiler version and reason, in that order.

    Every session that began from a projection counts once, whether or not it ever recalled anything.
    """
    counts: dict[tuple[str, str], list[int]] = {}
    for session_id in _successors(platform):
        report = recall_report(platform, session_id)
        if report.compiler is None or report.reason is None:
            continue
        count = counts.setdefault((report.compiler, report.reason), [0, 0, 0])
        count[0] += 1
        count[1] += report.recalls
        count[2] += report.of_omitted
    return tuple(
        RecallRate(
            compiler=compiler,
            reason=reason,
            continuations=continuations,
            recalls=recalls,
            of_omitted=of_omitted,
            rate=of_omitted / continuations,
        )
        for (compiler, reason), (continuations, recalls, of_omitted) in sorted(counts.items())
    )


def often_recalled(platform: Platform, session_id: str) -> list[str]:
    """Return the addresses that this session and its predecessors had to go back for, most often first, at most 32.

    An address is ``ses_…:12`` or ``ses_…:12-18``. It counts when a projection had left it out and it was read exactly
    once, or found by search twice. What came of these sessions counts too: earlier successors began from the same
    material.
    """
    platform.session(session_id)
    weight: dict[str, int] = {}
    for name in _family(platform, session_id):
        for body in _recalls(platform, name):
            for address in body.had_omitted:
                weight[address] = weight.get(address, 0) + (1 if body.how == "search" else READ_WEIGHT)
    often = [address for address, times in weight.items() if times >= OFTEN and _readable(platform, address)]
    return sorted(often, key=lambda address: (-weight[address], address))[:MOST_ADDRESSES]


def _family(platform: Platform, session_id: str) -> Iterator[str]:
    """Yield a session and its predecessors, each with everything that it was continued in."""
    seen: set[str] = set()
    current: str | None = session_id
    for _ in range(LONGEST_LINE):
        if current is None or not platform.may_read(current):
            return
        links = [ln for ln in platform.store.links(current) if ln.type == "continuation"]
        for name in (current, *(ln.to_session for ln in links if ln.from_session == current)):
            if name not in seen and platform.may_read(name):
                seen.add(name)
                yield name
        current = next((ln.from_session for ln in links if ln.to_session == current), None)


def _successors(platform: Platform) -> Iterator[str]:
    cursor: str | None = None
    while True:
        page, cursor = platform.store.sessions(
            SessionQuery(account_id=platform.account_id, include_archived=True, limit=PAGE, cursor=cursor)
        )
        yield from (session.id for session in page if session.origin_id not in (None, session.id))
        if cursor is None:
            return


def _recalls(platform: Platform, session_id: str) -> Iterator[Recalled]:
    after = 0
    while True:
        page = platform.store.events(session_id, after=after, limit=PAGE, kinds=("recalled",))
        for event in page:
            if isinstance(body := body_of(event), Recalled):
                yield body
        if len(page) < PAGE:
            return
        after = page[-1].seq


def _manifest(platform: Platform, session_id: str) -> Manifest | None:
    """Return the manifest that a session began with; a session that was not continued has none."""
    from onward.service import continuing  # late: a search that records nothing has no use for it

    try:
        return continuing.manifest(platform, session_id)
    except ManifestNotFound:
        return None


def _readable(platform: Platform, address: str) -> bool:
    return platform.may_read(address.partition(":")[0])


def _shared(one: str, other: str) -> str | None:
    """Return the address of the events that two addresses of the form ``ses_…:12-18`` have in common."""
    first, second = _parsed(one), _parsed(other)
    if first is None or second is None or first[0] != second[0]:
        return None
    low, high = max(first[1], second[1]), min(first[2], second[2])
    if low > high:
        return None
    return f"{first[0]}:{low}" if low == high else f"{first[0]}:{low}-{high}"


def _parsed(address: str) -> tuple[str, int, int] | None:
    session, colon, span = address.partition(":")
    first, _, last = span.partition("-")
    if not colon or not first.isdigit() or not (last or first).isdigit():
        return None
    return session, int(first), int(last or first)
