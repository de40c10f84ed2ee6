"""Accumulators that take values back: as if those values had never been folded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.aggregates import Aggregate, count, last, max_, mean, stddev, sum_, variance
from strom.core.errors import StateError
from strom.core.ids import KeyGroupRange
from strom.operators.aggregates.base import Accumulator, Source, Use
from strom.operators.aggregates.registry import make_accumulator
from strom.state.memory import MemoryKeyedStateBackend

KEYS = pa.schema([("k", pa.int64())])
AGGREGATES = [count("v"), sum_("v"), mean("v"), variance("v"), stddev("v", ddof=0)]
ODD = st.sampled_from([math.nan, math.inf, -math.inf])


class Table:
    """An accumulator with a table of its own."""

    def __init__(self, accumulator: Accumulator) -> None:
        self.accumulator = accumulator
        state = MemoryKeyedStateBackend(KeyGroupRange(0, 15), 16)
        self.table = state.table("t", KEYS, accumulator.columns()).table()

    def run(self, name: str, rows: list[tuple[int, Any]]) -> None:
        slots = self.table.slots(pa.record_batch([[k for k, _ in rows]], schema=KEYS))
        array = pa.array([v for _, v in rows], type=self.accumulator.kind)
        numbers = np.arange(len(rows), dtype=np.int64)
        getattr(self.accumulator, name)(self.table, slots, array, numbers)

    def results(self) -> dict[int, Any]:
        found = self.accumulator.result(self.table).to_pylist()
        return dict(zip(self.table.keys().column(0).to_pylist(), found, strict=True))


def make(aggregate: Aggregate, kind: pa.DataType) -> Table:
    accumulator = make_accumulator(aggregate, "a", kind, Use.CHANGING)
    assert accumulator is not None
    assert accumulator.retractable
    return Table(accumulator)


def same(left: Any, right: Any) -> bool:
    """Up to rounding: what is taken back leaves the last digits changed, of which a standard
    deviation is the root."""
    if left is None or right is None:
        return left is right
    return (left != left and right != right) or left == pytest.approx(right, abs=1e-5)


@pytest.mark.parametrize("aggregate", AGGREGATES, ids=Aggregate.describe)
@pytest.mark.parametrize("floats", [False, True])
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
def test_what_is_taken_back_was_never_there(aggregate: Aggregate, floats: bool, data: Any) -> None:
    kind = pa.float64() if floats else pa.int64()
    value = st.none() | (st.integers(-9, 9).map(float) | ODD if floats else st.integers(-9, 9))
    row = st.tuples(st.integers(0, 2), value)
    kept, gone = data.draw(st.lists(row)), data.draw(st.lists(row))
    table, want = make(aggregate, kind), make(aggregate, kind)
    for step, rows in (("fold", gone), ("fold", kept), ("retract", gone)):
        table.run(step, rows)
    want.run("fold", gone[:0])
    want.run("fold", kept)
    expected = want.results()
    empty = 0 if aggregate.kind == "count" else None
    for key, result in table.results().items():
        assert same(result, expected.get(key, empty)), (key, result, expected)


@pytest.mark.parametrize("aggregate", AGGREGATES, ids=Aggregate.describe)
def test_with_odd_values_it_equals_the_plain_accumulator(aggregate: Aggregate) -> None:
    rows: list[tuple[int, Any]] = [(0, math.nan), (1, math.inf), (1, 2.0), (2, -math.inf)]
    rows += [(3, math.inf), (3, -math.inf), (4, 1.0), (5, None)]
    plain = make_accumulator(aggregate, "a", pa.float64(), Use.SLICES)
    assert plain is not None
    tables = [Table(plain), make(aggregate, pa.float64())]
    for table in tables:
        table.run("fold", rows)
    left, right = (table.results() for table in tables)
    assert repr(left) == repr(right)


def test_nothing_remains_of_a_sum_of_floats() -> None:
    table = make(sum_("v"), pa.float64())
    table.run("fold", [(0, 1e17), (0, 0.1)])
    table.run("retract", [(0, 0.1), (0, 1e17)])
    table.run("fold", [(0, 0.1)])
    assert table.results() == {0: 0.1}


def test_what_cannot_take_values_back_says_so() -> None:
    assert make_accumulator(mean("v"), "a", pa.int64(), Use.CHANGING) is not None
    assert make_accumulator(last("v"), "a", pa.int64(), Use.CHANGING) is None
    plain = make_accumulator(max_("v"), "a", pa.int64(), Use.SLICES)
    assert plain is not None
    with pytest.raises(StateError, match=r"max\(v\) cannot take values back"):
        Table(plain).run("retract", [(0, 1)])


@pytest.mark.parametrize("aggregate", AGGREGATES, ids=Aggregate.describe)
@settings(max_examples=examples(25), deadline=None)
@given(
    left=st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9).map(float) | ODD)),
    right=st.lists(st.tuples(st.integers(0, 2), st.integers(-9, 9).map(float) | ODD)),
)
def test_merging_equals_folding_on(aggregate: Aggregate, left: Any, right: Any) -> None:
    for use in (Use.SLICES, Use.CHANGING):
        made = make_accumulator(aggregate, "a", pa.float64(), use)
        assert made is not None
        assert made.combinable
        one, other, whole = Table(made), Table(made), Table(made)
        one.run("fold", left)
        other.run("fold", right)
        whole.run("fold", left + right)
        slots = one.table.slots(other.table.keys())
        made.merge(one.table, slots, Source((other.table, slice(len(other.table)))))
        got, want = one.results(), whole.results()
        assert got.keys() == want.keys()
        assert all(same(got[key], want[key]) for key in want)
