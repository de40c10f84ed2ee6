"""The records of one kind, of a stream of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ...api.specs.kinds import KindSpec, union_columns
from ...core.batch import Batch, ColumnBatch, ObjectBatch, to_columns
from ...core.errors import TypeMismatchError
from ...core.row_kind import refuse_changelog
from ...core.taking import fields_of
from ...core.union_type import OfKind, UnionType, rows_of_kind, rows_schema
from ..base import Operator


class KindOperator(Operator):
    """Of columns a kind's rows are a view, where no record is missing among them; of objects they
    are picked one by one."""

    def __init__(self, spec: KindSpec) -> None:
        self._spec = spec
        self._union: pa.DataType | None = None
        """The type that `_schema` was found for."""
        self._schema: pa.Schema | None = None

    def process(self, batch: Batch, port: int = 0) -> None:
        refuse_changelog(batch, self.ctx.name, "of_kind()")
        chosen = self._columns(batch) if isinstance(batch, ColumnBatch) else self._rows(batch)
        if len(chosen):
            self.out.emit(chosen)

    def _columns(self, batch: ColumnBatch) -> Batch:
        column = batch.data.column(self._name(batch.data.schema))
        if self._schema is None or column.type != self._union:
            self._schema, self._union = self._schema_of(column.type), column.type
        rows, mine = rows_of_kind(column, self._spec.kind)
        data = pa.RecordBatch.from_arrays(fields_of(rows), schema=self._schema)
        if batch.timestamps is None or len(data) == len(batch):
            return ColumnBatch(data, batch.timestamps)
        return ColumnBatch(data, batch.timestamps[mine])

    def _name(self, schema: pa.Schema) -> str:
        found = union_columns(schema)
        name = self._spec.column
        if name is None and len(found) == 1:
            return found[0]
        if name not in found:
            raise self._error(f"of the columns {schema.names} {found or 'none'} are of kinds")
        return name

    def _schema_of(self, union: UnionType) -> pa.Schema:
        if self._spec.kind not in union.kinds:
            raise self._error(f"the stream has the kinds {', '.join(union.kinds)}")
        return rows_schema(union.rows_type(self._spec.kind))

    def _rows(self, batch: ObjectBatch) -> Batch:
        values = [self._value(record) for record in batch.values]
        places = [
            at
            for at, value in enumerate(values)
            if value is not None and value[0] == self._spec.kind and value[1] is not None
        ]
        stamps = None if batch.timestamps is None else batch.timestamps[np.array(places, np.int64)]
        chosen = ObjectBatch([values[at][1] for at in places], stamps)
        schema = self._spec.schema
        return to_columns(chosen, schema) if isinstance(schema, pa.Schema) else chosen

    def _value(self, record: Any) -> Any:
        """The OfKind that a record is, or has in the column."""
        name = self._spec.column
        if name is None:
            value = record
        elif isinstance(record, Mapping):
            value = record.get(name)
        else:
            value = getattr(record, name, None)
        if value is None or isinstance(value, OfKind):
            return value
        raise self._error(f"{value!r:.200} is no OfKind")

    def _error(self, what: str) -> TypeMismatchError:
        spec = self._spec
        column = "" if spec.column is None else f", {spec.column!r}"
        return TypeMismatchError(
            f"operator '{self.ctx.name}', subtask {self.ctx.subtask}: of_kind({spec.kind!r}"
            f"{column}) takes OfKinds or a column of type Types.UNION: {what}"
        )
