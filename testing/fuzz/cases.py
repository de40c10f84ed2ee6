"""Cases: what a seed stands for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from ...api.aggregates import Aggregate
from ...api.windows.base import Trigger, WindowAssigner
from ...core.column_values import python_values
from ...core.row_kind import ROW_KIND
from ...core.union_type import UnionType
from .folds import Condition, Record

CONDITIONS: dict[str, tuple[Any, Condition]] = {
    "thirds": (pl.col("n") % 3 == 0, lambda r: r["n"] % 3 == 0),
    "few": (pl.col("n") < 4, lambda r: r["n"] < 4),
    "flag": ("flag", lambda r: r["flag"]),
}
"""By name: as a program writes it, and over a record."""


@dataclass(frozen=True)
class Windows:
    """`what`: "aggregate", "extreme" or "top_n"; its arguments are in `Case`."""

    assigner: WindowAssigner
    trigger: Trigger | None = None
    lateness: int = 0
    late_tag: bool = False
    what: str = "aggregate"
    keyed: bool = True


@dataclass(frozen=True)
class Table:
    """`what`: "aggregate", "top_n", "deduplicate", "over" or "rolling". `ttl`: with a time to live
    that is longer than any run. `event_ttl`: with one of event time, in ms, that is not; then no
    record is late. Ranges have none."""

    what: str
    upsert: bool = False
    keep: str = "first"
    rows: int | None = None
    range_ms: int | None = None
    arrival: bool = False
    rolling: str = "sum"
    ttl: bool = False
    event_ttl: int | None = None


@dataclass
class Case:
    """Records are rows of `data` in order of arrival; column n numbers them, ts is event time.

    script: ("rows", start, stop), ("mark", watermark) and ("cut", halves) in order.
    aggregates: output name -> (aggregate without condition, name of its condition or None).
    field, largest, ties: of an extreme, a rolling aggregate. n, order, rank: of a top-n, of
    deduplicate. retractions: the records that take another away (a changelog), else empty."""

    seed: int
    data: pa.RecordBatch
    key: tuple[str, ...]
    operation: Windows | Table
    script: list[tuple[Any, ...]]
    filtered: bool = False
    by_expression: bool = False
    aggregates: dict[str, tuple[Aggregate, str | None]] = field(default_factory=dict)
    field: str = "n"
    largest: bool = False
    ties: bool = False
    n: int = 1
    order: tuple[tuple[str, bool], ...] = ()
    rank: str | None = None
    varied: bool = False
    """Whether later batches have other, fitting types and another order of columns."""

    tight: bool = False
    """Whether operators run with `limits.small_limits`."""

    mixed: bool = False
    """Whether jobs take the records out of a stream of several kinds."""

    @property
    def records(self) -> list[Record]:
        """In order of arrival."""
        names, columns = self.data.schema.names, self.data.columns
        return [
            dict(zip(names, row, strict=True))
            for row in zip(*(plain_list(column) for column in columns), strict=True)
        ]

    @property
    def changelog(self) -> bool:
        return ROW_KIND in self.data.schema.names

    def built(self) -> dict[str, Aggregate]:
        """The aggregates as a program writes them."""
        return {
            name: one if condition is None else one.where(CONDITIONS[condition][0])
            for name, (one, condition) in self.aggregates.items()
        }

    def describe(self) -> str:
        columns = ", ".join(f"{f.name}: {f.type}" for f in self.data.schema)
        built = {name: a.describe() for name, a in self.built().items()}
        rest = {"field": self.field, "largest": self.largest, "ties": self.ties, "n": self.n}
        rest |= {"order": self.order, "rank": self.rank, "varied": self.varied}
        rest |= {
            "tight": self.tight,
            "filtered": self.filtered,
            "by_expression": self.by_expression,
            "mixed": self.mixed,
        }
        return (
            f"seed {self.seed}: {self.operation}\n  key {self.key}; {columns}\n  {built}\n"
            f"  {rest}\n  {self.data.num_rows} records, script {self.script}"
        )


def plain_list(column: pa.Array) -> list[Any]:
    """Python values; half floats as floats."""
    if isinstance(column.type, UnionType):
        return python_values(column)
    values = column.cast(pa.float32()) if column.type == pa.float16() else column
    return list(values.to_pylist())
