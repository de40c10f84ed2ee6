"""Opens what a job's metrics leave by, if the configuration asks for it, and loads no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...core.metrics_config import MetricsConfig
from .metric_samples import Sample

if TYPE_CHECKING:
    from .prometheus import PrometheusEndpoint


def serve_metrics(
    config: MetricsConfig, samples: Callable[[], Iterable[Sample]]
) -> PrometheusEndpoint | None:
    """The Prometheus endpoint, open; None if there is to be none. `samples` may be called from any
    thread. ConfigurationError if the address cannot be had."""
    if config.prometheus_port is None:
        return None
    from .prometheus import PrometheusEndpoint

    return PrometheusEndpoint(config, samples)
