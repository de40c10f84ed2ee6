"""All records through one subtask, so that all who read them get them in one order.

What is broadcast goes through here: subtasks that update a state by the same elements end with the
same state only if these come in the same order, and from several senders they would not. It costs
one more hop where the stream was parallel, and nothing where it was not (the operator is chained).

A stream that never ends and has no watermark strategy says nothing of time. Its silence would hold
back the event time of what it is connected with for ever; here it is said to be idle, until a
watermark comes after all.
"""

from __future__ import annotations

from ...api.specs.connected import OneOrderSpec
from ...core.batch import Batch
from ..base import Operator


class OneOrderOperator(Operator):
    """Records as they come."""

    def __init__(self, spec: OneOrderSpec) -> None:
        self._silent = spec.timeless
        """Whether no watermark is expected, nor has come."""

    def open(self) -> None:
        if self._silent:
            self.go_on_soon()

    def on_processing_time(self, now_ms: int) -> None:
        if self._silent:
            self.out.emit_status(False)

    def process(self, batch: Batch, port: int = 0) -> None:
        self.out.emit(batch)

    def process_watermark(self, timestamp: int) -> None:
        if self._silent:
            self._silent = False
            self.out.emit_status(True)
        self.out.emit_watermark(timestamp)

    def process_status(self, active: bool) -> None:
        if not self._silent:
            self.out.emit_status(active)
