"""Whether a job can be rescaled for its load, looked at before it is submitted."""

from __future__ import annotations

import logging
from typing import Final

from ...core.config import JobConfig
from ...core.errors import ConfigurationError
from ...engine.graph.model import JobGraph

_log = logging.getLogger("strom")

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


def warn_of_strangers(graph: JobGraph) -> None:
    """What an autoscaler is to leave alone, and is not there, is said: it may be a typo."""
    config = graph.config.autoscaler
    operators = [operator for vertex in graph.vertices for operator in vertex.operators]
    known = {str(one) for o in operators for one in (o.uid, o.name, o.operator_id)}
    known |= {text for vertex in graph.vertices for text in (str(vertex.id), vertex.name)}
    strange = [one for one in config.excluded if one not in known]
    if config.enabled and strange:
        names = ", ".join(f"'{operator.name}'" for operator in operators)
        _log.warning(
            "job.autoscaler.vertex.exclude.ids: job '%s' has no operator %s, and has %s",
            graph.name,
            ", ".join(map(repr, strange)),
            names,
        )
