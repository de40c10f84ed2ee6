"""An operator whose calls are recorded: what it gets, in the order in which it gets it, and what it
reads from the clock.

It stands in for the operator within its node of the chain, so that nothing is looked at where
nothing is recorded. A call is noted before it is made: the one that fails is the last one there.
What is noted, by kind:

    columns, objects       port     records            as `checkpoint.in_flight` has them
    watermark                       ms
    status                          1 active, 0 idle
    end                    port     the input's
    finish
    wake                            ms
    prepare, complete, aborted      checkpoint; port: pauses of the work that is parked, so far
    clock                           what was read since the last row: pairs of int64, how often and
                                    what: ms, or, with a negative count, monotonic ns
    begin                           a checkpoint's state was taken here; see `_begin`
    broken                          why all that came after it is missing
    closed                          the task ended here
"""

from __future__ import annotations

import array
from collections.abc import Callable, Generator
from threading import get_ident
from typing import Any

from ...core.batch import Batch, ColumnBatch
from ...core.clock import Clock
from ...core.elements import LatencyMarker
from ...core.errors import OperatorError
from ...core.failure_text import described, is_for_the_program, traced
from ...core.ids import CheckpointId
from ...operators.base import Operator, OperatorContext, Output, Steps, Work
from ..exchange.kept import kept
from .in_flight import item_of
from .recorder import Recorder, WriteBase


class RecordingClock:
    """A clock that remembers what it said."""

    def __init__(self, clock: Clock) -> None:
        """On the task's thread: what others read is not remembered."""
        self._clock = clock
        self._runs = array.array("q")
        self._thread = get_ident()

    def now_ms(self) -> int:
        now = self._clock.now_ms()
        if get_ident() != self._thread:
            return now
        runs = self._runs
        if runs and runs[-1] == now and runs[-2] > 0:
            runs[-2] += 1
        else:
            runs.extend((1, now))
        return now

    def monotonic(self) -> float:
        now = self._clock.monotonic()
        if get_ident() != self._thread:
            return now
        self._runs.extend((-1, round(now * 1e9)))
        return now

    def unread(self) -> int:
        """The time, for what is not to be remembered (`core.clock.unheard`)."""
        return self._clock.now_ms()

    def take(self) -> bytes:
        """What it said since the last time."""
        said, self._runs = self._runs.tobytes(), array.array("q")
        return said


class RecordedOperator(Operator):
    """The operator, and a recorder that is told of its calls. The first base is begun by whoever
    makes it."""

    def __init__(
        self,
        operator: Operator,
        recorder: Recorder,
        clock: RecordingClock,
        write_base: Callable[[OperatorContext, int], WriteBase],
        emitted: Callable[[], int],
    ) -> None:
        """`clock`: that the operator has. `write_base`: its state as it is now, in the context, at
        a checkpoint, to be written later. `emitted`: the last watermark that it sent on."""
        self._operator = operator
        self._recorder = recorder
        self._clock = clock
        self._write_base = write_base
        self._emitted = emitted
        self._watermark: int | None = None
        """The last one whose work is done or has begun; None: there was none."""
        self._active = True
        self._ended: list[int] = []
        """Ports that have no more records."""
        self.only_reads = operator.only_reads
        self._call: tuple[str, int, int] | None = None
        """The call whose work is parked; None: there is none, or it was not one that can come
        again."""
        self._parked = False
        self._pauses = 0
        """Of the work that is parked."""

    def setup(self, ctx: OperatorContext, out: Output) -> None:
        self.ctx = ctx
        self._operator.setup(ctx, out)

    def open(self) -> Work:
        return self._run(None, self._operator.open)

    def process(self, batch: Batch, port: int = 0) -> Work:
        self._note_clock()
        try:
            keep = kept(batch)
        except Exception as error:
            self._recorder.break_off(described(error))
        else:
            size = batch.data.nbytes if isinstance(batch, ColumnBatch) else _size(keep())
            size += 0 if batch.timestamps is None else 8 * len(batch)
            self._recorder.batch(port, lambda: item_of(keep()), size)
        return self._run(None, self._operator.process, batch, port)

    def process_watermark(self, timestamp: int) -> Work:
        self._watermark = timestamp
        return self._noted(("watermark", 0, timestamp), self._operator.process_watermark, timestamp)

    def process_status(self, active: bool) -> None:
        self._active = active
        self._noted(("status", 0, int(active)), self._operator.process_status, active)

    def process_latency_marker(self, marker: LatencyMarker) -> None:
        self._operator.process_latency_marker(marker)

    def end_input(self, port: int) -> Work:
        self._ended.append(port)
        return self._noted(("end", port, 0), self._operator.end_input, port)

    def on_processing_time(self, now_ms: int) -> Work:
        return self._noted(("wake", 0, now_ms), self._operator.on_processing_time, now_ms)

    def finish(self) -> Work:
        return self._noted(("finish", 0, 0), self._operator.finish)

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """And the state is taken, as it is for the checkpoint: nothing comes between."""
        self._note(("prepare", self._paused, checkpoint_id))
        self._guarded(self._operator.prepare_snapshot, checkpoint_id)
        self._note_clock()
        if self._recorder.takes_base(self._size):
            self._begin(checkpoint_id)

    def frozen(self) -> None:
        """Its state has been taken for a checkpoint, and for that the clock read: by no call."""
        self._clock.take()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> Work:
        self._note(("complete", self._paused, checkpoint_id))
        work: Work = self._guarded(self._operator.notify_checkpoint_complete, checkpoint_id)
        self._recorder.completed(CheckpointId(checkpoint_id))
        if work is None:
            return None
        return self._steps(work, None)

    @property
    def holds_end(self) -> bool:
        return self._operator.holds_end

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._note(("aborted", self._paused, checkpoint_id))
        self._guarded(self._operator.notify_checkpoint_aborted, checkpoint_id)

    def close(self) -> None:
        try:
            self._operator.close()
        finally:
            self._note(("closed", 0, 0))
            self._recorder.close()

    def end(self) -> None:
        """Behind `close`, or where the operator was never opened: nothing is recorded any more."""
        self._recorder.close()

    # --- inside --------------------------------------------------------------------------------

    @property
    def _size(self) -> int:
        """Bytes of its state, as the last checkpoint of the task had it."""
        return getattr(self.ctx.metrics, "state_size", None) or 0

    @property
    def _paused(self) -> int:
        return self._pauses if self._parked else 0

    def _begin(self, checkpoint_id: int) -> None:
        """What is to be known to go on from here, and is in no state: the time, how far event time
        is, and what was being done, which goes on when it comes again (see `operators.base`): a
        call, or a wake-up."""
        write = self._write_base(self.ctx, checkpoint_id)
        now = self._clock.unread()
        again = None
        if self._parked:
            again = self._call or ("wake", 0, now)
        begin = {
            "now_ms": now,
            "again": again,
            "pauses": self._paused,
            "watermark": self._watermark,
            "emitted": self._emitted(),
            "active": self._active,
            "ended": self._ended,
        }
        self._recorder.base(CheckpointId(checkpoint_id), write, begin, self._size)

    def _note_clock(self) -> None:
        said = self._clock.take()
        if said:
            self._recorder.row("clock", data=said)

    def _note(self, call: tuple[str, int, int]) -> None:
        self._note_clock()
        self._recorder.row(*call)

    def _noted(self, call: tuple[str, int, int], method: Callable[..., Work], *args: Any) -> Work:
        self._note(call)
        return self._run(call, method, *args)

    def _run(
        self, call: tuple[str, int, int] | None, method: Callable[..., Work], *args: Any
    ) -> Work:
        work: Work = self._guarded(method, *args)
        return None if work is None else self._steps(work, call)

    def _guarded(self, method: Callable[..., Any], *args: Any) -> Any:
        try:
            return method(*args)
        except BaseException as error:
            self._failed(error)
            raise

    def _steps(self, work: Steps, call: tuple[str, int, int] | None) -> Steps:
        """The work, told apart from what it is parked in: other work may have been begun before it
        is (`notify_checkpoint_complete`)."""
        self._parked, self._call, self._pauses = True, call, 0
        try:
            for pause in work:
                self._pauses += 1
                yield pause
        except GeneratorExit:
            raise
        except BaseException as error:
            self._failed(error)
            raise
        finally:
            self._parked, self._call = False, None
            if isinstance(work, Generator):
                work.close()

    def _failed(self, error: BaseException) -> None:
        """It did, or an operator that it gave something to. Somebody's Ctrl-C is no failure."""
        if is_for_the_program(error):
            return
        self._note_clock()
        own = not isinstance(error, OperatorError)
        text = described(error) if own else str(error)
        why = {"own": own, "error": text, "trace": traced(error) if own else ""}
        self._recorder.failed(why)


def _size(keep: Any) -> int:
    values = getattr(keep, "values", b"")
    return len(values)
