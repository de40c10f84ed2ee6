"""Event times where a record that has none, or for which the assigner raises, is put aside."""

from __future__ import annotations

from ...core.batch import Batch
from ..halving import halved
from ..letters import open_letters
from .event_time_column import EventTimeColumnOperator
from .watermarks import WatermarkOperator


class LenientWatermarkOperator(WatermarkOperator):
    """What a watermark generator of the program raises is no matter of a record, and fails the
    job."""

    def open(self) -> None:
        super().open()
        letters = open_letters(self)
        assert letters is not None
        self._letters = letters

    def process(self, batch: Batch, port: int = 0) -> None:
        for stamped in halved(batch, self._tracker.stamp, self._letters, "extract_timestamp"):
            self._take(stamped)


class LenientEventTimeColumnOperator(EventTimeColumnOperator):
    """Of `with_event_time`."""

    def open(self) -> None:
        letters = open_letters(self)
        assert letters is not None
        self._letters = letters

    def process(self, batch: Batch, port: int = 0) -> None:
        for stamped in halved(batch, self._stamped, self._letters, "with_event_time"):
            self.out.emit(stamped)
