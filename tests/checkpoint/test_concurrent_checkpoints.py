"""Several checkpoints at once: scripted, and by seeds with tasks that build on each other's files.

The simulation has the real coordinator, `SharedFiles` and `Increments`; a task's state is a set of
files, as RocksDB's are, some of which come and go between two snapshots. At each step: never more
on their way than allowed; those that complete have growing ids; what a newer one makes needless is
aborted at the tasks; each complete checkpoint has all files that it names, and no chain is longer
than `full_every`. At the end there is no file that no complete checkpoint names.
"""

from __future__ import annotations

import random
from collections import deque
from datetime import timedelta
from typing import Any

from strom.checkpoint.coordinator import CheckpointCoordinator
from strom.checkpoint.coordinator_types import (
    Abort,
    Complete,
    Discard,
    Disown,
    FailJob,
    Saved,
    Say,
    Store,
    Trigger,
)
from strom.checkpoint.handles import (
    DatabaseHandle,
    FileHandle,
    OperatorSnapshot,
    SubtaskSnapshot,
)
from strom.checkpoint.increments import Increments
from strom.checkpoint.names import shared_by
from strom.checkpoint.savepoints import Answer, Savepoint
from strom.checkpoint.shared_files import SharedFiles
from strom.core.config import CheckpointConfig
from strom.core.ids import CheckpointId, OperatorId, TaskId

A, B = TaskId("a", 0), TaskId("b", 0)
MS = timedelta(milliseconds=1)


def coordinator(at_once: int, **config: Any) -> CheckpointCoordinator:
    config.setdefault("tolerable_failures", 99)
    given = CheckpointConfig(100 * MS, timeout=1000 * MS, max_concurrent=at_once, **config)
    made = CheckpointCoordinator([A, B], given)
    made.start(0)
    return made


def acknowledge(c: CheckpointCoordinator, n: int, now: int) -> list[Any]:
    return [
        a for t in (A, B) for a in c.on_acknowledge(t, CheckpointId(n), SubtaskSnapshot(t), now)
    ]


def triggered(actions: Any) -> list[tuple[int, int]]:
    return [(a.checkpoint_id, a.base) for a in actions if isinstance(a, Trigger)]


def test_as_many_as_allowed_and_the_newest_that_completes_ends_the_others() -> None:
    c = coordinator(3)
    for n in (1, 2, 3):
        assert triggered(c.on_tick(100 * n)) == [(n, 0)]
    assert c.on_tick(400) == (), "three are on their way"
    assert c.statistics().in_progress == c.pending == (1, 2, 3)
    # The second one is first: the first is needless, which is no failure of it.
    (store,) = acknowledge(c, 2, 410)
    assert isinstance(store, Store)
    done = c.on_stored(CheckpointId(2), 420)
    assert done[0] == Complete(2, False)
    assert [a for a in done if isinstance(a, Abort | Discard)] == [
        Abort(1, "checkpoint 2, a newer one, is complete"),
        Discard(1),
    ]
    assert triggered(done) == [(4, 2)]
    assert c.pending == (3, 4)
    c.validate()


def test_what_is_acknowledged_behind_a_newer_publication_waits_for_it() -> None:
    c = coordinator(2)
    c.on_tick(100)
    c.on_tick(200)
    assert [type(a) for a in acknowledge(c, 2, 210)] == [Store]
    assert acknowledge(c, 1, 220) == []
    c.validate()
    failed = c.on_store_failed(CheckpointId(2), "denied", 230)
    assert [a.checkpoint.checkpoint_id for a in failed if isinstance(a, Store)] == [1]
    c.validate()
    assert Complete(1, False) in c.on_stored(CheckpointId(1), 240)
    assert c.statistics().failed == 1


def test_a_base_is_kept_while_one_on_its_way_builds_on_it() -> None:
    c = coordinator(2, retained=1)
    c.on_tick(100)
    acknowledge(c, 1, 110)
    c.on_stored(CheckpointId(1), 120)
    assert triggered(c.on_tick(200)) == [(2, 1)]
    assert triggered(c.on_tick(300)) == [(3, 1)]
    acknowledge(c, 2, 310)
    done = c.on_stored(CheckpointId(2), 320)
    assert not [a for a in done if isinstance(a, Discard)], "the third may hold files of the first"
    acknowledge(c, 3, 330)
    assert {Discard(1), Discard(2)} <= set(c.on_stored(CheckpointId(3), 340))
    c.validate()


def test_savepoints_are_taken_beside_and_a_stop_alone() -> None:
    c = coordinator(2)
    c.on_tick(100)
    c.on_tick(200)
    saving = c.request_savepoint(Savepoint(7, "/s/7"), 210)
    assert triggered(saving) == [(3, 0)], "it does not count"
    assert c.request_savepoint(Savepoint(8, "/s/8"), 211) == (), "one savepoint at a time"
    acknowledge(c, 3, 220)
    saved = c.on_stored(CheckpointId(3), 230)
    assert saved[:2] == (Saved(3), Answer(7, path="/s/7"))
    assert triggered(saved) == [(4, 0)]
    assert c.pending == (1, 2, 4), "it makes none needless, and none makes it"
    # One that stops the job waits for all others, and nothing new begins meanwhile.
    assert c.request_savepoint(Savepoint(9, "/s/9", "halt"), 240) == ()
    assert c.on_tick(900) == ()
    for n in (1, 2, 4):
        acknowledge(c, n, 901)
        done = c.on_stored(CheckpointId(n), 902)
    assert triggered(done) == [(5, 2)]
    c.validate()


def test_the_terminal_one_waits_for_those_on_their_way() -> None:
    c = coordinator(2)
    c.on_tick(100)
    c.on_tick(200)
    assert c.trigger_terminal(210) == ()
    acknowledge(c, 1, 220)
    assert triggered(c.on_stored(CheckpointId(1), 230)) == []
    acknowledge(c, 2, 240)
    assert triggered(c.on_stored(CheckpointId(2), 250)) == [(3, 2)]


def test_each_fails_by_itself_also_while_it_is_being_stored() -> None:
    c = coordinator(2, tolerable_failures=1)
    c.on_tick(100)
    c.on_tick(200)
    acknowledge(c, 1, 210)
    late = c.on_tick(1100)
    assert late[:2] == (Disown(1), Abort(1, late[1].reason))
    assert "did not answer" in late[1].reason
    assert c.pending == (2,)
    assert any(isinstance(a, Say) for a in late)
    assert [type(a) for a in c.on_tick(1200) if isinstance(a, FailJob)] == [FailJob]
    c.on_job_restart()
    c.validate()


def test_every_so_many_one_builds_on_nothing() -> None:
    c = coordinator(1, full_every=3)
    bases = []
    for n in range(1, 11):
        bases += triggered(c.trigger(n * 10))
        acknowledge(c, n, n * 10)
        c.on_stored(CheckpointId(n), n * 10)
        c.validate()
    assert bases == [
        (1, 0), (2, 1), (3, 2), (4, 0), (5, 4), (6, 5), (7, 0), (8, 7), (9, 8), (10, 0)
    ]  # fmt: skip


class Writer:
    """A task: what it writes, and what it hears."""

    def __init__(self, sim: Simulation, task: TaskId) -> None:
        self.sim, self.task = sim, task
        self.increments = Increments()
        self.files: set[str] = {"0"}
        self.mail: deque[Any] = deque()
        self.writing: dict[CheckpointId, tuple[SubtaskSnapshot, list[str]]] = {}
        """What is still to be written for each; in any order."""

    def step(self) -> None:
        rng = self.sim.rng
        if self.mail and rng.random() < 0.6:
            match self.mail.popleft():
                case Trigger(checkpoint_id=n, base=base):
                    self.snapshot(n, base)
                case Abort(checkpoint_id=n):
                    self.writing.pop(n, None)
                    self.increments.aborted(n)
        elif self.writing:
            n = rng.choice(list(self.writing))
            made, left = self.writing[n]
            if left:
                self.sim.disk.add(left.pop())
                return
            del self.writing[n]
            self.increments.written(n, made)
            if rng.random() < 0.1:
                self.sim.do(self.sim.c.on_decline(self.task, n, "no", self.sim.now))
            else:
                self.sim.do(self.sim.c.on_acknowledge(self.task, n, made, self.sim.now))

    def snapshot(self, n: CheckpointId, base: CheckpointId) -> None:
        rng = self.sim.rng
        self.files = {f for f in sorted(self.files) if rng.random() < 0.8} | {
            f"{n}{self.task.vertex}"
        }
        known = self.increments.begin(n, base).files.get(OperatorId("o"), {})
        handles, new = [], []
        for name in sorted(self.files):
            handle = known.get(name)
            if handle is None:
                path = f"{n}-{self.task.vertex}{name}"
                handle = FileHandle(path, 1, "0" * 16, shared=True)
                new.append(path)
            handles.append((name, handle))
        operator = OperatorSnapshot(
            OperatorId("o"), (), database=DatabaseHandle(tuple(handles), ())
        )
        made = SubtaskSnapshot(self.task, (operator,))
        self.writing[n] = made, new


class Simulation:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.at_once = rng.randint(1, 3)
        self.full_every = rng.choice([None, 1, 2, 4])
        self.retained = rng.randint(1, 3)
        self.c = coordinator(self.at_once, retained=self.retained, full_every=self.full_every)
        self.now = 0
        self.disk: set[str] = set()
        self.shared = SharedFiles()
        self.tasks = [Writer(self, task) for task in (A, B)]
        self.work: deque[Any] = deque()
        self.complete: dict[CheckpointId, frozenset[str]] = {}
        """The files of those that are published and not deleted."""
        self.depth: dict[CheckpointId, int] = {CheckpointId(0): 0}
        self.last = 0
        self.overlapped = 0
        self.refused = 0

    def do(self, actions: Any) -> None:
        for action in actions:
            match action:
                case Trigger(checkpoint_id=n, base=base):
                    self.depth[n] = self.depth[base] + 1
                    assert self.full_every is None or self.depth[n] <= self.full_every
                    self.tell(action)
                case Abort():
                    self.tell(action)
                case Store() | Discard():
                    self.work.append(action)
                case Disown(checkpoint_id=n):  # not begun: no work hangs here
                    begun = [w for w in self.work if isinstance(w, Store)]
                    (left,) = [w for w in begun if w.checkpoint.checkpoint_id == n]
                    self.work.remove(left)
                case Complete(checkpoint_id=n):
                    assert n > self.last
                    self.last = n
                case FailJob():
                    raise AssertionError(action)
        assert len(self.c.pending) <= self.at_once
        assert all(n > self.last for n in self.c.pending)
        self.overlapped += len(self.c.pending) > 1
        self.c.validate()

    def tell(self, mail: Any) -> None:
        for task in self.tasks:
            task.mail.append(mail)

    def store(self) -> None:
        """One piece of the storage's work."""
        match self.work.popleft():
            case Store(checkpoint=checkpoint):
                n = checkpoint.checkpoint_id
                needed = frozenset(
                    f.path for s in checkpoint.acknowledged.values() for f in s.files if f.shared
                )
                if self.rng.random() < 0.1:
                    self.do(self.c.on_store_failed(n, "full", self.now))
                    return
                self.shared.completed(n, needed)
                self.complete[n] = needed
                self.do(self.c.on_stored(n, self.now))
            case Discard(checkpoint_id=n):
                self.complete.pop(n, None)
                present = () if self.shared.knows(n) else sorted(self.disk)
                gone = self.shared.discarded(n, present)
                self.disk.difference_update(gone)
                self.shared.removed(gone)
        self.shared.validate()

    def check(self) -> None:
        for n, needed in self.complete.items():
            assert needed <= self.disk, f"checkpoint {n} lacks {needed - self.disk}"

    def run(self) -> None:
        for _ in range(600):
            self.now += self.rng.choice([0, 5, 20])
            match self.rng.randrange(6):
                case 0:
                    self.do(self.c.on_tick(self.now))
                case 1 if self.work:
                    self.store()
                case _:
                    self.rng.choice(self.tasks).step()
            self.check()
        # The end: tasks do no more, what was asked of the storage is done.
        self.do(self.c.on_job_restart())
        for task in self.tasks:
            task.writing.clear()
        while self.work:
            self.store()
            self.check()
        needed = set[str]().union(*self.complete.values())
        assert all(shared_by(name) not in self.complete for name in self.disk - needed)
        # What tasks wrote behind its removal goes with the next start, which looks at all there is.
        self.disk.difference_update(self.shared.found(self.complete, (), self.disk))
        assert self.disk == needed
        assert len(self.complete) <= self.retained


def test_by_seeds_files_are_there_while_they_are_needed_and_not_longer() -> None:
    complete = overlapped = 0
    for seed in range(300):
        simulation = Simulation(seed)
        try:
            simulation.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        complete += simulation.c.statistics().completed
        overlapped += simulation.overlapped
    assert complete > 1500, complete
    assert overlapped > 5000, overlapped
