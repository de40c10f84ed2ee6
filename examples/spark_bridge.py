"""A Spark query feeds a stream, whose results are a Spark frame again: `python
examples/spark_bridge.py`.

    orders (JSON) -> Structured Streaming -> strom: sums per city and minute -> DataFrame

In the middle a task of the stream is killed. The results are compared with Spark's own.
"""

import json
import os
import signal
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from strom import (
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    connect_to_ray,
    count,
    sum_,
)
from strom.connectors.spark import from_streaming_dataframe, prepare_environment
from strom.connectors.spark.java import module_openings

FILES, ORDERS = 12, 500
COLUMNS = "at TIMESTAMP, city STRING, cents BIGINT"
CITIES = ("Bergen", "Kiel", "Gdansk", "Riga", "Turku")


def write_orders(folder: Path) -> None:
    """A file for each minute, its orders a little out of order."""
    folder.mkdir()
    start = datetime(2024, 6, 1, tzinfo=UTC)
    for minute in range(FILES):
        lines = []
        for n in range(ORDERS):
            at = start + timedelta(minutes=minute, seconds=(n * 37) % 60)
            city = CITIES[(minute * n) % len(CITIES)]
            lines.append(json.dumps({"at": at.isoformat(), "city": city, "cents": n * 7 % 1000}))
        (folder / f"{minute:03d}.json").write_text("\n".join(lines))


class KilledOnce:
    """Passes rows on, and kills its process the first time that it has seen half of them."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark
        self.seen = 0

    def __call__(self, rows: Any) -> Any:
        self.seen += rows.num_rows
        if self.seen > FILES * ORDERS / 2 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return rows


def start_spark() -> Any:
    """Any session will do."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("bridge")
    settings = {
        "spark.driver.extraJavaOptions": module_openings(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def run(folder: Path) -> None:
    write_orders(folder / "orders")
    spark = start_spark()
    reader = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    orders = reader.json(str(folder / "orders")).withWatermark("at", "1 minute")

    env = StreamExecutionEnvironment.get_execution_environment(host="ray")
    env.enable_checkpointing(timedelta(milliseconds=200), storage=str(folder / "checkpoints"))
    stream = from_streaming_dataframe(
        env,
        orders,
        folder / "spool",
        trigger={"availableNow": True},
        watermark_strategy="spark",
        event_time="at",
    )
    mark = folder / "killed"
    sums = (
        stream.map_batches(KilledOnce(mark), output_type=None)
        .set_parallelism(1)
        .key_by("city")
        .window(TumblingEventTimeWindows.of(timedelta(minutes=1)))
        .aggregate(orders=count(), cents=sum_("cents"))
    )
    ours = sums.to_dataframe(spark, job_name="orders per city and minute")
    print(f"a task was killed in the middle: {mark.exists()}")

    minute = "unix_millis(date_trunc('MINUTE', at)) AS window_start"
    whole = spark.read.schema(COLUMNS).json(str(folder / "orders"))
    theirs = (
        whole.selectExpr("city", minute, "cents")
        .groupBy("city", "window_start")
        .agg({"*": "count", "cents": "sum"})
        .selectExpr("city", "window_start", "`count(1)` AS orders", "`sum(cents)` AS cents")
    )
    ours = ours.select("city", "window_start", "orders", "cents")
    ours.orderBy("window_start", "city").show(8)
    different = ours.exceptAll(theirs).count() + theirs.exceptAll(ours).count()
    print(f"{ours.count()} results, {different} of them other than Spark's own")
    spark.stop()
    if different or not mark.exists():
        raise SystemExit(1)


def main() -> None:
    prepare_environment()
    connect_to_ray(num_cpus=4, log_to_driver=False)
    with tempfile.TemporaryDirectory(prefix="strom-bridge-") as folder:
        run(Path(folder))


if __name__ == "__main__":
    main()
