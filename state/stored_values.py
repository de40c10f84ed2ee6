"""Values of the row face as a restore finds them: in the classes and types of the program that is
restored, or refused.

    dataclasses, named tuples    their fields are those of the class now (`object_reader`)
    a declared row type          rows and dictionaries have the fields declared now: new ones are
                                 None, or what the program says; tuples have as many as declared
    other declared types         each value fits, as if it were written now
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import pyarrow as pa

from ..core.errors import StateError
from ..core.row import Row, is_positional, make_row
from .declared_types import arrow_type, fits_of
from .descriptors import MapStateDescriptor, StateDescriptor
from .encoding import decode
from .migration import NO_MIGRATION, StateMigration
from .object_fields import fields_of, fields_text
from .object_reader import ObjectReader
from .stored import StateTable


class StoredValues:
    """Of one state: of what `type_info` declares. `what` names it in errors."""

    def __init__(self, what: str, type_info: Any, migration: StateMigration) -> None:
        self._what = what
        self._migration = migration
        self._declared = arrow_type(type_info)
        self._fits = None if self._declared is None else fits_of(self._declared)
        own = isinstance(type_info, type) and fields_of(type_info) is not None
        self.reader = ObjectReader(what, migration, (type_info,) if own else ())

    def decoded(self, column: pa.ChunkedArray, encoding: str) -> list[Any]:
        """The values of a stored column."""
        return self.fitted(decode(column, encoding, self._what, self.reader))

    def fitted(self, values: list[Any]) -> list[Any]:
        """Values that were read, as they are to be from here on. StateError if one cannot."""
        fits, kind = self._fits, self._declared
        if fits is None or kind is None:
            return values
        rows, made = pa.types.is_struct(kind), []
        for value in values:
            if value is not None and not fits(value):
                value = self._row(value, kind) if rows else value
                if not fits(value):
                    self._refuse(value, kind, "it does not fit")
            made.append(value)
        return made

    def _row(self, value: Any, kind: pa.DataType) -> Any:
        names = [kind.field(at).name for at in range(kind.num_fields)]
        if isinstance(value, Row):
            if is_positional(value._fields):
                return value
            held = self._fields(dict(zip(value._fields, value, strict=True)), names, value, kind)
            row = make_row(tuple(names), tuple(held[name] for name in names))
            row.set_row_kind(value.get_row_kind())
            return row
        if isinstance(value, Mapping) and not set(names) <= set(value):
            return self._fields(dict(value), names, value, kind)
        return value

    def _fields(
        self, held: dict[str, Any], names: list[str], value: Any, kind: pa.DataType
    ) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, one in held.items():
            target = name if name in names else self._migration.new_name(name)
            if target in made or (target != name and target in held):
                self._refuse(value, kind, f"'{name}' and '{target}' are both there")
            if target in names or name not in self._migration.drop:
                made[target] = one
        gone = sorted(set(made) - set(names))
        if gone:
            self._refuse(value, kind, f"{gone} are not declared any more")
        defaults = self._migration.defaults
        return {n: made[n] if n in made else copy.deepcopy(defaults.get(n)) for n in names}

    def _refuse(self, value: Any, kind: pa.DataType, why: str) -> NoReturn:
        raise StateError(
            f"{self._what} was stored as {_shape(value)} and is declared as {_declared(kind)} now: "
            f"{why}; say so on its descriptor with enable_migration(rename=, defaults=, drop=), "
            "declare the type it was stored with, or give the state another name"
        )


def values_of(descriptor: StateDescriptor, table: StateTable) -> Callable[[str], list[Any]]:
    """What a row state's restored table holds in a column of values or of map keys: a function of
    the column's name. What the program says of the operator counts where the descriptor is silent.
    """
    said = descriptor.migration
    migration = table.migration if said is NO_MIGRATION else said
    what, map_key = f"value of state '{descriptor.name}'", "map_key"
    if isinstance(descriptor, MapStateDescriptor):
        read = StoredValues(what, descriptor.value_type_info, migration)
        keys = StoredValues(
            f"map key of state '{descriptor.name}'", descriptor.type_info, migration
        )
    else:
        read = keys = StoredValues(what, descriptor.type_info, migration)

    def of(column: str) -> list[Any]:
        reading = keys if column == map_key else read
        return reading.decoded(table.data.column(column), table.metadata[column])

    return of


def _shape(value: Any) -> str:
    """Names and types of a value's fields, or its type."""
    if isinstance(value, Row):
        named = zip(value._fields, value, strict=True)
    elif isinstance(value, Mapping):
        named = zip(map(str, value), value.values(), strict=True)
    else:
        return type(value).__name__
    return fields_text(type(value).__name__, {n: type(one).__name__ for n, one in named})


def _declared(kind: pa.DataType) -> str:
    if not pa.types.is_struct(kind):
        return str(kind)
    fields = [kind.field(at) for at in range(kind.num_fields)]
    return fields_text("Row", {field.name: str(field.type) for field in fields})
