"""The columns of a Delta table, as its log on a disk says, without Spark: for the program that is
being written. Jobs ask Delta itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...core.errors import ConfigurationError
from .types import arrow_schema

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint.*\.parquet")


def table_schema(path: str, version: int | None) -> pa.Schema:
    """The columns at a version (None: the latest), as a stream has them. Raises ConfigurationError
    if the log cannot be read from here."""
    from pyspark.sql.types import StructType

    folder = Path(re.sub("^file:/+", "/", path)) / "_delta_log"
    if "://" in path.removeprefix("file://") or not folder.is_dir():
        raise ConfigurationError(
            f"cannot look at the Delta table '{path}' from here; give its columns with "
            "SparkDeltaSource(schema=...), or correct the path"
        )
    for found in _metadata(folder, version):
        return arrow_schema(StructType.fromJson(json.loads(found["schemaString"])))
    raise ConfigurationError(f"the log of the Delta table '{path}' does not say its columns")


def _metadata(folder: Path, version: int | None) -> Iterator[dict[str, Any]]:
    """What the log says of the table, newest first."""
    logs = {int(m[1]): p for p in folder.iterdir() if (m := _COMMIT.fullmatch(p.name))}
    points: dict[int, list[Path]] = {}
    for file in folder.iterdir():
        if match := _CHECKPOINT.fullmatch(file.name):
            points.setdefault(int(match[1]), []).append(file)
    for number in sorted({*logs, *points}, reverse=True):
        if version is not None and number > version:
            continue
        if number in logs:
            actions = [json.loads(line) for line in logs[number].read_text().splitlines()]
            yield from (one["metaData"] for one in actions if one.get("metaData"))
        for file in points.get(number, ()):
            yield from _of_checkpoint(file)


def _of_checkpoint(file: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    column = pq.read_table(file, columns=["metaData"])["metaData"].combine_chunks()
    yield from column.drop_null().to_pylist()
