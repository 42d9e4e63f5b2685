"""``import``: what became of every native file, while it happens and afterwards."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

from onward.errors import InvalidInput
from onward.importers.discover import default_paths
from onward.service.importing import import_paths
from onward.service.importing_report import FileReport, ImportReport, Records
from onward.surfaces.cli import screen, terminal
from onward.surfaces.cli.grammar import Call
from onward.surfaces.cli.opened import opened

_EVERY: Final = 0.1
"""Seconds between two drawings of the progress line."""
_BAR: Final = 20


def import_(call: Call) -> int:
    """Import native files."""
    paths = [Path(os.path.expanduser(path)) for path in call["path"]]
    if not paths:
        paths = default_paths(os.environ, Path.home())
        if not paths:
            raise InvalidInput(
                what="the import", why="no PATH was given and no engine keeps sessions in your home folder"
            )
    drawn = Progress() if call["progress"] or (sys.stderr.isatty() and not call.quiet) else None
    with opened(call, makes=True) as platform:
        try:
            report = import_paths(
                platform.store,
                platform.account_id,
                paths,
                call["from"],
                now=platform.clock,
                ids=platform.ids,
                progress=drawn,
            )
        finally:
            if drawn is not None:
                drawn.clear()
    if call.json:
        screen.document({"files": report.files, "totals": report.totals})
    else:
        _tell(report, quiet=call.quiet)
    if not report.ok:
        bad = report.totals.empty + report.totals.failed
        screen.complain(
            "import_failed",
            f"{bad} of {screen.counted(report.totals.files, 'file')} "
            f"{'was' if bad == 1 else 'were'} empty or failed, for the reason given with each; "
            "everything else is imported",
        )
    return 0 if report.ok else 1


def _tell(report: ImportReport, *, quiet: bool) -> None:
    several = len(report.files) > 1
    for file in report.files:
        # What did not change is news only to somebody who asked about that one file.
        if file.status in ("empty", "failed") or not (quiet or (several and file.status == "unchanged")):
            _tell_file(file)
    if quiet:
        return
    if report.ignored:
        passed = screen.counted(len(report.ignored), "file")
        screen.note(
            f"{passed} in these folders {'is' if len(report.ignored) == 1 else 'are'} no session, passed over."
        )
    totals = report.totals
    screen.flow(
        f"{screen.counted(totals.files, 'file')}: {totals.imported} imported, {totals.unchanged} unchanged, "
        f"{totals.empty} empty, {totals.failed} failed. {screen.counted(totals.sessions, 'session')}, "
        f"{_records(totals.records)}."
    )
    if totals.imported:
        screen.note("Next: onward list, onward search WORDS, onward read SES")


def _records(records: Records) -> str:
    """Return how many records there are and what they became."""
    return (
        f"{screen.counted(records.read, 'record')}: {records.mapped:,} mapped, {records.raw:,} raw, "
        f"{records.broken:,} broken"
    )


def _tell_file(file: FileReport) -> None:
    screen.say(f"{file.status} {file.path}")
    if file.sessions:
        screen.flow(" ".join(file.sessions), "  ")
    if file.records.read:
        screen.flow(_records(file.records), "  ")
    if file.reason:
        screen.flow(file.reason, "  ")


class Progress:
    """One line on standard error that is drawn over and over."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, done: int, total: int, path: str) -> None:
        """Take the bytes that were read, the bytes in all, and the file."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _EVERY
        share = min(done / total, 1.0) if total else 1.0
        filled = int(share * _BAR)
        bar = "#" * filled + "." * (_BAR - filled)
        name = screen.one_line(os.path.basename(path), max(terminal.width() - _BAR - 10, 8))
        sys.stderr.write(f"\r\x1b[K[{bar}] {share:4.0%} {name}")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away."""
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
