"""How far a firing has got that is under way, per key group.

`WindowProgress` says up to where windows have fired or are firing: by that records are late. While
windows fire, some key groups have had results that others have still to get; a snapshot in between
holds, beside the progress, how far each group was. A restored operator first fires what is missing.
Where state itself says of each key what is missing (sessions, panes, ticks), groups stay where they
were before until all is fired; `until` says of which groups state is to be asked.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...state.backend import KeyedStateBackend
from ...state.key_groups import key_groups_of
from ...state.window_progress import WindowProgress
from ..base import IN_STATE, Pause
from ..group_marks import GroupMarks
from .fired_slices import ALL_GROUPS, Fired


class FiringProgress(GroupMarks):
    """`marks[group]`: the windows whose last millisecond is up to this have had their results
    emitted, up to `least` for all groups. While there are none all is as the progress says."""

    def __init__(self, state: KeyedStateBackend, progress: WindowProgress) -> None:
        super().__init__(state, "firing", "fired", MAX_TIMESTAMP)
        self._progress = progress
        if self.unfinished:
            progress.is_ending()

    def begin(self) -> None:
        """Before the progress advances, for windows to fire up to there. Goes on with a firing that
        was under way."""
        if self.marks is None:
            self.marks = self._progress.by_group()

    @property
    def until(self) -> npt.NDArray[np.int64]:
        """Up to where each key group fires, by its number; MIN_TIMESTAMP where none does."""
        assert self.marks is not None
        until = self._progress.by_group()
        return np.where(self.marks < until, until, MIN_TIMESTAMP)

    def due_groups(self, window_end: int) -> npt.NDArray[np.bool_] | None:
        """Which key groups, by number, are to get the window's results now; None when all are."""
        assert self.marks is not None
        until, last = self._progress.by_group(), window_end - 1
        due: npt.NDArray[np.bool_] = (self.marks < last) & (last <= until)
        return None if due[self._groups].all() else due

    def unfired(self, keys: pa.RecordBatch, window_end: int) -> npt.NDArray[np.bool_] | None:
        """Which of the keys are; None when all are."""
        due = self.due_groups(window_end)
        return None if due is None else due[key_groups_of(keys, self._max_parallelism)]

    def emitted(self, fired: list[Fired]) -> Pause | None:
        """All these results are emitted, in this order: how the work pauses there."""
        for one in fired:
            if one.through is not None:
                self.emitted_through(one.window_end, one.through)
        return None if fired[-1].through is None else IN_STATE

    def emitted_through(self, window_end: int, group: int) -> None:
        """The window's results for the key groups up to this one, or ALL_GROUPS, are emitted, and
        those of all windows before it."""
        assert self.marks is not None
        done = slice(None) if group == ALL_GROUPS else slice(group + 1)
        self.marks[done] = np.maximum(self.marks[done], window_end - 1)
