"""What a process of its own does in the tests of continuing and running: one task, told by its arguments.

    python -m tests.concurrency.conversing TASK STORE ARGUMENT…

A task waits for a line on its standard input before it begins, so that all of them begin together, and prints JSON, a
line at a time. It is started as a module from the root of the checkout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from msgspec.structs import replace

import onward
from onward.core.bodies import Message
from onward.engines.script import Hang, Mutter, Say, ScriptEngine
from onward.errors import Conflict, OnwardError
from onward.library import Onward
from onward.store.contract import Append, Batch

COMMAND: Final[dict[str, Any]] = {
    "reason": "phase_change",
    "title": "The next phase",
    "handoff": {
        "purpose": "Go on",
        "current_request": "Go on",
        "established_facts": ["Something was found."],
    },
    "sources": [{"from_seq": 2, "to_seq": 2}],
}


def tell(**facts: Any) -> None:
    """Print one line."""
    print(json.dumps(facts), flush=True)


def continue_often(log: Onward, session: str, threads: str, key: str, times: str, text: str = "") -> None:
    """Continue a session ``times`` times on some threads, each with the key formatted with its number, saying ``text``."""

    def once(number: int) -> dict[str, Any]:
        try:
            made = log.continue_session(session, COMMAND, text or None, key=key.format(number=number))
        except OnwardError as error:
            return {"refused": error.code}
        return {"successor": made.successor, "run": made.run, "manifest": made.manifest}

    with ThreadPoolExecutor(int(threads)) as pool:
        for facts in pool.map(once, range(int(times))):
            tell(**facts)


def append_and_continue(log: Onward, session: str) -> None:
    """Say something and continue, over and over, telling each thing that was done, until somebody ends the process."""
    current, number = session, 0
    while True:
        number += 1
        for part in range(3):
            said = Message(role="user", text=f"Message {number}.{part}")
            event = log.platform.event("message", said, "user")
            stored = log.platform.store.commit(
                Batch(appends=(Append(session_id=current, events=(event,)),))
            ).events
            tell(said=stored[0].id, session=current, seq=stored[0].seq)
        try:
            made = log.continue_session(current, COMMAND, f"Step {number}", key=f"step {number}")
        except OnwardError as error:
            if error.code != "rate_limited":
                raise
            current = log.start("Another").id  # a lineage has had its share for now
            continue
        tell(made=made.successor, of=current, key=f"step {number}")
        current = made.successor
        if made.run is not None:
            log.cancel(made.run)  # nobody runs it here, and what waits is not left behind


def stream_and_hang(log: Onward, session: str, text: str) -> None:
    """Stream the beginning of an answer and then say nothing more, until somebody ends the process."""
    engine = ScriptEngine(script=[Say(text="A finished message."), Mutter(text=text), Hang()])

    class Telling:
        """The store, telling when that text is kept."""

        def __getattr__(self, name: str) -> Any:
            return getattr(log.platform.store, name)

        def commit(self, batch: Batch) -> Any:
            done = log.platform.store.commit(batch)
            for draft in batch.drafts:
                if draft.text == text:
                    tell(streaming=draft.run_id)
            return done

    Onward(replace(log.platform, store=Telling())).run(session, "Answer me.", engine=engine)  # type: ignore[arg-type]


def answer_slowly(log: Onward, session: str) -> None:
    """Say one thing after another until somebody cancels the run, and tell how it ended."""
    from onward.engines.contract import Capabilities, Said, Started

    class Chatty:
        name = "script"
        capabilities = Capabilities(streaming=True)

        def unavailable(self) -> str | None:
            return None

        async def run(self, turn: Any) -> Any:
            yield Started()
            tell(streaming=turn.run_id)
            while True:
                yield Said(text="Still here.")

    result = log.run(session, "Answer me.", engine=Chatty())  # type: ignore[arg-type]
    tell(state=result.state, reason=result.reason)


def work_through(log: Onward, session: str) -> None:
    """Answer whatever waits in a session until nothing does, and tell which runs were answered here."""
    while True:
        waiting = log.platform.store.unfinished(session)
        if not waiting:
            return
        try:
            result = log.run(session, engine="script")
        except (Conflict, OnwardError):
            continue
        tell(run=result.run, state=result.state)


def submit_often(log: Onward, session: str, times: str, name: str) -> None:
    """Put messages before an agent."""
    for number in range(int(times)):
        tell(run=log.submit(session, f"{name} {number}", engine="script").id)


TASKS: Final[dict[str, Callable[..., None]]] = {
    task.__name__: task
    for task in (
        continue_often,
        append_and_continue,
        stream_and_hang,
        answer_slowly,
        work_through,
        submit_often,
    )
}


def main() -> None:
    """Do what the arguments say."""
    task, url, *arguments = sys.argv[1:]
    with onward.open(url) as log:
        tell(ready=True)
        sys.stdin.readline()
        TASKS[task](log, *arguments)


if __name__ == "__main__":
    main()
