"""Which of the two clocks a timer belongs to."""

from __future__ import annotations

from enum import Enum


class TimeDomain(Enum):
    """Event time (driven by watermarks) or processing time (driven by the clock)."""

    EVENT_TIME = "event_time"
    PROCESSING_TIME = "processing_time"
