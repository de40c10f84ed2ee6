"""What slices keep under codes (text extremes, lists, distinct values, sketches): read again by
every window, thinned out meanwhile, and in snapshots that are encoded later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from strom.api.aggregates import (
    Aggregate,
    approx_count_distinct,
    arg_max,
    collect,
    count_distinct,
    first,
    largest,
    last,
    max_,
    min_,
    smallest,
)
from strom.api.specs.tables import GroupAggregateSpec
from strom.api.specs.windows import BuiltinWindow, WindowSpec
from strom.api.windows.continuous_triggers import ContinuousEventTimeTrigger
from strom.api.windows.time_windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from strom.core.batch import ColumnBatch
from strom.core.ids import KeyGroupRange
from strom.core.keys import ColumnKey
from strom.operators.aggregates.registers import Registers
from strom.operators.row_windows.operator import RowWindowOperator
from strom.testing.fuzz.limits import small_limits
from strom.testing.operator_harness import OperatorHarness, OperatorSnapshotTables, regroup

AGGREGATES: dict[str, Aggregate] = {
    "least": min_("s"),
    "most": max_("s"),
    "first": first("s"),
    "last": last("s"),
    "at": arg_max("s", by="v"),
    "all": collect("v"),
    "words": collect("s"),
    "best": largest("v", 20),
    "few": smallest("s", 2),
    "distinct": count_distinct("s"),
    "numbers": count_distinct("v"),
    "about": approx_count_distinct("v", precision=8),
}
ASSIGNERS: dict[str, tuple[Any, Any]] = {
    "sliding": (SlidingEventTimeWindows(40, 10), None),
    "tumbling": (TumblingEventTimeWindows(40), None),
    "ticking": (TumblingEventTimeWindows(40), ContinuousEventTimeTrigger(10)),
}


def spec_of(assigner: str, lateness: int = 0) -> WindowSpec:
    windows, trigger = ASSIGNERS[assigner]
    function = BuiltinWindow(tuple(AGGREGATES.items()))
    return WindowSpec(ColumnKey(("k",)), windows, function, trigger, allowed_lateness_ms=lateness)


def batches(seed: int) -> list[ColumnBatch]:
    """Each of 200 records within 25 ms that come out of order, 10 ms behind the one before."""
    rng, made = np.random.default_rng(seed), []
    for start in range(0, 120, 10):
        values = rng.integers(0, 60, 200)
        data = pa.record_batch(
            {
                "k": pa.array([f"k{n}" for n in rng.integers(0, 5, 200)]),
                "v": pa.array(values, mask=rng.random(200) < 0.1),
                "s": pa.array([f"{n * 37 % 61:03}" for n in values.tolist()]),
            }
        )
        made.append(ColumnBatch(data, rng.integers(start, start + 25, 200)))
    return made


def rows_of(harness: OperatorHarness) -> list[Any]:
    return sorted(harness.outputs(), key=repr)


@pytest.mark.parametrize("lateness", [0, 15])
@pytest.mark.parametrize("assigner", ASSIGNERS)
def test_every_window_reads_the_slices_as_they_are(assigner: str, lateness: int) -> None:
    """Against the row path. With lateness, late records fire windows of their keys again: of rows
    once each, of columns once a batch; so there the last result counts."""
    spec = spec_of(assigner, lateness)
    found, wanted = OperatorHarness(spec), OperatorHarness(RowWindowOperator(spec))
    with small_limits():
        for start, batch in enumerate(batches(1)):
            for harness in (found, wanted):
                harness.push(batch)
                harness.watermark(10 * start - 1)
        for harness in (found, wanted):
            harness.watermark(1000)
    if lateness:
        latest = [
            {(row.k, row.window_end): row for row in harness.outputs()}
            for harness in (found, wanted)
        ]
        assert latest[0] == latest[1]
    else:
        assert rows_of(found) == rows_of(wanted)


@pytest.mark.parametrize("assigner", ASSIGNERS)
def test_a_snapshot_encoded_later_is_of_its_point_in_time(assigner: str) -> None:
    """Values are added, thinned out and dropped with their slices before it is encoded; then it is
    restored by three subtasks, which go on as the one would have."""
    spec, some = spec_of(assigner), batches(2)
    with small_limits():
        harness = OperatorHarness(spec, max_parallelism=16)
        for start, batch in enumerate(some[:6]):
            harness.push(batch)
            harness.watermark(10 * start - 1)
        harness.operator.prepare_snapshot(1)
        frozen = harness.keyed_state.snapshot()
        before = rows_of(harness)
        for start, batch in enumerate(some[6:], start=6):
            harness.push(batch)
            harness.watermark(10 * start - 1)
        harness.watermark(1000)
        snapshot = OperatorSnapshotTables(tuple(frozen.tables()), ())
        after: list[Any] = []
        for groups in (KeyGroupRange(0, 4), KeyGroupRange(5, 9), KeyGroupRange(10, 15)):
            mine = regroup([snapshot], groups)
            part = OperatorHarness(spec, max_parallelism=16, key_groups=groups, restored=mine)
            keys = part.keyed_state
            for start, batch in enumerate(some[6:], start=6):
                part.push(batch.take(_owned(batch, groups, keys.max_parallelism)))
                part.watermark(10 * start - 1)
            part.watermark(1000)
            after += part.outputs()
    assert sorted([*before, *after], key=repr) == rows_of(harness)


def _owned(batch: ColumnBatch, groups: KeyGroupRange, max_parallelism: int) -> Any:
    from strom.state.key_groups import key_groups_of

    found = key_groups_of(batch.data.select(["k"]), max_parallelism)
    return np.flatnonzero((found >= groups.first) & (found <= groups.last))


def test_registers_unite_freeze_and_come_back() -> None:
    rng = np.random.default_rng(3)
    values = rng.integers(0, 3000, (4, 2000))
    one, other, whole = Registers(10), Registers(10), Registers(10)
    mine, theirs, both = one.make(2), other.make(2), whole.make(2)
    one.add(np.repeat(mine, 2000), pa.array(values[:2].reshape(-1)))
    before = one.sizes(mine).tolist()
    frozen = one.freeze()
    other.add(np.repeat(theirs, 2000), pa.array(values[2:].reshape(-1)))
    one.unite(np.array([1, -1]), other)
    whole.add(np.repeat(both[[0, 1, 1]], 2000), pa.array(values[:3].reshape(-1)))
    assert one.sizes(mine).tolist() == whole.sizes(both).tolist() != before
    restored = Registers(10)
    again = restored.append(frozen(np.array([1, -1, 0])))
    assert again.tolist() == [0, -1, 1]
    assert restored.sizes(again).tolist() == [before[1], 0, before[0]]
    restored.add(np.repeat(again[:1], 2000), pa.array(values[2]))
    assert restored.sizes(again[:1]).tolist() == one.sizes(mine[1:]).tolist()


def test_running_groups_keep_text_under_codes() -> None:
    """The first, the last and the one of the greatest number; forgotten values leave nothing."""
    aggregates = (("f", first("s")), ("l", last("s")), ("m", arg_max("s", by="v")))
    spec = GroupAggregateSpec(ColumnKey(("k",)), aggregates, "upsert", None)
    harness, model = OperatorHarness(spec), dict[str, tuple[str, str, int, str]]()
    with small_limits():
        for number in range(60):
            if number % 7 == 3:
                harness = OperatorHarness(spec, restored=harness.snapshot())
            key, value, text = f"k{number % 3}", number * 37 % 50, f"text {number}"
            data = pa.record_batch({"k": [key], "v": [value], "s": [text]})
            harness.push(ColumnBatch(data))
            start, _, best, at = model.get(key, (text, text, -1, text))
            model[key] = (start, text, *((value, text) if value > best else (best, at)))
            (row,) = harness.take_outputs()
            assert (row.f, row.l, row.m) == (model[key][0], text, model[key][3])
    stores = harness.operator._table.stores  # type: ignore[attr-defined]
    assert all(len(store) <= 20 for store in stores.values())
