"""Snapshots of table operators that are encoded while the operators go on.

What begins with such a snapshot answers the rest of the input as the operator did that it was
taken of, and a second snapshot of it holds the same.
"""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from amounts import seeds
from columns_kit import batch
from strom import count, count_distinct, max_, min_, sum_
from strom.api.specs.columns import to_order
from strom.api.specs.tables import DeduplicateSpec, GroupAggregateSpec, OverSpec, TopNSpec
from strom.core.batch import ColumnBatch
from strom.core.keys import ColumnKey, ExpressionKey
from strom.core.row_kind import RowKind
from strom.state.ttl import Lifetime
from strom.testing.fuzz.limits import small_limits
from tables_kit import HALVES, WHOLE, Subtasks

SCHEMA = pa.schema({"k": pa.string(), "v": pa.int64(), "s": pa.string(), "n": pa.list_(pa.int64())})
KEY, APART = ColumnKey(("k",)), ExpressionKey((pl.col("k") + "!",))
SEVERAL = (
    ("many", count()),
    ("total", sum_("v")),
    ("d", count_distinct("s")),
    ("few", count_distinct("v").where(pl.col("v") < 20)),
    ("top", max_("v")),
    ("low", min_("s")),
)
CASES: dict[str, tuple[Any, bool]] = {
    "first to arrive": (DeduplicateSpec(KEY, "first"), False),
    "last": (DeduplicateSpec(KEY, "last"), False),
    "last, key apart": (DeduplicateSpec(APART, "last"), False),
    "first by text": (DeduplicateSpec(KEY, "first", to_order("t", "s")), False),
    "last of a changelog": (DeduplicateSpec(KEY, "last"), True),
    "top 3": (TopNSpec(KEY, 3, to_order("t", ("v", "desc"))), False),
    "top 3 by text": (TopNSpec(APART, 3, to_order("t", "s"), "rank"), False),
    "top 3 of a changelog": (TopNSpec(KEY, 3, to_order("t", "v"), "rank"), True),
    "over rows": (OverSpec(KEY, SEVERAL[:2], rows=3), False),
    "over a range": (OverSpec(KEY, SEVERAL[:2], range_ms=15), False),
    "over all": (OverSpec(KEY, SEVERAL[:2]), False),
    "over rows by arrival": (OverSpec(KEY, SEVERAL[:2], rows=3, order="arrival"), False),
    "groups": (GroupAggregateSpec(KEY, SEVERAL), False),
    "groups of a changelog": (GroupAggregateSpec(KEY, SEVERAL), True),
    "groups for a time": (GroupAggregateSpec(KEY, SEVERAL, ttl=Lifetime(40)), False),
}
STEPS, AT = 14, 7


def script(seed: int, changelog: bool, rows: int) -> list[ColumnBatch]:
    """Batches with event times that come about in order; a changelog takes back what is there."""
    draw = random.Random(seed)
    present: list[Any] = []
    made = []
    for step in range(STEPS):
        some, kinds = [], []
        for _ in range(draw.randint(1, rows)):
            if changelog and present and draw.random() < 0.45:
                some.append(present.pop(draw.randrange(len(present))))
                kinds.append(int(draw.choice([RowKind.UPDATE_BEFORE, RowKind.DELETE])))
                continue
            key = f"key {draw.randint(0, max(3, rows // 4))}"
            value = draw.choice([None, *range(40)])
            text = draw.choice([None, "", "t", "text of some length " * draw.randint(1, 9)])
            some.append((key, value, text, [value] if value else None))
            present.append(some[-1])
            kinds.append(int(RowKind.INSERT))
        stamps = [10 * step + draw.randint(0, 19) for _ in some]
        made.append(batch(SCHEMA, some, kinds if changelog else None, stamps=stamps))
    return made


def run(tasks: Subtasks, steps: list[ColumnBatch], first: int) -> list[list[str]]:
    """What each step gives, in any order of the keys."""
    found = []
    for number, records in enumerate(steps, first):
        tasks.time(10 * number)
        out = tasks.push(records) + tasks.watermark(10 * number)
        found.append(sorted(map(str, out)))
    return found


@pytest.mark.parametrize("tight", [False, True], ids=["", "tight"])
@pytest.mark.parametrize("name", CASES)
def test_a_snapshot_encoded_later_is_of_its_point_in_time(name: str, tight: bool) -> None:
    spec, changelog = CASES[name]
    with small_limits(tight):
        for seed in seeds(4, least=2):
            steps = script(seed, changelog, 12)
            tasks = Subtasks(spec)
            if seed % 2:
                tasks.restore(HALVES)
            run(tasks, steps[:AT], 0)
            frozen = tasks.freeze()
            middle = run(tasks, steps[AT : AT + 3], AT)
            later = tasks.freeze()
            want = run(tasks, steps[AT + 3 :], AT + 3)
            encoded = frozen()
            for ranges in (WHOLE, HALVES):
                again = tasks.restored(encoded, ranges)
                assert run(again, steps[AT : AT + 3], AT) == middle
                assert run(again, steps[AT + 3 :], AT + 3) == want
            again = tasks.restored(later(), WHOLE)
            assert run(again, steps[AT + 3 :], AT + 3) == want


@pytest.mark.parametrize("name", CASES)
def test_a_snapshot_is_encoded_beside_the_task(name: str) -> None:
    """Another thread encodes it while records come."""
    spec, changelog = CASES[name]
    with small_limits(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("strom.state.rows.slab.CHUNK", 64)
        patch.setattr("strom.operators.tables.top_n._SCRATCH", 1 << 22)  # no batch is cut
        steps = script(99, changelog, 700)
        tasks = Subtasks(spec)
        run(tasks, steps[:AT], 0)
        frozen, encoded = tasks.freeze(), []
        writer = threading.Thread(target=lambda: encoded.append(frozen()))
        writer.start()
        want = run(tasks, steps[AT:], AT)
        writer.join()
        again = tasks.restored(encoded[0], HALVES)
        assert run(again, steps[AT:], AT) == want


@pytest.mark.parametrize("name", CASES)
def test_a_restored_operator_holds_what_it_was_given(name: str) -> None:
    spec, changelog = CASES[name]
    tasks = Subtasks(spec)
    run(tasks, script(5, changelog, 30), 0)
    first = tasks.freeze()()
    second = tasks.restored(first, WHOLE).freeze()()
    assert contents(first) == contents(second)


def contents(snapshots: list[Any]) -> dict[str, Any]:
    """Rows by table, in any order."""
    return {
        table.name: (table.kind, sorted(map(str, table.data.to_pylist())))
        for snapshot in snapshots
        for table in snapshot.keyed
    }


def test_fewer_places_after_a_restore_keep_fewer_records() -> None:
    tasks = Subtasks(TopNSpec(KEY, 5, to_order("t", "v")))
    run(tasks, script(1, False, 30), 0)
    again = Subtasks(TopNSpec(KEY, 2, to_order("t", "v"))).restored(tasks.freeze()(), WHOLE)
    work = again.tasks[0].operator._work
    keys = len(work._index)
    assert len(work._rows.table) == int(work._sizes.array[:keys].sum()) <= 2 * keys
    assert np.unique(work._rows.table.positions()).size == len(work._rows.table)
