"""Objects with fields as state holds them: their pickles say which fields they had, so that they
can be read back into the class as it is now, or refused (`object_reader`).

A dataclass's own pickle is a dictionary (or, frozen with slots, a list), a named tuple's a list:
put into a class that has changed since, values would end up in other fields or be lacking. Pickles
made here hold the fields with their types. Classes with hooks of their own (`__reduce__`,
`__getstate__`, `__setstate__`) take care of themselves.
"""

from __future__ import annotations

import copyreg
import io
import pickle
from collections.abc import Mapping
from typing import Any

from ..core.row import Row
from .object_fields import Fields, fields_of, refuse


def described(value: Any) -> Any:
    """How an object with fields is pickled; NotImplemented for all others. For `reducer_override`
    of picklers."""
    kind = type(value)
    fields = fields_of(kind)
    if fields is None:
        return NotImplemented
    if isinstance(value, tuple):
        return named_tuple, (kind, fields, tuple(value))
    held = dict(getattr(value, "__dict__", ()))
    held.update((name, getattr(value, name)) for name in fields if hasattr(value, name))
    return copyreg.__newobj__, (kind,), (fields, held), None, None, set_fields  # type: ignore[attr-defined]


NAMES = b"\x93"
"""In each pickle that names a class or function (`STACK_GLOBAL`), and in some others."""


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        return described(obj)


def pickled(value: Any) -> bytes:
    """As `pickle.dumps`, with the fields of objects."""
    if fields_of(type(value)) is None:
        data = pickle.dumps(value, protocol=5)
        named = data.count(NAMES)
        if not named or (named == 1 and isinstance(value, Row)):
            return data  # plain values, or a row of such
    target = io.BytesIO()
    _Pickler(target, protocol=5).dump(value)
    return target.getvalue()


def pickled_by_value(value: Any) -> bytes:
    """The same, with the classes that have no importable name."""
    from ..core.code_pickles import CodePickler

    class ByValue(CodePickler):
        def reducer_override(self, obj: Any) -> Any:
            made = NotImplemented if isinstance(obj, type) else described(obj)
            return super().reducer_override(obj) if made is NotImplemented else made

    target = io.BytesIO()
    ByValue(target, protocol=5).dump(value)
    return target.getvalue()


def put_fields(value: Any, held: Mapping[str, Any]) -> None:
    """Whatever the class says of being set."""
    for name, one in held.items():
        object.__setattr__(value, name, one)


# What pickles of state name: they may not be renamed, nor moved.


def named_tuple(kind: type, fields: Fields, values: tuple[Any, ...]) -> Any:
    """A named tuple as it was written; where an `ObjectReader` reads, it is asked instead."""
    if fields_of(kind) != fields and list(fields) != list(kind._fields):  # type: ignore[attr-defined]
        refuse("a value", kind, fields, "its fields have changed")
    return kind._make(values)  # type: ignore[attr-defined]


def set_fields(value: Any, state: tuple[Fields, dict[str, Any]]) -> None:
    """Put its fields into an object as it was written; likewise."""
    fields, held = state
    known = fields_of(type(value))
    if known is not None and list(known) != list(fields):
        refuse("a value", type(value), fields, "its fields have changed")
    put_fields(value, held)
