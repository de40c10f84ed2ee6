"""The names of `pyflink.datastream.connectors.hybrid_source`."""

from ...connectors.hybrid import (
    HybridSource as HybridSource,
    HybridSourceBuilder as HybridSourceBuilder,
)
