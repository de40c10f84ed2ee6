"""Key columns as bytes, and back: a letter, and what it says.

    n   null
    i   whole numbers of up to 64 bits with a sign: a word (8 bytes)
    b   truth values: a byte
    s   texts: their length (4 bytes), and they
    y   bytes, of one width or not: likewise
    w   other words, which only the column's type tells (`key_words`): 8 bytes
    x   all else, likewise (`value_bytes` of the plain column): the length (4 bytes), and they

Equal keys, as in memory, and only these, have equal bytes: -0.0 is 0.0, and all NaN are one, within
lists, too. No key's bytes begin another's. Columns are of the types that keys are kept as.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ....core.arrays import Int64s, numpy_of
from ....core.keys import holds_structs
from ....core.value_types import holds, is_value_type
from ...hash_columns import validity_of
from ...key_words import from_words, is_words, to_words
from ...object_keys import ObjectKeyType
from ...stored_keys import stored_type
from ..database.plain_columns import from_plain, has_plain, plain_type, to_plain
from .value_bytes import RowReader, has_bytes, joined, segments_of

WORD = 9
"""Bytes of a key that is a word: a letter and the word."""


def key_fits(kind: pa.DataType) -> bool:
    """Whether keys of this type, as it is declared, have bytes: all that have hashes but objects.
    Python, which tells keys within lists from each other, has no times of nanoseconds; and Arrow
    cannot gather lists of views."""
    if pa.types.is_dictionary(kind):
        return key_fits(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return bool(kind == pa.uuid())
    if pa.types.is_nested(kind) and (holds_structs(kind) or holds(kind, _is_unfit)):
        return False
    return has_plain(kind) and has_bytes(plain_type(kind))


def is_typed(kind: pa.DataType) -> bool:
    """Whether bytes of keys of this type say less than the type does, so that the layout has to be
    of those that do (`slot_layout`)."""
    kind = stored_type(kind)
    plain = _is_whole(kind) or _is_data(kind) or pa.types.is_boolean(kind)
    return not plain


def is_word(kind: pa.DataType) -> bool:
    """Whether keys of this kept type are `WORD` bytes unless they are null."""
    return is_words(kind) and not pa.types.is_boolean(kind)


def words_of_keys(column: pa.Array) -> npt.NDArray[np.uint8]:
    """A column of words, none of them null: a letter and a word each."""
    made = np.empty((len(column), WORD), dtype=np.uint8)
    made[:, 0] = ord("i" if _is_whole(column.type) else "w")
    made[:, 1:] = to_words(column).astype(">i8").view(np.uint8).reshape(-1, 8)
    return made


def plain_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A key column, as a table takes it or a snapshot has it, as it is kept."""
    if isinstance(column.type, ObjectKeyType):
        return column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if column.type == kind else column.cast(kind)


def key_column(column: pa.Array) -> pa.Array:
    """A key column as bytes (large_binary)."""
    kind = column.type
    if pa.types.is_null(kind):
        return pa.repeat(_NULL, len(column))
    if is_word(kind):
        made = binary(words_of_keys(column))
    elif pa.types.is_boolean(kind):
        flags = numpy_of(column.fill_null(False)).astype(np.uint8)
        made = binary(np.stack([np.full(len(flags), ord("b"), np.uint8), flags], axis=1))
    elif _is_data(kind) or kind == pa.uuid():
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        storage = column.storage if kind == pa.uuid() else column
        made = _sized("s" if text else "y", storage.cast(pa.large_binary()).fill_null(b""))
    else:
        rows = joined(segments_of(_canonical(to_plain(column))), len(column))
        made = _sized("x", pa.array(rows, pa.large_binary()))
    if not column.null_count:
        return made
    return pc.if_else(column.is_valid(), made, _NULL)


def joined_keys(columns: Sequence[pa.Array]) -> list[bytes]:
    """Row by row, what columns of bytes have of it."""
    rows: list[bytes] = pc.binary_join_element_wise(*columns, _EMPTY).to_pylist()
    return rows


def read_key(place: bytes, at: int) -> tuple[Any, int]:
    """What the bytes of a key say, to `made_keys`, and where the next one begins."""
    letter = place[at : at + 1]
    at += 1
    if letter in (b"i", b"w"):
        return int.from_bytes(place[at : at + 8], "big", signed=True), at + 8
    if letter == b"n":
        return None, at
    if letter == b"b":
        return place[at] == 1, at + 1
    length = int.from_bytes(place[at : at + 4], "big")
    data = place[at + 4 : at + 4 + length]
    if letter == b"s":
        return data.decode("utf-8", "surrogatepass"), at + 4 + length
    assert letter in (b"y", b"x"), letter
    return data, at + 4 + length


def made_keys(read: list[Any], kind: pa.DataType) -> pa.Array:
    """The key column of a kept type of what its bytes say."""
    missing = np.array([one is None for one in read], dtype=np.bool_)
    if is_word(kind) and not _is_whole(kind):
        words = np.array([0 if word is None else word for word in read], dtype=np.int64)
        return from_words(words, missing if missing.any() else None, kind)
    if kind == pa.uuid():
        return pa.ExtensionArray.from_storage(kind, pa.array(read, kind.storage_type))
    if not is_typed(kind):
        return pa.array(read, type=kind)
    if missing.all():
        return pa.nulls(len(read), kind)
    reader = RowReader([row for row in read if row is not None])
    values = reader.values(plain_type(kind))
    reader.end()
    at = pa.array(np.cumsum(~missing) - 1, mask=missing)
    return from_plain(values.take(at), kind)


def binary(rows: npt.NDArray[np.uint8]) -> pa.Array:
    """Each row as one value."""
    count, width = rows.shape
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int64) * width)
    data = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(pa.large_binary(), count, [None, offsets, data])


def cut(rows: npt.NDArray[np.uint8]) -> list[bytes]:
    """The same as bytes."""
    found: list[bytes] = rows.reshape(-1).view(f"V{rows.shape[1]}").tolist()
    return found


_EMPTY = pa.scalar(b"", pa.large_binary())
_NULL = pa.scalar(b"n", pa.large_binary())


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) and kind != pa.uint64())


def _is_data(kind: pa.DataType) -> bool:
    """Texts or bytes."""
    texts = (pa.types.is_string, pa.types.is_large_string)
    data = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(test(kind) for test in (*texts, *data))


def _is_unfit(kind: pa.DataType) -> bool:
    """Of what is within lists."""
    views = kind in (pa.string_view(), pa.binary_view())
    return bool(views or kind == pa.time64("ns") or is_value_type(kind))


def _sized(letter: str, data: pa.Array) -> pa.Array:
    head = np.empty((len(data), 5), dtype=np.uint8)
    head[:, 0] = ord(letter)
    lengths = numpy_of(pc.binary_length(data))
    head[:, 1:] = lengths.astype(">u4").view(np.uint8).reshape(-1, 4)
    return pc.binary_join_element_wise(binary(head), data, _EMPTY)


def _canonical(array: pa.Array) -> pa.Array:
    """A plain column of which equal values have equal bytes: nothing is where nulls are."""
    kind = array.type
    if pa.types.is_floating(kind):
        missing = ~validity_of(array) if array.null_count else None
        return from_words(to_words(array), missing, kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        sizes = numpy_of(array.value_lengths().fill_null(0)).astype(np.int64)
        return _lists(array, sizes, _canonical(array.flatten()))
    assert not pa.types.is_struct(kind) or _is_entry(kind), "structs are no keys"
    if pa.types.is_struct(kind):
        fields = [_canonical(array.field(at)) for at in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(array), [None], children=fields)
    if array.null_count and _is_data(kind) and not pa.types.is_fixed_size_binary(kind):
        return array.take(pa.array(np.arange(len(array))))
    return array


def _is_entry(kind: pa.DataType) -> bool:
    """Of a map: never null."""
    return bool(kind.num_fields == 2)


def _lists(array: pa.Array, sizes: Int64s, items: pa.Array) -> pa.Array:
    """The lists of an array with these items, so many each."""
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    held = ends if pa.types.is_large_list(array.type) else ends.astype(np.int32)
    mask = None
    if array.null_count:
        mask = pa.py_buffer(np.packbits(validity_of(array), bitorder="little"))
    buffers = [mask, pa.py_buffer(held)]
    return pa.Array.from_buffers(array.type, len(sizes), buffers, children=[items])
