"""Keys as state holds them: one where equal and of one stable hash, else two."""

from __future__ import annotations

import datetime as dt
import enum
import operator
from collections import namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given as given_
from hypothesis import strategies as st
from strom import Row
from strom.core.batch import ColumnBatch
from strom.core.key_kinds import HeldKey, all_given, given, held_key, held_keys
from strom.core.keys import ExpressionKey, FunctionKey, findable
from strom.state.hashing import stable_hash

Pair = namedtuple("Pair", "a b")


class Number(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    ONE = "1"


@dataclass(frozen=True)
class Place:
    x: Any
    note: Any = field(default=0, compare=False)


BERLIN = ZoneInfo("Europe/Berlin")

SCALARS: list[Any] = [
    *(None, 0, 1, -1, False, True, 0.0, -0.0, 1.0, -1.0, 1.5, 2**70, float(2**70), "", "1", b"1"),
    *(Number.ONE, Word.ONE, Decimal(1), Decimal("1.0"), Decimal("1.50"), Decimal("-0"), Decimal(0)),
    *(np.int32(1), np.uint8(0), np.float32(1.5), np.float64(1.0), np.bool_(True)),
    *(float("nan"), Decimal("NaN"), float("inf"), Decimal("Infinity"), dt.timedelta(0)),
    *(dt.date(2026, 1, 1), dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    *(dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1)),
    *(dt.datetime(2026, 7, 1, 2, tzinfo=BERLIN), dt.datetime(2026, 7, 1, tzinfo=dt.UTC)),
]
KEYS = st.recursive(
    st.sampled_from(SCALARS),
    lambda parts: st.one_of(
        st.tuples(parts),
        st.tuples(parts, parts),
        st.builds(Pair, parts, parts),
        st.builds(Row, parts, parts),
        st.builds(Place, parts, parts),
    ),
    max_leaves=3,
)


def equal(one: Any, two: Any) -> bool:
    """Some numbers of numpy refuse to be compared with some of Python."""
    try:
        return {one} == {two}
    except TypeError:
        return False


@given_(KEYS, KEYS)
def test_one_key_is_what_is_equal_and_goes_to_one_place(first: Any, second: Any) -> None:
    one, two = findable([first, second])
    held = held_keys([one, two])
    assert list(map(type, held)) == [type(held_key(one)), type(held_key(two))]
    assert all(map(operator.is_, held_keys(held), held))
    alike = equal(one, two) and stable_hash(one) == stable_hash(two)
    assert len({*held}) == (1 if alike else 2)
    assert [stable_hash(key) for key in held] == [stable_hash(one), stable_hash(two)]
    shown = all_given(held)
    assert shown[0] is one
    assert given(held[1]) is two


def test_instants_are_apart_where_a_clock_is_set_back() -> None:
    """Both show half past two; and so they do in keys of several parts."""
    twice = [dt.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1)]
    assert len({*held_keys(twice)}) == 2
    assert len({*held_keys([(1, at) for at in twice])}) == 2
    assert len({*ExpressionKey((pl.col("at"),)).held_keys(_columns(at=twice))}) == 2
    assert len({*FunctionKey(lambda row: row.at).held_keys(_columns(at=twice))}) == 2
    others = [dt.datetime(2026, 7, 1, 2, tzinfo=BERLIN), dt.datetime(2026, 7, 1, tzinfo=dt.UTC)]
    assert len({*held_keys(others)}) == 1
    assert held_keys(others) == others


def _columns(**columns: Any) -> ColumnBatch:
    return ColumnBatch(pa.RecordBatch.from_pydict(columns))


@pytest.mark.parametrize("keys", [[1, 2], ["a", None], [("a", 1)], [Number.ONE], [Pair(1, "a")]])
def test_most_keys_are_held_as_they_are(keys: list[Any]) -> None:
    assert all(map(lambda one, two: one is two, held_keys(keys), keys))


def test_what_has_no_stable_hash_has_a_kind_too() -> None:
    assert len({*held_keys([1, Fraction(1), 1 + 0j])}) == 3


def test_no_key_of_a_user_is_a_held_one() -> None:
    held = held_key(1.0)
    assert type(held) is HeldKey
    assert repr(held) == "1.0"
    assert tuple(held)[1:] == (float, 1.0)
    assert held_key(tuple(held)[1:]) != held
    assert (None, *tuple(held)[1:]) != held


def test_not_a_number_is_one_key() -> None:
    nans = [float("nan"), float("nan"), Decimal("NaN"), Decimal("-NaN")]
    assert len({*findable(nans)}) == 2


def test_a_row_that_is_changed_leaves_its_key_alone() -> None:
    row = Row(a=1)
    (key,) = findable([row])
    row["a"] = 2
    assert key == Row(a=1)
