"""Structs are no keys, at any depth: refused where the program says so, else with the first record.
Lists and maps of plain values are keys of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from strom import JobFailedError, StreamExecutionEnvironment, count
from strom.api.aggregates import sum_
from strom.api.specs.records import OperatorSpec, RollingSpec
from strom.api.specs.tables import DeduplicateSpec, GroupAggregateSpec
from strom.api.specs.windows import BuiltinWindow, WindowSpec
from strom.api.windows.time_windows import TumblingEventTimeWindows
from strom.core.batch import ColumnBatch
from strom.core.errors import TypeMismatchError
from strom.core.keys import ColumnKey
from strom.operators.registry import build_operator
from strom.testing.fuzz.subtasks import HALVES, Subtasks

POINT = {"x": 1, "y": "a"}
ENTRIES = pa.struct([("x", pa.int64())])

STRUCTS: dict[str, pa.Array] = {
    "struct": pa.array([POINT] * 4),
    "list of structs": pa.array([[POINT]] * 4),
    "map to structs": pa.array([[("a", {"x": 1})]] * 4, pa.map_(pa.string(), ENTRIES)),
    "list of maps to structs": pa.array(
        [[[("a", {"x": 1})]]] * 4, pa.list_(pa.map_(pa.string(), ENTRIES))
    ),
}


def stream(column: pa.Array) -> Any:
    env = StreamExecutionEnvironment.get_execution_environment()
    return env.from_collection(pa.table({"k": column, "v": [1, 2, 3, 4]}))


@pytest.mark.parametrize("column", STRUCTS.values(), ids=STRUCTS)
@pytest.mark.parametrize("key", ["k", pl.col("k").alias("other")])
def test_the_program_is_refused(column: pa.Array, key: Any) -> None:
    with pytest.raises(TypeMismatchError, match=r"key_by\(.*the column '(k|other)'.*key by its"):
        stream(column).key_by(key)


def test_a_key_made_of_columns_is_refused() -> None:
    with pytest.raises(TypeMismatchError, match="the column 's' has type struct"):
        stream(pa.array([1, 2, 3, 4])).key_by(pl.struct("k", "v").alias("s"))
    with pytest.raises(TypeMismatchError, match="the column 'k'"):
        stream(STRUCTS["struct"]).partition_custom(lambda key, n: 0, "k")


@pytest.mark.parametrize("column", STRUCTS.values(), ids=STRUCTS)
def test_the_job_is_refused_where_the_program_does_not_say(column: pa.Array) -> None:
    unknown = stream(column).map_batches(lambda batch: batch)
    results = unknown.key_by("k").aggregate(n=count()).name("it")
    with pytest.raises(JobFailedError, match=r"'(it|MapBatches)'.*the column 'k' has type"):
        list(results.execute_and_collect())


def test_fields_of_structs_are_keys() -> None:
    keyed = stream(STRUCTS["struct"]).key_by(pl.col("k").struct.field("y"))
    last = list(keyed.aggregate(n=count()).execute_and_collect())[-1]
    assert (last.y, last.n) == ("a", 4)


def test_intervals_are_no_keys_of_python_values() -> None:
    """A checkpoint would hold them, and could not be restored from."""
    intervals = pa.array([(1, 2, 3)] * 4, pa.month_day_nano_interval())
    reduced = stream(intervals).key_by("k").reduce(lambda a, b: b).name("it")
    with pytest.raises(JobFailedError, match=r"'it'.*the column 'k' has type month_day_nano"):
        list(reduced.execute_and_collect())


PLAIN: dict[str, pa.Array] = {
    "list": pa.array([[1, 2], [3], [1, 2], []]),
    "list of lists": pa.array([[["a"], []], None, [["a"], []], []]),
    "fixed list": pa.array([[1, 2], [3, 4], [1, 2], [5, 6]], pa.list_(pa.int64(), 2)),
    "map": pa.array([[("a", 1)], [("a", 2)], [("a", 1)], []], pa.map_(pa.string(), pa.int64())),
}

KEY = ColumnKey(("k",))

SPECS: dict[str, OperatorSpec] = {
    "aggregate": GroupAggregateSpec(KEY, (("n", count()),)),
    "rolling": RollingSpec(KEY, "sum", "v"),
    "last": DeduplicateSpec(KEY, "last"),
    "windows": WindowSpec(
        KEY, TumblingEventTimeWindows.of(100), BuiltinWindow((("n", count()), ("s", sum_("v"))))
    ),
}


@pytest.mark.parametrize("column", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_lists_and_maps_are_keys_through_checkpoints(column: pa.Array, spec: OperatorSpec) -> None:
    """In one subtask, and from a checkpoint in between in two with half of the key groups each."""
    data = pa.record_batch({"k": column, "v": [1, 2, 3, 4]})
    batch, found = ColumnBatch(data, np.arange(4)), []
    for restores in (False, True):
        tasks = Subtasks(lambda: build_operator(spec), KEY, 1024)
        tasks.push(batch)
        if restores:
            tasks.restore(HALVES)
        tasks.push(batch)
        tasks.finish()
        found.append(sorted(repr(row) for one in tasks.batches for row in one.rows()))
    assert found[0] == found[1]
    assert len(found[0]) >= 3
