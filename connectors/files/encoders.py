"""Writes record batches of one schema into one file of a format."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

ROW_GROUP_ROWS = 1 << 17
ROW_GROUP_BYTES = 32 << 20
"""A Parquet row group is written when it holds this many rows or bytes in memory."""


class Encoder(ABC):
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


class ParquetEncoder(Encoder):
    """Collects batches into row groups of a size that readers like."""

    suffix = "parquet"

    def __init__(self, file: IO[bytes], schema: pa.Schema, compression: str) -> None:
        super().__init__(file, schema, compression)
        self._writer = pq.ParquetWriter(file, schema, compression=compression)
        self._group: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._group.append(batch)
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
            table = pa.Table.from_batches(self._group, self.schema)
            self._writer.write_table(table, row_group_size=max(1, self._rows))
        self._group, self._rows, self._bytes = [], 0, 0


class CsvEncoder(Encoder):
    """With a header line. Columns with nested values have no CSV form: pyarrow raises."""

    suffix = "csv"

    def __init__(self, file: IO[bytes], schema: pa.Schema, compression: str) -> None:
        super().__init__(file, schema, compression)
        self._writer = pacsv.CSVWriter(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def finish(self) -> None:
        self._writer.close()


class JsonLinesEncoder(Encoder):
    """One JSON object per line."""

    suffix = "jsonl"

    def write(self, batch: pa.RecordBatch) -> None:
        import polars as pl

        self.file.write(pl.DataFrame(batch).write_ndjson().encode())

    def finish(self) -> None:
        """Nothing is left."""


ENCODERS: dict[str, Any] = {
    "parquet": ParquetEncoder,
    "csv": CsvEncoder,
    "jsonl": JsonLinesEncoder,
}
