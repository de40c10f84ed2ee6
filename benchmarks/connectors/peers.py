"""Others' Kafka sources beside strom's, on the same topic in the same run: bytewax's input, and
Spark's own, all at once (batch) and as a stream, into nothing.

Each has the same two cores: strom two tasks on Ray, bytewax two processes of one worker, Spark
`local[2]`. Each is started beforehand: strom's seconds run from when its tasks are up, those of
bytewax from when a worker opens the first partition, and Spark's query is the second one of its
session. bytewax has an environment of its own, which is made when it is first needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from .kafka_in import read
from .lines import Line, WrongResult, expect, rates
from .systems import Systems, cpu_s, javas

BYTEWAX: Final = "bytewax[kafka]==0.21.1"

SIZE: Final = 100

INSTALL_S: Final = 300.0
RUN_S: Final = 600.0


def measure_peers(
    systems: Systems, events: int, parallelism: int, host: str, work: str | None
) -> Iterator[Line]:
    """A line of each engine; the last is strom's with the ratios, above 1 where strom does more in
    a second (`ratio_`), or takes less CPU for a record (`cpu_ratio_`). A peer that is not
    to be had has a line that says why, and no ratio."""
    topic = systems.topic("bytes", SIZE, events)
    ours = read(systems, "bytes", SIZE, events, parallelism, host)
    theirs = [bytewax(systems.servers, topic, events, work)]
    yield theirs[0]
    for one in (spark_batch, spark_stream):
        theirs.append(one(systems, topic, events))
        yield theirs[-1]
    ratios = {}
    for line in theirs:
        if "records_per_s" in line:
            cpu, peer = "cpu_s_per_m_records", line["peer"]
            ratios[f"ratio_{peer}"] = round(ours["records_per_s"] / line["records_per_s"], 2)
            ratios[f"cpu_ratio_{peer}"] = round(line[cpu] / max(ours[cpu], 1e-3), 2)
    yield {**ours, "name": "kafka_peers", **ratios}


def bytewax(servers: str, topic: str, events: int, work: str | None) -> Line:
    """Its line."""
    line = {"name": "kafka_peers", "engine": "bytewax", "peer": "bytewax", "direction": "in"}
    try:
        python = installed(Path(work) if work else _cache())
    except (OSError, subprocess.SubprocessError) as error:
        return {**line, "missing": f"bytewax cannot be installed: {error}"}
    script = Path(__file__).with_name("bytewax_kafka.py")
    done = subprocess.run(
        [str(python), str(script), servers, topic],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )
    if done.returncode:
        raise WrongResult(f"bytewax ended with {done.returncode}: {done.stderr[-500:]}")
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    expect(said["records"], events, f"records that bytewax read of '{topic}'")
    return {
        **line,
        "version": said["version"],
        **rates(events, SIZE, said["seconds"], said["cpu_s"]),
        "parallelism": 2,
    }


def spark_batch(systems: Systems, topic: str, events: int) -> Line:
    """Spark's own source, the whole topic at once; counted the first time, measured the second."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    frame = _loaded(systems.session.read, systems.servers, topic)
    seen = Observation("records")
    frame.observe(seen, f.count(f.lit(1)).alias("n")).write.format("noop").mode("overwrite").save()
    expect(seen.get["n"], events, f"records that Spark read of '{topic}'")
    used, started = cpu_s(javas()), time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return _spark(systems, "batch", events, time.perf_counter() - started, cpu_s(javas()) - used)


def spark_stream(systems: Systems, topic: str, events: int) -> Line:
    """The same by Structured Streaming, up to what is there; the second time counts."""
    for _ in range(2):
        frame = _loaded(systems.session.readStream, systems.servers, topic)
        with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
            used, started = cpu_s(javas()), time.perf_counter()
            writer = frame.writeStream.format("noop").option("checkpointLocation", folder)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            seconds, used = time.perf_counter() - started, cpu_s(javas()) - used
        found = sum(progress["numInputRows"] for progress in query.recentProgress)
        expect(found, events, f"records that Spark streamed of '{topic}'")
    return _spark(systems, "stream", events, seconds, used)


def _loaded(reader: Any, servers: str, topic: str) -> Any:
    """Values only, as the others read them."""
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
    }
    return reader.format("kafka").options(**options).load().select("value")


def _spark(systems: Systems, mode: str, events: int, seconds: float, used: float) -> Line:
    return {
        "name": "kafka_peers",
        "engine": "spark",
        "peer": f"spark_{mode}",
        "direction": "in",
        "version": systems.session.version,
        **rates(events, SIZE, seconds, used),
        "parallelism": 2,
    }


def installed(work: Path) -> Path:
    """The Python of an environment in `work` that has bytewax; made if it is not there. Raises
    OSError or SubprocessError."""
    folder = work / "bytewax"
    python = folder / "bin" / "python"
    has = [str(python), "-c", "import bytewax.connectors.kafka"]
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=INSTALL_S)
    if subprocess.run(has, capture_output=True, check=False).returncode:
        pip = [str(python), "-m", "pip", "install", "--quiet", BYTEWAX]
        subprocess.run(pip, stdout=sys.stderr, check=True, timeout=INSTALL_S)
        subprocess.run(has, capture_output=True, check=True)
    return python


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "strom" / "peers"
