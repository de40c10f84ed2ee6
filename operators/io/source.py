"""The head of a chain that reads a replayable source.

    poll()  ->  reader.poll()  ->  Emit       stamp, count, emit; MORE
                                   Wait       sleep until then; IDLE
                                   NeedSplit  ask once; IDLE. After no_more_splits: ENDED

The unfinished splits, with the positions after the last emitted batch, are the operator state
`splits`. A rescale deals them out anew, so a restored subtask may hold several splits or none.
"No more splits" is not state: a restored subtask asks first of all (`split_asking`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from ...api.connectors.base import Emit, NeedSplit, Polled, ReaderContext, SourceReader, Wait
from ...api.specs.records import SourceSpec
from ...api.types.declared import as_declared
from ...api.watermarks import WatermarkStrategy
from ...core.batch import Batch
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...core.errors import OperatorError
from ...state.descriptors import ListStateDescriptor
from ...state.faces import ListState
from ..base import PollStatus, SourceOperator
from ..closing import warn_of_close
from ..time.event_time import check_range, make_tracker
from ..time.split_time import SplitEventTime
from .split_alignment import SplitAlignment
from .split_asking import SplitAsking

SPLITS = ListStateDescriptor("splits")


class ReplayableSourceOperator(SourceOperator):
    """Runs one reader of `spec.source` in one subtask."""

    _reader: SourceReader
    _state: ListState
    _asking: SplitAsking

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self._time: SplitEventTime | None = None
        """None when the source has no watermark strategy."""
        self._ended = False
        """The final watermark is out; nothing may follow it."""
        self._told_to_end = False
        """Whether it was told to read no more, before it had come to the end by itself."""
        self._said = MIN_TIMESTAMP
        """The last watermark of the source's own; MIN_TIMESTAMP where there is a strategy."""
        self._next_periodic = 0
        self._positions: dict[int, Sequence[Any]] = {}
        """What the reader said at checkpoints that may still complete."""
        self._alignment: SplitAlignment | None = None
        """None unless the strategy aligns watermarks."""
        self._report_ms = 0
        self._next_report = 0
        """When the coordinator hears of the watermark again (ms)."""
        self._reader_waits = False
        """Whether the reader is not polled because it cannot let single splits wait."""
        self._waits = False
        """Whether the reader's last poll said that it waits, not that it needs a split."""
        self._opened = False

    def open(self) -> None:
        ctx = self.ctx
        self._state = ctx.operator_state.get_list_state(SPLITS)
        context = ReaderContext(
            ctx.name,
            ctx.subtask,
            ctx.parallelism,
            ctx.config.batch_size,
            ctx.clock,
            ctx.wake,
            ctx.metrics.gauge,
            ctx.metrics.count,
        )
        self._reader = self._create_reader(context)
        self._opened = True
        every, now = self._reader.asks_every_ms, ctx.clock.now_ms()
        self._asking = SplitAsking(every, ctx.restored, now)
        self._wake_to_ask()
        strategy = self._spec.watermarks
        if strategy is not None:
            self._time = SplitEventTime(lambda: make_tracker(strategy), _idleness_ms(strategy))
            self._interval_ms = _milliseconds(ctx.config.auto_watermark_interval)
            self._schedule(ctx.clock.now_ms())
            if strategy.alignment is not None:
                self._alignment = SplitAlignment()
                self._report_ms = strategy.alignment.update_interval_ms
                self._next_report = ctx.clock.now_ms()
                ctx.wake_at(self._next_report)
        restored = list(self._state.get())
        if restored:
            self._give(restored)

    def _create_reader(self, context: ReaderContext) -> SourceReader:
        return self._spec.source.create_reader(context)

    def poll(self) -> PollStatus:
        if self._ended:
            return PollStatus.ENDED
        if self._told_to_end:
            self._end()
            return PollStatus.ENDED
        if self._asking.due(self.ctx.clock.now_ms()):
            self._ask()
        if self._asking.holding or self._reader_waits:
            return PollStatus.IDLE
        polled = self._reader.poll()
        self._waits = isinstance(polled, Wait)
        if self._time is not None:
            self._time.polled(self.ctx.clock.now_ms(), _wait_until(polled))
        return self._handle(polled)

    def add_splits(self, splits: list[Any]) -> None:
        """The enumerator's answer; empty: it has none now."""
        self._asking.answer(not splits, self.ctx.clock.now_ms())
        self._wake_to_ask()
        if splits:
            self._give(splits)

    def no_more_splits(self) -> None:
        self._asking.no_more()

    def end(self) -> None:
        self._told_to_end |= not self._ended

    def align(self, limit_ms: int | None) -> None:
        """The coordinator's word: splits whose watermark is beyond the limit wait."""
        if self._alignment is not None:
            self._alignment.on_limit(limit_ms)
            self._apply_limit()

    def on_processing_time(self, now_ms: int) -> None:
        if self._alignment is not None and not self._ended and now_ms >= self._next_report:
            self._report_watermark(now_ms)
        if self._time is None or self._ended or now_ms < self._next_periodic:
            return
        self._schedule(now_ms)
        self._time.tick(now_ms)
        turned_idle = self._time.check_idle(self._waiting_splits())
        advanced = self._time.periodic()
        if advanced is not None and self._time.active:
            self.out.emit_watermark(advanced)
        if turned_idle:
            self.out.emit_status(False)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        over = self._ended and not self._told_to_end
        splits = [] if over else self._reader.snapshot()
        self._positions[checkpoint_id] = splits
        self._state.update(splits)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        splits = self._positions.get(checkpoint_id, ())
        for known in [known for known in self._positions if known <= checkpoint_id]:
            del self._positions[known]
        self._reader.notify_checkpoint_complete(checkpoint_id, splits)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._positions.pop(checkpoint_id, None)

    def close(self) -> None:
        if not self._opened:
            return
        self._opened = False
        try:
            self._reader.close()
        except BaseException as error:
            warn_of_close(self.ctx.name, self.ctx.subtask, "its reader", error)

    def _handle(self, polled: Polled) -> PollStatus:
        match polled:
            case Emit(batch, split_id, finished, side, watermark):
                for tag, records in side:
                    self._emit_side(tag, records)
                if len(batch):
                    self._emit(batch, split_id)
                if watermark is not None and self._time is None and watermark > self._said:
                    self._said = watermark
                    self.out.emit_watermark(watermark)
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

    def _emit_side(self, tag: str, records: Batch) -> None:
        self.out.emit_side(tag, records)

    def _finish_split(self, split_id: str) -> None:
        self.ctx.metrics.count("splits_finished")
        if self._time is not None:
            self._time.remove(split_id)
        if self._alignment is not None:
            self._apply_limit()

    def _emit(self, batch: Batch, split_id: str) -> None:
        if batch.timestamps is not None:
            check_range(batch.timestamps, f"split '{split_id}'")
        if self._spec.scalars is not None:
            batch = as_declared(batch, self._spec.scalars)
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
        if self._alignment is not None:
            self._apply_limit()

    def _report_watermark(self, now_ms: int) -> None:
        assert self._time is not None
        self._next_report = now_ms + self._report_ms
        self.ctx.wake_at(self._next_report)
        time = self._time
        if time.empty and self._asking.expecting() and not self._waits:
            return  # without a split it would let all others go
        self.ctx.report_watermark(time.holding() if self._reader.can_pause else time.front())

    def _waiting_splits(self) -> Collection[str]:
        """Those that are not read because others are behind."""
        if self._alignment is None or self._time is None:
            return ()
        return self._time.watermarks().keys() if self._reader_waits else self._alignment.paused

    def _apply_limit(self) -> None:
        """Have the reader read what it may."""
        assert self._alignment is not None
        assert self._time is not None
        if self._alignment.update(self._time.watermarks()):
            paused = self._alignment.paused
            if self._reader.can_pause:
                self._reader.pause(paused)
            else:
                self._reader_waits = bool(paused)
            self.ctx.metrics.gauge("splits_waiting", float(len(paused)))

    def _need_split(self) -> PollStatus:
        if self._asking.over:
            self._end()
            return PollStatus.ENDED
        if self._asking.wanted():
            self._ask()
        return PollStatus.IDLE

    def _ask(self) -> None:
        self._asking.ask()
        self.ctx.request_splits()

    def _wake_to_ask(self) -> None:
        for at in self._asking.wakes():
            self.ctx.wake_at(at)

    def _end(self) -> None:
        self._ended = True
        if self._alignment is not None:
            self.ctx.report_watermark(None)
        if self._time is not None and not self._time.active:
            self._time.active = True
            self.out.emit_status(True)
        self.out.emit_watermark(MAX_TIMESTAMP)

    def _give(self, splits: list[Any]) -> None:
        if self._time is not None:
            self._time.add(split.split_id for split in splits if split.split_id)
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
