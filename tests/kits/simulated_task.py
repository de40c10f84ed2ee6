"""A task without data, and an enumerator, for the simulated host of the job master's tests."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from strom.api.connectors.base import SplitEnumerator
from strom.checkpoint.handles import SubtaskSnapshot
from strom.core.ids import TaskId
from strom.engine.messages import (
    CheckpointAborted,
    CheckpointAcknowledged,
    CheckpointCompleted,
    CheckpointDeclined,
    EndSources,
    NoMoreSplits,
    SplitsAssigned,
    SplitsRequested,
    TaskDrained,
    TaskFinished,
    TaskRunning,
    TriggerCheckpoint,
    ValuePublished,
)

if TYPE_CHECKING:
    from simulated_host import Simulation

SPLITS = 6


class Numbers(SplitEnumerator):
    """Hands out 0..SPLITS-1, now and then none for a while."""

    def __init__(self, sim: Simulation, left: list[int]) -> None:
        self.sim, self.left, self.open = sim, list(left), True
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
    """A task's protocol, without data: sources read splits at once, sinks wait for both sources;
    those of "solo" read, and send to nobody.

    `inbox` holds mail of the coordinator and elements of the sources, in the order they arrived.
    """

    def __init__(self, sim: Simulation, task: TaskId, attempt: int, read: list[int]) -> None:
        self.sim, self.id, self.attempt = sim, task, attempt
        self.inbox: deque[Any] = deque(["start"])
        self.reports: deque[Any] = deque()
        self.read = read
        self.arrived: dict[Any, int] = {}
        self.halted_at: int | None = None
        self.held: list[Any] = []
        """What came while the task was halted."""
        self.over = False
        """Of a source: it reads no more."""
        self.given_up: set[int] = set()
        """Checkpoints that it heard to be given up: their barriers mean nothing."""

    @property
    def reads(self) -> bool:
        return self.id.vertex != "sink"

    def report(self, kind: Any, *fields: Any) -> None:
        self.reports.append(kind(self.id, self.attempt, *fields))

    def acknowledge(self, n: int, savepoint: str | None = None, halt: bool = False) -> None:
        self.sim.sources_read[n] = self.sim.sources_read.get(n, {})
        if savepoint is None:
            self.sim.folders.add(n)
        else:
            self.sim.written.add(savepoint)
        if halt and self.halted_at is None:
            self.halted_at = n
        if self.reads:
            self.sim.sources_read[n][self.id] = list(self.read)
        if self.sim.chance("decline"):
            self.report(CheckpointDeclined, n, "no")
        elif not self.sim.chance("silent"):
            self.report(CheckpointAcknowledged, n, SubtaskSnapshot(self.id))

    def to_sinks(self, element: Any) -> None:
        if self.id.vertex == "solo":
            return
        for task in self.sim.tasks.values():
            if task.id.vertex == "sink":
                task.inbox.append(element)

    def end(self) -> None:
        if not self.over:
            self.over = True
            self.report(TaskDrained)
            self.to_sinks("end")

    def step(self) -> None:
        mail = self.inbox.popleft()
        if isinstance(mail, CheckpointAborted):
            self.given_up.add(mail.checkpoint_id)
        if self.halted_at is not None and (
            mail == "end" or isinstance(mail, SplitsAssigned | NoMoreSplits | EndSources)
        ):
            self.held.append(mail)
            return
        match mail:
            case "start":
                self.report(TaskRunning)
                if self.reads:
                    self.report(SplitsRequested, self.id.vertex)
            case SplitsAssigned(splits=()):
                pass
            case SplitsAssigned() if self.over:
                self.sim.unread += mail.splits
            case SplitsAssigned(splits=splits):
                self.read += splits
                key = str(splits[0])
                key = f"solo-{key}" if self.id.vertex == "solo" else key
                self.report(ValuePublished, "sink", key, splits[0])
                self.report(SplitsRequested, self.id.vertex)
            case NoMoreSplits() | EndSources():
                self.end()
            case TriggerCheckpoint(checkpoint_id=n, savepoint=savepoint, halt=halt):
                self.acknowledge(n, savepoint, halt)
                self.to_sinks(("barrier", n, savepoint, halt))
            case CheckpointAborted(checkpoint_id=n) if self.halted_at == n:
                self.halted_at = None
                self.inbox.extendleft(reversed(self.held))
                self.held.clear()
            case CheckpointCompleted(terminal=True):
                self.report(TaskFinished)
            case "end" | ("barrier", _, _, _) as element:
                self.arrived[element] = self.arrived.get(element, 0) + 1
                if self.arrived[element] == 2 and element == "end":
                    self.report(TaskDrained)
                elif self.arrived[element] == 2 and element[1] not in self.given_up:
                    self.acknowledge(*element[1:])
