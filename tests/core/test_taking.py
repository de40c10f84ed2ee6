"""Rows of columns by their places, of types that Arrow cannot take, or ends the process for."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from strom.core.arrow_values import to_array
from strom.core.column_values import python_values
from strom.core.taking import fields_of, is_taken_here, null_array, picked, take_column, valid_rows
from strom.core.union_type import OfKind, UnionType

TEXT, BYTES = pa.string_view(), pa.binary_view()
ROW = pa.struct([("text", TEXT), ("n", pa.int64())])
UNION = UnionType.of(
    {"a": pa.struct([("rows", pa.list_(ROW))]), "b": pa.struct([("n", pa.int64())])}
)
BESIDE = pa.struct([("n", pa.int64()), ("of", UNION)])
KINDS = [
    *(TEXT, BYTES, ROW, UNION, BESIDE),
    *(pa.list_(TEXT), pa.large_list(BYTES), pa.list_(ROW), pa.list_(pa.list_(TEXT))),
    *(pa.list_(TEXT, 2), pa.list_(ROW, 1), pa.map_(pa.string(), TEXT), pa.map_(TEXT, ROW)),
    *(pa.list_(UNION), pa.large_list(BESIDE), pa.list_(UNION, 2), pa.map_(pa.string(), UNION)),
    *(pa.struct([("in", BESIDE)]), pa.list_(pa.list_(UNION)), pa.struct([("l", pa.list_(ROW))])),
]


def drawn(rng: random.Random, kind: pa.DataType, nulls: float = 0.25) -> Any:
    if rng.random() < nulls:
        return None
    if isinstance(kind, UnionType):
        name = rng.choice(kind.kinds)
        return OfKind(name, drawn(rng, kind.rows_type(name), 0.0))
    if pa.types.is_struct(kind):
        return {field.name: drawn(rng, field.type) for field in kind}
    if pa.types.is_map(kind):
        keys = rng.sample(["a", "b", "a longer text of a key"], rng.randrange(3))
        return {key: drawn(rng, kind.item_type) for key in keys}
    if pa.types.is_fixed_size_list(kind):
        return [drawn(rng, kind.value_type) for _ in range(kind.list_size)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [drawn(rng, kind.value_type) for _ in range(rng.randrange(4))]
    text = rng.choice(["", "a", "a text that is not inlined"])
    if kind == BYTES:
        return text.encode()
    return rng.randrange(9) if kind == pa.int64() else text


def column(rng: random.Random, kind: pa.DataType, count: int) -> pa.Array:
    """Often a part of another one."""
    made = to_array([drawn(rng, kind) for _ in range(count)], kind)
    if rng.random() < 0.5 and count:
        first = rng.randrange(count)
        made = made.slice(first, rng.randrange(count - first + 1))
    return made


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rows_are_those_at_their_places(kind: pa.DataType) -> None:
    assert is_taken_here(kind)
    for seed in range(60):
        rng = random.Random(seed)
        whole = column(rng, kind, rng.randrange(9))
        values = python_values(whole)
        places = [
            None if rng.random() < 0.2 or not values else rng.randrange(len(values))
            for _ in range(rng.randrange(7))
        ]
        taken = take_column(whole, pa.array(places, pa.int64()))
        taken.validate(full=True)
        expected = [None if at is None else values[at] for at in places]
        assert (taken.type, python_values(taken)) == (kind, expected), f"seed {seed}"
        both = pa.concat_arrays([taken, null_array(2, kind)])
        there = [at for at in range(len(both)) if rng.random() < 0.7]
        again = picked(both, pa.array(there, pa.int64()).to_numpy())
        again.validate(full=True)
        assert python_values(again) == [[*expected, None, None][at] for at in there]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("count", [0, 1, 9])
def test_nulls_of_every_type_are_arrays(kind: pa.DataType, count: int) -> None:
    """Arrow's own end the process with which they are joined, where a union is in them."""
    made = null_array(count, kind)
    made.validate(full=True)
    assert (made.type, python_values(made)) == (kind, [None] * count)
    joined = pa.concat_arrays([made, to_array([None], kind)])
    joined.validate(full=True)
    assert python_values(joined) == [None] * (count + 1)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_where_there_is_a_value(kind: pa.DataType) -> None:
    rng = random.Random(str(kind))
    values = [drawn(rng, kind) for _ in range(30)]
    column = to_array(values, kind)
    for part in (column, column.slice(7, 11), column.slice(30)):
        held = python_values(part)
        valid = valid_rows(part)
        assert [one is not None for one in held] == (
            [True] * len(part) if valid is None else valid.tolist()
        )
    none = null_array(3, kind)
    assert valid_rows(none).tolist() == [False] * 3
    there = to_array([drawn(rng, kind, nulls=0.0) for _ in range(5)], kind)
    assert valid_rows(there) is None


def test_fields_are_null_where_their_struct_is() -> None:
    """Of one that has a union in it, which Arrow ends the process for, as of others."""
    for kind in (BESIDE, ROW):
        for seed in range(60):
            rng = random.Random(seed)
            whole = column(rng, kind, 8)
            fields = fields_of(whole)
            for field, name in zip(fields, [field.name for field in kind], strict=True):
                field.validate(full=True)
                rows = python_values(whole)
                assert python_values(field) == [row and getattr(row, name) for row in rows]
