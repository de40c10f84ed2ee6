"""select, with_columns and filter."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from strom.api.specs.records import ExpressionSpec
from strom.core.batch import ColumnBatch, ObjectBatch
from strom.core.errors import OperatorError

STAMPS = np.array([10, 20, 30], dtype=np.int64)


def batch() -> ColumnBatch:
    data = pa.record_batch({"a": [1, 2, None], "s": ["x", "y", "z"]})
    return ColumnBatch(data, STAMPS)


def run(bench: Any, kind: Any, *expressions: Any, given: Any = None) -> Any:
    task = bench.task(ExpressionSpec(kind, expressions))
    task.operator.process(batch() if given is None else given)
    return task.out.batches[0] if task.out.batches else None


def test_select(bench: Any) -> None:
    result = run(bench, "select", pl.col("a") * 2, pl.col("s").alias("t"), pl.lit(7).alias("c"))
    assert result.data.to_pydict() == {"a": [2, 4, None], "t": ["x", "y", "z"], "c": [7, 7, 7]}
    assert result.timestamps.tolist() == STAMPS.tolist()
    assert result.data.schema.field("t").type == pa.string()


def test_named_columns_pass_untouched(bench: Any) -> None:
    given = batch()
    result = run(bench, "select", pl.col("s"), pl.col("a").alias("b"), given=given)
    assert result.data.schema.names == ["s", "b"]
    assert result.data.column(0).buffers()[2].address == given.data["s"].buffers()[2].address
    everything = run(bench, "select", pl.all(), (pl.col("a") + 1).alias("next"), given=given)
    assert everything.data.schema.names == [*given.data.schema.names, "next"]
    assert everything.data.column(0).equals(given.data.column(0))


def test_computed_text_has_one_type(bench: Any) -> None:
    result = run(bench, "select", pl.col("s").str.to_uppercase())
    assert result.data.schema.field("s").type == pa.large_string()


def test_two_columns_of_one_name(bench: Any) -> None:
    with pytest.raises(OperatorError, match="several columns of the name s"):
        run(bench, "select", pl.col("s"), pl.col("a").alias("s"))


def test_constants_only(bench: Any) -> None:
    result = run(bench, "select", pl.lit("hello").alias("c"))
    assert result.data.to_pydict() == {"c": ["hello"] * 3}


def test_with_columns_keeps_the_others_as_they_are(bench: Any) -> None:
    result = run(bench, "with_columns", (pl.col("a") + 1).alias("b"), pl.col("a").fill_null(0))
    assert result.data.to_pydict() == {"a": [1, 2, 0], "s": ["x", "y", "z"], "b": [2, 3, None]}
    assert result.data.schema.field("s").type == pa.string()


def test_filter_drops_timestamps_with_the_records(bench: Any) -> None:
    result = run(bench, "filter", pl.col("a") > 1, pl.col("s") != "x")
    assert result.data.to_pydict() == {"a": [2], "s": ["y"]}
    assert result.timestamps.tolist() == [20]
    assert run(bench, "filter", pl.col("a") > 9) is None
    assert len(run(bench, "filter", pl.lit(True))) == 3


def test_object_records_become_columns(bench: Any) -> None:
    given = ObjectBatch([{"a": 1}, {"a": 5}], STAMPS[:2])
    assert run(bench, "filter", pl.col("a") > 1, given=given).data.to_pydict() == {"a": [5]}


def test_selectors_and_regular_expressions(bench: Any) -> None:
    assert run(bench, "select", pl.all()).data.schema.names == ["a", "s"]
    assert run(bench, "select", pl.col("^a|s$")).data.schema.names == ["a", "s"]
    assert run(bench, "select", pl.exclude("s")).data.schema.names == ["a"]


@pytest.mark.parametrize(
    "expression",
    [
        pl.col("a").sum(),
        pl.len(),
        pl.col("a").max() + 1,
        pl.col("s").unique(),
        pl.col("a").drop_nulls(),
    ],
)
@pytest.mark.parametrize("kind", ["select", "with_columns"])
def test_aggregations_are_errors(bench: Any, kind: str, expression: Any) -> None:
    given = ColumnBatch(pa.record_batch({"a": [1, None], "s": ["x", "x"]}))
    with pytest.raises(OperatorError, match="operator 'the operator', subtask 0"):
        run(bench, kind, expression, given=given)


def test_polars_errors_name_the_expression(bench: Any) -> None:
    with pytest.raises(OperatorError, match=r"nope.*ColumnNotFound"):
        run(bench, "select", pl.col("nope") + 1)
    with pytest.raises(OperatorError, match="Boolean"):
        run(bench, "filter", pl.col("a") + 1)


def test_schema_is_stable_and_may_change(bench: Any) -> None:
    task = bench.task(ExpressionSpec("select", (pl.col("a").cast(pl.String),)))
    for values in ([1], [None, 2]):
        task.operator.process(ColumnBatch(pa.record_batch({"a": pa.array(values, pa.int64())})))
    task.operator.process(ColumnBatch(pa.record_batch({"x": [1.0], "a": [2.5]})))
    schemas = [b.data.schema for b in task.out.batches]
    assert schemas[0] == schemas[1] == schemas[2]
    assert task.out.rows() == [("1",), (None,), ("2",), ("2.5",)]


def test_naming_columns_needs_no_polars() -> None:
    program = """
import sys
import strom
from strom.testing import OperatorHarness
env = strom.StreamExecutionEnvironment.get_execution_environment()
import pyarrow as pa
stream = env.from_collection(pa.table({"a": [1], "b": [2]}))
harness = OperatorHarness.of(stream.select("b", c="a"))
harness.push(strom.ColumnBatch(pa.record_batch({"a": [1], "b": [2]})))
print([row.as_dict() for row in harness.outputs()], "polars" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[{'b': 2, 'c': 1}] False", done.stderr
