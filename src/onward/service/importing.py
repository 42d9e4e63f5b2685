"""Importing: native session files of other tools, as sessions of the log. Repeatable, incremental, accounted for.

``import_paths`` finds files, drives one reader a file and writes what it says. A file that did not change is not opened; a
file that grew is read from where the last import stopped; one that was rewritten is read as a whole, and what is in the
log already stays as it is. A file that cannot be read is reported as failed, and the rest goes on.

**Transactions**: every batch of events is committed together with the bytes behind it and the cursor after it (see
``importing_writer``), so a process may die anywhere and the next import goes on exactly there.

It never writes to a native file, and never to an engine's own database.
"""

from __future__ import annotations

import codecs
import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from onward.core import ids as make
from onward.core.codec import loads
from onward.core.ids import Ids
from onward.core.records import ImportedFile
from onward.errors import StoreError
from onward.importers import codex
from onward.importers.claude_code import ClaudeReader
from onward.importers.codex import CodexReader
from onward.importers.codex_document import items_of
from onward.importers.contract import Counts, Line, NeedsWhole, Survey, pack, unpack
from onward.importers.discover import EMPTY, Candidate, Known, NotRead, find
from onward.importers.lines import LONGEST, lines_of
from onward.service.importing_links import Linker
from onward.service.importing_originals import files_of, original_file, original_record
from onward.service.importing_report import FileReport, Ignored, ImportReport, report_of, split
from onward.service.importing_writer import Account, FileWriter, fingerprint
from onward.store.contract import Batch, Store

__all__ = ["FileReport", "ImportReport", "files_of", "import_paths", "original_file", "original_record"]

Progress = Callable[[int, int, str], None]
"""``progress(bytes done, bytes in all, path)``, called at least once a file and once a batch."""

AnyReader = ClaudeReader | CodexReader

_BUFFER: Final = 1024 * 1024


def import_paths(
    store: Store,
    account_id: str,
    paths: Sequence[Path],
    engine: str | None = None,
    *,
    now: Callable[[], int],
    ids: Ids,
    progress: Progress | None = None,
) -> ImportReport:
    """Import native session files and everything in folders of them. Return what became of each file.

    ``engine`` reads named files as that engine's and skips other engines' files in folders. ``now`` is the time in
    microseconds; ``ids`` gives the salts. Raises InvalidInput for an unknown engine, and StoreError when the store cannot
    go on; what was committed before stays, and the next import resumes there.
    """
    named = {os.path.abspath(path) for path in paths if not path.is_dir()}
    wanted: list[Candidate | FileReport] = []
    ignored: list[Ignored] = []
    for found in find(paths, engine, known=_untouched_in(store, account_id)):
        if isinstance(found, Candidate):
            wanted.append(found)
        elif found.failed or found.path in named:
            wanted.append(_not_read(found))
        else:
            ignored.append(Ignored(path=found.path, reason=found.reason))
    total, done = sum(entry.size for entry in wanted if isinstance(entry, Candidate)), 0
    linker = Linker(store, account_id)
    files: list[FileReport] = []
    for entry in wanted:
        if isinstance(entry, FileReport):
            files.append(entry)
            continue

        def step(at: int, *, base: int = done, path: str = entry.path) -> None:
            if progress is not None:
                progress(base + at, total, path)

        files.append(_FileImport(store, account_id, entry, linker, now=now, ids=ids, step=step).run())
        done += entry.size
        step(0, base=done)
    notes = linker.link_all(now)
    return report_of([_noted(report, notes.get(report.path)) for report in files], ignored)


def _untouched_in(store: Store, account_id: str) -> Known:
    def known(path: str, status: os.stat_result) -> str | None:
        prior = store.imported_file(account_id, path)
        if prior is None or not _is_untouched(prior, status) or unpack(prior.account, Account).partial:
            return None
        return prior.engine

    return known


def _is_untouched(prior: ImportedFile, status: os.stat_result) -> bool:
    return prior.seen_size == status.st_size and prior.mtime_ns == status.st_mtime_ns


def _not_read(found: NotRead) -> FileReport:
    empty = not found.failed and found.reason == EMPTY
    counts = _counted(found.path) if found.lines else Counts()
    reason = found.reason
    if counts.broken:
        reason = f"{counts.broken:,} of {counts.read:,} lines are not JSON: {reason}"
    return FileReport(
        path=found.path,
        engine=found.engine,
        version=None,
        status="empty" if empty else "failed",
        reason=reason,
        records=split(counts)[0],
    )


def _counted(path: str) -> Counts:
    """Count the lines of a file that nobody can read. What is JSON all the same is no record of anything."""
    counts = Counts()
    with contextlib.suppress(OSError), open(path, "rb") as file:
        for _, _, data, _ in lines_of(file, offset=0, limit=os.fstat(file.fileno()).st_size):
            if data is not None and not data.strip():
                continue
            counts.read += 1
            try:
                loads(data or b"")
                counts.raw += 1
            except ValueError:
                counts.broken += 1
    return counts


def _noted(report: FileReport, note: str | None) -> FileReport:
    if note is None:
        return report
    reason = f"{report.reason}; {note}" if report.reason else note
    return msgspec.structs.replace(report, reason=reason)


class _FileImport:
    """The import of one file."""

    def __init__(
        self,
        store: Store,
        account_id: str,
        candidate: Candidate,
        linker: Linker,
        *,
        now: Callable[[], int],
        ids: Ids,
        step: Callable[[int], None],
    ) -> None:
        self.store = store
        self.account_id = account_id
        self.candidate = candidate
        self.path = candidate.path
        self.linker = linker
        self.now = now
        self.ids = ids
        self.step = step
        self.notes: list[str] = []
        self.resumed = False

    def run(self) -> FileReport:
        """Import the file. Whatever is wrong with it becomes a report; only the store's own failures are raised."""
        try:
            return self._run()
        except StoreError:
            raise
        except OSError as error:
            return self._failed(error.strerror or str(error))
        except Exception as error:  # noqa: BLE001 (one file must not end the import of all others)
            return self._failed(f"it could not be read: {type(error).__name__}: {error}")

    def _failed(self, reason: str) -> FileReport:
        return FileReport(
            path=self.path, engine=self.candidate.engine, version=None, status="failed", reason=reason
        )

    def _run(self) -> FileReport:
        status = os.stat(self.path)
        prior = self.store.imported_file(self.account_id, self.path)
        account = unpack(prior.account, Account) if prior else Account()
        if prior and not account.partial and _is_untouched(prior, status):
            return self._unchanged(prior, account)
        if self.candidate.untouched:  # it changed after it was found, so nobody has looked what it is now
            (found,) = find([Path(self.path)])
            if isinstance(found, NotRead):
                return _not_read(found)
            self.candidate = found
        with open(self.path, "rb", buffering=_BUFFER) as file:
            limit = os.fstat(file.fileno()).st_size
            if self.candidate.document:
                return self._read_document(file, limit, status.st_mtime_ns, prior)
            return self._read_lines(file, limit, status.st_mtime_ns, prior, account)

    def _unchanged(self, prior: ImportedFile, account: Account) -> FileReport:
        if account.unlinked:
            self.linker.retry(prior)
        counts = account.counts
        counts.read += account.torn
        counts.broken += account.torn
        records, messages = split(counts)
        return FileReport(
            path=self.path,
            engine=prior.engine,
            version=prior.version,
            status="empty" if account.empty else "unchanged",
            reason=account.reason,
            sessions=prior.sessions,
            records=records,
            messages=messages,
        )

    # One document

    def _read_document(
        self, file: BinaryIO, limit: int, mtime_ns: int, prior: ImportedFile | None
    ) -> FileReport:
        if limit > LONGEST:
            return self._failed(f"a document of {limit:,} bytes; at most {LONGEST:,} are read at once")
        parsed = items_of(file.read())
        if parsed is None:
            return self._failed("not a JSON document with a session and its items")
        session, lines = parsed
        reader = CodexReader(prior.state if prior else b"", native_id=self.candidate.native_id)
        if prior:
            reader.restart()
        reader.head(session)
        seen = reader.survey(lines, fallback_at=mtime_ns // 1000)
        if not seen.dialogue and not prior:
            return self._empty(reader, lines, limit, mtime_ns)
        writer = self._writer(reader, limit, mtime_ns, prior, rewritten=prior is not None)
        try:
            self._share_with_copies(writer, reader, lambda: lines, prior)
            return self._write(writer, reader, lines, torn_at=None, end=limit)
        finally:
            writer.close()

    # Lines

    def _read_lines(
        self, file: BinaryIO, limit: int, mtime_ns: int, prior: ImportedFile | None, account: Account
    ) -> FileReport:
        rewritten = prior is not None and (
            limit < prior.size or fingerprint(self.path, prior.size) != prior.fingerprint
        )
        if prior and rewritten:
            self.notes.append("the file was rewritten; it was read as a whole")
        reader = self._reader(prior)
        if rewritten:
            reader.restart()
            account = Account(key=account.key)
        cursor = prior.size if prior and not rewritten else 0
        whole = cursor == 0 or account.partial
        torn_at = _torn_at(file, limit)

        def lines(offset: int, number: int) -> Iterable[Line]:
            return lines_of(file, offset=offset, limit=limit if torn_at is None else torn_at, number=number)

        fallback = mtime_ns // 1000
        try:
            seen = reader.survey(
                lines(0, 1) if whole else lines(cursor, account.line), whole=whole, fallback_at=fallback
            )
        except NeedsWhole:
            reader = self._reader(prior)
            seen = reader.survey(lines(0, 1), whole=True, fallback_at=fallback)
        if prior is None or not prior.sessions:
            if not seen.known:
                return self._failed(_nothing_known(seen))
            if not seen.dialogue:
                return self._empty(reader, lines(0, 1), limit, mtime_ns, torn=torn_at is not None)
        writer = self._writer(reader, limit, mtime_ns, prior, rewritten=rewritten)
        writer.start_at(cursor, account)
        self.resumed = account.partial
        try:
            if cursor == 0:
                self._share_with_copies(writer, reader, lambda: lines(0, 1), prior)
            return self._write(writer, reader, lines(cursor, account.line), torn_at=torn_at)
        finally:
            writer.close()

    def _reader(self, prior: ImportedFile | None) -> AnyReader:
        state = prior.state if prior else b""
        if self.candidate.engine == codex.ENGINE:
            return CodexReader(state, native_id=self.candidate.native_id)
        return ClaudeReader(state, native_id=self.candidate.native_id, agent_file=self.candidate.agent_file)

    def _writer(
        self,
        reader: AnyReader,
        limit: int,
        mtime_ns: int,
        prior: ImportedFile | None,
        *,
        rewritten: bool,
    ) -> FileWriter:
        account = unpack(prior.account, Account) if prior and prior.sessions else None
        if prior is None:
            file_id = make.derived_id(make.FILE, 0, self.account_id, self.path)
        else:
            # The old bytes stay under their own id: events point at them.
            file_id = make.derived_id(make.FILE, 0, prior.id, "rewritten") if rewritten else prior.id
        writer = FileWriter(
            self.store,
            self.account_id,
            reader,
            self.path,
            file_id=file_id,
            limit=limit,
            mtime_ns=mtime_ns,
            now=self.now,
            ids=self.ids,
            key=account.key if account else reader.file_key,
        )
        if rewritten:
            writer.share()
            writer.reopen()
        return writer

    def _share_with_copies(
        self,
        writer: FileWriter,
        reader: AnyReader,
        lines: Callable[[], Iterable[Line]],
        prior: ImportedFile | None,
    ) -> None:
        """Recognise a session that another file brought in: a moved file, or a copy of it.

        A copy that says nothing else, or goes on where that one ended, is the same session. One that went another way
        becomes a session of its own, so that two tellings never mix in one log.
        """
        if prior is not None or (existing := self.store.session(writer.base)) is None:
            return
        writer.share()
        trial = self._reader(None)
        fallback = reader.strands[""].at
        trial.survey(lines(), fallback_at=fallback)
        last_known, unknown = 0, 0
        for line in lines():
            for draft in trial.read(line).drafts:
                if draft.strand:
                    continue
                known = self.store.event(writer.event_id(draft.at, draft.ident))
                if known is None:
                    unknown += 1
                elif known.session_id == existing.id:
                    last_known = max(last_known, known.seq)
        newest = self.store.events(existing.id, limit=200, newest_first=True)
        said = next((e.seq for e in newest if e.kind != "session" and e.source.place is not None), 0)
        if not unknown:
            self.notes.append("a copy of a session that is here already")
        elif last_known >= said:
            self.notes.append("goes on from a copy of it that was imported before")
        else:
            writer.part_ways(f"copy:{self.path}")
            self.notes.append(
                f"it differs from the copy imported as {existing.id} and became a session of its own"
            )

    def _write(
        self,
        writer: FileWriter,
        reader: AnyReader,
        lines: Iterable[Line],
        *,
        torn_at: int | None,
        end: int | None = None,
    ) -> FileReport:
        before = {s.session for s in reader.strands.values() if s.session}
        read_before = reader.counts.read
        for line in lines:
            outcome = reader.read(line)
            if outcome.verdict == "broken":
                writer.account.note_broken(line[0], outcome.why)
            if writer.add(line, outcome.drafts):
                self.step(writer.cursor)
        writer.close_calls(reader.finish())
        writer.account.counts = reader.counts
        if end is not None:
            writer.cursor = end
        account = writer.account
        account.torn = int(torn_at is not None)
        if before:
            branches = [
                s.session
                for s in reader.strands.values()
                if s.kind == "fork" and s.session and s.session not in before
            ]
            if branches:
                self.notes.append(f"new records went to a branch: {', '.join(branches)}")
        account.reason = self._reason(account)
        account.unlinked = self.linker.is_awaited(reader)
        # Links need both ends in the log. Until they are written too, this import is not done.
        account.partial = self.linker.has_loose_ends(reader)
        writer.flush(titles=True)
        writer.settle()
        if account.partial:
            account.partial = False
            writer.flush(links=self.linker.inside(writer))
            writer.settle()
        self.linker.take(self.candidate, reader, writer)
        counts = _with_torn(reader.counts, account.torn)
        records, messages = split(counts)
        unchanged = reader.counts.read == read_before and bool(before) and not self.resumed
        return FileReport(
            path=self.path,
            engine=reader.engine,
            version=reader.version,
            status="unchanged" if unchanged else "imported",
            reason=account.reason,
            sessions=writer.sessions(),
            records=records,
            messages=messages,
        )

    def _empty(
        self, reader: AnyReader, lines: Iterable[Line], limit: int, mtime_ns: int, *, torn: bool = False
    ) -> FileReport:
        """Account for a file in which nobody says anything. It makes no session, and is read anew when it grows."""
        account = Account(torn=int(torn), empty=True)
        for line in lines:
            outcome = reader.read(line)
            if outcome.verdict == "broken":
                account.note_broken(line[0], outcome.why)
        self.notes.append("no message, call or result in it")
        account.counts = reader.counts
        account.reason = self._reason(account)
        imported = ImportedFile(
            id=make.derived_id(make.FILE, 0, self.account_id, self.path),
            account_id=self.account_id,
            path=self.path,
            engine=reader.engine,
            version=reader.version,
            size=0,
            mtime_ns=mtime_ns,
            fingerprint=fingerprint(self.path, 0),
            account=pack(account),
            imported_at=self.now(),
            seen_size=limit,
        )
        self.store.commit(Batch(imports=(imported,)))
        records, messages = split(_with_torn(reader.counts, account.torn))
        return FileReport(
            path=self.path,
            engine=reader.engine,
            version=reader.version,
            status="empty",
            reason=account.reason,
            records=records,
            messages=messages,
        )

    def _reason(self, account: Account) -> str | None:
        notes = list(self.notes)
        shown = [f"line {number} ({why})" for number, why in account.broken]
        if account.torn:
            shown.append(f"line {account.line} (cut off, no line end)")
        if shown:
            more = account.counts.broken - len(account.broken)
            notes.insert(0, f"broken: {', '.join(shown)}{f' and {more:,} more' if more > 0 else ''}")
        return "; ".join(notes) or None


def _with_torn(counts: Counts, torn: int) -> Counts:
    return msgspec.structs.replace(counts, read=counts.read + torn, broken=counts.broken + torn)


def _nothing_known(seen: Survey) -> str:
    if seen.objects:
        return "no record of a type that this engine writes"
    return f"no line is a record of this engine; {seen.broken} of its lines are not JSON"


def _torn_at(file: BinaryIO, limit: int) -> int | None:
    """Return the offset of a last line that was cut off while it was written, or None.

    It has no line end and is no JSON. It is not consumed: the next import reads it again, whole by then or not.
    """
    start = limit
    tail = b""
    while start > 0 and len(tail) <= LONGEST:
        step = min(start, 1024 * 1024)
        start -= step
        file.seek(start)
        chunk = file.read(step)
        if not tail and chunk.endswith(b"\n"):
            return None
        tail = chunk + tail
        if (found := chunk.rfind(b"\n")) >= 0:
            start += found + 1
            tail = tail[found + 1 :]
            break
    if not tail.strip() or len(tail) > LONGEST:
        return None
    try:
        loads(tail if start else tail.removeprefix(codecs.BOM_UTF8))
    except ValueError:
        return start
    return None
