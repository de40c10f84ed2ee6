"""The kernel that groups rows against its twin, and joined columns."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.core.errors import GraphError
from strom.core.joined_columns import NO_ROW, JoinedColumns
from strom.core.row_kind import ROW_KIND, RowKind, retracts, split_kinds, with_kinds
from strom.operators.kernels.pairs import group_rows

SLOTS = st.lists(st.integers(0, 5), max_size=30)


@given(SLOTS)
@settings(deadline=None)
def test_rows_are_grouped_by_slot_in_their_order(grouped: list[int]) -> None:
    slots = np.array(grouped, dtype=np.int64)
    count = max(grouped, default=-1) + 1
    starts, order = np.zeros(count + 1, dtype=np.int64), np.empty(len(slots), dtype=np.int64)
    group_rows(slots, starts, order)
    found = [order[a:b].tolist() for a, b in pairwise(starts.tolist())]
    assert found == [[row for row, of in enumerate(grouped) if of == slot] for slot in range(count)]


def test_joined_columns_share_a_key_and_rename_clashes() -> None:
    left = pa.record_batch({"k": [1, 2], "v": ["a", "b"]})
    right = pa.record_batch({"k": [2, 3], "v": [10, 20], "w": [True, False]})
    joined = JoinedColumns.of(left.schema, right.schema, ["k"], ["k"])
    rows = joined.build(left, np.array([1, 0, NO_ROW]), right, np.array([0, NO_ROW, 1]))
    assert rows.to_pydict() == {
        "k": [2, 1, 3],
        "v": ["b", "a", None],
        "v_right": [10, None, 20],
        "w": [True, None, False],
    }


def test_names_that_still_clash_are_an_error() -> None:
    left = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("v_right", pa.int64())])
    with pytest.raises(GraphError, match="v_right"):
        JoinedColumns.of(left, left.remove(2), ["k"], ["k"])


def test_row_kinds_are_a_column() -> None:
    data = pa.record_batch({"a": [1, 2, 3]})
    kinds = np.array([RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER], dtype=np.int8)
    changelog = with_kinds(data, kinds)
    assert changelog.schema.names == ["a", ROW_KIND]
    back, found = split_kinds(changelog)
    assert back.equals(data)
    assert found is not None
    assert found.tolist() == [0, 1, 2]
    assert retracts(found).tolist() == [False, True, False]
    assert split_kinds(data) == (data, None)
    assert RowKind.UPDATE_AFTER.symbol == "+U"
