"""Timers of which most lie in RocksDB, against a dict: through batches, checkpoints that fail or
are complete, restores from files or tables, at any parallelism and into either backend."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import strom
from backends import TINY
from strom.checkpoint.databases import inherited
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.snapshot_io import read_operator, write_subtask
from strom.core.ids import CheckpointId, TaskId, VertexId
from strom.core.state_config import StateConfig
from strom.state.increments import Since
from strom.state.key_groups import key_group, range_for
from strom.state.keyed_state import KeyedStates
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.rocks.backend import RocksKeyedStateBackend
from strom.state.rocks.timers.timer_queue import ColdTimerQueue
from timer_jobs import LAST, MOST, OPERATOR, Job


@pytest.fixture(name="jobs")
def _jobs() -> Iterator[list[Job]]:
    made: list[Job] = []
    yield made
    for job in made:
        job.close()


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_through_checkpoints_and_restores(
    seed: int, exact: bool, tmp_path: Path, jobs: list[Job]
) -> None:
    job = Job(tmp_path, seed, exact)
    jobs.append(job)
    for _ in range(12):
        for _ in range(job.rng.randrange(120)):
            job.step()
        if job.rng.random() < 0.2:
            job.check_whole()
        job.checkpoint(fails=job.rng.random() < 0.25)
        if job.base is not None and job.rng.random() < 0.4:
            job.restart()
    for backend in job.backends:
        job.rng.choice([job.check_whole, lambda: None])()
        backend.timers("t").peek()
        job.fire(backend, LAST)
        while any(job.is_of(backend, key) for _, key, _ in job.model):
            job.fire(backend, LAST)
        assert backend.timers("t").peek() is None
        backend.validate()


def restored(job: Job) -> MemoryKeyedStateBackend:
    """From the files of the newest checkpoint, in another attempt."""
    assert job.base is not None
    states = KeyedStates(TINY)
    job.states.append(states)
    backend = states.make(range_for(0, 1, MOST), MOST)
    share = (job.storage, job.base[0], OPERATOR, 0, 1, MOST)
    files = inherited(*share)
    assert files is not None
    backend.inherit(files)
    backend.restore(read_operator(*share, inherits=True)[0])
    return backend


def test_what_is_registered_after_a_restore_comes_last(tmp_path: Path, jobs: list[Job]) -> None:
    """Twice, with all timers of the moment in files that nobody looks through."""
    job = Job(tmp_path, 0, exact=True)
    jobs.append(job)
    job.rng.randrange = lambda *_: 0  # type: ignore[method-assign]
    states = KeyedStates(TINY)
    job.states.append(states)
    job.backends = [states.make(range_for(0, 1, MOST), MOST)]
    names = [f"{n}" for n in range(90)]
    for first in (0, 30, 60):
        queue = job.backends[0].timers("t")
        if not first:
            queue.register(5, "now")
        for name in names[first : first + 30]:
            queue.register(1000, name)
            queue.register(1000, names[0])
            job.model[1000, name, None] = len(job.model)
        job.backends[0].time.begin(1)
        if not first:
            assert queue.pop_due(5) == (5, "now", None)
        job.checkpoint(fails=False)
        job.backends = [restored(job)]
    table = strom.state.open(tmp_path / "job" / f"chk-{job.n}").table("op", "t")
    assert table.sort_by("sequence").column("key").to_pylist() == names
    queue = job.backends[0].timers("t")
    assert isinstance(queue, ColdTimerQueue)
    assert queue.loaded == 0
    assert [queue.pop_due(1000) for _ in names] == [(1000, name, None) for name in names]
    assert queue.pop_due(1000) is None


def test_former_subtasks_may_have_gone_on_from_files_more_or_less_often(
    tmp_path: Path, jobs: list[Job]
) -> None:
    """One of two wrote its first timer into RocksDB after a restore. Both are taken as they are."""
    job = Job(tmp_path, 3, exact=False)
    jobs.append(job)
    manifest: Manifest | None = None
    numbers = range(40)
    for n, parallelism, registered in ((1, 2, (0,)), (2, 2, (0, 1)), (3, 1, ())):
        made = []
        for subtask in range(parallelism):
            states = KeyedStates(TINY)
            job.states.append(states)
            backend = states.make(range_for(subtask, parallelism, MOST), MOST)
            if manifest is not None:
                share = (job.storage, manifest, OPERATOR, subtask, parallelism, MOST)
                files = inherited(*share)
                if files is not None:
                    backend.inherit(files)
                    assert len(files.databases) == 3 - parallelism
                backend.restore(read_operator(*share, inherits=files is not None)[0])
            queue = backend.timers("t")
            mine = [key for key in numbers if key_group(key, MOST) in backend.key_groups]
            queue.register(0, mine[0])
            for key in mine if subtask in registered else ():
                queue.register(1000, key)
            backend.time.begin(1)
            queue.delete(0, mine[0])
            if n == 3:
                assert isinstance(queue, ColdTimerQueue)
                found = [queue.pop_due(1000) for _ in numbers]
                assert sorted(found) == [(1000, key, None) for key in numbers]
                assert queue.loaded == len(numbers)
                assert queue.pop_due(1000) is None
                return
            frozen = backend.snapshot(Since(CheckpointId(n)))
            part = (OPERATOR, frozen, None)
            task = TaskId(VertexId("op"), subtask)
            made.append(write_subtask(job.storage, CheckpointId(n), task, [part]))
        shape = OperatorShape(OPERATOR, "op", parallelism, MOST)
        manifest = Manifest("job", "job", CheckpointId(n), 0, (shape,), tuple(made))


def test_as_long_as_all_fit_nothing_is_written() -> None:
    states = KeyedStates(StateConfig("rocksdb", 64 << 20))
    try:
        backend = states.make(range_for(0, 1, MOST), MOST)
        queue = backend.timers("t")
        for n in range(20_000):
            queue.register(n * 7919 % 20_000, n)
        backend.time.begin(1)
        assert [queue.pop_due(20_000)[0] for _ in range(20_000)] == list(range(20_000))
        assert isinstance(queue, ColdTimerQueue)
        assert queue.spilled == 0
        assert isinstance(backend, RocksKeyedStateBackend)
        assert not backend._database.open
    finally:
        states.close()


MEMORY = """
import psutil
from strom.core.state_config import StateConfig
from strom.state.increments import Since
from strom.state.key_groups import range_for
from strom.state.keyed_state import KeyedStates

states = KeyedStates(StateConfig("rocksdb", 64 << 20))
backend = states.make(range_for(0, 1, 8), 8)
queue = backend.timers("t")
queue.register(0, "first")
empty = psutil.Process().memory_info().rss
most = 0
COUNT = 1_000_000
for start in range(0, COUNT, 10_000):
    backend.time.begin(10_000)
    for n in range(start, start + 10_000):
        queue.register(1 + n * 7919 % COUNT, f"user-{n}")
    most = max(most, psutil.Process().memory_info().rss)
assert queue.pop_due(0) == (0, "first", None)
for at in range(1, 20_001):
    timer = queue.pop_due(at)
    assert timer is not None and timer[0] == at
most = max(most, psutil.Process().memory_info().rss)
states.close()
print(most - empty)
"""


@pytest.mark.soak
def test_a_million_timers_take_about_what_they_may() -> None:
    """In memory they take 240 MB; half of 64 MB is for them, and RocksDB has the rest."""
    command = [sys.executable, "-c", MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 130 << 20
