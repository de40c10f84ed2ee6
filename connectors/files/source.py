"""`FileSource`: Parquet, CSV and JSON Lines files as a bounded, parallel, replayable source."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

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
from ...core.batch import ColumnBatch
from ...core.errors import ConfigurationError, ConnectorError
from .formats import FileFormat, FileSplit, FormatName, make_format
from .paths import find_files

_PLANNERS = 16
"""Files looked at together when a job starts; remote footers are slow, not costly."""


class FileSource(Source):
    """The rows of files, in columns.

    paths: a path, glob, folder or fsspec URL, or several; found when the job first starts, read in
        order of path. columns: only these. schema: types by name (for JSON Lines and CSV they pin
        what is otherwise inferred from the first MiB of the first file).
    All files must have the same columns. Rows keep their order within a file (Parquet: row group).
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        format: FormatName = "parquet",
        columns: Sequence[str] | None = None,
        schema: pa.Schema | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
        if not given:
            raise ConfigurationError("a FileSource needs at least one path")
        self._paths = [os.fspath(path) for path in given]
        self._options = storage_options
        self._format = make_format(format, columns, schema, storage_options)
        self._schema: pa.Schema | None = None
        if schema is not None:
            self._schema = pa.schema([(n, schema.field(n).type) for n in columns or schema.names])

    @property
    def bounded(self) -> bool:
        return True

    @property
    def schema(self) -> pa.Schema:
        """Declared, or read from the first file when first asked for."""
        if self._schema is None:
            self._schema = self._format.schema_of(find_files(self._paths, self._options)[0])
        return self._schema

    def create_enumerator(self, context: EnumeratorContext, restored: Any | None) -> FileEnumerator:
        return FileEnumerator(self._plan() if restored is None else restored)

    def create_reader(self, context: ReaderContext) -> FileReader:
        return FileReader(self._format, self.schema, context.batch_size)

    def _plan(self) -> list[FileSplit]:
        files = find_files(self._paths, self._options)
        schema = self.schema
        with ThreadPoolExecutor(_PLANNERS) as pool:
            plans = pool.map(lambda path: self._format.plan(path, schema), files)
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

    def __init__(self, format: FileFormat, schema: pa.Schema, batch_size: int) -> None:
        self._format = format
        self._schema = schema
        self._batch_size = batch_size
        self._splits: deque[FileSplit] = deque()
        """Unfinished; the first is being read, its position is after the last emitted batch."""
        self._rows: Generator[pa.RecordBatch, None, None] | None = None
        """What is left of the first split; None until it is opened."""

    def add_splits(self, splits: Sequence[FileSplit]) -> None:
        self._splits.extend(splits)

    def poll(self) -> Polled:
        if not self._splits:
            return NeedSplit()
        split = self._splits[0]
        if self._rows is None:
            self._rows = self._from_position(split)
        batch = next(self._rows, None)
        if batch is None:
            self._splits.popleft()
            self._rows = None
            return Emit(ColumnBatch(_empty(self._schema)), split.split_id, finished=True)
        self._splits[0] = replace(split, position=split.position + batch.num_rows)
        return Emit(ColumnBatch(batch), split.split_id)

    def snapshot(self) -> Sequence[FileSplit]:
        return list(self._splits)

    def close(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()

    def _from_position(self, split: FileSplit) -> Generator[pa.RecordBatch, None, None]:
        skip = split.position
        with closing(self._format.batches(split, self._schema, self._batch_size)) as batches:
            for batch in batches:
                if batch.num_rows <= skip:
                    skip -= batch.num_rows
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


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)
