"""Outputs as multisets of plain values, whatever way they came about."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from ...core.row_kind import RowKind

PlainRow = tuple[Hashable, ...]

_CELLS = 1e7
"""Floats are compared by the cell in which their logarithm lies, of so many per factor of two."""
_SHIFT = 0.3141
"""So that powers of two do not lie on a cell's border."""


def plain(value: Any) -> Hashable:
    """Equal for results that count as equal: every NaN is one value, as are 0.0 and -0.0; floats
    may differ in their last digits. 1, 1.0 and True differ."""
    if isinstance(value, (float, np.floating)):
        return _plain_float(float(value))
    if isinstance(value, (list, tuple)):
        return ("list", *map(plain, value))
    if isinstance(value, dict):  # a struct, which is a Row elsewhere
        return ("list", *map(plain, value.values()))
    if isinstance(value, datetime):
        return ("time", value.isoformat())
    return (type(value).__name__, value)


def _plain_float(value: float) -> Hashable:
    if not math.isfinite(value):
        return ("float", str(value))
    if abs(value) < 1e-6:
        return ("float", 0)
    return ("float", value > 0, math.floor(math.log2(abs(value)) * _CELLS + _SHIFT))


def plain_rows(rows: Iterable[Sequence[Any]]) -> list[PlainRow]:
    return [tuple(map(plain, row)) for row in rows]


def materialised(changes: Iterable[PlainRow], key: int | None) -> Counter[PlainRow]:
    """The table that a changelog leaves. Its last column is the row kind; key: how many columns at
    the front are the key of an upsert changelog, None for one that retracts."""
    if key is not None:
        table: dict[PlainRow, PlainRow] = {}
        for *row, kind in changes:
            if kind == ("int", RowKind.DELETE):
                del table[tuple(row[:key])]
            else:
                table[tuple(row[:key])] = tuple(row)
        return Counter(table.values())
    rows: Counter[PlainRow] = Counter()
    for *row, kind in changes:
        rows[tuple(row)] += 1 if kind in (("int", 0), ("int", 2)) else -1
    if any(count < 0 for count in rows.values()):
        raise AssertionError(f"retracted without having been there: {-rows}")
    return +rows


def difference(expected: Counter[Any], found: Counter[Any]) -> str:
    """What is missing and what is too much, shortened; "" if nothing."""
    if expected == found:
        return ""
    missing, extra = list((expected - found).elements()), list((found - expected).elements())
    return (
        f"{len(missing)} missing, {len(extra)} unexpected\n"
        f"      missing    {_some(missing)}\n      unexpected {_some(extra)}"
    )


def _some(rows: list[Any]) -> str:
    return "; ".join(sorted(map(_text, rows))[:4])


def _text(row: Any) -> str:
    return str([v[-1] if isinstance(v, tuple) and len(v) == 2 else v for v in row])
