"""What a program reads of a stream's columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...core.row_kind import ROW_KIND


@dataclass(frozen=True)
class ColumnReads:
    """Columns that are read as a whole, and of columns of several kinds (`Types.UNION`) what is
    read of their kinds' rows: column, kind, fields, None where all are. A name may be none of the
    stream's: whoever reads it will say so."""

    names: frozenset[str] = frozenset()
    kinds: Mapping[tuple[str, str], frozenset[str] | None] = field(default_factory=dict)

    def __or__(self, other: ColumnReads) -> ColumnReads:
        """What either reads."""
        kinds = dict(self.kinds)
        for of, fields in other.kinds.items():
            before = kinds.get(of, frozenset())
            kinds[of] = None if before is None or fields is None else before | fields
        return ColumnReads(self.names | other.names, kinds)

    def also(self, names: Iterable[str]) -> ColumnReads:
        """These columns, too."""
        return ColumnReads(self.names | frozenset(names), self.kinds)

    @property
    def columns(self) -> frozenset[str]:
        """All columns of which something is read."""
        return self.names | {column for column, _ in self.kinds}

    def of_kind(self, column: str, kind: str) -> frozenset[str] | None:
        """What is read of the rows of one kind; None: all of it."""
        return None if column in self.names else self.kinds.get((column, kind), frozenset())

    def __str__(self) -> str:
        parts = sorted(self.names - {ROW_KIND})
        for (column, kind), fields in sorted(self.kinds.items()):
            if column not in self.names:
                shown = "whole" if fields is None else f"({', '.join(sorted(fields - {ROW_KIND}))})"
                parts.append(f"{column}.{kind} {shown}")
        return ", ".join(parts)
