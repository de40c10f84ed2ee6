"""`DataGenSource`: records made from their number, in parallel, replayable, at a given rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ...api.connectors.base import EnumeratorContext, ReaderContext, Source
from ...api.types.type_info import schema_of
from ...core.batch import Batch, ColumnBatch, ObjectBatch, concat, to_columns
from ...core.errors import ConfigurationError, TypeMismatchError
from ...state.copies import kept_values
from .reader import NumberReader, Runs, check_rate
from .stripes import NumberEnumerator, make_splits

Generate = Callable[[int, int], Any]


class DataGenSource(Source):
    """Records 0, 1, ..., count - 1 (None: for ever), made by `generate(start, count)`.

    generate: from the first number and how many to exactly so many records, as a
        `pyarrow.RecordBatch` or a list (turned into columns if there is a `schema`). Must be a
        function of the numbers alone: after a failure it is asked again. Not called for
        more than the job's batch size.
    splits: how many parallel parts (None: the parallelism of the first start).
    rate: records per second of the whole source, shared evenly by the splits; None: unlimited.
    schema: columns of the batches (anything that declares a row type), None for objects.
    block: numbers are dealt to the splits in blocks of this many; with `contiguous`, each split is
        one range instead (bounded sources only).
    """

    independent_readers = True

    def __init__(
        self,
        generate: Generate,
        count: int | None = None,
        splits: int | None = None,
        rate: float | None = None,
        schema: Any = None,
        block: int = 1024,
        contiguous: bool = False,
    ) -> None:
        if count is not None and count < 0:
            raise ConfigurationError(f"count must be at least 0, is {count}")
        check_rate(rate)
        make_splits(count, 1 if splits is None else splits, block, contiguous)
        self._generate = generate
        self._count = count
        self._splits = splits
        self._rate = rate
        self._schema = schema_of(schema)
        self._block = block
        self._contiguous = contiguous

    @property
    def bounded(self) -> bool:
        return self._count is not None

    @property
    def schema(self) -> pa.Schema | None:
        return self._schema

    def reads_from(self) -> tuple[str, ...]:
        return () if self._count is None else (f"{self._count} records",)

    def create_enumerator(
        self, context: EnumeratorContext, restored: Any | None
    ) -> NumberEnumerator:
        if restored is not None:
            return NumberEnumerator(context, restored)
        splits = context.parallelism if self._splits is None else self._splits
        return NumberEnumerator(
            context, make_splits(self._count, splits, self._block, self._contiguous)
        )

    def create_reader(self, context: ReaderContext) -> NumberReader:
        return NumberReader(context, self._batch, context.batch_size, self._rate)

    def _batch(self, runs: Runs) -> Batch:
        if not runs:
            return self._checked([], 0, 0)
        return concat([self._checked(self._generate(s, n), s, n) for s, n in runs])

    def _checked(self, made: Any, start: int, count: int) -> Batch:
        if not isinstance(made, (pa.RecordBatch, list)):
            raise TypeMismatchError(
                f"generate({start}, {count}) returned a {type(made).__name__}: "
                "return a pyarrow.RecordBatch or a list"
            )
        if len(made) != count:
            raise TypeMismatchError(
                f"generate({start}, {count}) returned {len(made)} records, not {count}"
            )
        if isinstance(made, list):
            batch = ObjectBatch(kept_values(made))
            return batch if self._schema is None else to_columns(batch, self._schema)
        if self._schema is not None and not made.schema.equals(self._schema):
            raise TypeMismatchError(
                f"generate({start}, {count}) returned columns {_columns(made.schema)}, "
                f"declared are {_columns(self._schema)}"
            )
        return ColumnBatch(made)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
