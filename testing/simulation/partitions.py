"""Tasks that are cut off for a time: from their coordinator, from other tasks, from both.

    coordinator   what it sends and what the task reports come later, in their order
    peers         no record and no credit passes, in either direction; behind that all of it does,
                  or the connections are gone
    lost          the coordinator takes the task for dead and starts others, and the task works on
                  for a time: what it reports comes when nobody waits for it any more

Nothing of the engine knows of it: `Partitions` stands between a coordinator and its tasks from the
moment when it is employed, and `holds` is asked by the exchange (`invariants.watching`).
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ...core.ids import Attempt, TaskId
from ...engine.exchange.inprocess import InProcessEndpoint
from ...engine.hosts.cooperative import CooperativeCluster, RunningTask
from ...engine.hosts.driver import JobDriver
from ...engine.messages import Mail, TaskReport
from ...engine.task.background import SteppedBackground

Kind = Literal["coordinator", "peers", "both", "lost"]

KINDS: Final[tuple[Kind, ...]] = ("coordinator", "peers", "both", "lost")

TIMES_MS: Final = (2, 8, 60)
"""How long one is cut off; the last is longer than a checkpoint may take."""


@dataclass
class _Cut:
    """One task that is cut off. `held`: what is on its way meanwhile, to be done in that order."""

    kind: Kind
    running: RunningTask
    until_ms: int
    held: deque[Callable[[], None]] = field(default_factory=deque)

    @property
    def from_coordinator(self) -> bool:
        return self.kind != "peers"


class _Reports(deque[TaskReport]):
    """What tasks report, but for those that are cut off."""

    def __init__(self, partitions: Partitions) -> None:
        super().__init__()
        self._partitions = partitions

    def append(self, report: TaskReport) -> None:
        later = super().append
        self._partitions.reported(report, lambda: later(report))


class Partitions:
    """Of one simulation, as told by its `Watch`."""

    def __init__(self, seed: int, count: int, window: int, lost: str) -> None:
        """`count` tasks are cut off, each at a random one of the first `window` steps. `lost`: what
        the coordinator hears of one that is taken for dead."""
        self._rng = random.Random(f"partitions-{seed}")
        self._steps = sorted(self._rng.randrange(window) for _ in range(count))
        self._step = 0
        self._lost = lost
        self._cuts: list[_Cut] = []
        self._driver: JobDriver | None = None
        self._cluster: CooperativeCluster | None = None
        self.made = 0
        """So many tasks have been cut off."""
        self.zombies = 0
        """Of them were taken for dead."""

    def employed(self, driver: JobDriver, cluster: CooperativeCluster) -> None:
        """A coordinator begins, with tasks of its own. Those of another one, which may go on, are
        cut off from nobody any more."""
        while self._cuts:
            self._end(self._cuts.pop(0), breaks=False)
        self._driver, self._cluster = driver, cluster
        if not self._steps:
            return
        cluster.reports = _Reports(self)
        send, deadline = cluster.send, cluster.next_deadline

        def send_later(task: TaskId, attempt: Attempt, mail: Mail) -> None:
            cut = self._cut_of(task, attempt)
            if cut is None:
                send(task, attempt, mail)
            else:
                cut.held.append(lambda: send(task, attempt, mail))

        def next_deadline() -> float | None:
            now_ms = cluster._clock.now_ms()
            due = [max(0, c.until_ms - now_ms) / 1000.0 for c in self._cuts]
            return min([*due, *([d] if (d := deadline()) is not None else [])], default=None)

        cluster.send = send_later  # type: ignore[method-assign]
        cluster.next_deadline = next_deadline  # type: ignore[method-assign]

    def reported(self, report: TaskReport, pass_on: Callable[[], None]) -> None:
        cut = self._cut_of(report.task, report.attempt)
        if cut is None:
            pass_on()
        else:
            cut.held.append(pass_on)

    def _cut_of(self, task: TaskId, attempt: Attempt) -> _Cut | None:
        """If it is cut off from its coordinator."""
        for cut in self._cuts:
            d = cut.running.task.deployment
            if cut.from_coordinator and d.task == task and d.attempt == attempt:
                return cut
        return None

    def holds(self, endpoint: InProcessEndpoint | None) -> bool:
        """Whether nothing passes between it and its peers now."""
        return any(
            cut.running.endpoint is endpoint and cut.kind in ("peers", "both") for cut in self._cuts
        )

    def stepped(self) -> None:
        """Somebody did a step."""
        if not self._steps and not self._cuts:
            return
        self._step += 1
        cluster = self._cluster
        assert cluster is not None
        now_ms = cluster._clock.now_ms()
        for cut in [c for c in self._cuts if c.until_ms <= now_ms]:
            self._cuts.remove(cut)
            self._end(cut, breaks=self._rng.random() < 0.3)
        for cut in self._cuts:
            if cut.kind == "lost" and self._rng.random() < 0.3:
                _step_zombie(cut.running)
        if self._steps and self._step >= self._steps[0]:
            self._steps.pop(0)
            self._begin(cluster, now_ms)

    def _begin(self, cluster: CooperativeCluster, now_ms: int) -> None:
        known = [c.running for c in self._cuts]
        alive = [t for t, r in cluster.tasks.items() if not r.task.state.over and r not in known]
        if not alive:
            return
        task = self._rng.choice(sorted(alive))
        running = cluster.tasks[task]
        cut = _Cut(self._rng.choice(KINDS), running, now_ms + self._rng.choice(TIMES_MS))
        self._cuts.append(cut)
        self.made += 1
        if cut.kind == "lost":
            self.zombies += 1
            del cluster.tasks[task]
            assert self._driver is not None
            self._driver.on_task_lost(task, running.task.deployment.attempt, self._lost)

    def _end(self, cut: _Cut, breaks: bool) -> None:
        """`breaks`: whether the connections did."""
        if cut.kind == "lost":
            cut.running.drop()
        elif cut.kind != "coordinator" and breaks:
            _break_links(cut.running.endpoint)
        while cut.held:
            cut.held.popleft()()

    def close(self) -> None:
        """The simulation is over."""
        for cut in self._cuts:
            if cut.kind == "lost":
                cut.running.drop()
        self._cuts.clear()


def _step_zombie(running: RunningTask) -> None:
    running.task.step()
    background: Any = running.background
    if isinstance(background, SteppedBackground) and background.busy:
        background.step()


def _break_links(endpoint: InProcessEndpoint) -> None:
    """As a connection does that was silent for too long: both ends find out by themselves. What is
    not connected yet is later."""
    for link in [*endpoint._links.values(), *endpoint._incoming.values()]:
        if link.target is None or link.over:
            continue
        for end, other in ((link.source, link.target), (link.target, link.source)):
            end._lost = f"{end._address.task}: {other._address.task} went away"
        link.over = True
