"""Where a catalog is served, and to whom."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..core.errors import ConfigurationError, ResourceError
from .app import guarded, make_app
from .catalog import JobCatalog
from .guard import Access
from .program_runs import ProgramRuns
from .programs import Programs
from .server import RestServer, is_loopback
from .tokens import tokens_in

USUAL_PORT: Final = 8081
"""Flink's."""

HISTORY_PORT: Final = 8082
"""That of Flink's history server."""


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
