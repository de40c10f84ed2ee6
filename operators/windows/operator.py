"""The window operator on columns: built-in functions over any kind of windows that has a windower.

It is the same for all: batches become key columns, times and inputs; the first ones, or a snapshot,
say the types and bind the state; records go to the windower by how far their key groups have fired;
late ones go to the late side output, or are dropped and counted; watermarks or the clock move
windows on. What windows are, hold and give is the windower's (see there); no per-record Python.

Processing-time windows have the clock for event time: all records of a batch have the time at which
it came, none is late, and windows fire when the clock has passed them. If the clock goes back,
records come at the earliest time that has not fired. Windows still open when a bounded input ends
fire then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ...api.specs.windows import WindowSpec
from ...api.windows.time_windows import no_timestamp_error
from ...core.arrays import Int64s
from ...core.batch import Batch
from ...core.constants import LATE_DROPPED
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...core.errors import TypeMismatchError
from ...core.partials import (
    check_layout,
    key_part,
    layout_of,
    make_layout,
    records_in,
    split_layout,
)
from ...core.preload import preload
from ...core.row_kind import refuse_changelog
from ...state.backend import COLUMN_STATE
from ...state.window_progress import WindowProgress
from ..base import Operator, Steps, Work, one_by_one, plainly, then
from .firing_progress import FiringProgress
from .window_keys import make_keys
from .window_output import WindowOutput
from .windower import NO_ROWS, LateRows, Records, Site, Time, Windower


class WindowOperator(Operator):
    """See the module. State is created when the first record, or a snapshot, tells the types."""

    def __init__(self, spec: WindowSpec, windower: Windower) -> None:
        self.windower = windower
        self._spec = spec
        self._keys: pa.Schema | None = None
        """Types of the key columns; None until bound."""
        self._alarm = MAX_TIMESTAMP
        """What the task was asked to call for, by the clock; later wishes may be unknown."""

    def open(self) -> None:
        preload(*COLUMN_STATE)
        self._progress = WindowProgress(self.ctx.keyed_state)
        self._firing = FiringProgress(self.ctx.keyed_state, self._progress)
        self._of_keys = make_keys(self._spec, self.ctx)
        output = WindowOutput(self._spec, self.ctx, self.out, self._of_keys.shown)
        self.windower.open(Site(self._spec, self.ctx, self._progress, self._firing, output))
        layout = self._progress.layout
        if layout is not None:
            self._bind(layout)
            self._of_keys.restored()
            self._ask_to_be_woken()
            if self._firing.unfinished:
                self.go_on_soon()

    def process(self, batch: Batch, port: int = 0) -> Work:
        if self._firing.unfinished:
            return self._behind_resumed(lambda: self._process(batch))
        return self._process(batch)

    def process_watermark(self, timestamp: int) -> Work:
        def advance() -> Work:
            return self._advance(timestamp) if self.windower.time is Time.EVENTS else None

        work = self._behind_resumed(advance) if self._firing.unfinished else advance()
        return then(work, lambda: self.out.emit_watermark(timestamp))

    def on_processing_time(self, now_ms: int) -> Work:
        if self._alarm < now_ms:
            self._alarm = MAX_TIMESTAMP
        work = self._when_resumed(lambda: self._on_clock(now_ms))
        return then(work, self._ask_to_be_woken)

    def finish(self) -> Work:
        if self.windower.time is not Time.CLOCK or self._keys is None:
            return None
        return self._when_resumed(self.windower.finish)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        self._progress.save()
        self._firing.save()

    def validate(self) -> None:
        """Assert the invariants; for tests."""
        if self._keys is not None:
            self.windower.validate()

    def _when_resumed(self, call: Callable[[], Work]) -> Work:
        """`call`, behind what an operator restored in the middle of a firing has still to fire."""
        return self._resumed(call) if self._firing.unfinished else call()

    def _resumed(self, call: Callable[[], Work]) -> Steps:
        yield from self.windower.resume() or ()
        yield from call() or ()

    def _behind_resumed(self, call: Callable[[], Work]) -> Steps:
        """`call`, likewise, for a batch or a watermark: it is in no state meanwhile."""
        yield from plainly(self.windower.resume())
        yield from call() or ()

    def _process(self, batch: Batch) -> Work:
        refuse_changelog(batch, self.ctx.name, "windows")
        self._of_keys.tidy()
        columns = self._of_keys.columns(batch)
        spans = self.windower.spans(batch, columns)
        times = self._times(batch)
        layout = layout_of(columns.data.schema)
        partials = layout is not None
        if layout is not None:
            keys = key_part(columns.data, layout)
            inputs = list(columns.data.columns[len(keys.schema) :])
        else:
            keys = self._of_keys.of(batch, columns)
            inputs = self.windower.arguments.inputs(columns)
        if self._keys is None:
            fields = layout or make_layout(
                self._of_keys.layout(batch, keys), self.windower.arguments.layout(inputs)
            )
            self._progress.layout = fields
            self._bind(fields)
        elif layout is not None and self._progress.layout is not None:
            check_layout(layout, self._progress.layout)
        keys = self._of_keys.fitted(keys)
        whole = Records(keys, times, inputs, spans, self._progress.number, partials)
        fired = []
        for watermark, rows in self._progress.split(keys):
            if rows is None:
                fired.append(self._add(batch, whole, watermark))
            else:
                part = whole.at(rows, self._progress.number)
                fired.append(self._add(batch.take(rows), part, watermark))
        self._ask_to_be_woken()
        return one_by_one(fired)

    def _add(self, batch: Batch, records: Records, watermark: int) -> Work:
        """Records whose key groups have fired up to `watermark`, and the batch that has them."""
        if self.windower.time is Time.CLOCK and watermark >= int(records.times[0]):
            records = replace(records, times=np.full(len(records), watermark + 1, dtype=np.int64))
        self._progress.number += len(records)
        late, work = self.windower.add(records, watermark)
        if len(late):
            self._emit_late(batch, late, records.partials)
        return work

    def _emit_late(self, batch: Batch, late: LateRows, partials: bool) -> None:
        rows = np.sort(late)
        if self._spec.late_tag is None:
            count = records_in(batch, rows) if partials else len(rows)
            self.ctx.metrics.count(LATE_DROPPED, count)
        else:
            self.out.emit_side(self._spec.late_tag.tag_id, batch.take(rows))

    def _times(self, batch: Batch) -> Int64s:
        """Where in the windows' time the records are."""
        match self.windower.time:
            case Time.NONE:
                return NO_ROWS
            case Time.CLOCK:
                return np.full(len(batch), self.ctx.clock.now_ms(), dtype=np.int64)
        times = batch.timestamps
        if times is None or times.min() == MIN_TIMESTAMP:
            raise no_timestamp_error()
        self.windower.check(int(times.min()), int(times.max()))
        return np.ascontiguousarray(times, dtype=np.int64)

    def _bind(self, layout: pa.Schema) -> None:
        keys, fields = split_layout(layout)
        keys = self._of_keys.bind(keys)
        try:
            self.windower.bind(keys, fields)
        except TypeMismatchError as error:
            raise TypeMismatchError(f"window operator '{self.ctx.name}': {error}") from error
        self._keys = keys

    def _advance(self, watermark: int) -> Work:
        """The windows' time, by watermarks or the clock, has passed `watermark`."""
        if watermark <= self._progress.watermark:
            return None
        work = None if self._keys is None else self.windower.advance(watermark)
        return then(work, lambda: self._progress.advance(watermark))

    def _on_clock(self, now_ms: int) -> Work:
        if self.windower.time is Time.CLOCK:
            return self._advance(now_ms - 1)
        return None if self._keys is None else self.windower.on_clock(now_ms)

    def _ask_to_be_woken(self) -> None:
        """Have the task call once the clock has passed what is due next by it."""
        due = None if self._keys is None else self.windower.next_alarm()
        if due is not None and due < self._alarm:
            self._alarm = due
            self.ctx.wake_at(due + 1)
