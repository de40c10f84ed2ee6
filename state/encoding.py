"""Python values as Arrow columns: typed where all values are of one plain type, else pickled.

    "int"     int64         all are exactly int, within the int64 range (or None)
    "float"   float64       all are exactly float (or None)
    "str"     large_string  all are exactly str (or None)
    "bool"    bool          all are exactly bool (or None)
    "bytes"   large_binary  all are exactly bytes (or None)
    "pickle"  large_binary  anything else, each value on its own

The encoding of each column is kept in its StateTable's metadata, under the column's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ..core.errors import StateError
from .object_reader import ObjectReader
from .pickling import dumps, loads

PICKLE = "pickle"

ARROW_TYPES: dict[str, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.large_string(),
    "bool": pa.bool_(),
    "bytes": pa.large_binary(),
    PICKLE: pa.large_binary(),
}

_NAMES: dict[type, str] = {int: "int", float: "float", str: "str", bool: "bool", bytes: "bytes"}


def encode(values: list[Any], what: str) -> tuple[pa.Array, str]:
    """The values as one column and its encoding. `what` names them in errors."""
    types = set(map(type, values)) - {type(None)}
    name = _NAMES.get(types.pop()) if len(types) == 1 else None if types else "int"
    if name is not None:
        try:
            return pa.array(values, type=ARROW_TYPES[name]), name
        except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            pass  # an int beyond int64, or text that is not valid Unicode
    return pickled(values, what), PICKLE


def pickled(values: Sequence[Any], what: str) -> pa.Array:
    """The values as a column of pickles."""
    return pa.array([dumps(value, what) for value in values], type=ARROW_TYPES[PICKLE])


def decode(
    column: pa.ChunkedArray, encoding: str, what: str, reader: ObjectReader | None = None
) -> list[Any]:
    """The values of a column made by `encode`. `reader`: what is known of their classes; None: they
    are keys or the like, and may not change."""
    if encoding == PICKLE:
        reader = reader or ObjectReader(what, fixed=True)
        return [loads(data, what, reader) for data in column.to_pylist()]
    if encoding not in ARROW_TYPES:
        raise StateError(
            f"{what}: unknown encoding '{encoding}' (known: {sorted(ARROW_TYPES)}); the snapshot "
            "was written by a newer version"
        )
    values: list[Any] = column.to_pylist()
    return values
