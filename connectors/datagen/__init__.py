"""Sources that make their records: for tests, demonstrations and benchmarks."""

from .nexmark import NexmarkSource
from .source import DataGenSource

__all__ = ["DataGenSource", "NexmarkSource"]
