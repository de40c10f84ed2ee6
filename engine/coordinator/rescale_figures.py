"""What a rescale of a running job came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...core.ids import CheckpointId


@dataclass(frozen=True)
class RescaleFigures:
    """One that went well. `before`, `after`: the parallelism of each chain, by its name; of those
    that changed. `checkpoint_id`: where it went on from, 0 if another coordinator did that.
    `asked`, `stopped`, `running`: when it was wanted, when tasks were told to stop, and when all
    ran again (ms)."""

    before: Mapping[str, int]
    after: Mapping[str, int]
    checkpoint_id: CheckpointId
    asked_ms: int
    stopped_ms: int
    running_ms: int

    @property
    def silence_ms(self) -> int:
        """How long not all tasks ran."""
        return self.running_ms - self.stopped_ms
