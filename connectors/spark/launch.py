"""Starting Spark through RayDP in this process, and what is to be known of one that runs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from ...core.errors import ResourceError
from .java import jvm_configuration
from .options import SparkOptions
from .packages import DELTA_SETTINGS

_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "4",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ray.raydp_spark_master.actor.resource.CPU": "0",
}


def initialise(options: SparkOptions, java_major: int, jars: list[str], result: list[Any]) -> None:
    """Start Spark, with these jars beside its own; the session, or the error, goes into
    `result`."""
    import raydp

    configuration = {
        **_DEFAULTS,
        **({"spark.jars": ",".join(jars)} if jars else {}),
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


def add_jars(spark: Any, jars: Sequence[str]) -> None:
    """To a Spark that runs: its driver and its executors."""
    for jar in jars:
        spark.sql(f"ADD JAR '{jar}'")


def see_added_jars(spark: Any) -> None:
    """Spark finds classes through the loader of the calling thread, and added jars are in another
    one; and Delta finds its session through the thread."""
    loader = spark._jsparkSession.sharedState().jarClassLoader()
    spark._jvm.java.lang.Thread.currentThread().setContextClassLoader(loader)
    spark._jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)


def with_delta(spark: Any) -> Any:
    """Another session of the same Spark, which has Delta's jars already: one that knows Delta. What
    a session is extended by is settled when it is made."""
    from pyspark.sql import SparkSession

    see_added_jars(spark)
    _know_results(spark)
    spark._jvm.io.delta.sql.DeltaSparkSessionExtension().apply(spark._jsparkSession.extensions())
    session = spark._jsparkSession.newSession()
    catalog = "spark.sql.catalog.spark_catalog"
    session.conf().set(catalog, DELTA_SETTINGS[catalog])
    return SparkSession(spark.sparkContext, session)


def _know_results(spark: Any) -> None:
    """Results of tasks may be objects of added jars (what Delta counts of the files it writes), and
    Spark's driver reads them in threads that have kept a loader that does not know these."""
    env = spark._jvm.org.apache.spark.SparkEnv.get()
    loader = spark._jsparkSession.sharedState().jarClassLoader()
    for serializer in (env.serializer(), env.closureSerializer()):
        serializer.setDefaultClassLoader(loader)
    scheduler = spark.sparkContext._jsc.sc().taskScheduler()
    getter = spark._jvm.org.apache.spark.scheduler.TaskResultGetter(env, scheduler)
    getter.getTaskResultExecutor().prestartAllCoreThreads()  # they take this thread's loader
    getattr(scheduler, "taskResultGetter_$eq")(getter)


def _allow_java_actors() -> None:
    """Ray lets a Python process call Java actors only after this."""
    from ray._private.worker import global_worker

    global_worker.set_load_code_from_local(True)


def executors_ready(spark: Any, deadline: float) -> bool:
    """Wait until an executor runs; False if none does before `deadline` (monotonic, s)."""
    context = spark.sparkContext._jsc.sc()
    while context.getExecutorMemoryStatus().size() < 2:  # the driver counts as one
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def unscheduled(options: SparkOptions) -> ResourceError:
    """Why no executor came in time."""
    import ray

    o = options
    free = {k: v for k, v in ray.available_resources().items() if k in ("CPU", "memory")}
    return ResourceError(
        f"Spark had no executor within {o.start_timeout_s} s: it asks Ray for {o.executors} x "
        f"({o.executor_cpus} CPU, {o.executor_memory} memory), and Ray has {free} left. Ask "
        "for less with SparkOptions, or give the cluster more"
    )


def alive(spark: Any) -> bool:
    """Whether the session's JVM answers and its Spark was not stopped."""
    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False


def forget_dead_session() -> None:
    """Clear what PySpark and RayDP keep in globals of a session whose JVM is gone."""
    import raydp.context
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    raydp.context._global_spark_context = None
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
