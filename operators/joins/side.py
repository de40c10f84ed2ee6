"""One side of a join: its records as rows of fixed columns, and their keys as they are compared.

The columns of a side are those its spec knows, or its first record's. They are part of the state,
because a restored operator may have to write them before it has seen a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...api.windows.time_windows import no_timestamp_error
from ...core.arrays import Bools, Int64s
from ...core.batch import Batch, ColumnBatch, schema_text, to_columns
from ...core.elements import MIN_TIMESTAMP
from ...core.errors import StateError, TypeMismatchError
from ...core.joined_columns import plain_columns
from ...core.key_types import check_comparable, widened_keys
from ...core.keys import KeySelector
from ...core.row_kind import ROW_KIND
from ...core.value_types import empty_batch
from ...state.backend import KeyedStateBackend
from ...state.hash_columns import validity_of
from ...state.shared_facts import SharedFacts
from ..columns import check_keys, fit
from ..time.event_time import check_range

SIDES = ("left", "right")


@dataclass(frozen=True)
class SideRows:
    """Records of one side. `keys`: one row per record, of `core.key_types`' types. `valid`: which
    keys have no null; None when all."""

    rows: pa.RecordBatch
    keys: pa.RecordBatch
    timestamps: Int64s
    valid: Bools | None

    def __len__(self) -> int:
        return len(self.timestamps)

    def take(self, at: Int64s) -> SideRows:
        """Only these rows, in this order."""
        taken = ColumnBatch(self.rows, self.timestamps).take(at)
        keys = self.keys.take(pa.array(at))
        return SideRows(
            taken.data, keys, self.timestamps[at], None if self.valid is None else self.valid[at]
        )


class JoinSide:
    """`schema`, `keys`: the columns of rows and of keys; None until known. Never changed then."""

    def __init__(self, port: int, key: KeySelector, schema: pa.Schema | None, join: str) -> None:
        self.port = port
        self._key = key
        self._join = join
        self.schema: pa.Schema | None = None
        self.keys: pa.Schema | None = None
        self._seen: pa.Schema | None = None
        """The schema of the last batch, if its columns are this side's already."""
        if schema is not None:
            self.bind(schema)

    def bind(self, schema: pa.Schema) -> None:
        """The side's columns are these, dictionaries as their values."""
        self.schema = plain_columns(schema)
        empty = empty_batch(self.schema)
        self.keys = self._keys_of(empty).schema

    def read(self, batch: Batch) -> SideRows:
        """The records of a batch. TypeMismatchError if they are a changelog, lack timestamps or
        have other columns than those before."""
        columns = to_columns(batch)
        stamps = columns.timestamps
        if stamps is None or stamps.min() == MIN_TIMESTAMP:
            raise no_timestamp_error()
        check_range(stamps, f"{self._join}, {SIDES[self.port]} side")
        if ROW_KIND in columns.data.schema.names:
            raise TypeMismatchError(
                f"{self._join}: the {SIDES[self.port]} side is a changelog (it has the column "
                f"{ROW_KIND}); joins in event time take streams that only insert: use join(...), "
                "or aggregate in windows before"
            )
        if self.schema is None:
            self.bind(columns.data.schema)
        rows = self._fit(columns.data)
        keys = self._keys_of(rows)
        return SideRows(rows, keys, np.ascontiguousarray(stamps), all_valid(keys))

    def keys_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The keys of rows read before."""
        return self._keys_of(rows)

    def _keys_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        keys = self._key.key_columns(ColumnBatch(rows))
        assert keys is not None
        return widened_keys(keys)

    def _fit(self, data: pa.RecordBatch) -> pa.RecordBatch:
        schema = self.schema
        assert schema is not None
        if self._seen is None or not data.schema.equals(self._seen):
            missing = [name for name in schema.names if name not in data.schema.names]
            if missing:
                raise TypeMismatchError(
                    f"{self._join}: records of the {SIDES[self.port]} side have columns "
                    f"{data.schema.names}, expected are {schema.names}: {missing} are missing"
                )
            check_keys(self._key, data.schema, schema)
            self._seen = data.schema
        arrays = []
        for field in schema:
            column = data.column(field.name)
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            arrays.append(fit(column, field.type, f"column '{field.name}'"))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def all_valid(keys: pa.RecordBatch) -> Bools | None:
    """Which rows have no null key column; None when all."""
    valid: Bools | None = None
    for column in keys.columns:
        if column.null_count:
            mine = validity_of(column)
            valid = mine if valid is None else valid & mine
    return valid


def check_sides(sides: Sequence[JoinSide], join: str) -> bool:
    """Whether the columns of both sides are known; TypeMismatchError if their keys then cannot be
    compared."""
    left, right = (side.keys for side in sides)
    if left is None or right is None:
        return False
    check_comparable(left, right, join)
    return True


class SideLayouts:
    """The columns of both sides in keyed state."""

    def __init__(self, state: KeyedStateBackend, sides: Sequence[JoinSide]) -> None:
        """Sides of unknown columns get those restored."""
        self._facts = SharedFacts(state, "layouts")
        for side in sides:
            for stored in self._facts.known(SIDES[side.port]):
                self._restore(side, pa.ipc.read_schema(pa.py_buffer(stored)))
            if side.schema is not None:
                self.learn(side)

    def learn(self, side: JoinSide) -> None:
        """The columns of this side are known from here on."""
        assert side.schema is not None
        self._facts.learn(SIDES[side.port], side.schema.serialize().to_pybytes())

    def _restore(self, side: JoinSide, layout: pa.Schema) -> None:
        if side.schema is None:
            side.bind(layout)
        elif not side.schema.equals(layout):
            raise StateError(
                f"the {SIDES[side.port]} side of the join was stored with columns "
                f"{schema_text(layout)} and has columns {schema_text(side.schema)} now: declare a "
                "schema upstream so that they are the same, or give the operator a new uid"
            )
