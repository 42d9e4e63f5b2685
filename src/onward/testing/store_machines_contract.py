"""What every store promises about machines, tokens, workspaces on machines, and who may take which run (A1, L6)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from onward.core import ids
from onward.core.records import Machine, Token, Workspace
from onward.errors import Conflict, LeaseLost, NotFound
from onward.store.contract import Batch, MachineSeen, WorkspacePatch
from onward.testing.store_cases import ACCOUNT, OTHER_ACCOUNT, World


def machine(world: World, name: str, *, account: str = ACCOUNT, home: bool = False) -> Machine:
    """Store a machine and return it."""
    made = Machine(
        id=world.ids.new(ids.MACHINE),
        account_id=account,
        name=name,
        created_at=world.clock.tick(),
        engines=b'[{"name":"script"}]',
        home=home,
    )
    world.store.commit(Batch(machines=(made,)))
    return made


def workspace(world: World, path: str, machine_id: str | None = None) -> Workspace:
    """Store a workspace and return it."""
    made = Workspace(
        id=world.ids.new(ids.WORKSPACE),
        account_id=ACCOUNT,
        path=path,
        created_at=world.clock.tick(),
        machine_id=machine_id,
    )
    world.store.commit(Batch(workspaces=(made,)))
    return made


class MachinesContract:
    """The part of the suite about who executes runs, and where."""

    def test_a_machine_is_one_name_of_one_account(self, world: World) -> None:
        made = machine(world, "tower")
        newer = replace(made, engines=b"[]", seen_at=7)
        world.store.commit(Batch(machines=(newer,)))
        assert world.store.machine(made.id) == newer
        assert world.store.machine_by_name(ACCOUNT, "tower") == newer
        assert world.store.machine_by_name(OTHER_ACCOUNT, "tower") is None
        with pytest.raises(Conflict):
            machine(world, "tower")
        with pytest.raises(Conflict):
            world.store.commit(Batch(machines=(replace(made, account_id=OTHER_ACCOUNT),)))
        theirs = machine(world, "tower", account=OTHER_ACCOUNT)
        other = machine(world, "laptop")
        assert world.store.machines(ACCOUNT) == [newer, other]
        assert world.store.machines(OTHER_ACCOUNT) == [theirs]
        assert world.store.machine(world.ids.new(ids.MACHINE)) is None

    def test_of_the_times_at_which_a_machine_was_heard_of_the_latest_stays(self, world: World) -> None:
        made = machine(world, "tower")
        for at in (5, 9, 3):
            world.store.commit(Batch(seen=(MachineSeen(machine_id=made.id, at=at),)))
        assert world.store.machine(made.id) == replace(made, seen_at=9)
        with pytest.raises(NotFound):
            world.store.commit(Batch(seen=(MachineSeen(machine_id="mac_none", at=1),)))

    def test_a_token_is_found_by_the_digest_of_its_secret(self, world: World) -> None:
        token = Token(
            id=world.ids.new(ids.TOKEN),
            account_id=ACCOUNT,
            name="laptop",
            digest="sha256:aa",
            scopes=("runner", "read"),
            created_at=1,
        )
        world.store.commit(Batch(tokens=(token,)))
        revoked = replace(token, revoked_at=5, expires_at=9)
        world.store.commit(Batch(tokens=(revoked,)))
        assert world.store.token_by_digest("sha256:aa") == revoked
        assert world.store.token_by_digest("sha256:bb") is None
        assert world.store.tokens(ACCOUNT) == [revoked]
        assert world.store.tokens(OTHER_ACCOUNT) == []
        with pytest.raises(Conflict):
            world.store.commit(Batch(tokens=(replace(token, id=world.ids.new(ids.TOKEN)),)))
        with pytest.raises(Conflict):
            world.store.commit(Batch(tokens=(replace(token, account_id=OTHER_ACCOUNT),)))

    def test_a_path_is_unique_on_a_machine_and_not_beyond(self, world: World) -> None:
        there = machine(world, "tower")
        here, remote = workspace(world, "/p"), workspace(world, "/p", there.id)
        assert world.store.workspace(ACCOUNT, "/p") == here
        assert world.store.workspace(ACCOUNT, "/p", there.id) == remote
        assert world.store.workspaces(ACCOUNT) == [here, remote]
        with pytest.raises(Conflict):
            workspace(world, "/p", there.id)
        with pytest.raises(Conflict):
            workspace(world, "/p")

    def test_a_workspace_moves_to_another_machine_and_folder(self, world: World) -> None:
        there = machine(world, "tower")
        made, taken = workspace(world, "/p"), workspace(world, "/taken", there.id)
        patch = WorkspacePatch(workspace_id=made.id, machine_id=there.id, path="/q", moved_at=4)
        world.store.commit(Batch(workspace_patches=(patch,)))
        moved = replace(made, machine_id=there.id, path="/q", moved_at=4)
        assert world.store.workspace_by_id(made.id) == moved
        assert world.store.workspace(ACCOUNT, "/p") is None
        with pytest.raises(Conflict):
            world.store.commit(Batch(workspace_patches=(replace(patch, path=taken.path),)))
        with pytest.raises(NotFound):
            world.store.commit(Batch(workspace_patches=(replace(patch, workspace_id="wsp_none"),)))
        assert world.store.workspace_by_id(made.id) == moved

    # -- who may take which run ---------------------------------------------------------------------------------------

    def test_runs_wait_for_the_machine_of_their_workspace_and_for_any_without_one(self, world: World) -> None:
        home, tower = machine(world, "home", home=True), machine(world, "tower")
        at_home = workspace(world, "/p")
        placed_at_home, placed_there = workspace(world, "/q", home.id), workspace(world, "/p", tower.id)
        runs = {
            name: world.run(world.session(workspace_id=place)).id
            for name, place in (
                ("old", at_home.id),
                ("home", placed_at_home.id),
                ("tower", placed_there.id),
                ("free", None),
            )
        }

        def waiting(taker: Machine, *engines: str) -> list[str]:
            return [run.id for run in world.store.waiting_for(taker, engines)]

        assert waiting(home, "script") == [runs["old"], runs["home"], runs["free"]]
        assert waiting(tower, "script", "codex") == [runs["tower"], runs["free"]]
        assert waiting(tower, "codex") == []
        assert waiting(tower) == []
        assert waiting(machine(world, "x", account=OTHER_ACCOUNT, home=True), "script") == []
        assert [run.id for run in world.store.waiting_for(home, ["script"], limit=1)] == [runs["old"]]

    def test_only_the_run_whose_turn_it_is_waits_for_a_machine(self, world: World) -> None:
        home = machine(world, "home", home=True)
        session = world.session()
        first = world.run(session, input=b"{}")
        world.run(session, input=b"{}")
        assert [run.id for run in world.store.waiting_for(home, ["script"])] == [first.id]
        said = world.run(session)  # its message is in the log already, so everything else was said after it
        assert [run.id for run in world.store.waiting_for(home, ["script"])] == [said.id]
        world.change(said.id, state="running")
        assert world.store.waiting_for(home, ["script"]) == []
        world.change(said.id, state="completed")
        assert [run.id for run in world.store.waiting_for(home, ["script"])] == [first.id]

    def test_a_run_that_is_next_for_another_engine_keeps_those_behind_it_waiting(self, world: World) -> None:
        home = machine(world, "home", home=True)
        session = world.session()
        first = world.new_run(session, input=b"{}")
        world.store.commit(Batch(runs=(replace(first, engine="codex"),)))
        world.run(session, input=b"{}")
        assert world.store.waiting_for(home, ["script"]) == []
        assert [run.id for run in world.store.waiting_for(home, ["script", "codex"])] == [first.id]

    # -- numbered entries ---------------------------------------------------------------------------------------------

    @pytest.mark.requirement("L3", "L6")
    def test_an_entry_is_acknowledged_once_and_in_order(self, world: World) -> None:
        session = world.session()
        run = world.running(session, machine_id="mac_1", claim="claim")
        assert (run.machine_id, run.claim, run.entries) == ("mac_1", "claim", 0)
        assert world.change(run.id, fence=run.fence, entry=1).entries == 1
        for wrong in (0, 1, 3):
            with pytest.raises(Conflict):
                world.change(run.id, fence=run.fence, entry=wrong)
        with pytest.raises(LeaseLost):
            world.change(run.id, fence=run.fence + 1, entry=2)
        ended = world.change(run.id, fence=run.fence, entry=2, state="completed")
        assert (ended.state, ended.entries) == ("completed", 2)
