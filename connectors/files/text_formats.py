"""CSV and JSON Lines, read by Arrow's parsers."""

from __future__ import annotations

import codecs
import csv
import io
from abc import abstractmethod
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson

from ...core.errors import ConnectorError
from ...core.failure_text import cut
from ...core.value_types import empty_batch
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
from .lenient import Cut, Unread, each_line, numbered, quoted, read_leniently
from .object_lines import ObjectLines
from .paths import naming, open_input, show_schema, size_of

_QUOTE = b'"'

_SHOWN = 200
"""Characters of a line that a message quotes."""

_SMALL_BYTES = 1 << 16
"""A file of more bytes has lines, whatever is passed over."""


@dataclass(frozen=True)
class TextFormat(FileFormat):
    """CSV and JSON Lines: one split per file, types from the declared schema or the first file."""

    charset: str = UTF_8

    kind: ClassVar[str]
    """What the file must be, for messages."""
    returns: ClassVar[bool] = True
    """Whether a carriage return alone ends a line."""

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
            told = "" if error.__cause__ is None else self._told_of(split, schema)
            if not told:
                raise
            raise ConnectorError(f"{error}{told}") from error

    def lenient(
        self, split: FileSplit, schema: pa.Schema
    ) -> Generator[pa.RecordBatch | Unread, None, None]:
        path = split.path
        with naming("read", path, self.hint):
            if self.is_empty(path):
                return
            file = self.input(path)
        with closing(file):
            lines = self._lines(path, file)
            with naming("read", path, self.hint):
                head = self._head(path, lines, schema)
            parse = partial(self._parse, path, schema, head)
            yield from read_leniently(path, lines, self._records(head), parse)

    def _lines(self, path: str, file: Any) -> Iterator[tuple[int, bytes]]:
        with naming("read", path, self.hint):
            yield from numbered(file, BLOCK_BYTES, self.returns)

    def _parse(self, path: str, schema: pa.Schema, head: bytes, data: bytes) -> pa.RecordBatch:
        """Whole records, as the schema has them."""
        file = pa.BufferReader(head + data)
        with closing(self._reader(path, file, schema, head)) as reader:
            table = reader.read_all()
        self.check(path, self.select(path, plain(table.schema)), self.parsed(schema))
        found = table.select(schema.names).replace_schema_metadata(None).combine_chunks()
        batch = (found.to_batches() or [empty_batch(found.schema)])[0]
        batch.validate(full=True)
        return self.converted(batch, schema)

    def _told_of(self, split: FileSplit, schema: pa.Schema) -> str:
        """Which line of a file is at fault, and what columns it has by itself."""
        told, path = "", split.path
        with suppress(ConnectorError, OSError, pa.ArrowException):
            items = self.lenient(split, schema)
            with closing(items):
                bad = next((one for one in items if isinstance(one, Unread)), None)
            if bad is not None:
                told = f". Line {bad.position} of '{path}': {cut(bad.text, _SHOWN)}"
        found = self._own_schema(path)
        if found is not None and not found.equals(schema):
            told += (
                f". The file by itself has {show_schema(found)}, expected is {show_schema(schema)}"
            )
        return told

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

    @abstractmethod
    def _reader(self, path: str, file: Any, schema: pa.Schema | None, head: bytes) -> Any:
        """The same, of a file that begins with `head`."""

    @abstractmethod
    def _head(self, path: str, lines: Iterator[tuple[int, bytes]], schema: pa.Schema) -> bytes:
        """Take from the lines what is no record; what pieces of the file have to begin with."""

    @abstractmethod
    def _records(self, head: bytes) -> Cut:
        """How lines are records, in a file that begins so."""


class CsvFiles(TextFormat):
    kind = "CSV with a header line"

    def _open(self, path: str, schema: pa.Schema | None) -> Any:
        with self.input(path) as file:
            head = file.read(BLOCK_BYTES)
        return self._reader(path, self.input(path), schema, head)

    def _reader(self, path: str, file: Any, schema: pa.Schema | None, head: bytes) -> Any:
        types = schema if schema is not None else self.declared
        projected = schema is not None and (self.columns, self.declared) != (None, None)
        convert = pacsv.ConvertOptions(
            column_types=types, include_columns=schema.names if schema and projected else None
        )
        header = _names(head)
        if projected:  # of several of one name the parser would take one
            check_once(path, schema.names if schema else [], header)
        one_column = len(header) == 1
        return pacsv.open_csv(
            file,
            read_options=pacsv.ReadOptions(block_size=BLOCK_BYTES),
            parse_options=pacsv.ParseOptions(
                newlines_in_values=True, ignore_empty_lines=not one_column
            ),
            convert_options=convert,
        )

    def _head(self, path: str, lines: Iterator[tuple[int, bytes]], schema: pa.Schema) -> bytes:
        first = next(quoted(_QUOTE, None, False)(lines), None)
        head = b"" if first is None else b"".join(first.lines)
        self._parse(path, schema, head, b"")  # what it says of the columns, if it is wrong
        return head

    def _records(self, head: bytes) -> Cut:
        return quoted(_QUOTE, None, len(_names(head)) == 1)


def _names(head: bytes) -> list[str]:
    """The columns' names. Where there is one only, an empty line is a row of null."""
    text = head.decode(errors="replace").removeprefix("\ufeff")
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
        if self.csv.use_header and self.csv.strict_headers:
            self._check_header(path)
        return self._from(self.input(path), schema, self._passed_over)

    def _reader(self, path: str, file: Any, schema: pa.Schema | None, head: bytes) -> Any:
        return self._from(file, schema, 0)

    def _head(self, path: str, lines: Iterator[tuple[int, bytes]], schema: pa.Schema) -> bytes:
        if self.csv.use_header and self.csv.strict_headers:
            self._check_header(path)
        for _ in islice(lines, self._passed_over):
            pass
        return b""

    def _records(self, head: bytes) -> Cut:
        dialect = self.csv.dialect
        quote = None if dialect.quote is None else dialect.quote.encode()
        escape = None if dialect.escape is None else dialect.escape.encode()
        return quoted(quote, escape, len(self.csv.schema) == 1)

    def _from(self, file: Any, schema: pa.Schema | None, skipped: int) -> Any:
        described = self.csv
        types = described.schema if schema is None else schema
        return pacsv.open_csv(
            file,
            read_options=pacsv.ReadOptions(
                block_size=BLOCK_BYTES,
                column_names=described.schema.names,
                skip_rows=skipped,
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
    returns = False
    kind = "JSON Lines, one object per line (for an empty file, declare a schema)"

    def is_empty(self, path: str) -> bool:
        return size_of(path, self.options) == 0

    def parsed(self, schema: pa.Schema) -> pa.Schema:
        return pa.schema([(field.name, read_as(field.type)) for field in schema])

    def converted(self, data: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        return from_json(data, schema)

    def _open(self, path: str, schema: pa.Schema | None) -> Any:
        return self._reader(path, self.input(path), schema, b"")

    def _head(self, path: str, lines: Iterator[tuple[int, bytes]], schema: pa.Schema) -> bytes:
        return b""

    def _records(self, head: bytes) -> Cut:
        return each_line

    def _reader(self, path: str, given: Any, schema: pa.Schema | None, head: bytes) -> Any:
        wanted = schema if schema is not None else self.declared
        types = None if wanted is None else self.parsed(wanted)
        pinned = types is not None
        lenient = self.declared is not None or self.columns is not None
        file: Any = ObjectLines(given)
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
