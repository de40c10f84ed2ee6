"""Some fields of tuples and rows, by their positions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ...api.specs.project import ProjectSpec, projected
from ...core.batch import Batch, ColumnBatch, ObjectBatch
from ...core.errors import TypeMismatchError
from ...core.row import Row, make_row
from ...core.row_kind import refuse_changelog
from ..base import Operator


class ProjectOperator(Operator):
    """Columns are picked; of Python objects, tuples give tuples and rows give rows."""

    def __init__(self, spec: ProjectSpec) -> None:
        self._indexes = spec.indexes
        self._given: pa.Schema | None = None
        """The columns that `_schema` was found for."""
        self._schema: pa.Schema | None = None

    def process(self, batch: Batch, port: int = 0) -> None:
        refuse_changelog(batch, self.ctx.name, "project()")
        if isinstance(batch, ColumnBatch):
            self.out.emit(ColumnBatch(self._columns(batch.data), batch.timestamps))
        else:
            picked = [self._fields(value) for value in batch.values]
            self.out.emit(ObjectBatch(picked, batch.timestamps))

    def _columns(self, data: pa.RecordBatch) -> pa.RecordBatch:
        if self._schema is None or not data.schema.equals(self._given, check_metadata=True):
            try:
                self._schema, self._given = projected(data.schema, self._indexes), data.schema
            except (IndexError, ValueError) as error:
                raise self._error(f"columns {data.schema.names} do not do ({error})") from None
        arrays = [data.column(at) for at in self._indexes]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _fields(self, value: Any) -> Any:
        if not isinstance(value, (tuple, list, Row)):
            raise self._error(f"a {type(value).__name__}, {value!r:.200}, has no positions")
        try:
            picked = tuple(value[at] for at in self._indexes)
        except IndexError:
            raise self._error(f"{value!r:.200} has only {len(value)} fields") from None
        names = getattr(value, "_fields", None)
        if not isinstance(value, Row) or not names:
            return picked
        chosen = [names[at] for at in self._indexes]
        if len(set(chosen)) < len(chosen):
            return picked
        return make_row(tuple(chosen), picked)

    def _error(self, what: str) -> TypeMismatchError:
        shown = ", ".join(map(str, self._indexes))
        return TypeMismatchError(
            f"operator '{self.ctx.name}', subtask {self.ctx.subtask}: project({shown}) takes "
            f"tuples and rows: {what}; use map() for other records"
        )
