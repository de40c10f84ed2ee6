"""How a job's parallelism follows its load: what the autoscaler (`autoscaling/`) is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Final, Literal, get_args

from .checks import check_count, check_duration, check_kind, check_number
from .errors import ConfigurationError

AdjustMode = Literal["maximize-utilisation", "evenly-spread"]

MOST_SUBTASKS: Final = 32768


@dataclass(frozen=True)
class AutoscalerConfig:
    """Utilisation is the busy part of a subtask's time, 0..1. Names are those of Flink's options
    `job.autoscaler.*`; defaults are for rescales that take seconds."""

    enabled: bool = False
    """Whether the job's coordinator looks at its load, and decides."""
    scaling: bool = True
    """Whether it carries out what it decides; else that is advice."""
    interval: timedelta = timedelta(seconds=10)
    """Between two looks at the figures."""
    metrics_window: timedelta = timedelta(minutes=2)
    """Figures are means over it; nothing is decided before it is full."""
    stabilization: timedelta = timedelta(minutes=1)
    """After each start of the job: its figures do not count, and nothing is decided."""
    scale_down_interval: timedelta = timedelta(minutes=10)
    """So long fewer subtasks have to be enough, without a break, before there are fewer."""
    target_utilization: float = 0.7
    """What a decision aims at."""
    utilization_max: float = 0.9
    """Above it there are more subtasks."""
    utilization_min: float = 0.4
    """Below it there are fewer."""
    catch_up: timedelta = timedelta(minutes=10)
    """In which a backlog is to be worked off; 0: backlogs count for nothing."""
    backlog_threshold: timedelta = timedelta(minutes=1)
    """While a source is further behind, full utilisation is right and there are no fewer
    subtasks."""
    restart_time: timedelta = timedelta(seconds=30)
    """What a rescale takes, until one was seen."""
    restart_tracking: bool = True
    """Whether what rescales took counts, as soon as there was one."""
    restart_limit: timedelta = timedelta(minutes=5)
    """What was seen counts up to this."""
    min_parallelism: int = 1
    max_parallelism: int = 200
    """Of each vertex that follows the load; one that is outside already may stay there."""
    scale_up_factor: float = 100_000.0
    """1.0: at most twice as many subtasks in one step; a part of one is one."""
    scale_down_factor: float = 0.6
    """0.6: at least 40 % of the subtasks stay, in one step."""
    effectiveness: bool = True
    """Whether a vertex is left alone for which more subtasks did not help."""
    effectiveness_threshold: float = 0.1
    """The part of the expected gain from which on they did."""
    excluded: tuple[str, ...] = ()
    """Vertices that keep their parallelism: the uid, name or id of one of their operators."""
    adjust_mode: AdjustMode = "maximize-utilisation"
    """`evenly-spread`: the next greater parallelism that divides the key groups, or partitions."""

    def __post_init__(self) -> None:
        for name in ("interval", "metrics_window"):
            check_duration(f"autoscaler {name}", getattr(self, name), positive=True)
        for name in ("stabilization", "scale_down_interval", "catch_up", "backlog_threshold"):
            check_duration(f"autoscaler {name}", getattr(self, name))
        for name in ("restart_time", "restart_limit"):
            check_duration(f"autoscaler {name}", getattr(self, name))
        check_kind("autoscaler enabled", self.enabled, bool)
        check_kind("autoscaler scaling", self.scaling, bool)
        check_kind("autoscaler restart_tracking", self.restart_tracking, bool)
        check_kind("autoscaler effectiveness", self.effectiveness, bool)
        check_count("autoscaler min_parallelism", self.min_parallelism, 1, MOST_SUBTASKS)
        check_count("autoscaler max_parallelism", self.max_parallelism, 1, MOST_SUBTASKS)
        for name in ("scale_up_factor", "scale_down_factor", "effectiveness_threshold"):
            check_number(f"autoscaler {name}", getattr(self, name), 0.0)
        if self.scale_down_factor > 1:
            raise ConfigurationError(
                f"autoscaler scale_down_factor must be at most 1, is {self.scale_down_factor}"
            )
        if self.min_parallelism > self.max_parallelism:
            raise ConfigurationError(
                f"autoscaler min_parallelism {self.min_parallelism} is more than max_parallelism "
                f"{self.max_parallelism}"
            )
        check_kind("autoscaler excluded", self.excluded, tuple)
        for one in self.excluded:
            check_kind("autoscaler excluded vertex", one, str)
        if self.adjust_mode not in get_args(AdjustMode):
            raise ConfigurationError(
                f"autoscaler adjust_mode must be one of {', '.join(get_args(AdjustMode))}, is "
                f"{self.adjust_mode!r}"
            )
        self._check_utilizations()

    def plain(self) -> dict[str, Any]:
        """JSON-able, by the names of the fields; durations as seconds. `of_plain` reads it."""
        return {
            field.name: value.total_seconds() if isinstance(value, timedelta) else value
            for field in fields(self)
            for value in (getattr(self, field.name),)
        }

    @staticmethod
    def of_plain(said: Mapping[str, Any]) -> AutoscalerConfig:
        """What is not known here is left out."""
        default, found = AutoscalerConfig(), dict[str, Any]()
        for field in fields(default):
            if field.name in said:
                value = said[field.name]
                is_time = isinstance(getattr(default, field.name), timedelta)
                found[field.name] = timedelta(seconds=value) if is_time else value
        return replace(default, **{**found, "excluded": tuple(found.get("excluded", ()))})

    def _check_utilizations(self) -> None:
        for name in ("target_utilization", "utilization_max", "utilization_min"):
            check_number(f"autoscaler {name}", getattr(self, name), 0.0)
        least, target, most = self.utilization_min, self.target_utilization, self.utilization_max
        if not least < target < most <= 1:
            raise ConfigurationError(
                "autoscaler utilizations must be min < target < max <= 1, are "
                f"{least} (min), {target} (target), {most} (max)"
            )
