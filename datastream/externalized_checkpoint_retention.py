"""The names of `pyflink.datastream.externalized_checkpoint_retention`."""

from ..api.configuration.modes import (
    ExternalizedCheckpointRetention as ExternalizedCheckpointRetention,
)
