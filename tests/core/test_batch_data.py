"""Batches as plain data, and back."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from strom.core.batch import Batch, ColumnBatch, ObjectBatch
from strom.core.batch_data import batch_data, batch_of, columns_data, columns_of

DATA = pa.record_batch(
    {
        "k": pa.array(["a", "b", "a"]).dictionary_encode(),
        "v": [1.5, None, 3.0],
        "l": [[1], [], None],
    }
)
STAMPS = np.array([3, 4, 5])


@pytest.mark.parametrize("stamps", [None, STAMPS])
@pytest.mark.parametrize("values", [DATA, [{"a": 1}, (2,), None]])
def test_they_come_back_as_they_were(values: Any, stamps: Any) -> None:
    kind = ColumnBatch if isinstance(values, pa.RecordBatch) else ObjectBatch
    batch: Batch = kind(values, stamps)
    found = batch_of(pickle.loads(pickle.dumps(batch_data(batch))))
    assert type(found) is kind
    assert found.rows() == batch.rows()
    assert (found.timestamps is None) == (stamps is None)
    assert stamps is None or found.timestamps.tolist() == stamps.tolist()  # type: ignore[union-attr]
    if isinstance(found, ColumnBatch):
        assert found.data.equals(DATA)
        assert found.data.schema.equals(DATA.schema, check_metadata=True)


def test_objects_can_be_packed() -> None:
    batch = ObjectBatch([[1], [2]], None)
    data = batch_data(batch, pickle.dumps)
    assert data == ("objects", pickle.dumps([[1], [2]]), None)
    first, second = batch_of(data, pickle.loads), batch_of(data, pickle.loads)
    assert first.rows() == second.rows() == batch.values
    assert first.rows()[0] is not second.rows()[0]


def test_of_a_slice_only_what_it_shows() -> None:
    whole = pa.record_batch({"n": list(range(100_000))})
    part = ColumnBatch(whole, np.arange(100_000)).slice(70_000, 2)
    kind, data, stamps = batch_data(part)
    assert (kind, len(stamps or b"")) == ("columns", 16)
    assert len(data) < 1000
    assert batch_of((kind, data, stamps)).rows() == [(70_000,), (70_001,)]


def test_columns_without_rows_or_without_columns() -> None:
    for data in (DATA.slice(0, 0), pa.RecordBatch.from_arrays([], schema=pa.schema([]))):
        assert columns_of(columns_data(data)).equals(data)


def test_what_older_programs_wrote_is_read() -> None:
    """State and stores outlive programs: the form is fixed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, DATA.schema) as writer:
        writer.write_batch(DATA)
    written = ("columns", sink.getvalue().to_pybytes(), STAMPS.tobytes())
    assert batch_data(ColumnBatch(DATA, STAMPS)) == written
    assert batch_of(written).rows() == ColumnBatch(DATA).rows()
    assert batch_of(("objects", [1, 2], None)).rows() == [1, 2]
