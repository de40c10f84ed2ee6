"""Rows of a sink on their way to Spark, in blocks of the object store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from ...core.batch import Batch, to_columns
from ...core.errors import ConfigurationError
from .bridge import encode, storable


class Blocks:
    """What a writer was given since the last checkpoint. A block is handed to the object store when
    it reaches `block_bytes`, so no more than that lies in the task's own memory.

    schema: of records that are Python objects. error: makes an error that names the operator.
    check: is given the columns once they are known, and may raise."""

    def __init__(
        self,
        schema: pa.Schema | None,
        block_bytes: int,
        error: Callable[[str], Exception],
        check: Callable[[pa.Schema], None] = lambda schema: None,
    ) -> None:
        self._declared = schema
        self._block_bytes = block_bytes
        self._error = error
        self._check = check
        self._batches: list[pa.RecordBatch] = []
        """Rows that are in no block yet, all of `schema`."""
        self._bytes = 0
        """Size of `_batches`."""
        self._blocks: list[Any] = []
        """References of the blocks since the last `take`."""
        self.schema: pa.Schema | None = None
        """Columns of all rows, as Spark can store them; set by the first batch."""

    def add(self, batch: Batch) -> None:
        rows = to_columns(batch, self._declared).data
        if self.schema is None:
            schema = storable(rows.schema)
            self._check(schema)
            self.schema = schema
        elif rows.schema.names != self.schema.names:
            raise self._error(f"columns {rows.schema.names} after columns {self.schema.names}")
        try:
            rows = rows.cast(self.schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise self._error(f"a value does not fit what Parquet stores: {error}") from None
        self._batches.append(rows)
        self._bytes += int(rows.nbytes)
        if self._bytes >= self._block_bytes:
            self._seal()

    def take(self) -> list[Any]:
        """All blocks since the last call; the caller owns them."""
        self._seal()
        blocks, self._blocks = self._blocks, []
        return blocks

    def clear(self) -> None:
        self._batches, self._blocks, self._bytes = [], [], 0

    def _seal(self) -> None:
        if self._batches:
            import ray

            self._blocks.append(ray.put(encode(pa.Table.from_batches(self._batches))))
            self._batches, self._bytes = [], 0


def check_folders(names: Sequence[str], schema: pa.Schema, operator: str) -> None:
    """Raise ConfigurationError if the stream lacks a column that is to become folders."""
    missing = sorted(set(names) - set(schema.names))
    if missing:
        raise ConfigurationError(
            f"operator '{operator}': partition_by names {missing}, but the stream has the columns "
            f"{schema.names}"
        )
