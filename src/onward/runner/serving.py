"""Serving: a runner that waits for work, executes several runs at once, and puts engines to sleep that nobody talks to.

It works on an ``Office``: where its work comes from, in the process that has the store or at a server. Told to stop, it
takes no new run and finishes those it has; told to hurry, it ends them. Engines' processes are gone when it has returned.

An engine that keeps processes between turns gets to keep them for a while. One that waited longer than the dial says is put
to sleep, which the session's log tells as a notice; the next message wakes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from onward.core import ids as make
from onward.core.records import Offer, Run
from onward.engines import ENGINES, engine_by_name
from onward.engines.contract import Engine, KeepsProcesses
from onward.engines.orphans import end_orphans
from onward.errors import EngineUnavailable, InvalidInput, OnwardError
from onward.runner.desk import Desk, LocalDesk, in_thread
from onward.runner.driving import Listener
from onward.runner.executing import execute_claimed
from onward.service import dispatching, machines, running
from onward.service.hinting import Hint, Hints
from onward.service.machines import Slept
from onward.service.platform import Platform, RandomIds

AT_ONCE: Final = 4
"""Runs that one runner executes at the same time."""
IDLE_SECONDS: Final = 6 * 3600.0
"""An engine's process that waited for so long is put to sleep."""
LOOK_SECONDS: Final = 1.0
"""Seconds between two looks for work that another process queued."""
LONGEST_NAP: Final = 3600.0


class Office(Protocol):
    """Where a runner gets its work, and whom it tells about itself."""

    name: str
    lease: float
    """Seconds that a run stays its own without a word."""
    beat: float
    """Seconds between two signs of life."""

    async def register(self, offers: Sequence[Offer]) -> None:
        """Make this machine known, with what it offers now. Also its sign of life."""
        ...

    async def claim(self, engines: Sequence[str], stop: asyncio.Event) -> tuple[Desk, Run] | None:
        """Wait a while for a run and claim it; None when none came, or ``stop`` was set. Not to be cancelled."""
        ...

    async def slept(self, ended: Sequence[Slept]) -> None:
        """Tell that engines' processes were put to sleep."""
        ...

    def hurry(self) -> None:
        """From now on, wait for nothing long."""
        ...

    async def aclose(self) -> None:
        """Let go of what is open."""
        ...


class LocalOffice:
    """The office in the process that has the store. ``hints`` tell when a run was queued in it."""

    def __init__(self, platform: Platform, hints: Hints | None = None) -> None:
        self.platform = platform
        self.name = platform.host or "this machine"
        self.lease = float(running.LEASE_SECONDS)
        self.beat = dispatching.BEAT_SECONDS
        self._hints = hints

    async def register(self, offers: Sequence[Offer]) -> None:
        machine = await in_thread(machines.register, self.platform, self.name, offers, home=True)
        self.platform = msgspec.structs.replace(self.platform, machine_id=machine.id)

    async def claim(self, engines: Sequence[str], stop: asyncio.Event) -> tuple[Desk, Run] | None:
        platform = self.platform
        with listening(self._hints, lambda hint: hint.runs) as told:
            machine = await in_thread(machines.get, platform, platform.machine_id or self.name)
            await in_thread(running.expire, platform)
            name = platform.ids.new(make.RUN).partition("_")[2]
            run = await in_thread(
                dispatching.claim_next, platform, machine, engines, claim=name, lease=self.lease
            )
            if run is not None:
                return LocalDesk(platform), run
            await either(stop, told, seconds=LOOK_SECONDS)
        return None

    async def slept(self, ended: Sequence[Slept]) -> None:
        machine = await in_thread(machines.get, self.platform, self.platform.machine_id or self.name)
        await in_thread(machines.slept, self.platform, machine, ended)

    def hurry(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


@contextlib.contextmanager
def listening(hints: Hints | None, wanted: Callable[[Hint], bool]) -> Any:
    """Give an event that is set when a hint comes that is wanted, from whatever thread."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear(hint: Hint) -> None:
        if wanted(hint):
            with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile
                loop.call_soon_threadsafe(told.set)

    stop = hints.listen(hear) if hints is not None else None
    try:
        yield told
    finally:
        if stop is not None:
            stop()


async def either(*events: asyncio.Event, seconds: float) -> None:
    """Wait until one of these is set, or so many seconds."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def engines_here(
    names: Sequence[str] = (), options: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Engine]:
    """Return engines by name; those that can keep their processes between turns do. Without names, all that can be made.

    Raises InvalidInput for a name, or an option of one, that does not exist.
    """
    given = options or {}
    made = {}
    for name in names or ENGINES:
        try:
            made[name] = _warm(name, dict(given.get(name, {})))
        except (InvalidInput, TypeError):
            if name in names or name in given:
                raise
            continue  # it needs to be told something, and was not
    if unknown := sorted(set(given) - set(made)):
        raise InvalidInput(what=f"an option of {', '.join(unknown)}", why=f"there are {', '.join(made)}")
    return made


def _warm(name: str, options: dict[str, Any]) -> Engine:
    try:
        return engine_by_name(name, **{"warm": True, **options})
    except InvalidInput:
        return engine_by_name(name, **options)


def offers(engines: Mapping[str, Engine]) -> tuple[Offer, ...]:
    """Return what a machine with these engines offers, with the reason where one cannot run."""
    return tuple(Offer(name=name, unavailable=engine.unavailable()) for name, engine in engines.items())


class Bedtime:
    """Puts engines' processes to sleep that have waited for longer than ``idle`` seconds.

    ``clock`` is that of ``Awake.idle_since``.
    """

    def __init__(
        self,
        engines: Mapping[str, Engine],
        *,
        idle: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        ids: Any = None,
    ) -> None:
        self._engines = {n: e for n, e in engines.items() if isinstance(e, KeepsProcesses)}
        self._idle, self._clock = idle, clock
        self._ids = ids or RandomIds()

    async def sweep(self) -> tuple[Slept, ...]:
        """Put to sleep what has waited for too long; return what was really ended."""
        ended = []
        for name, engine in self._engines.items():
            for awake in engine.awake():
                idle = self._clock() - awake.idle_since
                if idle >= self._idle and await engine.sleep(awake.session_id):
                    event = self._ids.new(make.EVENT)
                    ended.append(Slept(session_id=awake.session_id, engine=name, idle=idle, event=event))
        return tuple(ended)

    def due(self) -> float:
        """Return the seconds until the next process has waited for too long, or a long time while none waits."""
        now = self._clock()
        left = [a.idle_since + self._idle - now for engine in self._engines.values() for a in engine.awake()]
        return max(min([*left, LONGEST_NAP]), 0.0)

    async def aclose(self) -> None:
        """End every process that the engines keep."""
        for engine in self._engines.values():
            await engine.aclose()


def _nobody(told: object) -> None:
    """Hear something and do nothing."""
    del told


class Runner:
    """A runner on one machine. ``say`` gets a line for a person; ``notify`` gets what one sweep put to sleep."""

    def __init__(
        self,
        office: Office,
        engines: Mapping[str, Engine],
        *,
        at_once: int = AT_ONCE,
        idle: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = _nobody,
        notify: Callable[[Sequence[Slept]], None] = _nobody,
        listener: Listener | None = None,
    ) -> None:
        self._office, self._engines = office, dict(engines)
        self._bedtime = Bedtime(self._engines, idle=idle, clock=clock)
        self._say, self._notify, self._listener = say, notify, listener
        self._free = asyncio.Semaphore(at_once)
        self._working: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._rested = asyncio.Event()
        """A run has ended, so an engine may have begun to wait."""

    async def register(self) -> None:
        """Make the machine known. Raises what the office raises: a runner that cannot even begin should say so."""
        await self._office.register(offers(self._engines))

    async def run(self, *, grace: float = 300.0) -> None:
        """Work until ``stop`` is called, then finish what was begun, within ``grace`` seconds. Needs ``register`` first.

        What engines of a runner that was killed here left running is ended before anything is begun.
        """
        if orphans := await in_thread(end_orphans):
            self._say(f"Processes that a runner which was killed had left behind were ended: {len(orphans)}.")
        beside = [asyncio.create_task(self._beat()), asyncio.create_task(self._tuck_in())]
        try:
            await self._claim()
            if self._working:
                await asyncio.wait(self._working, timeout=grace)
        finally:
            self._office.hurry()  # what is left had its time; a server that is not there is not waited for
            await self._end(*self._working)
            await self._end(*beside)
            with contextlib.suppress(OnwardError):
                await self._bedtime.aclose()
            await self._office.aclose()

    def stop(self) -> None:
        """Take no new run. Call it from the runner's own loop."""
        self._stop.set()

    def hurry(self) -> None:
        """End what is being executed, at once."""
        self._stop.set()
        self._office.hurry()
        for task in self._working:
            task.cancel()

    async def _claim(self) -> None:
        able = self._able()
        while not self._stop.is_set():
            if self._free.locked():
                free = asyncio.ensure_future(self._free.acquire())
                stopped = asyncio.ensure_future(self._stop.wait())
                await asyncio.wait((free, stopped), return_when=asyncio.FIRST_COMPLETED)
                stopped.cancel()
                if not free.done():
                    free.cancel()
                    return
            else:
                await self._free.acquire()
            try:
                found = await self._office.claim(able, self._stop)
            except OnwardError as error:
                self._say(f"{error.code}: {error.message}")
                await either(self._stop, seconds=LOOK_SECONDS)
                found = None
            if found is None:
                self._free.release()
                able = self._able()
                continue
            task = asyncio.create_task(self._execute(*found))
            self._working.add(task)
            task.add_done_callback(self._finished)

    def _able(self) -> tuple[str, ...]:
        return tuple(name for name, engine in self._engines.items() if engine.unavailable() is None)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        self._free.release()
        self._rested.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._say(f"{type(error).__name__}: {error}")

    async def _execute(self, desk: Desk, run: Run) -> None:
        engine = self._engines[run.engine]
        self._say(f"{run.id} in {run.session_id}: {run.engine} begins")
        try:
            if (why := engine.unavailable()) is not None:
                raise EngineUnavailable(engine=engine.name, why=why)
            result = await execute_claimed(
                desk, run, engine, listener=self._listener, lease=self._office.lease, beat=self._office.beat
            )
        except EngineUnavailable as error:
            await desk.settle(run, "failed", reason=error.message, usage=None, engine=engine.name, reply="")
            self._say(f"{run.id}: {error.message}")
        except OnwardError as error:
            self._say(f"{run.id}: {error.code}: {error.message}")
        else:
            self._say(f"{run.id} {result.state}{f': {result.reason}' if result.reason else ''}")

    async def _beat(self) -> None:
        """Say something every few seconds, so that everybody sees that this machine is there."""
        while True:
            await asyncio.sleep(self._office.beat)
            with contextlib.suppress(OnwardError):
                await self.register()

    async def _tuck_in(self) -> None:
        """Put engines to sleep when their time has come."""
        while True:
            await either(self._rested, seconds=self._bedtime.due())
            self._rested.clear()
            try:
                ended = await self._bedtime.sweep()
            except Exception as error:  # noqa: BLE001 (one engine that cannot be put to sleep keeps no other awake)
                self._say(f"A process could not be put to sleep: {type(error).__name__}: {error}")
                continue
            if ended:
                with contextlib.suppress(OnwardError):
                    await self._office.slept(ended)
                self._notify(ended)

    async def _end(self, *tasks: asyncio.Task[Any]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
