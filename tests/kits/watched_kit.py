"""A source over a watched folder, its enumerator by a clock of its own, and one reader."""

from __future__ import annotations

import os
import pickle
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from strom.connectors.files import (
    FileSource,
)
from strom.connectors.files.source import FileReader
from strom.connectors.files.watching import WatchingEnumerator
from strom.core.clock import VirtualClock

SCHEMA = pa.schema([("n", pa.int64())])
SECOND = timedelta(seconds=1)


def write(folder: Path, name: str, *numbers: int, at: float | None = None) -> Path:
    """A CSV file that appears as a whole; `at`: its time of modification (s)."""
    hidden = folder / f".{name}.writing"
    hidden.write_text("".join(f"{n}\n" for n in ("n", *numbers)))
    if at is not None:
        os.utime(hidden, (at, at))
    return hidden.rename(folder / name)


class Watched:
    """A source over one folder, its enumerator by a clock of its own, and one reader."""

    def __init__(self, folder: Path, restored: bytes | None = None, **options: Any) -> None:
        self.folder = folder
        self.options = options
        options = {"monitor_interval": SECOND, "schema": SCHEMA, "format": "csv", **options}
        self.source = FileSource(folder, **options)
        assert not self.source.bounded
        self.clock = VirtualClock()
        state, splits = (None, []) if restored is None else pickle.loads(restored)
        made = self.source.create_enumerator(None, state)  # type: ignore[arg-type]
        assert isinstance(made, WatchingEnumerator)
        made._clock, made._due = self.clock, self.clock.monotonic()
        self.enumerator = made
        self.reader = FileReader(self.source._resolved(), 3)
        self.reader.add_splits(splits)

    def found(self) -> list[Any]:
        """The splits that one listing gives, an interval later."""
        self.clock.advance_ms(1000)
        return self.found_now()

    def found_now(self) -> list[Any]:
        """The splits that are there, or that the listing under way gives."""
        splits: list[Any] = []
        while True:
            new = self.enumerator.next_splits(0)
            splits += new
            looking = self.enumerator._looking
            if not new and looking is None:
                return splits
            assert looking is None or looking.done(60)

    def names(self) -> list[str]:
        return [Path(split.path).name for split in self.found()]

    def read(self, polls: int | None = None) -> list[int]:
        """What `polls` polls give; None: all that is there after a listing."""
        if polls is None:
            self.reader.add_splits(self.found())
        rows: list[int] = []
        while polls is None or polls > 0:
            polled = self.reader.poll()
            if not hasattr(polled, "batch"):
                return rows
            rows += [row[0] for row in polled.batch.rows()]
            polls = None if polls is None else polls - 1
        return rows

    def snapshot(self) -> bytes:
        return pickle.dumps((self.enumerator.snapshot(), list(self.reader.snapshot())))

    def restored(self) -> Watched:
        return Watched(self.folder, self.snapshot(), **self.options)
