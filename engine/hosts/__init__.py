"""The hosts: one local process, Ray, the simulator. One task code, one driver, three places to
run."""

from __future__ import annotations

from typing import Any

from ...api.jobs.host import Host
from ...core.errors import ConfigurationError


def open_host(name: str, **options: Any) -> Host:
    """The host called `name`: "local", "ray" (options: address, num_cpus,
    log_to_driver) or "simulator" (plan)."""
    match name:
        case "local":
            from .local import LocalHost

            return LocalHost(**options)
        case "ray":
            from .ray_host import RayHost

            return RayHost(**options)
        case "simulator":
            from .simulator import SimulatorHost

            return SimulatorHost(**options)
    raise ConfigurationError(f"unknown host '{name}': use local, ray or simulator")
