"""Nodes that are dead, also those of which Ray does not know it yet.

Ray asks a node several times, over 12 s to a minute, before it takes it for dead. Until then it
places actors there, and calls of these hang. But where a machine still answers, and refuses to be
connected to the port of its raylet, this is gone, and all processes of the node with it.
"""

from __future__ import annotations

import logging
import socket
from typing import Any, Final

import ray

from .control_service import patiently

log = logging.getLogger("strom")

PROBE_S: Final = 1.0
"""How long a raylet may take to be connected to."""


def death_of(node_id: str) -> str | None:
    """What has become of a node (Ray's id) of which a process is gone; None: it lives, or does not
    answer, which may pass: Ray will tell. Blocks for up to `PROBE_S`, and while Ray's control
    service is away."""
    if not node_id:
        return None
    try:
        nodes: list[dict[str, Any]] = patiently(ray.nodes)
    except Exception as error:
        log.debug("Ray does not tell of its nodes: %s", error)
        return None
    node = next((one for one in nodes if one["NodeID"] == node_id), None)
    if node is None:
        return f"its node died ({node_id})"
    if node["Alive"] and _answers(node):
        return None
    return f"its node died ({node['NodeManagerAddress']}, {node_id})"


def _answers(node: dict[str, Any]) -> bool:
    """False only if somebody says that there is nobody."""
    where = node["NodeManagerAddress"], node["NodeManagerPort"]
    try:
        socket.create_connection(where, PROBE_S).close()
    except ConnectionRefusedError:
        return False
    except OSError:
        pass
    return True
