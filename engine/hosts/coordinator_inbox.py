"""What the driver of a job on Ray is told through its coordinator's inbox, and how it takes it.

Beside these: reports of tasks, as they are, and what its cluster tells (`ray_cluster`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...checkpoint.savepoints import Stop
from ..coordinator.askers import Asker
from .asked_rescales import RescaleAnswer, Wanted
from .asked_savepoints import SavepointAnswer
from .cluster_events import AllStopped, NotDeployed, Reached, RoomMade, TaskLost, TasksStopped
from .driver import JobDriver


class Cancel:
    """Somebody wants the job cancelled."""


@dataclass(frozen=True)
class SavepointWanted:
    """Somebody wants a savepoint; `told` is called once, with what the driver answers."""

    directory: str | None
    stop: Stop | None
    successor: str | None
    told: SavepointAnswer


@dataclass(frozen=True)
class RescaleWanted:
    """Somebody wants the job at other parallelisms; `told` is called once, with what comes of
    it."""

    wanted: Wanted
    told: RescaleAnswer
    asker: Asker = Asker.SOMEBODY


class GraphKept:
    """What the job is from now on is written down."""


class Answered:
    """A worker of the driver has got something done."""


def hand_over(event: Any, driver: JobDriver) -> None:
    """To the driver, on its thread."""
    match event:
        case TaskLost(task, attempt, reason):
            driver.on_task_lost(task, attempt, reason)
        case AllStopped(attempt):
            driver.on_all_stopped(attempt)
        case TasksStopped(tasks, attempt):
            driver.on_tasks_stopped(tasks, attempt)
        case NotDeployed(attempt, error):
            driver.on_not_deployed(attempt, error)
        case Reached(mails):
            driver.on_reached(mails)
        case RoomMade(request, why):
            driver.on_room(request, why)
        case RescaleWanted(wanted, told, asker):
            driver.rescale(wanted, told, asker)
        case GraphKept():
            driver.on_graph_kept()
        case Answered():
            driver.take_answer()
        case Cancel():
            driver.cancel()
        case SavepointWanted(directory, stop, successor, told):
            driver.savepoint(directory, stop, told, successor)
        case _:
            driver.on_report(event)
