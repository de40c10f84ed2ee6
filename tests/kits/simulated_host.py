"""The host of a job master under a seed: tasks, workers and faults in random order.

The two workers, of the storage and of the sources, each do one thing after the other, some time
after it was asked for; their answers arrive in order, each some time after it was done.
"""

from __future__ import annotations

import pickle
import random
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from simulated_task import SPLITS, Numbers, Task
from strom.checkpoint.manifest import Manifest, decode, encode
from strom.checkpoint.savepoints import Savepoint
from strom.checkpoint.storage import MemoryStorage
from strom.core.config import ExponentialDelayRestart, FailureRateRestart, FixedDelayRestart
from strom.core.ids import TaskId
from strom.core.job_status import JobStatus
from strom.engine.coordinator import actions as act
from strom.engine.coordinator.job_master import JobMaster
from strom.engine.hosts.enumerators import Given
from strom.engine.messages import (
    CheckpointAborted,
    CheckpointCompleted,
    NoMoreSplits,
    SplitsAssigned,
    TaskCancelled,
    TaskFailed,
    TriggerCheckpoint,
)

MAX_EVENTS = 4000


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
        """The attempt of the enumerators, while tasks of it may run."""
        self.stopping: set[TaskId] = set()
        """Tasks that are stopped, or have been, while others run."""
        self.region_restarts = 0
        self.given: dict[str, Given] = {}
        """Of sources whose readers begin again one by one."""
        self.stale: list[Any] = []
        self.storage = MemoryStorage("job")
        self.disowned: set[int] = set()
        """Checkpoints and savepoints for which the master waits no more."""
        self.pending: set[int] = set()
        """Checkpoints of the job's own of which the tasks have been told, and not of their end."""
        self.most = 0
        """So many there were at once."""
        self.completed = 0
        """The last that tasks were told to be complete."""
        self.folders: set[int] = set()
        """Checkpoints of which some task has written something that was not discarded."""
        self.answers: list[Callable[[], act.Actions]] = []
        """Of the cluster, in any order."""
        self.work: dict[str, deque[Callable[[], Callable[[], act.Actions]]]] = {
            "storage": deque(),
            "sources": deque(),
        }
        """What the workers are to do; doing it gives the answer."""
        self.done: dict[str, deque[Callable[[], act.Actions]]] = {
            "storage": deque(),
            "sources": deque(),
        }
        """Answers of the workers on their way."""
        self.enumerators: dict[str, Numbers] = {}
        self.tick_at: int | None = None
        self.sources_read: dict[int, dict[TaskId, list[int]]] = {}
        self.last_id = 0
        self.asker = random.Random(-seed)
        self.asks = self.asker.choice([0.0, 0.02, 0.1])
        self.asked: dict[int, Savepoint] = {}
        """Requests for savepoints that are not answered."""
        self.written: set[str] = set()
        """Savepoints of which there is anything."""
        self.complete: set[str] = set()
        self.kept: set[str] = set()
        """Those that somebody was told of."""
        self.stopped_with: str | None = None
        self.requests = 0
        self.unread: list[int] = []
        """Splits that came to readers which had been told to end."""
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
            max_concurrent=random.Random(f"concurrent {seed}").choice([1, 1, 2, 3]),
        )
        self.master = JobMaster("job", self.graph, rng)
        self.sources = [v.id for v in self.graph.job.vertices if v.is_source]
        self.given = {operator: Given() for operator in self.master.shared_sources}

    def chance(self, what: str, probability: float = 0.05) -> bool:
        """Whether a fault happens now."""
        if self.budget <= 0 or self.rng.random() >= probability:
            return False
        self.budget -= 1
        return True

    def fault(self, what: str) -> None:
        if self.chance(what):
            raise RuntimeError(f"injected: {what}")

    # --- the workers ---------------------------------------------------------------------

    def begin(
        self, worker: str, work: Callable[..., Callable[[], act.Actions]], *args: Any
    ) -> None:
        self.work[worker].append(lambda: work(*args))

    def work_once(self, worker: str) -> act.Actions:
        self.done[worker].append(self.work[worker].popleft()())
        return ()

    def call(self, action: Any) -> Callable[[], act.Actions]:
        """The user's code of the sources."""
        master, attempt = self.master, action.attempt
        try:
            match action:
                case act.RestartReaders(_, began, sources, states, readers):
                    attempt = began
                    for operator in sources:
                        self.enumerators.pop(operator).close()
                    self.make_enumerators(states, sources)
                    repeated = [
                        (task, SplitsAssigned(operator, splits))
                        for operator, task in readers
                        for splits in self.given[operator].to(task.subtask)
                    ]
                    new = action.attempt
                    return lambda: master.on_readers_ready(new, repeated, self.now)
                case act.PrepareSources(_, states):
                    assert self.open_enumerators == 0, "the sources of two attempts at once"
                    for given in self.given.values():
                        given.clear()
                    self.make_enumerators(states, self.sources)
                    return lambda: master.on_sources_ready(attempt, self.now)
                case act.AskForSplits(_, operator, task):
                    splits = self.enumerators[operator].next_splits(task.subtask)
                    some = SplitsAssigned(operator, tuple(splits)) if splits else None
                    if splits and operator in self.given:
                        self.given[operator].add(task.subtask, tuple(splits))
                    answer = NoMoreSplits(operator) if splits is None else some
                    return lambda: master.on_splits(attempt, operator, task, answer, self.now)
                case act.SnapshotSources(_, n):
                    self.fault("snapshot")
                    for given in self.given.values():
                        given.mark(n)
                    states = {o: pickle.dumps(e.snapshot()) for o, e in self.enumerators.items()}
                    return lambda: master.on_sources_snapshot(attempt, n, states, self.now)
        except RuntimeError as error:
            why = str(error)
            return lambda: master.on_source_failed(attempt, why, self.now)
        raise AssertionError(action)

    def make_enumerators(self, states: Any, sources: Any) -> None:
        for operator in sources:
            self.fault("make")
            left = pickle.loads(states[operator]) if operator in states else list(range(SPLITS))
            self.enumerators[operator] = Numbers(self, left)

    def forget_splits(self, n: int) -> Callable[[], act.Actions]:
        for given in self.given.values():
            given.forget(n)
        return lambda: ()

    def close_enumerators(self) -> Callable[[], act.Actions]:
        made, self.enumerators = self.enumerators, {}
        for enumerator in made.values():
            enumerator.close()
        return lambda: ()

    def discard(self, n: int) -> Callable[[], act.Actions]:
        self.storage.delete(n)
        self.folders.discard(n)
        return lambda: ()

    # --- what the master asks for --------------------------------------------------------

    def carry_out(self, actions: act.Actions) -> None:
        for action in actions:
            assert self.ended is None, f"{action} after the end"
            match action:
                case act.LoadLatest(after=after):
                    assert self.deployed is None
                    self.begin("storage", self.load, after)
                case act.PrepareSources(attempt=attempt):
                    assert self.deployed is None
                    self.begin("sources", self.call, action)
                case act.AskForSplits(attempt=attempt) | act.SnapshotSources(attempt=attempt):
                    assert attempt == self.deployed
                    self.begin("sources", self.call, action)
                case act.CloseSources():
                    self.begin("sources", self.close_enumerators)
                case act.LoadForRegion(attempt=attempt, after=after):
                    self.begin("storage", self.load_for_region, attempt, after)
                case act.RestartReaders():
                    self.begin("sources", self.call, action)
                case act.ForgetSplits(checkpoint_id=n):
                    self.begin("sources", self.forget_splits, n)
                case act.DeployTasks(attempt, tasks, restore, _):
                    assert self.stopping.issuperset(tasks)
                    self.stopping.difference_update(tasks)
                    self.deploy_tasks(attempt, tasks, restore)
                case act.CancelTasks(attempt=attempt, tasks=tasks):
                    assert not self.stopping.intersection(tasks)
                    self.stopping.update(tasks)
                    self.region_restarts += 1
                    for task in tasks:
                        assert self.tasks[task].attempt == attempt
                    self.answers.append(lambda a=attempt, t=tasks: self.some_stopped(a, t))
                case act.DeployAll(attempt=attempt, restore=restore, halted=halted):
                    assert halted == (restore is not None and restore.stopped)
                    self.deploy(attempt, restore)
                case act.CancelAll(attempt=attempt):
                    assert self.deployed is not None
                    assert all(task.attempt <= attempt for task in self.tasks.values())
                    for task in self.tasks.values():
                        task.report(TaskCancelled)
                    self.answers.append(lambda a=attempt: self.stopped(a))
                case act.Send(task=task, mail=mail):
                    assert self.deployed is not None
                    assert task not in self.stopping, "mail for nobody"
                    if isinstance(mail, TriggerCheckpoint):
                        assert not self.stopping, "a checkpoint without all tasks"
                    self.heard(mail)
                    if task in self.tasks:
                        self.tasks[task].inbox.append(mail)
                case act.StoreCheckpoint(manifest=manifest, savepoint=savepoint):
                    assert manifest.savepoint == (savepoint is not None)
                    self.begin("storage", self.store, manifest, savepoint)
                case act.RemoveSavepoint(location=location):
                    assert location not in self.kept
                    self.begin("storage", self.remove, location)
                case act.AnswerSavepoint(request=request, path=path, error=error):
                    self.answered(self.asked.pop(request), path, error)
                case act.DiscardCheckpoint(checkpoint_id=n):
                    self.begin("storage", self.discard, n)
                case act.DisownCheckpoint(checkpoint_id=n):
                    self.disowned.add(n)
                case act.TickAt(time_ms=when):
                    self.tick_at = when
                case act.Publish(key=key):
                    self.published.append(key)
                case act.JobEnded():
                    self.ended = action
                case act.Warn():
                    pass
        assert all(n >= self.completed for n in self.pending), "what is needless is aborted"
        self.master.validate()

    def remove(self, location: str) -> Callable[[], act.Actions]:
        self.written.discard(location)
        return lambda: ()

    def answered(self, savepoint: Savepoint, path: str | None, error: str | None) -> None:
        assert (path is None) != (error is None)
        if path is None:
            return
        assert path in self.complete
        self.kept.add(path)
        if savepoint.stop is not None:
            assert self.stopped_with in (None, path), "who asks again is told of the same"
            self.stopped_with = path

    def ask(self) -> act.Actions:
        if self.asker.random() >= self.asks or self.ended is not None:
            return ()
        self.requests += 1
        stop = self.asker.choice([None, None, None, "halt", "drain"])
        self.asked[self.requests] = Savepoint(self.requests, f"/s/{self.requests}", stop)
        return self.master.on_savepoint(self.asked[self.requests], self.now)

    def heard(self, mail: Any) -> None:
        """What tasks are told of checkpoints, each of them the same."""
        match mail:
            case TriggerCheckpoint(checkpoint_id=n, savepoint=savepoint):
                assert n >= self.last_id
                self.last_id = n
                if savepoint is None:
                    self.pending.add(n)
                self.most = max(self.most, len(self.pending))
                assert len(self.pending) <= self.graph.job.config.checkpoint.at_once
            case CheckpointCompleted(checkpoint_id=n):
                assert n >= self.completed, "completed ids grow"
                self.completed = n
                self.pending.discard(n)
            case CheckpointAborted(checkpoint_id=n):
                self.pending.discard(n)

    def deploy(self, attempt: int, restore: Manifest | None) -> None:
        assert self.deployed is None, "two attempts at once"
        self.deployed = attempt
        self.pending.clear()
        self.deploy_tasks(attempt, self.graph.tasks, restore)

    def deploy_tasks(self, attempt: int, tasks: Any, restore: Manifest | None) -> None:
        before = {} if restore is None else self.sources_read[restore.checkpoint_id]
        for task in tasks:
            self.tasks[task] = Task(self, task, attempt, list(before.get(task, [])))
        if self.chance("deploy"):
            self.answers.append(lambda: self.master.on_deploy_failed(attempt, "no room", self.now))
        else:
            self.answers.append(lambda: self.master.on_deployed(attempt, self.now))

    def stopped(self, attempt: int) -> act.Actions:
        # Reports still on their way arrive later, as those of a former attempt.
        self.stale = [r for t in self.tasks.values() for r in t.reports]
        self.tasks.clear()
        self.stopping.clear()
        self.deployed = None
        for report in self.rng.sample(self.stale, min(2, len(self.stale))):
            self.answers.append(lambda r=report: self.master.on_report(r, self.now))
        return self.master.on_all_stopped(attempt, self.now)

    def some_stopped(self, attempt: int, tasks: Any) -> act.Actions:
        if not self.stopping.issuperset(tasks):  # all have been stopped meanwhile
            return self.master.on_tasks_stopped(attempt, tasks, self.now)
        gone = [self.tasks.pop(task) for task in tasks]
        assert {task.attempt for task in gone} == {attempt}
        stale = [report for task in gone for report in task.reports]
        for report in self.rng.sample(stale, min(2, len(stale))):
            self.answers.append(lambda r=report: self.master.on_report(r, self.now))
        return self.master.on_tasks_stopped(attempt, tasks, self.now)

    def load_for_region(self, attempt: int, after: int) -> Callable[[], act.Actions]:
        if self.chance("load"):
            why = "storage is away"
            return lambda: self.master.on_region_failed(attempt, why, self.now)
        latest = self.storage.latest_valid(after=after)
        return lambda: self.master.on_region_loaded(attempt, latest, self.now)

    def load(self, after: int) -> Callable[[], act.Actions]:
        if self.chance("load"):
            return lambda: self.master.on_load_failed("storage is away", self.now)
        latest = self.storage.latest_valid(after=after)
        return lambda: self.master.on_loaded(latest, self.now)

    def store(self, manifest: Manifest, savepoint: str | None) -> Callable[[], act.Actions]:
        n = manifest.checkpoint_id
        if self.chance("store", 0.1):
            return lambda: self.stored(n, "disk full")
        assert {s.task for s in manifest.subtasks} == set(self.graph.tasks)
        assert decode(encode(manifest), "test") == manifest
        if savepoint is None:
            self.storage.publish(manifest)
        else:
            assert savepoint in self.written
            self.complete.add(savepoint)
        return lambda: self.stored(n)

    def stored(self, n: int, error: str | None = None) -> act.Actions:
        """The answer to a StoreCheckpoint; what is published too late is taken back behind it."""
        if n in self.disowned:
            return ()
        if error is not None:
            return self.master.on_store_failed(n, error, self.now)
        return self.master.on_stored(n, self.now)

    def choices(self) -> list[Callable[[], act.Actions]]:
        """Everything that may happen next."""
        found: list[Callable[[], act.Actions]] = []
        found += [lambda i=i: self.answers.pop(i)() for i in range(len(self.answers))]
        found += [lambda w=w: self.work_once(w) for w, work in self.work.items() if work]
        found += [lambda d=done: d.popleft()() for done in self.done.values() if done]
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
            self.carry_out(self.ask())
        raise AssertionError(f"does not end: {self.master.status()}")

    def wind_up(self) -> None:
        """The workers do what was asked of them before the job ended; nothing follows from it."""
        while any(self.work.values()) or any(self.done.values()):
            found = [lambda w=w: self.work_once(w) for w, work in self.work.items() if work]
            found += [lambda d=done: d.popleft()() for done in self.done.values() if done]
            assert self.rng.choice(found)() == ()
            self.master.validate()

    def check_end(self) -> None:
        assert self.ended is not None
        self.wind_up()
        state = self.master.status()
        assert state.status is self.ended.status
        assert state.status.is_terminal
        assert self.open_enumerators == 0
        assert len(self.published) == len(set(self.published))
        assert self.folders <= set(self.storage.list()), "files of no checkpoint are left"
        assert not self.asked, "nobody answered"
        assert self.kept <= self.complete
        assert self.stopped_with is None or state.status is JobStatus.FINISHED
        (refused,) = self.master.on_savepoint(Savepoint(0, "/s/late"), self.now)
        assert isinstance(refused, act.AnswerSavepoint)
        assert refused.error
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
        done = [
            f"solo-{n}" if task.vertex == "solo" else str(n)
            for task, splits in self.sources_read[latest.checkpoint_id].items()
            for n in splits
        ]
        if latest.stopped:
            assert self.stopped_with is not None or self.requests
            assert len(done) == len(set(done))
            assert set(done) <= set(self.published)
            return
        assert self.stopped_with is None
        names = [""] if len(self.sources) == 1 else ["", "solo-"]
        every = sorted(f"{name}{n}" for name in names for n in range(SPLITS))
        assert sorted(done) == every
        assert sorted(self.published) == every
