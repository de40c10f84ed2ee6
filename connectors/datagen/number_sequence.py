"""`NumberSequenceSource`: whole numbers, in parallel."""

from __future__ import annotations

from typing import Any

from ...api.connectors.base import EnumeratorContext
from ...core.errors import ConfigurationError
from .source import DataGenSource
from .stripes import NumberEnumerator, make_splits

LEAST, MOST = -(1 << 63), (1 << 63) - 1
"""The range of Flink's longs."""

BLOCK = 1024
"""The most neighbours that one reader gets, so that all readers move through the numbers at one
pace."""


class NumberSequenceSource(DataGenSource):
    """The ints from `start` to `end`, both included. Dealt to the readers in blocks; each reader's
    numbers ascend, so at parallelism 1 all do."""

    def __init__(self, start: int, end: int) -> None:
        for name, value in (("start", start), ("end", end)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigurationError(f"NumberSequenceSource: {name} must be int, is {value!r}")
            if not LEAST <= value <= MOST:
                raise ConfigurationError(
                    f"NumberSequenceSource: {name} must be a number of 64 bits, is {value}"
                )
        if end < start:
            raise ConfigurationError(
                f"NumberSequenceSource: end must be at least start, are {start} and {end}"
            )
        super().__init__(self._numbers, end - start + 1)
        self._start = start

    def __repr__(self) -> str:
        return f"NumberSequenceSource({self._start}, {self._start + self._numbers_in_all - 1})"

    def reads_from(self) -> tuple[str, ...]:
        return (f"{self._start} to {self._start + self._numbers_in_all - 1}",)

    def create_enumerator(
        self, context: EnumeratorContext, restored: Any | None
    ) -> NumberEnumerator:
        if restored is not None:
            return NumberEnumerator(context, restored)
        count, readers = self._numbers_in_all, context.parallelism
        block = max(1, min(BLOCK, -(-count // readers)))
        return NumberEnumerator(context, make_splits(count, readers, block, contiguous=False))

    @property
    def _numbers_in_all(self) -> int:
        assert self._count is not None
        return self._count

    def _numbers(self, first: int, count: int) -> list[int]:
        return list(range(self._start + first, self._start + first + count))
