"""The API of a catalog: an ASGI application, and where it is served, and to whom.

All paths stand below `/v1`, and without it, as Flink's do; the dashboard is at `/`. They are in
`rest/paths`; what they answer is made in `rest/shapes`.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from starlette.types import ASGIApp

from ...core.errors import ConfigurationError, ResourceError
from ...dashboard import pages
from ..catalogs.catalog import JobCatalog
from ..paths import actions, checkpoints, cluster, jobs, logs, vertices
from ..paths import programs as program_paths
from ..paths.flame_graphs import FlameGraphs
from ..paths.long_work import Triggers
from ..programs.runs import ProgramRuns
from ..programs.uploads import Programs
from . import errors
from .guard import Access, Guard
from .listener import RestServer, is_loopback
from .tokens import tokens_in

USUAL_PORT: Final = 8081
"""Flink's."""

HISTORY_PORT: Final = 8082
"""That of Flink's history server."""

DESCRIPTION = """Jobs of strom. Paths and shapes are those of Flink's REST API where that has them;
what strom says besides stands in fields of its own."""

PATHS = (cluster, jobs, logs, vertices, checkpoints, actions, program_paths)


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


@dataclass(frozen=True)
class Serving:
    """`port`: 0 for any that is free, None for the usual one if it is free. `tokens`: the file with
    the tokens; None: whoever reaches the port may do all. `names`: of hosts that clients may call
    the server by, beside addresses and the machine's own name. ConfigurationError for one that
    others reach without a token."""

    host: str = "127.0.0.1"
    port: int | None = None
    tokens: str | None = None
    names: tuple[str, ...] = ()
    programs: str | None = None
    """The folder that programs are uploaded to; None: they are neither taken nor run."""

    def __post_init__(self) -> None:
        if self.tokens is None and not is_loopback(self.host):
            raise ConfigurationError(
                f"'{self.host}' can be reached from other machines: the REST API needs tokens there"
            )

    def access(self) -> Access:
        """ConfigurationError for a file of tokens that is none."""
        tokens = None if self.tokens is None else tokens_in(Path(self.tokens))
        own = () if is_loopback(self.host) else (socket.gethostname(), socket.getfqdn())
        return Access(tokens, frozenset(name.lower() for name in (*self.names, *own)))


def serve(
    catalog: JobCatalog, serving: Serving, usual: int = USUAL_PORT, cluster: str | None = None
) -> RestServer:
    """From now on, until it is closed. `cluster`: the address of the Ray cluster that programs run
    on. ResourceError if it cannot listen there."""
    programs = None if serving.programs is None else Programs(Path(serving.programs))
    app = guarded(make_app(catalog, serving.access(), programs, ProgramRuns(cluster)))
    if serving.port is not None:
        return RestServer(app, serving.host, serving.port)
    try:
        return RestServer(app, serving.host, usual)
    except ResourceError:
        return RestServer(app, serving.host, 0)
