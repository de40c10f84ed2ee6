"""Which Ray a program uses: the one it was told, the one that is there, or one of its own."""

from __future__ import annotations

import logging
import os
import secrets
from typing import Any

log = logging.getLogger("strom")

NAMESPACE = "strom"
"""Ray namespace of all named actors."""


def connect_to_ray(
    num_cpus: int | None = None, address: str | None = None, log_to_driver: bool = True
) -> None:
    """Connect this process to Ray, unless it is already.

    To the cluster at `address`, else at RAY_ADDRESS, else the one that `ray start` left running on
    this machine; else to a new one of `num_cpus` logical CPUs (default: the machine's), private to
    this process: it ends with it, listens for it alone, and has an access token of its own.
    `log_to_driver`: show what tasks print.
    """
    import ray

    if ray.is_initialized():
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    common: dict[str, Any] = {
        "namespace": NAMESPACE,
        "logging_level": "error",
        "log_to_driver": log_to_driver,
    }
    if address is not None or os.environ.get("RAY_ADDRESS"):
        ray.init(address=address, **common)
        return
    if _started_cluster():
        try:
            # Not address="auto": that would also join the private cluster of any other program.
            ray.init(**common)
            return
        except ConnectionError:
            log.warning("the cluster that `ray start` left running is gone; starting one")
    # Ray turns token authentication on for a cluster of its own; with no token given it would
    # leave one in the user's home, which changes what later `ray start`s do.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, **common)


def _started_cluster() -> bool:
    """Whether `ray start` left the address of a cluster in Ray's temporary folder."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    return os.path.exists(os.path.join(folder, "ray", "ray_current_cluster"))
