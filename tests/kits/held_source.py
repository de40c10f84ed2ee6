"""A source of numbers that does not come to its end before a test lets it: so what is to happen in
the middle of a job does, however busy the machine is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from strom.api.connectors.base import ReaderContext
from strom.connectors.datagen import DataGenSource
from strom.connectors.datagen.reader import NumberReader, Runs
from strom.connectors.datagen.stripes import NumberSplit
from strom.core.batch import Batch


class HeldSource(DataGenSource):
    """Numbers at this rate, of which each split keeps the last `held` back until `latch` is set;
    then all that are left at once. For jobs in this process."""

    def __init__(
        self,
        generate: Any,
        count: int,
        latch: threading.Event,
        held: int,
        rate: float,
        **settings: Any,
    ) -> None:
        super().__init__(generate, count, rate=rate, **settings)
        self._latch = latch
        self._held = held
        self._pace = rate

    def create_reader(self, context: ReaderContext) -> NumberReader:
        generate, chunk = self._batch, context.batch_size
        return _HeldReader(context, generate, chunk, self._pace, self._latch, self._held)


class _HeldReader(NumberReader):
    def __init__(
        self,
        context: ReaderContext,
        generate: Callable[[Runs], Batch],
        chunk: int,
        rate: float,
        latch: threading.Event,
        held: int,
    ) -> None:
        super().__init__(context, generate, chunk, rate)
        self._latch = latch
        self._held = held

    def _ready(self, split: NumberSplit) -> int | None:
        if self._latch.is_set():
            return self._wanted(split)
        paced = super()._ready(split)
        free = (split.remaining or 0) - self._held
        return None if paced is None or free <= 0 else min(paced, free)

    def _wake_at(self, split: NumberSplit) -> int:
        return max(super()._wake_at(split), self._clock.now_ms() + 5)
