"""How long a job is down when one of its processes is killed, and what its tasks read to start
again: from copies on their machine with `--conf execution.state-recovery.from-local=true`."""

from __future__ import annotations

import os
import signal
import statistics
import tempfile
import time
from typing import Any

from strom import DiscardSink
from strom.connectors.datagen import DataGenSource

from .measure import Setting, environment
from .streams import KEY_VALUE, key_values

RATE = 100_000
TIMEOUT_S = 60.0


def measure_recovery(kills: int, parallelism: int) -> dict[str, Any]:
    """SIGKILL a task's process, again and again; seconds from the signal until records flow
    again."""
    times = []
    with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
        env = environment(Setting("recovery", 0, parallelism, "ray", 0.5), folder)
        source = DataGenSource(key_values, None, schema=KEY_VALUE, rate=RATE, block=1000)
        stream = env.from_source(source, source_name="paced").key_by("k").sum("v")
        stream.sink_to(DiscardSink())
        client = env.execute_async("recovery")
        try:
            for _ in range(kills):
                times.append(_kill_one(client))
            checkpoints = client.metrics()["checkpoints"]
        finally:
            client.cancel()
    return {
        "name": "recovery",
        "kills": kills,
        "parallelism": parallelism,
        "host": "ray",
        "median_s": round(statistics.median(times), 3),
        "max_s": round(max(times), 3),
        "checkpoints": checkpoints["completed"],
        "checkpoint_ms": checkpoints["last_duration_ms"],
        "state_mb": round((checkpoints["last_size"] or 0) / 2**20, 2),
        "restored_mb": round(checkpoints["restored_bytes"] / 2**20, 2),
        "restored_local_mb": round(checkpoints["restored_local_bytes"] / 2**20, 2),
    }


def _kill_one(client: Any) -> float:
    """Wait for a checkpoint of the current attempt, kill the last task, time the way back."""
    before = client.metrics()
    done = before["checkpoints"]["completed"]
    _until(client, lambda m: m["checkpoints"]["completed"] > done and _flowing(m))
    metrics = client.metrics()
    attempt = metrics["attempt"]
    start = time.monotonic()
    os.kill(metrics["tasks"][-1]["pid"], signal.SIGKILL)
    _until(client, lambda m: m["attempt"] > attempt and _flowing(m))
    return time.monotonic() - start


def _flowing(metrics: dict[str, Any]) -> bool:
    return metrics["state"] == "RUNNING" and all(o["records_in"] for o in metrics["operators"][1:])


def _until(client: Any, condition: Any) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition(client.metrics()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not there after {TIMEOUT_S} s: {client.metrics()}")
        time.sleep(0.02)
