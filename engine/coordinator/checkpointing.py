"""From the checkpoint protocol's actions to those of the host: enumerators, manifests, mail."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...checkpoint import coordinator_types as protocol
from ...checkpoint.manifest import Manifest
from ...core.errors import StromError
from ...core.ids import CheckpointId, OperatorId
from ..messages import CheckpointAborted, CheckpointCompleted, Mail, TriggerCheckpoint
from .actions import Action, DiscardCheckpoint, Send, StoreCheckpoint
from .enumerators import EnumeratorSet
from .plan import JobPlan


@dataclass
class Translated:
    """`failure`: why the attempt must fail; `committed`: the terminal checkpoint is complete."""

    actions: list[Action] = field(default_factory=list)
    failure: str | None = None
    committed: bool = False


class CheckpointTranslator:
    """Holds the enumerators' states of the pending checkpoint from its trigger to its manifest."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._states: dict[CheckpointId, dict[OperatorId, bytes]] = {}
        """Of the pending checkpoint; empty when there is none."""

    def translate(
        self, actions: protocol.Actions, enumerators: EnumeratorSet | None, running: bool
    ) -> Translated:
        """Mail goes out only while the job is `running`."""
        result = Translated()
        for action in actions:
            match action:
                case protocol.Trigger():
                    assert enumerators is not None, "checkpoints are triggered while running only"
                    self._trigger(action, enumerators, result)
                case protocol.Store(checkpoint=checkpoint):
                    result.actions.append(StoreCheckpoint(self._manifest(checkpoint)))
                case protocol.Complete(checkpoint_id=n, terminal=terminal):
                    del self._states[n]
                    result.committed |= terminal and running
                    result.actions += self._to_all(CheckpointCompleted(n, terminal), running)
                case protocol.Abort(checkpoint_id=n):
                    del self._states[n]
                    result.actions += self._to_all(CheckpointAborted(n), running)
                case protocol.Discard(checkpoint_id=n):
                    result.actions.append(DiscardCheckpoint(n))
                case protocol.FailJob(reason=reason):
                    result.failure = reason
        return result

    def validate(self, pending: CheckpointId | None) -> None:
        """Assert that states are held for the pending checkpoint and no other."""
        assert set(self._states) == ({pending} - {None}), (self._states, pending)

    def _trigger(
        self, trigger: protocol.Trigger, enumerators: EnumeratorSet, result: Translated
    ) -> None:
        """Snapshot the enumerators in the same step in which the sources are told: all splits
        assigned so far are ahead of the trigger on their way to the readers."""
        n = trigger.checkpoint_id
        self._states[n] = {}
        try:
            self._states[n] = enumerators.snapshot()
        except StromError as error:
            result.failure = str(error)
            return
        mail = TriggerCheckpoint(n, trigger.timestamp_ms, trigger.terminal)
        result.actions += [Send(task, mail) for task in self._plan.sources]

    def _manifest(self, checkpoint: protocol.PendingCheckpoint) -> Manifest:
        return Manifest(
            job_id=self._plan.job_id,
            job_name=self._plan.job_name,
            checkpoint_id=checkpoint.checkpoint_id,
            timestamp_ms=checkpoint.timestamp_ms,
            operators=self._plan.shapes,
            subtasks=tuple(checkpoint.acknowledged[task] for task in self._plan.tasks),
            enumerators=self._states[checkpoint.checkpoint_id],
            terminal=checkpoint.terminal,
        )

    def _to_all(self, mail: Mail, running: bool) -> list[Action]:
        return [Send(task, mail) for task in self._plan.tasks] if running else []
