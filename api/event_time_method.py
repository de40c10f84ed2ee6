"""`with_event_time`: another time of the same records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import table_specs
from .validation import require_text

if TYPE_CHECKING:
    from .data_stream import DataStream


class EventTimeMethod:
    """Mixin of `DataStream`."""

    if TYPE_CHECKING:

        def _apply(self, spec: Any, name: str, **settings: Any) -> DataStream: ...

    def with_event_time(self, column: str) -> DataStream:
        """The records with their event times taken from this column (timestamp, date or integer ms
        since the epoch; no nulls). Watermarks stay as they are, unlike with
        `assign_timestamps_and_watermarks`: a record whose time they have passed is late to whatever
        follows."""
        require_text("with_event_time", "column", column)
        return self._apply(table_specs.EventTimeSpec(column), f"EventTime({column})")
