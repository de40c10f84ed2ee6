"""Sources that make their records: for tests, demonstrations and benchmarks."""

from .nexmark import NexmarkSource
from .number_sequence import NumberSequenceSource
from .source import DataGenSource

__all__ = ["DataGenSource", "NexmarkSource", "NumberSequenceSource"]
