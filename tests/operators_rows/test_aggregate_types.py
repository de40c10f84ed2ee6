"""Built-in aggregates over every column type: kernels and rows give the same values and types."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from strom.api.aggregates import (
    approx_count_distinct,
    arg_max,
    arg_min,
    collect,
    count_distinct,
    first,
    largest,
    last,
    max_,
    min_,
    smallest,
)
from strom.api.specs.windows import BuiltinWindow, WindowSpec
from strom.api.windows.time_windows import SlidingEventTimeWindows
from strom.core.batch import ColumnBatch
from strom.core.elements import MAX_TIMESTAMP
from strom.core.keys import ColumnKey
from strom.operators.row_windows.operator import RowWindowOperator
from strom.operators.window_choice import make_window_operator
from strom.testing.operator_harness import OperatorHarness

DAY = dt.datetime(2020, 1, 1)

TYPES: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "bool": (pa.bool_(), lambda i: i % 2 == 0),
    "int8": (pa.int8(), lambda i: i - 2),
    "uint64": (pa.uint64(), lambda i: 2**63 + i),
    "float32": (pa.float32(), lambda i: i / 4),
    "decimal": (pa.decimal128(10, 2), lambda i: Decimal(i) / 4),
    "date": (pa.date32(), lambda i: dt.date(2020, 1, 1 + i)),
    "timestamp": (pa.timestamp("ms"), lambda i: DAY + dt.timedelta(i)),
    "zoned": (pa.timestamp("us", "UTC"), lambda i: (DAY + dt.timedelta(i)).replace(tzinfo=dt.UTC)),
    "duration": (pa.duration("s"), lambda i: dt.timedelta(seconds=i)),
    "string": (pa.string(), lambda i: "y" * i),
    "view": (pa.string_view(), lambda i: "y" * i),
    "binary": (pa.binary(), lambda i: b"x" * i),
    "list": (pa.list_(pa.int64()), lambda i: [i]),
}
KEYS = {
    "string": pa.string(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "view": pa.string_view(),
}

ANY = {
    "distinct": count_distinct("v"),
    "about": approx_count_distinct("v"),
    "all": collect("v").where(pl.col("w") > 2),
    "start": first("v").where(pl.col("w") > 2),
    "end": last("v"),
    "at": arg_max("v", by="w"),
}
ORDERED = {
    "low": min_("v"),
    "high": max_("v").where(pl.col("w") > 2),
    "by": arg_min("w", by="v"),
    "best": largest("v", 2),
    "least": smallest("v", 20),
}


def batches(kind: pa.DataType, make: Callable[[int], Any], keys: pa.DataType) -> list[ColumnBatch]:
    rng = np.random.default_rng(7)
    found = []
    for _ in range(4):
        numbers = rng.integers(0, 5, 17).tolist()
        values = [make(i) if rng.random() > 0.2 else None for i in numbers]
        plain = pa.array(rng.choice(["x", "y", "z"], 17).tolist(), pa.string())
        key = plain.dictionary_encode() if pa.types.is_dictionary(keys) else plain.cast(keys)
        text = pa.string() if kind == pa.string_view() else kind
        arrays = [key, pa.array(values, text).cast(kind), pa.array(rng.integers(0, 5, 17))]
        data = pa.RecordBatch.from_arrays(arrays, names=["k", "v", "w"])
        found.append(ColumnBatch(data, rng.integers(0, 40, 17)))
    return found


def run(operator: Any, stream: list[ColumnBatch]) -> tuple[pa.Schema, list[Any]]:
    harness = OperatorHarness(operator)
    for batch in stream:
        harness.push(batch)
    harness.watermark(MAX_TIMESTAMP)
    rows = sorted(([*row, ts] for row, ts in harness.stamped_outputs()), key=repr)
    return harness.batches()[0].data.schema, rows


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", TYPES)
def test_rows_and_kernels_agree(name: str, key: str) -> None:
    aggregates = ANY if name == "list" else ANY | ORDERED
    function = BuiltinWindow(tuple(aggregates.items()))
    spec = WindowSpec(ColumnKey(("k",)), SlidingEventTimeWindows.of(10, 5), function)
    stream = batches(*TYPES[name], KEYS[key])
    columnar = make_window_operator(spec)
    assert not isinstance(columnar, RowWindowOperator)
    (schema, rows), (want_schema, want) = (
        run(op, stream) for op in (columnar, RowWindowOperator(spec))
    )
    assert rows == want
    assert schema.equals(want_schema)
