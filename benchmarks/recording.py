"""What recording an operator costs: source -> keyed sum, whose inputs are recorded or not; on
columns, and on objects, which are pickled on the task's thread."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

from strom import DiscardSink
from strom.connectors.datagen import DataGenSource

from .measure import Setting, environment
from .streams import KEY_VALUE, key_values


def measure_recording(
    events: int, parallelism: int, host: str, interval_s: float
) -> Iterator[dict[str, Any]]:
    """A line per kind of records and way."""
    for kind, count in (("columns", events), ("objects", events // 10)):
        speed: float | None = None
        for recorded in (False, True):
            with tempfile.TemporaryDirectory(prefix="strom-bench-") as folder:
                seconds = _run(kind, count, parallelism, host, interval_s, recorded, folder)
            speed = speed or count / seconds
            yield {
                "name": "recording",
                "records": kind,
                "recorded": recorded,
                "events": count,
                "parallelism": parallelism,
                "host": host,
                "events_per_s": round(count / seconds),
                "of_unrecorded": round(count / seconds / speed, 3),
            }


def _run(
    kind: str,
    events: int,
    parallelism: int,
    host: str,
    interval_s: float,
    recorded: bool,
    folder: str,
) -> float:
    """Seconds."""
    setting = Setting("recording", events, parallelism, host, interval_s)
    env = environment(setting, f"{folder}/checkpoints")
    if recorded:
        env.record(f"{folder}/recorded", ["sums"])
    source = DataGenSource(key_values, events, schema=KEY_VALUE, block=16_384)
    read = env.from_source(source, source_name="numbers")
    if kind == "objects":
        read = read.map(lambda row: (row.k, row.v))
        sums = read.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
    else:
        sums = read.key_by("k").sum("v")
    sums.uid("sums").sink_to(DiscardSink())
    runtime_ms: float = env.execute("recording").net_runtime_ms
    return runtime_ms / 1000
