"""Timers of which most lie in RocksDB, against a dict: through batches, checkpoints that fail or
are complete, restores from files or tables, at any parallelism and into either backend."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import strom
from backends import TINY
from strom.checkpoint.databases import inherited
from strom.checkpoint.increments import Increments
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.checkpoint.snapshot_io import read_operator, write_subtask
from strom.checkpoint.storage import open_storage
from strom.core.errors import StateError
from strom.core.ids import NO_CHECKPOINT, CheckpointId, OperatorId, TaskId, VertexId
from strom.core.key_kinds import held_key
from strom.core.state_config import StateConfig
from strom.snapshots.stored import StoredStates
from strom.state.backend import StateTable
from strom.state.encoding import decode
from strom.state.increments import Since
from strom.state.key_groups import key_group, range_for
from strom.state.keyed_state import KeyedStates
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.rocks.backend import RocksKeyedStateBackend
from strom.state.rocks.timers import ColdTimerQueue
from strom.testing.backends import spilling

OPERATOR = OperatorId("op")
MOST = 8
FIRST, LAST = -(1 << 63), (1 << 63) - 1
STATES = (TINY, spilling(1 << 10), spilling(8 << 10))
IN_MEMORY = StateConfig()

Timer = tuple[int, Any, Any]


class Color(Enum):
    RED = 1
    BLUE = 2


KEYS: dict[str, list[Any]] = {
    "numbers": list(range(40)),
    "texts": [f"k{n}" for n in range(30)] + ["", "\ud800"],
    "mixed": [0, 1, True, 1.0, -1, 2**70, "a", b"a", None, (1, "x"), (True, "x"), *Color],
    "objects": [(color, n) for color in Color for n in range(5)],
}
SPACES: list[Any] = [None, None, None, (0, 10), 7, Color.RED]


class Times:
    """Which timestamps are drawn; event time goes on in some."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.kind = rng.choice(["few", "around zero", "ends", "going on", "far apart"])
        self.now = 0

    def draw(self) -> int:
        match self.kind:
            case "few":
                return self._rng.randrange(5)
            case "around zero":
                return self._rng.randrange(-60, 60)
            case "ends":
                return self._rng.choice([FIRST, FIRST + 1, -1, 0, 1, LAST - 1, LAST])
            case "going on":
                self.now += self._rng.randrange(3)
                return self.now + self._rng.choice([1, 5, 50, 500])
        return self._rng.randrange(-(1 << 62), 1 << 62)


class Job:
    """An operator's timers in all its subtasks, and the model: of each timer its number."""

    def __init__(self, folder: Path, seed: int, exact: bool) -> None:
        """`exact`: one subtask for ever, so that the order of ties is known."""
        self.rng = random.Random(seed)
        self.exact = exact
        self.storage = open_storage(str(folder), "job")
        self.times = Times(self.rng)
        self.keys = [held_key(key) for key in self.rng.choice([*KEYS.values()])]
        self.spaces = self.rng.choice([[None], SPACES])
        self.model: dict[Timer, int] = {}
        self.number = self.n = 0
        self.base: tuple[Manifest, dict[Timer, int]] | None = None
        self.states: list[KeyedStates] = []
        self.from_files = self.spilled = 0
        self.start(None)

    @property
    def parallelism(self) -> int:
        return len(self.backends)

    def start(self, manifest: Manifest | None) -> None:
        """A new attempt, from a checkpoint if there is one."""
        rng = self.rng
        self.close()
        parallelism = 1 if self.exact else rng.choice([1, 2, 3])
        config = IN_MEMORY if rng.random() < 0.2 else rng.choice(STATES)
        in_place, same_program = rng.random() < 0.7, rng.random() < 0.8
        self.backends: list[MemoryKeyedStateBackend] = []
        self.increments = [Increments() for _ in range(parallelism)]
        for subtask in range(parallelism):
            states = KeyedStates(config)
            self.states.append(states)
            backend = states.make(range_for(subtask, parallelism, MOST), MOST)
            self.backends.append(backend)
            if manifest is None:
                continue
            share = (self.storage, manifest, OPERATOR, subtask, parallelism, MOST)
            files = None
            if in_place and backend.inherits:
                files = inherited(*share, same_program=same_program)
            if files is not None:
                backend.inherit(files)
                self.from_files += 1
            tables, _ = read_operator(*share, inherits=files is not None)
            backend.restore(tables)
        if rng.random() < 0.7:  # else nobody asks for them until something happens
            for backend in self.backends:
                backend.timers("t")

    def close(self) -> None:
        for states in self.states:
            states.close()
        self.states = []

    def step(self) -> None:
        rng = self.rng
        timer = (self.times.draw(), rng.choice(self.keys), rng.choice(self.spaces))
        queue = self.owner(timer).timers("t")
        what = rng.random()
        if what < 0.55:
            queue.register(*timer)
            self.number += 1
            self.model.setdefault(timer, self.number)
        elif what < 0.75:
            if self.model and rng.random() < 0.7:
                timer = rng.choice([*self.model])
                queue = self.owner(timer).timers("t")
            queue.delete(*timer)
            self.model.pop(timer, None)
        elif what < 0.85:
            self.fire(rng.choice(self.backends), timer[0])
        elif what < 0.88:
            backend = rng.choice(self.backends)
            times = [t for t, key, _ in self.model if self.is_of(backend, key)]
            assert backend.timers("t").peek() == min(times, default=None)
        elif what < 0.9:
            backend = rng.choice(self.backends)
            backend.validate()
            mine = [timer for timer in self.model if self.is_of(backend, timer[1])]
            assert len(backend.timers("t")) == len(mine)
        else:
            rng.choice(self.backends).time.begin(1)

    def owner(self, timer: Timer) -> MemoryKeyedStateBackend:
        (owner,) = [b for b in self.backends if self.is_of(b, timer[1])]
        return owner

    def is_of(self, backend: MemoryKeyedStateBackend, key: Any) -> bool:
        return key_group(key, MOST) in backend.key_groups

    def fire(self, backend: MemoryKeyedStateBackend, until: int) -> None:
        mine = [t for t in self.model if self.is_of(backend, t[1]) and t[0] <= until]
        waiting = sorted(mine, key=lambda timer: (timer[0], self.model[timer]))
        for _ in range(self.rng.choice([1, 2, 20, 1000])):
            found = backend.timers("t").pop_due(until)
            if not waiting:
                assert found is None
                return
            if self.exact:
                assert found == waiting[0]
            assert found is not None
            self.check_next(found, waiting)
            waiting.remove(found)
            del self.model[found]

    def check_next(self, found: Timer, waiting: list[Timer]) -> None:
        """It is the first of its key group: those of others may have been elsewhere."""
        group = key_group(found[1], MOST)
        first = [t for t in waiting if t[0] == waiting[0][0] and key_group(t[1], MOST) == group]
        assert found == first[0]

    def checkpoint(self, fails: bool) -> None:
        self.n += 1
        n = CheckpointId(self.n)
        base = NO_CHECKPOINT if self.base is None else self.base[0].checkpoint_id
        begun = [increments.begin(n, base) for increments in self.increments]
        frozen = [
            backend.snapshot(increment.since(OPERATOR))
            for backend, increment in zip(self.backends, begun, strict=True)
        ]
        model = dict(self.model)
        for _ in range(self.rng.randrange(30)):  # the asynchronous part comes when it comes
            self.step()
        made = []
        for subtask, (snapshot, increment) in enumerate(zip(frozen, begun, strict=True)):
            task, part = TaskId(VertexId("op"), subtask), [(OPERATOR, snapshot, None)]
            layers, files = increment.layers, increment.files
            made.append(write_subtask(self.storage, n, task, part, layers=layers, files=files))
            self.increments[subtask].written(n, made[-1])
        if fails:
            return
        shape = OperatorShape(OPERATOR, "op", self.parallelism, MOST)
        manifest = Manifest("job", "job", n, 0, (shape,), tuple(made))
        self.storage.publish(manifest)
        self.base = (manifest, model)
        self.check_stored()

    def check_stored(self) -> None:
        """What tools read of the newest checkpoint."""
        assert self.base is not None
        manifest, model = self.base
        try:
            table = StoredStates(self.storage, manifest, "it").keyed(OPERATOR, "t")
        except StateError:
            assert not model
        else:
            self.check_rows([table], model)

    def check_whole(self) -> None:
        """What a savepoint holds, read later."""
        model, frozen = dict(self.model), [b.snapshot() for b in self.backends]
        for _ in range(self.rng.randrange(20)):
            self.step()
        self.check_rows([t for one in frozen for t in one.tables()], model)

    def check_rows(self, tables: list[StateTable], model: dict[Timer, int]) -> None:
        rows = [row for table in tables for row in rows_of(table)]
        assert {row[0] for row in rows} == model.keys()
        assert len(rows) == len(model)
        if self.exact:
            in_order = [timer for timer, _ in sorted(rows, key=lambda row: (row[0][0], row[1]))]
            assert in_order == sorted(model, key=lambda timer: (timer[0], model[timer]))

    def restart(self) -> None:
        assert self.base is not None
        manifest, model = self.base
        self.count_spilled()
        self.model = dict(model)
        self.start(manifest)

    def count_spilled(self) -> None:
        for backend in self.backends:
            queue = backend.timers("t")
            self.spilled += queue.spilled if isinstance(queue, ColdTimerQueue) else 0


def rows_of(table: StateTable) -> Iterator[tuple[Timer, int]]:
    """Timers and their numbers."""
    if table.name != "t" or not table.data.num_rows:
        return
    names = ["__key_group", "timestamp", "sequence", "namespace", "key"]
    assert table.data.column_names == names
    groups, times, numbers = [table.data.column(name).to_pylist() for name in names[:3]]
    assert groups == sorted(groups)
    found = [decode(table.data.column(n), table.metadata[n], n) for n in ("key", "namespace")]
    for group, time, number, key, space in zip(groups, times, numbers, *found, strict=True):
        assert group == key_group(key, MOST)
        yield (time, held_key(key), space), number


@pytest.fixture(name="jobs")
def _jobs() -> Iterator[list[Job]]:
    made: list[Job] = []
    yield made
    for job in made:
        job.close()


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("seed", range(12))
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
                    assert files.as_it_is == (parallelism == 2)
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
for at in range(1, 100_001):
    timer = queue.pop_due(at)
    assert timer is not None and timer[0] == at
most = max(most, psutil.Process().memory_info().rss)
states.close()
print(most - empty)
"""


def test_a_million_timers_take_about_what_they_may() -> None:
    """In memory they take 240 MB; half of 64 MB is for them, and RocksDB has the rest."""
    command = [sys.executable, "-c", MEMORY]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 130 << 20
