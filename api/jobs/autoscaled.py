"""Whether a job can be rescaled for its load, looked at before it is submitted."""

from __future__ import annotations

from ...core.config import JobConfig
from ...core.errors import ConfigurationError


def check_autoscaled(config: JobConfig) -> None:
    """ConfigurationError if an autoscaler is to act on a job whose sinks publish at once, as they
    do without checkpoints: what comes out between a rescale's checkpoint and the end of the tasks
    would come out twice."""
    autoscaler = config.autoscaler
    if autoscaler.enabled and autoscaler.scaling and config.checkpoint.interval is None:
        raise ConfigurationError(
            "job.autoscaler.enabled: the job takes no checkpoints, so records that come out while "
            "it is rescaled could come out twice: set execution.checkpointing.interval, or "
            "job.autoscaler.scaling.enabled: false for advice only"
        )
