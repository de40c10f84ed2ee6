"""Declared types, under PyFlink's names, as Arrow types.

A declared row or tuple type makes a stream columnar: its batches are Arrow record batches of that
schema, its records `Row`s with those field names, or tuples. Other types declare records of one
value each, Python objects that are checked (`declared`). PyFlink's type information mostly serves
the JVM; here it serves the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ...core.errors import ConfigurationError, TypeMismatchError
from ...core.value_types import tuple_records
from .annotations import arrow_type_of, record_fields
from .type_classes import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    InstantTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    UnionTypeInfo,
    type_of_columns,
)

TypeInfo = TypeInformation
"""Its name before it had PyFlink's."""


class Types:
    """PyFlink's type factory. Timestamps have microseconds, as Python's have."""

    @staticmethod
    def STRING() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BYTE() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def BOOLEAN() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def SHORT() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT() -> BasicTypeInfo:
        """Whole numbers of any size. Expressions and aggregates cannot compute on such columns."""
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC() -> BasicTypeInfo:
        """Decimals of any number of digits, as they are written: 1.50 stays 1.50. Expressions and
        aggregates cannot compute on such columns; on a fixed-point column, which a
        `pyarrow.decimal128(precision, scale)` declares, they can."""
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT() -> InstantTypeInfo:
        """A point in time: a datetime in UTC."""
        return InstantTypeInfo()

    @staticmethod
    def SQL_DATE() -> DateTypeInfo:
        return DateTypeInfo()

    @staticmethod
    def SQL_TIME() -> TimeTypeInfo:
        return TimeTypeInfo()

    @staticmethod
    def SQL_TIMESTAMP() -> TimestampTypeInfo:
        """A datetime without time zone."""
        return TimestampTypeInfo()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> PickledBytesTypeInfo:
        """Any Python object, kept as it is; a field of a row is pickled."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """A row with fields f0, f1, ..."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(
        field_names: Sequence[str], field_types: Sequence[TypeInformation]
    ) -> RowTypeInfo:
        """A row with these fields. `Row`s with names are matched by name, tuples by place."""
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:
        """A tuple, whose columns are f0, f1, ..."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> PrimitiveArrayTypeInfo:
        """An array; of bytes, `bytes`."""
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> BasicArrayTypeInfo:
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> ObjectArrayTypeInfo:
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> ListTypeInfo:
        return ListTypeInfo(element_type_info)

    @staticmethod
    def UNION(kinds: Mapping[str, Any]) -> UnionTypeInfo:
        """One of several kinds of rows: an `OfKind`. `kinds`: of each its name and the type of its
        rows, a row or tuple type or whatever else declares columns. `of_kind` takes one of them.
        PyFlink has none.

        >>> Types.UNION({"join": {"user": str}, "leave": {"user": str, "reason": str}})
        UNION(join: ROW_NAMED(user: STRING), leave: ROW_NAMED(user: STRING, reason: STRING))
        """
        rows = {}
        for name, declared in kinds.items():
            schema = schema_of(declared)
            if schema is None:
                raise ConfigurationError(f"UNION: the kind {name!r} is no row but {declared!r}")
            rows[name] = type_of_columns(schema)
        return UnionTypeInfo(rows)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> MapTypeInfo:
        return MapTypeInfo(key_type_info, value_type_info)


def schema_of(declared: Any) -> pa.Schema | None:
    """The columns of a stream declared as `declared`; None when its records stay Python objects.

    Accepts None, a pyarrow Schema or DataType, one of `Types`, a dataclass, NamedTuple or TypedDict
    class, a dict of column name to type, and the scalar Python types. Raises ConfigurationError if
    it is none of these, TypeMismatchError naming the field if a field's type has no Arrow type.

    >>> schema_of({"sensor": str, "celsius": float | None})
    sensor: string
    celsius: double
    >>> schema_of(Types.ROW([Types.STRING(), Types.LONG()])).names
    ['f0', 'f1']
    >>> schema_of(int) is None
    True
    """
    match declared:
        case None:
            return None
        case pa.Schema():
            return declared
        case TypeInformation():
            return _row_schema(declared)
        case pa.DataType():
            return pa.schema(list(declared)) if pa.types.is_struct(declared) else None
        case Mapping():
            return pa.schema([pa.field(str(k), _field_type(k, v)) for k, v in declared.items()])
    fields = record_fields(declared)
    if fields is not None:
        return pa.schema([pa.field(name, _field_type(name, t)) for name, t in fields.items()])
    if _is_scalar(declared):
        return None
    raise ConfigurationError(
        f"{declared!r} declares no type; give a type such as Types.ROW_NAMED([...], [...]), a "
        "pyarrow.Schema, a dataclass or NamedTuple class, or a dict of column name to type"
    )


def _row_schema(declared: TypeInformation) -> pa.Schema | None:
    if not isinstance(declared, (RowTypeInfo, TupleTypeInfo)):
        return None
    columns = pa.schema(list(declared.arrow or ()))
    return columns if isinstance(declared, RowTypeInfo) else tuple_records(_unmarked(columns))


def _unmarked(columns: pa.Schema) -> pa.Schema:
    """The columns of a tuple; that it is one stands in the schema's metadata."""
    return pa.schema([field.remove_metadata() for field in columns])


def _field_type(name: object, declared: Any) -> pa.DataType:
    """The Arrow type of one field; TypeMismatchError naming it when there is none."""
    if isinstance(declared, TypeInformation):
        return declared.column_type
    found = arrow_type_of(declared)
    if found is None:
        raise TypeMismatchError(
            f"field '{name}': no Arrow type for {declared!r}; annotate it with a type such as int, "
            "float, str, bytes, bool, datetime, Decimal, list[...], dict[..., ...], X | None, or "
            "with Annotated[..., pyarrow type]"
        )
    return found


def _is_scalar(declared: Any) -> bool:
    found = arrow_type_of(declared)
    return found is not None and not pa.types.is_struct(found)
