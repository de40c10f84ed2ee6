"""Shapes of jobs: unions, every partitioner between different parallelisms, idle and empty sources,
several sinks; run every way. Operators behind a shuffle must not depend on the order of records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from drawn_ways import assert_equivalent
from strom import (
    OutputTag,
    Partitioner,
    ProcessWindowFunction,
    Row,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    count,
    sum_,
)
from strom.connectors.datagen import DataGenSource
from strom.core.config import CheckpointConfig
from strom.engine.hosts.simulator import Simulation, SimulationPlan
from strom.testing.equivalence import Ways, checkpointed
from strom.testing.probes import CollectProbe
from strom.testing.scripted import Pause, ScriptedSource

LATE = OutputTag("late")
SECOND = TumblingEventTimeWindows.of(100)


def counts(readings: list[Any], key: Any) -> dict[Any, int]:
    found: dict[Any, int] = {}
    for r in readings:
        found[key(r)] = found.get(key(r), 0) + 1
    return found


class ByLength(Partitioner):
    def partition(self, key: Any, num_partitions: int) -> int:
        return int(key) % num_partitions


PARTITIONERS = {
    "forward": lambda s: s.forward(),
    "rebalance": lambda s: s.rebalance(),
    "rescale": lambda s: s.rescale(),
    "shuffle": lambda s: s.shuffle(),
    "global": lambda s: s.global_(),
    "function": lambda s: s.partition_custom(lambda key, n: key % n, lambda r: r.g),
    "object": lambda s: s.partition_custom(ByLength(), "g"),
}


@pytest.mark.parametrize("name", PARTITIONERS)
def test_partitioners_between_different_parallelisms(readings: Any, name: str) -> None:
    """1 -> 3 -> 2 subtasks (but for `forward`, which keeps them), windows behind it all."""
    partition = PARTITIONERS[name]
    wide, narrow = (None, None) if name == "forward" else (3, 2)

    def build(env: Any) -> Any:
        source = readings.columns(env)
        if wide is not None:
            source.set_parallelism(1)
        stream = partition(source).map(lambda r: Row(g=r.g, v=r.v + 1))
        if wide is not None:
            stream.set_parallelism(wide)
        stream = partition(stream).filter(lambda r: r.v % 5)
        if narrow is not None:
            stream.set_parallelism(narrow)
        return stream.key_by("g").window(SECOND).aggregate(n=count(), total=sum_("v"))

    expected: dict[Any, list[int]] = {}
    for r in readings.all:
        if (r.v + 1) % 5:
            start = r.ts - r.ts % 100
            expected.setdefault((r.g, start, start + 100), []).append(r.v + 1)
    windows = [(*window, len(vs), sum(vs)) for window, vs in expected.items()]
    assert_equivalent(build, windows, Ways(seeds=range(1)))


def test_broadcast_gives_every_record_to_every_subtask(readings: Any) -> None:
    def build(env: Any) -> Any:
        doubled = readings.rows(env).broadcast().map(lambda r: (r.k, r.v)).set_parallelism(3)
        return doubled.rebalance().filter(lambda t: t[1] % 2 == 0)

    assert_equivalent(build, [(r.k, r.v) for r in readings.all if r.v % 2 == 0] * 3)


def test_partition_custom_decides_the_subtask(readings: Any) -> None:
    from strom import MapFunction

    class Where(MapFunction):
        def open(self, runtime_context: Any) -> None:
            self.index = runtime_context.get_index_of_this_subtask()

        def map(self, value: Any) -> Any:
            return (value.g % 3 == self.index, value.v)

    def build(env: Any) -> Any:
        stream = readings.rows(env).partition_custom(lambda key, n: key % n, "g")
        return stream.map(Where()).set_parallelism(3)

    assert_equivalent(build, [(True, r.v) for r in readings.all])


def test_union(readings: Any) -> None:
    """Three sources, one of them read twice; event time is that of the slowest."""

    def build(env: Any) -> Any:
        rows = readings.rows(env).map(lambda r: Row(k=r.k, v=r.v))
        columns = readings.columns(env).select("k", "v").map(lambda r: Row(k=r.k, v=r.v))
        high = readings.rows(env).filter(lambda r: r.v > 500).map(lambda r: Row(k=r.k, v=-r.v))
        united = rows.union(columns, high, rows)
        return {
            "records": united.map(tuple),
            "windows": united.key_by("k").window(SECOND).aggregate(n=count(), total=sum_("v")),
        }

    expected: list[Any] = []
    windows: dict[Any, list[int]] = {}
    for r in readings.all:
        values = [r.v] * 3 + [-r.v] * (r.v > 500)
        expected += [("records", (r.k, v)) for v in values]
        windows.setdefault((r.k, r.ts - r.ts % 100), []).extend(values)
    for (k, start), vs in windows.items():
        expected.append(("windows", (k, start, start + 100, len(vs), sum(vs))))
    assert_equivalent(build, expected)


def test_several_sinks_on_one_stream_and_a_diamond(readings: Any) -> None:
    def build(env: Any) -> Any:
        source = readings.columns(env)
        even = source.filter(pl.col("v") % 2 == 0)
        odd = source.filter(pl.col("v") % 2 == 1)
        return {
            "all": source.select("k", "v"),
            "even": even.key_by("k").sum("v").select("k", "v"),
            "both": even.union(odd).key_by("g").window(SECOND).aggregate(n=count()),
            "total": source.window_all(SECOND).aggregate(n=count()),
        }

    sums: dict[str, int] = {}
    expected: list[Any] = []
    for r in readings.all:
        expected.append(("all", (r.k, r.v)))
        if r.v % 2 == 0:
            sums[r.k] = sums.get(r.k, 0) + r.v
            expected.append(("even", (r.k, sums[r.k])))
    both = counts(readings.all, lambda r: (r.g, r.ts - r.ts % 100))
    total = counts(readings.all, lambda r: r.ts - r.ts % 100)
    expected += [("both", (g, start, start + 100, n)) for (g, start), n in both.items()]
    expected += [("total", (start, start + 100, n)) for start, n in total.items()]
    assert_equivalent(build, expected)


def test_every_operator_in_a_task_of_its_own(readings: Any) -> None:
    def build(env: Any) -> Any:
        env.disable_operator_chaining()
        stream = readings.rows(env).map(lambda r: (r.k, r.v)).filter(lambda t: t[1] % 3)
        return stream.map(lambda t: (t[0], t[1] * 2)).key_by(lambda t: t[0]).sum(1)

    sums: dict[str, int] = {}
    expected: list[Any] = []
    for r in readings.all:
        if r.v % 3:
            sums[r.k] = sums.get(r.k, 0) + 2 * r.v
            expected.append((r.k, sums[r.k]))
    assert_equivalent(build, expected)


class Counted(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield (context.window().start, len(list(elements)))


def idle_build(parallelism: int, idleness: int | None, straggler: bool) -> Any:
    """One lane that may end in a straggler behind a long pause; the other never says anything.

    lane 0   @0 @10 ... @990   ---- pause ----   @50  (end)
    lane 1   ------------ pause, 3 times as long --------  (end)
                  ^ after `idleness` lane 1 no longer holds event time back: it goes to 989,
                    [0, 100) fires, and @50 is late. Without idleness it is in time.
    """
    busy: list[Any] = [Row(k="a", ts=10 * i) for i in range(100)]
    end: list[Any] = [Pause(300), Row(k="a", ts=50)] if straggler else [Pause(20)]
    lanes = [[*busy, *end], [Pause(900 if straggler else 60)]]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("ts")
    if idleness is not None:
        strategy = strategy.with_idleness(idleness)

    def build(env: Any) -> Any:
        stream = env.from_source(ScriptedSource(lanes, at_once=3), strategy)
        windows = stream.set_parallelism(parallelism).key_by("k").window(SECOND)
        found = windows.side_output_late_data(LATE).process(Counted())
        return {"main": found, "late": found.get_side_output(LATE).map(tuple)}

    return build


@pytest.mark.parametrize("parallelism", [1, 2])
def test_idle_lanes_lose_and_repeat_nothing(parallelism: int) -> None:
    expected = [("main", (100 * i, 10)) for i in range(10)]
    assert_equivalent(idle_build(parallelism, 5, straggler=False), expected)


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_idleness_lets_event_time_go_on(parallelism: int, seed: int) -> None:
    """Both lanes in one subtask, and in two. Without crashes: watermarks are not checkpointed, so a
    job restored within the pause would not know how late it is. Under the virtual clock time
    passes when nobody has anything to do: the pause is long for everybody."""

    def late(idleness: int | None) -> list[Any]:
        build = idle_build(parallelism, idleness, straggler=True)
        probe = CollectProbe(build)
        config = replace(checkpointed(Ways(), 2), checkpoint=CheckpointConfig())
        result = Simulation(probe.graph(config), SimulationPlan(seed=seed)).run()
        published = {op: list(values.values()) for op, values in result.published.items()}
        return [record for name, record in probe.output(published) if name == "late"]

    assert late(50) == [("a", 50)]
    assert late(None) == []


def test_a_source_with_fewer_splits_than_subtasks(readings: Any) -> None:
    lane = readings.lanes[0]

    def build(env: Any) -> Any:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(60)
        source = ScriptedSource([lane])
        stream = env.from_source(source, strategy.with_timestamp_assigner("ts"))
        return stream.key_by("k").window(SECOND).aggregate(n=count())

    found = counts(lane, lambda r: (r.k, r.ts - r.ts % 100))
    expected = [(k, start, start + 100, n) for (k, start), n in found.items()]
    assert_equivalent(build, expected, Ways(batch_size=2))


@pytest.mark.parametrize(
    "source",
    [ScriptedSource([]), ScriptedSource([[], []]), DataGenSource(lambda s, n: [], 0)],
    ids=["no splits", "empty splits", "no numbers"],
)
def test_an_empty_source(source: Any) -> None:
    """Over at once: there is nothing that a crash could interrupt."""

    def build(env: Any) -> Any:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("ts")
        stream = env.from_source(source, strategy)
        return {
            "sum": stream.key_by("k").sum("v"),
            "windows": stream.key_by("k").window(SECOND).aggregate(n=count()),
            "all": stream.window_all(SECOND).process(_never()),
        }

    assert_equivalent(build, [], Ways(insist=False))


def _never() -> Any:
    from strom import ProcessAllWindowFunction

    class Never(ProcessAllWindowFunction):
        def process(self, context: Any, elements: Any) -> Any:
            raise AssertionError("a window without records fired")

    return Never()


def test_an_empty_collection() -> None:
    def build(env: Any) -> Any:
        return env.from_collection([]).map(lambda v: v).key_by(lambda v: v).sum(0)

    assert_equivalent(build, [], Ways(insist=False))
