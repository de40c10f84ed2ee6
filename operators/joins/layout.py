"""What a join must know of its sides before it sees a record.

The columns of a side are declared, or told by its first batch; a restored join needs them to read
its state. `changelog`: a side has had row kinds, so the result has them, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.batch import Batch, ColumnBatch, schema_text, to_columns
from ...core.errors import StateError, TypeMismatchError
from ...core.joined_columns import side_columns
from ...core.keys import KeySelector
from ...core.row_kind import ROW_KIND, ROW_KIND_FIELD, split_kinds
from ...state.backend import KeyedStateBackend
from ...state.shared_facts import SharedFacts
from ..columns import check_keys, fit_columns
from .side import SIDES

CHANGELOG = "changelog"


class JoinLayout:
    """`sides`: the columns of the left and the right records, None while not known."""

    def __init__(
        self,
        state: KeyedStateBackend,
        keys: Sequence[KeySelector],
        left: pa.Schema | None,
        right: pa.Schema | None,
    ) -> None:
        self._keys = keys
        self._checked: list[pa.Schema | None] = [None, None]
        """The columns that the last records of each side came with."""
        self._facts = SharedFacts(state, "layout")
        self.sides: list[pa.Schema | None] = [None, None]
        self.changelog = bool(self._facts.known(CHANGELOG))
        for side, (name, schema) in enumerate(zip(SIDES, (left, right), strict=True)):
            stored = self._facts.known(name)
            known = [pa.ipc.read_schema(pa.py_buffer(data)) for data in stored]
            found = _the_one(known if schema is None else [*known, schema], name)
            if found is not None:
                self._learn(side, found)

    def read(self, batch: Batch, port: int) -> tuple[pa.RecordBatch, npt.NDArray[np.int8] | None]:
        """The batch in the columns of its side, which it tells if they were not known, and its row
        kinds."""
        schema = self.sides[port]
        columns = as_columns(batch, schema)
        data, kinds = split_kinds(columns.data)
        if schema is None:
            schema = side_columns(data.schema)
            self._learn(port, schema)
        if kinds is not None and not self.changelog:
            self.changelog = True
            self._facts.learn(CHANGELOG, b"")
        rows = fitted(data, schema, SIDES[port])
        if not data.schema.equals(self._checked[port] or schema):
            check_keys(self._keys[port], data.schema, schema)
        self._checked[port] = data.schema
        return rows, kinds

    def _learn(self, port: int, schema: pa.Schema) -> None:
        self.sides[port] = schema
        self._facts.learn(SIDES[port], schema.serialize().to_pybytes())


def as_columns(batch: Batch, schema: pa.Schema | None) -> ColumnBatch:
    """Columns as they are; objects as columns of `schema`, with row kinds if they have any."""
    if isinstance(batch, ColumnBatch) or schema is None:
        return to_columns(batch)
    first = batch.values[0]
    fields = first if isinstance(first, dict) else getattr(first, "_fields", ())
    return to_columns(batch, schema.append(ROW_KIND_FIELD) if ROW_KIND in fields else schema)


def fitted(data: pa.RecordBatch, schema: pa.Schema, side: str) -> pa.RecordBatch:
    """The columns of `schema`, by name. TypeMismatchError if one is missing or does not fit."""
    missing = [name for name in schema.names if name not in data.schema.names]
    if missing:
        raise TypeMismatchError(
            f"the {side} side has no columns {missing}, only {data.schema.names}: declared, or "
            f"seen in earlier records, are {schema.names}"
        )
    return fit_columns(data.select(schema.names), schema)


def _the_one(found: list[pa.Schema], side: str) -> pa.Schema | None:
    for other in found[1:]:
        if not other.equals(found[0]):
            raise StateError(
                f"the join's state has {side} records of columns {schema_text(found[0])} and of "
                f"{schema_text(other)}: declare one type for that side, or give the "
                "operator a new uid"
            )
    return found[0] if found else None
