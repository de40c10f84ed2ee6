"""Means of integers that an older version kept as rounded sums, in RocksDB and in memory: a job
goes on from a checkpoint of them, in either, at other parallelisms and over crashes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from backends import TINY
from strom import TumblingEventTimeWindows, WatermarkStrategy, mean
from strom.checkpoint.storage import open_storage
from strom.connectors.datagen import DataGenSource
from strom.core.job_status import JobStatus
from strom.core.state_config import StateConfig
from strom.engine.hosts.simulator import Simulation, SimulationPlan, SimulationResult
from strom.operators.aggregates import registry
from strom.operators.aggregates.flat import Mean
from strom.testing.equivalence import Ways, checkpointed, compare
from strom.testing.probes import CollectProbe, seen_once

COUNT, KEYS, STEP, SIZE = 400, 40, 10, 1_000
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("time", pa.int64())])
MEMORY = StateConfig()


def generate(first: int, number: int) -> list[tuple[int, int, int]]:
    return [(n % KEYS, n, n * STEP) for n in range(first, first + number)]


def build(env: Any) -> Any:
    source = DataGenSource(generate, count=COUNT, splits=1, schema=SCHEMA, block=16)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
    keyed = env.from_source(source, strategy, "records").key_by("key")
    windows = keyed.window(TumblingEventTimeWindows.of(SIZE)).aggregate(m=mean("value"))
    over = keyed.over(order="arrival").aggregate(m=mean("value"))
    return {
        "windows": windows.uid("windows").map(tuple),
        "groups": keyed.aggregate(m=mean("value")).uid("groups").map(lambda r: (r.key, r.m)),
        "over": over.uid("over").map(lambda r: (r.key, r.m)),
    }


def expected() -> list[Any]:
    """Of groups the last mean, which is the greatest; how many come before depends on batches."""
    found: list[Any] = []
    values: dict[int, list[int]] = {}
    windows: dict[tuple[int, int], list[int]] = {}
    for n in range(COUNT):
        some = values.setdefault(n % KEYS, [])
        some.append(n)
        found.append(("over", (n % KEYS, sum(some) / len(some))))
        windows.setdefault((n % KEYS, n * STEP // SIZE * SIZE), []).append(n)
    for (key, start), one in windows.items():
        found.append(("windows", (key, start, start + SIZE, sum(one) / len(one))))
    return found + [("groups", (key, sum(one) / len(one))) for key, one in values.items()]


def seen(records: list[Any]) -> list[Any]:
    """The output, likewise."""
    last: dict[int, float] = {}
    for name, row in records:
        if name == "groups":
            last[row[0]] = max(row[1], last.get(row[0], row[1]))
    others = [one for one in records if one[0] != "groups"]
    return others + [("groups", one) for one in last.items()]


def run(
    plan: SimulationPlan, storage: Any, state: StateConfig, parallelism: int, point: str | None
) -> tuple[SimulationResult, CollectProbe]:
    probe = CollectProbe(build)
    config = checkpointed(Ways(batch_size=16), parallelism)
    config = replace(config, restore_from=point, state=state)
    return Simulation(probe.graph(config), plan, storage).run(), probe


@pytest.mark.parametrize(
    ("before", "after", "parallelism"),
    [(TINY, TINY, 2), (TINY, TINY, 3), (TINY, MEMORY, 1)],
    ids=lambda one: getattr(one, "backend", one),
)
def test_a_job_goes_on_from_an_older_version_s_means(
    before: StateConfig,
    after: StateConfig,
    parallelism: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = open_storage(str(tmp_path), "older")
    with monkeypatch.context() as older:
        # Of floats a mean is kept to this day as those of integers were once.
        older.setitem(registry._ACCUMULATORS, "mean", (Mean,))
        older.setattr("strom.operators.tables.running.is_whole", lambda kind: False)
        plan = SimulationPlan(seed=1, stop_after_checkpoint=3)
        first, probe = run(plan, storage, before, 2, None)
    assert first.outcome is None
    stored = storage.load(first.last_checkpoint)
    names = {name for one in stored.subtasks for op in one.operators for name in columns(op)}
    assert any("_value" in name for name in names), "its database holds sums"
    assert not any("__rest" in name for name in names)
    point = f"{tmp_path}/older/chk-{first.last_checkpoint}"
    plan = SimulationPlan(seed=2, crashes=1, crash_after_checkpoints=2)
    second, _ = run(plan, None, after, parallelism, point)
    assert second.outcome is not None
    assert second.outcome.status is JobStatus.FINISHED, second.outcome.error
    records = probe.output(seen_once(first.published, second.published))
    compare("both", expected(), seen(records))


def columns(operator: Any) -> list[str]:
    """What columns of numbers are in its database."""
    states = () if operator.database is None else operator.database.states
    return [text for state in states for text in [state.layout.get("columns", "")]]
