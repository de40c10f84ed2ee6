"""What the death of processes costs a job that runs: for how long no records come out.

    paced numbers -> by key -> what notes when which came -> files

`task`: of a job with much state (`stateful`), the process of a task that has half of it is killed.
`output_s`, from each kill: the longest time without a record, processes started and state restored.

`coordinator`: its process is killed with SIGKILL, `kills` times, each once the one before is made
up for. `silence_ms` is the longest time without a record between the kills, beside the longest
before the first (`usual_gap_ms`); `control_s` from a kill until the job answers again. In the end
the files are read: each number must be there once.

`node`: of a cluster of nodes of one CPU on this machine, with one more than the job has slots, the
raylet and all processes of one under the job's tasks are killed; then a node is added, and so on.
`known_s` from a kill until Ray takes the node for dead, which is a setting of Ray's; `output_s`
from then until records come out again, processes started and state restored.

`gcs`: the control service of a Ray of one node, which keeps what it knows in a Redis, is killed
and started again `AWAY_S` later. `away_s` from a kill until Ray tells of its nodes again;
`checkpoints_away` those that completed meanwhile.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from strom import FixedDelayRestart
from strom.connectors.datagen import DataGenSource
from strom.connectors.files import FileSink
from strom.core.errors import StromError

from .awaited import START_S, await_known_dead, await_running, awaited
from .measure import Setting, environment
from .regions import NUMBERS, Notes, Noting, numbers, read_numbers
from .stateful import stateful_job

PAUSE_S = 2.0
"""From when the job answers again to the next kill."""

NODE_S = 45.0
"""What the death of a node may take, for there to be records until the end."""


STATE_MB = 100
"""Of the job whose tasks are killed."""

GCS_S = 15.0
"""What the death of Ray's control service may take, the same."""

AWAY_S = 5.0
"""For how long Ray is without its control service."""


def measure_coordinator(rate: int, kills: int, parallelism: int) -> dict[str, Any]:
    """One line."""
    count = round(rate * (10.0 + kills * (PAUSE_S + 3.0)))
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        root = Path(folder)
        env = _program(root, rate, count, parallelism)
        client: Any = env.execute_async("failover")
        try:
            await_running(client)
            time.sleep(2.0)  # the first records, and the imports that they take
            start = time.time()
            time.sleep(3.0)
            first = time.time()
            back = [_kill_coordinator(client) for _ in range(kills)]
            last = time.time()
            client.get_job_execution_result(timedelta(seconds=START_S + count / rate))
            view = client.last_view(timedelta(seconds=10))
        except BaseException:
            client.cancel()
            raise
        notes = Notes.of(root / "notes", 0)
        found = read_numbers(root / "files")
    return {
        "name": "failover",
        "killed": "coordinator",
        "host": "ray",
        "rate": rate,
        "parallelism": parallelism,
        "kills": kills,
        "silence_ms": round(notes.between(first, last)[1] * 1000),
        "usual_gap_ms": round(notes.between(start, first)[1] * 1000),
        "control_s": [round(seconds, 2) for seconds in back],
        "attempts": 1 + max(task["attempt"] for task in view["tasks"]),
        "lost": count - len(set(found)),
        "doubled": len(found) - len(set(found)),
    }


def measure_task(rate: int, kills: int, parallelism: int) -> dict[str, Any]:
    """One line."""
    output = []
    with stateful_job("failover", STATE_MB, rate, parallelism) as job:
        for _ in range(kills):
            await_running(job.client)
            time.sleep(PAUSE_S)
            before = _completed(job.client)
            _await_checkpoint(job.client, before)
            view = job.client.view()
            killed = time.time()
            os.kill(view["tasks"][-1]["pid"], signal.SIGKILL)
            _await_restart(job.client, view["restarts"])
            await_running(job.client)
            time.sleep(PAUSE_S)  # records of all its tasks, behind the silence
            output.append(job.silence_ms(killed, time.time()) / 1000)
        view = job.client.view()
    return {
        "name": "failover",
        "killed": "task",
        "host": "ray",
        "rate": rate,
        "parallelism": parallelism,
        "kills": kills,
        "state_mb": STATE_MB,
        "checkpoint_bytes": job.checkpoint_bytes,
        "output_s": [round(seconds, 2) for seconds in output],
        "restarts": view["restarts"],
    }


def measure_node(rate: int, kills: int, parallelism: int) -> dict[str, Any]:
    """One line. This process's own Ray, if it has one, ends."""
    import ray
    from strom.testing.machines.local_nodes import LocalNodes

    ray.shutdown()
    count = round(rate * (10.0 + kills * NODE_S))
    known, output = [], []
    cpus = [0, *[1] * (parallelism + 1)]
    with (
        tempfile.TemporaryDirectory(prefix="strom-bench-") as folder,
        LocalNodes(cpus, {}) as nodes,
    ):
        root = Path(folder)
        env = _program(root, rate, count, parallelism)
        client: Any = env.execute_async("failover")
        try:
            for _ in range(kills):
                await_running(client)
                time.sleep(PAUSE_S)
                killed, at = _kill_node(nodes)
                known.append(at - killed)
                output.append(_first_after(root / "notes", at) - at)
                nodes.add(1)
            client.get_job_execution_result(timedelta(seconds=START_S + count / rate))
            view = client.last_view(timedelta(seconds=10))
        except BaseException:
            client.cancel()
            raise
        found = read_numbers(root / "files")
    return {
        "name": "failover",
        "killed": "node",
        "host": "ray",
        "rate": rate,
        "parallelism": parallelism,
        "kills": kills,
        "known_s": [round(seconds, 2) for seconds in known],
        "output_s": [round(seconds, 2) for seconds in output],
        "restarts": view["restarts"],
        "lost": count - len(set(found)),
        "doubled": len(found) - len(set(found)),
    }


def measure_gcs(rate: int, kills: int, parallelism: int) -> dict[str, Any]:
    """One line. This process's own Ray, if it has one, ends. RedisServerError without Redis."""
    import ray
    from strom.testing.machines.local_nodes import LocalNodes
    from strom.testing.redis import RedisServer

    ray.shutdown()
    count = round(rate * (10.0 + kills * GCS_S))
    away, checkpoints = [], []
    with (
        tempfile.TemporaryDirectory(prefix="strom-bench-") as folder,
        RedisServer() as redis,
        LocalNodes([parallelism], {}, redis) as nodes,
    ):
        root = Path(folder)
        env = _program(root, rate, count, parallelism)
        client: Any = env.execute_async("failover")
        try:
            await_running(client)
            time.sleep(2.0)
            start = time.time()
            time.sleep(3.0)
            first = time.time()
            for _ in range(kills):
                before = _completed(client)
                killed = nodes.kill_control()
                time.sleep(AWAY_S)
                checkpoints.append(_completed(client) - before)
                nodes.start_control()
                ray.nodes()
                away.append(time.time() - killed)
                time.sleep(PAUSE_S)
            last = time.time()
            client.get_job_execution_result(timedelta(seconds=START_S + count / rate))
            view = client.last_view(timedelta(seconds=10))
        except BaseException:
            client.cancel()
            raise
        notes = Notes.of(root / "notes", 0)
        found = read_numbers(root / "files")
    return {
        "name": "failover",
        "killed": "gcs",
        "host": "ray",
        "rate": rate,
        "parallelism": parallelism,
        "kills": kills,
        "away_s": [round(seconds, 2) for seconds in away],
        "silence_ms": round(notes.between(first, last)[1] * 1000),
        "usual_gap_ms": round(notes.between(start, first)[1] * 1000),
        "checkpoints_away": checkpoints,
        "restarts": view["restarts"],
        "lost": count - len(set(found)),
        "doubled": len(found) - len(set(found)),
    }


def _await_restart(client: Any, before: int) -> None:
    """One more than so many."""
    awaited(lambda: client.view()["restarts"] > before, "the job does not restart", 0.05)


def _await_checkpoint(client: Any, before: int) -> None:
    """One more than so many."""
    awaited(lambda: _completed(client) > before, "no checkpoint completes", 0.05)


def _completed(client: Any) -> int:
    """Checkpoints of the job so far."""
    return int(client.metrics()["checkpoints"]["completed"])


def _program(root: Path, rate: int, count: int, parallelism: int) -> Any:
    for name in ("notes", "checkpoints", "files"):
        (root / name).mkdir()
    setting = Setting("failover", count, parallelism, "ray", 0.5)
    env = environment(setting, str(root / "checkpoints"))
    env.set_restart_strategy(FixedDelayRestart(10_000, timedelta(milliseconds=10)))
    source = DataGenSource(numbers, count, splits=parallelism, rate=rate, schema=NUMBERS, block=256)
    stream = env.from_source(source, source_name="numbers").key_by("n")
    noted = stream.map_batches(Noting(str(root / "notes"), 0)).name("notes")
    noted.sink_to(FileSink(root / "files"))
    return env


def _kill_node(nodes: Any) -> tuple[float, float]:
    """One with tasks: when that was, and when Ray knew."""
    victim = next(iter(nodes.actors("TaskActor")))
    return nodes.kill(victim), await_known_dead(nodes, victim)


def _first_after(notes: Path, at: float) -> float:
    """When records came out, for the first time behind `at`."""

    def first() -> float | None:
        return next((one for one in Notes.of(notes, 0).times if one > at), None)

    found = awaited(first, "no records come out", 0.2)
    assert found is not None
    return found


def _kill_coordinator(client: Any) -> float:
    """Seconds until the job answered that it runs."""
    os.kill(coordinator_pid(str(client.get_job_id())), signal.SIGKILL)
    began = time.monotonic()

    def runs() -> bool:
        with suppress(StromError):
            return bool(client.view()["status"] == "RUNNING")
        return False

    awaited(runs, "the job has no coordinator", 0.02)
    took = time.monotonic() - began
    time.sleep(PAUSE_S)
    return took


def coordinator_pid(job_id: str) -> int:
    """Of the process that a job's coordinator has now."""
    from ray._private.state import actors
    from strom.engine.hosts.coordinator_names import find_coordinator

    found = actors(find_coordinator(job_id)._actor_id.hex())
    if found["State"] != "ALIVE":
        raise LookupError(f"the coordinator of job {job_id} has no process")
    return int(found["Pid"])
