"""``watch`` and ``usage``: what is being added to a session, and what its runs used."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

from onward.core.pricing import Rate, Rates, Spent
from onward.errors import InvalidInput
from onward.service import following, usage
from onward.surfaces.cli import addresses, screen, shapes
from onward.surfaces.cli.grammar import Call, UsageError
from onward.surfaces.cli.opened import opened
from onward.surfaces.cli.reading import print_events

MOST_SECONDS: Final = 7 * 24 * 3600


def watch(call: Call) -> int:
    """Print events as they are added."""
    seconds = call["for"]
    if seconds is not None and not 0 <= seconds <= MOST_SECONDS:
        raise UsageError(f"--for takes 0 to {MOST_SECONDS} seconds")
    if call.json and seconds is None:
        raise UsageError("with --json, say --for how many seconds; --lines prints one document an event")
    until = None if seconds is None else time.monotonic() + seconds

    def pause(wait: float) -> bool:
        left = wait if until is None else min(wait, until - time.monotonic())
        return left <= 0 or threading.Event().wait(left)

    with opened(call) as platform:
        session = addresses.session(platform, call["ses"])
        after = following.latest(platform, session.id) if call["after"] is None else call["after"]
        run = None if call["run"] is None else call["run"]
        seen = []
        found = following.follow(
            platform, session.id, after=after, kinds=tuple(call["kind"]) or None, run=run, pause=pause
        )
        for event in found:
            if call.json:
                seen.append(shapes.event(event))
                after = event.seq
            elif call["lines"]:
                sys.stdout.write(screen.as_json(shapes.event(event)).decode("utf-8") + "\n")
                sys.stdout.flush()
            else:
                print_events((event,), full=False)
                sys.stdout.flush()
        if call.json:
            screen.document({"session": session.id, "events": seen, "next": after})
    return 0


def used(call: Call) -> int:
    """Show what the runs of a session used and cost."""
    rates = None if call["rates"] is None else read_rates(call["rates"])
    with opened(call) as platform:
        found = usage.of_session(platform, addresses.session(platform, call["ses"]).id, rates)
    if call.json:
        screen.document(found)
        return 0
    for engine, spent in found.engines.items():
        screen.say(f"{engine or '(no engine)'}: {told(spent)}")
    if len(found.engines) != 1:
        screen.say(f"in all: {told(found.total)}")
    if found.total.unpriced and not call.quiet:
        runs = screen.counted(found.total.unpriced, "run")
        screen.note(f"What {runs} cost is not known; --rates FILE says what tokens cost.")
    if not found.complete:
        screen.note(f"Only the newest {usage.MOST_RUNS:,} runs are counted.")
    return 0


def told(spent: Spent) -> str:
    """Return what was used, in a line."""
    runs = screen.counted(spent.runs, "run")
    if not spent.measured:
        return f"{runs}, none of which said what it used"
    silent = f" ({spent.runs - spent.measured} did not say)" if spent.runs > spent.measured else ""
    cost = f" · ${spent.cost_usd:.4f}" if spent.measured > spent.unpriced else ""
    cached = f", {spent.cache_read_tokens:,} of them from a cache" if spent.cache_read_tokens else ""
    return f"{runs}{silent} · {spent.input_tokens:,} tokens in{cached}, {spent.output_tokens:,} out{cost}"


def read_rates(path: str) -> Rates:
    """Read rates: a JSON object from models (or the beginnings of their names, or engines) to dollars for a million tokens.

    Raises InvalidInput for anything else.
    """
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Rate])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(what=f"the rates in {path}", why=str(error)) from None
