"""The names of `pyflink.datastream.state_backend`."""

from ..api.configuration.state_backends import (
    EmbeddedRocksDBStateBackend as EmbeddedRocksDBStateBackend,
    PredefinedOptions as PredefinedOptions,
)
from ..api.configuration.storage import (
    HashMapStateBackend as HashMapStateBackend,
    StateBackend as StateBackend,
)
