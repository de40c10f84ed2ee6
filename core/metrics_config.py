"""Where a job's metrics go besides `JobClient.metrics()`."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from .checks import check_count, check_duration, check_kind
from .errors import ConfigurationError

Port = int | tuple[int, int]
"""A port, or the first and the last of several."""

MOST_HOT_KEYS: Final = 64


@dataclass(frozen=True)
class MetricsConfig:
    """prometheus_port: of an HTTP endpoint that Prometheus reads, in the process of the job's
        coordinator (on Ray), else of the program; 0: any free one, which the client tells
        (`prometheus_address`); two: the first and the last of those from which it takes the first
        that is free; None: there is none.
    prometheus_host: the address it is bound to. Others than loopback need a token.
    prometheus_token: what a reader has to send, as `Authorization: Bearer <token>`; not encrypted.
    ray_interval: how often a job on Ray hands its metrics to Ray's own (`ray.util.metrics`), which
        Ray's dashboard and Prometheus endpoint show; None: never.
    latency_interval: how often each source sends a latency marker; None: never.
    hot_keys: so many keys of a keyed exchange are named at most, those that most records have; 0:
        none is."""

    prometheus_port: Port | None = None
    prometheus_host: str = "127.0.0.1"
    prometheus_token: str | None = field(default=None, repr=False)
    ray_interval: timedelta | None = timedelta(seconds=5)
    latency_interval: timedelta | None = None
    hot_keys: int = 8

    def __post_init__(self) -> None:
        for port in self._ends():
            check_count("prometheus_port", port, 0, 65535)
        if isinstance(self.prometheus_port, tuple) and not self.prometheus_ports():
            raise ConfigurationError(
                f"prometheus_port must be a first and a last port, is {self.prometheus_port}"
            )
        check_kind("prometheus_host", self.prometheus_host, str)
        check_kind("prometheus_token", self.prometheus_token, str, type(None))
        if self.prometheus_token == "":
            raise ConfigurationError("prometheus_token must not be empty: leave it away, or set it")
        if self.ray_interval is not None:
            check_duration("ray_interval", self.ray_interval, positive=True)
        if self.latency_interval is not None:
            check_duration("latency_interval", self.latency_interval, positive=True)
        check_count("hot_keys", self.hot_keys, 0, MOST_HOT_KEYS)
        if self.prometheus_token is None and not _is_loopback(self.prometheus_host):
            raise ConfigurationError(
                f"prometheus_host '{self.prometheus_host}' can be reached from other machines: set "
                "prometheus_token as well, or bind to 127.0.0.1"
            )

    def prometheus_ports(self) -> Sequence[int]:
        """Those that the endpoint may have, to be tried in turn."""
        match self._ends():
            case (first, last):
                return range(first, last + 1)
            case ends:
                return ends

    def _ends(self) -> tuple[int, ...]:
        port = self.prometheus_port
        return () if port is None else port if isinstance(port, tuple) else (port,)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
