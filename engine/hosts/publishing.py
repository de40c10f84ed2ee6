"""What a driver's job publishes to its client: first what it had published up to where it goes on
from, then what comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.ids import OperatorId
from ..coordinator.actions import Publish
from .result_log import ResultLog


class Publishing:
    """Of one driver, on its thread. `log`: where it is written down for the drivers that come;
    None: there will be none."""

    def __init__(
        self, publish: Callable[[OperatorId, str, Any], None], log: ResultLog | None
    ) -> None:
        self._publish = publish
        self._log = log
        self.began_with: int | None = None
        """The checkpoint or savepoint that the job began with under this driver, 0: with none;
        None: it has not begun."""
        self._early: list[Publish] = []
        """What tasks of a driver before this published before that was known; empty from then
        on."""

    def begin(self, checkpoint: int, ran_on: bool = False) -> None:
        """`ran_on`: tasks of a driver before this go on behind it."""
        before = [] if self._log is None else self._log.begin(checkpoint, ran_on)
        self.began_with = checkpoint
        for result in before:
            self._publish(*result)
        early, self._early = self._early, []
        for action in early:
            self.publish(action)

    def publish(self, action: Publish) -> None:
        operator, key, value = action.operator, action.key, action.value
        if self.began_with is None:
            self._early.append(action)
        elif self._log is None or self._log.hear(operator, key, value):
            self._publish(operator, key, value)
