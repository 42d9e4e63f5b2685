"""Files: how one is recognised and migrated, what is refused and left as it is, and what happens when there is no room."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.core import words
from onward.core.digests import content_digest
from onward.core.records import Original
from onward.errors import NotAStore, StoreError, StoreFull, StoreReadOnly, StoreTooNew
from onward.store import migrate, sqlite_search
from onward.store.contract import Append, Batch
from onward.store.sqlite import SqliteStore
from onward.store.sqlite_connection import APPLICATION_ID
from onward.testing.store_cases import ACCOUNT, World, first_fault

_spaces = itertools.count(1)
SRC = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[World]:
    """A store at a path, with a world around it that makes ids of its own."""
    with contextlib.closing(SqliteStore(path)) as store:
        yield World(store, space=next(_spaces))


def filled(path: Path, *texts: str) -> str:
    """Make a store with one session that says this; return the session."""
    with opened(path) as world:
        session = world.session()
        world.append(session, *texts)
    return session


def raw(path: Path, *statements: str) -> None:
    """Do something to a file behind the store's back."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


# -- recognising --------------------------------------------------------------------------------------------------------


def test_a_new_file_is_ours_private_and_says_so(path: Path) -> None:
    session = filled(path, "text")
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with opened(path) as world:
        assert len(world.texts(session)) == 1


def test_folders_on_the_way_are_made(tmp_path: Path) -> None:
    filled(tmp_path / "a" / "b" / "store.db", "text")


def test_an_empty_file_is_filled(path: Path) -> None:
    path.touch()
    filled(path, "text")


def test_a_database_without_a_table_is_what_a_cut_off_start_leaves_and_is_filled(path: Path) -> None:
    raw(path, "PRAGMA journal_mode = WAL", "PRAGMA user_version = 0", "VACUUM")
    assert path.stat().st_size > 0
    filled(path, "text")


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        b"SQLite format 2\0" + bytes(4096),
        b"PK\x03\x04" + bytes(100),
        b"SQLite format 3\0" + b"?" * 5000,
    ],
)
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(NotAStore) as refused:
        SqliteStore(path)
    assert str(path) in str(refused.value)
    assert path.read_bytes() == content
    assert sorted(file.name for file in path.parent.iterdir()) == ["store.db"]


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_a_database_of_another_program_is_refused_and_left_as_it_is(path: Path, mode: str) -> None:
    raw(
        path,
        f"PRAGMA journal_mode = {mode}",
        "CREATE TABLE events (id INTEGER PRIMARY KEY)",
        "INSERT INTO events VALUES (1)",
    )
    before = path.read_bytes()
    with pytest.raises(NotAStore, match="another program"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match="folder"):
        SqliteStore(tmp_path)


def test_a_newer_store_is_refused_and_left_as_it_is(path: Path) -> None:
    filled(path, "text")
    raw(
        path,
        "INSERT INTO migrations VALUES (99, '0099_from_the_future.sql')",
        "PRAGMA wal_checkpoint(TRUNCATE)",
    )
    before = path.read_bytes()
    with pytest.raises(StoreTooNew) as refused:
        SqliteStore(path)
    assert (refused.value.details["found"], refused.value.details["known"]) == (99, migrate.known()[-1][0])
    assert path.read_bytes() == before


# -- migrating ----------------------------------------------------------------------------------------------------------


def test_the_migrations_are_numbered_without_gaps_and_recorded(path: Path) -> None:
    numbers = [number for number, _ in migrate.known()]
    assert numbers == list(range(1, len(numbers) + 1))
    filled(path, "text")
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT version, name FROM migrations").fetchall() == list(migrate.known())
        assert migrate.migrate(db, APPLICATION_ID, str(path)) == []


def test_a_migration_that_fails_leaves_nothing_and_keeps_those_before(tmp_path: Path) -> None:
    folder = tmp_path / "migrations"
    folder.mkdir()
    (folder / "0001_one.sql").write_text("CREATE TABLE one (x);\n-- a comment; with a semicolon\n")
    (folder / "0002_two.sql").write_text(
        "CREATE TABLE two (x);\nINSERT INTO two VALUES ('a;b');\nNONSENSE;\n"
    )
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as db:
        with pytest.raises(sqlite3.OperationalError):
            migrate.migrate(db, 1, "x.db", str(folder))
        assert migrate.current(db) == 1
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema")}
        assert tables == {"migrations", "one"}
    (folder / "0002_two.sql").write_text("CREATE TABLE two (x);\nINSERT INTO two VALUES ('a;b');\n")
    migrate.known.cache_clear()
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as db:
        assert migrate.migrate(db, 1, "x.db", str(folder)) == ["0002_two.sql"]
        assert db.execute("SELECT x FROM two").fetchall() == [("a;b",)]


def test_a_migration_must_end_where_a_statement_ends() -> None:
    assert list(migrate.statements("SELECT 1;\n\n-- the end\n")) == ["SELECT 1;\n"]
    with pytest.raises(ValueError, match="middle"):
        list(migrate.statements("SELECT 1;\nSELECT 2"))


@pytest.mark.requirement("L1")
def test_a_start_that_was_cut_off_at_any_statement_is_made_good_by_the_next(tmp_path: Path) -> None:
    count = len(list(migrate.statements((Path(migrate.FOLDER) / migrate.known()[0][1]).read_text())))
    for stop in range(0, count + 4, 3):
        path = tmp_path / f"{stop}.db"
        code = (
            "import os, sys\nfrom onward.store import migrate, sqlite\nreal = migrate.migrate\n"
            "def dying(db, *rest):\n"
            "    left = [int(sys.argv[2])]\n"
            "    def count(statement):\n"
            "        left[0] -= 1\n"
            "        if left[0] < 0: os._exit(9)\n"
            "    db.set_trace_callback(count)\n"
            "    return real(db, *rest)\n"
            "migrate.migrate = dying\nsqlite.SqliteStore(sys.argv[1])\nos._exit(0)\n"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code, str(path), str(stop)],
            env={**os.environ, "PYTHONPATH": str(SRC)},
            check=False,
        )
        assert ran.returncode in (0, 9)
        filled(path, "text")
        with opened(path) as world:
            assert world.store.check() == []


# -- no room, no right --------------------------------------------------------------------------------------------------


def fill_up(world: World, session: str) -> int:
    """Append until there is no room; return how many batches were promised."""
    for done in range(10_000):
        try:
            world.append(session, "x" * 3000, "y" * 3000)
        except StoreFull:
            return done
    raise AssertionError("it never filled up")


@pytest.mark.requirement("L1", "L2", "C2")
def test_a_file_that_may_not_grow_refuses_and_keeps_all_that_was_promised(path: Path) -> None:
    with opened(path) as world:
        session = world.session()
        assert isinstance(world.store, SqliteStore)
        assert world.store._writer is not None
        db = world.store._writer._db
        (pages,) = db.execute("PRAGMA page_count").fetchone()
        db.execute(f"PRAGMA max_page_count = {pages + 100}")
        promised = fill_up(world, session)
        assert promised > 0
        assert len(world.texts(session)) == promised * 2
        assert first_fault(world.store, session) is None
        db.execute("PRAGMA max_page_count = 1000000")
        world.append(session, "room again")
        assert first_fault(world.store, session) is None
        assert world.store.check() == []


@pytest.mark.requirement("L1", "L2", "C2")
def test_a_full_disk_refuses_and_keeps_all_that_was_promised(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    mounted = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        with opened(disk / "store.db") as world:
            session = world.session()
            promised = fill_up(world, session)
            assert promised > 0
            assert len(world.texts(session)) == promised * 2
            assert first_fault(world.store, session) is None
        subprocess.run([mount, "-o", "remount,size=8m", str(disk)], check=True)
        with opened(disk / "store.db") as world:
            assert len(world.texts(session)) == promised * 2
            world.append(session, "room again")
            assert first_fault(world.store, session) is None
            assert world.store.check() == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# Everything that is loaded late is loaded before the rights are given up: libraries need not be readable without them.
UNPRIVILEGED = """
import hashlib, json, os, sys
from onward.errors import OnwardError
from onward.store.contract import Append, Batch
from onward.store.sqlite import SqliteStore
from onward.testing.store_cases import ACCOUNT, World
os.setgid(65534)
os.setuid(65534)
try:
    world = World(SqliteStore(sys.argv[1]), space=9)
except OnwardError as error:
    print(error.code)
    os._exit(0)
print(len(world.texts(sys.argv[2])), len(world.store.search(["needle"], account_id=ACCOUNT).found), world.store.check())
try:
    world.append(sys.argv[2], "no")
    print("written")
except OnwardError as error:
    print(error.code)
sys.stdout.flush()
os._exit(0)
"""


def as_nobody(path: Path, session: str) -> list[str]:
    """Read and write a store as a user without rights; return what it said."""
    ran = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, str(path), session],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(SRC), *sys.path]))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


@pytest.fixture
def reachable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that a user without rights can reach."""
    if os.geteuid() != 0:
        pytest.skip("giving up rights needs root")
    folder = Path("/tmp") / f"onward-{os.getpid()}-{tmp_path_factory.mktemp('x').name}"
    folder.mkdir(mode=0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_store_that_cannot_be_written_is_read_and_says_so_when_written_to(reachable: Path) -> None:
    path = reachable / "store.db"
    session = filled(path, "a needle", "more")
    path.chmod(0o644)
    assert as_nobody(path, session) == ["2 1 []", "store_read_only"]


def test_a_file_that_cannot_be_written_in_a_folder_that_can_is_read_only_too(reachable: Path) -> None:
    path = reachable / "store.db"
    session = filled(path, "a needle", "more")
    path.chmod(0o644)
    reachable.chmod(0o777)
    assert as_nobody(path, session) == ["2 1 []", "store_read_only"]


def test_a_store_that_cannot_even_be_read_says_so(reachable: Path) -> None:
    path = reachable / "store.db"
    session = filled(path, "a needle")
    path.chmod(0o600)
    assert as_nobody(path, session) == ["store_error"]


def test_an_empty_file_that_cannot_be_written_is_no_store(reachable: Path) -> None:
    path = reachable / "store.db"
    path.touch(mode=0o644)
    assert as_nobody(path, "ses_x") == ["store_read_only"]


def test_a_folder_that_cannot_be_made_is_an_error_with_its_reason(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(StoreError, match=os.strerror(errno.ENOTDIR)):
        SqliteStore(path / "below" / "store.db")
    assert issubclass(StoreReadOnly, StoreError)


# -- damage -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("L2")
@pytest.mark.parametrize(
    "damage",
    [
        'UPDATE events SET body = CAST(\'{"text":"forged"}\' AS BLOB) WHERE seq = 2',
        "UPDATE events SET salt = zeroblob(16) WHERE seq = 2",
        "UPDATE events SET salt = NULL WHERE seq = 2",
        "UPDATE events SET at = at + 1 WHERE seq = 2",
        "UPDATE events SET id = zeroblob(16) WHERE seq = 2",
        "UPDATE events SET run = zeroblob(16) WHERE seq = 2",
        "UPDATE events SET place = 'x' WHERE seq = 2",
        "UPDATE events SET chain = zeroblob(32) WHERE seq = 2",
        "UPDATE events SET digest = zeroblob(32) WHERE seq = 2",
        "UPDATE stamps SET actor = 'agent'",
        "DELETE FROM events WHERE seq = 2",
        "DELETE FROM events WHERE seq = 3",
        "UPDATE events SET seq = CASE seq WHEN 1 THEN 101 ELSE 102 END WHERE seq IN (1, 2)",
        "UPDATE sessions SET head_chain = zeroblob(32)",
    ],
)
def test_whatever_is_changed_behind_the_stores_back_shows(path: Path, damage: str) -> None:
    session = filled(path, "one", "two", "three")
    with opened(path) as world:
        assert first_fault(world.store, session) is None
    raw(path, damage)
    with opened(path) as world:
        assert first_fault(world.store, session) is not None


def test_check_names_what_is_wrong_with_the_storage(path: Path) -> None:
    session = filled(path, "one", "two")
    with opened(path) as world:
        world.store.commit(Batch(blobs=((content_digest(b"right"), b"right"),)))
    raw(
        path,
        "UPDATE sessions SET head_seq = 7",
        "UPDATE blobs SET content = CAST('wrong' AS BLOB)",
        "UPDATE events SET stamp = 99 WHERE seq = 2",
        f"UPDATE search_mark SET pos = 50, words = {words.VERSION}",
    )
    with opened(path) as world:
        found = "\n".join(world.store.check())
    for part in (
        f"session {session} says it has 7 events",
        content_digest(b"right"),
        "points to a row of stamps",
        "50 events",
    ):
        assert part in found


@pytest.mark.requirement("L5")
def test_erased_bytes_leave_the_files(path: Path) -> None:
    secret = "xyzzySecret1234567890"
    with opened(path) as world:
        session = world.session()
        gone = world.append(session, "before", f"the key is {secret} " + "long " * 3000, "after")[1]
        world.store.search(["before"], account_id=ACCOUNT)
        assert world.store.commit(Batch()) is not None
        from onward.store.contract import Erase

        world.store.commit(Batch(erasures=(Erase(event_id=gone.id, tombstone=b"{}"),)))
        for file in path.parent.iterdir():
            assert secret.encode() not in file.read_bytes(), file.name
        world.store.reindex()
    for file in path.parent.iterdir():
        assert secret.lower().encode() not in file.read_bytes(), file.name


# -- the index ----------------------------------------------------------------------------------------------------------


def test_an_index_made_by_other_words_is_built_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path, "one word", "two")
    with opened(path) as world:
        assert len(world.store.search(["word"], account_id=ACCOUNT).found) == 1
    monkeypatch.setattr("onward.core.words.VERSION", 1_000)
    monkeypatch.setattr("onward.core.words.index_text", lambda text: f"{text} everywhere")
    with opened(path) as world:
        assert world.store.index_lag() == 2
        assert len(world.store.search(["everywhere"], account_id=ACCOUNT).found) == 2
        assert len(world.store.search(["word"], account_id=ACCOUNT).found) == 1


def test_a_search_that_cannot_catch_up_says_that_it_is_incomplete(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onward.store.rules.INDEX_LAG", 10**9)
    monkeypatch.setattr(sqlite_search, "STEP", 10)
    monkeypatch.setattr(sqlite_search.read_on, "__defaults__", (10,))
    with opened(path) as world:
        session = world.session()
        world.append(session, *(f"word {n}" for n in range(70)))
        first = world.store.search(["word"], account_id=ACCOUNT)
        assert (len(first.found), first.complete) == (50, False)
        second = world.store.search(["word"], account_id=ACCOUNT)
        assert (len(second.found), second.complete) == (70, True)


@pytest.mark.requirement("L1")
def test_an_index_that_cannot_be_written_does_not_hold_up_the_log(path: Path) -> None:
    filled(path, "one")
    raw(path, "DROP TABLE search")
    with opened(path) as world:
        session = world.session()
        world.append(session, *(f"word {n}" for n in range(450)))
        assert world.append(session, "more")[0].seq == 451
        assert world.store.index_lag() == 451
        assert any("full text" in finding for finding in world.store.check())
        assert isinstance(
            world.store.commit(Batch(appends=(Append(session_id=session, events=()),))).events, tuple
        )


def test_one_flipped_bit_in_a_kept_native_file_is_found_and_reading_it_says_so(path: Path) -> None:
    text = b"".join(b'{"line":%d}\n' % n for n in range(200))
    with opened(path) as world:
        world.store.commit(
            Batch(
                originals=(
                    Original(file_id="fil_x", offset=0, length=len(text), data=zlib.compress(text, 1)),
                )
            )
        )
        assert list(world.store.check()) == []
    (data,) = sqlite3.connect(path).execute("SELECT data FROM originals").fetchone()
    for at in (2, len(data) // 2, len(data) - 1):
        flipped = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        raw(path, f"UPDATE originals SET data = x'{flipped.hex()}'")
        with opened(path) as world:
            assert "native file fil_x" in "\n".join(world.store.check()), at
            with pytest.raises(StoreError, match="damaged"):
                world.store.original("fil_x", 0, len(text))
