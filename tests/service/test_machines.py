"""Machines, tokens and workspaces: who is registered, who is there, who may come in, and where the work lies."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from onward.core.bodies import Notice
from onward.core.codec import body_of
from onward.core.ids import EVENT
from onward.core.records import Offer
from onward.engines.contract import Capabilities
from onward.errors import (
    Conflict,
    InvalidInput,
    LimitExceeded,
    MachineNotFound,
    TokenNotFound,
    Unauthorized,
    WorkspaceNotFound,
)
from onward.service import machines, opening, running, sessions, tokens, workspaces
from onward.service.opening import EngineFacts
from onward.service.platform import Platform
from onward.service.resolving import FileResolver
from onward.store.memory import MemoryStore
from onward.testing.clock import FakeClock, FakeIds

SCRIPT = Offer(name="script")
BROKEN = Offer(name="codex", unavailable="it is not installed")
OTHERS = "acc_0000000000000000000000000B"


class Counting(MemoryStore):
    """A store that counts its commits."""

    commits = 0

    def commit(self, batch):  # type: ignore[no-untyped-def]
        self.commits += 1
        return super().commit(batch)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def platform(clock: FakeClock) -> Platform:
    return Platform(store=Counting(), clock=clock, ids=FakeIds(clock), host="home")


def test_a_machine_that_registers_again_is_the_same_with_what_it_offers_now(platform: Platform) -> None:
    first = machines.register(platform, " tower ", [SCRIPT, BROKEN])
    assert first.name == "tower"
    assert machines.able(first) == ("script",)
    again = machines.register(platform, "tower", [BROKEN])
    assert again.id == first.id
    assert machines.offers(again) == (BROKEN,)
    assert machines.listed(platform) == [again]


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x00"])
def test_a_machine_needs_a_name_that_can_be_printed(platform: Platform, name: str) -> None:
    with pytest.raises(InvalidInput):
        machines.register(platform, name, [])
    with pytest.raises(LimitExceeded):
        machines.register(platform, "x" * 65, [])


def test_a_machine_is_online_while_it_was_heard_of_within_the_limit(
    platform: Platform, clock: FakeClock
) -> None:
    machine = machines.register(platform, "tower", [])
    clock.tick(60)
    assert machines.online(platform, machine)
    assert not machines.online(replace(platform, online_seconds=59.0), machine)
    clock.tick(0.001)
    assert not machines.online(platform, machine)
    machines.heard_of(platform, machine)
    assert machines.online(platform, machines.get(platform, "tower"))


def test_being_heard_of_is_written_down_every_fifteen_seconds_at_most(
    platform: Platform, clock: FakeClock
) -> None:
    store = platform.store
    assert isinstance(store, Counting)
    machine = machines.register(platform, "tower", [])
    before = store.commits
    for _ in range(29):
        machines.heard_of(platform, machines.get(platform, machine.id))
        clock.tick(1)
    assert store.commits - before == 1


def test_this_machine_is_registered_once_and_then_nothing_is_written(platform: Platform) -> None:
    store = platform.store
    assert isinstance(store, Counting)
    here = machines.register_here(platform, SCRIPT)
    assert (here.name, here.home, here.seen_at) == ("home", True, 0)
    before = store.commits
    assert machines.register_here(platform, SCRIPT) == here
    assert machines.register_here(platform) == here
    assert store.commits == before
    more = machines.register_here(platform, BROKEN)
    assert machines.offers(more) == (SCRIPT, BROKEN)
    assert not machines.online(platform, more)


def test_the_name_of_a_program_may_be_no_unicode(platform: Platform) -> None:
    odd = replace(BROKEN, unavailable="there is no program /opt/caf\udce9/agent")
    machine = machines.register(platform, "tower", [odd])
    assert machines.offers(machines.get(platform, machine.id)) == (odd,)


def test_the_home_of_the_store_stays_that_when_a_runner_registers_it(platform: Platform) -> None:
    here = machines.register_here(platform)
    assert machines.register(platform, "home", [SCRIPT]).home
    assert machines.home(platform) == machines.get(platform, here.id)


@pytest.mark.requirement("A1")
def test_machines_tokens_and_workspaces_of_another_account_are_not_there(platform: Platform) -> None:
    theirs = replace(platform, account_id=OTHERS)
    machine = machines.register(theirs, "tower", [])
    token, _ = tokens.create(theirs, "t", ["read"])
    workspace = workspaces.ensure(theirs, "/p")
    for named in (machine.id, "tower"):
        with pytest.raises(MachineNotFound):
            machines.get(platform, named)
    with pytest.raises(TokenNotFound):
        tokens.revoke(platform, token.id)
    for named in (workspace.id, "/p"):
        with pytest.raises(WorkspaceNotFound):
            workspaces.get(platform, named)
    assert (machines.listed(platform), tokens.listed(platform), workspaces.listed(platform)) == ([], [], [])


# -- tokens -------------------------------------------------------------------------------------------------------------


def test_a_token_lets_in_until_it_expires_or_is_revoked(platform: Platform, clock: FakeClock) -> None:
    token, secret = tokens.create(platform, "laptop", ["runner", "read", "read"], lifetime=60)
    assert token.scopes == ("read", "runner")
    assert tokens.authenticate(platform.store, secret, clock()) == token
    assert tokens.allows(token, "runner")
    assert not tokens.allows(token, "write")
    for wrong in ("", secret[:-1], secret + "x", "\ud800", token.digest):
        with pytest.raises(Unauthorized):
            tokens.authenticate(platform.store, wrong, clock())
    clock.tick(60)
    with pytest.raises(Unauthorized, match="expired"):
        tokens.authenticate(platform.store, secret, clock())
    lasting, key = tokens.create(platform, "other", ["admin"])
    assert tokens.allows(lasting, "write")
    tokens.revoke(platform, lasting.id)
    revoked = tokens.revoke(platform, lasting.id)
    assert revoked.revoked_at == clock()
    with pytest.raises(Unauthorized, match="revoked"):
        tokens.authenticate(platform.store, key, clock())


def test_the_store_never_sees_a_secret(platform: Platform) -> None:
    token, secret = tokens.create(platform, "laptop", ["read"])
    assert secret.startswith(tokens.PREFIX)
    assert len(secret) == len(tokens.PREFIX) + 43
    assert secret not in repr(token)
    assert secret.removeprefix(tokens.PREFIX) not in repr(vars(platform.store))


@pytest.mark.parametrize("scopes", [[], ["all"], ["read", "Write"]])
def test_a_token_has_scopes_that_exist(platform: Platform, scopes: list[str]) -> None:
    with pytest.raises(InvalidInput):
        tokens.create(platform, "t", scopes)


# -- workspaces ---------------------------------------------------------------------------------------------------------


def test_one_path_on_two_machines_is_two_workspaces(platform: Platform) -> None:
    tower = machines.register(platform, "tower", [SCRIPT])
    here, there = workspaces.ensure(platform, "/p"), workspaces.ensure(platform, "/p", tower)
    assert here.id != there.id
    assert (here.machine_id, there.machine_id) == (None, tower.id)
    assert workspaces.ensure(platform, "/p", tower) == there
    assert sessions.start(platform, "x", workspace="/p", machine=tower).workspace_id == there.id
    assert sessions.start(platform, "x", workspace="/p").workspace_id == here.id
    assert workspaces.get(platform, "/p") == here
    assert workspaces.get(platform, "/p", tower) == there


def test_a_folder_of_the_home_is_one_workspace_however_it_is_named(platform: Platform) -> None:
    home = machines.register_here(platform)
    assert workspaces.ensure(platform, "/p", home) == workspaces.ensure(platform, "/p")
    tower = machines.register(platform, "tower", [])
    moved = workspaces.move(platform, "/p", tower, "/q")
    assert workspaces.move(platform, moved.id, home, "/p").machine_id is None


def test_a_folder_that_moved_leaves_room_for_another_at_its_old_place(platform: Platform) -> None:
    tower = machines.register(platform, "tower", [])
    first = workspaces.ensure(platform, "/p")
    moved = workspaces.move(platform, "/p", tower, "/q")
    assert (moved.id, moved.machine_id, moved.path) == (first.id, tower.id, "/q")
    second = workspaces.ensure(platform, "/p")
    assert second.id != first.id
    with pytest.raises(Conflict):
        workspaces.move(platform, second.id, tower, "/q")
    assert workspaces.get(platform, second.id) == second


def test_a_run_works_in_the_folder_it_was_given_until_the_workspace_has_moved(platform: Platform) -> None:
    session = sessions.start(platform, "x", workspace="/p", engine="script")
    facts = EngineFacts(name="script", capabilities=Capabilities())

    def works_in() -> tuple[str | None, str | None]:
        queued = running.submit(platform, session.id, "Hello", options={"workdir": "/p/inner"})
        run = running.claim(platform, queued.id, "me", engine="script")
        prepared = opening.prepare(platform, run, facts)
        running.settle(platform, run, "completed")
        return prepared.options.workdir, prepared.folder

    assert works_in() == ("/p/inner", "/p")
    workspaces.move(platform, "/p", machines.register(platform, "tower", []), "/q")
    assert works_in() == (None, "/q")


def test_a_folder_of_another_machine_is_not_read_here(platform: Platform, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("ours", encoding="utf-8")
    session = sessions.start(platform, "x", workspace=str(tmp_path))
    reader = FileResolver()
    assert str(tmp_path) in reader._allowed(platform, session)
    tower = machines.register(platform, "tower", [])
    workspaces.move(platform, str(tmp_path), tower, str(tmp_path))
    assert reader._allowed(platform, session) == []


# -- sleep --------------------------------------------------------------------------------------------------------------


def test_putting_an_engine_to_sleep_is_told_once_in_its_session(platform: Platform) -> None:
    tower = machines.register(platform, "tower", [])
    session = sessions.start(platform, "x")
    theirs = sessions.start(replace(platform, account_id=OTHERS), "y")
    ended = [
        machines.Slept(session_id=name, engine="codex", idle=6 * 3600.0, event=platform.ids.new(EVENT))
        for name in (session.id, theirs.id, "ses_none")
    ]
    for _ in range(2):
        machines.slept(platform, tower, ended)
    events = platform.store.events(session.id)
    assert [event.kind for event in events] == ["session", "context"]
    notice = body_of(events[1])
    assert isinstance(notice, Notice)
    assert notice.text == "tower put its codex process to sleep after 6 h without a message."
    assert len(platform.store.events(theirs.id)) == 1
