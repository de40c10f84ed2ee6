"""Writes record batches of one schema into one file of a format."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from ...core.errors import TypeMismatchError
from ...core.frames import frame_of
from ...core.union_type import spread_unions, told_unions
from ...core.value_types import Pickled, as_stored, empty_batch, holds
from ..csv_text import header, lines, without_views
from ..json_types import for_json
from .csv_schema import CsvSchema

_CSV = "FileSink of CSV"

ROW_GROUP_ROWS = 1 << 17
ROW_GROUP_BYTES = 32 << 20
"""A Parquet row group is written when it holds this many rows or bytes in memory."""


class FileEncoder(ABC):
    """One open file. `finish` writes what is left and the format's end; the caller owns `file`."""

    def __init__(self, file: IO[bytes], schema: pa.Schema, compression: str) -> None:
        self.file = file
        self.schema = schema

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None: ...

    @abstractmethod
    def finish(self) -> None: ...

    def abandon(self) -> None:
        """Let go of a file that will be thrown away, complete or not."""
        with contextlib.suppress(Exception):
            self.finish()

    @property
    def size(self) -> int:
        """Bytes so far, about."""
        return int(self.file.tell())


class ParquetEncoder(FileEncoder):
    """Collects batches into row groups of a size that readers like."""

    suffix = "parquet"

    def __init__(self, file: IO[bytes], schema: pa.Schema, compression: str) -> None:
        super().__init__(file, schema, compression)
        self._stored = told_unions(empty_batch(schema), "Parquet").schema
        self._writer = pq.ParquetWriter(file, self._stored, compression=compression)
        self._group: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._group.append(spread_unions(batch))
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self._write_group()

    def finish(self) -> None:
        self._write_group()
        self._writer.close()

    @property
    def size(self) -> int:
        return int(self.file.tell()) + self._bytes

    def _write_group(self) -> None:
        if self._group:
            table = pa.Table.from_batches(self._group, self._stored)
            self._writer.write_table(table, row_group_size=max(1, self._rows))
        self._group, self._rows, self._bytes = [], 0, 0


class CsvEncoder(FileEncoder):
    """With a header line. Columns with nested values have no CSV form: pyarrow raises."""

    suffix = "csv"

    def __init__(self, file: IO[bytes], schema: pa.Schema, compression: str) -> None:
        super().__init__(file, schema, compression)
        self._writer = pacsv.CSVWriter(file, self._written(empty_batch(schema)).schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(self._written(batch))

    def finish(self) -> None:
        self._writer.close()

    def _written(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return without_views(_as_text(batch, "CSV"))


class DescribedCsvEncoder(FileEncoder):
    """CSV as a `CsvSchema` says."""

    suffix = "csv"

    def __init__(self, file: IO[bytes], schema: pa.Schema, described: CsvSchema) -> None:
        super().__init__(file, schema, "")
        self._dialect = dialect = described.dialect.with_nulls()
        if described.use_header:
            self.file.write(header(schema.names, dialect, _CSV).encode())

    def write(self, batch: pa.RecordBatch) -> None:
        self.file.write(
            "".join(lines(_as_text(batch, "CSV"), self._dialect, _CSV).to_pylist()).encode()
        )

    def finish(self) -> None:
        """Nothing is left."""


class JsonLinesEncoder(FileEncoder):
    """One JSON object per line. TypeMismatchError for what JSON has no form for: some types, NaN
    and infinities."""

    suffix = "jsonl"

    def write(self, batch: pa.RecordBatch) -> None:
        written = frame_of(for_json(_as_text(batch, "JSON"), "FileSink of JSON Lines"))
        self.file.write(written.write_ndjson().encode())

    def finish(self) -> None:
        """Nothing is left."""


def _as_text(batch: pa.RecordBatch, form: str) -> pa.RecordBatch:
    """The columns with decimals and long integers as text; objects have none."""
    for field in batch.schema:
        if holds(field.type, lambda kind: isinstance(kind, Pickled)):
            raise TypeMismatchError(
                f"column '{field.name}': Python objects have no form in {form}; write Parquet, or "
                "select the other columns"
            )
    return as_stored(told_unions(batch, form))


ENCODERS: dict[str, Any] = {
    "parquet": ParquetEncoder,
    "csv": CsvEncoder,
    "jsonl": JsonLinesEncoder,
}
