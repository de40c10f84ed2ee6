"""The API and the dashboard of one job, for as long as its program wants: what
`env.execute(dashboard=True)` opens.

It listens on loopback, on a port that the system chooses, with a token of its own that is in the
link behind `#`. Where the cluster of the job has a session that is served, the link leads there.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ...core.errors import ConfigurationError, StromError
from ..catalogs.one_job import OneJob
from .api import guarded, make_app
from .guard import Access
from .listener import RestServer
from .tokens import Tokens, tokens_in


class JobPages:
    """`url`: for the user's browser alone, as it may hold a token."""

    def __init__(
        self, url: str, server: RestServer | None = None, shown: OneJob | None = None
    ) -> None:
        self.url = url
        self._server = server
        self._shown = shown

    def close(self) -> None:
        """Idempotent."""
        if self._server is not None:
            self._server.close()
        if self._shown is not None:
            self._shown.close()


def open_pages(client: Any) -> JobPages:
    """Of the job that `client` (`JobClient`) is of, from now on. ConfigurationError if its host
    tells nothing that could be shown."""
    job_id = str(client.get_job_id())
    session = _session()
    if session is not None:
        return JobPages(link(session["rest"], session["rest_tokens"], f"/jobs/{job_id}"))
    if not hasattr(client, "view"):
        raise ConfigurationError(
            f"dashboard: the host of job {job_id} ({type(client).__name__}) tells nothing to show; "
            "the hosts 'local' and 'ray' do"
        )
    tokens = Tokens.fresh()
    shown = OneJob(client)
    try:
        server = RestServer(guarded(make_app(shown, Access(tokens))))
    except BaseException:
        shown.close()
        raise
    return JobPages(f"{server.url}/#token={tokens.operate}&/jobs/{job_id}", server, shown)


def link(url: str, token_file: str | None, page: str = "/jobs") -> str:
    """To a page of the dashboard at `url`; with the token to operate if this user may read it."""
    if token_file is None:
        return f"{url}/#{page}"
    try:
        # Not to be made anew here: the server knows those that it has read.
        token = tokens_in(Path(token_file)).operate if Path(token_file).exists() else None
    except (OSError, StromError):
        token = None
    return f"{url}/#{page}" if token is None else f"{url}/#token={token}&{page}"


def _session() -> dict[str, Any] | None:
    """What the REST server of the session says of itself, if this program is connected to one."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    from .session_server import about

    return about()
