"""A source without a task around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from strom.api.connectors.base import Emit, EnumeratorContext, NeedSplit, ReaderContext, Source
from strom.core.clock import SystemClock


class Driver:
    """One reader and its enumerator, driven as a task drives them."""

    def __init__(
        self,
        until: Callable[..., Any],
        source: Source,
        restored: Any = None,
        batch_size: int = 300,
    ) -> None:
        self._until = until
        self.enumerator = source.create_enumerator(EnumeratorContext("in", 1, "job"), restored)
        self.reader = source.create_reader(ReaderContext("in", 0, 1, batch_size, SystemClock()))

    def next(self) -> Emit | None:
        """The next batch, None at the end of the input."""
        return self._until(self._step, "a batch")[0]

    def all(self) -> list[Emit]:
        return list(iter(self.next, None))

    def _step(self) -> tuple[Emit | None] | None:
        match self.reader.poll():
            case Emit() as emit:
                return (emit,)
            case NeedSplit():
                given = self.enumerator.next_splits(0)
                if given is None:
                    return (None,)
                self.reader.add_splits(given)
        return None


def table(emits: list[Emit]) -> pa.Table:
    return pa.Table.from_batches([emit.batch.data for emit in emits])
