"""Elements on their way on one edge, as a checkpoint keeps them."""

from __future__ import annotations

from typing import Any

from strom.checkpoint.cancellation import Cancellation
from strom.checkpoint.handles import SubtaskSnapshot
from strom.checkpoint.in_flight import Place, Waiting
from strom.checkpoint.manifest import Manifest, OperatorShape
from strom.core.ids import EVEN, CheckpointId, Deal, OperatorId, TaskId
from strom.engine.task.in_flight import captured

EDGE = "map>window:0"
NO = Cancellation("nobody's")


def waiting(place: Place, elements: Any) -> Waiting:
    return place, [captured(element) for element in elements]


def manifest_of(handles: dict[TaskId, Any], parallelism: int, deal: Deal = EVEN) -> Manifest:
    return Manifest(
        "job",
        "a job",
        CheckpointId(3),
        0,
        (OperatorShape(OperatorId("window"), "Window", parallelism, 128, deal=deal),),
        tuple(SubtaskSnapshot(task, (), handle) for task, handle in handles.items()),
    )
