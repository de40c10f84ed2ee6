"""The API as an ASGI application over a catalog of jobs.

All paths stand below `/v1`, and without it, as Flink's do; the dashboard is at `/`. The paths are
the modules `*_paths`; what they answer is made by the modules `*_shapes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from ..dashboard import pages
from . import (
    action_paths,
    checkpoint_paths,
    cluster_paths,
    errors,
    figure_paths,
    job_paths,
    log_paths,
    program_paths,
    vertex_paths,
)
from .catalog import JobCatalog
from .flame_graphs import FlameGraphs
from .guard import Access, Guard
from .program_runs import ProgramRuns
from .programs import Programs
from .triggers import Triggers

DESCRIPTION = """Jobs of strom. Paths and shapes are those of Flink's REST API where that has them;
what strom says besides stands in fields of its own."""

PATHS = (
    cluster_paths,
    job_paths,
    log_paths,
    vertex_paths,
    checkpoint_paths,
    action_paths,
    figure_paths,
    program_paths,
)


@dataclass
class Api:
    """What paths have in common: `request.app.state.api`."""

    catalog: JobCatalog
    access: Access = field(default_factory=Access)
    programs: Programs | None = None
    """None: programs are neither taken nor run."""
    runs: ProgramRuns = field(default_factory=lambda: ProgramRuns(None))
    triggers: Triggers = field(default_factory=Triggers)
    flames: FlameGraphs = field(default_factory=FlameGraphs)


def make_app(
    catalog: JobCatalog,
    access: Access | None = None,
    programs: Programs | None = None,
    runs: ProgramRuns | None = None,
) -> FastAPI:
    """The application without its guard: for whoever puts it behind one (`guarded`)."""
    app = FastAPI(
        title="strom",
        version="1",
        description=DESCRIPTION,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=errors.RESPONSES,
        generate_unique_id_function=lambda route: route.name,
    )
    access = access or Access()
    access = replace(access, public=(*access.public, *pages.PUBLIC), programs=programs is not None)
    app.state.api = Api(catalog, access, programs, runs or ProgramRuns(None))
    errors.install(app)
    app.include_router(pages.router)
    for paths in PATHS:
        app.include_router(paths.router, prefix="/v1")
        app.include_router(paths.router, include_in_schema=False)
    return app


def guarded(app: FastAPI) -> ASGIApp:
    """What a server serves: nobody reaches `app` but through its guard."""
    access: Any = app.state.api.access
    return Guard(app, access)
