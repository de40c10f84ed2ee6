"""The strings of Nexmark events: tables to pick from and pools to cut slices of.

What is picked and cut are arrays of `string`, with bytes of their own, or of `string_view`: 16
bytes each, of which those of long strings say where in the table or pool they lie. An exchange
between processes ships what the views of a batch refer to, not the pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from numpy.lib.stride_tricks import sliding_window_view

from ...core.arrays import numpy_of
from . import nexmark_kernels as kernels

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

POOL_BYTES = 1 << 16

HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
COLD_CHANNELS = 10_000
FIRST_NAMES = ("Ada", "Bruno", "Clara", "Dmitri", "Elena", "Farid", "Greta", "Hiro", "Ines", "Olga")
LAST_NAMES = (
    "Abe",
    "Berg",
    "Costa",
    "Diaz",
    "Ericson",
    "Fuchs",
    "Garcia",
    "Haas",
    "Ivanov",
    "Lopez",
)
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")

_VIEW = np.complex128
"""What numpy moves the 16 bytes of a view as."""

_TABLE_COLUMN = 1000
"""Tables and pools draw from columns from here on; events from columns below."""


def seed_of(seed: int) -> np.uint64:
    """A user's seed as the kernels take it; neighbouring seeds give unrelated events."""
    return np.uint64(draws(np.uint64(0x5EED), _TABLE_COLUMN, np.array([seed & (2**63 - 1)]))[0])


def draws(seed: np.uint64, column: int, numbers: Int64s) -> npt.NDArray[np.uint64]:
    """The kernels' `draw`, in numpy: 64 random bits per number."""
    with np.errstate(over="ignore"):
        start = seed + np.uint64(column) * np.uint64(0xD6E8FEB86659FD93)
        z = start + numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: npt.NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed


def to_array(offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8]) -> pa.Array:
    """A string array over these buffers, without a copy."""
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def to_views(views: kernels.Views, text: pa.Buffer) -> pa.Array:
    """A string_view array of these views of `text`, without a copy."""
    buffers = [None, pa.py_buffer(views), text]
    return pa.Array.from_buffers(pa.string_view(), len(views) // 4, buffers)


def of_one_length(rows: Bytes, views: bool) -> pa.Array:
    """A string array of these rows of bytes."""
    count, length = rows.shape
    text = rows.reshape(-1)
    if views:
        ends = np.arange(length, (count + 1) * length, length, dtype=np.int64)
        return to_views(kernels.text_views(text, ends), pa.py_buffer(text))
    return to_array(np.arange(0, (count + 1) * length, length, dtype=np.int32), text)


class StringTable:
    """Strings to pick from by row, as `string_view` if `views`."""

    def __init__(self, strings: Sequence[str], views: bool = False) -> None:
        encoded = [string.encode() for string in strings]
        padding = bytes(kernels.CHUNK)
        self._bytes = np.frombuffer(b"".join(encoded) + padding, dtype=np.uint8)
        self._offsets = np.cumsum([0] + [len(e) for e in encoded], dtype=np.int64)
        self._views: npt.NDArray[Any] | None = None
        if views:
            self._text = pa.py_buffer(self._bytes)
            self._views = kernels.text_views(self._bytes, self._offsets[1:]).view(_VIEW)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def pick(self, rows: Int64s) -> pa.Array:
        if self._views is not None:
            return to_views(self._views.take(rows).view(np.int32), self._text)
        starts, offsets = kernels.table_rows(rows, self._offsets)
        return to_array(offsets, kernels.copy_strings(self._bytes, starts, offsets))


class StringPool:
    """Random text to cut slices of, as `string_view` if `views`; one character in `space_every` is
    a space (0: none)."""

    def __init__(self, seed: np.uint64, column: int, space_every: int, views: bool = False) -> None:
        bits = draws(seed, _TABLE_COLUMN + column, np.arange(POOL_BYTES + kernels.CHUNK))
        letters = ord("a") + (bits >> np.uint64(32)) % np.uint64(26)
        if space_every:
            letters[bits % np.uint64(space_every) == 0] = ord(" ")
        self._bytes = letters.astype(np.uint8)
        self._text = pa.py_buffer(self._bytes)
        self._views = views

    def cut(
        self, numbers: Int64s, seed: np.uint64, column: int, low: Int64s | int, spread: Int64s | int
    ) -> pa.Array:
        """Per number a slice of low + uniform in 0..spread-1 bytes."""
        drawn = (numbers, seed, column, np.atleast_1d(low), np.atleast_1d(spread), POOL_BYTES)
        if self._views:
            return to_views(kernels.slice_views(*drawn, self._bytes), self._text)
        starts, offsets = kernels.slices(*drawn)
        return to_array(offsets, kernels.copy_strings(self._bytes, starts, offsets))

    def block(self, numbers: Int64s, seed: np.uint64, column: int, length: int) -> Bytes:
        """The same as `cut` of one length, as rows of bytes."""
        starts, _ = kernels.slices(
            numbers, seed, column, np.array([length]), np.array([1]), POOL_BYTES
        )
        return sliding_window_view(self._bytes, length)[starts]

    def words(self, seed: np.uint64, column: int, count: int, length: int) -> list[str]:
        """`count` words of `length` letters."""
        cut: list[str] = self.cut(np.arange(count), seed, column, length, 1).to_pylist()
        return cut


def channel_tables(
    seed: np.uint64, letters: StringPool, views: bool
) -> tuple[StringTable, StringTable]:
    """Names and URLs of the hot channels and the 10,000 others, row by row."""
    count = len(HOT_CHANNELS) + COLD_CHANNELS
    folders = [letters.words(seed, _TABLE_COLUMN + 10 + i, count, 5) for i in range(3)]
    bits = draws(seed, _TABLE_COLUMN + 20, np.arange(count)).tolist()
    names = [*HOT_CHANNELS, *(f"channel-{i}" for i in range(COLD_CHANNELS))]
    urls = []
    for row, (a, b, c) in enumerate(zip(*folders, strict=True)):
        url = f"https://www.nexmark.com/{a}/{b}/{c}/item.htm?query=1"
        if row >= len(HOT_CHANNELS) and (bits[row] >> 32) % 10:
            url += f"&channel_id={bits[row] & 0x7FFFFFFF}"
        urls.append(url)
    return StringTable(names, views), StringTable(urls, views)


def lengths(strings: pa.Array) -> Int64s:
    """Bytes of each string. `strings` is no slice."""
    if pa.types.is_string_view(strings.type):
        views = np.frombuffer(strings.buffers()[1], dtype=np.int32)
        return views[: 4 * len(strings) : 4].astype(np.int64)
    found: Int64s = numpy_of(pc.binary_length(strings)).astype(np.int64)
    return found
