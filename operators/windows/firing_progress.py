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

from ...core.arrays import numpy_of
from ...core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ...state.backend import KeyedStateBackend
from ...state.key_groups import key_groups_of, owned_groups
from ...state.window_progress import WindowProgress
from ..base import IN_STATE, Pause
from .fired_slices import ALL_GROUPS, Fired

SCHEMA = pa.schema([pa.field("fired", pa.int64())])


class FiringProgress:
    """`_fired[group]`: the windows whose last millisecond is up to this have had their results
    emitted; None when no firing is under way, which is when all is as the progress says."""

    def __init__(self, state: KeyedStateBackend, progress: WindowProgress) -> None:
        self._progress = progress
        self._buffer = state.buffer("firing", SCHEMA)
        self._groups = owned_groups(state.key_groups)
        self._max_parallelism = state.max_parallelism
        self._fired: npt.NDArray[np.int64] | None = None
        rows, groups = self._buffer.get(0)
        if rows.num_rows:
            self._fired = np.full(self._max_parallelism, MAX_TIMESTAMP, dtype=np.int64)
            self._fired[groups] = numpy_of(rows.column("fired"))

    @property
    def unfinished(self) -> bool:
        """Whether a firing is under way; after a restore, whether one was."""
        return self._fired is not None

    @property
    def least(self) -> int:
        """Windows whose last millisecond is up to this have been emitted for all groups."""
        assert self._fired is not None
        return int(self._fired[self._groups].min())

    def begin(self) -> None:
        """Before the progress advances, for windows to fire up to there. Goes on with a firing that
        was under way."""
        if self._fired is None:
            self._fired = self._progress.by_group()

    @property
    def until(self) -> npt.NDArray[np.int64]:
        """Up to where each key group fires, by its number; MIN_TIMESTAMP where none does."""
        assert self._fired is not None
        until = self._progress.by_group()
        return np.where(self._fired < until, until, MIN_TIMESTAMP)

    def unfired(self, keys: pa.RecordBatch, window_end: int) -> npt.NDArray[np.bool_] | None:
        """Which of the keys are to get the window's results now; None when all are."""
        assert self._fired is not None
        until, last = self._progress.by_group(), window_end - 1
        due = (self._fired < last) & (last <= until)
        if due[self._groups].all():
            return None
        chosen: npt.NDArray[np.bool_] = due[key_groups_of(keys, self._max_parallelism)]
        return chosen

    def emitted(self, fired: list[Fired]) -> Pause | None:
        """All up to the last of these results is emitted: how the work pauses there."""
        assert self._fired is not None
        last = fired[-1]
        if last.through is None:
            return None
        done = slice(None) if last.through == ALL_GROUPS else slice(last.through + 1)
        self._fired[done] = np.maximum(self._fired[done], last.window_end - 1)
        return IN_STATE

    def end(self) -> None:
        """All is emitted, and the progress says so."""
        self._fired = None

    def save(self) -> None:
        """Before each snapshot."""
        if self._fired is None:
            self._buffer.drop(0)
            return
        rows = pa.Table.from_arrays([pa.array(self._fired[self._groups])], schema=SCHEMA)
        self._buffer.replace(0, rows, self._groups)
