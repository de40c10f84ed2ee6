"""The head of a chain that reads a replayable source.

    poll()  ->  reader.poll()  ->  Emit       stamp, count, emit; MORE
                                   Wait       sleep until then; IDLE
                                   NeedSplit  ask once; IDLE. After no_more_splits: ENDED

The unfinished splits, with the positions after the last emitted batch, are the operator state
`splits`. A rescale deals them out anew, so a restored subtask may hold several splits or none.
"No more splits" is not state: a restored subtask asks at its first poll, even if it holds splits,
because the enumerator may keep splits for it while its own never end.
"""

from __future__ import annotations

import logging
import math
from datetime import timedelta
from typing import Any

from ...api.connectors.base import Emit, NeedSplit, Polled, ReaderContext, SourceReader, Wait
from ...api.specs.records import SourceSpec
from ...api.watermarks import WatermarkStrategy
from ...core.batch import Batch
from ...core.elements import MAX_TIMESTAMP
from ...core.errors import OperatorError
from ...state.descriptors import ListStateDescriptor
from ...state.faces import ListState
from ..base import PollStatus, SourceOperator
from ..time.event_time import make_tracker
from ..time.split_time import SplitEventTime

SPLITS = ListStateDescriptor("splits")

ASK_AGAIN_MS = 100
"""Pause before asking again when the enumerator had no split ready."""

_log = logging.getLogger(__name__)


class ReplayableSourceOperator(SourceOperator):
    """Runs one reader of `spec.source` in one subtask."""

    _reader: SourceReader
    _state: ListState

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self._time: SplitEventTime | None = None
        """None when the source has no watermark strategy."""
        self._requested = False
        """A request for splits is on its way; never two at once."""
        self._ask_at: int | None = None
        """When to ask again (ms), because the last answer was empty."""
        self._no_more = False
        self._ask_first = False
        """Restored, and not yet asked since."""
        self._ended = False
        """The final watermark is out; nothing may follow it."""
        self._next_periodic = 0
        self._opened = False

    def open(self) -> None:
        ctx = self.ctx
        self._state = ctx.operator_state.get_list_state(SPLITS)
        context = ReaderContext(
            ctx.name, ctx.subtask, ctx.parallelism, ctx.config.batch_size, ctx.clock
        )
        self._reader = self._spec.source.create_reader(context)
        self._opened = True
        strategy = self._spec.watermarks
        if strategy is not None:
            self._time = SplitEventTime(lambda: make_tracker(strategy), _idleness_ms(strategy))
            self._interval_ms = _milliseconds(ctx.config.auto_watermark_interval)
            self._schedule(ctx.clock.now_ms())
        self._ask_first = ctx.restored
        restored = list(self._state.get())
        if restored:
            self._give(restored)

    def poll(self) -> PollStatus:
        if self._ended:
            return PollStatus.ENDED
        if self._ask_first or self._ask_again_due():
            self._ask()
        polled = self._reader.poll()
        if self._time is not None:
            self._time.polled(self.ctx.clock.now_ms(), _wait_until(polled))
        return self._handle(polled)

    def add_splits(self, splits: list[Any]) -> None:
        """The enumerator's answer; empty: it has none now."""
        self._requested = False
        if splits:
            self._give(splits)
        else:
            self._ask_at = self.ctx.clock.now_ms() + ASK_AGAIN_MS
            self.ctx.wake_at(self._ask_at)

    def no_more_splits(self) -> None:
        self._requested = False
        self._no_more = True

    def on_processing_time(self, now_ms: int) -> None:
        if self._time is None or self._ended or now_ms < self._next_periodic:
            return
        self._schedule(now_ms)
        self._time.tick(now_ms)
        turned_idle = self._time.check_idle()
        advanced = self._time.periodic()
        if advanced is not None and self._time.active:
            self.out.emit_watermark(advanced)
        if turned_idle:
            self.out.emit_status(False)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._state.update([] if self._ended else self._reader.snapshot())

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._reader.notify_checkpoint_complete(checkpoint_id)

    def close(self) -> None:
        if not self._opened:
            return
        self._opened = False
        try:
            self._reader.close()
        except Exception:
            _log.warning("operator '%s': closing its reader failed", self.ctx.name, exc_info=True)

    def _handle(self, polled: Polled) -> PollStatus:
        match polled:
            case Emit(batch, split_id, finished):
                if len(batch):
                    self._emit(batch, split_id)
                if finished:
                    self._finish_split(split_id)
                return PollStatus.MORE
            case Wait(until_ms):
                if until_ms is not None:
                    self.ctx.wake_at(until_ms)
                return PollStatus.IDLE
            case NeedSplit():
                return self._need_split()
        raise OperatorError(
            self.ctx.name,
            self.ctx.subtask,
            f"the reader's poll() returned {polled!r}, not Emit, Wait or NeedSplit",
        )

    def _finish_split(self, split_id: str) -> None:
        self.ctx.metrics.count("splits_finished")
        if self._time is not None:
            self._time.remove(split_id)

    def _emit(self, batch: Batch, split_id: str) -> None:
        if self._time is None:
            self.out.emit(batch)
            return
        was_active = self._time.active
        stamped, watermark = self._time.stamp(split_id, batch)
        if not was_active:
            self.out.emit_status(True)
        self.out.emit(stamped)
        if watermark is not None:
            self.out.emit_watermark(watermark)

    def _need_split(self) -> PollStatus:
        if self._no_more:
            self._end()
            return PollStatus.ENDED
        if not self._requested and self._ask_at is None:
            self._ask()
        return PollStatus.IDLE

    def _ask_again_due(self) -> bool:
        return self._ask_at is not None and self.ctx.clock.now_ms() >= self._ask_at

    def _ask(self) -> None:
        self._ask_at = None
        self._ask_first = False
        self._requested = True
        self.ctx.request_splits()

    def _end(self) -> None:
        self._ended = True
        if self._time is not None and not self._time.active:
            self._time.active = True
            self.out.emit_status(True)
        self.out.emit_watermark(MAX_TIMESTAMP)

    def _give(self, splits: list[Any]) -> None:
        if self._time is not None:
            self._time.add(split.split_id for split in splits)
        self._reader.add_splits(splits)

    def _schedule(self, now_ms: int) -> None:
        self._next_periodic = now_ms + self._interval_ms
        self.ctx.wake_at(self._next_periodic)


def _wait_until(polled: Polled) -> float | None:
    """None: there were records; else until when (ms) there are none, as far as the reader knows."""
    match polled:
        case Emit():
            return None
        case Wait(until_ms) if until_ms is not None:
            return until_ms
    return math.inf


def _milliseconds(interval: timedelta) -> int:
    return max(1, round(interval.total_seconds() * 1000))


def _idleness_ms(strategy: WatermarkStrategy) -> int | None:
    return None if strategy.idleness is None else _milliseconds(strategy.idleness)
