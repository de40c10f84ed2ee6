"""Declared types, under PyFlink's names, as Arrow types.

A declared row type makes a stream columnar: its batches are Arrow record batches of that schema,
its records `Row`s with those field names. Scalars and undeclared types leave the records as they
are, Python objects. PyFlink's type information mostly serves the JVM; here it serves the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...core.errors import ConfigurationError, TypeMismatchError
from .annotations import arrow_type_of, record_fields


@dataclass(frozen=True)
class TypeInfo:
    """`arrow`: the Arrow type of a value, None if values stay pickled Python objects.
    `field_names`: those of a row type, in which case `arrow` is a struct."""

    name: str
    arrow: pa.DataType | None
    field_names: tuple[str, ...] = ()
    pickled_field: str | None = None
    """The first field of a row type that has no Arrow type; such a row cannot be columnar."""

    def __str__(self) -> str:
        return self.name

    def get_field_names(self) -> list[str]:
        return list(self.field_names)


class Types:
    """PyFlink's type factory. Timestamps have microseconds, as Python's have."""

    @staticmethod
    def STRING() -> TypeInfo:
        return TypeInfo("STRING", pa.string())

    @staticmethod
    def BYTE() -> TypeInfo:
        return TypeInfo("BYTE", pa.int8())

    @staticmethod
    def BOOLEAN() -> TypeInfo:
        return TypeInfo("BOOLEAN", pa.bool_())

    @staticmethod
    def SHORT() -> TypeInfo:
        return TypeInfo("SHORT", pa.int16())

    @staticmethod
    def INT() -> TypeInfo:
        return TypeInfo("INT", pa.int32())

    @staticmethod
    def LONG() -> TypeInfo:
        return TypeInfo("LONG", pa.int64())

    @staticmethod
    def FLOAT() -> TypeInfo:
        return TypeInfo("FLOAT", pa.float32())

    @staticmethod
    def DOUBLE() -> TypeInfo:
        return TypeInfo("DOUBLE", pa.float64())

    @staticmethod
    def CHAR() -> TypeInfo:
        return TypeInfo("CHAR", pa.string())

    @staticmethod
    def BIG_INT() -> TypeInfo:
        """Whole numbers of up to 38 digits; read back as Decimal, which equals the int."""
        return TypeInfo("BIG_INT", pa.decimal128(38, 0))

    @staticmethod
    def BIG_DEC() -> TypeInfo:
        """Decimals with 20 digits before and 18 behind the point."""
        return TypeInfo("BIG_DEC", pa.decimal128(38, 18))

    @staticmethod
    def INSTANT() -> TypeInfo:
        """A point in time: a datetime in UTC."""
        return TypeInfo("INSTANT", pa.timestamp("us", tz="UTC"))

    @staticmethod
    def SQL_DATE() -> TypeInfo:
        return TypeInfo("SQL_DATE", pa.date32())

    @staticmethod
    def SQL_TIME() -> TypeInfo:
        return TypeInfo("SQL_TIME", pa.time64("us"))

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInfo:
        """A datetime without time zone."""
        return TypeInfo("SQL_TIMESTAMP", pa.timestamp("us"))

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInfo:
        """Any Python object, kept as it is."""
        return TypeInfo("PICKLED_BYTE_ARRAY", None)

    @staticmethod
    def ROW(field_types: Sequence[TypeInfo]) -> TypeInfo:
        """A row with fields f0, f1, ..."""
        return _row("ROW", [f"f{i}" for i in range(len(field_types))], field_types)

    @staticmethod
    def ROW_NAMED(field_names: Sequence[str], field_types: Sequence[TypeInfo]) -> TypeInfo:
        return _row("ROW_NAMED", field_names, field_types)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInfo]) -> TypeInfo:
        """As ROW: a row is a tuple."""
        return _row("TUPLE", [f"f{i}" for i in range(len(field_types))], field_types)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInfo) -> TypeInfo:
        """An array; of bytes, `bytes`."""
        if element_type == Types.BYTE():
            return TypeInfo("PRIMITIVE_ARRAY(BYTE)", pa.binary())
        return _list("PRIMITIVE_ARRAY", element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInfo) -> TypeInfo:
        return _list("BASIC_ARRAY", element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInfo) -> TypeInfo:
        return _list("OBJECT_ARRAY", element_type)

    @staticmethod
    def LIST(element_type_info: TypeInfo) -> TypeInfo:
        return _list("LIST", element_type_info)

    @staticmethod
    def MAP(key_type_info: TypeInfo, value_type_info: TypeInfo) -> TypeInfo:
        key, value = _require(key_type_info, "MAP"), _require(value_type_info, "MAP")
        name = f"MAP({key}, {value})"
        if key.arrow is None or value.arrow is None:
            return TypeInfo(name, None)
        return TypeInfo(name, pa.map_(key.arrow, value.arrow))


def schema_of(declared: Any) -> pa.Schema | None:
    """The columns of a stream declared as `declared`; None when its records stay Python objects.

    Accepts None, a pyarrow Schema or DataType, a TypeInfo, a dataclass, NamedTuple or TypedDict
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
        case TypeInfo():
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
        f"{declared!r} declares no type; give a TypeInfo such as Types.ROW_NAMED([...], [...]), a "
        "pyarrow.Schema, a dataclass or NamedTuple class, or a dict of column name to type"
    )


def _row_schema(declared: TypeInfo) -> pa.Schema | None:
    if declared.pickled_field is not None:
        raise TypeMismatchError(
            f"field '{declared.pickled_field}' of {declared} is a pickled Python object, which no "
            "column can hold; declare a columnar type for it, or declare the whole record as "
            "Types.PICKLED_BYTE_ARRAY()"
        )
    if not declared.field_names or declared.arrow is None:
        return None
    return pa.schema(list(declared.arrow))


def _field_type(name: object, declared: Any) -> pa.DataType:
    """The Arrow type of one field; TypeMismatchError naming it when there is none."""
    if isinstance(declared, TypeInfo):
        if declared.arrow is None:
            raise TypeMismatchError(f"field '{name}': {declared} is not a columnar type")
        return declared.arrow
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


def _row(name: str, names: Sequence[str], types: Sequence[TypeInfo]) -> TypeInfo:
    if len(names) != len(types):
        raise ConfigurationError(f"{name}: {len(names)} field names but {len(types)} field types")
    if len(set(names)) != len(names):
        raise ConfigurationError(f"{name}: field names {list(names)} are not distinct")
    fields = [(field, _require(info, name)) for field, info in zip(names, types, strict=True)]
    title = f"{name}({', '.join(f'{field}: {info}' for field, info in fields)})"
    pickled = next((field for field, info in fields if info.arrow is None), None)
    columns = [pa.field(field, info.arrow) for field, info in fields if info.arrow is not None]
    arrow = None if pickled is not None else pa.struct(columns)
    return TypeInfo(title, arrow, tuple(names), pickled)


def _list(name: str, element: TypeInfo) -> TypeInfo:
    arrow = _require(element, name).arrow
    return TypeInfo(f"{name}({element})", None if arrow is None else pa.list_(arrow))


def _require(info: object, where: str) -> TypeInfo:
    if not isinstance(info, TypeInfo):
        raise ConfigurationError(
            f"Types.{where}: {info!r} is not a type of Types, e.g. Types.INT()"
        )
    return info
