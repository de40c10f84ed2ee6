"""Variance, distinct counts, lists, arg-extremes and FILTER in windows, against plain Python."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from amounts import examples
from groups_kit import subtask_for
from hypothesis import given, settings
from hypothesis import strategies as st
from strom.api.aggregates import (
    Aggregate,
    approx_count_distinct,
    arg_max,
    arg_min,
    collect,
    count,
    count_distinct,
    largest,
    max_,
    smallest,
    stddev,
    sum_,
    variance,
)
from strom.api.specs.windows import BuiltinWindow, WindowSpec
from strom.api.windows.time_windows import SlidingEventTimeWindows, TumblingEventTimeWindows
from strom.core.batch import ColumnBatch
from strom.core.elements import MAX_TIMESTAMP
from strom.core.errors import TypeMismatchError
from strom.core.keys import ColumnKey
from strom.operators.base import run_to_end
from strom.operators.window_choice import make_window_operator
from strom.state.key_groups import key_group
from strom.testing.fuzz.hyperloglog import estimate, register_and_rank

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("f", pa.float64()), ("s", pa.string())])
Rows = list[tuple[Any, ...]]
"""(k, v, f, s) in order of arrival."""

V, F, S = 1, 2, 3


def values(rows: Rows, at: int) -> list[Any]:
    return [row[at] for row in rows if row[at] is not None]


def order_of(value: Any) -> Any:
    """NaN is the greatest."""
    return (1, 0) if value != value else (0, value)


def spread(at: int, ddof: int, root: bool = False) -> Callable[[Rows], Any]:
    def model(rows: Rows) -> Any:
        found = values(rows, at)
        if len(found) <= ddof:
            return None
        if any(x != x for x in found):
            return float("nan")
        result = statistics.pvariance(found) * len(found) / (len(found) - ddof)
        return result**0.5 if root else result

    return model


def distinct(at: int) -> Callable[[Rows], Any]:
    return lambda rows: len({order_of(x) for x in values(rows, at)})


def held(value: int, by: int, greatest: bool) -> Callable[[Rows], Any]:
    def model(rows: Rows) -> Any:
        known = [row for row in rows if row[by] is not None]
        pick = max if greatest else min
        return pick(known, key=lambda row: order_of(row[by]))[value] if known else None

    return model


def best(at: int, n: int, greatest: bool) -> Callable[[Rows], Any]:
    return lambda rows: sorted(values(rows, at), key=order_of, reverse=greatest)[:n]


def sketch(at: int, precision: int) -> Callable[[Rows], Any]:
    def model(rows: Rows) -> Any:
        registers: dict[int, int] = {}
        for value in values(rows, at):
            register, rank = register_and_rank(value, precision)
            registers[register] = max(rank, registers.get(register, 0))
        return estimate(registers.values(), precision)

    return model


def where(condition: Callable[[Any], bool], model: Callable[[Rows], Any]) -> Callable[[Rows], Any]:
    return lambda rows: model([row for row in rows if row[V] is not None and condition(row[V])])


POSITIVE = pl.col("v") > 0

KINDS: dict[str, tuple[Aggregate, Callable[[Rows], Any]]] = {
    "var": (variance("v"), spread(V, 1)),
    "varp": (variance("f", ddof=0), spread(F, 0)),
    "std": (stddev(pl.col("v") * 2), lambda rows: doubled(spread(V, 1, True)(rows))),
    "dv": (count_distinct("v"), distinct(V)),
    "df": (count_distinct("f"), distinct(F)),
    "ds": (count_distinct("s").where(POSITIVE), where(lambda v: v > 0, distinct(S))),
    "av": (approx_count_distinct("v", precision=4), sketch(V, 4)),
    "as": (approx_count_distinct("s", precision=7), sketch(S, 7)),
    "cv": (collect("v"), lambda rows: values(rows, V)),
    "cs": (collect("s").where(POSITIVE), where(lambda v: v > 0, lambda rows: values(rows, S))),
    "vf": (arg_max("v", by="f"), held(V, F, True)),
    "fv": (arg_min("f", by="v").where(POSITIVE), where(lambda v: v > 0, held(F, V, False))),
    "sv": (arg_max("s", by="v"), held(S, V, True)),
    "vs": (arg_min("v", by="s"), held(V, S, False)),
    "lf": (largest("f", 2), best(F, 2, True)),
    "sv2": (smallest("v", 3), best(V, 3, False)),
    "ls": (largest("s", 2), best(S, 2, True)),
    "lv": (smallest("v", 17), best(V, 17, False)),
    "pos": (count().where(POSITIVE), where(lambda v: v > 0, len)),
    "few": (
        sum_("v").where(POSITIVE).where(pl.col("v") < 3),
        where(lambda v: 0 < v < 3, lambda rows: sum(values(rows, V)) or None),
    ),
    "top": (max_("s").where(POSITIVE), where(lambda v: v > 0, held(S, S, True))),
}
NAMES = list(KINDS)
FUNCTION = BuiltinWindow(tuple((name, aggregate) for name, (aggregate, _) in KINDS.items()))


def doubled(value: Any) -> Any:
    return value if value is None else value * 2


def rounded(value: Any) -> Any:
    return round(value, 6) + 0.0 if isinstance(value, float) else value


def plain(results: list[Any]) -> str:
    return repr([[rounded(x) for x in r] if isinstance(r, list) else rounded(r) for r in results])


MAYBE_INT = st.none() | st.integers(-3, 4)
MAYBE_FLOAT = st.none() | st.integers(-2, 2).map(float) | st.just(float("nan"))
MAYBE_TEXT = st.none() | st.sampled_from(["x", "yy", "z", ""])
RECORD = st.tuples(st.sampled_from("abc"), MAYBE_INT, MAYBE_FLOAT, MAYBE_TEXT, st.integers(-20, 30))
STEP = st.lists(RECORD, max_size=10) | st.integers(-20, 40)
"""A batch, or a watermark."""


def batch_of(records: Rows) -> ColumnBatch:
    columns = list(zip(*records, strict=True))
    arrays = [pa.array(c, type=f.type) for c, f in zip(columns[:4], SCHEMA, strict=True)]
    stamps = np.array(columns[4], dtype=np.int64)
    return ColumnBatch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), stamps)


def feed(bench: Any, tasks: list[Any], steps: list[Any], contents: Any, assigner: Any) -> None:
    """To the tasks by key, and to `contents`: (key, window end) -> rows that were not late."""
    for step in steps:
        for index, task in enumerate(tasks):
            if isinstance(step, int):
                task.now = max(step, getattr(task, "now", -(2**62)))
                run_to_end(task.operator.process_watermark(task.now))
                continue
            mine = [r for r in step if owner(r[0], len(tasks), bench.max_parallelism) == index]
            if not mine:
                continue
            run_to_end(task.operator.process(batch_of(mine)))
            for *row, stamp in mine:
                for window in assigner.windows_at(stamp):
                    if window.max_timestamp() > getattr(task, "now", -(2**62)):
                        contents[row[0], window.end].append(tuple(row))


def owner(key: str, parallelism: int, max_parallelism: int) -> int:
    return subtask_for(key_group(key, max_parallelism), parallelism, max_parallelism)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(
        [
            TumblingEventTimeWindows(10),
            SlidingEventTimeWindows(10, 5),
            SlidingEventTimeWindows(10, 3),
        ]
    ),
    st.lists(STEP, max_size=5),
    st.lists(STEP, max_size=5),
)
def test_windows_equal_the_model_across_a_rescale(
    bench: Any, assigner: Any, before: list[Any], after: list[Any]
) -> None:
    spec = WindowSpec(ColumnKey(("k",)), assigner, FUNCTION)
    contents: dict[tuple[str, int], Rows] = defaultdict(list)
    old = [bench.task(make_window_operator(spec), i, 2) for i in range(2)]
    feed(bench, old, before, contents, assigner)
    snapshots = [task.snapshot() for task in old]
    new = bench.rescale(lambda: make_window_operator(spec), snapshots, 3)
    now = max((step for step in before if isinstance(step, int)), default=-(2**62))
    for task in new:
        task.now = now
    feed(bench, new, [*after, MAX_TIMESTAMP], contents, assigner)
    got = {
        (row.k, row.window_end): plain([row[name] for name in NAMES])
        for task in [*old, *new]
        for row in task.out.rows()
    }
    want = {
        at: plain([model(rows) for _, model in KINDS.values()]) for at, rows in contents.items()
    }
    assert got == want
    for task in new:
        names = {table.name for table in task.snapshot()}
        assert not [name for name in names if name.startswith("a") or name == "slices"], names


def test_a_late_but_allowed_record_fires_again(bench: Any) -> None:
    """
    ts   1 2         3 (late, allowed)
    [0            10)
                 ^ watermark 12
    """
    spec = WindowSpec(
        ColumnKey(("k",)), TumblingEventTimeWindows(10), FUNCTION, allowed_lateness_ms=5
    )
    task = bench.task(make_window_operator(spec))
    rows: Rows = [("a", 1, 2.0, "x"), ("b", 2, 3.0, "y"), ("a", 4, 1.0, "z")]
    run_to_end(task.operator.process(batch_of([(*rows[0], 1), (*rows[1], 2)])))
    run_to_end(task.operator.process_watermark(12))
    run_to_end(task.operator.process(batch_of([(*rows[2], 3)])))
    again = task.out.rows()[-1]
    assert again.k == "a"
    want = plain([model([rows[0], rows[2]]) for _, model in KINDS.values()])
    assert plain([again[name] for name in NAMES]) == want


@pytest.mark.parametrize("kind", [pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_other_encodings_of_text(bench: Any, kind: pa.DataType) -> None:
    aggregates = (
        ("n", count_distinct("s")),
        ("a", approx_count_distinct("s")),
        ("l", collect("s").where(POSITIVE)),
        ("b", largest("s", 1)),
        ("h", arg_max("s", by="v")),
    )
    spec = WindowSpec(ColumnKey(("k",)), TumblingEventTimeWindows(10), BuiltinWindow(aggregates))
    task = bench.task(make_window_operator(spec))
    batch = batch_of([("a", 1, 1.0, "x", 1), ("a", 0, 1.0, "y", 2), ("a", 2, 1.0, "x", 3)])
    plain_text = batch.data.column("s").cast(pa.string())
    column = plain_text.dictionary_encode() if pa.types.is_dictionary(kind) else plain_text
    data = batch.data.set_column(3, "s", column.cast(kind))
    run_to_end(task.operator.process(ColumnBatch(data, batch.timestamps)))
    run_to_end(task.operator.process_watermark(MAX_TIMESTAMP))
    (row,) = task.out.dicts()
    assert [row[name] for name, _ in aggregates] == [2, 2, ["x", "x"], ["y"], "x"]


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (variance("s"), r"variance\(s, ddof=1\): values of type string cannot be added"),
        (stddev("s"), r"stddev\(s, ddof=1\): values of type string cannot be added"),
        (count().where("v"), r"count\(\) where v: the condition gives values of type int64"),
        (sum_("v").where(pl.col("nothing")), "nothing"),
        (arg_max("v", by="nothing"), "no column 'nothing'"),
    ],
)
def test_what_makes_no_sense_fails_with_the_first_batch(
    bench: Any, aggregate: Aggregate, message: str
) -> None:
    function = BuiltinWindow((("a", aggregate),))
    spec = WindowSpec(ColumnKey(("k",)), TumblingEventTimeWindows(10), function)
    task = bench.task(make_window_operator(spec))
    with pytest.raises(TypeMismatchError, match=message):
        run_to_end(task.operator.process(batch_of([("a", 1, 1.0, "x", 1)])))


@pytest.mark.parametrize("size", [10, 500, 10_000, 200_000])
@pytest.mark.parametrize("precision", [8, 12, 14])
def test_approximate_counts_are_within_four_standard_errors(
    bench: Any, size: int, precision: int
) -> None:
    function = BuiltinWindow((("n", approx_count_distinct("v", precision)),))
    spec = WindowSpec(ColumnKey(("k",)), TumblingEventTimeWindows(10), function)
    task = bench.task(make_window_operator(spec))
    for _ in range(2):
        data = pa.record_batch({"k": ["a"] * size, "v": np.arange(size) * 7919})
        run_to_end(task.operator.process(ColumnBatch(data, np.zeros(size, dtype=np.int64))))
    run_to_end(task.operator.process_watermark(MAX_TIMESTAMP))
    (row,) = task.out.rows()
    assert abs(row.n - size) <= 4 * 1.04 / 2 ** (precision / 2) * size + 1
