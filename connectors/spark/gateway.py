"""The actor that owns Spark: one per program, called by sources, sinks and the driver.

Spark starts with the first call that needs it. The actor runs several calls at once, in threads,
as a Spark session allows. If its process dies, Ray starts it again, empty; if only Spark's JVM
dies, the next call starts another. Either way the call in progress fails with a TransportError or
an actor error, which callers answer by asking again (see `calls.py`): every call here can be
repeated.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from ...api.connectors.base import OutputClaim
from ...core.errors import ConfigurationError, OperatorError, ResourceError, TransportError
from . import bridge, delta_owners, delta_ranges, delta_revoke, delta_table, kafka_ranges, ranges
from .java import require_java
from .launch import (
    add_jars,
    alive,
    executors_ready,
    forget_dead_session,
    initialise,
    see_added_jars,
    unscheduled,
    with_delta,
)
from .options import SparkOptions
from .packages import BY_FORMAT, DELTA, KAFKA, jars_for, names_delta
from .spool import ENDED, FAILED, Spool
from .spooling import QuerySettings, Spooling, declare

T = TypeVar("T")

ENDS = {"new": (), "again": (ENDED,), "keep": (ENDED, FAILED)}
"""In which states of its spool a query is not started."""

_LACKING = re.compile(
    r"(?:Failed to find (?:the )?data source|"
    r"Unsupported data source type for direct query on files): (\w+)"
)
"""How Spark says that it does not know a format."""


class SparkGateway:
    """Body of the actor. Methods may be called from several threads."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._spark: Any = None
        """None before the first call that needs Spark and after Spark was lost."""
        self._schemas: dict[tuple[str, bool], Any] = {}
        """Spark's schema of each input read; dropped with the session it belongs to."""
        self._packages: frozenset[str] = frozenset()
        """Those whose jars the running Spark has."""
        self._knows_delta = False
        """Whether the session is one that Delta extends."""
        self._streaming = threading.Lock()
        self._streams: dict[str, tuple[Spooling, pa.Schema]] = {}
        """Streaming queries of the running Spark, with their columns, by the spool's folder."""
        self._failure: ResourceError | None = None
        """Set when Spark could not be started: RayDP cannot try twice in one process."""

    def start(self, options: SparkOptions | None = None) -> dict[str, Any]:
        """Start Spark if it is not running. Returns what `statistics` does."""
        self._session(options, ())
        return self.statistics()

    def plan(
        self, options: SparkOptions | None, read: ranges.ParquetRead
    ) -> list[ranges.ParquetSplit]:
        """The splits of a Parquet input."""

        def work(spark: Any) -> list[ranges.ParquetSplit]:
            schema = self._schema(spark, read)
            files = ranges.list_files(spark, read)
            ranges.check_files(files, schema, read)
            return ranges.plan(spark, read, schema, files)

        return self._run(options, work)

    def plan_new(
        self, options: SparkOptions | None, read: ranges.ParquetRead, seen: bytes, first: int
    ) -> tuple[list[ranges.ParquetSplit], bytes]:
        """The splits, numbered from `first`, of the files that are new to a watched input, and what
        has been seen then. No splits while there is no file at all."""

        def work(spark: Any) -> tuple[list[ranges.ParquetSplit], bytes]:
            files, after = ranges.unseen(ranges.list_files(spark, read), seen)
            if not files:
                return [], seen
            schema = self._schema(spark, read)
            ranges.check_files(files, schema, read)
            return ranges.plan(spark, read, schema, files, first), after

        return self._run(options, work)

    def read(
        self, options: SparkOptions | None, read: ranges.ParquetRead, split: ranges.ParquetSplit
    ) -> list[Any]:
        """One reference, in a list so that it travels as such, of a split's rows: Arrow IPC
        bytes."""

        def work(spark: Any) -> list[Any]:
            frame = ranges.read_split(spark, read, split, self._schema(spark, read))
            return [bridge.to_object_store(spark, frame)]

        return self._run(options, work)

    def write(
        self,
        options: SparkOptions | None,
        blocks: list[Any],
        schema: pa.Schema,
        folder: str,
        partition_by: Sequence[str],
        rows_per_file: int,
    ) -> int:
        """Write blocks (references of Arrow IPC bytes) as Parquet into `folder`, replacing what it
        holds; 0 rows per file: no limit. Returns the number of blocks. The caller owns the blocks
        and keeps them meanwhile."""

        def work(spark: Any) -> int:
            frame = bridge.from_object_store(spark, schema, blocks).coalesce(1)
            writer = frame.write.mode("overwrite").option("maxRecordsPerFile", rows_per_file)
            writer.parquet(folder, partitionBy=list(partition_by) or None)
            return len(blocks)

        try:
            return self._run(options, work)
        finally:
            # Frames of errors caught below may live until the next garbage collection; the
            # blocks must not.
            blocks.clear()

    def kafka_find(
        self,
        options: SparkOptions | None,
        read: kafka_ranges.KafkaRead,
        known: frozenset[kafka_ranges.Partition] | None,
    ) -> list[kafka_ranges.KafkaSplit]:
        """The partitions to read; with `known`, only those that are not known, from their
        beginning."""
        return self._run(options, lambda s: kafka_ranges.find(s, read, known), KAFKA)

    def kafka_bounds(
        self,
        options: SparkOptions | None,
        read: kafka_ranges.KafkaRead,
        wanted: Sequence[kafka_ranges.Partition],
    ) -> dict[kafka_ranges.Partition, tuple[int, int]]:
        """First offset that is still there, and the offset behind the last, of each."""
        return self._run(options, lambda s: kafka_ranges.bounds(s, read, wanted), KAFKA)

    def kafka_read(
        self,
        options: SparkOptions | None,
        read: kafka_ranges.KafkaRead,
        wanted: kafka_ranges.KafkaRange,
    ) -> list[Any]:
        """One reference, in a list, of a range's records: Arrow IPC bytes."""

        def work(spark: Any) -> list[Any]:
            frame = kafka_ranges.read_range(spark, read, wanted)
            try:
                return [bridge.to_object_store(spark, frame)]
            except Exception:
                kafka_ranges.check_there(spark, read, wanted)
                raise

        return self._run(options, work, KAFKA)

    def kafka_commit(
        self,
        options: SparkOptions | None,
        read: kafka_ranges.KafkaRead,
        positions: dict[kafka_ranges.Partition, int],
    ) -> None:
        """Tell Kafka how far the consumer group `read.group` has come."""
        self._run(options, lambda s: kafka_ranges.commit(s, read, positions), KAFKA)

    def kafka_write(
        self,
        options: SparkOptions | None,
        blocks: list[Any],
        schema: pa.Schema,
        write: kafka_ranges.KafkaWrite,
    ) -> int:
        """Produce the rows of blocks (references of Arrow IPC bytes); returns when the brokers have
        acknowledged all. The caller owns the blocks and keeps them meanwhile."""

        def work(spark: Any) -> int:
            frame = bridge.from_object_store(spark, schema, blocks)
            kafka_ranges.write_frame(frame, write)
            return len(blocks)

        try:
            return self._run(options, work, KAFKA)
        finally:
            blocks.clear()

    def delta_plan(
        self, options: SparkOptions | None, read: delta_ranges.DeltaRead
    ) -> list[delta_ranges.DeltaSplit]:
        """The splits of a version of a Delta table."""
        return self._run(options, lambda s: delta_ranges.plan(s, read)[0], DELTA)

    def delta_plan_new(
        self, options: SparkOptions | None, read: delta_ranges.DeltaRead, seen: bytes, first: int
    ) -> tuple[list[delta_ranges.DeltaSplit], bytes]:
        """The splits, numbered from `first`, of what is new to a table that is followed, and what
        has been seen then."""
        return self._run(options, lambda s: delta_ranges.plan_new(s, read, seen, first), DELTA)

    def delta_read(
        self,
        options: SparkOptions | None,
        read: delta_ranges.DeltaRead,
        split: delta_ranges.DeltaSplit,
    ) -> list[Any]:
        """One reference, in a list, of a split's rows: Arrow IPC bytes."""

        def work(spark: Any) -> list[Any]:
            frame = delta_ranges.read_split(spark, read, split)
            return [bridge.to_object_store(spark, frame)]

        return self._run(options, work, DELTA)

    def delta_stage(
        self,
        options: SparkOptions | None,
        blocks: list[Any],
        schema: pa.Schema,
        write: delta_table.DeltaWrite,
    ) -> tuple[tuple[str, ...], str]:
        """Write blocks (references of Arrow IPC bytes) as files that are in no version of the table
        yet: see `delta_table.stage`. The caller owns the blocks and keeps them meanwhile."""

        def work(spark: Any) -> tuple[tuple[str, ...], str]:
            frame = bridge.from_object_store(spark, schema, blocks).coalesce(1)
            return delta_table.stage(spark, frame, write)

        try:
            return self._run(options, work, DELTA)
        finally:
            blocks.clear()

    def delta_commit(
        self,
        options: SparkOptions | None,
        path: str,
        staged: Sequence[delta_table.StagedRows],
        owner: delta_owners.DeltaOwner | None = None,
    ) -> int:
        """Add what was staged to the table, where it is not in it yet; of how many. FencedError if
        the work is not the owner's any more."""

        def check(txn: Any) -> None:
            if owner is not None:
                owner.check(txn, path)

        return self._run(options, lambda s: delta_table.commit(s, path, staged, check), DELTA)

    def delta_take(
        self, options: SparkOptions | None, path: str, claim: OutputClaim
    ) -> tuple[str, list[str]]:
        """What `delta_owners.take` gives."""
        return self._run(options, lambda s: delta_owners.take(s, path, claim), DELTA)

    def delta_revoke(
        self, options: SparkOptions | None, path: str, writers: str, after: int
    ) -> int:
        """Remove what these writers (beginning of their names) added at later checkpoints than
        `after`; how many files."""
        return self._run(options, lambda s: delta_revoke.revoke(s, path, writers, after), DELTA)

    def stream(
        self,
        options: SparkOptions | None,
        build: Callable[[Any], Any],
        spool: Spool,
        settings: QuerySettings,
        when: str,
    ) -> pa.Schema:
        """Run the streaming query of the frame that `build(session)` makes, into the spool, unless
        it runs. Returns its columns.

        when: "new" starts one that ended or failed; "again" one that failed; "keep" only one that
        was lost with Spark."""

        def work(spark: Any) -> pa.Schema:
            with self._streaming:
                key = str(spool.folder)
                known = self._streams.get(key)
                state = None if when == "new" else spool.state()
                over = state is not None and state.state in ENDS[when]
                if known is not None and (known[0].running or over):
                    return known[1]
                frame = self._built(options, spark, build)
                schema = declare(frame, spool, settings.drift)
                if not over:
                    spooling = Spooling(frame, spool, settings, kept=True)
                    spooling.start()
                    self._streams[key] = spooling, schema
                return schema

        return self._run(options, work)

    def sql(self, statement: str) -> pa.Table:
        """The result of a Spark SQL statement. For small results: it passes through the driver."""
        return self._run(
            None, lambda s: self._built(None, s, lambda again: _collect(again.sql(statement)))
        )

    def statistics(self) -> dict[str, Any]:
        """`pid` of this actor, whether Spark is `running`, cached frames (`persistent_rdds`)."""
        spark = self._spark
        cached = 0 if spark is None else int(spark.sparkContext._jsc.getPersistentRDDs().size())
        return {"pid": os.getpid(), "running": spark is not None, "persistent_rdds": cached}

    def stop(self) -> None:
        """Stop Spark and its JVMs. Calls in progress fail."""
        with self._lock:
            self._drop()

    def _run(
        self,
        options: SparkOptions | None,
        work: Callable[[Any], T],
        packages: Sequence[str] = (),
    ) -> T:
        spark = self._session(options, packages)
        try:
            see_added_jars(spark)
            return work(spark)
        except Exception as error:
            if alive(spark):
                raise _portable(error) from None
            with self._lock:
                if self._spark is not None and self._spark.sparkContext is spark.sparkContext:
                    self._drop()
            raise TransportError(f"Spark was lost during a call: {error}") from None

    def _built(self, options: SparkOptions | None, spark: Any, build: Callable[[Any], T]) -> T:
        """What it makes; with the jars of formats that it turns out to need, if we know them."""
        for _ in BY_FORMAT:
            try:
                return build(spark)
            except Exception as error:
                lacking = _LACKING.search(str(error))
                packages = BY_FORMAT.get(lacking[1], ()) if lacking else ()
                if self._packages.issuperset(packages):
                    raise
            spark = self._session(options, packages)
            see_added_jars(spark)
        return build(spark)

    def _schema(self, spark: Any, read: ranges.ParquetRead) -> Any:
        key = read.path, read.fill
        if key not in self._schemas:
            self._schemas[key] = ranges.input_schema(spark, read)
        return self._schemas[key]

    def _session(self, options: SparkOptions | None, packages: Sequence[str]) -> Any:
        if options is not None and (difference := self._options.differences(options)):
            raise ConfigurationError(
                "all Spark sources and sinks of a program share one session, and the one running "
                f"was started with other options than asked for now ({difference}); give the same "
                "options everywhere, or only once"
            )
        with self._lock:
            if self._failure is not None:
                raise self._failure
            given = self._options.packages
            if names_delta(given):  # of whatever version
                packages = [one for one in packages if one not in DELTA]
            wanted = self._packages | {*given, *packages}
            if self._spark is None:
                self._spark = self._start(jars_for(sorted(wanted), self._options.jars))
            elif added := sorted(wanted - self._packages):
                add_jars(self._spark, jars_for(added, self._options.jars))
            if names_delta(wanted) and not self._knows_delta:
                self._spark, self._knows_delta = with_delta(self._spark), True
            self._packages = wanted
            return self._spark

    def _start(self, jars: list[str]) -> Any:
        major = require_java()
        os.environ["PYSPARK_PYTHON"] = sys.executable
        # Parts of Spark's and Ray's start-up log command lines, which hold the configuration.
        logging.getLogger("raydp").setLevel(logging.ERROR)
        deadline = time.monotonic() + self._options.start_timeout_s
        result: list[Any] = []
        thread = threading.Thread(target=initialise, args=(self._options, major, jars, result))
        thread.daemon = True
        thread.start()
        thread.join(self._options.start_timeout_s)
        outcome = result[0] if result else None
        if isinstance(outcome, Exception):
            raise TransportError(f"Spark did not start: {outcome}")
        if outcome is None or not executors_ready(outcome, deadline):
            self._failure = unscheduled(self._options)
            raise self._failure
        return outcome

    def _drop(self) -> None:
        """Caller holds the lock."""
        if self._spark is None:
            return
        import raydp

        self._spark = None
        self._knows_delta = False
        self._schemas.clear()
        self._streams.clear()
        try:
            raydp.stop_spark()
        except Exception:  # the JVM is gone already, and with it what there was to stop
            forget_dead_session()


def _portable(error: Exception) -> Exception:
    """py4j errors hold sockets and cannot travel; the text can. strom's errors pass as they are."""
    module = type(error).__module__.partition(".")[0]
    if module not in ("py4j", "pyspark"):
        return error
    java = getattr(error, "java_exception", None)
    said = str(error) if java is None else str(java.getMessage())
    return OperatorError("spark", 0, said.partition("\n")[0], str(error))


def _collect(frame: Any) -> pa.Table:
    batches = frame._collect_as_arrow()
    return pa.Table.from_batches(batches) if batches else pa.table({})
