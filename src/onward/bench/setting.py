"""The setting of a run: where it works, how large it measures, and what several goals share.

Everything lies in one temporary folder, which is gone afterwards. The folder is where temporary files go on this machine
(``TMPDIR``), so whoever wants to measure a certain disk points there.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onward.bench.payloads import Prose
from onward.library import Onward, open_log

if TYPE_CHECKING:
    from onward.bench.corpus import Corpus

Scale = Literal["full", "quick", "tiny"]
"""``quick`` shows the order of magnitude in under a minute; ``tiny`` only that everything runs, for tests."""


@dataclass(kw_only=True)
class Setting:
    """What a goal's measurement is given."""

    folder: Path
    scale: Scale = "full"

    def size(self, full: int, quick: int, tiny: int) -> int:
        """Return the number that applies to this run."""
        return {"full": full, "quick": quick, "tiny": tiny}[self.scale]

    @cached_property
    def prose(self) -> Prose:
        """Text to write."""
        return Prose()

    @cached_property
    def corpus(self) -> Corpus:
        """The large store, built when the first goal asks for it."""
        from onward.bench.corpus import build

        return build(self)

    def close(self) -> None:
        """Close what was shared."""
        if (corpus := self.__dict__.pop("corpus", None)) is not None:
            corpus.log.close()

    @contextmanager
    def place(self) -> Iterator[Path]:
        """Give a folder of its own for one repetition, and take it away afterwards."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def open_at(path: Path) -> Onward:
    """Open a store at a path as everybody does, durability included."""
    return open_log(f"sqlite:///{path}")
