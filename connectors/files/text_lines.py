"""Text files whose records are their lines."""

from __future__ import annotations

import io
from collections.abc import Generator
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from .formats import FileFormat, FileSplit, KeptGroups, LastFile
from .paths import filesystem, naming, size_of

LINE = pa.schema([("line", pa.string())])
"""How lines travel within the source; its records are the strings themselves."""


@dataclass(frozen=True)
class TextLines(FileFormat):
    """One split per file. Lines end with a newline, a carriage return or both, and come without."""

    charset: str = "UTF-8"

    def schema_of(self, path: str) -> pa.Schema:
        return LINE

    def plan(self, path: str, schema: pa.Schema, kept: KeptGroups | None = None) -> list[FileSplit]:
        with naming("read", path, self._hint):
            size_of(path, self.options)
        return [FileSplit(path)]

    def batches(
        self, split: FileSplit, schema: pa.Schema, batch_size: int, last: LastFile
    ) -> Generator[pa.RecordBatch, None, None]:
        fs, path = filesystem(split.path, self.options)
        with naming("read", split.path, self._hint), fs.open(path, "rb") as file:
            text = io.TextIOWrapper(file, self.charset)
            while lines := list(islice(text, batch_size)):
                column = pa.array([line.rstrip("\n") for line in lines], pa.string())
                yield pa.RecordBatch.from_arrays([column], schema=LINE)

    @property
    def _hint(self) -> str:
        return f"The file must be text in {self.charset}"
