"""Whole jobs on filesystems on which calls fail, writes tear and listings are late: their results
are right, and at the end no file is missing, and none is left over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from shaky_storage import check_files
from strom import TumblingEventTimeWindows, WatermarkStrategy, count, sum_
from strom.checkpoint.epochs import end_name, epoch_name
from strom.checkpoint.file_storage import FileStorage
from strom.checkpoint.names import MANIFEST
from strom.connectors.datagen import DataGenSource
from strom.core.errors import (
    CheckpointError,
    CorruptCheckpointError,
    MissingCheckpointError,
)
from strom.core.ids import CheckpointId
from strom.core.job_status import JobStatus
from strom.engine.hosts.simulator import Simulation, SimulationPlan, SimulationResult
from strom.testing.equivalence import Ways, checkpointed, compare
from strom.testing.faulty_filesystem import PASSING, Faults, FaultyFileSystem
from strom.testing.probes import CollectProbe

COUNT, KEYS, SIZE = 800, 100, 2_000
SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("time", pa.int64())])


def generate(first: int, number: int) -> list[tuple[int, int, int]]:
    return [(n if n < KEYS else n % 7, n, 10 * n) for n in range(first, first + number)]


def build(env: Any) -> Any:
    source = DataGenSource(generate, count=COUNT, splits=1, schema=SCHEMA, block=16)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("time")
    keyed = env.from_source(source, strategy, "records").key_by("key")
    windows = keyed.window(TumblingEventTimeWindows.of(SIZE))
    return {
        "rolling": keyed.sum("value").map(tuple),
        "windows": windows.aggregate(n=count(), total=sum_("value")).map(tuple),
    }


def expected() -> list[Any]:
    totals: dict[int, int] = {}
    windows: dict[tuple[int, int], list[int]] = {}
    found: list[Any] = []
    for key, n, time in generate(0, COUNT):
        totals[key] = totals.get(key, 0) + n
        found.append(("rolling", (key, totals[key], time)))
        windows.setdefault((key, time // SIZE * SIZE), []).append(n)
    for (key, start), values in windows.items():
        found.append(("windows", (key, start, start + SIZE, len(values), sum(values))))
    return found


def storage_on(faults: Faults, object_store: bool) -> tuple[FileStorage, FaultyFileSystem]:
    filesystem = FaultyFileSystem(MemoryFileSystem(), faults, object_store)
    root = f"/faulty-{uuid4().hex}"
    return FileStorage(filesystem, root, "job", pause=lambda seconds: None), filesystem


@pytest.mark.parametrize("object_store", [False, True])
def test_a_read_that_fails_each_time_is_of_no_file_that_is_missing(object_store: bool) -> None:
    """Of a checkpoint that never completed there is no manifest: that is no failure of the storage,
    however its answers get lost."""
    faults = Faults(probability=1.0, calls=["read"])
    storage, _ = storage_on(faults, object_store)
    part = storage.write_file(CheckpointId(1), "part.arrow", b"part")
    with pytest.raises(MissingCheckpointError, match=r"manifest\.json: the file is missing"):
        storage.load(CheckpointId(1))
    latest = storage.latest_valid()
    assert (latest.manifest, latest.never_usable) == (None, (1,))
    with pytest.raises(CheckpointError, match=r"cannot read .*part\.arrow") as failed:
        storage.read_file(CheckpointId(1), part)
    assert not isinstance(failed.value, CorruptCheckpointError)


def run(storage: FileStorage, seed: int) -> tuple[SimulationResult, CollectProbe]:
    config = checkpointed(Ways(batch_size=16), 2)
    config = replace(config, checkpoint=replace(config.checkpoint, retained=1 + seed % 3))
    probe = CollectProbe(build)
    plan = SimulationPlan(
        seed=seed,
        crashes=1 + seed % 2,
        coordinator_crashes=int(seed % 3 == 0),
        crash_window=700,
        crash_after_checkpoints=1,
    )
    return Simulation(probe.graph(config), plan, storage).run(), probe


def check_nothing_else(storage: FileStorage, filesystem: FaultyFileSystem) -> None:
    """Each file is one that a complete checkpoint names, or its manifest; no upload is open."""
    check_files(storage)
    named = {
        f"{'shared' if handle.shared else f'chk-{n}'}/{handle.path}"
        for n in storage.list()
        for handle in storage.load(n).files()
    }
    named |= {f"chk-{n}/{MANIFEST}" for n in storage.list()}
    for epoch in storage.tenants():
        named |= {epoch_name(epoch)}
        named |= set() if storage.settled(epoch) is None else {end_name(epoch)}
    inner = filesystem.inner
    home = storage._home
    assert {path.removeprefix(f"{home}/") for path in inner.find(home)} == named
    assert filesystem.unfinished == []


@pytest.fixture(scope="module", name="reference")
def _reference() -> list[Any]:
    return expected()


@pytest.mark.parametrize("object_store", [True, False], ids=["object store", "files"])
@pytest.mark.parametrize("first", [0, 4])
def test_what_passes_is_not_noticed(first: int, object_store: bool, reference: list[Any]) -> None:
    """One call in twelve fails, and listings are up to 8 calls late."""
    failed = 0
    for seed in range(first, first + 4):
        faults = Faults(seed, 1 / 12, late=8)
        storage, filesystem = storage_on(faults, object_store)
        result, probe = run(storage, seed)
        assert result.outcome is not None
        assert result.outcome.status is JobStatus.FINISHED, f"seed {seed}: {result.outcome.error}"
        faults.stop()
        published = {op: list(values.values()) for op, values in result.published.items()}
        compare(f"seed {seed}", reference, probe.output(published))
        check_nothing_else(storage, filesystem)
        failed += faults.failed
    assert failed > 25


@pytest.mark.parametrize("object_store", [True, False], ids=["object store", "files"])
def test_what_does_not_pass_costs_the_checkpoint_alone(
    object_store: bool, reference: list[Any]
) -> None:
    """Writes that are denied, or find the disk full: checkpoints fail, and others complete."""
    for seed in range(8):
        kinds = ("denied", "full", *PASSING)
        faults = Faults(seed, 1 / 12, kinds, calls=("write",), late=8)
        storage, filesystem = storage_on(faults, object_store)
        result, probe = run(storage, seed)
        assert result.outcome is not None
        assert result.outcome.status is JobStatus.FINISHED, f"seed {seed}: {result.outcome.error}"
        faults.stop()
        published = {op: list(values.values()) for op, values in result.published.items()}
        compare(f"seed {seed}", reference, probe.output(published))
        check_nothing_else(storage, filesystem)
