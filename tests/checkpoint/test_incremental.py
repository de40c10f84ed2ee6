"""Incremental checkpoints of whole jobs: killed, restored, rescaled, with uploads that fail; and at
the end no shared file is missing, and none is left over."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from amounts import seeds
from shaky_storage import Shaky, check_files, in_memory, layers_of, needed
from strom import TumblingEventTimeWindows, WatermarkStrategy, count, max_, sum_
from strom.checkpoint.storage import CheckpointStorage, open_storage
from strom.connectors.datagen import DataGenSource
from strom.core.config import CheckpointConfig
from strom.core.job_status import JobStatus
from strom.engine.hosts.simulator import Simulation, SimulationPlan, SimulationResult
from strom.testing.equivalence import Ways, checkpointed, compare
from strom.testing.probes import CollectProbe, seen_once

COUNT, KEYS, HOT, STEP, SIZE = 1_600, 300, 10, 10, 2_000
WINDOW = 2_000
"""Steps in which tasks crash."""
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64()), ("time", pa.int64())])


def key_of(n: int) -> str:
    """All keys once, then a few of them again and again."""
    return f"k{n if n < KEYS else n * 7 % HOT}"


def generate(first: int, number: int) -> list[tuple[str, int, int]]:
    return [(key_of(n), n, n * STEP) for n in range(first, first + number)]


def build(env: Any) -> Any:
    source = DataGenSource(generate, count=COUNT, splits=1, schema=SCHEMA, block=16)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
    keyed = env.from_source(source, strategy, "records").key_by("key")
    windows = keyed.window(TumblingEventTimeWindows.of(SIZE))
    return {
        "rolling": keyed.sum("value").map(tuple),
        "windows": windows.aggregate(n=count(), total=sum_("value"), top=max_("key")).map(tuple),
    }


def expected() -> list[Any]:
    totals: dict[str, int] = {}
    windows: dict[tuple[str, int], list[int]] = {}
    found: list[Any] = []
    for n in range(COUNT):
        key = key_of(n)
        totals[key] = totals.get(key, 0) + n
        found.append(("rolling", (key, totals[key], n * STEP)))
        windows.setdefault((key, n * STEP // SIZE * SIZE), []).append(n)
    for (key, start), values in windows.items():
        window = (key, start, start + SIZE, len(values), sum(values), key)
        found.append(("windows", window))
    return found


def run(
    storage: CheckpointStorage,
    plan: SimulationPlan,
    parallelism: int = 2,
    restore_from: str | None = None,
    retained: int = 2,
) -> tuple[SimulationResult, CollectProbe]:
    config = checkpointed(Ways(batch_size=16), parallelism)
    checkpoint = replace(config.checkpoint, retained=retained)
    probe = CollectProbe(build)
    config = replace(config, restore_from=restore_from, checkpoint=checkpoint)
    return Simulation(probe.graph(config), plan, storage).run(), probe


def published(*results: SimulationResult) -> dict[Any, list[Any]]:
    return seen_once(*(result.published for result in results))


def finished(result: SimulationResult) -> None:
    assert result.outcome is not None
    assert result.outcome.status is JobStatus.FINISHED, result.outcome.error


@pytest.fixture(scope="module", name="reference")
def _reference() -> list[Any]:
    return expected()


def test_killed_jobs_go_on_from_deltas(reference: list[Any]) -> None:
    from_deltas = 0
    for seed in range(5):
        storage = Shaky(in_memory())
        plan = SimulationPlan(
            seed=seed, crashes=3, coordinator_crashes=seed % 2, crash_window=WINDOW
        )
        result, probe = run(storage, plan, retained=1 + seed % 3)
        finished(result)
        compare(f"seed {seed}", reference, probe.output(published(result)))
        check_files(storage)
        from_deltas += storage.from_deltas
    assert from_deltas >= 2


@pytest.mark.parametrize("seed", seeds(3))
def test_uploads_that_fail_leave_nothing_and_lose_nothing(seed: int, reference: list[Any]) -> None:
    shaky = Shaky(in_memory(), 5 + seed)
    plan = SimulationPlan(seed=seed, crashes=2, crash_window=WINDOW)
    result, probe = run(shaky, plan)
    finished(result)
    assert shaky.writes > shaky._period
    compare(f"seed {seed}", reference, probe.output(published(result)))
    check_files(shaky)


def test_a_checkpoint_has_layers_and_shares_files() -> None:
    storage = in_memory()
    run(storage, SimulationPlan(seed=1, stop_after_checkpoint=9), retained=20)
    manifests = [storage.load(n) for n in storage.list()]
    layers = [layers_of(manifest) for manifest in manifests]
    assert "delta" not in layers[0]
    assert any("delta" in found for found in layers)
    assert any(a.shared & b.shared for a, b in pairwise(manifests))
    assert any(m.new_size < m.size for m in manifests)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_another_job_starts_from_deltas_and_leaves_them_alone(
    parallelism: int, tmp_path: Path, reference: list[Any]
) -> None:
    """Twice, from one checkpoint: neither disturbs the other, nor the job that took it."""
    storage = open_storage(str(tmp_path), "job")
    first, probe = run(storage, SimulationPlan(seed=2, stop_after_checkpoint=8))
    newest = storage.load(storage.list()[-1])
    assert "delta" in layers_of(newest)
    before = {path: path.read_bytes() for path in (tmp_path / "job").rglob("*") if path.is_file()}
    point = str(tmp_path / "job" / f"chk-{newest.checkpoint_id}")
    for name in ("one", "two"):
        other = open_storage(str(tmp_path), name)
        plan = SimulationPlan(seed=5, crashes=1, crash_window=500, crash_after_checkpoints=1)
        second, _ = run(other, plan, parallelism, restore_from=point)
        finished(second)
        compare(name, reference, probe.output(published(first, second)))
        check_files(other)
        now = {path: path.read_bytes() for path in before}
        added = {path for path in (tmp_path / "job").rglob("*") if path.is_file()} - before.keys()
        assert all(path.name.startswith("epoch-") for path in added), "who started from it"
        assert now == before


def test_a_job_that_removes_its_checkpoints_leaves_no_folder(tmp_path: Path) -> None:
    from strom import ExternalizedCheckpointRetention

    storage = open_storage(str(tmp_path), "job")
    config = checkpointed(Ways(batch_size=16), 2)
    gone = ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
    config = replace(config, checkpoint=replace(config.checkpoint, retention=gone))
    result = Simulation(CollectProbe(build).graph(config), SimulationPlan(seed=1), storage).run()
    finished(result)
    assert not (tmp_path / "job").exists()


def test_full_checkpoints_share_nothing() -> None:
    storage = in_memory()
    config = checkpointed(Ways(batch_size=16), 2)
    config = replace(config, checkpoint=replace(config.checkpoint, incremental=False))
    plan = SimulationPlan(seed=1, stop_after_checkpoint=4)
    Simulation(CollectProbe(build).graph(config), plan, storage).run()
    assert not needed(storage)
    assert not storage.list_shared()
    assert CheckpointConfig().incremental
