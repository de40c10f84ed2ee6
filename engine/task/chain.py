"""The operators of a task, wired into each other.

A batch pushed into the head runs through the whole chain by plain calls. Errors are caught at the
operator they come from, so that they name it; that costs one `try` per operator and batch.

What an operator does not finish at once (see `operators.base`: work in steps) its node carries on
while all that lies behind it takes more, else parks. A node with parked work is *busy*: what comes
to it waits there, in order. The task resumes busy nodes, the last one first, before it takes any
input; an operator ahead of a busy node looks at its own pauses, so that no more than about a batch
of each operator waits anywhere in the chain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any

from ...core.batch import Batch
from ...core.clock import Clock
from ...core.codes import CodeWidener
from ...core.elements import CheckpointBarrier, Control, EndOfData, StreamStatus, Watermark
from ...core.errors import OperatorError, StromError
from ...core.failure_text import described, is_for_the_program, traced, with_place
from ...core.ids import CheckpointId, OperatorId
from ...operators.base import IN_STATE, Operator, OperatorContext, SourceOperator, Steps, Work
from ...operators.registry import build_operator
from ...state.key_groups import range_for
from ...state.memory import MemoryKeyedStateBackend
from ...state.operator_state import OperatorStateBackend
from ..graph.model import ChainedOperator
from .deployment import TaskDeployment
from .edges import EdgeWriter
from .metrics import OperatorMetrics
from .slices import Slice
from .wakeups import Wakeups

Call = tuple[Callable[..., Work], tuple[Any, ...], int]
"""A call of an operator that waits: the method, its arguments, how many records it brings."""


class ChainNode:
    """One operator in its place: calls it, counts, and names it in errors. Also its `Output`.

    Carries on its work in steps, and keeps what comes meanwhile; see the module."""

    def __init__(
        self, operator: Operator, metrics: OperatorMetrics, subtask: int, slice_: Slice
    ) -> None:
        self.operator = operator
        self.metrics = metrics
        self.subtask = subtask
        self.busy = False
        """Whether it has something to go on with: parked work, calls or a wake-up that wait."""
        self._slice = slice_
        self._work: Steps | None = None
        """The operator's unfinished work, parked or being carried on."""
        self._in_state = False
        """Whether `_work` stands at a pause where a snapshot may be taken."""
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

    # --- called by the task or the node before ------------------------------------------

    def process(self, batch: Batch, port: int) -> None:
        if self.busy:
            self._calls.append((self.operator.process, (batch, port), len(batch)))
            return
        self.metrics.records_in += len(batch)
        try:
            work = self.operator.process(batch, port)
        except OperatorError:
            raise
        except BaseException as error:
            raise self.attribute(error) from error
        if work is not None:
            self._begin(work)

    def process_watermark(self, timestamp: int) -> None:
        self._call(self.operator.process_watermark, timestamp)

    def process_status(self, active: bool) -> None:
        self._call(self.operator.process_status, active)

    def end_input(self, port: int) -> None:
        self._call(self.operator.end_input, port)

    def finish(self) -> None:
        self._call(self.operator.finish)

    def wake(self, now_ms: int) -> None:
        """A time that the operator asked for has come. Waits while outputs are full: an alarm that
        goes off again and again must not fill memory."""
        if self.busy or not self.takes_more:
            self._wake_ms = now_ms
            self.busy = True
        else:
            self._call(self.operator.on_processing_time, now_ms)

    def _call(self, method: Callable[..., Work], *args: Any) -> None:
        """Call it now, or when all that came before is done."""
        if self.busy:
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
        return all(writer.available for writer in self._writers)

    @property
    def settled(self) -> bool:
        """Whether a snapshot may be taken: nothing waits that only this node knows of."""
        return not self._calls and (self._work is None or self._in_state)

    def _begin(self, work: Steps) -> None:
        self._work = work
        self.busy = True
        self.go_on()

    def go_on(self) -> None:
        """Take a step, and more while all behind takes more and the slice is not over. Only while
        busy."""
        while self._step():
            if self._slice.over() or not self.takes_more:
                return

    def complete(self) -> None:
        """Take all steps, whether or not anybody takes more."""
        while self.busy:
            self._step()

    def _step(self) -> bool:
        """One step of the work, or the next call that waits; whether the node is still busy."""
        if self._work is not None:
            self._advance(self._work)
        elif self._calls:
            method, args, records = self._calls.popleft()
            self.metrics.records_in += records
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
            self._work = work
            self._advance(work)

    def _advance(self, work: Steps) -> None:
        self._in_state = False
        try:
            self._in_state = next(work) is IN_STATE
        except StopIteration:
            self._work = None
        except OperatorError:
            raise
        except BaseException as error:
            raise self.attribute(error) from error

    def close(self) -> None:
        """End parked work, then the operator, also if ending the work fails. Raises what they
        raise; nothing that waits is done any more."""
        work, self._work, self.busy = self._work, None, False
        self._calls.clear()
        try:
            if isinstance(work, Generator):
                work.close()
        finally:
            self.operator.close()

    # --- errors --------------------------------------------------------------------------

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
        """The error with the operator's name on it; strom's own errors need no traceback. Raises
        the error itself if it is somebody's Ctrl-C."""
        if is_for_the_program(error):
            raise error
        if isinstance(error, StromError):
            return OperatorError(self.metrics.name, self.subtask, described(error))
        return OperatorError(self.metrics.name, self.subtask, with_place(error), traced(error))

    # --- Output, called by the operator -------------------------------------------------

    def emit(self, batch: Batch) -> None:
        if not len(batch):
            return
        self.metrics.records_out += len(batch)
        batch = self._widen(batch)
        for node, port in self.inner:
            node.process(batch, port)
        for writer in self.outer:
            writer.emit(batch)

    def emit_side(self, tag: str, batch: Batch) -> None:
        if not len(batch):
            return
        batch = self._widen(batch)
        for node, port in self.inner_tagged.get(tag, ()):
            node.process(batch, port)
        for writer in self.outer_tagged.get(tag, ()):
            writer.emit(batch)

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


class OperatorChain:
    """All operators of one task. Lifecycle: construct, `open`, data and snapshots, `close` once."""

    def __init__(
        self,
        deployment: TaskDeployment,
        writers: Mapping[int, EdgeWriter],
        clock: Clock,
        wakeups: Wakeups,
        publish: Callable[[OperatorId, str, Any], None],
        request_splits: Callable[[OperatorId], None],
    ) -> None:
        self.deployment = deployment
        self.writers = writers
        self.contexts: list[OperatorContext] = []
        self.nodes: list[ChainNode] = []
        """In order of the flow: every node after those that feed it."""
        self._slice = Slice(clock)
        self.finished = 0
        """How many of `nodes` were told to finish."""
        specs = deployment.vertex.operators
        for chained in specs:
            self._add(chained, clock, wakeups, publish, request_splits)
        for node, chained in zip(self.nodes, specs, strict=True):
            self._wire(node, chained)
        for node in reversed(self.nodes):
            node.wired()
        self._opened: list[ChainNode] = []

    def _add(
        self,
        chained: ChainedOperator,
        clock: Clock,
        wakeups: Wakeups,
        publish: Callable[[OperatorId, str, Any], None],
        request_splits: Callable[[OperatorId], None],
    ) -> None:
        d = self.deployment
        metrics = OperatorMetrics(chained.name)
        operator = build_operator(chained.spec, chained.implementation)
        node = ChainNode(operator, metrics, d.task.subtask, self._slice)
        groups = range_for(d.task.subtask, d.vertex.parallelism, d.vertex.max_parallelism)
        context = OperatorContext(
            operator_id=chained.operator_id,
            name=chained.name,
            job_id=d.job_id,
            job_name=d.job_name,
            subtask=d.task.subtask,
            parallelism=d.vertex.parallelism,
            max_parallelism=d.vertex.max_parallelism,
            attempt=d.attempt,
            key_groups=groups,
            config=d.config,
            clock=clock,
            keyed_state=MemoryKeyedStateBackend(groups, d.vertex.max_parallelism),
            operator_state=OperatorStateBackend(),
            metrics=metrics,
            wake_at=wakeups.register(node.wake),
            publish=partial(publish, chained.operator_id),
            request_splits=partial(request_splits, chained.operator_id),
            restored=d.restore is not None,
            revoke_after=d.restore.checkpoint_id if d.revoke and d.restore is not None else None,
        )
        self.contexts.append(context)
        self.nodes.append(node)

    def _wire(self, node: ChainNode, chained: ChainedOperator) -> None:
        for edge in chained.inner:
            target = (self.nodes[edge.target], edge.port)
            if edge.tag is None:
                node.inner.append(target)
            else:
                node.inner_tagged.setdefault(edge.tag, []).append(target)
        for edge_id in chained.outer:
            writer = self.writers[edge_id]
            if writer.edge.tag is None:
                node.outer.append(writer)
            else:
                node.outer_tagged.setdefault(writer.edge.tag, []).append(writer)

    @property
    def head(self) -> ChainNode:
        return self.nodes[0]

    @property
    def source(self) -> SourceOperator | None:
        """The head, when it is a source."""
        operator = self.nodes[0].operator
        return operator if isinstance(operator, SourceOperator) else None

    def open(self) -> None:
        """Set up and open all operators, last first, so that each finds its consumers ready."""
        for node, context in zip(self.nodes, self.contexts, strict=True):
            node.operator.setup(context, node)
        for node in reversed(self.nodes):
            self._opened.append(node)
            node.guard(node.operator.open)

    def prepare_snapshot(self, checkpoint_id: CheckpointId, only_commits: bool = False) -> None:
        """Only when `settled`. `only_commits`: nobody will start from this checkpoint, so it only
        matters to sinks. What an operator emits while preparing comes through the nodes behind it
        before they prepare, whatever is parked there."""
        operators = self.deployment.vertex.operators
        for node, chained in zip(self.nodes, operators, strict=True):
            if not node.settled:
                node.complete()
            if chained.is_sink or not only_commits:
                node.guard(node.operator.prepare_snapshot, checkpoint_id)

    def send_barrier(self, barrier: CheckpointBarrier) -> None:
        for writer in self.writers.values():
            writer.broadcast(barrier)

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        for node in self.nodes:
            node.guard(node.operator.notify_checkpoint_complete, checkpoint_id)

    def notify_aborted(self, checkpoint_id: CheckpointId) -> None:
        for node in self.nodes:
            node.guard(node.operator.notify_checkpoint_aborted, checkpoint_id)

    # --- work in steps -------------------------------------------------------------------

    def begin_slice(self) -> None:
        """A step of the task begins: operators may work for some milliseconds."""
        self._slice.begin()

    @property
    def busy(self) -> bool:
        """Whether an operator has work parked, or something waits for it. No input meanwhile."""
        return any(node.busy for node in self.nodes)

    @property
    def available(self) -> bool:
        """Whether every output takes more."""
        return all(writer.available for writer in self.writers.values())

    @property
    def settled(self) -> bool:
        """Whether a snapshot may be taken: the operators' states and outputs tell everything that
        came in. So it is when nothing is parked, or only work that says so (`IN_STATE`)."""
        return all(node.settled for node in self.nodes)

    def resume(self) -> bool:
        """Go on with what is parked, as far as outputs and time allow; whether anything was done.
        The last node first: it makes room for those before it."""
        done = False
        for node in reversed(self.nodes):
            if node.busy and node.takes_more:
                node.go_on()
                done = True
        return done

    def finish(self) -> bool:
        """End of all inputs: let every operator emit what is left, each once all before it are
        done, then close the outputs; as far as these take it. Called again until true."""
        while self.finished < len(self.nodes):
            if self.busy or not self.available:
                return False
            self.finished += 1
            self.nodes[self.finished - 1].finish()
        if self.busy:
            return False
        for writer in self.writers.values():
            writer.broadcast(EndOfData())
        return True

    def close(self) -> list[OperatorError]:
        """Close what was opened; what they raised is returned, never thrown."""
        errors: list[OperatorError] = []
        while self._opened:
            node = self._opened.pop(0)
            try:
                node.close()
            except BaseException as error:
                errors.append(node.attribute(error))
        return errors

    def metrics(self) -> dict[str, Any]:
        return {
            context.operator_id: node.metrics.snapshot()
            for context, node in zip(self.contexts, self.nodes, strict=True)
        }
