"""Python annotations as Arrow types: int is int64, list[str] list<string>, a dataclass a struct.

Columns are always nullable, so `X | None` is the type of X. An `int` that is not an int64, or
any other type of one's own choice, is written `Annotated[int, pa.int16()]`.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import types
import typing
from typing import Annotated, Any, Union, get_args, get_origin

import numpy as np
import pyarrow as pa

from ...core.errors import ConfigurationError

_SCALARS: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.datetime: pa.timestamp("us"),
    datetime.date: pa.date32(),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
    decimal.Decimal: pa.decimal128(38, 18),
}


def arrow_type_of(annotation: Any) -> pa.DataType | None:
    """The Arrow type for a Python annotation (or Arrow or numpy type), None when there is none."""
    if isinstance(annotation, pa.DataType):
        return annotation
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        chosen = next((a for a in arguments[1:] if isinstance(a, pa.DataType)), None)
        return chosen if chosen is not None else arrow_type_of(arguments[0])
    if origin in (Union, types.UnionType):
        return _optional(arguments)
    if origin is not None:
        return _generic(origin, arguments)
    if not isinstance(annotation, type):
        return None
    return _plain(annotation)


def record_fields(declared: Any) -> dict[str, Any] | None:
    """Field name -> annotation of a dataclass, NamedTuple or TypedDict class; None for others.

    Raises ConfigurationError when an annotation names something that cannot be resolved.
    """
    if not isinstance(declared, type):
        return None
    if dataclasses.is_dataclass(declared):
        names: list[str] | None = [field.name for field in dataclasses.fields(declared)]
    elif issubclass(declared, tuple) and hasattr(declared, "_fields"):
        names = list(declared._fields)
    elif typing.is_typeddict(declared):
        names = None  # as many as there are hints
    else:
        return None
    try:
        hints = typing.get_type_hints(declared, include_extras=True)
    except NameError as error:
        raise ConfigurationError(
            f"the annotations of {declared.__qualname__} cannot be resolved: {error}; define the "
            "types it uses at module level"
        ) from error
    if names is None:
        return hints
    missing = [name for name in names if name not in hints]
    if missing:
        raise ConfigurationError(
            f"fields {missing} of {declared.__qualname__} have no annotation; use "
            "typing.NamedTuple or declare a schema"
        )
    return {name: hints[name] for name in names}


def _optional(arguments: tuple[Any, ...]) -> pa.DataType | None:
    """X of `X | None`; other unions have no one column type."""
    rest = [a for a in arguments if a is not type(None)]
    return arrow_type_of(rest[0]) if len(rest) == 1 else None


def _generic(origin: Any, arguments: tuple[Any, ...]) -> pa.DataType | None:
    if issubclass(origin, collections.abc.Mapping) and len(arguments) == 2:
        key, value = (arrow_type_of(a) for a in arguments)
        return pa.map_(key, value) if key is not None and value is not None else None
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        return None
    if issubclass(origin, (list, tuple, collections.abc.Sequence)) and arguments:
        element = arrow_type_of(arguments[0])
        return pa.list_(element) if element is not None else None
    return None


def _plain(annotation: type) -> pa.DataType | None:
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if issubclass(annotation, np.generic):
        try:
            return pa.from_numpy_dtype(np.dtype(annotation))
        except (pa.ArrowNotImplementedError, TypeError):
            return None
    fields = record_fields(annotation)
    if fields is None:
        return None
    inner = {name: arrow_type_of(hint) for name, hint in fields.items()}
    if any(found is None for found in inner.values()):
        return None
    return pa.struct([pa.field(name, found) for name, found in inner.items()])
