"""A load that a test lets rise and fall while a job runs, and an autoscaler that has only seconds
to follow it. Works in this process and on Ray: what is wanted stands in a file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from strom.api.connectors.base import Polled, ReaderContext
from strom.connectors.datagen import DataGenSource
from strom.connectors.datagen.reader import NumberReader, Pace, Runs
from strom.connectors.datagen.stripes import NumberSplit
from strom.core.autoscaler_config import AutoscalerConfig
from strom.core.batch import Batch

HASTY: Final = AutoscalerConfig(
    enabled=True,
    interval=timedelta(seconds=0.5),
    metrics_window=timedelta(seconds=3),
    stabilization=timedelta(seconds=1),
    scale_down_interval=timedelta(seconds=1),
    catch_up=timedelta(0),
    scale_down_factor=1.0,
    effectiveness=False,
)

LOOKS_MS: Final = 50
"""Between two looks of a reader into the file."""


class Tide:
    """So many records a second, until it is `free`: then the rest comes at once, without work."""

    def __init__(self, folder: Path, rate: float) -> None:
        self.path = str(folder / "tide")
        self.set(rate)

    def set(self, rate: float | None) -> None:
        """None: free."""
        with open(f"{self.path}.new", "w") as file:
            file.write("" if rate is None else str(rate))
        os.replace(f"{self.path}.new", self.path)

    def rate(self) -> float | None:
        with open(self.path) as file:
            said = file.read()
        return float(said) if said else None


class TidalSource(DataGenSource):
    """Numbers 0 to `count` - 1, at the rate of the tide."""

    def __init__(self, tide: Tide, count: int, splits: int) -> None:
        super().__init__(_numbers, count, splits=splits, block=10)
        self.tide = tide

    def create_reader(self, context: ReaderContext) -> NumberReader:
        return _TidalReader(context, self._batch, context.batch_size, self.tide)


def _numbers(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


class _TidalReader(NumberReader):
    def __init__(
        self, context: ReaderContext, generate: Callable[[Runs], Batch], chunk: int, tide: Tide
    ) -> None:
        super().__init__(context, generate, chunk, tide.rate())
        self._tide = tide
        self._look_ms = 0

    def poll(self) -> Polled:
        now = self._clock.now_ms()
        if now >= self._look_ms:
            self._look_ms = now + LOOKS_MS
            self._go_at(self._tide.rate(), now)
        return super().poll()

    def _go_at(self, rate: float | None, now_ms: int) -> None:
        if rate != self._rate:
            self._rate, self._paces = rate, {}
            if rate is not None:
                self._paces = {
                    split.split_id: Pace.resumed(rate / split.of, split.position, now_ms)
                    for split in self._splits
                }

    def _wake_at(self, split: NumberSplit) -> int:
        return min(super()._wake_at(split), self._look_ms)


class Work:
    """Takes so long for a record, as a call to some service does."""

    def __init__(self, tide: Tide, seconds: float) -> None:
        self.tide, self.seconds = tide, seconds
        self.until, self.rests = 0.0, True

    def __call__(self, value: Any) -> Any:
        now = time.monotonic()
        if now >= self.until:
            self.until, self.rests = now + LOOKS_MS / 1000, self.tide.rate() is not None
        if self.rests:
            time.sleep(self.seconds)
        return value
