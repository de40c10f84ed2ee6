"""Checkpoints that hold RocksDB's files, of whole jobs: killed, restored in other backends and at
other parallelisms, with uploads that fail; at the end no shared file is missing, and none is left.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from backends import TINY
from shaky_storage import Shaky, check_files, in_memory
from strom import (
    KeyedProcessFunction,
    RuntimeContext,
    TumblingEventTimeWindows,
    ValueStateDescriptor,
    WatermarkStrategy,
    count,
    max_,
    sum_,
)
from strom.checkpoint.manifest import Manifest
from strom.checkpoint.storage import CheckpointStorage, open_storage
from strom.connectors.datagen import DataGenSource
from strom.core.errors import CorruptCheckpointError
from strom.core.job_status import JobStatus
from strom.core.state_config import StateConfig
from strom.engine.hosts.simulator import Simulation, SimulationPlan, SimulationResult
from strom.state import open as open_state
from strom.testing.equivalence import Ways, checkpointed, compare
from strom.testing.probes import CollectProbe, seen_once

COUNT, KEYS, HOT, STEP, SIZE = 700, 150, 10, 10, 2_000
WINDOW = 1_000
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64()), ("time", pa.int64())])
MEMORY = StateConfig()


def key_of(n: int) -> str:
    """All keys once, then a few of them again and again."""
    return f"k{n if n < KEYS else n * 7 % HOT}"


def generate(first: int, number: int) -> list[tuple[str, int, int]]:
    return [(key_of(n), n, n * STEP) for n in range(first, first + number)]


class Held(KeyedProcessFunction):
    """All values of a key so far, every seventh time forgotten."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.values = runtime_context.get_state(ValueStateDescriptor("values"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        values = [*(self.values.value() or ()), value.value]
        self.values.update(None if len(values) == 7 else values)
        yield ctx.get_current_key(), sum(values), len(values)


def build(env: Any) -> Any:
    source = DataGenSource(generate, count=COUNT, splits=1, schema=SCHEMA, block=16)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
    keyed = env.from_source(source, strategy, "records").key_by("key")
    windows = keyed.window(TumblingEventTimeWindows.of(SIZE))
    return {
        "rolling": keyed.sum("value").map(tuple),
        "windows": windows.aggregate(n=count(), total=sum_("value"), top=max_("value")).map(tuple),
        "held": keyed.process(Held()),
    }


def expected() -> list[Any]:
    totals: dict[str, int] = {}
    held: dict[str, list[int]] = {}
    windows: dict[tuple[str, int], list[int]] = {}
    found: list[Any] = []
    for n in range(COUNT):
        key = key_of(n)
        totals[key] = totals.get(key, 0) + n
        found.append(("rolling", (key, totals[key], n * STEP)))
        values = held.setdefault(key, [])
        values.append(n)
        found.append(("held", (key, sum(values), len(values))))
        if len(values) == 7:
            values.clear()
        windows.setdefault((key, n * STEP // SIZE * SIZE), []).append(n)
    for (key, start), some in windows.items():
        found.append(("windows", (key, start, start + SIZE, len(some), sum(some), max(some))))
    return found


def run(
    storage: CheckpointStorage,
    plan: SimulationPlan,
    parallelism: int = 2,
    restore_from: str | None = None,
    retained: int = 2,
    state: StateConfig = TINY,
) -> tuple[SimulationResult, CollectProbe]:
    config = checkpointed(Ways(batch_size=16), parallelism)
    checkpoint = replace(config.checkpoint, retained=retained)
    probe = CollectProbe(build)
    config = replace(config, restore_from=restore_from, checkpoint=checkpoint, state=state)
    return Simulation(probe.graph(config), plan, storage).run(), probe


def published(*results: SimulationResult) -> dict[Any, list[Any]]:
    return seen_once(*(result.published for result in results))


def finished(result: SimulationResult) -> None:
    assert result.outcome is not None
    assert result.outcome.status is JobStatus.FINISHED, result.outcome.error


def files_of(manifest: Manifest) -> set[str]:
    """The shared files of databases."""
    databases = [o.database for s in manifest.subtasks for o in s.operators if o.database]
    return {file.path for one in databases for _, file in one.files if file.shared}


@pytest.fixture(scope="module", name="reference")
def _reference() -> list[Any]:
    return expected()


def test_killed_jobs_go_on_from_files(reference: list[Any]) -> None:
    storage = Shaky(in_memory())
    plan = SimulationPlan(seed=1, crashes=3, coordinator_crashes=1, crash_window=WINDOW)
    result, probe = run(storage, plan)
    finished(result)
    compare("killed", reference, probe.output(published(result)))
    check_files(storage)


def test_uploads_that_fail_leave_nothing_and_lose_nothing(reference: list[Any]) -> None:
    shaky = Shaky(in_memory(), 31)
    plan = SimulationPlan(seed=1, crashes=2, crash_window=WINDOW)
    result, probe = run(shaky, plan)
    finished(result)
    assert shaky.writes > shaky._period
    compare("shaky", reference, probe.output(published(result)))
    check_files(shaky)


def test_only_new_files_are_written() -> None:
    storage = in_memory()
    run(storage, SimulationPlan(seed=1, stop_after_checkpoint=9), retained=20)
    manifests = [storage.load(n) for n in storage.list()]
    assert files_of(manifests[-1])
    assert any(files_of(a) & files_of(b) for a, b in pairwise(manifests))
    check_files(storage)


def test_restores_across_backends_and_parallelisms(tmp_path: Path, reference: list[Any]) -> None:
    """1 -> 2 -> 3 -> 1, RocksDB and memory in turns, each from the newest checkpoint before it."""
    results = []
    point = None
    stages = [(1, TINY, 3), (2, TINY, 6), (2, MEMORY, 9), (3, TINY, 12), (1, TINY, None)]
    for number, (parallelism, state, stop) in enumerate(stages):
        storage = open_storage(str(tmp_path), f"job{number}")
        plan = SimulationPlan(seed=number, stop_after_checkpoint=stop)
        result, probe = run(storage, plan, parallelism, point, state=state)
        results.append(result)
        check_files(storage)
        newest = storage.load(storage.list()[-1])
        if state is TINY and stop:
            assert files_of(newest)
        point = str(tmp_path / storage.job_id / f"chk-{newest.checkpoint_id}")
    finished(results[-1])
    compare("stages", reference, probe.output(published(*results)))


@pytest.fixture(scope="module", name="stopped")
def _stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SimulationResult, Manifest]:
    """Where a job that stopped at a checkpoint left it."""
    folder = tmp_path_factory.mktemp("stopped")
    storage = open_storage(str(folder), "job")
    first, _ = run(storage, SimulationPlan(seed=2, stop_after_checkpoint=8))
    newest = storage.load(storage.list()[-1])
    assert files_of(newest)
    return folder, first, newest


def test_open_state_looks_into_databases(
    stopped: tuple[Path, SimulationResult, Manifest],
) -> None:
    folder, _, newest = stopped
    point = str(folder / "job" / f"chk-{newest.checkpoint_id}")
    opened = open_state(point)
    found = opened.verify()
    assert found.ok, found.problems
    operator = next(one for one in opened.operators if one.name.startswith("KeyedProcess"))
    table = opened.table(operator.id, "values")
    rolling = next(one for one in opened.operators if one.name.startswith("Sum"))
    rows = next(one for one in rolling.states if one.kind == "table")
    totals = opened.polars(rolling.id, rows.name)
    assert len(totals) == rows.rows
    assert totals.select(totals.columns[:2]).n_unique() == len(totals)
    assert table.num_rows == operator.states[0].rows
    assert table.num_rows > HOT
    keys = table.column("key").to_pylist()
    assert len(set(keys)) == len(keys), "an entry that is in memory, too, counts once"


def test_an_edited_checkpoint_holds_tables(
    tmp_path: Path, stopped: tuple[Path, SimulationResult, Manifest]
) -> None:
    folder, _, newest = stopped
    opened = open_state(str(folder / "job" / f"chk-{newest.checkpoint_id}"))
    saved = open_state(opened.edit().save(str(tmp_path / "saved")))
    assert not any(o.database for s in saved.stored.manifest.subtasks for o in s.operators)
    assert not saved.diff(opened).states


def test_two_jobs_start_from_one_checkpoint_and_leave_it_alone(
    tmp_path: Path,
    stopped: tuple[Path, SimulationResult, Manifest],
    reference: list[Any],
) -> None:
    """One of them removes all that it has."""
    folder, first, newest = stopped
    before = {path: path.read_bytes() for path in (folder / "job").rglob("*") if path.is_file()}
    point = str(folder / "job" / f"chk-{newest.checkpoint_id}")
    for name, parallelism in (("one", 3), ("two", 2)):
        other = open_storage(str(tmp_path), name)
        plan = SimulationPlan(seed=5, crashes=1, crash_window=500, crash_after_checkpoints=1)
        second, probe = run(other, plan, parallelism, restore_from=point)
        finished(second)
        compare(name, reference, probe.output(published(first, second)))
        check_files(other)
        if name == "one":
            for n in other.list():
                other.delete(n)
            other.delete_shared(other.list_shared())
        now = {path: path.read_bytes() for path in before}
        added = {path for path in (folder / "job").rglob("*") if path.is_file()} - before.keys()
        assert all(path.name.startswith("epoch-") for path in added), "who started from it"
        assert now == before


def test_a_corrupt_file_is_named(
    tmp_path: Path, stopped: tuple[Path, SimulationResult, Manifest]
) -> None:
    folder, _, newest = stopped
    copied = tmp_path / "job"
    shutil.copytree(folder / "job", copied)
    file = copied / "shared" / sorted(files_of(newest))[0]
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    opened = open_state(str(copied / f"chk-{newest.checkpoint_id}"))
    found = opened.stored.manifest
    storage = open_storage(str(tmp_path), "job")
    with pytest.raises(CorruptCheckpointError, match=file.name):
        storage.verify(found)
    problems = opened.verify().problems
    assert problems
    assert all(file.name in problem for problem in problems)
