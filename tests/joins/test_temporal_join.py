"""The temporal join against a plain-Python model."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from amounts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strom import StreamExecutionEnvironment
from strom.core.batch import ColumnBatch
from strom.core.elements import MIN_TIMESTAMP
from strom.core.errors import ConfigurationError, OperatorError
from strom.core.ids import KeyGroupRange
from strom.core.row_kind import RowKind, with_kinds
from strom.operators.joins import temporal, waiting
from strom.testing.operator_harness import OperatorHarness, OperatorSnapshotTables

LEFT = pa.schema([("k", pa.string()), ("v", pa.int64())])
RIGHT = pa.schema([("k", pa.string_view()), ("w", pa.string_view())])
TEXT = "a version's text of more than twelve bytes: "


def stream(how: str = "inner", **options: Any) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    left, right = (env.from_collection([]).key_by("k") for _ in range(2))
    return left.temporal_join(right, how, left_type=LEFT, right_type=RIGHT, **options)


def batch(schema: pa.Schema, rows: list[Any], kinds: list[int] | None = None) -> ColumnBatch:
    arrays = [pa.array([r[i] for r in rows], schema.types[i]) for i in (0, 1)]
    data = pa.RecordBatch.from_arrays(arrays, schema=schema)
    if kinds is not None:
        data = with_kinds(data, np.array(kinds, np.int8))
    return ColumnBatch(data, np.array([r[2] for r in rows], dtype=np.int64))


class Model:
    """Versions in order of arrival; records that wait."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.versions: list[Any] = []
        self.waiting: list[Any] = []

    def watermark(self, watermark: int) -> list[Any]:
        due = [r for r in self.waiting if r[2] <= watermark]
        self.waiting = [r for r in self.waiting if r[2] > watermark]
        return [out for r in due if (out := self._joined(r)) is not None]

    def _joined(self, record: Any) -> Any:
        best = None
        for version in self.versions:
            valid = version[0] == record[0] is not None and version[2] <= record[2]
            if valid and (best is None or version[2] >= best[2]):
                best = version
        found = best is not None and best[3] != RowKind.DELETE
        if not found and self.how == "inner":
            return None
        return (*record[:2], best[1] if found and best is not None else None, record[2])


def halves(snapshot: OperatorSnapshotTables, groups: KeyGroupRange) -> OperatorSnapshotTables:
    def cut(table: Any) -> Any:
        found = table.data.column("__key_group").to_numpy()
        chosen = np.flatnonzero((found >= groups.first) & (found <= groups.last))
        return replace(table, data=table.data.take(pa.array(chosen)))

    return OperatorSnapshotTables(
        tuple(map(cut, snapshot.keyed)), snapshot.operator, snapshot.now_ms
    )


def restored(how: str, snapshot: OperatorSnapshotTables) -> OperatorHarness:
    """As two halves, and merged again."""
    parts = [
        OperatorHarness.of(
            stream(how), restored=halves(snapshot, groups), key_groups=groups
        ).snapshot()
        for groups in (KeyGroupRange(0, 63), KeyGroupRange(64, 127))
    ]
    keyed = tuple(table for part in parts for table in part.keyed)
    return OperatorHarness.of(
        stream(how), restored=OperatorSnapshotTables(keyed, (), snapshot.now_ms)
    )


KEYS = st.sampled_from(["a", "b", "c", None])
STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(KEYS, st.integers(0, 9), st.integers(0, 12)), max_size=5),
        st.lists(
            st.tuples(KEYS, st.integers(0, 9), st.integers(0, 12), st.sampled_from([0, 1, 2, 3])),
            max_size=5,
        ),
        st.integers(0, 5),
    ),
    max_size=6,
)


@pytest.mark.parametrize("how", ["inner", "left"])
@given(STEPS, st.integers(0, 6), st.booleans())
@settings(max_examples=examples(120), deadline=None)
def test_equals_the_model(how: str, steps: Any, stop: int, small: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(temporal, "FIRST_COMPACTION", 2)
            patch.setattr(waiting, "FIRST_COMPACTION", 2)
        harness, model, watermark = OperatorHarness.of(stream(how)), Model(how), MIN_TIMESTAMP
        base = 0
        for number, (records, versions, step) in enumerate(steps):
            # Nothing is late: times lie beyond the watermark.
            records = [(k, v, base + 1 + t) for k, v, t in records]
            versions = [(k, f"{TEXT}{w}", base + 1 + t, kind) for k, w, t, kind in versions]
            if number == stop:
                harness = restored(how, harness.snapshot())
            if versions:
                kinds = [v[3] for v in versions]
                harness.push(batch(RIGHT, versions, kinds), port=1)
                model.versions += [v for v in versions if v[3] != RowKind.UPDATE_BEFORE]
            if records:
                harness.push(batch(LEFT, records), port=0)
                model.waiting += records
            watermark = base + step
            harness.output.elements.clear()
            harness.watermark(watermark)
            found = [(*row, time) for row, time in harness.stamped_outputs()]
            assert [r[3] for r in found] == sorted(r[3] for r in found)
            assert Counter(found) == Counter(model.watermark(watermark))
            operator: Any = harness.operator
            operator.validate()
            base += step


def test_old_versions_are_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr(temporal, "FIRST_COMPACTION", 20)
    harness = OperatorHarness.of(stream("left"))
    for i in range(200):
        harness.push(batch(RIGHT, [("a", "x", i), (f"b{i}", "x", i)], [0, 3]), port=1)
        harness.push(batch(LEFT, [(f"c{i}", 1, i)]), port=0)
        harness.watermark(i)
    operator: Any = harness.operator
    assert len(operator._versions) < 60
    assert len(operator._slots) < 60
    assert len(harness.outputs()) == 200


def test_versions_have_a_time_to_live() -> None:
    harness = OperatorHarness.of(stream("left", ttl=100))
    harness.push(batch(RIGHT, [("a", "x", 1)]), port=1)
    harness.push(batch(LEFT, [("a", 1, 2), ("a", 2, 5)]), port=0)
    harness.advance_processing_time(99)
    harness.watermark(3)
    harness.advance_processing_time(100)
    harness.watermark(10)
    assert [row[2] for row in harness.outputs()] == ["x", None]


def test_what_an_as_of_join_cannot_do() -> None:
    with pytest.raises(ConfigurationError, match="how must be"):
        stream("full")
    harness = OperatorHarness.of(stream())
    with pytest.raises(OperatorError, match="taken back"):
        harness.push(batch(LEFT, [("a", 1, 2)], [3]), port=0)
    with pytest.raises(OperatorError, match="no event times"):
        harness.push(batch(LEFT, [("a", 1, 2)]).with_timestamps(None), port=0)
