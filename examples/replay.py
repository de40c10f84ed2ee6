"""A failure of the job, again on one's own machine.

Sensor readings, one a second of event time, which the job reads faster than that. Windows of a
minute give the spread of each sensor's values. After an hour one reading has a text where a number
should be, and the function of the windows breaks on it. The job had recorded what
that operator got since its last checkpoint: `replay` runs it on that again, to the same failure.
Then the repaired function is run on the same records, before any job is started again; what it
gives is compared with a plain computation. The program exits non-zero if anything differs.

    python examples/replay.py

From a shell the first part is `strom replay FOLDER`, and with `--pdb` the debugger stands in the
line that raised.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from strom import (
    DiscardSink,
    Duration,
    JobConfig,
    JobFailedError,
    ProcessWindowFunction,
    RestartStrategies,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
    WatermarkStrategy,
)
from strom.connectors.datagen import DataGenSource
from strom.testing import replay

READINGS = 5_000
"""One a second, of four sensors by turns."""

BROKEN = 3_650
"""This one has no number."""

CONFIG = JobConfig(batch_size=64, auto_watermark_interval=timedelta(milliseconds=10))
MINUTE_MS = 60_000
SCHEMA = pa.schema([("sensor", pa.string()), ("at", pa.int64()), ("value", pa.string())])


def text_of(number: int) -> str:
    return "n/a" if number == BROKEN else str(number * 37 % 101)


def readings(start: int, count: int) -> pa.RecordBatch:
    """Readings `start` on, made up, the same each time."""
    numbers = range(start, start + count)
    columns = [
        [f"s{n % 4}" for n in numbers],
        [n * 1_000 for n in numbers],
        [text_of(n) for n in numbers],
    ]
    return pa.RecordBatch.from_arrays([pa.array(one) for one in columns], schema=SCHEMA)


class Spread(ProcessWindowFunction):
    """The difference of a sensor's greatest value and its least one."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Any
    ) -> Iterator[Any]:
        values = self.values(elements)
        yield key, context.window().start, max(values) - min(values)

    def values(self, elements: Any) -> list[int]:
        return [int(one.value) for one in elements]


class RepairedSpread(Spread):
    """Without values that are none."""

    def values(self, elements: Any) -> list[int]:
        return [int(one.value) for one in elements if one.value.isdecimal()]


def program(env: StreamExecutionEnvironment, function: Spread) -> None:
    source = DataGenSource(readings, rate=2_400, count=READINGS, schema=SCHEMA)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    strategy = strategy.with_timestamp_assigner(lambda reading, _: reading.at)
    read = env.from_source(source, strategy, "readings").uid("readings")
    minutes = TumblingEventTimeWindows.of(Duration.of_minutes(1))
    spreads = read.key_by("sensor").window(minutes).process(function).uid("spreads")
    spreads.sink_to(DiscardSink()).uid("nowhere")


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(CONFIG)


def broken_job(folder: Path) -> str:
    """Runs until it fails; what it failed of."""
    env = environment()
    env.set_restart_strategy(RestartStrategies.no_restart())
    env.enable_checkpointing(timedelta(milliseconds=200), storage=str(folder / "checkpoints"))
    env.record(str(folder / "recorded"), operators=["spreads"])
    program(env, Spread())
    try:
        env.execute("spreads")
    except JobFailedError as error:
        return str(error).splitlines()[0]
    raise AssertionError("the job did not fail")


def wanted(since_ms: int) -> list[Any]:
    """The spreads of the windows from there on, without streams."""
    found: dict[tuple[int, str], list[int]] = {}
    for reading in readings(0, READINGS).to_pylist():
        start = reading["at"] // MINUTE_MS * MINUTE_MS
        if start >= since_ms and reading["value"].isdecimal():
            found.setdefault((start, reading["sensor"]), []).append(int(reading["value"]))
    return [(key, at, max(some) - min(some)) for (at, key), some in sorted(found.items())]


def main() -> int:
    logging.getLogger("strom").setLevel(logging.CRITICAL)  # that the job fails is what is wanted
    with tempfile.TemporaryDirectory(prefix="strom-replay-") as name:
        folder = Path(name)
        print("in the job:", broken_job(folder))
        began = time.perf_counter()
        failed = replay(str(folder / "recorded"), "spreads")
        took_s = time.perf_counter() - began
        print(f"again, from checkpoint {failed.checkpoint} on, {failed.records} readings:")
        print(f"  {type(failed.error).__name__}: {failed.error}, at {failed.fault}")
        env = environment()
        program(env, RepairedSpread())
        repaired = replay(str(folder / "recorded"), "spreads", graph=env.get_job_graph())
        repaired.check()
        print("repaired:", *repaired.outputs[-4:], sep="\n  ")
    same = isinstance(failed.error, ValueError) and "n/a" in str(failed.error)
    at_fault = failed.fault is not None and failed.fault.key == f"s{BROKEN % 4}"
    found = sorted(repaired.outputs, key=lambda one: (one[1], one[0]))
    expected = [one for one in wanted(found[0][1]) if one[1] <= found[-1][1]]
    reaches = found[-1][1] >= BROKEN * 1_000 // MINUTE_MS * MINUTE_MS
    right = same and at_fault and failed.checkpoint > 0 and took_s < 10
    right = right and reaches and found == expected
    print("in the end:", "as it must be" if right else expected, sep="\n  ")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
