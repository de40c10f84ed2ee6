"""Writing a Delta table in two phases, by Delta's own protocol: first the files, then the version.

    stage    Delta writes data files into the table's folder, checks its constraints and counts what
             it keeps of each file. No version of the table names them: nobody sees them.
    commit   one version that adds the files of a checkpoint, and says so: a `txn` action for each
             application, with the checkpoint's number as its version.

Delta remembers the newest version of each application, so what is committed again is found there
and left out. An application is one writer of one attempt of a job, so that its checkpoints ascend
and a number is never used twice for different rows. Who commits a checkpoint first commits those
before it of the same application (`StagedRows.before`), so what is remembered holds of them, too.

All functions run in the gateway. Delta's Scala classes are called as its own writer does, because
`DataFrame.write` makes files and version in one step.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...core.errors import ConfigurationError, ConnectorError, TransportError

_TRIES: Final = 20
"""How often a commit is tried that others are quicker than."""

_IDENTITY: Final = "delta.identity.start"


@dataclass(frozen=True)
class DeltaWrite:
    """What to write to. `partition_by` None: as the table is; `rows_per_file` 0: no limit."""

    path: str
    partition_by: tuple[str, ...] | None
    rows_per_file: int


@dataclass(frozen=True)
class StagedRows:
    """A committable: the data files of a checkpoint and subtask.

    `app` and `version`: what Delta is told. `files`: Delta's actions that add them. `table`: what
    they were written for (see `_layout`). `before`: what the same writer had prepared earlier and
    not seen committed, in order."""

    app: str
    version: int
    files: tuple[str, ...]
    table: str
    before: tuple[StagedRows, ...] = ()


def stage(spark: Any, frame: Any, write: DeltaWrite) -> tuple[tuple[str, ...], str]:
    """Write the rows; StagedRows' `files` and `table`. The table is made if there is none.

    Raises ConfigurationError if it has other columns or partitions."""
    log = open_log(spark, write.path)
    if log.startTransaction().readVersion() < 0:
        _create(spark, frame.schema, write)
    txn = log.startTransaction()
    metadata = json.loads(txn.metadata().json())["metaData"]
    _check(frame.schema, metadata, write)
    written = txn.writeFiles(frame._jdf, _some(spark, _options(spark, write)))
    return tuple(action.json() for action in each(written)), json.dumps(_layout(metadata))


Check = Callable[[Any], None]
"""Of a transaction of Delta's; raises if nothing must be committed."""


def commit(
    spark: Any, path: str, staged: Iterable[StagedRows], check: Check = lambda txn: None
) -> int:
    """Add what is not in the table yet, a version for each checkpoint; of how many checkpoints and
    subtasks that was. Raises ConnectorError if files are gone, or the table is not what they were
    written for, and what `check` raises."""
    log = open_log(spark, path)
    wanted = unique(staged)
    added = 0
    for version in sorted({one.version for one in wanted}):
        added += _commit(spark, log, [one for one in wanted if one.version == version], check)
    return added


def _commit(spark: Any, log: Any, wanted: Sequence[StagedRows], check: Check) -> int:
    new: list[StagedRows] = []

    def make(txn: Any) -> tuple[list[Any], Any] | None:
        check(txn)
        new[:] = [one for one in wanted if one.version > txn.txnVersion(one.app)]
        if not new:
            return None
        _check_commit(spark, log, txn, new)
        texts = [committed(one.app, one.version) for one in new]
        texts += [text for one in new for text in one.files]
        return [action(spark, text) for text in texts], _append(spark)

    add_version(spark, log, make)
    return len(new)


def add_version(spark: Any, log: Any, make: Callable[[Any], tuple[list[Any], Any] | None]) -> None:
    """Commit the actions, with what Delta's history says of them, that are made of a transaction;
    again if another writer was quicker. None: nothing is to be done."""
    for _ in range(_TRIES):
        txn = log.startTransaction()
        made = make(txn)
        if made is None:
            return
        actions, operation = made
        try:
            txn.commit(seq(spark, actions), operation)
        except Exception as error:
            if not _was_overtaken(error):
                raise
        else:
            return
    raise TransportError(
        f"others were quicker than each of {_TRIES} commits to the Delta table "
        f"'{log.dataPath().toString()}'"
    )


def unique(staged: Iterable[StagedRows]) -> list[StagedRows]:
    """Those, and those before them; each once."""
    found = {(one.app, one.version): one for last in staged for one in (*last.before, last)}
    return [found[key] for key in sorted(found)]


def open_log(spark: Any, path: str) -> Any:
    """Delta's view of the table."""
    return spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)


def action(spark: Any, text: str) -> Any:
    """Delta's object for an action of its log."""
    return spark._jvm.org.apache.spark.sql.delta.actions.Action.fromJson(text)


def location(spark: Any, log: Any, path: str) -> Any:
    """Where a file lies that an action names."""
    files = spark._jvm.org.apache.spark.sql.delta.util.DeltaFileOperations
    return files.absolutePath(log.dataPath().toString(), path)


def _create(spark: Any, schema: Any, write: DeltaWrite) -> None:
    """The table, without rows, unless somebody else is quicker."""
    writer = spark.createDataFrame([], schema).write.format("delta").mode("append")
    try:
        writer.partitionBy(*(write.partition_by or ())).save(write.path)
    except Exception as error:
        if not _was_overtaken(error):
            raise


def _check(schema: Any, metadata: Mapping[str, Any], write: DeltaWrite) -> None:
    from pyspark.sql.types import StructType

    table = StructType.fromJson(json.loads(metadata["schemaString"]))
    there = {field.name: field.dataType.simpleString() for field in table}
    new = {field.name: field.dataType.simpleString() for field in schema}
    if there != new:
        raise ConfigurationError(
            f"the Delta table '{write.path}' has other columns than the stream: "
            f"{'; '.join(differences(there, new))}. Make the stream's records fit, or alter the "
            "table"
        )
    parts = tuple(metadata["partitionColumns"])
    if write.partition_by is not None and write.partition_by != parts:
        raise ConfigurationError(
            f"the Delta table '{write.path}' is partitioned by {list(parts)}, and the sink says "
            f"partition_by={list(write.partition_by)}; leave that away to write as the table is"
        )
    counted = [field.name for field in table if _IDENTITY in field.metadata]
    if counted:
        raise ConfigurationError(
            f"the Delta table '{write.path}' numbers its rows itself (identity column "
            f"{', '.join(counted)}), which this sink cannot do in two phases"
        )


def differences(there: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    """What the columns of a table (name -> type) are and others are not, for messages."""
    for name in sorted({*there, *new}):
        if name not in new:
            yield f"'{name}' ({there[name]}) is only in the table"
        elif name not in there:
            yield f"'{name}' ({new[name]}) is not in the table"
        elif there[name] != new[name]:
            yield f"'{name}' is {there[name]} in the table, {new[name]} in the stream"


def _layout(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What of a table decides whether files written for it can be added to it."""
    settings = metadata["configuration"]
    return {
        "id": metadata["id"],
        "schema": metadata["schemaString"],
        "partitions": metadata["partitionColumns"],
        "mapping": settings.get("delta.columnMapping.mode", "none"),
        "constraints": {k: v for k, v in settings.items() if k.startswith("delta.constraints.")},
    }


def _check_commit(spark: Any, log: Any, txn: Any, new: Sequence[StagedRows]) -> None:
    path = log.dataPath().toString()
    now = _layout(json.loads(txn.metadata().json())["metaData"])
    for one in new:
        then = json.loads(one.table)
        changed = [key for key in now if key != "schema" and now[key] != then[key]]
        if not _holds(json.loads(now["schema"]), json.loads(then["schema"])):
            changed.append("schema")
        if changed:
            raise ConnectorError(
                f"rows of checkpoint {one.version} were written for the Delta table '{path}' as it "
                f"was, and it has changed since ({', '.join(changed)}): undo that, until the job "
                "has gone on, or begin anew"
            )
        for text in one.files:
            place = location(spark, log, json.loads(text)["add"]["path"])
            if not place.getFileSystem(log.newDeltaHadoopConf()).exists(place):
                raise ConnectorError(
                    f"checkpoint {one.version} refers to the file '{place.toString()}', which is "
                    "gone and was never in the Delta table: it was removed by hand or by a VACUUM "
                    "with a retention shorter than the checkpoint is old"
                )


def _holds(table: Mapping[str, Any], written: Mapping[str, Any]) -> bool:
    """Whether rows of one schema are rows of the table: it may have got columns that may be
    null."""
    known = {field["name"]: field for field in written["fields"]}
    for field in table["fields"]:
        if field["name"] in known:
            if known.pop(field["name"]) != field:
                return False
        elif not field["nullable"]:
            return False
    return not known


def committed(app: str, version: int) -> str:
    """Delta's action that says so."""
    now = int(time.time() * 1000)
    return json.dumps({"txn": {"appId": app, "version": version, "lastUpdated": now}})


def by_hand(spark: Any) -> Any:
    """What Delta's history says of a version that is no writing of rows."""
    operations = spark._jvm.org.apache.spark.sql.delta
    return getattr(getattr(operations, "DeltaOperations$ManualUpdate$"), "MODULE$")


def _append(spark: Any) -> Any:
    """What Delta's history says of the version."""
    none = spark._jvm.scala.Option.empty()
    write = getattr(spark._jvm.org.apache.spark.sql.delta, "DeltaOperations$Write")
    return write(spark._jvm.org.apache.spark.sql.SaveMode.Append, none, none, none)


def _options(spark: Any, write: DeltaWrite) -> Any:
    settings = spark._jvm.java.util.HashMap()
    if write.rows_per_file:
        settings.put("maxRecordsPerFile", str(write.rows_per_file))
    scala = spark._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(settings)
    conf = spark._jsparkSession.sessionState().conf()
    return spark._jvm.org.apache.spark.sql.delta.DeltaOptions(scala, conf)


def _some(spark: Any, value: Any) -> Any:
    return spark._jvm.scala.Option.apply(value)


def seq(spark: Any, values: Iterable[Any]) -> Any:
    """As a Scala collection."""
    listed = spark._jvm.java.util.ArrayList()
    for value in values:
        listed.add(value)
    return spark._jvm.org.apache.spark.api.python.PythonUtils.toSeq(listed)


def each(values: Any) -> Iterator[Any]:
    """Of a Scala collection."""
    found = values.iterator()
    while found.hasNext():
        yield found.next()


def actions_of(change: Any) -> list[Mapping[str, Any]]:
    """What a version did (an element of what Delta's `getChanges` gives), but for `commitInfo`,
    which Delta does not write as it has read it."""
    texts = [one.json() for one in each(change._2())]
    return [json.loads(text) for text in texts if not text.startswith('{"commitInfo"')]


def _was_overtaken(error: Exception) -> bool:
    """Whether another writer changed the table meanwhile."""
    java = getattr(error, "java_exception", None)
    kind = None if java is None else java.getClass()
    while kind is not None:
        if kind.getName() == "java.util.ConcurrentModificationException":
            return True
        kind = kind.getSuperclass()
    return False
