"""What a task says of itself while it runs: its figures now and then, and, of a source, markers
that take the time that records are on their way."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ...core.clock import Clock
from ...core.elements import LatencyMarker
from ..exchange.endpoint import Endpoint
from ..messages import MetricsReported, TaskReport
from .chain import OperatorChain
from .checkpointing import TaskCheckpoints
from .deployment import TaskDeployment
from .edges import key_loads
from .metrics import process_figures
from .times import TaskTimes
from .wakeups import Wakeups

if TYPE_CHECKING:
    from .task import TaskState


class FigureReports:
    """Sends a report when the task is open, and then one each interval, on the task's thread."""

    def __init__(
        self,
        deployment: TaskDeployment,
        endpoint: Endpoint,
        chain: OperatorChain,
        checkpoints: TaskCheckpoints,
        clock: Clock,
        wakeups: Wakeups,
        state: Callable[[], TaskState],
        report: Callable[[TaskReport], None],
    ) -> None:
        self.times = TaskTimes(clock.monotonic)
        """What the task does with its time, which it tells."""
        self._task, self._attempt = deployment.task, deployment.attempt
        self._interval_ms = _ms(deployment.config.metrics_interval)
        self._endpoint = endpoint
        self._chain = chain
        self._checkpoints = checkpoints
        self._clock = clock
        self._state = state
        self._report = report
        self._wake = wakeups.register(self._on_due)
        self._opened_cpu_s = 0.0
        """CPU time of this process when the task was open: what its start cost."""

    def open(self) -> None:
        """The task is."""
        self._opened_cpu_s = time.process_time()
        self._on_due(self._clock.now_ms())

    def _on_due(self, now_ms: int) -> None:
        self.report()
        self._wake(now_ms + self._interval_ms)

    def report(self) -> None:
        """Those of now. Of functions, what they say by themselves."""
        self.send(self.now())

    def now(self, exact: bool = False) -> dict[str, Any]:
        """All figures. `exact`: also those of functions that count on threads of their own."""
        return {
            "operators": self._chain.metrics(self._clock.monotonic(), exact),
            "accumulators": self._chain.accumulators(exact),
            "exchange": self._endpoint.statistics(),
            "keys": key_loads(self._chain.writers),
            "state": self._state().value,
            "times": self.times.report(),
            "process": {**process_figures(), "opened_cpu_s": self._opened_cpu_s},
            "restore": self._checkpoints.local.figures(),
            "checkpoint": self._checkpoints.figures,
        }

    def send(self, figures: dict[str, Any]) -> None:
        self._report(MetricsReported(self._task, self._attempt, figures))


class LatencyMarkers:
    """Of a source's task: due at each interval, sent once its outputs take something."""

    def __init__(
        self, deployment: TaskDeployment, chain: OperatorChain, clock: Clock, wakeups: Wakeups
    ) -> None:
        self.due = False
        """Whether one is to be sent as soon as possible."""
        self._source = deployment.vertex.operators[0].operator_id
        self._subtask = deployment.task.subtask
        self._interval = deployment.config.metrics.latency_interval
        self._chain = chain
        self._clock = clock
        self._wake = wakeups.register(self._on_due)

    def open(self) -> None:
        """The task is."""
        self._next(self._clock.now_ms())

    def _next(self, now_ms: int) -> None:
        if self._interval is not None and self._chain.source is not None:
            self._wake(now_ms + _ms(self._interval))

    def _on_due(self, now_ms: int) -> None:
        self.due = True
        self._next(now_ms)

    def send(self, ended: bool) -> None:
        """The one that is due. `ended`: the source has, behind which nothing comes."""
        self.due = False
        if not ended:
            head = self._chain.head
            marker = LatencyMarker(self._source, self._subtask, self._clock.now_ms())
            head.guard(head.emit_latency_marker, marker)


def _ms(interval: timedelta) -> int:
    return max(1, round(interval.total_seconds() * 1000))
