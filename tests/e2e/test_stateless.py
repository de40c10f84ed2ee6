"""Operators without state, record by record and batch by batch, run every way."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from drawn_ways import assert_equivalent
from strom import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    OutputTag,
    ProcessFunction,
    RuntimeContext,
    Types,
    dead_letters,
)

ODD = OutputTag("odd")
LARGE = OutputTag("large")


class Scale(MapFunction):
    """Has a lifecycle: what `open` makes is there again after each restart."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.factor = 3

    def map(self, value: Any) -> Any:
        return (value.k, value.v * self.factor)


class Explode(FlatMapFunction):
    def flat_map(self, value: Any) -> Any:
        for i in range(value.v % 4):
            yield (value.k, i, value.ts)


class Even(FilterFunction):
    def filter(self, value: Any) -> bool:
        return value.v % 2 == 0


class Sort(ProcessFunction):
    """Even values go on; odd ones, large ones, and those that are both to side outputs."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        if value.v % 2:
            yield ODD, (value.k, value.v)
        if value.v > 900:
            yield LARGE, (value.v, ctx.timestamp())
        if value.v % 2 == 0:
            yield (value.k, value.v, ctx.timestamp())


def test_map_flat_map_filter(readings: Any, kind: str) -> None:
    def functions(env: Any) -> Any:
        stream = readings.stream(env, kind)
        return {
            "map": stream.map(Scale()),
            "flat_map": stream.flat_map(Explode()),
            "filter": stream.filter(Even()).map(lambda r: (r.k, r.v)),
            "lambdas": stream.map(lambda r: r.v)
            .flat_map(lambda v: [v, -v] if v % 3 == 0 else [])
            .filter(lambda v: v < 500),
        }

    rows = readings.all
    doubled = [w for r in rows if r.v % 3 == 0 for w in (r.v, -r.v) if w < 500]
    assert_equivalent(
        functions,
        [
            *(("map", (r.k, 3 * r.v)) for r in rows),
            *(("flat_map", (r.k, i, r.ts)) for r in rows for i in range(r.v % 4)),
            *(("filter", (r.k, r.v)) for r in rows if r.v % 2 == 0),
            *(("lambdas", w) for w in doubled),
        ],
    )


def test_process_with_side_outputs(readings: Any, kind: str) -> None:
    def build(env: Any) -> Any:
        main = readings.stream(env, kind).process(Sort())
        odd = main.get_side_output(ODD).key_by(lambda r: r[0]).sum(1)
        return {"main": main, "odd": odd, "large": main.get_side_output(LARGE)}

    expected: list[Any] = []
    sums: dict[str, int] = {}
    for r in readings.all:
        if r.v % 2:
            sums[r.k] = sums.get(r.k, 0) + r.v
            expected.append(("odd", (r.k, sums[r.k])))
        else:
            expected.append(("main", (r.k, r.v, r.ts)))
        if r.v > 900:
            expected.append(("large", (r.v, r.ts)))
    assert_equivalent(build, expected)


def test_column_expressions(readings: Any, kind: str) -> None:
    def build(env: Any) -> Any:
        return (
            readings.stream(env, kind)
            .filter(pl.col("v") >= 100, pl.col("g") != 3)
            .with_columns(y=pl.col("x") * 2 + pl.col("v"), k=pl.col("k").str.to_uppercase())
            .select("k", "y", late=pl.col("ts") > 1300)
        )

    chosen = [r for r in readings.all if r.v >= 100 and r.g != 3]
    assert_equivalent(build, [(r.k.upper(), r.x * 2 + r.v, r.ts > 1300) for r in chosen])


def test_functions_and_expressions_mix(readings: Any) -> None:
    schema = pa.schema([("k", pa.string()), ("w", pa.int64())])

    def build(env: Any) -> Any:
        return (
            readings.rows(env)
            .map(lambda r: (r.k, r.v // 7), output_type=schema)
            .filter(pl.col("w") % 2 == 1)
            .map(lambda r: (r.w, r.k), output_type=pa.schema([("w", pa.int64()), ("k", "string")]))
            .select(pl.col("w") + 1, "k")
        )

    odd = [(r.v // 7 + 1, r.k) for r in readings.all if r.v // 7 % 2]
    assert_equivalent(build, odd)


def double_arrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    doubled = pc.multiply(batch.column("v"), 2)
    return pa.RecordBatch.from_arrays([batch.column("k"), doubled], names=["k", "v"])


def double_polars(frame: Any) -> Any:
    return frame.select("k", pl.col("v") * 2)


def double_pandas(frame: Any) -> Any:
    return frame.assign(v=frame.v * 2)[["k", "v"]]


def double_numpy(columns: dict[str, Any]) -> dict[str, Any]:
    return {"k": columns["k"], "v": columns["v"] * 2}


class Doubler:
    """A batch function with a set-up of its own."""

    def __init__(self) -> None:
        self.factor = 2

    def __call__(self, batch: pa.RecordBatch) -> list[Any]:
        return [(r["k"], r["v"] * self.factor) for r in batch.to_pylist()]


@pytest.mark.parametrize(
    ("function", "batch_format"),
    [
        (double_arrow, "arrow"),
        (double_polars, "polars"),
        (double_pandas, "pandas"),
        (double_numpy, "numpy"),
        (Doubler, "arrow"),
    ],
)
def test_map_batches(readings: Any, function: Any, batch_format: Any) -> None:
    def build(env: Any) -> Any:
        return readings.columns(env).map_batches(function, batch_format)

    assert_equivalent(build, [(r.k, 2 * r.v) for r in readings.all])


def test_map_batches_that_filters_keeps_event_time(readings: Any) -> None:
    """The windows behind it see every record, each in a window of its own or a later one."""
    from strom import TumblingEventTimeWindows, count

    def build(env: Any) -> Any:
        return (
            readings.columns(env)
            .map_batches(lambda b: b.filter(pc.greater(b.column("v"), 500)))
            .key_by("k")
            .window(TumblingEventTimeWindows.of(10_000))
            .aggregate(n=count())
            .select("k", "n")
        )

    counts: dict[str, int] = {}
    for r in readings.all:
        if r.v > 500:
            counts[r.k] = counts.get(r.k, 0) + 1
    assert_equivalent(build, list(counts.items()))


LIMIT = 300


def tagged(row: Any) -> Any:
    if row.x is None or row.v % 7 == 0:
        return row.k.upper(), -row.v, "none"
    size = "large" if row.v > LIMIT and row.x < 75 else "small"
    return f"{row.k}-{row.g}", row.v * 3 // 2, size


TAGGED = Types.ROW_NAMED(["k", "n", "size"], [Types.STRING(), Types.LONG(), Types.STRING()])


def test_functions_that_run_on_columns(readings: Any, kind: str) -> None:
    """Where records are columns; a few of which the last one cannot do go by rows."""

    def build(env: Any) -> Any:
        rows = readings.stream(env, kind).map(tagged, output_type=TAGGED)
        beyond = rows.map(lambda row: row.n * 2**54)
        return {
            "tagged": rows.filter(lambda row: row.size != "none" and row.n > 10),
            "sums": rows.key_by(lambda row: (row.k, row.size)).sum("n"),
            "beyond": beyond,
            "put aside": rows.map(lambda row: 100 // row.n).on_error(dead_letters()),
        }

    rows = [tagged(one) for one in readings.all]
    assert any(abs(n) >= 2**9 for _, n, _ in rows)
    expected: list[Any] = [("tagged", row) for row in rows if row[2] != "none" and row[1] > 10]
    expected += [("beyond", n * 2**54) for _, n, _ in rows]
    expected += [("put aside", 100 // n) for _, n, _ in rows if n]
    sums: dict[Any, int] = {}
    for k, n, size in rows:
        sums[k, size] = sums.get((k, size), 0) + n
        expected.append(("sums", (k, sums[k, size], size)))
    assert_equivalent(build, expected)
