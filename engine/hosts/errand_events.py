"""What an errand comes to: something that the job master is to be told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..coordinator.actions import Actions
from ..task.background import Background

MakeBackground = Callable[[str], Background]
"""A worker of this name. Something must wake the driver's loop after each piece of work."""

Event = Callable[[int], Actions]
"""Something that the job master is to be told, with the time (ms)."""

Heard = Callable[[Any, BaseException | None], Event]
"""What comes of a piece of work, of its result or its error. Called by the driver's thread."""


def nothing(now_ms: int) -> Actions:
    """The event of what the job master does not want to hear of."""
    return ()
