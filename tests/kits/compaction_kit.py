"""Sinks that merge their files, and what is in their folder."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from strom.connectors.files import (
    FileCompactStrategy,
)
from strom.core.batch import ColumnBatch

SCHEMA = pa.schema([("n", pa.int64())])


def every(checkpoints: int) -> FileCompactStrategy:
    return FileCompactStrategy.builder().enable_compaction_on_checkpoint(checkpoints).build()


def batch(*numbers: int) -> ColumnBatch:
    return ColumnBatch(pa.RecordBatch.from_pydict({"n": list(numbers)}, schema=SCHEMA))


def prepare(writer: Any, checkpoint: int) -> list[Any]:
    prepared = writer.prepare_commit(checkpoint)
    made = prepared() if callable(prepared) else prepared
    return list(pickle.loads(pickle.dumps(made)))


def visible(folder: Path) -> list[Path]:
    found = [path for path in sorted(folder.rglob("part-*")) if path.is_file()]
    return [path for path in found if ".staging" not in path.parts]


def published(folder: Path) -> list[list[int]]:
    """The records of each published file."""
    return [pq.ParquetFile(path).read()["n"].to_pylist() for path in visible(folder)]


def records(folder: Path) -> list[int]:
    return sorted(n for file in published(folder) for n in file)


def hidden(folder: Path) -> list[Path]:
    return [path for path in (folder / ".staging").rglob("*") if path.is_file()]
