"""Keyed streams: every way to give a key, running results, functions with state; run every way.

Expected values are folded in plain Python over each key's records in order: all records of a key
are in one lane (conftest), so that order is fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from amounts import pairs
from drawn_ways import assert_equivalent
from strom import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    ReduceFunction,
    RuntimeContext,
    ValueStateDescriptor,
)
from strom.testing.equivalence import Ways


def fold(
    readings: Any, key: Callable[[Any], Any], start: Callable[[Any], Any], step: Callable[..., Any]
) -> list[Any]:
    """The running result of each record."""
    held: dict[Any, Any] = {}
    results = []
    for r in readings.all:
        k = key(r)
        held[k] = step(held[k], r) if k in held else start(r)
        results.append(held[k])
    return results


KEYS = {
    "column": (("k",), lambda r: r.k),
    "columns": (("k", "g"), lambda r: (r.k, r.g)),
    "expression": ((pl.col("k").str.slice(0, 2),), lambda r: r.k[:2]),
    "expressions": (("k", pl.col("g") % 2), lambda r: (r.k, r.g % 2)),
    "function": ((lambda r: (r.k, r.g > 2),), lambda r: (r.k, r.g > 2)),
}


@pytest.mark.parametrize(("name", "kind"), pairs(KEYS, ["rows", "columns"]))
def test_rolling_sum_by_every_kind_of_key(readings: Any, kind: str, name: str) -> None:
    keys, key = KEYS[name]

    def build(env: Any) -> Any:
        return readings.stream(env, kind).key_by(*keys).sum("v").map(lambda r: (r.k, r.g, r.v))

    sums = fold(readings, key, lambda r: r.v, lambda total, r: total + r.v)
    others = firsts(readings, key) if name == "function" else readings.all
    expected = [(r.k, r.g, total) for r, total in zip(others, sums, strict=True)]
    assert_equivalent(build, expected, Ways(seeds=range(1)))


def firsts(readings: Any, key: Callable[[Any], Any]) -> list[Any]:
    """The first record of each one's key, which other fields are of where the key is a function."""
    return fold(readings, key, lambda r: r, lambda first, r: first)


def keep(better: Callable[[int, int], bool]) -> Callable[[Any, Any], Any]:
    """The first record with the best v so far."""
    return lambda held, r: r if better(r.v, held.v) else held


@pytest.mark.parametrize(
    ("method", "better"), [("min", lambda a, b: a < b), ("max", lambda a, b: a > b)]
)
def test_rolling_extremes(readings: Any, kind: str, method: str, better: Any) -> None:
    def build(env: Any) -> Any:
        keyed = readings.stream(env, kind).key_by("k")
        return {
            "value": getattr(keyed, method)("v").map(tuple),
            "record": getattr(keyed, f"{method}_by")("v").map(tuple),
        }

    holders = fold(readings, lambda r: r.k, lambda r: r, keep(better))
    pairs = list(zip(readings.all, holders, strict=True))
    expected = [("value", (r.k, r.g, best.v, r.x, r.ts)) for r, best in pairs]
    assert_equivalent(build, [*expected, *(("record", tuple(best)) for _, best in pairs)])


def test_rolling_on_tuples_by_position(readings: Any) -> None:
    def build(env: Any) -> Any:
        keyed = readings.rows(env).map(lambda r: (r.k, r.v, r.ts)).key_by(lambda t: t[0])
        return {"sum": keyed.sum(1), "min": keyed.min(1), "max_by": keyed.max_by(1)}

    def key(r: Any) -> Any:
        return r.k

    sums = fold(readings, key, lambda r: r.v, lambda total, r: total + r.v)
    least = fold(readings, key, lambda r: r.v, lambda held, r: min(held, r.v))
    holders = fold(readings, key, lambda r: r, keep(lambda a, b: a > b))
    others = firsts(readings, key)
    expected = [
        *(("sum", (r.k, total, r.ts)) for r, total in zip(others, sums, strict=True)),
        *(("min", (r.k, value, r.ts)) for r, value in zip(others, least, strict=True)),
        *(("max_by", (r.k, r.v, r.ts)) for r in holders),
    ]
    assert_equivalent(build, expected)


class Join(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return (value1[0], (value1[1] * 31 + value2[1]) % 10_007)


def test_reduce_depends_on_order(readings: Any) -> None:
    def build(env: Any) -> Any:
        return readings.rows(env).map(lambda r: (r.k, r.v)).key_by(lambda t: t[0]).reduce(Join())

    expected = fold(
        readings,
        lambda r: r.k,
        lambda r: (r.k, r.v),
        lambda held, r: (r.k, (held[1] * 31 + r.v) % 10_007),
    )
    assert_equivalent(build, expected)


class Numbered(MapFunction):
    """Number of the record within its key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def map(self, value: Any) -> Any:
        n = (self.seen.value() or 0) + 1
        self.seen.update(n)
        return (value.k, n)


class Changed(FilterFunction):
    """Records whose g differs from that of the record before."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def filter(self, value: Any) -> bool:
        before = self.last.value()
        self.last.update(value.g)
        return bool(before != value.g)


class Pairs(FlatMapFunction):
    """Each two records of a key as one."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.first = runtime_context.get_state(ValueStateDescriptor("first"))

    def flat_map(self, value: Any) -> Any:
        first = self.first.value()
        if first is None:
            self.first.update(value.v)
        else:
            self.first.clear()
            yield (value.k, first, value.v)


def test_map_filter_and_flat_map_with_state(readings: Any, kind: str) -> None:
    def build(env: Any) -> Any:
        keyed = readings.stream(env, kind).key_by("k")
        return {
            "map": keyed.map(Numbered()),
            "filter": keyed.filter(Changed()).map(lambda r: (r.k, r.g, r.ts)),
            "flat_map": keyed.flat_map(Pairs()),
        }

    by_key: dict[str, list[Any]] = {}
    for r in readings.all:
        by_key.setdefault(r.k, []).append(r)
    expected: list[Any] = []
    for k, rows in by_key.items():
        expected += [("map", (k, i + 1)) for i in range(len(rows))]
        changed = [r for i, r in enumerate(rows) if i == 0 or r.g != rows[i - 1].g]
        expected += [("filter", (k, r.g, r.ts)) for r in changed]
        pairs = zip(rows[::2], rows[1::2], strict=False)
        expected += [("flat_map", (k, a.v, b.v)) for a, b in pairs]
    assert_equivalent(build, expected)


def test_two_keyed_stages(readings: Any) -> None:
    """Sums per (k, g), then their running maximum per k: state behind two exchanges."""

    def build(env: Any) -> Any:
        return (
            readings.columns(env)
            .key_by("k", "g")
            .sum("v")
            .key_by(lambda r: (r.k, r.g))
            .reduce(lambda a, b: max(a, b, key=lambda r: r.v))
            .map(lambda r: (r.k, r.g, r.v))
        )

    sums = fold(readings, lambda r: (r.k, r.g), lambda r: r.v, lambda total, r: total + r.v)
    pairs = zip(readings.all, sums, strict=True)
    assert_equivalent(build, [(r.k, r.g, total) for r, total in pairs])
