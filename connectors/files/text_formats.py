"""CSV and JSON Lines, read by Arrow's parsers."""

from __future__ import annotations

import codecs
import csv
import io
from abc import abstractmethod
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson

from ...core.errors import ConnectorError
from ..csv_text import converted, parsed
from ..json_numbers import QuotedLines, holds_big
from ..json_types import from_json, read_as
from .csv_schema import CsvSchema
from .formats import (
    BLOCK_BYTES,
    UTF_8,
    FileFormat,
    FileSplit,
    KeptGroups,
    LastFile,
    check_once,
    plain,
)
from .object_lines import ObjectLines
from .paths import naming, open_input, show_schema, size_of

_SMALL_BYTES = 1 << 16
"""A file of more bytes has lines, whatever is passed over."""


@dataclass(frozen=True)
class TextFormat(FileFormat):
    """CSV and JSON Lines: one split per file, types from the declared schema or the first file."""

    charset: str = UTF_8

    kind: ClassVar[str]
    """What the file must be, for messages."""

    def schema_of(self, path: str) -> pa.Schema:
        with naming("read", path, self.hint), closing(self._open(path, None)) as reader:
            return self.select(path, plain(reader.schema))

    def plan(self, path: str, schema: pa.Schema, kept: KeptGroups | None = None) -> list[FileSplit]:
        with naming("read", path, self.hint):
            size_of(path, self.options)
        return [FileSplit(path)]

    def batches(
        self, split: FileSplit, schema: pa.Schema, batch_size: int, last: LastFile
    ) -> Generator[pa.RecordBatch, None, None]:
        path = split.path
        with naming("read", path, self.hint):
            if self.is_empty(path):
                return
        try:
            with naming("read", path, self.hint), closing(self._open(path, schema)) as reader:
                self.check(path, self.select(path, plain(reader.schema)), self.parsed(schema))
                for batch in reader:
                    batch.validate(full=True)  # the parsers let pass what is no UTF-8
                    data = batch.select(schema.names).replace_schema_metadata(None)
                    yield self.converted(data, schema)
        except ConnectorError as error:
            found = self._own_schema(path) if error.__cause__ is not None else None
            if found is None or found.equals(schema):
                raise
            raise ConnectorError(
                f"{error} The file by itself has {show_schema(found)}, expected is "
                f"{show_schema(schema)}"
            ) from error

    @property
    def hint(self) -> str:
        return f"The file must be {self.kind}, in {self.charset.upper()}"

    def is_empty(self, path: str) -> bool:
        """Whether the file holds no records, in a way that the parser takes for an error."""
        return False

    def parsed(self, schema: pa.Schema) -> pa.Schema:
        """What the parser makes of the columns of this schema."""
        return schema

    def converted(self, data: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """From what the parser made to the schema."""
        return data

    def input(self, path: str) -> Any:
        """The file as UTF-8, for pyarrow to read."""
        file = open_input(path, self.options)
        if self.charset == UTF_8:
            return file
        return pa.transcoding_input_stream(file, self.charset, UTF_8)

    def _own_schema(self, path: str) -> pa.Schema | None:
        try:
            with closing(self._open(path, None)) as reader:
                return plain(reader.schema)
        except (OSError, pa.ArrowException):
            return None

    @abstractmethod
    def _open(self, path: str, schema: pa.Schema | None) -> Any:
        """A streaming reader with `schema` and `close`."""


class CsvFiles(TextFormat):
    kind = "CSV with a header line"

    def _open(self, path: str, schema: pa.Schema | None) -> Any:
        types = schema if schema is not None else self.declared
        projected = schema is not None and (self.columns, self.declared) != (None, None)
        convert = pacsv.ConvertOptions(
            column_types=types, include_columns=schema.names if schema and projected else None
        )
        header = self._header(path)
        if projected:  # of several of one name the parser would take one
            check_once(path, schema.names if schema else [], header)
        one_column = len(header) == 1
        return pacsv.open_csv(
            self.input(path),
            read_options=pacsv.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=pacsv.ParseOptions(
                newlines_in_values=True, ignore_empty_lines=not one_column
            ),
            convert_options=convert,
        )

    def _header(self, path: str) -> list[str]:
        """The columns' names. Where there is one only, an empty line is a row of null."""
        with self.input(path) as file:
            text = file.read(BLOCK_BYTES).decode(errors="replace").removeprefix("\ufeff")
        return next(csv.reader(io.StringIO(text, newline="")), [])


@dataclass(frozen=True)
class DescribedCsvFiles(TextFormat):
    """CSV as a `CsvSchema` says: columns go by their order."""

    kind = "CSV as its CsvSchema says"

    csv: CsvSchema = field(kw_only=True)

    def schema_of(self, path: str) -> pa.Schema:
        return self.select(path, self.csv.schema)

    def is_empty(self, path: str) -> bool:
        """No more lines than are passed over."""
        if size_of(path, self.options) > _SMALL_BYTES:
            return False
        with self.input(path) as file:
            head: bytes = file.read(BLOCK_BYTES)
        if len(head.removeprefix(codecs.BOM_UTF8).splitlines()) > self._passed_over:
            return False
        if self.csv.use_header and self.csv.strict_headers:
            self._check_header(path)
        return True

    @property
    def _passed_over(self) -> int:
        return int(self.csv.use_header) + int(self.csv.skip_first_data_row)

    def parsed(self, schema: pa.Schema) -> pa.Schema:
        return parsed(schema)

    def converted(self, data: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        return converted(data, schema, self.csv.dialect)

    def _open(self, path: str, schema: pa.Schema | None) -> Any:
        described = self.csv
        if described.use_header and described.strict_headers:
            self._check_header(path)
        types = described.schema if schema is None else schema
        return pacsv.open_csv(
            self.input(path),
            read_options=pacsv.ReadOptions(
                block_size=BLOCK_BYTES,
                column_names=described.schema.names,
                skip_rows=self._passed_over,
            ),
            parse_options=described.dialect.parse_options(len(described.schema) == 1),
            convert_options=described.dialect.convert_options(types, include_columns=types.names),
        )

    def _check_header(self, path: str) -> None:
        dialect = self.csv.dialect
        with self.input(path) as file:
            text = file.read(BLOCK_BYTES).decode(errors="replace").removeprefix("\ufeff")
        rows = csv.reader(
            io.StringIO(text, newline=""),
            delimiter=dialect.delimiter,
            quotechar=dialect.quote,
            escapechar=dialect.escape,
            quoting=csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL,
        )
        found = next(rows, [])
        if found != self.csv.schema.names:
            raise ConnectorError(
                f"file '{path}' has the header {found}, but its CsvSchema has the columns "
                f"{self.csv.schema.names}: mend either, or leave set_strict_headers() away"
            )


class JsonLinesFiles(TextFormat):
    kind = "JSON Lines, one object per line (for an empty file, declare a schema)"

    def is_empty(self, path: str) -> bool:
        return size_of(path, self.options) == 0

    def parsed(self, schema: pa.Schema) -> pa.Schema:
        return pa.schema([(field.name, read_as(field.type)) for field in schema])

    def converted(self, data: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        return from_json(data, schema)

    def _open(self, path: str, schema: pa.Schema | None) -> Any:
        wanted = schema if schema is not None else self.declared
        types = None if wanted is None else self.parsed(wanted)
        pinned = types is not None
        lenient = self.declared is not None or self.columns is not None
        file: Any = ObjectLines(self.input(path))
        if wanted is not None and holds_big(wanted):
            file = QuotedLines(file, wanted)
        return pajson.open_json(
            pa.PythonFile(file, mode="r"),
            read_options=pajson.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=pajson.ParseOptions(
                explicit_schema=types,
                unexpected_field_behavior=(
                    ("ignore" if lenient else "error") if pinned else "infer"
                ),
            ),
        )
