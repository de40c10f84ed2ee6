"""A source that cannot end before a test lets it, however slow the machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from chaos_kit import PAIRS, pairs
from strom.api.connectors.base import Emit, Polled, ReaderContext, SourceReader, Wait
from strom.connectors.datagen import DataGenSource

PAUSE_MS = 20


class Leashed(DataGenSource):
    """`pairs(0, count)` in two splits: `block` records per subtask and 20 ms, the last quarter of a
    split only once the file `release` is there. From then on all at once."""

    def __init__(self, release: Path, count: int, block: int = 20) -> None:
        super().__init__(pairs, count, splits=2, schema=PAIRS, block=block)
        self.release = str(release)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _LeashedReader(super().create_reader(context), self.release, context)


class _LeashedReader(SourceReader):
    def __init__(self, reader: SourceReader, release: str, context: ReaderContext) -> None:
        self.reader = reader
        self.release = release
        self.clock = context.clock
        self.next_ms = 0
        self.free = False

    def add_splits(self, splits: Any) -> None:
        self.reader.add_splits(splits)

    def snapshot(self) -> Any:
        return self.reader.snapshot()

    def poll(self) -> Polled:
        self.free = self.free or os.path.exists(self.release)
        now = self.clock.now_ms()
        if not self.free:
            if now < self.next_ms:
                return Wait(self.next_ms)
            if any(4 * split.position >= 3 * split.size for split in self.snapshot()):
                return Wait(now + PAUSE_MS)
        polled = self.reader.poll()
        if isinstance(polled, Emit):
            self.next_ms = now + PAUSE_MS
        return polled
