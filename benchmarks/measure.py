"""Run one workload and say what it took.

`seconds` runs from the moment every task is up to the end of the job: the first records,
the last windows and the terminal commit are in; process starts, imports and loading of kernels are
not. CPU is that of strom's own processes (the tasks') over the same time, what their start took is
apart; memory is the sum of their peaks.
"""

from __future__ import annotations

import math
import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from strom import (
    DataStream,
    DiscardSink,
    JobConfig,
    JobExecutionResult,
    Sink,
    StreamExecutionEnvironment,
)
from strom.core.union_type import UnionType

from .configured import backend
from .nexmark.events import whole_stream
from .nexmark.query import Query
from .workloads import WORKLOADS


@dataclass(frozen=True)
class Setting:
    """How to run a workload."""

    name: str
    events: int
    parallelism: int = 2
    host: str = "ray"
    checkpoint_interval: float | None = None
    """Seconds; None: no checkpoints but the terminal one."""
    whole_stream: bool = False
    """Nexmark queries read their kinds from one source of all kinds."""

    @property
    def query(self) -> Query:
        return WORKLOADS[self.name]


@dataclass(frozen=True)
class Run:
    """What one run took."""

    seconds: float
    events_per_s: int
    cpu_s: float
    start_cpu_s: float
    peak_rss_mb: int
    rows_out: int
    checkpoints: int
    checkpoint_ms: int | None
    in_flight_mb: float


@dataclass(frozen=True)
class Sources:
    """What the sources of a job make. strings: the Arrow type of their strings. pruned: some
    columns of the stream are not made. kinds: of Nexmark events."""

    strings: str
    pruned: bool
    kinds: str


def environment(setting: Setting, storage: str | None = None) -> StreamExecutionEnvironment:
    """An environment for `setting`, without a job yet, whose sources make every column; all else is
    as `configured` has it. What
    tasks and Ray would print stays out of the output, which is lines of JSON."""
    least = JobConfig(
        parallelism=setting.parallelism,
        slot_cpus=slot_cpus(setting.parallelism),
        column_pruning=False,
    )
    quiet: dict[str, Any] = {"log_to_driver": False} if setting.host == "ray" else {}
    env = StreamExecutionEnvironment.get_execution_environment(
        None, setting.host, defaults=least, **quiet
    )
    if setting.checkpoint_interval is not None:
        env.enable_checkpointing(timedelta(seconds=setting.checkpoint_interval), storage=storage)
    return env


def slot_cpus(parallelism: int) -> float:
    """A core per slot, or as much as this machine has for each if there are more slots."""
    return math.floor(min(1.0, (os.cpu_count() or 1) / parallelism) * 100) / 100


def measure(setting: Setting, runs: int = 1) -> dict[str, Any]:
    """The line of the run with the median rate, with all runs' rates and the greatest memory."""
    taken: list[Run] = []
    sources = Sources("", False, "")
    for _ in range(runs):
        run, sources = run_once(setting)
        taken.append(run)
    return summary(setting, taken, sources)


def summary(setting: Setting, taken: list[Run], sources: Sources) -> dict[str, Any]:
    """The line for these runs of one setting."""
    middle = statistics.median_low([run.events_per_s for run in taken])
    chosen = next(run for run in taken if run.events_per_s == middle)
    return {
        "name": setting.name,
        "events": setting.events,
        **asdict(chosen),
        "peak_rss_mb": max(run.peak_rss_mb for run in taken),
        "cpu_s_per_m_events": round(chosen.cpu_s / setting.events * 1e6, 3),
        "runs": [run.events_per_s for run in taken],
        "parallelism": setting.parallelism,
        "host": setting.host,
        "checkpoint_interval_s": setting.checkpoint_interval,
        "state_backend": backend(),
        "unbounded_state": setting.query.unbounded_state,
        **asdict(sources),
    }


def run_once(setting: Setting) -> tuple[Run, Sources]:
    """Run to the end, the records going nowhere or where the query's sink puts them."""
    query = setting.query
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        env = environment(setting, str(Path(folder, "checkpoints")))
        sink = discard_or(query, str(Path(folder, "out")))
        with whole_stream(setting.whole_stream):
            query.build(env, setting.events).sink_to(sink).name("benchmark sink")
        sources = sources_of(env)
        result = env.execute(f"benchmark {setting.name}")
    return run_of(setting, result), sources


def measured(setting: Setting, build: Callable[[StreamExecutionEnvironment], DataStream]) -> Run:
    """Run what is no workload to its end, the records going nowhere."""
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        env = environment(setting, str(Path(folder, "checkpoints")))
        build(env).sink_to(DiscardSink()).name("benchmark sink")
        return run_of(setting, env.execute(f"benchmark {setting.name}"))


def run_of(setting: Setting, result: JobExecutionResult) -> Run:
    """What a job took."""
    seconds = result.net_runtime_ms / 1000
    processes = processes_of(result.metrics)
    return Run(
        seconds=round(seconds, 3),
        events_per_s=round(setting.events / seconds),
        cpu_s=round(sum(p["cpu_s"] - p["opened_cpu_s"] for p in processes), 2),
        start_cpu_s=round(sum(p["opened_cpu_s"] for p in processes), 2),
        peak_rss_mb=round(sum(p["peak_rss_bytes"] for p in processes) / 2**20),
        rows_out=result.metrics["operators"][-1]["records_in"],
        checkpoints=result.checkpoints,
        checkpoint_ms=result.metrics["checkpoints"]["last_duration_ms"],
        in_flight_mb=round(result.metrics["exchange"]["peak_in_flight_bytes"] / 2**20, 2),
    )


def discard_or(query: Query, folder: str) -> Sink:
    return DiscardSink() if query.sink is None else query.sink(folder)


def sources_of(env: StreamExecutionEnvironment) -> Sources:
    """Looks at the job as it will run, columns already dropped where nobody reads them."""
    operators = [o for vertex in env.get_job_graph().vertices for o in vertex.operators]
    sources = [operator.spec.source for operator in operators if operator.is_source]
    schemas = [source.schema for source in sources if source.schema is not None]
    types = {str(type_) for schema in schemas for type_ in text_types(schema)}
    pruned = any(getattr(source, "pruned", False) for source in sources)
    kinds = {str(source.kind) for source in sources if hasattr(source, "kind")}
    return Sources("+".join(sorted(types)), pruned, "+".join(sorted(kinds)))


def text_types(fields: Iterable[pa.Field]) -> Iterator[pa.DataType]:
    for field in fields:
        if isinstance(field.type, UnionType):
            yield from text_types(field.type.spread_type)
        elif pa.types.is_struct(field.type):
            yield from text_types(field.type)
        elif is_text(field.type):
            yield field.type


def is_text(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        return is_text(type_.value_type)
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(type_) for test in tests)


def processes_of(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """The latest figures of each distinct process among a job's tasks, which it may have several
    of: the last to open ends its start."""
    figures = ("peak_rss_bytes", "cpu_s", "opened_cpu_s")
    latest: dict[int, dict[str, Any]] = {}
    for task in metrics["tasks"]:
        known = latest.setdefault(task["pid"], dict.fromkeys(figures, 0))
        known.update({name: max(known[name], task[name]) for name in figures})
    return list(latest.values())
