"""How far windows have fired, per key group, and the layout of their state.

Both must survive a restore and a rescale: a restored operator must not fire a window twice, must
still know which records are late, and may have to fire windows before it has seen any record (and
so any column types). They are kept as one row per key group, so that they travel with it.

Usually all groups of a subtask have fired equally far. After a rescale from subtasks whose
watermarks differed (unaligned checkpoints) they have not, until the watermark has passed the
furthest of them; `split` treats each group by its own.

The end of all time is not remembered: whoever goes on behind it, from the savepoint of a job that
was drained, begins with event time anew, and no record is late. Where the sources have ended for
good they send that end again. Of groups that have come to it while others here have not, which a
rescale in the middle of the last firing makes, the state still holds what has fired: the last
millisecond before the end is remembered, by which it does not fire again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..core.arrays import numpy_of
from ..core.batch import schema_text
from ..core.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from ..core.errors import StateError
from ..core.ids import KeyGroupRange
from .backend import KeyedStateBackend
from .key_groups import key_groups_of, owned_groups

SCHEMA = pa.schema(
    [
        pa.field("watermark", pa.int64()),
        pa.field("number", pa.int64()),
        pa.field("layout", pa.binary()),
    ]
)


class WindowProgress:
    """`watermark`: up to where every group has fired. `number`: the next record's sequence number.
    `layout`: the schema that describes the state, None before the first record."""

    def __init__(self, state: KeyedStateBackend, name: str = "progress") -> None:
        self._buffer = state.buffer(name, SCHEMA)
        self._groups: KeyGroupRange = state.key_groups
        self._max_parallelism = state.max_parallelism
        self.watermark: int = MIN_TIMESTAMP
        self.number: int = 0
        self.layout: pa.Schema | None = None
        self._floors: npt.NDArray[np.int64] | None = None
        """Per key group, how far it had fired when restored; None once `watermark` is past all."""
        self._ended: npt.NDArray[np.int64] | None = None
        """Numbers of restored key groups that had come to the end of all time."""
        self._restore()

    def _restore(self) -> None:
        rows, groups = self._buffer.get(0)
        if not rows.num_rows:
            return
        floors = np.full(self._max_parallelism, MIN_TIMESTAMP, dtype=np.int64)
        marks = numpy_of(rows.column("watermark"))
        self._ended = groups[marks == MAX_TIMESTAMP]
        floors[groups] = np.where(marks == MAX_TIMESTAMP, MIN_TIMESTAMP, marks)
        self._floors = floors
        self.number = max(rows.column("number").to_pylist())
        layouts = rows.column("layout").drop_null().unique().to_pylist()
        if layouts:
            self.layout = _the_one([pa.ipc.read_schema(pa.py_buffer(b)) for b in layouts])
        self.advance(int(floors[owned_groups(self._groups)].min()))

    def is_ending(self) -> None:
        """What was restored is in the middle of firing up to there, and goes on with it: the end of
        all time counts, where it had come. Before anything else is asked."""
        if self._ended is not None and len(self._ended):
            floors = self.by_group()
            floors[self._ended] = MAX_TIMESTAMP
            self._floors = floors
            self.advance(int(floors[owned_groups(self._groups)].min()))

    def save(self) -> None:
        """Write the rows; before each snapshot."""
        groups = owned_groups(self._groups)
        marks = np.full(len(groups), self.watermark, dtype=np.int64)
        if self._floors is not None:
            marks = np.maximum(marks, np.minimum(self._floors[groups], MAX_TIMESTAMP - 1))
        layout = None if self.layout is None else self.layout.serialize().to_pybytes()
        columns = [
            pa.array(marks),
            pa.array(np.full(len(groups), self.number, dtype=np.int64)),
            pa.array([layout] * len(groups), type=pa.binary()),
        ]
        self._buffer.replace(0, pa.Table.from_arrays(columns, schema=SCHEMA), groups)

    def advance(self, watermark: int) -> None:
        """Every group has fired up to `watermark`; a smaller one than before changes nothing."""
        self.watermark = max(self.watermark, watermark)
        if self._floors is not None and self.watermark >= int(self._floors.max()):
            self._floors = None

    @property
    def furthest(self) -> int:
        """Up to where at least one group has fired."""
        if self._floors is None:
            return self.watermark
        return max(self.watermark, int(self._floors.max()))

    def by_group(self) -> npt.NDArray[np.int64]:
        """Up to where each key group has fired, by its number; of groups not here, nothing."""
        marks = np.full(self._max_parallelism, self.watermark, dtype=np.int64)
        return marks if self._floors is None else np.maximum(marks, self._floors)

    def split(self, keys: pa.RecordBatch) -> Iterator[tuple[int, npt.NDArray[np.int64] | None]]:
        """Rows by how far their key groups have fired: (watermark, row indices or None = all)."""
        if self._floors is None:
            yield self.watermark, None
            return
        fired = np.maximum(self._floors[key_groups_of(keys, self._max_parallelism)], self.watermark)
        for watermark in np.unique(fired).tolist():
            yield watermark, np.flatnonzero(fired == watermark)


def _the_one(layouts: list[pa.Schema]) -> pa.Schema:
    """The layout that the former subtasks agree on. StateError naming two that differ."""
    for other in layouts[1:]:
        if not other.equals(layouts[0], check_metadata=True):
            raise StateError(
                "the former subtasks keep state of different layouts, "
                f"{_told(layouts[0])} and {_told(other)}: their first records had different "
                "types; declare a schema upstream, so that all records are of one kind"
            )
    return layouts[0]


def _told(layout: pa.Schema) -> str:
    return schema_text(layout) if layout.names else "records as Python objects"
