"""One operator of a chain: its calls, its parked work, its errors, and what it emits.

What an operator does not finish at once (see `operators.base`: work in steps) its node carries on
while all that lies behind it takes more, else parks. A node with parked work is *busy*: what comes
to it waits there, in order. The task resumes busy nodes (`chain`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from ...core.batch import Batch
from ...core.codes import CodeWidener
from ...core.elements import Control, LatencyMarker, StreamStatus, Watermark
from ...core.errors import OperatorError, StromError
from ...core.failure_text import (
    described,
    is_for_the_program,
    traced,
    users_place,
    with_place,
)
from ...logs.scope import LogScope, tells_scope
from ...operators.base import (
    HELD,
    IN_STATE,
    WAITING,
    Operator,
    Steps,
    Work,
    pass_watermark,
)
from ...state.copies import own_batch
from ...state.expiry import StateTime
from .edges import EdgeWriter
from .metrics import OperatorMetrics
from .slices import Slice

Call = tuple[Callable[..., Work], tuple[Any, ...], int]
"""A call of an operator that waits: the method, its arguments, how many records it brings."""


_COPY = (
    "records that several operators read are copied, so that none sees what another changes "
    "(env.get_config().enable_object_reuse() gives all the same objects)"
)


class ChainNode:
    """One operator in its place: calls it, counts, and names it in errors. Also its `Output`.

    Carries on its work in steps, and keeps what comes meanwhile; see the module."""

    def __init__(
        self,
        operator: Operator,
        metrics: OperatorMetrics,
        subtask: int,
        slice_: Slice,
        shares: bool = False,
    ) -> None:
        """shares: all readers of a batch get the same objects."""
        self.operator = operator
        self.metrics = metrics
        self.subtask = subtask
        self.busy = False
        """Whether it has something to go on with: parked work, calls or a wake-up that wait."""
        self._slice = slice_
        self._shares = shares
        self._work: Steps | None = None
        """The operator's unfinished work, parked or being carried on."""
        self._in_state = False
        """Whether `_work` stands at a pause where a snapshot may be taken."""
        self._waiting = False
        """Whether `_work` can do nothing until the operator is woken. It is `_in_state` then."""
        self._held = False
        """The same of work that is not `_in_state`."""
        self._calls: deque[Call] = deque()
        """What came while the node was busy."""
        self._wake_ms: int | None = None
        """The time of a wake-up that waits; of several, the last."""
        self._writers: list[EdgeWriter] = []
        """All to which the output of this node comes, also through others; set by `wired`."""
        self._behind: list[ChainNode] = []
        """All nodes to which it comes."""
        self.inner: list[tuple[ChainNode, int]] = []
        self.outer: list[EdgeWriter] = []
        self.inner_tagged: dict[str, list[tuple[ChainNode, int]]] = {}
        self.outer_tagged: dict[str, list[EdgeWriter]] = {}
        self._widen = CodeWidener()
        self.time: StateTime | None = None
        """Of the operator's keyed state; set by the chain."""
        self.log_scope: LogScope | None = None
        """Who says what is logged while the operator is called; set by the chain."""

    # --- called by the task or the node before ------------------------------------------

    @tells_scope
    def process(self, batch: Batch, port: int) -> None:
        if self.busy and not self._hears:
            self._calls.append((self.operator.process, (batch, port), len(batch)))
            return
        self.metrics.records_in += len(batch)
        if self.time is not None and self.time.states:
            self.time.begin(len(batch))
        try:
            work = self.operator.process(batch, port)
        except OperatorError:
            raise
        except BaseException as error:
            raise self.attribute(error) from error
        if work is not None:
            self._begin(work)

    def process_watermark(self, timestamp: int) -> None:
        self.metrics.input_watermark = timestamp
        if self.time is None:
            self._call(self.operator.process_watermark, timestamp)
        else:
            self._call(pass_watermark, self.operator, self.time, timestamp)

    def process_status(self, active: bool) -> None:
        self._call(self.operator.process_status, active)

    def process_latency_marker(self, marker: LatencyMarker) -> None:
        self._call(self._pass_marker, marker)

    def _pass_marker(self, marker: LatencyMarker) -> None:
        self.metrics.passed(marker)
        self.operator.process_latency_marker(marker)

    def end_input(self, port: int) -> None:
        self._call(self.operator.end_input, port)

    def finish(self) -> None:
        self._call(self.operator.finish)

    def tell(self, method: Callable[..., Work], *args: Any) -> None:
        """Call it now, whatever waits here; the rest of its work is done behind that."""
        work = self.guard(method, *args)
        if work is not None:
            self._call(lambda: work)

    def wake(self, now_ms: int) -> None:
        """A time that the operator asked for has come, or it was woken. Waits while outputs are
        full: an alarm that goes off again and again must not fill memory."""
        if self._waiting or self._held:
            self._waiting = self._held = False
        elif self.busy or not self.takes_more:
            self._wake_ms = now_ms
            self.busy = True
        else:
            self._call(self.operator.on_processing_time, now_ms)

    def _call(self, method: Callable[..., Work], *args: Any) -> None:
        """Call it now, or when all that came before is done."""
        if self.busy and not self._hears:
            self._calls.append((method, args, 0))
        elif (work := self.guard(method, *args)) is not None:
            self._begin(work)

    # --- work in steps -------------------------------------------------------------------

    @property
    def takes_more(self) -> bool:
        """Whether what this node emits would be taken: no node behind it is busy, and no exchange
        that it reaches is full."""
        for node in self._behind:
            if node.busy:
                return False
        for writer in self._writers:  # noqa: SIM110 - asked at each step of each task
            if not writer.available:
                return False
        return True

    @property
    def settled(self) -> bool:
        """Whether a snapshot may be taken: nothing waits that only this node knows of."""
        return not self._calls and (self._work is None or self._in_state)

    @property
    def can_go_on(self) -> bool:
        """Whether a step can be taken now; not while the work waits to be woken."""
        return self.busy and not self._hears and not self._held

    @property
    def _hears(self) -> bool:
        """Whether the operator is called though work is parked: that waits, and all that came
        before was handed over."""
        return self._waiting and not self._calls

    def _begin(self, work: Steps) -> None:
        self._hold(work)
        self.busy = True
        self.go_on()

    def _hold(self, work: Steps) -> None:
        if self._work is not None:
            text = "it began more work while its work waits to be woken: see operators.base"
            raise OperatorError(self.metrics.name, self.subtask, text)
        self._work = work

    def go_on(self) -> None:
        """Take a step, and more while all behind takes more and the slice is not over, up to the
        next pause where a snapshot may be taken: one may be waiting for it, and if outputs are full
        the pauses at which work is parked may all be others. Only while busy."""
        while self._step():
            settled = self._in_state and not self._calls
            if settled or self._held or self._slice.over() or not self.takes_more:
                return

    def complete(self) -> None:
        """Take all steps that can be taken, whether or not anybody takes more."""
        while self.can_go_on:
            self._step()

    def _step(self) -> bool:
        """One step of the work, or the next call that waits; whether the node is still busy."""
        if self._held:
            return self.busy
        if self._work is not None and not self._waiting:
            self._advance(self._work)
        elif self._calls:
            method, args, records = self._calls.popleft()
            self.metrics.records_in += records
            if records and self.time is not None and self.time.states:
                self.time.begin(records)
            self._start(method, *args)
        elif self._wake_ms is not None:
            now_ms, self._wake_ms = self._wake_ms, None
            self._start(self.operator.on_processing_time, now_ms)
        self.busy = self._work is not None or bool(self._calls) or self._wake_ms is not None
        return self.busy

    def _start(self, method: Callable[..., Work], *args: Any) -> None:
        """Begin with a call that waited, as far as its first pause."""
        work = self.guard(method, *args)
        if work is not None:
            self._hold(work)
            self._advance(work)

    @tells_scope
    def _advance(self, work: Steps) -> None:
        self._in_state = self._waiting = self._held = False
        try:
            pause = next(work)
            self._in_state = pause is IN_STATE or pause is WAITING
            if pause is WAITING:  # a wake-up that came meanwhile was for this work
                self._waiting = self._wake_ms is None
                self._wake_ms = None
            elif pause is HELD:
                self._held = self._wake_ms is None
                self._wake_ms = None
        except StopIteration:
            self._work = None
        except OperatorError:
            raise
        except BaseException as error:
            raise self.attribute(error) from error

    @tells_scope
    def close(self) -> None:
        """End parked work, then the operator, also if ending the work fails. Raises what they
        raise; nothing that waits is done any more."""
        work, self._work, self.busy = self._work, None, False
        self._waiting = self._held = False
        self._calls.clear()
        try:
            if isinstance(work, Generator):
                work.close()
        finally:
            self.operator.close()

    # --- errors --------------------------------------------------------------------------

    @tells_scope
    def guard(self, call: Callable[..., Any], *args: Any) -> Any:
        """Run one of the operator's methods; errors come out as OperatorError, also SystemExit and
        what else user code can raise that is no Exception. Ctrl-C stays what it is."""
        try:
            return call(*args)
        except OperatorError:
            raise
        except BaseException as error:
            raise self.attribute(error) from error

    def attribute(self, error: BaseException) -> OperatorError:
        """The error with the operator's name on it; strom's own errors need no traceback, only the
        user's line that they come from, if one does. Raises the error itself if it is somebody's
        Ctrl-C."""
        if is_for_the_program(error):
            raise error
        if isinstance(error, StromError):
            text = described(error) + users_place(error)
            made = OperatorError(self.metrics.name, self.subtask, text)
            made.recoverable, made.fenced = error.recoverable, error.fenced
            return made
        return OperatorError(self.metrics.name, self.subtask, with_place(error), traced(error))

    # --- Output, called by the operator -------------------------------------------------

    def emit(self, batch: Batch) -> None:
        if not len(batch):
            return
        self.metrics.records_out += len(batch)
        batch = self._widen(batch)
        inner, outer = self.inner, self.outer
        if len(inner) + len(outer) == 1:
            for node, port in inner:
                node.process(batch, port)
            for writer in outer:
                writer.emit(batch)
        else:
            self._emit_to_all(batch, inner, outer)

    def emit_side(self, tag: str, batch: Batch) -> None:
        if not len(batch):
            return
        batch = self._widen(batch)
        self._emit_to_all(batch, self.inner_tagged.get(tag, []), self.outer_tagged.get(tag, []))

    def _emit_to_all(
        self, batch: Batch, inner: list[tuple[ChainNode, int]], outer: list[EdgeWriter]
    ) -> None:
        """To each reader as its own: a function may change what it gets. All are made before the
        first one reads, but for those that are done with a batch before others get it."""
        count = len(inner) + len(outer)
        if self._shares:
            own = [batch] * count
        else:
            first = sum(node.operator.only_reads for node, _ in inner)
            if first:
                inner = sorted(inner, key=lambda one: not one[0].operator.only_reads)
            own = [own_batch(batch, _COPY) if at > first else batch for at in range(count)]
        for (node, port), part in zip(inner, own, strict=False):
            node.process(part, port)
        for writer, part in zip(outer, own[len(inner) :], strict=True):
            writer.emit(part)

    def emit_watermark(self, timestamp: int) -> None:
        if timestamp <= self.metrics.watermark:
            return
        self.metrics.watermark = timestamp
        for node in self.consumers():
            node.process_watermark(timestamp)
        self._broadcast(Watermark(timestamp))

    def emit_status(self, active: bool) -> None:
        for node in self.consumers():
            node.process_status(active)
        self._broadcast(StreamStatus(active))

    def emit_latency_marker(self, marker: LatencyMarker) -> None:
        for node in self.consumers():
            node.process_latency_marker(marker)
        for writer in self.outer:
            writer.send_to_one(marker)
        for tagged in self.outer_tagged.values():
            for writer in tagged:
                writer.send_to_one(marker)

    def consumers(self) -> list[ChainNode]:
        """The nodes that this one feeds, each once."""
        nodes = [node for node, _ in self.inner]
        for tagged in self.inner_tagged.values():
            nodes.extend(node for node, _ in tagged)
        return list(dict.fromkeys(nodes))

    def _broadcast(self, element: Control) -> None:
        for writer in self.outer:
            writer.broadcast(element)
        for tagged in self.outer_tagged.values():
            for writer in tagged:
                writer.broadcast(element)

    def wired(self) -> None:
        """All consumers are known, and have been told so."""
        behind: dict[ChainNode, None] = {}
        writers = [*self.outer, *(w for tagged in self.outer_tagged.values() for w in tagged)]
        for node in self.consumers():
            behind |= dict.fromkeys([node, *node._behind])
            writers += node._writers
        self._behind = list(behind)
        self._writers = list(dict.fromkeys(writers))
