"""One operator's state in RocksDB through many checkpoints, against dicts: whatever was complete
last, the files that are there give just what the state held, whoever reads them."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from backends import TINY
from database_job import (
    COLUMNS,
    LASTING,
    LIST,
    MAP,
    MOST,
    OPERATOR,
    SCHEMA,
    SMALL,
    TASK,
    VALUE,
    Job,
    held_by,
    held_in,
    manifest_of,
)
from strom.checkpoint.cancellation import Cancellation, UnwantedError
from strom.checkpoint.databases import inherited
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.snapshot_io import read_operator, write_subtask
from strom.core.ids import CheckpointId, TaskId
from strom.state.increments import Since
from strom.state.key_groups import range_for
from strom.state.keyed_state import KeyedStates
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.rocks.tables.table_state import ColdTableState
from strom.state.rocks.values import elements


@pytest.fixture(name="jobs")
def _jobs(tmp_path: Path) -> Iterator[list[Job]]:
    made: list[Job] = []
    yield made
    for job in made:
        job.states.close()


@pytest.mark.parametrize("seed", range(4))
def test_what_was_complete_is_what_is_read(
    seed: int, tmp_path: Path, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elements, "SMALL", [0, 1 << 20][seed % 2])
    monkeypatch.setattr(elements, "UNWRITTEN", [0, 5, 1 << 15][seed % 3])
    rng = random.Random(seed)
    job = Job(tmp_path)
    jobs.append(job)
    for _ in range(14):
        for _ in range(rng.randrange(40)):
            job.step(rng)
        job.checkpoint(rng, fails=rng.random() < 0.25)
        if job.base is not None and rng.random() < 0.3:
            job.check()
            job.restart(in_place=rng.random() < 0.7, same_program=rng.random() < 0.5)
    job.check()
    assert job.base is not None
    (operator,) = job.base[0].subtasks[0].operators
    assert operator.database is not None


@pytest.mark.parametrize("same_program", [True, False])
def test_key_groups_are_taken_from_each_former_database(
    same_program: bool, tmp_path: Path, jobs: list[Job]
) -> None:
    """1 -> 3 -> 2 -> 1 subtasks, each from the files of those before; nothing but their own."""
    rng = random.Random(11)
    job = Job(tmp_path)
    jobs.append(job)
    for _ in range(300):
        job.step(rng)
    job.checkpoint(rng, fails=False)
    assert job.base is not None
    manifest, model = job.base
    for at, parallelism in enumerate((3, 2, 1)):
        n = CheckpointId(100 + at)
        made = []
        for subtask in range(parallelism):
            share = (job.storage, manifest, OPERATOR, subtask, parallelism, MOST)
            files = inherited(*share, same_program=same_program)
            assert files is not None
            states = KeyedStates(SMALL)
            backend = states.make(range_for(subtask, parallelism, MOST), MOST)
            backend.inherit(files)
            backend.restore(read_operator(*share, inherits=True)[0])
            if at % 2:
                held_by(backend)  # which asks for all
            database = backend._database
            own = backend.key_groups
            places = [k for s in database.states for k, _ in database.scan(s.prefix)]
            assert all(int.from_bytes(place[2:4], "big") in own for place in places)
            task = TaskId(TASK.vertex, subtask)
            frozen = backend.snapshot(Since(n))
            made.append(write_subtask(job.storage, n, task, [(OPERATOR, frozen, None)]))
            states.close()
        shape = OperatorShape(OPERATOR, "op", parallelism, MOST)
        manifest = Manifest("job", "job", n, 0, (shape,), tuple(made))
        assert any(one.operators[0].database for one in made)
        for read_at in (1, 2):
            assert held_in(job.storage, manifest, read_at) == model


def test_states_that_nobody_asks_for_stay_in_the_files(tmp_path: Path, jobs: list[Job]) -> None:
    rng = random.Random(7)
    job = Job(tmp_path)
    jobs.append(job)
    for _ in range(120):
        job.step(rng)
    job.checkpoint(rng, fails=False)
    for _ in range(2):
        job.restart(in_place=True)
        job.checkpoint(random.Random(0), fails=False)
        job.check()
    job.restart(in_place=True)
    whole = list(job.backend.snapshot().tables())
    memory = MemoryKeyedStateBackend(range_for(0, 1, MOST), MOST)
    memory.restore(whole)
    assert held_by(memory) == job.model


@pytest.mark.parametrize("descriptor", [VALUE, LIST, MAP, LASTING])
def test_a_state_begins_with_its_files(descriptor: Any, tmp_path: Path, jobs: list[Job]) -> None:
    """Nothing of it is read as tables: no state has to fit into memory at a restart."""
    rng = random.Random(7)
    job = Job(tmp_path, TINY)
    jobs.append(job)
    while len(job.model[descriptor.name]) < 20:
        job.step(rng)
    job.backend.time.begin(1)
    job.checkpoint(random.Random(0), fails=False)
    assert job.base is not None
    read: list[str] = []
    job.restart(in_place=True)
    waiting = job.backend._waiting
    job.backend._waiting = lambda name, kind: read.extend(waiting(name, kind)) or ()
    job.backend.namespaced(descriptor)
    assert not read
    assert descriptor.name not in job.backend._database.waiting
    job.backend._waiting = waiting
    assert held_by(job.backend) == job.model


def test_places_that_do_not_count_are_told_without_a_copy_of_the_table(
    tmp_path: Path, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second freeze of a table makes the first one copy its numbers on the task's thread."""
    job = Job(tmp_path)
    jobs.append(job)
    rng = random.Random(5)
    while len(job.model["table"]) < 200:
        job.step(rng)
    for _ in range(2):
        job.checkpoint(rng, fails=False)
        job.step(rng)
    frozen: list[str] = []
    freeze = ColdTableState.freeze
    monkeypatch.setattr(
        ColdTableState, "freeze", lambda self, name: frozen.append(name) or freeze(self, name)
    )
    job.checkpoint(rng, fails=False)
    assert len(frozen) == len(set(frozen))
    monkeypatch.undo()
    job.check()


def test_little_is_written_where_little_changed(tmp_path: Path, jobs: list[Job]) -> None:
    job = Job(tmp_path)
    jobs.append(job)
    table = job.backend.table("table", SCHEMA, COLUMNS, cold=True).table
    rows = np.arange(100_000)
    for start in range(0, len(rows), 10_000):
        job.backend.time.begin(1)
        some = pa.array(rows[start : start + 10_000])
        slots = table().slots(pa.RecordBatch.from_arrays([some], schema=SCHEMA))
        table().column("n")[slots] += 1
    job.backend.time.begin(1)
    job.checkpoint(random.Random(0), fails=False)
    first = job.written
    job.backend.time.begin(1)
    some = pa.array(rows[:100])
    slots = table().slots(pa.RecordBatch.from_arrays([some], schema=SCHEMA))
    table().column("n")[slots] += 1
    job.backend.time.begin(1)
    job.checkpoint(random.Random(0), fails=False)
    assert job.written < first / 10


def test_a_state_in_another_layout_is_read_as_tables(tmp_path: Path, jobs: list[Job]) -> None:
    """A table with one more number: the program asks for it, and its rows come along."""
    rng = random.Random(3)
    job = Job(tmp_path)
    jobs.append(job)
    while len(job.model["table"]) < 200:
        job.step(rng)
    job.checkpoint(rng, fails=False)
    job.restart(in_place=True)
    wider = (COLUMNS[0], replace(COLUMNS[1], initial=0.25))
    table = job.backend.table("table", SCHEMA, wider, cold=True).table()
    keys = sorted(job.model["table"])
    slots = table.slots(pa.RecordBatch.from_arrays([pa.array(keys)], schema=SCHEMA))
    assert dict(zip(keys, table.column("n")[slots].tolist(), strict=True)) == job.model["table"]


def test_what_fails_holds_nothing(tmp_path: Path, jobs: list[Job]) -> None:
    """The links are removed, and the database may be written to."""
    rng = random.Random(3)
    job = Job(tmp_path)
    jobs.append(job)
    for _ in range(100):
        job.step(rng)
    database = job.backend._database
    for _ in range(2):
        frozen = job.backend.snapshot(Since(CheckpointId(1)))
        cancellation = Cancellation()
        cancellation.cancel()
        with pytest.raises(UnwantedError):
            write_subtask(
                job.storage, CheckpointId(1), TASK, [(OPERATOR, frozen, None)], cancellation
            )
        assert not list(database._folder.glob("links-*"))
        assert not database.waits(0, 1)
    for _ in range(20):
        job.step(rng)
    job.checkpoint(rng, fails=False)
    job.check()


def test_a_task_that_cannot_wait_links_the_files_itself(tmp_path: Path, jobs: list[Job]) -> None:
    rng = random.Random(5)
    job = Job(tmp_path)
    jobs.append(job)
    for _ in range(100):
        job.step(rng)
    frozen = job.backend.snapshot(Since(CheckpointId(1)))
    model = copy.deepcopy(job.model)
    database = job.backend._database
    assert database.waits(100, 100)
    assert not database.waits(151, 100)
    for _ in range(50):
        job.step(rng)
    database.write([], [(b"\xff\xff", b"")])
    assert list(database._folder.glob("links-*"))
    made = write_subtask(job.storage, CheckpointId(1), TASK, [(OPERATOR, frozen, None)])
    assert held_in(job.storage, manifest_of(CheckpointId(1), made), 1) == model
