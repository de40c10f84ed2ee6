"""What it costs to watch a job: the same job with its metrics off, on, read, with an open dashboard
and with latency markers, in turns, as ratios to off.

    off       tasks report only at their end, and nobody reads anything
    on        as a job is by default: a report of each task every 500 ms, Ray told every 5 s
    read      the same with a Prometheus endpoint that is read every second
    dashboard the same with a page of the job open in a dashboard, which asks every second
    markers   the same with a latency marker of each source every 200 ms

Which way begins changes with each round. A ratio is of one round, and the line has the median of
all rounds: what a machine does beside it changes all ways of a round alike, mostly. On the local
host the CPU time of all that is done for metrics is measured besides, as a share of the job's:
that holds also where the machine is shared.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from strom import DiscardSink, JobStatus, MetricsConfig, StreamExecutionEnvironment
from strom.engine.hosts.driver import JobDriver
from strom.engine.task.chain_node import ChainNode
from strom.engine.task.reporting import FigureReports, LatencyMarkers
from strom.rest.catalogs.one_job import OneJob
from strom.rest.servers.api import Serving, serve

from .accounted import accounted
from .measure import Run, Setting, environment, run_of

NEVER = timedelta(days=1)
READ_S = 1.0

OPEN_PAGE = ("", "/figures", "/checkpoints")
"""What the dashboard asks for of a job, below its path."""

DONE_FOR_METRICS: list[tuple[type, str]] = [
    (FigureReports, "_on_due"),
    (LatencyMarkers, "send"),
    (ChainNode, "_pass_marker"),
    (JobDriver, "metrics"),
    (JobDriver, "samples"),
    (JobDriver, "view"),
]

WAYS = {
    "off": (NEVER, MetricsConfig(ray_interval=None)),
    "on": (timedelta(milliseconds=500), MetricsConfig()),
    "read": (timedelta(milliseconds=500), MetricsConfig(prometheus_port=0)),
    "dashboard": (timedelta(milliseconds=500), MetricsConfig()),
    "markers": (
        timedelta(milliseconds=500),
        MetricsConfig(latency_interval=timedelta(milliseconds=200)),
    ),
}


def measure(setting: Setting, rounds: int) -> dict[str, Any]:
    """A line for the workload."""
    taken: dict[str, list[Run]] = {way: [] for way in WAYS}
    shares: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(rounds):
        for way in turned(list(WAYS), number):
            with accounted(DONE_FOR_METRICS) as account:
                one = run(setting, way)
            taken[way].append(one)
            if setting.host == "local":
                shares[way].append(account.seconds / one.cpu_s)
    return summary(setting, taken, shares)


def turned(ways: list[str], number: int) -> list[str]:
    """The ways in the order of a round."""
    at = number % len(ways)
    return [*ways[at:], *ways[:at]]


def run(setting: Setting, way: str) -> Run:
    """One run."""
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        env = environment(setting, str(Path(folder, "checkpoints")))
        interval, metrics = WAYS[way]
        told = replace(env.get_job_config(), metrics_interval=interval, metrics=metrics)
        quiet: dict[str, Any] = {"log_to_driver": False} if setting.host == "ray" else {}
        env = StreamExecutionEnvironment.get_execution_environment(told, setting.host, **quiet)
        setting.query.build(env, setting.events).sink_to(DiscardSink()).name("benchmark sink")
        client = env.execute_async(f"benchmark {setting.name}")
        with watched(client, way):
            return run_of(setting, client.get_job_execution_result())


@contextmanager
def watched(client: Any, way: str) -> Iterator[None]:
    """Somebody looks at the job meanwhile, as the way says."""
    if way == "read":
        with reading([f"http://{client.prometheus_address}/metrics"]):
            yield
    elif way == "dashboard":
        server = serve(OneJob(client), Serving(port=0))
        job = f"{server.url}/v1/jobs/{client.get_job_id()}"
        try:
            with reading([f"{job}{page}" for page in OPEN_PAGE]):
                yield
        finally:
            server.close()
    else:
        yield


@contextmanager
def reading(urls: list[str]) -> Iterator[None]:
    """Somebody asks for all of them every `READ_S`, until the job is over."""
    over = threading.Event()

    def read() -> None:
        while not over.wait(READ_S):
            try:
                for url in urls:
                    with urllib.request.urlopen(url, timeout=10) as answer:
                        answer.read()
            except OSError:  # the job is over
                return

    reader = threading.Thread(target=read, name="benchmark-reader")
    reader.start()
    try:
        yield
    finally:
        over.set()
        reader.join()


def summary(
    setting: Setting, taken: dict[str, list[Run]], shares: dict[str, list[float]]
) -> dict[str, Any]:
    """speed: throughput as a part of off's; cpu: CPU time as a multiple of off's; share: of the
    job's CPU time what is done for metrics. All are medians over the rounds; worst_round: the
    least speed of any."""
    base = taken["off"]
    speeds = {way: _ratios(base, runs, "events_per_s") for way, runs in taken.items()}
    cpu = {way: _ratios(base, runs, "cpu_s") for way, runs in taken.items()}
    return {
        "name": "observe",
        "workload": setting.name,
        "events": setting.events,
        "parallelism": setting.parallelism,
        "host": setting.host,
        "rounds": len(base),
        "events_per_s_off": round(statistics.median(run.events_per_s for run in base)),
        "seconds_off": round(statistics.median(run.seconds for run in base), 2),
        **{
            way: {
                "speed": round(statistics.median(speeds[way]), 4),
                "worst_round": round(min(speeds[way]), 4),
                "cpu": round(statistics.median(cpu[way]), 4),
                **({"share": round(statistics.median(shares[way]), 5)} if shares[way] else {}),
            }
            for way in taken
            if way != "off"
        },
    }


def _ratios(base: list[Run], runs: list[Run], figure: str) -> list[float]:
    return [
        getattr(one, figure) / (getattr(off, figure) or 1)
        for off, one in zip(base, runs, strict=True)
    ]


def starts(setting: Setting, rounds: int) -> dict[str, Any]:
    """How long a job takes to start in a session on Ray: until all its tasks run."""
    from strom.cluster import dispatcher_client
    from strom.engine.hosts.ray_connect import connect_to_ray

    connect_to_ray(log_to_driver=False)
    took = []
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        dispatcher_client.start(folder)
        try:
            for _ in range(rounds):
                env = environment(setting, None)
                setting.query.build(env, 1 << 40).sink_to(DiscardSink())
                began = time.perf_counter()
                client = env.execute_async("benchmark start")
                while client.get_job_status() is not JobStatus.RUNNING:
                    time.sleep(0.01)
                took.append(time.perf_counter() - began)
                client.cancel()
        finally:
            dispatcher_client.stop()
    return {
        "name": "observe start",
        "workload": setting.name,
        "parallelism": setting.parallelism,
        "host": "ray",
        "rounds": rounds,
        "median_s": round(statistics.median(took), 2),
        "runs_s": [round(one, 2) for one in took],
    }
