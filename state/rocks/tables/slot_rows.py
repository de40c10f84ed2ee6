"""Rows of a slot table as bytes, and back: keys as of `key_bytes`, numbers as they are held.

    state (2 bytes) | key group (2) | namespace (1 or 9) | key  ->  numbers

All is made of whole columns at once: of fixed width where keys are words, by Arrow where they are
not (`key_columns`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....core.arrays import Bools, Groups, Slots
from ...key_words import from_words, is_words, to_words
from ...object_keys import ObjectKeys
from ...stored import AccColumn
from ...stored_keys import StoredKeys, stored_type
from .key_columns import (
    WORD,
    binary,
    cut,
    is_word,
    joined_keys,
    key_column,
    key_fits,
    made_keys,
    read_key,
    words_of_keys,
)

GROUP_AT, SPACE_AT = 2, 4
"""Where key group and namespace begin, behind the state's prefix."""


def fits(keys: pa.Schema, columns: Sequence[AccColumn]) -> bool:
    """Whether a table of these has rows as bytes."""
    return numbers_fit(columns) and all(key_fits(field.type) for field in keys)


def numbers_fit(columns: Sequence[AccColumn]) -> bool:
    """Whether all columns are numbers or codes."""
    return all(np.dtype(c.dtype).kind in "biuf" and not c.words for c in columns)


_NO_VALUES = pa.schema([])


class SlotRows:
    """Of one state."""

    values: pa.Schema = _NO_VALUES
    """Columns of codes, with what these stand for: see `valued_rows`."""

    of_objects = False
    """Whether keys are objects: see `object_rows`."""

    def __init__(
        self,
        prefix: bytes,
        keys: pa.Schema,
        columns: Sequence[AccColumn],
        width: int,
        max_parallelism: int,
    ) -> None:
        """`width`: how many leading columns decide the key group."""
        self._width = width
        self.prefix = prefix
        self.columns = tuple(columns)
        self.kinds = [stored_type(field.type) for field in keys]
        """Of the key columns, as they are kept."""
        self._stored = StoredKeys(keys.types)
        self._max_parallelism = max_parallelism
        self._row = np.dtype([(column.name, column.dtype) for column in columns])

    @property
    def size(self) -> int:
        """Bytes of a row's numbers."""
        return self._row.itemsize

    def blank(self, count: int) -> npt.NDArray[Any]:
        """Rows of numbers to be filled, with a field for each column."""
        return np.empty(count, dtype=self._row)

    def frozen(self) -> SlotRows:
        """What tells places on any thread, of keys that there are now."""
        return self

    def by(self, objects: ObjectKeys) -> SlotRows:
        """The same by the codes of others; of keys that are objects."""
        raise AssertionError("keys are columns")

    def placed(self, keys: Sequence[pa.Array]) -> Bools | None:
        """Which of these keys have places; None: all of them."""
        return None

    def pickles(self, keys: Sequence[pa.Array], state: str) -> list[bytes | None]:
        """Of keys that are objects: what a row has of each; None: it cannot be put into a row."""
        raise AssertionError("keys are columns")

    def groups(self, keys: Sequence[pa.Array]) -> Groups:
        """The key group of each row."""
        return self._stored.groups(list(keys[: self._width]), self._max_parallelism)

    @staticmethod
    def order(keys: Sequence[pa.Array], groups: Groups) -> Slots:
        """In which order these lie, about: what lies together is written and read together."""
        words: list[npt.NDArray[Any]] = [
            to_words(key) for key in keys if is_words(key.type) and not key.null_count
        ]
        return np.lexsort([*reversed(words), groups])

    def places(
        self, keys: Sequence[pa.Array], namespace: int = 0, groups: Groups | None = None
    ) -> list[bytes]:
        """Where the rows of these keys lie; `groups`: theirs, if they are known."""
        if groups is None:
            groups = self.groups(keys)
        space = space_bytes(namespace)
        head = np.empty((len(groups), SPACE_AT + len(space)), dtype=np.uint8)
        head[:, :GROUP_AT] = np.frombuffer(self.prefix, np.uint8)
        head[:, GROUP_AT:SPACE_AT] = groups.astype(">u2").view(np.uint8).reshape(-1, 2)
        head[:, SPACE_AT:] = np.frombuffer(space, np.uint8)
        if all(is_word(key.type) and not key.null_count for key in keys):
            return cut(np.concatenate([head, *map(words_of_keys, keys)], axis=1))
        return joined_keys([binary(head), *map(key_column, keys)])

    def prefix_of(self, group: int, namespace: int) -> bytes:
        """What the places of a namespace's rows in a key group begin with."""
        return self.prefix + group.to_bytes(2, "big") + space_bytes(namespace)

    def keys(self, places: Sequence[bytes]) -> list[pa.Array]:
        """The key columns of rows that lie there."""
        fixed = self._fixed(places)
        if fixed is not None:
            return [self._word_column(at, fixed) for at in range(len(self.kinds))]
        columns: list[list[Any]] = [[] for _ in self.kinds]
        for place in places:
            at = _key_at(place)
            for column in columns:
                value, at = read_key(place, at)
                column.append(value)
        return [made_keys(column, kind) for column, kind in zip(columns, self.kinds, strict=True)]

    def keys_in(self, places: Sequence[bytes], rows: Sequence[bytes], state: str) -> list[pa.Array]:
        """The key columns of rows that lie there, as tables take them."""
        return self.keys(places)

    def stored_keys(self, places: Sequence[bytes], rows: Sequence[bytes]) -> list[pa.Array]:
        """The same, as snapshots have them."""
        return self.keys(places)

    def _fixed(self, places: Sequence[bytes]) -> npt.NDArray[np.uint8] | None:
        """The key columns' bytes, if all keys are words and of one namespace's width."""
        if not places or not all(map(is_word, self.kinds)):
            return None
        at = _key_at(places[0])
        width = at + WORD * len(self.kinds)
        data = np.frombuffer(b"".join(places), np.uint8)
        if any(len(place) != width for place in places):
            return None
        table = data.reshape(-1, width)
        alike = (table[:, SPACE_AT] == table[0, SPACE_AT]).all()
        return table[:, at:] if alike and (table[:, at::WORD] != ord("n")).all() else None

    def _word_column(self, index: int, keys: npt.NDArray[np.uint8]) -> pa.Array:
        at = WORD * index + 1
        words = np.ascontiguousarray(keys[:, at : at + 8])
        return from_words(words.view(">i8").reshape(-1).astype(np.int64), None, self.kinds[index])

    @staticmethod
    def groups_of(places: Sequence[bytes]) -> Groups:
        heads = b"".join([place[GROUP_AT:SPACE_AT] for place in places])
        return np.frombuffer(heads, ">u2").astype(np.int32)

    def packed(
        self,
        arrays: Mapping[str, npt.NDArray[Any]],
        slots: Slots,
        values: Mapping[str, pa.Array],
    ) -> list[bytes]:
        """The numbers of these slots; `values`: by column of codes, what those of these slots
        stand for."""
        if not self._row.itemsize:
            return [b""] * len(slots)
        rows = np.empty(len(slots), dtype=self._row)
        for name, array in arrays.items():
            rows[name] = array[slots]
        return cut(rows.view(np.uint8).reshape(len(slots), -1))

    def unpacked(self, rows: Sequence[bytes]) -> npt.NDArray[Any]:
        """Rows of numbers, with a field for each column."""
        if not self._row.itemsize:
            return np.empty(len(rows), dtype=self._row)
        return np.frombuffer(b"".join(rows), dtype=self._row)

    def read(self, rows: Sequence[bytes]) -> tuple[npt.NDArray[Any], dict[str, pa.Array]]:
        """`unpacked` of rows, and their values by column of codes."""
        return self.unpacked(rows), {}


def pieces(
    pairs: Iterable[tuple[bytes, bytes]], most: int, most_bytes: int
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Places and rows in lists of at most so many, which end where they have so many bytes."""
    piece: list[tuple[bytes, bytes]] = []
    size = 0
    for pair in pairs:
        piece.append(pair)
        size += len(pair[1])
        if len(piece) == most or size >= most_bytes:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def space_bytes(namespace: int) -> bytes:
    """No namespace's bytes begin another's; 0, which most states have alone, has one."""
    return b"\0" if namespace == 0 else b"\1" + (namespace + (1 << 63)).to_bytes(8, "big")


def space_of(place: bytes) -> int:
    """The namespace of the row that lies there."""
    if place[SPACE_AT] == 0:
        return 0
    return int.from_bytes(place[SPACE_AT + 1 : SPACE_AT + 9], "big") - (1 << 63)


def _key_at(place: bytes) -> int:
    return SPACE_AT + (1 if place[SPACE_AT] == 0 else 9)
