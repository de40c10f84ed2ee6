"""Pipelines whose state lies in RocksDB, every way they may be run, against state in memory.

The caches are so small that no entry stays in one for longer than a batch.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from backends import TINY
from drawn_ways import assert_equivalent
from strom import (
    AggregateFunction,
    AggregatingStateDescriptor,
    EventTimeSessionWindows,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    RuntimeContext,
    StateTtlConfig,
    Time,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    sum_,
)
from strom.testing.equivalence import Ways

SPILLING = Ways(state=TINY)


class Spread(AggregateFunction):
    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return max(accumulator) - min(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


class EveryKind(KeyedProcessFunction):
    """What all kinds of state of a key hold, after each record."""

    def __init__(self, config: StateTtlConfig | None = None) -> None:
        self.config = config

    def open(self, runtime_context: RuntimeContext) -> None:
        value, changed = ValueStateDescriptor("value"), ValueStateDescriptor("changed")
        added = ReducingStateDescriptor("sum", lambda a, b: a + b)
        spread = AggregatingStateDescriptor("spread", Spread())
        items, entries = ListStateDescriptor("items"), MapStateDescriptor("entries")
        if self.config is not None:
            for descriptor in (value, changed, added, spread, items, entries):
                descriptor.enable_time_to_live(self.config)
        self.value = runtime_context.get_state(value)
        self.changed = runtime_context.get_state(changed)
        self.sum = runtime_context.get_reducing_state(added)
        self.spread = runtime_context.get_aggregating_state(spread)
        self.items = runtime_context.get_list_state(items)
        self.entries = runtime_context.get_map_state(entries)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        before = self.value.value() or 0
        self.value.update(before + 1 if before < 5 else None)
        held = self.changed.value()
        if held is None:
            held = []
            self.changed.update(held)
        held.append(value.v)
        self.sum.add(value.v)
        self.spread.add(value.v)
        self.items.add(value.v)
        self.entries.put(value.g, (self.entries.get(value.g) or 0) + 1)
        yield (
            ctx.get_current_key(),
            before,
            tuple(held),
            self.sum.get(),
            self.spread.get(),
            tuple(self.items.get()),
            tuple(sorted(self.entries.items())),
        )


def every_kind(rows: list[Any]) -> list[Any]:
    """The same of the rows of a key, without strom."""
    found = []
    for i, row in enumerate(rows):
        values = [r.v for r in rows[: i + 1]]
        groups = [r.g for r in rows[: i + 1]]
        counts = tuple(sorted((g, groups.count(g)) for g in set(groups)))
        shown = (sum(values), max(values) - min(values), tuple(values), counts)
        found.append((row.k, i % 6, tuple(values), *shown))
    return found


@pytest.mark.parametrize("expires", [False, True])
def test_every_kind_of_state(readings: Any, expires: bool) -> None:
    config = StateTtlConfig.new_builder(timedelta(days=1)).build() if expires else None

    def build(env: Any) -> Any:
        return readings.rows(env).key_by(lambda r: r.k).process(EveryKind(config))

    groups: dict[str, list[Any]] = {}
    for r in readings.all:
        groups.setdefault(r.k, []).append(r)
    expected = [row for rows in groups.values() for row in every_kind(rows)]
    assert_equivalent(build, expected, SPILLING)


def test_rolling_reductions(readings: Any) -> None:
    def build(env: Any) -> Any:
        pairs = readings.rows(env).map(lambda r: (r.k, r.v, r.v))
        return pairs.key_by(lambda r: r[0]).reduce(lambda a, b: (a[0], a[1] + b[1], b[2]))

    assert_equivalent(build, None, SPILLING)


@pytest.mark.parametrize("kind", ["sum", "max"])
def test_rolling_columns(readings: Any, kind: str) -> None:
    def build(env: Any) -> Any:
        rows = readings.stream(env, "columns").select("k", "v")
        return getattr(rows.key_by("k"), kind)("v")

    assert_equivalent(build, None, SPILLING)


@pytest.mark.parametrize("window", ["tumbling", "session"])
def test_windows_of_functions(readings: Any, window: str) -> None:
    """Accumulators per window and key, which are gone when the window has fired."""
    tumbling, gap = TumblingEventTimeWindows.of(Time.milliseconds(200)), Time.milliseconds(30)
    assigner = tumbling if window == "tumbling" else EventTimeSessionWindows.with_gap(gap)

    def build(env: Any) -> Any:
        windows = readings.rows(env).map(lambda r: (r.k, r.v)).key_by(lambda r: r[0])
        return windows.window(assigner).reduce(lambda a, b: (a[0], a[1] + b[1]))

    assert_equivalent(build, None, replace(SPILLING, seeds=range(2)))


def test_running_aggregates(readings: Any) -> None:
    def build(env: Any) -> Any:
        rows = readings.stream(env, "columns").key_by("k")
        return rows.over().aggregate(total=sum_("v"))

    assert_equivalent(build, None, replace(SPILLING, seeds=range(2)))


def test_operators_that_chose_for_themselves(readings: Any) -> None:
    """One of them stays where it said, whatever the job does."""

    def build(env: Any) -> Any:
        pairs = readings.rows(env).map(lambda r: (r.k, r.v))
        sums = pairs.key_by(lambda r: r[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sums")
        most = sums.set_state_backend("memory").key_by(lambda r: r[0]).reduce(max).uid("most")
        return most.set_state_backend("rocksdb")

    assert_equivalent(build, None, Ways(seeds=range(3), local=False))
