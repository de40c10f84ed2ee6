"""Jobs on Ray that run as long as a test needs them, and what must be left of them: nothing."""

from __future__ import annotations

import glob
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
import strom
from chaos_kit import (
    ListSink,
    as_window_sums,
    config,
    environment,
    until,
    window_sums,
    windows_of,
    within,
)
from leashed_source import Leashed
from shared_ray import CPUS
from strom.connectors.files import ParquetSink

COUNT = 40_000
INTERVAL_MS = 100


def ends_with_nothing() -> None:
    """After every job: no task actor, no process of one, and every CPU is free again."""
    until(lambda: not task_processes(), f"the end of {task_processes()}", 15.0)
    until(lambda: not live_actors("TaskActor"), "the end of all task actors", 15.0)
    until(lambda: free_cpus() == CPUS, f"{CPUS} free CPUs, found {free_cpus()}", 15.0)
    assert not live_groups()


def task_processes() -> list[int]:
    """Processes below this one that run a task."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "TaskActor" in " ".join(process.cmdline()):
                found.append(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


def live_actors(name: str) -> list[str]:
    from ray._private.state import actors

    return [
        a["ActorID"]
        for a in actors().values()
        if a["State"] != "DEAD" and a.get("ActorClassName", "").endswith(name)
    ]


def free_cpus() -> float:
    import ray

    return float(ray.available_resources().get("CPU", 0))


def live_groups() -> list[Any]:
    from ray.util import placement_group_table

    return [g for g in placement_group_table().values() if g["state"] != "REMOVED"]


# --- a job that runs as long as the test needs it ---------------------------------------------


class Slowly:
    """Makes every checkpoint last a while."""

    def __call__(self) -> None:
        time.sleep(0.2)


class Job:
    """source -> sums -> sink, unchained: three vertices of `parallelism` actors. It runs until it
    is `finish`ed. The sink publishes to the client, with checkpoints that take 0.2 s, or into
    files; both exactly once."""

    def __init__(self, folder: Path, to_files: bool = False, **settings: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.state = folder / "state"
        settings.setdefault("interval_ms", INTERVAL_MS)
        self.settings = config(self.state, chaining=False, batch_size=20, **settings)
        env = environment(self.settings, "ray")
        stream = windows_of(env, Leashed(folder / "release", COUNT))
        slow = ListSink("prepare_commit in the background", Slowly())
        sink = ParquetSink(folder / "out") if to_files else slow
        spec = stream.sink_to(sink).name("sink").operator.spec
        graph = env.get_job_graph(folder.name)
        operators = [o for v in graph.vertices for o in v.operators]
        self.names = {str(o.operator_id): o.name for o in operators}
        self.client = env._submit(graph)
        self.sink = next(o.operator_id for o in operators if o.spec is spec)
        self.published = self.client.published(self.sink)
        self.reading: Future[list[Any]] | None = None

    def metrics(self) -> dict[str, Any]:
        return self.client.metrics()

    def running(self, more_checkpoints: int = 0) -> dict[str, Any]:
        """The metrics once all tasks run, and so many more checkpoints have completed."""
        wanted = self.metrics()["checkpoints"]["completed"] + more_checkpoints
        all_tasks = 3 * self.settings.parallelism

        def ready() -> Any:
            m = self.metrics()
            tasks = len(m["tasks"]) == all_tasks and all(
                t["state"] == "running" for t in m["tasks"]
            )
            completed = m["checkpoints"]["completed"] >= wanted
            return m if tasks and completed and m["state"] == "RUNNING" else None

        return until(ready, f"a running job, is {self.metrics()}", 60.0)

    def kill(self, *victims: dict[str, Any]) -> None:
        """SIGKILL, and wait until the job has noticed."""
        attempt = self.metrics()["attempt"]
        for victim in victims:
            os.kill(victim["pid"], signal.SIGKILL)
        until(lambda: self.metrics()["attempt"] > attempt, "the next attempt", 30.0)

    def read_on(self) -> None:
        """From now on values are read as they come."""
        pool = ThreadPoolExecutor(1)
        self.reading = pool.submit(self._read)
        pool.shutdown(wait=False)

    def _read(self) -> list[Any]:
        return [value for part in self.published for value in part]

    def finish(self) -> Any:
        """Let it go to its end, and compare its output with the reference."""
        (self.folder / "release").touch()
        rest = self._read if self.reading is None else self.reading.result
        values = within(90.0, "the rest", rest)
        result = self.client.get_job_execution_result(timedelta(seconds=10))
        assert self.files() or as_window_sums(values) == window_sums(COUNT)
        assert not self.files() or self.files() == window_sums(COUNT)
        return result

    def files(self) -> list[Any]:
        found = glob.glob(f"{self.folder}/out/**/*.parquet", recursive=True)
        rows = [row for f in found for row in pq.ParquetFile(f).read().to_pylist()]
        return sorted((r["key"], r["window_start"], r["n"], r["total"]) for r in rows)


def failure_of(client: Any) -> str:
    with pytest.raises(strom.JobFailedError) as caught:
        within(30.0, "the failure", client.get_job_execution_result)
    return str(caught.value)


def coordinator_pid(job_id: str) -> int:
    """Of the process that a job's coordinator has now."""
    actor = until(lambda: _coordinator(job_id), f"a coordinator of {job_id}", 30.0)
    return _pid(f"the coordinator of {job_id}", lambda one: one["ActorID"] == actor._actor_id.hex())


def actor_pid(name: str) -> int:
    """Of the process that the actor of this name has now."""
    return _pid(name, lambda one: one["Name"] == name)


def _coordinator(job_id: str) -> Any:
    from strom.engine.hosts.coordinator_names import find_coordinator

    with suppress(ValueError):  # it is not there yet
        return find_coordinator(job_id)
    return None


def _pid(what: str, is_it: Callable[[dict[str, Any]], bool]) -> int:
    from ray._private.state import actors

    def found() -> int | None:
        for actor in actors().values():
            if is_it(actor) and actor["State"] == "ALIVE":
                return int(actor["Pid"])
        return None

    pid: int = until(found, f"a process of {what}", 30.0)
    return pid
