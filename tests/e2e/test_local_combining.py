"""Pipelines that aggregate on both sides of the exchange, run every way; and checkpoints that pass
between the two forms of a program."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from amounts import records
from drawn_ways import assert_equivalent
from strom import (
    CumulateEventTimeWindows,
    Row,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    count,
    max_,
    mean,
    min_,
    sum_,
)
from strom.checkpoint.storage import open_storage
from strom.core.config import JobConfig
from strom.engine.hosts.driver import new_job_id
from strom.engine.hosts.simulator import Simulation, SimulationPlan
from strom.testing.equivalence import Ways, checkpointed, run_local
from strom.testing.probes import CollectProbe
from strom.testing.scripted import ScriptedSource

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("x", pa.float64()), ("ts", pa.int64())])
LANES, LENGTH = 4, records(120)
SLACK_MS = 40
STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(SLACK_MS).with_timestamp_assigner("ts")
WAYS = Ways(seeds=range(1), batch_size=8)

AGGREGATES = {
    "n": count(),
    "total": sum_("v"),
    "least": min_("x"),
    "most": max_("ts"),
    "middle": mean("x"),
}


@pytest.fixture(scope="module")
def lanes() -> list[list[Row]]:
    """Few keys, in all lanes; x are multiples of 1/4."""
    rng = random.Random(7)
    return [
        [
            Row("k", "v", "x", "ts")(
                rng.choice("abc"),
                rng.randrange(10),
                rng.randrange(40) / 4,
                1000 + 5 * i + rng.randrange(SLACK_MS),
            )
            for i in range(LENGTH)
        ]
        for _ in range(LANES)
    ]


def source(env: Any, lanes: list[list[Row]]) -> Any:
    return env.from_source(ScriptedSource(lanes, SCHEMA), STRATEGY, "readings")


def aggregated(rows: list[Row]) -> tuple[Any, ...]:
    xs = [r.x for r in rows]
    most = max(r.ts for r in rows)
    return (len(rows), sum(r.v for r in rows), min(xs), most, sum(xs) / len(xs))


def windows_of(assigner: Any, rows: list[Row], key: Any) -> dict[Any, list[Row]]:
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        for window in assigner.windows_at(row.ts):
            groups.setdefault((key(row), window.start, window.end), []).append(row)
    return groups


ASSIGNERS = [
    TumblingEventTimeWindows.of(100),
    SlidingEventTimeWindows.of(100, 30),
    CumulateEventTimeWindows.of(100, 25),
]


@pytest.mark.parametrize("assigner", ASSIGNERS, ids=lambda a: type(a).__name__)
def test_aggregates(lanes: list[list[Row]], assigner: Any) -> None:
    def build(env: Any) -> Any:
        stream = source(env, lanes)
        return {
            "column": stream.key_by("k").window(assigner).aggregate(**AGGREGATES),
            "expression": stream.key_by(pl.col("v") % 3).window(assigner).aggregate(**AGGREGATES),
            "all": stream.window_all(assigner).aggregate(**AGGREGATES),
        }

    keys = {"column": lambda r: r.k, "expression": lambda r: r.v % 3, "all": lambda r: None}
    rows = [row for lane in lanes for row in lane]
    expected = [
        (name, (*(window[1:] if name == "all" else window), *aggregated(found)))
        for name, key in keys.items()
        for window, found in windows_of(assigner, rows, key).items()
    ]
    assert_equivalent(build, expected, WAYS)


@pytest.mark.parametrize("assigner", ASSIGNERS, ids=lambda a: type(a).__name__)
def test_extremes(lanes: list[list[Row]], assigner: Any) -> None:
    def build(env: Any) -> Any:
        stream = source(env, lanes)
        return {
            "keyed": stream.key_by("k").window(assigner).max_by("x", ties=True),
            "all": stream.window_all(assigner).min_by("v", ties=True),
        }

    rows = [row for lane in lanes for row in lane]
    expected = []
    for (_, start, end), found in windows_of(assigner, rows, lambda r: r.k).items():
        most = max(r.x for r in found)
        expected += [("keyed", (*r, start, end)) for r in found if r.x == most]
    for (_, start, end), found in windows_of(assigner, rows, lambda r: 0).items():
        least = min(r.v for r in found)
        expected += [("all", (*r, start, end)) for r in found if r.v == least]
    assert_equivalent(build, expected, WAYS)


def test_two_levels(lanes: list[list[Row]]) -> None:
    """Windows over windows: the second stage's local operator runs in the first stage's task."""

    def build(env: Any) -> Any:
        counts = source(env, lanes).key_by("k").window(SlidingEventTimeWindows.of(100, 50))
        ends = counts.aggregate(n=count()).select("k", "n", end="window_end")
        hottest = ends.key_by("end").window(TumblingEventTimeWindows.of(50))
        return hottest.max_by("n", ties=True).select("k", "n", "end")

    rows = [row for lane in lanes for row in lane]
    windows = windows_of(SlidingEventTimeWindows.of(100, 50), rows, lambda r: r.k)
    by_end: dict[int, list[tuple[str, int]]] = {}
    for (k, _, end), found in windows.items():
        by_end.setdefault(end, []).append((k, len(found)))
    expected = [
        (k, n, end)
        for end, counts in by_end.items()
        for k, n in counts
        if n == max(n for _, n in counts)
    ]
    assert_equivalent(build, expected, WAYS)


@pytest.mark.parametrize("first", [True, False])
def test_checkpoints_pass_between_both_forms(
    lanes: list[list[Row]], tmp_path: Path, first: bool
) -> None:
    """Stopped with local combining on (off), continued with it off (on)."""

    def build(env: Any) -> Any:
        windows = source(env, lanes).key_by("k").window(SlidingEventTimeWindows.of(200, 100))
        return windows.aggregate(**AGGREGATES)

    def config(combining: bool, **settings: Any) -> JobConfig:
        base = checkpointed(WAYS, 2)
        fields = {name: getattr(base, name) for name in base.__dataclass_fields__}
        return JobConfig(**{**fields, "local_combining": combining, **settings})

    expected = run_local(build, JobConfig(local_combining=False))
    probe = CollectProbe(build)
    storage = open_storage(str(tmp_path), new_job_id())
    plan = SimulationPlan(seed=1, stop_after_checkpoint=2)
    before = Simulation(probe.graph(config(first)), plan, storage).run()
    assert before.outcome is None
    assert before.midway
    folder = tmp_path / storage.job_id / f"chk-{before.last_checkpoint}"
    continued = config(not first, restore_from=str(folder))
    after = Simulation(probe.graph(continued), SimulationPlan(seed=2), None).run()
    assert after.outcome is not None
    found: list[Any] = []
    for operator in probe.sinks.values():
        merged = {**before.published.get(operator, {}), **after.published.get(operator, {})}
        found += [row for values in merged.values() for row in values]
    assert Counter(map(repr, found)) == Counter(map(repr, expected))
