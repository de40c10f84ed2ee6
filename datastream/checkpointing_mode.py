"""The names of `pyflink.datastream.checkpointing_mode`."""

from ..api.configuration.modes import CheckpointingMode as CheckpointingMode
