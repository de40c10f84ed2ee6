"""A row store as rows of a buffer, and back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.arrays import numpy_of
from .rowstore import ALIVE, BORN, MATCHES, SEEN, RowStore

_KNOWN = (
    pa.field(SEEN, pa.int64()),
    pa.field(BORN, pa.int64()),
    pa.field(MATCHES, pa.int64()),
    pa.field(ALIVE, pa.bool_()),
)


def buffer_schema(store: RowStore) -> pa.Schema:
    """What is known of each row, then its columns by position."""
    kinds = store.arena.stored_schema.types
    return pa.schema([*_KNOWN, *(pa.field(f"c{i}", kind) for i, kind in enumerate(kinds))])


def saved_rows(store: RowStore) -> pa.Table:
    """All rows, also those of no more use: the arrays are the store's own, and copying only the
    others would take longer."""
    known = store.columns()
    arrays = [known[field.name] for field in _KNOWN] + store.arena.stored()
    return pa.Table.from_arrays(arrays, schema=buffer_schema(store))


def restored_rows(
    store: RowStore, rows: pa.Table, now_ms: int
) -> tuple[pa.RecordBatch, dict[str, npt.NDArray[np.int64]]]:
    """The rows that are still of use, in order of birth, with what is known of each."""
    born = numpy_of(rows.column(BORN))
    keep = numpy_of(rows.column(ALIVE))
    if store.ttl_ms is not None:
        keep = keep & (born > store.cutoff(now_ms))
    chosen = np.flatnonzero(keep)
    chosen = chosen[np.argsort(born[chosen], kind="stable")]
    known = {name: numpy_of(rows.column(name))[chosen] for name in (SEEN, BORN, MATCHES)}
    taken = rows.select(list(range(len(_KNOWN), rows.num_columns))).take(pa.array(chosen))
    arrays = [column.combine_chunks() for column in taken.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=store.arena.stored_schema), known
