"""Arrow columns to the two number types of the kernels, and back.

Integers, booleans, dates, times, timestamps and durations are held as int64, floats as float64; the
way back restores the column's type exactly. Other types are not numbers: `storage` is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..core.arrays import Bools, Int64s, has_order, numpy_of
from ..core.arrays import Storage as Storage
from ..core.arrays import storage as storage
from ..core.batch import ColumnBatch
from ..core.errors import TypeMismatchError
from ..core.frames import frame_of
from ..core.key_types import widened
from ..core.keys import KeySelector
from ..core.taking import valid_rows
from ..core.value_types import empty_batch

if TYPE_CHECKING:
    import polars as pl

NO_NULLS: Bools = np.empty(0, dtype=np.bool_)
"""The validity of a column without nulls, as kernels take it."""


def validity(array: pa.Array) -> Bools:
    """As kernels take it: NO_NULLS when no value is null."""
    valid = valid_rows(array)
    return NO_NULLS if valid is None else valid


def to_numbers(array: pa.Array, held: Storage) -> tuple[npt.NDArray[Any], Bools]:
    """The column's values (nulls as 0) and validity (NO_NULLS when there are none)."""
    valid = validity(array)
    numbers = _to_plain(array, held)
    if len(valid):
        numbers = numbers.fill_null(0)
    values = numpy_of(numbers)
    return values if values.flags.aligned else values.copy(), valid


def is_whole(kind: pa.DataType) -> bool:
    """Whether means of such values are made of sums without rounding: integers and booleans."""
    return not pa.types.is_floating(kind)


def whole_numbers(array: pa.Array) -> tuple[Int64s, Bools, bool]:
    """As `to_numbers`, of integers or booleans, as int64; and whether they are the bits of uint64,
    which are read so."""
    if not pa.types.is_uint64(array.type):
        return *to_numbers(array, "int64"), False
    valid = validity(array)
    bits = numpy_of(array.fill_null(0) if len(valid) else array).view(np.int64)
    return (bits if bits.flags.aligned else bits.copy()), valid, True


def plain_values(array: pa.Array, dtype: str) -> npt.NDArray[Any]:
    """A column of numbers or booleans without nulls, as kernels take it."""
    values: npt.NDArray[Any] = numpy_of(array)
    if values.dtype != np.dtype(dtype):
        values = numpy_of(fit(array, pa.from_numpy_dtype(np.dtype(dtype)), "an accumulator"))
    return values if values.flags.aligned and values.flags.c_contiguous else values.copy()


def _to_plain(array: pa.Array, held: Storage) -> pa.Array:
    kind = array.type
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        array = array.cast(pa.int32())
    if held == "float64":  # integers beyond 2**53 are rounded, which Arrow does not by itself
        return array if array.type.equals(pa.float64()) else array.cast(pa.float64(), safe=False)
    try:
        return array if array.type.equals(pa.int64()) else array.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise TypeMismatchError(
            f"a value of type {array.type} exceeds the range of int64; cast the column to float64: "
            f"{error}"
        ) from error


def from_numbers(values: npt.NDArray[Any], valid: Bools | None, kind: pa.DataType) -> pa.Array:
    """A column of `kind`; null where `valid` is false. `values` must not be written afterwards."""
    mask = None if valid is None or valid.all() else ~valid
    array = pa.array(values, mask=mask)
    if array.type.equals(kind):
        return array
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        array = array.cast(pa.int32())
    return array.cast(kind)


def decoded(kind: pa.DataType) -> pa.DataType:
    """The type without dictionary encoding."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def fit(array: pa.Array, kind: pa.DataType, what: str) -> pa.Array:
    """The column as `kind`, the type that an operator's state was made for. Cheap if it is so.

    Numbers may change their type while none is lost, and values their encoding; Arrow by itself
    would also read "5" as 5, and 5 as a time.
    """
    found = array.type
    if found.equals(kind):
        return array
    if not _alike(found, kind):
        _refuse(array, kind, what, "these are values of another kind")
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        _refuse(array, kind, what, error)


def _refuse(array: pa.Array, kind: pa.DataType, what: str, why: object) -> NoReturn:
    raise TypeMismatchError(
        f"{what} was {kind} in earlier batches and is {array.type} now ({why}); "
        "declare a schema upstream so that its type is fixed"
    )


def same_keys(found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether equal keys of the two types have equal hashes, and so meet in one subtask: 5 and 5.0
    do not. A column of nothing but nulls is of every type."""
    return bool(pa.types.is_null(found) or widened(found).equals(widened(kind)))


def _alike(found: pa.DataType, kind: pa.DataType) -> bool:
    """Whether values of both types are of one kind; of structs, field by field."""
    if pa.types.is_struct(found) and pa.types.is_struct(kind):
        same = [field.name for field in found] == [field.name for field in kind]
        return same and all(_alike(a.type, b.type) for a, b in zip(found, kind, strict=True))
    return same_keys(found, kind) or (_is_number(found) and _is_number(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def fit_columns(columns: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns with exactly the types of `schema` (matched by position)."""
    if columns.schema.equals(schema):
        return columns
    arrays = [
        fit(column, field.type, f"column '{field.name}'")
        for column, field in zip(columns.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def fit_keys(keys: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """As `fit_columns`, for key columns: keys of one value in two types are not one key if the
    exchange sends them to two subtasks."""
    if not keys.schema.equals(schema):
        for column, field in zip(keys.columns, schema, strict=True):
            if not same_keys(column.type, field.type):
                _refuse(column, field.type, f"column '{field.name}'", "these are other keys")
    return fit_columns(keys, schema)


def check_keys(key: KeySelector, found: pa.Schema, schema: pa.Schema) -> None:
    """As `fit_keys`, for records of `found` that will be fitted to `schema` as a whole: their keys
    must not become others. `key` has columns."""
    empty = (empty_batch(one) for one in (found, schema))
    now, before = (key.key_columns(ColumnBatch(none)) for none in empty)
    assert now is not None
    assert before is not None
    for column, field in zip(now.columns, before.schema, strict=True):
        if not same_keys(column.type, field.type):
            _refuse(column, field.type, f"column '{field.name}'", "these are other keys")


_PLAIN = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def held_type(kind: pa.DataType) -> pa.DataType:
    """The type in which state holds rows of this type: views would keep the whole batches alive
    into which they point."""
    return _PLAIN.get(kind, kind)


def retyped(columns: Sequence[pa.Array], kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """The columns as these types, to and from `held_type`."""
    pairs = zip(columns, kinds, strict=True)
    return [column if column.type == kind else column.cast(kind) for column, kind in pairs]


def require_order(kind: pa.DataType, what: str) -> None:
    """TypeMismatchError unless columns of this type can be sorted. `what`: says which is asked for,
    as in "top_n: column 'price'"."""
    if pa.types.is_null(kind):
        raise TypeMismatchError(
            f"{what} holds only nulls in the first batch, so its type is unknown: declare a schema "
            "upstream"
        )
    if not has_order(kind):
        raise TypeMismatchError(
            f"{what} holds values of type {kind}, which have no order: take numbers, times, text "
            "or bytes, such as a field or the length of these"
        )


def ranks(array: pa.Array) -> npt.NDArray[np.int64]:
    """Dense ranks (equal values share one) of values that are not numbers; nulls come last."""
    kind = held_type(decoded(array.type))
    half = pa.types.is_float16(kind)
    (array,) = retyped([array], [pa.float32() if half else kind])  # all others Arrow ranks
    try:
        ranked = pc.rank(array, sort_keys="ascending", tiebreaker="dense")
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise TypeMismatchError(f"values of type {array.type} have no order") from error
    result: npt.NDArray[np.int64] = numpy_of(ranked).astype(np.int64)
    return result


def evaluate(batch: ColumnBatch, expressions: Sequence[str | pl.Expr]) -> list[pa.Array]:
    """Each column name's or expression's column, one value per record, dictionaries decoded."""
    data = batch.data
    found: list[pa.Array | None] = []
    computed = [(i, e) for i, e in enumerate(expressions) if not isinstance(e, str)]
    for expression in expressions:
        if not isinstance(expression, str):
            found.append(None)
        elif data.schema.names.count(expression) == 1:
            found.append(data.column(expression))
        else:
            several = "several columns" if expression in data.schema.names else "no column"
            raise TypeMismatchError(f"{several} '{expression}' in {data.schema.names}")
    if computed:
        for (index, _), column in zip(computed, _compute(data, computed), strict=True):
            found[index] = column
    arrays = [a for a in found if a is not None]
    return [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in arrays]


def _compute(data: pa.RecordBatch, computed: list[tuple[int, pl.Expr]]) -> list[pa.Array]:
    import polars as pl

    try:
        frame = frame_of(data).select(*[e.alias(f"e{i}") for i, e in computed])
    except pl.exceptions.PolarsError as error:
        text = ", ".join(str(e) for _, e in computed)
        raise TypeMismatchError(f"cannot compute {text} on {data.schema.names}: {error}") from error
    if frame.height != data.num_rows:
        text = ", ".join(str(e) for _, e in computed)
        raise TypeMismatchError(
            f"{text} gives {frame.height} values for {data.num_rows} records: give expressions "
            "of single records; the aggregate itself folds them"
        )
    return [series.to_arrow() for series in frame]
