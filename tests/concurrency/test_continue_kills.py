"""A process that appends and continues is killed at a random moment, again and again (C2, C3).

``ONWARD_KILLS`` says how often, 15 by default. What was told as done is there; what was cut off is whole or not there.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
from tests.concurrency.conversing import COMMAND
from tests.concurrency.processes import together
from tests.service.conversations import halves, texts

import onward

KILLS = int(os.environ.get("ONWARD_KILLS") or 15)


@pytest.mark.requirement("C2", "C3", "L2")
@pytest.mark.timeout(60 + 5 * KILLS)
def test_a_process_killed_anywhere_leaves_whole_continuations_or_none(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'onward.db'}"
    chance = random.Random(8)
    continued = 0
    for _ in range(KILLS):
        with onward.open(url) as log:
            session = log.start("Begin").id
        with together(("append_and_continue", url, session)) as (process,):
            process.next()
            # The moment is what is tried here; nothing depends on which one it is.
            threading.Event().wait(chance.uniform(0, 0.12))
            told = process.kill()
        with onward.open(url) as log:
            store = log.platform.store
            for fact in told:
                if "said" in fact:
                    event = store.event(fact["said"])
                    assert event is not None
                    assert (event.session_id, event.seq) == (fact["session"], fact["seq"])
                if "made" in fact:
                    continued += 1
                    step = fact["key"].replace("step", "Step")
                    assert (
                        texts(list(store.scan(fact["of"])))[-1]
                        == texts(list(store.scan(fact["made"])))[0]
                        == step
                    )
                    again = log.continue_session(fact["of"], COMMAND, key=fact["key"])
                    assert (again.successor, again.repeated) == (fact["made"], True)
            assert halves(log, session) == []
            # Whatever was cut off can be asked for again, and then it is there once.
            last = log.lineage(session).path[-1]
            assert log.verify(last).ok
    with onward.open(url) as log:
        assert log.verify().first_failure is None
        assert halves(log) == []
    assert continued > 0, "no process lived long enough to continue: nothing was tried"
