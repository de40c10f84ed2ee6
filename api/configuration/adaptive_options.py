"""What a job does where a cluster has too little room for it, under the keys of Flink."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ...core.adaptive_config import AdaptiveConfig
from .registry import Apply, known
from .settings import Settings
from .values import DURATION, INTEGER, choice

_DEFAULT: Final = AdaptiveConfig()

_SCHEDULERS: Final = choice("String", {"default": "default", "adaptive": "adaptive"})

_PREFIX: Final = "jobmanager.adaptive-scheduler"


def _set(name: str) -> Apply:
    def apply(settings: Settings, value: Any) -> None:
        settings.change(adaptive=replace(settings.base.adaptive, **{name: value}))

    return apply


def _set_scheduler(settings: Settings, value: str) -> None:
    _set("enabled")(settings, value == "adaptive")


ADAPTIVE: Final = (
    known(
        "jobmanager.scheduler",
        _SCHEDULERS,
        "default",
        _set_scheduler,
        "`default`: a job waits for all of its slots; `adaptive`: it starts with what there is "
        "room for, and grows; on Ray",
    ),
    known(
        "strom.adaptive.min-parallelism",
        INTEGER,
        _DEFAULT.min_parallelism,
        _set("min_parallelism"),
        "the least that an adaptive job runs with, of operators without a parallelism of their own",
    ),
    known(
        f"{_PREFIX}.submission.resource-wait-timeout",
        DURATION,
        _DEFAULT.wait,
        _set("wait"),
        "how long an adaptive job waits for room for that; then the start fails",
        f"{_PREFIX}.resource-wait-timeout",
    ),
    known(
        f"{_PREFIX}.submission.resource-stabilization-timeout",
        DURATION,
        _DEFAULT.stabilization,
        _set("stabilization"),
        "how long the room must have been the same before an adaptive job starts with less than "
        "all",
        f"{_PREFIX}.resource-stabilization-timeout",
    ),
    known(
        f"{_PREFIX}.executing.cooldown-after-rescaling",
        DURATION,
        _DEFAULT.cooldown,
        _set("cooldown"),
        "after each start and rescale of an adaptive job: so long it does not grow",
        f"{_PREFIX}.scaling-interval.min",
    ),
    known(
        f"{_PREFIX}.executing.resource-stabilization-timeout",
        DURATION,
        _DEFAULT.growth_stabilization,
        _set("growth_stabilization"),
        "how long there must have been more room before an adaptive job grows to less than all",
    ),
)
