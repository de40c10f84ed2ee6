"""Checkpoints under full backpressure: source -> keyed sum -> a stage that is slow, through two
exchanges whose buffers are all full.

    off         without checkpoints, for the throughput
    aligned     a barrier waits for all records before it
    timeout     aligned for so long (TIMEOUT), then it overtakes
    unaligned   it overtakes at once

How long each one took is the time of its manifest less that of its trigger; what was in flight is
the bytes of what it overtook.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from strom import DiscardSink
from strom.connectors.datagen import DataGenSource

from .measure import Setting, environment
from .streams import KEY_VALUE, key_values

TIMEOUT = timedelta(milliseconds=300)
WAYS: dict[str, timedelta | None] = {
    "off": None,
    "aligned": None,
    "timeout": TIMEOUT,
    "unaligned": timedelta(0),
}


class Slow:
    """Takes so many seconds a record, in which the processor is free."""

    def __init__(self, per_record_s: float) -> None:
        self._per_record_s = per_record_s

    def __call__(self, batch: Any) -> Any:
        time.sleep(len(batch) * self._per_record_s)
        return batch


def measure_unaligned(
    events: int, rate: int, parallelism: int, host: str, interval_s: float
) -> Iterator[dict[str, Any]]:
    """A line per way. `rate`: records a second that each subtask of the slow stage can take."""
    speed: float | None = None
    for way, timeout in WAYS.items():
        with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
            seconds = _run(way, timeout, events, rate, parallelism, host, interval_s, folder)
            found = list(_checkpoints(Path(folder)))
        speed = speed or events / seconds
        line: dict[str, Any] = {
            "name": "unaligned",
            "way": way,
            "events": events,
            "parallelism": parallelism,
            "host": host,
            "events_per_s": round(events / seconds),
            "of_off": round(events / seconds / speed, 3),
            "checkpoints": len(found),
        }
        if found:
            took = sorted(took for took, _ in found)
            line["median_s"] = round(statistics.median(took), 3)
            line["worst_s"] = round(took[-1], 3)
            line["in_flight_mb"] = round(statistics.median(size for _, size in found) / 2**20, 2)
        yield line


def _run(
    way: str,
    timeout: timedelta | None,
    events: int,
    rate: int,
    parallelism: int,
    host: str,
    interval_s: float,
    folder: str,
) -> float:
    """Seconds."""
    interval = None if way == "off" else interval_s
    env = environment(Setting("unaligned", events, parallelism, host, interval), folder)
    config = env.get_checkpoint_config()
    config.set_num_retained_checkpoints(10_000)
    if timeout is not None:
        config.enable_unaligned_checkpoints().set_aligned_checkpoint_timeout(timeout)
    source = DataGenSource(key_values, events, schema=KEY_VALUE, block=16_384)
    sums = env.from_source(source, source_name="numbers").key_by("k").sum("v")
    slow = sums.rebalance().map_batches(Slow(1 / rate)).name("slow")
    slow.sink_to(DiscardSink())
    runtime_ms: float = env.execute("unaligned").net_runtime_ms
    return runtime_ms / 1000


def _checkpoints(folder: Path) -> Iterator[tuple[float, int]]:
    """Of each but the terminal one, seconds and bytes in flight."""
    for path in sorted(folder.glob("*/chk-*/manifest.json")):
        body = json.loads(path.read_text())["body"]
        if body["terminal"]:
            continue
        handles = (subtask.get("in_flight") for subtask in body["subtasks"])
        size = sum(handle["file"]["size"] for handle in handles if handle is not None)
        yield os.stat(path).st_mtime - body["timestamp_ms"] / 1000, size
