"""Batch functions: every format in and out, classes with a lifecycle, timestamps, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from strom.api.specs.records import MapBatchesSpec
from strom.core.arrow_values import to_array
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.errors import TypeMismatchError
from strom.core.union_type import OfKind, UnionType
from strom.operators.base import run_to_end

STAMPS = np.array([30, 10], dtype=np.int64)
IN = ColumnBatch(pa.record_batch({"a": [1, 2], "s": ["x", "y"]}), STAMPS)


def run(bench: Any, function: Any, **options: Any) -> Any:
    task = bench.task(MapBatchesSpec(function, **options))
    run_to_end(task.operator.process(IN))
    return task.out.batches[0] if task.out.batches else None


@pytest.mark.parametrize(
    ("batch_format", "kind"),
    [
        ("arrow", pa.RecordBatch),
        ("polars", pl.DataFrame),
        ("pandas", pd.DataFrame),
        ("numpy", dict),
    ],
)
def test_formats_go_round(bench: Any, batch_format: Any, kind: type) -> None:
    seen = []

    def identity(batch: Any) -> Any:
        seen.append(type(batch))
        return batch

    result = run(bench, identity, batch_format=batch_format)
    assert seen == [kind]
    assert result.data.to_pydict() == IN.data.to_pydict()
    assert result.timestamps.tolist() == STAMPS.tolist()
    assert result.data.schema.metadata is None


MAP = pa.map_(pa.string(), pa.int64())
KINDS = UnionType.of({"m": pa.struct([("of", MAP)]), "n": pa.struct([("n", pa.int64())])})


@pytest.mark.parametrize("batch_format", ["arrow", "polars", "pandas", "numpy"])
@pytest.mark.parametrize("kind", [MAP, pa.struct([("n", pa.int64()), ("of", MAP)]), KINDS], ids=str)
def test_maps_come_back(bench: Any, batch_format: Any, kind: pa.DataType) -> None:
    values: list[Any] = [{"x": 1, "y": None}, None, {}]
    if kind is KINDS:
        values = [OfKind("m", {"of": values[0]}), None, OfKind("n", {"n": 3})]
    elif kind is not MAP:
        values = [{"n": n, "of": of} for n, of in enumerate(values)]
    schema = pa.schema([("a", pa.int64()), ("m", kind), ("s", pa.string())])
    columns = [pa.array([1, 2, 3]), to_array(values, kind), pa.array(["x", None, "z"])]
    data = pa.RecordBatch.from_arrays(columns, schema=schema)
    task = bench.task(MapBatchesSpec(lambda batch: batch, batch_format, schema))
    run_to_end(task.operator.process(ColumnBatch(data)))
    (found,) = task.out.batches
    assert found.data.schema == schema
    assert found.rows() == ColumnBatch(data).rows()


@pytest.mark.parametrize("batch_format", ["pandas", "numpy"])
def test_maps_alone_and_what_is_none(bench: Any, batch_format: Any) -> None:
    schema = pa.schema([("m", MAP)])
    data = pa.RecordBatch.from_arrays([to_array([{"x": 1}, None], MAP)], schema=schema)

    def run_with(function: Any) -> Any:
        task = bench.task(MapBatchesSpec(function, batch_format, schema))
        run_to_end(task.operator.process(ColumnBatch(data)))
        return task.out.batches

    (found,) = run_with(lambda batch: batch)
    assert found.data.equals(data)
    with pytest.raises(TypeMismatchError, match="column 'm' does not fit its declared type map"):
        run_with(lambda batch: {"m": [7, 8]})


@pytest.mark.parametrize(
    "result",
    [
        pa.table({"b": [1, 2, 3]}),
        pl.DataFrame({"b": [1, 2, 3]}),
        pd.DataFrame({"b": [1, 2, 3]}, index=[5, 6, 7]),
        {"b": np.array([1, 2, 3])},
        {"b": [1, 2, 3]},
    ],
)
def test_any_format_and_length_comes_back(bench: Any, result: Any) -> None:
    batch = run(bench, lambda _: result)
    assert batch.data.to_pydict() == {"b": [1, 2, 3]}
    assert batch.timestamps.tolist() == [30, 30, 30]


def test_lists_schemas_and_nothing(bench: Any) -> None:
    batch = run(bench, lambda _: ["u", "v"])
    assert isinstance(batch, ObjectBatch)
    assert batch.values == ["u", "v"]
    schema = pa.schema([("v", pa.float64())])
    assert run(bench, lambda _: [1, 2], schema=schema).data.schema == schema
    assert (
        run(bench, lambda b: b.select([0]).rename_columns(["v"]), schema=schema).data.schema
        == schema
    )
    with pytest.raises(TypeMismatchError, match=r"\['w'\] are not declared, and would be lost"):
        run(bench, lambda b: b.rename_columns(["v", "w"]), schema=schema)
    assert run(bench, lambda b: b.slice(0, 0)) is None
    vectors = run(bench, lambda _: {"e": np.ones((2, 2))})
    assert vectors.data.to_pydict() == {"e": [[1.0, 1.0], [1.0, 1.0]]}


class Model:
    log: list[str] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.log.append("made")
        self.calls = 0

    def open(self, runtime_context: Any) -> None:
        self.log.append(f"open {runtime_context.get_task_name()}")

    def __call__(self, batch: pa.RecordBatch) -> Any:
        self.calls += 1
        return {"calls": [self.calls]}

    def close(self) -> None:
        self.log.append("close")


def test_a_class_is_made_once_per_subtask(bench: Any) -> None:
    Model.log.clear()
    task = bench.task(MapBatchesSpec(Model))
    run_to_end(task.operator.process(IN))
    run_to_end(task.operator.process(IN))
    task.operator.close()
    assert [row.calls for row in task.out.rows()] == [1, 2]
    assert Model.log == ["made", "open the operator", "close"]


@pytest.mark.parametrize("wrong", [None, 5, "text"])
def test_wrong_results_are_named(bench: Any, wrong: Any) -> None:
    with pytest.raises(TypeMismatchError, match=type(wrong).__name__):
        run(bench, lambda _: wrong)


def test_not_callable(bench: Any) -> None:
    with pytest.raises(TypeMismatchError, match="not callable"):
        bench.task(MapBatchesSpec(5))
