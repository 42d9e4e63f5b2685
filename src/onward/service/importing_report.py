"""What an import did, file by file: the values that ``onward import --json`` prints.

``read = mapped + raw + broken`` holds for every file and for the totals. ``messages`` counts native records by what they
are, sidechain records, asides and compaction summaries included (docs/importing.md says how), and not events.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from onward.importers.contract import Counts

Status = Literal["imported", "unchanged", "empty", "failed"]


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """Native records by what became of them."""

    read: int = 0
    mapped: int = 0
    """Became events of a kind that this platform knows."""
    raw: int = 0
    """Kept whole, without a counterpart."""
    broken: int = 0
    """No JSON, or longer than is read; their bytes are kept."""


class Messages(msgspec.Struct, frozen=True, kw_only=True):
    """Native records by what they are."""

    user: int = 0
    assistant: int = 0
    tool_calls: int = 0
    tool_results: int = 0


class FileReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one native file."""

    path: str
    engine: str | None
    version: str | None
    status: Status
    reason: str | None
    """What a person should know: why it failed, which lines are broken, where a branch went."""
    sessions: tuple[str, ...] = ()
    """The main line first, then branches and subagents."""
    records: Records = Records()
    messages: Messages = Messages()


class Ignored(msgspec.Struct, frozen=True, kw_only=True):
    """A file inside a folder that plainly is no session."""

    path: str
    reason: str


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Everything together."""

    files: int
    imported: int
    unchanged: int
    empty: int
    failed: int
    sessions: int
    records: Records
    messages: Messages


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did. ``ok`` is False when any file is empty or failed."""

    files: tuple[FileReport, ...]
    ignored: tuple[Ignored, ...]
    totals: Totals

    @property
    def ok(self) -> bool:
        """Whether every file was imported, or had been before."""
        return not self.totals.empty and not self.totals.failed


def split(counts: Counts) -> tuple[Records, Messages]:
    """Return an account as the two values of a report."""
    return (
        Records(read=counts.read, mapped=counts.mapped, raw=counts.raw, broken=counts.broken),
        Messages(
            user=counts.user,
            assistant=counts.assistant,
            tool_calls=counts.tool_calls,
            tool_results=counts.tool_results,
        ),
    )


def report_of(files: list[FileReport], ignored: list[Ignored]) -> ImportReport:
    """Add everything up."""
    statuses = [file.status for file in files]
    records = {name: sum(getattr(f.records, name) for f in files) for name in Records.__struct_fields__}
    messages = {name: sum(getattr(f.messages, name) for f in files) for name in Messages.__struct_fields__}
    totals = Totals(
        files=len(files),
        imported=statuses.count("imported"),
        unchanged=statuses.count("unchanged"),
        empty=statuses.count("empty"),
        failed=statuses.count("failed"),
        sessions=len({session for file in files for session in file.sessions}),
        records=Records(**records),
        messages=Messages(**messages),
    )
    return ImportReport(files=tuple(files), ignored=tuple(ignored), totals=totals)
