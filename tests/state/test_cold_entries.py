"""Entries of which some lie in RocksDB, through many checkpoints of its files, against dicts: what
a key or a time brings back is what there was, and what was complete last is what is read."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amounts import seeds
from entries_kit import FORMS, Held, Own, Sealed, Table, batch_of, copied, keys_of
from strom.checkpoint.databases import inherited
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.increments import Increments
from strom.checkpoint.manifest import Manifest, OperatorShape, decode, encode
from strom.checkpoint.snapshot_io import read_operator, write_subtask
from strom.checkpoint.storage import open_storage
from strom.core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from strom.core.errors import StateError
from strom.core.ids import NO_CHECKPOINT, CheckpointId, OperatorId, TaskId, VertexId
from strom.core.key_kinds import held_keys
from strom.core.keys import findable
from strom.core.state_config import StateConfig
from strom.snapshots.stored import StoredStates
from strom.state import entry_table as memory_table
from strom.state.key_groups import range_for
from strom.state.keyed_state import KeyedStates
from strom.state.live_keys import LiveKeys
from strom.state.memory import MemoryKeyedStateBackend
from strom.state.rocks.entries import entry_table
from strom.state.rocks.entries.entry_table import ColdEntryTable
from strom.testing.backends import spilling

OPERATOR, TASK = OperatorId("op"), TaskId(VertexId("op"), 0)
MOST = 8
TIMES = [MIN_TIMESTAMP, -5, 0, 1, *range(2, 90), MAX_TIMESTAMP]


class Job:
    """One subtask, which does with its entries what a kernel would, its model, and the newest
    complete checkpoint."""

    def __init__(self, folder: Path, config: StateConfig, form: str = "columns") -> None:
        self.storage = open_storage(str(folder), "job")
        self.config = config
        self.form = form
        self.keys = keys_of(form)
        self.model: Held = {}
        self.n = 0
        self.base: tuple[Manifest, Held] | None = None
        self.start([])

    def start(self, tables: list[Any], files: Any = None) -> None:
        self.states = KeyedStates(self.config)
        self.backend: Any = self.states.make(range_for(0, 1, MOST), MOST)
        if files is not None:
            self.backend.inherit(files)
        self.backend.restore(tables)
        self.increments = Increments()
        self.own = Table(self.backend, self.form)
        self.table: Any = self.own.entries
        assert isinstance(self.table, ColdEntryTable)
        self.free: list[int] = []

    def words(self) -> Any:
        return self.own.words()

    def slots_of(self, numbers: Any) -> list[int]:
        owners = self.words()[: len(self.table), 0]
        return np.flatnonzero(np.isin(owners, numbers)).tolist()

    def new_slots(self, count: int) -> list[int]:
        slots = [self.free.pop() for _ in range(min(count, len(self.free)))]
        size = len(self.table)
        self.table.resize(size + count - len(slots))
        return [*slots, *range(size, len(self.table))]

    def come(self, brought: Any) -> None:
        slots = np.array(self.new_slots(len(brought)), np.int64)
        self.table.put(slots, brought)

    def go(self, numbers: Any, slots: Any) -> None:
        self.table.leave(np.array(numbers, np.int64), np.array(slots, np.int64))
        self.drop(slots)

    def drop(self, slots: Any) -> None:
        self.table.reset(np.array(slots, np.int64))
        self.words()[slots, 0] = -1
        self.free += slots

    def step(self, rng: random.Random) -> None:
        match rng.randrange(8):
            case 0 | 1 | 2:
                self.write(rng)
            case 3:
                self.pass_time(rng.choice(TIMES))
            case 4 | 5:
                self.leave(rng)
            case 6:
                owners = self.words()[: len(self.table), 0]
                slots = np.flatnonzero(owners >= 0)
                self.table.compact(rng.choice([slots, slots[::-1].copy()]))
                self.free = []
            case 7:
                live = np.unique(self.words()[: len(self.table), 0])
                live = live[live >= 0]
                self.table.tidy_owners(len(live), lambda: live)
        self.table.validate()
        here = self.own.here()
        assert all(self.model[key] == entries for key, entries in here.items())
        assert len(self.model) == len(here) + self.table.keys_away

    def write(self, rng: random.Random) -> None:
        self.backend.forget_object_keys()
        keys = rng.choices(self.keys, k=rng.choice([1, 4, 30]))
        numbers = self.table.numbers(self.own.batch_of(keys))
        if self.own.objects is not None:
            keys = held_keys(findable(keys))
        owners = self.words()[: len(self.table), 0]
        strangers = np.setdiff1d(numbers, owners)
        self.come(self.table.take(strangers))
        for key, number in zip(keys, numbers.tolist(), strict=True):
            entries = self.model.setdefault(key, [])
            slots = self.slots_of([number])
            assert len(slots) == len(entries)
            if slots and rng.random() < 0.4:
                gone = rng.choice(slots)
                entries.remove(tuple(self.words()[gone, 2:].tolist()))
                self.drop([gone])
            if not entries or rng.random() < 0.5:
                (slot,) = self.new_slots(1)
                at, n = rng.choice(TIMES), rng.randrange(1000)
                self.table.touch(np.array([slot]))
                self.own.fill(slot, (number, 7, at, n))
                entries.append((at, n))
            entries.sort()

    def pass_time(self, until: int) -> None:
        """All that is due is gone."""
        bound = MIN_TIMESTAMP
        while True:
            former, bound = bound, self.table.bound(bound, until)
            assert bound <= until
            self.come(self.table.take_due(bound))
            if bound in (until, former):
                break
        assert bound == until or self.table.soonest > until
        self.come(self.table.take_due(until))
        words = self.words()[: len(self.table)]
        self.drop(np.flatnonzero((words[:, 0] >= 0) & (words[:, 2] <= until)).tolist())
        left = {key: [e for e in entries if e[0] > until] for key, entries in self.model.items()}
        self.model = {key: entries for key, entries in left.items() if entries}

    def leave(self, rng: random.Random) -> None:
        numbers = self.idle(rng.choice([1, 5, 100]))
        if len(numbers):
            self.go(numbers, self.slots_of(numbers))

    def idle(self, most: int) -> Any:
        owners = self.words()[: len(self.table), 0]
        return self.table.idle(most, lambda start, stop: np.isin(np.arange(start, stop), owners))

    def checkpoint(self, rng: random.Random | None = None, fails: bool = False) -> None:
        self.n += 1
        n = CheckpointId(self.n)
        base = NO_CHECKPOINT if self.base is None else self.base[0].checkpoint_id
        increment = self.increments.begin(n, base)
        frozen = self.backend.snapshot(increment.since(OPERATOR))
        model = copied(self.model)
        for _ in range(0 if rng is None else rng.randrange(6)):  # the asynchronous part comes late
            assert rng is not None
            self.step(rng)
        part = [(OPERATOR, frozen, None)]
        layers, files = increment.layers, increment.files
        made = write_subtask(self.storage, n, TASK, part, layers=layers, files=files)
        self.increments.written(n, made)
        if not fails:
            manifest = decode(encode(manifest_of(n, (made,))), "manifest")
            self.storage.publish(manifest)
            self.base = manifest, model

    def restart(self, in_place: bool, same_program: bool = True) -> None:
        """From the newest complete checkpoint."""
        assert self.base is not None
        self.states.close()
        manifest, model = self.base
        self.model = copied(model)
        share = (self.storage, manifest, OPERATOR, 0, 1, MOST)
        files = inherited(*share, same_program=same_program) if in_place else None
        tables, _ = read_operator(*share, inherits=files is not None)
        self.start(tables, files)

    def check(self, parallelism: int) -> None:
        assert self.base is not None
        manifest, model = self.base
        found: Held = {}
        for subtask in range(parallelism):
            share = (self.storage, manifest, OPERATOR, subtask, parallelism, MOST)
            tables, _ = read_operator(*share)
            memory = MemoryKeyedStateBackend(range_for(subtask, parallelism, MOST), MOST)
            memory.restore(tables)
            here = Table(memory, self.form).here()
            assert not found.keys() & here.keys()
            found |= here
        assert found == model
        if model:
            stored = StoredStates(self.storage, manifest, "checkpoint")
            rows = stored.keyed(OPERATOR, "e").data.num_rows
            assert rows == sum(len(entries) for entries in model.values())


def manifest_of(n: CheckpointId, made: tuple[SubtaskSnapshot, ...]) -> Manifest:
    return Manifest("job", "job", n, 0, (OperatorShape(OPERATOR, "op", len(made), MOST),), made)


@pytest.fixture(name="jobs")
def _jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Job]]:
    monkeypatch.setattr("strom.state.live_keys.FIRST_LIMIT", 3)
    monkeypatch.setattr("strom.state.object_keys.FIRST_LIMIT", 3)
    made: list[Job] = []
    yield made
    for job in made:
        job.states.close()


@pytest.mark.parametrize(
    ("seed", "form"), [(n, FORMS[n % len(FORMS)]) for n in range(max(len(FORMS), seeds(18).stop))]
)
def test_what_left_is_what_comes_back(
    seed: int, form: str, tmp_path: Path, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_table, "FEW", [1, 3, 16][seed % 3])
    monkeypatch.setattr(entry_table, "PIECE", [2, 1 << 16][seed // 4 % 2])
    monkeypatch.setattr(entry_table, "PIECE_BYTES", [1, 100, 1 << 20][seed % 3])
    monkeypatch.setattr("strom.state.rocks.entries.dues.READ", [2, 1 << 14][seed // 3 % 2])
    rng = random.Random(seed)
    job = Job(tmp_path, spilling([8, 64 << 10][seed // 2 % 2]), form)
    jobs.append(job)
    away = 0
    for _ in range(16):
        for _ in range(rng.randrange(25)):
            job.step(rng)
            away = max(away, job.table.keys_away)
        job.checkpoint(rng, fails=rng.random() < 0.25)
        if job.base is not None and rng.random() < 0.4:
            job.check(rng.choice([1, 3]))
            job.restart(in_place=rng.random() < 0.6, same_program=rng.random() < 0.5)
    assert away > 5
    job.check(1)
    job.check(2)


@pytest.mark.parametrize("form", FORMS)
def test_key_groups_are_taken_from_each_former_database(
    form: str, tmp_path: Path, jobs: list[Job]
) -> None:
    """1 -> 3 -> 2 subtasks, each from the files of those before."""
    rng = random.Random(5)
    job = Job(tmp_path, spilling(8), form)
    job.keys = job.keys[: -6 if "objects" in form else None]  # all that can leave
    jobs.append(job)
    for _ in range(60):
        job.step(rng)
    job.go(*_all(job))
    job.checkpoint()
    assert job.base is not None
    for at, parallelism in enumerate((3, 2)):
        manifest, model = job.base
        n = CheckpointId(100 + at)
        made = []
        for subtask in range(parallelism):
            share = (job.storage, manifest, OPERATOR, subtask, parallelism, MOST)
            files = inherited(*share)
            assert files is not None
            states = KeyedStates(job.config)
            backend: Any = states.make(range_for(subtask, parallelism, MOST), MOST)
            backend.inherit(files)
            backend.restore(read_operator(*share, inherits=True)[0])
            table = Table(backend, form).entries
            table.validate()
            assert table.keys_away > 0
            assert not len(table), "nothing of it was read as tables"
            increment = Increments().begin(n, NO_CHECKPOINT)
            frozen = backend.snapshot(increment.since(OPERATOR))
            task = TaskId(TASK.vertex, subtask)
            made.append(write_subtask(job.storage, n, task, [(OPERATOR, frozen, None)]))
            states.close()
        job.base = manifest_of(n, tuple(made)), model
        job.check(1)


def _all(job: Job) -> tuple[Any, list[int]]:
    """All keys that can leave, and their slots."""
    numbers = job.idle(1 << 20)
    return numbers, job.slots_of(numbers)


def test_what_left_and_was_not_touched_is_not_written_again(
    tmp_path: Path, jobs: list[Job]
) -> None:
    job = Job(tmp_path, spilling(8))
    jobs.append(job)
    numbers = job.table.numbers(batch_of([(n, "") for n in range(50_000)]))
    job.table.resize(len(numbers))
    words = job.words()
    words[: len(numbers)] = np.stack([numbers, numbers, numbers + 10**6, numbers], axis=1)
    job.go(*_all(job))
    sizes = []
    for n in range(2):
        job.come(job.table.take(job.table.numbers(batch_of([(n, "")]))))
        job.checkpoint()
        assert job.base is not None
        sizes.append(job.base[0].new_size)
    assert sizes[0] > 500_000
    assert sizes[1] < sizes[0] / 20


@pytest.mark.parametrize("form", FORMS)
def test_a_snapshot_has_what_was_away_when_it_was_taken(
    form: str, tmp_path: Path, jobs: list[Job]
) -> None:
    """What comes back before it is read is in it, as it was."""
    job = Job(tmp_path, spilling(8), form)
    jobs.append(job)
    rng = random.Random(3)
    for _ in range(30):
        job.step(rng)
    job.go(*_all(job))
    assert job.table.keys_away > 10
    whole, model = job.backend.snapshot(), copied(job.model)
    job.pass_time(MAX_TIMESTAMP)
    assert not job.table.keys_away
    memory = MemoryKeyedStateBackend(range_for(0, 1, MOST), MOST)
    memory.restore(whole.tables())
    assert Table(memory, form).here() == model


def test_objects_that_cannot_leave_stay(tmp_path: Path, jobs: list[Job]) -> None:
    """Of one batch those leave that have bytes and a pickle; nobody asks the others again."""
    job = Job(tmp_path, spilling(8), "objects")
    jobs.append(job)
    keys = [Own(1), "a", Sealed("b"), ("x", Own(3)), "c", ("y", object)]
    numbers = job.table.numbers(job.own.batch_of(keys))
    for slot, number in zip(job.new_slots(len(keys)), numbers.tolist(), strict=True):
        job.own.fill(slot, (number, 7, 10, number))
    goes, slots = _all(job)
    assert goes.tolist() == [1, 4]
    job.go(goes, slots)
    assert _all(job)[1] == []
    assert job.table.keys_away == 2
    with pytest.raises(StateError, match="1 of 1 keys that are to leave memory are objects"):
        job.table.leave(numbers[:1], np.array(job.slots_of(numbers[:1])))
    job.table.compact(np.flatnonzero(job.words()[: len(job.table), 0] >= 0))
    assert _all(job)[1] == []
    assert len(job.own.here()) == 4


def test_keys_that_pass_through_a_restore_are_not_collected(
    tmp_path: Path, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An Arrow schema does not keep the objects that its codes stand for."""

    def collecting(schema: Any) -> LiveKeys:
        gc.collect()
        return LiveKeys(schema)

    job = Job(tmp_path, spilling(8), "objects")
    jobs.append(job)
    job.write(random.Random(1))
    job.checkpoint()
    monkeypatch.setattr(memory_table, "LiveKeys", collecting)
    job.restart(in_place=False)
    assert job.table.keys_away


@pytest.mark.parametrize("in_place", [True, False])
def test_codes_of_objects_that_are_away_are_forgotten(
    in_place: bool, tmp_path: Path, jobs: list[Job]
) -> None:
    """As they leave, and none is known after a restore but one for each type."""
    job = Job(tmp_path, spilling(8), "objects")
    jobs.append(job)
    count, known = 300, []
    for start in range(0, count, 10):
        job.backend.forget_object_keys()
        numbers = job.table.numbers(job.own.batch_of([f"k{n}" for n in range(start, start + 10)]))
        for slot, number in zip(job.new_slots(10), numbers.tolist(), strict=True):
            job.own.fill(slot, (number, 7, start, 1))
        job.go(*_all(job))
        job.table.tidy_owners(0, lambda: np.empty(0, np.int64))
        known.append(len(job.own.objects or ()))
    assert max(known) <= 20
    job.checkpoint()
    job.restart(in_place)
    assert job.table.keys_away == count
    assert len(job.own.objects or ()) == (0 if in_place else 1)
