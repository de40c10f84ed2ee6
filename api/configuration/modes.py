"""The choices that PyFlink has enums for."""

from __future__ import annotations

from enum import Enum

from ...core.retention import ExternalizedCheckpointRetention as ExternalizedCheckpointRetention


class CheckpointingMode(Enum):
    """What a failure may do to state. Checkpoints here are EXACTLY_ONCE whichever is chosen:
    AT_LEAST_ONCE allows for repetitions, and gets none."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1


class RuntimeExecutionMode(Enum):
    """How a program is run. BATCH is not there yet; AUTOMATIC is STREAMING, for bounded sources,
    too."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
