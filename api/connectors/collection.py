"""A source over values in memory: bounded, parallel, replayable.

The collection is cut into ranges; range i is read by subtask i mod parallelism, in ascending order.
Small ranges dealt in turn keep the subtasks at about the same place of the collection, so that the
watermarks of a collection in time order advance together. A split is a range and the position
reached in it. The data itself travels within the source, in the job graph: collections are for
tests, examples and small reference data.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...core.batch import Batch, ColumnBatch, ObjectBatch, to_columns
from ...core.errors import ConfigurationError
from ...state.copies import all_fixed, kept_values
from ..types.declared import Scalars, check_no_more, declared_records
from .base import (
    Emit,
    EnumeratorContext,
    NeedSplit,
    Polled,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)

RANGE_SIZE = 16384
"""The most records of one range; small collections have smaller ranges, one per subtask."""


@dataclass(frozen=True, slots=True, order=True)
class RangeSplit:
    """Records `position..stop - 1` of range `index` are still to be read."""

    index: int
    position: int
    stop: int

    @property
    def split_id(self) -> str:
        return f"range-{self.index:08d}"


class CollectionSource(Source):
    """Over a list of values (object batches), or an Arrow table (column batches)."""

    independent_readers = True

    def __init__(self, values: list[Any] | pa.Table, scalars: Scalars | None = None) -> None:
        self.values = values
        self._scalars = scalars

    def __repr__(self) -> str:
        return f"CollectionSource({len(self)} records)"

    def __len__(self) -> int:
        return len(self.values)

    @property
    def bounded(self) -> bool:
        return True

    @property
    def schema(self) -> pa.Schema | None:
        return self.values.schema if isinstance(self.values, pa.Table) else None

    @property
    def scalars(self) -> Scalars | None:
        return self._scalars

    def reads_from(self) -> tuple[str, ...]:
        return (f"{len(self)} records",)

    def create_enumerator(
        self, context: EnumeratorContext, restored: Any | None
    ) -> SplitEnumerator:
        splits = _ranges(len(self), context.parallelism) if restored is None else restored
        return _Enumerator(splits, context.parallelism)

    def create_reader(self, context: ReaderContext) -> SourceReader:
        return _Reader(self.values, context.batch_size)


def collection_source(collection: Any, type_info: Any = None) -> CollectionSource:
    """A source over an iterable of values, or over the rows of a pyarrow Table or RecordBatch, a
    pandas or a polars DataFrame. The values are those of now: without a type they are copied if
    they can change, with a row type they become columns at once, with another one values of it.

    Raises TypeMismatchError naming the first value that does not fit the declared type.
    """
    declared = declared_records(type_info)
    table = _as_table(collection)
    if table is not None:
        schema = _columns_alone(declared)
        if not table.num_columns:
            raise ConfigurationError("from_collection: the table has no columns")
        return CollectionSource(_fit(table, schema))
    if isinstance(collection, (str, bytes, dict)) or not isinstance(collection, Iterable):
        raise ConfigurationError(
            "from_collection: expected a list of records or a table, got "
            f"{type(collection).__name__}"
        )
    values = list(collection)
    if declared is None:
        return CollectionSource(kept_values(values))
    if isinstance(declared, Scalars):
        return CollectionSource(kept_values(declared.fitted(values)), declared)
    columns = to_columns(ObjectBatch(values), declared)
    return CollectionSource(pa.Table.from_batches([columns.data]))


def _columns_alone(declared: pa.Schema | Scalars | None) -> pa.Schema | None:
    if isinstance(declared, Scalars):
        raise ConfigurationError(
            f"from_collection: the records of a table are rows, and type_info is {declared.info}: "
            "declare a row type, or give a list of values"
        )
    return declared


def _as_table(collection: Any) -> pa.Table | None:
    if isinstance(collection, pa.Table):
        return collection
    if isinstance(collection, pa.RecordBatch):
        return pa.Table.from_batches([collection])
    package = type(collection).__module__.partition(".")[0]
    if package == "polars" and hasattr(collection, "to_arrow"):
        import polars as pl

        return collection.to_arrow(compat_level=pl.CompatLevel.oldest())
    if package == "pandas" and hasattr(collection, "columns"):
        return pa.Table.from_pandas(collection, preserve_index=False).replace_schema_metadata(None)
    return None


def _fit(table: pa.Table, schema: pa.Schema | None) -> pa.Table:
    """One chunk per column, in the columns of `schema`."""
    whole = table.combine_chunks()
    if schema is None or whole.schema.equals(schema):
        return whole
    check_no_more(whole.schema, schema)
    fitted = [to_columns(ColumnBatch(batch), schema) for batch in whole.to_batches()]
    return pa.Table.from_batches([batch.data for batch in fitted], schema=schema)


def _ranges(count: int, parallelism: int) -> list[RangeSplit]:
    size = max(1, min(RANGE_SIZE, -(-count // parallelism)))
    starts = range(0, count, size)
    return [RangeSplit(i, start, min(start + size, count)) for i, start in enumerate(starts)]


class _Enumerator(SplitEnumerator):
    """Gives a subtask its ranges one by one: a range that is held but not yet read would hold the
    watermark back."""

    def __init__(self, splits: Sequence[RangeSplit], parallelism: int) -> None:
        self._unassigned = sorted(splits)
        """Ascending by range; loses every split that is handed out, gains none."""
        self._parallelism = parallelism

    def next_splits(self, subtask: int) -> list[RangeSplit] | None:
        for i, split in enumerate(self._unassigned):
            if split.index % self._parallelism == subtask:
                return [self._unassigned.pop(i)]
        return None

    def snapshot(self) -> list[RangeSplit]:
        return list(self._unassigned)


class _Reader(SourceReader):
    def __init__(self, values: list[Any] | pa.Table, batch_size: int) -> None:
        self._values = values
        self._fixed = isinstance(values, pa.Table) or all_fixed(values)
        """Whether records are given away as they are; else copies, so that they can be read
        again."""
        self._batch_size = batch_size
        self._splits: list[RangeSplit] = []
        """Heap of unfinished splits: the lowest range is read first."""

    def add_splits(self, splits: Sequence[RangeSplit]) -> None:
        for split in splits:
            heapq.heappush(self._splits, split)

    def poll(self) -> Polled:
        if not self._splits:
            return NeedSplit()
        split = self._splits[0]
        end = min(split.position + self._batch_size, split.stop)
        finished = end == split.stop
        if finished:
            heapq.heappop(self._splits)
        else:
            heapq.heapreplace(self._splits, RangeSplit(split.index, end, split.stop))
        batch = _slice(self._values, split.position, end)
        if not self._fixed and isinstance(batch, ObjectBatch):
            batch = ObjectBatch(kept_values(batch.values))
        return Emit(batch, split.split_id, finished)

    def snapshot(self) -> list[RangeSplit]:
        return sorted(self._splits)


def _slice(values: list[Any] | pa.Table, start: int, stop: int) -> Batch:
    if isinstance(values, list):
        return ObjectBatch(values[start:stop])
    batches = values.slice(start, stop - start).combine_chunks().to_batches()
    return ColumnBatch(batches[0])
