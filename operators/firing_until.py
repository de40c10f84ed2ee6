"""Up to where an operator fires that is in the middle of it, per key group.

Records and timers that are due are taken from state as they are emitted, so state says what is
left of them, but not that it is due: of two subtasks at one barrier, one may still fire what the
other has not yet been told to. An operator that pauses `IN_STATE` therefore keeps, while it does,
the watermark with its key groups. A restored one first goes on with what was due by it, and then
handles what comes: a record that arrives later must not be seen by what fired before it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..core.elements import MIN_TIMESTAMP
from ..state.backend import KeyedStateBackend
from .group_marks import GroupMarks


class FiringUntil(GroupMarks):
    """`least`: up to where every key group of this subtask fires."""

    def __init__(self, state: KeyedStateBackend, name: str) -> None:
        super().__init__(state, name, "until", MIN_TIMESTAMP)

    @property
    def by_group(self) -> npt.NDArray[np.int64]:
        """Up to where each key group fires, by its number; MIN_TIMESTAMP where none does."""
        assert self.marks is not None
        return self.marks

    @property
    def furthest(self) -> int:
        """Up to where one of them does."""
        return int(self.by_group[self._groups].max())

    def begin(self, watermark: int) -> None:
        """All key groups fire up to there."""
        self.marks = np.full(self._max_parallelism, watermark, dtype=np.int64)
