"""How each file format is cut into splits and read from a row on.

A split's position counts rows of the file. Parquet splits are row groups, so at a restore at most
one row group is decoded in vain; any other file is one split, because rows cannot be found without
parsing: a restore parses the file again up to the position.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ...core.errors import ConnectorError
from ...core.union_type import gathered_unions, with_unions
from .lenient import Unread
from .paths import Stamp, naming, open_input, show_schema

FormatName = Literal["parquet", "csv", "jsonl", "avro"]
SourceFormat = Literal["parquet", "csv", "jsonl", "avro", "text"]

KeptGroups = Callable[[Any], set[int] | None]
"""Of an open Parquet file, the row groups to read; None: all."""

UTF_8 = "utf-8"
"""As Python calls it."""

BLOCK_BYTES = 1 << 20
"""Text files are parsed in pieces of this size."""

DECODED_ROWS = 1 << 17
"""Rows of a Parquet row group that are decoded at once: fewer cost more calls than they save
memory, and batches are slices of them."""


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A file, or one row group of it (None: all). `position`: rows of it already read."""

    path: str
    row_group: int | None = None
    position: int = 0

    @property
    def split_id(self) -> str:
        return self.path if self.row_group is None else f"{self.path}#{self.row_group}"


@dataclass(frozen=True, slots=True)
class WatchedSplit(FileSplit):
    """Of a folder that is watched: also how the file looked when it was found."""

    size: int = 0
    modified: int = 0

    @property
    def stamp(self) -> Stamp:
        return Stamp(self.size, self.modified)


class LenientFormat(Protocol):
    """A format that can tell which records it cannot read."""

    def lenient(
        self, split: FileSplit, schema: pa.Schema
    ) -> Generator[pa.RecordBatch | Unread, None, None]:
        """As `FileFormat.batches`, with what cannot be read in its place. Raises ConnectorError for
        a file that cannot be read at all."""
        ...


class LastFile:
    """The Parquet file that a reader read from last: its next row group is often of the same one,
    and the footer of a wide file takes long to read."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._file: Any = None

    def get(self, path: str, open_: Callable[[], Any]) -> Any:
        """The open file; `open_` is called if it is another one."""
        if self._path != path:
            self.close()
            self._file = open_()
            self._path = path
        return self._file

    def close(self) -> None:
        file, self._file, self._path = self._file, None, None
        if file is not None:
            file.close()


@dataclass(frozen=True)
class FileFormat(ABC):
    """Reads one format. `columns`: only these; `declared`: the user's schema, else None."""

    columns: tuple[str, ...] | None
    declared: pa.Schema | None
    options: Mapping[str, Any] = field(default_factory=dict)

    @abstractmethod
    def schema_of(self, path: str) -> pa.Schema:
        """The columns that reading this file gives (selected, in order)."""

    @abstractmethod
    def plan(self, path: str, schema: pa.Schema, kept: KeptGroups | None = None) -> list[FileSplit]:
        """The file's splits, in order, after checking what can be checked without reading it; of
        Parquet only the row groups that are `kept`."""

    @abstractmethod
    def batches(
        self, split: FileSplit, schema: pa.Schema, batch_size: int, last: LastFile
    ) -> Generator[pa.RecordBatch, None, None]:
        """The split's rows from its beginning, `position` not applied. Closing the iterator closes
        the file, but for what stays open in `last`, which is the reader's."""

    def select(self, path: str, schema: pa.Schema) -> pa.Schema:
        """The wanted columns of a file's own schema."""
        wanted = self.columns
        if wanted is None:
            wanted = tuple(schema.names if self.declared is None else self.declared.names)
        missing = [name for name in wanted if name not in schema.names]
        if missing:
            raise no_columns(path, missing, schema, wanted)
        check_once(path, wanted, schema.names)
        return pa.schema([schema.field(name) for name in wanted])

    def check(self, path: str, found: pa.Schema, expected: pa.Schema) -> None:
        """Types must agree exactly: a silent cast could lose data."""
        if not found.equals(expected):
            origin = "the declared schema" if self.declared is not None else "the first file"
            raise ConnectorError(
                f"file '{path}' has columns {show_schema(found)}, but {origin} has "
                f"{show_schema(expected)}: convert the file, or read it with a source of its own"
            )


def no_columns(
    path: str, missing: Sequence[str], schema: pa.Schema, wanted: Sequence[str]
) -> ConnectorError:
    return ConnectorError(
        f"file '{path}' has no column {list(missing)}: it has {show_schema(schema)}, "
        f"wanted are {list(wanted)}"
    )


def check_once(path: str, wanted: Sequence[str], names: Sequence[str]) -> None:
    """ConnectorError if one of the wanted is among a file's names more than once."""
    twice = [name for name in wanted if names.count(name) > 1]
    if twice:
        raise ConnectorError(
            f"file '{path}' has several columns called '{twice[0]}': rename all but one, or read "
            "others only, with columns=[...]"
        )


class ParquetFiles(FileFormat):
    def schema_of(self, path: str) -> pa.Schema:
        with naming("read", path, _PARQUET_HINT), self._open(path) as file:
            return self._found(path, file)

    def _found(self, path: str, file: pq.ParquetFile) -> pa.Schema:
        """The wanted columns of a file; structs that are declared as values of several kinds are
        such values."""
        found = plain(self.select(path, file.schema_arrow))
        return found if self.declared is None else with_unions(found, self.declared)

    def plan(self, path: str, schema: pa.Schema, kept: KeptGroups | None = None) -> list[FileSplit]:
        with naming("read", path, _PARQUET_HINT), self._open(path) as file:
            self.check(path, self._found(path, file), schema)
            meta = file.metadata
            groups = set(range(meta.num_row_groups))
        if kept is not None:
            with naming("read", path, _PARQUET_HINT), open_input(path, self.options) as opened:
                wanted = kept(opened)
            groups = groups if wanted is None else groups & wanted
        return [FileSplit(path, g) for g in sorted(groups) if meta.row_group(g).num_rows]

    def batches(
        self, split: FileSplit, schema: pa.Schema, batch_size: int, last: LastFile
    ) -> Generator[pa.RecordBatch, None, None]:
        def opened() -> pq.ParquetFile:
            file = self._open(split.path)
            self.check(split.path, self._found(split.path, file), schema)
            return file

        with naming("read", split.path, _PARQUET_HINT):
            file = last.get(split.path, opened)
            groups = None if split.row_group is None else [split.row_group]
            rows = max(batch_size, DECODED_ROWS)
            for batch in file.iter_batches(rows, groups, columns=schema.names):
                wanted = batch.select(schema.names).replace_schema_metadata(None)
                yield gathered_unions(wanted, schema)

    def _open(self, path: str) -> pq.ParquetFile:
        return pq.ParquetFile(open_input(path, self.options))


_PARQUET_HINT = "The file is not complete, readable Parquet: write it again or leave it out"


def plain(schema: pa.Schema) -> pa.Schema:
    """Names and types only: metadata and nullability do not make two files differ."""
    return pa.schema([(item.name, item.type) for item in schema])
