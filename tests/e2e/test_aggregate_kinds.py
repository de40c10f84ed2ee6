"""Built-in aggregates that keep more than a number per key, on columns and on rows, run every way.

    sliding 100/50     [1000        )
                          [1050          )
                              [1100          )

Every key lives in one lane, so the order in which its records arrive is the same in every run.
"""

from __future__ import annotations

import statistics
from typing import Any

import polars as pl
import pytest
from drawn_ways import assert_equivalent
from strom import (
    SlidingEventTimeWindows,
    approx_count_distinct,
    arg_max,
    collect,
    count,
    count_distinct,
    largest,
    smallest,
    stddev,
    variance,
)
from strom.testing.equivalence import Ways
from strom.testing.fuzz.hyperloglog import estimate, register_and_rank

SIZE, SLIDE = 100, 50

AGGREGATES = {
    "spread": variance("v"),
    "deviation": stddev("x", ddof=0),
    "groups": count_distinct("g"),
    "about": approx_count_distinct("v", precision=5),
    "all": collect("v"),
    "at_top": arg_max("v", by="x"),
    "best": largest("v", 3),
    "least": smallest("x", 2),
    "late_groups": count_distinct("g").where(pl.col("v") > 500),
    "high": count().where(pl.col("v") > 500),
}


def about(values: list[int], precision: int) -> int:
    registers: dict[int, int] = {}
    for value in values:
        register, rank = register_and_rank(value, precision)
        registers[register] = max(rank, registers.get(register, 0))
    return estimate(registers.values(), precision)


def results(rows: list[Any]) -> tuple[Any, ...]:
    vs, xs = [r.v for r in rows], [r.x for r in rows]
    high = [r for r in rows if r.v > 500]
    return (
        round(float(statistics.variance(vs)), 6) if len(vs) > 1 else None,
        round(statistics.pstdev(xs), 6),
        len({r.g for r in rows}),
        about(vs, 5),
        tuple(vs),
        max(rows, key=lambda r: r.x).v,
        tuple(sorted(vs, reverse=True)[:3]),
        tuple(sorted(xs)[:2]),
        len({r.g for r in high}),
        len(high),
    )


def settled(row: Any) -> tuple[Any, ...]:
    """Lists as tuples; floats without the digits that depend on how slices were merged."""
    plain = (round(v, 6) if isinstance(v, float) else v for v in row)
    return tuple(tuple(v) if isinstance(v, list) else v for v in plain)


def by_k(record: Any) -> Any:
    return record.k


@pytest.mark.parametrize("path", ["kernels", "rows"])
def test_kinds_on_columns_and_on_rows(readings: Any, path: str) -> None:
    def build(env: Any) -> Any:
        stream, assigner = readings.columns(env), SlidingEventTimeWindows.of(SIZE, SLIDE)
        return {
            name: stream.key_by(key).window(assigner).aggregate(**AGGREGATES).map(settled)
            for name, key in (("columns", "k"), ("function", by_k))
        }

    windows: dict[tuple[Any, int, int], list[Any]] = {}
    for r in readings.all:
        for start in range(0, r.ts + 1, SLIDE):
            if r.ts < start + SIZE:
                windows.setdefault((r.k, start, start + SIZE), []).append(r)
    expected = [(*window, *results(rows)) for window, rows in windows.items()]
    assert_equivalent(
        build, [(w, row) for w in ("columns", "function") for row in expected], Ways(seeds=range(1))
    )
