"""Assigns timestamps and watermarks in the middle of a stream, in place of those from upstream."""

from __future__ import annotations

from datetime import timedelta

from ...api.specs.records import WatermarkSpec
from ...core.batch import Batch
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ..base import Operator
from .event_time import WatermarkTracker, make_tracker

_MILLISECOND = timedelta(milliseconds=1)


class WatermarkOperator(Operator):
    """Stamps each batch; sends watermarks behind batches (punctuated) and now and then (periodic).

    Upstream's watermarks and statuses are dropped, but for the greatest watermark, which ends event
    time. Nothing of it is checkpointed: after a restore event time starts anew.
    """

    def __init__(self, spec: WatermarkSpec) -> None:
        self._strategy = spec.strategy
        self._sent: int = MIN_TIMESTAMP
        """The last watermark sent."""
        self._idle = False
        """Whether downstream was told that this output is idle."""

    def open(self) -> None:
        self._tracker: WatermarkTracker = make_tracker(self._strategy)
        idleness = self._strategy.idleness
        self._idle_after = None if idleness is None else idleness // _MILLISECOND
        self._interval = self.ctx.config.auto_watermark_interval // _MILLISECOND
        now = self.ctx.clock.now_ms()
        self._last_record = now
        self._idle_check = now
        """When an idleness check is due; at most one is asked for at a time."""
        self._next_periodic = now + self._interval
        if self._interval > 0:
            self.ctx.wake_at(self._next_periodic)
        if self._idle_after is not None:
            self._check_idle_at(now + self._idle_after)

    def process(self, batch: Batch, port: int = 0) -> None:
        self._take(self._tracker.stamp(batch))

    def _take(self, batch: Batch) -> None:
        """Records with their timestamps."""
        self._last_record = self.ctx.clock.now_ms()
        if self._idle:
            self._wake_up()
        self.out.emit(batch)
        punctuated = self._tracker.on_batch(batch)
        if punctuated is not None:
            self._send(punctuated)

    def process_watermark(self, timestamp: int) -> None:
        if timestamp == MAX_TIMESTAMP:
            if self._idle:
                self._wake_up()
            self._send(MAX_TIMESTAMP)

    def process_status(self, active: bool) -> None:
        """Ignored: activity here is judged by records."""

    def on_processing_time(self, now_ms: int) -> None:
        if self._sent == MAX_TIMESTAMP:
            return
        if self._interval > 0 and now_ms >= self._next_periodic:
            if not self._idle:
                self._send(self._tracker.periodic())
            self._next_periodic = now_ms + self._interval
            self.ctx.wake_at(self._next_periodic)
        if self._idle_after is not None and not self._idle and now_ms >= self._idle_check:
            self._check_idle(now_ms, self._last_record + self._idle_after)

    def _check_idle(self, now_ms: int, idle_from: int) -> None:
        if now_ms < idle_from:
            self._check_idle_at(idle_from)
            return
        self._idle = True
        self.out.emit_status(False)

    def _check_idle_at(self, time: int) -> None:
        self._idle_check = time
        self.ctx.wake_at(time)

    def _wake_up(self) -> None:
        self._idle = False
        self.out.emit_status(True)
        if self._idle_after is not None:
            self._check_idle_at(self._last_record + self._idle_after)

    def _send(self, timestamp: int) -> None:
        if timestamp > self._sent:
            self._sent = timestamp
            self.out.emit_watermark(timestamp)
