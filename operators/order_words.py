"""Order columns as int64 words whose order is the records': less comes first.

Numbers and times map directly (a descending order flips all bits); nulls take the greatest word,
which they share with the greatest int64 alone. Text and the like have no words of their own: they
are ranked among the values at hand, so the words of held rows must be made anew with each batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ..api.specs.columns import Order, direction_hint
from ..core.arrays import Int64s, numpy_of
from ..core.errors import TypeMismatchError
from ..state.column_index import storage_type
from .columns import NO_NULLS, ranks, require_order, storage, to_numbers

_GREATEST = np.iinfo(np.int64).max


class OrderWords:
    """Words of an order over columns of these types."""

    def __init__(self, order: Order, schema: pa.Schema, operator: str) -> None:
        missing = [column.name for column in order if column.name not in schema.names]
        if missing:
            raise TypeMismatchError(
                f"operator '{operator}': no column {missing} to order by, only {schema.names}"
                f"{direction_hint(missing)}"
            )
        for column in order:
            require_order(schema.field(column.name).type, f"order_by: column '{column.name}'")
        self._order = order
        self.columns = [schema.names.index(column.name) for column in order]
        self.width = len(order)
        kinds = [schema.types[i] for i in self.columns]
        self.lasting = all(storage(kind) is not None for kind in kinds)
        """Whether words mean the same in every batch."""

    def of(self, arrays: Sequence[pa.Array], flip: bool = False) -> Int64s:
        """`width` words per row, row by row, of the order columns. `flip`: the order reversed, but
        nulls last as ever."""
        if not self.width:
            return np.empty(0, dtype=np.int64)
        words = np.empty((len(arrays[0]), self.width), dtype=np.int64)
        for j, (column, array) in enumerate(zip(self._order, arrays, strict=True)):
            words[:, j] = _words(array, column.descending != flip)
        return words.reshape(-1)

    def of_batch(self, data: pa.RecordBatch, flip: bool = False) -> Int64s:
        """`of` for a batch of all columns."""
        return self.of([data.column(i) for i in self.columns], flip)


def value_words(array: pa.Array) -> Int64s:
    """Ascending words of values without nulls; ranks where they do not last."""
    return _words(array, False)


def _words(array: pa.Array, descending: bool) -> Int64s:
    plain = storage_type(array.type)
    array = array if array.type == plain else array.cast(plain)
    held = storage(array.type)
    valid = NO_NULLS
    if held is None:
        words = ranks(array)
        if array.null_count:
            valid = numpy_of(array.is_valid())
    else:
        values, valid = to_numbers(array, held)
        words = _float_words(values) if held == "float64" else values
    words = ~words if descending else words
    return words if valid is NO_NULLS else np.where(valid, words, _GREATEST)


def _float_words(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Int64s:
    """IEEE 754 bits in order; -0.0 is 0.0, all NaN are one and the greatest."""
    plain = np.where(np.isnan(values), np.nan, values + 0.0)
    bits: Int64s = plain.view(np.int64)
    words: Int64s = np.where(bits < 0, bits ^ np.int64(2**63 - 1), bits)
    return words
