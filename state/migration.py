"""What a program says of state whose types have changed since it was stored.

A migration is told once more than it is needed: what is stored in the new form already stays as it
is, so a job may be restored with the same program again and again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ..core.errors import ConfigurationError


@dataclass(frozen=True)
class StateMigration:
    """rename: the new name of a field by its old one. defaults: what a new field is where it was
    not stored. drop: fields that are let go. types: the new Arrow type of a column, by its new
    name; of columns only, Python values have their own."""

    rename: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    types: Mapping[str, pa.DataType] = field(default_factory=dict)

    @staticmethod
    def of(
        who: str,
        rename: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
        drop: Iterable[str] = (),
        types: Mapping[str, Any] | None = None,
    ) -> StateMigration:
        """Checked; ConfigurationError begins with `who`."""
        if isinstance(drop, str):
            raise ConfigurationError(f"{who}: drop takes a list of fields, got {drop!r}")
        renamed, made, gone = dict(rename or {}), dict(defaults or {}), tuple(drop)
        texts = [*renamed, *renamed.values(), *made, *gone, *(types or {})]
        for name in texts:
            if not isinstance(name, str) or not name:
                raise ConfigurationError(f"{who}: {name!r} is no name of a field")
        new = [*renamed.values(), *made]
        for name in sorted({*renamed, *gone} & set(new)):
            raise ConfigurationError(
                f"{who}: '{name}' is the name of an old field and of a new one, so a state in the "
                "new form could not be told from an old one: give the new field another name"
            )
        twice = sorted({name for name in new if new.count(name) > 1} | (set(renamed) & set(gone)))
        if twice:
            raise ConfigurationError(f"{who}: {twice} are named twice: say one thing of a field")
        kinds = {name: _arrow(who, name, kind) for name, kind in (types or {}).items()}
        return StateMigration(renamed, made, gone, kinds)

    def new_name(self, name: str) -> str:
        """Of a stored field."""
        return self.rename.get(name, name)


NO_MIGRATION = StateMigration()
"""Where the program says nothing: only what needs no word is done."""


def _arrow(who: str, name: str, kind: Any) -> pa.DataType:
    found = kind if isinstance(kind, pa.DataType) else getattr(kind, "arrow", None)
    if not isinstance(found, pa.DataType):
        raise ConfigurationError(
            f"{who}: the type of '{name}' is {kind!r}: give a type of Types, or an Arrow type"
        )
    return found
