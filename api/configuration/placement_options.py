"""Where a job's slots lie, under the keys of Flink: both say the same, and its newer one counts."""

from __future__ import annotations

from typing import Final

from .registry import known
from .settings import Settings
from .values import BOOLEAN, choice

_MODES: Final = choice("String", {"none": "none", "slots": "slots", "tasks": "tasks"})

_MODE: Final = known(
    "taskmanager.load-balance.mode",
    _MODES,
    "none",
    None,
    "`none`: a job's slots lie on as few machines as Ray can; `slots`: on as many, evenly",
)

_EVENLY: Final = known(
    "cluster.evenly-spread-out-slots",
    BOOLEAN,
    False,
    None,
    "true: as `slots`, where the mode is not set",
)

PLACEMENT: Final = (_MODE, _EVENLY)

_KEYS: Final = frozenset(one.option.key for one in PLACEMENT)


def is_of_placement(key: str) -> bool:
    return key in _KEYS


def apply_placement(settings: Settings) -> None:
    given = settings.together
    if given.contains(_MODE.option):
        mode = given.get(_MODE.option)
        if mode == "tasks":
            raise given.error(
                _MODE.option.key,
                "mode TASKS is not there: a slot's tasks are those of one subtask of each "
                "operator, so SLOTS spreads these, too",
            )
        settings.change(spread_slots=mode == "slots")
    else:
        settings.change(spread_slots=given.get(_EVENLY.option))
