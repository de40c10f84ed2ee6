"""`with_event_time`: timestamps from a column; watermarks and idleness pass through."""

from __future__ import annotations

from ...api.specs.tables import EventTimeSpec
from ...core.batch import Batch
from ..base import Operator
from .event_time import extract_timestamps


class EventTimeColumnOperator(Operator):
    """Stateless. TypeMismatchError if the column is missing, null somewhere or no time."""

    def __init__(self, spec: EventTimeSpec) -> None:
        self._column = spec.column

    def process(self, batch: Batch, port: int = 0) -> None:
        self.out.emit(self._stamped(batch))

    def _stamped(self, batch: Batch) -> Batch:
        return batch.with_timestamps(extract_timestamps(batch, self._column))
