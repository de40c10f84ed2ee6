"""How long the operators of a task may work on before mail and network get their turn."""

from __future__ import annotations

from ...core.clock import Clock

SLICE_S = 0.01
"""How long one step of a task works on what was parked or comes in, but for the step of an operator
that is under way."""

SLICE_STEPS = 256
"""How many steps of operators it takes at most: where a clock stands still, as the simulator's does
within a step, time alone would never end one."""


class Slice:
    """One step's worth of work, shared by all operators of a task."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0
        self._steps = 0

    def begin(self) -> None:
        """A step of the task begins."""
        self._until = self._clock.monotonic() + SLICE_S
        self._steps = SLICE_STEPS

    def over(self) -> bool:
        """Whether it is used up; asked after each step of an operator, which it counts."""
        self._steps -= 1
        return self._steps <= 0 or self._clock.monotonic() >= self._until
