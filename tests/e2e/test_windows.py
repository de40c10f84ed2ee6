"""Windows over event time: every assigner with every kind of function, run every way.

One slide, and the sessions of one key, on the readings' time axis (ms):

    tumbling 100       [1000        )[1100        )[1200 ...
    sliding 100/50     [1000        )
                          [1050          )
                              [1100          )
    session, gap 35    a record at 1040 opens [1040, 1075); one at 1075 still touches it and makes
                       it [1040, 1110); one at 1111 opens the next

Expected results are computed record by record in plain Python. The columnar operator, by columns
and by a key function, and the row operator must give them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from amounts import pairs
from drawn_ways import assert_equivalent
from strom import (
    AggregateFunction,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    count,
    first,
    last,
    max_,
    mean,
    min_,
    sum_,
)
from strom.testing.equivalence import Ways

GAP = 35
Groups = dict[tuple[Any, int, int], list[Any]]
"""(key, window start, window end) -> records in order of arrival."""


def tumbling(rows: list[Any], key: Callable[[Any], Any], size: int = 100) -> Groups:
    return sliding(rows, key, size, size)


def sliding(
    rows: list[Any], key: Callable[[Any], Any], size: int = 100, slide: int = 50, offset: int = 0
) -> Groups:
    groups: Groups = {}
    for r in rows:
        for start in range(offset, r.ts + 1, slide):
            if start <= r.ts < start + size:
                groups.setdefault((key(r), start, start + size), []).append(r)
    return groups


def sessions(rows: list[Any], key: Callable[[Any], Any], gap: int = GAP) -> Groups:
    by_key: dict[Any, list[Any]] = {}
    for r in rows:
        by_key.setdefault(key(r), []).append(r)
    groups: Groups = {}
    for k, mine in by_key.items():
        times = sorted(r.ts for r in mine)
        cuts = [t for t, after in pairwise(times) if after - t > gap]
        bounds = [times[0], *(min(t for t in times if t > cut) for cut in cuts)]
        ends = [cut + gap for cut in [*cuts, times[-1]]]
        for start, end in zip(bounds, ends, strict=True):
            groups[k, start, end] = [r for r in mine if start <= r.ts < end]
    return groups


ASSIGNERS: dict[str, tuple[Any, Callable[..., Groups]]] = {
    "tumbling": (TumblingEventTimeWindows.of(100), tumbling),
    "sliding": (SlidingEventTimeWindows.of(100, 50), sliding),
    "sliding, offset": (
        SlidingEventTimeWindows.of(90, 40, 7),
        lambda rows, key: sliding(rows, key, 90, 40, 7),
    ),
    "session": (EventTimeSessionWindows.with_gap(GAP), sessions),
}


def by_k(record: Any) -> Any:
    return record.k


def combine(a: Any, b: Any) -> Any:
    """Depends on the order of the records, and on their number."""
    return a.replace(v=a.v * 31 % 1009 + b.v)


def add(a: Any, b: Any) -> Any:
    """Does not depend on the order."""
    return a.replace(v=a.v + b.v)


class Weighted(AggregateFunction):
    """An accumulator that is changed in place."""

    def create_accumulator(self) -> Any:
        return [0, 0.0]

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator[0] += 1
        accumulator[1] += value.x
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return tuple(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return [acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]]


class Bounds(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window()
        assert context.current_watermark() >= window.max_timestamp()
        for element in elements:
            yield (key, window.start, window.end, element)


class Contents(ProcessWindowFunction):
    """All records of the window, in order."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window()
        yield (key, window.start, window.end, tuple(r.v for r in elements))


@pytest.mark.parametrize(("name", "kind"), pairs(ASSIGNERS, ["rows", "columns"]))
def test_user_functions(readings: Any, kind: str, name: str) -> None:
    assigner, group = ASSIGNERS[name]
    merging = name == "session"

    def build(env: Any) -> Any:
        windows = readings.stream(env, kind).key_by("k")
        # Where two sessions meet, the reduction of one is folded into the other's: what comes out
        # depends on the order of merges, unless the function is associative and commutative.
        reduced = windows.window(assigner).reduce(add if merging else combine, Bounds())
        return {
            "aggregate": windows.window(assigner).aggregate(Weighted(), Bounds()),
            "process": windows.window(assigner).process(Contents()).map(_sorted_if(merging)),
            "reduce": reduced.map(lambda t: (*t[:3], t[3].v)),
        }

    expected: list[Any] = []
    for (k, start, end), rows in group(readings.all, by_k).items():
        values = tuple(r.v for r in rows)
        weighted = (len(rows), sum(r.x for r in rows))
        expected.append(("aggregate", (k, start, end, weighted)))
        expected.append(("process", _sorted_if(merging)((k, start, end, values))))
        reduced = values[0]
        for v in values[1:]:
            reduced = reduced + v if merging else reduced * 31 % 1009 + v
        expected.append(("reduce", (k, start, end, reduced)))
    assert_equivalent(build, expected, Ways(seeds=range(1)))


def _sorted_if(merging: bool) -> Any:
    """Merged sessions hold their records in the order of the merges."""
    return lambda t: (*t[:3], tuple(sorted(t[3]))) if merging else t


BUILTINS = {
    "n": count(),
    "total": sum_("v"),
    "least": min_("x"),
    "most": max_("ts"),
    "middle": mean("x"),
}
EXPRESSION = {"shifted": sum_(pl.col("v") * 2 + 1)}
"""Cheap on columns; on a row, polars evaluates a frame of one."""


def builtins_of(rows: list[Any]) -> tuple[Any, ...]:
    xs = [r.x for r in rows]
    return (
        len(rows),
        sum(r.v for r in rows),
        min(xs),
        max(r.ts for r in rows),
        sum(xs) / len(xs),
    )


@pytest.mark.parametrize(("name", "path"), pairs(ASSIGNERS, ["kernels", "rows"]))
def test_builtin_aggregates_on_columns_and_on_rows(readings: Any, name: str, path: str) -> None:
    assigner, group = ASSIGNERS[name]

    def build(env: Any) -> Any:
        columns, rows = readings.columns(env), readings.rows(env)
        return {
            "columns": columns.key_by("k").window(assigner).aggregate(**BUILTINS),
            "function": columns.key_by(by_k).window(assigner).aggregate(**BUILTINS),
            "objects": rows.key_by("k").window(assigner).aggregate(**BUILTINS),
            "objects, function": rows.key_by(by_k).window(assigner).aggregate(**BUILTINS),
        }

    windows = group(readings.all, by_k)
    expected = [(*window, *builtins_of(rows)) for window, rows in windows.items()]
    ways = ("columns", "function", "objects", "objects, function")
    assert_equivalent(build, [(w, row) for w in ways for row in expected], Ways(seeds=range(1)))


def test_keys_across_lanes(readings: Any) -> None:
    """Keys whose records come from all subtasks: results that do not depend on their order."""
    assigner = SlidingEventTimeWindows.of(100, 50)

    def build(env: Any) -> Any:
        stream = readings.columns(env)
        return {
            "two": stream.key_by("g", pl.col("v") % 3)
            .window(assigner)
            .aggregate(**BUILTINS, **EXPRESSION),
            "all": stream.window_all(assigner).aggregate(**BUILTINS),
            "row": stream.window_all(assigner).process(Everything()),
        }

    rows = readings.all
    two = sliding(rows, lambda r: (r.g, r.v % 3))
    whole = sliding(rows, lambda r: 0)
    assert_equivalent(
        build,
        [
            *(
                ("two", (*k, start, end, *builtins_of(g), sum(r.v * 2 + 1 for r in g)))
                for (k, start, end), g in two.items()
            ),
            *(("all", (start, end, *builtins_of(g))) for (_, start, end), g in whole.items()),
            *(
                ("row", (start, tuple(sorted(r.v for r in g))))
                for (_, start, _), g in whole.items()
            ),
        ],
    )


class Everything(ProcessAllWindowFunction):
    def process(self, context: Any, elements: Any) -> Any:
        yield (context.window().start, tuple(sorted(r.v for r in elements)))


def test_first_last_and_extremes(readings: Any, kind: str) -> None:
    """In order of arrival, which is the order of the lane."""
    assigner = TumblingEventTimeWindows.of(100)

    def build(env: Any) -> Any:
        stream = readings.stream(env, kind)
        extremes = stream.key_by("k").window(assigner)
        return {
            "ends": extremes.aggregate(a=first("v"), b=last("ts")),
            "least": extremes.min_by("g").map(tuple),
            "greatest": extremes.max_by("g", ties=True).map(tuple),
            "by rows": stream.key_by(by_k).window(assigner).max_by("g", ties=True).map(tuple),
        }

    expected: list[Any] = []
    for (k, start, end), rows in tumbling(readings.all, by_k).items():
        expected.append(("ends", (k, start, end, rows[0].v, rows[-1].ts)))
        least, greatest = min(r.g for r in rows), max(r.g for r in rows)
        holder = next(r for r in rows if r.g == least)
        expected.append(("least", (*holder, start, end)))
        for way in ("greatest", "by rows"):
            expected += [(way, (*r, start, end)) for r in rows if r.g == greatest]
    assert_equivalent(build, expected, Ways(seeds=range(1)))


def test_sessions_whose_gap_depends_on_the_record(readings: Any) -> None:
    assigner = EventTimeSessionWindows.with_dynamic_gap(lambda r: 10 + 10 * r.g)

    def build(env: Any) -> Any:
        return readings.rows(env).key_by("k").window(assigner).aggregate(n=count(), t=sum_("v"))

    expected: list[Any] = []
    for k in {r.k for r in readings.all}:
        merged: list[list[int]] = []  # start, end, n, total
        rows = sorted((r for r in readings.all if r.k == k), key=lambda r: r.ts)
        for r in rows:
            end = r.ts + 10 + 10 * r.g
            if merged and r.ts <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
                merged[-1][2] += 1
                merged[-1][3] += r.v
            else:
                merged.append([r.ts, end, 1, r.v])
        expected += [(k, *window) for window in merged]
    assert_equivalent(build, expected)


class Rank(ProcessWindowFunction):
    """The number of the key's windows so far: they fire in order of time."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        seen = context.global_state().get_state(ValueStateDescriptor("windows"))
        seen.update((seen.value() or 0) + 1)
        yield (key, context.window().start, seen.value())


def test_state_of_window_functions(readings: Any) -> None:
    def build(env: Any) -> Any:
        keyed = readings.rows(env).key_by("k")
        return keyed.window(TumblingEventTimeWindows.of(100)).process(Rank())

    starts: dict[str, list[int]] = {}
    for k, start, _ in tumbling(readings.all, by_k):
        starts.setdefault(k, []).append(start)
    expected = [(k, s, i + 1) for k, found in starts.items() for i, s in enumerate(sorted(found))]
    assert_equivalent(build, expected)


class Values(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield (key, tuple(r.v for r in elements))


def test_counting_windows_and_triggers(readings: Any) -> None:
    """They depend on the order of a key's records alone; incomplete ones never fire."""

    def build(env: Any) -> Any:
        keyed = readings.rows(env).key_by("k")
        purging = PurgingTrigger.of(CountTrigger.of(4))
        return {
            "tumbling": keyed.count_window(3).process(Values()),
            "sliding": keyed.count_window(4, 2).process(Values()),
            "global": keyed.window(GlobalWindows.create()).trigger(purging).process(Values()),
        }

    expected: list[Any] = []
    for k in sorted({r.k for r in readings.all}):
        values = [r.v for r in readings.all if r.k == k]
        for name, size in (("tumbling", 3), ("global", 4)):
            full = range(0, len(values) // size * size, size)
            expected += [(name, (k, tuple(values[i : i + size]))) for i in full]
        ends = range(4, len(values) + 1, 2)
        expected += [("sliding", (k, tuple(values[e - 4 : e]))) for e in ends]
    assert_equivalent(build, expected)
