"""Files of the server's machine are read for whoever runs it alone, and for nobody else who may write there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.service.conversations import COMMAND, World

from onward.service import continuing
from onward.store.memory import MemoryStore
from onward.surfaces.http.house import House


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder with a file that is not everybody's business."""
    (tmp_path / "secret.txt").write_text("the combination is 3141")
    return tmp_path


def cited(house: House, account: str, folder: Path) -> str:
    """What a successor begins with whose handoff cites a file of the folder that its session says it is about."""
    world = World(opened=lambda: house.platform.store)
    acting = world.acting(account)
    session = acting.start("x", workspace=str(folder)).id
    world.say(session, "Go on.")
    command: dict[str, Any] = {**COMMAND, "sources": [{"kind": "memory", "path": "secret.txt"}]}
    made = continuing.continue_session(house.platform_of(account), session, command)
    return "".join(event.body.decode() for event in world.store.scan(made.successor))


def test_whoever_runs_the_server_has_files_of_the_workspace_read(secret: Path) -> None:
    house = House(World(opened=MemoryStore).platform)
    assert "3141" in cited(house, house.platform.account_id, secret)


@pytest.mark.requirement("A1")
def test_another_account_reads_no_file_by_naming_a_folder(secret: Path) -> None:
    house = House(World(opened=MemoryStore).platform)
    assert "3141" not in cited(house, "acc_other", secret)


@pytest.mark.requirement("A1")
def test_nor_does_anybody_where_several_people_share_an_account(secret: Path) -> None:
    house = House(World(opened=MemoryStore).platform)
    house.oidc = object()  # type: ignore[assignment]
    assert "3141" not in cited(house, house.platform.account_id, secret)


@pytest.mark.requirement("A1")
def test_nor_where_the_environment_says_that_files_are_read(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import msgspec

    from onward.service import resolving

    monkeypatch.setenv("ONWARD_SOURCES", "file store")
    platform = msgspec.structs.replace(
        World(opened=MemoryStore).platform, resolvers=resolving.from_environment()
    )
    assert "3141" not in cited(House(platform), "acc_other", secret)
