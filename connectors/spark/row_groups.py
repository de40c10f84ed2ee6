"""Splits of Parquet in the order it lies in: runs of row groups, as the files' footers tell them.

No row is read to make such a split, unless a filter hides some: then they are counted, once. A read
opens only the row groups that hold rows of its split, in order, in one Spark task, so that nothing
has to be sorted. Spark assigns a row group to the range of bytes that its middle is in; the ranges
of its scan are replaced by those of the split.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

ROWS: Final = 1 << 20
BYTES: Final = 32 << 20
FILES: Final = 256
"""What a split holds at most, where the program does not say how many rows."""

_LOOKED_AT: Final = 3
"""Files by which the size of a row is judged."""


@dataclass(frozen=True)
class Piece:
    """Rows [`begin`, `end`) of a file of `size` bytes, numbered as they lie in it. Their row groups
    begin at byte `start` and are `length` bytes long; `whole`: these hold no other rows."""

    file: str
    begin: int
    end: int
    size: int
    start: int
    length: int
    whole: bool


@dataclass(frozen=True)
class Group:
    """A row group: its number of rows, and where it is in the file."""

    rows: int
    start: int
    length: int


@dataclass(frozen=True)
class Footer:
    """A file, named as Spark names it, its row groups in order, and about how many bytes a value
    of each column takes in memory, where that was looked at."""

    file: str
    size: int
    groups: tuple[Group, ...]
    widths: Mapping[str, float]

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)

    def piece(self, begin: int, end: int) -> Piece:
        """The rows [`begin`, `end`), which are at least one."""
        at, first, last = 0, None, 0
        inside: list[Group] = []
        for group in self.groups:
            if at < end and at + group.rows > begin:
                first = at if first is None else first
                last = at + group.rows
                inside.append(group)
            at += group.rows
        if not self._in_order() or len(inside) == len(self.groups):
            return Piece(self.file, begin, end, self.size, 0, self.size, (begin, end) == (0, at))
        start, stop = inside[0].start, inside[-1].start + inside[-1].length
        whole = (begin, end) == (first, last)
        return Piece(self.file, begin, end, self.size, start, stop - start, whole)

    def _in_order(self) -> bool:
        """Whether the row groups lie one behind the other."""
        ends = [0, *(group.start + group.length for group in self.groups)]
        return all(g.start >= end for g, end in zip(self.groups, ends, strict=False))


Run = tuple[Footer, int, int]
"""Rows of a file that one split is to hold, or a part of it."""


def footers(spark: Any, paths: Iterable[str]) -> list[Footer]:
    """Of files (not URL-encoded), in the order of the names that Spark gives them."""
    jvm = spark._jvm
    hadoop = spark._jsc.hadoopConfiguration()
    every = jvm.org.apache.parquet.format.converter.ParquetMetadataConverter.NO_FILTER
    found = []
    for index, path in enumerate(paths):
        place = jvm.org.apache.hadoop.fs.Path(path)
        file = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(place, hadoop)
        said = jvm.org.apache.parquet.hadoop.ParquetFileReader.readFooter(file, every)
        blocks = list(said.getBlocks())
        groups = tuple(
            Group(b.getRowCount(), b.getStartingPos(), b.getCompressedSize()) for b in blocks
        )
        widths = _widths(blocks[0]) if blocks and index < _LOOKED_AT else {}
        name = jvm.org.apache.hadoop.fs.Path(file.getPath().toString()).toUri().toString()
        found.append(Footer(name, file.getLength(), groups, widths))
    return sorted(found, key=lambda footer: footer.file)


def _widths(group: Any) -> dict[str, float]:
    """Bytes of memory that a value takes, by column: as many as the file has for it, or as the
    greatest value has, for a text that repeats is in the file only once."""
    result: dict[str, float] = {}
    rows = max(1, group.getRowCount())
    for column in group.getColumns():
        name = column.getPath().toArray()[0]
        said = column.getStatistics()
        greatest = len(said.getMaxBytes()) if said is not None and said.hasNonNullValue() else 0
        width = max(column.getTotalUncompressedSize() / rows, greatest + 4)
        result[name] = result.get(name, 0.0) + width
    return result


def fitting_rows(found: Sequence[Footer], columns: Sequence[str] | None) -> int:
    """How many rows make a split, where the program does not say it."""
    widest = 1.0
    for footer in found:
        named = [footer.widths[name] for name in columns or footer.widths if name in footer.widths]
        widest = max(widest, sum(named))
    return max(1, min(ROWS, round(BYTES / widest)))


def runs(found: Sequence[Footer], limit: int) -> Iterator[Run]:
    """Whole row groups, and equal parts of those with more than `limit` rows."""
    for footer in found:
        at = 0
        for group in footer.groups:
            parts = -(-group.rows // limit)
            for part in range(parts):
                begin, end = part * group.rows // parts, (part + 1) * group.rows // parts
                yield footer, at + begin, at + end
            at += group.rows


def exact_runs(found: Sequence[Footer], rows: int) -> Iterator[Run]:
    """Of all rows in order every `rows` in a row, as far as they are in one file."""
    left = rows
    for footer in found:
        at = 0
        while at < footer.rows:
            end = min(footer.rows, at + left)
            yield footer, at, end
            left = left - (end - at) or rows
            at = end


def step(found: Sequence[Footer], limit: int) -> int:
    """How many rows to count together: full row groups if they are alike, and at most `limit`."""
    sizes = {group.rows for footer in found for group in footer.groups[:-1]}
    size = sizes.pop() if len(sizes) == 1 else limit
    return max(1, limit // size) * size if size <= limit else limit


def filtered_runs(
    found: Sequence[Footer], rows: int, counts: Mapping[tuple[str, int], int]
) -> Iterator[Run]:
    """Of each file every `rows` in a row, but those of which the filter leaves none. `counts`: how
    many it leaves, by file and number within the file."""
    for footer in found:
        for number in range(-(-footer.rows // rows)):
            if counts.get((footer.file, number)):
                yield footer, number * rows, min(footer.rows, (number + 1) * rows)


def counted(run: Run, rows: int, counts: Mapping[tuple[str, int], int]) -> int:
    """How many rows of a filtered run the filter leaves."""
    footer, begin, end = run
    return sum(counts.get((footer.file, n), 0) for n in range(begin // rows, -(-end // rows)))


def packed(found: Iterable[Run], limit: int, files: int | None) -> list[list[Run]]:
    """Runs together, in order, up to `limit` rows and so many files; None: any number. Of a file
    one has at most one run: what lies between two is filtered out."""
    result: list[list[Run]] = []
    room = 0
    for footer, begin, end in found:
        last = result[-1] if result else []
        full = files is not None and len(last) >= files
        if not last or end - begin > room or full:
            result.append([])
            room = limit
        room -= end - begin
        last = result[-1]
        if last and last[-1][0] is footer:
            last[-1] = (footer, last[-1][1], end)
        else:
            last.append((footer, begin, end))
    return result


def pieces(run: Sequence[Run]) -> tuple[Piece, ...]:
    return tuple(footer.piece(begin, end) for footer, begin, end in run)


def within(pieces: Sequence[Piece], file: Any, row: Any, groups: bool = True) -> Any | None:
    """The condition, of the columns that name file and row, that holds for rows of the pieces among
    all of their files, or of their row `groups`; None: for all."""
    result = None
    for piece in pieces:
        if groups and piece.whole:
            continue
        inside = (row >= piece.begin) & (row < piece.end)
        if len(pieces) > 1:
            inside = (file != piece.file) | inside
        result = inside if result is None else result & inside
    return result


def scan_only(spark: Any, frame: Any, pieces: Sequence[Piece]) -> bool:
    """Have the frame's scan read the row groups of the pieces, in order, in one task. False: there
    is no such scan in its plan, or a file has another size than it had, so that its row groups may
    be elsewhere; the frame is as it was. Nothing of it may have been computed."""
    jvm = spark._jvm
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    if leaves.size() != 1 or leaves.apply(0).nodeName()[:5] != "Scan ":
        return False
    scan = leaves.apply(0).inputRDD()
    kind = jvm.java.lang.Class.forName("org.apache.spark.sql.execution.datasources.FileScanRDD")
    if not kind.isInstance(scan):
        return False
    known: dict[str, Any] = {}
    partitions = scan.filePartitions()
    for index in range(partitions.size()):
        for file in partitions.apply(index).files():
            known.setdefault(_one_slash(file.filePath().urlEncoded()), file)
    wanted = [piece for piece in pieces if _one_slash(piece.file) in known]
    if any(known[_one_slash(piece.file)].fileSize() != piece.size for piece in wanted):
        return False
    datasources = jvm.org.apache.spark.sql.execution.datasources
    files = spark.sparkContext._gateway.new_array(datasources.PartitionedFile, len(wanted))
    for index, piece in enumerate(wanted):
        file = known[_one_slash(piece.file)]
        files[index] = file.copy(
            file.partitionValues(),
            file.filePath(),
            piece.start,
            piece.length,
            file.locations(),
            file.modificationTime(),
            file.fileSize(),
            file.otherConstantMetadataColumnValues(),
        )
    one = jvm.java.util.ArrayList()
    one.add(datasources.FilePartition(0, files))
    field = kind.getDeclaredField("filePartitions")
    field.setAccessible(True)
    field.set(scan, jvm.scala.collection.JavaConverters.asScalaBuffer(one).toSeq())
    return True


def _one_slash(file: str) -> str:
    """Spark's scans name local files with three, its rows with one."""
    return re.sub("^file:/+", "file:/", file)
