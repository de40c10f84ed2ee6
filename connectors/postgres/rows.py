"""Batches on their way into a table: gathered, shown as texts, and copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.batch import Batch, to_columns
from ...core.errors import TypeMismatchError
from ...core.row_kind import ROW_KIND, retracts, split_kinds
from .texts import to_copy, to_text

if TYPE_CHECKING:
    from .connection import Session

Kinds = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Rows:
    """Columns of texts, by name, and what each row does, None if all insert."""

    columns: dict[str, pa.Array]
    kinds: Kinds | None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def take(self, at: npt.NDArray[Any], names: Sequence[str]) -> Rows:
        """These rows, of these columns; without kinds."""
        indices = pa.array(at)
        return Rows({name: self.columns[name].take(indices) for name in names}, None)


class Gathered:
    """Batches that wait to be written, all of the same columns."""

    def __init__(self, schema: pa.Schema | None, table: str) -> None:
        self._schema = schema
        self._table = table
        self._names: list[str] | None = None
        """Of the columns, from the first batch on."""
        self._batches: list[pa.RecordBatch] = []
        self.rows = 0

    def add(self, batch: Batch) -> None:
        """Raises TypeMismatchError for values that do not fit the schema, and for columns that
        differ from those before."""
        data = to_columns(batch, self._wanted(batch)).data
        if self._names is None:
            self._names = list(data.schema.names)
        elif data.schema.names != self._names:
            raise TypeMismatchError(
                f"sink to table '{self._table}': a batch has columns {data.schema.names}, the "
                f"first one had {self._names}; declare a schema"
            )
        self._batches.append(data)
        self.rows += data.num_rows

    def take(self) -> list[pa.RecordBatch]:
        """All that was added since the last call."""
        taken, self._batches, self.rows = self._batches, [], 0
        return taken

    def _wanted(self, batch: Batch) -> pa.Schema | None:
        """A changelog's kinds come on top of a declared schema."""
        data = getattr(batch, "data", None)
        if self._schema is None or data is None or ROW_KIND in self._schema.names:
            return self._schema
        has_kinds = ROW_KIND in data.schema.names
        return self._schema.append(data.schema.field(ROW_KIND)) if has_kinds else self._schema


def as_rows(batches: Sequence[pa.RecordBatch]) -> Rows:
    """One after the other. Raises TypeMismatchError for what has no text."""
    parts = [split_kinds(batch) for batch in batches]
    names = parts[0][0].schema.names
    columns = {
        name: pa.concat_arrays([to_text(data.column(name), name) for data, _ in parts])
        for name in names
    }
    kinds = None
    if any(kind is not None for _, kind in parts):
        found = [np.zeros(len(d), np.int8) if k is None else k for d, k in parts]
        kinds = np.concatenate(found)
    return Rows(columns, kinds)


def last_of_keys(rows: Rows, keys: Sequence[str], table: str) -> tuple[Rows, Rows]:
    """What is left to write, and to delete (of these the keys alone), when of each key only the
    last row counts. A -U deletes: the +U behind it mostly has the same key, and else its row is
    gone. Raises TypeMismatchError for missing keys and nulls in them."""
    missing = [name for name in keys if name not in rows.columns]
    if missing:
        raise TypeMismatchError(
            f"sink to table '{table}': the stream has no key columns {missing}, only "
            f"{list(rows.columns)}"
        )
    for name in keys:
        if rows.columns[name].null_count:
            raise TypeMismatchError(
                f"sink to table '{table}': key column '{name}' holds a null, which no key equals: "
                "filter such records before the sink"
            )
    numbers = pa.array(np.arange(len(rows)))
    table_of_keys = pa.table({**{name: rows.columns[name] for name in keys}, "": numbers})
    groups = table_of_keys.group_by(list(keys), use_threads=False).aggregate([("", "max")])
    last = np.sort(groups.column("_max").to_numpy())
    names = list(rows.columns)
    if rows.kinds is None:
        return rows.take(last, names), rows.take(last[:0], keys)
    gone = retracts(rows.kinds[last])
    return rows.take(last[~gone], names), rows.take(last[gone], keys)


def copy_in(
    session: Session, table: Any, rows: Rows, more: Mapping[str, str] | None = None
) -> None:
    """`COPY` into `table` (a composed name). `more`: columns that are the same in each row."""
    from psycopg import sql

    names = list(rows.columns)
    columns = list(rows.columns.values())
    for name, value in (more or {}).items():
        names.append(name)
        columns.append(pa.repeat(pa.scalar(value, pa.large_string()), len(rows)))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(table, named(names))
    with session.cursor().copy(statement) as copy:
        copy.write(to_copy(columns, len(rows)))


def named(names: Sequence[str], prefix: str = "") -> Any:
    """Names as SQL, apart by commas."""
    from psycopg import sql

    made = [sql.Identifier(prefix, name) if prefix else sql.Identifier(name) for name in names]
    return sql.SQL(", ").join(made)
