"""Cutting a version of a Delta table into splits, and the versions after it.

A split is a range of rows in a total order, as one of plain Parquet is (`ranges.py`), and carries
Delta's own description of the files it is in, with partition values and deletion vectors: that is
all that is needed to read them again, whatever has become of the table. Versions that only add rows
can be followed; their new files are splits behind those before. What a version says of rows that
were there before (deletes, updates, overwrites) cannot be told to a stream that only inserts.

All functions run in the gateway.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from ...core.errors import ConfigurationError, ConnectorError
from .bridge import spark_schema
from .delta_table import action, actions_of, differences, location, open_log, seq
from .ranges import ParquetRead, ParquetSplit, placed, plan_rows, rows_of_split

_VERSIONS_PER_LOOK: Final = 64


@dataclass(frozen=True)
class DeltaRead(ParquetRead):
    """What to read. `version` or `timestamp`: of the table; neither: the latest. `schema`: the
    columns that come out. `skip_changes`: versions that change or remove rows are passed over,
    where others are followed."""

    version: int | None = None
    timestamp: datetime | None = None
    skip_changes: bool = False
    schema: pa.Schema | None = None


@dataclass(frozen=True)
class DeltaSplit(ParquetSplit):
    """Rows of `version`. `adds`: Delta's actions that once added the split's files."""

    version: int = 0
    adds: tuple[str, ...] = ()


def plan(spark: Any, read: DeltaRead, first: int = 0) -> tuple[list[DeltaSplit], int]:
    """All splits in order of the version that is asked for, and which that is. Raises
    ConfigurationError if there is no such table, version or column."""
    log = open_log(spark, read.path)
    version = _version(spark, log, read)
    if version is None:
        raise ConfigurationError(f"there is no Delta table at '{read.path}'")
    snapshot = _snapshot(spark, log, version)
    files = [json.loads(file.json()) for file in snapshot.allFiles().collectAsList()]
    return _splits(spark, log, read, version, files, first), version


def plan_new(
    spark: Any, read: DeltaRead, seen: bytes, first: int
) -> tuple[list[DeltaSplit], bytes]:
    """The splits, numbered from `first`, of what is new to a table that is followed, and what has
    been seen then: `seen` is the last version looked at, nothing before the first. No splits while
    there is no table."""
    log = open_log(spark, read.path)
    if not seen:
        if read.version is None and read.timestamp is None and _version(spark, log, read) is None:
            return [], seen
        begun, version = plan(spark, read, first)
        return begun, str(version).encode()
    done = int(seen)
    splits: list[DeltaSplit] = []
    for version, actions in _changes(log, done + 1):
        try:
            files = _added(read, version, actions)
            splits += _splits(spark, log, read, version, files, first + len(splits))
        except (ConnectorError, ConfigurationError):
            if done == int(seen):
                raise
            break  # first what is before it
        done = version
    return splits, str(done).encode()


def read_split(spark: Any, read: DeltaRead, split: DeltaSplit) -> Any:
    """The rows of a split that are not emitted yet, in order, as a Spark frame of one partition."""
    log = open_log(spark, read.path)
    adds = [json.loads(text) for text in split.adds]
    return rows_of_split(_frame(spark, log, read, split.version, adds), read, split)


def _version(spark: Any, log: Any, read: DeltaRead) -> int | None:
    """None: there is no table."""
    none = spark._jvm.scala.Option.empty()
    latest = log.update(False, none, none).version()
    if latest < 0:
        return None
    if read.timestamp is not None:
        at = spark._jvm.java.sql.Timestamp(int(read.timestamp.timestamp() * 1000))
        return int(log.history().getActiveCommitAtTime(at, False, True, False).version())
    if read.version is not None and read.version > latest:
        raise ConfigurationError(
            f"the Delta table '{read.path}' has no version {read.version}; the latest is {latest}"
        )
    return int(latest) if read.version is None else read.version


def _snapshot(spark: Any, log: Any, version: int) -> Any:
    none = spark._jvm.scala.Option.empty()
    latest = log.unsafeVolatileSnapshot()
    return latest if latest.version() == version else log.getSnapshotAt(version, none, none)


def _changes(log: Any, start: int) -> Iterator[tuple[int, list[Mapping[str, Any]]]]:
    """The actions of the versions from `start` on, of some of them. Raises if one is gone."""
    found = log.getChanges(start, True)
    for _ in range(_VERSIONS_PER_LOOK):
        if not found.hasNext():
            return
        change = found.next()
        yield int(change._1()), actions_of(change)


def _added(
    read: DeltaRead, version: int, actions: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The files that a version adds rows with."""
    removed = [a for a in actions if a.get("remove", {}).get("dataChange")]
    if removed and read.skip_changes:
        return []
    if removed:
        raise ConnectorError(
            f"version {version} of the Delta table '{read.path}' changes or removes rows that were "
            "there before, which a stream that only inserts cannot follow: begin anew, or pass "
            "over all such versions with skip_changes=True"
        )
    return [a for a in actions if a.get("add", {}).get("dataChange")]


def _splits(
    spark: Any,
    log: Any,
    read: DeltaRead,
    version: int,
    files: Sequence[Mapping[str, Any]],
    first: int,
) -> list[DeltaSplit]:
    if not files:
        return []
    cut = plan_rows(_frame(spark, log, read, version, files), read, first)
    adds = {_place(spark, log, one): _described(one) for one in files}
    return [
        DeltaSplit(
            **vars(split),
            version=version,
            adds=tuple(adds[_plain(file)] for file in split.files),
        )
        for split in cut
    ]


def _frame(
    spark: Any, log: Any, read: DeltaRead, version: int, files: Sequence[Mapping[str, Any]]
) -> Any:
    """The rows of files, as of a version, with the place of each."""
    from pyspark.sql import DataFrame

    adds = seq(spark, (action(spark, json.dumps(one)) for one in files))
    none = spark._jvm.scala.Option.empty()
    frame = DataFrame(log.createDataFrame(_view(spark, log, version), adds, False, none), spark)
    _check_columns(read, version, frame.schema)
    return placed(frame, read)


def _view(spark: Any, log: Any, version: int) -> Any:
    """A version's columns for Delta's reader. It tells the number of a row within its file only
    where deletion vectors are allowed, so they are here."""
    snapshot = _snapshot(spark, log, version)
    protocol = json.loads(snapshot.protocol().json())["protocol"]
    features = {"deletionVectors"}
    if protocol["minReaderVersion"] == 2:
        features.add("columnMapping")
    for kind in ("readerFeatures", "writerFeatures"):
        protocol[kind] = sorted({*(protocol.get(kind) or ()), *features})
    protocol |= {"minReaderVersion": 3, "minWriterVersion": 7}
    given = action(spark, json.dumps({"protocol": protocol}))
    dummy = spark._jvm.org.apache.spark.sql.delta.DummySnapshot
    return dummy(log.logPath(), log, snapshot.metadata(), spark._jvm.scala.Option.apply(given))


def _check_columns(read: DeltaRead, version: int, found: Any) -> None:
    """Whether a version has the columns that the stream was told of."""
    if read.schema is None:
        return
    kinds = {field.name: field.dataType.simpleString() for field in spark_schema(read.schema)}
    now = {field.name: field.dataType.simpleString() for field in found}
    if read.columns is not None:
        now = {name: kind for name, kind in now.items() if name in read.columns}
    if now != kinds:
        raise ConfigurationError(
            f"version {version} of the Delta table '{read.path}' has other columns than the "
            f"stream: {'; '.join(differences(now, kinds))}. Name those to read (columns=...), or "
            "begin anew"
        )


def _described(file: Mapping[str, Any]) -> str:
    """What a split keeps of a file's action."""
    return json.dumps({"add": {k: v for k, v in file["add"].items() if k not in ("stats", "tags")}})


def _place(spark: Any, log: Any, file: Mapping[str, Any]) -> str:
    """Where it lies; the same as `_plain` of what Spark names it."""
    return _plain(location(spark, log, file["add"]["path"]).toUri().toString())


def _plain(url: str) -> str:
    return re.sub("^file:/+", "/", unquote(url))
