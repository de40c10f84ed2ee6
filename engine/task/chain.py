"""The operators of a task, wired into each other.

A batch pushed into the head runs through the whole chain by plain calls. Errors are caught at the
operator they come from (`chain_node`), so that they name it; that costs one `try` per operator and
batch.

The task resumes nodes with parked work, the last one first, before it takes any input; an operator
ahead of a busy node looks at its own pauses, so that no more than about a batch of each operator
waits anywhere in the chain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...core.clock import Clock
from ...core.elements import CheckpointBarrier, Element, EndOfData
from ...core.errors import OperatorError
from ...core.ids import CheckpointId, OperatorId
from ...operators.base import (
    OperatorContext,
    SourceOperator,
)
from ...operators.registry import build_operator
from ...state.key_groups import range_for
from ...state.keyed_state import KeyedStates
from ...state.operator_state import OperatorStateBackend
from ..exchange.endpoint import OutputChannel
from ..exchange.pickling import parcel
from ..graph.model import ChainedOperator
from .chain_node import ChainNode
from .deployment import TaskDeployment
from .edges import EdgeWriter
from .metrics import OperatorMetrics
from .recorded_operator import RecordedOperator
from .recording import recorded
from .slices import Slice
from .wakeups import Wakeups


class OperatorChain:
    """All operators of one task. Lifecycle: construct, `open`, data and snapshots, `close` once."""

    def __init__(
        self,
        deployment: TaskDeployment,
        writers: Mapping[int, EdgeWriter],
        clock: Clock,
        wakeups: Wakeups,
        commits: Wakeups,
        publish: Callable[[OperatorId, str, Any], None],
        request_splits: Callable[[OperatorId], None],
        wake: Callable[[Callable[[], None]], None],
        report_watermark: Callable[[OperatorId, int | None], None],
        threads: bool,
    ) -> None:
        """`commits`: for the times that sinks ask for. `wake` runs a call on the task's thread
        soon, from any thread, and before it takes input. `threads`: see `OperatorContext`."""
        self.deployment = deployment
        self.writers = writers
        self.contexts: list[OperatorContext] = []
        self.nodes: list[ChainNode] = []
        """In order of the flow: every node after those that feed it."""
        self._recorded: list[RecordedOperator] = []
        self._slice = Slice(clock)
        self._states = KeyedStates(deployment.config.state)
        self.finished = 0
        """How many of `nodes` were told to finish."""
        specs = deployment.vertex.operators
        for chained in specs:
            times = commits if chained.is_sink else wakeups
            self._add(
                chained, clock, times, publish, request_splits, wake, report_watermark, threads
            )
        for node, chained in zip(self.nodes, specs, strict=True):
            self._wire(node, chained)
        for node in reversed(self.nodes):
            node.wired()
        self._sinks = [n for n, s in zip(self.nodes, specs, strict=True) if s.is_sink]
        self._opened: list[ChainNode] = []

    def _add(
        self,
        chained: ChainedOperator,
        clock: Clock,
        wakeups: Wakeups,
        publish: Callable[[OperatorId, str, Any], None],
        request_splits: Callable[[OperatorId], None],
        wake: Callable[[Callable[[], None]], None],
        report_watermark: Callable[[OperatorId, int | None], None],
        threads: bool,
    ) -> None:
        d = self.deployment
        metrics = OperatorMetrics(chained.name, clock.monotonic(), clock.now_ms)
        operator = build_operator(chained.spec, chained.implementation)
        its_clock = clock
        if d.config.record.path is not None:
            emitted = partial(getattr, metrics, "watermark")
            operator, its_clock = recorded(d, chained, operator, clock, threads, emitted)
            if isinstance(operator, RecordedOperator):
                self._recorded.append(operator)
        node = ChainNode(operator, metrics, d.task.subtask, self._slice, d.config.object_reuse)
        most, deal = d.vertex.max_parallelism, d.vertex.deal
        groups = range_for(d.task.subtask, d.vertex.parallelism, most, deal)
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
            clock=its_clock,
            keyed_state=self._states.make(
                groups, d.vertex.max_parallelism, its_clock, chained.state_backend
            ),
            operator_state=OperatorStateBackend(d.task.subtask),
            metrics=metrics,
            wake_at=wakeups.register(node.wake),
            wake=partial(wake, lambda: self._woken(node, clock)),
            report_watermark=partial(report_watermark, chained.operator_id),
            publish=partial(publish, chained.operator_id),
            request_splits=partial(request_splits, chained.operator_id),
            restored=d.restore is not None,
            revoke_after=d.restore.checkpoint_id if d.revoke and d.restore is not None else None,
            uid=chained.uid,
            token=d.tokens.get(str(chained.operator_id), ""),
            threads=threads,
        )
        node.time = context.keyed_state.time
        name, operator_id = chained.name, str(chained.operator_id)
        node.log_scope = replace(d.log_scope, operator=name, operator_id=operator_id)
        self.contexts.append(context)
        self.nodes.append(node)

    @staticmethod
    def _woken(node: ChainNode, clock: Clock) -> None:
        """The operator has asked for it. A source is polled again by whoever runs the call."""
        if not isinstance(node.operator, SourceOperator):
            node.wake(clock.now_ms())

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
            node.tell(node.operator.open)

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

    def frozen(self) -> None:
        """The states of all operators have been taken."""
        for operator in self._recorded:
            operator.frozen()

    def send_barrier(
        self, barrier: CheckpointBarrier, ahead: bool = False
    ) -> list[tuple[OutputChannel, list[Element]]]:
        """`ahead`: of all that waits to be sent, which is returned by channel, but on edges that
        are in order."""
        return [
            passed
            for writer in self.writers.values()
            for passed in writer.send_barrier(barrier, ahead)
        ]

    def holding(self, checkpoint_id: CheckpointId) -> list[OutputChannel]:
        """The outputs in which its barrier waits and may still be put ahead."""
        return [c for writer in self.writers.values() for c in writer.holding(checkpoint_id)]

    def notify_complete(self, checkpoint_id: CheckpointId) -> None:
        for node in self.nodes:
            node.tell(node.operator.notify_checkpoint_complete, checkpoint_id)

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
        for node in self.nodes:  # noqa: SIM110 - asked at each step of each task
            if node.busy:
                return True
        return False

    @property
    def available(self) -> bool:
        """Whether every output takes more."""
        for writer in self.writers.values():  # noqa: SIM110 - the same
            if not writer.available:
                return False
        return True

    @property
    def settled(self) -> bool:
        """Whether a snapshot may be taken: the operators' states and outputs tell everything that
        came in. So it is when nothing is parked, or only work that says so (`IN_STATE`)."""
        return all(node.settled for node in self.nodes)

    def press(self, pressed: bool) -> None:
        """Whether operators may get done with what they are in the middle of though outputs are
        full, within bounds: a barrier is to overtake all that."""
        for writer in self.writers.values():
            writer.pressed = pressed

    def resume(self) -> bool:
        """Go on with what is parked, as far as outputs and time allow; whether anything was done.
        The last node first: it makes room for those before it."""
        done = False
        for node in reversed(self.nodes):
            if node.can_go_on and node.takes_more:
                node.go_on()
                done = True
        return done

    def resume_sinks(self) -> bool:
        """The same for sinks alone, which commit when nothing may be emitted any more."""
        done = False
        for node in self._sinks:
            if node.can_go_on:
                node.go_on()
                done = True
        return done

    @property
    def sinks_settled(self) -> bool:
        """Whether no sink has anything parked."""
        return all(node.settled for node in self._sinks)

    @property
    def committed(self) -> bool:
        """Whether no sink waits to try a commit again."""
        return not any(node.operator.holds_end for node in self._sinks)

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
        for operator in self._recorded:  # also of those that were never opened
            operator.end()
        self._states.close()
        return errors

    def metrics(self, now_s: float, exact: bool = False) -> dict[str, Any]:
        """By operator: its figures, and those of its functions, whose gauges are asked. `exact`:
        those of functions on threads of their own as of now, too; this may wait."""
        for ctx, node in zip(self.contexts, self.nodes, strict=True):
            ctx.keyed_state.report(node.metrics.gauge)
            ctx.operator_state.report(node.metrics.gauge)
        return {
            ctx.operator_id: node.metrics.snapshot(now_s)
            | (ctx.user_metrics.told("metrics", partial(_report, ctx, now_s), exact) or {})
            for ctx, node in zip(self.contexts, self.nodes, strict=True)
        }

    def accumulators(self, exact: bool = False) -> dict[OperatorId, dict[str, Any]]:
        """By operator and name, each as a parcel; operators without any are left out. `exact` as in
        `metrics`. Raises OperatorError if one does not pickle."""
        return {
            ctx.operator_id: parcels
            for ctx, node in zip(self.contexts, self.nodes, strict=True)
            if (
                parcels := ctx.user_metrics.told(
                    "accumulators", partial(_parcels, ctx, node), exact
                )
            )
        }


def _report(ctx: OperatorContext, now_s: float) -> dict[str, Any]:
    return ctx.user_metrics.report(ctx.name, ctx.subtask, now_s)


def _parcels(ctx: OperatorContext, node: ChainNode) -> dict[str, Any]:
    return {
        name: node.guard(_accumulator_parcel, name, one)
        for name, one in ctx.user_metrics.accumulators.items()
    }


def _accumulator_parcel(name: str, accumulator: Any) -> Any:
    return parcel(accumulator, f"accumulator '{name}'", "the job's client")
