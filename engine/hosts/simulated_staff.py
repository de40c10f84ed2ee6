"""A coordinator of a simulated job, its workers and its tasks: what lives and dies together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...core.clock import VirtualClock
from ..task.background import Done, SteppedBackground
from .cooperative import CooperativeCluster
from .driver import JobDriver

Unit = Callable[[], bool]
"""Does one step, and says whether there was anything to do."""


class Worker(SteppedBackground):
    """One that takes its time: each piece of work may begin so many ms after it was submitted."""

    def __init__(self, clock: VirtualClock, delay_ms: Callable[[], int]) -> None:
        super().__init__()
        self._clock = clock
        self._delay_ms = delay_ms
        self.unit: Unit = self.step
        """What steps it."""
        self._ready: deque[int] = deque()
        """When each piece of work that waits may begin."""

    def submit(self, work: Callable[[], Any], done: Done) -> None:
        super().submit(work, done)
        self._ready.append(self._clock.now_ms() + self._delay_ms())

    def step(self) -> bool:
        """The oldest piece of work, if it is time; whether anything was done."""
        if not self._ready or self._ready[0] > self._clock.now_ms():
            return False
        self._ready.popleft()
        return super().step()

    def next_deadline(self) -> float | None:
        """Seconds until there is something to do."""
        return max(0, self._ready[0] - self._clock.now_ms()) / 1000.0 if self._ready else None

    def close(self, wait_s: float = 0.0) -> None:
        super().close()
        self._ready.clear()


@dataclass
class Staff:
    """`workers`: of the coordinator; the tasks of `cluster` have writers of their own.
    `back_at_ms`: when it goes on, if it does nothing until then."""

    driver: JobDriver
    cluster: CooperativeCluster
    workers: list[Worker] = field(default_factory=list)
    back_at_ms: int = 0

    def step_driver(self) -> bool:
        return self.cluster.step_driver(self.driver)

    def deadlines(self) -> list[float | None]:
        """Seconds until each has something to do by itself; nothing once the job is over. A look of
        the autoscaler is none: time would never pass by more than that."""
        if self.driver.ended:
            return []
        wishes = [self.cluster.next_deadline(), self.driver.next_tick_s(looks=False)]
        wishes += [worker.next_deadline() for worker in self.workers]
        writers = [running.background for running in self.cluster.tasks.values()]
        return wishes + [w.next_deadline() for w in writers if isinstance(w, Worker)]

    def close(self) -> None:
        self.driver.close()
        self.cluster.close()
