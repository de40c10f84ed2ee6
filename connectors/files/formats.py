"""How each file format is cut into splits and read from a row on.

A split's position counts rows. Parquet splits are row groups, so at a restore at most one row group
is decoded in vain; a CSV or JSON Lines file is one split, because rows cannot be found without
parsing: a restore parses the file again up to the position.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson
import pyarrow.parquet as pq

from ...core.errors import ConfigurationError, ConnectorError
from .paths import naming, open_input, show_schema, size_of

FormatName = Literal["parquet", "csv", "jsonl"]

BLOCK_BYTES = 1 << 20
"""Text files are parsed in pieces of this size."""


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A file, or one row group of it (None: all). `position`: rows of it already read."""

    path: str
    row_group: int | None = None
    position: int = 0

    @property
    def split_id(self) -> str:
        return self.path if self.row_group is None else f"{self.path}#{self.row_group}"


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
    def plan(self, path: str, schema: pa.Schema) -> list[FileSplit]:
        """The file's splits, in order, after checking what can be checked without reading it."""

    @abstractmethod
    def batches(
        self, split: FileSplit, schema: pa.Schema, batch_size: int
    ) -> Generator[pa.RecordBatch, None, None]:
        """The split's rows from its beginning, `position` not applied. Closing the iterator closes
        the file."""

    def select(self, path: str, schema: pa.Schema) -> pa.Schema:
        """The wanted columns of a file's own schema."""
        wanted = self.columns
        if wanted is None:
            wanted = tuple(schema.names if self.declared is None else self.declared.names)
        missing = [name for name in wanted if name not in schema.names]
        if missing:
            raise ConnectorError(
                f"file '{path}' has no column {missing}: it has {show_schema(schema)}, "
                f"wanted are {list(wanted)}"
            )
        return pa.schema([schema.field(name) for name in wanted])

    def check(self, path: str, found: pa.Schema, expected: pa.Schema) -> None:
        """Types must agree exactly: a silent cast could lose data."""
        if not found.equals(expected):
            origin = "the declared schema" if self.declared is not None else "the first file"
            raise ConnectorError(
                f"file '{path}' has columns {show_schema(found)}, but {origin} has "
                f"{show_schema(expected)}: convert the file, or read it with a source of its own"
            )


class ParquetFormat(FileFormat):
    def schema_of(self, path: str) -> pa.Schema:
        with naming("read", path, _PARQUET_HINT), self._open(path) as file:
            return _plain(self.select(path, file.schema_arrow))

    def plan(self, path: str, schema: pa.Schema) -> list[FileSplit]:
        with naming("read", path, _PARQUET_HINT), self._open(path) as file:
            self.check(path, _plain(self.select(path, file.schema_arrow)), schema)
            meta = file.metadata
            return [
                FileSplit(path, group)
                for group in range(meta.num_row_groups)
                if meta.row_group(group).num_rows
            ]

    def batches(
        self, split: FileSplit, schema: pa.Schema, batch_size: int
    ) -> Generator[pa.RecordBatch, None, None]:
        with naming("read", split.path, _PARQUET_HINT), self._open(split.path) as file:
            self.check(split.path, _plain(self.select(split.path, file.schema_arrow)), schema)
            groups = None if split.row_group is None else [split.row_group]
            for batch in file.iter_batches(batch_size, groups, columns=schema.names):
                yield batch.select(schema.names).replace_schema_metadata(None)

    def _open(self, path: str) -> pq.ParquetFile:
        return pq.ParquetFile(open_input(path, self.options))


class TextFormat(FileFormat):
    """CSV and JSON Lines: one split per file, types from the declared schema or the first file."""

    hint: str

    def schema_of(self, path: str) -> pa.Schema:
        with naming("read", path, self.hint), closing(self._open(path, None)) as reader:
            return self.select(path, _plain(reader.schema))

    def plan(self, path: str, schema: pa.Schema) -> list[FileSplit]:
        with naming("read", path, self.hint):
            size_of(path, self.options)
        return [FileSplit(path)]

    def batches(
        self, split: FileSplit, schema: pa.Schema, batch_size: int
    ) -> Generator[pa.RecordBatch, None, None]:
        path = split.path
        with naming("read", path, self.hint):
            if self.may_be_empty and size_of(path, self.options) == 0:
                return
        try:
            with naming("read", path, self.hint), closing(self._open(path, schema)) as reader:
                self.check(path, self.select(path, _plain(reader.schema)), schema)
                for batch in reader:
                    yield batch.select(schema.names).replace_schema_metadata(None)
        except ConnectorError as error:
            found = self._own_schema(path) if error.__cause__ is not None else None
            if found is None or found.equals(schema):
                raise
            raise ConnectorError(
                f"{error} The file by itself has {show_schema(found)}, expected is "
                f"{show_schema(schema)}"
            ) from error

    may_be_empty = False

    def _own_schema(self, path: str) -> pa.Schema | None:
        try:
            with closing(self._open(path, None)) as reader:
                return _plain(reader.schema)
        except (OSError, pa.ArrowException):
            return None

    @abstractmethod
    def _open(self, path: str, schema: pa.Schema | None) -> Any:
        """A streaming reader with `schema` and `close`."""


class CsvFormat(TextFormat):
    hint = "The file must be CSV with a header line, in UTF-8"

    def _open(self, path: str, schema: pa.Schema | None) -> Any:
        types = schema if schema is not None else self.declared
        projected = schema is not None and (self.columns, self.declared) != (None, None)
        convert = pacsv.ConvertOptions(
            column_types=types, include_columns=schema.names if schema and projected else None
        )
        return pacsv.open_csv(
            open_input(path, self.options),
            read_options=pacsv.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=pacsv.ParseOptions(newlines_in_values=True),
            convert_options=convert,
        )


class JsonLinesFormat(TextFormat):
    hint = "The file must hold one JSON object per line; for an empty file, declare a schema"
    may_be_empty = True

    def _open(self, path: str, schema: pa.Schema | None) -> Any:
        types = schema if schema is not None else self.declared
        pinned = types is not None
        lenient = self.declared is not None or self.columns is not None
        return pajson.open_json(
            open_input(path, self.options),
            read_options=pajson.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=pajson.ParseOptions(
                explicit_schema=types,
                unexpected_field_behavior=(
                    ("ignore" if lenient else "error") if pinned else "infer"
                ),
            ),
        )


_PARQUET_HINT = "The file is not complete, readable Parquet: write it again or leave it out"


def make_format(
    name: str,
    columns: Sequence[str] | None,
    declared: pa.Schema | None,
    options: Mapping[str, Any] | None,
) -> FileFormat:
    formats: dict[str, type[FileFormat]] = {
        "parquet": ParquetFormat,
        "csv": CsvFormat,
        "jsonl": JsonLinesFormat,
    }
    if name not in formats:
        raise ConfigurationError(f"file format must be one of {list(formats)}, is {name!r}")
    if columns is not None and declared is not None:
        unknown = [column for column in columns if column not in declared.names]
        if unknown:
            raise ConfigurationError(f"columns {unknown} are not in the schema {declared.names}")
    selected = None if columns is None else tuple(columns)
    return formats[name](selected, declared, options or {})


def _plain(schema: pa.Schema) -> pa.Schema:
    """Names and types only: metadata and nullability do not make two files differ."""
    return pa.schema([(item.name, item.type) for item in schema])
