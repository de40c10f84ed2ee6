"""What is plotted of a job's records: one value for each x of each series, the newest.

A window that fires again replaces its point, and so does an update of a changelog; what a changelog
retracts goes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from ..core.errors import ConfigurationError
from ..core.row import ROW_KIND, RowKind
from ..core.shown import Plotted
from .records import fields_of, is_number, shown_value

TIMES = frozenset({"window_start", "window_end"})
"""Columns of windows, in ms since 1970: shown as times in UTC."""

MOST_SERIES = 20
"""More lines than can be told apart."""

NAME = 40
"""Characters of a series' name."""


class Points:
    """Of what `plotted` says. `columns`: see `fields_of`."""

    def __init__(self, plotted: Plotted, columns: Sequence[str] | None = None) -> None:
        self.plotted = plotted
        self._columns = columns
        self._series: dict[Any, dict[Any, float]] = {}
        """By what `by` says, in the order in which they came."""
        self.left_out: set[Any] = set()
        """Series beyond `MOST_SERIES`."""

    def add(self, records: Sequence[Any]) -> None:
        by, last = self.plotted.by, self.plotted.last
        touched: set[Any] = set()
        for record in records:
            fields = fields_of(record, self._columns)
            key = None if by is None else shown_value(self._value(fields, by), NAME)
            x = self._place(fields)
            if x is None or not self._has_room(key):
                continue
            points = self._series.setdefault(key, {})
            if fields.get(ROW_KIND, RowKind.INSERT) in (RowKind.UPDATE_BEFORE, RowKind.DELETE):
                points.pop(x, None)
                continue
            points[x] = self._height(fields)
            touched.add(key)
        if last is not None:
            for key in touched:
                _forget(self._series[key], last)

    def series(self) -> dict[Any, tuple[list[Any], list[float]]]:
        """Name (None: there is only one) to x and y, by x where it has an order."""
        found = {}
        for key, points in self._series.items():
            xs = in_order(points)
            found[key] = (xs, [points[x] for x in xs])
        return found

    def _has_room(self, key: Any) -> bool:
        if key in self._series or len(self._series) < MOST_SERIES:
            return True
        self.left_out.add(key)
        return False

    def _value(self, fields: dict[str, Any], name: str) -> Any:
        if name not in fields:
            there = ", ".join(one for one in fields if one != ROW_KIND)
            raise ConfigurationError(f"plot: a record has no column '{name}'; it has {there}")
        return fields[name]

    def _place(self, fields: dict[str, Any]) -> Any:
        """None: nowhere, as a window without bounds."""
        column = self.plotted.x
        x = self._value(fields, column)
        if isinstance(x, Decimal):
            x = float(x)
        if x is None or (isinstance(x, float) and not math.isfinite(x)):
            return None
        if column in TIMES and is_number(x):
            return _time(column, x)
        if is_number(x) or isinstance(x, (str, date)):
            return x
        return shown_value(x, NAME)

    def _height(self, fields: dict[str, Any]) -> float:
        y = self._value(fields, self.plotted.y)
        if y is None:
            return math.nan
        if isinstance(y, (int, float, Decimal)):
            try:
                return float(y)
            except OverflowError:
                return math.nan
        raise ConfigurationError(
            f"plot: y must be a column of numbers, and '{self.plotted.y}' holds "
            f"{shown_value(y, NAME)!r} ({type(y).__name__})"
        )


def _forget(points: dict[Any, float], last: int) -> None:
    if len(points) > last:
        for x in in_order(points)[:-last]:
            del points[x]


def _time(column: str, ms: float) -> datetime:
    try:
        return datetime.fromtimestamp(ms / 1000, tz=UTC)
    except (OverflowError, OSError, ValueError):
        raise ConfigurationError(
            f"plot: '{column}' is {ms}, which is no time in ms that a date has"
        ) from None


def in_order(points: Iterable[Any]) -> list[Any]:
    """Each x: numbers and times by themselves; texts, and what is of several types, as it came."""
    xs = list(dict.fromkeys(points))
    if any(isinstance(x, str) for x in xs):
        return xs
    try:
        return sorted(xs)
    except TypeError:
        return xs
