"""The task's part in a checkpoint: align the barriers, freeze the state, write it, say so.

Freezing happens on the task's thread, between two batches, and copies only what cannot be marked
(`state.memory`); encoding and writing happen in the background, and come back through the mailbox.
Behind the savepoint of a stop the task *halts*: it takes no input, resumes nothing and hears of no
time, so that nothing comes behind the savepoint but the terminal barrier. If the savepoint is given
up, it goes on as if nothing had been.

An operator may stand in the middle of something that only it knows of, such as the results of one
record: then the snapshot waits until it is done (`take_waiting`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from ...checkpoint.barrier_alignment import Abandon, Align, BarrierAligner, Block, UnblockAll
from ...checkpoint.cancellation import Cancellation
from ...checkpoint.databases import inherited
from ...checkpoint.folder_storage import folder_at
from ...checkpoint.handles import SubtaskSnapshot
from ...checkpoint.increments import Increment, Increments
from ...checkpoint.snapshot_io import read_operator, write_subtask
from ...checkpoint.transfers import INLINE, Transfers, process_pool
from ...core.clock import Clock
from ...core.elements import CheckpointBarrier
from ...core.failure_text import described
from ...core.ids import CheckpointId
from ...operators.base import OperatorContext
from ...state.backend import NoSnapshot
from ...state.column_migration import migrated
from ...state.increments import Since
from ...state.key_types import StoredKeyType
from ..exchange.endpoint import InputGate
from ..messages import CheckpointAcknowledged, CheckpointDeclined, TaskReport
from .background import Background
from .chain import OperatorChain
from .deployment import TaskDeployment
from .local_recovery import LocalRecovery
from .unmet_migrations import unmet

_log = logging.getLogger("strom")


class TaskCheckpoints:
    """The checkpoints of one task in one attempt. A task without inputs is told when to begin one
    (`trigger`), the others hear it from their barriers."""

    def __init__(
        self,
        deployment: TaskDeployment,
        chain: OperatorChain,
        gate: InputGate,
        clock: Clock,
        background: Background,
        report: Callable[[TaskReport], None],
        post: Callable[[Callable[[], None]], None],
    ) -> None:
        """`post` runs a call on the task's thread; it is called from the background's."""
        self._deployment = deployment
        self._chain = chain
        self._gate = gate
        self._clock = clock
        self._background = background
        self._report = report
        self._post = post
        self._aligner = BarrierAligner(len(deployment.inputs)) if deployment.inputs else None
        self._alignment_started = 0.0
        self.halted_at: CheckpointId | None = None
        """The savepoint behind which the task halts."""
        self._increments = Increments()
        self.local = LocalRecovery(deployment, background)
        self._writing: dict[CheckpointId, Cancellation] = {}
        """What may be in the background's hands."""
        self.figures: dict[str, float] = {}
        """Of the last checkpoint that was written, by the names that reporters have for them."""
        self._delay_ms = 0.0
        """From the trigger of the last checkpoint until its first barrier came."""
        self._waiting: deque[tuple[CheckpointBarrier, float]] = deque()
        """Barriers that are here, all records before them handed to the chain, and how long they
        were aligned (ms); the chain was not settled yet."""

    @property
    def _transfers(self) -> Transfers:
        return process_pool() if self._background.threads else INLINE

    def restore(self) -> None:
        """Put the state of the checkpoint to start from, if there is one, into the contexts of the
        operators. Before they are opened."""
        if self._deployment.restore is not None:
            self._restore()
        self.local.restored()

    def _restore(self) -> None:
        d = self._deployment
        assert d.restore is not None
        operators = zip(self._chain.contexts, d.vertex.operators, strict=True)
        for context, chained in operators:
            share = (
                self.local.files,
                d.restore,
                context.operator_id,
                d.task.subtask,
                d.vertex.parallelism,
                d.vertex.max_parallelism,
            )
            own = d.restore.job_id == d.job_id
            files = None
            if context.keyed_state.inherits and not chained.migrations:
                files = inherited(*share, same_program=own)
            keyed, operator = read_operator(*share, self._transfers, inherits=files is not None)
            if chained.migrations:
                who = f"operator '{context.name}', subtask {context.subtask}"
                if not own and context.subtask == 0:
                    states = [table.name for table in operator]
                    vain = unmet(d.restore, context.operator_id, states, chained.migrations)
                    if vain is not None:
                        _log.warning("operator '%s': %s", context.name, vain)
                keyed = migrated(keyed, chained.migrations, who)
            if files is not None:
                context.keyed_state.inherit(files)
            if not own and not d.config.allow_unmatched_state:
                context.keyed_state.of_another_job = True
                some = [*keyed, *context.keyed_state.inherited_samples()]
                context.keyed_state.stored_keys = StoredKeyType.of(some)
            context.keyed_state.restore(keyed)
            context.operator_state.restore(operator, chained.migrations)

    def trigger(self, barrier: CheckpointBarrier) -> None:
        """The coordinator wants one."""
        self._delay_ms = max(0.0, self._clock.now_ms() - barrier.timestamp_ms)
        self._waiting.append((barrier, 0.0))
        self.take_waiting()

    @property
    def waiting(self) -> bool:
        """Whether a snapshot waits for the chain to settle; no input may be taken meanwhile."""
        return bool(self._waiting)

    def take_waiting(self) -> bool:
        """Take the snapshots that can be taken now; whether there were any."""
        taken = False
        while self._waiting and self._chain.settled:
            self._snapshot(*self._waiting.popleft())
            taken = True
        return taken

    def on_barrier(self, index: int, barrier: CheckpointBarrier) -> None:
        """Input channel `index` delivered a barrier."""
        assert self._aligner is not None
        if not self._aligner.aligning:
            self._alignment_started = self._clock.monotonic()
            self._delay_ms = max(0.0, self._clock.now_ms() - barrier.timestamp_ms)
        for action in self._aligner.on_barrier(index, barrier):
            match action:
                case Block(channel):
                    self._gate.block(channel)
                case UnblockAll():
                    self._gate.unblock_all()
                case Align(aligned):
                    waited = self._clock.monotonic() - self._alignment_started
                    self._waiting.append((aligned, waited * 1000.0))
                    self.take_waiting()
                case Abandon(checkpoint_id):
                    self._chain.notify_aborted(checkpoint_id)

    def on_completed(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint is complete."""
        self.local.completed(checkpoint_id)

    def on_aborted(self, checkpoint_id: CheckpointId) -> None:
        """The coordinator gave it up, and with it all earlier ones still open."""
        if self.halted_at == checkpoint_id:
            self.halted_at = None
        for n in [n for n in self._writing if n <= checkpoint_id]:
            self._writing.pop(n).cancel()
        while self._waiting and self._waiting[0][0].checkpoint_id <= checkpoint_id:
            self._waiting.popleft()
        if self._aligner is not None:
            for action in self._aligner.on_abort(checkpoint_id):
                if isinstance(action, UnblockAll):
                    self._gate.unblock_all()
        self.local.aborted(checkpoint_id)
        self._chain.notify_aborted(checkpoint_id)

    def close(self) -> None:
        """The task has ended, and with it what is being written."""
        for cancellation in self._writing.values():
            cancellation.cancel()
        self._writing.clear()
        self.local.close()

    def _snapshot(self, barrier: CheckpointBarrier, alignment_ms: float) -> None:
        """The synchronous part, the barrier onwards, and the rest handed to the background."""
        started = self._clock.monotonic()
        checkpoint_id = barrier.checkpoint_id
        only_commits = barrier.terminal and self._deployment.config.checkpoint.only_commits
        increment = self._increment(barrier)

        def since(context: OperatorContext) -> Since | None:
            return None if increment is None else increment.since(context.operator_id)

        self._chain.prepare_snapshot(checkpoint_id, only_commits)
        self._chain.send_barrier(barrier)
        parts = [
            (
                c.operator_id,
                NoSnapshot() if only_commits else node.guard(c.keyed_state.snapshot, since(c)),
                node.guard(c.operator_state.snapshot),
            )
            for node, c in zip(self._chain.nodes, self._chain.contexts, strict=True)
        ]
        if barrier.halt and self.halted_at is None:
            self.halted_at = checkpoint_id
        sync_ms = (self._clock.monotonic() - started) * 1000.0
        task = self._deployment.task
        cancellation = Cancellation(f"checkpoint {checkpoint_id}, of which task {task} wrote,")
        self._writing[checkpoint_id] = cancellation

        def done(snapshot: Any, error: BaseException | None) -> None:
            elapsed = (self._clock.monotonic() - started) * 1000.0 - sync_ms
            answer = self._answer(checkpoint_id, snapshot, error, (sync_ms, elapsed, alignment_ms))
            self._post(lambda: self._written(answer))

        def write() -> SubtaskSnapshot:
            place = barrier.savepoint
            storage = self.local.storage if place is None else folder_at(place)
            made = write_subtask(
                storage,
                checkpoint_id,
                task,
                parts,
                cancellation,
                None if increment is None else increment.layers,
                self._transfers,
                None if increment is None else increment.files,
            )
            if increment is not None:
                self._increments.written(checkpoint_id, made)
            if place is None:
                self.local.written(checkpoint_id, made)
            return made

        self._background.submit(write, done)

    def _increment(self, barrier: CheckpointBarrier) -> Increment | None:
        """What the snapshot may leave out; None: nothing, nor may later ones because of it."""
        d = self._deployment
        if barrier.savepoint is not None:  # complete in itself
            return None
        if not (d.config.checkpoint.incremental and d.storage.shares):
            return None
        return self._increments.begin(barrier.checkpoint_id, barrier.base)

    def _written(self, answer: CheckpointAcknowledged | CheckpointDeclined) -> None:
        self._writing.pop(answer.checkpoint_id, None)
        if isinstance(answer, CheckpointAcknowledged):
            self._told(answer)
        self._report(answer)

    def _told(self, written: CheckpointAcknowledged) -> None:
        """Figures of a checkpoint; `stateSize` is all that it needs of an operator's files."""
        sizes = {one.operator: sum(f.size for f in one.files) for one in written.snapshot.operators}
        for node, context in zip(self._chain.nodes, self._chain.contexts, strict=True):
            if context.operator_id in sizes:
                node.metrics.state_size = sizes[context.operator_id]
        self.figures = {
            "checkpointStartDelayNanos": self._delay_ms * 1e6,
            "checkpointAlignmentTime": written.alignment_ms * 1e6,
            "checkpointSyncDuration": written.sync_ms,
            "checkpointAsyncDuration": written.async_ms,
            "checkpointSize": sum(sizes.values()),
        }

    def _answer(
        self,
        checkpoint_id: CheckpointId,
        snapshot: Any,
        error: BaseException | None,
        times: tuple[float, float, float],
    ) -> CheckpointAcknowledged | CheckpointDeclined:
        d = self._deployment
        if error is not None:
            reason = f"task {d.label}: {described(error)}"
            return CheckpointDeclined(d.task, d.attempt, checkpoint_id, reason)
        return CheckpointAcknowledged(d.task, d.attempt, checkpoint_id, snapshot, *times)
