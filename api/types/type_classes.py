"""Classes of declared types, under PyFlink's names: what `Types` gives, for `isinstance` and to be
asked for their parts.

PyFlink's also serve the JVM, as descriptions of its serialisers; here they say what columns hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import pyarrow as pa

from ...core.errors import ConfigurationError, TypeMismatchError
from ...core.row import positional_names
from ...core.union_type import UnionType
from ...core.value_types import (
    BigDecimal,
    BigInteger,
    Pickled,
    has_tuple_records,
    is_tuple,
    tuple_struct,
)


class TypeInformation:
    """Base. `arrow`: the Arrow type of a value, None if values stay Python objects; as a field of a
    row such values are pickled (`column_type`)."""

    def __init__(self, name: str, arrow: pa.DataType | None) -> None:
        self._name = name
        self.arrow = arrow

    @property
    def column_type(self) -> pa.DataType:
        """The Arrow type of a field of this type."""
        return Pickled() if self.arrow is None else self.arrow

    def __str__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return self._name

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash((type(self), self._name))


class BasicType(Enum):
    """What a `BasicTypeInfo` is made of."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Character"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


_BASIC: dict[BasicType, pa.DataType] = {
    BasicType.STRING: pa.string(),
    BasicType.BYTE: pa.int8(),
    BasicType.BOOLEAN: pa.bool_(),
    BasicType.SHORT: pa.int16(),
    BasicType.INT: pa.int32(),
    BasicType.LONG: pa.int64(),
    BasicType.FLOAT: pa.float32(),
    BasicType.DOUBLE: pa.float64(),
    BasicType.CHAR: pa.string(),
    BasicType.BIG_INT: BigInteger(),
    BasicType.BIG_DEC: BigDecimal(),
    BasicType.INSTANT: pa.timestamp("us", tz="UTC"),
}


class BasicTypeInfo(TypeInformation):
    """Numbers, texts and booleans."""

    def __init__(self, basic_type: BasicType) -> None:
        super().__init__(basic_type.name, _BASIC[basic_type])

    @staticmethod
    def STRING_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.STRING)

    @staticmethod
    def BOOLEAN_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BOOLEAN)

    @staticmethod
    def BYTE_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BYTE)

    @staticmethod
    def SHORT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.SHORT)

    @staticmethod
    def INT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.INT)

    @staticmethod
    def LONG_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.LONG)

    @staticmethod
    def FLOAT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.FLOAT)

    @staticmethod
    def DOUBLE_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.DOUBLE)

    @staticmethod
    def CHAR_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.CHAR)

    @staticmethod
    def BIG_INT_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BIG_INT)

    @staticmethod
    def BIG_DEC_TYPE_INFO() -> BasicTypeInfo:
        return BasicTypeInfo(BasicType.BIG_DEC)

    @staticmethod
    def INSTANT_TYPE_INFO() -> InstantTypeInfo:
        return InstantTypeInfo(BasicType.INSTANT)


class InstantTypeInfo(BasicTypeInfo):
    """Points in time: datetimes in UTC."""

    def __init__(self, basic_type: BasicType = BasicType.INSTANT) -> None:
        super().__init__(basic_type)


class DateTypeInfo(TypeInformation):
    """Dates."""

    def __init__(self) -> None:
        super().__init__("SQL_DATE", pa.date32())


class TimeTypeInfo(TypeInformation):
    """Times of day, in microseconds."""

    def __init__(self) -> None:
        super().__init__("SQL_TIME", pa.time64("us"))


class TimestampTypeInfo(TypeInformation):
    """Datetimes without time zone."""

    def __init__(self) -> None:
        super().__init__("SQL_TIMESTAMP", pa.timestamp("us"))


class SqlTimeTypeInfo(TypeInformation):
    """Maker of the three above."""

    @staticmethod
    def DATE() -> DateTypeInfo:
        return DateTypeInfo()

    @staticmethod
    def TIME() -> TimeTypeInfo:
        return TimeTypeInfo()

    @staticmethod
    def TIMESTAMP() -> TimestampTypeInfo:
        return TimestampTypeInfo()


class PickledBytesTypeInfo(TypeInformation):
    """Any Python object."""

    def __init__(self) -> None:
        super().__init__("PICKLED_BYTE_ARRAY", None)


class RowTypeInfo(TypeInformation):
    """Rows: `field_names` f0, f1, ... unless given. In Python they are `Row`s."""

    _title = "ROW"

    def __init__(
        self, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None = None
    ) -> None:
        title = self._title if field_names is None else f"{self._title}_NAMED"
        types = [require_type(one, title) for one in field_types]
        names = list(positional_names(len(types)) if field_names is None else field_names)
        if len(names) != len(types):
            raise ConfigurationError(
                f"{title}: {len(names)} field names but {len(types)} field types"
            )
        if len(set(names)) != len(names):
            raise ConfigurationError(f"{title}: field names {names} are not distinct")
        self._names, self._types = names, types
        fields = ", ".join(f"{name}: {one}" for name, one in zip(names, types, strict=True))
        super().__init__(f"{title}({fields})", self._struct([one.column_type for one in types]))

    def _struct(self, kinds: Sequence[pa.DataType]) -> pa.DataType:
        return pa.struct([pa.field(n, kind) for n, kind in zip(self._names, kinds, strict=True)])

    def get_field_names(self) -> list[str]:
        return list(self._names)

    def get_field_index(self, field_name: str) -> int:
        """The place of a field; -1 if there is none of this name."""
        return self._names.index(field_name) if field_name in self._names else -1

    def get_field_types(self) -> list[TypeInformation]:
        return list(self._types)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        assert isinstance(other, RowTypeInfo)
        return self._names == other._names and self._types == other._types

    def __hash__(self) -> int:
        return hash((type(self), *self._names, *self._types))


class TupleTypeInfo(TypeInformation):
    """Tuples; columns call their fields f0, f1, ..."""

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        self._types = [require_type(one, "TUPLE") for one in field_types]
        if not self._types:
            raise ConfigurationError("TUPLE: a tuple without fields holds nothing: give it one")
        arrow = tuple_struct([one.column_type for one in self._types])
        super().__init__(f"TUPLE({', '.join(map(str, self._types))})", arrow)

    def get_field_types(self) -> list[TypeInformation]:
        return list(self._types)


class _ElementsTypeInfo(TypeInformation):
    """Lists of one type."""

    _title = ""

    def __init__(self, element_type: TypeInformation) -> None:
        self._element_type = require_type(element_type, self._title)
        kind = self._element_type.column_type
        super().__init__(f"{self._title}({element_type})", self._column(kind))

    def _column(self, kind: pa.DataType) -> pa.DataType:
        return pa.list_(kind)


class ListTypeInfo(_ElementsTypeInfo):
    """Lists."""

    _title = "LIST"


class PrimitiveArrayTypeInfo(_ElementsTypeInfo):
    """Lists of numbers or booleans; of BYTE: `bytes`."""

    _title = "PRIMITIVE_ARRAY"

    def _column(self, kind: pa.DataType) -> pa.DataType:
        return pa.binary() if kind == pa.int8() else pa.list_(kind)


class BasicArrayTypeInfo(_ElementsTypeInfo):
    """Lists of numbers, booleans or texts."""

    _title = "BASIC_ARRAY"


class ObjectArrayTypeInfo(_ElementsTypeInfo):
    """Lists of anything."""

    _title = "OBJECT_ARRAY"


class MapTypeInfo(TypeInformation):
    """Dicts."""

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        self._key_type_info = require_type(key_type_info, "MAP")
        self._value_type_info = require_type(value_type_info, "MAP")
        kinds = self._key_type_info.column_type, self._value_type_info.column_type
        super().__init__(f"MAP({key_type_info}, {value_type_info})", pa.map_(*kinds))


class UnionTypeInfo(TypeInformation):
    """Rows of several kinds: `kinds` are their types, by name. In Python they are `OfKind`s."""

    def __init__(self, kinds: Mapping[str, TypeInformation]) -> None:
        self._kinds = dict(kinds)
        structs = {name: require_type(one, "UNION").column_type for name, one in kinds.items()}
        try:
            union = UnionType.of(structs)
        except TypeMismatchError as error:
            raise ConfigurationError(f"UNION: {error}") from error
        shown = ", ".join(f"{name}: {one}" for name, one in kinds.items())
        super().__init__(f"UNION({shown})", union)

    def get_kinds(self) -> dict[str, TypeInformation]:
        return dict(self._kinds)


class ColumnTypeInfo(TypeInformation):
    """A column of a type that PyFlink has no name for."""


def require_type(info: object, where: str) -> TypeInformation:
    """`info` if it is a type of `Types`."""
    if not isinstance(info, TypeInformation):
        raise ConfigurationError(
            f"Types.{where}: {info!r} is not a type of Types, e.g. Types.INT()"
        )
    return info


def type_of_columns(schema: pa.Schema) -> TypeInformation:
    """The type of records of these columns."""
    types = [type_of(field.type) for field in schema]
    return TupleTypeInfo(types) if has_tuple_records(schema) else _row(types, schema.names)


def type_of(kind: pa.DataType) -> TypeInformation:
    """The declared type that a column's type comes from, as far as it tells."""
    for basic, arrow in _BASIC.items():
        if arrow.equals(kind):
            return InstantTypeInfo() if basic is BasicType.INSTANT else BasicTypeInfo(basic)
    for other in (DateTypeInfo(), TimeTypeInfo(), TimestampTypeInfo()):
        assert other.arrow is not None
        if other.arrow.equals(kind):
            return other
    if isinstance(kind, Pickled):
        return PickledBytesTypeInfo()
    if kind == pa.binary():
        return PrimitiveArrayTypeInfo(BasicTypeInfo(BasicType.BYTE))
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        types = [type_of(field.type) for field in fields]
        return TupleTypeInfo(types) if is_tuple(kind) else _row(types, [f.name for f in fields])
    if isinstance(kind, UnionType):
        return UnionTypeInfo({name: type_of(kind.rows_type(name)) for name in kind.kinds})
    if pa.types.is_map(kind):
        return MapTypeInfo(type_of(kind.key_type), type_of(kind.item_type))
    if pa.types.is_list(kind):
        return ListTypeInfo(type_of(kind.value_type))
    return ColumnTypeInfo(str(kind), kind)


def _row(types: Sequence[TypeInformation], names: Iterable[Any]) -> RowTypeInfo:
    named = tuple(names)
    return RowTypeInfo(types, None if named == positional_names(len(types)) else named)
