"""Pipelines that aggregate on both sides of the exchange, run every way; and checkpoints that pass
between the two forms of a program."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
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
    count_distinct,
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
from tables_kit import applied

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

    expected = run_local(build, JobConfig(local_combining=False))
    found = stopped_and_continued(build, tmp_path, config(first), partial(config, not first))
    assert Counter(map(repr, found)) == Counter(map(repr, expected))


@pytest.mark.parametrize("first", [True, False])
def test_checkpoints_of_running_aggregates_pass_between_both_forms(
    lanes: list[list[Row]], tmp_path: Path, first: bool
) -> None:
    def build(env: Any) -> Any:
        aggregates = {**AGGREGATES, "vs": count_distinct("v"), "xs": count_distinct("x")}
        return source(env, lanes).key_by("k").aggregate(**aggregates)

    groups: dict[str, list[Row]] = {}
    for row in (row for lane in lanes for row in lane):
        groups.setdefault(row.k, []).append(row)
    expected = Counter(
        (k, *aggregated(found), len({r.v for r in found}), len({r.x for r in found}))
        for k, found in groups.items()
    )
    found = stopped_and_continued(build, tmp_path, config(first), partial(config, not first))
    assert applied(found) == expected


def config(combining: bool, **settings: Any) -> JobConfig:
    base = checkpointed(WAYS, 2)
    fields = {name: getattr(base, name) for name in base.__dataclass_fields__}
    return JobConfig(**{**fields, "local_combining": combining, **settings})


def stopped_and_continued(
    build: Any, folder: Path, first: JobConfig, then: Callable[..., JobConfig]
) -> list[Any]:
    """What comes out, in all, where the job is stopped midway and goes on as configured then."""
    probe = CollectProbe(build)
    storage = open_storage(str(folder), new_job_id())
    plan = SimulationPlan(seed=1, stop_after_checkpoint=2)
    before = Simulation(probe.graph(first), plan, storage).run()
    assert before.outcome is None
    assert before.midway
    checkpoint = folder / storage.job_id / f"chk-{before.last_checkpoint}"
    continued = then(restore_from=str(checkpoint))
    after = Simulation(probe.graph(continued), SimulationPlan(seed=2), None).run()
    assert after.outcome is not None
    found: list[Any] = []
    for operator in probe.sinks.values():
        merged = {**before.published.get(operator, {}), **after.published.get(operator, {})}
        found += [row for values in merged.values() for row in values]
    return found
