"""Arrow types for values that no Arrow type holds exactly, and marks for structs that are tuples.

    type           storage        values
    BigDecimal     large_string   Decimal, as written: 1.50 stays 1.50, with any number of digits
    BigInteger     large_string   int of any size
    Pickled        large_binary   any Python object, pickled

They are extension types, so that no kernel takes the storage for the values: what compares, orders
or computes on columns refuses them by name, and what only moves records (exchanges, unions, joins'
payload, windows' records, state, snapshots, files) carries them. Python sees the values.
As text two scales of a number differ that are equal as numbers: such a column is no key by itself
(`core.keys`), while Decimals in Python are, and equal ones are one key there.

A struct is a Row in Python. One whose records are plain tuples carries a mark in its fields'
metadata, where every kernel leaves it; what loses it (polars) makes rows of them, which equal the
tuples. The mark of whole records is in the schema's metadata.
"""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from decimal import Decimal
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from .errors import TypeMismatchError
from .taking import null_array, take_column


class ValueType(pa.ExtensionType, ABC):  # type: ignore[misc]  # pyarrow has no types
    """Base. `encode` and `decode` are for one value that is not None."""

    storage: ClassVar[pa.DataType]
    name: ClassVar[str]

    def __init__(self) -> None:
        super().__init__(self.storage, f"strom.{self.name}")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> ValueType:
        return cls()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    def __hash__(self) -> int:
        return hash(self.extension_name)

    def __str__(self) -> str:
        return self.name

    @property
    def plain(self) -> pa.DataType:
        """What Arrow's own types have for its values."""
        return self.storage

    def as_plain(self, column: pa.Array) -> pa.Array:
        """The column as its plain type."""
        return column.storage

    @abstractmethod
    def encode(self, value: Any) -> str | bytes:
        """What is stored. TypeMismatchError if the value is not of this type."""

    @abstractmethod
    def decode(self, stored: Any) -> Any:
        """The value, of what is stored."""

    def array(self, values: Iterable[Any]) -> pa.Array:
        """Values, or None, as a column."""
        encode = self.encode
        stored = [None if value is None else encode(value) for value in values]
        return pa.ExtensionArray.from_storage(self, pa.array(stored, self.storage))

    def values(self, column: pa.Array) -> list[Any]:
        """The column's values."""
        decode = self.decode
        stored = column.storage.to_pylist()
        try:
            return [None if value is None else decode(value) for value in stored]
        except (ArithmeticError, ValueError) as error:
            raise TypeMismatchError(
                f"a column of {type_text(self)} holds what is no such value: {error!r}"
            ) from error


class BigDecimal(ValueType):
    """Decimals as they are written, and whole numbers."""

    storage = pa.large_string()
    name = "big_dec"

    def encode(self, value: Any) -> str:
        if isinstance(value, Decimal):
            return str(value)
        if _is_whole(value):
            return str(Decimal(int(value)))
        raise TypeMismatchError("it is no Decimal")

    def decode(self, stored: Any) -> Decimal:
        return Decimal(stored)


class BigInteger(ValueType):
    """Whole numbers of any size; very long ones in hexadecimal, as Python refuses to write them
    otherwise."""

    storage = pa.large_string()
    name = "big_int"

    def encode(self, value: Any) -> str:
        if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
            value = int(value)
        if not _is_whole(value):
            raise TypeMismatchError("it is no whole number")
        number = int(value)
        return str(number) if number.bit_length() < _LONG_BITS else hex(number)

    def decode(self, stored: Any) -> int:
        return int(stored, 16 if "x" in stored[:3] else 10)


class Pickled(ValueType):
    """Any Python object. Classes of the main program travel by value, with cloudpickle."""

    storage = pa.large_binary()
    name = "pickled"

    def encode(self, value: Any) -> bytes:
        try:
            data = pickle.dumps(value, protocol=5)
            if b"__main__" not in data:
                return data
        except Exception:
            pass
        from . import code_pickles

        try:
            return code_pickles.dumps(value)
        except Exception as error:
            raise TypeMismatchError(f"it cannot be pickled: {error}") from error

    def decode(self, stored: Any) -> Any:
        try:
            return pickle.loads(stored)
        except Exception as error:
            raise TypeMismatchError(
                f"a pickled value cannot be read back ({type(error).__name__}: {error}); its class "
                "must be importable under the name it had"
            ) from error


_LONG_BITS = 8192
"""Python writes whole numbers of up to 4,300 digits; these have 2,466."""


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


for _made in (BigDecimal(), BigInteger(), Pickled()):
    pa.register_extension_type(_made)


def holds(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Whether the test holds of the type, or of one within it."""
    if test(kind):
        return True
    if pa.types.is_dictionary(kind):
        return holds(kind.value_type, test)
    return any(holds(kind.field(i).type, test) for i in range(kind.num_fields))


def is_value_type(kind: pa.DataType) -> bool:
    """Whether only Python can read its values."""
    return isinstance(kind, ValueType)


def type_text(kind: pa.DataType) -> str:
    """The type as messages name it."""
    return kind.name.upper() if isinstance(kind, ValueType) else str(kind)


# --- tuples ------------------------------------------------------------------------------------

_MARK = b"strom.type"
_TUPLE = b"tuple"


def tuple_struct(kinds: Iterable[pa.DataType]) -> pa.DataType:
    """A struct of fields f0, f1, ... whose values are tuples in Python."""
    fields = (pa.field(f"f{at}", kind) for at, kind in enumerate(kinds))
    return pa.struct([field.with_metadata({_MARK: _TUPLE}) for field in fields])


def is_tuple(kind: pa.DataType) -> bool:
    """Whether a struct's values are tuples in Python."""
    return bool(kind.num_fields) and (kind.field(0).metadata or {}).get(_MARK) == _TUPLE


def tuple_records(schema: pa.Schema) -> pa.Schema:
    """The schema of records that are tuples in Python."""
    return schema.with_metadata({**(schema.metadata or {}), _MARK: _TUPLE})


def has_tuple_records(schema: pa.Schema) -> bool:
    """Whether records of this schema are tuples in Python."""
    metadata = schema.metadata
    return metadata is not None and metadata.get(_MARK) == _TUPLE


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column with the marks of `kind`, an equal type. Nothing is copied."""
    if column.type.equals(kind, check_metadata=True):
        return column
    _, data = column.__arrow_c_array__()
    return pa.Array._import_from_c_capsule(kind.__arrow_c_schema__(), data)


def from_storage(values: list[Any], kind: pa.DataType) -> pa.Array:
    """A column of `kind` from what `to_pylist` gave for such a column: stored values, not those
    that Python sees."""
    plain = _stored_type(kind)
    column = pa.array(values, plain)
    return column if plain is kind else as_type(column, kind)


def as_stored(data: pa.RecordBatch) -> pa.RecordBatch:
    """The columns as they are stored, for what knows Arrow's own types alone: decimals and long
    integers are text, objects pickles. Nothing is copied."""
    fields = [field.with_type(_stored_type(field.type)) for field in data.schema]
    columns = [
        as_type(_as_plain(column, name), field.type)
        for name, column, field in zip(data.schema.names, data.columns, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _as_plain(column: pa.Array, name: str) -> pa.Array:
    kind = column.type
    if isinstance(kind, ValueType):
        return kind.as_plain(column)
    if holds(kind, _is_rearranged):
        raise TypeMismatchError(
            f"the column '{name}' has values of several kinds within others, which only Python "
            "can read: make a column of them"
        )
    return column


def _is_rearranged(kind: pa.DataType) -> bool:
    """Whether its plain type lays its values out in another way."""
    return isinstance(kind, ValueType) and kind.plain != kind.storage_type


def _stored_type(kind: pa.DataType) -> pa.DataType:
    if not holds(kind, is_value_type):
        return kind
    if isinstance(kind, ValueType):
        return _stored_type(kind.plain)
    if pa.types.is_map(kind):
        return pa.map_(_stored_type(kind.key_type), _stored_type(kind.item_type))
    fields = [kind.field(at) for at in range(kind.num_fields)]
    fields = [field.with_type(_stored_type(field.type)) for field in fields]
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(fields[0], kind.list_size)
    return pa.large_list(fields[0]) if pa.types.is_large_list(kind) else pa.list_(fields[0])


def items_of(lists: pa.Array) -> pa.Array:
    """The items of all lists of a column, in order: `lists.flatten()`, for items of every type."""
    if not holds(lists.type.value_type, is_value_type):
        return lists.flatten()
    lengths = np.asarray(lists.value_lengths().fill_null(0), dtype=np.int64)
    starts = np.asarray(lists.offsets, dtype=np.int64)[:-1]
    before = np.cumsum(lengths) - lengths
    places = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
    return take_column(lists.values, pa.array(places))


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of these columns without rows; pyarrow itself has none of extension types."""
    return pa.RecordBatch.from_arrays([empty_array(field.type) for field in schema], schema=schema)


def empty_table(schema: pa.Schema) -> pa.Table:
    """A table of these columns without rows."""
    return pa.Table.from_batches([empty_batch(schema)])


def empty_array(kind: pa.DataType) -> pa.Array:
    """A column of no values, of any type."""
    return null_array(0, kind)  # `pa.array` makes no dictionaries of decimals, and no unions


__all__ = [
    "BigDecimal",
    "BigInteger",
    "Pickled",
    "ValueType",
    "as_stored",
    "as_type",
    "empty_array",
    "empty_batch",
    "empty_table",
    "from_storage",
    "has_tuple_records",
    "holds",
    "is_tuple",
    "is_value_type",
    "items_of",
    "tuple_records",
    "tuple_struct",
    "type_text",
]
