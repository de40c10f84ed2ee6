"""Values that were unpickled: what Arrow would make alike stays as it is, beside its text."""

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa
import pytest
from strom.snapshots.columns import readable, unpickled
from strom.state.stored import KEY_GROUP, StateTable


@pytest.mark.parametrize(
    "values",
    [
        [{1, 2}, [1, 1.5]],
        [[1], [1.5]],
        [{"n": 1}, {"n": 1.5}],
        [datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC)],
        [1, 1.5],
        [1.0, 1],
        [True, 1],
    ],
)
def test_values_of_unlike_types_stay_bytes_beside_their_text(values):
    pickles = [pickle.dumps(value) for value in values]
    columns = unpickled("value", pickles, unpickle=True)
    assert list(columns) == ["value", "value_text"]
    assert columns["value"].to_pylist() == pickles
    assert columns["value_text"].to_pylist() == [repr(value) for value in values]


@dataclass
class Inner:
    n: int


@dataclass
class Other:
    n: int


@dataclass
class Outer:
    inner: Inner | Other


class Color(IntEnum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: int


@pytest.mark.parametrize(
    "values",
    [
        [{"a": 1, "x": "s"}, {"b": 2, "x": "t"}],
        [{"a": 1, "x": "s"}, {"a": None, "x": "t"}, {"x": "u"}],
        [[{"a": 1, "x": "s"}], [{"x": "t"}]],
        [Outer(Inner(1)), Outer(Other(1))],
        [Color.RED, Color.RED],
        [{1, 2}, frozenset([1, 2])],
        [(1, {1, 2.5}), (1, {1})],
        [time(1, tzinfo=UTC)],
    ],
)
def test_what_a_column_would_not_tell_apart_stays_bytes(values):
    pickles = [pickle.dumps(value) for value in values]
    columns = unpickled("value", pickles, unpickle=True)
    assert columns["value"].to_pylist() == pickles
    assert columns["value_text"].to_pylist() == [repr(value) for value in values]


def test_dicts_and_objects_of_one_shape_are_structs():
    for values, want in (
        ([{"a": 1, "x": "s"}, {"x": "t", "a": None}], [{"a": 1, "x": "s"}, {"a": None, "x": "t"}]),
        ([Outer(Inner(1)), Outer(Inner(2))], [{"inner": {"n": 1}}, {"inner": {"n": 2}}]),
        ([Point(1, 2), None], [{"x": 1, "y": 2}, None]),
    ):
        columns = unpickled("value", [pickle.dumps(value) for value in values], unpickle=True)
        assert list(columns) == ["value"]
        assert columns["value"].to_pylist() == want


@pytest.mark.parametrize("unpickle", [False, True])
def test_decimals_of_two_scales_are_equal_numbers_of_the_greater(unpickle):
    values = [Decimal("1.5"), Decimal("2.25"), Decimal("100")]
    columns = unpickled("value", [pickle.dumps(value) for value in values], unpickle)
    assert columns["value"].to_pylist() == values
    assert columns["value"].type == pa.decimal128(5, 2)


def keyed(groups, **columns):
    return StateTable("s", "table", pa.table({KEY_GROUP: pa.array(groups, pa.int32()), **columns}))


def test_bytes_that_begin_like_a_pickle_are_no_pickles():
    """They are one of two columns of the key, so that no hash of theirs alone tells."""
    keys = pa.array([b"\x80\x04not a pickle", b"\x80\x05K\x01.and more"], pa.large_binary())
    table = keyed([0, 1], **{"key.k": keys, "key.n": pa.array([1, 2])})
    assert readable(table, 128).column("k").to_pylist() == keys.to_pylist()


def test_keys_whose_classes_alone_could_hash_them_are_shown_as_what_they_are():
    keys = pa.array([pickle.dumps(Inner(1)), pickle.dumps(Inner(2))], pa.large_binary())
    found = readable(keyed([0, 1], **{"key.k": keys}), 128)
    assert found.column("k").to_pylist() == [{"n": 1}, {"n": 2}]
