"""The names of `pyflink.datastream.checkpoint_config`."""

from ..api.configuration.checkpoints import CheckpointConfig as CheckpointConfig
