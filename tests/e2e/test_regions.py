"""Jobs of several regions: each of them, and each reader of a source that several share, may crash
while the others go on, and every record comes out once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from strom import WatermarkStrategy
from strom.api.connectors.collection import CollectionSource, RangeSplit
from strom.connectors.datagen import DataGenSource
from strom.connectors.files import FileSink
from strom.core.job_status import JobStatus
from strom.core.metrics_config import MetricsConfig
from strom.engine.accounts import Ledger, TaskAccount
from strom.engine.coordinator import actions as act
from strom.engine.hosts.driver import JobDriver
from strom.engine.hosts.simulator import Simulation, SimulationError, SimulationPlan
from strom.testing.equivalence import Ways, assert_equivalent, assert_files_equivalent, checkpointed
from strom.testing.probes import CollectProbe, seen_once
from strom.testing.scripted import Pause, ScriptedSource

UNTIMED = WatermarkStrategy.no_watermarks()


class Tied(ScriptedSource):
    """Its readers are restarted together, and its enumerator with them."""

    independent_readers = False


class Crumbs(CollectionSource):
    """Hands out many splits, one by one, in all of which several readers have a part."""

    def create_enumerator(self, context: Any, restored: Any) -> Any:
        if restored is None:
            at = range(0, len(self), 5)
            restored = [RangeSplit(i, n, min(n + 5, len(self))) for i, n in enumerate(at)]
        return super().create_enumerator(context, restored)


def pipelines(env: Any) -> dict[str, Any]:
    """Two regions with an exchange, and three sources that are read and written in parallel, of
    which two have a region for each subtask."""
    records = [{"k": i % 7, "v": i} for i in range(120)]
    keyed = env.from_collection(records).key_by("k").map(lambda r: (r["k"], r["v"]))
    moved = env.from_collection(list(range(80))).rebalance().map(lambda v: -v)
    crumbs = env.from_source(Crumbs(list(range(150))), UNTIMED, "crumbs").map(lambda v: 3 * v)
    numbers = DataGenSource(lambda at, n: list(range(at, at + n)), 100, splits=5, block=4)
    odd = env.from_source(numbers, UNTIMED, "numbers").filter(lambda v: v % 2)
    lanes = [[(lane, i) for i in range(25)] for lane in range(4)]
    tied = env.from_source(Tied(lanes), UNTIMED, "tied").map(lambda pair: (*pair, 0))
    return {"keyed": keyed, "moved": moved, "crumbs": crumbs, "odd": odd, "tied": tied}


EXPECTED = [
    *(("keyed", (i % 7, i)) for i in range(120)),
    *(("moved", -v) for v in range(80)),
    *(("crumbs", 3 * v) for v in range(150)),
    *(("odd", v) for v in range(1, 100, 2)),
    *(("tied", (lane, i, 0)) for lane in range(4) for i in range(25)),
]


def test_every_way() -> None:
    assert_equivalent(pipelines, EXPECTED, Ways(seeds=range(4), crashes=4, anytime=3))


def test_files_of_parallel_writers(tmp_path: Path) -> None:
    """Writers that go on keep what they have staged, while others clear what they left."""

    def build(env: Any, folder: Path) -> None:
        stream = env.from_source(Crumbs([{"v": v} for v in range(200)]), UNTIMED, "crumbs")
        stream.sink_to(FileSink(folder, roll_rows=7))

    def read(folder: Path) -> list[Any]:
        files = [path for path in folder.glob("*.parquet") if path.is_file()]
        return [v for path in files for v in pq.read_table(path).column("v").to_pylist()]

    assert_files_equivalent(build, read, list(range(200)), Ways(seeds=range(3), crashes=4))


@pytest.fixture
def asked(monkeypatch: Any) -> list[act.Action]:
    """All that job masters asked of their hosts."""
    seen: list[act.Action] = []
    carry_out: Callable[..., Any] = JobDriver._carry_out

    def noting(driver: JobDriver, action: act.Action) -> Any:
        seen.append(action)
        return carry_out(driver, action)

    monkeypatch.setattr(JobDriver, "_carry_out", noting)
    return seen


def simulate(strategy: str, seed: int) -> Any:
    config = replace(checkpointed(Ways(), 2), failover_strategy=strategy, metrics=MetricsConfig())
    graph = CollectProbe(pipelines).graph(config)
    plan = SimulationPlan(seed, crashes=3, crash_after_checkpoints=3, crash_window=800)
    result = Simulation(graph, plan).run()
    assert result.outcome is not None
    assert result.outcome.status is JobStatus.FINISHED
    return result


def test_only_parts_are_restarted(asked: list[act.Action]) -> None:
    """Not the job, unless it is coming up or about to end; some parts are single tasks."""
    restarts = 0
    for seed in range(4):
        restarts += simulate("region", seed).outcome.restarts
    stopped = [action.tasks for action in asked if isinstance(action, act.CancelTasks)]
    assert 8 < len(stopped) <= restarts
    assert {len(tasks) for tasks in stopped} == {1, 2, 3}
    assert sum(isinstance(action, act.CancelAll) for action in asked) == restarts - len(stopped)


def test_or_all_of_it_if_that_is_wanted(asked: list[act.Action]) -> None:
    restarts = simulate("full", 0).outcome.restarts
    assert restarts > 2
    assert sum(isinstance(action, act.CancelAll) for action in asked) == restarts
    assert not any(isinstance(action, act.CancelTasks | act.RestartReaders) for action in asked)


ALONE = range(12)


def read_alone(seed: int) -> list[int]:
    """What comes out of a job of two single tasks, of which one has all there is to read, while
    both crash often and the coordinator dies, too."""
    lane = [item for v in ALONE for item in (v, Pause(3))]
    source = ScriptedSource([lane])
    probe = CollectProbe(lambda env: env.from_source(source, UNTIMED, "lane").map(lambda v: -v))
    config = replace(checkpointed(Ways(), 2), metrics=MetricsConfig())
    checkpoint = replace(config.checkpoint, interval=timedelta(milliseconds=10))
    graph = probe.graph(replace(config, checkpoint=checkpoint))
    plan = SimulationPlan(seed, crashes=9, coordinator_crashes=3, tasks_stay=100, crash_window=900)
    result = Simulation(graph, plan).run()
    return sorted(probe.output(seen_once(result.published)), reverse=True)


SHARES = (26, 84, 91, 133)
"""Seeds in which all tasks of the source begin again alone, from one checkpoint, are taken over by
another coordinator, and one of them crashes before the next checkpoint."""


@pytest.mark.parametrize("seed", SHARES)
def test_a_reader_keeps_its_splits_whoever_coordinates(seed: int) -> None:
    assert read_alone(seed) == [-v for v in ALONE]


def test_a_coordinator_that_deals_them_out_anew_is_noticed(monkeypatch: Any) -> None:
    account = Ledger.account

    def forgetful(ledger: Ledger) -> TaskAccount:
        return replace(account(ledger), own_share=False)

    def fails(seed: int) -> bool:
        try:
            return read_alone(seed) != [-v for v in ALONE]
        except SimulationError:
            return True

    monkeypatch.setattr(Ledger, "account", forgetful)
    assert any(fails(seed) for seed in SHARES)
