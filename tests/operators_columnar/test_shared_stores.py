"""What `Accumulator.merge` promises where source and target share their stores, of every kind of
aggregate: against a plain fold of the values, in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_folds import to_function
from strom.api.aggregate_kinds import names_of
from strom.api.aggregates import Aggregate
from strom.api.specs.windows import BuiltinWindow
from strom.core.batch import ColumnBatch
from strom.operators.aggregates.base import Source, Use
from strom.operators.slots.slot_aggregates import SlotAggregates
from strom.operators.windows.count_lane import merge_before
from strom.state.numbered_table import NumberedTable

SCHEMA = pa.schema([("v", pa.int64()), ("w", pa.int64()), ("s", pa.string())])
NUMBER = {"variance": 1, "stddev": 1, "approx_count_distinct": 5, "largest": 2, "smallest": 2}
ADDS = ("sum", "mean", "variance", "stddev")

Rows = list[dict[str, Any]]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "v": st.none() | st.integers(-3, 3),
            "w": st.none() | st.integers(-2, 2),
            "s": st.none() | st.sampled_from(["", "a", "bb"]),
        }
    ),
    max_size=4,
)


def aggregates_of(kind: str) -> list[Aggregate]:
    """Of numbers, of texts, and where lists are long of more than fit into columns."""
    by = "w" if kind.startswith("arg_") else None
    columns = ["v"] if kind in ADDS else ["v", "s"]
    found = [Aggregate(kind, column, by=by, number=NUMBER.get(kind, 0)) for column in columns]
    if kind in ("largest", "smallest"):
        found.append(Aggregate(kind, "v", number=40))
    return found


class Bench:
    """Slots of one table, and the rows that each is to hold."""

    def __init__(self, aggregates: list[Aggregate], size: int) -> None:
        self.functions = [to_function(one) for one in aggregates]
        named = tuple((f"a{at}", one) for at, one in enumerate(aggregates))
        self.slots = SlotAggregates(BuiltinWindow(named), use=Use.SLOTS)
        empty = ColumnBatch(pa.RecordBatch.from_pylist([], schema=SCHEMA))
        self.slots.bind(self.slots.layout(self.slots.inputs(empty)))
        stores = {name: make() for name, make in self.slots.values().items()}
        self.table = NumberedTable(self.slots.columns, size, stores)
        self.rows: list[list[tuple[int, dict[str, Any]]]] = [[] for _ in range(size)]
        self.number = 0

    def fold(self, parts: list[Rows], first: int = 0) -> None:
        at = [first + slot for slot, rows in enumerate(parts) for _ in rows]
        flat = [row for rows in parts for row in rows]
        if not flat:
            return
        numbers = np.arange(self.number, self.number + len(flat))
        self.number += len(flat)
        batch = ColumnBatch(pa.RecordBatch.from_pylist(flat, schema=SCHEMA))
        self.slots.fold(self.table, np.array(at), self.slots.inputs(batch), numbers)
        for slot, number, row in zip(at, numbers.tolist(), flat, strict=True):
            self.rows[slot].append((number, row))

    def check(self, slots: Iterable[int]) -> None:
        results = self.slots.results(self.table)
        for slot in slots:
            rows = [row for _, row in sorted(self.rows[slot], key=lambda pair: pair[0])]
            for function, column in zip(self.functions, results, strict=True):
                accumulator = function.create_accumulator()
                for row in rows:
                    accumulator = function.add(row, accumulator)
                wanted = function.get_result(accumulator)
                assert column[slot].as_py() == pytest.approx(wanted), (slot, rows)


@pytest.mark.parametrize("kind", sorted(names_of(lambda kind: True)))
@settings(max_examples=12, deadline=None)
@given(
    parts=st.lists(ROWS, min_size=1, max_size=9),
    starts=st.lists(st.booleans(), min_size=9, max_size=9),
)
def test_each_segment_takes_in_all_before_it(
    kind: str, parts: list[Rows], starts: list[bool]
) -> None:
    """The segments of a window are sources and targets by turns."""
    bench = Bench(aggregates_of(kind), len(parts))
    bench.fold(parts)
    previous = [-1 if at == 0 or starts[at] else at - 1 for at in range(len(parts))]
    merge_before(bench.slots, bench.table, np.array(previous))
    for at, before in enumerate(previous):
        if before >= 0:
            bench.rows[at] = bench.rows[before] + bench.rows[at]
    bench.check(range(len(parts)))


@pytest.mark.parametrize("kind", sorted(names_of(lambda kind: True)))
@settings(max_examples=12, deadline=None)
@given(
    held=st.lists(ROWS, min_size=3, max_size=3),
    sources=st.lists(ROWS, min_size=3, max_size=3),
    later=st.lists(ROWS, min_size=6, max_size=6),
)
def test_sources_stay_as_they_are(
    kind: str, held: list[Rows], sources: list[Rows], later: list[Rows]
) -> None:
    """Slots 3, 4, 5 are merged into 0, 1, 2, and then all are folded into."""
    bench = Bench(aggregates_of(kind), 6)
    bench.fold(sources, first=3)
    bench.fold(held)
    table, came_from = bench.table, np.arange(3, 6)
    bench.slots.merge(table, np.array([0, 1, 2]), Source((table, came_from)))
    for at in range(3):
        bench.rows[at] = bench.rows[3 + at] + bench.rows[at]
    bench.check(range(6))
    bench.fold(later)
    bench.check(range(6))
