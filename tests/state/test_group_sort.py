"""Rows in the order of their key groups: as numpy's stable argsort has them, whatever the columns
are, however few or many rows there are, and wherever these lie."""

from __future__ import annotations

import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.state import group_sort
from strom.state.group_kernels import places_of
from strom.state.group_sort import FEW, sorted_by_group
from strom.state.increments import EVERY_GROUP
from strom.state.stored import KEY_GROUP

TYPES = [
    pa.int8(),
    pa.uint16(),
    pa.int32(),
    pa.int64(),
    pa.uint64(),
    pa.float32(),
    pa.float64(),
    pa.bool_(),
    pa.timestamp("us", "UTC"),
    pa.date32(),
    pa.decimal128(20, 3),
    pa.string(),
    pa.large_binary(),
    pa.string_view(),
    pa.list_(pa.int64()),
    pa.struct([("a", pa.int32()), ("b", pa.string())]),
    pa.null(),
]


def column_of(kind: pa.DataType, rows: int, nulls: bool, rng: np.random.Generator) -> pa.Array:
    numbers = rng.integers(0, 100, rows)
    if pa.types.is_null(kind):
        return pa.nulls(rows)
    values: list[Any] = [_value(kind, int(n)) for n in numbers]
    if nulls and rows:
        values[int(rng.integers(rows))] = None
    return pa.array(values, kind)


def _value(kind: pa.DataType, n: int) -> Any:
    if pa.types.is_boolean(kind):
        return n % 2 == 0
    if pa.types.is_decimal(kind):
        return decimal.Decimal(n) / 8
    if pa.types.is_list(kind):
        return list(range(n % 4))
    if pa.types.is_struct(kind):
        return {"a": n, "b": str(n)}
    if kind == pa.large_binary():
        return b"%d" % n
    if kind in (pa.string(), pa.string_view()):
        return str(n)
    return n


def piece_of(
    rows: int, groups: range, nulls: bool, sliced: int, rng: np.random.Generator
) -> pa.Table:
    """`sliced`: so many rows before it in the same memory."""
    many = rows + sliced
    data = {KEY_GROUP: pa.array(rng.integers(groups.start, groups.stop, many).astype(np.int32))}
    for at, kind in enumerate(TYPES):
        data[f"{at}"] = column_of(kind, many, nulls, rng)
    return pa.table(data).slice(sliced)


def expected(pieces: list[pa.Table]) -> list[dict[str, Any]]:
    data = pa.concat_tables(pieces)
    order = np.argsort(data.column(KEY_GROUP).to_numpy(), kind="stable")
    rows = data.to_pylist()
    return [rows[at] for at in order]


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    groups=st.sampled_from([range(128), range(5, 6), range(EVERY_GROUP, 3), range(32_768)]),
    nulls=st.booleans(),
    sliced=st.integers(0, 9),
    seed=st.integers(0, 1000),
    few=st.sampled_from([0, FEW]),
)
@settings(max_examples=examples(200), deadline=None)
def test_as_a_stable_sort(
    sizes: list[int], groups: range, nulls: bool, sliced: int, seed: int, few: int
) -> None:
    rng = np.random.default_rng(seed)
    pieces = [piece_of(rows, groups, nulls, sliced, rng) for rows in sizes]
    wanted, schema = expected(pieces), pieces[0].schema
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_sort, "FEW", few)
        found = sorted_by_group(pieces)
    assert found.to_pylist() == wanted
    assert found.schema == schema
    found.validate(full=True)
    assert pieces == []


def test_many_rows() -> None:
    rng = np.random.default_rng(3)
    groups = rng.integers(0, 128, 3 * FEW).astype(np.int32)
    rows = np.arange(len(groups))
    table = pa.table({KEY_GROUP: groups, "row": rows, "text": rows.astype(str)})
    order = np.argsort(groups, kind="stable")
    found = sorted_by_group([table])
    assert found.column(KEY_GROUP).to_numpy().tolist() == groups[order].tolist()
    assert found.column("row").to_numpy().tolist() == order.tolist()
    assert found.column("text").to_pylist() == [str(row) for row in order]


@given(
    st.lists(st.integers(-1, 32_767) | st.integers(0, 3), min_size=1, max_size=200),
)
@settings(max_examples=examples(200), deadline=None)
def test_places(numbers: list[int]) -> None:
    groups = np.array(numbers, np.int32)
    places, ordered = places_of(groups)
    order = np.argsort(groups, kind="stable")
    assert places[order].tolist() == list(range(len(groups)))
    assert ordered.tolist() == groups[order].tolist()
