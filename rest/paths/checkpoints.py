"""Paths that read checkpoints."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Path

from ...engine.hosts.job_view import CheckpointView
from ..shapes.checkpoints import (
    Checkpoint,
    CheckpointConfig,
    Checkpoints,
    VertexParts,
    checkpoint,
    checkpoint_config,
    checkpoints_of,
    vertex_parts,
)
from .parameters import Vertex, View

router = APIRouter(prefix="/jobs/{jobid}/checkpoints", tags=["checkpoints"])


def _checkpoint(
    number: Annotated[int, Path(alias="checkpointid", ge=0, le=1 << 62)], view: View
) -> CheckpointView:
    for one in view["checkpoints"]["history"]:
        if one["id"] == number:
            return one
    raise HTTPException(404, f"job '{view['id']}' knows no checkpoint {number}, or no longer")


Wanted = Annotated[CheckpointView, Depends(_checkpoint)]


@router.get("")
def checkpoints(view: View) -> Checkpoints:
    """How many there were, how large, how long they took, and the last of them."""
    return checkpoints_of(view)


@router.get("/config")
def checkpoints_config(view: View) -> CheckpointConfig:
    """When and where they are taken."""
    found = checkpoint_config(view)
    if found is None:
        raise HTTPException(404, f"job '{view['id']}' takes no checkpoints but the last one")
    return found


@router.get("/details/{checkpointid}")
def checkpoint_details(view: View, wanted: Wanted) -> Checkpoint:
    """One checkpoint, vertex by vertex; of an older one only sums are known."""
    return checkpoint(wanted, view)


@router.get("/details/{checkpointid}/subtasks/{vertexid}")
def checkpoint_subtasks(wanted: Wanted, vertex: Vertex) -> VertexParts:
    """One checkpoint of one vertex, subtask by subtask, while that is known."""
    if wanted["parts"] is None:
        raise HTTPException(
            404, f"of checkpoint {wanted['id']} only sums are known: its subtasks are of the past"
        )
    return vertex_parts(wanted, vertex)
