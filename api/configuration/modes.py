"""The choices that PyFlink has enums for."""

from __future__ import annotations

from enum import Enum

from ...core.checkpointing_mode import CheckpointingMode as CheckpointingMode
from ...core.retention import ExternalizedCheckpointRetention as ExternalizedCheckpointRetention


class RuntimeExecutionMode(Enum):
    """How a program is run. BATCH is not there yet; AUTOMATIC is STREAMING, for bounded sources,
    too."""

    STREAMING = 0
    BATCH = 1
    AUTOMATIC = 2
