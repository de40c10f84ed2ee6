"""Avro in files, by fastavro, record by record: container files, and Parquet with an Avro schema.

Records are rows with the columns of the schema; what is written may also be dicts.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from ...core.errors import ConfigurationError, ConnectorError
from ...core.failure_text import shown, text_of
from ..avro_types import arrow_schema, parsed
from .encoders import FileEncoder
from .formats import FileFormat, FileSplit, KeptGroups, LastFile, plain
from .lenient import MALFORMED, TEXT_LIMIT, Unread
from .paths import filesystem, naming, size_of
from .row_formats import BulkWriterFactory
from .source_builder import StreamFormat

_HINT = "The file must be an Avro container file"


class AvroSchema:
    """A schema of records, as JSON text."""

    def __init__(self, schema: str) -> None:
        if not isinstance(schema, str):
            raise ConfigurationError(f"AvroSchema: give the schema as JSON text, not {schema!r}")
        self._text = schema
        self.columns = columns_of(schema)

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        return AvroSchema(json_schema)

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        try:
            return AvroSchema(Path(file_path).read_text())
        except OSError as error:
            raise ConfigurationError(f"AvroSchema: cannot read '{file_path}': {error}") from error

    def __str__(self) -> str:
        return self._text


class AvroParquetReaders:
    @staticmethod
    def for_generic_record(schema: AvroSchema) -> StreamFormat:
        """Parquet files, of which the columns of the schema are read."""
        return StreamFormat("parquet", schema.columns)


class AvroParquetWriters:
    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """Parquet files with the columns of the schema."""
        return BulkWriterFactory("parquet", schema.columns)


class AvroWriters:
    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """Avro container files."""
        return BulkWriterFactory("avro", schema.columns, avro=str(schema))


class AvroFiles(FileFormat):
    """Container files: one split each. Columns are of the schema that the file was written with."""

    def schema_of(self, path: str) -> pa.Schema:
        with naming("read", path, _HINT):
            return plain(self.select(path, self._records(path)[0]))

    def plan(self, path: str, schema: pa.Schema, kept: KeptGroups | None = None) -> list[FileSplit]:
        with naming("read", path, _HINT):
            size_of(path, self.options)
        return [FileSplit(path)]

    def batches(
        self, split: FileSplit, schema: pa.Schema, batch_size: int, last: LastFile
    ) -> Generator[pa.RecordBatch, None, None]:
        path = split.path
        with naming("read", path, _HINT):
            found, records = self._records(path)
            self.check(path, plain(self.select(path, found)), schema)
            try:
                while rows := self._next(path, records, batch_size):
                    yield pa.RecordBatch.from_pylist(rows, schema=schema)
            finally:
                records.close()

    def lenient(
        self, split: FileSplit, schema: pa.Schema
    ) -> Generator[pa.RecordBatch | Unread, None, None]:
        """What a record breaks off at is lost to the end of its block; behind a block that is torn
        nothing is found any more."""
        import fastavro

        path = split.path
        with naming("read", path, _HINT):
            found, records = self._records(path)
            records.close()
            self.check(path, plain(self.select(path, found)), schema)
            fs, inside = filesystem(path, self.options)
            file = fs.open(inside, "rb")
        with file:
            blocks, number = iter(fastavro.block_reader(file)), 1
            while True:
                try:
                    block = next(blocks, None)
                except OSError:
                    raise
                except Exception as error:
                    yield Unread(path, number, "(the rest of the file)", text_of(error))
                    return
                if block is None:
                    return
                yield from self._of_block(path, block, number, schema)
                number += block.num_records

    def _of_block(
        self, path: str, block: Any, first: int, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch | Unread]:
        rows: list[Any] = []
        broken: Unread | None = None
        try:
            for row in block:
                rows.append(row)
        except Exception as error:
            at = first + len(rows)
            left = block.num_records - len(rows)
            text = f"(it and what is behind it in its block: {left} records)"
            broken = Unread(path, at, text, text_of(error))
        yield from _fitting(path, rows, first, schema)
        if broken is not None:
            yield broken

    def _next(self, path: str, records: Iterator[Any], count: int) -> list[Any]:
        try:
            return list(islice(records, count))
        except (OSError, pa.ArrowException):
            raise
        except Exception as error:
            raise ConnectorError(f"cannot read '{path}': {error!r}. {_HINT}") from error

    def _records(self, path: str) -> tuple[pa.Schema, Generator[Any, None, None]]:
        """The columns of a file, and its records as dicts."""
        import fastavro

        fs, inside = filesystem(path, self.options)
        file = fs.open(inside, "rb")
        try:
            reader = fastavro.reader(file)
            columns = columns_of(reader.writer_schema)
        except (OSError, ConfigurationError):
            file.close()
            raise
        except Exception as error:
            file.close()
            raise ConnectorError(f"cannot read '{path}': {error!r}. {_HINT}") from error

        def records() -> Generator[Any, None, None]:
            with file:
                yield from reader

        return columns, records()


def _fitting(
    path: str, rows: list[Any], first: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch | Unread]:
    if not rows:
        return
    try:
        batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    except MALFORMED as error:
        if len(rows) == 1:
            yield Unread(path, first, shown(rows[0], TEXT_LIMIT), text_of(error))
            return
        half = len(rows) // 2
        yield from _fitting(path, rows[:half], first, schema)
        yield from _fitting(path, rows[half:], first + half, schema)
    else:
        yield batch


class AvroFileEncoder(FileEncoder):
    """A container file, in blocks that are compressed by zlib."""

    suffix = "avro"

    def __init__(self, file: IO[bytes], schema: pa.Schema, avro: str) -> None:
        from fastavro.write import Writer

        super().__init__(file, schema, "")
        self._writer = Writer(file, parsed(avro), codec="deflate")

    def write(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist(maps_as_pydicts="strict"):
            try:
                self._writer.write(row)
            except (TypeError, ValueError) as error:
                raise ConnectorError(
                    f"FileSink of Avro: a record does not fit the schema: {error!r}. Mend the "
                    "record, or allow null with a union"
                ) from error

    def finish(self) -> None:
        self._writer.flush()


def columns_of(schema: Any) -> pa.Schema:
    """The columns of an Avro schema, JSON text or parsed. ConfigurationError if it is none, or
    fastavro is not installed."""
    return arrow_schema(parsed(schema))
