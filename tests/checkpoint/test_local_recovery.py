"""Whole jobs whose tasks restart from copies on their machine: the storage refuses every read of a
data file, and they go on; copies are damaged, and they go on from the storage."""

from __future__ import annotations

import logging
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from amounts import pairs, seeds
from recovery_kit import STATES, Job, build, expected
from strom.checkpoint import uploads
from strom.checkpoint.local_copies import copy_name
from strom.checkpoint.names import MANIFEST
from strom.core.ids import CheckpointId
from strom.core.job_status import JobStatus
from strom.engine.hosts.local_folder import LocalFolders
from strom.engine.hosts.simulator import Simulation, SimulationPlan
from strom.testing.equivalence import Ways, checkpointed, compare
from strom.testing.probes import CollectProbe


@pytest.fixture(scope="module", name="reference")
def _reference() -> list[Any]:
    return expected()


CRASHES = SimulationPlan(seed=3, crash_after_checkpoints=4)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("seed", seeds(4))
def test_restarts_read_nothing_of_the_storage(
    tmp_path: Path, reference: list[Any], state: str, seed: int
) -> None:
    job = Job(tmp_path, state)
    job.refuses = True
    job.run(replace(CRASHES, seed=seed))
    assert job.results[0].crashed == 4
    assert job.results[0].midway
    assert job.reads == []
    assert job.figures["restored_bytes"] == job.figures["restored_local_bytes"] > 0
    job.check(reference)


def test_files_of_databases_are_links_and_databases_begin_with_links(
    tmp_path: Path, reference: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were they as large as they are usually, they would not be packed."""
    monkeypatch.setattr(uploads, "SMALL_SHARED", 0)
    links = {"to copies": 0, "to databases": 0}
    link = os.link

    def counted(source: Any, target: Any) -> None:
        links["to copies" if job.copies in Path(target).parents else "to databases"] += 1
        link(source, target)

    monkeypatch.setattr(os, "link", counted)
    job = Job(tmp_path / "copies", "rocksdb")
    job.state = replace(job.state, local_dirs=(str(tmp_path),))
    job.refuses = True
    job.run(CRASHES)
    assert job.results[0].crashed == 4
    assert all(links.values()), links
    assert job.reads == []
    job.check(reference)
    assert [path.name for path in tmp_path.iterdir()] == ["copies"]


def test_without_the_option_the_storage_is_read(tmp_path: Path, reference: list[Any]) -> None:
    for told in ({"local_recovery": False}, {"local_backup": False}):
        job = Job(tmp_path)
        job.run(CRASHES, **told)
        assert job.reads
        assert job.figures["restored_local_bytes"] == 0 < job.figures["restored_bytes"]
        assert not job.copies.parent.exists()
        job.compare(reference)


def test_copies_may_be_kept_and_not_read(tmp_path: Path, reference: list[Any]) -> None:
    job = Job(tmp_path)
    job.run(CRASHES, local_recovery=False, local_backup=True)
    assert job.reads
    assert job.figures["restored_local_bytes"] == 0 < job.figures["restored_bytes"]
    job.check(reference)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("seed", seeds(4, least=2))
def test_whatever_crashes_when_it_goes_on_exactly(
    tmp_path: Path, reference: list[Any], state: str, seed: int
) -> None:
    """Tasks, the coordinator with all of them, in the middle of checkpoints and of restores."""
    job = Job(tmp_path, state)
    plan = SimulationPlan(
        seed=seed, crashes=3, coordinator_crashes=seed % 2, crash_window=900,
        crash_after_checkpoints=1,
    )  # fmt: skip
    job.run(plan)
    job.check(reference)


@pytest.mark.parametrize("state", STATES)
def test_only_what_the_newest_checkpoints_need_is_kept(
    tmp_path: Path, reference: list[Any], state: str
) -> None:
    """Whenever a checkpoint is about to be published, copies are of that, or of one that is
    complete; whatever failed before. (One of the two that are retained may still have some: mail
    may be late.)"""
    job = Job(tmp_path, state)
    looked = []

    def look(call: str, path: str) -> None:
        if call != "write" or not path.endswith(MANIFEST) or not job.copies.exists():
            return
        before, job.before = job.before, lambda call, path: None
        manifests = [job.storage.load(CheckpointId(n)) for n in job.complete()]
        needed = {copy_name(m.checkpoint_id, file) for m in manifests for file in m.files()}
        now = path.split("/")[-2]
        names = {f"{file.parent.name}/{file.name}" for file in job.copies.glob("*/*")}
        new = {one for one in names if one.startswith((f"{now}/", f"shared/{now[4:]}-"))}
        assert names <= needed | new, names - needed - new
        looked.append(len(names))
        job.before = before

    job.before = look
    job.run(SimulationPlan(seed=1, crashes=3, crash_window=900, crash_after_checkpoints=2))
    assert job.results[0].crashed == 5
    assert len(looked) > 3
    assert max(looked) > 5
    job.check(reference)


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    if data:
        data[len(data) // 2] ^= 1
    file.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "altered": flip,
    "truncated": lambda file: os.truncate(file, file.stat().st_size // 2),
    "removed": lambda file: file.unlink(),
}


@pytest.mark.parametrize(
    ("harm", "state"),
    pairs([("altered", 1.0), ("truncated", 0.4), ("removed", 0.4), ("removed", 1.0)], STATES),
    ids=str,
)
def test_damaged_copies_are_read_from_the_storage(
    tmp_path: Path,
    reference: list[Any],
    caplog: pytest.LogCaptureFixture,
    harm: tuple[str, float],
    state: str,
) -> None:
    damage, share = harm
    job = Job(tmp_path, state)
    rng = random.Random(1)
    harmed: set[Path] = set()

    def do_harm() -> None:
        for file in sorted(set(job.copies.glob("*/*")) - harmed):
            if rng.random() < share:
                harmed.add(file)
                # What is linked is the database's, too, of which nobody else writes files.
                content = file.read_bytes()
                file.unlink()
                file.write_bytes(content)
                DAMAGE[damage](file)

    job.on_restart(do_harm)
    with caplog.at_level(logging.WARNING, logger="strom"):
        job.run(CRASHES)
    assert job.results[0].crashed == 4
    assert job.reads
    local, all_read = job.figures["restored_local_bytes"], job.figures["restored_bytes"]
    assert 0 <= local < all_read, "in a pack some parts may be left"
    assert (local == 0) == (share == 1.0) or damage != "removed"
    warned = "a copy of a checkpoint's file on this machine cannot be used" in caplog.text
    assert warned == (damage != "removed")
    job.check(reference)


def test_a_machine_that_lost_its_folder_goes_on(tmp_path: Path, reference: list[Any]) -> None:
    job = Job(tmp_path)
    job.on_restart(lambda: shutil.rmtree(job.copies))
    job.run(CRASHES)
    assert job.reads
    job.check(reference)


def test_files_that_the_storage_has_damaged_do_not_matter_where_there_are_copies(
    tmp_path: Path, reference: list[Any]
) -> None:
    """Data files that are altered, as long as before: nobody reads them, and no later checkpoint
    builds on them."""
    job = Job(tmp_path)
    harmed: list[str] = []

    def harm() -> None:
        inner = job.filesystem.inner
        for path in inner.find(job.storage._home):
            if not path.endswith(MANIFEST) and path not in harmed and inner.cat_file(path):
                inner.pipe_file(path, bytes(255 - byte for byte in inner.cat_file(path)))
                harmed.append(path)

    job.on_restart(harm)
    job.run(CRASHES)
    assert job.results[0].crashed == 4
    assert harmed
    assert job.reads == []
    job.compare(reference)


def test_a_file_that_is_lost_here_and_damaged_there_is_found_out(tmp_path: Path) -> None:
    """The coordinator finds it in its place, a task finds it damaged: the next time the coordinator
    reads it as well, and says what it says of damaged checkpoints."""
    job = Job(tmp_path)
    lost: list[str] = []

    def lose() -> None:
        before, job.before = job.before, lambda call, path: None
        complete = job.complete()
        if len(complete) > 1 and not lost:
            newest = job.storage.load(CheckpointId(complete[-1]))
            file = copy_name(newest.checkpoint_id, next(newest.files()))
            path = f"{job.storage._home}/{file}"
            job.filesystem.inner.pipe_file(path, bytes(len(job.filesystem.inner.cat_file(path))))
            (job.copies / file).unlink()
            lost.append(path)
        job.before = before

    job.on_restart(lose)
    outcome = job.run(SimulationPlan(seed=3, crash_after_checkpoints=3), retained=3, finishes=False)
    assert job.reads[0] == lost[0]
    assert outcome is not None
    assert outcome.status is JobStatus.FAILED
    assert f"{lost[0]}: expected xxh64" in str(outcome.error)
    assert "Checkpoint 1 can, but" in str(outcome.error), "what a sink has published since"


@pytest.mark.parametrize(("state", "parallelism"), pairs(STATES, [1, 3]))
def test_a_rescaled_job_reads_the_copies_of_former_tasks(
    tmp_path: Path, reference: list[Any], state: str, parallelism: int
) -> None:
    """A new coordinator reads all of the storage once; its tasks read copies, wherever they are."""
    job = Job(tmp_path, state)
    held = LocalFolders(job.storage.job_id, job.dirs)
    held.enter()
    job.run(SimulationPlan(seed=3, stop_after_checkpoint=5))
    assert job.copies.exists()
    job.run(SimulationPlan(seed=4), parallelism)
    assert job.figures["restored_bytes"] == job.figures["restored_local_bytes"] > 0
    held.leave()
    job.check(reference)


def test_a_rescaled_job_reads_of_the_storage_what_is_not_here(
    tmp_path: Path, reference: list[Any]
) -> None:
    """As where some of its tasks ran on other machines."""
    job = Job(tmp_path)
    held = LocalFolders(job.storage.job_id, job.dirs)
    held.enter()
    job.run(SimulationPlan(seed=3, stop_after_checkpoint=5))
    for file in job.copies.glob("*/*-1-*"):  # of subtask 1
        file.unlink()
    job.run(SimulationPlan(seed=4), 3)
    assert 0 < job.figures["restored_local_bytes"] < job.figures["restored_bytes"]
    held.leave()
    job.check(reference)


def test_checkpoints_in_memory_have_no_copies(tmp_path: Path, reference: list[Any]) -> None:
    config = checkpointed(Ways(batch_size=16), 2)
    told = replace(config.checkpoint, local_recovery=True, local_dirs=(str(tmp_path),))
    probe = CollectProbe(build)
    result = Simulation(probe.graph(replace(config, checkpoint=told)), CRASHES).run()
    assert result.crashed == 4
    seen = {op: list(values.values()) for op, values in result.published.items()}
    compare("in memory", reference, probe.output(seen))
    assert list(tmp_path.iterdir()) == []
