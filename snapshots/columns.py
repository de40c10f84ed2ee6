"""A stored state as a reader wants it: columns by their natural names, values that can be read.

Stored names have prefixes: `key.k`, `acc.total`, `row.price`, `num.time`. They are shown as `k`,
`total`, `price`, `time`; where two would be shown alike, all of these keep their stored names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from datetime import time
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ..state.encoding import PICKLE
from ..state.pickling import loads
from ..state.stored import KEY_GROUP, StateTable
from .descriptions import MOST_TEXT
from .keys import fitting
from .pickles import are_pickles
from .values import arrow_of, texts_of

TEXT: Final = "_text"
"""Behind the name of a column that stays bytes, the name of the one with its text."""

_PREFIXES: Final = ("key.", "acc.", "row.", "num.")

_FIRST: Final = ("key", "namespace", "map_key")
"""Of the row face, in this order."""


def shown_names(stored: Sequence[str]) -> dict[str, str]:
    """Stored name to natural name."""
    short = {name: _short(name) for name in stored}
    times = Counter(short.values())
    return {name: one if times[one] == 1 else name for name, one in short.items()}


def readable(
    table: StateTable, max_parallelism: int, key_groups: bool = False, unpickle: bool = False
) -> pa.Table:
    """The rows of a keyed state in order of their key groups, which are shown if `key_groups`."""
    data = table.data
    pickled = {name for name, encoding in table.metadata.items() if encoding == PICKLE}
    pickled |= _pickled_keys(table, max_parallelism)
    stored = [name for name in data.column_names if name != KEY_GROUP]
    if table.metadata.get("key"):
        stored.sort(key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
    names = shown_names(stored)
    columns: dict[str, Any] = {KEY_GROUP: data.column(KEY_GROUP)} if key_groups else {}
    for name in stored:
        if name in pickled:
            pickles = data.column(name).to_pylist()
            columns.update(unpickled(names[name], pickles, unpickle))
        else:
            columns[names[name]] = data.column(name)
    return pa.table(columns)


def unpickled(name: str, pickles: list[bytes | None], unpickle: bool) -> dict[str, pa.Array]:
    """A column of pickles as a reader gets it: one of values, or of bytes and one of texts."""
    values = [None if one is None else loads(one, name) for one in pickles] if unpickle else None
    column = arrow_of(pickles)
    if column is None and values is not None:
        column = _inferred(values)
    if column is not None:
        return {name: column}
    texts = texts_of(pickles) if values is None else _reprs(values)
    return {name: pa.array(pickles, pa.large_binary()), name + TEXT: texts}


def _pickled_keys(table: StateTable, max_parallelism: int) -> set[str]:
    """The column of a table's key that holds pickles, which is the first one if any: bytes do not
    say, key groups do. Of keys that only their class could hash neither do these: they are pickles
    if each one can be read as one, to its last byte."""
    keys = [name for name in table.data.column_names if name.startswith("key.")]
    if not keys or not pa.types.is_large_binary(table.data.schema.field(keys[0]).type):
        return set()
    first = {keys[0]}
    fits = [one for one in fitting(table, max_parallelism) if one.columns[0] == keys[0]]
    if fits:
        return first if fits[0].pickled else set()
    return first if are_pickles(table.data.column(keys[0]).to_pylist()) else set()


def _inferred(values: list[Any]) -> pa.Array | None:
    """As Arrow infers it, where that tells all values apart that Python does; None elsewhere. Of
    `Decimal`s the greatest scale."""
    if not _alike(values):
        return None
    try:
        return pa.array([_plain(value) for value in values])
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None


def _alike(values: Iterable[Any]) -> bool:
    """Whether Arrow can hold these without making one of another: 1 of True, 1.0 of 1, the number
    of an enum's member, None of what is not there at all."""
    held = [value for value in values if value is not None]
    if len({(type(value), getattr(value, "tzinfo", None)) for value in held}) > 1:
        return False
    if not held:
        return True
    one = held[0]
    if isinstance(one, time) and one.tzinfo is not None:
        return False
    named = [found for value in held if (found := _fields(value)) is not None]
    if named:
        names = named[0].keys()
        same = all(found.keys() == names for found in named)
        return same and all(_alike(found[name] for found in named) for name in names)
    if isinstance(one, (list, tuple, set, frozenset)):
        return _alike(element for value in held for element in value)
    own = isinstance(one, (int, float, str, bytes)) and type(one).__module__ != "builtins"
    return not own or isinstance(one, np.generic)


def _fields(value: Any) -> dict[Any, Any] | None:
    """Of what becomes a struct; None of all else."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return dict(zip(value._fields, value, strict=True))
    return value if isinstance(value, dict) else None


def _plain(value: Any) -> Any:
    """With dicts for what becomes a struct."""
    found = _fields(value)
    if found is not None:
        return {name: _plain(one) for name, one in found.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one) for one in value]
    return value


def _reprs(values: list[Any]) -> pa.Array:
    texts = [None if value is None else repr(value)[:MOST_TEXT] for value in values]
    return pa.array(texts, pa.large_string())


def _short(name: str) -> str:
    for prefix in _PREFIXES:
        if name.startswith(prefix) and len(name) > len(prefix):
            return name.removeprefix(prefix)
    return name
