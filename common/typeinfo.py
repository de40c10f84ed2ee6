"""The names of `pyflink.common.typeinfo`."""

from ..api.types.type_classes import (
    BasicArrayTypeInfo as BasicArrayTypeInfo,
    BasicType as BasicType,
    BasicTypeInfo as BasicTypeInfo,
    DateTypeInfo as DateTypeInfo,
    InstantTypeInfo as InstantTypeInfo,
    ListTypeInfo as ListTypeInfo,
    MapTypeInfo as MapTypeInfo,
    ObjectArrayTypeInfo as ObjectArrayTypeInfo,
    PickledBytesTypeInfo as PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo as PrimitiveArrayTypeInfo,
    RowTypeInfo as RowTypeInfo,
    SqlTimeTypeInfo as SqlTimeTypeInfo,
    TimestampTypeInfo as TimestampTypeInfo,
    TimeTypeInfo as TimeTypeInfo,
    TupleTypeInfo as TupleTypeInfo,
    TypeInformation as TypeInformation,
)
from ..api.types.type_info import Types as Types
