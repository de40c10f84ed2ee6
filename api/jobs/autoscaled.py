"""Whether a job can be rescaled for its load, looked at before it is submitted."""

from __future__ import annotations

from typing import Final

from ...core.config import JobConfig
from ...core.errors import ConfigurationError

LEAST_REPORTS: Final = 3
"""Of each task within the window of which an autoscaler takes means: of fewer these say nothing, as
a report may come at either end of it or not."""


def check_autoscaled(config: JobConfig) -> None:
    """ConfigurationError if an autoscaler is to act on a job whose sinks publish at once, as they
    do without checkpoints: what comes out between a rescale's checkpoint and the end of the tasks
    would come out twice. And if it is to decide on figures that come too rarely."""
    autoscaler = config.autoscaler
    least = LEAST_REPORTS * config.metrics_interval
    if autoscaler.enabled and autoscaler.metrics_window < least:
        raise ConfigurationError(
            f"job.autoscaler.metrics.window: means over {autoscaler.metrics_window} say nothing of "
            f"figures that tasks report each {config.metrics_interval} (strom.metrics-interval): "
            f"make it {least} or longer, or have them reported more often"
        )
    if autoscaler.enabled and autoscaler.scaling and config.checkpoint.interval is None:
        raise ConfigurationError(
            "job.autoscaler.enabled: the job takes no checkpoints, so records that come out while "
            "it is rescaled could come out twice: set execution.checkpointing.interval, or "
            "job.autoscaler.scaling.enabled: false for advice only"
        )
