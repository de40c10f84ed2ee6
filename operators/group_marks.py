"""A time for each key group, kept in state while there is one: how far a firing is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import numpy_of
from ..state.backend import KeyedStateBackend
from ..state.key_groups import owned_groups


class GroupMarks:
    """`marks`: by the number of the key group; None when no firing is under way. `save` is to be
    called before each snapshot."""

    def __init__(self, state: KeyedStateBackend, name: str, column: str, elsewhere: int) -> None:
        """With what was restored. `elsewhere`: the mark of groups of which nothing was."""
        self._schema = pa.schema([pa.field(column, pa.int64())])
        self._buffer = state.buffer(name, self._schema)
        self._groups = owned_groups(state.key_groups)
        self._max_parallelism = state.max_parallelism
        self.marks: npt.NDArray[np.int64] | None = None
        rows, groups = self._buffer.get(0)
        if rows.num_rows:
            self.marks = np.full(self._max_parallelism, elsewhere, dtype=np.int64)
            self.marks[groups] = numpy_of(rows.column(column))

    @property
    def unfinished(self) -> bool:
        """Whether a firing is under way; before the first call after a restore, whether one was."""
        return self.marks is not None

    @property
    def least(self) -> int:
        """The least mark of this subtask's key groups."""
        assert self.marks is not None
        return int(self.marks[self._groups].min())

    def end(self) -> None:
        """All that was due is emitted."""
        self.marks = None

    def save(self) -> None:
        """Before each snapshot."""
        if self.marks is None:
            self._buffer.drop(0)
            return
        rows = pa.Table.from_arrays([pa.array(self.marks[self._groups])], schema=self._schema)
        self._buffer.replace(0, rows, self._groups)
