"""The task's part in a checkpoint: align the barriers, freeze the state, write it, say so.

Freezing happens on the task's thread, between two batches, and copies only what cannot be marked
(`state.memory`); encoding and writing happen in the background, and come back through the mailbox.
Behind the savepoint of a stop the task *halts*: it takes no input, resumes nothing and hears of no
time, so that nothing comes behind the savepoint but the terminal barrier. If the savepoint is given
up, it goes on as if nothing had been.

The checkpoint of a rescale *holds* the task in the same way, until one of these

    CheckpointAborted   it goes on as it was
    GoOn                the same; or that checkpoint will not hold it, if its barrier comes later
    Rewire              it goes on with other channels: others have sent and got all up to the
                        barrier, so the former ones are empty
    CancelTask          as ever

Meanwhile its peers may be gone: with what is to come by Rewire it has nothing to do with them any
more, and else somebody has failed, and who told it to go on hears of that.

An operator may stand in the middle of something that only it knows of, such as the results of one
record: then the snapshot waits until it is done (`take_waiting`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...checkpoint.cancellation import Cancellation
from ...checkpoint.folder_storage import folder_at
from ...checkpoint.handles import SubtaskSnapshot
from ...checkpoint.in_flight import write_in_flight
from ...checkpoint.increments import Increment, Increments
from ...checkpoint.snapshot_io import write_subtask
from ...checkpoint.transfers import INLINE, Transfers, process_pool
from ...checkpoint.uploads import FilesTo
from ...core.clock import Clock
from ...core.elements import CheckpointBarrier
from ...core.failure_text import described
from ...core.ids import NO_CHECKPOINT, CheckpointId
from ...operators.base import OperatorContext
from ...state.backend import NoSnapshot
from ...state.increments import Since
from ..exchange.endpoint import InputGate
from ..exchange.kept import Kept
from ..messages import CheckpointAcknowledged, CheckpointDeclined, TaskReport
from .background import Background
from .barriers import Barriers, due_ms
from .chain import OperatorChain
from .deployment import TaskDeployment
from .edges import is_in_order
from .intake import InputState
from .local_recovery import LocalRecovery
from .replay import Replay, replay_of
from .restoring import restore
from .taking import Taking
from .wakeups import Wakeups


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """One to take. `due_ms`: when its barrier may overtake, None for never. `overtaken`: the
    channels that it overtakes; None: it came in its turn on all."""

    barrier: CheckpointBarrier
    alignment_ms: float
    due_ms: int | None
    overtaken: frozenset[int] | None

    def goes_ahead(self, clock: Clock) -> bool:
        """Whether the barrier goes ahead of what waits in the outputs now."""
        due = self.due_ms is not None and self.due_ms <= clock.now_ms()
        return due or self.overtaken is not None


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
        wakeups: Wakeups,
        input_state: Callable[[], InputState],
        replaying: Callable[[], bool],
    ) -> None:
        """`post` runs a call on the task's thread; it is called from the background's.
        `input_state`: what was taken of the input and is not handled; `replaying`: whether a
        restored checkpoint had more."""
        self._deployment = deployment
        self._chain = chain
        self._gate = gate
        self._clock = clock
        self._background = background
        self._report = report
        self._post = post
        self._input_state = input_state
        self._replaying = replaying
        self._behind_replay: list[CheckpointBarrier] = []
        """Of a task without inputs: those that overtake nothing, and so come behind what was on its
        way when the task was restored."""
        self._wake_at = wakeups.register(self._on_due)
        self._barriers = self._make_barriers()
        self.halted_at: CheckpointId | None = None
        """The savepoint behind which the task halts."""
        self.held_at: CheckpointId | None = None
        """The checkpoint of a rescale that holds it; of several the last."""
        self._free = NO_CHECKPOINT
        """No checkpoint up to this one holds it; only grows."""
        self._increments = Increments()
        self.local = LocalRecovery(deployment, background)
        self._taking: dict[CheckpointId, Taking] = {}
        """Those whose answer is still to be given."""
        self.figures: dict[str, float] = {}
        """Of the last checkpoint that was written, by the names that reporters have for them."""
        self._delay_ms = 0.0
        """From the trigger of the last checkpoint until a source heard of it."""
        self._pressed = False
        """Whether outputs take more than they should, so that a snapshot can be taken soon."""
        self._waiting: deque[_Snapshot] = deque()
        """Snapshots to take, all records before them handed to the chain; it was not settled
        yet."""

    def _make_barriers(self) -> Barriers | None:
        d, inputs = self._deployment, self._deployment.inputs
        if not inputs:
            return None
        ordered = {edge.id for edge in d.input_edges if is_in_order(edge)}
        in_order = [c.target_index for c in inputs if c.edge in ordered]
        config = d.config.checkpoint
        return Barriers(len(inputs), in_order, self._gate, self._clock, config, self._wake_at, self)

    def rewire(self, deployment: TaskDeployment, gate: InputGate) -> None:
        """Barriers come by other channels from now on, those of `deployment`, and nothing holds the
        task. All checkpoints that were on are complete, or given up."""
        self._deployment, self._gate = deployment, gate
        self._barriers = self._make_barriers()
        self.held_at = None

    def go_on(self, checkpoint_id: CheckpointId) -> None:
        """None up to this one holds the task, whether its barrier has come or not."""
        self._free = max(self._free, checkpoint_id)
        if self.held_at is not None and self.held_at <= checkpoint_id:
            self.held_at = None

    @property
    def _transfers(self) -> Transfers:
        return process_pool() if self._background.threads else INLINE

    def restore(self) -> Replay:
        """Put the state of the checkpoint to start from, if there is one, into the contexts of the
        operators. Before they are opened. Returns what was on its way."""
        replay = Replay()
        if self._deployment.restore is not None:
            restore(self._deployment, self._chain.contexts, self.local.files, self._transfers)
            replay = replay_of(self._deployment, self.local.files)
        self.local.restored()
        return replay

    def trigger(self, barrier: CheckpointBarrier) -> None:
        """The coordinator wants one of a task without inputs."""
        if not barrier.overtakes and self._replaying():
            self._behind_replay.append(barrier)
            return
        now_ms = self._clock.now_ms()
        self._delay_ms = max(0.0, now_ms - barrier.timestamp_ms)
        due = due_ms(barrier, self._deployment.config.checkpoint, now_ms)
        self._waiting.append(_Snapshot(barrier, 0.0, due, None))
        if due is not None and due > now_ms:
            self._wake_at(due)
        self.take_waiting()

    @property
    def waiting(self) -> bool:
        """Whether a snapshot waits for the chain to settle; no input may be taken meanwhile."""
        return bool(self._waiting)

    def take_waiting(self) -> bool:
        """Take the snapshots that can be taken now; whether there were any."""
        taken = False
        while self._waiting and self._chain.settled:
            self._snapshot(self._waiting.popleft())
            taken = True
        self._press()
        return taken

    def _press(self) -> None:
        waiting = self._waiting
        wanted = bool(waiting) and any(one.goes_ahead(self._clock) for one in waiting)
        if wanted != self._pressed:
            self._pressed = wanted
            self._chain.press(wanted)

    def on_barrier(self, index: int, barrier: CheckpointBarrier) -> None:
        """Input channel `index` delivered a barrier."""
        assert self._barriers is not None
        self._barriers.on_barrier(index, barrier)

    def look_ahead(self) -> bool:
        """Barriers that do not wait for their turn, and those that have left; whether there were
        any."""
        if self._behind_replay and not self._replaying():
            behind, self._behind_replay = self._behind_replay, []
            for barrier in behind:
                self.trigger(barrier)
        found = self._barriers is not None and self._barriers.look()
        if self._taking:
            for taking in [one for one in self._taking.values() if one.holding]:
                found |= self._look_at_outputs(taking)
        return found

    def _on_due(self, now_ms: int) -> None:
        if self._barriers is not None:
            self._barriers.on_due(now_ms)
        self._press()
        self.look_ahead()

    def _look_at_outputs(self, taking: Taking) -> bool:
        """Whether any of them lets go of the barrier, or is made to."""
        number, before = taking.barrier.checkpoint_id, len(taking.holding)
        taking.holding = [channel for channel in taking.holding if channel.holds(number)]
        if taking.due_ms is not None and taking.due_ms <= self._clock.now_ms():
            held, taking.holding = taking.holding, []
            names = self._deployment.edge_names
            taking.overtook([(c, c.overtake(taking.barrier)) for c in held], names)
        self._finish_if_settled(taking)
        return len(taking.holding) < before

    # --- what the barriers ask for -----------------------------------------------------------

    def take(
        self, barrier: CheckpointBarrier, alignment_ms: float, overtaken: frozenset[int] | None
    ) -> None:
        assert self._barriers is not None
        due = self._barriers.due_ms
        self._waiting.append(_Snapshot(barrier, alignment_ms, due, overtaken))
        self.take_waiting()

    def recorded(
        self, checkpoint_id: CheckpointId, items: Mapping[int, Sequence[Kept]], passed: bool
    ) -> None:
        taking = self._taking.get(checkpoint_id)
        if taking is not None:
            taking.passed |= passed
            taking.recorded(items)
            self._finish_if_settled(taking)

    def abandoned(self, checkpoint_id: CheckpointId) -> None:
        self._drop(checkpoint_id)
        self._chain.notify_aborted(checkpoint_id)

    def _drop(self, n: CheckpointId) -> None:
        """All that is being done for the checkpoint."""
        if (taking := self._taking.pop(n, None)) is not None:
            taking.cancellation.cancel()
        self._behind_replay = [one for one in self._behind_replay if one.checkpoint_id != n]
        kept = [one for one in self._waiting if one.barrier.checkpoint_id != n]
        self._waiting = deque(kept)
        self._press()

    def on_completed(self, checkpoint_id: CheckpointId) -> None:
        """The checkpoint is complete."""
        self.local.completed(checkpoint_id)

    def on_aborted(self, checkpoint_id: CheckpointId) -> None:
        """The coordinator gave it up."""
        if self.halted_at == checkpoint_id:
            self.halted_at = None
        if self.held_at == checkpoint_id:
            self.held_at = None
        self._drop(checkpoint_id)
        self._increments.aborted(checkpoint_id)
        if self._barriers is not None:
            self._barriers.on_aborted(checkpoint_id)
        self.local.aborted(checkpoint_id)
        self._chain.notify_aborted(checkpoint_id)

    def close(self) -> None:
        """The task has ended, and with it what is being written."""
        for taking in self._taking.values():
            taking.cancellation.cancel()
        self._taking.clear()
        self.local.close()

    def _snapshot(self, snapshot: _Snapshot) -> None:
        """The synchronous part, the barrier onwards, and the rest handed to the background."""
        started = self._clock.monotonic()
        barrier = snapshot.barrier
        checkpoint_id = barrier.checkpoint_id
        only_commits = barrier.terminal and self._deployment.config.checkpoint.only_commits
        increment = self._increment(barrier)

        def since(context: OperatorContext) -> Since | None:
            return None if increment is None else increment.since(context.operator_id)

        self._chain.prepare_snapshot(checkpoint_id, only_commits)
        taking = self._begin(snapshot, started)
        parts = [
            (
                c.operator_id,
                NoSnapshot() if only_commits else node.guard(c.keyed_state.snapshot, since(c)),
                node.guard(c.operator_state.snapshot),
            )
            for node, c in zip(self._chain.nodes, self._chain.contexts, strict=True)
        ]
        self._chain.frozen()
        if barrier.holds:
            self.held_at = checkpoint_id if checkpoint_id > self._free else self.held_at
        elif barrier.halt and self.halted_at is None:
            self.halted_at = checkpoint_id
        taking.sync_ms = (self._clock.monotonic() - started) * 1000.0

        def write() -> SubtaskSnapshot:
            made = write_subtask(
                self._storage(barrier),
                checkpoint_id,
                self._deployment.task,
                parts,
                taking.cancellation,
                None if increment is None else increment.layers,
                self._transfers,
                None if increment is None else increment.files,
            )
            if increment is not None:
                self._increments.written(checkpoint_id, made)
            return made

        self._background.submit(write, self._then(taking, self._on_state))

    def _begin(self, snapshot: _Snapshot, started: float) -> Taking:
        """The barrier onwards, and what it overtakes kept."""
        d, barrier, overtaken = self._deployment, snapshot.barrier, snapshot.overtaken
        ahead = snapshot.goes_ahead(self._clock)
        why = f"checkpoint {barrier.checkpoint_id}, of which task {d.task} wrote,"
        taking = Taking(barrier, Cancellation(why), started, snapshot.due_ms)
        taking.alignment_ms = snapshot.alignment_ms
        self._taking[barrier.checkpoint_id] = taking
        if barrier.overtakes:
            taking.inputs = self._input_state()
            taking.passed = self._barriers is not None and self._barriers.passed
        if overtaken:
            taking.recording = True
            self._gate.record(barrier.checkpoint_id, overtaken)
        taking.overtook(self._chain.send_barrier(barrier, ahead), d.edge_names)
        if barrier.overtakes and not ahead:
            taking.holding = self._chain.holding(barrier.checkpoint_id)
            if taking.holding and taking.due_ms is not None:
                self._wake_at(taking.due_ms)
        return taking

    def _storage(self, barrier: CheckpointBarrier) -> FilesTo:
        return self.local.storage if barrier.savepoint is None else folder_at(barrier.savepoint)

    def _increment(self, barrier: CheckpointBarrier) -> Increment | None:
        """What the snapshot may leave out; None: nothing, nor may later ones because of it."""
        d = self._deployment
        if barrier.savepoint is not None:  # complete in itself
            return None
        if not (d.config.checkpoint.incremental and d.storage.shares):
            return None
        return self._increments.begin(barrier.checkpoint_id, barrier.base)

    def _then(
        self, taking: Taking, go_on: Callable[[Taking, Any], None]
    ) -> Callable[[Any, BaseException | None], None]:
        """What the background is to do when it is done: `go_on` with the result on the task's
        thread, or decline."""

        def done(result: Any, error: BaseException | None) -> None:
            if error is None:
                self._post(lambda: go_on(taking, result))
            else:
                self._post(lambda: self._decline(taking, error))

        return done

    def _decline(self, taking: Taking, error: BaseException) -> None:
        d, number = self._deployment, taking.barrier.checkpoint_id
        self._taking.pop(number, None)
        reason = f"task {d.label}: {described(error)}"
        self._report(CheckpointDeclined(d.task, d.attempt, number, reason))

    def _on_state(self, taking: Taking, made: SubtaskSnapshot) -> None:
        taking.state = made
        self._finish_if_settled(taking)

    def _finish_if_settled(self, taking: Taking) -> None:
        """Write what was on its way, if all that is known, and answer."""
        if not taking.settled or taking.finishing:
            return
        taking.finishing = True
        d, made, barrier = self._deployment, taking.state, taking.barrier
        assert made is not None
        waiting = taking.in_flight(d.inputs, d.edge_names)
        if not waiting:
            self._answer(taking, made)
            return

        def write() -> SubtaskSnapshot:
            handle = write_in_flight(
                self._storage(barrier),
                barrier.checkpoint_id,
                d.task,
                waiting,
                taking.cancellation,
                self._transfers,
            )
            return replace(made, in_flight=handle)

        self._background.submit(write, self._then(taking, self._answer))

    def _answer(self, taking: Taking, made: SubtaskSnapshot) -> None:
        d, number = self._deployment, taking.barrier.checkpoint_id
        self._taking.pop(number, None)
        if taking.barrier.savepoint is None:
            self.local.written(number, made)
        elapsed = (self._clock.monotonic() - taking.started) * 1000.0 - taking.sync_ms
        times = taking.sync_ms, elapsed, taking.alignment_ms
        answer = CheckpointAcknowledged(d.task, d.attempt, number, made, *times)
        self._told(answer)
        self._report(answer)

    def _told(self, written: CheckpointAcknowledged) -> None:
        """Figures of a checkpoint; `stateSize` is all that it needs of an operator's files."""
        sizes = {one.operator: sum(f.size for f in one.files) for one in written.snapshot.operators}
        for node, context in zip(self._chain.nodes, self._chain.contexts, strict=True):
            if context.operator_id in sizes:
                node.metrics.state_size = sizes[context.operator_id]
        delay_ms = self._delay_ms if self._barriers is None else self._barriers.delay_ms
        self.figures = {
            "checkpointStartDelayNanos": delay_ms * 1e6,
            "checkpointAlignmentTime": written.alignment_ms * 1e6,
            "checkpointSyncDuration": written.sync_ms,
            "checkpointAsyncDuration": written.async_ms,
            "checkpointSize": written.snapshot.size,
        }
