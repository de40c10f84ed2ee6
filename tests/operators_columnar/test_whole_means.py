"""Means of whole numbers are exact, of any size and in any order; what older checkpoints hold of
them goes on."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import reference_whole_sums
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.aggregates import mean
from strom.api.specs.tables import GroupAggregateSpec, OverSpec
from strom.api.specs.windows import BuiltinWindow, WindowSpec
from strom.api.windows.session_windows import EventTimeSessionWindows
from strom.api.windows.time_windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from strom.core.batch import ColumnBatch
from strom.core.ids import KeyGroupRange
from strom.core.keys import ColumnKey
from strom.core.row_kind import ROW_KIND
from strom.operators.aggregates.base import Accumulator, Source, Use
from strom.operators.aggregates.registry import make_accumulator
from strom.operators.kernels import whole_sums
from strom.state.column_migration import migrated
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.migration import StateMigration
from strom.state.stored import StateTable
from strom.state.widening import REST, is_rest
from strom.testing.operator_harness import OperatorHarness, OperatorSnapshotTables

KEY = ColumnKey(("k",))
SLOTS = 4
BIG = 2**63 - 1
VALUES = st.integers(-5, 5) | st.integers(-(2**63), BIG) | st.sampled_from([BIG, -BIG - 1, 2**53])

KERNELS = {
    "whole_sum_into": ("slots", "values", "flag", "valid", "sums", "rests", "counts"),
    "whole_sum_out": ("slots", "values", "flag", "valid", "sums", "rests", "counts"),
    "merge_whole_sums": ("slots", "sums_in", "rests_in", "sums", "rests"),
    "running_whole_sum": ("slots", "values", "flag", "valid", "sums", "rests", "seen", "out", "of"),
}


def parts(totals: list[int]) -> tuple[Any, Any]:
    """Sums as the kernels hold them."""
    rests = [float(total - int(float(total))) for total in totals]
    return np.array(list(map(float, totals)), np.float64), np.array(rests, np.float64)


@st.composite
def inputs(draw: Any) -> dict[str, Any]:
    n = draw(st.integers(0, 12))

    def array(elements: Any, size: int, kind: Any) -> Any:
        return np.array(draw(st.lists(elements, min_size=size, max_size=size)), dtype=kind)

    totals = st.integers(-(2**90), 2**90) | VALUES
    held = draw(st.lists(totals, min_size=SLOTS, max_size=SLOTS))
    merged = draw(st.lists(totals, min_size=n, max_size=n))
    (sums, rests), (sums_in, rests_in) = parts(held), parts(merged)
    return {
        "slots": array(st.integers(0, SLOTS - 1), n, np.int64),
        "values": array(VALUES, n, np.int64),
        "flag": draw(st.booleans()),
        "valid": array(st.booleans(), n if draw(st.booleans()) else 0, np.bool_),
        "sums": sums,
        "rests": rests,
        "sums_in": sums_in,
        "rests_in": rests_in,
        "counts": array(st.integers(1, 3), SLOTS, np.int64),
        "seen": array(st.booleans(), SLOTS, np.bool_),
        "out": np.zeros(n),
        "of": np.zeros(n, dtype=np.bool_),
    }


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=examples(100), deadline=None)
@given(data=inputs())
def test_kernel_equals_its_twin(name: str, data: Any) -> None:
    got, want = copy.deepcopy(data), copy.deepcopy(data)
    getattr(reference_whole_sums, name)(*[want[a] for a in KERNELS[name]])
    getattr(whole_sums, name)(*[got[a] for a in KERNELS[name]])
    for key in KERNELS[name]:
        np.testing.assert_array_equal(got[key], want[key], err_msg=key)


class Table:
    """An accumulator with a table of its own, of one key."""

    def __init__(self, accumulator: Accumulator) -> None:
        self.accumulator = accumulator
        state = MemoryKeyedStateBackend(KeyGroupRange(0, 15), 16)
        schema = pa.schema([("k", pa.int64())])
        self.table = state.table("t", schema, accumulator.columns()).table()
        self.slot = self.table.slots(pa.record_batch([[0]], schema=schema))

    def run(self, name: str, values: list[Any]) -> None:
        slots = np.repeat(self.slot, len(values))
        array = pa.array(values, self.accumulator.kind)
        getattr(self.accumulator, name)(self.table, slots, array, np.arange(len(values)))

    def result(self) -> Any:
        (result,) = self.accumulator.result(self.table).to_pylist()
        return result


def exact(values: list[int]) -> float | None:
    """The sum without rounding, then the float next to it, then the division."""
    return float(sum(values)) / len(values) if values else None


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.int16(), pa.bool_()])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_a_mean_is_exact_whatever_was_taken_back(kind: pa.DataType, data: Any) -> None:
    least, most = {"uint64": (0, 2**64 - 1), "int16": (-(2**15), 2**15 - 1), "bool": (0, 1)}.get(
        str(kind), (-(2**63), BIG)
    )
    values = st.lists(st.integers(least, most), max_size=8)
    kept, gone, others = (data.draw(values) for _ in range(3))
    made = make_accumulator(mean("v"), "a", kind, Use.CHANGING)
    assert made is not None
    table, other = Table(made), Table(made)
    as_kind = bool if pa.types.is_boolean(kind) else int
    folded = data.draw(st.permutations(kept + gone))
    table.run("fold", [as_kind(value) for value in folded])
    table.run("retract", [as_kind(value) for value in gone])
    other.run("fold", [as_kind(value) for value in others])
    made.merge(table.table, table.slot, Source((other.table, other.slot)))
    assert table.result() == exact(kept + others)


def batch(values: list[Any], kind: pa.DataType | None = None, **more: Any) -> ColumnBatch:
    kind = kind or pa.int64()
    columns = {"k": pa.array([1] * len(values)), "v": pa.array(values, kind), **more}
    return ColumnBatch(pa.RecordBatch.from_pydict(columns), np.arange(len(values)))


CANCELS = [BIG, 1, -BIG, -3, BIG, -BIG, 1]
"""As floats, what is small is lost in each sum with a great one."""

ASSIGNERS = [
    TumblingEventTimeWindows.of(10),
    SlidingEventTimeWindows.of(10, 2),
    EventTimeSessionWindows.with_gap(20),
]


@pytest.mark.parametrize("assigner", ASSIGNERS, ids=lambda one: type(one).__name__)
def test_windows_are_exact(assigner: Any) -> None:
    harness = OperatorHarness(WindowSpec(KEY, assigner, BuiltinWindow((("m", mean("v")),))))
    harness.push(batch(CANCELS))
    harness.finish()
    assert exact(CANCELS) in [row.m for row in harness.outputs()]


@pytest.mark.parametrize("frame", [{}, {"rows": 3}, {"range_ms": 2}], ids=str)
@pytest.mark.parametrize("values", [CANCELS, [3, None, -1, 4]], ids=["great", "small"])
def test_frames_are_exact(frame: dict[str, int], values: list[Any]) -> None:
    if "rows" in frame or not frame:
        frame = {**frame, "order": "arrival"}  # type: ignore[dict-item]
    harness = OperatorHarness(OverSpec(KEY, (("m", mean("v")),), **frame))  # type: ignore[arg-type]
    harness.push(batch(values))
    harness.watermark(100)
    width = len(values) if not {"rows", "range_ms"} & set(frame) else 3
    want = [
        exact([v for v in values[max(0, i + 1 - width) : i + 1] if v is not None])
        for i in range(len(values))
    ]
    assert [row.m for row in harness.outputs()] == want


def test_frames_of_unsigned_numbers_are_exact() -> None:
    values = [2**64 - 1, 1, 2**63]
    harness = OperatorHarness(OverSpec(KEY, (("m", mean("v")),), rows=2, order="arrival"))
    harness.push(batch(values, pa.uint64()))
    harness.watermark(100)
    assert [row.m for row in harness.outputs()] == [2.0**64, 2.0**63, (2.0**63) / 2]


def test_a_group_from_which_values_go_is_exact() -> None:
    harness = OperatorHarness(GroupAggregateSpec(KEY, (("m", mean("v")),)))
    kinds = pa.array([0] * 3 + [3] * 2, pa.int8())
    harness.push(batch([-1, 10**17, 2**60, 10**17, 2**60], **{ROW_KIND: kinds}))
    assert harness.outputs()[-1].m == -1.0


# --- checkpoints of before ------------------------------------------------------------------------

SPECS = {
    "window": WindowSpec(KEY, ASSIGNERS[0], BuiltinWindow((("m", mean("v")),))),
    "session": WindowSpec(KEY, ASSIGNERS[2], BuiltinWindow((("m", mean("v")),))),
    "group": GroupAggregateSpec(KEY, (("m", mean("v")),)),
    "running": OverSpec(KEY, (("m", mean("v")),), order="arrival"),
}


def last(harness: OperatorHarness) -> float:
    harness.finish()
    return float(harness.outputs()[-1].m)


def changed(stored: OperatorSnapshotTables, change: Any) -> OperatorSnapshotTables:
    return replace(stored, keyed=tuple(change(list(stored.keyed))))


def without_rests(tables: list[StateTable]) -> list[StateTable]:
    """As an older version wrote them: a float sum, and how many."""
    found = []
    for table in tables:
        rests = [name for name in table.data.column_names if name.endswith(REST)]
        found.append(replace(table, data=table.data.drop_columns(rests)))
    assert any(
        table.data.num_columns > new.data.num_columns
        for table, new in zip(tables, found, strict=True)
    )
    return found


@pytest.mark.parametrize("name", SPECS)
def test_sums_without_rests_go_on(name: str) -> None:
    first = OperatorHarness(SPECS[name])
    first.push(batch([5, 8]))
    second = OperatorHarness(SPECS[name], restored=changed(first.snapshot(), without_rests))
    second.push(batch([BIG, 1]))
    third = OperatorHarness(SPECS[name], restored=second.snapshot())
    third.push(batch([-BIG, 2]))
    assert last(third) == exact([5, 8, BIG, 1, -BIG, 2])


def test_sums_with_and_without_rests_are_carried_on() -> None:
    """One subtask had gone on, another had no record yet; now one has the state of both, and is
    asked for a checkpoint before anybody asks for the state."""
    first = OperatorHarness(SPECS["window"])
    first.push(batch([5, 8]))
    new = list(first.snapshot().keyed)
    for order in (without_rests(new) + new, new + without_rests(new)):
        state = MemoryKeyedStateBackend(KeyGroupRange(0, 127), 128)
        state.restore(order)
        tables = {table.name: table.data for table in state.snapshot().tables()}
        assert {f"acc.a0{REST}": [0.0, 0.0]} in [
            {name: data.column(name).to_pylist() for name in data.column_names if is_rest(name)}
            for data in tables.values()
        ]


@pytest.mark.parametrize("name", ["window", "group", "running"])
def test_a_column_that_has_become_one_of_floats(name: str) -> None:
    """What the program says of it (`migrate_state`). The sum is rounded, and added to as floats
    are."""

    def widened(tables: list[StateTable]) -> list[StateTable]:
        said = StateMigration.of("x", types={"v": pa.float64(), "input0": pa.float64()})
        return migrated(tables, {None: said}, "operator 'x'")

    first = OperatorHarness(SPECS[name])
    first.push(batch([2**53, 1, 2**53]))
    second = OperatorHarness(SPECS[name], restored=changed(first.snapshot(), widened))
    second.push(batch([2.5], pa.float64()))
    assert last(second) == (float(2**54 + 1) + 2.5) / 4
