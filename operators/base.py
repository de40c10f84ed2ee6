"""What every running operator is, and what its task gives it.

An operator belongs to one subtask and runs on that task's thread only. Batches are pushed into
`process`; results are pushed into the `Output`. The call order the task guarantees:

    setup(ctx, out) -> open() -> { process | process_watermark | on_processing_time | ... }*
      -> end_input(port) for the last port -> finish() -> ... -> close()

State restored from a checkpoint is in `ctx` before `open`. `prepare_snapshot(n)` is called when
the barrier n is at this operator: everything received before it is processed, nothing after it;
whatever must be in the checkpoint has to be in `ctx.keyed_state` / `ctx.operator_state` when it
returns. It may emit records: they go out before the barrier.
After `finish()` (end of all inputs) only snapshots and notifications follow.

Much at once: work in steps. An operator must not emit without end while nobody can take it, nor
keep the task's thread from its mail. `process`, `process_watermark`, `on_processing_time`,
`end_input`, `finish`, `open` and `notify_checkpoint_complete` may therefore return an iterator,
mostly by being generators, or by returning one only where there is much: the rest of the work, as
steps.

    def process(self, batch, port=0):
        if self._few(batch):
            self.out.emit(self._all_of(batch))
            return None                         # the common case: all is done
        return self._in_steps(batch)

    def _in_steps(self, batch):
        for part in self._parts_of(batch):
            self.out.emit(part)                 # about a batch a step
            yield                               # may be left here for any time

* What runs before the first `yield`, and between two, emits about a batch at most and takes some
  milliseconds. (A step that emits nothing is fine: it gives mail its turn.)
* The first step is taken at once. After each the task looks whether all outputs take more; while
  they do not, the work is parked at its `yield`: for milliseconds, for ever, or until it is closed
  (`GeneratorExit`, on failure and cancel).
* While work is parked the operator is called for nothing but `prepare_snapshot` and notifications,
  `close` included: batches, watermarks, statuses, wake-ups and ends wait, in order, until it has
  ended. So what the work needs may be kept in local variables, and "this watermark is behind all
  that it fired" holds by itself: forward it as the last step.
* Checkpoints. A plain `yield` says: what is left to do is known to this work alone. No snapshot is
  taken until it has gone on to its end, or to a pause of the other kind. `yield IN_STATE` says: the
  state tells exactly what has been emitted up to here and what has not; local variables and buffers
  hold nothing that a restored operator would lack. A snapshot taken here, by `prepare_snapshot` as
  at any time, makes a restored operator go on exactly here, at the latest when a watermark, wake-up
  or end comes (the same one again, or a later one), and before it handles records. Then a
  checkpoint gets through while a firing drains into a slow stage. Work on a batch can never say so:
  its records are in no state. A restored operator asks to be woken (`go_on_soon`), so that it goes
  on before anything comes; what a batch, or a watermark that is not in state yet, still finds to be
  done is done `plainly`.
* Waiting. `yield WAITING` is a pause `IN_STATE` of work that can do nothing until it is woken, by
  `ctx.wake` from any thread or by a time asked for with `ctx.wake_at`: requests in flight, say. The
  task does not go on with it before, and may go on spuriously. It takes no input meanwhile, but
  what comes all the same (from an operator ahead in the chain) is given to the operator at once: it
  keeps that in order itself, in state, and returns no work.
* `yield HELD` is a plain pause of work that can do nothing until it is woken, like `WAITING`: no
  snapshot is taken, and what comes waits in order, as behind any work.
* What a pause `IN_STATE` asks besides, for a snapshot may be taken there: behind it slots are
  touched again before they are written (`SlotTable`), and no namespace of a table is left filled
  that is only a scratch pad (`TableState`).

A method that returns None costs nothing of this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Protocol

from ..api.dead_letters import DeadLetters
from ..api.types.declared import Declared, as_declared
from ..core.batch import Batch
from ..core.clock import Clock
from ..core.config import JobConfig
from ..core.elements import LatencyMarker
from ..core.ids import KeyGroupRange, OperatorId
from ..state.backend import KeyedStateBackend
from ..state.expiry import StateTime
from ..state.operator_state import OperatorStateBackend
from .user_metrics import UserMetrics


class Pause(Enum):
    """What work in steps says of the place where it pauses; a plain `yield` says nothing."""

    IN_STATE = "in state"
    """The operator's state describes exactly what has not been emitted yet."""

    WAITING = "waiting"
    """The same, and there is nothing to do until the operator is woken."""

    HELD = "held"
    """There is nothing to do until the operator is woken, and no state tells what is left."""


IN_STATE: Final = Pause.IN_STATE
WAITING: Final = Pause.WAITING
HELD: Final = Pause.HELD

Steps = Iterator[Pause | None]
"""Work in steps; see the module."""

Work = Steps | None
"""What is left to do of a call; None: nothing."""


def run_to_end(work: Work) -> None:
    """Take all steps, whatever the outputs say. For what must not wait, and for tests."""
    if work is not None:
        for _ in work:
            pass


def plainly(work: Work) -> Steps:
    """`work` on the way to something that is in no state: none of its pauses is `IN_STATE`."""
    for _ in work or ():
        yield None


def emit_each(out: Output, batches: Iterable[Batch]) -> Steps:
    """Steps that emit one batch each, with a pause before each but the first. `batches` makes each
    when it is asked for."""
    more = False
    for batch in batches:
        if more:
            yield None
        out.emit(batch)
        more = True


def emit_slices(out: Output, batch: Batch, size: int) -> Work:
    """Emit a batch in slices of at most `size` records, one a step."""
    if len(batch) <= size:
        out.emit(batch)
        return None
    starts = range(0, len(batch), size)
    return emit_each(out, (batch.slice(at, min(size, len(batch) - at)) for at in starts))


def then(work: Work, last: Callable[[], None]) -> Work:
    """`work`, and behind it, or at once if there is none, `last`."""
    if work is None:
        last()
        return None
    return _then(work, last)


def _then(work: Steps, last: Callable[[], None]) -> Steps:
    yield from work
    last()


def pass_watermark(operator: Operator, time: StateTime, timestamp: int) -> Work:
    """What a watermark makes the operator do; once all of it is done, its state hears of it."""
    return then(operator.process_watermark(timestamp), partial(time.passed, timestamp))


def one_by_one(works: Iterable[Work]) -> Work:
    """All of them, in order; None if there is none."""
    some = [work for work in works if work is not None]
    return some[0] if len(some) == 1 else chain(*some) if some else None


class Output(Protocol):
    """Where an operator's results go: the next operator of the chain, or the exchange. Never
    blocks."""

    def emit(self, batch: Batch) -> None:
        """Records to the main output. Empty batches are dropped."""
        ...

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Records to the side output `tag`; dropped if nobody reads it."""
        ...

    def emit_watermark(self, timestamp: int) -> None:
        """Must never decrease."""
        ...

    def emit_status(self, active: bool) -> None:
        """This output turned idle or active."""
        ...

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        """Behind all that was emitted."""
        ...


class DeclaredSides:
    """An output whose side outputs become what they are declared as."""

    def __init__(self, out: Output, declared: Mapping[str, Declared]) -> None:
        self._out = out
        self._declared = declared
        self.emit = out.emit
        self.emit_watermark = out.emit_watermark
        self.emit_status = out.emit_status
        self.emit_latency_marker = out.emit_latency_marker

    def emit_side(self, tag: str, batch: Batch) -> None:
        declared = self._declared.get(tag)
        self._out.emit_side(tag, batch if declared is None else as_declared(batch, declared))


class Metrics(Protocol):
    """Counters and gauges of one operator's subtask, reported to the coordinator now and then."""

    def count(self, name: str, n: int = 1) -> None: ...
    def gauge(self, name: str, value: float) -> None: ...
    def get_count(self, name: str) -> int: ...


@dataclass
class OperatorContext:
    """What a task gives an operator."""

    operator_id: OperatorId
    name: str
    job_id: str
    job_name: str
    subtask: int
    parallelism: int
    max_parallelism: int
    attempt: int
    key_groups: KeyGroupRange
    config: JobConfig
    clock: Clock
    keyed_state: KeyedStateBackend
    operator_state: OperatorStateBackend
    metrics: Metrics
    wake_at: Callable[[int], None]
    """Ask for `on_processing_time` at this time (ms) or soon after; earlier wishes stay valid."""
    wake: Callable[[], None]
    """From any thread. Sources: ask for a `poll` soon. Others: ask for `on_processing_time` soon,
    or if work is parked `WAITING`, that it goes on."""
    report_watermark: Callable[[int | None], None]
    """Sources that align their watermarks: tell the coordinator; None: this subtask holds nobody
    back. The answer, if there is news, arrives as `align`."""
    publish: Callable[[str, Any], None]
    """Send a picklable value to the job's client under a key; a key seen before is dropped."""
    request_splits: Callable[[], None]
    """Sources: ask the enumerator for splits; the answer arrives as
    `add_splits`/`no_more_splits`."""
    restored: bool
    """Whether this subtask starts from a checkpoint."""
    revoke_after: int | None = None
    """Sinks: what later checkpoints than this published must be taken back; None: nothing."""
    token: str = ""
    """Sinks: shows that the job has taken over what they write to; empty: it has not."""
    user_metrics: UserMetrics = field(default_factory=UserMetrics)
    """What user functions of this subtask register."""
    uid: str | None = None
    """That the program gave the operator."""
    threads: bool = True
    """Whether an operator may start threads. False where one thread does everything in steps under
    a virtual clock (simulator, operator harness): what a thread would do is done bit by bit when
    the operator is woken."""


class Operator(ABC):
    """Base of all operators."""

    ctx: OperatorContext
    out: Output

    only_reads: bool = False
    """Whether a batch is done with when `process` returns, unchanged and without a pause ever: such
    an operator may share its records with one that changes them afterwards."""

    side_types: Mapping[str, Declared] = MappingProxyType({})
    """What the program declares side outputs as, by tag."""

    on_error: DeadLetters | None = None
    """Where a record goes for which a function raises; None: the job fails. Only of operators that
    write letters (`operators/letters.py`)."""

    def setup(self, ctx: OperatorContext, out: Output) -> None:
        self.ctx = ctx
        self.out = DeclaredSides(out, self.side_types) if self.side_types else out

    def open(self) -> Work:
        """Create functions, bind state. May emit nothing. An operator that pauses `IN_STATE` calls
        `go_on_soon` here, if its state tells of a firing that a snapshot was taken in."""
        return None

    def go_on_soon(self) -> None:
        """In `open`: have `on_processing_time` called as soon as the task runs."""
        self.ctx.wake_at(self.ctx.clock.now_ms())

    @abstractmethod
    def process(self, batch: Batch, port: int = 0) -> Work:
        """Handle records of input `port` (0 for one-input operators). Never called with an empty
        batch."""

    def process_watermark(self, timestamp: int) -> Work:
        """Event time reached `timestamp` on all inputs together. Fire what is due, then forward."""
        self.out.emit_watermark(timestamp)
        return None

    def process_status(self, active: bool) -> None:
        """All inputs together turned idle or active."""
        self.out.emit_status(active)

    def process_latency_marker(self, marker: LatencyMarker) -> None:
        """All records before it were handed over. Forward it, behind those that go out for them as
        they come; records that wait for their time (in windows, say) it does not wait for."""
        self.out.emit_latency_marker(marker)

    def end_input(self, port: int) -> Work:
        """No more records come on this port; called for each port, the last one before `finish`.
        The watermark is the other ports' alone from here on. May emit."""
        return None

    def on_processing_time(self, now_ms: int) -> Work:
        """A time asked for with `ctx.wake_at` has come. May be called early or spuriously; late,
        and once for several times asked for, where outputs were full."""
        return None

    def finish(self) -> Work:
        """All inputs ended (the watermark is at its maximum already). Emit what is left."""
        return None

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Put into state whatever is kept outside it. Work of this operator may be parked at a
        pause `IN_STATE`, and goes on afterwards."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> Work:
        """Checkpoint `checkpoint_id` is durable. Earlier ones may have been skipped. Called also
        while work is parked, the rest of an earlier call's included, behind which what this one
        returns is done."""
        return None

    @property
    def holds_end(self) -> bool:
        """Whether, though the terminal checkpoint is complete, the task must not end yet: the
        operator does the rest when it is woken."""
        return False

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Checkpoint `checkpoint_id` will never complete."""

    def close(self) -> None:
        """Release everything; called exactly once, also on failure and cancel. Must not raise."""


class PollStatus(Enum):
    """What a source operator says after one `poll`."""

    MORE = "more"
    IDLE = "idle"
    """Nothing to do until woken by `wake_at` or new splits."""
    ENDED = "ended"
    """Every split is read and there will be no more."""


class SourceOperator(Operator):
    """Head of a chain without inputs. `poll` emits at most about one batch per call, and is not
    called while an operator behind it has work parked or an output is full."""

    @abstractmethod
    def poll(self) -> PollStatus: ...

    @abstractmethod
    def add_splits(self, splits: list[Any]) -> None: ...

    @abstractmethod
    def no_more_splits(self) -> None: ...

    @abstractmethod
    def end(self) -> None:
        """Read no more: the next poll ends the source as if it had come to its end, emits nothing
        before, and what is not read stays in its state. No effect on one that has ended."""

    def align(self, limit_ms: int | None) -> None:
        """Splits whose watermark is beyond the limit wait; None: none does. The answer to
        `ctx.report_watermark`."""

    def process(self, batch: Batch, port: int = 0) -> Work:
        raise AssertionError("a source has no input")
