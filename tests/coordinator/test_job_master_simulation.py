"""The job master under a seeded random host: tasks, storage and faults in random order.

Each seed is one whole job with its own faults. Checked after every event: the master's own
invariants; never two attempts at once; checkpoint ids grow; a published checkpoint has the parts
of all tasks; splits are neither lost nor given twice within what a restore goes back to; the job
ends, once, within a bounded number of events once the faults are used up.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from strom.api.connectors.base import SplitEnumerator
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.manifest import Manifest, decode, encode
from strom.checkpoint.storage import MemoryStorage
from strom.core.config import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart
from strom.core.ids import TaskId
from strom.core.job_status import JobStatus
from strom.engine.coordinator import actions as act
from strom.engine.coordinator.job_master import JobMaster
from strom.engine.messages import (
    CheckpointAcknowledged,
    CheckpointCompleted,
    CheckpointDeclined,
    NoMoreSplits,
    SplitsAssigned,
    SplitsRequested,
    TaskCancelled,
    TaskDrained,
    TaskFailed,
    TaskFinished,
    TaskRunning,
    TriggerCheckpoint,
    ValuePublished,
)

SPLITS = 6
MAX_EVENTS = 4000


class Numbers(SplitEnumerator):
    """Hands out 0..SPLITS-1, now and then none for a while."""

    def __init__(self, sim: Simulation, left: list[int]) -> None:
        self.sim, self.left, self.open = sim, left, True
        sim.open_enumerators += 1

    def next_splits(self, subtask: int) -> list[int] | None:
        self.sim.fault("enumerator")
        if not self.left:
            return None
        return [self.left.pop(0)] if self.sim.rng.random() < 0.7 else []

    def snapshot(self) -> list[int]:
        return self.left

    def close(self) -> None:
        assert self.open
        self.open = False
        self.sim.open_enumerators -= 1


class Task:
    """A task's protocol, without data: sources read splits at once, sinks wait for both sources.

    `inbox` holds mail of the coordinator and elements of the sources, in the order they arrived.
    """

    def __init__(self, sim: Simulation, task: TaskId, attempt: int, read: list[int]) -> None:
        self.sim, self.id, self.attempt = sim, task, attempt
        self.inbox: deque[Any] = deque(["start"])
        self.reports: deque[Any] = deque()
        self.read = read
        self.arrived: dict[Any, int] = {}

    def report(self, kind: Any, *fields: Any) -> None:
        self.reports.append(kind(self.id, self.attempt, *fields))

    def acknowledge(self, n: int) -> None:
        self.sim.sources_read[n] = self.sim.sources_read.get(n, {})
        self.sim.folders.add(n)
        if self.id.vertex == "source":
            self.sim.sources_read[n][self.id] = list(self.read)
        if self.sim.chance("decline"):
            self.report(CheckpointDeclined, n, "no")
        elif not self.sim.chance("silent"):
            self.report(CheckpointAcknowledged, n, SubtaskSnapshot(self.id))

    def to_sinks(self, element: Any) -> None:
        for task in self.sim.tasks.values():
            if task.id.vertex == "sink":
                task.inbox.append(element)

    def step(self) -> None:
        match self.inbox.popleft():
            case "start":
                self.report(TaskRunning)
                if self.id.vertex == "source":
                    self.report(SplitsRequested, "source")
            case SplitsAssigned(splits=splits):
                self.read += splits
                self.report(ValuePublished, "sink", str(splits[0]), splits[0])
                self.report(SplitsRequested, "source")
            case NoMoreSplits():
                self.report(TaskDrained)
                self.to_sinks("end")
            case TriggerCheckpoint(checkpoint_id=n):
                self.acknowledge(n)
                self.to_sinks(("barrier", n))
            case CheckpointCompleted(terminal=True):
                self.report(TaskFinished)
            case "end" | ("barrier", _) as element:
                self.arrived[element] = self.arrived.get(element, 0) + 1
                if self.arrived[element] == 2:
                    self.report(TaskDrained) if element == "end" else self.acknowledge(element[1])


class Simulation:
    """The host. Faults draw from a budget, so that every job ends."""

    def __init__(self, seed: int, make_graph: Callable[..., Any]) -> None:
        self.rng = rng = random.Random(seed)
        self.now = 1_000
        self.budget = rng.choice([0, 0, 1, 2, 5, 10])
        self.cancel_at = rng.randint(0, 150) if rng.random() < 0.15 else None
        self.open_enumerators = 0
        self.tasks: dict[TaskId, Task] = {}
        self.deployed: int | None = None
        self.storage = MemoryStorage("job")
        self.folders: set[int] = set()
        """Checkpoints of which some task has written something that was not discarded."""
        self.answers: list[Callable[[], act.Actions]] = []
        self.tick_at: int | None = None
        self.sources_read: dict[int, dict[TaskId, list[int]]] = {}
        self.last_id = 0
        self.published: list[str] = []
        self.ended: act.JobEnded | None = None
        delay = timedelta(milliseconds=rng.choice([0, 5, 50]))
        restart = rng.choice(
            [
                None,
                FixedDelayRestart(3, delay),
                FixedDelayRestart(99, delay),
                ExponentialDelayRestart(initial=delay),
                FailureRateRestart(2, timedelta(milliseconds=200), delay),
            ]
        )
        self.graph = make_graph(
            restart,
            rng.choice([None, 5, 20]),
            timeout=timedelta(milliseconds=rng.choice([30, 1000])),
            min_pause=timedelta(milliseconds=rng.choice([0, 10])),
            tolerable_failures=rng.choice([0, 3]),
            retained=rng.choice([1, 2]),
        )
        self.master = JobMaster("job", self.graph, self.make_enumerators, rng)

    def chance(self, what: str, probability: float = 0.05) -> bool:
        """Whether a fault happens now."""
        if self.budget <= 0 or self.rng.random() >= probability:
            return False
        self.budget -= 1
        return True

    def fault(self, what: str) -> None:
        if self.chance(what):
            raise RuntimeError(f"injected: {what}")

    def make_enumerators(self, restored: dict[str, Any]) -> dict[str, Any]:
        self.fault("make")
        assert self.open_enumerators == 0
        return {"source": Numbers(self, restored.get("source", list(range(SPLITS))))}

    def carry_out(self, actions: act.Actions) -> None:
        for action in actions:
            assert self.ended is None, f"{action} after the end"
            match action:
                case act.LoadLatest(after=after):
                    assert self.deployed is None
                    self.answers.append(lambda after=after: self.load(after))
                case act.DeployAll(attempt=attempt, restore=restore):
                    self.deploy(attempt, restore)
                case act.CancelAll(attempt=attempt):
                    assert attempt == self.deployed
                    for task in self.tasks.values():
                        task.report(TaskCancelled)
                    self.answers.append(lambda a=attempt: self.stopped(a))
                case act.Send(task=task, mail=mail):
                    assert self.deployed is not None
                    if isinstance(mail, TriggerCheckpoint):
                        self.triggered(mail)
                    if task in self.tasks:
                        self.tasks[task].inbox.append(mail)
                case act.StoreCheckpoint(manifest=manifest):
                    self.answers.append(lambda m=manifest: self.store(m))
                case act.DiscardCheckpoint(checkpoint_id=n):
                    self.storage.delete(n)
                    self.folders.discard(n)
                case act.TickAt(time_ms=when):
                    self.tick_at = when
                case act.Publish(key=key):
                    self.published.append(key)
                case act.JobEnded():
                    self.ended = action
                case act.Warn():
                    pass
        self.master.validate()

    def triggered(self, mail: TriggerCheckpoint) -> None:
        assert mail.checkpoint_id >= self.last_id
        self.last_id = mail.checkpoint_id

    def deploy(self, attempt: int, restore: Manifest | None) -> None:
        assert self.deployed is None, "two attempts at once"
        self.deployed = attempt
        before = {} if restore is None else self.sources_read[restore.checkpoint_id]
        for task in self.graph.tasks:
            self.tasks[task] = Task(self, task, attempt, list(before.get(task, [])))
        if self.chance("deploy"):
            self.answers.append(lambda: self.master.on_deploy_failed(attempt, "no room", self.now))
        else:
            self.answers.append(lambda: self.master.on_deployed(attempt, self.now))

    def stopped(self, attempt: int) -> act.Actions:
        # Reports still on their way arrive later, as those of a former attempt.
        self.stale = [r for t in self.tasks.values() for r in t.reports]
        self.tasks.clear()
        self.deployed = None
        for report in self.rng.sample(self.stale, min(2, len(self.stale))):
            self.answers.append(lambda r=report: self.master.on_report(r, self.now))
        return self.master.on_all_stopped(attempt, self.now)

    def load(self, after: int) -> act.Actions:
        if self.chance("load"):
            return self.master.on_load_failed("storage is away", self.now)
        return self.master.on_loaded(self.storage.latest_valid(after=after), self.now)

    def store(self, manifest: Manifest) -> act.Actions:
        if self.chance("store", 0.1):
            return self.master.on_store_failed(manifest.checkpoint_id, "disk full", self.now)
        assert {s.task for s in manifest.subtasks} == set(self.graph.tasks)
        assert decode(encode(manifest), "test") == manifest
        self.storage.publish(manifest)
        return self.master.on_stored(manifest.checkpoint_id, self.now)

    def choices(self) -> list[Callable[[], act.Actions]]:
        """Everything that may happen next."""
        found: list[Callable[[], act.Actions]] = []
        found += [lambda i=i: self.answers.pop(i)() for i in range(len(self.answers))]
        for task in self.tasks.values():
            if task.inbox:
                found.append(lambda t=task: (t.step(), ())[1])
            if task.reports:
                found.append(lambda t=task: self.master.on_report(t.reports.popleft(), self.now))
        if self.tick_at is not None and (
            self.tick_at <= self.now or not found or self.chance("time jumps", 0.02)
        ):
            found.append(self.tick)  # else time would run out before anyone could answer
        elif self.rng.random() < 0.02:
            found.append(lambda: self.master.on_tick(self.now))  # spurious
        return found

    def tick(self) -> act.Actions:
        assert self.tick_at is not None
        self.now = max(self.now, self.tick_at)
        self.tick_at = None
        return self.master.on_tick(self.now)

    def attack(self) -> act.Actions:
        """A task fails or is lost, at a random moment."""
        if self.tasks and self.chance("task", 0.02):
            task = self.tasks[self.rng.choice(list(self.tasks))]
            if self.rng.random() < 0.5:
                return self.master.on_task_lost(task.id, task.attempt, "killed", self.now)
            recoverable = self.rng.random() < 0.9
            failed = TaskFailed(task.id, task.attempt, "bug", recoverable)
            return self.master.on_report(failed, self.now)
        return ()

    def run(self) -> act.JobEnded:
        self.carry_out(self.master.start(self.now))
        for event in range(MAX_EVENTS):
            if self.ended is not None:
                return self.ended
            if event == self.cancel_at:
                self.carry_out(self.master.on_cancel(self.now))
            choices = self.choices()
            assert choices or self.ended, f"nothing can happen: {self.master.status()}"
            if choices and self.ended is None:
                self.now += self.rng.choice([0, 0, 0, 1, 3])
                self.carry_out(self.rng.choice(choices)())
            self.carry_out(self.attack())
        raise AssertionError(f"does not end: {self.master.status()}")

    def check_end(self) -> None:
        assert self.ended is not None
        state = self.master.status()
        assert state.status is self.ended.status
        assert state.status.is_terminal
        assert self.open_enumerators == 0
        assert len(self.published) == len(set(self.published))
        assert self.folders <= set(self.storage.list()), "files of no checkpoint are left"
        for late in (self.master.on_cancel, self.master.on_tick):
            assert late(self.now + 10**9) == ()
        if state.status is JobStatus.FINISHED:
            self.check_finished()
        elif state.status is JobStatus.FAILED:
            assert self.ended.error
        else:
            assert self.cancel_at is not None

    def check_finished(self) -> None:
        """The last checkpoint accounts for every split exactly once."""
        latest = self.storage.latest_valid().manifest
        assert latest is not None
        assert latest.terminal
        read = self.sources_read[latest.checkpoint_id]
        assert sorted(n for splits in read.values() for n in splits) == list(range(SPLITS))
        assert sorted(self.published) == [str(n) for n in range(SPLITS)]


def run_seed(seed: int, make_graph: Callable[..., Any]) -> Simulation:
    simulation = Simulation(seed, make_graph)
    try:
        simulation.run()
        simulation.check_end()
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error
    return simulation


@pytest.mark.parametrize("block", range(4))
def test_random_jobs_end_well(block: int, graph: Callable[..., Any]) -> None:
    seen: dict[JobStatus, int] = {}
    restarts = 0
    for seed in range(block * 300, (block + 1) * 300):
        simulation = run_seed(seed, graph)
        assert simulation.ended is not None
        seen[simulation.ended.status] = seen.get(simulation.ended.status, 0) + 1
        restarts += simulation.master.status().restarts
    assert set(seen) == {JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED}, seen
    assert restarts > 100
