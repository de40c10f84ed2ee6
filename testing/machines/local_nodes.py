"""A Ray cluster of several nodes on this machine, which this process is connected to and which can
be killed. They need neither root nor namespaces, and have one address: what is lost with a node is
its processes alone.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psutil
import ray
from ray._private.authentication.authentication_token_setup import enable_token_auth_by_default
from ray.cluster_utils import Cluster
from strom.engine.hosts.ray_connect import NAMESPACE
from strom.testing.redis import RedisServer

QUICK: Final[Mapping[str, int]] = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_failure_threshold": 4,
}
"""Ray takes a node for dead after four seconds in which nobody listens there, not after a
quarter of a minute."""


class LocalNodes:
    """`cpus`: logical ones of each node; the head is the first. Each has a folder for temporary
    files of its own. This process must not be connected to Ray before."""

    def __init__(
        self,
        cpus: Sequence[int],
        settings: Mapping[str, int] = QUICK,
        redis: RedisServer | None = None,
    ) -> None:
        """`settings`: Ray's own. `redis`: that runs, and where the head keeps what it knows: its
        control service may die then (`kill_control`)."""
        self._cpus = cpus
        self._redis = redis
        self._settings = dict(settings)
        self._before: dict[str, str | None] = {}
        self._folder = ""
        self._nodes: dict[str, Any] = {}
        """By Ray's id; those that live."""
        self._temporary: dict[str, Path] = {}
        """By Ray's id, also of those that do not live any more."""

    def __enter__(self) -> Self:
        # Ray puts sockets there, whose paths may have 107 bytes.
        self._folder = tempfile.mkdtemp(prefix="sn", dir="/tmp")
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        enable_token_auth_by_default()
        settings = {"RAY_TMPDIR": self._folder, "RAY_USAGE_STATS_ENABLED": "0"}
        kept = {}
        if self._redis is not None:
            settings["RAY_REDIS_ADDRESS"] = self._redis.address
            kept = {"redis_username": "default", "redis_password": self._redis.password}
        self._before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        self._cluster = Cluster()
        try:
            self._started(self._cpus[0], _system_config=self._settings, **kept)
            for cpus in self._cpus[1:]:
                self._started(cpus, wait=False)
            self._cluster.wait_for_nodes(240)
            ray.init(
                address=self._cluster.address,
                namespace=NAMESPACE,
                logging_level="error",
                log_to_driver=False,
            )
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    @property
    def head(self) -> str:
        """Ray's id of the node that this process is connected to."""
        return str(self._cluster.head_node.node_id)

    @property
    def others(self) -> list[str]:
        """Ray's ids of those that live, but for the head."""
        return [node for node in self._nodes if node != self.head]

    @property
    def temporary_folders(self) -> list[Path]:
        """For temporary files, of the nodes that live. From any thread."""
        return [self._temporary[node] for node in list(self._nodes)]

    def add(self, cpus: int) -> str:
        """Another node; its id. Raises what Ray does if it does not start within its time."""
        return self._started(cpus)

    def _started(self, cpus: int, **more: Any) -> str:
        temporary = Path(self._folder, f"n{secrets.token_hex(3)}")
        temporary.mkdir()
        before = set(psutil.Process().children())
        try:
            node = self._cluster.add_node(
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=80_000_000,
                env_vars={"TMPDIR": str(temporary)},
                **more,
            )
        except Exception:  # Ray (2.60) waits for half a minute, and leaves what it has started
            for one in set(psutil.Process().children()) - before:
                _kill([one, *one.children(recursive=True)])
            raise
        self._temporary[node.node_id] = temporary
        self._nodes[node.node_id] = node
        return str(node.node_id)

    def kill(self, node: str) -> float:
        """SIGKILL for its raylet and all processes of it; when that was (`time.time`)."""
        raylet = psutil.Process(self._nodes.pop(node).all_processes["raylet"][0].process.pid)
        victims = [raylet, *raylet.children(recursive=True)]
        at = time.time()
        _kill(victims)
        return at

    def kill_control(self) -> float:
        """SIGKILL for Ray's control service (GCS) on the head, and nothing else; when that was
        (`time.time`). For the cluster to go on, `start_control` before Ray's own patience is over
        (RAY_gcs_rpc_server_reconnect_timeout_s, a minute)."""
        assert self._redis is not None, "all that the cluster knows would be gone"
        at = time.time()
        self._cluster.head_node.kill_gcs_server()
        return at

    def start_control(self) -> None:
        """Once more, at the same address. Returns when it is being started."""
        self._cluster.head_node.start_gcs_server()

    def is_known_dead(self, node: str) -> bool:
        """To Ray."""
        return any(one["NodeID"] == node and not one["Alive"] for one in ray.nodes())

    def actors(self, class_name: str) -> dict[str, list[str]]:
        """The ids of the living actors of a class, by node."""
        from ray._private.state import actors

        found: dict[str, list[str]] = {}
        for one in actors().values():
            if one["State"] == "ALIVE" and one["ActorClassName"].endswith(class_name):
                found.setdefault(one["Address"]["NodeID"], []).append(one["ActorID"])
        return found

    def _end(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(self._folder, ignore_errors=True)


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
