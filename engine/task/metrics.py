"""Counters and gauges of one operator's subtask: plain integers, read when a report is due."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Callable
from typing import Any

from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, LatencyMarker
from ...core.ids import OperatorId
from ...operators.user_metrics import Rate, UserDistribution, plain

HOST = socket.gethostname()

RATE_SPAN_S = 60.0
"""Records per second are over the last minute, as in Flink."""


class OperatorMetrics:
    """Figures of one operator in one subtask, cumulative since the attempt began.

    Invariant: `records_in` and `records_out` never decrease; `watermark` is the last one forwarded,
    `input_watermark` the last one that came.
    """

    def __init__(
        self, name: str, now_s: float = 0.0, now_ms: Callable[[], int] | None = None
    ) -> None:
        """`now_s`: the attempt begins, by the clock that `snapshot` is told the time of. `now_ms`:
        since the epoch; None: nothing is measured by it."""
        self.name = name
        self._now_ms = now_ms
        self._latencies: dict[OperatorId, UserDistribution] = {}
        """By source: ms that its markers were on their way."""
        self.records_in = 0
        self.records_out = 0
        self.watermark = MIN_TIMESTAMP
        self.input_watermark = MIN_TIMESTAMP
        self.state_size: int | None = None
        """Bytes of its part of the last checkpoint that was written; None: there was none."""
        self._in_rate = Rate(RATE_SPAN_S, now_s)
        self._out_rate = Rate(RATE_SPAN_S, now_s)
        self._counters: dict[str, int] = {}
        self._gauges: dict[str, float] = {}

    def count(self, name: str, n: int = 1) -> None:
        self._counters[name] = self._counters.get(name, 0) + n

    def gauge(self, name: str, value: float) -> None:
        self._gauges[name] = value

    def passed(self, marker: LatencyMarker) -> None:
        """A marker came. Of clocks that differ no time is less than none."""
        if self._now_ms is not None:
            latency = self._latencies.setdefault(marker.source, UserDistribution())
            latency.update(max(0, self._now_ms() - marker.marked_ms))

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
            "state_size": self.state_size,
            "watermark_lag": self._lag(),
            "latencies": {source: one.report() for source, one in self._latencies.items()},
        }

    def _lag(self) -> int | None:
        """How far its event time is behind the clock, in ms: what came in, or, of a source, went
        out."""
        mark = max(self.input_watermark, self.watermark)
        known = MIN_TIMESTAMP < mark < MAX_TIMESTAMP and self._now_ms is not None
        return self._now_ms() - mark if known and self._now_ms is not None else None


def _known(watermark: int) -> int | None:
    return None if watermark == MIN_TIMESTAMP else watermark


def process_figures() -> dict[str, Any]:
    """This process: its machine, its id, the memory it holds, the most it ever held, and the CPU
    time it has used."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "host": HOST,
        "pid": os.getpid(),
        "rss_bytes": _resident() or peak,
        "peak_rss_bytes": peak,
        "cpu_s": time.process_time(),
    }


def _resident() -> int | None:
    """Bytes; None where there is no /proc."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return None
