"""What a failure may do to state."""

from __future__ import annotations

from enum import Enum


class CheckpointingMode(Enum):
    """What state tells of the records before a failure: each once (EXACTLY_ONCE), or each at least
    once (AT_LEAST_ONCE), as no channel waits for others at a checkpoint."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
