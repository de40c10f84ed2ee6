"""Cutting Parquet input into splits that every attempt sees alike.

Spark's own partitions depend on file sizes, cores and chance, so a split is not a partition but a
range of the rows in a total order: the sort columns, then the file, then the row within it
(`_metadata.row_index`). Cuts depend on nothing but the input. With sort columns they are made at
every `rows_per_split`-th row, and that takes sorting all rows once; without, they follow the row
groups (`row_groups.py`). Each split names the files that hold its rows, so reading it touches these
only, and is a query of its own: nothing stays cached in Spark between two reads, and a Spark that
died and came back reads the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import quote, unquote

from ...core.errors import ConfigurationError
from . import row_groups

ROWS_PER_SPLIT: Final = 65_536
"""Of sorted input, where the program does not say how many."""

_DIGEST = 16

_FILE, _ROW, _KEYS, _SPLIT, _POSITION = "__file", "__row", "__keys", "__split", "__position"

Bound = tuple[Any, ...]
"""Sort key values, file, row: the place of a row in the total order. Timestamps are int64 µs."""


@dataclass(frozen=True)
class ParquetRead:
    """What to read: a table's root, a Spark SQL filter, columns (None: all), the order. `fill`:
    files may lack columns, which are null then. `rows_per_split` None: what fits the files."""

    path: str
    columns: tuple[str, ...] | None
    filter: str | None
    sort_by: tuple[str, ...]
    rows_per_split: int | None
    fill: bool = False


@dataclass(frozen=True)
class ParquetSplit:
    """The rows in [`lower`, `upper`) of the total order (None: no bound), all found in `files`
    (URL-encoded, as Spark names them); or, where no order was asked for, those of `pieces`.

    `rows` is how many there are, `position` how many of them have been emitted."""

    index: int
    files: tuple[str, ...]
    lower: Bound | None
    upper: Bound | None
    rows: int
    position: int = 0
    pieces: tuple[row_groups.Piece, ...] = ()

    @property
    def split_id(self) -> str:
        return f"{self.index:08d}"

    def at(self, position: int) -> ParquetSplit:
        return replace(self, position=position)


def plan(
    spark: Any,
    read: ParquetRead,
    schema: Any,
    files: Sequence[str] | None = None,
    first: int = 0,
) -> list[ParquetSplit]:
    """All splits in order, of the whole input or of some files (as Spark names them), numbered from
    `first`. `schema`: what `input_schema` said. Raises ConfigurationError for a null sort key or an
    unknown column."""
    if not read.sort_by:
        return _plan_pieces(spark, read, schema, files, first)
    whole = [read.path] if files is None else [unquote(file) for file in files]
    frame = _input(spark, read, [_literal_path(path) for path in whole], schema)
    return plan_rows(frame, read, first)


def _plan_pieces(
    spark: Any, read: ParquetRead, schema: Any, files: Sequence[str] | None, first: int
) -> list[ParquetSplit]:
    paths = [unquote(file) for file in (list_files(spark, read) if files is None else files)]
    if not paths:
        return []
    _check_columns(schema.names, read)
    found = row_groups.footers(spark, paths)
    limit = read.rows_per_split or row_groups.fitting_rows(found, read.columns)
    most = row_groups.FILES if read.rows_per_split is None else None
    if read.filter:
        step = row_groups.step(found, limit)
        frame = _input(spark, read, [_literal_path(path) for path in paths], schema)
        counts = _counts(frame, step)
        cut = row_groups.filtered_runs(found, step, counts)
    elif read.rows_per_split:
        cut = row_groups.exact_runs(found, limit)
    else:
        cut = row_groups.runs(found, limit)
    splits = []
    for number, runs in enumerate(row_groups.packed(cut, limit, most), first):
        pieces = row_groups.pieces(runs)
        rows = sum(piece.end - piece.begin for piece in pieces)
        if read.filter:
            rows = sum(row_groups.counted(run, step, counts) for run in runs)
        names = tuple(piece.file for piece in pieces)
        splits.append(ParquetSplit(number, names, None, None, rows, pieces=pieces))
    return splits


def _counts(frame: Any, step: int) -> dict[tuple[str, int], int]:
    """How many rows the filter leaves of every `step` rows of a file."""
    from pyspark.sql import functions as f

    number = f.floor(f.col(_ROW) / f.lit(step))
    rows = frame.groupBy(_FILE, number).agg(f.count(f.lit(1))).collect()
    return {(row[0], int(row[1])): int(row[2]) for row in rows}


def plan_rows(frame: Any, read: ParquetRead, first: int) -> list[ParquetSplit]:
    """All splits in order of the rows of a frame that `placed` has made, numbered from `first`."""
    from pyspark.sql import functions as f

    _check_columns(frame.columns, read)
    per_split = read.rows_per_split or ROWS_PER_SPLIT
    keys = [*(_encoded(frame, name) for name in read.sort_by), f.col(_FILE), f.col(_ROW)]
    names = [f"k{i}" for i in range(len(keys))]
    ordered = frame.select(*(k.alias(n) for k, n in zip(keys, names, strict=True))).sort(*names)
    numbered = ordered.withColumn(_POSITION, f.monotonically_increasing_id()).persist()
    try:
        return _cut(numbered, names, read, per_split, first)
    finally:
        numbered.unpersist()


def input_schema(spark: Any, read: ParquetRead) -> Any:
    """Spark's idea of the whole input's columns. Reads pass it, so that no split infers its own."""
    reader = spark.read.option("mergeSchema", str(read.fill).lower())
    return reader.parquet(_literal_path(read.path)).schema


def list_files(spark: Any, read: ParquetRead) -> list[str]:
    """The files of the input, as Spark names them, older ones first. Names that begin with `.` or
    `_` are no files of it."""
    frame = spark.read.format("binaryFile").load(_literal_path(read.path))
    found = frame.select("modificationTime", "path").collect()
    return [quote(row[1], safe="/:@!$&'()*+,;=~-._") for row in sorted(found)]


def unseen(files: Sequence[str], seen: bytes) -> tuple[list[str], bytes]:
    """Those that are not among the seen, and the seen with them. Of each file 16 bytes are kept,
    for ever: whatever time a file says it is of, it is read once."""
    known = {seen[at : at + _DIGEST] for at in range(0, len(seen), _DIGEST)}
    new = [(file, blake2b(file.encode(), digest_size=_DIGEST).digest()) for file in files]
    new = [(file, digest) for file, digest in new if digest not in known]
    return [file for file, _ in new], seen + b"".join(digest for _, digest in new)


def check_files(files: Sequence[str], schema: Any, read: ParquetRead) -> None:
    """Raise ConfigurationError for a file with other columns than the input's: Spark would pass
    over a column that it does not expect, and fill one that is missing. Only of files on a disk or
    mounted."""
    import pyarrow.parquet as pq

    for file in files:
        path = _local(file)
        if path is None:
            continue
        folders = {part.partition("=")[0] for part in path.split("/")[:-1] if "=" in part}
        expected = {field.name for field in schema} - folders
        found = set(pq.read_schema(path).names)
        if read.columns is not None:
            expected = {*read.columns, *read.sort_by} - folders
            found &= expected
        extra, missing = sorted(found - expected - folders), sorted(expected - found)
        if extra or (missing and not read.fill):
            both = ((extra, "more"), (missing, "missing"))
            what = [f"{names} {how}" for names, how in both if names]
            raise ConfigurationError(
                f"'{path}' has other columns than the rest of '{read.path}': {', '.join(what)}; "
                "write files with the same columns, or read what all have together, filled with "
                "nulls: SparkParquetSource(fill=True)"
            )


def _local(file: str) -> str | None:
    """The path of a file on this machine; None for others."""
    path = unquote(file)
    return re.sub(r"^file:/+", "/", path) if path.startswith("file:") else None


def read_split(spark: Any, read: ParquetRead, split: ParquetSplit, schema: Any) -> Any:
    """The rows of a split that are not emitted yet, in order, as a Spark frame of one partition."""
    files = [_literal_path(unquote(file)) for file in split.files]
    frame = _input(spark, read, files, schema)
    return _pieces(spark, frame, read, split) if split.pieces else rows_of_split(frame, read, split)


def _pieces(spark: Any, frame: Any, read: ParquetRead, split: ParquetSplit) -> Any:
    from pyspark.sql import functions as f

    place = f.col(_FILE), f.col(_ROW)
    columns = read.columns or [c for c in frame.columns if c not in (_FILE, _ROW)]
    condition = row_groups.within(split.pieces, *place)
    rows = (frame if condition is None else frame.where(condition)).select(*columns)
    if row_groups.scan_only(spark, rows, split.pieces):
        return rows
    condition = row_groups.within(split.pieces, *place, groups=False)
    return frame.where(condition).coalesce(1).sortWithinPartitions(*place).select(*columns)


def rows_of_split(frame: Any, read: ParquetRead, split: ParquetSplit) -> Any:
    """The same, of a frame that `placed` has made of the split's files."""
    from pyspark.sql import functions as f

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
    reader = spark.read.schema(schema).option("basePath", _base(spark, read.path))
    return placed(reader.parquet(*paths), read)


def placed(frame: Any, read: ParquetRead) -> Any:
    """The rows of files that the filter lets pass, with the place of each."""
    from pyspark.sql import functions as f

    frame = frame.withColumns(
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
        raise ConfigurationError(f"no column {unknown} in '{read.path}'; it has {known}")


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


def _cut(
    numbered: Any, names: Sequence[str], read: ParquetRead, per_split: int, first: int
) -> list[ParquetSplit]:
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
    split = f.floor((offset + within) / f.lit(per_split))
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
        ParquetSplit(first + i, tuple(row[3]), bounds[i], bounds[i + 1], row[2])
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
