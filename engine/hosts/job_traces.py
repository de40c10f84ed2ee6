"""What a driver's events become for OpenTelemetry: spans (`coordinator.traces`), sent as they end
(`traces`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.ids import TaskId
from ...core.traces_config import TracesConfig
from ..coordinator.actions import Actions
from ..coordinator.job_state import JobState
from ..coordinator.traces import TraceRecorder
from .traces import TraceExporter, open_traces


class JobTraces:
    """Of one job; without an endpoint it does nothing. `labels`: of its tasks. ConfigurationError
    as of `open_traces`."""

    def __init__(
        self, config: TracesConfig, job_id: str, name: str, labels: Mapping[TaskId, str]
    ) -> None:
        self._exporter: TraceExporter | None = open_traces(config, job_id, name)
        self._recorder = TraceRecorder(labels)

    def observe(
        self,
        event: str,
        args: tuple[Any, ...],
        earlier: JobState,
        state: JobState,
        actions: Actions,
        now_ms: int,
    ) -> None:
        """As of `TraceRecorder`."""
        if self._exporter is not None:
            ended = self._recorder.observe(event, args, earlier, state, actions, now_ms)
            self._exporter.export(ended)

    def adopt(self, labels: Mapping[TaskId, str]) -> None:
        """The job has these tasks from now on."""
        if self._exporter is not None:
            self._recorder.adopt(labels)

    def close(self, now_ms: int, why: str) -> None:
        """Send what is left; `why`: what was on did not end."""
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            exporter.export(self._recorder.close(now_ms, why))
            exporter.close()
