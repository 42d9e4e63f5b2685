"""From the platform to the real programs and back: what each is given, and that what is reported is what happened."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.engines.real.cli_homes import Home, claude_home, codex_home

from onward.core.bodies import SessionChange
from onward.core.codec import body_of
from onward.engines import engine_by_name
from onward.library import Onward
from onward.runner import RunResult
from onward.service import native_records
from onward.service.platform import Platform
from onward.store.memory import MemoryStore
from onward.testing.stub_models import StubModels

FREE = {"permission_mode": "dangerously_skip_permissions"}
BRIEF = "This is not the previous conversation"


@dataclass(kw_only=True)
class Place:
    """One machine with one program on it."""

    home: Home
    engine: Any
    log: Onward
    stub: StubModels

    def say(self, session: str, text: str, **options: Any) -> RunResult:
        return self.log.run(session, text, engine=self.engine, continuation_opts={**FREE, **options})

    def asked(self) -> list[str]:
        """What the user said in the newest request, as the model got it."""
        return self.stub.asked(len(self.stub.requests) - 1)

    def forget(self, session: str) -> None:
        """Take away the program's own files of all conversations, and what was kept of them for this one."""
        shutil.rmtree(self.home.natives)
        for row in self.log.platform.store.engine_sessions(session):
            native_records.delete(self.log.platform, row.engine, row.native_id)

    def facts(self, session: str) -> Any:
        events = self.log.read(session).events
        return [
            b.facts for e in events if isinstance(b := body_of(e), SessionChange) and b.change == "opening"
        ]


HOMES: dict[str, Callable[[Path, StubModels], Home]] = {"claude-code": claude_home, "codex": codex_home}


def place(name: str, folder: Path, stub: StubModels, store: MemoryStore, machine: str = "laptop") -> Place:
    folder.mkdir(parents=True, exist_ok=True)
    home = HOMES[name](folder, stub)
    engine = engine_by_name(name, program=str(home.program), env=dict(home.env))
    return Place(home=home, engine=engine, log=Onward(Platform(store=store, host=machine)), stub=stub)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return MemoryStore()


@pytest.mark.requirement("O2", "O3")
@pytest.mark.parametrize("name", list(HOMES))
def test_it_goes_on_in_its_own_memory_and_without_that_in_a_reconstruction(
    name: str, tmp_path: Path, stub: StubModels, store: MemoryStore
) -> None:
    here = place(name, tmp_path / "a", stub, store)
    session = here.log.start("Words", engine=name, workspace=str(here.home.workdir)).id
    first = here.say(session, "The codeword is walrus. [[say Noted.]]")
    assert (first.state, first.opening, first.reply) == ("completed", "fresh", "Noted.")
    second = here.say(session, "[[say I know.]]")
    assert (second.opening, second.reply) == ("resumed", "I know.")
    assert not any(BRIEF in text for text in here.asked())
    here.forget(session)
    third = here.say(session, "[[say Go on.]]")
    assert (third.state, third.opening, third.reply) == ("completed", "seeded", "Go on.")
    told = "\n".join(here.asked())
    assert told.count(BRIEF) == 1
    assert told.index(BRIEF) < told.index("The codeword is walrus.") < told.rindex("[[say Go on.]]")
    assert told.rstrip().endswith("[[say Go on.]]")
    assert [f.outcome for f in here.facts(session)] == ["fresh", "resumed", "seeded"]
    assert here.facts(session)[-1].reason in third.opening_told
    assert here.say(session, "[[say Still.]]").opening == "resumed"


@pytest.mark.requirement("O2")
def test_claude_code_is_restored_from_our_record_on_another_machine(
    tmp_path: Path, stub: StubModels, store: MemoryStore
) -> None:
    here = place("claude-code", tmp_path / "a", stub, store)
    session = here.log.start("Words", engine="claude-code", workspace=str(here.home.workdir)).id
    here.say(
        session,
        'The codeword is walrus. [[call Bash {"command":"echo heard","description":"say it"}]] [[say Noted.]]',
    )
    there = place("claude-code", tmp_path / "b", stub, store, machine="tower")
    result = there.say(session, "[[say Here too.]]", workdir=str(there.home.workdir))
    assert (result.state, result.opening, result.reply) == ("completed", "restored", "Here too.")
    assert "laptop" in result.opening_told
    assert not any(BRIEF in text for text in there.asked())
    assert any("The codeword is walrus." in text for text in there.asked())
    assert there.say(session, "[[say Again.]]", workdir=str(there.home.workdir)).opening == "resumed"


@pytest.mark.requirement("O1")
def test_two_programs_take_turns_and_neither_is_cold(
    tmp_path: Path, stub: StubModels, store: MemoryStore
) -> None:
    claude = place("claude-code", tmp_path / "a", stub, store)
    codex = place("codex", tmp_path / "b", stub, store)
    session = claude.log.start("Words", workspace=str(claude.home.workdir)).id
    claude.say(session, "The codeword is walrus. [[say Noted.]]")
    second = codex.say(session, "[[say I was told.]]")
    assert (second.opening, second.reply) == ("seeded", "I was told.")
    assert any("The codeword is walrus." in text for text in codex.asked())
    third = claude.say(session, "[[say So was I.]]")
    assert third.opening == "seeded"
    assert "codex" in third.opening_told
    assert any("The agent said: I was told." in text for text in claude.asked())
    assert set(claude.log.provider_sessions(session)) == {"claude-code", "codex"}
