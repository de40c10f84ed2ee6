"""Who wants a job at other parallelisms, and what each of them gives way to."""

from __future__ import annotations

from enum import Enum


class Asker(Enum):
    """Who wants a job rescaled."""

    SOMEBODY = "somebody"
    LOAD = "its load"
    """It has more to handle than it can, or less (`autoscaling`)."""
    ROOM = "more room"
    """It runs with fewer subtasks than it is to have (`adaptive`)."""

    @property
    def yields(self) -> bool:
        """Whether it gives way to savepoints, stops and rescales that somebody wants, as long as
        the job runs as it was, and does not begin while a savepoint is on."""
        return self is not Asker.SOMEBODY

    @property
    def decides(self) -> bool:
        """Whether what it makes of a job is what that is to be from then on."""
        return self is not Asker.ROOM
