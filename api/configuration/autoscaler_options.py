"""Options of the autoscaler, under the keys of Flink's. They mean something together: bounds of
utilisation, and of parallelisms, are looked at only when all that was given is known."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from ...core.autoscaler_config import AutoscalerConfig
from ...core.errors import ConfigurationError
from .configuration import Configuration
from .registry import Known, known
from .settings import Settings
from .values import BOOLEAN, DURATION, FLOAT, INTEGER, LIST, choice

_PREFIX: Final = "job.autoscaler"

_DEFAULT: Final = AutoscalerConfig()

_MODES: Final = choice(
    "String",
    {
        **dict.fromkeys(
            ("maximize-utilisation", "maximize_utilisation"),
            "maximize-utilisation",
        ),
        **dict.fromkeys(("evenly-spread", "evenly_spread"), "evenly-spread"),
    },
)


_FIELDS: Final[dict[str, Known]] = {
    "enabled": known(
        f"{_PREFIX}.enabled",
        BOOLEAN,
        _DEFAULT.enabled,
        None,
        "whether the job's parallelism follows its load, while it runs",
    ),
    "scaling": known(
        f"{_PREFIX}.scaling.enabled",
        BOOLEAN,
        _DEFAULT.scaling,
        None,
        "`false`: what should be done is only said, and not done",
    ),
    "interval": known(
        f"{_PREFIX}.interval",
        DURATION,
        _DEFAULT.interval,
        None,
        "between two looks at a job's figures",
    ),
    "metrics_window": known(
        f"{_PREFIX}.metrics.window",
        DURATION,
        _DEFAULT.metrics_window,
        None,
        "figures are means over it; nothing is decided before it is full",
    ),
    "stabilization": known(
        f"{_PREFIX}.stabilization.interval",
        DURATION,
        _DEFAULT.stabilization,
        None,
        "after each start of the job, in which its figures do not count",
    ),
    "scale_down_interval": known(
        f"{_PREFIX}.scale-down.interval",
        DURATION,
        _DEFAULT.scale_down_interval,
        None,
        "so long fewer subtasks have to be enough before there are fewer",
        f"{_PREFIX}.scale-up.grace-period",
    ),
    "target_utilization": known(
        f"{_PREFIX}.utilization.target",
        FLOAT,
        _DEFAULT.target_utilization,
        None,
        "busy part of a subtask's time that decisions aim at",
        f"{_PREFIX}.target.utilization",
    ),
    "utilization_max": known(
        f"{_PREFIX}.utilization.max",
        FLOAT,
        _DEFAULT.utilization_max,
        None,
        "above it there are more subtasks",
    ),
    "utilization_min": known(
        f"{_PREFIX}.utilization.min",
        FLOAT,
        _DEFAULT.utilization_min,
        None,
        "below it there are fewer",
    ),
    "catch_up": known(
        f"{_PREFIX}.catch-up.duration",
        DURATION,
        _DEFAULT.catch_up,
        None,
        "in which a backlog is to be worked off; 0: backlogs do not count",
    ),
    "backlog_threshold": known(
        f"{_PREFIX}.backlog-processing.lag-threshold",
        DURATION,
        _DEFAULT.backlog_threshold,
        None,
        "while a source is further behind, subtasks may be busy all the time, and there are no "
        "fewer",
    ),
    "restart_time": known(
        f"{_PREFIX}.restart.time",
        DURATION,
        _DEFAULT.restart_time,
        None,
        "what a rescale takes, until one was seen",
    ),
    "restart_tracking": known(
        f"{_PREFIX}.restart.time-tracking.enabled",
        BOOLEAN,
        _DEFAULT.restart_tracking,
        None,
        "whether what rescales took counts then",
    ),
    "restart_limit": known(
        f"{_PREFIX}.restart.time-tracking.limit",
        DURATION,
        _DEFAULT.restart_limit,
        None,
        "what was seen counts up to this",
    ),
    "min_parallelism": known(
        f"{_PREFIX}.vertex.min-parallelism",
        INTEGER,
        _DEFAULT.min_parallelism,
        None,
        "no step leads below it; a vertex that has fewer subtasks is not raised to it",
    ),
    "max_parallelism": known(
        f"{_PREFIX}.vertex.max-parallelism",
        INTEGER,
        _DEFAULT.max_parallelism,
        None,
        "no step leads above it, or above its key groups; a vertex that has more subtasks is not "
        "lowered to it",
    ),
    "scale_up_factor": known(
        f"{_PREFIX}.scale-up.max-factor",
        FLOAT,
        _DEFAULT.scale_up_factor,
        None,
        "1.0: at most twice as many subtasks in one step",
    ),
    "scale_down_factor": known(
        f"{_PREFIX}.scale-down.max-factor",
        FLOAT,
        _DEFAULT.scale_down_factor,
        None,
        "0.6: at least 40 % of the subtasks stay, in one step",
    ),
    "effectiveness": known(
        f"{_PREFIX}.scaling.effectiveness.detection.enabled",
        BOOLEAN,
        _DEFAULT.effectiveness,
        None,
        "whether a vertex is left alone for an hour for which more subtasks did not help",
    ),
    "effectiveness_threshold": known(
        f"{_PREFIX}.scaling.effectiveness.threshold",
        FLOAT,
        _DEFAULT.effectiveness_threshold,
        None,
        "the part of the expected gain from which on they did",
    ),
    "excluded": known(
        f"{_PREFIX}.vertex.exclude.ids",
        LIST,
        None,
        None,
        "vertices that keep their parallelism: the uid, name or id of one of their operators",
    ),
    "adjust_mode": known(
        f"{_PREFIX}.scaling.key-group.partitions.adjust.mode",
        _MODES,
        _DEFAULT.adjust_mode,
        None,
        "`maximize-utilisation`: the least parallelism whose busiest subtask is within its aim; "
        "`evenly-spread`: the next greater one that divides the key groups",
    ),
}

_BOUNDARY: Final = known(
    f"{_PREFIX}.target.utilization.boundary",
    FLOAT,
    None,
    None,
    "where `utilization.max` or `.min` is not set: the target and so much more, at most 1, or less",
)

AUTOSCALER: Final = (*_FIELDS.values(), _BOUNDARY)

_KEYS: Final = frozenset(
    key for one in AUTOSCALER for key in (one.option.key, *one.option.old_keys)
)


_NAMES: Final = re.compile(rf"\b({'|'.join(_FIELDS)})\b")


def is_of_autoscaler(key: str) -> bool:
    return key in _KEYS


def apply_autoscaler(settings: Settings) -> None:
    """ConfigurationError if what was given does not fit together."""
    given, before = settings.together, settings.base.autoscaler
    said: dict[str, Any] = {
        name: given.get(one.option) for name, one in _FIELDS.items() if given.contains(one.option)
    }
    if "excluded" in said:
        said["excluded"] = tuple(said["excluded"])
    if given.contains(_BOUNDARY.option):
        target = said.get("target_utilization", before.target_utilization)
        boundary = given.get(_BOUNDARY.option)
        said.setdefault("utilization_max", min(1.0, target + boundary))
        said.setdefault("utilization_min", max(0.0, target - boundary))
    try:
        settings.change(autoscaler=replace(before, **said))
    except ConfigurationError as error:
        raise given.error(*_said_of_options(str(error), given)) from None


def _said_of_options(error: str, given: Configuration) -> tuple[str, str]:
    """The key of what was given wrong, and what is said of the fields, of the options instead."""
    there = [one.option.key for one in AUTOSCALER if given.contains(one.option)]
    found = [_FIELDS[name].option.key for name in _NAMES.findall(error)]
    if not found and "utilizations" in error:
        found = [key for key in there if "utilization" in key]
    text = _NAMES.sub(lambda name: _FIELDS[name[0]].option.key, error.removeprefix("autoscaler "))
    return next((key for key in found if key in there), there[0]), text
