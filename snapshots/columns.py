"""A stored state as a reader wants it: columns by their natural names, values that can be read.

Stored names have prefixes: `key.k`, `acc.total`, `row.price`, `num.time`. They are shown as `k`,
`total`, `price`, `time`; where two would be shown alike, all of these keep their stored names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, Final

import pyarrow as pa

from ..state.encoding import PICKLE
from ..state.pickling import loads
from ..state.stored import KEY_GROUP, StateTable
from .keys import fitting
from .pickles import MOST_TEXT
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
    """Columns of a table's key that hold pickles: bytes do not say, key groups do."""
    found = [
        name
        for name in table.data.column_names
        if name.startswith("key.") and pa.types.is_large_binary(table.data.schema.field(name).type)
    ]
    if not found or not table.data.num_rows:
        return set()
    fits = [one for one in fitting(table, max_parallelism) if one.columns[0] in found]
    if fits:
        return {fits[0].columns[0]} if fits[0].pickled else set()
    first = table.data.column(found[0])
    heads = all(one is not None and one[:1] == b"\x80" for one in first.to_pylist())
    return {found[0]} if heads else set()


def _inferred(values: list[Any]) -> pa.Array | None:
    plain = [asdict(v) if is_dataclass(v) and not isinstance(v, type) else v for v in values]
    if not (_alike(values) and _alike(plain)):
        return None
    try:
        return pa.array(plain)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return None


def _alike(values: Iterable[Any]) -> bool:
    """Whether Arrow can hold these without making one type of another: 1 of True, 1.0 of 1."""
    held = [value for value in values if value is not None]
    if len({(type(value), getattr(value, "tzinfo", None)) for value in held}) > 1:
        return False
    if not held or not isinstance(held[0], (list, tuple, dict)):
        return True
    if isinstance(held[0], dict):
        names = {name for value in held for name in value}
        return all(_alike(value.get(name) for value in held) for name in names)
    return _alike(element for value in held for element in value)


def _reprs(values: list[Any]) -> pa.Array:
    texts = [None if value is None else repr(value)[:MOST_TEXT] for value in values]
    return pa.array(texts, pa.large_string())


def _short(name: str) -> str:
    for prefix in _PREFIXES:
        if name.startswith(prefix) and len(name) > len(prefix):
            return name.removeprefix(prefix)
    return name
