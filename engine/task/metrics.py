"""Counters and gauges of one operator's subtask: plain integers, read when a report is due."""

from __future__ import annotations

import os
import resource
import time
from typing import Any

from ...core.elements import MIN_TIMESTAMP
from ...operators.user_metrics import Rate, plain

RATE_SPAN_S = 60.0
"""Records per second are over the last minute, as in Flink."""


class OperatorMetrics:
    """Figures of one operator in one subtask, cumulative since the attempt began.

    Invariant: `records_in` and `records_out` never decrease; `watermark` is the last one forwarded,
    `input_watermark` the last one that came.
    """

    def __init__(self, name: str, now_s: float = 0.0) -> None:
        """`now_s`: the attempt begins, by the clock that `snapshot` is told the time of."""
        self.name = name
        self.records_in = 0
        self.records_out = 0
        self.watermark = MIN_TIMESTAMP
        self.input_watermark = MIN_TIMESTAMP
        self._in_rate = Rate(RATE_SPAN_S, now_s)
        self._out_rate = Rate(RATE_SPAN_S, now_s)
        self._counters: dict[str, int] = {}
        self._gauges: dict[str, float] = {}

    def count(self, name: str, n: int = 1) -> None:
        self._counters[name] = self._counters.get(name, 0) + n

    def gauge(self, name: str, value: float) -> None:
        self._gauges[name] = value

    def get_count(self, name: str) -> int:
        return self._counters.get(name, 0)

    def snapshot(self, now_s: float) -> dict[str, Any]:
        """A plain dict for a metrics report. Names may appear meanwhile, of functions and readers
        that count on threads of their own: a dict is copied at once."""
        counters, gauges = self._counters.copy(), self._gauges.copy()
        return {
            "name": self.name,
            "records_in": self.records_in,
            "records_out": self.records_out,
            "in_rate": self._in_rate.at(now_s, self.records_in),
            "out_rate": self._out_rate.at(now_s, self.records_out),
            "watermark": _known(self.watermark),
            "input_watermark": _known(self.input_watermark),
            "counters": {str(name): plain(n) for name, n in counters.items()},
            "gauges": {str(name): float(value) for name, value in gauges.items()},
        }


def _known(watermark: int) -> int | None:
    return None if watermark == MIN_TIMESTAMP else watermark


def process_figures() -> dict[str, Any]:
    """This process: its id, the most memory it ever held, and the CPU time it has used."""
    return {
        "pid": os.getpid(),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "cpu_s": time.process_time(),
    }
