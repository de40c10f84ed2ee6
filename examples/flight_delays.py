"""Delays of real flights, per airport, airline and hour, through a crash: `make demo`.

Spark (on Ray, through RayDP) reads a year of New York departures as a paced stream; strom's tasks,
each a Ray actor, assign event time, drop late reports to a side output, aggregate one-hour windows
and put the airlines' names on; Spark writes the windows as Parquet, exactly once, checkpoint by
checkpoint. Half-way one task's process is killed with SIGKILL. In the end the Parquet is compared
with a pandas computation of the same question; the program exits non-zero if they differ.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import flight_chart
import flight_data
import flight_reference
import polars as pl
import pyarrow.parquet as pq
from strom import (
    JobClient,
    OutputTag,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
    connect_to_ray,
    count,
    max_,
    mean,
    sum_,
)
from strom.connectors.files import ParquetSink
from strom.connectors.spark import (
    SparkParquetSink,
    SparkParquetSource,
    prepare_environment,
    spark_session,
)
from strom.observe.live import LiveView

LATE = OutputTag("late reports")


def flight_job(
    env: StreamExecutionEnvironment, data: Path, out: Path, rows_per_second: float | None
) -> None:
    """Write the whole pipeline into `env`."""
    airlines = pq.read_table(data / "airlines").to_pydict()
    names = dict(zip(airlines["carrier"], airlines["name"], strict=True))
    flights = SparkParquetSource(
        str(data / "flights"),
        columns=["origin", "carrier", "event_time", "dep_time", "dep_delay", "delivered"],
        sort_by="delivered",
        rows_per_split=20_000,
        rows_per_second=rows_per_second,
    )
    event_time = WatermarkStrategy.for_bounded_out_of_orderness(
        flight_data.BOUND.to_pytimedelta()
    ).with_timestamp_assigner("event_time")
    windows = (
        env.from_source(flights, event_time, "flights (Spark)")
        .with_columns(cancelled=pl.col("dep_time").is_null().cast(pl.Int64))
        .key_by("origin", "carrier")
        .window(TumblingEventTimeWindows.of(timedelta(hours=1)))
        .side_output_late_data(LATE)
        .aggregate(
            departures=count("dep_time"),
            mean_delay=mean("dep_delay"),
            max_delay=max_("dep_delay"),
            cancellations=sum_("cancelled"),
        )
        .name("hourly delays")
    )
    named = windows.with_columns(airline=pl.col("carrier").replace_strict(names)).name("airlines")
    named.sink_to(SparkParquetSink(str(out / "windows"))).name("windows (Spark)")
    windows.get_side_output(LATE).sink_to(ParquetSink(str(out / "late"))).name("late reports")


def watch(client: JobClient, kill: bool, view: LiveView) -> None:
    """Show the job until it ends; kill one of its tasks when half of the stream has passed."""
    killed = not kill
    restarts = 0
    while not client.get_job_status().is_terminal:
        metrics = client.metrics()
        view.show(metrics)
        if not killed and half_way(metrics):
            killed = True
            victim = metrics["tasks"][-1]
            os.kill(victim["pid"], signal.SIGKILL)
            view.say(
                f"[bold red]kill -9 {victim['pid']}[/] "
                f"({victim['name']}, subtask {victim['subtask']})"
            )
        if metrics["restarts"] > restarts and metrics["state"] == "RUNNING":
            restarts = metrics["restarts"]
            view.say(
                f"[bold green]recovered[/] from checkpoint "
                f"{metrics['checkpoints']['restored_from']}: {metrics['last_failure']}"
            )
        time.sleep(0.2)
    view.show(client.metrics())


def half_way(metrics: dict[str, object]) -> bool:
    """Whether the stream is past June and a checkpoint can be restored."""
    july = flight_data.LATE_UNTIL.timestamp() * 1000
    operators, checkpoints = metrics["operators"], metrics["checkpoints"]
    marks = [o["watermark"] for o in operators]  # type: ignore[attr-defined]
    return (
        metrics["state"] == "RUNNING"
        and checkpoints["completed"] >= 2  # type: ignore[index]
        and marks[0] is not None
        and marks[0] > july
    )


def check(out: Path, data: Path) -> bool:
    """Compare with pandas, count the late reports, draw the chart."""
    expected = flight_reference.reference(data)
    report = flight_reference.compare(out / "windows", expected)
    print(report)
    late = pq.read_table(out / "late").num_rows if (out / "late").exists() else 0
    print(f"late reports in the side output: {late}, expected {expected.late_expected}")
    chart = flight_chart.draw(out / "windows", out / "delays.png")
    print(f"chart: {chart}")
    return report.equal and late == expected.late_expected


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/flights"), help="results go here")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the stream lasts")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--no-kill", action="store_true", help="leave all tasks alone")
    options = parser.parse_args(arguments)
    out = options.out.absolute()
    shutil.rmtree(out, ignore_errors=True)
    data = flight_data.prepare(out.parent / "flight-data")

    prepare_environment()
    connect_to_ray(num_cpus=8, log_to_driver=False)
    rows = pq.ParquetDataset(data / "flights").read(columns=["report"]).num_rows
    env = StreamExecutionEnvironment.get_execution_environment(host="ray")
    env.set_parallelism(options.parallelism)
    env.enable_checkpointing(timedelta(seconds=1), storage=str(out / "checkpoints"))
    flight_job(env, data, out, rows / options.seconds)
    print(env.explain())
    print("starting Spark on Ray ...")
    with spark_session(), LiveView("flight delays") as view:
        client = env.execute_async("flight delays")
        watch(client, not options.no_kill, view)
        result = client.get_job_execution_result()
    print(
        f"finished after {result.net_runtime_ms / 1000:.1f} s with {result.restarts} restart(s) "
        f"and {result.checkpoints} checkpoints"
    )
    equal = check(out, data)
    print("result equals reference" if equal else "RESULT DIFFERS FROM REFERENCE")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
