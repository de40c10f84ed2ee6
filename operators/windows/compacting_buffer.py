"""Rows per namespace in a `BufferState`, thinned out now and then to those that still matter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.batch import take_table
from ...state.column_face import BufferState
from ...state.key_groups import key_groups_of

FIRST_COMPACTION = 4096
"""Rows in a namespace before it is compacted for the first time; then at twice what was left."""

Chooser = Callable[[pa.Table], npt.NDArray[np.int64]]
"""The rows to keep, as ascending indices into the table."""


class CompactingBuffer:
    """`keys` of each row are only used for its key group; the rows hold them as well if needed."""

    def __init__(self, buffer: BufferState, max_parallelism: int, choose: Chooser) -> None:
        self._buffer = buffer
        self._max_parallelism = max_parallelism
        self._choose = choose
        self._sizes: dict[int, int] = {}
        """Rows held per namespace, for those touched since the start."""
        self._limits: dict[int, int] = {}
        """Compact when the size exceeds this; FIRST_COMPACTION when absent."""

    def append(self, namespace: int, rows: pa.RecordBatch, keys: pa.RecordBatch) -> None:
        """Add rows, in order of arrival."""
        if not rows.num_rows:
            return
        size = self._sizes.get(namespace)
        if size is None:
            size = self._buffer.count(namespace)
        self._buffer.append(namespace, rows, key_groups_of(keys, self._max_parallelism))
        self._sizes[namespace] = size + rows.num_rows
        if self._sizes[namespace] > self._limits.get(namespace, FIRST_COMPACTION):
            self._compact(namespace)

    def rows(self, namespace: int) -> pa.Table:
        """The rows that are left, in order of arrival."""
        return self._buffer.get(namespace)[0]

    def namespaces(self) -> list[int]:
        return self._buffer.namespaces()

    def drop(self, namespace: int) -> None:
        self._buffer.drop(namespace)
        self._sizes.pop(namespace, None)
        self._limits.pop(namespace, None)

    def _compact(self, namespace: int) -> None:
        rows, groups = self._buffer.get(namespace)
        keep = self._choose(rows)
        self._buffer.replace(namespace, take_table(rows, pa.array(keep)), groups[keep])
        self._sizes[namespace] = len(keep)
        self._limits[namespace] = max(FIRST_COMPACTION, 2 * len(keep))
