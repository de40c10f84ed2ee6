"""What a rescale of a running job came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...core.ids import CheckpointId
from ...state.key_group_deals import Balance


@dataclass(frozen=True)
class RescaleFigures:
    """One that went well. `before`, `after`: the parallelism of each chain, by its name; of those
    that changed. `checkpoint_id`: where it went on from, 0 if another coordinator did that.
    `asked`, `stopped`, `running`: when it was wanted, when tasks were told to stop, and when all of
    these ran again (ms). `stopped_tasks`: how many these were; `held_tasks`: how many stood still
    meanwhile and went on then, with all that they had, from the time that they were told to on;
    `kept_tasks`: how many went on without a pause.
    `balance`: of operators whose key groups were to be dealt by load, by name."""

    before: Mapping[str, int]
    after: Mapping[str, int]
    checkpoint_id: CheckpointId
    asked_ms: int
    stopped_ms: int
    running_ms: int
    stopped_tasks: int = 0
    kept_tasks: int = 0
    balance: Mapping[str, Balance] = field(default_factory=dict)
    held_tasks: int = 0

    @property
    def silence_ms(self) -> int:
        """How long those that were stopped did not all run."""
        return self.running_ms - self.stopped_ms
