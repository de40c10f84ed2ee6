"""Kept rows of columns of one width and of texts as bytes, and back, whole columns at once.

    bits of which values are not null | values of one width | size of each text | texts

Nothing else reads them: what lies in RocksDB so goes with its task, and checkpoints hold tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....core.arrays import Int64s
from ....core.errors import StateError
from ...hash_columns import slices_of, validity_of
from ...rows.columns import dtype_of, fixed_array, plain_values
from ...rows.texts import is_text, wide_text


class RowBytes:
    """Rows of columns of these types. Texts have 64-bit offsets when they are read."""

    def __init__(self, kinds: Sequence[pa.DataType]) -> None:
        """`kinds`: storage types."""
        self._kinds = [wide_text(kind) if is_text(kind) else kind for kind in kinds]
        self._text_at = [i for i, kind in enumerate(kinds) if is_text(kind)]
        self._fixed_at = [i for i, kind in enumerate(kinds) if not is_text(kind)]
        bits = -(-len(self._fixed_at) // 8)
        fields: list[tuple[str, Any]] = [("valid", np.dtype((np.uint8, (bits,))))]
        fields += [(f"c{i}", dtype_of(kinds[i])) for i in self._fixed_at]
        fields += [(f"t{i}", np.dtype(np.int32)) for i in self._text_at]
        self._head = np.dtype(fields)

    def packed(self, arrays: Sequence[pa.Array]) -> list[bytes]:
        """Rows of these columns, which have the types that `unpacked` gives, or those of
        `kinds`."""
        from ... import block_kernels as blocks

        count = len(arrays[0])
        heads = np.zeros(count, dtype=self._head)
        if self._fixed_at:
            valid = [validity_of(arrays[i]) for i in self._fixed_at]
            bits = np.packbits(np.stack(valid, axis=1), axis=1, bitorder="little")
            heads["valid"] = bits
        for i in self._fixed_at:
            heads[f"c{i}"] = plain_values(arrays[i], self._head[f"c{i}"])
        texts = []
        for i in self._text_at:
            array = (
                arrays[i] if arrays[i].type == self._kinds[i] else arrays[i].cast(self._kinds[i])
            )
            data, offsets = slices_of(array)
            sizes = np.diff(offsets)
            if array.null_count:
                sizes[~validity_of(array)] = -1
            heads[f"t{i}"] = sizes
            texts.append((data, offsets[:-1], sizes))
        width = self._head.itemsize
        lengths = np.full(count, width, np.int64)
        for _, _, sizes in texts:
            lengths += np.maximum(sizes, 0)
        ends = np.zeros(count + 1, np.int64)
        np.cumsum(lengths, out=ends[1:])
        out = np.empty(int(ends[-1]), np.uint8)
        at = ends[:-1].copy()
        whole = np.full(count, width, np.int64)
        blocks.put_bytes(at, whole, heads.view(np.uint8), np.arange(count) * width, out)
        for data, begins, sizes in texts:
            blocks.put_bytes(at, sizes, data, begins, out)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(out)]
        rows: list[bytes] = pa.Array.from_buffers(pa.large_binary(), count, buffers).to_pylist()
        return rows

    def unpacked(self, rows: Sequence[bytes]) -> list[pa.Array]:
        """The columns of these rows. StateError for bytes that are no row."""
        from ... import block_kernels as blocks

        count, width = len(rows), self._head.itemsize
        data = np.frombuffer(b"".join(rows), np.uint8)
        lengths = np.fromiter([len(row) for row in rows], np.int64, count)
        begins = np.cumsum(lengths) - lengths
        if (lengths < width).any():
            raise _damaged(int(lengths.min()), width)
        out = np.empty(count * width, np.uint8)
        blocks.get_bytes(begins, data, np.arange(count + 1) * width, out)
        heads = out.view(self._head)
        columns: dict[int, pa.Array] = {}
        valid: npt.NDArray[Any] | None = None
        if self._fixed_at:
            bits = np.ascontiguousarray(heads["valid"])
            valid = np.unpackbits(bits, axis=1, count=len(self._fixed_at), bitorder="little")
        for at, i in enumerate(self._fixed_at):
            assert valid is not None
            values = np.ascontiguousarray(heads[f"c{i}"])
            columns[i] = fixed_array(self._kinds[i], values, valid[:, at].view(np.bool_))
        places = begins + width
        for i in self._text_at:
            sizes = heads[f"t{i}"].astype(np.int64)
            columns[i] = _texts(self._kinds[i], places, sizes, data)
            places += np.maximum(sizes, 0)
        if (places != begins + lengths).any():
            raise _damaged(int(lengths.sum()), int((places - begins).sum()))
        return [columns[i] for i in range(len(self._kinds))]


def _texts(kind: pa.DataType, at: Int64s, sizes: Int64s, data: npt.NDArray[np.uint8]) -> pa.Array:
    from ... import block_kernels as blocks

    offsets = np.zeros(len(at) + 1, np.int64)
    np.cumsum(np.maximum(sizes, 0), out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    if (at + np.maximum(sizes, 0) > len(data)).any():
        raise _damaged(len(data), int((at + sizes).max()))
    blocks.get_bytes(at, data, offsets, out)
    nulls = sizes < 0
    mask = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
    buffers = [mask, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(kind, len(at), buffers)


def _damaged(found: int, wanted: int) -> StateError:
    return StateError(
        f"rows that lay in the local RocksDB have {found} bytes instead of {wanted}: the task's "
        "local files were changed by somebody else; restart the job from its last checkpoint"
    )


def row_places(
    prefix: bytes, groups: npt.NDArray[np.integer[Any]], positions: Int64s
) -> list[bytes]:
    """Where rows lie: `prefix`, key group (2 bytes), position (8)."""
    made = np.empty((len(positions), len(prefix) + 2 + 8), np.uint8)
    at = len(prefix)
    made[:, :at] = np.frombuffer(prefix, np.uint8)
    made[:, at : at + 2] = groups.astype(">u2").view(np.uint8).reshape(-1, 2)
    made[:, at + 2 :] = positions.astype(">i8").view(np.uint8).reshape(-1, 8)
    data, width = made.tobytes(), made.shape[1]
    return [data[start : start + width] for start in range(0, len(data), width)]
