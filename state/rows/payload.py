"""The columns of kept rows by position: values of one width, texts in blocks, all else as objects.

What is at positions in use is not changed, so another thread may read it, within a turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from ..turns import Turns
from .columns import RowColumn, make_column
from .positions import Positions
from .texts import Texts, is_text


class Payload(Protocol):
    """What a `RowTable` asks of the place where its rows' values are. One thread writes."""

    @property
    def room(self) -> int:
        """Positions that need no `grow`; a large number if it never does."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        ...

    def grow(self, size: int) -> None:
        """Have room for so many positions. While nobody reads."""
        ...

    def write(self, positions: Positions, arrays: Sequence[pa.Array]) -> None:
        """Rows at positions that hold none."""
        ...

    def read(self, indices: Sequence[int], positions: Positions) -> list[pa.Array]:
        """Some columns at positions that hold rows, of their stored types."""
        ...

    def release(self, positions: Positions) -> None:
        """The rows at these positions, distinct, are no more, and nobody reads them."""
        ...

    def validate(self) -> None:
        """Assert the invariants."""
        ...


class RowPayload:
    """See `Payload`. All of it in memory."""

    def __init__(self, kinds: Sequence[pa.DataType], turns: Turns) -> None:
        """`kinds`: storage types."""
        self._text_at = [i for i, kind in enumerate(kinds) if is_text(kind)]
        self._texts = Texts([kinds[i] for i in self._text_at], turns)
        self._columns = {i: make_column(k) for i, k in enumerate(kinds) if i not in self._text_at}

    @property
    def room(self) -> int:
        return min((one.room for one in self._held()), default=_ENDLESS)

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self._held())

    @property
    def text_bytes(self) -> tuple[int, int]:
        """Bytes of all blocks of texts that were ever used since they were packed, and of those
        in use."""
        return self._texts.block_bytes

    def grow(self, size: int) -> None:
        for one in self._held():
            one.grow(size)

    def write(self, positions: Positions, arrays: Sequence[pa.Array]) -> None:
        for i, column in self._columns.items():
            column.write(positions, arrays[i])
        if self._text_at:
            self._texts.write(positions, [arrays[i] for i in self._text_at])

    def read(self, indices: Sequence[int], positions: Positions) -> list[pa.Array]:
        return [self._read(index, positions) for index in indices]

    def release(self, positions: Positions) -> None:
        if self._text_at and len(positions):
            self._texts.release(positions)

    def validate(self) -> None:
        if self._text_at:
            self._texts.validate()

    def _read(self, index: int, positions: Positions) -> pa.Array:
        held = self._columns.get(index)
        if held is not None:
            return held.read(positions)
        return self._texts.read(self._text_at.index(index), positions)

    def _held(self) -> list[RowColumn | Texts]:
        return [*self._columns.values(), *([self._texts] if self._text_at else ())]


_ENDLESS = 1 << 62
