"""How long a job takes to start on a Ray cluster that runs, and where the time goes.

    records -> by key -> a note of when the first came -> nothing

A job is executed `rounds` times in each of three ways: by itself (`alone`), in a session that keeps
no processes ready (`session`), and in one that does (`ready`), which are waited for. Of each,
medians of seconds since `execute`: until the program goes on (`submitted_s`), the job's coordinator
runs (`coordinator_s`), all tasks run (`running_s`), and a record has come through the exchange
(`first_record_s`). `restarted_s`: from when a task's process is killed to the first record of the
next attempt.
"""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from strom import (
    CheckpointConfig,
    FixedDelayRestart,
    JobConfig,
    JobStatus,
    StreamExecutionEnvironment,
)

from .awaited import await_running, awaited
from .restore import opened
from .start_job import define

WAYS: Final = ("alone", "session", "ready")
LONGEST_S: Final = 120.0
LOOK_S: Final = 0.005


def measure_start(rounds: int, parallelism: int, ready: int) -> Iterator[dict[str, Any]]:
    """A line for each way. `ready`: processes on the node, in the last."""
    with opened("ray") as host:
        with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
            _started(host, folder, parallelism, LONGEST_S)  # which starts Ray
        for way in WAYS:
            with _session(way, ready) as wait, tempfile.TemporaryDirectory() as folder:
                runs = []
                for number in range(rounds):
                    wait()
                    place = Path(folder, str(number))
                    place.mkdir()
                    runs.append(_started(host, str(place), parallelism, LONGEST_S))
            yield {
                "name": "start",
                "way": way,
                "host": "ray",
                "parallelism": parallelism,
                "tasks": 2 * parallelism,
                "rounds": rounds,
                **{key: round(statistics.median(one[key] for one in runs), 2) for key in runs[0]},
                "first_record_runs_s": [round(one["first_record_s"], 2) for one in runs],
            }


@contextmanager
def _session(way: str, ready: int) -> Iterator[Any]:
    """What waits until the next job may start."""
    if way == "alone":
        yield _await_end
        return
    import ray
    from strom.cluster import dispatcher_client
    from strom.engine.hosts.ready_tasks import PER_CPU, await_ready, count_ready

    kept = min(ready, PER_CPU * int(ray.cluster_resources()["CPU"])) if way == "ready" else 0
    with tempfile.TemporaryDirectory(prefix="strom-", ignore_cleanup_errors=True) as registry:
        dispatcher, _ = dispatcher_client.start(registry, ready=kept)

        def ready_now() -> bool:
            return not kept or (count_ready() >= kept and dispatcher.about()["ready_coordinator"])

        def wait() -> None:
            _await_end()
            awaited(ready_now, "the session's processes are not ready", 0.1)
            await_ready(LONGEST_S)

        try:
            yield wait
        finally:
            dispatcher_client.stop()


def _await_end() -> None:
    """Until no process of the job before is left."""
    import ray
    from strom.engine.hosts.left_tasks import PREFIX
    from strom.engine.hosts.ready_tasks import taken

    def over() -> bool:
        named, owners = ray.util.list_named_actors(all_namespaces=True), taken()
        return not any(one["name"].startswith(PREFIX) or one["name"] in owners for one in named)

    awaited(over, "processes of the job before are left", 0.1)


def _started(host: Any, folder: str, parallelism: int, longest_s: float) -> dict[str, float]:
    config = JobConfig(
        parallelism=parallelism,
        slot_cpus=0.1,
        checkpoint=CheckpointConfig(timedelta(milliseconds=200), f"{folder}/checkpoints"),
        restart=FixedDelayRestart(10, timedelta(0)),
    )
    env = StreamExecutionEnvironment.get_execution_environment(config, host)
    notes = Path(folder, "notes")
    notes.mkdir()
    define(env, notes, parallelism)
    began = time.time()
    client: Any = env.execute_async("benchmark start")
    submitted = time.time()
    try:
        first = _first_note(notes, 0, longest_s)
        await_running(client)
        view = client.view()
        running = view["since"][JobStatus.RUNNING] / 1000
        awaited(
            lambda: client.metrics()["checkpoints"]["completed"],
            "no checkpoint completes",
            LOOK_S,
        )
        pid = next(int(path.name.rpartition("-")[2]) for path in notes.iterdir())
        os.kill(pid, signal.SIGKILL)
        killed = time.time()
        again = _first_note(notes, 1, longest_s)
    finally:
        client.cancel()
    return {
        "submitted_s": submitted - began,
        "coordinator_s": view["since"][JobStatus.CREATED] / 1000 - began,
        "running_s": running - began,
        "first_record_s": first - began,
        "restarted_s": again - killed,
    }


def _first_note(notes: Path, attempt: int, longest_s: float) -> float:
    """When the first record of this attempt came."""

    def first() -> float:
        return min((float(path.read_text()) for path in notes.glob(f"{attempt}-*")), default=0.0)

    return awaited(first, f"no record of attempt {attempt} comes", LOOK_S, longest_s)
