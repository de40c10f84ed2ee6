"""Rolling aggregates: column face, row face and a naive loop agree, across a rescale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from groups_kit import subtask_for
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.specs.records import RollingSpec
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.errors import StateError, TypeMismatchError
from strom.core.keys import ColumnKey, FunctionKey
from strom.core.row import Row
from strom.operators.base import run_to_end
from strom.operators.rolling.choice import make_rolling
from strom.state.key_groups import key_group

KINDS = ["sum", "min", "max", "min_by", "max_by"]
INTS = st.none() | st.integers(-3, 3)
FLOATS = st.none() | st.integers(-2, 2).map(float) | st.just(float("nan"))
NAMES = ("k", "v", "n")


def better(value: Any, than: Any, largest: bool) -> bool:
    if largest:
        return bool(value > than or (value != value and than == than))
    return bool(value < than or (than != than and value == value))


def naive(rows: list[tuple[Any, ...]], kind: str) -> list[tuple[Any, ...]]:
    state: dict[Any, Any] = {}
    results = []
    for k, v, n in rows:
        old = state.get(k)
        if kind == "sum":
            state[k] = old if v is None else v if old is None else old + v
            results.append((k, state[k], n))
        elif kind in ("min", "max"):
            if v is not None and (old is None or better(v, old, kind == "max")):
                state[k] = v
            results.append((k, state.get(k), n))
        else:
            largest = kind == "max_by"
            if old is None or (v is not None and (old[1] is None or better(v, old[1], largest))):
                state[k] = (k, v, n)
            results.append(state[k])
    return results


def columns(rows: list[tuple[Any, ...]], floats: bool) -> ColumnBatch:
    kinds = [pa.int64(), pa.float64() if floats else pa.int64(), pa.int32()]
    arrays = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), kinds, strict=True)]
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, names=list(NAMES)))


def run(bench: Any, spec: RollingSpec, batches: list[list[Any]], make: Any, cut: int) -> list[Any]:
    """Outputs in input order: p = 2 until `cut`, then a snapshot, then p = 3."""
    tasks = [bench.task(make_rolling(spec), i, 2) for i in range(2)]
    results = []
    for number, batch in enumerate(batches):
        if number == cut:
            snapshots = [task.snapshot() for task in tasks]
            tasks = bench.rescale(lambda: make_rolling(spec), snapshots, 3)
        found: dict[int, Any] = {}
        for index, task in enumerate(tasks):
            limit = bench.max_parallelism
            at = [
                i
                for i, row in enumerate(batch)
                if subtask_for(key_group(row[0], limit), len(tasks), limit) == index
            ]
            if at:
                run_to_end(task.operator.process(make([batch[i] for i in at])))
                found.update(zip(at, task.out.batches[-1].rows(), strict=True))
        results.extend(tuple(found[i]) for i in range(len(batch)))
    return results


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_both_faces_equal_a_naive_loop(bench: Any, kind: Any, floats: bool) -> None:
    values = FLOATS if floats else INTS
    rows = st.lists(
        st.tuples(st.integers(0, 4), values, st.integers(0, 99)), min_size=1, max_size=8
    )

    @settings(max_examples=12, deadline=None)
    @given(st.lists(rows, min_size=1, max_size=4), st.integers(0, 3))
    def check(batches: list[Any], cut: int) -> None:
        want = repr(naive([row for batch in batches for row in batch], kind))
        named = RollingSpec(key=ColumnKey(("k",)), kind=kind, field="v")
        assert repr(run(bench, named, batches, lambda b: columns(b, floats), cut)) == want
        by_function = RollingSpec(key=FunctionKey(lambda r: r[0]), kind=kind, field=1)
        assert repr(run(bench, by_function, batches, ObjectBatch, cut)) == want
        assert repr(run(bench, by_function, batches, lambda b: columns(b, floats), cut)) == want

    check()


@pytest.mark.parametrize("kind", ["sum", "min", "max"])
def test_of_first(bench: Any, kind: Any) -> None:
    """The other fields are those of the key's first record, before and after a rescale."""
    spec = RollingSpec(FunctionKey(lambda r: r[0]), kind, 1, of_first=True)
    batches = [[(1, 3, 10), (1, 2, 11), (2, 7, 20)], [(1, 5, 12), (2, 1, 21)], [(1, 1, 13)]]
    firsts = {1: 10, 2: 20}
    found = naive([row for batch in batches for row in batch], kind)
    want = [(k, v, firsts[k]) for k, v, _ in found]
    for make in (ObjectBatch, lambda b: columns(b, False)):
        for cut in range(3):
            assert run(bench, spec, batches, make, cut) == want


class Pair(NamedTuple):
    k: str
    v: int


@dataclass
class Record:
    k: str
    v: int


@pytest.mark.parametrize(
    ("records", "field", "want"),
    [
        ([("a", 1), ("a", 2)], 1, [("a", 1), ("a", 3)]),
        ([("a", 1), ("a", 2)], -1, [("a", 1), ("a", 3)]),
        ([(1, "a", 1.5), (2, "a", 2)], 0, [(1, "a", 1.5), (3, "a", 2)]),
        ([["a", 1], ["a", 2]], "f1", [["a", 1], ["a", 3]]),
        ([{"k": "a", "v": 1}, {"k": "a", "v": 2}], "v", [{"k": "a", "v": 1}, {"k": "a", "v": 3}]),
        ([Pair("a", 1), Pair("a", 2)], "v", [Pair("a", 1), Pair("a", 3)]),
        ([Row(k="a", v=1), Row(k="a", v=2)], "v", [Row(k="a", v=1), Row(k="a", v=3)]),
        ([Record("a", 1), Record("a", 2)], "v", [Record("a", 1), Record("a", 3)]),
        ([5, 6], 0, [5, 11]),
    ],
)
def test_records_of_every_kind(bench: Any, records: Any, field: Any, want: Any) -> None:
    spec = RollingSpec(key=FunctionKey(lambda r: 0), kind="sum", field=field)
    task = bench.task(spec)
    run_to_end(task.operator.process(ObjectBatch(list(records), np.array([7, 8], dtype=np.int64))))
    (batch,) = task.out.batches
    assert batch.values == want
    assert list(map(type, batch.values)) == list(map(type, want))
    assert batch.timestamps.tolist() == [7, 8]


def test_text_extremes_take_the_row_face_and_stay_columns(bench: Any) -> None:
    spec = RollingSpec(key=ColumnKey(("k",)), kind="max", field="s")
    task = bench.task(spec)
    data = pa.record_batch({"k": [1, 1, 1], "s": ["b", "a", "c"]})
    run_to_end(task.operator.process(ColumnBatch(data)))
    (batch,) = task.out.batches
    assert batch.data.schema == data.schema
    assert batch.data.column("s").to_pylist() == ["b", "b", "c"]


def test_types(bench: Any) -> None:
    data = pa.record_batch({"k": [1], "v": pa.array([3], pa.int32())})
    for kind, want in (("sum", pa.int32()), ("min", pa.int32()), ("max_by", pa.int32())):
        task = bench.task(RollingSpec(key=ColumnKey(("k",)), kind=kind, field="v"))
        run_to_end(task.operator.process(ColumnBatch(data)))
        assert task.out.batches[0].data.schema.field("v").type == want


@pytest.mark.parametrize("key", [ColumnKey(("k",)), FunctionKey(lambda r: r[0])])
def test_errors(bench: Any, key: Any) -> None:
    task = bench.task(RollingSpec(key=key, kind="sum", field="nope"))
    with pytest.raises(TypeMismatchError, match="nope"):
        run_to_end(task.operator.process(columns([(1, 1, 1)], False)))
    task = bench.task(RollingSpec(key=key, kind="sum", field="v"))
    with pytest.raises(TypeMismatchError, match="int64"):
        run_to_end(task.operator.process(columns([(1, 2**62, 1), (1, 2**62, 1)], False)))


def test_subtasks_that_chose_different_faces_cannot_be_merged(bench: Any) -> None:
    spec = RollingSpec(key=ColumnKey(("k",)), kind="sum", field="v")
    tasks = [bench.task(make_rolling(spec), i, 2) for i in range(2)]
    tasks[0].operator.process(columns([(1, 1, 1)], False))
    tasks[1].operator.process(ObjectBatch([{"k": 2, "v": 1, "n": 1}]))
    with pytest.raises(StateError, match="Python objects"):
        bench.rescale(lambda: make_rolling(spec), [task.snapshot() for task in tasks], 1)


def test_a_bound_operator_converts_batches_of_the_other_kind(bench: Any) -> None:
    spec = RollingSpec(key=ColumnKey(("k",)), kind="sum", field="v")
    task = bench.task(make_rolling(spec))
    run_to_end(task.operator.process(columns([(1, 1, 1)], False)))
    run_to_end(task.operator.process(ObjectBatch([{"k": 1, "v": 4, "n": 2}])))
    assert task.out.rows() == [(1, 1, 1), (1, 5, 2)]
    task = bench.task(make_rolling(spec))
    run_to_end(task.operator.process(ObjectBatch([{"k": 1, "v": 4, "n": 2}])))
    run_to_end(task.operator.process(columns([(1, 1, 1)], False)))
    assert task.out.rows() == [{"k": 1, "v": 4, "n": 2}, (1, 5, 1)]
