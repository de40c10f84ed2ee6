"""The operators of a task, wired into each other.

A batch pushed into the head runs through the whole chain by plain calls. Errors are caught at the
operator they come from, so that they name it; that costs one `try` per operator and batch.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ...core.batch import Batch
from ...core.clock import Clock
from ...core.codes import CodeWidener
from ...core.elements import CheckpointBarrier, Control, EndOfData, StreamStatus, Watermark
from ...core.errors import OperatorError, StromError, next_advice
from ...core.ids import CheckpointId, OperatorId
from ...operators.base import Operator, OperatorContext, SourceOperator
from ...operators.registry import build_operator
from ...state.key_groups import range_for
from ...state.memory import MemoryKeyedStateBackend
from ...state.operator_state import OperatorStateBackend
from ..graph.model import ChainedOperator
from .deployment import TaskDeployment
from .edges import EdgeWriter
from .metrics import OperatorMetrics
from .wakeups import Wakeups


class ChainNode:
    """One operator in its place: calls it, counts, and names it in errors. Also its `Output`."""

    def __init__(self, operator: Operator, metrics: OperatorMetrics, subtask: int) -> None:
        self.operator = operator
        self.metrics = metrics
        self.subtask = subtask
        self.inner: list[tuple[ChainNode, int]] = []
        self.outer: list[EdgeWriter] = []
        self.inner_tagged: dict[str, list[tuple[ChainNode, int]]] = {}
        self.outer_tagged: dict[str, list[EdgeWriter]] = {}
        self._widen = CodeWidener()

    # --- called by the task or the node before ------------------------------------------

    def process(self, batch: Batch, port: int) -> None:
        self.metrics.records_in += len(batch)
        try:
            self.operator.process(batch, port)
        except (OperatorError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self.attribute(error) from error

    def guard(self, call: Callable[..., Any], *args: Any) -> Any:
        """Run one of the operator's methods; errors come out as OperatorError, also SystemExit and
        what else user code can raise that is no Exception."""
        try:
            return call(*args)
        except (OperatorError, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise self.attribute(error) from error

    def attribute(self, error: BaseException) -> OperatorError:
        """The error with the operator's name on it; strom's own errors need no traceback."""
        summary = f"{type(error).__name__}: {_text(error)}"
        cause = "" if isinstance(error, StromError) else "".join(traceback.format_exception(error))
        return OperatorError(self.metrics.name, self.subtask, summary, cause)

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
        for node in self._consumers():
            node.guard(node.operator.process_watermark, timestamp)
        self._broadcast(Watermark(timestamp))

    def emit_status(self, active: bool) -> None:
        for node in self._consumers():
            node.guard(node.operator.process_status, active)
        self._broadcast(StreamStatus(active))

    def _consumers(self) -> list[ChainNode]:
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
        specs = deployment.vertex.operators
        for chained in specs:
            self._add(chained, clock, wakeups, publish, request_splits)
        for node, chained in zip(self.nodes, specs, strict=True):
            self._wire(node, chained)
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
        operator = build_operator(chained.spec)
        node = ChainNode(operator, metrics, d.task.subtask)
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
            wake_at=wakeups.register(partial(node.guard, operator.on_processing_time)),
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
        """`only_commits`: nobody will start from this checkpoint, so it only matters to sinks."""
        operators = self.deployment.vertex.operators
        for node, chained in zip(self.nodes, operators, strict=True):
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

    def finish(self) -> None:
        """End of all inputs: let every operator emit what is left, then close the outputs."""
        for node in self.nodes:
            node.guard(node.operator.finish)
        for writer in self.writers.values():
            writer.broadcast(EndOfData())

    @property
    def available(self) -> bool:
        """Whether every output takes more."""
        return all(writer.available for writer in self.writers.values())

    def close(self) -> list[Exception]:
        """Close what was opened; what they raised is returned, never thrown."""
        errors: list[Exception] = []
        while self._opened:
            node = self._opened.pop(0)
            try:
                node.operator.close()
            except Exception as error:
                errors.append(node.attribute(error))
        return errors

    def metrics(self) -> dict[str, Any]:
        return {
            context.operator_id: node.metrics.snapshot()
            for context, node in zip(self.contexts, self.nodes, strict=True)
        }


def _text(error: BaseException) -> str:
    """What the error says; a user's exception may be unable to say it."""
    try:
        return str(error) + next_advice(error)
    except Exception as second:
        return f"(its text cannot be had: {type(second).__name__})"
