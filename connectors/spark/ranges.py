"""Cutting Parquet input into splits that every attempt sees alike.

Spark's own partitions depend on file sizes, cores and chance, so a split is not a partition but a
range of the rows in a total order: the sort columns, then the file, then the row within it
(`_metadata.row_index`). Cuts are made at every `rows_per_split`-th row of that order; they depend
on nothing but the input. Each split names the files that hold its rows, so reading it touches
these only, and is a query of its own: nothing stays cached in Spark between two reads, and a
Spark that died and came back reads the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from ...core.errors import ConfigurationError

_FILE, _ROW, _KEYS, _SPLIT, _POSITION = "__file", "__row", "__keys", "__split", "__position"

Bound = tuple[Any, ...]
"""Sort key values, file, row: the place of a row in the total order. Timestamps are int64 µs."""


@dataclass(frozen=True)
class ParquetRead:
    """What to read: a table's root, a Spark SQL filter, columns (None: all), the order."""

    path: str
    columns: tuple[str, ...] | None
    filter: str | None
    sort_by: tuple[str, ...]
    rows_per_split: int


@dataclass(frozen=True)
class ParquetSplit:
    """The rows in [`lower`, `upper`) of the total order (None: no bound), all found in `files`
    (URL-encoded, as Spark names them).

    `rows` is how many there are, `position` how many of them have been emitted."""

    index: int
    files: tuple[str, ...]
    lower: Bound | None
    upper: Bound | None
    rows: int
    position: int = 0

    @property
    def split_id(self) -> str:
        return f"{self.index:08d}"

    def at(self, position: int) -> ParquetSplit:
        return replace(self, position=position)


def plan(spark: Any, read: ParquetRead, schema: Any) -> list[ParquetSplit]:
    """All splits in order. `schema`: what `input_schema` said. Raises ConfigurationError for a
    null sort key or an unknown column."""
    from pyspark.sql import functions as f

    frame = _input(spark, read, [_literal_path(read.path)], schema)
    _check_columns(frame.columns, read)
    keys = [*(_encoded(frame, name) for name in read.sort_by), f.col(_FILE), f.col(_ROW)]
    names = [f"k{i}" for i in range(len(keys))]
    ordered = frame.select(*(k.alias(n) for k, n in zip(keys, names, strict=True))).sort(*names)
    numbered = ordered.withColumn(_POSITION, f.monotonically_increasing_id()).persist()
    try:
        return _cut(numbered, names, read)
    finally:
        numbered.unpersist()


def input_schema(spark: Any, read: ParquetRead) -> Any:
    """Spark's idea of the whole input's columns. Reads pass it, so that no split infers its own."""
    return spark.read.parquet(_literal_path(read.path)).schema


def read_split(spark: Any, read: ParquetRead, split: ParquetSplit, schema: Any) -> Any:
    """The rows of a split that are not emitted yet, in order, as a Spark frame of one partition."""
    from pyspark.sql import functions as f

    files = [_literal_path(unquote(file)) for file in split.files]
    frame = _input(spark, read, files, schema)
    names = [*read.sort_by, _FILE, _ROW]
    kinds = dict(frame.dtypes)
    if split.lower is not None:
        literals = _literals(split.lower, names, kinds)
        frame = frame.where(f.col(names[0]) >= literals[0]).where(_reached(names, literals))
    if split.upper is not None:
        literals = _literals(split.upper, names, kinds)
        frame = frame.where(f.col(names[0]) <= literals[0]).where(~_reached(names, literals))
    ordered = frame.coalesce(1).sortWithinPartitions(*names)
    columns = read.columns or [c for c in frame.columns if c not in (_FILE, _ROW)]
    return ordered.select(*columns)


def _literal_path(path: str) -> str:
    """Spark reads every path as a pattern."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def _input(spark: Any, read: ParquetRead, paths: Sequence[str], schema: Any) -> Any:
    from pyspark.sql import functions as f

    reader = spark.read.schema(schema).option("basePath", _base(spark, read.path))
    frame = reader.parquet(*paths).withColumns(
        {_FILE: f.col("_metadata.file_path"), _ROW: f.col("_metadata.row_index")}
    )
    return frame.where(read.filter) if read.filter else frame


def _base(spark: Any, path: str) -> str:
    """The folder below which `name=value` folders are columns: of a single file, its own."""
    location = spark._jvm.org.apache.hadoop.fs.Path(path)
    files = location.getFileSystem(spark._jsc.hadoopConfiguration())
    if not files.getFileStatus(location).isFile():
        return path
    return str(files.makeQualified(location).getParent())


def _check_columns(found: Sequence[str], read: ParquetRead) -> None:
    unknown = sorted({*(read.columns or ()), *read.sort_by} - set(found))
    if unknown:
        known = [name for name in found if name not in (_FILE, _ROW)]
        raise ConfigurationError(f"no column {unknown} in the Parquet input; it has {known}")


def _sizes(numbered: Any, partition: Any, sort_by: Sequence[str]) -> dict[int, int]:
    """Rows per partition. Raises ConfigurationError when a sort column is null anywhere."""
    from pyspark.sql import functions as f

    nulls = [f.count(f.when(f.col(f"k{i}").isNull(), 1)) for i in range(len(sort_by))]
    rows = numbered.groupBy(partition).agg(f.count(f.lit(1)), *nulls).collect()
    for index, name in enumerate(sort_by):
        if count := sum(row[2 + index] for row in rows):
            raise ConfigurationError(
                f"sort_by column '{name}' is null in {count} rows, which have no place in the "
                f'order; exclude them with filter="{name} is not null" or fill them'
            )
    return {row[0]: row[1] for row in sorted(rows)}


def _cut(numbered: Any, names: Sequence[str], read: ParquetRead) -> list[ParquetSplit]:
    """`numbered` is sorted; its position column counts rows within each partition, in steps of
    2**33 from partition to partition."""
    from pyspark.sql import functions as f

    partition = f.shiftright(f.col(_POSITION), 33)
    before, total = {}, 0
    for index, size in _sizes(numbered, partition, read.sort_by).items():
        before[index], total = total, total + size
    if not total:
        return []
    pairs = [f.lit(v) for index in before for v in (index, before[index])]
    offset = f.element_at(f.create_map(*pairs), partition)
    within = f.col(_POSITION).bitwiseAND(f.lit((1 << 33) - 1))
    split = f.floor((offset + within) / f.lit(read.rows_per_split))
    rows = (
        numbered.groupBy(split.alias(_SPLIT))
        .agg(
            f.min(f.struct(*names)).alias(_KEYS),
            f.count(f.lit(1)),
            f.sort_array(f.collect_set(names[-2])),
        )
        .sort(_SPLIT)
        .collect()
    )
    bounds = [None, *(tuple(row[1]) for row in rows[1:]), None]
    return [
        ParquetSplit(i, tuple(row[3]), bounds[i], bounds[i + 1], row[2])
        for i, row in enumerate(rows)
    ]


def _encoded(frame: Any, name: str) -> Any:
    """A sort column as values that survive Python and JSON unchanged."""
    from pyspark.sql import functions as f

    kind = dict(frame.dtypes)[name]
    if kind in ("timestamp", "timestamp_ntz"):
        return f.unix_micros(f.col(name).cast("timestamp"))
    if kind == "date":
        return f.unix_date(name)
    if kind in ("tinyint", "smallint", "int", "bigint", "string", "double", "float", "boolean"):
        return f.col(name)
    raise ConfigurationError(f"cannot sort by column '{name}' of type {kind}")


def _literals(bound: Bound, names: Sequence[str], kinds: dict[str, str]) -> list[Any]:
    from pyspark.sql import functions as f

    def literal(value: Any, kind: str) -> Any:
        if kind in ("timestamp", "timestamp_ntz"):
            return f.timestamp_micros(f.lit(value)).cast(kind)
        if kind == "date":
            return f.date_from_unix_date(f.lit(value))
        return f.lit(value).cast(kind)

    return [literal(value, kinds[name]) for value, name in zip(bound, names, strict=True)]


def _reached(names: Sequence[str], bound: Sequence[Any]) -> Any:
    """Whether a row's place is at or behind `bound`: lexicographic order spelled out."""
    from pyspark.sql import functions as f

    condition = f.col(names[-1]) >= bound[-1]
    for name, value in zip(reversed(names[:-1]), reversed(bound[:-1]), strict=True):
        column = f.col(name)
        condition = (column > value) | ((column == value) & condition)
    return condition
