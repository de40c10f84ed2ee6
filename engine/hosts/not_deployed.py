"""What a job master is told where tasks could not be started."""

from __future__ import annotations

from ...core.failure_text import described
from ...core.ids import Attempt
from ..coordinator.actions import Actions
from ..coordinator.job_master import JobMaster
from ..graph.execution import build_execution_graph
from .cluster import LittleRoomError


def not_deployed(master: JobMaster, attempt: Attempt, error: Exception, now_ms: int) -> Actions:
    """An event of the master."""
    if isinstance(error, LittleRoomError):
        smaller = build_execution_graph(error.job)
        return master.on_little_room(attempt, smaller, str(error), now_ms)
    return master.on_deploy_failed(attempt, described(error), now_ms)
