"""Options that mean something together: restarts, metrics reporters (`reporters`), what the
autoscaler is told (`autoscaler_options`), and where slots lie (`placement_options`).

Where checkpoints go and buffer timeouts are two options each, too; what they say is kept apart in
the settings (`CheckpointConfig.choose_storage`, `Settings.time_buffers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from ...core.config import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
)
from ...core.errors import ConfigurationError
from .autoscaler_options import apply_autoscaler, is_of_autoscaler
from .configuration import Configuration
from .placement_options import apply_placement, is_of_placement
from .registry import Known, known, millis
from .reporters import apply_reporters, is_of_reporters
from .settings import Settings
from .values import DURATION, FLOAT, INTEGER, choice

_RESTARTS: Final = choice(
    "String",
    {
        **dict.fromkeys(("none", "off", "disable", "false"), "none"),
        **dict.fromkeys(("fixed-delay", "fixeddelay"), "fixed-delay"),
        **dict.fromkeys(("failure-rate", "failurerate"), "failure-rate"),
        **dict.fromkeys(("exponential-delay", "exponentialdelay"), "exponential-delay"),
    },
)

SECOND: Final = timedelta(seconds=1)

RESTART_TYPE: Final = known(
    "restart-strategy.type",
    _RESTARTS,
    None,
    None,
    "`none`, `fixed-delay`, `failure-rate` or `exponential-delay`. Not set: exponential delay from "
    "200 ms if checkpointing, else none",
    "restart-strategy",
)

FIXED: Final = (
    known("restart-strategy.fixed-delay.attempts", INTEGER, 1, None, "restarts at most"),
    known("restart-strategy.fixed-delay.delay", DURATION, SECOND, None, "before each restart"),
)

RATE: Final = (
    known(
        "restart-strategy.failure-rate.max-failures-per-interval",
        INTEGER,
        1,
        None,
        "failures within the interval that are made good",
    ),
    known(
        "restart-strategy.failure-rate.failure-rate-interval",
        DURATION,
        millis(60_000),
        None,
        "in which failures are counted",
    ),
    known("restart-strategy.failure-rate.delay", DURATION, SECOND, None, "before each restart"),
)

_EXPONENTIAL: Final = "restart-strategy.exponential-delay"

EXPONENTIAL: Final = (
    known(f"{_EXPONENTIAL}.initial-backoff", DURATION, SECOND, None, "before the first restart"),
    known(f"{_EXPONENTIAL}.max-backoff", DURATION, 60 * SECOND, None, "before a restart at most"),
    known(f"{_EXPONENTIAL}.backoff-multiplier", FLOAT, 1.5, None, "from one restart to the next"),
    known(f"{_EXPONENTIAL}.jitter-factor", FLOAT, 0.1, None, "part of a delay that is random"),
    known(
        f"{_EXPONENTIAL}.reset-backoff-threshold",
        DURATION,
        timedelta(hours=1),
        None,
        "so long without failure, and it begins anew",
    ),
)


RESTART: Final = (RESTART_TYPE, *FIXED, *RATE, *EXPONENTIAL)


def set_restart(settings: Settings, strategy: RestartStrategy | None) -> None:
    """The strategy as options, over those that there are; None: what configurations said of
    restarts, and nothing else."""
    for one in RESTART:
        settings.together.remove_config(one.option.key)
    settings.change(restart=strategy)
    if strategy is None:
        said = settings.configuration.only(one.option.key for one in RESTART)
        settings.together.add_all(said)
        _apply_restart(settings)
    else:
        values = {one.option.key: value for one, value in _as_options(strategy)}
        settings.together.add_all(Configuration.from_dict(values))


def _as_options(strategy: RestartStrategy) -> Iterator[tuple[Known, Any]]:
    kind, options = _OPTIONS_OF[type(strategy)]
    yield RESTART_TYPE, kind
    yield from zip(options, vars(strategy).values(), strict=True)


_OPTIONS_OF: Final[dict[type[RestartStrategy], tuple[str, tuple[Known, ...]]]] = {
    NoRestart: ("none", ()),
    FixedDelayRestart: ("fixed-delay", FIXED),
    FailureRateRestart: ("failure-rate", RATE),
    ExponentialDelayRestart: ("exponential-delay", EXPONENTIAL),
}
"""The options are in the order of the strategy's fields."""


def _apply_restart(settings: Settings) -> None:
    """Options of a strategy that is not chosen do nothing, as in Flink."""
    given = settings.together
    if not given.contains(RESTART_TYPE.option):
        return
    try:
        settings.change(restart=_restart(given))
    except ConfigurationError as error:
        raise given.error(RESTART_TYPE.option.key, str(error)) from None


def _restart(given: Configuration) -> RestartStrategy | None:
    match given.get(RESTART_TYPE.option):
        case "none":
            return NoRestart()
        case "fixed-delay":
            return FixedDelayRestart(*(_value(given, one) for one in FIXED))
        case "failure-rate":
            return FailureRateRestart(*(_value(given, one) for one in RATE))
        case "exponential-delay":
            return ExponentialDelayRestart(*(_value(given, one) for one in EXPONENTIAL))
    return None


def _value(given: Configuration, known: Known) -> Any:
    return given.get(known.option)


_RESTART_KEYS: Final = frozenset(
    key for one in RESTART for key in (one.option.key, *one.option.old_keys)
)

GROUPS: Final = (
    (_RESTART_KEYS.__contains__, _apply_restart),
    (is_of_reporters, apply_reporters),
    (is_of_autoscaler, apply_autoscaler),
    (is_of_placement, apply_placement),
)
"""Which options, and what is called when one of them was given, with all of them in
`settings.together`."""
