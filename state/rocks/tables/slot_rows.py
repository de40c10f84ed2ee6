"""Rows of a slot table as bytes, and back: keys as of `key_bytes`, numbers as they are held.

    state (2 bytes) | key group (2) | namespace (1 or 9) | key  ->  numbers

All is made of whole columns at once: of fixed width where keys are whole numbers, by Arrow where
they are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ....core.arrays import Bools, Groups, Slots, numpy_of
from ...object_keys import ObjectKeys
from ...stored import AccColumn
from ...stored_keys import StoredKeys, stored_type

GROUP_AT, SPACE_AT = 2, 4
"""Where key group and namespace begin, behind the state's prefix."""

_WORD = 9
"""Bytes of a key that is a whole number: a letter and a word."""


def fits(keys: pa.Schema, columns: Sequence[AccColumn]) -> bool:
    """Whether a table of these has rows as bytes."""
    return numbers_fit(columns) and all(_key_fits(field.type) for field in keys)


def numbers_fit(columns: Sequence[AccColumn]) -> bool:
    """Whether all columns are numbers or codes."""
    return all(np.dtype(c.dtype).kind in "biuf" and not c.words for c in columns)


def _key_fits(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return False
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return _is_text(kind) or pa.types.is_boolean(kind) or _is_whole(kind)


def _is_text(kind: pa.DataType) -> bool:
    """Or bytes."""
    texts = (pa.types.is_string, pa.types.is_large_string)
    data = (pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in (*texts, *data))


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) and kind != pa.uint64())


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
        words = [numpy_of(key) for key in keys if _is_whole(key.type) and not key.null_count]
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
        if all(_is_whole(key.type) and not key.null_count for key in keys):
            return _cut(np.concatenate([head, *map(_words, keys)], axis=1))
        parts = [_binary(head), *map(_encoded, keys)]
        joined: list[bytes] = pc.binary_join_element_wise(*parts, _EMPTY).to_pylist()
        return joined

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
                value, at = _read_key(place, at)
                column.append(value)
        return [
            pa.array(column, type=kind) for column, kind in zip(columns, self.kinds, strict=True)
        ]

    def keys_in(self, places: Sequence[bytes], rows: Sequence[bytes], state: str) -> list[pa.Array]:
        """The key columns of rows that lie there, as tables take them."""
        return self.keys(places)

    def stored_keys(self, places: Sequence[bytes], rows: Sequence[bytes]) -> list[pa.Array]:
        """The same, as snapshots have them."""
        return self.keys(places)

    def _fixed(self, places: Sequence[bytes]) -> npt.NDArray[np.uint8] | None:
        """The key columns' bytes, if all keys are whole numbers and of one namespace's width."""
        if not places or not all(map(_is_whole, self.kinds)):
            return None
        at = _key_at(places[0])
        width = at + _WORD * len(self.kinds)
        data = np.frombuffer(b"".join(places), np.uint8)
        if any(len(place) != width for place in places):
            return None
        table = data.reshape(-1, width)
        alike = (table[:, SPACE_AT] == table[0, SPACE_AT]).all()
        return table[:, at:] if alike and (table[:, at::_WORD] == ord("i")).all() else None

    def _word_column(self, index: int, keys: npt.NDArray[np.uint8]) -> pa.Array:
        at = _WORD * index + 1
        words = np.ascontiguousarray(keys[:, at : at + 8])
        numbers = words.view(">i8").reshape(-1).astype(np.int64)
        return pa.array(numbers).cast(self.kinds[index])

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
        return _cut(rows.view(np.uint8).reshape(len(slots), -1))

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


_EMPTY = pa.scalar(b"", pa.large_binary())


def _words(column: pa.Array) -> npt.NDArray[np.uint8]:
    """Whole numbers, none of them null: a letter and a word each."""
    made = np.empty((len(column), _WORD), dtype=np.uint8)
    made[:, 0] = ord("i")
    made[:, 1:] = numpy_of(column).astype(">i8").view(np.uint8).reshape(-1, 8)
    return made


def _encoded(column: pa.Array) -> pa.Array:
    """A key column as bytes, as `key_bytes` has them."""
    valid = column.is_valid()
    if _is_whole(column.type):
        made = _binary(_words(column.fill_null(0)))
    elif pa.types.is_boolean(column.type):
        flags = numpy_of(column.fill_null(False)).astype(np.uint8)
        made = _binary(np.stack([np.full(len(flags), ord("b"), np.uint8), flags], axis=1))
    else:
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        data = column.cast(pa.large_binary()).fill_null(b"")
        head = np.empty((len(column), 5), dtype=np.uint8)
        head[:, 0] = ord("s" if text else "y")
        lengths = numpy_of(pc.binary_length(data))
        head[:, 1:] = lengths.astype(">u4").view(np.uint8).reshape(-1, 4)
        made = pc.binary_join_element_wise(_binary(head), data, _EMPTY)
    if not column.null_count:
        return made
    return pc.if_else(valid, made, pa.scalar(b"n", pa.large_binary()))


def _binary(rows: npt.NDArray[np.uint8]) -> pa.Array:
    """Each row as one value."""
    count, width = rows.shape
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int64) * width)
    data = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(pa.large_binary(), count, [None, offsets, data])


def _cut(rows: npt.NDArray[np.uint8]) -> list[bytes]:
    """The same as bytes."""
    cut: list[bytes] = rows.reshape(-1).view(f"V{rows.shape[1]}").tolist()
    return cut


def _read_key(place: bytes, at: int) -> tuple[Any, int]:
    """A key of those that fit, and where the next one begins."""
    tag = place[at : at + 1]
    at += 1
    if tag == b"i":
        return int.from_bytes(place[at : at + 8], "big", signed=True), at + 8
    if tag == b"n":
        return None, at
    if tag == b"b":
        return place[at] == 1, at + 1
    length = int.from_bytes(place[at : at + 4], "big")
    data = place[at + 4 : at + 4 + length]
    if tag == b"s":
        return data.decode("utf-8", "surrogatepass"), at + 4 + length
    assert tag == b"y", tag
    return data, at + 4 + length
