"""Watermark generators at run time: how far event time has come, judging by the records seen."""

from __future__ import annotations

import operator
from typing import Any, Protocol

from ...api.watermarks import (
    BoundedOutOfOrderness,
    CustomWatermarks,
    GeneratorConfig,
    NoWatermarks,
    WatermarkGenerator,
)
from ...core.batch import Batch
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...core.errors import TypeMismatchError


class BatchGenerator(Protocol):
    """One stream's generator. Watermarks may go back; whoever sends them keeps the greatest."""

    def on_batch(self, batch: Batch) -> int | None:
        """See a non-empty batch; the greatest punctuated watermark in it, or None."""
        ...

    def periodic(self) -> int:
        """The watermark at this moment, MIN_TIMESTAMP if there is none."""
        ...


class BoundedGenerator:
    """Greatest timestamp - delay - 1. Records without timestamps do not advance it: what needs
    their event time says so."""

    def __init__(self, delay_ms: int) -> None:
        self._margin = delay_ms + 1
        self._greatest = MIN_TIMESTAMP
        """The greatest timestamp seen; never decreases."""

    def on_batch(self, batch: Batch) -> int | None:
        if batch.timestamps is not None:
            self._greatest = max(self._greatest, int(batch.timestamps.max()))
        return None

    def periodic(self) -> int:
        return max(MIN_TIMESTAMP, self._greatest - self._margin)


class SilentGenerator:
    """No watermarks."""

    def on_batch(self, batch: Batch) -> int | None:
        return None

    def periodic(self) -> int:
        return MIN_TIMESTAMP


class RecordGenerator:
    """A user's generator, called record by record."""

    def __init__(self, generator: WatermarkGenerator) -> None:
        self._generator = generator

    def on_batch(self, batch: Batch) -> int | None:
        on_event = self._generator.on_event
        count = len(batch)
        stamps = [MIN_TIMESTAMP] * count if batch.timestamps is None else batch.timestamps.tolist()
        greatest: int | None = None
        for value, stamp in zip(batch.rows(), stamps, strict=True):
            watermark = on_event(value, stamp)
            if watermark is not None:
                watermark = self._checked("on_event", watermark)
                if greatest is None or watermark > greatest:
                    greatest = watermark
        return greatest

    def periodic(self) -> int:
        watermark = self._generator.on_periodic()
        return MIN_TIMESTAMP if watermark is None else self._checked("on_periodic", watermark)

    def _checked(self, method: str, watermark: Any) -> int:
        if not isinstance(watermark, bool) and hasattr(watermark, "__index__"):
            time = operator.index(watermark)
            if MIN_TIMESTAMP <= time <= MAX_TIMESTAMP:
                return time
        raise TypeMismatchError(
            f"{type(self._generator).__name__}.{method} returned {watermark!r}, which is no "
            "watermark: return None, or an int of ms since the epoch, from -2^63 to 2^63 - 1"
        )


def make_generator(config: GeneratorConfig) -> BatchGenerator:
    """The runtime of a strategy's generator."""
    match config:
        case BoundedOutOfOrderness(delay_ms):
            return BoundedGenerator(delay_ms)
        case NoWatermarks():
            return SilentGenerator()
        case CustomWatermarks(factory):
            return RecordGenerator(factory())
