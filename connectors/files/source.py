"""`FileSource`: Parquet, CSV, JSON Lines and text files as a parallel, replayable source, of the
files that are there, or of folders that are watched."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from copy import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, cast

import pyarrow as pa

from ...api.connectors.base import (
    Emit,
    EnumeratorContext,
    NeedSplit,
    Polled,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
)
from ...api.connectors.reads import ColumnReads
from ...api.types.durations import to_timedelta
from ...api.types.type_info import schema_of
from ...core.batch import Batch, ColumnBatch, ObjectBatch
from ...core.checks import known_charset
from ...core.clock import SystemClock
from ...core.errors import ConfigurationError, ConnectorError
from ...core.value_types import empty_batch
from .csv_schema import CsvSchema
from .filters import checked
from .folders import Roots
from .format_names import make_format
from .formats import FileSplit, LastFile, LenientFormat, SourceFormat, WatchedSplit
from .layout import Layout, Request
from .lenient import Unread
from .paths import absolute, find_files, list_files, naming, stamp_of
from .seen import changed
from .source_builder import BulkFormat, FileSourceBuilder, StreamFormat
from .watching import PLANNERS, Watch, WatchingEnumerator, WatchState

_LEAST = timedelta(milliseconds=1)

_TEXTS: Final = ("csv", "jsonl")

_IDLE_POLLS = 5
"""Polls in vain after which a reader lets go of the file that it read last: it may be removed."""


class FileSource(Source):
    """The rows of files, in columns; of format "text" their lines, as strings.

    paths: a path, glob, folder or fsspec URL, or several; relative ones are to the folder in which
        the program runs. columns: only these. schema: types by name (for JSON Lines and CSV they
        pin what is otherwise inferred from the first MiB of the first file).
    filter: a pyarrow expression, such as `pc.field("day") == 3`: only rows for which it is true.
        Files whose folders' names exclude it, and Parquet row groups whose statistics do, are not
        read. partitions: folders named `name=value` below the paths are columns.
    monitor_interval: None: the files are found when the job first starts, and read in order of
        path; else the source never ends, and looks for new files so often. settle: a new file is
        read when it has looked the same for so long. max_age: see `seen`; only then the memory of
        what was read is bounded in a folder that nobody clears.
    charset: of CSV, JSON Lines and text. csv_schema: of CSV that is not as by default (a header
        line, commas, double quotes); its columns are the declared ones.
    All files must have the same columns; of Parquet those that the program reads, others are left
    out where nobody can see them. Rows keep their order within a file (Parquet: row group).
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        format: SourceFormat = "parquet",
        columns: Sequence[str] | None = None,
        schema: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        *,
        filter: Any = None,
        partitions: bool = True,
        monitor_interval: timedelta | float | None = None,
        settle: timedelta | float = timedelta(0),
        max_age: timedelta | float | None = None,
        charset: str = "UTF-8",
        csv_schema: CsvSchema | None = None,
    ) -> None:
        given = _given(paths)
        self._paths = [absolute(path) for path in given]
        self._options = storage_options
        declared = schema_of(schema)
        if csv_schema is not None:
            if declared is not None:
                raise ConfigurationError("a FileSource takes a schema or a csv_schema, not both")
            declared = csv_schema.schema
        if format == "text":
            if columns is not None or declared is not None:
                raise ConfigurationError(
                    "a FileSource of format 'text' has no columns: its records are lines"
                )
        else:
            make_format(
                format, columns, declared, storage_options, known_charset(charset), csv_schema
            )
        self._request = Request(
            format,
            None if columns is None else tuple(columns),
            declared,
            checked(filter),
            Roots(self._paths, storage_options) if partitions else None,
            storage_options,
            known_charset(charset),
            csv_schema,
        )
        self._malformed: str | None = None
        """To which side output goes what cannot be read; None: it fails the job."""
        self._layout: Layout | None = None
        self._interval = _interval(monitor_interval)
        self.independent_readers = self._interval is None
        self._settle = to_timedelta(settle, "settle")
        self._max_age = (
            None if max_age is None else to_timedelta(max_age, "max_age", minimum=_LEAST)
        )
        if self._interval is None and (self._settle or self._max_age is not None):
            raise ConfigurationError(
                "settle and max_age are for a FileSource that watches: give monitor_interval"
            )

    @staticmethod
    def for_record_stream_format(
        stream_format: StreamFormat, *paths: str | os.PathLike[str]
    ) -> FileSourceBuilder[FileSource]:
        """PyFlink's builder, for formats of which a file is one split."""
        return FileSourceBuilder(FileSource, stream_format, paths)

    @staticmethod
    def for_bulk_file_format(
        bulk_format: BulkFormat, *paths: str | os.PathLike[str]
    ) -> FileSourceBuilder[FileSource]:
        """PyFlink's builder, for formats that are read in batches."""
        return FileSourceBuilder(FileSource, bulk_format, paths)

    @property
    def bounded(self) -> bool:
        return self._interval is None

    @property
    def schema(self) -> pa.Schema | None:
        """Declared, or read from the first file (and all folders' names) when first asked for; None
        of text."""
        return None if self._request.lines else self._resolved().output

    def malformed_to(self, tag: str) -> FileSource | None:
        """None of Parquet and text, and where no schema is declared: a line that cannot be read
        would say what the columns are."""
        known = self._request.declared is not None
        if not (self._request.format == "avro" or (known and self._request.format in _TEXTS)):
            return None
        other = copy(self)
        other._malformed = tag
        return other

    def reading(self, columns: ColumnReads) -> FileSource | None:
        """Of Parquet alone. Text is parsed whole anyway, and a value that cannot be read is an
        error also where nobody reads its column."""
        if self._request.format != "parquet" or self._leaves_out_nothing(columns.columns):
            return None
        other = copy(self)
        other._request = replace(self._request, read=columns.columns)
        other._layout = None if self._layout is None else self._layout.reading(other._request)
        return other

    def _leaves_out_nothing(self, read: frozenset[str]) -> bool:
        """Whether it is known that all columns are read, or none of these."""
        declared = self._request.declared
        known: Sequence[str] | None = self._request.columns
        if known is None and declared is not None:
            known = declared.names
        if known is None and self._layout is not None:
            known = self._layout.output.names
        return known is not None and (read.isdisjoint(known) or read.issuperset(known))

    def reads_from(self) -> tuple[str, ...]:
        return (", ".join(self._paths),)

    def create_enumerator(
        self, context: EnumeratorContext, restored: Any | None
    ) -> FileEnumerator | WatchingEnumerator:
        if restored is not None and isinstance(restored, WatchState) == self.bounded:
            raise ConfigurationError(
                "the checkpoint is of a FileSource "
                + ("that watched its folders" if self.bounded else "that did not watch its folders")
                + ": give the same monitor_interval or none, as it did, or the source another uid"
            )
        if self._interval is None:
            return FileEnumerator(self._plan() if restored is None else restored)
        watch = Watch(
            self._paths,
            self._options,
            self._resolved,
            self._interval.total_seconds(),
            self._settle.total_seconds(),
            None if self._max_age is None else self._max_age.total_seconds(),
        )
        return WatchingEnumerator(watch, SystemClock(), restored)

    def create_reader(self, context: ReaderContext) -> FileReader:
        return FileReader(self._resolved(), context.batch_size, self._malformed)

    def _resolved(self, files: Sequence[str] | None = None) -> Layout:
        """`files`: those there are, sorted; None: to be found, if they matter."""
        if self._layout is None:
            if files is None:
                known = self._request.lines or self._request.declared is not None
                files = () if known else self._find()
            self._layout = self._request.resolve(files)
        return self._layout

    def _find(self) -> list[str]:
        if self._interval is None:
            return find_files(self._paths, self._options)
        files = sorted(list_files(self._paths, self._options))
        if not files:
            raise ConnectorError(
                f"there is no file in {self._paths} yet that would tell the columns: declare the "
                "schema of this FileSource"
            ) from FileNotFoundError(self._paths[0])
        return files

    def _plan(self) -> list[FileSplit]:
        files = find_files(self._paths, self._options)
        layout = self._resolved(files)
        with ThreadPoolExecutor(PLANNERS) as pool:
            plans = pool.map(layout.splits, layout.matching(files))
            return [split for plan in plans for split in plan]


class FileEnumerator(SplitEnumerator):
    """Hands out splits one by one, in order, to whoever asks."""

    def __init__(self, splits: Sequence[FileSplit]) -> None:
        self._left = deque(splits)

    def next_splits(self, subtask: int) -> Sequence[FileSplit] | None:
        return [self._left.popleft()] if self._left else None

    def snapshot(self) -> list[FileSplit]:
        return list(self._left)


class FileReader(SourceReader):
    """Reads its splits one after the other."""

    def __init__(self, layout: Layout, batch_size: int, malformed: str | None = None) -> None:
        """`malformed`: the side output of what cannot be read; None: that is an error."""
        self._layout = layout
        self._batch_size = batch_size
        self._malformed = malformed
        self._splits: deque[FileSplit] = deque()
        """Unfinished; the first is being read, its position is after the last emitted batch."""
        self._rows: Generator[pa.RecordBatch | Unread, None, None] | None = None
        """What is left of the first split, as the file has it; None until it is opened."""
        self._finish: Callable[[pa.RecordBatch], pa.RecordBatch]
        """Makes rows of the source from the first split's. Set while `_rows` is."""
        self._last = LastFile()
        self._idle = 0
        """Polls in a row without a split."""

    def add_splits(self, splits: Sequence[FileSplit]) -> None:
        self._splits.extend(splits)

    def poll(self) -> Polled:
        if not self._splits:
            self._idle += 1
            if self._idle == _IDLE_POLLS:
                self._last.close()
            return NeedSplit()
        self._idle = 0
        split = self._splits[0]
        if self._rows is None:
            self._rows = self._open(split)
        batch = next(self._rows, None)
        if batch is None:
            self._splits.popleft()
            self._rows = None
            return Emit(self._batch(_empty(self._layout.output)), split.split_id, finished=True)
        self._splits[0] = replace(split, position=split.position + batch.num_rows)
        if isinstance(batch, Unread):
            assert self._malformed is not None
            side = [(self._malformed, ColumnBatch(batch.told()))]
            return Emit(self._batch(_empty(self._layout.output)), split.split_id, side=side)
        return Emit(self._batch(self._finish(batch)), split.split_id)

    def snapshot(self) -> Sequence[FileSplit]:
        return list(self._splits)

    def close(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()
        self._last.close()

    def _batch(self, data: pa.RecordBatch) -> Batch:
        if self._layout.request.lines:
            return ObjectBatch(data.column(0).to_pylist())
        return ColumnBatch(data)

    def _open(self, split: FileSplit) -> Generator[pa.RecordBatch, None, None]:
        values = self._layout.values(split.path)
        self._finish = self._layout.finishing(values, self._batch_size)
        return self._from_position(split, tuple(values))

    def _from_position(
        self, split: FileSplit, named: tuple[str, ...]
    ) -> Generator[pa.RecordBatch | Unread, None, None]:
        self._check_unchanged(split)
        format, schema = self._layout.file_part(named)
        skip = split.position
        items: Generator[pa.RecordBatch | Unread, None, None]
        if self._malformed is None:
            items = format.batches(split, schema, self._batch_size, self._last)
        else:
            items = cast(LenientFormat, format).lenient(split, schema)
        with closing(items):
            for batch in items:
                if batch.num_rows <= skip:
                    skip -= batch.num_rows
                    continue
                if isinstance(batch, Unread):
                    yield batch
                    continue
                for start in range(skip, batch.num_rows, self._batch_size):
                    yield batch.slice(start, self._batch_size)
                skip = 0
        if skip:
            raise ConnectorError(
                f"file '{split.path}' ends {skip} rows before the restored position "
                f"{split.position} of split '{split.split_id}': files must not change while a job "
                "may be restored"
            )
        self._check_unchanged(split)

    def _check_unchanged(self, split: FileSplit) -> None:
        """A watched file must stay as it was when it was found."""
        if not isinstance(split, WatchedSplit):
            return
        with naming("read", split.path, "A file of a watched folder must stay until it is read"):
            now = stamp_of(split.path, self._layout.request.options)
        if now != split.stamp:
            raise changed(split.path, split.stamp, now, read=False)


def _given(paths: Any) -> list[str | os.PathLike[str]]:
    """One path or several."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    if not isinstance(given, Iterable) or isinstance(given, (bytes, bytearray)):
        raise ConfigurationError(
            f"a FileSource's paths must be a path, glob, folder or URL, or several, is {paths!r}"
        )
    listed = list(given)
    odd = [path for path in listed if not isinstance(path, (str, os.PathLike))]
    if odd:
        raise ConfigurationError(f"a FileSource's path must be text or a Path, is {odd[0]!r}")
    if not listed:
        raise ConfigurationError("a FileSource needs at least one path")
    return listed


def _interval(given: timedelta | float | None) -> timedelta | None:
    if given is None:
        return None
    return to_timedelta(given, "monitor_interval", minimum=_LEAST)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return empty_batch(schema)
