"""A job whose parallelism follows its load by itself, and that loses nothing by it.

Payments are numbered by shop, each of which takes as long as a call to some service: one subtask
does 500 in a second. First 250 come in a second, then 1,400, then 250 again. Nobody asks for
anything: the job's autoscaler sees that the two subtasks it began with are too many, later that the
one that is left is too few, and in the end too many again, says so, and has the job rescaled each
time, as `client.rescale` does. The program prints what it has decided and why, and in the end it
reads the files: of each shop every number must be there, once. It exits non-zero if one is not.

    python examples/autoscale_live.py
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from strom import (
    Configuration,
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
from strom.connectors.hybrid import HybridSource

SHOPS = 500
RATES = (250, 1_400, 250)
CALL_S = 1 / 500

PAYMENT = pa.schema([("shop", pa.int64()), ("number", pa.int64())])
NUMBERED = Types.ROW_NAMED(["shop", "payment"], [Types.LONG(), Types.LONG()])

OPTIONS = {
    "parallelism.default": "2",
    "pipeline.max-parallelism": "64",
    "strom.batch-size": "20",
    "execution.checkpointing.interval": "1 s",
    "execution.checkpointing.unaligned.enabled": "true",
    "strom.slot.cpus": "0.5",
    "job.autoscaler.enabled": "true",
    "job.autoscaler.interval": "500 ms",
    "job.autoscaler.metrics.window": "3 s",
    "job.autoscaler.stabilization.interval": "1 s",
    "job.autoscaler.scale-down.interval": "1 s",
    "job.autoscaler.vertex.max-parallelism": "4",
    "job.autoscaler.catch-up.duration": "0 s",
}
"""Seconds where a job that is not to be watched has minutes."""


def payments(first: int, start: int, count: int) -> pa.RecordBatch:
    """Payments `first + start` on, made up, the same each time."""
    numbers = np.arange(first + start, first + start + count)
    columns = [pa.array(numbers * 7919 % SHOPS), pa.array(numbers)]
    return pa.RecordBatch.from_arrays(columns, schema=PAYMENT)


class Numbering(KeyedProcessFunction):
    """Gives each payment of a shop the next number, with a call for each."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        time.sleep(CALL_S)
        number = (self.last.value() or 0) + 1
        self.last.update(number)
        yield Row(shop=value.shop, payment=number)


def source(counts: list[int]) -> HybridSource:
    """So many payments at each of the rates."""
    parts = [
        DataGenSource(
            partial(payments, sum(counts[:at])), count, 2, RATES[at], schema=PAYMENT, block=10
        )
        for at, count in enumerate(counts)
    ]
    first, *others = parts
    builder = HybridSource.builder(first)
    for other in others:
        builder.add_source(other)
    return builder.build()


def program(env: StreamExecutionEnvironment, folder: Path, counts: list[int]) -> None:
    """Write the whole pipeline into `env`."""
    stream = env.from_source(source(counts), source_name="payments").key_by("shop")
    numbered = stream.process(Numbering(), output_type=NUMBERED).name("numbering")
    numbered.sink_to(ParquetSink(folder / "out")).name("files")


def wrong(folder: Path, count: int) -> int:
    """So many shops have not every number once."""
    found: Counter[tuple[int, int]] = Counter()
    for file in folder.rglob("*.parquet"):
        for row in pq.ParquetFile(file).read().to_pylist():
            found[row["shop"], row["payment"]] += 1
    each = Counter((np.arange(count) * 7919 % SHOPS).tolist())
    wanted = {(shop, number) for shop, most in each.items() for number in range(1, most + 1)}
    bad = {shop for shop, _ in wanted ^ found.keys()}
    return len(bad | {shop for (shop, _), times in found.items() if times > 1})


def watch(client: Any) -> None:
    """Print what runs, and what was decided, until the job is over."""
    began, told = time.monotonic(), 0
    while not client.get_job_status().is_terminal:
        time.sleep(1.0)
        told = say(client.metrics()["autoscaling"], told)
        vertices = client.view()["vertices"]
        widths = ", ".join(f"{one['name']}: {one['parallelism']}" for one in vertices)
        print(f"{time.monotonic() - began:6.1f} s   {widths}", flush=True)


def say(decisions: list[dict[str, Any]], told: int) -> int:
    """Those behind the first `told` that have come to something; how many those are now."""
    for one in decisions[told:]:
        if one["ended_ms"] is None:
            break
        why = "" if one["why"] is None else f" ({one['why']})"
        took_s = (one["ended_ms"] - one["at_ms"]) / 1000
        print(f"           {one['outcome'].lower()}{why} in {took_s:.1f} s: {one['text']}")
        told += 1
    return told


def directions(decisions: list[dict[str, Any]]) -> Counter[str]:
    """How often a task got more subtasks (up), and fewer (down)."""
    return Counter(
        "up" if one["wanted"] > one["parallelism"] else "down"
        for decision in decisions
        if decision["outcome"] == "DONE"
        for one in decision["vertices"]
        if one["wanted"] != one["parallelism"]
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=12.0, help="at each rate (default 12)")
    options = parser.parse_args(arguments)
    connect_to_ray(num_cpus=4, log_to_driver=False)
    counts = [round(rate * options.seconds) for rate in RATES]
    with tempfile.TemporaryDirectory(prefix="strom-autoscale-") as root:
        folder = Path(root)
        storage = {"execution.checkpointing.dir": str(folder / "checkpoints")}
        configuration = Configuration.from_dict(OPTIONS | storage)
        env = StreamExecutionEnvironment.get_execution_environment(configuration, host="ray")
        program(env, folder, counts)
        client = env.execute_async("payments")
        watch(client)
        metrics = client.get_job_execution_result().metrics
        bad = wrong(folder / "out", sum(counts))
    found = {"payments": sum(counts), **directions(metrics["autoscaling"])}
    found |= {"restarts": metrics["restarts"], "shops_wrong": bad}
    print(json.dumps(found))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
