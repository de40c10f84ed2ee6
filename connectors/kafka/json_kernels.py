"""Framing of JSON objects: one a record, each on a line of its own, so that a parser of lines gives
a row for each record and cannot lose count."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.native import Array, int32, njit, uint8, void
from .message_kernels import addressable

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

_QUOTE, _BACKSLASH, _OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 34, 92, 123, 125, 91, 93
_NEWLINE, _SPACE = 10, 32

_OPTIONS = {"cache": True, "nogil": True}


@njit(inline="always")
def _is_space(byte: Any) -> Any:
    return byte in (32, 10, 13, 9)


@njit(
    void(
        Array(uint8, 1, readonly=True),
        Array(int32, 1, readonly=True),
        uint8[::1],
        int32[::1],
        uint8[::1],
    ),
    **_OPTIONS,
)
def _frame(data: Any, ends: Any, out: Any, framed: Any, shaped: Any) -> None:
    to = 0
    framed[0] = 0
    for i in range(ends.size - 1):
        first, last = ends[i], ends[i + 1]
        while first < last and _is_space(data[first]):
            first += 1
        while first < last and _is_space(data[last - 1]):
            last -= 1
        good = last - first >= 2 and data[first] == _OPEN and data[last - 1] == _CLOSE
        depth = 0
        text = False
        escaped = False
        at = first
        start = to
        while good and at < last:
            byte = data[at]
            if text:
                if escaped:
                    escaped = False
                elif byte == _BACKSLASH:
                    escaped = True
                elif byte == _QUOTE:
                    text = False
                elif byte == _NEWLINE:
                    good = False
            elif byte == _QUOTE:
                text = True
            elif byte in (_OPEN, _OPEN_LIST):
                depth += 1
            elif byte in (_CLOSE, _CLOSE_LIST):
                depth -= 1
                if depth == 0 and at != last - 1:
                    good = False
            elif byte == _NEWLINE:
                byte = _SPACE
            out[to] = byte
            to += 1
            at += 1
        good = good and depth == 0 and not text
        if good:
            out[to] = _NEWLINE
            to += 1
        else:
            to = start
        shaped[i] = 1 if good else 0
        framed[i + 1] = to


def frame_objects(values: pa.Array) -> tuple[Bytes, Offsets, Mask]:
    """The values that are one object each, as far as quotes and brackets tell, each with a newline
    behind it and none in it; where each record's begins (one more than records; nothing for one
    that is no object), and which are. `values`: a binary array; ConnectorError for one of 2 GiB."""
    count = len(values)
    data, ends = _parts(values)
    out = np.empty(addressable(len(data) + count, "JSON texts"), dtype=np.uint8)
    framed, shaped = np.empty(count + 1, dtype=np.int32), np.empty(count, dtype=np.uint8)
    _frame(data, ends, out, framed, shaped)
    good = shaped.astype(np.bool_)
    if values.null_count:
        good &= np.asarray(values.is_valid())
    return out[: framed[-1]], framed, good


def _parts(values: pa.Array) -> tuple[Bytes, Offsets]:
    """Bytes and ends, from 0, of a binary array; nulls are empty."""
    if values.null_count:
        values = values.fill_null(b"")
    _, ends, data = values.buffers()
    count = len(values)
    offsets = np.frombuffer(ends, dtype=np.int32)[values.offset : values.offset + count + 1]
    content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, np.uint8)
    first, last = int(offsets[0]), int(offsets[-1])
    return content[first:last], np.ascontiguousarray(offsets - first, dtype=np.int32)
