"""Run one workload and say what it took.

`seconds` runs from the moment every task is up to the end of the job: the first records,
just-in-time
loading of kernels, the last windows and the terminal commit are in, process starts are not. CPU and
memory are those of strom's own processes (the tasks'), each at its peak.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from strom import StreamExecutionEnvironment

from .workloads import WORKLOADS, discard


@dataclass(frozen=True)
class Setting:
    """How to run a workload."""

    name: str
    events: int
    parallelism: int = 2
    host: str = "ray"
    checkpoint_interval: float | None = None
    """Seconds; None: no checkpoints but the terminal one."""


@dataclass(frozen=True)
class Measured:
    """One line of output."""

    name: str
    events: int
    seconds: float
    events_per_s: int
    parallelism: int
    host: str
    peak_rss_mb: int
    cpu_s: float
    checkpoints: int
    checkpoint_ms: int | None
    in_flight_mb: float

    def line(self) -> dict[str, Any]:
        return asdict(self)


def environment(setting: Setting, storage: str | None = None) -> StreamExecutionEnvironment:
    """An environment for `setting`, without a job yet."""
    env = StreamExecutionEnvironment.get_execution_environment(host=setting.host)
    env.set_parallelism(setting.parallelism)
    if setting.checkpoint_interval is not None:
        env.enable_checkpointing(timedelta(seconds=setting.checkpoint_interval), storage)
    return env


def measure(setting: Setting) -> Measured:
    """Run to the end."""
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        env = environment(setting, folder)
        discard(WORKLOADS[setting.name](env, setting.events))
        result = env.execute(f"benchmark {setting.name}")
    seconds = result.net_runtime_ms / 1000
    processes = processes_of(result.metrics)
    checkpoints = result.metrics["checkpoints"]
    return Measured(
        name=setting.name,
        events=setting.events,
        seconds=round(seconds, 3),
        events_per_s=round(setting.events / seconds),
        parallelism=setting.parallelism,
        host=setting.host,
        peak_rss_mb=round(sum(p["peak_rss_bytes"] for p in processes) / 2**20),
        cpu_s=round(sum(p["cpu_s"] for p in processes), 2),
        checkpoints=result.checkpoints,
        checkpoint_ms=checkpoints["last_duration_ms"],
        in_flight_mb=round(result.metrics["exchange"]["peak_in_flight_bytes"] / 2**20, 2),
    )


def processes_of(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """The latest figures of each distinct process among a job's tasks."""
    latest: dict[int, dict[str, Any]] = {}
    for task in metrics["tasks"]:
        known = latest.get(task["pid"])
        if known is None or task["cpu_s"] > known["cpu_s"]:
            latest[task["pid"]] = task
    return list(latest.values())
