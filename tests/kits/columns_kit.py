"""Records in columns of every kind: random values, batches of them, and aggregates over them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from strom.api.aggregates import count, first, last, max_, mean, min_, sum_
from strom.core.batch import ColumnBatch
from strom.core.ids import KeyGroupRange
from strom.core.row_kind import with_kinds
from strom.state.key_groups import key_groups_of

WHOLE = KeyGroupRange(0, 127)
HALVES = (KeyGroupRange(0, 63), KeyGroupRange(64, 127))

FIELDS = [
    pa.field("v", pa.int64()),
    pa.field("f", pa.float64()),
    pa.field("d", pa.date32()),
    pa.field("b", pa.bool_()),
    pa.field("s", pa.string()),
]
VALUES = (
    st.none() | st.integers(-3, 3),
    st.none() | st.integers(-2, 2).map(float) | st.just(float("nan")),
    st.none() | st.integers(-2, 2).map(lambda n: dt.date(1970, 1, 1) + dt.timedelta(n)),
    st.none() | st.booleans(),
    st.none() | st.sampled_from(["x", "yy", "z", ""]),
)
"""Of each of FIELDS; few different ones, so that ties are common."""

AGGREGATES = (
    ("rows", count()),
    ("n", count("v")),
    ("total", sum_("v")),
    ("low", min_("v")),
    ("high", max_("f")),
    ("fsum", sum_("f")),
    ("avg", mean("v")),
    ("one", first("v")),
    ("two", last("f")),
    ("day", max_("d")),
    ("flag", min_("b")),
    ("word", min_("s")),
    ("upper", max_("s")),
    ("opened", first("s")),
    ("closed", last("s")),
)
"""Each kind over FIELDS."""


def batch(
    schema: pa.Schema,
    rows: Sequence[tuple[Any, ...]],
    kinds: Sequence[int] | None = None,
    stamps: Sequence[int] | None = None,
) -> ColumnBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns, schema, strict=True)]
    data = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if kinds is not None:
        data = with_kinds(data, np.array(kinds, dtype=np.int8))
    return ColumnBatch(data, None if stamps is None else np.array(stamps, dtype=np.int64))


def stamped(schema: pa.Schema, records: Sequence[tuple[tuple[Any, ...], int]]) -> ColumnBatch:
    """A batch of (row, timestamp)."""
    return batch(schema, [row for row, _ in records], stamps=[ts for _, ts in records])


def of_groups(
    made: ColumnBatch, records: Sequence[Any], key: str, groups: KeyGroupRange
) -> list[Any]:
    """Those of `records`, the rows of `made`, whose keys belong to these groups of WHOLE."""
    found = key_groups_of(made.data.select([key]), WHOLE.last + 1).tolist()
    return [record for record, group in zip(records, found, strict=True) if group in groups]
