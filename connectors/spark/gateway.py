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
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from ...core.errors import ConfigurationError, OperatorError, ResourceError, TransportError
from . import bridge, ranges
from .java import jvm_configuration, require_java
from .options import SparkOptions

T = TypeVar("T")

_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ray.raydp_spark_master.actor.resource.CPU": "0",
}


class SparkGateway:
    """Body of the actor. Methods may be called from several threads."""

    def __init__(self, options: SparkOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._spark: Any = None
        """None before the first call that needs Spark and after Spark was lost."""
        self._schemas: dict[str, Any] = {}
        """Spark's schema of each path read; dropped with the session it belongs to."""
        self._failure: ResourceError | None = None
        """Set when Spark could not be started: RayDP cannot try twice in one process."""

    def start(self, options: SparkOptions | None = None) -> dict[str, Any]:
        """Start Spark if it is not running. Returns what `statistics` does."""
        self._session(options)
        return self.statistics()

    def plan(
        self, options: SparkOptions | None, read: ranges.ParquetRead
    ) -> list[ranges.ParquetSplit]:
        """The splits of a Parquet input."""
        return self._run(options, lambda s: ranges.plan(s, read, self._schema(s, read)))

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
    ) -> int:
        """Write blocks (references of Arrow IPC bytes) as Parquet into `folder`, replacing what it
        holds. Returns the number of blocks. The caller owns the blocks and keeps them meanwhile."""

        def work(spark: Any) -> int:
            frame = bridge.from_object_store(spark, schema, blocks).coalesce(1)
            frame.write.mode("overwrite").parquet(folder, partitionBy=list(partition_by) or None)
            return len(blocks)

        try:
            return self._run(options, work)
        finally:
            # Frames of errors caught below may live until the next garbage collection; the
            # blocks must not.
            blocks.clear()

    def sql(self, statement: str) -> pa.Table:
        """The result of a Spark SQL statement. For small results: it passes through the driver."""
        return self._run(None, lambda s: _collect(s.sql(statement)))

    def statistics(self) -> dict[str, Any]:
        """`pid` of this actor, whether Spark is `running`, cached frames (`persistent_rdds`)."""
        spark = self._spark
        cached = 0 if spark is None else int(spark.sparkContext._jsc.getPersistentRDDs().size())
        return {"pid": os.getpid(), "running": spark is not None, "persistent_rdds": cached}

    def stop(self) -> None:
        """Stop Spark and its JVMs. Calls in progress fail."""
        with self._lock:
            self._drop()

    def _run(self, options: SparkOptions | None, work: Callable[[Any], T]) -> T:
        spark = self._session(options)
        try:
            return work(spark)
        except Exception as error:
            if _alive(spark):
                raise _portable(error) from None
            with self._lock:
                if self._spark is spark:
                    self._drop()
            raise TransportError(f"Spark was lost during a call: {error}") from None

    def _schema(self, spark: Any, read: ranges.ParquetRead) -> Any:
        if read.path not in self._schemas:
            self._schemas[read.path] = ranges.input_schema(spark, read)
        return self._schemas[read.path]

    def _session(self, options: SparkOptions | None) -> Any:
        if options is not None and (difference := self._options.differences(options)):
            raise ConfigurationError(
                "all Spark sources and sinks of a program share one session, and the one running "
                f"was started with other options than asked for now ({difference}); give the same "
                "options everywhere, or only once"
            )
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._spark is None:
                self._spark = self._start()
            return self._spark

    def _start(self) -> Any:
        major = require_java()
        os.environ["PYSPARK_PYTHON"] = sys.executable
        # Parts of Spark's and Ray's start-up log command lines, which hold the configuration.
        logging.getLogger("raydp").setLevel(logging.ERROR)
        deadline = time.monotonic() + self._options.start_timeout_s
        result: list[Any] = []
        thread = threading.Thread(target=_initialise, args=(self._options, major, result))
        thread.daemon = True
        thread.start()
        thread.join(self._options.start_timeout_s)
        outcome = result[0] if result else None
        if isinstance(outcome, Exception):
            raise TransportError(f"Spark did not start: {outcome}")
        if outcome is None or not _executors_ready(outcome, deadline):
            self._failure = self._unscheduled()
            raise self._failure
        return outcome

    def _unscheduled(self) -> ResourceError:
        import ray

        o = self._options
        free = {k: v for k, v in ray.available_resources().items() if k in ("CPU", "memory")}
        return ResourceError(
            f"Spark had no executor within {o.start_timeout_s} s: it asks Ray for {o.executors} x "
            f"({o.executor_cpus} CPU, {o.executor_memory} memory), and Ray has {free} left. Ask "
            "for less with SparkOptions, or give the cluster more"
        )

    def _drop(self) -> None:
        """Caller holds the lock."""
        if self._spark is None:
            return
        import raydp

        self._spark = None
        self._schemas.clear()
        try:
            raydp.stop_spark()
        except Exception:  # the JVM is gone already, and with it what there was to stop
            _forget_dead_session()


def _initialise(options: SparkOptions, java_major: int, result: list[Any]) -> None:
    import raydp

    configuration = {
        **_DEFAULTS,
        **jvm_configuration(java_major),
        "spark.driver.memory": options.driver_memory,
        "spark.ray.raydp_spark_executor.actor.resource.cpu": str(options.executor_cpus),
        **options.configuration,
    }
    try:
        session = raydp.init_spark(
            f"strom-{uuid.uuid4().hex[:12]}",
            options.executors,
            options.executor_cores,
            options.executor_memory,
            configs=configuration,
        )
        _allow_java_actors()
        result.append(session)
    except Exception as error:
        result.append(error)


def _allow_java_actors() -> None:
    """Ray lets a Python process call Java actors only after this."""
    from ray._private.worker import global_worker

    global_worker.set_load_code_from_local(True)


def _executors_ready(spark: Any, deadline: float) -> bool:
    context = spark.sparkContext._jsc.sc()
    while context.getExecutorMemoryStatus().size() < 2:  # the driver counts as one
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _alive(spark: Any) -> bool:
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False


def _portable(error: Exception) -> Exception:
    """py4j errors hold sockets and cannot travel; the text can. strom's errors pass as they are."""
    module = type(error).__module__.partition(".")[0]
    if module not in ("py4j", "pyspark"):
        return error
    return OperatorError("spark", 0, str(error).partition("\n")[0], str(error))


def _forget_dead_session() -> None:
    """Clear what PySpark and RayDP keep in globals of a session whose JVM is gone."""
    import raydp.context
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    raydp.context._global_spark_context = None
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None


def _collect(frame: Any) -> pa.Table:
    batches = frame._collect_as_arrow()
    return pa.Table.from_batches(batches) if batches else pa.table({})
