"""Machines: which computers execute runs, what they offer, and whether anybody is there.

A machine is a name in an account. Its runner registers it with the engines that it has, and says something at least every
twenty seconds from then on; a machine that was heard of within ``Platform.online_seconds`` is online. Registering again
under the same name is the same machine, with what it offers now. It takes nothing over: a run that another process of that
machine executes is that process's until its lease ends, whoever registers.

The machine that has the store is registered like any other (``home``), by `onward serve` and by `onward run`. Workspaces
without a machine are on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from onward.core import ids as make
from onward.core.ages import span
from onward.core.bodies import Notice
from onward.core.codec import encode, loads
from onward.core.records import Machine, Offer
from onward.errors import Conflict, InvalidInput, LimitExceeded, MachineNotFound
from onward.service.platform import Platform
from onward.store.contract import Append, Batch, MachineSeen

NAME_LIMIT: Final = 64
"""Characters of a machine's name."""
MOST_IDLE: Final = 1e9
"""Seconds; no process has waited for thirty years."""
SEEN_SECONDS: Final = 15
"""A machine that says something is written down again after this many seconds, not before."""

_offers: Final = msgspec.json.Decoder(tuple[Offer, ...])


def register(platform: Platform, name: str, engines: Sequence[Offer], *, home: bool = False) -> Machine:
    """Make a machine known, or known anew, with what it offers. It counts as heard of now.

    A machine that was registered as the home of the store stays that. Raises InvalidInput for a name that is none.
    """
    return _registered(platform, checked_name(name), tuple(engines), home=home, at=platform.clock())


def register_here(platform: Platform, engine: Offer | None = None) -> Machine:
    """Return the machine that has the store, known to have this engine. Writes nothing where that is known already.

    It does not count as online for that: nobody on it waits for work.
    """
    name = checked_name(platform.host or "this machine")
    there = platform.store.machine_by_name(platform.account_id, name)
    offered = {} if there is None else {offer.name: offer for offer in offers(there)}
    if there is not None and there.home and (engine is None or offered.get(engine.name) == engine):
        return there
    if engine is not None:
        offered[engine.name] = engine
    return _registered(platform, name, tuple(offered.values()), home=True, at=0)


def _registered(platform: Platform, name: str, engines: tuple[Offer, ...], *, home: bool, at: int) -> Machine:
    told = encode(engines)
    for _ in range(3):
        there = platform.store.machine_by_name(platform.account_id, name)
        machine = there or Machine(
            id=platform.ids.new(make.MACHINE),
            account_id=platform.account_id,
            name=name,
            created_at=platform.clock(),
        )
        machine = msgspec.structs.replace(
            machine, engines=told, home=machine.home or home, seen_at=max(machine.seen_at, at)
        )
        if machine == there:
            return machine
        try:
            platform.store.commit(Batch(machines=(machine,)))
        except Conflict:
            continue  # another process registered the name meanwhile: it is the same machine
        return machine
    raise Conflict(what=f"machine {name}")


def checked_name(name: str) -> str:
    """Return a machine's name without white space around it. Raises InvalidInput, LimitExceeded."""
    stripped = name.strip()
    if not stripped or not stripped.isprintable():
        raise InvalidInput(
            what=f"machine name {name!r}", why="a name has at least one character, all printable"
        )
    if len(stripped) > NAME_LIMIT:
        raise LimitExceeded(what="a machine name", limit=f"{NAME_LIMIT} characters", found=len(stripped))
    return stripped


def heard_of(platform: Platform, machine: Machine) -> None:
    """Write down that a machine's runner said something, unless that was done a moment ago."""
    now = platform.clock()
    if now - machine.seen_at >= SEEN_SECONDS * 1_000_000:
        platform.store.commit(Batch(seen=(MachineSeen(machine_id=machine.id, at=now),)))


def get(platform: Platform, named: str) -> Machine:
    """Return a machine of this account by its id or name. Raises MachineNotFound (invariant A1)."""
    found = platform.store.machine(named) or platform.store.machine_by_name(platform.account_id, named)
    if found is None or found.account_id != platform.account_id:
        raise MachineNotFound(machine=named)
    return found


def listed(platform: Platform) -> list[Machine]:
    """Return the machines of this account, oldest first."""
    return platform.store.machines(platform.account_id)


def home(platform: Platform) -> Machine | None:
    """Return the machine that has the store: of several names that it had, the one heard of last."""
    return max((m for m in listed(platform) if m.home), key=lambda m: (m.seen_at, m.created_at), default=None)


def online(platform: Platform, machine: Machine) -> bool:
    """Whether a runner of this machine said something a moment ago."""
    return platform.clock() - machine.seen_at <= platform.online_seconds * 1_000_000


def offers(machine: Machine) -> tuple[Offer, ...]:
    """Return the engines of a machine, those that cannot run there included."""
    try:
        return _offers.decode(machine.engines)
    except msgspec.DecodeError:  # the name of a program that is no Unicode
        return msgspec.convert(loads(machine.engines), tuple[Offer, ...])


def able(machine: Machine) -> tuple[str, ...]:
    """Return the names of the engines that can run on a machine."""
    return tuple(offer.name for offer in offers(machine) if offer.unavailable is None)


class Slept(msgspec.Struct, frozen=True, kw_only=True):
    """An engine's process that was ended because nobody had said anything for a while."""

    session_id: str
    engine: str
    idle: Annotated[float, msgspec.Meta(ge=0, le=MOST_IDLE)]
    """Seconds since its last turn ended."""
    event: str
    """The id of the event that says so."""


def slept(platform: Platform, machine: Machine, ended: Sequence[Slept]) -> None:
    """Write into each session that an engine's process of its was put to sleep. Writing it again changes nothing (L3).

    It is a notice and nothing else: the next message wakes the engine, so there is nothing to do and nothing is promised.
    """
    for one in ended:
        if not platform.may_read(one.session_id):
            continue
        length = span(round(one.idle * 1_000_000))
        told = f"{machine.name} put its {one.engine} process to sleep after {length} without a message."
        notice = Notice(text=told, summary=f"The engine process sleeps, after {length} without a message.")
        event = platform.event("context", notice, "system", id=one.event)
        platform.store.commit(Batch(appends=(Append(session_id=one.session_id, events=(event,)),)))
