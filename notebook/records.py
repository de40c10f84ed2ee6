"""Records as a table: rows, named tuples and dicts by name have columns, all else is one `value`.
Of a changelog the kind of each record comes first, as Flink writes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..core.row import ROW_KIND, Row, RowKind
from ..core.texts import printable
from .markup import cut, safe, table

VALUE = "value"

KIND = "op"
"""The column of row kinds."""

LONGEST = 10_000
"""Characters of a value that are ever looked at, where none are to be cut."""

NUMBERS = (int, float)


def fields_of(record: Any, columns: Sequence[str] | None = None) -> dict[str, Any]:
    """By name; of a changelog's record with its `RowKind` under `ROW_KIND`. `columns`: names of the
    fields of tuples that have none."""
    if isinstance(record, Row):
        fields = dict(zip(record._fields, record, strict=True))
        kind = record.get_row_kind()
        if ROW_KIND not in fields and kind is not RowKind.INSERT:
            fields[ROW_KIND] = kind
        return fields
    if isinstance(record, Mapping) and record and all(isinstance(name, str) for name in record):
        return dict(record)
    if isinstance(record, tuple):
        names = getattr(record, "_fields", columns)
        if names is not None and len(names) == len(record):
            return dict(zip(names, record, strict=True))
    return {VALUE: record}


class Records:
    """Those to show. `columns`: known beforehand, or None; `limit`: how many there will be at most;
    `truncate`: characters of a value, 0: all."""

    def __init__(self, columns: Sequence[str] | None, limit: int, truncate: int) -> None:
        self._columns = columns
        self._names = dict.fromkeys(columns or ())
        """As an ordered set."""
        self._limit = limit
        self._truncate = truncate
        self._rows: list[dict[str, Any]] = []
        self._ended = False

    def add(self, records: Sequence[Any]) -> None:
        for record in records:
            fields = fields_of(record, self._columns)
            self._rows.append(fields)
            self._names.update(dict.fromkeys(fields))

    def end(self) -> None:
        """No more will come."""
        self._ended = True

    def html(self) -> str:
        names = self._shown()
        numeric = [self._numeric(name) for name in names]
        header = [
            (safe(self._cut(name)), number) for name, number in zip(names, numeric, strict=True)
        ]
        rows = (
            [(safe(text), number) for text, number in zip(self._texts(row), numeric, strict=True)]
            for row in self._rows
        )
        return table(header, rows, below=safe(self._summary()))

    def text(self) -> Group:
        shown = Table(box=box.SQUARE)
        for name in self._shown():
            justify: Any = "right" if self._numeric(name) else "left"
            heading = Text(printable(self._cut(name)))
            shown.add_column(heading, justify=justify, no_wrap=True, overflow="ellipsis")
        for row in self._rows:
            shown.add_row(*(Text(text) for text in self._texts(row)))
        return Group(shown, Text(self._summary()))

    def _shown(self) -> list[str]:
        """The columns in their order, the kinds first."""
        names = [name for name in self._names if name != ROW_KIND]
        kinds = [ROW_KIND] if ROW_KIND in self._names else []
        return [*kinds, *names] or [VALUE]

    def _cut(self, name: str) -> str:
        return KIND if name == ROW_KIND else cut(name, self._truncate)

    def _texts(self, row: Mapping[str, Any]) -> list[str]:
        return [self._text(name, row) for name in self._shown()]

    def _text(self, name: str, row: Mapping[str, Any]) -> str:
        if name == ROW_KIND:
            return symbol(row.get(name, RowKind.INSERT))
        return shown_value(row[name], self._truncate) if name in row else ""

    def _numeric(self, name: str) -> bool:
        """Whether all values there are numbers."""
        values = [row[name] for row in self._rows if row.get(name) is not None]
        return name != ROW_KIND and bool(values) and all(is_number(value) for value in values)

    def _summary(self) -> str:
        count = len(self._rows)
        if count >= self._limit:
            return "the first record" if count == 1 else f"the first {count} records"
        number = {0: "no records", 1: "1 record"}.get(count, f"{count} records")
        return number if self._ended else f"{number} so far"


def is_number(value: Any) -> bool:
    return isinstance(value, NUMBERS) and not isinstance(value, bool)


def symbol(kind: Any) -> str:
    """`+I`; what is no kind as it is."""
    try:
        return RowKind(kind).symbol
    except ValueError:
        return shown_value(kind, 0)


def shown_value(value: Any, most: int) -> str:
    """On one line, at most so many characters (0: all)."""
    longest = most or LONGEST
    if isinstance(value, str):
        return cut(printable(value[: longest + 1]), longest)
    if isinstance(value, float) and math.isfinite(value):
        return repr(float(value))
    try:
        text = repr(value) if isinstance(value, (bytes, list, tuple, dict, set)) else str(value)
    except Exception as error:
        return cut(f"<{type(value).__name__}: its text raises {type(error).__name__}>", longest)
    return cut(printable(text[: longest + 1]), longest)
