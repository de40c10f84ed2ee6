"""What the bridge from Structured Streaming adds to a micro-batch, and what stays of it.

`measure_overhead`: a query over a folder of small files, one a micro-batch, runs in a session of
this program: into Spark's `noop`, through `from_streaming_dataframe` into a job that checkpoints
each second, and into `noop` again, when Spark's compiler is done.

    spark_ms       what a micro-batch takes with noop (the lesser median of both runs)
    spooled_ms     what it takes Spark with the bridge: it is written and committed
    arrived_ms     from its trigger until the job's sink has the last of its rows
    overhead_ms    arrived_ms less spark_ms

`measure_soak`: many micro-batches of a query that the gateway runs, in Spark inside Ray. Memory of
this process, of all JVMs and of Ray's other processes, what Ray's object store holds, and how many
micro-batches the spool holds, after a tenth, half and all of them.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from strom import DiscardSink

from ...connectors.spark.spool import Spool
from ..delays import SINK, DelaySink, run
from ..measure import Setting, environment
from .lines import Line, WrongResult, at_most, expect
from .systems import Systems, javas

TARGET_MS: Final = 300
OVERHEAD_OF: Final = 80
"""Micro-batches that are enough to see the overhead."""
ROWS: Final = 1_000
"""In a micro-batch."""
COLUMNS: Final = "v BIGINT, text STRING"
"""v: the micro-batch's number."""
INTERVAL_S: Final = 1.0
SETTLED: Final = 0.5
"""Micro-batches before this part of all are not counted: the job starts meanwhile."""
FLAT: Final = 1.1
"""Memory after all micro-batches, as a multiple of that after half."""
SPARE_OBJECTS: Final = 10


def write_files(folder: Path, count: int) -> None:
    """A file a micro-batch, each a second newer than the one before."""
    texts = pa.array([f"row-{n:06d}" for n in range(ROWS)])
    for number in range(count):
        path = folder / f"{number:06d}.parquet"
        numbers = pa.array(np.full(ROWS, number, dtype=np.int64))
        pq.write_table(pa.table({"v": numbers, "text": texts}), path)
        os.utime(path, (1_700_000_000 + number,) * 2)


def frame(folder: str, session: Any) -> Any:
    """The streaming frame of such a folder."""
    reader = session.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    return reader.parquet(f"file://{folder}")


def measure_overhead(systems: Systems, micro_batches: int) -> Line:
    """One line: see the module."""
    session = systems.session
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        place = Path(folder, "files")
        place.mkdir()
        write_files(place, micro_batches)
        before = through_noop(frame(str(place), session), Path(folder, "before"))
        spooled, arrived = through_bridge(session, frame(str(place), session), folder)
        after = through_noop(frame(str(place), session), Path(folder, "after"))
    expect(len(arrived), micro_batches, "micro-batches that arrived")
    counted = range(round(micro_batches * SETTLED), micro_batches)
    spark = min(median(alone[n]["ms"] for n in counted) for alone in (before, after))
    came = median(arrived[n] * 1000 - spooled[n]["at_ms"] for n in counted)
    line = {
        "name": "bridge",
        "engine": "strom",
        "micro_batches": micro_batches,
        "rows": ROWS,
        "spark_ms": round(spark, 1),
        "spooled_ms": round(median(spooled[n]["ms"] for n in counted), 1),
        "arrived_ms": round(came, 1),
        "overhead_ms": round(came - spark, 1),
        "checkpoint_interval_s": INTERVAL_S,
        "host": "ray",
    }
    return at_most(line, "overhead_ms", TARGET_MS)


def through_noop(streaming: Any, checkpoint: Path) -> list[dict[str, float]]:
    """What Spark says of each micro-batch."""

    def nothing(rows: Any, number: int) -> None:
        rows.write.format("noop").mode("overwrite").save()

    writer = streaming.writeStream.option("checkpointLocation", str(checkpoint))
    query = writer.foreachBatch(nothing).trigger(availableNow=True).start()
    query.awaitTermination()
    return _progress(query)


def through_bridge(
    session: Any, streaming: Any, folder: str
) -> tuple[list[dict[str, float]], dict[int, float]]:
    """What Spark says of each micro-batch, and when (s since 1970) the sink had all its rows."""
    from strom.connectors.spark import from_streaming_dataframe

    setting = Setting("bridge", 0, 1, "ray", INTERVAL_S)
    env = environment(setting, str(Path(folder, "checkpoints")))
    others = {query.id for query in session.streams.active}
    stream = from_streaming_dataframe(
        env, streaming, Path(folder, "spool"), trigger={"availableNow": True}
    )
    query = next((one for one in session.streams.active if one.id not in others), None)
    if query is None:
        raise WrongResult("the query ended at once: give more micro-batches")
    stream.sink_to(DelaySink()).name(SINK)
    parts, _ = run(env, "benchmark bridge")
    came, old = np.concatenate(parts, axis=1)
    arrived = {}
    for number in np.unique(came - old).tolist():
        rows = came[came - old == number]
        expect(len(rows), ROWS, f"rows of micro-batch {number}")
        arrived[number] = float(rows.max()) / 1e9
    return _progress(query), arrived


def _progress(query: Any) -> list[dict[str, float]]:
    """Of each micro-batch with rows when it was triggered, and what it took (ms)."""
    if query.exception() is not None:
        raise WrongResult(f"the query failed: {query.exception()}")
    return [
        {
            "at_ms": datetime.fromisoformat(one["timestamp"]).timestamp() * 1000,
            "ms": float(one["durationMs"]["triggerExecution"]),
        }
        for one in query.recentProgress
        if one["numInputRows"]
    ]


def measure_soak(systems: Systems, micro_batches: int) -> Line:
    """One line: see the module."""
    from strom.connectors.spark import from_streaming_dataframe

    _ = systems.gateway
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        place = Path(folder, "files")
        place.mkdir()
        write_files(place, micro_batches)
        env = environment(Setting("bridge", 0, 1, "ray", INTERVAL_S), folder + "/checkpoints")
        stream = from_streaming_dataframe(
            env,
            partial(frame, str(place)),
            Path(folder, "spool"),
            trigger={"availableNow": True},
        )
        stream.sink_to(DiscardSink())
        started = time.monotonic()
        client = env.execute_async("benchmark bridge soak")
        spool = Spool(Path(folder, "spool"))
        samples = list(_samples(spool, micro_batches, client))
        result = client.get_job_execution_result()
        took = time.monotonic() - started
    read = result.metrics["operators"][0]["records_out"]
    expect(read, micro_batches * ROWS, "rows that came through the bridge")
    half, last = samples[-2], samples[-1]
    growth = round(last["rss_mb"] / half["rss_mb"], 3)
    objects = last["objects"] - half["objects"]
    return {
        "name": "bridge",
        "engine": "strom",
        "direction": "soak",
        "micro_batches": micro_batches,
        "ms_per_micro_batch": round(took / micro_batches * 1000, 1),
        "samples": samples,
        "rss_growth": growth,
        "objects_growth": objects,
        "target": FLAT,
        "within": growth <= FLAT and objects <= SPARE_OBJECTS,
    }


def _samples(spool: Spool, micro_batches: int, client: Any) -> Iterator[dict[str, int]]:
    """When so many micro-batches are spooled."""
    for part in (0.1, 0.5, 1.0):
        last = max(1, round(micro_batches * part)) - 1
        while not spool.has(last):
            if client.get_job_status().is_terminal:
                client.get_job_execution_result()  # raises why, if it failed
                raise WrongResult(f"the job ended before micro-batch {last} of {micro_batches}")
            time.sleep(0.05)
        yield {"micro_batch": last + 1, **memory(), "spooled": len(list(_kept(spool)))}


def _kept(spool: Spool) -> Iterator[int]:
    return (batch.id for batch in spool.batches(0))


def memory() -> dict[str, int]:
    """MiB resident of this process, of the JVMs below it but for brokers, and of Ray's processes;
    and what is in Ray's object store."""
    me = psutil.Process()
    jvms = {process.pid for process in javas()}
    sums = {"driver_mb": me.memory_info().rss, "jvm_mb": 0, "ray_mb": 0}
    for process in me.children(recursive=True):
        try:
            name, size = process.name(), process.memory_info().rss
        except psutil.Error:
            continue
        if process.pid in jvms:
            sums["jvm_mb"] += size
        elif name != "java":
            sums["ray_mb"] += size
    rounded = {name: round(size / 2**20) for name, size in sums.items()}
    return {"rss_mb": sum(rounded.values()), **rounded, **stored()}


def stored() -> dict[str, int]:
    """Objects in Ray's object store, and their MiB."""
    import ray
    from ray._private.internal_api import memory_summary

    summary = memory_summary(ray.get_runtime_context().gcs_address, stats_only=True)
    found = re.search(r"Plasma memory usage (\d+) MiB, (\d+) objects", summary)
    assert found is not None, summary
    return {"objects": int(found[2]), "objects_mb": int(found[1])}
