"""The names of `pyflink.datastream.checkpoint_storage`."""

from ..api.configuration.storage import (
    CheckpointStorage as CheckpointStorage,
    FileSystemCheckpointStorage as FileSystemCheckpointStorage,
    JobManagerCheckpointStorage as JobManagerCheckpointStorage,
)
