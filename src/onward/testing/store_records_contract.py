"""What every store promises about the records beside the log: links, runs and their fences, and the rest (C3, C5, L6)."""

from __future__ import annotations

import itertools
import random
import threading
import zlib

import msgspec
import pytest

from onward.core import digests, ids
from onward.core.records import Draft, EngineSession, ImportedFile, Original, StoredManifest, Workspace
from onward.errors import (
    Conflict,
    CycleRefused,
    InvalidInput,
    InvalidTransition,
    LeaseLost,
    NotFound,
    RunNotFound,
    SessionNotFound,
)
from onward.store.contract import (
    Append,
    Batch,
    DropBlob,
    Erase,
    LinkPatch,
    RunChange,
    SessionPatch,
    SessionQuery,
)
from onward.testing.store_cases import ACCOUNT, OTHER_ACCOUNT, World


class RecordsContract:
    """The part of the suite about everything that is not an event."""

    # -- sessions -----------------------------------------------------------------------------------------------------

    def test_a_patch_changes_what_it_gives_and_keeps_the_rest(self, world: World) -> None:
        session = world.session(title="T", description="D", engine="codex")
        world.append(session, "one")
        before = world.store.session(session)
        patch = SessionPatch(session_id=session, title="New", archived=True)
        world.store.commit(Batch(session_patches=(patch,)))
        assert before is not None
        assert world.store.session(session) == msgspec.structs.replace(before, title="New", archived=True)
        missing = SessionPatch(session_id=world.ids.new(ids.SESSION), title="x")
        with pytest.raises(SessionNotFound):
            world.store.commit(Batch(session_patches=(missing,)))

    def test_sessions_are_listed_by_newest_activity_page_by_page(self, world: World) -> None:
        made = [world.session(title=f"number {n}") for n in range(7)]
        world.append(made[2], "active again")
        world.session(account=OTHER_ACCOUNT)
        wanted = [made[2], *(made[n] for n in (6, 5, 4, 3, 1, 0))]
        found: list[str] = []
        cursor, pages = None, 0
        while True:
            page, cursor = world.store.sessions(SessionQuery(account_id=ACCOUNT, limit=3, cursor=cursor))
            found += [session.id for session in page]
            pages += 1
            if cursor is None:
                break
        assert found == wanted
        assert pages == 3

    def test_sessions_of_the_same_time_are_neither_skipped_nor_repeated(self, world: World) -> None:
        sessions = tuple(msgspec.structs.replace(world.new_session(), created_at=5) for _ in range(5))
        world.store.commit(Batch(sessions=sessions))
        found, cursor = world.store.sessions(SessionQuery(account_id=ACCOUNT, limit=2))
        while cursor is not None:
            page, cursor = world.store.sessions(SessionQuery(account_id=ACCOUNT, limit=2, cursor=cursor))
            found += page
        assert [session.id for session in found] == sorted((session.id for session in sessions), reverse=True)

    def test_a_listing_can_be_narrowed(self, world: World) -> None:
        plain = world.session(title="Grüße aus ÖSTERREICH")
        archived = world.session(title="old", archived=True)
        child = world.session(title="child")
        placed = world.session(title="100% placed", workspace_id="wsp_1")
        world.link(plain, child, "child")

        def listed(**fields: object) -> set[str]:
            query = SessionQuery(account_id=ACCOUNT, **fields)  # type: ignore[arg-type]
            return {session.id for session in world.store.sessions(query)[0]}

        assert listed() == {plain, child, placed}
        assert listed(include_archived=True) == {plain, archived, child, placed}
        assert listed(include_children=False) == {plain, placed}
        assert listed(workspace_id="wsp_1") == {placed}
        assert listed(text="österreich") == {plain}
        assert listed(text="100%") == {placed}
        assert listed(text="_") == {plain, child, placed}  # every id has one
        assert listed(text=plain.lower()) == {plain}

    def test_a_cursor_that_no_listing_gave_out_is_refused(self, world: World) -> None:
        for wrong in ("", "x", "12", "twelve.ses_1"):
            with pytest.raises(InvalidInput):
                world.store.sessions(SessionQuery(account_id=ACCOUNT, cursor=wrong))

    def test_text_that_is_no_unicode_comes_back_as_it_was(self, world: World) -> None:
        odd = "caf\udce9 \ud800 \0 ☃"
        session = world.session(title=odd, description=odd)
        found = world.store.session(session)
        assert found is not None
        assert (found.title, found.description) == (odd, odd)
        assert [
            s.id for s in world.store.sessions(SessionQuery(account_id=ACCOUNT, text="CAF\udce9"))[0]
        ] == [session]
        workspace = Workspace(id=world.ids.new(ids.WORKSPACE), account_id=ACCOUNT, path=odd, created_at=1)
        world.store.commit(Batch(workspaces=(workspace,)))
        assert world.store.workspace(ACCOUNT, odd) == workspace

    # -- links --------------------------------------------------------------------------------------------------------

    @pytest.mark.requirement("C5")
    def test_a_session_has_at_most_one_link_into_it(self, world: World) -> None:
        old, older, new = (world.session() for _ in range(3))
        link = world.link(old, new)
        for source in (old, older):
            with pytest.raises(Conflict):
                world.link(source, new, "fork")
        assert world.store.links(new) == [link]

    @pytest.mark.requirement("C3")
    def test_a_key_makes_one_link_from_one_session(self, world: World) -> None:
        old, older, new, newer = (world.session() for _ in range(4))
        link = world.link(old, new, key="k")
        with pytest.raises(Conflict):
            world.link(old, newer, key="k")
        assert world.store.link_by_key(old, "k") == link
        assert world.store.link_by_key(older, "k") is None
        assert world.store.link_by_key(old, "another") is None
        elsewhere = world.link(older, newer, key="k")
        assert world.store.link_by_key(older, "k") == elsewhere

    @pytest.mark.requirement("C3")
    def test_threads_that_use_one_key_make_one_link(self, world: World) -> None:
        old, writers = world.session(), 6
        barrier = threading.Barrier(writers)
        outcome: list[str] = []

        def write(space: int) -> None:
            own = World(world.store, space=space + 1)
            new = own.new_session()
            barrier.wait(30)
            try:
                own.store.commit(Batch(sessions=(new,), links=(own.new_link(old, new.id, key="k"),)))
                outcome.append(new.id)
            except Conflict:
                outcome.append("")

        threads = [threading.Thread(target=write, args=(space,)) for space in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        winners = [session for session in outcome if session]
        assert len(outcome) == writers
        assert [link.to_session for link in world.store.links(old)] == winners
        assert len(winners) == 1

    @pytest.mark.requirement("C5")
    @pytest.mark.parametrize("length", [1, 2, 5])
    def test_a_circle_cannot_be_written(self, world: World, length: int) -> None:
        chain = [world.session() for _ in range(length)]
        for above, below in itertools.pairwise(chain):
            world.link(above, below)
        before = world.store.lineage(chain[0])
        for type_ in ("continuation", "child"):
            with pytest.raises(CycleRefused):
                world.link(chain[-1], chain[0], type_)
        assert world.store.lineage(chain[0]) == before

    @pytest.mark.requirement("C5")
    def test_a_circle_inside_one_batch_cannot_be_written_either(self, world: World) -> None:
        one, two = world.session(), world.session()
        with pytest.raises(CycleRefused):
            world.store.commit(Batch(links=(world.new_link(one, two), world.new_link(two, one))))
        assert world.store.links(one) == []

    def test_a_link_needs_both_its_sessions(self, world: World) -> None:
        here, missing = world.session(), world.ids.new(ids.SESSION)
        for ends in ((here, missing), (missing, here)):
            with pytest.raises(SessionNotFound):
                world.link(*ends)

    def test_links_of_a_session_are_listed_oldest_first(self, world: World) -> None:
        sessions = [world.session() for _ in range(4)]
        links = [
            world.link(sessions[0], sessions[1]),
            world.link(sessions[1], sessions[2], "fork"),
            world.link(sessions[1], sessions[3], "child", reason="because", seq=3, event_id="evt_x"),
        ]
        assert world.store.links(sessions[1]) == links
        assert world.store.links(sessions[3]) == links[2:]
        assert [world.store.link(link.id) for link in links] == links
        assert world.store.link(world.ids.new(ids.LINK)) is None

    def test_lineage_is_the_whole_tree_from_its_root_level_by_level(self, world: World) -> None:
        root, left, right, leaf, apart = (world.session() for _ in range(5))
        deep = world.link(left, leaf, "fork")
        first = world.link(root, left)
        second = world.link(root, right, "child")
        assert world.store.lineage(apart) == []
        for session in (root, left, right, leaf):
            assert world.store.lineage(session) == [first, second, deep]
        assert world.store.lineage(leaf, limit=2) == [first, second]

    @pytest.mark.requirement("C6")
    def test_a_child_can_be_made_to_report_to_another_session(self, world: World) -> None:
        parent, child, successor = (world.session() for _ in range(3))
        link = world.link(parent, child, "child")
        world.store.commit(Batch(link_patches=(LinkPatch(link_id=link.id, report_to=successor),)))
        assert world.store.link(link.id) == msgspec.structs.replace(link, report_to=successor)
        missing = LinkPatch(link_id=world.ids.new(ids.LINK), report_to=successor)
        with pytest.raises(NotFound):
            world.store.commit(Batch(link_patches=(missing,)))

    @pytest.mark.requirement("C6")
    def test_a_child_is_marked_as_reported_and_keeps_whom_it_reports_to(self, world: World) -> None:
        parent, child = world.session(), world.session()
        link = world.link(parent, child, "child", report_to=parent)
        world.store.commit(
            Batch(link_patches=(LinkPatch(link_id=link.id, reported_at=7, outcome="completed"),))
        )
        reported = msgspec.structs.replace(link, reported_at=7, outcome="completed")
        assert world.store.link(link.id) == reported
        assert world.store.links(child) == [reported]
        again = LinkPatch(link_id=link.id, reported_at=9, outcome="failed")
        world.store.commit(Batch(link_patches=(LinkPatch(link_id=link.id), again)))
        assert world.store.link(link.id) == reported

    # -- blobs --------------------------------------------------------------------------------------------------------

    @pytest.mark.requirement("L5")
    def test_a_blob_is_dropped_when_nothing_names_it_any_more(self, world: World) -> None:
        session = world.session()
        digest = digests.content_digest(b"content")
        world.store.commit(Batch(blobs=((digest, b"content"),)))
        (naming,) = world.append(session, world.event(digest))
        drop = DropBlob(digest=digest)
        world.store.commit(Batch(drop_blobs=(drop,)))
        assert world.store.blob(digest) == b"content"
        erase = Erase(event_id=naming.id, tombstone=b"{}")
        world.store.commit(Batch(erasures=(erase,), drop_blobs=(drop,)))
        assert world.store.blob(digest) is None
        world.store.commit(Batch(drop_blobs=(drop,)))

    @pytest.mark.requirement("L5")
    def test_a_blob_that_waiting_input_names_stays(self, world: World) -> None:
        session = world.session()
        digest = digests.content_digest(b"content")
        world.store.commit(Batch(blobs=((digest, b"content"),)))
        world.run(session, context=digest.encode())
        world.store.commit(Batch(drop_blobs=(DropBlob(digest=digest),)))
        assert world.store.blob(digest) == b"content"

    @pytest.mark.requirement("L5")
    def test_a_blob_that_a_manifest_names_stays_unless_that_manifest_is_excepted(self, world: World) -> None:
        predecessor, successor = world.session(), world.session()
        link = world.link(predecessor, successor)
        digest = digests.content_digest(b"content")
        manifest = StoredManifest(
            id=world.ids.new(ids.MANIFEST),
            link_id=link.id,
            from_session=predecessor,
            to_session=successor,
            body=digest.encode(),
            digest=digests.content_digest(digest.encode()),
            created_at=1,
        )
        world.store.commit(Batch(blobs=((digest, b"content"),), manifests=(manifest,)))
        world.store.commit(Batch(drop_blobs=(DropBlob(digest=digest),)))
        assert world.store.blob(digest) == b"content"
        world.store.commit(Batch(drop_blobs=(DropBlob(digest=digest, but=manifest.id),)))
        assert world.store.blob(digest) is None

    # -- runs ---------------------------------------------------------------------------------------------------------

    @pytest.mark.requirement("L6")
    def test_every_start_of_a_run_gets_the_next_fencing_number_of_its_session(self, world: World) -> None:
        session, other = world.session(), world.session()
        fences = []
        for _ in range(3):
            run = world.running(session)
            fences.append(run.fence)
            world.change(run.id, state="completed", fence=run.fence)
        assert fences == [1, 2, 3]
        assert world.running(other).fence == 1
        found = world.store.session(session)
        assert found is not None
        assert found.fence == 3

    @pytest.mark.requirement("L6")
    def test_one_run_of_a_session_runs_at_a_time(self, world: World) -> None:
        session = world.session()
        running, waiting = world.running(session), world.run(session)
        with pytest.raises(Conflict):
            world.change(waiting.id, state="running")
        assert world.store.run(waiting.id) == waiting
        world.change(running.id, state="failed")
        assert world.change(waiting.id, state="running").fence == 2

    @pytest.mark.requirement("L6")
    def test_only_the_holder_of_a_run_appends(self, world: World) -> None:
        session = world.session()
        run = world.running(session)
        world.append(session, "held", run_id=run.id, fence=run.fence)
        for fence in (run.fence - 1, run.fence + 1):
            with pytest.raises(LeaseLost):
                world.append(session, "stale", run_id=run.id, fence=fence)
        world.change(run.id, state="interrupted")
        with pytest.raises(LeaseLost):
            world.append(session, "too late", run_id=run.id, fence=run.fence)
        with pytest.raises(LeaseLost):
            world.append(session, "never was", run_id=world.ids.new(ids.RUN), fence=1)
        assert len(world.texts(session)) == 1

    @pytest.mark.requirement("L6")
    def test_last_words_and_the_final_state_go_into_one_batch(self, world: World) -> None:
        session = world.session()
        run = world.running(session)
        hold = Append(session_id=session, events=(world.event("bye"),), run_id=run.id, fence=run.fence)
        change = RunChange(run_id=run.id, state="completed", fence=run.fence, ended_at=9)
        done = world.store.commit(Batch(appends=(hold,), run_changes=(change,)))
        assert (done.runs[0].state, done.events[0].seq) == ("completed", 1)

    @pytest.mark.requirement("L6")
    def test_a_change_under_another_fencing_number_is_refused(self, world: World) -> None:
        session = world.session()
        run = world.running(session, lease_until=10)
        with pytest.raises(LeaseLost):
            world.change(run.id, state="completed", fence=run.fence + 1)
        assert world.change(run.id, fence=run.fence, lease_until=20).lease_until == 20
        world.change(run.id, state="interrupted")
        with pytest.raises(LeaseLost):
            world.change(run.id, fence=run.fence, lease_until=30)

    def test_a_run_changes_only_as_runs_may(self, world: World) -> None:
        session = world.session()
        run = world.run(session)
        for wrong in ("completed", "continued", "interrupted", "queued"):
            with pytest.raises(InvalidTransition):
                world.change(run.id, state=wrong)
        world.change(run.id, state="running")
        ended = world.change(
            run.id, state="completed", ended_at=5, reason="done", usage=b"{}", input_event="evt_x"
        )
        assert (ended.ended_at, ended.reason, ended.usage, ended.input_event) == (5, "done", b"{}", "evt_x")
        for wrong in ("running", "failed", "queued"):
            with pytest.raises(InvalidTransition):
                world.change(run.id, state=wrong)
        assert world.store.run(run.id) == ended
        with pytest.raises(RunNotFound):
            world.change(world.ids.new(ids.RUN), state="running")

    def test_fields_of_a_run_keep_their_value_until_they_are_given(self, world: World) -> None:
        run = world.run(world.session(), input=b"{}", context=b"[]", options=b'{"a":1}')
        started = world.change(run.id, state="running", owner="me", lease_until=5, started_at=4)
        assert started == msgspec.structs.replace(
            run, state="running", owner="me", lease_until=5, started_at=4, fence=1
        )
        assert world.change(run.id, clear_input=True) == msgspec.structs.replace(
            started, input=None, context=None
        )

    @pytest.mark.requirement("C6")
    def test_a_queued_run_may_move_to_a_successor_and_a_running_one_may_not(self, world: World) -> None:
        old, new = world.session(), world.session()
        queued, running = world.run(old), world.running(old)
        assert world.change(queued.id, session_id=new).session_id == new
        with pytest.raises(InvalidTransition):
            world.change(running.id, session_id=new)
        with pytest.raises(SessionNotFound):
            world.change(queued.id, session_id=world.ids.new(ids.SESSION))
        assert [run.id for run in world.store.runs(new)] == [queued.id]
        assert [run.id for run in world.store.runs(old)] == [running.id]

    def test_runs_are_listed_newest_first_and_by_state_oldest_first(self, world: World) -> None:
        sessions = [world.session() for _ in range(3)]
        waiting = [world.run(sessions[0]) for _ in range(3)]
        leased = [
            world.running(session, lease_until=until)
            for session, until in zip(sessions, (30, 10, 20), strict=True)
        ]
        store = world.store
        assert store.runs(sessions[0], limit=2) == [leased[0], waiting[2]]
        assert store.runs_in("queued", limit=2) == waiting[:2]
        assert store.runs_in("running") == leased
        assert store.runs_in("running", lease_before=21) == leased[1:]
        assert store.runs_in("running", lease_before=10) == []
        assert store.unfinished(sessions[0]) == [*waiting, leased[0]]
        world.change(leased[0].id, state="completed")
        assert store.unfinished(sessions[0]) == waiting
        assert [run.id for run in store.runs_in("completed")] == [leased[0].id]
        assert store.runs_in("failed") == []

    def test_a_run_needs_its_session_and_its_own_id(self, world: World) -> None:
        run = world.run(world.session())
        with pytest.raises(Conflict):
            world.store.commit(Batch(runs=(run,)))
        with pytest.raises(SessionNotFound):
            world.run(world.ids.new(ids.SESSION))

    # -- what is being streamed ---------------------------------------------------------------------------------------

    def test_a_draft_is_replaced_until_its_run_has_ended(self, world: World) -> None:
        session = world.session()
        run = world.running(session)
        drafts = [Draft(run_id=run.id, session_id=session, text="…" * n, updated_at=n) for n in (1, 2, 3)]
        for draft in drafts[:2]:
            world.store.commit(Batch(drafts=(draft,)))
            assert world.store.draft(run.id) == draft
        world.change(run.id, state="interrupted")
        with pytest.raises(LeaseLost):
            world.store.commit(Batch(drafts=(drafts[2],)))
        assert world.store.draft(run.id) == drafts[1]
        world.store.commit(Batch(drop_drafts=(run.id,)))
        assert world.store.draft(run.id) is None

    # -- the rest -----------------------------------------------------------------------------------------------------

    def test_a_manifest_is_kept_and_never_replaced(self, world: World) -> None:
        manifest = StoredManifest(
            id=world.ids.new(ids.MANIFEST),
            link_id="lnk",
            from_session="a",
            to_session="b",
            body=b'{"x":1}',
            digest=digests.content_digest(b'{"x":1}'),
            created_at=1,
        )
        world.store.commit(Batch(manifests=(manifest,)))
        with pytest.raises(Conflict):
            world.store.commit(Batch(manifests=(msgspec.structs.replace(manifest, body=b"{}"),)))
        assert world.store.manifest(manifest.id) == manifest
        assert world.store.manifest(world.ids.new(ids.MANIFEST)) is None

    def test_a_blob_that_exists_is_left_as_it_is(self, world: World) -> None:
        content = bytes(range(256)) * 50
        digest = digests.content_digest(content)
        world.store.commit(Batch(blobs=((digest, content),)))
        world.store.commit(Batch(blobs=((digest, b"something else"), (digest, content))))
        assert world.store.blob(digest) == content
        assert world.store.blob(digests.content_digest(b"")) is None

    def test_a_workspace_is_one_path_of_one_account(self, world: World) -> None:
        made = Workspace(id=world.ids.new(ids.WORKSPACE), account_id=ACCOUNT, path="/p", created_at=1)
        world.store.commit(Batch(workspaces=(made,)))
        world.store.commit(Batch(workspaces=(made,)))
        rival = msgspec.structs.replace(made, id=world.ids.new(ids.WORKSPACE))
        with pytest.raises(Conflict):
            world.store.commit(Batch(workspaces=(rival,)))
        theirs = msgspec.structs.replace(rival, account_id=OTHER_ACCOUNT)
        world.store.commit(Batch(workspaces=(theirs,)))
        assert world.store.workspace(ACCOUNT, "/p") == made
        assert world.store.workspace(OTHER_ACCOUNT, "/p") == theirs
        assert world.store.workspace(ACCOUNT, "/other") is None
        assert world.store.workspace_by_id(made.id) == made

    def test_what_an_engine_calls_a_session_is_replaced_engine_by_engine(self, world: World) -> None:
        session = world.session()
        known = [
            EngineSession(
                session_id=session, engine=engine, native_id=native, model="m", machine_id=None, updated_at=1
            )
            for engine, native in (("codex", "x"), ("claude-code", "y"), ("codex", "z"))
        ]
        for one in known:
            world.store.commit(Batch(engine_sessions=(one,)))
        assert world.store.engine_sessions(session) == [known[1], known[2]]

    def test_an_imported_file_says_how_far_it_was_read(self, world: World) -> None:
        file = ImportedFile(
            id="fil_1",
            account_id=ACCOUNT,
            path="/a/caf\udce9.jsonl",
            engine="codex",
            version=None,
            size=10,
            mtime_ns=1 << 60,
            fingerprint="sha256:0",
            account=b"{}",
            state=b"\x00\xff",
            sessions=("ses_1", "ses_2"),
            imported_at=3,
            seen_size=12,
        )
        world.store.commit(Batch(imports=(file,)))
        further = msgspec.structs.replace(file, size=20, sessions=())
        assert world.store.imported_file(ACCOUNT, file.path) == file
        world.store.commit(Batch(imports=(further,)))
        assert world.store.imported_file(ACCOUNT, file.path) == further
        assert world.store.imported_file(OTHER_ACCOUNT, file.path) is None

    def test_originals_give_back_any_stretch_that_was_kept(self, world: World) -> None:
        whole = random.Random(7).randbytes(1000)
        cuts = [(0, 300), (300, 1), (301, 499), (900, 100)]  # 800 to 900 was never kept
        pieces = tuple(
            Original(file_id="fil_1", offset=at, length=size, data=zlib.compress(whole[at : at + size]))
            for at, size in cuts
        )
        world.store.commit(Batch(originals=pieces))
        assert world.store.originals("fil_1") == cuts
        for at, size in [(0, 1000), (0, 801), (850, 10), (899, 2), (999, 2), (2000, 1)]:
            assert world.store.original("fil_1", at, size) is None
        for at, size in [(0, 800), (0, 1), (299, 3), (300, 1), (799, 1), (900, 100), (999, 1)]:
            assert world.store.original("fil_1", at, size) == whole[at : at + size]
        assert world.store.original("fil_2", 0, 1) is None

    @pytest.mark.requirement("L5")
    def test_an_original_is_replaced_at_its_offset_or_taken_away(self, world: World) -> None:
        def piece(offset: int, text: bytes) -> Original:
            return Original(file_id="fil_1", offset=offset, length=len(text), data=zlib.compress(text))

        world.store.commit(Batch(originals=(piece(0, b"keep SECRET keep"), piece(16, b"more"))))
        world.store.commit(Batch(originals=(piece(0, b"keep "), piece(11, b" keep"))))
        assert world.store.original("fil_1", 0, 16) is None
        assert world.store.original("fil_1", 11, 9) == b" keepmore"
        world.store.commit(Batch(originals=(piece(16, b""),)))
        assert world.store.originals("fil_1") == [(0, 5), (11, 5)]
