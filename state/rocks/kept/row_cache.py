"""Rows by position of which those in use are in frames, and the others in RocksDB.

A row is not changed while its position is in use, so it is written to RocksDB once, when it leaves
for the first time. Which rows leave says a clock: a hand goes over the frames, and takes those that
were not read since it came by last. No frame is known outside, so room is made at any call.

    per position, in memory for ever    its frame, 4 bytes, and its key group, 2
    per frame                           the row, its position, whether it was read

The snapshot's thread (`peek`) looks for frames within a turn; a row leaves its frame after it is in
RocksDB, and in a turn. What is in RocksDB stays there until the position is released, which is
after all snapshots of it. So what `peek` did not find in a frame it finds there, without a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....core.arrays import Groups, Int64s
from ....core.batch import take_column
from ....core.errors import StateError
from ....core.growing import Growing
from ...rows.arena import MAX_ROWS
from ...rows.columns import dtype_of
from ...rows.payload import RowPayload
from ...rows.positions import PositionPool, Positions
from ...rows.texts import is_text
from ...turns import Turns
from ..database.clock_hand import ClockHand
from ..database.rows_database import RowsDatabase
from .nested_columns import NestedColumns
from .row_bytes import RowBytes, row_places

READ = 1 << 14
"""So many rows are read from RocksDB at once; where more are asked for, some may leave between."""

CAME = 1 << 12
"""After so many rows that came it is seen whether others have to leave."""

WRITTEN = 1 << 14
"""So many rows that leave are written at once."""

IN_HAND, FEW = 32 << 20, 64
"""Of large rows only so many bytes are in hand at once, but so many rows at least."""

LIVE = 2 / 3
"""How much of what fits into memory are rows; the rest is for frames of rows that left."""

_BESIDE = 5
"""Bytes per frame beside the row."""

GroupsOf = Callable[[Sequence[pa.Array]], Groups]
"""The key groups of rows of the stored columns."""


class RowCache:
    """A `Payload`. `kinds`: storage types, which have bytes (`nested_columns`). Nested columns are
    held as bytes, and made from these where they are read.

    Invariants: a position in use has a frame, or a key group that is not -1, or both; the second
    says that RocksDB holds the row."""

    def __init__(
        self,
        name: str,
        kinds: Sequence[pa.DataType],
        groups_of: GroupsOf,
        turns: Turns,
        database: RowsDatabase,
    ) -> None:
        self._name = name
        self._nested = NestedColumns(kinds)
        self._kinds = kinds = self._nested.held
        self._groups_of = groups_of
        self._turns = turns
        self._database = database
        self._prefix, _ = database.new_state(name, "rows", {})
        self._bytes = RowBytes(kinds)
        self._every = range(len(kinds))
        self._frame = Growing(np.int32, -1)
        """By position; -1: none."""
        self._group = Growing(np.int16, -1)
        """By position, the key group of the place in RocksDB; -1: it is not there."""
        self._width = _width(kinds)
        self._deletes: list[bytes] = []
        """Places of positions that were released. What is put there later counts."""
        self._came = self._enough = 0
        """Rows that came since it was seen whether others have to leave, and the bytes that may be
        used before that is seen again."""
        self._typical = self._width
        """Bytes of a row, about."""
        self.spilled = self.loaded = 0
        """Rows written to RocksDB, and read from it, so far."""
        self._begin(RowPayload(self._kinds, turns), PositionPool())
        database.budget.join(self)

    def _begin(self, rows: RowPayload, pool: PositionPool) -> None:
        self._rows = rows
        self._pool = pool
        """Of frames."""
        self._owner = Growing(np.int32, -1)
        """By frame, the position of its row; -1: it is free."""
        self._read = Growing("bool", 0)
        """By frame, whether it was read since it came, and since the hand came by."""
        self._hand = ClockHand()

    @property
    def room(self) -> int:
        return min(len(self._frame.array), len(self._group.array))

    @property
    def nbytes(self) -> int:
        held = (self._frame, self._group, self._owner, self._read)
        return self._rows.nbytes + sum(int(one.array.nbytes) for one in held)

    @property
    def used(self) -> int:
        """Bytes that frames take. Other threads ask, too."""
        return self._pool.end * self._width + self._rows.text_bytes[0]

    def grow(self, size: int) -> None:
        if size > MAX_ROWS:
            raise StateError(
                f"one subtask would keep {size} rows in '{self._name}'; {MAX_ROWS} are possible: "
                "raise the parallelism, or let rows expire (ttl)"
            )
        self._frame.reserve(size)
        self._group.reserve(size)

    def write(self, positions: Positions, arrays: Sequence[pa.Array]) -> None:
        self._look(len(positions))
        self._take_in(positions, self._nested.packed(arrays))

    def read(self, indices: Sequence[int], positions: Positions) -> list[pa.Array]:
        return self._nested.unpacked(indices, self._read_held(indices, positions))

    def _read_held(self, indices: Sequence[int], positions: Positions) -> list[pa.Array]:
        most = self.portion(READ)
        if len(positions) > most and (self._frame.array[positions] < 0).sum() > most:
            parts = [
                self._read_held(indices, positions[start : start + most])
                for start in range(0, len(positions), most)
            ]
            return [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
        frames = self._frames(positions)  # which may change what the rows are in
        return self._rows.read(indices, frames)

    def release(self, positions: Positions) -> None:
        frames = self._frame.array[positions]
        self._free(frames[frames >= 0].astype(np.int64))
        self._frame.array[positions] = -1
        groups = self._group.array[positions]
        stored = np.flatnonzero(groups >= 0)
        if len(stored):
            self._deletes += row_places(self._prefix, groups[stored], positions[stored])
            self._group.array[positions] = -1
            if len(self._deletes) >= WRITTEN:
                self._put([], [])

    def peek(self, indices: Sequence[int], positions: Positions) -> list[pa.Array]:
        """As `read`, on any thread, and nothing comes into a frame."""
        return self._nested.unpacked(indices, self._peek_held(indices, positions))

    def _peek_held(self, indices: Sequence[int], positions: Positions) -> list[pa.Array]:
        with self._turns.reading():
            frames = self._frame.array[positions]
            here = np.flatnonzero(frames >= 0)
            hot = self._rows.read(indices, frames[here].astype(np.int64))
            apart = np.flatnonzero(frames < 0)
            groups = self._group.array[positions[apart]]
        if not len(apart):
            return hot
        cold = self._stored(positions[apart], groups, self._database.get_apart)
        order = np.empty(len(positions), np.int64)
        order[np.concatenate([here, apart])] = np.arange(len(positions))
        at = pa.array(order)
        return [
            take_column(pa.concat_arrays([mine, cold[index]]), at)
            for index, mine in zip(indices, hot, strict=True)
        ]

    def peek_all(self, positions: Positions, types: Sequence[pa.DataType]) -> list[pa.ChunkedArray]:
        """All columns, as `peek`, of these types."""
        most = self.portion(READ)
        parts = [
            self.peek(self._every, positions[start : start + most])
            for start in range(0, len(positions), most)
        ]
        return [
            pa.chunked_array([part[index] for part in parts], kind)
            for index, kind in enumerate(types)
        ]

    def groups(self, keys: Sequence[int], positions: Positions) -> Groups:
        """The key groups of rows, which columns `keys` decide; on any thread."""
        with self._turns.reading():
            found = self._group.array[positions].astype(np.int32)
        unknown = np.flatnonzero(found < 0)
        most = self.portion(READ)
        for start in range(0, len(unknown), most):
            some = unknown[start : start + most]
            columns: list[Any] = [None] * len(self._kinds)
            for index, column in zip(keys, self.peek(keys, positions[some]), strict=True):
                columns[index] = column
            found[some] = self._groups_of(columns)
        return found

    def portion(self, most: int) -> int:
        """How many rows to have in hand at once, at most so many; on any thread."""
        return min(most, max(IN_HAND // self._typical, FEW))

    def sweep(self, records: int) -> None:
        """See `Sweeping`: so the task says that a batch or a watermark is done."""
        self.make_room()

    def begin_event_time(self, watermark: int) -> None:
        """Nothing expires here."""

    def make_room(self) -> None:
        """Write to RocksDB what is more than the rows may take."""
        self._came = 0
        if self._deletes:
            self._put([], [])
        limit = self._database.budget.limit(self)
        count, live = len(self._pool), self._live_bytes
        if count:
            self._typical = max(live // count, 1)
        if self.used > limit or self.spilled:
            self._leave(limit, count, live)
        self._enough = max(self.used, limit) + limit // 4

    def _leave(self, limit: int, count: int, live: int) -> None:
        if live > LIVE * limit:
            self._evict(-(-count * int(live - LIVE * limit) // live))
        if self.used > limit:
            self._compact()

    def close(self) -> None:
        self._database.budget.leave(self)

    def validate(self) -> None:
        """Assert the invariants."""
        self._rows.validate()
        self._pool.validate()
        owned = np.flatnonzero(self._owner.array[: self._pool.end] >= 0)
        assert len(owned) == len(self._pool)
        assert (self._owner.array[self._pool.end :] < 0).all()
        positions = self._owner.array[owned]
        assert (self._frame.array[positions] == owned).all()
        assert (self._frame.array >= 0).sum() == len(owned)

    def holds(self, positions: Positions) -> bool:
        """Whether there are rows at all of these positions."""
        here = self._frame.array[positions] >= 0
        return bool((here | (self._group.array[positions] >= 0)).all())

    @property
    def _live_bytes(self) -> int:
        return len(self._pool) * self._width + self._rows.text_bytes[1]

    def _look(self, came: int) -> None:
        """So many rows are about to come."""
        self._came += came
        if self._came >= CAME or self.used > self._enough:
            self.make_room()
            self._came = came

    def _frames(self, positions: Positions) -> Int64s:
        """The frames of rows, which are read into some if they have none; good until more come."""
        frames = self._frame.array[positions]
        cold = frames < 0
        if cold.any():
            self._look(int(cold.sum()))
            missing = np.unique(positions[self._frame.array[positions] < 0])
            rows = self._stored(missing, self._group.array[missing], self._database.get_many)
            self._take_in(missing, rows)
            self.loaded += len(missing)
            frames = self._frame.array[positions]
            some = self._frame.array[positions[~cold]]
            self._read.array[some] = True
        else:
            self._read.array[frames] = True
        return frames.astype(np.int64)

    def _stored(
        self,
        positions: Positions,
        groups: npt.NDArray[np.int16],
        get: Callable[[list[bytes]], list[bytes | None]],
    ) -> list[pa.Array]:
        """Rows as they lie in RocksDB."""
        order = np.lexsort((positions, groups))
        found = get(row_places(self._prefix, groups[order], positions[order]))
        rows = [row for row in found if row is not None]
        if len(rows) < len(found):
            raise StateError(
                f"rows '{self._name}': {len(found) - len(rows)} of {len(found)} rows are not in "
                "the local RocksDB, where they were put: the task's local files were changed by "
                "somebody else; restart the job from its last checkpoint"
            )
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        at = pa.array(back)
        return [take_column(column, at) for column in self._bytes.unpacked(rows)]

    def _take_in(self, positions: Positions, arrays: Sequence[pa.Array]) -> None:
        """Frames for rows that have none."""
        frames = self._pool.take(len(positions))
        end = self._pool.end
        if end > self._rows.room:
            with self._turns.moving():
                self._rows.grow(end)
        self._owner.reserve(end)
        self._read.reserve(end)
        self._rows.write(frames, arrays)
        self._owner.array[frames] = positions
        self._frame.array[positions] = frames

    def _free(self, frames: Int64s) -> None:
        """Nobody looks at these."""
        if len(frames):
            self._rows.release(frames)
            self._owner.array[frames] = -1
            self._read.array[frames] = False
            self._pool.release(frames)

    def _idle(self, most: int) -> Int64s:
        """Up to `most` frames of rows that leave next."""
        owners = self._owner.array
        return self._hand.take(
            most, self._pool.end, self._read.array, lambda start, stop: owners[start:stop] >= 0
        )

    def _evict(self, most: int) -> None:
        frames = self._idle(most)
        portion = self.portion(WRITTEN)
        for start in range(0, len(frames), portion):
            some = frames[start : start + portion]
            positions = self._owner.array[some].astype(np.int64)
            self._save(positions, some)
            with self._turns.moving():
                self._frame.array[positions] = -1
                self._free(some)

    def _save(self, positions: Positions, frames: Int64s) -> None:
        """Into RocksDB, if they are not there."""
        new = self._group.array[positions] < 0
        positions, frames = positions[new], frames[new]
        if not len(positions):
            return
        arrays = self._rows.read(self._every, frames)
        groups = self._groups_of(self._nested.unpacked(self._every, arrays))
        order = np.lexsort((positions, groups))
        at = pa.array(order)
        rows = self._bytes.packed([take_column(array, at) for array in arrays])
        self._put(row_places(self._prefix, groups[order], positions[order]), rows)
        self._group.array[positions] = groups
        self.spilled += len(rows)

    def _put(self, places: list[bytes], rows: list[bytes]) -> None:
        deletes, self._deletes = self._deletes, []
        self._database.write(deletes, list(zip(places, rows, strict=True)))

    def _compact(self) -> None:
        """Take no more room than the rows in frames need."""
        former, frames = self._rows, np.flatnonzero(self._owner.array[: self._pool.end] >= 0)
        owners, marks = self._owner.array[frames], self._read.array[frames]
        rows, pool = RowPayload(self._kinds, self._turns), PositionPool()
        made = pool.take(len(frames))
        rows.grow(len(frames))
        for start in range(0, len(frames), WRITTEN):
            part = slice(start, start + WRITTEN)
            rows.write(made[part], former.read(self._every, frames[part]))
        with self._turns.moving():
            hand = self._hand
            hand.moved(frames)
            self._begin(rows, pool)
            self._frame.array[owners] = made
        self._owner.reserve(len(made))
        self._read.reserve(len(made))
        self._owner.array[: len(made)] = owners
        self._read.array[: len(made)] = marks
        self._hand = hand


def _width(kinds: Sequence[pa.DataType]) -> int:
    """Bytes per frame beside the blocks of texts."""
    width = _BESIDE
    texts = [kind for kind in kinds if is_text(kind)]
    for kind in kinds:
        width += 0 if is_text(kind) else dtype_of(kind).itemsize
    return width + 4 * (len(texts) + bool(texts))
