"""What paths ask the catalog, as parameters of their functions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, HTTPException, Path, Request

from ...engine.hosts.job_view import JobView, TaskView, VertexView
from ..catalogs.catalog import JobCatalog
from ..shapes.vertices import tasks_of

ID = r"^[A-Za-z0-9_-]{1,64}$"
"""Of jobs and all else that has an id: nothing that a path or URL could be told by."""

JobParameter = Annotated[str, Path(alias="jobid", pattern=ID, description="The id of a job.")]
VertexParameter = Annotated[
    str, Path(alias="vertexid", pattern=ID, description="The id of a vertex, as the plan has it.")
]
SubtaskParameter = Annotated[int, Path(alias="subtaskindex", ge=0, le=1 << 20)]


# Those that only look things up are coroutines: no thread is needed for them.


async def _api(request: Request) -> Any:
    return request.app.state.api


async def _catalog(request: Request) -> JobCatalog:
    catalog: JobCatalog = request.app.state.api.catalog
    return catalog


Common = Annotated[Any, Depends(_api)]
"""A `servers.api.Api`."""

Catalog = Annotated[JobCatalog, Depends(_catalog)]


def _view(job: JobParameter, catalog: Catalog) -> JobView:
    return catalog.view(job)


View = Annotated[JobView, Depends(_view)]


async def _vertex(vertex: VertexParameter, view: View) -> VertexView:
    for one in view["vertices"]:
        if one["id"] == vertex:
            return one
    raise HTTPException(404, f"job '{view['id']}' has no vertex '{vertex}'")


Vertex = Annotated[VertexView, Depends(_vertex)]


async def _task(subtask: SubtaskParameter, view: View, vertex: Vertex) -> TaskView:
    for task in tasks_of(view, vertex["id"]):
        if task["subtask"] == subtask:
            return task
    raise HTTPException(404, f"vertex '{vertex['id']}' has no subtask {subtask}")


Task = Annotated[TaskView, Depends(_task)]
