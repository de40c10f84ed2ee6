"""Where a window operator's key columns come from, and how they are shown.

Keys are columns of the records, or objects that a Python function makes of each record: these are
codes to the windowers (`state.object_keys`), and a column `key` of their own type again when they
come out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ...api.specs.windows import BuiltinWindow, WindowSpec
from ...core.batch import Batch, ColumnBatch, to_columns
from ...core.compiled.keys import KeysByColumns
from ...core.errors import TypeMismatchError
from ...core.keys import FunctionKey, KeySelector
from ...state.backend import KeyedStateBackend
from ...state.key_types import StoredKeyType
from ..base import OperatorContext
from ..columns import fit_keys
from ..window_fields import fields_needed, needed_columns

KEY = "key"
"""The column of keys that a function makes."""


class WindowKeys(ABC):
    """Of one operator. `columns`, `of` and `layout` may come before `bind`; `of` follows `columns`
    of the same batch."""

    @abstractmethod
    def columns(self, batch: Batch) -> ColumnBatch:
        """What of the records aggregates need, as columns."""

    @abstractmethod
    def of(self, batch: Batch, columns: ColumnBatch) -> pa.RecordBatch:
        """The key of each record. TypeMismatchError if they are not of the types bound."""

    @abstractmethod
    def fitted(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        """Key columns with the types bound. TypeMismatchError if these are others."""

    @abstractmethod
    def layout(self, batch: Batch, keys: pa.RecordBatch) -> pa.Schema:
        """Of the keys of the first batch: what a snapshot says, and `bind` gets."""

    @abstractmethod
    def bind(self, layout: pa.Schema) -> pa.Schema:
        """The key columns' types, for states."""

    @abstractmethod
    def shown(self, keys: Sequence[pa.Array]) -> list[pa.Array]:
        """Key columns as they are emitted."""

    def restored(self) -> None:
        """What was stored is in the states that `bind` was for; once, before the first batch."""

    def tidy(self) -> None:
        """Before a batch, when nothing is under way: forget what no state knows."""


class KeyColumns(WindowKeys):
    """Columns, or expressions over them."""

    def __init__(self, key: KeySelector) -> None:
        self._key = key
        self._bound: pa.Schema | None = None

    def columns(self, batch: Batch) -> ColumnBatch:
        return to_columns(batch)

    def of(self, batch: Batch, columns: ColumnBatch) -> pa.RecordBatch:
        keys = self._key.key_columns(columns)
        assert keys is not None
        return keys

    def fitted(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        assert self._bound is not None
        return fit_keys(keys, self._bound)

    def layout(self, batch: Batch, keys: pa.RecordBatch) -> pa.Schema:
        return keys.schema

    def bind(self, layout: pa.Schema) -> pa.Schema:
        self._bound = layout
        return layout

    def shown(self, keys: Sequence[pa.Array]) -> list[pa.Array]:
        return list(keys)


class ObjectColumns(WindowKeys):
    """What a Python function makes of each record. The column that is shown has the type of the
    first key where records are columns, and in each batch the type of its keys where they are not.

    Of records that are objects, only the fields that the aggregates name have to fit columns."""

    def __init__(
        self,
        spec: WindowSpec,
        key: FunctionKey,
        name: str,
        state: KeyedStateBackend,
        function: KeysByColumns | None,
    ) -> None:
        self._key = key
        self._function = function
        """The key's, if it may run on columns."""
        self._state = state
        self._codes = state.object_keys(f"window operator '{name}'")
        self._schema = pa.schema([pa.field(KEY, self._codes.kind)])
        self._shown: pa.DataType | None = None
        self._emitted = isinstance(spec.function, BuiltinWindow)
        self._names = fields_needed(spec)
        self._operator = name
        self._stored: StoredKeyType | None = None
        """Of the keys that another job had, with which those that come are compared."""

    def columns(self, batch: Batch) -> ColumnBatch:
        return needed_columns(batch, self._names)

    def of(self, batch: Batch, columns: ColumnBatch) -> pa.RecordBatch:
        held = self._held(batch)
        if self._stored is not None:
            self._stored.check(held)
        codes = self._codes.column(held)
        return pa.RecordBatch.from_arrays([codes], schema=self._schema)

    def _held(self, batch: Batch) -> list[Any]:
        made = None if self._function is None else self._function.keys(batch)
        return self._key.held_keys(batch) if made is None else self._key.usable(made, held=True)

    def fitted(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        return keys

    def layout(self, batch: Batch, keys: pa.RecordBatch) -> pa.Schema:
        kind = pa.null()
        if self._emitted and isinstance(batch, ColumnBatch):
            kind = key_array(self._codes.objects(keys.column(0).slice(0, 1)), None).type
        return pa.schema([pa.field(KEY, kind)])

    def bind(self, layout: pa.Schema) -> pa.Schema:
        (field,) = layout
        self._shown = None if pa.types.is_null(field.type) else field.type
        return self._schema

    def shown(self, keys: Sequence[pa.Array]) -> list[pa.Array]:
        (column,) = keys
        return [key_array(self._codes.objects(column), self._shown)]

    def restored(self) -> None:
        if self._state.of_another_job:
            self._stored = StoredKeyType.of_keys(f"of '{self._operator}'", self._codes.known())

    def tidy(self) -> None:
        self._state.forget_object_keys()


def make_keys(spec: WindowSpec, ctx: OperatorContext) -> WindowKeys:
    """Of one operator, as it opens."""
    if isinstance(spec.key, FunctionKey):
        function = KeysByColumns(spec.key.function) if ctx.config.compile_functions else None
        return ObjectColumns(spec, spec.key, ctx.name, ctx.keyed_state, function)
    return KeyColumns(spec.key)


def key_array(keys: Sequence[Any], kind: pa.DataType | None) -> pa.Array:
    """Keys as they are emitted; `kind` None: of the type they have. TypeMismatchError if they do
    not fit one column, each as what it is: Arrow would cut the time off a datetime among dates."""
    try:
        if kind is not None and pa.types.is_dictionary(kind):  # of any values, as columns are
            array = pa.array(keys, kind.value_type).dictionary_encode().cast(kind)
        else:
            array = pa.array(keys, type=kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise _misfit(keys[0], str(error)) from error
    kinds = set(map(type, keys)) - {type(None)}
    if not (kinds <= _PLAIN and len(kinds) <= 1):
        for key, shown in zip(keys, array.to_pylist(), strict=True):
            if not _same(key, shown):
                raise _misfit(key, f"in a column of type {array.type} it would be {shown!r}")
    return array


_PLAIN = frozenset({int, str, float, bool, bytes})
"""Types whose values a column of any type takes as they are, or refuses, if all keys have it."""


def _same(key: Any, shown: Any) -> bool:
    if isinstance(key, tuple):
        same = isinstance(shown, list) and len(key) == len(shown)
        return same and all(map(_same, key, shown))
    return bool(key == shown or (key != key and shown != shown))


def _misfit(key: Any, why: str) -> TypeMismatchError:
    return TypeMismatchError(
        f"keys such as {key!r} do not fit one column ({why}): key by column names or expressions, "
        "or use a window function of your own"
    )
