"""Dictionary columns with room: codes of at least 32 bits.

pandas' categories come with codes of one byte, polars' enums likewise: enough for the dictionary of
one batch. What an operator gathers from many batches (keys, rows of a window, a buffer on its way)
has the words of all of them. So codes are widened where a batch is emitted, once, rather than
wherever two batches meet.
"""

from __future__ import annotations

import pyarrow as pa

from .batch import Batch, ColumnBatch

_NARROW = frozenset({pa.int8(), pa.int16(), pa.uint8(), pa.uint16()})


class CodeWidener:
    """Widens the codes of a stream of batches, whose schema is looked at when it changes."""

    __slots__ = ("_schema", "_wide")

    def __init__(self) -> None:
        self._schema: pa.Schema = pa.schema([])
        """That of the last batch."""
        self._wide: pa.Schema | None = None
        """What its batches are cast to; None if they stay."""

    def __call__(self, batch: Batch) -> Batch:
        if not isinstance(batch, ColumnBatch):
            return batch
        schema = batch.data.schema
        if not schema.equals(self._schema):
            self._schema, wide = schema, wide_codes(schema)
            self._wide = None if wide.equals(schema) else wide
        if self._wide is None:
            return batch
        wide = self._wide.with_metadata(schema.metadata)
        pairs = zip(batch.data.columns, wide.types, strict=True)
        columns = [c if c.type.equals(kind) else c.cast(kind) for c, kind in pairs]
        return ColumnBatch(pa.RecordBatch.from_arrays(columns, schema=wide), batch.timestamps)


def wide_codes(schema: pa.Schema) -> pa.Schema:
    """The schema with wide codes, at any depth."""
    return pa.schema([f.with_type(_wide(f.type)) for f in schema], metadata=schema.metadata)


def _wide(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        codes = pa.int32() if kind.index_type in _NARROW else kind.index_type
        return pa.dictionary(codes, kind.value_type, ordered=kind.ordered)
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_wide(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, _wide_field(kind.item_field), kind.keys_sorted)
    if pa.types.is_large_list(kind):
        return pa.large_list(_wide_field(kind.value_field))
    if pa.types.is_list(kind):
        return pa.list_(_wide_field(kind.value_field))
    return kind


def _wide_field(field: pa.Field) -> pa.Field:
    return field.with_type(_wide(field.type))
