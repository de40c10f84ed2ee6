"""Key columns as 8-byte words and back: what the word index stores.

Two keys are one word exactly if they are one key: -0.0 is 0.0, and all NaN are one key, as in the
stable hash.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .hash_columns import float_words, words_of

Words = npt.NDArray[np.int64]


def is_words(kind: pa.DataType) -> bool:
    """Whether values of this type fit 8-byte words."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))
    )


def to_words(column: pa.Array) -> Words:
    """The words of a column, one per row; anything where null. Zero-copy for 8-byte integers."""
    kind = column.type
    if pa.types.is_floating(kind):
        return float_words(column)
    if pa.types.is_boolean(kind):
        return words_of(column.cast(pa.int8()).cast(pa.int64()))
    if kind == pa.uint64() or (pa.types.is_temporal(kind) and kind.bit_width == 64):
        return words_of(column)
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32())
    return words_of(column if column.type == pa.int64() else column.cast(pa.int64()))


def from_words(words: Words, mask: npt.NDArray[np.bool_] | None, kind: pa.DataType) -> pa.Array:
    """The column of type `kind` whose words these are; null where `mask` is true."""
    if mask is not None:
        words = np.where(mask, 0, words)
    if pa.types.is_floating(kind):
        return pa.array(words.view(np.float64), mask=mask).cast(kind, safe=False)
    column = pa.array(words, mask=mask)
    if kind == pa.uint64() or (pa.types.is_temporal(kind) and kind.bit_width == 64):
        return column.view(kind)
    if pa.types.is_temporal(kind):
        return column.cast(pa.int32()).view(kind)
    return column if column.type == kind else column.cast(kind)
