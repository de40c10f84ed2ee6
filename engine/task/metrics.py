"""Counters and gauges of one operator's subtask: plain integers, read when a report is due."""

from __future__ import annotations

import os
import resource
import time
from numbers import Integral
from typing import Any

from ...core.elements import MIN_TIMESTAMP


class OperatorMetrics:
    """Figures of one operator in one subtask, cumulative since the attempt began.

    Invariant: `records_in` and `records_out` never decrease; `watermark` is the last one forwarded.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.records_in = 0
        self.records_out = 0
        self.watermark = MIN_TIMESTAMP
        self._counters: dict[str, int] = {}
        self._gauges: dict[str, float] = {}

    def count(self, name: str, n: int = 1) -> None:
        self._counters[name] = self._counters.get(name, 0) + n

    def gauge(self, name: str, value: float) -> None:
        self._gauges[name] = value

    def get_count(self, name: str) -> int:
        return self._counters.get(name, 0)

    def snapshot(self) -> dict[str, Any]:
        """A plain dict for a metrics report."""
        return {
            "name": self.name,
            "records_in": self.records_in,
            "records_out": self.records_out,
            "watermark": None if self.watermark == MIN_TIMESTAMP else self.watermark,
            "counters": {str(name): _number(n) for name, n in self._counters.items()},
            "gauges": {str(name): float(value) for name, value in self._gauges.items()},
        }


def _number(count: Any) -> int | float:
    """A user may count in any kind of number; a report holds Python's own."""
    return int(count) if isinstance(count, Integral) else float(count)


def process_figures() -> dict[str, Any]:
    """This process: its id, the most memory it ever held, and the CPU time it has used."""
    return {
        "pid": os.getpid(),
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "cpu_s": time.process_time(),
    }
