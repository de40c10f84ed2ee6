"""From the checkpoint protocol's actions to those of the host: enumerators, manifests, mail."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ...checkpoint import coordinator_types as protocol
from ...checkpoint import savepoints
from ...checkpoint.manifest import Manifest, stateful
from ...core.ids import Attempt, CheckpointId, OperatorId, TaskId
from ..messages import (
    CheckpointAborted,
    CheckpointCompleted,
    EndSources,
    Mail,
    TriggerCheckpoint,
)
from .actions import (
    Action,
    AnswerSavepoint,
    DiscardCheckpoint,
    DisownCheckpoint,
    ForgetCheckpoints,
    ForgetSplits,
    RemoveSavepoint,
    Send,
    SnapshotSources,
    StoreCheckpoint,
    Warn,
)
from .history import JobHistory
from .plan import JobPlan


@dataclass
class Translated:
    """`failure`: why the attempt must fail; `committed`: the terminal checkpoint is complete;
    `halted`: no task emits anything any more; `go_back`: why the job must restart."""

    actions: list[Action] = field(default_factory=list)
    failure: str | None = None
    committed: bool = False
    halted: bool = False
    go_back: str | None = None


@dataclass
class _Triggered:
    """A checkpoint on its way. `states`: of the enumerators, None until the host has taken them."""

    trigger: protocol.Trigger
    states: Mapping[OperatorId, bytes] | None = None


class CheckpointTranslator:
    """Holds the enumerators' states of each pending checkpoint from its trigger to its end."""

    def __init__(self, plan: JobPlan, history: JobHistory) -> None:
        """`history` is told of all that is translated."""
        self._plan = plan
        self._history = history
        self._pending: dict[CheckpointId, _Triggered] = {}

    def adopt(self, plan: JobPlan) -> None:
        """The job's from now on; none of its tasks runs."""
        self._plan = plan

    def translate(
        self,
        actions: protocol.Actions,
        running: Attempt | None,
        now_ms: int,
        hearing: Callable[[], Iterable[TaskId]] = tuple,
    ) -> Translated:
        """`running`: the attempt, if all its tasks run. `hearing`: says which tasks
        are told what became of a checkpoint."""
        result = Translated()
        for action in actions:
            self._history.on_checkpoint(action, now_ms)
            match action:
                case protocol.Trigger(checkpoint_id=n):
                    assert running is not None, "checkpoints are triggered while running only"
                    self._pending[n] = _Triggered(action)
                    result.actions.append(SnapshotSources(running, n))
                case protocol.Store(checkpoint=checkpoint):
                    result.actions += self._store(checkpoint)
                case protocol.Disown(checkpoint_id=n, location=location):
                    result.actions.append(DisownCheckpoint(n, location))
                case protocol.Saved(checkpoint_id=n):
                    del self._pending[n]
                case protocol.Halted():
                    result.halted = True
                case savepoints.Answer(request=request, path=path, error=error):
                    result.actions.append(AnswerSavepoint(request, path, error))
                case savepoints.DiscardSavepoint(location=location):
                    result.actions.append(RemoveSavepoint(location))
                case protocol.Drain():
                    result.actions += [Send(task, EndSources()) for task in self._plan.sources]
                case protocol.GoBack(reason=reason):
                    result.go_back = reason
                case protocol.Complete(checkpoint_id=n, terminal=terminal):
                    del self._pending[n]
                    result.committed |= terminal and running is not None
                    result.actions += _to_all(CheckpointCompleted(n, terminal), hearing)
                    if self._plan.shared_sources:
                        result.actions.append(ForgetSplits(n))
                case protocol.Abort(checkpoint_id=n):
                    del self._pending[n]
                    result.actions += _to_all(CheckpointAborted(n), hearing)
                case protocol.Discard(checkpoint_id=n):
                    result.actions.append(DiscardCheckpoint(n))
                case protocol.Forget():
                    result.actions.append(ForgetCheckpoints())
                case protocol.FailJob(reason=reason):
                    result.failure = reason
                case protocol.Say(message=message):
                    result.actions.append(Warn(message))
        return result

    def on_snapshot(
        self,
        n: CheckpointId,
        states: Mapping[OperatorId, bytes],
        holds: Collection[TaskId] = (),
    ) -> list[Send]:
        """The enumerators' part is taken: tell the sources, if checkpoint `n` is still wanted. All
        splits given away before are ahead of the trigger on their way to the readers, all others
        behind it. `holds`: tasks that it holds."""
        pending = self._pending.get(n)
        if pending is None:
            return []
        pending.states = states
        trigger = pending.trigger
        mail = TriggerCheckpoint(
            n, trigger.timestamp_ms, trigger.terminal, trigger.base, halt=trigger.stopped
        )
        if (savepoint := trigger.savepoint) is not None:
            halt = savepoint.stop is not None
            mail = replace(mail, savepoint=savepoint.location, halt=halt)
        held = replace(mail, halt=True)
        return [Send(task, held if task in holds else mail) for task in self._plan.sources]

    def validate(self, pending: tuple[CheckpointId, ...]) -> None:
        """Assert that states are held for the pending checkpoints and no others."""
        assert tuple(self._pending) == pending, (tuple(self._pending), pending)

    def _store(self, checkpoint: protocol.PendingCheckpoint) -> list[Action]:
        manifest = self._manifest(checkpoint)
        if checkpoint.savepoint is None:
            return [StoreCheckpoint(manifest)]
        location = checkpoint.savepoint.location
        store = StoreCheckpoint(manifest, location)
        unnamed = [o for o in stateful(manifest) if o in self._plan.unnamed]
        if not unnamed:
            return [store]
        names = ", ".join(f"'{self._plan.names[o]}'" for o in unnamed)
        text = (
            f"the savepoint {location} holds state of operators without a uid: {names}; their ids "
            "change with the program around them, and their state is not found then: give each a "
            "uid(...)"
        )
        return [store, Warn(text)]

    def _manifest(self, checkpoint: protocol.PendingCheckpoint) -> Manifest:
        states = self._pending[checkpoint.checkpoint_id].states
        assert states is not None, "acknowledged before the sources were told"
        return Manifest(
            job_id=self._plan.job_id,
            job_name=self._plan.job_name,
            checkpoint_id=checkpoint.checkpoint_id,
            timestamp_ms=checkpoint.timestamp_ms,
            operators=self._plan.shapes,
            subtasks=tuple(checkpoint.acknowledged[task] for task in self._plan.tasks),
            enumerators=states,
            terminal=checkpoint.terminal,
            savepoint=checkpoint.savepoint is not None,
            stopped=checkpoint.stopped,
            stopped_with=checkpoint.stopped_with,
        )


def _to_all(mail: Mail, hearing: Callable[[], Iterable[TaskId]]) -> list[Send]:
    return [Send(task, mail) for task in hearing()]
