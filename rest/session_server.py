"""The REST API of a session: a detached Ray actor beside the dispatcher.

It is a process of its own: no client, slow or greedy, takes anything from the dispatcher, which
starts and follows jobs. It runs on the machine of whoever starts it, where its address is meant.
Ray starts it again when it dies; the session goes on meanwhile.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ..core.errors import ConfigurationError, ResourceError, StromError, TransportError
from ..engine.hosts.ray_connect import NAMESPACE
from .server import is_loopback
from .serving import Serving, serve
from .session_jobs import SessionJobs

SERVER: Final = "strom-rest"
"""The actor's name."""

START_S: Final = 60.0


class SessionServer:
    """Made into a Ray actor by `start`."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        cluster = ray.get_runtime_context().gcs_address
        self._server = serve(SessionJobs(), serving, cluster=cluster)

    async def about(self) -> dict[str, Any]:
        """Where it serves."""
        return {
            "rest": self._server.url,
            "rest_tokens": self._serving.tokens,
            "rest_programs": self._serving.programs,
        }


def start(serving: Serving) -> dict[str, Any]:
    """Serve the session of the cluster that this process is connected to, on this machine; or find
    who does: what it says of itself. ResourceError if the port is taken."""
    here = ray.get_runtime_context().get_node_id()
    actor = ray.remote(SessionServer).options(
        name=SERVER,
        namespace=NAMESPACE,
        lifetime="detached",
        num_cpus=0,
        max_restarts=-1,
        get_if_exists=True,
        scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
    )
    made = actor.remote(serving)
    try:
        found: dict[str, Any] = ray.get(made.about.remote(), timeout=START_S)
    except RayError as error:
        cause = error.cause if isinstance(error, RayTaskError) else None
        with suppress(RayError):
            ray.kill(made, no_restart=True)
        raise ResourceError(f"the REST API could not start: {_why(cause or error)}") from None
    _check(serving, found)
    return found


def _check(wanted: Serving, found: dict[str, Any]) -> None:
    """ConfigurationError if who serves already does not serve as it is wanted."""
    host, _, port = str(found["rest"]).removeprefix("http://").rpartition(":")
    other = [
        wanted.tokens is not None and found["rest_tokens"] != wanted.tokens,
        bool(wanted.port) and port != str(wanted.port),
        not is_loopback(wanted.host) and host != wanted.host,
        wanted.programs is not None and found["rest_programs"] != wanted.programs,
    ]
    if any(other):
        raise ConfigurationError(
            f"the session is served already, at {found['rest']} and with other options: `strom "
            "cluster stop` first; its jobs go on"
        )


def about() -> dict[str, Any] | None:
    """Of the one that serves; None: there is none, or it does not answer now."""
    try:
        server = ray.get_actor(SERVER, namespace=NAMESPACE)
        found: dict[str, Any] = ray.get(server.about.remote(), timeout=5.0)
    except (ValueError, RayError):
        return None
    return found


def stop() -> bool:
    """Whether there was one."""
    try:
        ray.kill(ray.get_actor(SERVER, namespace=NAMESPACE), no_restart=True)
    except ValueError:
        return False
    return True


def _why(error: Exception) -> str:
    if isinstance(error, StromError) and not isinstance(error, TransportError):
        return str(error)
    lines = [line for line in str(error).splitlines() if "Error" in line and "File" not in line]
    return lines[-1].strip() if lines else str(error)
