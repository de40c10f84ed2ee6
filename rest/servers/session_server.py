"""The REST API of a session: a detached Ray actor beside the dispatcher.

It is a process of its own: no client, slow or greedy, takes anything from the dispatcher, which
starts and follows jobs. It runs on the machine of whoever starts it, where its address is meant.
Ray starts it again when it dies, at the same address; the session goes on meanwhile. Ray does not
try a constructor again that fails, so nothing may keep this one from being made: what it needs may
be away for a while.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ...core.errors import ConfigurationError, ResourceError, StromError, TransportError
from ...engine.hosts.ray_connect import NAMESPACE
from ..catalogs.session_jobs import SessionJobs
from .api import USUAL_PORT, Serving, serve
from .listener import RestServer, free_port
from .tokens import tokens_in

log = logging.getLogger("strom")

SERVER: Final = "strom-rest"
"""The actor's name."""

START_S: Final = 60.0
RETRY_S: Final = 2.0
"""Until a server that could not listen is tried again."""


class SessionServer:
    """Made into a Ray actor by `start`."""

    def __init__(self, wanted: Serving, serving: Serving) -> None:
        """`wanted`: what was asked for. `serving`: the same at the port that was chosen for it."""
        self._wanted, self._serving = wanted, serving
        self._cluster = ray.get_runtime_context().gcs_address
        self._tokens = _mark(serving)
        self._server: RestServer | None = None
        self._opening = threading.Lock()
        threading.Thread(target=self._keep_trying, name="strom-rest-start", daemon=True).start()

    def about(self) -> dict[str, Any]:
        """Where it serves. ResourceError while it cannot listen there."""
        server = self._open()
        return {
            "rest": server.url,
            "rest_tokens": self._serving.tokens,
            "rest_programs": self._serving.programs,
        }

    def serves(self) -> tuple[Serving, str]:
        """What it was asked for, and the mark of the tokens that it knows."""
        return self._wanted, self._tokens

    def _open(self) -> RestServer:
        with self._opening:
            if self._server is None:
                self._server = serve(SessionJobs(), self._serving, cluster=self._cluster)
            return self._server

    def _keep_trying(self) -> None:
        while True:
            try:
                self._open()
            except (OSError, StromError) as error:
                log.warning("the REST API of the session does not serve yet: %s", error)
                time.sleep(RETRY_S)
            else:
                return


def start(serving: Serving) -> dict[str, Any]:
    """Serve the session of the cluster that this process is connected to, on this machine; or find
    who does: what it says of itself. ResourceError if the port is taken; ConfigurationError if it
    is served otherwise already."""
    found = _served(serving)
    if found is not None:
        return found
    here = ray.get_runtime_context().get_node_id()
    actor = ray.remote(SessionServer).options(
        name=SERVER,
        namespace=NAMESPACE,
        lifetime="detached",
        num_cpus=0,
        max_restarts=-1,
        scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
    )
    try:
        made = actor.remote(serving, replace(serving, port=_port(serving)))
    except ValueError:  # somebody else has just made it
        found = _served(serving)
        if found is None:
            raise ResourceError("the REST API of the session is being stopped: try again") from None
        return found
    try:
        about: dict[str, Any] = ray.get(made.about.remote(), timeout=START_S)
    except RayError as error:
        cause = error.cause if isinstance(error, RayTaskError) else None
        with suppress(RayError):
            ray.kill(made, no_restart=True)
        raise ResourceError(f"the REST API could not start: {_why(cause or error)}") from None
    return about


def _served(wanted: Serving) -> dict[str, Any] | None:
    """What the one that serves already says of itself; None: there is none. ConfigurationError if
    it is not what is wanted, ResourceError if it does not answer."""
    try:
        server = ray.get_actor(SERVER, namespace=NAMESPACE)
    except ValueError:
        return None
    try:
        about: dict[str, Any] = ray.get(server.about.remote(), timeout=START_S)
        served, tokens = ray.get(server.serves.remote(), timeout=START_S)
    except RayError as error:
        cause = error.cause if isinstance(error, RayTaskError) else None
        raise ResourceError(
            f"the REST API of the session is there and does not answer ({_why(cause or error)}): "
            "try again, or `strom cluster stop` first; its jobs go on"
        ) from None
    others = [
        field.name
        for field in fields(Serving)
        if field.name != "port" and getattr(served, field.name) != getattr(wanted, field.name)
    ]
    if wanted.port and not about["rest"].endswith(f":{wanted.port}"):
        others.append("port")
    if not others and tokens != _mark(wanted):
        others.append("tokens, which have changed")
    if others:
        raise ConfigurationError(
            f"the session is served already, at {about['rest']} and with other options (its "
            f"{', '.join(others)}): `strom cluster stop` first; its jobs go on"
        )
    return about


def _port(serving: Serving) -> int:
    """One that is chosen once: who comes back after a death is where its clients look."""
    if serving.port:
        return serving.port
    usual = free_port(serving.host, USUAL_PORT) if serving.port is None else 0
    return usual or free_port(serving.host, 0)


def _mark(serving: Serving) -> str:
    """Of the tokens in its file: the same for the same, and nobody has them from it."""
    if serving.tokens is None:
        return ""
    try:
        tokens = tokens_in(Path(serving.tokens))
    except (OSError, StromError) as error:
        return f"none: {error}"
    return hashlib.sha256(f"{tokens.read}\n{tokens.operate}".encode()).hexdigest()


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
    if isinstance(error, GetTimeoutError):
        return f"its process gave no answer within {START_S:.0f} s: the machine may be overloaded"
    if isinstance(error, StromError) and not isinstance(error, TransportError):
        return str(error)
    lines = [line for line in str(error).splitlines() if "Error" in line and "File" not in line]
    return lines[-1].strip() if lines else str(error)
