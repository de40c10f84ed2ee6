"""What a dispatcher decides, through random lives, against what must hold."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from session_records import record
from strom.cluster.actions import Cancel, Find, Follow, Release, Settle, Start, Stop, Store
from strom.cluster.records import JobRecord, Phase
from strom.cluster.session import Session
from strom.core.errors import ConfigurationError
from strom.core.job_status import JobStatus


class World:
    """Coordinators, a registry that is written in order, and dispatchers that die."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.now, self.cpus = rng, 0, 6.0
        self.stored: dict[str, JobRecord] = {}
        self.over: dict[str, JobRecord] = {}
        self.alive: dict[str, int] = {}
        """Coordinators, with the run they are of."""
        self.groups: dict[str, float] = {}
        """Slots that there are, with the CPUs that they take."""
        self.starting: list[JobRecord] = []
        self.followed: set[str] = set()
        self.submitted = 0
        self.before: dict[str, str] = {}
        """The jobs whose place others take, by these."""
        self.halted: dict[str, str] = {}
        """Jobs that were stopped with a savepoint, and end FINISHED, and for whom."""
        self.begin()

    def begin(self) -> None:
        self.session = Session()
        self.starting, self.followed = [], set()
        self.stops: list[tuple[str, int | None]] = []
        """For whom others are to stop, with the run that these were in when they were told."""
        self.settles: list[str] = []
        self.carry_out(self.session.recover(self.stored.values(), self.now, list(self.groups)))
        self.carry_out(self.session.capacity({"CPU": self.cpus}, self.now))

    def carry_out(self, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, Release):
                self.groups.pop(action.group, None)
                held = [job.group for job in self.session.jobs if job.phase is not Phase.QUEUED]
                assert action.group not in held, "slots of a job are removed"
                continue
            job = action.record.job_id
            match action:
                case Store(kept) | Start(kept):
                    assert job not in self.over
                    if kept.phase is Phase.ENDED:
                        del self.stored[job]
                        self.over[job] = kept
                        self.followed.discard(job)
                        self.alive.pop(job, None)
                    else:
                        self.stored[job] = kept
                    if isinstance(action, Start):
                        self.starting.append(kept)
                case Find(kept):
                    alive = self.alive.get(job) is not None
                    self.carry_out(self.session.found(job, kept.run, alive, self.now))
                case Follow():
                    self.followed.add(job)
                case Cancel(kept):
                    if job in self.alive:
                        del self.alive[job]
                        how = JobStatus.FINISHED if job in self.halted else JobStatus.CANCELED
                        self.carry_out(self.session.ended(job, kept.run, how, None, self.now))
                case Stop():
                    self.stops.append((job, self.alive.get(self.before[job])))
                case Settle():
                    self.settles.append(job)
        self.check()

    def check(self) -> None:
        groups = [job.group for job in self.session.jobs if job.group is not None]
        assert len(set(groups)) == len(groups), "slots of two jobs"
        assert not self.session._room.idle & set(groups)
        assert sum(self.groups.values()) <= self.cpus + 1e-6, "more slots than there is room for"
        held = [j for j in self.session.jobs if j.phase in (Phase.STARTING, Phase.RUNNING)]
        assert sum(job.cpus for job in held) <= self.cpus + 1e-6
        assert len({job.job_id for job in held}) == len(held)

    def step(self) -> None:
        for job in sorted(self.halted.keys() & self.followed & self.alive.keys()):
            run = self.alive.pop(job)  # a job that was stopped ends soon
            self.carry_out(self.session.ended(job, run, JobStatus.FINISHED, None, self.now))
        self.now += self.rng.choice([0, 10, 2_000, 70_000])
        what = self.rng.choice(
            ["submit", "start", "start", "end", "lose", "cancel", "die", "tick", "move", "answer"]
        )
        if what == "submit" and self.submitted < 30:
            self.submitted += 1
            cpus, idle_ms = self.rng.choice([1, 2, 3, 6]), self.rng.choice([0, 5_000, 100_000])
            shape = self.rng.choice(["", str(cpus)])
            new = record(
                str(self.submitted), cpus, submitted_ms=self.now, shape=shape, idle_ms=idle_ms
            )
            self.stored[new.job_id] = new
            self.carry_out(self.session.submit(new, self.now))
        elif what == "start" and self.starting:
            self.start(self.starting.pop(0))
        elif what in ("end", "lose") and self.followed & self.alive.keys():
            job = self.rng.choice(sorted(self.followed & self.alive.keys()))
            run = self.alive.pop(job)
            if what == "end":
                done = self.session.ended(job, run, JobStatus.FINISHED, None, self.now)
            else:
                self.followed.discard(job)
                self.forget_savepoint(job)
                done = self.session.lost(job, run, "killed", self.now)
            self.carry_out(done)
        elif what == "move" and self.followed & self.alive.keys():
            self.move(self.rng.choice(sorted(self.followed & self.alive.keys())))
        elif what == "answer":
            self.answer()
        elif what == "cancel" and self.session.jobs and self.rng.random() < 0.3:
            job = self.rng.choice(self.session.jobs).job_id
            after = [one.job_id for one in self.session.jobs if one.follows == job]
            self.carry_out(self.session.cancel(job, self.now))
            assert all(self.over[one].status is JobStatus.CANCELED for one in after)
        elif what == "die" and self.rng.random() < 0.3:
            for one in self.starting:  # what it had begun comes to its end, or does not
                if self.rng.random() < 0.5:
                    self.begun(one)
            for new, run in self.stops:
                if (
                    run is not None
                    and self.alive.get(self.before[new]) == run
                    and self.rng.random() < 0.5
                ):
                    self.halted[self.before[new]] = new
            self.begin()
        else:
            self.carry_out(self.session.capacity({"CPU": self.cpus}, self.now))

    def move(self, old: str) -> None:
        """Another job is to take its place."""
        new = replace(
            record(str(self.submitted + 1), self.rng.choice([1, 2, 3, 6]), submitted_ms=self.now),
            follows=old,
        )
        try:
            self.session.check_replaced(old, new)
        except ConfigurationError:
            return
        self.submitted += 1
        self.before[new.job_id] = old
        self.stored[new.job_id] = new
        self.carry_out(self.session.take_place(new, self.now))

    def answer(self) -> None:
        """Of a coordinator that was to stop, or of who looked how a job ended."""
        if self.stops:
            new, told = self.stops.pop(self.rng.randrange(len(self.stops)))
            old = self.before[new]
            if told is not None and self.alive.get(old) == told and self.rng.random() < 0.7:
                self.halted[old] = new
                if old in self.followed and self.rng.random() < 0.5:  # its end is heard first
                    run = self.alive.pop(old)
                    done = self.session.ended(old, run, JobStatus.FINISHED, None, self.now)
                    self.carry_out(done)
                self.carry_out(self.session.stopped(new, f"savepoint of {old}", self.now))
            else:
                self.carry_out(self.session.stop_failed(new, "why", self.now))
        elif self.settles:
            new = self.settles.pop(0)
            if self.halted.get(self.before[new]) == new:
                done = self.session.stopped(new, f"savepoint of {self.before[new]}", self.now)
            else:
                done = self.session.not_stopped(new, "why", self.now)
            self.carry_out(done)

    def forget_savepoint(self, old: str) -> None:
        """Its coordinator dies: that it had stopped counts if the session has heard so."""
        heard = [j for j in self.session.jobs if j.follows == old and j.claims is not None]
        if not heard:
            self.halted.pop(old, None)

    def start(self, kept: JobRecord) -> None:
        job, run = kept.job_id, kept.run
        if self.rng.random() < 0.2:
            self.carry_out(self.session.start_failed(job, run, "no room", False, self.now))
            return
        assert job not in self.alive, "two coordinators of one job"
        self.begun(kept)
        self.carry_out(self.session.started(job, run, self.now))

    def begun(self, kept: JobRecord) -> None:
        """A coordinator lives, and takes the slots that it was told."""
        assert self.before.get(kept.job_id) not in self.alive, "who it follows still runs"
        self.alive[kept.job_id] = kept.run
        if kept.group is not None:
            self.groups.setdefault(kept.group, kept.cpus)
            assert self.groups[kept.group] == kept.cpus, "slots of another shape"

    def settle(self) -> None:
        """Nothing bad happens any more: all jobs come to their ends."""
        for _ in range(500):
            if not self.session.jobs:
                return
            self.now += 1_000
            while self.stops or self.settles:
                self.answer()
            while self.starting:
                kept = self.starting.pop(0)
                self.begun(kept)
                self.carry_out(self.session.started(kept.job_id, kept.run, self.now))
            for job in sorted(self.followed & self.alive.keys()):
                run = self.alive.pop(job)
                self.carry_out(self.session.ended(job, run, JobStatus.FINISHED, None, self.now))
            self.carry_out(self.session.capacity({"CPU": self.cpus}, self.now))
        raise AssertionError(f"these never end: {self.session.jobs}")


@pytest.mark.parametrize("seed", range(60))
def test_every_job_ends_once_whatever_dies(seed: int) -> None:
    world = World(random.Random(seed))
    for _ in range(250):
        world.step()
    world.settle()
    assert len(world.over) == world.submitted
    for new, old in world.before.items():
        why = world.over[new].error or ""
        assert world.halted.get(old) != new or "does not take the place" not in why, (
            "nobody goes on"
        )
    assert world.stored == {}
    assert world.alive == {}
    if seed % 2:
        world.now += 100_000
        world.carry_out(world.session.capacity({"CPU": world.cpus}, world.now))
    else:
        world.carry_out(world.session.close())
    assert world.groups == {}
