"""What a barrier overtakes in the channels of a gate.

From `begin` on, all that waits in a channel before the barrier is part of the checkpoint, and all
that still comes before it. The barrier itself is taken out where it comes: nobody reads it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from ...core.batch import ObjectBatch
from ...core.elements import CheckpointBarrier, Control, Element
from ...core.ids import CheckpointId
from .kept import Kept, is_kept, kept


class Recording:
    """Of one checkpoint. `open`: the channels whose barrier has not come."""

    def __init__(
        self,
        checkpoint_id: CheckpointId,
        open_channels: Iterable[int],
        opener: Callable[[int, Any], Element],
    ) -> None:
        """`opener` makes an element of what was delivered to a channel."""
        self.checkpoint_id = checkpoint_id
        self.items: dict[int, list[Kept]] = {index: [] for index in open_channels}
        """By channel, in order."""
        self.open = set(self.items)
        self.passed = False
        """Whether one of the barriers had overtaken at its sender."""
        self.came: deque[int] = deque()
        """Channels whose barrier has come, until somebody asks."""
        self._opener = opener

    def on_buffer(self, index: int, delivered: Any) -> None:
        """Records in channel `index`, behind those before."""
        if index not in self.open:
            return
        if isinstance(delivered, ObjectBatch):
            self.items[index].append(kept(delivered))
        else:  # it is opened again for who reads it: what it holds is nobody else's
            self.items[index].append(lambda: self._opener(index, delivered))

    def on_control(self, index: int, element: Control) -> bool:
        """The same of a control element; whether it is the barrier, which goes no further."""
        if index not in self.open:
            return False
        if isinstance(element, CheckpointBarrier):
            if element.checkpoint_id != self.checkpoint_id:
                return False
            self.open.discard(index)
            self.passed |= element.passed
            self.came.append(index)
            return True
        if is_kept(element):
            self.items[index].append(kept(element))
        return False
