"""Windows with evictors, run every way, against plain Python."""

from __future__ import annotations

from typing import Any

import pytest
from amounts import pairs
from drawn_ways import assert_equivalent
from strom import (
    AggregateFunction,
    CountEvictor,
    DeltaEvictor,
    EventTimeSessionWindows,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
)
from strom.testing.equivalence import Ways

SIZE, SLIDE, GAP = 100, 50, 35


class Contents(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window()
        yield (key, window.start, window.end, tuple(sorted(r.v for r in elements)))


class Total(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator + value.v

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


def apart(old: Any, new: Any) -> float:
    return abs(new.v - old.v)


def latest(rows: list[Any], ms: int) -> list[Any]:
    newest = max(r.ts for r in rows)
    return [r for r in rows if r.ts > newest - ms]


CASES = {
    "count": (CountEvictor.of(2), lambda rows: rows[-2:]),
    "time": (TimeEvictor.of(30), lambda rows: latest(rows, 30)),
    "delta": (
        DeltaEvictor.of(400, apart),
        lambda rows: [r for r in rows if apart(r, rows[-1]) < 400],
    ),
}


def windows_of(rows: list[Any], slide: int) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for r in rows:
        for start in range(0, r.ts + 1, slide):
            if start <= r.ts < start + SIZE:
                found.setdefault((r.k, start, start + SIZE), []).append(r)
    return found


@pytest.mark.parametrize(("name", "kind"), pairs(CASES, ["rows", "columns"]))
def test_evictors_every_way(readings: Any, kind: str, name: str) -> None:
    evictor, left = CASES[name]

    def build(env: Any) -> Any:
        keyed = readings.stream(env, kind).key_by("k")
        sliding = keyed.window(SlidingEventTimeWindows.of(SIZE, SLIDE)).evictor(evictor)
        tumbling = keyed.window(TumblingEventTimeWindows.of(SIZE)).evictor(evictor)
        return {
            "process": sliding.process(Contents()),
            "aggregate": tumbling.aggregate(Total()),
            "reduce": tumbling.reduce(lambda a, b: a.replace(v=a.v + b.v)).map(lambda r: r.v),
        }

    expected: list[Any] = []
    for (k, start, end), rows in windows_of(readings.all, SLIDE).items():
        expected.append(("process", (k, start, end, tuple(sorted(r.v for r in left(rows))))))
    for rows in windows_of(readings.all, SIZE).values():
        expected += [(way, sum(r.v for r in left(rows))) for way in ("aggregate", "reduce")]
    assert_equivalent(build, expected, Ways(seeds=range(1)))


def test_sessions_with_an_evictor_that_knows_no_order(readings: Any) -> None:
    """Merged sessions hold their records in the order of the merges, which event times know
    nothing of."""

    def build(env: Any) -> Any:
        sessions = readings.rows(env).key_by("k").window(EventTimeSessionWindows.with_gap(GAP))
        return sessions.evictor(TimeEvictor.of(30)).process(Contents())

    expected = []
    for key in sorted({r.k for r in readings.all}):
        group: list[Any] = []
        for r in [*sorted((r for r in readings.all if r.k == key), key=lambda r: r.ts), None]:
            if group and (r is None or r.ts > group[-1].ts + GAP):
                kept = tuple(sorted(one.v for one in latest(group, 30)))
                expected.append((key, group[0].ts, group[-1].ts + GAP, kept))
                group = []
            group.append(r)
    assert_equivalent(build, expected, Ways(seeds=range(1)))
