"""Copies of values, for whom may change what they are given.

Values that cannot change (numbers, texts, times, tuples and frozen dataclasses of such, ...) need
none. Flat lists, dicts, sets and rows of such have their own way. All else is pickled once, and
unpickled for each copy. Classes and functions in it that have no name here (on Ray, those of the
main program) are kept as they are: to make them anew would take far longer than all else.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import pickle
import re
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from itertools import chain
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np

from ..core.batch import Batch, ColumnBatch, ObjectBatch
from ..core.errors import StateError
from ..core.row import Row

FIXED = frozenset(
    {type(None), bool, int, float, complex, str, bytes, range, type, type(Ellipsis)}
    | {Decimal, Fraction, UUID, re.Pattern, ZoneInfo, dt.timezone}
    | {dt.date, dt.datetime, dt.time, dt.timedelta}
)
"""Types whose values cannot be changed."""

ALL_FIXED = FIXED.issuperset
"""Whether all of these types are such."""


def is_fixed(value: Any) -> bool:
    """Whether the value, with all that is in it, cannot be changed."""
    kind = type(value)
    if kind in FIXED or isinstance(value, (Enum, np.number, np.bool_)):
        return True
    if kind is tuple or kind is frozenset or _is_named_tuple(kind):
        return all(map(is_fixed, value))
    parameters = kind.__dict__.get("__dataclass_params__")
    if parameters is not None and parameters.frozen:
        held = getattr(value, "__dict__", {})
        fields = [field.name for field in dataclasses.fields(value)]
        return set(held) <= set(fields) and all(is_fixed(getattr(value, f)) for f in fields)
    return False


def all_fixed(values: Sequence[Any]) -> bool:
    """Whether no one of them can be changed, told of many at once."""
    kinds = set(map(type, values)) - FIXED
    if not kinds:
        return True
    if all(kind is tuple or _is_named_tuple(kind) for kind in kinds):
        held = chain.from_iterable(value for value in values if isinstance(value, tuple))
        if set(map(type, held)) <= FIXED:
            return True
    return all(map(is_fixed, values))


def _is_named_tuple(kind: type) -> bool:
    """A tuple with names, and nothing beside its elements. Rows can be changed."""
    names = issubclass(kind, tuple) and hasattr(kind, "_fields") and not kind.__dictoffset__
    return names and not issubclass(kind, Row)


_STATE = "keep plain data in state"
_RECORDS = "give records plain data, or one reader"


def copies_of(value: Any, what: str, advice: str = _STATE) -> Callable[[], Any]:
    """A function that gives the value as it is now, a new one at each call. StateError, which
    begins with `what` and ends with `advice`, if it cannot be pickled."""
    flat = _flat_of({type(value)})
    if flat is not None and all(map(is_fixed, flat.parts(value))):
        return partial(flat.copy, flat.copy(value))
    try:
        return partial(pickle.loads, pickle.dumps(value, protocol=5))
    except Exception:
        return _with_classes_as_they_are(value, what, advice)


def own(value: Any, what: str) -> Any:
    """The value itself if it cannot change, else a copy."""
    return value if is_fixed(value) else copies_of(value, what)()


def kept(value: Any) -> Any:
    """The value as it is now, whatever is done to it later: itself if it cannot change, else a
    copy. What cannot be pickled stays the same object, also in tuples, lists, dicts and rows."""
    kind = type(value)
    if kind in FIXED:
        return value
    if kind is tuple:
        return value if ALL_FIXED(map(type, value)) else tuple(map(kept, value))
    if issubclass(kind, Row) and ALL_FIXED(map(type, value)):
        return tuple.__new__(kind, value)
    try:
        return own(value, "")
    except Exception:
        return _as_far_as_possible(value, kind)


def _as_far_as_possible(value: Any, kind: type) -> Any:
    """A copy of a container that holds what cannot be copied; of all else the value itself."""
    try:
        if kind is list:
            return list(map(kept, value))
        if kind is dict:
            return {key: kept(one) for key, one in value.items()}
        if issubclass(kind, Row):
            return tuple.__new__(kind, tuple(map(kept, value)))
    except RecursionError:  # it holds itself
        pass
    return value


def kept_values(values: list[Any]) -> list[Any]:
    """Each as it is now, in a new list."""
    return values.copy() if all_fixed(values) else list(map(kept, values))


def own_values(values: list[Any], what: str) -> list[Any]:
    """The values for another reader: the same list if none can be changed, else copies."""
    if all_fixed(values):
        return values
    flat = _flat_of(set(map(type, values)))
    if flat is not None:
        copy, parts = flat.copy, flat.parts
        if all_fixed([part for value in values for part in parts(value)]):
            return [copy(value) for value in values]
    try:
        copies: list[Any] = pickle.loads(pickle.dumps(values, protocol=5))
    except Exception:
        return [copies_of(value, what, _RECORDS)() for value in values]
    return copies


def _flat_of(kinds: set[type]) -> _Flat | None:
    """How containers of these types are copied, if all are in the same way."""
    if all(issubclass(kind, Row) for kind in kinds):
        return _FLAT_ROW
    return _FLAT.get(next(iter(kinds))) if len(kinds) == 1 else None


def own_batch(batch: Batch, what: str) -> Batch:
    """The batch for another reader, who may change the records that it gets, and would show them to
    all who read this one. `what` begins the StateError for records that cannot be copied."""
    if isinstance(batch, ColumnBatch):
        return ColumnBatch(batch.data, batch.timestamps)
    values = own_values(batch.values, what)
    return batch if values is batch.values else ObjectBatch(values, batch.timestamps)


@dataclasses.dataclass(frozen=True)
class _Flat:
    """`parts`: what a container of this type holds."""

    copy: Callable[[Any], Any]
    parts: Callable[[Any], Iterable[Any]]


_FLAT: dict[type, _Flat] = {
    dict: _Flat(dict.copy, lambda value: chain(value, value.values())),
    list: _Flat(list.copy, iter),
    set: _Flat(set.copy, iter),
    bytearray: _Flat(bytearray.copy, lambda value: ()),
    np.ndarray: _Flat(
        lambda value: value.copy("K"), lambda value: value.flat if value.dtype.hasobject else ()
    ),
}
_FLAT_ROW = _Flat(Row.__copy__, iter)


class _Pickler(pickle.Pickler):
    """`kept`: classes, functions and modules of what is pickled."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.kept: list[Any] = []

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, (type, FunctionType, BuiltinFunctionType, ModuleType)):
            return None
        self.kept.append(obj)
        return len(self.kept) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, kept: list[Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._kept = kept

    def persistent_load(self, pid: Any) -> Any:
        return self._kept[pid]


def _with_classes_as_they_are(value: Any, what: str, advice: str) -> Callable[[], Any]:
    file = io.BytesIO()
    pickler = _Pickler(file)
    try:
        pickler.dump(value)
    except Exception as error:
        raise StateError(
            f"{what}: a {type(value).__module__}.{type(value).__qualname__} cannot be pickled "
            f"({error}); {advice}"
        ) from error
    data, kept = file.getvalue(), pickler.kept
    return lambda: _Unpickler(data, kept).load()
