"""Sources that cannot end before a test lets them, however slow the machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from chaos_kit import PAIRS, pairs
from strom.api.connectors.base import Emit, Polled, ReaderContext, SourceReader, Wait
from strom.connectors.datagen import DataGenSource

PAUSE_MS = 20


class LeashedNumbers(DataGenSource):
    """A `DataGenSource` that gives the last quarter of a split only once the file `release` is
    there. Until then it rests for `pause_ms` behind each batch."""

    def __init__(self, release: Path, pause_ms: int, *numbers: Any, **more: Any) -> None:
        super().__init__(*numbers, **more)
        self.release = str(release)
        self.pause_ms = pause_ms

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _LeashedReader(super().create_reader(context), self, context)


class Leashed(LeashedNumbers):
    """`pairs(0, count)` in two splits: `block` records per subtask and 20 ms, the last quarter of a
    split only once the file `release` is there. From then on all at once."""

    def __init__(self, release: Path, count: int, block: int = 20) -> None:
        super().__init__(release, PAUSE_MS, pairs, count, splits=2, schema=PAIRS, block=block)


class _LeashedReader(SourceReader):
    def __init__(
        self, reader: SourceReader, source: LeashedNumbers, context: ReaderContext
    ) -> None:
        self.reader = reader
        self.release = source.release
        self.pause_ms = source.pause_ms
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
            self.next_ms = now + self.pause_ms
        return polled
