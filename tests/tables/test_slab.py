"""`RowSlab` against a dictionary of rows, for every type of column; `Runs` against lists."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.operators.tables.runs import Runs
from strom.operators.tables.slab import RowSlab

COLUMNS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [1, -(2**63), None]),
    (pa.uint64(), [2**64 - 1, 0, None]),
    (pa.float32(), [0.5, None]),
    (pa.bool_(), [True, False, None]),
    (pa.date32(), [dt.date(2026, 1, 2), None]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 2, tzinfo=dt.UTC), None]),
    (pa.string(), ["", "text", "a longer text, beyond twelve bytes", None]),
    (pa.large_string(), ["x", None]),
    (pa.string_view(), ["a longer text, beyond twelve bytes", "y", None]),
    (pa.binary(), [b"", b"\x00\xff", None]),
    (pa.binary_view(), [b"\x00", None]),
    (pa.dictionary(pa.int32(), pa.string()), ["u", "v", None]),
    (pa.decimal128(5, 2), [Decimal("1.25"), None]),
    (pa.list_(pa.int64()), [[1, 2], [], None]),
    (pa.struct({"a": pa.int64()}), [{"a": 1}, None]),
]
SCHEMA = pa.schema([pa.field(f"c{i}", kind) for i, (kind, _) in enumerate(COLUMNS)])
row = st.tuples(*[st.sampled_from(values) for _, values in COLUMNS])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.lists(row, min_size=1, max_size=6), st.integers(0, 6)), max_size=8))
def test_rows_come_back(steps: Any) -> None:
    slab, held = RowSlab(SCHEMA), {}
    for rows, leave in steps:
        arrays = [
            pa.array(column, type=field.type)
            for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
        ]
        padded = pa.RecordBatch.from_arrays(
            [pa.concat_arrays([a, a]) for a in arrays], SCHEMA.names
        )
        positions = slab.add(padded.slice(len(rows)))
        assert not set(positions.tolist()) & set(held)
        held.update(zip(positions.tolist(), rows, strict=True))
        gone = sorted(held)[:leave]
        slab.release(np.array(gone, dtype=np.int64))
        for position in gone:
            del held[position]
        found = slab.read(np.array(list(held), dtype=np.int64))
        assert found.schema == SCHEMA
        assert [tuple(r.values()) for r in found.to_pylist()] == list(held.values())
        assert len(slab) == len(held)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_long_texts_grow_the_arena_and_are_packed(kind: Any) -> None:
    slab = RowSlab(pa.schema({"s": kind}))
    kept = slab.add(pa.record_batch({"s": pa.array(["kept" * 100] * 10, kind)}))
    for number in range(200):
        texts = pa.array([f"{number:05}" * 200] * 10, kind)
        positions = slab.add(pa.record_batch({"s": texts}))
        assert slab.column(0, positions).to_pylist() == texts.to_pylist()
        slab.release(positions)
    assert slab.column(0, kept).cast(pa.string()).to_pylist() == ["kept" * 100] * 10
    assert slab._texts._arena.array.nbytes < 200_000


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(st.integers(0, 5), st.lists(st.integers(0, 9), max_size=4)), max_size=8
    )
)
def test_runs(steps: Any) -> None:
    runs, lists = Runs(), {slot: [] for slot in range(6)}
    runs.grow(6)
    for change in steps:
        lists.update(change)
        slots = np.array(list(change), dtype=np.int64)
        sizes = np.array([len(change[s]) for s in change], dtype=np.int64)
        runs.replace(slots, sizes, np.array(list(chain(*change.values())), dtype=np.int64))
        sizes, values = runs.gather(np.arange(6))
        assert sizes.tolist() == [len(lists[s]) for s in range(6)]
        assert values.tolist() == list(chain(*(lists[s] for s in range(6))))
        assert runs.live().tolist() == [s for s in range(6) if lists[s]]
    for _ in range(3000):
        runs.replace(np.arange(6), np.full(6, 5), np.arange(30))
    assert len(runs._arena) < 20_000
    runs.keep(np.array([1, 4]))
    assert runs.gather(np.arange(2))[1].tolist() == [*range(5, 10), *range(20, 25)]
