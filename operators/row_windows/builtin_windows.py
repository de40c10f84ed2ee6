"""Built-in aggregates and extremes row by row: where windows, trigger or key have no kernels.

What comes out has the columns and types that the kernels' path gives. The types follow from those
of the input columns (the *layout*); where records are objects, they are inferred from the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...api.specs.schemas import input_type, result_type
from ...api.specs.windows import BuiltinWindow, ExtremeWindow
from ...core.batch import ColumnBatch, ObjectBatch, to_columns
from ...core.constants import END, START
from ...core.errors import TypeMismatchError
from ...core.keys import ColumnKey, ConstantKey, ExpressionKey, KeySelector
from ...core.row_values import field_of
from ..base import Output

Layout = Callable[[], pa.Schema | None]
"""Key fields, then input fields; metadata `keys` is how many key fields. None while unknown."""


class AggregatesFold:
    """All aggregates of a BuiltinWindow as one accumulator: a list with one accumulator each."""

    def __init__(self, functions: Sequence[Any]) -> None:
        self._functions = functions

    def first(self, value: Any) -> Any:
        return [f.add(value, f.create_accumulator()) for f in self._functions]

    def add(self, accumulator: Any, value: Any) -> Any:
        for index, function in enumerate(self._functions):
            accumulator[index] = function.add(value, accumulator[index])
        return accumulator

    def merge(self, left: Any, right: Any) -> Any:
        return [f.merge(a, b) for f, a, b in zip(self._functions, left, right, strict=True)]

    def result(self, accumulator: Any) -> tuple[Any, ...]:
        return tuple(
            f.get_result(part) for f, part in zip(self._functions, accumulator, strict=True)
        )


class ExtremeFold:
    """Accumulator: [extreme or None, records that hold it, number of the first of them]. Null never
    is one, NaN is greatest. Numbers are in order of arrival, also where sessions merge and, by
    `attempt`, after a restore."""

    def __init__(self, spec: ExtremeWindow, attempt: int = 0) -> None:
        self._field = spec.field
        self._ties = spec.ties
        self._greatest = spec.kind == "max"
        self._number = attempt << 40

    def first(self, value: Any) -> Any:
        return self.add([None, [], -1], value)

    def add(self, accumulator: Any, value: Any) -> Any:
        item = field_of(value, self._field)
        if item is None:
            return accumulator
        self._number = max(self._number, accumulator[2]) + 1
        return self.merge(accumulator, [item, [value], self._number])

    def merge(self, left: Any, right: Any) -> Any:
        if left[0] is None or right[0] is None:
            return left if right[0] is None else right
        order = _compare(right[0], left[0])
        if order == 0:
            earlier, later = (left, right) if left[2] <= right[2] else (right, left)
            return [earlier[0], earlier[1] + later[1], earlier[2]] if self._ties else earlier
        return right if (order > 0) == self._greatest else left

    def result(self, accumulator: Any) -> list[Any]:
        records: list[Any] = accumulator[1]
        return records


def _compare(left: Any, right: Any) -> int:
    """-1, 0 or 1; NaN equals itself and is greater than anything else."""
    if left != left or right != right:
        return int(left != left) - int(right != right)
    return int(left > right) - int(left < right)


class _ColumnEmitter:
    """Gathers rows that fire with their windows; sends them as columns, `chunk` at most at once."""

    def __init__(self, out: Output, chunk: int) -> None:
        self._out = out
        self._chunk = chunk
        self._rows: list[Any] = []
        self._starts: list[int | None] = []
        self._ends: list[int | None] = []
        self._stamps: list[int] = []

    def clear(self, window: Any) -> None:
        """Nothing is kept per window."""

    def flush(self) -> None:
        if not self._rows:
            return
        batch = self._columns()
        self._rows, self._starts, self._ends, self._stamps = [], [], [], []
        self._out.emit(batch)

    def _gather(self, row: Any, window: Any) -> None:
        self._rows.append(row)
        self._starts.append(getattr(window, "start", None))
        self._ends.append(getattr(window, "end", None))
        self._stamps.append(window.max_timestamp())
        if len(self._rows) >= self._chunk:
            self.flush()

    def _bounds(self) -> list[pa.Array]:
        return [pa.array(bound, type=pa.int64()) for bound in (self._starts, self._ends)]

    def _columns(self) -> ColumnBatch:
        raise AssertionError("abstract")

    def _stamp_array(self) -> Any:
        return np.array(self._stamps, dtype=np.int64)


class AggregatesEmitter(_ColumnEmitter):
    """Rows of key columns, window bounds, aggregates."""

    def __init__(
        self, out: Output, chunk: int, key: KeySelector, spec: BuiltinWindow, layout: Layout
    ) -> None:
        super().__init__(out, chunk)
        self._selector = key
        self._aggregates = spec.aggregates
        self._layout = layout

    def fire(self, key: Any, window: Any, contents: Sequence[Any]) -> None:
        self._gather((key, contents[0]), window)

    def _columns(self) -> ColumnBatch:
        layout = self._layout()
        names, arrays = self._keys(layout)
        names += [START, END]
        arrays += self._bounds()
        results = zip(*(results for _, results in self._rows), strict=True)
        for (name, aggregate), values in zip(self._aggregates, results, strict=True):
            names.append(name)
            arrays.append(pa.array(values, type=_result_type(aggregate, layout)))
        data = pa.RecordBatch.from_arrays(arrays, names=names)
        return ColumnBatch(data, self._stamp_array())

    def _keys(self, layout: pa.Schema | None) -> tuple[list[str], list[pa.Array]]:
        if isinstance(self._selector, ConstantKey):
            return [], []
        keys = [key for key, _ in self._rows]
        if layout is None:
            names = _key_names(self._selector)
            kinds = [None] * len(names)
        else:
            fields = list(layout)[: int(layout.metadata[b"keys"])]
            names = [field.name for field in fields]
            kinds = [field.type for field in fields]
        columns = [keys] if len(names) == 1 else list(zip(*keys, strict=True))
        return names, [_key_array(c, kind) for c, kind in zip(columns, kinds, strict=True)]


def _key_names(key: KeySelector) -> list[str]:
    if isinstance(key, ColumnKey):
        return list(key.names)
    if isinstance(key, ExpressionKey):
        return [expression.meta.output_name() for expression in key.expressions]
    return ["key"]


def _key_array(keys: Sequence[Any], kind: pa.DataType | None) -> pa.Array:
    try:
        return pa.array(keys, type=kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise TypeMismatchError(
            f"keys such as {keys[0]!r} do not fit one column ({error}): key by column names or "
            "expressions, or use a window function of your own"
        ) from error


class ExtremesEmitter(_ColumnEmitter):
    """The records that hold the extreme, with the window's bounds appended."""

    def __init__(self, out: Output, chunk: int, layout: Layout) -> None:
        super().__init__(out, chunk)
        self._layout = layout

    def fire(self, key: Any, window: Any, contents: Sequence[Any]) -> None:
        for record in contents[0]:
            self._gather(record, window)

    def _columns(self) -> ColumnBatch:
        layout = self._layout()
        schema = None
        if layout is not None:
            schema = pa.schema(list(layout)[int(layout.metadata[b"keys"]) :])
        data = to_columns(ObjectBatch(self._rows), schema).data
        names = [*data.schema.names, START, END]
        arrays = [*data.columns, *self._bounds()]
        return ColumnBatch(pa.RecordBatch.from_arrays(arrays, names=names), self._stamp_array())


def input_layout(batch: ColumnBatch, key: KeySelector, keyed: bool) -> pa.Schema:
    """The layout of an operator whose records look like this batch."""
    sample = batch.slice(0, 1)
    columns = key.key_columns(sample) if keyed else None
    if columns is not None:
        keys = list(columns.schema)
    else:
        kinds = [_key_array(key.keys(sample), None).type] if keyed else []
        keys = [pa.field("key", kind) for kind in kinds]
    fields = [*keys, *batch.data.schema]
    return pa.schema(fields, metadata={"keys": str(len(keys))})


def _result_type(aggregate: Aggregate, layout: pa.Schema | None) -> pa.DataType | None:
    """The type of an aggregate's results; None: inferred."""
    fields = [] if layout is None else list(layout)[int(layout.metadata[b"keys"]) :]
    return result_type(aggregate, input_type(pa.schema(fields), aggregate.expression))


__all__ = [
    "AggregatesEmitter",
    "AggregatesFold",
    "ExtremeFold",
    "ExtremesEmitter",
    "Layout",
    "input_layout",
]
