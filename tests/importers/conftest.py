"""A store, a clock and one way to import: what every test here begins with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.core.bodies import Body
from onward.core.codec import body_of
from onward.core.events import Event
from onward.core.ids import LOCAL_ACCOUNT
from onward.core.records import Link, Session
from onward.service.importing import import_paths
from onward.service.importing_report import FileReport, ImportReport
from onward.store import open_store
from onward.store.contract import SessionQuery, Store
from onward.testing.clock import FakeClock, FakeIds


class Desk:
    """A store and a folder, with imports that take a second each."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.clock = FakeClock()
        self.ids = FakeIds(self.clock)

    def imports(self, *paths: Path, engine: str | None = None, store: Store | None = None) -> ImportReport:
        self.clock.tick()
        return import_paths(
            store or self.store,
            LOCAL_ACCOUNT,
            list(paths or (self.folder,)),
            engine,
            now=self.clock,
            ids=self.ids,
        )

    def one(self, path: Path, **options: str) -> FileReport:
        (report,) = self.imports(path, **options).files
        assert report.records.read == report.records.mapped + report.records.raw + report.records.broken
        return report

    def write(self, path: Path, data: bytes) -> Path:
        """Write a native file so that it shows as changed, however coarse the file system's clock is."""
        before = path.stat().st_mtime_ns if path.exists() else 1_000_000_000
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(before, before + 1_000_000_000))
        return path

    def sessions(self) -> list[Session]:
        return self.store.sessions(SessionQuery(account_id=LOCAL_ACCOUNT, limit=500))[0]

    def events(self, session: str, *kinds: str) -> list[Event]:
        return [event for event in self.store.scan(session) if not kinds or event.kind in kinds]

    def bodies(self, session: str, *kinds: str) -> list[Body]:
        return [body_of(event) for event in self.events(session, *kinds)]

    def said(self, session: str) -> list[str]:
        """What is said in a session's dialogue, asides left out."""
        return [
            body.text
            for body in self.bodies(session, "message")
            if not body.aside  # type: ignore[attr-defined]
        ]

    def link_to(self, session: str) -> Link | None:
        return next((link for link in self.store.links(session) if link.to_session == session), None)

    def census(self) -> dict[str, tuple[str, str]]:
        """Every event by id: its session and kind, without what marks the imports themselves."""
        found = {}
        for session in self.sessions():
            for event in self.store.scan(session.id):
                if event.kind != "session":
                    assert event.id not in found
                    found[event.id] = (session.id, event.kind)
        return found


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = open_store("memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'log.db'}")
    yield made
    made.close()


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    folder = tmp_path / "native"
    folder.mkdir()
    return Desk(store, folder)
