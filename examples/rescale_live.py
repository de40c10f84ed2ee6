"""A job that gets more and fewer subtasks while it runs, and loses nothing.

Payments are numbered by shop, each of which takes as long as a call to some service. Two thousand
come in a second, and two subtasks do less than that: the job falls behind. While it prints how far,
it is asked to go on with four, and begins to catch up; and later with one. It stays the same job:
it goes on from a checkpoint that it takes for that, with the processes that it has and needs, and
the counts of the shops move to where these are now. In the end the calls are left out, so that the
rest goes through at once, and the files are read: of each shop every number must be there, once.
The program exits non-zero if one is not.

    python examples/rescale_live.py
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from strom import (
    CheckpointConfig,
    JobConfig,
    JobStatus,
    KeyedProcessFunction,
    Row,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    connect_to_ray,
)
from strom.connectors.datagen import DataGenSource
from strom.connectors.files import ParquetSink

COUNT = 300_000
SHOPS = 500
A_SECOND = 2_000
"""So many come in."""

CALL_S = 1 / 800
"""So long does a call take."""

STEPS = (4, 1)
"""Where it goes from two."""

PAYMENT = pa.schema([("shop", pa.int64()), ("number", pa.int64())])
NUMBERED = Types.ROW_NAMED(["shop", "payment"], [Types.LONG(), Types.LONG()])


def payments(start: int, count: int) -> pa.RecordBatch:
    """Payments `start` on, made up, the same each time."""
    numbers = np.arange(start, start + count)
    columns = [pa.array(numbers * 7919 % SHOPS), pa.array(numbers)]
    return pa.RecordBatch.from_arrays(columns, schema=PAYMENT)


class Numbering(KeyedProcessFunction):
    """Gives each payment of a shop the next number, with a call for each until `enough` is
    there."""

    def __init__(self, enough: Path) -> None:
        self.enough = enough

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))
        self.calls = self.newest = 0
        runtime_context.get_metrics_group().gauge("newest", lambda: self.newest)
        self.done = False

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        if not self.done:
            self.calls += 1
            self.done = self.calls % 50 == 0 and self.enough.exists()
            time.sleep(CALL_S)
        self.newest = value.number
        number = (self.last.value() or 0) + 1
        self.last.update(number)
        yield Row(shop=value.shop, payment=number)


def program(env: StreamExecutionEnvironment, folder: Path) -> None:
    """Write the whole pipeline into `env`."""
    source = DataGenSource(payments, COUNT, splits=4, schema=PAYMENT, block=50)
    stream = env.from_source(source, source_name="payments").key_by("shop")
    numbered = stream.process(Numbering(folder / "enough"), output_type=NUMBERED)
    numbered.name("numbering").sink_to(ParquetSink(folder / "out")).name("files")


def wrong(folder: Path) -> int:
    """So many shops have not every number once."""
    found: Counter[tuple[int, int]] = Counter()
    for file in folder.rglob("*.parquet"):
        for row in pq.ParquetFile(file).read().to_pylist():
            found[row["shop"], row["payment"]] += 1
    each = COUNT // SHOPS
    wanted = {(shop, number) for shop in range(SHOPS) for number in range(1, each + 1)}
    bad = {shop for shop, _ in wanted ^ found.keys()}
    return len(bad | {shop for (shop, _), times in found.items() if times > 1})


def lag_s(client: Any, began: float) -> float:
    """How long ago the payments came that its subtasks are at, on average."""
    numbering = next(o for o in client.metrics()["operators"] if o["name"] == "numbering")
    newest = [n for n in numbering["gauges"].get("newest", {}).values() if n] or [0]
    return max(0.0, time.monotonic() - began - sum(newest) / len(newest) / A_SECOND)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="at each step (default 8)")
    options = parser.parse_args(arguments)
    connect_to_ray(num_cpus=4, log_to_driver=False)
    with tempfile.TemporaryDirectory(prefix="strom-rescale-") as root:
        folder = Path(root)
        interval, storage = timedelta(seconds=1), str(folder / "checkpoints")
        checkpoints = CheckpointConfig(interval, storage, unaligned=True)
        config = JobConfig(parallelism=2, batch_size=50, checkpoint=checkpoints, slot_cpus=0.5)
        env = StreamExecutionEnvironment.get_execution_environment(config, host="ray")
        program(env, folder)
        client = env.execute_async("payments")
        while client.get_job_status() is not JobStatus.RUNNING:
            time.sleep(0.1)
        began = time.monotonic()
        silences = []
        for parallelism in STEPS:
            watch(client, began, options.seconds)
            silences.append(rescale(client, parallelism))
        watch(client, began, options.seconds)
        (folder / "enough").touch()
        restarts = client.get_job_execution_result().metrics["restarts"]
        bad = wrong(folder / "out")
    found = {"payments": COUNT, "silence_ms": silences, "restarts": restarts, "shops_wrong": bad}
    print(json.dumps(found))
    return 1 if bad else 0


def watch(client: Any, began: float, seconds: float) -> None:
    """Print for so long how far it is behind."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        print(f"{lag_s(client, began):6.1f} s behind", flush=True)
        time.sleep(1.0)


def rescale(client: Any, parallelism: int) -> int:
    """Have it go on, and say what came of it: for how many ms not all tasks ran."""
    made = client.rescale(parallelism).result(180)
    ms = round(made.silence.total_seconds() * 1000)
    for name, before in made.before.items():
        print(f"       {name}: {before} -> {made.after[name]}", flush=True)
    print(f"       from checkpoint {made.checkpoint_id}, after {ms} ms", flush=True)
    return ms


if __name__ == "__main__":
    sys.exit(main())
